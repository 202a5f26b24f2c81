//! What a terminal or a service manager asks of a process.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use std::{
    fs::File,
    sync::mpsc::{Sender, channel},
};

/// Holds SIGXFSZ back from the whole process: a write beyond the largest size of a file
/// (`ulimit -f`) then fails with EFBIG, as one to a full disk fails, and ends nothing. It is called
/// before any other thread is there.
///
/// # Errors
///
/// If the system refuses.
pub(crate) fn survive_file_size() -> Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGXFSZ);
    set.thread_block().context("signals")
}

/// What a signal asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SignalRequest {
    /// To end: SIGINT, SIGTERM, or SIGHUP because the terminal is gone.
    Stop,
    /// To take the description anew: SIGHUP.
    Reload,
}

/// Signals that wait until somebody listens.
#[derive(Debug)]
pub(crate) struct Signals {
    set: SigSet,
    /// Whether a terminal was there at the start.
    terminal: bool,
}

impl Signals {
    /// Holds the signals back from this thread and all that it starts from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub(crate) fn hold() -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().context("signals")?;
        Ok(Self { set, terminal: has_terminal() })
    }

    /// Tells each signal to whoever hears `told`.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(crate) fn tell(self, told: Sender<SignalRequest>) -> Result<()> {
        let listen = move || {
            while let Ok(signal) = self.set.wait() {
                let left = self.terminal && !has_terminal();
                let asked = if signal == Signal::SIGHUP && !left {
                    SignalRequest::Reload
                } else {
                    SignalRequest::Stop
                };
                if told.send(asked).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(())
    }
}

/// Calls `action` at each SIGINT, SIGTERM and SIGHUP. It is called before anything else starts a
/// thread: a signal ends the process where a thread does not hold it back.
///
/// # Errors
///
/// If the system refuses, or gives no thread.
pub(crate) fn on_stop(mut action: impl FnMut() + Send + 'static) -> Result<()> {
    let (tell, told) = channel();
    Signals::hold()?.tell(tell)?;
    let act = move || told.iter().for_each(|_| action());
    std::thread::Builder::new().name("stop".to_owned()).spawn(act)?;
    Ok(())
}

/// Whether the process belongs to a terminal that is still there.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

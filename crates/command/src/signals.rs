//! Signals from a terminal or a service manager.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use std::{
    fs::File,
    sync::mpsc::{Sender, channel},
};

/// Blocks SIGXFSZ for the process: a write beyond the file size limit (`ulimit -f`) then fails with
/// EFBIG instead of ending the process. It is called before any other thread is there.
///
/// # Errors
///
/// If the system refuses.
pub fn survive_file_size() -> Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGXFSZ);
    set.thread_block().context("signals")
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignalRequest {
    /// Stop: SIGINT, SIGTERM, or SIGHUP from a terminal that was closed.
    Stop,
    /// Reload the description: SIGHUP.
    Reload,
}

/// Blocked signals, until they are received.
#[derive(Debug)]
pub struct Signals {
    set: SigSet,
    /// Whether the process had a terminal at the start.
    terminal: bool,
}

impl Signals {
    /// Blocks the signals in this thread and all threads that it starts afterwards.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn hold() -> Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().context("signals")?;
        Ok(Self { set, terminal: has_terminal() })
    }

    /// Sends each signal to `told`.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn tell(self, told: Sender<SignalRequest>) -> Result<()> {
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
pub fn on_stop(mut action: impl FnMut() + Send + 'static) -> Result<()> {
    let (tell, told) = channel();
    Signals::hold()?.tell(tell)?;
    let act = move || told.iter().for_each(|_| action());
    std::thread::Builder::new().name("stop".to_owned()).spawn(act)?;
    Ok(())
}

/// Whether the process has a terminal that is still open.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

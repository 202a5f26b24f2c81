//! The control plane's connection to the data plane's process: starts it, tells and hears it, and
//! awaits its end.

use super::{
    confine::end_with_starter,
    handshake::{self, OpenLinks, PeerMessage, Shared, StartOrder, StartReport, StartedPlane},
    held::PassedDown,
    supervisor::{Downtime, ProcessCommand},
};
use crate::error::{DataError, failed, refused};
use gatewright_link::{ForwardingMaps, HeldDevice};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{signal, wait::waitpid},
    unistd::Pid,
};
use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

/// The process at the other end.
pub(super) struct Connection {
    now: Mutex<Now>,
    /// Whether it is told to stop.
    pub(super) stopping: AtomicBool,
    /// Who waits for another process in its place.
    exchange: Mutex<Option<Asked>>,
    /// Notified when somebody asks for another process in place of one that was given up, or for
    /// the end.
    pub(super) asked: Condvar,
    /// Who waits until drivers forward by other maps.
    maps_taken: Mutex<Option<SyncSender<String>>>,
    /// Whether the process has an older memo than the latest.
    memo_is_old: AtomicBool,
}

/// Who is told when another process runs.
pub(super) type Asked = SyncSender<Result<Downtime, DataError>>;

/// The process that runs now, or ran last.
pub(super) struct Now {
    pub(super) stream: UnixStream,
    pub(super) process: u32,
    /// The process, if it was started here and not adopted.
    pub(super) child: Option<Child>,
    pub(super) links: OpenLinks,
}

/// Maximum time for the process to end when it is told to.
pub(super) const STOPPED_WITHIN: Duration = Duration::from_secs(3);

/// Time between two looks at whether the process is told to stop.
const LOOK_EVERY: u16 = 500;

/// Maximum time for the rest of a message that has begun.
const MESSAGE_WITHIN: Duration = Duration::from_secs(5);

/// Maximum octets of a memo for a later control plane.
pub(super) const MEMO_OCTETS_MAX: usize = 64 << 10;

/// Maximum time until a memo can be passed, in milliseconds.
const MEMO_WITHIN_MS: u16 = 1_000;

/// Maximum time for drivers to forward by other maps: each loads a program, which the kernel checks
/// for seconds where processors are busy.
const MAPS_TAKEN_WITHIN: Duration = Duration::from_mins(1);

impl Connection {
    pub(super) fn new(now: Now) -> Self {
        Self {
            now: Mutex::new(now),
            stopping: AtomicBool::new(false),
            exchange: Mutex::new(None),
            asked: Condvar::new(),
            maps_taken: Mutex::new(None),
            memo_is_old: AtomicBool::new(false),
        }
    }

    /// A poisoned lock is safe here: each change is whole before the next.
    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::now`].
    pub(super) fn exchange(&self) -> MutexGuard<'_, Option<Asked>> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::now`].
    fn maps_taken(&self) -> MutexGuard<'_, Option<SyncSender<String>>> {
        self.maps_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends the process at once.
    pub(super) fn kill(&self) {
        // Its socket is open, so the number is its own still.
        let process = i32::try_from(self.now().process).unwrap_or(0);
        if process > 0 {
            let _gone = signal::kill(Pid::from_raw(process), signal::Signal::SIGKILL);
        }
    }

    fn tell(&self, message: &PeerMessage, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // With the lock held: one message comes after the other.
        handshake::tell(&self.now().stream, message, descriptors)
    }

    /// Tells the process to end.
    pub(super) fn tell_stop(&self) {
        // It may have ended already.
        let _gone = self.tell(&PeerMessage::Stop, &[]);
    }

    /// Has the process give a later control plane the memo that `latest` reads, of at most
    /// [`MEMO_OCTETS_MAX`] octets. If it does not take it now, [`Self::await_end`] passes it later: it
    /// must not keep an older one.
    pub(super) fn tell_memo(&self, latest: impl FnOnce() -> String) -> Result<(), DataError> {
        self.tell_memo_within(MEMO_WITHIN_MS, latest)
    }

    fn tell_memo_within(
        &self,
        within_ms: u16,
        latest: impl FnOnce() -> String,
    ) -> Result<(), DataError> {
        // Read with the lock held: an older one is never passed after a newer one.
        let now = self.now();
        let passed = pass_memo(&now.stream, within_ms, latest);
        self.memo_is_old.store(passed.is_err(), Ordering::Release);
        passed
    }

    /// Has drivers forward by other maps, and waits until they do.
    pub(super) fn exchange_maps(&self, maps: &ForwardingMaps) -> Result<(), DataError> {
        let (tell, told) = sync_channel(1);
        *self.maps_taken() = Some(tell);
        let descriptors: Vec<_> = maps.descriptors().collect();
        let passed = self.tell(&PeerMessage::maps(maps), &descriptors);
        passed.map_err(|error| match error {
            error if has_ended(&error) => DataError::Ended,
            error => failed("pass its maps")(error),
        })?;
        match told.recv_timeout(MAPS_TAKEN_WITHIN) {
            Ok(taken) if taken.is_empty() => Ok(()),
            Ok(taken) => Err(refused(format!("drivers do not forward by new maps: {taken}"))),
            Err(RecvTimeoutError::Timeout) => Err(DataError::Late),
            Err(RecvTimeoutError::Disconnected) => Err(DataError::Ended),
        }
    }

    /// Gives the devices that the process tells of to `hold`, until it has ended; kills it if it
    /// does not end when it is told to, or says what nobody understands. Passes the memo that `latest`
    /// reads, if the process did not take it when it changed.
    pub(super) fn await_end(&self, hold: impl Fn(HeldDevice), latest: impl Fn() -> String) {
        let Ok(stream) = self.now().stream.try_clone() else { return };
        let _set = stream.set_read_timeout(Some(MESSAGE_WITHIN));
        let mut told: Option<Instant> = None;
        loop {
            if is_readable(&stream) {
                match handshake::hear_peer(&stream) {
                    Ok((message, descriptors)) => self.heard(message, descriptors, &hold),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if has_ended(&error) => break,
                    Err(_) => {
                        self.kill();
                        break;
                    }
                }
            }
            if self.memo_is_old.load(Ordering::Acquire) {
                // Tried again at the next look.
                let _untold = self.tell_memo_within(0, &latest);
            }
            if self.is_stopping() {
                let since = *told.get_or_insert_with(Instant::now);
                if since.elapsed() > STOPPED_WITHIN {
                    self.kill();
                }
            }
        }
        // Nobody waits for what does not come any more.
        *self.maps_taken() = None;
        let mut now = self.now();
        if let Some(mut child) = now.child.take() {
            let _status = child.wait();
        } else if let Ok(process) = i32::try_from(now.process) {
            // A program that took this one's place in the same process is its parent still.
            let _other = waitpid(Pid::from_raw(process), None);
        }
    }

    fn heard(&self, message: PeerMessage, descriptors: Vec<OwnedFd>, hold: &impl Fn(HeldDevice)) {
        match message {
            PeerMessage::Device(facts) => hold(HeldDevice { facts, descriptors }),
            PeerMessage::MapsTaken(refused) => {
                // Who has waited for too long does not wait any more.
                let _unwanted = self.maps_taken().take().map(|tell| tell.try_send(refused));
            }
            PeerMessage::Stop | PeerMessage::Maps(_) | PeerMessage::Memo(_) => {}
        }
    }
}

/// Sends the memo that `latest` reads, if there is room for it in time.
fn pass_memo(
    stream: &UnixStream,
    within_ms: u16,
    latest: impl FnOnce() -> String,
) -> Result<(), DataError> {
    // A socket that is ready has three quarters of its buffer free (Linux, `unix_writable`): so a
    // process that reads nothing keeps nobody waiting in the middle of a message.
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    let ready = poll(&mut fds, PollTimeout::from(within_ms));
    if !ready.is_ok_and(|ready| ready > 0) {
        return Err(DataError::Late);
    }
    handshake::tell(stream, &PeerMessage::Memo(latest()), &[])
        .map_err(failed("pass what a later control plane is to have"))
}

/// Waits for a while until a message or the end has come; returns whether it has.
fn is_readable(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    // An error is a signal, or told by the reader.
    poll(&mut fds, PollTimeout::from(LOOK_EVERY)).is_ok_and(|ready| ready > 0)
}

/// Whether the other end of a socket has ended.
pub(super) fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Waits until the other end is closed; returns whether it was in time.
pub(super) fn await_end(mut stream: &UnixStream) -> bool {
    let _set = stream.set_read_timeout(Some(STOPPED_WITHIN));
    loop {
        match stream.read(&mut [0; 512]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// Starts the process and waits until its links are open.
pub(super) fn launch(
    command: &ProcessCommand,
    order: &StartOrder,
    (shared, passed): (&Shared, &PassedDown),
) -> Result<(Now, StartedPlane), DataError> {
    let (own, theirs) = UnixStream::pair().map_err(failed("make a socket"))?;
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        // The path of the program may be that of a link of the system.
        .arg0(std::env::args_os().next().unwrap_or_else(|| command.program.clone().into()))
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        // A signal of the terminal is the control plane's, which tells it.
        .process_group(0);
    end_with_starter(&mut process);
    let spawned = process.spawn();
    // Its end of the socket.
    drop(process);
    let mut child = spawned.map_err(failed("start the data plane's process"))?;
    let said = handshake::say(&own, order, Some(shared))
        .and_then(|()| passed.tell(&own))
        .and_then(|()| handshake::hear::<StartReport>(&own));
    let report = said.unwrap_or_else(|source| {
        Err(refused(format!("the data plane's process has ended before it began: {source}")))
    });
    match report {
        Ok(started) => {
            let (process, links) = (child.id(), started.links.clone());
            let now = Now { stream: own, process, child: Some(child), links };
            Ok((now, started))
        }
        Err(error) => {
            drop(own);
            let _status = child.wait();
            Err(error)
        }
    }
}

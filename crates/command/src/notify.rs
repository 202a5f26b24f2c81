//! Tells systemd what the service does (sd_notify(3)): `NOTIFY_SOCKET` names its socket, and each state
//! is a datagram there.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::{Duration, Instant},
};

/// What a service says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ServiceState {
    /// It has started.
    Ready,
    /// It still answers.
    Answers,
    /// It ends.
    Stopping,
}

/// When the service manager is told that the gateway answers; it restarts a service that does not say
/// so in time (sd_watchdog_enabled(3)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Watchdog {
    every: Duration,
    /// When it is told next.
    pub(crate) next: Instant,
}

impl Watchdog {
    /// The watchdog of this process, if the service manager has one.
    pub(crate) fn of_process(now: Instant) -> Option<Self> {
        let variable = |name| env::var(name).ok();
        let waits = wait_of(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), process::id())?;
        // Half of the time that it waits, as that page has it.
        let every = waits / 2;
        Some(Self { every, next: now + every })
    }

    /// Tells it, if the gateway `answers`.
    pub(crate) fn tell(&mut self, now: Instant, answers: bool) {
        self.next = now + self.every;
        if answers {
            notify(ServiceState::Answers);
        }
    }
}

/// How long the service manager waits, if that is for the process `own`.
fn wait_of(micros: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    let is_own = process.is_none_or(|process| process.parse() == Ok(own));
    let micros: u64 = micros?.parse().ok().filter(|micros| *micros > 0 && is_own)?;
    Some(Duration::from_micros(micros))
}

/// Tells the service manager, if there is one.
pub(crate) fn notify(state: ServiceState) {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return };
    // A manager that does not hear it ends the service after its own time, and says so.
    let _unheard = send(&path, state);
}

fn send(path: &OsStr, state: ServiceState) -> io::Result<()> {
    let address = match path.as_bytes() {
        // An abstract name (unix(7)).
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let text = match state {
        ServiceState::Ready => "READY=1\nSTATUS=the gateway runs",
        ServiceState::Answers => "WATCHDOG=1",
        ServiceState::Stopping => "STOPPING=1",
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sd_watchdog_enabled(3): microseconds, for the process that is named or for any.
    #[test]
    fn a_watchdog_is_for_the_process_that_is_named() {
        let wait = |micros: &str, process: Option<&str>| {
            wait_of(Some(micros.to_owned()), process.map(str::to_owned), 7)
        };
        assert_eq!(wait("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(wait("30000000", Some("7")), Some(Duration::from_secs(30)));
        for (micros, process) in [("30000000", Some("8")), ("0", None), ("soon", None)] {
            assert_eq!(wait(micros, process), None, "{micros} {process:?}");
        }
        assert_eq!(wait_of(None, None, 7), None);
    }
}

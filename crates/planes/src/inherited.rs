//! Listening sockets that a service manager has opened for this process (sd_listen_fds(3)).
#![expect(unsafe_code, reason = "descriptors that are there from the start have no owner yet")]

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::socket::{getsockopt, sockopt::AcceptConn},
};
use std::{
    env, io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    process,
    sync::OnceLock,
};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// Maximum descriptors that are looked at; a gateway has a handful of listeners.
const PASSED_MAX: RawFd = 64;

/// The name of a descriptor that the manager gave none (sd_listen_fds(3)).
const UNNAMED: &str = "unknown";

/// A listening socket that this process was started with.
#[derive(Debug)]
pub struct InheritedSocket {
    /// Its name: `FileDescriptorName=` of the manager's unit.
    pub name: String,
    socket: OwnedFd,
}

impl InheritedSocket {
    /// A second descriptor of it: the socket stays here for a later reload.
    ///
    /// # Errors
    ///
    /// If the system gives no descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}

/// The listening sockets that the manager has passed to this process. What is passed and does not
/// listen is left alone. The first call takes them, and belongs to the start of the process: programs
/// that it starts do not get them.
pub fn inherited_sockets() -> &'static [InheritedSocket] {
    static SOCKETS: OnceLock<Vec<InheritedSocket>> = OnceLock::new();
    SOCKETS.get_or_init(|| {
        let variable = |name| env::var(name).ok();
        let (number, count) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
        let passed = passed(number.as_deref(), count.as_deref(), variable("LISTEN_FDNAMES"));
        passed.into_iter().filter_map(|(descriptor, name)| take(descriptor, name)).collect()
    })
}

/// Whether a program that goes on in this process, by exec, has these sockets.
///
/// # Errors
///
/// If a descriptor is not open.
pub fn keep_inherited_sockets(kept: bool) -> io::Result<()> {
    let flags = if kept { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    inherited_sockets().iter().try_for_each(|one| {
        fcntl(one.socket.as_fd(), FcntlArg::F_SETFD(flags)).map(drop).map_err(io::Error::from)
    })
}

/// Descriptors with their names, by the variables of the environment.
fn passed(
    number: Option<&str>,
    count: Option<&str>,
    names: Option<String>,
) -> Vec<(RawFd, String)> {
    let is_own = number.and_then(|text| text.parse().ok()) == Some(process::id());
    let count = count.and_then(|text| text.parse().ok()).filter(|_| is_own).unwrap_or(0);
    let names = names.unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    (FIRST..FIRST + RawFd::min(count, PASSED_MAX))
        .map(|descriptor| (descriptor, names.next().unwrap_or(UNNAMED).to_owned()))
        .collect()
}

/// Takes a descriptor that is a listening socket.
fn take(descriptor: RawFd, name: String) -> Option<InheritedSocket> {
    // SAFETY: it is only asked what it is, and a number that is not open answers with an error; nothing
    // closes a number that this process was started with meanwhile, as nobody else owns it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    if !getsockopt(&borrowed, AcceptConn).ok()? {
        return None;
    }
    // SAFETY: the manager says by `LISTEN_PID` and `LISTEN_FDS` that it passed this number to this very
    // process, so no part of the process has opened it; the caller takes each number once.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Some(InheritedSocket { name, socket })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_of_the_process_that_is_named() {
        let own = process::id().to_string();
        let named = |number, count, names: &str| passed(number, count, Some(names.to_owned()));
        let both = vec![(3, "web".to_owned()), (4, UNNAMED.to_owned())];
        assert_eq!(named(Some(&own), Some("2"), "web"), both);
        assert_eq!(named(Some(&own), Some("1"), "web:more"), both[..1]);
        assert_eq!(named(Some("1"), Some("2"), "web"), []);
        assert_eq!(named(None, Some("2"), "web"), []);
        for wrong in ["-1", "", "x", "99999999999"] {
            assert_eq!(named(Some(&own), Some(wrong), "web"), [], "{wrong}");
        }
        let all = passed(Some(&own), Some("2147483647"), None);
        assert_eq!(all.len(), usize::try_from(PASSED_MAX).unwrap());
    }
}

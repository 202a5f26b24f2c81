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
};

/// What a service says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ServiceState {
    /// It has started.
    Ready,
    /// It ends.
    Stopping,
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
        ServiceState::Stopping => "STOPPING=1",
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

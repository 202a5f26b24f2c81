//! Port numbers for programs that cannot report which one the system gave them.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// The first port and the number of ports. They are below all that Linux gives to sockets without a
/// port (`net.ipv4.ip_local_port_range`, from 32768), so that no socket gets one meanwhile.
const FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// What shows other processes that this one uses a port, until it ends: an abstract name of Unix
/// sockets has one owner, and its kernel frees it.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 on which nothing listens, neither TCP nor UDP, and which no other call
/// returns, in this process or in another one while this one runs. 0 if there is none.
///
/// The system may give a port that it gave and that was closed to others; this one stays free until
/// its user comes, however late.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different places.
    let begin = u16::try_from(std::process::id() % 1_200).unwrap_or(0) * 10;
    let is_free = |port: &u16| {
        let at = (Ipv4Addr::LOCALHOST, *port);
        reserve(*port) && TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    let next = || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        FIRST + (begin + number % PORTS) % PORTS
    };
    (0..PORTS).map(|_| next()).find(is_free).unwrap_or(0)
}

/// Whether no process had reserved the port; now this one has.
fn reserve(port: u16) -> bool {
    let address = SocketAddr::from_abstract_name(format!("gatewright-port-{port}"));
    let Ok(listener) = address.and_then(|address| UnixListener::bind_addr(&address)) else {
        return false;
    };
    // A panic elsewhere leaves the list whole.
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same_and_each_can_be_used() {
        let ports = [(); 50].map(|()| free_port());
        let listeners = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        drop(listeners);
        let at = SocketAddr::from_abstract_name(format!("gatewright-port-{}", ports[0])).unwrap();
        assert!(UnixListener::bind_addr(&at).is_err(), "another process would get it, too");
    }
}

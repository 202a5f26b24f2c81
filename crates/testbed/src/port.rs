//! Port numbers for programs that cannot report which one the system gave them.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port and the number of ports. They are below all that Linux gives to sockets without a
/// port (`net.ipv4.ip_local_port_range`, from 32768), so that no socket gets one meanwhile.
const FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// A port of 127.0.0.1 on which nothing listens, neither TCP nor UDP, and which no other call in
/// this process returns. 0 if there is none.
///
/// The system may give a port that it gave and that was closed to others; this one stays free until
/// its user comes, however late.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different places.
    let begin = u16::try_from(std::process::id() % 1_200).unwrap_or(0) * 10;
    let is_free = |port: &u16| {
        let at = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    let next = || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        FIRST + (begin + number % PORTS) % PORTS
    };
    (0..PORTS).map(|_| next()).find(is_free).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same_and_each_can_be_used() {
        let ports = [(); 50].map(|()| free_port());
        let listeners = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        drop(listeners);
    }
}

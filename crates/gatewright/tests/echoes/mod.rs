//! Servers and clients over TCP in namespaces, for tests of who is reached there.

use crate::running::WITHIN;
use gatewright_testbed::Namespace;
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Octets that go there and back.
const OCTETS: u32 = 100_000;

/// A server of the kernel in `place` that sends back what it gets, once.
pub(crate) fn echo(place: &Namespace, at: &str) -> thread::JoinHandle<()> {
    let listener = place.run(|| TcpListener::bind(at)).unwrap().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut octets = vec![0; OCTETS as usize];
        stream.read_exact(&mut octets).unwrap();
        stream.write_all(&octets).unwrap();
    })
}

/// Connects a program of `from` to an address.
pub(crate) fn connect(from: &Namespace, to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    from.run(|| TcpStream::connect_timeout(&to, WITHIN)).unwrap()
}

/// Sends octets to such a server, and compares what comes back.
pub(crate) fn asks(from: &Namespace, to: &str) {
    let mut stream = connect(from, to).unwrap_or_else(|error| panic!("{to}: {error}"));
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let octets: Vec<u8> = (0..OCTETS).map(|at| (at % 251) as u8).collect();
    stream.write_all(&octets).unwrap();
    let mut back = vec![0; octets.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == octets, "what came back from {to} is not what went there");
}

//! Readiness of sockets: an event loop is notified once, and reads until nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{A, Gateway, LAN, LAN_IP, WAN, from_a, ipv4};
use gatewright_edge::ReadySet;
use gatewright_stack::{UdpSocket, Wake};
use gatewright_wire::IpProtocol;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    (ip, port).into()
}

/// A datagram of host A to the gateway's port.
fn to_port(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    let header = [5000, port, len, 0].map(u16::to_be_bytes).concat();
    from_a(&ipv4(A.1, LAN_IP, IpProtocol::UDP, &[&header, payload].concat(), |_| {}))
}

fn ready(set: &ReadySet) -> Vec<usize> {
    let mut places = Vec::new();
    set.take(|place| places.push(place));
    places
}

/// Reads until nothing is left; returns the number of datagrams.
fn drain(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 64];
    let mut count = 0;
    loop {
        match socket.recv_from(&mut buffer) {
            Ok(_) => count += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return count;
            }
        }
    }
}

fn watched(gateway: &mut Gateway, port: u16, set: &Arc<ReadySet>) -> (UdpSocket, usize) {
    let socket = gateway.sockets.bind(at(LAN_IP, port)).unwrap();
    socket.set_nonblocking(true);
    socket.set_notifier(set.notifier().unwrap()).unwrap();
    gateway.tick(0);
    let place = socket.notifier().unwrap().place();
    (socket, place)
}

#[test]
fn a_loop_is_notified_once_until_it_has_read_everything() {
    let mut gateway = Gateway::new();
    let woken = Arc::new(Woken::default());
    let set = ReadySet::new(64, woken.clone());
    let (one, first) = watched(&mut gateway, 9000, &set);
    let (other, second) = watched(&mut gateway, 9001, &set);
    assert_eq!((drain(&one), drain(&other), woken.times()), (0, 0, 0));

    gateway.receive(LAN, &[to_port(9000, b"a"), to_port(9000, b"b")]);
    gateway.receive(LAN, &[to_port(9000, b"c"), to_port(9001, b"d")]);
    assert_eq!((woken.times(), ready(&set)), (1, vec![first, second]));
    // A busy reader is not notified again.
    gateway.receive(LAN, &[to_port(9000, b"e")]);
    assert_eq!((woken.times(), ready(&set)), (1, vec![]));
    assert_eq!((drain(&one), drain(&other)), (4, 1));
    gateway.receive(LAN, &[to_port(9001, b"f")]);
    assert_eq!((woken.times(), ready(&set), drain(&other)), (2, vec![second], 1));
}

#[test]
fn a_socket_without_a_reader_notifies_nobody_and_has_one_notifier() {
    let mut gateway = Gateway::new();
    let woken = Arc::new(Woken::default());
    let set = ReadySet::new(64, woken.clone());
    let (socket, _) = watched(&mut gateway, 9000, &set);
    assert!(socket.set_notifier(set.notifier().unwrap()).is_err());
    // It was never found empty.
    gateway.receive(LAN, &[to_port(9000, b"a")]);
    assert_eq!((woken.times(), drain(&socket)), (0, 1));
    drop(socket);
    gateway.tick(0);
    gateway.receive(LAN, &[to_port(9000, b"b")]);
    assert_eq!(woken.times(), 0);
}

/// Another thread reads until it finds nothing, and sleeps until it is notified: nothing that comes
/// between the two is left behind.
#[test]
fn no_datagram_is_left_behind_between_threads() {
    const DATAGRAMS: usize = 2_000;
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(&self) {
            self.0.unpark();
        }
    }
    let mut gateway = Gateway::new();
    let socket = gateway.sockets.bind(at(LAN_IP, 9000)).unwrap();
    socket.set_nonblocking(true);
    gateway.tick(0);
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let reader = thread::spawn(move || {
        let set = ReadySet::new(64, Arc::new(Unpark(thread::current())));
        socket.set_notifier(set.notifier().unwrap()).unwrap();
        let mut count = 0;
        while count < DATAGRAMS {
            count += drain(&socket);
            counted.store(count, Ordering::SeqCst);
            while count < DATAGRAMS && ready(&set).is_empty() {
                thread::park();
            }
        }
    });
    for sent in 0..DATAGRAMS {
        // Fewer than the queue holds are on their way.
        while sent - read.load(Ordering::SeqCst) >= 256 {
            thread::yield_now();
        }
        gateway.receive(LAN, &[to_port(9000, b"x")]);
    }
    reader.join().unwrap();
}

/// RFC 1112 §6.1: "If the upper-layer protocol chooses not to specify a time-to-live, it should
/// default to 1 for all multicast IP datagrams, so that an explicit choice is required to multicast
/// beyond a single network."
#[test]
fn datagrams_to_groups_pass_as_many_hops_as_the_socket_says() {
    const TIME_TO_LIVE: usize = 14 + 8;
    let mut gateway = Gateway::new();
    let socket = gateway.sockets.bind(at(Ipv4Addr::UNSPECIFIED, 9000)).unwrap();
    let group = at(Ipv4Addr::new(239, 1, 2, 3), 7000);
    let mut send = |to| {
        socket.send_to(b"to many", to).unwrap();
        gateway.tick(0)
    };
    let [(_, frame)] = &send(group)[..] else { panic!("no frame") };
    assert_eq!(frame[TIME_TO_LIVE], 1);
    socket.set_multicast(2, Some(WAN));
    let [(link, frame)] = &send(group)[..] else { panic!("no frame") };
    assert_eq!((*link, frame[TIME_TO_LIVE]), (WAN, 2));
    let [(_, frame)] = &send(at(A.1, 7000))[..] else { panic!("no frame") };
    assert_eq!(frame[TIME_TO_LIVE], 64);
}

//! UDP sockets: of applications on the worker, and of those on other threads.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{A, B, Gateway, LAN, LAN_IP, WAN, WAN_IP, WAN_MAC, from_a, ipv4};
use gatewright_packet::BATCH_MAX;
use gatewright_stack::{
    ApplicationSockets, SOCKET_QUEUE_MAX, SocketApplication, SocketIndex, UdpSocket,
};
use gatewright_wire::{Checksum, IpProtocol};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    (ip, port).into()
}

/// A UDP datagram without a checksum, as RFC 768 allows.
fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    let header = [from, to, len, 0].map(u16::to_be_bytes).concat();
    [header, payload.to_vec()].concat()
}

/// A frame from host A to the gateway's port.
fn to_port(port: u16, payload: &[u8]) -> Vec<u8> {
    from_a(&ipv4(A.1, LAN_IP, IpProtocol::UDP, &udp(5000, port, payload), |_| {}))
}

/// Source port, destination port and payload of a frame with a valid UDP checksum, whose addresses
/// are as said.
fn read(frame: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> (u16, u16, Vec<u8>) {
    let (ip, udp) = frame[14..].split_at(20);
    assert_eq!((&ip[12..16], &ip[16..20]), (&from.octets()[..], &to.octets()[..]));
    let len = u16::from_be_bytes([udp[4], udp[5]]);
    assert_eq!(usize::from(len), udp.len());
    let mut sum = Checksum::pseudo_ipv4(from, to, IpProtocol::UDP, len);
    sum.add(udp);
    assert!(sum.is_valid());
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    (port(0), port(2), udp[8..].to_vec())
}

/// Passes everything on to a server by its second socket, and tells how many datagrams waited and
/// how many it could read, each time it is called.
struct Relay {
    server: SocketAddr,
    told: Sender<(usize, usize)>,
}

impl SocketApplication for Relay {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            let waiting = sockets.waiting(socket);
            let mut read = 0;
            while let Some(datagram) = sockets.receive(socket) {
                read += 1;
                assert_eq!(datagram.to(), LAN_IP);
                sockets.forward(SocketIndex(1), datagram, self.server).unwrap();
            }
            self.told.send((waiting, read)).unwrap();
        }
    }
}

fn relay() -> (Box<Relay>, Receiver<(usize, usize)>) {
    let (told, calls) = channel();
    (Box::new(Relay { server: at(B.1, 7000), told }), calls)
}

#[test]
fn an_application_is_called_once_a_batch_and_reads_exactly_what_waits() {
    let mut gateway = Gateway::new();
    let (relay, calls) = relay();
    let running = gateway.sockets.run(&[at(LAN_IP, 9000), at(ANY, 0)], relay).unwrap();
    gateway.tick(0);
    let frames: Vec<_> = (0..100).map(|number: u8| to_port(9000, &[number; 30])).collect();
    let sent = gateway.receive(LAN, &frames);
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [(64, 64), (36, 36)]);
    let own = running.locals()[1].port();
    for (number, (link, frame)) in (0..100_u8).zip(&sent) {
        assert_eq!(*link, WAN);
        assert_eq!((&frame[..6], &frame[6..12]), (&B.0.0[..], &WAN_MAC.0[..]));
        assert_eq!(read(frame, WAN_IP, B.1), (own, 7000, vec![number; 30]));
    }
    assert_eq!(sent.len(), 100);
    assert!(gateway.is_clean());
}

#[test]
fn an_ended_application_gives_its_ports_back() {
    let mut gateway = Gateway::new();
    let locals = [at(LAN_IP, 9000), at(ANY, 0)];
    let running = gateway.sockets.run(&locals, relay().0).unwrap();
    let clash = gateway.sockets.run(&[at(ANY, 9001), at(ANY, 9000)], relay().0).unwrap_err();
    assert_eq!(clash.kind(), ErrorKind::AddrInUse);
    drop(running);
    gateway.tick(0);
    // Nobody listens any more, and the sender is told.
    let [(LAN, answer)] = &gateway.receive(LAN, &[to_port(9000, b"gone")])[..] else {
        panic!("no answer");
    };
    assert_eq!((answer[23], answer[34], answer[35]), (1, 3, 3));
    // The first address of the attempt that failed is free, too.
    let _running = gateway.sockets.run(&[at(ANY, 9001), at(ANY, 9000)], relay().0).unwrap();
}

/// Counts what begins with `1`, and passes everything else on.
struct Ones(Sender<Vec<u8>>);

impl SocketApplication for Ones {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            while let Some(datagram) = sockets.receive(socket) {
                if datagram.octets().starts_with(b"1") {
                    self.0.send(datagram.octets().to_vec()).unwrap();
                } else {
                    sockets.pass_on(datagram);
                }
            }
        }
    }
}

/// Whichever comes first; what is passed on is answered from the shared address.
#[test]
fn an_application_before_a_socket_passes_on_what_it_does_not_take() {
    for application_first in [true, false] {
        let mut gateway = Gateway::new();
        let (told, ones) = channel();
        let run = |gateway: &Gateway| {
            let sockets = &gateway.sockets;
            sockets.run_before(at(LAN_IP, 9000), &[], Box::new(Ones(told.clone()))).unwrap()
        };
        let early = application_first.then(|| run(&gateway));
        let socket = UdpSocket::bind(&gateway.sockets, at(LAN_IP, 9000)).unwrap();
        let running = early.unwrap_or_else(|| run(&gateway));
        socket.set_nonblocking(true);
        gateway.tick(0);
        let frames = [&b"1st"[..], b"2nd", b"1xx", b"last"].map(|octets| to_port(9000, octets));
        assert!(gateway.receive(LAN, &frames).is_empty());
        assert_eq!(ones.try_iter().collect::<Vec<_>>(), [b"1st", b"1xx"]);
        let mut octets = [0; 16];
        for expected in [&b"2nd"[..], b"last"] {
            let (len, from) = socket.recv_from(&mut octets).unwrap();
            assert_eq!((&octets[..len], from), (expected, at(A.1, 5000)));
        }
        assert_eq!(socket.recv_from(&mut octets).unwrap_err().kind(), ErrorKind::WouldBlock);
        // Without the application the socket receives everything, and without the socket what is
        // passed on is dropped.
        drop(running);
        gateway.tick(0);
        gateway.receive(LAN, &[to_port(9000, b"1")]);
        assert_eq!(socket.recv_from(&mut octets).unwrap().0, 1);
        let _running = run(&gateway);
        drop(socket);
        gateway.tick(0);
        assert!(gateway.receive(LAN, &[to_port(9000, b"2")]).is_empty(), "no ICMP error");
    }
}

/// Reads nothing until its time has come.
struct Late {
    due: Duration,
    read: Sender<usize>,
}

impl SocketApplication for Late {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        if sockets.now() < self.due {
            return;
        }
        let mut read = 0;
        while let Some(socket) = sockets.next_ready() {
            read += std::iter::from_fn(|| sockets.receive(socket)).count();
        }
        self.read.send(read).unwrap();
        self.due = Duration::MAX;
    }

    fn poll_timeout(&self) -> Option<Duration> {
        (self.due < Duration::MAX).then_some(self.due)
    }
}

#[test]
fn what_an_application_does_not_read_waits_up_to_a_bound() {
    let mut gateway = Gateway::new();
    let (read, counts) = channel();
    let late = Late { due: gateway.now + Duration::from_secs(3), read };
    let _running = gateway.sockets.run(&[at(LAN_IP, 9000)], Box::new(late)).unwrap();
    gateway.tick(0);
    let frames = vec![to_port(9000, b"x"); SOCKET_QUEUE_MAX + 3];
    assert_eq!(gateway.receive(LAN, &frames), []);
    assert!(gateway.drops().contains(&("udp-sockets", "socket-full", 3)));
    assert_eq!(counts.try_iter().count(), 0);
    gateway.tick(5);
    assert_eq!(counts.try_iter().collect::<Vec<_>>(), [SOCKET_QUEUE_MAX]);
    assert!(gateway.is_clean());
}

/// Tells what one packet to the server carries.
struct Asks(Sender<[Option<usize>; 2]>);

impl SocketApplication for Asks {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        let far = Ipv4Addr::new(192, 0, 2, 1);
        self.0.send([B.1, far].map(|ip| sockets.payload_max(ip.into()))).unwrap();
    }
}

#[test]
fn a_payload_is_what_link_and_path_leave_beside_the_headers() {
    let mut gateway = Gateway::new();
    let (told, answers) = channel();
    let _running = gateway.sockets.run(&[at(LAN_IP, 9000)], Box::new(Asks(told))).unwrap();
    gateway.tick(0);
    gateway.receive(LAN, &[to_port(9000, b"?")]);
    // 1500 octets less 20 of IPv4 and 8 of UDP; and no route to the other.
    assert_eq!(answers.try_recv(), Ok([Some(1472), None]));
    gateway.host.change_interface(WAN, |interface| interface.mtu = 600);
    gateway.receive(LAN, &[to_port(9000, b"?")]);
    assert_eq!(answers.try_recv(), Ok([Some(572), None]));
}

#[test]
fn a_thread_reads_as_many_as_wait_and_no_more() {
    let mut gateway = Gateway::new();
    let socket = UdpSocket::bind(&gateway.sockets, at(LAN_IP, 9000)).unwrap();
    socket.set_nonblocking(true);
    gateway.tick(0);
    let mut buffer = [0; 100];
    // Several times, so that emptied batches come back to be filled again.
    for round in 0..10 {
        let count = BATCH_MAX + round;
        let frames: Vec<_> = (0..count).map(|number| to_port(9000, &vec![7; number])).collect();
        gateway.receive(LAN, &frames);
        assert_eq!(socket.waiting(), count);
        for number in 0..count {
            assert_eq!(socket.recv_from(&mut buffer).unwrap(), (number, at(A.1, 5000)));
        }
        assert_eq!(socket.waiting(), 0);
        assert_eq!(socket.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    gateway.receive(LAN, &vec![to_port(9000, b"x"); SOCKET_QUEUE_MAX + 5]);
    assert_eq!((socket.waiting(), socket.overflow()), (SOCKET_QUEUE_MAX, 5));
    drop(socket);
    gateway.tick(0);
    assert!(gateway.is_clean());
}

#[test]
fn a_waiting_thread_is_woken() {
    let mut gateway = Gateway::new();
    let socket = UdpSocket::bind(&gateway.sockets, at(LAN_IP, 9000)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30)));
    gateway.tick(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut buffer = [0; 100];
            let lengths = [(); 3].map(|()| socket.recv(&mut buffer).unwrap());
            socket.send_to(&buffer[..lengths[2]], at(B.1, 7)).unwrap();
            lengths
        });
        gateway.receive(LAN, &[to_port(9000, &[1; 10]), to_port(9000, &[2; 20])]);
        gateway.receive(LAN, &[to_port(9000, &[3; 30])]);
        assert_eq!(reader.join().unwrap(), [10, 20, 30]);
    });
    let [(WAN, frame)] = &gateway.tick(0)[..] else { panic!("nothing was sent") };
    // The socket speaks from the address that it is bound to, whatever link leads there.
    assert_eq!(read(frame, LAN_IP, B.1), (9000, 7, vec![3; 30]));
}

/// What is remembered of the last packets is forgotten when the host changes.
#[test]
fn a_changed_host_is_seen_by_the_next_datagram() {
    let mut gateway = Gateway::new();
    let (relay, calls) = relay();
    let _running = gateway.sockets.run(&[at(LAN_IP, 9000), at(ANY, 0)], relay).unwrap();
    gateway.tick(0);
    let datagram = [to_port(9000, b"x")];
    // Without what a changed interface itself says.
    let relayed = |gateway: &mut Gateway| {
        let sent = gateway.receive(LAN, &datagram);
        let is_udp = |frame: &[u8]| (&frame[12..14], frame[23]) == (&[8, 0], IpProtocol::UDP.0);
        sent.iter().filter(|(link, frame)| *link == WAN && is_udp(frame)).count()
    };
    assert_eq!(relayed(&mut gateway), 1);
    gateway.host.change_interface(WAN, |interface| interface.up = false);
    assert_eq!(relayed(&mut gateway), 0);
    assert!(gateway.drops().contains(&("ipv4", "link-down", 1)), "{:?}", gateway.drops());
    gateway.host.change_interface(WAN, |interface| interface.up = true);
    // It is on its way again, to a neighbour that may have changed meanwhile.
    let asked = |(link, frame): &(_, Vec<u8>)| *link == WAN && frame[38..42] == B.1.octets();
    assert!(gateway.receive(LAN, &datagram).iter().any(asked));
    assert_eq!(calls.try_iter().count(), 3);
    gateway.host.remove_address(LAN, LAN_IP.into());
    assert_eq!(relayed(&mut gateway), 0);
    assert_eq!(calls.try_iter().count(), 0);
}

/// Sends everything on to another relay, in the chunk that it came in or in one of its own.
struct Onward {
    next: SocketAddr,
    copies: bool,
}

impl SocketApplication for Onward {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            while let Some(datagram) = sockets.receive(socket) {
                // The last one has spent its hops.
                let _end = if self.copies {
                    sockets.send(socket, datagram.octets(), self.next, datagram.origin())
                } else {
                    sockets.forward(socket, datagram, self.next)
                };
            }
        }
    }
}

/// RFC 8656 §15: a relay sets "the outgoing Time to Live/Hop Count to one less than the incoming
/// value", so that no circle of relays is without an end.
#[test]
fn a_datagram_does_not_circle_between_relays_for_ever() {
    let onward = |next, copies| Box::new(Onward { next, copies });
    let locals = [at(LAN_IP, 9000), at(WAN_IP, 9001)];
    for copies in [false, true] {
        let mut gateway = Gateway::new();
        let to_b = onward(at(B.1, 9000), copies);
        let _one = gateway.sockets.run(&locals[..1], to_b).unwrap();
        gateway.tick(0);
        // B is such a relay, too, whose server is ours.
        let mut frames = vec![to_port(9000, b"round")];
        let mut rounds = 0;
        while let Some(frame) = frames.pop() {
            let sent = gateway.receive(LAN, &[frame]);
            rounds += sent.len();
            assert!(rounds < 100, "for ever");
            frames.extend(sent.first().map(|(_, sent)| {
                let hops = sent[14 + 8] - 1;
                let datagram = udp(9000, 9000, b"round");
                from_a(&ipv4(B.1, LAN_IP, IpProtocol::UDP, &datagram, |ip| ip.time_to_live = hops))
            }));
        }
        assert_eq!(rounds, 32, "64 hops, of which each relay has spent half");
        let spent = ("udp-sockets", "hops-spent", 1);
        assert!(gateway.drops().contains(&spent), "{:?}", gateway.drops());

        // Two of one host, each the other's server.
        let mut gateway = Gateway::new();
        let _one = gateway.sockets.run(&locals[..1], onward(locals[1], copies)).unwrap();
        let _other = gateway.sockets.run(&locals[1..], onward(locals[0], copies)).unwrap();
        gateway.tick(0);
        assert!(gateway.receive(LAN, &[to_port(9000, b"round")]).is_empty());
        assert_eq!(gateway.drops(), [spent]);
        assert!(gateway.is_clean());
    }
}

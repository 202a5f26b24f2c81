//! Two applications on one stack, each with a socket and a handler (EZgate paper, Fig. 5).
//!
//! The first echoes datagrams on port 7 and sees every Ethernet frame; the second answers `time` on
//! port 37 and sees the IPv6 packets. Neither knows of the other.
//!
//! `cargo run --example two_applications -- eth0 192.0.2.1`, as root.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use gatewright_gateway::{Planes, Setup};
use gatewright_stack::{At, Attachment, Place, UdpSocket, tap};
use gatewright_wire::EtherType;
use std::{
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

/// Subnet bits of the address on the command line.
const SUBNET_BITS: u8 = 24;

/// Ports of the echo and the time protocol (RFC 862, RFC 868).
const ECHO: u16 = 7;
const TIME: u16 = 37;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("name an interface")?;
    let address: IpAddr = arguments.next().ok_or("name an address of ours")?.parse()?;
    let mut setup = Setup::new(1);
    setup.link("lan", &device).address(address, SUBNET_BITS);
    let gateway = Planes::open(&setup)?;

    let frames = watch(&gateway, At::Frame)?;
    let echo = gateway.sockets().bind(SocketAddr::new(address, ECHO))?;
    let first = std::thread::spawn(move || serve(&echo, &frames, <[u8]>::to_vec));

    let packets = watch(&gateway, At::EtherType(EtherType::IPV6))?;
    let time = gateway.sockets().bind(SocketAddr::new(address, TIME))?;
    let second = std::thread::spawn(move || serve(&time, &packets, |_| now()));

    let ended = [first, second].map(|application| application.join().map_err(|_| "panicked"));
    for outcome in ended {
        outcome??;
    }
    Ok(())
}

/// A handler that counts what passes at `at`.
fn watch(gateway: &Planes, at: At) -> Result<Arc<AtomicUsize>, Box<dyn Error>> {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let look = tap(move |batch| {
        counter.fetch_add(batch.len(), Ordering::Relaxed);
    });
    gateway.attach(Attachment::new(at, Place::Tap), look)?;
    Ok(seen)
}

/// Answers each datagram, and says what the handler below has seen meanwhile.
fn serve(
    socket: &UdpSocket,
    seen: &AtomicUsize,
    answer: impl Fn(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        socket.send_to(&answer(buffer.get(..len).unwrap_or_default()), from)?;
        let passed = seen.load(Ordering::Relaxed);
        println!("{}: answered {from}; {passed} seen below", socket.local_addr());
    }
}

/// Seconds since 1900, four octets (RFC 868).
fn now() -> Vec<u8> {
    /// Seconds from 1900 to 1970.
    const EPOCH: u64 = 2_208_988_800;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let [_, _, _, _, seconds @ ..] = (since_1970.as_secs() + EPOCH).to_be_bytes();
    seconds.to_vec()
}

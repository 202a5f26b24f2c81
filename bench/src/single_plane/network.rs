//! How the single plane gets and sends its datagrams: its I/O is an argument, so that the same loop
//! runs on other ways too.

use super::plane::{Datagrams, SinglePlane};
use crate::gateway::relays::is_idle;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// Datagrams that one call takes or gives at the most.
const AT_ONCE: usize = 64;
/// Octets of the largest datagram of an Ethernet frame.
const DATAGRAM_MAX: usize = 1472;
/// How long a call waits before the loop looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Takes one message and says what is to be sent for it.
type Take<'a> = dyn FnMut(SocketAddrV4, &[u8], &mut Datagrams) + 'a;

/// A way for datagrams in and out.
pub(super) trait Network {
    /// Waits for datagrams, not for long, hands each to `take`, and sends what that wants sent.
    fn turn(&mut self, take: &mut Take<'_>) -> io::Result<()>;
}

/// Serves until `stop`.
pub(super) fn run(
    network: &mut dyn Network,
    plane: &mut SinglePlane,
    stop: &AtomicBool,
) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        network.turn(&mut |from, apdu, out| plane.handle(now(), from, apdu, out))?;
    }
    Ok(())
}

/// The time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn socket(local: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

/// `recvfrom` and `sendto`, a call for each datagram.
#[derive(Debug)]
pub(super) struct OneByOne {
    socket: UdpSocket,
    above: SocketAddrV4,
    out: Datagrams,
}

impl OneByOne {
    pub(super) fn new(local: SocketAddrV4, above: SocketAddrV4) -> io::Result<Self> {
        Ok(Self { socket: socket(local)?, above, out: Datagrams::default() })
    }
}

impl Network for OneByOne {
    fn turn(&mut self, take: &mut Take<'_>) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_MAX];
        let (length, from) = match self.socket.recv_from(&mut buffer) {
            Ok((length, SocketAddr::V4(from))) => (length, from),
            Ok(_) => return Ok(()),
            Err(error) if is_idle(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        take(from, buffer.get(..length).unwrap_or(&[]), &mut self.out);
        for (to, octets) in self.out.iter() {
            match self.socket.send_to(octets, to.address(self.above)) {
                Err(error) if !is_idle(&error) => return Err(error),
                _ => {}
            }
        }
        self.out.clear();
        Ok(())
    }
}

/// `recvmmsg` and `sendmmsg`, 64 datagrams each.
pub(super) struct Many {
    socket: UdpSocket,
    above: SocketAddrV4,
    out: Datagrams,
    buffers: Vec<[u8; DATAGRAM_MAX]>,
    received: MultiHeaders<SockaddrIn>,
    sent: MultiHeaders<SockaddrIn>,
}

impl Many {
    pub(super) fn new(local: SocketAddrV4, above: SocketAddrV4) -> io::Result<Self> {
        Ok(Self {
            socket: socket(local)?,
            above,
            out: Datagrams::default(),
            buffers: vec![[0; DATAGRAM_MAX]; AT_ONCE],
            received: MultiHeaders::preallocate(AT_ONCE, None),
            sent: MultiHeaders::preallocate(AT_ONCE, None),
        })
    }
}

impl Network for Many {
    fn turn(&mut self, take: &mut Take<'_>) -> io::Result<()> {
        let descriptor = self.socket.as_raw_fd();
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let received: Vec<(usize, Option<SockaddrIn>)> =
            match recvmmsg(descriptor, &mut self.received, slices.iter_mut(), flags, None) {
                Ok(messages) => messages.map(|it| (it.bytes, it.address)).collect(),
                Err(error) if is_idle(&error.into()) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        for (buffer, (length, from)) in self.buffers.iter().zip(received) {
            let Some(from) = from else { continue };
            take(from.into(), buffer.get(..length).unwrap_or(&[]), &mut self.out);
        }
        let slices: Vec<([IoSlice<'_>; 1], Option<SockaddrIn>)> = self
            .out
            .iter()
            .map(|(to, octets)| {
                ([IoSlice::new(octets)], Some(SockaddrIn::from(to.address(self.above))))
            })
            .collect();
        let (slices, addresses): (Vec<_>, Vec<_>) = slices.into_iter().unzip();
        for (slices, addresses) in slices.chunks(AT_ONCE).zip(addresses.chunks(AT_ONCE)) {
            let flags = MsgFlags::empty();
            match sendmmsg(descriptor, &mut self.sent, slices, addresses, [], flags) {
                Err(error) if !is_idle(&error.into()) => return Err(error.into()),
                _ => {}
            }
        }
        self.out.clear();
        Ok(())
    }
}

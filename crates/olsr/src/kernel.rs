//! Routes in the kernel's main table, by rtnetlink (linux/rtnetlink.h, rtnetlink(7)). Numbers are in
//! the machine's own byte order, addresses in network order.

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Origin of the routes (`rtm_protocol`): a number that no other daemon of Linux has in
/// rt_protos, above those reserved for the kernel and the administrator.
pub const ROUTE_PROTOCOL: u8 = 98;

/// Priority of the routes: those of the administrator (0) come first.
const PRIORITY: u32 = 698;

// Types and flags of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const REPLACE: u16 = 0x100;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

// Fields of `struct rtmsg`.
const IPV4: u8 = 2;
const TABLE_MAIN: u8 = 254;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_NOWHERE: u8 = 255;
const UNICAST: u8 = 1;
/// The gateway is on the link, whatever its address (`RTNH_F_ONLINK`).
const ON_LINK: u32 = 4;

// Attributes of routes.
const DESTINATION: u16 = 1;
const OUT_INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const ROUTE_PRIORITY: u16 = 6;

/// Octets of the header of each message, and of `struct rtmsg`.
const HEADER_LEN: usize = 16;
const ROUTE_LEN: usize = 12;

/// Octets received at once; the kernel sends no more than 32 KiB.
const RECEIVE_MAX: usize = 64 * 1024;

/// "No such process": the route is not there; it ended with its interface.
const NOT_THERE: i32 = 3;

/// A route of the kernel as this crate writes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WrittenRoute {
    pub(crate) to: Ipv4Addr,
    pub(crate) len: u8,
    /// The next hop; `None` for a neighbour itself.
    pub(crate) gateway: Option<Ipv4Addr>,
    pub(crate) interface: u32,
}

/// A socket that changes routes.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// Opens it in the network namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; RECEIVE_MAX] })
    }

    /// Adds a route, or replaces the one of the same destination that is ours.
    pub(crate) fn set(&mut self, route: &WrittenRoute) -> io::Result<()> {
        self.change(NEW_ROUTE, CREATE | REPLACE, &body(route))
    }

    /// Removes the route of ours to a destination; one that is not there is no error.
    pub(crate) fn remove(&mut self, to: Ipv4Addr, len: u8) -> io::Result<()> {
        let mut octets = header(len, SCOPE_NOWHERE, 0);
        attribute(&mut octets, DESTINATION, to.octets());
        attribute(&mut octets, ROUTE_PRIORITY, PRIORITY.to_ne_bytes());
        self.remove_body(&octets)
    }

    /// Removes all routes with our origin, and returns their number.
    pub(crate) fn remove_all(&mut self) -> io::Result<usize> {
        let ours = self.ours()?;
        for body in &ours {
            self.remove_body(body)?;
        }
        Ok(ours.len())
    }

    /// Destinations of the routes with our origin.
    pub(crate) fn destinations(&mut self) -> io::Result<BTreeSet<(Ipv4Addr, u8)>> {
        Ok(self.ours()?.iter().filter_map(|body| destination(body)).collect())
    }

    fn remove_body(&mut self, body: &[u8]) -> io::Result<()> {
        match self.change(DEL_ROUTE, 0, body) {
            Err(error) if error.raw_os_error() == Some(NOT_THERE) => Ok(()),
            result => result,
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
        let mut message = len.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags | REQUEST).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        send(self.fd.as_raw_fd(), &message, MsgFlags::empty())?;
        Ok(())
    }

    /// Requests a change, and waits for the acknowledgement, which the kernel sends at once.
    fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, flags | ACKNOWLEDGE, body)?;
        loop {
            let len = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let received = self.buffer.get(..len).unwrap_or_default();
            for message in Messages(received).filter(|message| message.sequence == self.sequence) {
                if message.kind == ERROR {
                    return result(message.body);
                }
            }
        }
    }

    /// The bodies of routes with our origin.
    fn ours(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.send(GET_ROUTE, DUMP, &header(0, SCOPE_UNIVERSE, 0))?;
        let mut ours = Vec::new();
        loop {
            let len = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let received = self.buffer.get(..len).unwrap_or_default();
            for message in Messages(received).filter(|message| message.sequence == self.sequence) {
                match message.kind {
                    DONE => return Ok(ours),
                    ERROR => return result(message.body).map(|()| ours),
                    NEW_ROUTE if is_ours(message.body) => ours.push(message.body.to_vec()),
                    _ => {}
                }
            }
        }
    }
}

/// `struct rtmsg`.
fn header(len: u8, scope: u8, flags: u32) -> Vec<u8> {
    let mut octets = vec![IPV4, len, 0, 0, TABLE_MAIN, ROUTE_PROTOCOL, scope, UNICAST];
    octets.extend(flags.to_ne_bytes());
    octets
}

fn body(route: &WrittenRoute) -> Vec<u8> {
    let (scope, flags) =
        if route.gateway.is_some() { (SCOPE_UNIVERSE, ON_LINK) } else { (SCOPE_LINK, 0) };
    let mut octets = header(route.len, scope, flags);
    attribute(&mut octets, DESTINATION, route.to.octets());
    attribute(&mut octets, OUT_INTERFACE, route.interface.to_ne_bytes());
    attribute(&mut octets, ROUTE_PRIORITY, PRIORITY.to_ne_bytes());
    if let Some(gateway) = route.gateway {
        attribute(&mut octets, GATEWAY, gateway.octets());
    }
    octets
}

/// Appends an attribute of four octets.
fn attribute(octets: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    octets.extend(8_u16.to_ne_bytes());
    octets.extend(kind.to_ne_bytes());
    octets.extend(value);
}

fn is_ours(body: &[u8]) -> bool {
    let header = body.first_chunk::<ROUTE_LEN>();
    header.is_some_and(|&[family, _, _, _, table, protocol, ..]| {
        (family, table, protocol) == (IPV4, TABLE_MAIN, ROUTE_PROTOCOL)
    })
}

/// The destination of a route; one to everywhere has no attribute.
fn destination(body: &[u8]) -> Option<(Ipv4Addr, u8)> {
    let len = *body.get(1)?;
    let mut rest = body.get(ROUTE_LEN..)?;
    while let Some(&[l1, l2, k1, k2]) = rest.first_chunk() {
        let octets = usize::from(u16::from_ne_bytes([l1, l2]));
        if u16::from_ne_bytes([k1, k2]) == DESTINATION {
            let address: [u8; 4] = *rest.get(4..octets)?.first_chunk()?;
            return Some((address.into(), len));
        }
        rest = rest.get(octets.max(4).saturating_add(3) & !3..).unwrap_or_default();
    }
    (len == 0).then_some((Ipv4Addr::UNSPECIFIED, 0))
}

/// An acknowledgement is an error 0; others are negative.
fn result(body: &[u8]) -> io::Result<()> {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) }
}

/// A message of the kernel.
struct RouteMessage<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Iterates over the messages of a datagram; a truncated one ends it.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = RouteMessage<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<HEADER_LEN>()?;
        let &[l1, l2, l3, l4, k1, k2, _, _, s1, s2, s3, s4, ..] = header;
        let len = usize::try_from(u32::from_ne_bytes([l1, l2, l3, l4])).ok()?;
        let body = self.0.get(HEADER_LEN..len)?;
        self.0 = self.0.get(len.saturating_add(3) & !3..).unwrap_or_default();
        let (kind, sequence) = (u16::from_ne_bytes([k1, k2]), u32::from_ne_bytes([s1, s2, s3, s4]));
        Some(RouteMessage { kind, sequence, body })
    }
}

//! What the kernel does with packets to an address: it delivers them here, or it does not
//! (rtnetlink(7), `RTM_GETROUTE`). Interface addresses do not tell: a route of type *local* makes a
//! whole network this machine's (AnyIP).

use core::net::IpAddr;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::os::fd::AsRawFd;

// Types and flags of messages (linux/netlink.h, linux/rtnetlink.h).
const ERROR: u16 = 2;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const REQUEST: u16 = 0x1;

/// Address families (`AF_INET`, `AF_INET6`).
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// Attribute with the destination (`RTA_DST`).
const DESTINATION: u16 = 1;

/// Types of routes (`rtm_type`) that lead away from this machine or nowhere: *unicast*, and
/// *blackhole*, *unreachable* and *prohibit*.
const ELSEWHERE: [u8; 4] = [1, 6, 7, 8];

/// Octets of the header of each message, of `struct rtmsg`, and the place of the type in both.
const HEADER_LEN: usize = 16;
const ROUTE_LEN: usize = 12;
const TYPE_AT: usize = HEADER_LEN + 7;
/// Octets of an answer: one route with its attributes.
const ANSWER_MAX: usize = 4096;

/// Whether packets to an address stay on this machine, as the kernel routes them now. Where the
/// kernel does not tell, they do.
pub(crate) fn stays_here(address: IpAddr) -> bool {
    !leads_elsewhere(address).unwrap_or(false)
}

/// Whether the route to an address leads away from this machine; `None` if the kernel does not tell.
fn leads_elsewhere(address: IpAddr) -> Option<bool> {
    let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
    let fd = socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute).ok()?;
    send(fd.as_raw_fd(), &request(address), MsgFlags::empty()).ok()?;
    let mut answer = [0; ANSWER_MAX];
    // The kernel has answered when `send` returns.
    let len = recv(fd.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
    read(answer.get(..len)?)
}

/// A request for the route to an address.
fn request(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (IPV4, v4.octets().to_vec()),
        IpAddr::V6(v6) => (IPV6, v6.octets().to_vec()),
    };
    let bits = u8::try_from(octets.len() * 8).unwrap_or(0);
    let attribute_len = u16::try_from(4 + octets.len()).unwrap_or(0);
    let len = HEADER_LEN + ROUTE_LEN + usize::from(attribute_len);
    let mut request = Vec::with_capacity(len);
    request.extend(u32::try_from(len).unwrap_or(0).to_ne_bytes());
    request.extend(GET_ROUTE.to_ne_bytes().into_iter().chain(REQUEST.to_ne_bytes()));
    request.extend([0; 8]);
    request.extend([family, bits]);
    request.extend([0; ROUTE_LEN - 2]);
    request.extend(attribute_len.to_ne_bytes().into_iter().chain(DESTINATION.to_ne_bytes()));
    request.extend(octets);
    request
}

/// Whether the route in an answer leads away from this machine.
fn read(answer: &[u8]) -> Option<bool> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    match kind {
        NEW_ROUTE => Some(ELSEWHERE.contains(answer.get(TYPE_AT)?)),
        ERROR => {
            let code = i32::from_ne_bytes(*answer.get(HEADER_LEN..)?.first_chunk()?);
            let errno = Errno::from_raw(code.checked_neg()?);
            // There is no route to it, so nothing here is reached by it.
            matches!(errno, Errno::ENETUNREACH | Errno::EHOSTUNREACH).then_some(true)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel: its header's type, and what follows the header.
    fn answer(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; 4];
        answer.extend(kind.to_ne_bytes());
        answer.resize(HEADER_LEN, 0);
        answer.extend(body);
        answer
    }

    /// Types of routes and errors as linux/rtnetlink.h and errno(3) number them.
    #[test]
    fn an_answer_tells_where_a_route_leads_or_nothing() {
        let route = |kind: u8| answer(24, &[2, 32, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0]);
        let refused = |errno: i32| answer(2, &(-errno).to_ne_bytes());
        for (octets, expected) in [
            (route(1), Some(true)),
            (route(7), Some(true)),
            (route(2), Some(false)),
            (route(3), Some(false)),
            (route(4), Some(false)),
            (route(200), Some(false)),
            (refused(101), Some(true)),
            (refused(113), Some(true)),
            (refused(1), None),
            (refused(0), None),
            (refused(i32::MAX), None),
            (answer(3, &[]), None),
            (answer(24, &[2, 32]), None),
            (answer(2, &[]), None),
            (Vec::new(), None),
        ] {
            assert_eq!(read(&octets), expected, "{octets:?}");
        }
    }

    /// RFC 1122 §3.2.1.3 and RFC 4291 §2.5.3: loopback.
    #[test]
    fn loopback_stays_here() {
        for address in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(stays_here(address.parse().unwrap()), "{address}");
        }
    }
}

//! Whether an interface takes frames that a program in another driver redirects to it.
//!
//! A driver that does not drops them in silence. So the kernel is asked, by its generic netlink
//! family `netdev` (Linux 6.3); an older kernel does not tell.

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

// linux/netlink.h, linux/genetlink.h.
const REQUEST: u16 = 0x1;
const ERROR: u16 = 2;
/// Octets of `struct nlmsghdr` and `struct genlmsghdr`.
const HEADER_LEN: usize = 20;
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

// linux/netdev.h.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const TAKES_REDIRECTED: u64 = 4;

/// Octets of an answer: some hundred in fact.
const ANSWER_MAX: usize = 8192;

/// An interface as the target of redirected frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KernelPort {
    /// Its index in the kernel.
    pub index: u32,
    /// Whether it takes redirected frames; `None` if the kernel does not tell (before Linux 6.3).
    pub takes_redirected: Option<bool>,
}

/// The interface `name` of this process's network namespace; `None` if there is none.
pub fn kernel_port(name: &str) -> Option<KernelPort> {
    let index = if_nametoindex(name).ok()?;
    let features = ask(index).ok();
    let takes_redirected = features.map(|features| features & TAKES_REDIRECTED != 0);
    Some(KernelPort { index, takes_redirected })
}

/// The interface's features of XDP.
fn ask(index: u32) -> io::Result<u64> {
    // The same as long as the kernel runs.
    static FAMILY: OnceLock<Option<u16>> = OnceLock::new();
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkGeneric,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let family = || {
        let name = attribute(FAMILY_NAME, b"netdev\0");
        let answer = exchange(&fd, CONTROLLER, GET_FAMILY, &name).ok()?;
        let id = find(&answer, FAMILY_ID)?.try_into().ok()?;
        Some(u16::from_ne_bytes(id))
    };
    let family = FAMILY.get_or_init(family).ok_or(Errno::EOPNOTSUPP)?;
    let answer = exchange(&fd, family, GET_DEVICE, &attribute(DEVICE_INDEX, &index.to_ne_bytes()))?;
    let features = find(&answer, DEVICE_FEATURES).and_then(|octets| octets.try_into().ok());
    features.map(u64::from_ne_bytes).ok_or_else(|| Errno::EPROTO.into())
}

/// Sends a request and returns the attributes of its answer.
fn exchange(fd: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(HEADER_LEN + attributes.len()).unwrap_or(u32::MAX);
    let header = [
        &len.to_ne_bytes()[..],
        &family.to_ne_bytes(),
        &REQUEST.to_ne_bytes(),
        &[0; 8],
        &[command, 1, 0, 0],
    ];
    let request = [&header.concat(), attributes].concat();
    send(fd.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = vec![0; ANSWER_MAX];
    // The kernel has answered when the call has returned.
    let len = recv(fd.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    answer.truncate(len);
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(kind) if kind == family => Ok(answer.split_off(HEADER_LEN.min(len))),
        Some(ERROR) => {
            let error = answer.get(16..20).and_then(|error| error.try_into().ok());
            let error = error.map_or(0, i32::from_ne_bytes);
            Err(io::Error::from_raw_os_error(error.wrapping_neg()))
        }
        _ => Err(Errno::EPROTO.into()),
    }
}

/// An attribute, padded to whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut octets = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    /// Bits of the kind, without the flags for nested values and byte order.
    const KIND: u16 = 0x3fff;
    loop {
        let (len, rest) = attributes.split_first_chunk()?;
        let (found, _) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes(*found) & KIND == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_others_and_torn_ones_are_not_read() {
        let both = [attribute(1, b"abcde"), attribute(3 | 0x8000, &[7; 8])].concat();
        assert_eq!(find(&both, 3), Some(&[7; 8][..]));
        assert_eq!(find(&both, 1), Some(&b"abcde"[..]));
        assert_eq!(find(&both, 2), None);
        for len in 0..both.len() {
            assert_eq!(find(both.get(..len).unwrap_or_default(), 3), None, "{len}");
        }
        assert_eq!(find(&[0; 16], 5), None, "a length of nothing ends the search");
    }

    #[test]
    fn an_interface_that_is_not_there_is_none() {
        assert_eq!(kernel_port("no such device"), None);
        // The loopback transmits no redirected frames; a kernel before 6.3 does not tell.
        let loopback = kernel_port("lo").and_then(|port| port.takes_redirected);
        assert_ne!(loopback, Some(true));
    }
}

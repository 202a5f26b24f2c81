//! Addresses of the kernel's interface beside a link, by rtnetlink.

use gatewright_config::{Located, Prefix};
use gatewright_wire::MacAddress;
use nix::{
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
        socket,
    },
};
use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
};

/// Changes to links and addresses (rtnetlink(7)).
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;

/// A request that wants to be acknowledged; one that also creates or replaces (netlink(7)).
const REQUEST: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400 | 0x100;

/// Attributes: a link's hardware address; an address, and the one of our own end.
const LINK_ADDRESS: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

/// No check for duplicates: our stack checks the same address (`IFA_F_NODAD`).
const NO_DAD: u8 = 0x02;

/// Octets of a netlink header.
const HEADER_LEN: usize = 16;

/// Gives the interface the hardware address `mac`, and the addresses `new` in place of `old`.
///
/// # Errors
///
/// The kernel's.
pub(crate) fn furnish(
    interface: &str,
    mac: MacAddress,
    (old, new): (&[Located<Prefix>], &[Located<Prefix>]),
) -> io::Result<()> {
    let index = if_nametoindex(interface)?;
    let kernel = open()?;
    let mut body = vec![0; 4];
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&[0; 8]);
    attribute(&mut body, LINK_ADDRESS, &mac.0);
    ask(&kernel, NEW_LINK, 0, &body)?;
    for gone in old.iter().filter(|gone| !new.contains(gone)) {
        ask(&kernel, DELETE_ADDRESS, 0, &address(index, gone.value))?;
    }
    for come in new {
        ask(&kernel, NEW_ADDRESS, CREATE, &address(index, come.value))?;
    }
    Ok(())
}

fn open() -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
    let kernel = socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(kernel.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(kernel)
}

/// The body of a message about an address: `struct ifaddrmsg` and attributes.
fn address(index: u32, prefix: Prefix) -> Vec<u8> {
    let (family, octets) = match prefix.address() {
        IpAddr::V4(ip) => (libc_family::INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc_family::INET6, ip.octets().to_vec()),
    };
    let mut body = vec![family, prefix.length(), NO_DAD, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    attribute(&mut body, LOCAL, &octets);
    attribute(&mut body, ADDRESS, &octets);
    body
}

/// Families of addresses, as octets (`AF_INET`, `AF_INET6`).
mod libc_family {
    pub(super) const INET: u8 = 2;
    pub(super) const INET6: u8 = 10;
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    body.extend_from_slice(&len.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Sends a request and waits for its acknowledgement.
fn ask(kernel: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
    let mut message = len.to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    send(kernel.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    // `struct nlmsgerr`: the negative errno, 0 for an acknowledgement.
    let error = answer.get(HEADER_LEN..HEADER_LEN + 4).and_then(|octets| octets.as_array());
    match error.map(|octets| i32::from_ne_bytes(*octets)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

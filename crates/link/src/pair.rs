//! A pair of interfaces of which each receives what the other sends (veth), by rtnetlink.

use crate::claim::Claim;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;
/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_GETLINK`, and the type of an answer with an error.
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const ERROR: u16 = 2;
/// `NLM_F_…`.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400 | 0x200;
/// `IFLA_…`, those within `IFLA_LINKINFO`, and `VETH_INFO_PEER`.
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const ALIAS: u16 = 20;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const PEER: u16 = 1;
/// `IFF_UP`, `IFF_NOARP`.
const UP: u32 = 0x1;
const NO_ARP: u32 = 0x80;

const HEADER_LEN: usize = 16;
const LINK_MESSAGE_LEN: usize = 16;
/// The kernel's answer has at most 32 KiB.
const ANSWER_MAX: usize = 32 << 10;
/// The kernel answers at once, or is out of memory.
const ANSWER_WITHIN_MS: u16 = 5_000;
/// Octets of an interface's name with its zero (`IFNAMSIZ`).
const NAME_MAX: usize = 16;

/// A pair of interfaces that ends with this value, unless it is left ([`InterfacePair::leave`]).
///
/// The host uses the first one as an Ethernet interface; what it sends arrives at the other, which
/// has no addresses and answers nothing. A pair that somebody has left is taken over with
/// the addresses that the host has there, and stays until it is adopted ([`InterfacePair::adopt`]).
#[derive(Debug)]
pub struct InterfacePair {
    name: String,
    index: u32,
    peer: String,
    peer_index: u32,
    taken_over: bool,
    /// Whether the interfaces stay when this value ends.
    stays: bool,
    _claim: Option<Claim>,
}

impl InterfacePair {
    /// Makes the interface `name` with link-layer address `address`, and its peer `NAMEp`; both are
    /// up. `mark` tells its pairs from others.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if an interface `name` is not such a pair, `AddrInUse` with the process that
    /// has it, `InvalidInput` for a name that is too long; else the system's error.
    pub fn make(name: &str, address: [u8; 6], mark: &str) -> io::Result<Self> {
        let peer = peer_name(name)?;
        let netlink = RouteSocket::open(0)?;
        let taken_over = netlink.has_pair(name, mark)?;
        if !taken_over {
            netlink.create(name, &peer, address)?;
        }
        let [index, peer_index] = [name, &peer].map(netlink_index);
        let (index, peer_index) = (index?, peer_index?);
        let claim = Claim::take(index)
            .map_err(|process| io::Error::new(io::ErrorKind::AddrInUse, process))?;
        let name = name.to_owned();
        // What was left belongs to the host until somebody uses it.
        let stays = taken_over;
        let this = Self { name, index, peer, peer_index, taken_over, stays, _claim: claim };
        // The peer has no addresses of its own; without IPv6, there is nothing to switch off.
        let _without =
            fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", this.peer), "1");
        netlink.set(index, 0, Some(mark))?;
        netlink.set(peer_index, UP | NO_ARP, None)?;
        netlink.set(index, UP, None)?;
        Ok(this)
    }

    /// Whether [`Self::make`] would find the name free, or a pair of the mark; changes nothing.
    ///
    /// # Errors
    ///
    /// As those of [`Self::make`], but that a pair may be another process's.
    pub fn check(name: &str, mark: &str) -> io::Result<()> {
        peer_name(name)?;
        RouteSocket::open(0)?.has_pair(name, mark).map(drop)
    }

    /// Deletes a pair of the mark that somebody has left, if there is one and no process has it.
    pub fn remove_left(name: &str, mark: &str) {
        if RouteSocket::open(0).and_then(|netlink| netlink.has_pair(name, mark)).unwrap_or(false)
            && let Ok(mut left) = Self::make(name, [0; 6], mark)
        {
            left.adopt();
        }
    }

    /// Name of the interface that the host uses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Name of the other end.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Index of the other end.
    pub const fn peer_index(&self) -> u32 {
        self.peer_index
    }

    /// Has the interfaces end with this value, also those that were taken over. Until then, who fails to
    /// start leaves them as they were.
    pub const fn adopt(&mut self) {
        self.stays = false;
    }

    /// Has the interfaces stay when this value ends: another one takes them over, with the addresses
    /// that the host has there.
    pub const fn leave(&mut self) {
        self.stays = true;
    }

    /// Whether somebody had left it.
    pub const fn is_taken_over(&self) -> bool {
        self.taken_over
    }
}

impl Drop for InterfacePair {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Both ends go together; one that is gone already is what is wanted.
        if let Ok(netlink) = RouteSocket::open(0) {
            let _gone = netlink.delete(self.index);
        }
    }
}

/// Notices of changes to interfaces.
#[derive(Debug)]
pub struct InterfaceNotices(RouteSocket);

impl InterfaceNotices {
    /// Begins to receive notices.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn open() -> io::Result<Self> {
        RouteSocket::open(LINKS).map(Self)
    }

    /// Takes all notices that have come; returns whether there was one, or one was lost.
    pub fn take(&self) -> bool {
        let (mut any, mut buffer) = (false, vec![0; ANSWER_MAX]);
        loop {
            match recv(self.0.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(_) | Err(Errno::ENOBUFS) => any = true,
                Err(Errno::EINTR) => {}
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for InterfaceNotices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// Name of the other end of a pair.
fn peer_name(name: &str) -> io::Result<String> {
    let peer = format!("{name}p");
    if peer.len() >= NAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
    }
    Ok(peer)
}

fn netlink_index(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

/// A socket of rtnetlink.
#[derive(Debug)]
struct RouteSocket(OwnedFd);

impl RouteSocket {
    fn open(groups: u32) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        let fd = socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self(fd))
    }

    fn create(&self, name: &str, peer: &str, address: [u8; 6]) -> io::Result<()> {
        let other = [link_message(0, 0), attribute(NAME, &text(peer))].concat();
        let data = attribute(INFO_DATA, &attribute(PEER, &other));
        let info = [attribute(INFO_KIND, b"veth"), data].concat();
        let own = [attribute(NAME, &text(name)), attribute(ADDRESS, &address)].concat();
        let body = [link_message(0, 0), own, attribute(LINK_INFO, &info)].concat();
        self.ask(NEW_LINK, CREATE, &body).map(drop)
    }

    /// Sets flags and the alias of an interface.
    fn set(&self, index: u32, flags: u32, alias: Option<&str>) -> io::Result<()> {
        let alias = alias.map(|alias| attribute(ALIAS, alias.as_bytes())).unwrap_or_default();
        self.ask(NEW_LINK, 0, &[link_message(index, flags), alias].concat()).map(drop)
    }

    fn delete(&self, index: u32) -> io::Result<()> {
        self.ask(DELETE_LINK, 0, &link_message(index, 0)).map(drop)
    }

    /// The alias of an interface; `None` if there is no such interface.
    fn alias(&self, name: &str) -> io::Result<Option<String>> {
        let body = [link_message(0, 0), attribute(NAME, &text(name))].concat();
        match self.ask(GET_LINK, 0, &body) {
            Ok(answer) => {
                let attributes = answer.get(HEADER_LEN + LINK_MESSAGE_LEN..).unwrap_or_default();
                let alias = find(attributes, ALIAS).unwrap_or_default();
                let alias = alias.split(|&octet| octet == 0).next().unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(alias).into_owned()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the interface is a pair of the mark; `AlreadyExists` if it is another interface.
    fn has_pair(&self, name: &str, mark: &str) -> io::Result<bool> {
        match self.alias(name)? {
            None => Ok(false),
            Some(alias) if alias == mark => Ok(true),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Sends a request; returns the answer's first message.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or(0);
        // A request for an answer of its own is not acknowledged.
        let acknowledged = if kind == GET_LINK { 0 } else { ACKNOWLEDGE };
        let flags = REQUEST | acknowledged | flags;
        let mut request = Vec::with_capacity(HEADER_LEN + body.len());
        request.extend(len.to_ne_bytes());
        request.extend(kind.to_ne_bytes().into_iter().chain(flags.to_ne_bytes()));
        request.extend([0; 8]);
        request.extend(body);
        send(self.0.as_raw_fd(), &request, MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER_MAX];
        let len = self.answer(&mut answer)?;
        answer.truncate(len);
        let word = |at: usize| answer.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
        let answered = answer.get(4..).and_then(|rest| rest.first_chunk::<2>()).copied();
        if answered.map(u16::from_ne_bytes) == Some(ERROR) {
            let error = word(HEADER_LEN).map_or(-libc::EIO, i32::from_ne_bytes);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(-error));
            }
        }
        Ok(answer)
    }

    fn answer(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::from(ANSWER_WITHIN_MS)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            match recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => return Ok(len),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// `struct ifinfomsg`: the interface, and flags to set.
fn link_message(index: u32, flags: u32) -> Vec<u8> {
    let words = [0, index, flags, flags];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// An attribute, padded to four octets.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap_or(4);
    let mut octets: Vec<u8> = len.to_ne_bytes().into_iter().chain(kind.to_ne_bytes()).collect();
    octets.extend(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// A name with its zero.
fn text(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// The value of an attribute.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [len_1, len_2, kind_1, kind_2] = *attributes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([len_1, len_2]));
        if u16::from_ne_bytes([kind_1, kind_2]) == wanted {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_and_a_broken_list_ends() {
        let list = [attribute(3, b"mesh0\0"), attribute(ALIAS, b"a mark")].concat();
        assert_eq!(find(&list, ALIAS), Some(&b"a mark"[..]));
        assert_eq!(find(&list, 7), None);
        assert_eq!(find(&[0; 3], 7), None);
        assert_eq!(find(&[0; 16], 7), None);
        assert_eq!(find(&[255; 16], 7), None);
        assert_eq!(find(&[200, 0, 20, 0], ALIAS), None);
    }
}

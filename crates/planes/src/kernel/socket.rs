//! Sockets of rtnetlink: one that receives changes, and one that sends requests.

use super::message::{
    GET_ADDRESS, GET_LINK, GET_NEIGHBOUR, GET_ROUTE, KernelMessage, dump, messages, use_neighbour,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
        setsockopt, socket, sockopt,
    },
};
use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Groups of messages: links, neighbours, addresses and routes of both families (`RTMGRP_…`).
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;

/// Maximum octets received at once; the kernel sends no more than 32 KiB.
const RECEIVE_MAX: usize = 64 * 1024;

/// Maximum time for an answer of the kernel: it answers at once, or is out of memory.
const ANSWER_WITHIN_MS: u16 = 5000;

/// Maximum attempts of a dump that the kernel reports as interrupted.
const DUMPS_MAX: u32 = 20;

/// Receives every change.
#[derive(Debug)]
pub(crate) struct News {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// A result of receiving.
#[derive(Debug)]
pub(super) enum Heard {
    /// Changes.
    Messages(Vec<KernelMessage>),
    /// An overrun: some changes are lost.
    Overrun,
    /// No further changes.
    Nothing,
}

impl News {
    /// Starts to listen; up to `octets` of messages are queued.
    pub(super) fn open(octets: usize) -> io::Result<Self> {
        let fd = open(GROUPS)?;
        // Above the system's limit with CAP_NET_ADMIN, otherwise up to it.
        if setsockopt(&fd, sockopt::RcvBufForce, &octets).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &octets)?;
        }
        Ok(Self { fd, buffer: vec![0; RECEIVE_MAX] })
    }

    /// The next changes; never waits.
    pub(super) fn hear(&mut self) -> io::Result<Heard> {
        loop {
            return match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => {
                    let heard = messages(self.buffer.get(..len).unwrap_or_default());
                    Ok(Heard::Messages(heard.map(|(message, _)| message).collect()))
                }
                Err(Errno::ENOBUFS) => Ok(Heard::Overrun),
                Err(Errno::EAGAIN) => Ok(Heard::Nothing),
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// The kernel's whole state, links first, so that the rest can be understood.
pub(super) fn everything() -> io::Result<Vec<KernelMessage>> {
    dumps(&[GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR])
}

/// The kernel's links.
pub(super) fn links() -> io::Result<Vec<KernelMessage>> {
    dumps(&[GET_LINK])
}

fn dumps(kinds: &[u16]) -> io::Result<Vec<KernelMessage>> {
    let fd = open(0)?;
    let mut buffer = vec![0; RECEIVE_MAX];
    let mut all = Vec::new();
    for kind in kinds {
        let mut tries = 0;
        loop {
            let mut told = Vec::new();
            if ask(&fd, &dump(*kind), &mut buffer, &mut told)? {
                all.append(&mut told);
                break;
            }
            tries += 1;
            if tries >= DUMPS_MAX {
                // As good as it gets while tables change all the time: the changes are heard, too.
                all.append(&mut told);
                break;
            }
        }
    }
    Ok(all)
}

/// One dump; returns whether it is consistent.
fn ask(
    fd: &OwnedFd,
    request: &[u8],
    buffer: &mut [u8],
    told: &mut Vec<KernelMessage>,
) -> io::Result<bool> {
    send(fd.as_raw_fd(), request, MsgFlags::empty())?;
    let mut whole = true;
    loop {
        let mut waiting = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::from(ANSWER_WITHIN_MS)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let len = match recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => len,
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for (message, interrupted) in messages(buffer.get(..len).unwrap_or_default()) {
            whole &= !interrupted;
            match message {
                KernelMessage::Done => return Ok(whole),
                KernelMessage::Refused(error) => return Err(io::Error::from_raw_os_error(-error)),
                other => told.push(other),
            }
        }
    }
}

/// Asks the kernel to resolve neighbours.
#[derive(Debug)]
pub(super) struct NeighbourResolver(OwnedFd);

impl NeighbourResolver {
    pub(super) fn open() -> io::Result<Self> {
        open(0).map(Self)
    }

    /// Resolves `address` on the link, as a packet for it would. Never waits: if the kernel has no
    /// room for the request, the next packet asks again.
    pub(super) fn use_neighbour(&self, link: u32, address: IpAddr) {
        let request = use_neighbour(link, address);
        let _full = send(self.0.as_raw_fd(), &request, MsgFlags::MSG_DONTWAIT);
        // Refusals are answered; nobody reads them but this, so that they do not pile up.
        let mut refusal = [0; 512];
        while recv(self.0.as_raw_fd(), &mut refusal, MsgFlags::MSG_DONTWAIT).is_ok() {}
    }
}

//! Messages with descriptors between two processes, over a Unix socket.
//!
//! A message is its octets in four octets, with which the descriptors travel, then these.
#![expect(unsafe_code, reason = "a received descriptor is a number that becomes an owner")]

use nix::{
    cmsg_space,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg},
};
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

/// Maximum descriptors of a message: the workers' and some more. The kernel allows 253.
const DESCRIPTORS_MAX: usize = 64;

/// Maximum octets of a message.
const MESSAGE_OCTETS_MAX: usize = 4 << 20;

/// Octets of a message's length.
const LENGTH_OCTETS: usize = size_of::<u32>();

/// Sends a message with copies of descriptors.
pub(super) fn send(
    mut stream: &UnixStream,
    octets: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let length = u32::try_from(octets.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let length = length.to_be_bytes();
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
    let slices = [IoSlice::new(&length)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<UnixAddr>(stream.as_raw_fd(), &slices, rights, flags, None)?;
    stream.write_all(length.get(sent..).unwrap_or_default())?;
    stream.write_all(octets)
}

/// Receives a message with its descriptors.
pub(super) fn receive(mut stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut length = [0; LENGTH_OCTETS];
    let mut room = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let (read, descriptors) = {
        let mut slices = [IoSliceMut::new(&mut length)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut slices, Some(&mut room), flags)?;
        let mut descriptors = Vec::new();
        for rights in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = rights {
                // SAFETY: the kernel has just made these descriptors for us, in this message, and
                // nobody else knows them; each number is taken once.
                let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
                descriptors.extend(numbers.into_iter().map(owned));
            }
        }
        (message.bytes, descriptors)
    };
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.read_exact(length.get_mut(read..).unwrap_or_default())?;
    let len = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if len > MESSAGE_OCTETS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    let mut octets = vec![0; len];
    stream.read_exact(&mut octets)?;
    Ok((octets, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn octets_arrive_with_descriptors_of_the_same_file() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send(&one, b"hello", &[writer.as_fd()]).unwrap();
        send(&one, b"", &[]).unwrap();
        drop(writer);
        let (octets, descriptors) = receive(&other).unwrap();
        assert_eq!((octets.as_slice(), descriptors.len()), (&b"hello"[..], 1));
        let mut file = std::fs::File::from(descriptors.into_iter().next().unwrap());
        file.write_all(b"by the copy").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "by the copy");
        assert_eq!(receive(&other).unwrap().0, b"");
        drop(one);
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_length_alone_reserves_nothing() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&[0xff; 4]).unwrap();
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

//! Sockets of an earlier process: the slab that their chunks are of, and what another process may hold.
//!
//! Rings and chunks are the kernel's and the slab's, and not the process's: frames that arrive without
//! one wait in the receive rings, as many as are lent. The next process maps the rings and the slab
//! again, and finds in the rings which chunks the kernel has. All others are free.

use super::socket::KernelPart;
use crate::{DeviceFacts, HeldDevice, HeldKind};
use gatewright_packet::Slab;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Maximum sockets that are held of a link: descriptors that go in one message.
pub(super) const SOCKETS_MAX: usize = 60;

/// The slab of the chunks of these sockets, all those of a worker; `None` if there are none.
///
/// # Errors
///
/// The system's error; also if they are not of one slab of this shape, or the kernel has chunks that
/// no ring tells.
pub(crate) fn slab_before(
    devices: &[&HeldDevice],
    (chunks, chunk_size): (usize, usize),
) -> io::Result<Option<Slab>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let Some(HeldDevice { descriptors, .. }) = devices.first() else { return Ok(None) };
    let memory = descriptors.first().ok_or_else(invalid)?;
    let (mut lent, mut count) = (BTreeSet::new(), 0);
    for HeldDevice { facts: DeviceFacts { kind, .. }, descriptors } in devices {
        let HeldKind::XdpSockets { entries, lent: target, chunks: all, chunk_size: each, .. } =
            *kind
        else {
            return Err(invalid());
        };
        let is_shape = |number: u32, size: usize| usize::try_from(number) == Ok(size);
        let (own, sockets) = descriptors.split_first().ok_or_else(invalid)?;
        let is_one = is_same_file(own.as_fd(), memory.as_fd())?;
        if !is_one || !is_shape(all, chunks) || !is_shape(each, chunk_size) {
            return Err(invalid());
        }
        for socket in sockets {
            let part = KernelPart::go_on(socket.try_clone()?, entries, target)?;
            for position in part.lent_before().all() {
                count += 1;
                lent.insert(position / u64::from(each));
            }
        }
    }
    // A chunk in two rings could become two packets.
    if lent.len() != count {
        return Err(invalid());
    }
    let each = u64::try_from(chunk_size).map_err(|_| invalid())?;
    let positions = lent.into_iter().map(|chunk| chunk * each);
    let slab = Slab::of_memory(memory.try_clone()?, (chunks, chunk_size), positions);
    slab.map(Some).map_err(io::Error::other)
}

/// Goes on with the sockets of a share of a link, in the order of its queues.
pub(super) fn go_on(held: HeldDevice, queues: usize) -> io::Result<Vec<KernelPart>> {
    let HeldDevice { facts: DeviceFacts { kind, .. }, descriptors } = held;
    let HeldKind::XdpSockets { entries, lent, .. } = kind else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let parts = descriptors.into_iter().skip(1);
    let parts = parts.map(|socket: OwnedFd| KernelPart::go_on(socket, entries, lent));
    let parts = parts.collect::<io::Result<Vec<_>>>()?;
    if parts.len() == queues { Ok(parts) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Whether two descriptors are of one file.
fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let of = |file: BorrowedFd<'_>| {
        let status = File::from(file.try_clone_to_owned()?).metadata()?;
        Ok::<_, io::Error>((status.dev(), status.ino()))
    };
    Ok(of(one)? == of(other)?)
}

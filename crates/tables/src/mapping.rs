//! Memory mappings: behind a descriptor, created and sealed against resizing; or of this process
//! alone.
#![expect(unsafe_code, reason = "the system calls that make and map shared memory")]

use crate::sync::AtomicU32;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Octets of a word.
const WORD_OCTETS: usize = size_of::<AtomicU32>();

/// A mapping, unmapped when dropped.
pub(crate) struct Mapping {
    first: NonNull<AtomicU32>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is only a place and a size.
unsafe impl Send for Mapping {}
// SAFETY: shared, it gives out nothing but its place and size.
unsafe impl Sync for Mapping {}

/// The purpose of a mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Mapping {
    /// Maps the first `len` words of `file`, which must be sealed against shrinking.
    pub(crate) fn new(file: &File, len: usize, access: Access) -> io::Result<Self> {
        let octets = len.checked_mul(WORD_OCTETS).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let first = unsafe {
            let (shared, none) = (libc::MAP_SHARED, std::ptr::null_mut());
            libc::mmap(none, octets, protection, shared, file.as_raw_fd(), 0)
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, len })
    }

    /// `len` words of this process alone, all zero, which cost address space until they are touched.
    ///
    /// The system does not reserve memory for them (`MAP_NORESERVE`): a small machine, too, has
    /// address space for tables that it will never fill.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let octets = len.checked_mul(WORD_OCTETS).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let first = unsafe {
            let (protection, none) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
            libc::mmap(none, octets, protection, flags, -1, 0)
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, len })
    }

    /// Where the words begin; page-aligned, and valid for [`Self::len`] words while this lives.
    pub(crate) fn words(&self) -> NonNull<AtomicU32> {
        self.first
    }

    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the place and size that `mmap` gave; whoever uses the words holds this.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.len * WORD_OCTETS) };
    }
}

/// Anonymous memory of `len` words with a descriptor, all zero, that can never change its size.
///
/// It is not sealed against writing: a restarted writer must be able to map it again.
pub(crate) fn sealed_memory(len: usize) -> io::Result<File> {
    let octets = len.checked_mul(WORD_OCTETS).and_then(|octets| u64::try_from(octets).ok());
    let octets = octets.ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a constant with a terminating zero; a new descriptor is returned.
    let descriptor = unsafe { libc::memfd_create(c"gatewright-tables".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    file.set_len(octets)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: sealing reads no memory of ours.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if sealed < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// Whether the file can no longer shrink, which would turn a read into a signal.
pub(crate) fn cannot_shrink(file: &File) -> bool {
    // SAFETY: asks for flags only.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Opens the memory behind a descriptor anew. A lock on it then belongs to this holder alone and
/// ends with it, even if copies of the first descriptor live on in other processes.
pub(crate) fn reopen(descriptor: impl AsFd, access: Access) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    File::options().read(true).write(access == Access::Write).open(path)
}

//! The memory region of a pool.
#![expect(unsafe_code, reason = "mapped memory has no safe owner in std")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

/// Pages of zeros, page-aligned, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// The file that has the pages, if another process may map them.
    file: Option<Arc<OwnedFd>>,
}

// SAFETY: the mapping belongs to the region alone, and is not tied to the thread that made it.
unsafe impl Send for Region {}

impl Region {
    /// Pages of this process alone.
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        Self::map_file(len, None)
    }

    /// Pages that another process may map by their descriptor, too.
    pub(crate) fn shared(len: usize) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a text with its zero; the call makes a descriptor or fails.
        let made = unsafe { libc::memfd_create(c"gatewright-slab".as_ptr(), flags) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and nobody else knows it.
        let file = unsafe { OwnedFd::from_raw_fd(made) };
        let size = libc::off_t::try_from(len).map_err(io::Error::other)?;
        // A file that shrinks would take pages away under its mappings.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: both calls take a descriptor of ours and numbers.
        let sized = unsafe {
            libc::ftruncate(file.as_raw_fd(), size) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if !sized {
            return Err(io::Error::last_os_error());
        }
        Self::map_file(len, Some(Arc::new(file)))
    }

    /// The pages of a file that [`Self::shared`] has made.
    pub(crate) fn of_file(len: usize, file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let has_its_size = file.metadata()?.len() == len as u64;
        // SAFETY: the call takes a descriptor of ours and a number.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        // Without the seal on its size its pages could go while they are mapped.
        if !has_its_size || seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map_file(len, Some(Arc::new(file.into())))
    }

    fn map_file(len: usize, file: Option<Arc<OwnedFd>>) -> io::Result<Self> {
        let (flags, descriptor) = match &file {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        };
        // SAFETY: a new mapping touches no memory that exists; the file has this size for ever.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                descriptor,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast())
            .map(|base| Self { base, len, file })
            .ok_or_else(|| io::Error::other("the kernel mapped the slab at address zero"))
    }

    pub(crate) const fn file(&self) -> Option<&Arc<OwnedFd>> {
        self.file.as_ref()
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made in `map_file`, unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

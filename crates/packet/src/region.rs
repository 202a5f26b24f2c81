//! The memory region of a pool.
#![expect(unsafe_code, reason = "mapped memory has no safe owner in std")]

use std::{io, ptr::NonNull};

/// Pages of zeros, page-aligned, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the region alone, and is not tied to the thread that made it.
unsafe impl Send for Region {}

impl Region {
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        // SAFETY: a new private anonymous mapping touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast())
            .map(|base| Self { base, len })
            .ok_or_else(|| io::Error::other("the kernel mapped the slab at address zero"))
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
        // SAFETY: `base` and `len` are those of the mapping made in `map`, unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

//! A TAP interface for single frames: what the kernel sends over it is carried on by its holder.

use crate::interface::Interface;
use crate::socket::{self, while_busy};
use crate::tap::DEVICE;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// An Ethernet interface of the kernel whose other end is this value; it ends with it.
///
/// The kernel completes checksums and cuts super-frames before it gives a frame. The interface is up,
/// and has no IPv6 address of its own.
#[derive(Debug)]
pub struct FrameTap {
    file: File,
}

impl FrameTap {
    /// Makes the interface `name`. Receiving does not block.
    ///
    /// # Errors
    ///
    /// The system's error: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EINVAL`
    /// or `EBUSY` if another interface has the name.
    pub fn make(name: &str) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI;
        // One that a node has just let go of is there a moment longer.
        while_busy(|| socket::tun_attach(file.as_fd(), name, flags))?;
        // Without IPv6, there is nothing to switch off.
        let _without = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        Interface::find(name)?.set_up()?;
        Ok(Self { file })
    }

    /// The next frame that the kernel sends, cut to the length of `buffer`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The system's error: `EBADFD` if somebody has deleted the interface.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match (&self.file).read(buffer) {
            Ok(len) => Ok(buffer.get(..len)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Gives the kernel a frame.
    ///
    /// # Errors
    ///
    /// The system's error: `EIO` if the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}

impl AsFd for FrameTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

//! A stream whose octets count for its peer until they form a complete message, and whose frames are
//! counted for each message.

use super::READ_MAX;
use super::frames::FrameCount;
use crate::quota::Arriving;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Octets of a short frame's header with its mask (RFC 6455 §5.2).
const FRAME_HEAD: usize = 6;

/// Why a connection is closed because of what arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Excess {
    /// More octets are arriving or wait for answers than the peer's limit.
    Octets,
    /// A message has too many frames for its length.
    Frames,
    /// A message or a frame is too long.
    Length,
}

/// Octets of a connection since its last complete message.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<Mutex<Gauge>>);

#[derive(Debug, Default)]
struct Gauge {
    /// None for outgoing connections.
    arriving: Option<Arriving>,
    octets: usize,
    frames: FrameCount,
    excess: Option<Excess>,
}

impl Meter {
    pub(super) fn new(arriving: Arriving) -> Self {
        let arriving = Some(arriving);
        Self(Arc::new(Mutex::new(Gauge { arriving, ..Gauge::default() })))
    }

    /// Resets the count after a complete message.
    pub(super) fn clear(&self) {
        let mut gauge = self.lock();
        gauge.octets = 0;
        if let Some(arriving) = &mut gauge.arriving {
            arriving.clear();
        }
    }

    /// Subtracts a control frame with this payload.
    pub(super) fn forget(&self, payload: usize) {
        let mut gauge = self.lock();
        gauge.octets = gauge.octets.saturating_sub(payload.saturating_add(FRAME_HEAD));
        let left = u64::try_from(gauge.octets.saturating_sub(READ_MAX)).unwrap_or(u64::MAX);
        if let Some(arriving) = &mut gauge.arriving {
            arriving.shrink_to(left);
        }
    }

    /// The limit that the peer exceeded.
    pub(super) fn excess(&self) -> Option<Excess> {
        self.lock().excess
    }

    /// Records that a message or a frame is too long.
    pub(super) fn set_too_long(&self) {
        self.lock().excess = Some(Excess::Length);
    }

    /// Counts octets, of which those of a single read are free, and the frames in them.
    fn count(&self, read: &[u8]) -> io::Result<()> {
        let octets = read.len();
        let mut gauge = self.lock();
        if gauge.frames.follow(read).is_err() {
            gauge.excess = Some(Excess::Frames);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let before = gauge.octets.max(READ_MAX);
        gauge.octets = gauge.octets.saturating_add(octets);
        let more = gauge.octets.saturating_sub(before);
        if let Some(arriving) = &mut gauge.arriving
            && arriving.grow(more).is_err()
        {
            gauge.excess = Some(Excess::Octets);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(())
    }

    /// A poisoned lock is safe here: it holds only a count.
    fn lock(&self) -> MutexGuard<'_, Gauge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A metered stream.
#[derive(Debug)]
pub(super) struct Metered<S> {
    stream: S,
    meter: Meter,
}

impl<S> Metered<S> {
    pub(super) const fn new(stream: S, meter: Meter) -> Self {
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.meter.count(buffer.filled().get(before..).unwrap_or_default()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

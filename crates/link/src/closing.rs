//! The two halves of a link that is being closed.
//!
//! The kernel takes milliseconds to close a device: it waits until no processor is in the middle of
//! a frame. So the worker only separates the halves, and another thread drops the kernel's half.

use crate::share::Common;
use crate::xdp::LentChunks;
use std::sync::Arc;

/// A link taken off its worker, still open.
#[derive(Default)]
pub struct Closing {
    device: ClosingDevice,
    chunks: RemainingChunks,
}

/// The half of a closing link that the kernel knows. Dropping it closes the device, which takes
/// some milliseconds.
#[derive(Default)]
#[must_use = "dropping it closes the device, which takes some milliseconds"]
pub struct ClosingDevice {
    /// Before the sockets: no frame may be on its way into a socket that is being closed.
    common: Option<Arc<Common>>,
    device: Option<Box<dyn Send>>,
    /// The thread that was opening it, which ends first.
    opening: Option<Box<dyn Send>>,
}

/// The half of a closing link that stays on its worker: chunks of the slab that the kernel may
/// still write into. They go home when it is dropped after [`Self::are_released`].
#[derive(Default)]
pub struct RemainingChunks(Vec<LentChunks>);

impl std::fmt::Debug for ClosingDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { common, device, opening } = self;
        let [is_shared, is_open] = [common.is_some(), device.is_some()];
        let is_opening = opening.is_some();
        write!(f, "ClosingDevice(shared: {is_shared}, open: {is_open}, opening: {is_opening})")
    }
}

impl Closing {
    /// A link whose kernel's half is `device`.
    pub(crate) fn new(device: impl Send + 'static) -> Self {
        let device = ClosingDevice { device: Some(Box::new(device)), ..ClosingDevice::default() };
        Self { device, chunks: RemainingChunks::default() }
    }

    pub(crate) fn with_chunks(mut self, chunks: LentChunks) -> Self {
        self.chunks.0.push(chunks);
        self
    }

    pub(crate) fn with_common(mut self, common: Option<Arc<Common>>) -> Self {
        self.device.common = common;
        self
    }

    pub(crate) fn with_opening(mut self, opening: impl Send + 'static) -> Self {
        self.device.opening = Some(Box::new(opening));
        self
    }

    pub(crate) fn with_remaining(mut self, remaining: RemainingChunks) -> Self {
        self.chunks.0.extend(remaining.0);
        self
    }

    /// The half for another thread, and the half for the worker.
    pub fn into_parts(self) -> (ClosingDevice, RemainingChunks) {
        (self.device, self.chunks)
    }
}

impl RemainingChunks {
    /// Whether the device is closed. Chunks of a driver that writes into them itself stay lent for
    /// as long as their pool lives.
    pub fn are_released(&self) -> bool {
        self.0.iter().all(LentChunks::are_closed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

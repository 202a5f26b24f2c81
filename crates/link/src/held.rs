//! What links have open, as descriptors and facts, so that another process can go on with it.
//!
//! A process that dies takes its sockets and programs with it, unless another has descriptors of
//! them, too. A new process with these goes on where the last one was: the driver forwards
//! meanwhile, no queue has to become free, and frames that wait in a socket are not lost.

use crate::{LinkInfo, Share, xdp};
use gatewright_packet::{LinkIndex, PoolError, Slab};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A part of a link that is open, for another process to go on with.
#[derive(Debug)]
pub struct HeldDevice {
    /// What has to be known of it.
    pub facts: DeviceFacts,
    /// Its descriptors, in the order that its kind tells.
    pub descriptors: Vec<OwnedFd>,
}

/// What has to be known of an open part of a link beside its descriptors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceFacts {
    /// The link.
    pub link: LinkIndex,
    /// The share of the link.
    pub share: Share,
    /// The link's properties.
    pub info: LinkInfo,
    /// The kind of the part.
    pub kind: HeldKind,
}

/// The kind of an open part of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HeldKind {
    /// The program in front of AF_XDP sockets: the attached program, the map from queues to sockets,
    /// and the socket that keeps the interface promiscuous, if there is one.
    XdpProgram {
        /// The number of the kernel's function that tells of tags; 0 if the driver leaves them in
        /// frames.
        tag_function: u32,
        /// Receive queues of the interface.
        queues: u32,
        /// Whether it is attached behind the driver.
        is_generic: bool,
        /// Whether frames come in several buffers.
        in_pieces: bool,
    },
    /// Packet sockets of an exclusive link: of each the receiving and the sending one, then what keeps
    /// the kernel's stack quiet, if something does.
    PacketSockets {
        /// Their number.
        sockets: u32,
        /// Slots of each receive ring, as asked for.
        slots: u32,
        /// Octets of the largest frame of a slot.
        frame_len: u32,
    },
    /// A TAP or TUN device: its file.
    Tap,
    /// AF_XDP sockets of a share of an exclusive link: the memory of its worker's slab, then the
    /// sockets by their queues.
    XdpSockets {
        /// Their number.
        sockets: u32,
        /// Entries of each of their rings.
        entries: u32,
        /// Chunks that each lends to the kernel.
        lent: u32,
        /// Chunks of the slab.
        chunks: u32,
        /// Octets of a chunk.
        chunk_size: u32,
    },
}

impl HeldDevice {
    /// The same with descriptors of its own.
    ///
    /// # Errors
    ///
    /// The system's error if no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let descriptors = self.descriptors.iter().map(OwnedFd::try_clone);
        Ok(Self { facts: self.facts.clone(), descriptors: descriptors.collect::<Result<_, _>>()? })
    }

    /// Whether another part takes the place of this one.
    pub fn is_replaced_by(&self, other: &DeviceFacts) -> bool {
        let DeviceFacts { link, share, info, kind } = &self.facts;
        let is_same_kind = std::mem::discriminant(kind) == std::mem::discriminant(&other.kind);
        (*link, *share, &info.name) == (other.link, other.share, &other.info.name) && is_same_kind
    }
}

/// The devices that links of one data plane have open, and those of an earlier process that they are
/// to go on with.
///
/// A clone is the same devices.
#[derive(Clone, Default)]
pub struct OpenDevices(Arc<Mutex<Inner>>);

/// Who is told of each device.
type Told = Box<dyn Fn(HeldDevice) + Send>;

#[derive(Default)]
struct Inner {
    /// Whether somebody may ask for what is open.
    is_kept: bool,
    open: Vec<OpenDevice>,
    /// Devices of an earlier process.
    held: Vec<HeldDevice>,
    told: Option<Told>,
}

/// A device that was opened, and is closed when its descriptors are.
struct OpenDevice {
    facts: DeviceFacts,
    descriptors: Vec<Weak<OwnedFd>>,
}

impl OpenDevice {
    /// The device with descriptors of its own, if it is open.
    fn held(&self) -> Option<HeldDevice> {
        let own = |descriptor: &Weak<OwnedFd>| descriptor.upgrade()?.try_clone().ok();
        let descriptors = self.descriptors.iter().map(own).collect::<Option<_>>()?;
        Some(HeldDevice { facts: self.facts.clone(), descriptors })
    }
}

impl fmt::Debug for OpenDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        let (open, held) = (inner.open.len(), inner.held.len());
        write!(f, "OpenDevices({open} open, {held} held)")
    }
}

impl OpenDevices {
    /// Devices of a process whose links go on with `held`, and whose own another process may hold.
    pub fn going_on_with(held: Vec<HeldDevice>) -> Self {
        Self(Arc::new(Mutex::new(Inner { is_kept: true, held, ..Inner::default() })))
    }

    /// A poisoned lock is safe here: each change is whole before the next.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells `told` of each device that is open, and of each that is opened from now on; nobody else
    /// any more.
    pub fn tell(&self, told: impl Fn(HeldDevice) + Send + 'static) {
        let mut inner = self.lock();
        inner.open.retain(|device| device.descriptors.iter().all(|one| one.strong_count() > 0));
        inner.open.iter().filter_map(OpenDevice::held).for_each(&told);
        inner.told = Some(Box::new(told));
    }

    /// Tells nobody any more.
    pub fn tell_nobody(&self) {
        self.lock().told = None;
    }

    /// Drops what no link has gone on with.
    pub fn drop_held(&self) {
        let unused = std::mem::take(&mut self.lock().held);
        drop(unused);
    }

    /// A slab of so many chunks for the packets of a worker that has these shares of links. If an
    /// earlier process has AF_XDP sockets open for them, it is the slab of its worker, so that its
    /// chunks are where the kernel has them.
    ///
    /// # Errors
    ///
    /// As [`Slab::new`].
    pub fn slab(
        &self,
        parts: &[(LinkIndex, Share)],
        (chunks, chunk_size): (usize, usize),
    ) -> Result<Slab, PoolError> {
        let mut inner = self.lock();
        if !inner.is_kept {
            return Slab::new(chunks, chunk_size);
        }
        let is_own = |device: &HeldDevice| {
            let DeviceFacts { link, share, kind, .. } = &device.facts;
            matches!(kind, HeldKind::XdpSockets { .. }) && parts.contains(&(*link, *share))
        };
        let own: Vec<_> = inner.held.iter().filter(|device| is_own(device)).collect();
        match xdp::slab_before(&own, (chunks, chunk_size)) {
            Ok(Some(slab)) => return Ok(slab),
            // None of them can be gone on with alone: their chunks are of one slab.
            Ok(None) | Err(_) => inner.held.retain(|device| !is_own(device)),
        }
        drop(inner);
        Slab::shared(chunks, chunk_size)
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.lock().is_kept
    }

    /// Notes a device that was opened.
    pub(crate) fn note(&self, facts: DeviceFacts, descriptors: &[Arc<OwnedFd>]) {
        let mut inner = self.lock();
        if !inner.is_kept {
            return;
        }
        let descriptors = descriptors.iter().map(Arc::downgrade).collect();
        let device = OpenDevice { facts, descriptors };
        if let (Some(told), Some(held)) = (&inner.told, device.held()) {
            told(held);
        }
        inner.open.retain(|device| device.descriptors.iter().all(|one| one.strong_count() > 0));
        inner.open.push(device);
    }

    /// A link's device of an earlier process of this kind.
    pub(crate) fn take(
        &self,
        link: LinkIndex,
        share: Share,
        is_kind: impl Fn(&HeldKind) -> bool,
    ) -> Option<HeldDevice> {
        let mut inner = self.lock();
        let is_it = |device: &HeldDevice| {
            let facts = &device.facts;
            (facts.link, facts.share) == (link, share) && is_kind(&facts.kind)
        };
        let place = inner.held.iter().position(is_it)?;
        Some(inner.held.swap_remove(place))
    }
}

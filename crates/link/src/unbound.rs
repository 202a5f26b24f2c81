//! A link whose device is open, on its way to its worker.

use crate::interface::Interface;
use crate::made::CaptureFiles;
use crate::packet_socket::{Bound, PacketSocket, SendOnly};
use crate::pcapng::Speed;
use crate::returning::Returning;
use crate::share::Common;
use crate::tap::{Tap, TapDevice};
use crate::{Link, LinkConfig, LinkInfo, OpenError, Preparer, xdp};
use gatewright_packet::{LinkIndex, Pool, SlabShape};
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// A link whose device is open. Opening took the kernel its milliseconds, on any thread; binding it
/// to the slab of its worker takes microseconds.
pub struct UnboundLink {
    slab: SlabShape,
    kind: Kind,
}

enum Kind {
    /// A link that is opened again when its device returns.
    Returning(Preparer, LinkConfig, Opened),
    /// A link that ends with its device.
    Once(UnboundDevice),
}

/// A device, and its state in common with other shares.
pub(crate) struct Opened {
    pub(crate) device: UnboundDevice,
    pub(crate) common: Arc<Common>,
}

/// An open device without a slab.
pub(crate) enum UnboundDevice {
    Xdp(Box<xdp::Unbound>),
    PacketSocket {
        info: LinkInfo,
        bound: Bound,
    },
    SendOnly {
        info: LinkInfo,
        interface: Interface,
        socket: OwnedFd,
    },
    Tap {
        info: LinkInfo,
        index: LinkIndex,
        interface: Interface,
        device: TapDevice,
    },
    Capture(Box<(CaptureFiles, Speed)>),
    #[cfg(feature = "dpdk")]
    Dpdk(Box<crate::dpdk::OpenPort>),
}

impl fmt::Debug for UnboundLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnboundLink({})", self.info())
    }
}

impl UnboundLink {
    pub(crate) fn returning(preparer: Preparer, config: LinkConfig, opened: Opened) -> Self {
        Self { slab: preparer.slab(), kind: Kind::Returning(preparer, config, opened) }
    }

    pub(crate) const fn once(slab: SlabShape, device: UnboundDevice) -> Self {
        Self { slab, kind: Kind::Once(device) }
    }

    /// Its properties.
    pub const fn info(&self) -> &LinkInfo {
        match &self.kind {
            Kind::Returning(.., opened) => opened.device.info(),
            Kind::Once(device) => device.info(),
        }
    }

    /// Binds it to the slab of its worker.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unsupported`] if it was opened for another slab.
    pub fn bind(self, pool: &Rc<Pool>) -> Result<Box<dyn Link>, OpenError> {
        self.check(pool)?;
        Ok(match self.kind {
            Kind::Returning(preparer, config, opened) => {
                Box::new(Returning::new(preparer, Rc::clone(pool), config, opened))
            }
            Kind::Once(device) => device.bind(pool),
        })
    }

    /// As [`Self::bind`], for a link whose device has returned.
    pub(crate) fn bind_returned(self, pool: &Rc<Pool>) -> Option<(Box<dyn Link>, Arc<Common>)> {
        self.check(pool).ok()?;
        match self.kind {
            Kind::Returning(_, _, Opened { device, common }) => Some((device.bind(pool), common)),
            Kind::Once(_) => None,
        }
    }

    fn lends_frames(&self) -> bool {
        let device = match &self.kind {
            Kind::Returning(_, _, opened) => &opened.device,
            Kind::Once(device) => device,
        };
        matches!(device, UnboundDevice::Xdp(device) if device.lends_frames())
    }

    fn check(&self, pool: &Pool) -> Result<(), OpenError> {
        let reason = if self.slab != pool.shape() {
            "it was opened for the packets of another slab".to_owned()
        } else if self.lends_frames() && !xdp::has_frames_to_lend(pool) {
            format!(
                "all {} frames of the worker are lent to other links: after a new start there is \
                 room for it (`mode = \"packet\"` needs none)",
                pool.capacity()
            )
        } else {
            return Ok(());
        };
        Err(OpenError::Unsupported { name: self.info().name.clone(), reason })
    }
}

impl UnboundDevice {
    const fn info(&self) -> &LinkInfo {
        match self {
            Self::Xdp(device) => &device.info,
            Self::PacketSocket { info, .. }
            | Self::SendOnly { info, .. }
            | Self::Tap { info, .. } => info,
            Self::Capture(capture) => &capture.0.info,
            #[cfg(feature = "dpdk")]
            Self::Dpdk(port) => &port.info,
        }
    }

    pub(crate) fn bind(self, pool: &Rc<Pool>) -> Box<dyn Link> {
        match self {
            Self::Xdp(device) => Box::new(device.bind(pool)),
            Self::PacketSocket { info, bound } => {
                Box::new(PacketSocket::new(info, bound, Rc::clone(pool)))
            }
            Self::SendOnly { info, interface, socket } => {
                Box::new(SendOnly::new(info, interface, socket))
            }
            Self::Tap { info, index, interface, device } => {
                Box::new(Tap::new(info, index, interface, device, Rc::clone(pool)))
            }
            Self::Capture(capture) => {
                let (files, speed) = *capture;
                Box::new(files.bind(speed, pool))
            }
            #[cfg(feature = "dpdk")]
            Self::Dpdk(port) => Box::new(port.bind(Rc::clone(pool))),
        }
    }
}

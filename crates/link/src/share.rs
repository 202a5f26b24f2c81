//! A link from which several workers receive, each by its own queues.
//!
//! The first opener opens the device for all. It attaches the program that hands frames to sockets
//! by queue, or creates the packet sockets among which the kernel divides flows. The others join.
//! The common state lives as long as one of them does. A device that one share finds gone is gone
//! for all, so that shares of an old and a new device never coexist.

use crate::claim::Claim;
use crate::driver::ForwardingLink;
use crate::packet_socket::Bound;
use crate::xdp::Trunk;
use crate::{DeviceFacts, LinkInfo, OpenDevices, OpenError, exclusive::KernelSilenced};
use gatewright_packet::LinkIndex;
use gatewright_xdp::ForwardingMaps;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A worker's part of a link's queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Share {
    /// Its number, below `of`.
    pub number: usize,
    /// Shares of the link, at least one.
    pub of: usize,
}

impl Share {
    /// The whole link.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// The queues of this share among `queues` queues: all shares together have each queue once.
    pub(crate) fn queues(self, queues: u32) -> Vec<u32> {
        let is_own = |(place, _): &(usize, u32)| place % self.of.max(1) == self.number;
        (0..).zip(0..queues).filter(is_own).map(|(_, queue)| queue).collect()
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// The links of one gateway that are opened by shares. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Shares(Arc<Mutex<Known>>);

/// The common state of shares, by link and name of its interface: the next interface of a link is
/// opened while the link still has the last one.
#[derive(Debug, Default)]
pub(crate) struct Known(Vec<(LinkIndex, String, Weak<Common>)>);

impl Shares {
    /// Locks the list: no other worker opens a share while it is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The state opened by another share of `link`; `None` if this one is the first.
    ///
    /// # Errors
    ///
    /// If the device has gone and not all shares have released it.
    pub(crate) fn find(
        &self,
        link: LinkIndex,
        name: &str,
        kernel_index: u32,
    ) -> Result<Option<Arc<Common>>, OpenError> {
        let known = self.0.iter().find(|(known, of, _)| *known == link && of == name);
        let common = known.and_then(|(.., common)| common.upgrade());
        let Some(common) = common else { return Ok(None) };
        if common.info.kernel_index != kernel_index {
            // Another device under the name of the old one, which is no more.
            common.goes();
            return Ok(None);
        }
        if common.has_gone() {
            let reason = "other workers have not let go of it yet".to_owned();
            return Err(OpenError::Unsupported { name: name.to_owned(), reason });
        }
        Ok(Some(common))
    }

    /// Records `common` as the common state of the shares of `link` on the interface `name`.
    pub(crate) fn set(&mut self, link: LinkIndex, name: &str, common: &Arc<Common>) {
        let is_other = |known: LinkIndex, of: &str| known != link || of != name;
        self.0.retain(|(known, of, common)| is_other(*known, of) && common.strong_count() > 0);
        self.0.push((link, name.to_owned(), Arc::downgrade(common)));
    }
}

/// The common state of the shares of a link.
pub(crate) struct Common {
    /// The link's properties, as the first share found them.
    pub(crate) info: LinkInfo,
    pub(crate) part: Part,
    /// Descriptors that another process may have, too; closed with the part.
    kept: OnceLock<Vec<Arc<OwnedFd>>>,
    claim: OnceLock<Claim>,
    has_gone: AtomicBool,
}

/// The common state by the kind of link.
pub(crate) enum Part {
    Xdp(Trunk),
    PacketSocket(Group),
}

/// Packet sockets among which the kernel divides flows.
pub(crate) struct Group {
    /// The sockets that no worker has taken yet.
    waiting: Mutex<Vec<Option<Bound>>>,
    _silenced: Option<KernelSilenced>,
}

impl Group {
    pub(crate) fn new(bound: Vec<Bound>, silenced: Option<KernelSilenced>) -> Self {
        let waiting = bound.into_iter().map(Some).collect();
        Self { waiting: Mutex::new(waiting), _silenced: silenced }
    }

    /// The socket of a share; `None` if there is none for it.
    pub(crate) fn take(&self, share: Share) -> Option<Bound> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get_mut(share.number)?.take()
    }
}

impl Common {
    pub(crate) fn new(info: LinkInfo, part: Part) -> Arc<Self> {
        let (kept, claim) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { info, part, kept, claim, has_gone: AtomicBool::new(false) })
    }

    /// Notes the part that all shares have, so that another process may hold it.
    pub(crate) fn note_in(&self, devices: &OpenDevices, link: LinkIndex) -> io::Result<()> {
        if !devices.are_kept() {
            return Ok(());
        }
        let Part::Xdp(trunk) = &self.part else { return Ok(()) };
        let info = self.info.clone();
        let facts = DeviceFacts { link, share: Share::WHOLE, info, kind: trunk.held_kind() };
        self.keep(devices, facts, trunk.descriptors()?);
        Ok(())
    }

    /// Keeps descriptors that another process may have, too, as long as the link is open.
    pub(crate) fn keep(&self, devices: &OpenDevices, facts: DeviceFacts, all: Vec<OwnedFd>) {
        let kept: Vec<_> = all.into_iter().map(Arc::new).collect();
        devices.note(facts, &kept);
        // They are noted once.
        let _other = self.kept.set(kept);
    }

    /// Holds the claim to an exclusive link for as long as one share of it lives.
    pub(crate) fn hold(&self, claim: Claim) {
        // The first share alone makes a claim.
        let _other = self.claim.set(claim);
    }

    /// Tells the other shares that the device has gone.
    pub(crate) fn goes(&self) {
        self.has_gone.store(true, Ordering::Release);
    }

    pub(crate) fn has_gone(&self) -> bool {
        self.has_gone.load(Ordering::Acquire)
    }
}

impl ForwardingLink for Common {
    fn interface(&self) -> &str {
        &self.info.name
    }

    fn exchange_maps(&self, maps: &Arc<ForwardingMaps>) -> io::Result<()> {
        match &self.part {
            Part::Xdp(trunk) => trunk.exchange_maps(&self.info, maps),
            Part::PacketSocket(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").field("info", &self.info).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_queue_is_of_one_share(of in 1..9_usize, queues in 0..40_u32) {
            let shares = (0..of).map(|number| Share { number, of }.queues(queues));
            let mut all: Vec<u32> = shares.clone().flatten().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..queues).collect::<Vec<_>>());
            for (number, share) in shares.enumerate() {
                prop_assert!(share.len() <= usize::try_from(queues).unwrap().div_ceil(of));
                // It is to send by the queue of its own number where there is one.
                let first = share.first().copied().map(|queue| usize::try_from(queue).unwrap());
                prop_assert!(first.is_none_or(|first| first == number));
            }
        }
    }
}

//! What control holds of the data plane, so that a new process goes on with it: maps by which
//! drivers forward, and devices that links have open.

use super::handshake::{self, PeerMessage};
use crate::setup::{DeviceSetup, WorkerLink};
use gatewright_link::{
    DeviceFacts, DriverForwarding, ForwardingMaps, HeldDevice, HeldKind, LinkInfo,
};
use gatewright_packet::LinkIndex;
use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The devices that links of the data plane have open.
#[derive(Default)]
pub(super) struct HeldDevices(Mutex<Vec<HeldDevice>>);

impl HeldDevices {
    /// A poisoned lock is safe here: each change is whole before the next.
    fn lock(&self) -> MutexGuard<'_, Vec<HeldDevice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a device, in place of an earlier one of its link.
    pub(super) fn hold(&self, device: HeldDevice) {
        let mut all = self.lock();
        let replaced = |held: &mut HeldDevice| held.is_replaced_by(&device.facts);
        let before: Vec<_> = all.extract_if(.., replaced).collect();
        all.push(device);
        drop(all);
        // The kernel takes its time to close one.
        drop(before);
    }

    /// Lets go of what is not `kept`.
    fn retain(&self, kept: impl Fn(&HeldDevice) -> bool) {
        let gone: Vec<_> = self.lock().extract_if(.., |held| !kept(held)).collect();
        drop(gone);
    }

    /// Lets go of a link's device that is about to be closed.
    pub(super) fn release(&self, device: &DeviceSetup) {
        self.retain(|held| held.facts.link != device.index() || !is_of(held, device));
    }

    /// Lets go of a link's devices but those of the interface that it has open now.
    pub(super) fn keep_open(&self, link: LinkIndex, open: &LinkInfo) {
        self.retain(|held| {
            held.facts.link != link || held.facts.info.kernel_index == open.kernel_index
        });
    }

    /// Lets go of devices that are not those of `links`: they were prepared and not used.
    pub(super) fn keep_those_of(&self, links: &[WorkerLink]) {
        self.retain(|held| {
            let link = links.get(held.facts.link.index());
            link.is_some_and(|link| is_of(held, &link.device))
        });
    }

    /// Lets go of all but programs by which drivers forward: nobody receives from the others any
    /// more, and the kernel is to have what is its own.
    pub(super) fn keep_forwarding(&self) {
        self.retain(|held| {
            let is_program = matches!(held.facts.kind, HeldKind::XdpProgram { .. });
            is_program && held.facts.info.driver_forwarding == DriverForwarding::Active
        });
    }

    /// Lets go of all.
    pub(super) fn clear(&self) {
        self.retain(|_| false);
    }

    /// Copies of all that can be copied.
    pub(super) fn copies(&self) -> Vec<HeldDevice> {
        self.lock().iter().filter_map(|held| held.try_clone().ok()).collect()
    }
}

/// Whether a held device is what a setup opens. The kernel replaces `%d` in the name of a TAP.
fn is_of(held: &HeldDevice, device: &DeviceSetup) -> bool {
    let DeviceFacts { info, kind, .. } = &held.facts;
    match device {
        DeviceSetup::Interface(device) => device.interface == info.name,
        DeviceSetup::Tap(tap) => {
            *kind == HeldKind::Tap && (tap.interface == info.name || tap.interface.contains('%'))
        }
        DeviceSetup::Capture(_)
        | DeviceSetup::Dpdk(_)
        | DeviceSetup::Segment(_)
        | DeviceSetup::Virtual(_)
        | DeviceSetup::Spare(_) => false,
    }
}

/// What a process gets at its start beside the shared descriptors.
pub(super) struct PassedDown {
    /// The maps; otherwise why there are none.
    pub(super) maps: Result<Arc<ForwardingMaps>, String>,
    pub(super) held: Vec<HeldDevice>,
}

impl PassedDown {
    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        usize::from(self.maps.is_ok()) + self.held.len()
    }

    /// Why there are no maps; empty if there are some.
    pub(super) fn no_maps(&self) -> String {
        self.maps.as_ref().err().cloned().unwrap_or_default()
    }

    /// Sends all.
    pub(super) fn tell(&self, stream: &UnixStream) -> io::Result<()> {
        if let Ok(maps) = &self.maps {
            let descriptors: Vec<_> = maps.descriptors().collect();
            handshake::tell(stream, &PeerMessage::maps(maps), &descriptors)?;
        }
        for HeldDevice { facts, descriptors } in &self.held {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            handshake::tell(stream, &PeerMessage::Device(facts.clone()), &descriptors)?;
        }
        Ok(())
    }
}

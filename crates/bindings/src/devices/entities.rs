//! Table of associated devices, the AE table: fixed records that readers access without a lock.
//!
//! Devices that are associated over the gateway's own stack are in the data plane's AE table, too.

use super::forwarded::ForwardedDevices;
use core::hash::{BuildHasher, Hasher};
use gatewright_health::code::{ConfigId, SystemId};
use gatewright_health::manager::Manager;
use gatewright_interwork::Device;
use gatewright_tables::records::{Entity, Sender};
use gatewright_tables::{EntityWriters, Map, MapWriter, RegionError, RegionLayout, RegionOwner};
use std::hash::RandomState;

/// The table's writer.
#[derive(Debug)]
pub(super) struct Entities {
    all: MapWriter<Sender, Entity>,
    forwarded: Option<ForwardedDevices>,
}

impl Entities {
    /// Creates a table for so many devices. `of_data_plane` is the AE table of the data plane.
    pub(super) fn new(
        devices_max: usize,
        of_data_plane: Option<EntityWriters>,
    ) -> Result<Self, RegionError> {
        let mut layout = RegionLayout::new();
        let devices_max = u32::try_from(devices_max).unwrap_or(u32::MAX).max(1);
        let at = layout.map("entities", devices_max)?;
        // Outsiders choose their ports: the order of the table is not theirs to know.
        let random = || RandomState::new().build_hasher().finish();
        let mut owner = RegionOwner::in_memory(&layout, [random(), random()])?;
        let forwarded = of_data_plane.map(ForwardedDevices::new);
        Ok(Self { all: owner.map(&at)?, forwarded })
    }

    pub(super) fn reader(&self) -> Map<Sender, Entity> {
        self.all.reader()
    }

    /// The part of the data plane, if devices may associate over the gateway's own stack.
    pub(super) const fn forwarded(&mut self) -> Option<&mut ForwardedDevices> {
        self.forwarded.as_mut()
    }

    /// Adds an associated device, over the gateway's own stack or not; `false` if the table is full.
    pub(super) fn join(
        &mut self,
        sender: &Sender,
        (system, config): (SystemId, ConfigId),
        over_stack: bool,
    ) -> bool {
        let micros = crate::engine::wall().as_micros();
        let associated = u64::try_from(micros).unwrap_or(u64::MAX);
        let SystemId(system_id) = system;
        let entity = Entity { system_id, configuration: config.0, associated, ..Entity::default() };
        let forwarded = self.forwarded.as_mut().filter(|_| over_stack);
        forwarded.is_none_or(|forwarded| forwarded.join(sender, &entity))
            && self.all.set(sender, &entity).is_ok()
    }

    /// Updates a device's configuration or its association's state.
    pub(super) fn update(&mut self, sender: &Sender, manager: &Manager, device: Option<&Device>) {
        let Some(mut entity) = self.all.get(sender) else { return };
        // The states have small numbers, those of the standard.
        entity.state = u8::try_from(manager.state() as u32).unwrap_or(u8::MAX);
        if let Some(configuration) = manager.configuration() {
            entity.configuration = configuration.id().0;
        }
        let places = device.map_or(&[][..], Device::places);
        entity.objects = u8::try_from(places.len()).unwrap_or(u8::MAX);
        for (kind, place) in entity.kinds.iter_mut().zip(places) {
            *kind = u32::from(place.kind.partition) << 16 | u32::from(place.kind.code);
        }
        // It has its place already.
        let _kept = self.all.set(sender, &entity);
        if let Some(forwarded) = &mut self.forwarded {
            forwarded.update(sender, &entity);
        }
    }

    pub(super) fn leave(&mut self, sender: &Sender) {
        self.all.remove(sender);
        if let Some(forwarded) = &mut self.forwarded {
            forwarded.leave(sender);
        }
    }
}

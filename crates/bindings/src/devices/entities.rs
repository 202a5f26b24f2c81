//! Table of associated devices, the AE table: fixed records that readers access without a lock.

use core::hash::{BuildHasher, Hasher};
use gatewright_health::code::{ConfigId, SystemId};
use gatewright_health::manager::Manager;
use gatewright_interwork::Device;
use gatewright_tables::records::{Entity, Sender};
use gatewright_tables::{Map, MapWriter, RegionError, RegionLayout, RegionOwner};
use std::hash::RandomState;

/// The table's writer.
#[derive(Debug)]
pub(super) struct Entities(MapWriter<Sender, Entity>);

impl Entities {
    /// Creates a table for so many devices.
    pub(super) fn new(devices_max: usize) -> Result<Self, RegionError> {
        let mut layout = RegionLayout::new();
        let devices_max = u32::try_from(devices_max).unwrap_or(u32::MAX).max(1);
        let at = layout.map("entities", devices_max)?;
        // Outsiders choose their ports: the order of the table is not theirs to know.
        let random = || RandomState::new().build_hasher().finish();
        let mut owner = RegionOwner::in_memory(&layout, [random(), random()])?;
        Ok(Self(owner.map(&at)?))
    }

    pub(super) fn reader(&self) -> Map<Sender, Entity> {
        self.0.reader()
    }

    /// Adds an associated device; `false` if the table is full.
    pub(super) fn join(&mut self, sender: &Sender, system: SystemId, config: ConfigId) -> bool {
        let micros = crate::engine::wall().as_micros();
        let associated = u64::try_from(micros).unwrap_or(u64::MAX);
        let SystemId(system_id) = system;
        let entity = Entity { system_id, configuration: config.0, associated, ..Entity::default() };
        self.0.set(sender, &entity).is_ok()
    }

    /// Updates a device's configuration or its association's state.
    pub(super) fn update(&mut self, sender: &Sender, manager: &Manager, device: Option<&Device>) {
        let Some(mut entity) = self.0.get(sender) else { return };
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
        let _kept = self.0.set(sender, &entity);
    }

    pub(super) fn leave(&mut self, sender: &Sender) {
        self.0.remove(sender);
    }
}

//! The state of a listener's devices, told to the engine.

use super::Shared;
use crate::device_now::{DeviceNow, DevicesNow};
use crate::engine::{Engine, wall};
use gatewright_interwork::stored;
use gatewright_onem2m::Timestamp;
use std::sync::{Arc, PoisonError, Weak};

impl DevicesNow for Shared {
    fn now_of(&self, entity: &str) -> Option<DeviceNow> {
        let digits = entity.strip_prefix(self.mapping.entity_prefix.as_str())?;
        let device = stored::system_id(&[&format!("system-id:{digits}")])?;
        let is_associated = self.lock().roster.session(device).is_some();
        let ago = self.last_heard(device).map(|at| self.now().saturating_sub(at));
        let last_heard = ago.map(|ago| Timestamp::new(wall().saturating_sub(ago)));
        Some(DeviceNow { is_associated, last_heard })
    }
}

/// Has the engine tell the state of a listener's devices, as long as that runs.
pub(super) fn tell_of(shared: &Arc<Shared>) {
    let devices: Weak<dyn DevicesNow> = Arc::<Shared>::downgrade(shared);
    let mut told = shared.engine.devices_now.lock().unwrap_or_else(PoisonError::into_inner);
    *told = Some(devices);
}

impl Engine {
    /// The state of the device with this AE; `None` if the name is not a device's, or no device
    /// listener runs.
    pub fn device_now(&self, entity: &str) -> Option<DeviceNow> {
        let devices = self.devices_now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        devices?.upgrade()?.now_of(entity)
    }
}

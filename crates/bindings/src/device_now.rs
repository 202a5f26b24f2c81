//! The state of a device at this moment, as the engine gets it for whoever shows devices.

use gatewright_onem2m::Timestamp;

/// The state of a device at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceNow {
    /// Whether it is associated.
    pub is_associated: bool,
    /// Time of its last report or association since the start; `None` if there was none.
    pub last_heard: Option<Timestamp>,
}

/// What knows the state of devices.
pub(crate) trait DevicesNow: core::fmt::Debug + Send + Sync {
    /// The state of the device with this AE; `None` if the name is not a device's.
    fn now_of(&self, entity: &str) -> Option<DeviceNow>;
}

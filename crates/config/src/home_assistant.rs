//! `[devices.home_assistant]`: where devices are announced.

/// Home Assistant's MQTT discovery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HomeAssistant {
    /// URL of the broker, optionally with a password.
    pub broker: String,
    /// Prefix of announcements.
    pub prefix: String,
    /// First level of the topics of states and availability.
    pub topic: String,
}

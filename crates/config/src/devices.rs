//! The typed section `[devices]`.

use crate::home_assistant::HomeAssistant;
use crate::located::Located;
use std::net::SocketAddr;
use std::time::Duration;

/// IEEE 11073 devices that associate with this gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Devices {
    /// TCP address of the manager.
    pub listen: Located<SocketAddr>,
    /// UDP address of the manager.
    pub udp: Option<Located<SocketAddr>>,
    /// UDP address of the manager at the gateway's own stack.
    pub stack: Option<Located<SocketAddr>>,
    /// TLS access, for devices that present a certificate.
    pub tls: Option<DevicesTls>,
    /// Delivery of readings.
    pub delivery: Delivery,
    /// Device kinds whose readings are sent on at once, whatever [`delivery`](Self::delivery) says.
    pub direct: Vec<String>,
    /// Device kinds whose readings are stored first, whatever the other keys say.
    pub durable: Vec<String>,
    /// Maximum number of concurrent associations.
    pub devices_max: u32,
    /// Maximum number of concurrent connections of one address; with `None`, only the limit of all
    /// applies.
    pub peer_connections: Option<u32>,
    /// System-ids of the devices that may associate; all devices unless given.
    pub admit: Vec<[u8; 8]>,
    /// AE-IDs that may read reports of devices and send them requests.
    pub operators: Vec<String>,
    /// How long a reading is kept for the registrar.
    pub keep: Duration,
    /// Maximum number of one device's readings kept for the registrar.
    pub waiting_max: u32,
    /// Maximum number of all devices' readings kept for the registrar.
    pub waiting_total: u32,
    /// Maximum octets of those, in MiB; see [`Config::waiting_octets`](crate::Config::waiting_octets).
    pub waiting_mib: Option<u32>,
    /// Whether known device kinds get their views (TS-0023).
    pub views: bool,
    /// Mappings that take precedence over the built-in ones.
    pub maps: Vec<DeviceMap>,
    /// When a device counts as silent; the first entry that fits its kind applies.
    pub silent: Vec<SilentAfter>,
    /// Where devices are announced to Home Assistant.
    pub home_assistant: Option<HomeAssistant>,
}

/// Time without a report after which devices count as silent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SilentAfter {
    /// The time.
    pub after: Duration,
    /// Kinds of devices; all if empty.
    pub kinds: Vec<String>,
}

/// Mapping of a device's objects; a condition that is not given matches all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceMap {
    /// The container.
    pub container: String,
    /// Partition and code of the measured quantity (IEEE 11073-10101).
    pub measured: Option<(u16, u16)>,
    /// Code of the unit.
    pub unit: Option<u16>,
    /// Labels of the container.
    pub labels: Vec<String>,
    /// Maximum number of instances that the container keeps.
    pub instances: Option<u32>,
    /// Its LOINC code in FHIR.
    pub loinc: Option<String>,
    /// A flexContainer that shows the latest value as a whole number.
    pub view: Option<DeviceView>,
}

/// A flexContainer with one whole number (TS-0023).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceView {
    /// Its short name with namespace.
    pub name: String,
    /// Its containerDefinition.
    pub definition: String,
    /// The attribute.
    pub attribute: String,
}

/// TLS for devices that present a certificate; all files are PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DevicesTls {
    /// The address that devices connect to.
    pub listen: Located<SocketAddr>,
    /// The manager's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Authorities whose certificates are accepted.
    pub authorities: String,
    /// Path of their lists of revoked certificates; with `None`, none is revoked.
    pub crl: Option<String>,
    /// Path of the OCSP response about the manager's certificate, which it staples.
    pub ocsp_response: Option<String>,
    /// Field of a device's certificate with its system-id; with `None`, they are not compared.
    pub system_id: Option<SystemIdField>,
}

/// Field of a device's certificate with its system-id: a subject alternative name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SystemIdField {
    /// Of type URI: `urn:dev:mac:0247000100000001` (RFC 9039 §4.1).
    Uri,
    /// Of type DNS: its first label, `0247000100000001.devices.example.com`.
    Dns,
}

/// Delivery of readings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Delivery {
    /// Stored before they are acknowledged, and sent until they are accepted.
    #[default]
    Durable,
    /// Sent on at once, without being stored.
    Direct,
}

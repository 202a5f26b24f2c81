//! System-ids in a device's certificate: those that it may associate with.

use gatewright_health::code::SystemId;
use gatewright_interwork::stored;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// System-ids per certificate; a hub's names those of its devices.
const SYSTEM_IDS_MAX: usize = 256;
/// Prefix of a URI that holds an EUI-64 (RFC 9039 §4.1).
const MAC_URN: &str = "urn:dev:mac:";

/// Subject alternative name that holds the system-id in a device's certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SystemIdField {
    /// Of type URI: `urn:dev:mac:0247000100000001` (RFC 9039 §4.1).
    Uri,
    /// Of type DNS: its first label, `0247000100000001.devices.example.com`.
    Dns,
}

impl SystemIdField {
    /// The system-ids in a verified certificate; empty if it names none.
    pub(super) fn system_ids(self, certificate: &CertificateDer<'_>) -> Vec<SystemId> {
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
        let digits: Vec<&str> = match self {
            Self::Uri => {
                parsed.valid_uri_names().filter_map(|uri| uri.strip_prefix(MAC_URN)).collect()
            }
            Self::Dns => parsed
                .valid_dns_names()
                .map(|name| name.split('.').next().unwrap_or(name))
                .collect(),
        };
        digits.into_iter().filter_map(system_id).take(SYSTEM_IDS_MAX).collect()
    }
}

/// Parses sixteen hexadecimal digits, as in labels of AEs.
fn system_id(digits: &str) -> Option<SystemId> {
    stored::system_id(&[&format!("system-id:{digits}")])
}

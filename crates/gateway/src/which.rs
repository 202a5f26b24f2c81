//! Selects packets, as requests for a capture or a trace do.

use gatewright_planes::network;
use gatewright_stack::{builtin::Match, ip_protocol};
use serde::{Deserialize, Serialize};

/// Selects packets, as given on the command line.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// Only packets of this link.
    pub link: Option<String>,
    /// Network of the source address.
    pub source: Option<String>,
    /// Network of the destination address.
    pub destination: Option<String>,
    /// IP protocol: `udp`, or a number.
    pub protocol: Option<String>,
    /// Destination port.
    pub port: Option<u16>,
}

impl Which {
    /// Its match, without the link.
    ///
    /// # Errors
    ///
    /// The error, in words for the operator.
    pub fn matching(&self) -> Result<Match, String> {
        let network = |text: &Option<String>| -> Result<_, String> {
            let network = text.as_deref().map(network).transpose()?;
            Ok(network.map(|network| (network.address(), network.length())))
        };
        let protocol = self.protocol.as_deref().map(ip_protocol).transpose();
        Ok(Match {
            source: network(&self.source)?,
            destination: network(&self.destination)?,
            protocol: protocol.map_err(|error| format!("the protocol: {error}"))?,
            port: self.port,
        })
    }
}

//! MQTT for oneM2M: a client of the protocol (MQTT 3.1.1) without I/O, and the topics of TS-0010.
//!
//! A [`MqttSession`] is one connection to a broker: received octets in any split and publications go
//! in, octets to send and received publications come out. It publishes and receives at most at
//! quality of service 1, as TS-0010 asks (§6.4); a message that is lost nevertheless is sent again
//! by its requester.

mod packet;
mod session;
#[cfg(test)]
mod tests;

pub use packet::{PacketError, is_publication};
pub use session::{End, Input, MqttSession, MqttSettings, MqttWill, Output};

use crate::primitive::Serialisation;

/// Purpose of a topic (TS-0010 §6.4).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Purpose {
    /// `req`: requests.
    Request,
    /// `resp`: their responses.
    Response,
    /// `reg_req`: registrations of entities without an identifier.
    Registration,
    /// `reg_resp`: the responses to them.
    RegistrationResponse,
}

impl Purpose {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Request, "req"),
        (Self::Response, "resp"),
        (Self::Registration, "reg_req"),
        (Self::RegistrationResponse, "reg_resp"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(purpose, _)| *purpose == self).map_or("", |(_, word)| word)
    }
}

/// A topic: `/oneM2M/<purpose>/<originator>/<receiver>/<serialisation>`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Topic {
    /// The purpose.
    pub purpose: Purpose,
    /// The originator, in topic form.
    pub originator: String,
    /// The receiver, in topic form.
    pub receiver: String,
    /// The serialisation of the primitive.
    pub serialisation: Serialisation,
}

impl Topic {
    /// Reads a topic; `None` if it is none of oneM2M's, or of a serialisation that is not spoken.
    pub fn parse(topic: &str) -> Option<Self> {
        let rest = topic.strip_prefix('/').unwrap_or(topic);
        let mut parts = rest.strip_prefix("oneM2M/")?.split('/');
        let word = parts.next()?;
        let (purpose, _) = Purpose::ALL.into_iter().find(|(_, known)| *known == word)?;
        let (originator, receiver) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let serialisation = match parts.next()? {
            "json" => Serialisation::Json,
            "cbor" => Serialisation::Cbor,
            _ => return None,
        };
        parts.next().is_none().then_some(Self { purpose, originator, receiver, serialisation })
    }

    /// The topic of the response; `None` if this is a response's.
    pub fn answering(self) -> Option<Self> {
        let purpose = match self.purpose {
            Purpose::Request => Purpose::Response,
            Purpose::Registration => Purpose::RegistrationResponse,
            Purpose::Response | Purpose::RegistrationResponse => return None,
        };
        Some(Self { purpose, ..self })
    }
}

impl core::fmt::Display for Topic {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let serialisation = match self.serialisation {
            Serialisation::Json => "json",
            Serialisation::Cbor => "cbor",
        };
        let (purpose, originator, receiver) =
            (self.purpose.word(), &self.originator, &self.receiver);
        write!(f, "/oneM2M/{purpose}/{originator}/{receiver}/{serialisation}")
    }
}

/// An identifier as one level of a topic: without its leading slashes, `:` for every other, and
/// nothing that a topic filter would take for a wildcard (TS-0010 §6.4.2).
pub fn level(id: &str) -> String {
    let id = id.trim_start_matches('/');
    id.chars().map(|c| if matches!(c, '/' | '+' | '#') { ':' } else { c }).collect()
}

/// The topic filters of an entity that takes requests and waits for answers.
pub fn filters(id: &str) -> Vec<String> {
    let own = level(id);
    vec![
        format!("/oneM2M/req/+/{own}/#"),
        format!("/oneM2M/reg_req/+/{own}/#"),
        format!("/oneM2M/resp/{own}/#"),
    ]
}

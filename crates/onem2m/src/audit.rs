//! Audit log entries: operation, target, originator and result. They name resources and never
//! contain their values.
//!
//! An entry is one JSON object, so that a name cannot be mistaken for another member:
//!
//! | member | what it says |
//! |---|---|
//! | `op` | the operation; `Refused` for requests that are only counted |
//! | `to`, `fr` | what was asked for, and by whom, both cut where they are long |
//! | `ip`, `by` | from which address, and by whose certificate if it is not the originator's own |
//! | `as`, `of` | what it was a part of, if it was not a request of its own ([`RequestRelation`]) |
//! | `end` | the response status code, or how else it ended ([`End`]) |
//! | `later` | true if whoever asked had an answer before |
//! | `made` | where what was created is |
//! | `count` | how many requests were refused, of which nothing else is said |

use crate::primitive::{Operation, Request};
use crate::resource::push_json_text;
use crate::status::Status;
use core::fmt::Write;
use core::net::IpAddr;
use std::sync::Arc;

/// Octets of a target, and of a created resource's address, in an entry.
const TO_OCTETS_MAX: usize = 512;
/// Octets of an originator in an entry.
const FROM_OCTETS_MAX: usize = 256;

/// Audit policy, which also decides on a request whose entry cannot be stored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Audit {
    /// No audit log.
    #[default]
    Off,
    /// A request that cannot be logged is refused (5000).
    Strict,
    /// A request without changes is answered nevertheless; its entry is lost.
    Lenient,
}

/// Relation of a logged request to another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestRelation {
    /// None: a request of its own.
    Whole,
    /// `member`: of a request to a group, which `of` names.
    Member,
    /// `again`: a later answer to a retrieval that is answered whenever the answer is another.
    Again,
    /// `notification`: of the subscription (or of the answers that come later) that `of` names.
    Notification,
    /// `passed on`: sent to another entity, for the request to the target that `of` names.
    PassedOn,
}

impl RequestRelation {
    const fn text(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Member => Some("member"),
            Self::Again => Some("again"),
            Self::Notification => Some("notification"),
            Self::PassedOn => Some("passed on"),
        }
    }
}

/// Result of a logged request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It was answered with this status.
    Answered(Status),
    /// `waits`: other entities have to answer first; the result is in a later entry.
    Waits,
    /// `given up`: it was not delivered in time, or was dropped for later ones.
    GivenUp,
}

/// A request to be logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditedRequest {
    /// The operation.
    pub operation: Operation,
    /// The target.
    pub to: Box<str>,
    /// The originator.
    pub from: Box<str>,
    /// The peer's address, if known.
    pub address: Option<IpAddr>,
    /// Identity of the certificate it came by, if that is not the originator's own.
    pub sponsor: Option<Arc<str>>,
    /// Its relation to another request.
    pub part: RequestRelation,
    /// Name of the other request.
    pub of: Box<str>,
}

impl AuditedRequest {
    /// A request from outside.
    pub fn new(request: &Request) -> Self {
        Self {
            operation: request.operation,
            to: cut(&request.to, TO_OCTETS_MAX),
            from: cut(&request.from, FROM_OCTETS_MAX),
            address: request.source,
            sponsor: request.sponsor.clone(),
            part: RequestRelation::Whole,
            of: "".into(),
        }
    }

    /// A request for `to` that is a part of `of`.
    pub fn part(request: &Request, to: &str, part: RequestRelation, of: &str) -> Self {
        let (to, of) = (cut(without_password(to).as_ref(), TO_OCTETS_MAX), cut(of, TO_OCTETS_MAX));
        Self { to, part, of, ..Self::new(request) }
    }
}

/// A log entry with its time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditEntry {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// Its content.
    pub said: AuditContent,
}

/// Content of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AuditContent {
    /// A request with its result.
    Ended {
        /// The request.
        asked: Arc<AuditedRequest>,
        /// The result.
        end: End,
        /// Whether the originator had an earlier answer: that it was accepted.
        later: bool,
        /// Address of the created resource.
        made: Option<Arc<str>>,
    },
    /// A number of refused requests that are only counted.
    Refused {
        /// Their originator or address.
        from: Box<str>,
        /// Their number.
        count: u64,
    },
}

impl AuditEntry {
    /// The entry's JSON object, without its time.
    pub fn to_text(&self) -> String {
        match &self.said {
            AuditContent::Ended { asked, end, later, made } => {
                let mut text = asked.to_text();
                // Writing to a string cannot fail.
                let _ = match end {
                    End::Answered(status) => write!(text, ",\"end\":{}", status.number()),
                    End::Waits => write!(text, ",\"end\":\"waits\""),
                    End::GivenUp => write!(text, ",\"end\":\"given up\""),
                };
                if *later {
                    text.push_str(",\"later\":true");
                }
                if let Some(made) = made {
                    push_member(&mut text, "made", &cut(made, TO_OCTETS_MAX));
                }
                text.push('}');
                text
            }
            AuditContent::Refused { from, count } => {
                let mut text = String::from("{\"op\":\"Refused\"");
                push_member(&mut text, "fr", from);
                let _ = write!(text, ",\"count\":{count}}}");
                text
            }
        }
    }
}

impl AuditedRequest {
    /// Members of an entry known before its result, without the closing brace.
    fn to_text(&self) -> String {
        let mut text = format!("{{\"op\":\"{:?}\"", self.operation);
        push_member(&mut text, "to", &self.to);
        push_member(&mut text, "fr", &self.from);
        if let Some(address) = self.address {
            // Writing to a string cannot fail.
            let _ = write!(text, ",\"ip\":\"{address}\"");
        }
        if let Some(sponsor) = &self.sponsor {
            push_member(&mut text, "by", &cut(sponsor, FROM_OCTETS_MAX));
        }
        if let Some(part) = self.part.text() {
            push_member(&mut text, "as", part);
        }
        if !self.of.is_empty() {
            push_member(&mut text, "of", &self.of);
        }
        text
    }
}

fn push_member(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, ",\"{name}\":");
    push_json_text(text, value);
}

/// The beginning of a long text, with the number of octets left out.
pub(crate) fn cut(text: &str, most: usize) -> Box<str> {
    let end = text.floor_char_boundary(most);
    match text.split_at_checked(end) {
        Some((start, rest)) if !rest.is_empty() => format!("{start}…+{}", rest.len()).into(),
        _ => text.into(),
    }
}

/// A URL without user and password (RFC 3986 §3.2.1).
fn without_password(to: &str) -> std::borrow::Cow<'_, str> {
    let Some((scheme, rest)) = to.split_once("://") else { return to.into() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}{path}").into(),
        None => to.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(to: &str, from: &str) -> String {
        let asked = AuditedRequest::new(&Request::new(Operation::Retrieve, to, from, "1"));
        let end = End::Answered(Status::NotFound);
        let said = AuditContent::Ended { asked: Arc::new(asked), end, later: false, made: None };
        AuditEntry { at_micros: 0, said }.to_text()
    }

    /// What a name says stays a name, whatever is in it: an outside reader of JSON finds it again.
    #[test]
    fn no_name_can_pass_for_more() {
        let forged = "x\n99 Retrieve y by CNurse: 2000\",\"end\":2000,\"to\":\"\u{1b}[2K";
        let text = said(forged, "C\"evil\u{0}");
        assert!(!text.contains(['\n', '\u{1b}', '\u{0}']), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let members = serde_json::json!(
            { "op": "Retrieve", "to": forged, "fr": "C\"evil\u{0}", "end": 4004 });
        assert_eq!(read, members);
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        let text = said(&"ä".repeat(40_000), &"C".repeat(40_000));
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["to"], format!("{}…+79488", "ä".repeat(256)));
        assert_eq!(read["fr"], format!("{}…+39744", "C".repeat(256)));
        // Each control character takes six octets at the most.
        assert!(said(&"\u{1}".repeat(70_000), &"\u{1}".repeat(70_000)).len() < 8_192);
    }

    #[test]
    fn a_password_in_a_url_is_not_told() {
        let request = Request::new(Operation::Notify, "", "/id-in", "1");
        for (url, told) in [
            ("mqtt://nurse:secret@host:1883/a@b", "mqtt://host:1883/a@b"),
            ("http://host/a:b@c", "http://host/a:b@c"),
            ("cse-in/a@b", "cse-in/a@b"),
        ] {
            let asked = AuditedRequest::part(&request, url, RequestRelation::Notification, "sub1");
            assert_eq!(&*asked.to, told);
        }
    }
}

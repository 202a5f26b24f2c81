//! Message handlers: `[[attach]]` at a handler of a gateway program.

use crate::model::{Located, Side};
use crate::position::MessagePosition;
use crate::shape::Findings;
use crate::values::Prefix;
use crate::view::View;
use crate::{codes, rules, values};
use gatewright_diagnostic::Diagnostic;

/// A handler attached to messages of a gateway program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttachMessages {
    /// The handler.
    pub handler: MessageHandler,
    /// The position.
    pub at: Located<MessagePosition>,
    /// Requests (receive), or answers (transmit).
    pub side: Side,
}

/// Handlers for messages.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MessageHandler {
    /// Counts messages and octets.
    Count,
    /// Writes messages to a pcapng file.
    Capture {
        /// Path of the file.
        file: Located<String>,
    },
    /// Refuses matching requests.
    Drop {
        /// The conditions; without any, everything is refused.
        matching: MessageMatch,
    },
    /// Refuses requests above a rate.
    RateLimit {
        /// Messages per second.
        rate: u32,
        /// Size of a burst after a pause.
        burst: u32,
    },
}

impl MessageHandler {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Capture { .. } => "capture",
            Self::Drop { .. } => "drop",
            Self::RateLimit { .. } => "rate-limit",
        }
    }
}

/// Which messages match: those that agree with every given condition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MessageMatch {
    /// Network of the peer.
    pub source: Option<Prefix>,
    /// Fields of the message, each with its value.
    pub fields: Vec<(String, String)>,
}

/// Reads an `[[attach]]` at a message position.
pub(crate) fn attach(table: View<'_>, burst: u32) -> Option<AttachMessages> {
    let at = table.parsed("at", MessagePosition::parse)?;
    let handler = match table.text("handler")?.value {
        "count" => MessageHandler::Count,
        "capture" => MessageHandler::Capture { file: table.name("file")? },
        "drop" => MessageHandler::Drop {
            matching: table.table("match").map(matching).unwrap_or_default(),
        },
        "rate-limit" => MessageHandler::RateLimit {
            rate: table.number("rate")?,
            burst: table.number("burst").unwrap_or(burst),
        },
        _ => return None,
    };
    let transmit = table.text("side").is_some_and(|side| side.value == "transmit");
    Some(AttachMessages {
        handler,
        at,
        side: if transmit { Side::Transmit } else { Side::Receive },
    })
}

fn matching(table: View<'_>) -> MessageMatch {
    let source = table.parsed("source", Prefix::parse).map(|network| network.value);
    let fields = table.texts("fields");
    let fields = fields.iter().filter_map(|field| values::field(field.value));
    MessageMatch { source, fields: fields.collect() }
}

/// Keys that do not apply to messages.
const OF_PACKETS: [&str; 2] = ["link", "to"];
/// Match conditions that do not apply to messages.
const OF_PACKETS_MATCHED: [&str; 3] = ["destination", "protocol", "port"];

/// Whether the table has a message position.
pub(crate) fn is_meant(table: View<'_>) -> bool {
    table.text("at").is_some_and(|at| MessagePosition::is_meant(at.value))
}

/// Reports keys that do not apply to messages.
pub(crate) fn check(table: View<'_>, findings: &mut Findings) {
    let Some(handler) = table.text("handler") else { return };
    if handler.value == "mirror" {
        let message = "`mirror` copies packets to a link, and messages have none".to_owned();
        let finding = Diagnostic::error(&codes::NOT_FOR_MESSAGES, handler.span, message);
        findings.add(finding.help("`capture` writes messages to a file"));
        return;
    }
    if handler.value == "filter" {
        let message = "the rules of `filter` are about packets".to_owned();
        let finding = Diagnostic::error(&codes::NOT_FOR_MESSAGES, handler.span, message);
        findings.add(finding.help("`drop` refuses messages by their fields"));
        return;
    }
    let unused = OF_PACKETS.map(|key| (table, key));
    let matched = table.table("match");
    let in_match = matched.into_iter().flat_map(|table| OF_PACKETS_MATCHED.map(|key| (table, key)));
    for (table, key) in unused.into_iter().chain(in_match) {
        rules::check_unused(table, key, "a position of messages", findings);
    }
    let refuses = ["drop", "rate-limit"].contains(&handler.value);
    let side = table.text("side").filter(|side| side.value == "transmit" && refuses);
    if let Some(side) = side {
        let message = format!("`{}` refuses requests, not answers", handler.value);
        let finding = Diagnostic::error(&codes::NOT_FOR_MESSAGES, side.span, message);
        findings.add(finding.help("leave `side` out, or write `side = \"receive\"`"));
    }
    let own = if refuses { "before" } else { "tap" };
    let place = table.text("place").filter(|place| ![own, "before"].contains(&place.value));
    if let Some(place) = place {
        let message = format!("`{}` cannot stand `{}` at messages", handler.value, place.value);
        let finding = Diagnostic::error(&codes::WRONG_PLACE, place.span, message);
        findings.add(finding.help(format!("leave `place` out, or write `place = \"{own}\"`")));
    }
}

/// Reports conditions that do not apply to packets.
pub(crate) fn check_packets(table: View<'_>, findings: &mut Findings) {
    let Some(fields) = table.table("match").and_then(|of| of.key("fields")) else { return };
    let message = "packets have no fields of messages".to_owned();
    let finding = Diagnostic::error(&codes::NOT_FOR_MESSAGES, fields, message);
    findings.add(finding.help("attach at gateway:NAME/HANDLER, or match by addresses and ports"));
}

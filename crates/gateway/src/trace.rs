//! A traced packet in words: its places, the time at each, and its changes.

mod changes;
mod describe;

use crate::{Gateway, which::Which};
use changes::changes;
use describe::{Description, description, reassembly};
use gatewright_planes::Tracing;
use gatewright_stack::{At, ReassemblyState, TraceOutcome, TraceStep};
use gatewright_wire::Framing;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, time::Duration};

/// A packet to be traced, as given on the command line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRequest {
    /// The packet: the next that matches.
    pub which: Which,
    /// A frame in hexadecimal digits for the link to receive, instead of the next that arrives.
    pub frame: Option<String>,
    /// Whether that frame is an IP packet, as those of links without a link layer are.
    pub is_ip: bool,
    /// How long to wait for a packet.
    pub seconds: Option<f64>,
}

impl TraceRequest {
    /// The octets of its frame, if it has one.
    ///
    /// # Errors
    ///
    /// The error in its digits, in words for the operator.
    pub fn octets(&self) -> Result<Option<Vec<u8>>, String> {
        self.frame.as_deref().map(octets).transpose()
    }
}

/// The trace of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct TraceAnswer {
    /// Its places in order; none if no packet came in time.
    pub steps: Vec<StepAnswer>,
    /// Its total time, in nanoseconds: the sum of the steps.
    pub took_ns: u64,
}

/// A packet at one place.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct StepAnswer {
    /// The position.
    pub at: String,
    /// `receive` or `transmit`.
    pub side: String,
    /// The receiver there: a layer's name, `device NAME`, or `no layer`.
    pub to: String,
    /// The ids of handlers at this place.
    pub handlers: Vec<u32>,
    /// Time in layer and handlers, in nanoseconds.
    pub took_ns: u64,
    /// Its length in octets on arrival.
    pub len: usize,
    /// The same in hexadecimal digits.
    pub octets: String,
    /// What it is, if it is a fragment or an ICMP error, where it becomes that; and the state of a
    /// fragment's reassembly.
    pub notes: Vec<String>,
    /// The changes made at this place.
    pub changed: Vec<String>,
    /// Its outcome: `passed`, `sent`, `kept`, `handed over`, `dropped: REASON` or `taken by handler
    /// ID`.
    pub outcome: String,
}

/// Default time to wait for a packet.
const SECONDS: f64 = 10.0;

/// Maximum time to wait for a packet: a client's time for its answer, less the time of the trace
/// itself.
const SECONDS_MAX: f64 = 3600.0;

/// Traces one packet, and waits for it while `is_wanted`.
pub(crate) fn trace(
    gateway: &Gateway,
    request: &TraceRequest,
    is_wanted: impl Fn() -> bool,
) -> Result<TraceAnswer, String> {
    let patience = patience(request.seconds)?;
    let (tracing, names) = begin(gateway, request)?;
    let steps = tracing.steps_while(patience, is_wanted).map_err(|error| error.to_string())?;
    Ok(told(&steps, &names))
}

/// How long to wait, of the seconds that a request says.
///
/// # Errors
///
/// In words, if that cannot be waited for.
pub fn patience(seconds: Option<f64>) -> Result<Duration, String> {
    let seconds = seconds.unwrap_or(SECONDS).min(SECONDS_MAX);
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("{seconds} seconds cannot be waited for"))
}

fn begin(gateway: &Gateway, request: &TraceRequest) -> Result<(Tracing, Vec<String>), String> {
    let which = request.which.matching()?;
    let link = request.which.link.as_deref().map(|name| gateway.planes().link(name)).transpose()?;
    let frame = request.octets()?;
    if frame.is_some() && link.is_none() {
        return Err("by which link is the frame to come?".to_owned());
    }
    let given = if request.is_ip { Framing::Ip } else { Framing::Ethernet };
    if let Some(link) = link.filter(|_| frame.is_some())
        && gateway.planes().framing(link) != given
    {
        let (own, given) = match given {
            Framing::Ip => ("an Ethernet header", "an IP header"),
            Framing::Ethernet => ("an IP header", "an Ethernet header"),
        };
        return Err(format!("the link's frames begin with {own}, and this one with {given}"));
    }
    let tracing = gateway.planes().trace(link, which, frame).map_err(|error| error.to_string())?;
    Ok((tracing, gateway.links.names()))
}

/// Maximum octets of a frame: those that a chunk of the slab holds anyway.
const FRAME_MAX: usize = 65_535;

/// Decodes hexadecimal digits.
fn octets(digits: &str) -> Result<Vec<u8>, String> {
    let nibbles: Option<Vec<u8>> = (digits.chars())
        .map(|digit| digit.to_digit(16).and_then(|nibble| u8::try_from(nibble).ok()))
        .collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0);
    let (pairs, _) = nibbles.as_deref().map(<[u8]>::as_chunks).unwrap_or_default();
    let octets: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    if octets.is_empty() || octets.len() > FRAME_MAX {
        return Err("a frame is 1 to 65535 octets in hexadecimal digits".to_owned());
    }
    Ok(octets)
}

/// Octets in hexadecimal digits.
pub fn hexadecimal(octets: &[u8]) -> String {
    let mut digits = String::with_capacity(octets.len() * 2);
    for octet in octets {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{octet:02x}");
    }
    digits
}

fn told(steps: &[TraceStep], names: &[String]) -> TraceAnswer {
    let mut answers: Vec<StepAnswer> = Vec::with_capacity(steps.len());
    let mut before = None;
    for (index, step) in steps.iter().enumerate() {
        let now = description(step);
        let mut of = answer(step, steps.get(index + 1), names);
        if let Some(description) = now.as_ref().filter(|_| now != before) {
            of.notes.insert(0, description.text.clone());
        }
        // A layer between two names it as little as it changes it.
        before = now.or(before);
        answers.push(of);
    }
    TraceAnswer { took_ns: answers.iter().map(|step| step.took_ns).sum(), steps: answers }
}

/// The changes at one place, from its step and the next.
fn changed(step: &TraceStep, next: &TraceStep) -> Vec<String> {
    let is_error = |step| description(step).is_some_and(|Description { is_error, .. }| is_error);
    if step.reassembly.is_some_and(|of| of.state == ReassemblyState::Complete) {
        return vec!["the reassembled datagram is passed on".to_owned()];
    }
    if is_error(next) && !is_error(step) && matches!(step.at, At::Error(..)) {
        return vec!["an ICMP error is sent about it".to_owned()];
    }
    changes(step, next)
}

fn answer(step: &TraceStep, next: Option<&TraceStep>, names: &[String]) -> StepAnswer {
    let device = || {
        let name = names.get(step.egress.index());
        format!("device {}", name.map_or("?", String::as_str))
    };
    let to = match (step.layer, step.outcome) {
        (Some(layer), _) => layer.to_owned(),
        (None, TraceOutcome::Sent) => device(),
        (None, _) => "no layer".to_owned(),
    };
    let after = next.filter(|_| matches!(step.outcome, TraceOutcome::Passed | TraceOutcome::Kept));
    StepAnswer {
        at: step.at.to_string(),
        side: step.side.to_string(),
        to,
        handlers: step.handlers.iter().map(|id| id.0).collect(),
        took_ns: u64::try_from(step.took.as_nanos()).unwrap_or(u64::MAX),
        len: step.octets.len(),
        octets: hexadecimal(&step.octets),
        notes: step.reassembly.iter().map(reassembly).collect(),
        changed: after.map_or_else(Vec::new, |next| changed(step, next)),
        outcome: match step.outcome {
            TraceOutcome::Passed => "passed on".to_owned(),
            TraceOutcome::Sent => "sent".to_owned(),
            TraceOutcome::Kept => "processed by the layer".to_owned(),
            TraceOutcome::HandedOver => "passed to the first worker".to_owned(),
            TraceOutcome::Dropped(reason) => format!("dropped: {reason}"),
            TraceOutcome::Taken(id) => format!("taken by handler {}", id.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::octets;

    #[test]
    fn a_frame_is_read_from_pairs_of_digits() {
        assert_eq!(octets("00ffA5"), Ok(vec![0, 255, 0xa5]));
        for wrong in ["", "0", "0g", "00 11", "+1"] {
            assert!(octets(wrong).is_err(), "{wrong}");
        }
    }
}

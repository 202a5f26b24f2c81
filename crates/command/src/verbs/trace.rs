//! `gatewright trace`: one packet through a running gateway.

use super::status::{list, number, word};
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket,
};
use anyhow::Result;
use gatewright_gateway::{TraceRequest, api::ControlRequest};
use gatewright_link::{Framing, pcapng::CaptureReader};
use serde_json::Value;
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;

/// The shape of its answer.
pub const JSON: &str = "{steps: [{at, side, to, handlers, took_ns, len, octets, notes, changed, outcome}], took_ns}, octets in \
     hexadecimal digits; no steps if no packet came";

/// Traces one packet through a running gateway: the layers and handlers on its path, the time in
/// each, its changes, and the outcome.
///
/// The packet is the next that --link receives and that matches, or one of a capture file, which
/// the link receives as if from its device. Other packets are not affected. Ends with 1 if no
/// packet came in time.
#[derive(Debug, clap::Args)]
pub struct Trace {
    #[command(flatten)]
    which: socket::Which,
    #[command(flatten)]
    packets: super::Packets,
    /// Time to wait for the packet.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Take the packet from this capture file, as if --link received it: Ethernet, or raw IP for a
    /// link without a link layer.
    #[arg(long, value_name = "FILE", requires = "link")]
    from: Option<String>,
    /// The packet's number in the file, from 1.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "from")]
    number: u64,
}

impl Trace {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let found = self.from.as_deref().map(|file| frame(file, self.number)).transpose()?;
        let is_ip = found.as_ref().is_some_and(|(_, framing)| *framing == Framing::Ip);
        let (which, frame) = (self.packets.into_which(), found.map(|(digits, _)| digits));
        let request = TraceRequest { which, frame, is_ip, seconds: Some(self.seconds) };
        let told = self.which.ask(&ControlRequest::Trace(request))?;
        if list(&told, "steps").is_empty() {
            face.answer(&told, String::new)?;
            face.note(&format!("no packet that matches has come within {} s", self.seconds));
            return Ok(Exit::Negative);
        }
        face.answer(&told, || text(&told))?;
        Ok(Exit::Success)
    }
}

/// A frame of a capture file in hexadecimal digits, with its first header.
fn frame(file: &str, number: u64) -> Result<(String, Framing), Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Configuration, format!("{file}: {error}"))
    };
    let open = File::open(file).map_err(|error| Failure::file(file, &error))?;
    let mut reader = CaptureReader::new(BufReader::new(open));
    let mut seen = 0;
    let mut digits = String::new();
    let interface = loop {
        let Some(record) = reader.next_record().map_err(|error| wrong(&error))? else {
            return Err(wrong(&format!("it has {seen} packets, not {number}")));
        };
        seen += 1;
        if seen == number {
            for octet in record.octets {
                // Writing to a string cannot fail.
                let _ = write!(digits, "{octet:02x}");
            }
            break record.interface;
        }
    };
    let framing = reader.interface(interface).and_then(|interface| interface.framing);
    let told = "its packets begin neither with an Ethernet header nor with an IP header";
    framing.map(|framing| (digits, framing)).ok_or_else(|| wrong(&told))
}

/// A line for each place, and below it what the packet is and what was changed there.
// Writing to a string cannot fail.
fn text(told: &Value) -> String {
    let mut out = String::new();
    let steps = list(told, "steps");
    let len = steps.first().map_or(0, |step| number(step, "len"));
    let _ = writeln!(out, "{:<36} {:<16}{:>8}  octets, outcome", "WHERE", "TO", "ns");
    for step in steps {
        let place = format!("{} {}", word(step, "at"), word(step, "side"));
        let (to, took) = (word(step, "to"), number(step, "took_ns"));
        let (octets, outcome) = (number(step, "len"), word(step, "outcome"));
        let _ = writeln!(out, "{place:<36} {to:<16}{took:>8}  {octets}, {outcome}");
        let handlers: Vec<_> = list(step, "handlers").iter().map(Value::to_string).collect();
        if !handlers.is_empty() {
            let _ = writeln!(out, "    handlers on the edge: {}", handlers.join(", "));
        }
        for line in list(step, "notes").iter().chain(list(step, "changed")) {
            let _ = writeln!(out, "    {}", line.as_str().unwrap_or_default());
        }
    }
    let _ = writeln!(out, "{len} octets, {} ns", number(told, "took_ns"));
    out
}

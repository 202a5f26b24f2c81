//! `gatewright capture`: what passes somewhere in a running gateway, as pcapng.

use super::status::number;
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket,
};
use anyhow::Result;
use gatewright_gateway::CaptureRequest;
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Write};

/// The shape of its answer.
pub const JSON: &str = "with --output {file, packets, missed}, else on standard error";

/// Captures packets at a position of a running gateway, as pcapng.
///
/// Live in Wireshark: `gatewright capture --link lan | wireshark -k -i -`.
///
/// The capture ends after --count packets, after --seconds, or when it is interrupted. It never
/// delays the gateway: packets that are not read in time are missing, and counted. At positions
/// above the link layer, captured packets begin with the IP header.
#[derive(Debug, clap::Args)]
pub struct Capture {
    #[command(flatten)]
    which: socket::Which,
    /// The position: frame, ether:ipv4, ip:udp, udp:5683, ...
    #[arg(long, value_name = "POSITION", default_value = "frame")]
    at: String,
    /// Direction: receive or transmit; both if not given.
    #[arg(long, value_name = "SIDE")]
    side: Option<String>,
    #[command(flatten)]
    packets: super::Packets,
    /// End after this number of packets.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// End after this time.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Write to FILE instead of standard output; an existing file is replaced.
    #[arg(long, short, value_name = "FILE")]
    output: Option<String>,
}

impl Capture {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let mut out = self.open(face)?;
        let Self { which, at, side, packets, count, seconds, output } = self;
        let request =
            CaptureRequest { at: Some(at), side, which: packets.into_which(), count, seconds };
        let mut capture = which.capture(request)?;
        crate::signals::on_stop(capture.stopper()?)?;
        while let Some(octets) = capture.next_chunk().map_err(|error| {
            Failure::new(Exit::Unavailable, format!("the gateway ended the capture: {error}"))
        })? {
            out.write_all(&octets)?;
            out.flush()?;
        }
        let told = capture.told().cloned().unwrap_or_default();
        let (packets, missed) = (number(&told, "packets"), number(&told, "missed"));
        let text = format!("{packets} packets captured, {missed} missed");
        match output {
            Some(file) => {
                let value = json!({ "file": file, "packets": packets, "missed": missed });
                face.answer(&value, || format!("{file}: {text}"))?;
            }
            None => face.note(&text),
        }
        Ok(Exit::Success)
    }

    fn open(&self, face: Face) -> Result<Box<dyn Write>, Failure> {
        match &self.output {
            Some(file) => {
                let made = File::create(file).map_err(|error| Failure::file(file, &error))?;
                Ok(Box::new(made))
            }
            None if face.is_json() => Err(Failure::new(
                Exit::Usage,
                "standard output has the packets: --json needs --output FILE",
            )),
            None if io::stdout().is_terminal() => Err(Failure::new(
                Exit::Usage,
                "a capture is not for a terminal: say --output FILE, or pipe it into \
                 `wireshark -k -i -` or `tshark -r -`",
            )),
            None => Ok(Box::new(io::stdout())),
        }
    }
}

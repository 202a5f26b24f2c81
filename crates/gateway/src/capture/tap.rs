//! A live tap: packets at one position, shown one by one while they pass.

use super::{CaptureRequest, Live};
use crate::{Gateway, recorder::FLUSH_EVERY, trace::hexadecimal};
use gatewright_stack::builtin::CapturedPacket;
use serde::Serialize;
use std::sync::mpsc::RecvTimeoutError;

/// Maximum octets of a packet that are shown: its headers, and the beginning of what is in it.
const SHOWN_OCTETS: usize = 128;

/// A packet that passes a position.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TappedPacket {
    /// Microseconds since the gateway's start.
    pub at_us: u64,
    /// Its direction: `receive` or `transmit`.
    pub side: String,
    /// The link that received it if it travels up, else its outgoing link, if it has one.
    pub link: Option<String>,
    /// Its length.
    pub len: usize,
    /// Its first octets, at most 128, as hexadecimal digits.
    pub octets: String,
}

/// How a tap ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct TapEnd {
    /// The packets that were shown.
    pub packets: u64,
    /// Those that were not taken in time.
    pub missed: u64,
}

impl Gateway {
    /// Shows `take` packets at a position while they pass, and `None` several times a second, until it
    /// returns false or the request's end is reached. Waits for that; the data plane waits for nobody.
    ///
    /// # Errors
    ///
    /// If no packet passes such a position, or what is said of the packets is not understood.
    pub fn tap(
        &self,
        request: &CaptureRequest,
        mut take: impl FnMut(Option<TappedPacket>) -> bool,
    ) -> Result<TapEnd, String> {
        let live = Live::start(self, request)?;
        let (mut packets, mut goes_on) = (0, true);
        while goes_on && packets < live.count {
            let left = live.left();
            if left.is_zero() {
                break;
            }
            goes_on = match live.captured.recv_timeout(left.min(FLUSH_EVERY)) {
                Ok(captured) => {
                    packets += 1;
                    take(Some(live.shown(&captured)))
                }
                Err(RecvTimeoutError::Timeout) => take(None),
                Err(RecvTimeoutError::Disconnected) => false,
            };
        }
        Ok(TapEnd { packets, missed: live.detach(self) })
    }
}

impl Live {
    fn shown(&self, captured: &CapturedPacket) -> TappedPacket {
        let octets = captured.octets.octets();
        TappedPacket {
            at_us: u64::try_from(captured.at.as_micros()).unwrap_or(u64::MAX),
            side: captured.side.to_string(),
            link: self.links.get(captured.link.index()).cloned(),
            len: octets.len(),
            octets: hexadecimal(octets.get(..SHOWN_OCTETS).unwrap_or(octets)),
        }
    }
}

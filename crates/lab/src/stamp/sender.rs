//! The sender without a socket: its test packets, the exchanges that come of them, and their report.

use super::packet::{
    ClockErrorEstimate, NtpTime, StampKey, StampReflectorPacket, StampSenderPacket,
};
use super::reflector::TLV_PADDING;
use crate::analysis::{DelayJitter, DelaySummary, jitter};
use serde::Serialize;

/// A test packet that was reflected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StampExchange {
    /// The reflector's packet, with T1, T2 and T3.
    pub reflected: StampReflectorPacket,
    /// When it arrived at the sender (T4).
    pub back: NtpTime,
}

impl StampExchange {
    /// Seconds on both ways: without the time in the reflector.
    pub fn round_trip(&self) -> f64 {
        self.back.since(self.reflected.sender.sent) - self.inside()
    }

    /// Seconds in the reflector.
    pub fn inside(&self) -> f64 {
        self.reflected.sent.since(self.reflected.received)
    }

    /// Seconds that the reflector's clock is ahead, if both ways take the same time; wrong by half
    /// of the round trip at the most (RFC 5905 §8).
    pub fn offset(&self) -> f64 {
        let there = self.reflected.received.since(self.reflected.sender.sent);
        let back = self.reflected.sent.since(self.back);
        f64::midpoint(there, back)
    }
}

/// What a sender found. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StampReport {
    /// Packets sent.
    pub sent: u32,
    /// Packets of these that came back, each counted once.
    pub reflected: u32,
    /// Further reflections of the same packet.
    pub repeated: u32,
    /// Datagrams that are no reflection of this session: malformed, not authentic, of another
    /// sender, or with times of the PTP format.
    pub foreign: u32,
    /// Whether the reflector has numbers of its own, by which losses are told apart.
    pub stateful: bool,
    /// Packets lost on the way there; none if the reflector is stateless.
    pub lost_there: Option<u32>,
    /// Packets lost on the way back; none if the reflector is stateless.
    pub lost_back: Option<u32>,
    /// Round trips without the time in the reflector.
    pub round_trip: Option<DelaySummary>,
    /// Differences of successive round trips (RFC 3393).
    pub jitter: Option<DelayJitter>,
    /// Time in the reflector.
    pub inside: Option<DelaySummary>,
    /// The reflector's clock minus ours, by the exchange with the shortest round trip.
    pub offset_us: Option<f64>,
    /// Its error at the most: half of that round trip.
    pub offset_error_us: Option<f64>,
    /// The reflector's own estimate of its clock's error.
    pub reflector_error_us: Option<f64>,
    /// The time to live, or hop limit, with which packets reached the reflector.
    pub ttl: Option<u8>,
}

/// A test packet of this length, which padding fills (RFC 8972 §4.1).
pub(super) fn test_packet(
    packet: &StampSenderPacket,
    len: usize,
    key: Option<&StampKey>,
) -> Vec<u8> {
    /// U, which senders set in each TLV.
    const FLAGS: u8 = 0x80;
    const HEAD: usize = 4;
    let mut octets = packet.emit(key);
    let padding = len.saturating_sub(octets.len()).checked_sub(HEAD);
    if let Some(padding) = padding.and_then(|padding| u16::try_from(padding).ok()) {
        octets.extend([FLAGS, TLV_PADDING]);
        octets.extend(padding.to_be_bytes());
        octets.resize(len, 0);
    }
    octets
}

/// The report of a session of `sent` packets, whose exchanges are in the order of sending.
pub fn stamp_report(
    sent: u32,
    exchanges: &[Option<StampExchange>],
    (repeated, foreign): (u32, u32),
) -> StampReport {
    let reflected: Vec<&StampExchange> = exchanges.iter().flatten().collect();
    let count = u32::try_from(reflected.len()).unwrap_or(u32::MAX);
    let micros = |value: &dyn Fn(&StampExchange) -> f64| -> Vec<f64> {
        reflected.iter().map(|it| value(it) * 1e6).collect()
    };
    let shortest =
        reflected.iter().min_by(|one, other| one.round_trip().total_cmp(&other.round_trip()));
    // A stateless reflector repeats our numbers. One that counts agrees with them as long as none is
    // lost on the way there, and then its numbers say no more than the count does.
    let is_other = |it: &&StampExchange| it.reflected.sequence != it.reflected.sender.sequence;
    let stateful = reflected.iter().any(is_other);
    let reached = reflected.iter().map(|it| it.reflected.sequence.saturating_add(1)).max();
    let lost = reached.filter(|_| stateful);
    let trips = micros(&StampExchange::round_trip);
    StampReport {
        sent,
        reflected: count,
        repeated,
        foreign,
        stateful,
        lost_there: lost.map(|reached| sent.saturating_sub(reached)),
        lost_back: lost.map(|reached| reached.saturating_sub(count)),
        round_trip: DelaySummary::of(&trips),
        jitter: jitter(&[&trips]),
        inside: DelaySummary::of(&micros(&StampExchange::inside)),
        offset_us: shortest.map(|it| it.offset() * 1e6),
        offset_error_us: shortest.map(|it| it.round_trip() * 0.5e6),
        reflector_error_us: shortest.map(|it| it.reflected.error.seconds() * 1e6),
        ttl: shortest.map(|it| it.reflected.sender_ttl),
    }
}

/// Whether the times of an exchange can be compared with ours.
pub(super) const fn is_comparable(error: ClockErrorEstimate) -> bool {
    !error.is_ptp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn losses_are_told_apart_by_a_stateful_reflector() {
        let error = ClockErrorEstimate::new(false, Duration::from_secs(1));
        let exchange = |sequence, counted| {
            let sent = NtpTime(1 << 32);
            let sender = StampSenderPacket { sequence, sent, error, session: 1 };
            let (received, sent) = (NtpTime(2 << 32), NtpTime(3 << 32));
            let reflected = StampReflectorPacket {
                sequence: counted,
                sent,
                error,
                session: 1,
                received,
                sender,
                sender_ttl: 60,
            };
            Some(StampExchange { reflected, back: NtpTime(7 << 32) })
        };
        // Of six packets 1 and 2 were lost there, and the reflection of 4 (the third) on its way
        // back.
        let all = [exchange(0, 0), None, None, exchange(3, 1), None, exchange(5, 3)];
        let report = stamp_report(6, &all, (0, 0));
        assert_eq!((report.lost_there, report.lost_back), (Some(2), Some(1)), "{report:?}");
        // T1 to T4 are 1, 2, 3 and 7 s: a round trip of 5 s, and the clock is 1.5 s behind.
        assert!((report.round_trip.unwrap().p50 - 5e6).abs() < 1e-3);
        assert_eq!((report.offset_us, report.offset_error_us), (Some(-1.5e6), Some(2.5e6)));
        let none = stamp_report(3, &[None; 3], (1, 2));
        assert_eq!((none.reflected, none.repeated, none.foreign), (0, 1, 2));
        assert_eq!((none.round_trip, none.offset_us), (None, None));
    }

    #[test]
    fn a_packet_is_padded_to_its_length() {
        let error = ClockErrorEstimate::new(true, Duration::from_millis(1));
        let packet = StampSenderPacket { sequence: 1, sent: NtpTime(0), error, session: 1 };
        let octets = test_packet(&packet, 60, None);
        let (read, rest) = StampSenderPacket::parse(&octets, None).unwrap();
        assert_eq!((read, octets.len(), &rest[..4]), (packet, 60, [0x80, 1, 0, 12].as_slice()));
        // No room for a TLV: as it is.
        assert_eq!(test_packet(&packet, 47, None).len(), 44);
        assert_eq!(test_packet(&packet, 0, Some(&StampKey::new(b"k"))).len(), 112);
    }
}

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
    /// True if the reflector has numbers of its own, by which losses are told apart; none if that
    /// cannot be told, as its numbers are the sender's.
    pub stateful: Option<bool>,
    /// Packets lost on the way there, between the first and the last that came back; none if it cannot
    /// be told.
    pub lost_there: Option<u32>,
    /// Packets lost on the way back, between the same; none if it cannot be told.
    pub lost_back: Option<u32>,
    /// All others that were lost.
    pub lost_either: u32,
    /// Why losses are not told apart, where they are not.
    pub lost_unknown: Option<&'static str>,
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
    /// The reflector's own estimate of its clock's error to UTC; none if it says that its clock is not
    /// synchronised, as the estimate is of no use then.
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

/// Losses, as far as the way is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct StampLosses {
    is_stateful: bool,
    there: Option<u32>,
    back: Option<u32>,
    either: u32,
    unknown: Option<&'static str>,
}

impl StampLosses {
    /// By the exchanges in the order of sending.
    fn of(sent: u32, reflected: &[&StampExchange], repeated: u32) -> Self {
        let count = u32::try_from(reflected.len()).unwrap_or(u32::MAX);
        let either = sent.saturating_sub(count);
        // A stateless reflector repeats our numbers. One that counts agrees with them as long as none is
        // lost on the way there, and then its numbers say no more than the count does.
        let is_other = |it: &&StampExchange| it.reflected.sequence != it.reflected.sender.sequence;
        let is_stateful = reflected.iter().any(is_other);
        let whole = Self { is_stateful, either, ..Self::default() };
        if either == 0 {
            return Self { there: Some(0), back: Some(0), ..whole };
        }
        let apart = if is_stateful || reflected.is_empty() {
            Self::apart(reflected, repeated)
        } else {
            Err("the reflector's numbers are the sender's")
        };
        match apart {
            Ok((there, back)) => {
                let either = either.saturating_sub(there).saturating_sub(back);
                Self { there: Some(there), back: Some(back), either, ..whole }
            }
            Err(why) => Self { unknown: Some(why), ..whole },
        }
    }

    /// Losses there and back between the first and the last packet that came back, or why they cannot
    /// be told.
    ///
    /// Differences of the reflector's numbers count, not the numbers: behind a relay or NAT this sender
    /// may continue the session of another one. So what was lost before and after is not known.
    fn apart(reflected: &[&StampExchange], repeated: u32) -> Result<(u32, u32), &'static str> {
        let (Some(first), Some(last)) = (reflected.first(), reflected.last()) else {
            return Err("nothing came back");
        };
        if repeated > 0 {
            return Err("packets were reflected several times");
        }
        let base = first.reflected.sequence;
        // The reflector's numbers may wrap around, and packets overtake each other.
        let number =
            |it: &&StampExchange| i64::from(it.reflected.sequence.wrapping_sub(base).cast_signed());
        let mut numbers: Vec<i64> = reflected.iter().map(number).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|two| matches!(two, [one, other] if one == other)) {
            return Err("the reflector gave several packets the same number");
        }
        let span = numbers.last().zip(numbers.first()).map_or(0, |(last, first)| last - first);
        let first_sent = first.reflected.sender.sequence;
        let asked = i64::from(last.reflected.sender.sequence.saturating_sub(first_sent));
        let more = i64::try_from(reflected.len()).unwrap_or(i64::MAX) - 1;
        let count = |count: i64| u32::try_from(count).ok();
        let counts = count(asked - span).zip(count(span - more));
        counts.ok_or("the reflector counted more packets than were sent meanwhile")
    }
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
    let lost = StampLosses::of(sent, &reflected, repeated);
    let error = shortest.map(|it| it.reflected.error).filter(|it| it.is_synchronised());
    let trips = micros(&StampExchange::round_trip);
    StampReport {
        sent,
        reflected: count,
        repeated,
        foreign,
        stateful: lost.is_stateful.then_some(true),
        lost_there: lost.there,
        lost_back: lost.back,
        lost_either: lost.either,
        lost_unknown: lost.unknown,
        round_trip: DelaySummary::of(&trips),
        jitter: jitter(&[&trips]),
        inside: DelaySummary::of(&micros(&StampExchange::inside)),
        offset_us: shortest.map(|it| it.offset() * 1e6),
        offset_error_us: shortest.map(|it| it.round_trip() * 0.5e6),
        reflector_error_us: error.map(|it| it.seconds() * 1e6),
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

    /// T1 to T4 are 1, 2, 3 and 7 s.
    fn exchange(sequence: u32, counted: u32) -> StampExchange {
        let error = ClockErrorEstimate::new(false, Duration::from_secs(1));
        let sender = StampSenderPacket { sequence, sent: NtpTime(1 << 32), error, session: 1 };
        let reflected = StampReflectorPacket {
            sequence: counted,
            sent: NtpTime(3 << 32),
            error,
            session: 1,
            received: NtpTime(2 << 32),
            sender,
            sender_ttl: 60,
        };
        StampExchange { reflected, back: NtpTime(7 << 32) }
    }

    #[test]
    fn losses_are_told_apart_by_a_stateful_reflector() {
        // Of six packets 1 and 2 were lost there, and the reflection of 4 (the third) on its way
        // back.
        let all =
            [Some(exchange(0, 0)), None, None, Some(exchange(3, 1)), None, Some(exchange(5, 3))];
        let report = stamp_report(6, &all, (0, 0));
        assert_eq!((report.lost_there, report.lost_back), (Some(2), Some(1)), "{report:?}");
        assert_eq!((report.lost_either, report.stateful), (0, Some(true)), "{report:?}");
        // A round trip of 5 s, and the clock is 1.5 s behind.
        assert!((report.round_trip.unwrap().p50 - 5e6).abs() < 1e-3);
        assert_eq!((report.offset_us, report.offset_error_us), (Some(-1.5e6), Some(2.5e6)));
        assert_eq!(report.reflector_error_us, None, "its clock is not synchronised");
        let none = stamp_report(3, &[None; 3], (1, 2));
        assert_eq!((none.reflected, none.repeated, none.foreign), (0, 1, 2));
        assert_eq!((none.round_trip, none.offset_us, none.lost_either), (None, None, 3));
    }

    #[test]
    fn a_reflector_that_counts_on_from_another_session_is_understood() {
        // As before, after 951 packets of another sender behind the same address; the numbers wrap.
        for before in [951, u32::MAX - 1] {
            let at =
                |sequence, counted: u32| Some(exchange(sequence, before.wrapping_add(counted)));
            let all = [None, at(1, 0), None, None, at(4, 1), None, at(6, 3), None];
            let report = stamp_report(8, &all, (0, 0));
            let lost = (report.lost_there, report.lost_back, report.lost_either);
            assert_eq!(lost, (Some(2), Some(1), 2), "{report:?}");
            assert_eq!((report.stateful, report.lost_unknown), (Some(true), None));
        }
        // Overtaken on the way there.
        let report = stamp_report(3, &[Some(exchange(0, 8)), None, Some(exchange(2, 7))], (0, 0));
        assert_eq!((report.lost_there, report.lost_back), (Some(1), Some(0)), "{report:?}");
    }

    #[test]
    fn counts_that_cannot_be_are_unknown_with_the_reason() {
        for (all, repeated, why) in [
            ([Some(exchange(0, 5)), None, Some(exchange(2, 9))], 0, "more packets than were sent"),
            ([Some(exchange(0, 5)), None, Some(exchange(2, 5))], 0, "the same number"),
            ([Some(exchange(0, 5)), None, Some(exchange(2, 6))], 1, "several times"),
            ([Some(exchange(0, 0)), None, Some(exchange(2, 2))], 0, "are the sender's"),
            ([None; 3], 0, "nothing came back"),
        ] {
            let report = stamp_report(3, &all, (repeated, 0));
            assert_eq!((report.lost_there, report.lost_back), (None, None), "{report:?}");
            assert_eq!(report.lost_either, 3 - report.reflected, "{report:?}");
            assert!(report.lost_unknown.unwrap().contains(why), "{report:?}");
        }
        // Where nothing is lost, nothing is to be told apart.
        for counted in [0, 7] {
            let all = [Some(exchange(0, counted)), Some(exchange(1, counted + 1))];
            let report = stamp_report(2, &all, (0, 0));
            let lost = (report.lost_there, report.lost_back, report.lost_either);
            assert_eq!(lost, (Some(0), Some(0), 0), "{report:?}");
            assert_eq!(report.stateful, (counted > 0).then_some(true), "{report:?}");
        }
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

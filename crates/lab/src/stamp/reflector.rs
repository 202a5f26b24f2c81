//! The reflector without a socket: a sender's packet in, the reflected one out.

use super::packet::{
    ClockErrorEstimate, NtpTime, StampError, StampKey, StampReflectorPacket, StampSenderPacket,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Sessions that a stateful reflector knows at the most.
const SESSIONS_MAX: usize = 4096;
/// A reflection leaves within this long of what it reflects: a packet whose "must be zero" octets
/// have a time of arrival that near to its own time is another reflector's, not a sender's.
const REFLECTED_WITHIN_S: f64 = 3600.0;
/// How long a session without packets is known (REFWAIT of RFC 5357 §4.2).
const SESSION_IDLE: Duration = Duration::from_mins(15);
/// Octets of a packet at the most; larger ones would be fragments nearly everywhere.
const PACKET_MAX: usize = 9000;

/// Octets of a TLV before its value: flags, type, length (RFC 8972 §4).
const TLV_HEAD: usize = 4;
/// U: the reflector has not understood the TLV.
const TLV_UNRECOGNISED: u8 = 0x80;
/// M: the TLV is malformed.
const TLV_MALFORMED: u8 = 0x40;
/// I: the integrity of the TLVs is not verified.
const TLV_UNVERIFIED: u8 = 0x20;
/// Type of the TLV Extra Padding (RFC 8972 §4.1).
pub(super) const TLV_PADDING: u8 = 1;

/// What the numbers of reflected packets are (RFC 8762 §4.3).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StampReflectorMode {
    /// The sender's number again.
    #[default]
    Stateless,
    /// Numbers of their own in each session, by which the sender tells losses on both ways apart.
    Stateful,
}

/// Counters of a reflector.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub struct StampReflectorCounters {
    /// Packets reflected.
    pub reflected: u64,
    /// Datagrams that are no packets of a sender.
    pub malformed: u64,
    /// Packets whose HMAC is not that of the key.
    pub not_authentic: u64,
    /// Reflections that arrived, of this reflector or another: they would circle for ever.
    pub reflections: u64,
    /// Sessions that new ones have displaced; their numbers begin anew.
    pub sessions_displaced: u64,
    /// Reflected packets that the system did not send.
    pub not_sent: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct StampSession {
    next: u32,
    seen: Duration,
}

/// When a datagram arrived, and how many hops it could have gone on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StampArrival {
    /// When it arrived (T2).
    pub at: NtpTime,
    /// Its time to live, or hop limit.
    pub ttl: u8,
}

/// A Session-Reflector.
#[derive(Debug)]
pub struct StampReflector {
    mode: StampReflectorMode,
    error: ClockErrorEstimate,
    key: Option<StampKey>,
    sessions: StampSessions,
    pub(super) counters: StampReflectorCounters,
}

impl StampReflector {
    /// A reflector whose clock has this error. With a key it reflects only what is authenticated
    /// by it.
    pub fn new(mode: StampReflectorMode, error: ClockErrorEstimate, key: Option<StampKey>) -> Self {
        let counters = StampReflectorCounters::default();
        Self { mode, error, key, sessions: StampSessions::default(), counters }
    }

    /// Its counters.
    pub const fn counters(&self) -> StampReflectorCounters {
        self.counters
    }

    /// The reflected packet of a datagram; `None` where none is due. It is as long as the datagram
    /// ("symmetrical", RFC 8762 §4), so a forged sender's address gains nothing.
    ///
    /// `now` is any steady clock. `sent` reads the clock of the stamps last (T3).
    pub fn reflect(
        &mut self,
        now: Duration,
        from: SocketAddr,
        octets: &[u8],
        arrival: StampArrival,
        sent: impl FnOnce() -> NtpTime,
    ) -> Option<Vec<u8>> {
        if octets.len() > PACKET_MAX {
            self.counters.malformed += 1;
            return None;
        }
        let (sender, rest) = match StampSenderPacket::parse(octets, self.key.as_ref()) {
            Ok(parsed) => parsed,
            Err(StampError::NotAuthentic) => {
                self.counters.not_authentic += 1;
                return None;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return None;
            }
        };
        if is_reflection(octets, self.key.as_ref()) {
            self.counters.reflections += 1;
            return None;
        }
        let sequence = match self.mode {
            StampReflectorMode::Stateless => sender.sequence,
            StampReflectorMode::Stateful => {
                let (number, displaced) = self.sessions.number(now, (from, sender.session));
                self.counters.sessions_displaced += displaced;
                number
            }
        };
        self.counters.reflected += 1;
        let (error, session, sender_ttl) = (self.error, sender.session, arrival.ttl);
        let (received, sent) = (arrival.at, sent());
        let packet =
            StampReflectorPacket { sequence, sent, error, session, received, sender, sender_ttl };
        let mut reflected = packet.emit(self.key.as_ref());
        let unverified = if self.key.is_some() { TLV_UNVERIFIED } else { 0 };
        reflect_extensions(rest, unverified, &mut reflected);
        Some(reflected)
    }
}

/// Sessions of a stateful reflector in two halves. Packets move their session into the recent half;
/// when that is full it becomes the older one, and what was in that is displaced. So a flood of new
/// senders displaces who is silent, and closes the reflector to nobody.
#[derive(Debug, Default)]
struct StampSessions {
    recent: BTreeMap<(SocketAddr, u16), StampSession>,
    older: BTreeMap<(SocketAddr, u16), StampSession>,
}

impl StampSessions {
    /// The next number of a session, and how many sessions it has displaced.
    fn number(&mut self, now: Duration, session: (SocketAddr, u16)) -> (u32, u64) {
        let known = self.recent.get(&session).copied().or_else(|| self.older.remove(&session));
        let known = known.filter(|it| now.saturating_sub(it.seen) < SESSION_IDLE);
        let mut displaced = 0;
        if self.recent.len() >= SESSIONS_MAX / 2 && !self.recent.contains_key(&session) {
            let gone = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            displaced = u64::try_from(gone.len()).unwrap_or(u64::MAX);
        }
        let number = known.map_or(0, |it| it.next);
        self.recent.insert(session, StampSession { next: number.wrapping_add(1), seen: now });
        (number, displaced)
    }
}

/// Whether octets are a reflector's packet. One that is sent to a reflector, by whoever forges its
/// source, would be reflected by two for ever. A sender's own octets there "MUST be zeroed" (RFC 8762
/// §4.2.1), and random padding of TWAMP Light (RFC 8762 §4.6) has such times once in 500,000 packets.
fn is_reflection(octets: &[u8], key: Option<&StampKey>) -> bool {
    StampReflectorPacket::parse(octets, key).is_ok_and(|(packet, _)| {
        let apart = packet.sent.since(packet.received).abs();
        packet.sender_ttl != 0 && apart < REFLECTED_WITHIN_S
    })
}

/// Appends the TLVs of a sender's packet with the flags of RFC 8972 §4: padding is understood, and
/// all other types are not. What has no TLVs, as the padding of TWAMP Light, stays as it is.
fn reflect_extensions(mut rest: &[u8], unverified: u8, to: &mut Vec<u8>) {
    while let Some((&[flags, kind, high, low], value)) = rest.split_first_chunk::<TLV_HEAD>() {
        if rest.iter().all(|&octet| octet == 0) {
            break;
        }
        let flags = flags & !(TLV_UNRECOGNISED | TLV_MALFORMED | TLV_UNVERIFIED) | unverified;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, after)) = value.split_at_checked(len) else {
            to.extend([flags | TLV_MALFORMED, kind, high, low]);
            to.extend(value);
            return;
        };
        let flags = if kind == TLV_PADDING { flags } else { flags | TLV_UNRECOGNISED };
        to.extend([flags, kind, high, low]);
        to.extend(value);
        rest = after;
    }
    to.extend(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::packet::UNAUTHENTICATED_LEN;

    const ARRIVAL: StampArrival = StampArrival { at: NtpTime(200), ttl: 64 };

    fn question(sequence: u32, session: u16, key: Option<&StampKey>) -> Vec<u8> {
        let error = ClockErrorEstimate::new(true, Duration::from_micros(10));
        StampSenderPacket { sequence, sent: NtpTime(100), error, session }.emit(key)
    }

    fn reflector(mode: StampReflectorMode) -> StampReflector {
        StampReflector::new(mode, ClockErrorEstimate::new(false, Duration::from_millis(10)), None)
    }

    fn numbers(
        it: &mut StampReflector,
        from: &str,
        at: Duration,
        asked: &[(u32, u16)],
    ) -> Vec<u32> {
        let from = from.parse().unwrap();
        let answer = |&(sequence, session): &(u32, u16)| {
            let octets = question(sequence, session, None);
            let answer = it.reflect(at, from, &octets, ARRIVAL, || NtpTime(300)).unwrap();
            let (packet, rest) = StampReflectorPacket::parse(&answer, None).unwrap();
            assert_eq!((packet.received, packet.sent, rest.len()), (NtpTime(200), NtpTime(300), 0));
            assert_eq!((packet.sender.sequence, packet.sender.sent), (sequence, NtpTime(100)));
            assert_eq!((packet.session, packet.sender_ttl), (session, 64));
            packet.sequence
        };
        asked.iter().map(answer).collect()
    }

    #[test]
    fn stateless_numbers_are_the_sender_s_and_stateful_ones_count_packets() {
        let start = Duration::from_hours(1);
        let asked = [(5, 1), (7, 1), (7, 1), (3, 2)];
        let mut stateless = reflector(StampReflectorMode::Stateless);
        assert_eq!(numbers(&mut stateless, "192.0.2.1:9", start, &asked), [5, 7, 7, 3]);
        let mut stateful = reflector(StampReflectorMode::Stateful);
        assert_eq!(numbers(&mut stateful, "192.0.2.1:9", start, &asked), [0, 1, 2, 0]);
        assert_eq!(numbers(&mut stateful, "192.0.2.2:9", start, &[(9, 1)]), [0], "another host");
        let silent = start + SESSION_IDLE;
        let after = numbers(&mut stateful, "192.0.2.1:9", silent, &[(9, 1)]);
        assert_eq!(after, [0], "the session ended by silence");
    }

    #[test]
    fn extensions_come_back_with_the_reflector_s_flags() {
        let mut it = reflector(StampReflectorMode::Stateless);
        let from = "[2001:db8::1]:9".parse().unwrap();
        let mut reflected = |extensions: &[u8]| {
            let octets = [question(1, 0, None), extensions.to_vec()].concat();
            let answer = it.reflect(Duration::ZERO, from, &octets, ARRIVAL, NtpTime::default);
            let answer = answer.unwrap();
            assert_eq!(answer.len(), octets.len(), "as long as the sender's");
            answer[UNAUTHENTICATED_LEN..].to_vec()
        };
        // Padding of four octets is understood; type 2 (location) is not.
        let both = [0x80, 1, 0, 4, 9, 9, 9, 9, 0, 2, 0, 1, 7];
        assert_eq!(reflected(&both), [0, 1, 0, 4, 9, 9, 9, 9, 0x80, 2, 0, 1, 7]);
        // A length beyond the packet's end, and a head that is cut.
        assert_eq!(reflected(&[0x80, 1, 0, 5, 9, 9, 9, 9]), [0x40, 1, 0, 5, 9, 9, 9, 9]);
        assert_eq!(reflected(&[0x80, 1, 0]), [0x80, 1, 0]);
        assert_eq!(reflected(&[0; 10]), [0; 10]);
    }

    #[test]
    fn nonsense_and_forgeries_are_counted_and_not_reflected() {
        let from = "192.0.2.1:9".parse().unwrap();
        let reflect = |it: &mut StampReflector, octets: &[u8]| {
            it.reflect(Duration::ZERO, from, octets, ARRIVAL, NtpTime::default).is_some()
        };
        let mut open = reflector(StampReflectorMode::Stateless);
        assert!(!reflect(&mut open, &question(1, 0, None)[..43]));
        assert!(!reflect(&mut open, &vec![1; PACKET_MAX + 1]));
        assert_eq!((open.counters().reflected, open.counters().malformed), (0, 2));
        let key = StampKey::new(b"a shared secret");
        let error = ClockErrorEstimate::new(false, Duration::from_millis(10));
        let mode = StampReflectorMode::Stateless;
        let mut closed = StampReflector::new(mode, error, Some(key.clone()));
        assert!(reflect(&mut closed, &question(1, 0, Some(&key))));
        assert!(!reflect(&mut closed, &question(1, 0, Some(&StampKey::new(b"another")))));
        assert!(!reflect(&mut closed, &question(1, 0, None)));
        let counters = closed.counters();
        assert_eq!((counters.reflected, counters.not_authentic, counters.malformed), (1, 1, 1));
    }

    #[test]
    fn a_flood_of_senders_displaces_the_silent_and_closes_to_nobody() {
        let mut it = reflector(StampReflectorMode::Stateful);
        let ask = |it: &mut StampReflector, host: usize| {
            let from = SocketAddr::new(
                std::net::Ipv4Addr::from_bits(u32::try_from(host).unwrap()).into(),
                9,
            );
            let octets = question(0, 0, None);
            let answer = it.reflect(Duration::ZERO, from, &octets, ARRIVAL, NtpTime::default);
            StampReflectorPacket::parse(&answer.unwrap(), None).unwrap().0.sequence
        };
        for host in 1..=5 * SESSIONS_MAX {
            assert_eq!(ask(&mut it, host), 0);
            // Whoever sends meanwhile keeps its numbers.
            if host % (SESSIONS_MAX / 4) == 0 {
                let number = host / (SESSIONS_MAX / 4) - 1;
                assert_eq!(ask(&mut it, 0), u32::try_from(number).unwrap());
            }
            assert!(it.sessions.recent.len() + it.sessions.older.len() <= SESSIONS_MAX);
        }
        let known = it.sessions.recent.len() + it.sessions.older.len();
        let displaced = u64::try_from(5 * SESSIONS_MAX + 1 - known).unwrap();
        assert_eq!(it.counters().sessions_displaced, displaced);
    }

    #[test]
    fn reflections_are_not_reflected() {
        let key = StampKey::new(b"a shared secret");
        let from = "192.0.2.1:9".parse().unwrap();
        for key in [None, Some(key)] {
            let error = ClockErrorEstimate::new(false, Duration::from_millis(10));
            let mut it = StampReflector::new(StampReflectorMode::Stateless, error, key.clone());
            // T2 is 1 s before T3, by the layouts of RFC 8762 §4.3.
            let arrival = StampArrival { at: NtpTime(7 << 32), ttl: 1 };
            let mut reflect = |octets: &[u8]| {
                it.reflect(Duration::ZERO, from, octets, arrival, || NtpTime(8 << 32))
            };
            let first = reflect(&question(1, 0, key.as_ref())).unwrap();
            assert_eq!(reflect(&first), None, "its own, or another one's");
            assert_eq!((it.counters().reflected, it.counters().reflections), (1, 1));
        }
        // Padding that is not zero (TWAMP Light): a time of arrival 68 years from its own.
        let mut it = reflector(StampReflectorMode::Stateless);
        let mut padded = question(1, 0, None);
        padded[16..].fill(0x5a);
        padded[16] = 0x80;
        let answer = it.reflect(Duration::ZERO, from, &padded, ARRIVAL, NtpTime::default);
        assert!(answer.is_some());
    }
}

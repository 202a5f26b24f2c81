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
    /// Packets of new sessions when the table was full.
    pub sessions_full: u64,
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
    sessions: BTreeMap<(SocketAddr, u16), StampSession>,
    pub(super) counters: StampReflectorCounters,
}

impl StampReflector {
    /// A reflector whose clock has this error. With a key it reflects only what is authenticated
    /// by it.
    pub fn new(mode: StampReflectorMode, error: ClockErrorEstimate, key: Option<StampKey>) -> Self {
        let counters = StampReflectorCounters::default();
        Self { mode, error, key, sessions: BTreeMap::new(), counters }
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
        let sequence = match self.mode {
            StampReflectorMode::Stateless => sender.sequence,
            StampReflectorMode::Stateful => self.number(now, (from, sender.session))?,
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

    /// The next number of a session.
    fn number(&mut self, now: Duration, session: (SocketAddr, u16)) -> Option<u32> {
        let is_new = !self.sessions.contains_key(&session);
        if is_new && self.sessions.len() >= SESSIONS_MAX {
            self.sessions.retain(|_, it| now.saturating_sub(it.seen) < SESSION_IDLE);
            if self.sessions.len() >= SESSIONS_MAX {
                self.counters.sessions_full += 1;
                return None;
            }
        }
        let state = self.sessions.entry(session).or_default();
        if now.saturating_sub(state.seen) >= SESSION_IDLE {
            state.next = 0;
        }
        let number = state.next;
        *state = StampSession { next: number.wrapping_add(1), seen: now };
        Some(number)
    }
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
    fn sessions_are_bounded() {
        let mut it = reflector(StampReflectorMode::Stateful);
        let ask = |it: &mut StampReflector, at: Duration, host: usize| {
            let host = u32::try_from(host).unwrap();
            let from = SocketAddr::new(std::net::Ipv4Addr::from_bits(host).into(), 9);
            it.reflect(at, from, &question(0, 0, None), ARRIVAL, NtpTime::default).is_some()
        };
        assert!((0..SESSIONS_MAX).all(|host| ask(&mut it, Duration::ZERO, host)));
        assert!(!ask(&mut it, Duration::ZERO, SESSIONS_MAX), "one too many");
        assert!(ask(&mut it, Duration::ZERO, 1), "a known one");
        assert_eq!(it.counters().sessions_full, 1);
        assert!(ask(&mut it, SESSION_IDLE, SESSIONS_MAX), "the others have ended");
    }
}

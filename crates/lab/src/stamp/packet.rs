//! STAMP test packets, unauthenticated and authenticated (RFC 8762 §4.2 and §4.3, with the session
//! identifier of RFC 8972 §3).

use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// Octets of an unauthenticated packet without extensions, either way.
pub const UNAUTHENTICATED_LEN: usize = 44;

/// Octets of an authenticated packet without extensions, either way.
pub const AUTHENTICATED_LEN: usize = 112;

/// Octets that an HMAC is truncated to (RFC 8762 §4.4).
const HMAC_LEN: usize = 16;

/// Seconds from 1900, where NTP begins, to 1970 (RFC 5905 §6).
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// Why octets are no STAMP packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StampError {
    /// The octets end too early.
    #[error("{found} octets where a packet has {needed}")]
    Truncated {
        /// Octets of a packet.
        needed: usize,
        /// Octets that there are.
        found: usize,
    },
    /// The multiplier of an error estimate is 0 (RFC 4656 §4.1.2: it "SHOULD be considered corrupt").
    #[error("an error estimate has the multiplier 0")]
    NoErrorEstimate,
    /// The HMAC is not that of the session's key.
    #[error("the HMAC is not that of the session's key")]
    NotAuthentic,
}

/// A time of the NTP 64-bit format: seconds since 1900, and a fraction of 2^-32.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NtpTime(pub u64);

impl NtpTime {
    /// A reading of the wall clock, in nanoseconds since 1970. Seconds wrap around in 2036, as those
    /// of the format do.
    pub const fn of_unix(nanoseconds: u64) -> Self {
        let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
        let fraction = (rest << 32) / 1_000_000_000;
        Self(seconds.wrapping_add(NTP_TO_UNIX) << 32 | fraction)
    }

    /// Seconds from `earlier` to this time; negative if it is the later one.
    #[expect(clippy::cast_precision_loss, reason = "differences, to a share of 2^-53")]
    pub fn since(self, earlier: Self) -> f64 {
        const UNIT: f64 = 1.0 / 4_294_967_296.0;
        self.0.wrapping_sub(earlier.0).cast_signed() as f64 * UNIT
    }
}

/// How far a clock may be off (RFC 4656 §4.1.2; RFC 8186 for the format's bit).
///
/// Bits: S (synchronised to UTC) 1, Z (PTP format in place of NTP's) 1, scale 6, multiplier 8.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClockErrorEstimate(u16);

impl ClockErrorEstimate {
    /// The estimate of a clock of the NTP format whose error is `error` at the most: the smallest
    /// that is not below it.
    pub fn new(is_synchronised: bool, error: Duration) -> Self {
        let units = (error.as_nanos() << 32).div_ceil(1_000_000_000).max(1);
        let mut scale = 0_u16;
        while scale < 63 && (units.div_ceil(1 << scale)) > 255 {
            scale += 1;
        }
        let multiplier = u16::try_from(units.div_ceil(1 << scale)).unwrap_or(255).min(255);
        Self(u16::from(is_synchronised) << 15 | scale << 8 | multiplier)
    }

    fn of(word: u16) -> Result<Self, StampError> {
        let [_, multiplier] = word.to_be_bytes();
        if multiplier == 0 { Err(StampError::NoErrorEstimate) } else { Ok(Self(word)) }
    }

    /// Whether the clock follows UTC.
    pub const fn is_synchronised(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Whether times are of the PTP format.
    pub const fn is_ptp(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// The error in seconds: multiplier · 2^(scale − 32).
    pub fn seconds(self) -> f64 {
        let scale = i32::from(self.0 >> 8 & 0x3f);
        f64::from(self.0 & 0xff) * 2_f64.powi(scale - 32)
    }
}

/// The key of an authenticated session, for HMAC-SHA-256 (RFC 2104, RFC 8762 §4.4).
#[derive(Clone)]
pub struct StampKey {
    inner: Sha256,
    outer: Sha256,
}

impl fmt::Debug for StampKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampKey").finish_non_exhaustive()
    }
}

impl StampKey {
    /// A key of any length.
    pub fn new(key: &[u8]) -> Self {
        const BLOCK: usize = 64;
        let digest = (key.len() > BLOCK).then(|| Sha256::digest(key));
        let key = digest.as_deref().unwrap_or(key);
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK];
            for (octet, key) in block.iter_mut().zip(key) {
                *octet ^= key;
            }
            Sha256::new().chain_update(block)
        };
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// The HMAC of octets that are there in parts.
    pub(crate) fn whole_hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = self.inner.clone();
        for part in parts {
            inner.update(part);
        }
        self.outer.clone().chain_update(inner.finalize()).finalize().into()
    }

    /// The truncated HMAC of `octets`.
    fn hmac(&self, octets: &[u8]) -> [u8; HMAC_LEN] {
        let whole = self.whole_hmac(&[octets]);
        let mut hmac = [0; HMAC_LEN];
        for (to, from) in hmac.iter_mut().zip(whole.iter()) {
            *to = *from;
        }
        hmac
    }

    /// Whether `hmac` is that of `octets`; the comparison takes the same time wherever they differ.
    fn is_of(&self, octets: &[u8], hmac: [u8; HMAC_LEN]) -> bool {
        let differing =
            self.hmac(octets).iter().zip(hmac).fold(0, |all, (own, it)| all | (own ^ it));
        differing == 0
    }
}

/// The test packet of a Session-Sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StampSenderPacket {
    /// Number of the packet in its session, from 0.
    pub sequence: u32,
    /// When it was sent (T1).
    pub sent: NtpTime,
    /// Error of the sender's clock.
    pub error: ClockErrorEstimate,
    /// Session identifier (RFC 8972 §3); 0 without one.
    pub session: u16,
}

/// The test packet of a Session-Reflector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StampReflectorPacket {
    /// The sender's number, or in stateful mode the number of the reflected packet.
    pub sequence: u32,
    /// When it was sent (T3).
    pub sent: NtpTime,
    /// Error of the reflector's clock.
    pub error: ClockErrorEstimate,
    /// Session identifier.
    pub session: u16,
    /// When the sender's packet arrived (T2).
    pub received: NtpTime,
    /// The sender's packet: number, time, error.
    pub sender: StampSenderPacket,
    /// The time to live, or hop limit, with which it arrived.
    pub sender_ttl: u8,
}

/// Takes the fields of a packet one after the other.
struct Fields<'octets> {
    rest: &'octets [u8],
    needed: usize,
    found: usize,
}

impl<'octets> Fields<'octets> {
    fn new(octets: &'octets [u8], needed: usize) -> Self {
        Self { rest: octets, needed, found: octets.len() }
    }

    fn next<const N: usize>(&mut self) -> Result<[u8; N], StampError> {
        let truncated = StampError::Truncated { needed: self.needed, found: self.found };
        let (field, rest) = self.rest.split_first_chunk().ok_or(truncated)?;
        self.rest = rest;
        Ok(*field)
    }

    fn word(&mut self) -> Result<u32, StampError> {
        self.next().map(u32::from_be_bytes)
    }

    fn time(&mut self) -> Result<NtpTime, StampError> {
        self.next().map(|field| NtpTime(u64::from_be_bytes(field)))
    }

    fn half(&mut self) -> Result<u16, StampError> {
        self.next().map(u16::from_be_bytes)
    }

    /// Fields that "MUST be zeroed on transmission and ignored on receipt" (RFC 8762 §4.2.1).
    fn zeros<const N: usize>(&mut self) -> Result<(), StampError> {
        self.next::<N>().map(|_| ())
    }
}

/// Octets of a packet in the making.
struct StampOctets(Vec<u8>);

impl StampOctets {
    fn new(len: usize) -> Self {
        Self(Vec::with_capacity(len))
    }

    fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    fn half(mut self, half: u16) -> Self {
        self.0.extend(half.to_be_bytes());
        self
    }

    fn time(mut self, time: NtpTime) -> Self {
        self.0.extend(time.0.to_be_bytes());
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    fn sealed(mut self, key: &StampKey) -> Vec<u8> {
        let hmac = key.hmac(&self.0);
        self.0.extend(hmac);
        self.0
    }
}

/// Checks the HMAC at the end of an authenticated packet without extensions.
fn check(octets: &[u8], key: &StampKey) -> Result<(), StampError> {
    let (needed, found) = (AUTHENTICATED_LEN, octets.len());
    let truncated = StampError::Truncated { needed, found };
    let base = octets.get(..AUTHENTICATED_LEN).ok_or(truncated)?;
    let (body, hmac) = base.split_last_chunk().ok_or(truncated)?;
    if key.is_of(body, *hmac) { Ok(()) } else { Err(StampError::NotAuthentic) }
}

/// Octets of a packet without extensions.
pub(super) const fn base_len(key: Option<&StampKey>) -> usize {
    if key.is_some() { AUTHENTICATED_LEN } else { UNAUTHENTICATED_LEN }
}

impl StampSenderPacket {
    /// Reads a sender's packet, authenticated if there is a key; what follows its fixed length are
    /// extensions.
    ///
    /// # Errors
    ///
    /// [`StampError`].
    pub fn parse<'octets>(
        octets: &'octets [u8],
        key: Option<&StampKey>,
    ) -> Result<(Self, &'octets [u8]), StampError> {
        let mut fields = Fields::new(octets, base_len(key));
        let sequence = fields.word()?;
        if let Some(key) = key {
            check(octets, key)?;
            fields.zeros::<12>()?;
        }
        let sent = fields.time()?;
        let (error, session) = (ClockErrorEstimate::of(fields.half()?)?, fields.half()?);
        match key {
            Some(_) => fields.zeros::<{ 68 + HMAC_LEN }>()?,
            None => fields.zeros::<28>()?,
        }
        Ok((Self { sequence, sent, error, session }, fields.rest))
    }

    /// The octets of the packet without extensions, authenticated if there is a key.
    pub fn emit(&self, key: Option<&StampKey>) -> Vec<u8> {
        let octets = StampOctets::new(base_len(key)).word(self.sequence);
        let octets = octets.zeros(if key.is_some() { 12 } else { 0 });
        let octets = octets.time(self.sent).half(self.error.0).half(self.session);
        match key {
            Some(key) => octets.zeros(68).sealed(key),
            None => octets.zeros(28).0,
        }
    }
}

impl StampReflectorPacket {
    /// Reads a reflector's packet, authenticated if there is a key; what follows its fixed length
    /// are extensions.
    ///
    /// # Errors
    ///
    /// [`StampError`].
    pub fn parse<'octets>(
        octets: &'octets [u8],
        key: Option<&StampKey>,
    ) -> Result<(Self, &'octets [u8]), StampError> {
        let mut fields = Fields::new(octets, base_len(key));
        if let Some(key) = key {
            check(octets, key)?;
        }
        let is_authenticated = key.is_some();
        let sequence = fields.word()?;
        if is_authenticated {
            fields.zeros::<12>()?;
        }
        let sent = fields.time()?;
        let (error, session) = (ClockErrorEstimate::of(fields.half()?)?, fields.half()?);
        if is_authenticated {
            fields.zeros::<4>()?;
        }
        let received = fields.time()?;
        if is_authenticated {
            fields.zeros::<8>()?;
        }
        let sender_sequence = fields.word()?;
        if is_authenticated {
            fields.zeros::<12>()?;
        }
        let sender_sent = fields.time()?;
        let sender_error = ClockErrorEstimate::of(fields.half()?)?;
        fields.zeros::<2>()?;
        if is_authenticated {
            fields.zeros::<4>()?;
        }
        let [sender_ttl] = fields.next()?;
        if is_authenticated {
            fields.zeros::<{ 15 + HMAC_LEN }>()?;
        } else {
            fields.zeros::<3>()?;
        }
        let sender = StampSenderPacket {
            sequence: sender_sequence,
            sent: sender_sent,
            error: sender_error,
            session,
        };
        Ok((Self { sequence, sent, error, session, received, sender, sender_ttl }, fields.rest))
    }

    /// The octets of the packet without extensions, authenticated if there is a key.
    pub fn emit(&self, key: Option<&StampKey>) -> Vec<u8> {
        let zeros = |count| if key.is_some() { count } else { 0 };
        let octets = StampOctets::new(base_len(key)).word(self.sequence).zeros(zeros(12));
        let octets = octets.time(self.sent).half(self.error.0).half(self.session).zeros(zeros(4));
        let octets = octets.time(self.received).zeros(zeros(8));
        let octets = octets.word(self.sender.sequence).zeros(zeros(12));
        let octets = octets.time(self.sender.sent).half(self.sender.error.0);
        let mut octets = octets.zeros(2 + zeros(4));
        octets.0.push(self.sender_ttl);
        match key {
            Some(key) => octets.zeros(15).sealed(key),
            None => octets.zeros(3).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 2020-01-01 00:00:00.5 UTC is 1577836800 s of Unix time, 3786825600 s of NTP's,
    /// 0xe1b6_5f80 in hex, and a half is 0x8000_0000.
    const T1: [u8; 8] = [0xe1, 0xb6, 0x5f, 0x80, 0x80, 0, 0, 0];

    #[test]
    fn a_sender_s_packet_is_that_of_the_diagram() {
        let sent = NtpTime::of_unix(1_577_836_800_500_000_000);
        let error = ClockErrorEstimate::new(true, Duration::from_millis(1));
        let packet = StampSenderPacket { sequence: 7, sent, error, session: 0x0102 };
        // 1 ms is 4294967.296 units of 2^-32 s: 132 · 2^15 is the first that is not below it.
        let head: Vec<u8> = [&[0, 0, 0, 7], T1.as_slice(), &[0x80 | 15, 132], &[1, 2]].concat();
        let octets = packet.emit(None);
        assert_eq!(octets[..16], head);
        assert_eq!((octets.len(), octets[16..].iter().all(|&it| it == 0)), (44, true));
        assert_eq!(StampSenderPacket::parse(&octets, None), Ok((packet, [].as_slice())));
        assert!((error.seconds() - 132.0 / f64::from(1 << 17)).abs() < 1e-12);
    }

    #[test]
    fn a_reflector_s_packet_is_that_of_the_diagram() {
        let error = ClockErrorEstimate::new(false, Duration::ZERO);
        let sender = StampSenderPacket { sequence: 9, sent: NtpTime(3), error, session: 5 };
        let (sent, received) = (NtpTime(1), NtpTime(2));
        let packet = StampReflectorPacket {
            sequence: 4,
            sent,
            error,
            session: 5,
            received,
            sender,
            sender_ttl: 64,
        };
        let time = |last| [0, 0, 0, 0, 0, 0, 0, last];
        let wanted: Vec<u8> = [
            &[0, 0, 0, 4],
            time(1).as_slice(),
            &[0, 1, 0, 5],
            &time(2),
            &[0, 0, 0, 9],
            &time(3),
            &[0, 1, 0, 0, 64, 0, 0, 0],
        ]
        .concat();
        assert_eq!(packet.emit(None), wanted);
        let longer = [wanted.as_slice(), &[0x80, 1, 0, 0]].concat();
        let read = StampReflectorPacket::parse(&longer, None);
        assert_eq!(read, Ok((packet, [0x80, 1, 0, 0].as_slice())));
        // The offsets of RFC 8762 §4.3.2's diagram.
        let octets = packet.emit(Some(&StampKey::new(b"key")));
        assert_eq!(octets.len(), AUTHENTICATED_LEN);
        for (at, field) in [(3, 4), (23, 1), (25, 1), (27, 5), (39, 2), (51, 9), (71, 3), (73, 1)] {
            assert_eq!(octets[at], field, "octet {at}");
        }
        assert_eq!(octets[80], 64);
        assert_eq!(octets[..96].iter().filter(|&&it| it != 0).count(), 9);
    }

    #[test]
    fn an_hmac_is_that_of_rfc_4231() {
        // Test cases 1, 2 and 6 of RFC 4231 §4, whose digests begin so.
        let cases: [(&[u8], &[u8], [u8; 4]); 3] = [
            (&[0x0b; 20], b"Hi There", [0xb0, 0x34, 0x4c, 0x61]),
            (b"Jefe", b"what do ya want for nothing?", [0x5b, 0xdc, 0xc1, 0x46]),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                [0x60, 0xe4, 0x31, 0x59],
            ),
        ];
        for (key, data, digest) in cases {
            assert_eq!(StampKey::new(key).hmac(data)[..4], digest);
        }
    }

    #[test]
    fn an_altered_octet_is_not_authentic() {
        let (key, other) = (StampKey::new(b"one"), StampKey::new(b"two"));
        let error = ClockErrorEstimate::new(true, Duration::from_secs(1));
        let packet = StampSenderPacket { sequence: 1, sent: NtpTime(2), error, session: 3 };
        let octets = packet.emit(Some(&key));
        let longer = [octets.as_slice(), &[0x80, 1, 0, 0]].concat();
        let read = StampSenderPacket::parse(&longer, Some(&key));
        assert_eq!(read, Ok((packet, [0x80, 1, 0, 0].as_slice())));
        let refused = |octets: &[u8], key| StampSenderPacket::parse(octets, Some(key)).map(|_| ());
        assert_eq!(refused(&octets, &other), Err(StampError::NotAuthentic));
        for at in 0..AUTHENTICATED_LEN {
            let mut altered = octets.clone();
            altered[at] ^= 1;
            assert_eq!(refused(&altered, &key), Err(StampError::NotAuthentic), "octet {at}");
            assert!(matches!(refused(&octets[..at], &key), Err(StampError::Truncated { .. })));
        }
    }

    #[test]
    fn what_is_cut_or_has_no_error_is_refused() {
        let error = ClockErrorEstimate::new(true, Duration::from_secs(1));
        let packet = StampSenderPacket { sequence: 0, sent: NtpTime(0), error, session: 0 };
        let octets = packet.emit(None);
        for found in 0..UNAUTHENTICATED_LEN {
            let cut = Err(StampError::Truncated { needed: UNAUTHENTICATED_LEN, found });
            assert_eq!(StampSenderPacket::parse(&octets[..found], None).map(|_| ()), cut);
            assert!(StampReflectorPacket::parse(&octets[..found], None).is_err());
        }
        let mut none = octets;
        none[13] = 0;
        let refused = StampSenderPacket::parse(&none, None).map(|_| ());
        assert_eq!(refused, Err(StampError::NoErrorEstimate));
    }

    #[test]
    fn differences_cross_the_era_of_2036() {
        // 2036-02-07 06:28:16 UTC, by RFC 5905: era 1 begins.
        let before = NtpTime::of_unix(2_085_978_495_000_000_000);
        let after = NtpTime::of_unix(2_085_978_497_000_000_000);
        assert!((after.since(before) - 2.0).abs() < 1e-9 && before.since(after) < 0.0);
        let most = ClockErrorEstimate::new(true, Duration::MAX);
        assert!(most.seconds() > 1e9 && !most.is_ptp() && most.is_synchronised());
    }
}

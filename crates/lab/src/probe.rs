//! Probe packets: their identity, and the times at which each was where.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Octets of a probe's identity, at the front of its payload; relays that encrypt leave them clear,
/// as the paper's do with iperf's.
pub(crate) const IDENTITY_LEN: usize = 12;
/// Probes of a repetition at the most.
pub(crate) const PROBES_MAX: u32 = 60_000;
/// What the payload behind the identity is full of.
pub(crate) const FILLING: u8 = 0x5a;

/// The identity of a probe: 32 bits of sequence number, big-endian, and 64 of the run's tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProbeIdentity {
    pub(crate) sequence: u32,
    pub(crate) tag: [u8; 8],
}

impl ProbeIdentity {
    /// The identity at the front of a payload.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (sequence, rest) = payload.split_first_chunk()?;
        let (tag, _) = rest.split_first_chunk()?;
        Some(Self { sequence: u32::from_be_bytes(*sequence), tag: *tag })
    }

    /// A payload of `octets` that begins with it.
    pub(crate) fn payload(self, octets: usize) -> Vec<u8> {
        let mut payload = self.sequence.to_be_bytes().to_vec();
        payload.extend(self.tag);
        payload.resize(octets.max(IDENTITY_LEN), FILLING);
        payload
    }
}

/// Where a probe is stamped by this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// When the schedule wanted it sent.
    Due,
    /// Before the sender's call.
    Sent,
    /// By the kernel, on the relay's socket: where there are no programs at hooks.
    Ingress,
    /// After the relay's call to receive.
    Taken,
    /// Before the relay's call to send.
    Given,
    /// By the kernel, on the receiver's socket.
    Arrived,
    /// The same, of the requests that a device's report becomes: that of the oxygen saturation.
    SaturationArrived,
    /// That of the pulse rate.
    PulseArrived,
}

const PLACES: usize = 8;

/// The times of the probes of one repetition.
#[derive(Debug)]
pub(crate) struct ProbeRecords {
    tag: AtomicU64,
    octets: AtomicU32,
    /// Probes of this repetition, and of all before it: numbers of reports go on from there.
    count: AtomicU32,
    before: AtomicU32,
    rows: Vec<[AtomicU64; PLACES]>,
    /// Probes that arrived a second time.
    repeated: AtomicU32,
    /// Probes that arrived with the payload that was sent.
    unaltered: AtomicU32,
    /// Readings that arrived with another value than was reported.
    altered: AtomicU32,
}

impl ProbeRecords {
    pub(crate) fn new() -> Self {
        let rows = (0..PROBES_MAX).map(|_| Default::default()).collect();
        let (tag, octets, count, before) = Default::default();
        let (repeated, unaltered, altered) = Default::default();
        Self { tag, octets, count, before, rows, repeated, unaltered, altered }
    }

    /// Begins a repetition of `count` probes.
    pub(crate) fn begin(&self, tag: [u8; 8], octets: u16, count: u32) {
        let before = self.count.swap(count, Ordering::Relaxed);
        self.before.fetch_add(before, Ordering::Relaxed);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for time in self.rows.iter().take(count).flatten() {
            time.store(0, Ordering::Relaxed);
        }
        self.repeated.store(0, Ordering::Relaxed);
        self.unaltered.store(0, Ordering::Relaxed);
        self.altered.store(0, Ordering::Relaxed);
        self.octets.store(octets.into(), Ordering::Relaxed);
        self.tag.store(u64::from_ne_bytes(tag), Ordering::Release);
    }

    /// Octets of each probe of this repetition.
    pub(crate) fn octets(&self) -> usize {
        usize::try_from(self.octets.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The number of a device's report that is this probe. Numbers go on over the repetitions, so that
    /// a late report of the repetition before is told from those of this one.
    pub(crate) fn report_number(&self, sequence: u32) -> u16 {
        let number = self.before.load(Ordering::Relaxed).wrapping_add(sequence);
        u16::try_from(number & u32::from(u16::MAX)).unwrap_or_default()
    }

    /// Stamps one of the two requests of the report with this number, if it is of this repetition;
    /// returns whether the other one has arrived before, so that the report has.
    pub(crate) fn stamp_request(&self, number: u16, place: Place, time: u64) -> bool {
        let sequence = self.sequence(number);
        if sequence >= self.count.load(Ordering::Relaxed) {
            return false;
        }
        if self.time(sequence, place).is_some() {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.set(sequence, place, time);
        let other = match place {
            Place::SaturationArrived => Place::PulseArrived,
            _ => Place::SaturationArrived,
        };
        let Some(earlier) = self.time(sequence, other) else { return false };
        self.set(sequence, Place::Arrived, time.max(earlier));
        true
    }

    /// The number of the probe, in this repetition, whose report has this number.
    pub(crate) fn sequence(&self, number: u16) -> u32 {
        u32::from(number.wrapping_sub(self.report_number(0)))
    }

    /// Counts a reading that arrived with another value than was reported.
    pub(crate) fn count_altered(&self) {
        self.altered.fetch_add(1, Ordering::Relaxed);
    }

    /// Readings that arrived with another value than was reported.
    pub(crate) fn altered(&self) -> u32 {
        self.altered.load(Ordering::Relaxed)
    }

    /// Stamps the probe whose payload this is, if it is of this repetition; returns whether it is.
    pub(crate) fn stamp(&self, payload: &[u8], place: Place, time: u64) -> bool {
        let identity = ProbeIdentity::read(payload);
        let tag = self.tag.load(Ordering::Acquire).to_ne_bytes();
        let Some(identity) = identity.filter(|identity| identity.tag == tag) else { return false };
        if place == Place::Arrived {
            if self.time(identity.sequence, place).is_some() {
                self.repeated.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            let mut rest = payload.iter().skip(IDENTITY_LEN);
            if rest.all(|&octet| octet == FILLING) {
                self.unaltered.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.set(identity.sequence, place, time);
        true
    }

    /// Sets a probe's time.
    pub(crate) fn set(&self, sequence: u32, place: Place, time: u64) {
        if let Some(cell) = self.cell(sequence, place) {
            cell.store(time, Ordering::Relaxed);
        }
    }

    /// A probe's time; `None` if it has not been there.
    pub(crate) fn time(&self, sequence: u32, place: Place) -> Option<u64> {
        let time = self.cell(sequence, place)?.load(Ordering::Relaxed);
        (time != 0).then_some(time)
    }

    /// Probes that arrived twice, and probes that arrived as they were sent.
    pub(crate) fn repeated_and_unaltered(&self) -> (u32, u32) {
        (self.repeated.load(Ordering::Relaxed), self.unaltered.load(Ordering::Relaxed))
    }

    fn cell(&self, sequence: u32, place: Place) -> Option<&AtomicU64> {
        self.rows.get(usize::try_from(sequence).ok()?)?.get(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_of_this_repetition_are_stamped() {
        let records = ProbeRecords::new();
        records.begin(*b"repeat 1", 40, 10);
        let mine = ProbeIdentity { sequence: 3, tag: *b"repeat 1" }.payload(40);
        let other = ProbeIdentity { sequence: 4, tag: *b"repeat 0" }.payload(40);
        assert_eq!(mine.len(), 40);
        assert!(records.stamp(&mine, Place::Arrived, 5));
        assert!(!records.stamp(&other, Place::Arrived, 6), "a late one of the repetition before");
        assert!(records.stamp(&mine, Place::Arrived, 9), "once more");
        assert_eq!(records.time(3, Place::Arrived), Some(5), "the first time counts");
        assert_eq!(records.time(4, Place::Arrived), None);
        assert_eq!(records.repeated_and_unaltered(), (1, 1));
        for len in 0..IDENTITY_LEN {
            assert!(!records.stamp(&mine[..len], Place::Taken, 1), "cut at {len}");
        }
    }

    #[test]
    fn a_report_has_arrived_when_both_its_requests_have() {
        let records = ProbeRecords::new();
        records.begin(*b"repeat 1", 100, 10);
        assert_eq!(records.report_number(3), 3);
        assert!(!records.stamp_request(3, Place::PulseArrived, 20), "the first of two");
        assert_eq!(records.time(3, Place::Arrived), None);
        assert!(records.stamp_request(3, Place::SaturationArrived, 15), "the second");
        assert_eq!(records.time(3, Place::Arrived), Some(20), "the later one counts");
        assert!(!records.stamp_request(3, Place::PulseArrived, 30), "once more");
        assert_eq!(records.repeated_and_unaltered().0, 1);
        records.begin(*b"repeat 2", 100, 10);
        assert_eq!((records.report_number(0), records.sequence(13)), (10, 3));
        for late in [0, 9, 20] {
            for place in [Place::SaturationArrived, Place::PulseArrived] {
                assert!(!records.stamp_request(late, place, 1), "{late} is not of this repetition");
            }
        }
    }
}

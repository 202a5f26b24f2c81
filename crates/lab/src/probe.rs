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
}

const PLACES: usize = 6;

/// The times of the probes of one repetition.
#[derive(Debug)]
pub(crate) struct ProbeRecords {
    tag: AtomicU64,
    octets: AtomicU32,
    rows: Vec<[AtomicU64; PLACES]>,
    /// Probes that arrived a second time.
    repeated: AtomicU32,
    /// Probes that arrived with the payload that was sent.
    unaltered: AtomicU32,
}

impl ProbeRecords {
    pub(crate) fn new() -> Self {
        let rows = (0..PROBES_MAX).map(|_| Default::default()).collect();
        let (tag, octets) = Default::default();
        Self { tag, octets, rows, repeated: AtomicU32::new(0), unaltered: AtomicU32::new(0) }
    }

    /// Begins a repetition of `count` probes.
    pub(crate) fn begin(&self, tag: [u8; 8], octets: u16, count: u32) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for time in self.rows.iter().take(count).flatten() {
            time.store(0, Ordering::Relaxed);
        }
        self.repeated.store(0, Ordering::Relaxed);
        self.unaltered.store(0, Ordering::Relaxed);
        self.octets.store(octets.into(), Ordering::Relaxed);
        self.tag.store(u64::from_ne_bytes(tag), Ordering::Release);
    }

    /// Octets of each probe of this repetition.
    pub(crate) fn octets(&self) -> usize {
        usize::try_from(self.octets.load(Ordering::Relaxed)).unwrap_or(0)
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
}

//! What the data plane knows of an associated device: how its reports become requests, and which
//! reports it has sent on.

use crate::pack::{Packer, Unpacker};
use crate::record::Record;
use std::fmt;

/// Octets of a plan at the most.
pub const PLAN_OCTETS_MAX: usize = 2_040;
const PLAN_WORDS: usize = PLAN_OCTETS_MAX / 4;
/// Words of a plan's record: serial number, length, octets.
const RECORD_WORDS: usize = 2 + PLAN_WORDS;

/// How the reports of a device become requests, as the control plane has compiled it.
///
/// `interwork` defines the meaning of the octets; here they are only carried.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct EntityPlan {
    /// Its number, which no other plan has had; never 0.
    pub serial: u32,
    length: u32,
    octets: [u8; PLAN_OCTETS_MAX],
}

impl EntityPlan {
    /// A plan of these octets; `None` if they are more than [`PLAN_OCTETS_MAX`].
    pub fn new(serial: u32, octets: &[u8]) -> Option<Self> {
        let length = u32::try_from(octets.len()).ok()?;
        let mut all = [0; PLAN_OCTETS_MAX];
        all.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(Self { serial, length, octets: all })
    }

    /// Its octets.
    pub fn octets(&self) -> &[u8] {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        self.octets.get(..length).unwrap_or_default()
    }
}

impl fmt::Debug for EntityPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntityPlan({}, {} octets)", self.serial, self.length)
    }
}

impl Record for EntityPlan {
    const NAME: &'static str = "entity-plan/1";
    type Words = [u32; RECORD_WORDS];

    fn to_words(&self) -> [u32; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        let head = [self.serial, self.length];
        let octets = self.octets.chunks(4).map(|chunk| {
            let word = chunk.first_chunk().copied().unwrap_or_default();
            u32::from_be_bytes(word)
        });
        for (place, word) in words.iter_mut().zip(head.into_iter().chain(octets)) {
            *place = word;
        }
        words
    }

    fn from_words(words: [u32; RECORD_WORDS]) -> Option<Self> {
        let [serial, length, rest @ ..] = &words;
        if usize::try_from(*length).ok()? > PLAN_OCTETS_MAX {
            return None;
        }
        let mut octets = [0; PLAN_OCTETS_MAX];
        for (place, word) in octets.chunks_mut(4).zip(rest) {
            place.copy_from_slice(word.to_be_bytes().get(..place.len())?);
        }
        Some(Self { serial: *serial, length: *length, octets })
    }
}

/// The reports of a device that the data plane has sent on by a plan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EntityReports {
    /// The plan's serial number.
    pub serial: u32,
    /// How many.
    pub reports: u64,
    /// The last one's number, which grows.
    pub last: u64,
    /// When that arrived: microseconds since 1970.
    pub received: u64,
    /// That report.
    pub latest: LatestReport,
}

/// Octets of the longest report that the table keeps: eight objects with flags, time and duration.
pub const LATEST_OCTETS_MAX: usize = 192;
const LATEST_WORDS: usize = LATEST_OCTETS_MAX / 4;
/// Words of the record of reports: six numbers, the length and naming of the latest, its octets.
const REPORTS_WORDS: usize = HEAD_WORDS + LATEST_WORDS;
const HEAD_WORDS: usize = 8;
/// Marks the length of a report that its time names.
const IS_TIMED: u32 = 1 << 31;

/// The latest report of a device, as it came; empty if it was longer than [`LATEST_OCTETS_MAX`].
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct LatestReport {
    /// Whether its readings are named by the device's time, not by the report's number.
    pub is_timed: bool,
    length: u32,
    octets: [u8; LATEST_OCTETS_MAX],
}

impl LatestReport {
    /// The report of these octets.
    #[inline]
    pub fn new(report: &[u8], is_timed: bool) -> Self {
        let mut octets = [0; LATEST_OCTETS_MAX];
        let length = match octets.get_mut(..report.len()) {
            Some(place) => {
                place.copy_from_slice(report);
                u32::try_from(report.len()).unwrap_or_default()
            }
            None => 0,
        };
        Self { is_timed, length, octets }
    }

    /// Its octets; none of a report that was too long.
    pub fn octets(&self) -> &[u8] {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        self.octets.get(..length).unwrap_or_default()
    }
}

impl Default for LatestReport {
    fn default() -> Self {
        Self::new(&[], false)
    }
}

impl fmt::Debug for LatestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LatestReport({} octets)", self.length)
    }
}

impl Record for EntityReports {
    const NAME: &'static str = "entity-reports/2";
    type Words = [u32; REPORTS_WORDS];

    #[inline]
    fn to_words(&self) -> [u32; REPORTS_WORDS] {
        let Self { serial, reports, last, received, latest } = self;
        let length = latest.length | if latest.is_timed { IS_TIMED } else { 0 };
        let head = Packer::<HEAD_WORDS>::default().word(*serial).octets(&reports.to_be_bytes());
        let head = head.octets(&last.to_be_bytes()).octets(&received.to_be_bytes());
        let head = head.word(length).finish();
        let (octets, _) = latest.octets.as_chunks::<4>();
        let mut words = [0; REPORTS_WORDS];
        // Two plain loops: this is done for each report.
        if let Some((first, rest)) = words.split_first_chunk_mut::<HEAD_WORDS>() {
            *first = head;
            for (place, word) in rest.iter_mut().zip(octets) {
                *place = u32::from_be_bytes(*word);
            }
        }
        words
    }

    #[inline]
    fn from_words(words: [u32; REPORTS_WORDS]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let serial = words.word()?;
        let mut number = || Some(u64::from_be_bytes(words.octets()?));
        let (reports, last, received) = (number()?, number()?, number()?);
        let length = words.word()?;
        let (is_timed, length) = (length & IS_TIMED > 0, length & !IS_TIMED);
        if usize::try_from(length).ok()? > LATEST_OCTETS_MAX {
            return None;
        }
        let latest = LatestReport { is_timed, length, octets: words.octets()? };
        Some(Self { serial, reports, last, received, latest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_words() {
        for length in [0, 1, 2, 3, 4, 5, PLAN_OCTETS_MAX - 1, PLAN_OCTETS_MAX] {
            let octets: Vec<u8> = (0..=255).cycle().take(length).collect();
            let plan = EntityPlan::new(7, &octets).unwrap();
            let read = EntityPlan::from_words(plan.to_words()).unwrap();
            assert_eq!((read.serial, read.octets()), (7, octets.as_slice()));
        }
        assert_eq!(EntityPlan::new(7, &[0; PLAN_OCTETS_MAX + 1]), None);
        let mut words = EntityPlan::new(7, &[]).unwrap().to_words();
        words[1] = u32::MAX;
        assert_eq!(EntityPlan::from_words(words), None);
    }

    #[test]
    fn reports_survive_their_words() {
        for (length, kept) in [(0, 0), (1, 1), (58, 58), (192, 192), (193, 0)] {
            let octets: Vec<u8> = (1..=255).cycle().take(length).collect();
            let latest = LatestReport::new(&octets, length % 2 == 0);
            assert_eq!(latest.octets(), &octets[..kept]);
            let reports = EntityReports {
                serial: 1,
                reports: u64::MAX,
                last: 1 << 40,
                received: 1 << 50,
                latest,
            };
            assert_eq!(EntityReports::from_words(reports.to_words()), Some(reports));
        }
        let mut words = EntityReports::default().to_words();
        words[HEAD_WORDS - 1] = 193;
        assert_eq!(EntityReports::from_words(words), None);
    }
}

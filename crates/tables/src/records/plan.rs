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
}

impl Record for EntityReports {
    const NAME: &'static str = "entity-reports/1";
    type Words = [u32; 7];

    #[inline]
    fn to_words(&self) -> [u32; 7] {
        let Self { serial, reports, last, received } = *self;
        let packer = Packer::default().word(serial).octets(&reports.to_be_bytes());
        packer.octets(&last.to_be_bytes()).octets(&received.to_be_bytes()).finish()
    }

    #[inline]
    fn from_words(words: [u32; 7]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let serial = words.word()?;
        let mut number = || Some(u64::from_be_bytes(words.octets()?));
        Some(Self { serial, reports: number()?, last: number()?, received: number()? })
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
        let reports =
            EntityReports { serial: 1, reports: u64::MAX, last: 1 << 40, received: 1 << 50 };
        assert_eq!(EntityReports::from_words(reports.to_words()), Some(reports));
    }
}

//! Records of one container's instances in a row, coded: what a block has of it.
//!
//! A start keeps runs as they are, and decodes one when its records are asked for or change. All
//! numbers are in LEB128. Of a run a block has:
//!
//! | content |
//! |---|
//! | count of records, and octets of the last two lines |
//! | flags: 1 if they expire in order, 2 if they were created in order, 4 and on for even numbers |
//! | the first record |
//! | the last record, as if it followed the first |
//! | by how much the highest stateTag, and the latest time of creation, are beyond the last record's |
//! | sum of the sizes, and how many of them are odd |
//! | the even numbers of a record |
//! | the records behind the first, oldest first, without their even numbers |
//!
//! A record is six numbers. Four are differences to the record before it (of the first, to zeros):
//! number, time of creation, lifetime, stateTag; differences that may be negative are zigzag-coded.
//! Two are the size, and the hash of the name. One that is the same in all records but the first is
//! even.

use crate::time::Timestamp;
use core::ops::Range;

/// Records of a run at most: they are decoded together.
pub(crate) const RUN_RECORDS: usize = 256;
/// Bits of a LEB128 octet that are the number's.
const GROUP_BITS: u32 = 7;

const EXPIRES_IN_ORDER: u64 = 1;
const CREATED_IN_ORDER: u64 = 2;
/// Factor of the flags of even numbers.
const EVEN: u64 = 4;

/// The part of an instance that stays in memory while its text is in the store only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InstanceRecord {
    /// Number of the resource.
    pub(crate) seq: u64,
    pub(crate) created: Timestamp,
    pub(crate) expires: Timestamp,
    /// `st`.
    pub(crate) state: u32,
    /// `cs`.
    pub(crate) size: u32,
    /// Hash of the name; 0 if the name was generated from the number.
    pub(crate) name: u32,
}

/// Records of one container, oldest first, coded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RecordRun {
    octets: Box<[u8]>,
    count: usize,
    first: InstanceRecord,
    last: InstanceRecord,
    /// A bit for each number of a record that is even.
    even: u8,
}

/// Numbers of a record that follows another.
type Numbers = [u64; 6];

/// What a start needs to know of the records of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RunSummary {
    /// Whether they expire in the order of their numbers.
    pub(crate) expires_in_order: bool,
    /// Whether they were created in that order.
    pub(crate) created_in_order: bool,
    /// The highest stateTag.
    pub(crate) state: u32,
    /// The latest time of creation.
    pub(crate) created: Timestamp,
    /// Sum of the sizes, and how many of them are odd.
    pub(crate) sizes: u64,
    pub(crate) odd_sizes: u64,
}

impl InstanceRecord {
    /// The record before the first, for differences.
    pub(crate) const ZERO: Self = Self {
        seq: 0,
        created: Timestamp::from_micros(0),
        expires: Timestamp::from_micros(0),
        state: 0,
        size: 0,
        name: 0,
    };
}

impl RecordRun {
    /// The run of these records of one container, oldest first; `None` without any.
    pub(crate) fn of(records: &[InstanceRecord]) -> Option<Self> {
        let (first, last) = (*records.first()?, *records.last()?);
        let pairs = records.iter().zip(records.iter().skip(1));
        let all: Vec<Numbers> = pairs.map(|(before, it)| numbers_of(before, it)).collect();
        let mut octets = Vec::new();
        let mut even = 0;
        let model = all.first().copied().unwrap_or_default();
        for (at, number) in model.into_iter().enumerate() {
            if !all.is_empty() && all.iter().all(|it| it.get(at) == Some(&number)) {
                even |= 1 << at;
                push(&mut octets, number);
            }
        }
        for numbers in all {
            let is_uneven = |(at, _): &(usize, u64)| even & (1 << at) == 0;
            let uneven = numbers.into_iter().enumerate().filter(is_uneven);
            uneven.for_each(|(_, number)| push(&mut octets, number));
        }
        Some(Self { octets: octets.into(), count: records.len(), first, last, even })
    }

    /// Reads a run of a block with these numbers; `None` if the octets are none.
    ///
    /// What it says of its records is not compared with them: it has the block's checksum.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        numbers: &Range<u64>,
    ) -> Option<(Self, RunSummary)> {
        let count = reader.number()?;
        let length = usize::try_from(reader.number()?).ok()?;
        let flags = reader.number()?;
        let first = reader.record(&InstanceRecord::ZERO)?;
        let last = reader.record(&first)?;
        let summary = RunSummary {
            expires_in_order: flags & EXPIRES_IN_ORDER != 0,
            created_in_order: flags & CREATED_IN_ORDER != 0,
            state: last.state.checked_add(u32::try_from(reader.number()?).ok()?)?,
            created: Timestamp::from_micros(last.created.micros().checked_add(reader.number()?)?),
            sizes: reader.number()?,
            odd_sizes: reader.number()?,
        };
        let octets = reader.take(length)?.into();
        let count_fits = (1..=numbers.end - numbers.start).contains(&count);
        let sizes_fit = summary.odd_sizes <= count.min(summary.sizes)
            && summary.sizes.div_ceil(u32::MAX.into()) <= count;
        let is_here = numbers.contains(&first.seq) && numbers.contains(&last.seq);
        let (count, even) = (usize::try_from(count).ok()?, u8::try_from(flags / EVEN).ok()?);
        (count_fits && sizes_fit && is_here)
            .then_some((Self { octets, count, first, last, even }, summary))
    }

    /// Appends it to the octets of a block.
    pub(crate) fn push_to(&self, octets: &mut Vec<u8>) {
        let summary = self.summary();
        push(octets, to_u64(self.count));
        push(octets, to_u64(self.octets.len()));
        let expires = if summary.expires_in_order { EXPIRES_IN_ORDER } else { 0 };
        let created = if summary.created_in_order { CREATED_IN_ORDER } else { 0 };
        push(octets, expires | created | (EVEN * u64::from(self.even)));
        push_record(octets, &InstanceRecord::ZERO, &self.first);
        push_record(octets, &self.first, &self.last);
        push(octets, (summary.state - self.last.state).into());
        push(octets, summary.created.micros() - self.last.created.micros());
        push(octets, summary.sizes);
        push(octets, summary.odd_sizes);
        octets.extend_from_slice(&self.octets);
    }

    /// The summary, of the records themselves.
    pub(crate) fn summary(&self) -> RunSummary {
        let mut summary = RunSummary {
            expires_in_order: true,
            created_in_order: true,
            state: 0,
            created: Timestamp::default(),
            sizes: 0,
            odd_sizes: 0,
        };
        let mut before: Option<InstanceRecord> = None;
        for record in self.records() {
            if let Some(before) = before.replace(record) {
                summary.expires_in_order &= before.expires <= record.expires;
                summary.created_in_order &= before.created <= record.created;
            }
            summary.state = summary.state.max(record.state);
            summary.created = summary.created.max(record.created);
            summary.sizes += u64::from(record.size);
            summary.odd_sizes += u64::from(record.size % 2);
        }
        summary
    }

    /// How many records it has.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The first record.
    pub(crate) const fn first(&self) -> InstanceRecord {
        self.first
    }

    /// The last record.
    pub(crate) const fn last(&self) -> InstanceRecord {
        self.last
    }

    /// The records, oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = InstanceRecord> {
        let mut reader = Reader(&self.octets);
        let mut numbers = Numbers::default();
        let mut read = move |wanted: u8| {
            for (at, number) in numbers.iter_mut().enumerate() {
                if wanted & (1 << at) != 0 {
                    *number = reader.number()?;
                }
            }
            Some(numbers)
        };
        read(self.even);
        let next = move |before: &InstanceRecord| following(before, read(!self.even)?);
        // As many as it says, and none behind its last, whatever the octets are.
        let records = core::iter::successors(Some(self.first), next).take(self.count);
        records.take_while(|record| record.seq <= self.last.seq)
    }

    /// The record with this number.
    pub(crate) fn get(&self, seq: u64) -> Option<InstanceRecord> {
        self.records().find(|record| record.seq == seq)
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Octets that are still to be read.
pub(crate) struct Reader<'octets>(pub(crate) &'octets [u8]);

impl<'octets> Reader<'octets> {
    /// The next octets, so many.
    pub(crate) fn take(&mut self, length: usize) -> Option<&'octets [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Mostly it has one octet.
        if let Some((&octet, rest)) = self.0.split_first()
            && octet < 0x80
        {
            self.0 = rest;
            return Some(octet.into());
        }
        self.long_number()
    }

    /// A number of several octets: at once, if it ends within eight.
    fn long_number(&mut self) -> Option<u64> {
        let word = self.0.first_chunk().map_or(u64::MAX, |octets| u64::from_le_bytes(*octets));
        let last = !word & 0x8080_8080_8080_8080;
        if last == 0 {
            return self.any_number();
        }
        let bits = last.trailing_zeros() + 1;
        self.0 = self.0.get(usize::try_from(bits / u8::BITS).ok()?..)?;
        // The groups of seven bits are moved together: two, then four, then all of them.
        let groups = word & (u64::MAX >> (u64::BITS - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
        let pairs = (groups & 0x007f_007f_007f_007f) | ((groups & 0x7f00_7f00_7f00_7f00) >> 1);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        Some((fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4))
    }

    fn any_number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let (&octet, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(octet & 0x7f).checked_shl(shift)?;
            if octet < 0x80 {
                return Some(number);
            }
            shift += GROUP_BITS;
        }
    }

    /// A record that follows another.
    pub(crate) fn record(&mut self, before: &InstanceRecord) -> Option<InstanceRecord> {
        let mut numbers = Numbers::default();
        for number in &mut numbers {
            *number = self.number()?;
        }
        following(before, numbers)
    }
}

/// The record that follows another, with these numbers.
fn following(before: &InstanceRecord, numbers: Numbers) -> Option<InstanceRecord> {
    let beyond =
        |number: u64, coded: u64| number.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg());
    let [seq, created, lifetime, state, size, name] = numbers;
    let created = beyond(before.created.micros(), created);
    let lifetime = beyond(lifetime_of(before), lifetime);
    Some(InstanceRecord {
        seq: before.seq.checked_add(seq)?,
        created: Timestamp::from_micros(created),
        expires: Timestamp::from_micros(created.wrapping_add(lifetime)),
        state: u32::try_from(beyond(before.state.into(), state)).ok()?,
        size: u32::try_from(size).ok()?,
        name: u32::try_from(name).ok()?,
    })
}

/// The numbers of a record that follows another.
fn numbers_of(before: &InstanceRecord, record: &InstanceRecord) -> Numbers {
    let beyond = |before: u64, number: u64| {
        let difference = number.wrapping_sub(before);
        (difference << 1) ^ (difference >> 63).wrapping_neg()
    };
    [
        record.seq.wrapping_sub(before.seq),
        beyond(before.created.micros(), record.created.micros()),
        beyond(lifetime_of(before), lifetime_of(record)),
        beyond(before.state.into(), record.state.into()),
        record.size.into(),
        record.name.into(),
    ]
}

const fn lifetime_of(record: &InstanceRecord) -> u64 {
    record.expires.micros().wrapping_sub(record.created.micros())
}

/// Writes a record that follows another.
pub(crate) fn push_record(octets: &mut Vec<u8>, before: &InstanceRecord, record: &InstanceRecord) {
    for number in numbers_of(before, record) {
        push(octets, number);
    }
}

/// Writes a number.
pub(crate) fn push(octets: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= GROUP_BITS;
        if number == 0 {
            octets.push(low & 0x7f);
            return;
        }
        octets.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of each length, alone and before others: both ways of reading them agree.
    #[test]
    fn numbers_are_read_as_they_were_written() {
        let lengths = (0..64).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (3 << bits) / 2]);
        for number in lengths.chain([u64::MAX]) {
            for behind in 0..12 {
                let mut octets = Vec::new();
                push(&mut octets, number);
                let length = octets.len();
                octets.extend(core::iter::repeat_n(0xff, behind));
                let mut reader = Reader(&octets);
                assert_eq!(reader.number(), Some(number));
                assert_eq!(reader.0.len(), behind);
                let mut slow = Reader(&octets[..length]);
                assert_eq!(slow.any_number(), Some(number));
                let mut short = Reader(&octets[..length - 1]);
                assert_eq!(short.number(), None);
            }
        }
    }

    prop_compose! {
        fn any_record()(
            created in any::<u64>(), expires in any::<u64>(), state in any::<u32>(),
            size in any::<u32>(), name in any::<u32>(), near in any::<bool>(), lifetime in 0_u64..3,
        ) -> InstanceRecord {
            let created = if near { 1_800_000_000_000_000 + created % 1_000 } else { created };
            let expires = if near { created + lifetime } else { expires };
            InstanceRecord {
                seq: 0,
                created: Timestamp::from_micros(created),
                expires: Timestamp::from_micros(expires),
                state,
                size,
                name,
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(records in prop::collection::vec(any_record(), 0..40)) {
            let (mut octets, mut before, mut written) = (Vec::new(), InstanceRecord::ZERO, Vec::new());
            for (seq, record) in (0..).zip(records) {
                let record = InstanceRecord { seq: seq * 7, ..record };
                push_record(&mut octets, &before, &record);
                written.push(record);
                before = record;
            }
            let (mut reader, mut before) = (Reader(&octets), InstanceRecord::ZERO);
            for record in written {
                before = reader.record(&before).unwrap();
                prop_assert_eq!(before, record);
            }
            prop_assert!(reader.0.is_empty());
            prop_assert_eq!(reader.record(&before), None);
        }

        #[test]
        fn a_run_is_read_as_it_was_written_with_what_it_says_of_its_records(
            records in prop::collection::vec(any_record(), 1..40), gap in 1_u64..90, even in any::<[bool; 6]>()
        ) {
            // Each number of the first, as if it was even, or its own.
            let model = records[0];
            let mut seq = 5;
            let records: Vec<_> = records.into_iter().map(|record| {
                let pick = |at: usize| if even[at] { model } else { record };
                let at = seq;
                seq += if even[0] { gap } else { 1 + record.created.micros() % gap };
                InstanceRecord {
                    seq: at,
                    created: pick(1).created,
                    expires: pick(2).expires,
                    state: pick(3).state,
                    size: pick(4).size,
                    name: pick(5).name,
                }
            }).collect();
            let mut octets = Vec::new();
            RecordRun::of(&records).unwrap().push_to(&mut octets);
            let mut reader = Reader(&octets);
            let (run, summary) = RecordRun::read(&mut reader, &(0..4_096)).unwrap();
            prop_assert!(reader.0.is_empty());
            prop_assert!(run.records().eq(records.iter().copied()));
            prop_assert_eq!((run.count(), run.first(), run.last()), (records.len(), records[0], records[records.len() - 1]));
            prop_assert_eq!(run.get(records[0].seq), Some(records[0]));
            prop_assert_eq!(run.get(4), None);
            prop_assert_eq!(summary, RunSummary {
                expires_in_order: records.is_sorted_by_key(|it| it.expires),
                created_in_order: records.is_sorted_by_key(|it| it.created),
                state: records.iter().map(|it| it.state).max().unwrap(),
                created: records.iter().map(|it| it.created).max().unwrap(),
                sizes: records.iter().map(|it| u64::from(it.size)).sum(),
                odd_sizes: records.iter().map(|it| u64::from(it.size % 2)).sum(),
            });
            // Of other numbers, or cut short, it is none.
            for numbers in [0..5, 6..4_096, 0..run.last().seq] {
                prop_assert!(RecordRun::read(&mut Reader(&octets), &numbers).is_none());
            }
            for end in 0..octets.len() {
                prop_assert!(RecordRun::read(&mut Reader(&octets[..end]), &(0..4_096)).is_none());
            }
        }
    }
}

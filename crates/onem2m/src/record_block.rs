//! Records of the contentInstances with consecutive numbers, as one row of a store: a start reads
//! them instead of the instances.
//!
//! A block is made from stored rows. It covers the instances that may be paged out; every other row
//! is read one by one, as those without a block are. Layout, all numbers in LEB128 after the header:
//!
//! | octets | content |
//! |---|---|
//! | 1 | version |
//! | 16 | key of the hashes of names |
//! | | count of records |
//! | | for each container, once or more: its number, and a run of its records, oldest first |
//!
//! [`record_run`](crate::record_run) has the layout of a run. Version 1 had, in its place, the count of
//! records and these: it is read as well.

use crate::name_hash::NameKey;
use crate::paged::InstanceRecord;
use crate::record_run::{RUN_RECORDS, Reader, RecordRun, RunSummary, push};
use crate::resource::{Resource, push_number, row_octets};
use crate::resource_type::ResourceType;
use crate::stored::{InstanceHeader, attributes_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the layout.
const VERSION: u8 = 2;
/// The version whose records are not in runs.
const VERSION_WITHOUT_RUNS: u8 = 1;
/// Records from which a run takes less memory than they do.
const LONG_RUN: usize = 4;
/// Octets of the bits that say which instances are still there.
const PRESENT_OCTETS: usize = 512;

/// Attributes of an instance that stays in memory: it is found or changed by them.
pub(crate) const RESIDENT_BY: [&str; 4] = ["lbl", "at", "aa", "loc"];

/// Records of the contentInstances with consecutive numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordBlock {
    first: u64,
    octets: Vec<u8>,
    present: PresentInstances,
    /// The records by container, if they were divided.
    divided: Option<Vec<ContainerRecords>>,
}

/// Which instances of a block's numbers have their record there and were not deleted since.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PresentInstances([u8; PRESENT_OCTETS]);

/// The records of one container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ContainerRecords {
    /// The container's number.
    pub(crate) container: u64,
    pub(crate) records: BlockRecords,
}

/// Records of a block, at least one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum BlockRecords {
    /// All of a run.
    Run(RecordRun, RunSummary),
    /// Those of a run that are still there, or of a block without runs.
    Decoded(Vec<InstanceRecord>),
}

impl BlockRecords {
    /// The records themselves.
    pub(crate) fn decoded(self) -> Vec<InstanceRecord> {
        match self {
            Self::Run(run, _) => run.records().collect(),
            Self::Decoded(records) => records,
        }
    }
}

impl PresentInstances {
    /// None.
    pub const fn new() -> Self {
        Self([0; PRESENT_OCTETS])
    }

    /// Reads what [`Self::as_octets`] has given.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok().map(Self)
    }

    /// A bit for each number, the lowest first.
    pub const fn as_octets(&self) -> &[u8] {
        &self.0
    }

    /// Whether the instance with this place in the block is there.
    pub fn has(&self, place: u64) -> bool {
        let bit = |(octet, mask): (usize, u8)| self.0.get(octet).is_some_and(|it| it & mask != 0);
        place_of(place).is_some_and(bit)
    }

    /// Notes that an instance is there.
    pub fn insert(&mut self, place: u64) {
        if let Some((octet, mask)) = place_of(place)
            && let Some(octet) = self.0.get_mut(octet)
        {
            *octet |= mask;
        }
    }

    /// Notes that an instance is not there.
    pub fn remove(&mut self, place: u64) {
        if let Some((octet, mask)) = place_of(place)
            && let Some(octet) = self.0.get_mut(octet)
        {
            *octet &= !mask;
        }
    }

    /// How many are there.
    fn count(&self) -> u64 {
        self.0.iter().map(|octet| u64::from(octet.count_ones())).sum()
    }

    /// Whether none is there.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|octet| *octet == 0)
    }
}

impl Default for PresentInstances {
    fn default() -> Self {
        Self::new()
    }
}

/// Octet and mask of a place.
fn place_of(place: u64) -> Option<(usize, u8)> {
    let octet = usize::try_from(place / u64::from(u8::BITS)).ok()?;
    Some((octet, 1 << (place % u64::from(u8::BITS))))
}

impl RecordBlock {
    /// How many consecutive numbers a block is about.
    pub const NUMBERS: u64 = 4_096;

    /// The block of the numbers from `first` on, of these rows with their texts. It covers those
    /// that [`Self::present`] tells; the others are to be read one by one.
    pub fn of_rows(
        first: u64,
        key: NameKey,
        rows: impl IntoIterator<Item = (u64, Arc<str>)>,
    ) -> Self {
        let mut by_container: BTreeMap<u64, Vec<InstanceRecord>> = BTreeMap::new();
        for (seq, body) in rows {
            if let Some((container, record)) = record_of(seq, &body, key)
                && seq.checked_sub(first).is_some_and(|place| place < Self::NUMBERS)
            {
                by_container.entry(container).or_default().push(record);
            }
        }
        let mut present = PresentInstances::new();
        let mut octets = vec![VERSION];
        for number in key.numbers() {
            octets.extend(number.to_le_bytes());
        }
        let count: usize = by_container.values().map(Vec::len).sum();
        push(&mut octets, to_u64(count));
        for (container, records) in by_container {
            for record in &records {
                present.insert(record.seq - first);
            }
            for run in records.chunks(RUN_RECORDS).filter_map(RecordRun::of) {
                push(&mut octets, container);
                run.push_to(&mut octets);
            }
        }
        Self { first, octets, present, divided: None }
    }

    /// Reads what [`Self::as_octets`] has given, with the instances that are still there; `None` if
    /// it is of another version or its hashes have another key.
    pub fn from_octets(
        first: u64,
        octets: Vec<u8>,
        present: PresentInstances,
        key: NameKey,
    ) -> Option<Self> {
        let (_, its_key) = header(&mut Reader(&octets))?;
        (its_key == key).then_some(Self { first, octets, present, divided: None })
    }

    /// The stored form.
    pub fn as_octets(&self) -> &[u8] {
        &self.octets
    }

    /// The first of its numbers.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The instances that it covers.
    pub const fn present(&self) -> &PresentInstances {
        &self.present
    }

    /// Key of the hashes of names.
    pub(crate) fn key(&self) -> Option<NameKey> {
        header(&mut Reader(&self.octets)).map(|(_, key)| key)
    }

    /// Divides the records by container, so that who opens a CSE with them need not.
    pub fn divide(&mut self) {
        self.divided = Some(self.containers().collect());
    }

    /// The records of the instances that are there, by container.
    pub(crate) fn into_containers(mut self) -> Vec<ContainerRecords> {
        self.divided.take().unwrap_or_else(|| self.containers().collect())
    }

    /// The records of the instances that are there, by container; ends early where the octets are
    /// none of a block.
    fn containers(&self) -> impl Iterator<Item = ContainerRecords> {
        let mut reader = Reader(&self.octets);
        let version = header(&mut reader).map(|(version, _)| version);
        let is_whole = reader.number() == Some(self.present.count());
        let mut left = Self::NUMBERS;
        let next = move || {
            let container = reader.number()?;
            let records = match version? {
                VERSION => {
                    let numbers = self.first..self.first.saturating_add(Self::NUMBERS);
                    let (run, summary) = RecordRun::read(&mut reader, &numbers)?;
                    left = left.checked_sub(to_u64(run.count()))?;
                    self.those_of(run, summary, is_whole)
                }
                _ => BlockRecords::Decoded(self.those_there(records_without_run(&mut reader)?)),
            };
            Some(ContainerRecords { container, records })
        };
        let is_empty =
            |records: &BlockRecords| matches!(records, BlockRecords::Decoded(it) if it.is_empty());
        core::iter::from_fn(next).filter(move |it| !is_empty(&it.records))
    }

    /// The records of a run that are there; `is_whole` if all records of the block are.
    fn those_of(&self, run: RecordRun, summary: RunSummary, is_whole: bool) -> BlockRecords {
        let is_long = run.count() >= LONG_RUN;
        if is_whole && is_long {
            return BlockRecords::Run(run, summary);
        }
        let records = self.those_there(run.records().collect());
        if is_long && records.len() == run.count() {
            BlockRecords::Run(run, summary)
        } else {
            BlockRecords::Decoded(records)
        }
    }

    fn those_there(&self, mut records: Vec<InstanceRecord>) -> Vec<InstanceRecord> {
        records.retain(|record| self.present.has(record.seq.wrapping_sub(self.first)));
        records
    }

    /// What the block says of each of its instances, for comparisons.
    pub fn summaries(&self) -> impl Iterator<Item = (u64, String)> {
        self.containers().flat_map(|ContainerRecords { container, records }| {
            let one = move |it: InstanceRecord| (it.seq, format!("{container} {it:?}"));
            records.decoded().into_iter().map(one)
        })
    }
}

/// The record of a stored row with the number of its container, if the row is that of an instance
/// that may be paged out.
fn record_of(seq: u64, body: &Arc<str>, key: NameKey) -> Option<(u64, InstanceRecord)> {
    if !InstanceHeader::is_in(body) {
        return None;
    }
    let instance = Resource::from_record(seq, body).ok()?;
    let mut id = String::with_capacity(16);
    id.push_str(ResourceType::ContentInstance.prefix());
    push_number::<16>(&mut id, seq);
    if *instance.id != *id || stays_in_memory(&instance, body) {
        return None;
    }
    let container = container_number(&instance.parent_id)?;
    Some((container, InstanceRecord::of(&instance, key)?))
}

/// Whether an instance stays in memory: because of an attribute, or because its text takes up more
/// octets of the store than its record would tell.
pub(crate) fn stays_in_memory(instance: &Resource, text: &str) -> bool {
    text.len() > row_octets(instance.size) || has_resident_attribute(instance, text)
}

fn has_resident_attribute(instance: &Resource, text: &str) -> bool {
    let is_resident = |name: &str| RESIDENT_BY.contains(&name);
    !instance.is_plain
        && mentions_one(text)
        && !attributes_of(instance.inner(text), is_resident).is_empty()
}

/// Whether a text may have an attribute of [`RESIDENT_BY`]; in one pass over its colons, as each
/// instance is asked for it.
fn mentions_one(text: &str) -> bool {
    text.match_indices(':').any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.strip_suffix('"'));
        let is_of = |name: &&str| {
            let quote = before.and_then(|before| before.strip_suffix(*name));
            quote.is_some_and(|before| before.ends_with('"'))
        };
        RESIDENT_BY.iter().any(is_of)
    })
}

/// The number that a container's identifier tells.
fn container_number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix(ResourceType::Container.prefix())?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (container_id(number) == id).then_some(number)
}

/// The identifier of the container with this number.
pub(crate) fn container_id(number: u64) -> String {
    let mut id = String::with_capacity(16);
    id.push_str(ResourceType::Container.prefix());
    push_number::<16>(&mut id, number);
    id
}

/// Reads version and key.
fn header(reader: &mut Reader<'_>) -> Option<(u8, NameKey)> {
    let &[version] = reader.take(1)?.first_chunk()?;
    let mut half = || reader.take(8)?.first_chunk().copied().map(u64::from_le_bytes);
    let key = NameKey::new([half()?, half()?]);
    [VERSION, VERSION_WITHOUT_RUNS].contains(&version).then_some((version, key))
}

/// Reads the records of a container that are in no run.
fn records_without_run(reader: &mut Reader<'_>) -> Option<Vec<InstanceRecord>> {
    let count = reader.number()?;
    let mut before = InstanceRecord::ZERO;
    let mut records = Vec::new();
    for _ in 0..count {
        before = reader.record(&before)?;
        records.push(before);
    }
    Some(records)
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_run::push_record;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    const KEY: NameKey = NameKey::new([1, 2]);

    fn records(block: &RecordBlock) -> Vec<(u64, InstanceRecord)> {
        let containers = block.containers();
        let mut all: Vec<_> = containers
            .flat_map(|it| {
                it.records.decoded().into_iter().map(move |record| (it.container, record))
            })
            .collect();
        all.sort_unstable_by_key(|(_, record)| record.seq);
        all
    }

    fn row(seq: u64, container: u64, name: &str, more: &str) -> Arc<str> {
        format!(
            "{{\"m2m:cin\":{{\"ri\":\"cin{seq:x}\",\"rn\":\"{name}\",\"pi\":\"cnt{container:x}\",\"ty\":4,\
             \"ct\":\"20261124T060000,000001\",\"lt\":\"20261124T060000,000001\",\
             \"et\":\"20271124T060000,000000\",\"st\":3,\"cs\":2{more},\"con\":\"lbl\"}}}}"
        )
        .into()
    }

    #[test]
    fn names_of_attributes_are_told_from_parts_of_names_and_from_contents() {
        for (text, is_there) in [
            (r#"{"m2m:cin":{"rn":"a","lbl":["x"],"con":"1"}}"#, true),
            (r#"{"m2m:cin":{"con":1,"at":["/other"]}}"#, true),
            (r#"{"m2m:cin":{"aa":[]}}"#, true),
            (r#"{"m2m:cin":{"loc":{}}}"#, true),
            (r#"{"m2m:cin":{"con":"lbl","rn":"at"}}"#, false),
            (r#"{"m2m:cin":{"blbl":1,"cat":2,"locs":3}}"#, false),
            (r#"{"m2m:cin":{"con":"{\"lbl\":1}"}}"#, false),
            ("lbl\":", false),
            (":", false),
        ] {
            assert_eq!(mentions_one(text), is_there, "{text}");
        }
    }

    #[test]
    fn a_block_covers_instances_that_may_be_paged_out_and_no_other_row() {
        let generated = format!("cin_{:x}", 5);
        let rows = [
            (4, r#"{"m2m:cnt":{"ri":"cnt4"}}"#.into()),
            (5, row(5, 4, &generated, "")),
            (6, row(6, 4, "given", ",\"cnf\":\"text/plain:0\"")),
            (7, row(7, 4, "labelled", ",\"lbl\":[\"a\"]")),
            (8, row(8, 4, "placed", ",\"loc\":{\"typ\":1,\"crd\":\"[1,2]\"}")),
            (9, row(9, 2, "elsewhere", "")),
            // Another number's, one below something else, one cut short, and one beyond the block.
            (10, row(11, 4, "another", "")),
            (12, row(12, 4, "below", "").replace("cnt4", "Cae").into()),
            (13, row(13, 4, "short", "").strip_suffix("}}").unwrap().into()),
            (4_096, row(4_096, 4, "beyond", "")),
        ];
        let block = RecordBlock::of_rows(0, KEY, rows);
        let covered: Vec<u64> = (0..4_096).filter(|it| block.present().has(*it)).collect();
        assert_eq!(covered, [5, 6, 9]);
        let found = records(&block);
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [4, 4, 2]);
        let names: Vec<u32> = found.iter().map(|it| it.1.name).collect();
        assert_eq!(names, [0, KEY.hash("given"), KEY.hash("elsewhere")]);
        let first = found[0].1;
        assert_eq!((first.state, first.size), (3, 2));
        assert_eq!(Timestamp::parse("20261124T060000,000001"), Some(first.created));
        assert_eq!(Timestamp::parse("20271124T060000,000000"), Some(first.expires));
        // Those that were deleted since are left out.
        let mut present = block.present().clone();
        present.remove(6);
        let octets = block.as_octets().to_vec();
        let again = RecordBlock::from_octets(0, octets.clone(), present, KEY).unwrap();
        assert_eq!(records(&again).iter().map(|it| it.1.seq).collect::<Vec<_>>(), [5, 9]);
        let other = NameKey::new([1, 3]);
        let refused = RecordBlock::from_octets(0, octets, PresentInstances::new(), other);
        assert_eq!(refused, None);
    }

    /// Records of one container are in runs of bounded length, and one that lacks a record is decoded.
    #[test]
    fn runs_are_bounded_and_stay_whole_unless_a_record_is_gone() {
        let rows = (5..4_000).map(|seq| (seq, row(seq, 4, "given", "")));
        let block = RecordBlock::of_rows(0, KEY, rows);
        let runs = |block: &RecordBlock| -> Vec<(bool, usize)> {
            let each = block.containers().map(|it| {
                let is_run = matches!(it.records, BlockRecords::Run(..));
                (is_run, it.records.decoded().len())
            });
            each.collect()
        };
        let whole: Vec<_> = runs(&block);
        assert_eq!(whole.len(), 3_995_usize.div_ceil(RUN_RECORDS));
        assert!(whole.iter().all(|(is_run, count)| *is_run && *count <= RUN_RECORDS));
        let mut present = block.present().clone();
        (5..5 + 256).chain([300]).for_each(|place| present.remove(place));
        let again = RecordBlock::from_octets(0, block.as_octets().to_vec(), present, KEY).unwrap();
        let left = runs(&again);
        assert_eq!(left[0], (false, RUN_RECORDS - 1));
        assert_eq!(left[1..], whole[2..]);
        assert_eq!(records(&again).len(), 3_995 - 257);
    }

    /// A block of the first version has the same records as one of this version.
    #[test]
    fn a_block_without_runs_is_read() {
        let rows = || (5..900).map(|seq| (seq, row(seq, seq % 3, "given", "")));
        let block = RecordBlock::of_rows(0, KEY, rows());
        let mut octets = vec![VERSION_WITHOUT_RUNS];
        octets.extend(KEY.numbers().map(u64::to_le_bytes).concat());
        push(&mut octets, 895);
        for container in 0..3 {
            let its = records(&block).into_iter().filter(|(of, _)| *of == container);
            let its: Vec<_> = its.map(|(_, record)| record).collect();
            push(&mut octets, container);
            push(&mut octets, to_u64(its.len()));
            let mut before = InstanceRecord::ZERO;
            for record in its {
                push_record(&mut octets, &before, &record);
                before = record;
            }
        }
        let earlier = RecordBlock::from_octets(0, octets, block.present().clone(), KEY).unwrap();
        assert_eq!(records(&earlier), records(&block));
    }

    proptest! {
        #[test]
        fn octets_that_are_none_of_a_block_are_no_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut whole = vec![VERSION];
            whole.extend(KEY.numbers().map(u64::to_le_bytes).concat());
            whole.extend(octets);
            let present = PresentInstances([u8::MAX; PRESENT_OCTETS]);
            let block = RecordBlock::from_octets(9, whole, present, KEY).unwrap();
            let count: usize = block.containers().map(|it| it.records.decoded().len()).sum();
            prop_assert!(to_u64(count) <= RecordBlock::NUMBERS);
        }
    }
}

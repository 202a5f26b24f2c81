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
//! | | for each container: its number, count of its records, and these, oldest first |
//!
//! A record is the differences to the one before it of that container (the first, to zeros): number,
//! time of creation, lifetime, stateTag; then the size, and the hash of the name. Differences that
//! may be negative are zigzag-coded.

use crate::name_hash::NameKey;
use crate::paged::InstanceRecord;
use crate::resource::{Resource, push_number, row_octets};
use crate::resource_type::ResourceType;
use crate::stored::{InstanceHeader, attributes_of};
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the layout.
const VERSION: u8 = 1;
/// Bits of a LEB128 octet that are the number's.
const GROUP_BITS: u32 = 7;
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
    /// The records, if they were decoded.
    decoded: Option<Vec<ContainerRecords>>,
}

/// Which instances of a block's numbers have their record there and were not deleted since.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PresentInstances([u8; PRESENT_OCTETS]);

/// The records of one container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ContainerRecords {
    /// The container's number.
    pub(crate) container: u64,
    pub(crate) records: Vec<InstanceRecord>,
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
            push(&mut octets, container);
            push(&mut octets, to_u64(records.len()));
            let mut before = InstanceRecord::ZERO;
            for record in records {
                present.insert(record.seq - first);
                push_record(&mut octets, &before, &record);
                before = record;
            }
        }
        Self { first, octets, present, decoded: None }
    }

    /// Reads what [`Self::as_octets`] has given, with the instances that are still there; `None` if
    /// it is of another version or its hashes have another key.
    pub fn from_octets(
        first: u64,
        octets: Vec<u8>,
        present: PresentInstances,
        key: NameKey,
    ) -> Option<Self> {
        let mut reader = Reader(&octets);
        let is_ours = reader.header()? == key;
        is_ours.then_some(Self { first, octets, present, decoded: None })
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
        Reader(&self.octets).header()
    }

    /// Decodes the records, so that who opens a CSE with them need not.
    pub fn decode(&mut self) {
        self.decoded = Some(self.containers().collect());
    }

    /// The records of the instances that are there, by container.
    pub(crate) fn into_containers(mut self) -> Vec<ContainerRecords> {
        self.decoded.take().unwrap_or_else(|| self.containers().collect())
    }

    /// The records of the instances that are there, by container; ends early where the octets are
    /// none of a block.
    pub(crate) fn containers(&self) -> impl Iterator<Item = ContainerRecords> {
        let mut reader = Reader(&self.octets);
        let is_readable = reader.header().is_some() && reader.number().is_some();
        core::iter::from_fn(move || {
            if !is_readable {
                return None;
            }
            let (container, count) = (reader.number()?, reader.number()?);
            let mut records = Vec::with_capacity(usize::try_from(count.min(Self::NUMBERS)).ok()?);
            let mut before = InstanceRecord::ZERO;
            for _ in 0..count {
                before = reader.record(&before)?;
                let place = before.seq.wrapping_sub(self.first);
                if self.present.has(place) {
                    records.push(before);
                }
            }
            Some(ContainerRecords { container, records })
        })
    }

    /// What the block says of each of its instances, for comparisons.
    pub fn summaries(&self) -> impl Iterator<Item = (u64, String)> {
        self.containers().flat_map(|ContainerRecords { container, records }| {
            records.into_iter().map(move |record| (record.seq, format!("{container} {record:?}")))
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

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Octets that are still to be read.
struct Reader<'octets>(&'octets [u8]);

impl Reader<'_> {
    fn header(&mut self) -> Option<NameKey> {
        let (&version, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk()?;
        self.0 = rest;
        let key = NameKey::new([u64::from_le_bytes(*first), u64::from_le_bytes(*second)]);
        (version == VERSION).then_some(key)
    }

    fn number(&mut self) -> Option<u64> {
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

    /// A number and the difference from it that follows.
    fn beyond(&mut self, before: u64) -> Option<u64> {
        let coded = self.number()?;
        Some(before.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg()))
    }

    fn record(&mut self, before: &InstanceRecord) -> Option<InstanceRecord> {
        let seq = before.seq.checked_add(self.number()?)?;
        let created = self.beyond(before.created.micros())?;
        let lifetime = self.beyond(lifetime_of(before))?;
        let state = u32::try_from(self.beyond(before.state.into())?).ok()?;
        let (size, name) = (self.number()?, self.number()?);
        Some(InstanceRecord {
            seq,
            created: Timestamp::from_micros(created),
            expires: Timestamp::from_micros(created.wrapping_add(lifetime)),
            state,
            size: u32::try_from(size).ok()?,
            name: u32::try_from(name).ok()?,
        })
    }
}

const fn lifetime_of(record: &InstanceRecord) -> u64 {
    record.expires.micros().wrapping_sub(record.created.micros())
}

fn push_record(octets: &mut Vec<u8>, before: &InstanceRecord, record: &InstanceRecord) {
    push(octets, record.seq.wrapping_sub(before.seq));
    push_beyond(octets, before.created.micros(), record.created.micros());
    push_beyond(octets, lifetime_of(before), lifetime_of(record));
    push_beyond(octets, before.state.into(), record.state.into());
    push(octets, record.size.into());
    push(octets, record.name.into());
}

/// Writes the difference between two numbers, zigzag-coded.
fn push_beyond(octets: &mut Vec<u8>, before: u64, number: u64) {
    let difference = number.wrapping_sub(before);
    push(octets, (difference << 1) ^ (difference >> 63).wrapping_neg());
}

fn push(octets: &mut Vec<u8>, mut number: u64) {
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

    const KEY: NameKey = NameKey::new([1, 2]);

    fn records(block: &RecordBlock) -> Vec<(u64, InstanceRecord)> {
        let containers = block.containers();
        let mut all: Vec<_> = containers
            .flat_map(|it| it.records.into_iter().map(move |record| (it.container, record)))
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
        fn octets_that_are_none_of_a_block_are_no_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut whole = vec![VERSION];
            whole.extend(KEY.numbers().map(u64::to_le_bytes).concat());
            whole.extend(octets);
            let present = PresentInstances([u8::MAX; PRESENT_OCTETS]);
            let block = RecordBlock::from_octets(9, whole, present, KEY).unwrap();
            let count: usize = block.containers().map(|it| it.records.len()).sum();
            prop_assert!(count <= block.as_octets().len());
        }
    }
}

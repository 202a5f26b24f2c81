//! Records of the contentInstances of a container whose text is in the store only.
//!
//! A record has what a walk over the tree checks and what a deletion needs: number, times of
//! creation and expiry, stateTag, size, and a hash of the name. It takes 36 octets, and 12 more if
//! the originator gave the name; a generated name follows from the number.

use crate::dense::DenseMap;
use crate::name_hash::NameKey;
use crate::resource::{Resource, push_number};
use crate::resource_type::ResourceType;
use crate::time::Timestamp;
use core::cell::RefCell;
use serde_json::Map;
use std::borrow::Cow;
use std::sync::Arc;

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

/// A 64-bit number in ascending order, which is aligned as one of 32 bits: a record with its number
/// takes 36 octets instead of 40.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct PackedNumber {
    high: u32,
    low: u32,
}

/// A record without its number.
#[derive(Clone, Copy, Debug)]
struct Packed {
    created: PackedNumber,
    expires: PackedNumber,
    state: u32,
    size: u32,
    name: u32,
}

/// The records of one container.
#[derive(Clone, Debug, Default)]
pub(crate) struct PagedInstances {
    by_seq: DenseMap<PackedNumber, Packed>,
    names: RefCell<Names>,
    /// By time of expiry, once an instance has expired before an older one; otherwise they expire
    /// in the order of their numbers.
    expiry: Option<DenseMap<(PackedNumber, PackedNumber), ()>>,
}

/// Hash of a given name, with the lower half of the instance's number.
type NamedInstance = (u32, u32);

/// Hashes of given names. Those that come at a start are sorted when one is looked for: a start
/// would take longer than all other steps together otherwise.
#[derive(Clone, Debug, Default)]
struct Names {
    sorted: DenseMap<NamedInstance, ()>,
    /// In pieces of bounded size, of which no part is unused for long.
    unsorted: Vec<Vec<NamedInstance>>,
}

/// Names of a piece of [`Names`].
const NAMES_PIECE: usize = 1_024;

impl Names {
    /// Adds a name that need not be found soon.
    fn push(&mut self, name: NamedInstance) {
        match self.unsorted.last_mut().filter(|piece| piece.len() < NAMES_PIECE) {
            Some(piece) => piece.push(name),
            None => self.unsorted.push(vec![name]),
        }
    }

    /// All of them, sorted.
    fn sorted(&mut self) -> &mut DenseMap<NamedInstance, ()> {
        if !self.unsorted.is_empty() {
            let mut all = core::mem::take(&mut self.unsorted).concat();
            all.extend(self.sorted.iter().map(|(name, ())| name));
            all.sort_unstable();
            self.sorted = DenseMap::default();
            for name in all {
                self.sorted.insert(name, ());
            }
        }
        &mut self.sorted
    }
}

impl From<u64> for PackedNumber {
    fn from(number: u64) -> Self {
        let half = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { high: half(number >> 32), low: half(number) }
    }
}

impl From<PackedNumber> for u64 {
    fn from(PackedNumber { high, low }: PackedNumber) -> Self {
        (Self::from(high) << 32) | Self::from(low)
    }
}

impl InstanceRecord {
    /// The record before the first, for differences.
    pub(crate) const ZERO: Self = Self::unpacked(
        0,
        Packed {
            created: PackedNumber { high: 0, low: 0 },
            expires: PackedNumber { high: 0, low: 0 },
            state: 0,
            size: 0,
            name: 0,
        },
        0,
        0,
    );

    /// The record of a resident instance, with the hash of its name by this key; `None` if it does not
    /// fit.
    pub(crate) fn of(instance: &Resource, key: NameKey) -> Option<Self> {
        let is_generated = number_of(&instance.name) == Some(instance.seq);
        Some(Self {
            seq: instance.seq,
            created: instance.created,
            expires: instance.expires,
            state: u32::try_from(instance.state).ok()?,
            size: u32::try_from(instance.size).ok()?,
            name: if is_generated { 0 } else { key.hash(&instance.name) },
        })
    }

    /// The header as a resource without text, for checks.
    pub(crate) fn to_header(self) -> Resource {
        Resource {
            seq: self.seq,
            resource_type: ResourceType::ContentInstance,
            tag: Cow::Borrowed(ResourceType::ContentInstance.tag()),
            id: Arc::default(),
            name: Arc::default(),
            parent: None,
            parent_id: Arc::default(),
            created: self.created,
            modified: self.created,
            expires: self.expires,
            state: self.state.into(),
            owner: Arc::default(),
            sponsor: None,
            made_by: None,
            attributes: Map::new(),
            representation: None,
            size: self.size.into(),
            is_plain: false,
            family: None,
            stored_by: 0,
        }
    }

    const fn unpacked(seq: u64, packed: Packed, created: u64, expires: u64) -> Self {
        let Packed { state, size, name, .. } = packed;
        let (created, expires) = (Timestamp::from_micros(created), Timestamp::from_micros(expires));
        Self { seq, created, expires, state, size, name }
    }
}

impl Packed {
    fn with(self, seq: PackedNumber) -> InstanceRecord {
        let (created, expires) = (self.created.into(), self.expires.into());
        InstanceRecord::unpacked(seq.into(), self, created, expires)
    }
}

impl From<&InstanceRecord> for Packed {
    fn from(record: &InstanceRecord) -> Self {
        Self {
            created: record.created.micros().into(),
            expires: record.expires.micros().into(),
            state: record.state,
            size: record.size,
            name: record.name,
        }
    }
}

impl PagedInstances {
    pub(crate) const fn len(&self) -> usize {
        self.by_seq.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    pub(crate) fn get(&self, seq: u64) -> Option<InstanceRecord> {
        self.by_seq.get(seq.into()).map(|packed| packed.with(seq.into()))
    }

    pub(crate) fn first(&self) -> Option<InstanceRecord> {
        self.by_seq.first().map(|(seq, packed)| packed.with(seq))
    }

    pub(crate) fn last(&self) -> Option<InstanceRecord> {
        self.by_seq.last().map(|(seq, packed)| packed.with(seq))
    }

    /// The records from the number `first` on, oldest first.
    pub(crate) fn since(&self, first: u64) -> impl Iterator<Item = InstanceRecord> {
        self.by_seq.since(first.into()).map(|(seq, packed)| packed.with(seq))
    }

    /// The latest records, the last first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = InstanceRecord> {
        self.by_seq.iter().rev().map(|(seq, packed)| packed.with(seq))
    }

    /// Numbers of the instances that may have this name, which has this hash.
    pub(crate) fn named(&self, name: &str, hash: u32) -> Vec<u64> {
        let mut found = Vec::new();
        if let Some(seq) = number_of(name)
            && self.get(seq).is_some_and(|record| record.name == 0)
        {
            found.push(seq);
        }
        let highs = || Some((self.by_seq.first()?.0.high, self.by_seq.last()?.0.high));
        let mut names = self.names.borrow_mut();
        let hashed = names.sorted().since((hash, 0)).take_while(|((other, _), ())| *other == hash);
        for ((_, low), ()) in hashed {
            let Some((first, last)) = highs() else { break };
            let numbers = (first..=last).map(|high| PackedNumber { high, low });
            let is_it =
                |seq: &PackedNumber| self.by_seq.get(*seq).is_some_and(|it| it.name == hash);
            found.extend(numbers.filter(is_it).map(u64::from));
        }
        found
    }

    /// The next to expire, and when.
    pub(crate) fn next_expiry(&self) -> Option<(Timestamp, u64)> {
        let (time, seq) = match &self.expiry {
            Some(expiry) => expiry.first()?.0,
            None => self.by_seq.first().map(|(seq, packed)| (packed.expires, seq))?,
        };
        Some((Timestamp::from_micros(time.into()), seq.into()))
    }

    pub(crate) fn insert(&mut self, record: &InstanceRecord) {
        let (seq, packed) = (PackedNumber::from(record.seq), Packed::from(record));
        self.keep_order(seq, packed.expires);
        self.by_seq.insert(seq, packed);
        if record.name != 0 {
            self.names.get_mut().sorted().insert((record.name, seq.low), ());
        }
    }

    /// Adds records at a start, where names are not looked for yet. Mostly they come in order and
    /// behind all others, and expire in that order.
    pub(crate) fn restore(&mut self, records: &[InstanceRecord]) {
        let mut last = self.by_seq.last().map(|(seq, it)| (seq, it.expires));
        let is_in_order = self.expiry.is_none()
            && records.iter().all(|record| {
                let before = last.replace((record.seq.into(), record.expires.micros().into()));
                let is_behind = |(seq, expires): (PackedNumber, PackedNumber)| {
                    seq < record.seq.into() && expires <= record.expires.micros().into()
                };
                before.is_none_or(is_behind)
            });
        if is_in_order {
            self.by_seq.extend(records, |record| (record.seq.into(), Packed::from(record)));
        } else {
            for record in records {
                let (seq, packed) = (PackedNumber::from(record.seq), Packed::from(record));
                self.keep_order(seq, packed.expires);
                self.by_seq.insert(seq, packed);
            }
        }
        let names = self.names.get_mut();
        for record in records.iter().filter(|record| record.name != 0) {
            names.push((record.name, PackedNumber::from(record.seq).low));
        }
    }

    /// Notes when an instance will expire.
    fn keep_order(&mut self, seq: PackedNumber, expires: PackedNumber) {
        if let Some(expiry) = &mut self.expiry {
            expiry.insert((expires, seq), ());
            return;
        }
        // Mostly it comes behind all others.
        if self.by_seq.last().is_none_or(|(last, it)| last < seq && it.expires <= expires) {
            return;
        }
        let is_later = |(_, it): (PackedNumber, Packed)| it.expires > expires;
        let is_earlier = |(_, it): (PackedNumber, Packed)| it.expires < expires;
        if self.by_seq.before(seq).is_some_and(is_later)
            || self.by_seq.since(seq).next().is_some_and(is_earlier)
        {
            let mut all: Vec<_> =
                self.by_seq.iter().map(|(seq, packed)| (packed.expires, seq)).collect();
            all.push((expires, seq));
            all.sort_unstable();
            let mut expiry = DenseMap::default();
            for key in all {
                expiry.insert(key, ());
            }
            self.expiry = Some(expiry);
        }
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<InstanceRecord> {
        let number = PackedNumber::from(seq);
        let packed = self.by_seq.remove(number)?;
        if packed.name != 0 {
            self.names.get_mut().sorted().remove((packed.name, number.low));
        }
        if let Some(expiry) = &mut self.expiry {
            expiry.remove((packed.expires, number));
        }
        if self.by_seq.is_empty() {
            self.expiry = None;
        }
        Some(packed.with(number))
    }
}

/// The name that the instance with this number has if none was given.
fn generated_name(seq: u64) -> String {
    let mut name = String::with_capacity(24);
    name.push_str(ResourceType::ContentInstance.prefix());
    name.push('_');
    push_number::<16>(&mut name, seq);
    name
}

/// The number that a generated name tells.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(ResourceType::ContentInstance.prefix())?.strip_prefix('_')?;
    let seq = u64::from_str_radix(digits, 16).ok()?;
    (generated_name(seq) == name).then_some(seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(seq: u64, expires: u64, name: u32) -> InstanceRecord {
        let time = Timestamp::from_micros;
        InstanceRecord { seq, created: time(seq), expires: time(expires), state: 1, size: 7, name }
    }

    fn next_expiry(expected: &BTreeMap<u64, InstanceRecord>) -> Option<(Timestamp, u64)> {
        expected.values().map(|it| (it.expires, it.seq)).min()
    }

    proptest! {
        #[test]
        fn the_next_to_expire_and_the_named_are_found(
            steps in prop::collection::vec((0_u64..40, 0_u64..6, 0_u32..4, any::<bool>()), 0..80)
        ) {
            let mut records = PagedInstances::default();
            let mut expected = BTreeMap::new();
            for (step, (number, expires, name, goes)) in steps.into_iter().enumerate() {
                // On both sides of what 32 bits hold.
                let seq = number + u64::from(u32::MAX) - 20;
                if goes || expected.contains_key(&seq) {
                    prop_assert_eq!(records.remove(seq), expected.remove(&seq));
                } else {
                    let record = record(seq, expires, name);
                    if step % 3 == 0 {
                        records.restore(&[record]);
                    } else {
                        records.insert(&record);
                    }
                    expected.insert(seq, record);
                }
                prop_assert_eq!(records.len(), expected.len());
                prop_assert_eq!(records.next_expiry(), next_expiry(&expected));
                prop_assert!(records.since(0).eq(expected.values().copied()));
                prop_assert_eq!(records.last(), expected.values().last().copied());
                for hash in 1..4 {
                    let named = expected.values().filter(|it| it.name == hash).map(|it| it.seq);
                    let mut found = records.named("x", hash);
                    found.sort_unstable();
                    prop_assert_eq!(found, named.collect::<Vec<_>>());
                }
                let generated = expected.get(&seq).filter(|it| it.name == 0).map(|it| it.seq);
                let found = records.named(&generated_name(seq), 9);
                prop_assert_eq!(found, generated.into_iter().collect::<Vec<_>>());
            }
        }
    }

    /// Several at a time, as a start gives them, are found as if they had come one by one.
    #[test]
    fn records_that_come_together_are_as_those_that_come_one_by_one() {
        let expiries = |times: &[u64]| -> Vec<InstanceRecord> {
            (1..).zip(times).map(|(seq, expires)| record(seq, *expires, 7)).collect()
        };
        for times in [&[1, 2, 3, 4][..], &[5, 5, 5], &[1, 9, 3, 4], &[9, 1, 2, 3], &[1, 2, 9, 3]] {
            let all = expiries(times);
            for cut in 0..all.len() {
                let (mut together, mut each) =
                    (PagedInstances::default(), PagedInstances::default());
                together.restore(&all[..cut]);
                together.restore(&all[cut..]);
                for record in &all {
                    each.insert(record);
                }
                while let Some((_, seq)) = each.next_expiry() {
                    assert_eq!(together.next_expiry(), each.next_expiry(), "{times:?} {cut}");
                    assert_eq!(together.named("x", 7), each.named("x", 7));
                    assert_eq!(together.remove(seq), each.remove(seq));
                }
                assert!(together.is_empty());
            }
        }
    }

    /// The promise: at most 48 octets for an instance, its name given or generated.
    #[test]
    fn a_record_takes_48_octets() {
        const COUNT: u64 = 100_000;
        let mut records = PagedInstances::default();
        for seq in 0..COUNT {
            let hash = PackedNumber::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)).high.max(1);
            records.insert(&record(seq, seq, hash));
        }
        let octets = records.by_seq.octets() + records.names.get_mut().sorted().octets();
        let each = octets / usize::try_from(COUNT).unwrap();
        assert!(each <= 48, "{each}");
        assert!(records.expiry.is_none());
    }

    #[test]
    fn generated_names_tell_their_numbers() {
        assert_eq!(number_of("cin_1f"), Some(0x1f));
        for other in ["cin_01f", "cin_1F", "cin_", "cin1f", "cin_1f_", "x"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}

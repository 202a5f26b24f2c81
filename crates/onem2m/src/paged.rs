//! Records of the contentInstances of a container whose text is in the store only.
//!
//! A record has what a walk over the tree checks and what a deletion needs: number, times of
//! creation and expiry, stateTag, size, and a hash of the name. It takes 36 octets, and 12 more if
//! the originator gave the name; a generated name follows from the number. What a start has read
//! stays coded, in a third of that, until one record of its run changes.

use crate::dense::DenseMap;
use crate::name_hash::NameKey;
pub(crate) use crate::record_run::InstanceRecord;
use crate::record_run::{RecordRun, RunSummary};
use crate::resource::{Resource, push_number};
use crate::resource_type::ResourceType;
use crate::time::Timestamp;
use core::cell::RefCell;
use serde_json::Map;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

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
    /// Those that are in no run.
    by_seq: DenseMap<PackedNumber, Packed>,
    /// Runs that a start has read, in ascending order of their numbers.
    runs: VecDeque<RecordRun>,
    /// Records of all runs.
    in_runs: usize,
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
    /// Whether those of all runs are here, too.
    has_runs: bool,
}

/// Names of a piece of [`Names`].
const NAMES_PIECE: usize = 1_024;

impl Names {
    /// Adds the name of a record, unless it follows from the number.
    fn insert(&mut self, record: &InstanceRecord) {
        if record.name == 0 {
            return;
        }
        let name = (record.name, PackedNumber::from(record.seq).low);
        if self.unsorted.is_empty() && self.has_runs {
            self.sorted.insert(name, ());
            return;
        }
        match self.unsorted.last_mut().filter(|piece| piece.len() < NAMES_PIECE) {
            Some(piece) => piece.push(name),
            None => self.unsorted.push(vec![name]),
        }
    }

    /// All of them, sorted, with those of the runs.
    fn sorted(&mut self, runs: &VecDeque<RecordRun>) -> &mut DenseMap<NamedInstance, ()> {
        if !self.has_runs {
            runs.iter().flat_map(RecordRun::records).for_each(|record| self.insert(&record));
            self.has_runs = true;
        }
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
        self.by_seq.len() + self.in_runs
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, seq: u64) -> Option<InstanceRecord> {
        let decoded = self.by_seq.get(seq.into()).map(|packed| packed.with(seq.into()));
        decoded.or_else(|| self.runs.get(self.run_of(seq)?)?.get(seq))
    }

    pub(crate) fn first(&self) -> Option<InstanceRecord> {
        let decoded = self.by_seq.first().map(|(seq, packed)| packed.with(seq));
        let in_runs = self.runs.front().map(RecordRun::first);
        [decoded, in_runs].into_iter().flatten().min_by_key(|record| record.seq)
    }

    pub(crate) fn last(&self) -> Option<InstanceRecord> {
        let decoded = self.by_seq.last().map(|(seq, packed)| packed.with(seq));
        later(decoded, self.runs.back().map(RecordRun::last))
    }

    /// The records from the number `first` on, oldest first.
    pub(crate) fn since(&self, first: u64) -> impl Iterator<Item = InstanceRecord> {
        let decoded = self.by_seq.since(first.into()).map(|(seq, packed)| packed.with(seq));
        let begin = self.runs.partition_point(|run| run.last().seq < first);
        let in_runs = self.runs.range(begin..).flat_map(RecordRun::records);
        let in_runs = in_runs.skip_while(move |record| record.seq < first);
        merged(decoded, in_runs, |one, other| one.seq < other.seq)
    }

    /// The latest records, the last first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = InstanceRecord> {
        let decoded = self.by_seq.iter().rev().map(|(seq, packed)| packed.with(seq));
        let in_runs = self.runs.iter().rev().flat_map(|run| {
            let records: Vec<InstanceRecord> = run.records().collect();
            records.into_iter().rev()
        });
        merged(decoded, in_runs, |one, other| one.seq > other.seq)
    }

    /// The record with the highest number below this one.
    fn before(&self, seq: u64) -> Option<InstanceRecord> {
        let decoded = self.by_seq.before(seq.into()).map(|(seq, packed)| packed.with(seq));
        let run = self.runs.partition_point(|run| run.first().seq < seq).checked_sub(1);
        let run = run.and_then(|at| self.runs.get(at));
        later(decoded, run.and_then(|run| run.records().take_while(|it| it.seq < seq).last()))
    }

    /// The run among whose numbers this one is.
    fn run_of(&self, seq: u64) -> Option<usize> {
        let at = self.runs.partition_point(|run| run.last().seq < seq);
        self.runs.get(at).is_some_and(|run| run.first().seq <= seq).then_some(at)
    }

    /// Numbers of the instances that may have this name, which has this hash.
    pub(crate) fn named(&self, name: &str, hash: u32) -> Vec<u64> {
        let mut found = Vec::new();
        if let Some(seq) = number_of(name)
            && self.get(seq).is_some_and(|record| record.name == 0)
        {
            found.push(seq);
        }
        let high = |record: Option<InstanceRecord>| Some(PackedNumber::from(record?.seq).high);
        let highs = || Some((high(self.first())?, high(self.last())?));
        let mut names = self.names.borrow_mut();
        let names = names.sorted(&self.runs).since((hash, 0));
        for ((_, low), ()) in names.take_while(|((other, _), ())| *other == hash) {
            let Some((first, last)) = highs() else { break };
            let numbers = (first..=last).map(|high| u64::from(PackedNumber { high, low }));
            let is_it = |seq: &u64| self.get(*seq).is_some_and(|it| it.name == hash);
            found.extend(numbers.filter(is_it));
        }
        found
    }

    /// The next to expire, and when.
    pub(crate) fn next_expiry(&self) -> Option<(Timestamp, u64)> {
        let Some(expiry) = &self.expiry else {
            return self.first().map(|record| (record.expires, record.seq));
        };
        let ((time, seq), ()) = expiry.first()?;
        Some((Timestamp::from_micros(time.into()), seq.into()))
    }

    pub(crate) fn insert(&mut self, record: &InstanceRecord) {
        self.keep_order(record);
        self.by_seq.insert(record.seq.into(), Packed::from(record));
        self.names.get_mut().insert(record);
    }

    /// Adds records at a start, where names are not looked for yet. Mostly they come in order and
    /// behind all others, and expire in that order.
    pub(crate) fn restore(&mut self, records: &[InstanceRecord]) {
        let mut last = self.last();
        let is_in_order = self.expiry.is_none()
            && records.iter().all(|record| is_behind(last.replace(*record).as_ref(), record));
        if is_in_order {
            self.by_seq.extend(records, |record| (record.seq.into(), Packed::from(record)));
        } else {
            for record in records {
                self.keep_order(record);
                self.by_seq.insert(record.seq.into(), Packed::from(record));
            }
        }
        let names = self.names.get_mut();
        for record in records {
            names.insert(record);
        }
    }

    /// Adds the records of a run as [`Self::restore`] does. They stay coded, if they come in order.
    pub(crate) fn restore_run(&mut self, run: RecordRun, summary: &RunSummary) {
        let is_next = is_behind(self.last().as_ref(), &run.first());
        if self.expiry.is_some() || !summary.expires_in_order || !is_next {
            let records: Vec<InstanceRecord> = run.records().collect();
            self.restore(&records);
            return;
        }
        let names = self.names.get_mut();
        if names.has_runs {
            run.records().for_each(|record| names.insert(&record));
        }
        self.in_runs += run.count();
        self.runs.push_back(run);
    }

    /// Decodes a run, as one of its records is to change.
    fn decode_run(&mut self, at: usize) {
        let Some(run) = self.runs.remove(at) else { return };
        self.in_runs -= run.count();
        let names = self.names.get_mut();
        for record in run.records() {
            self.by_seq.insert(record.seq.into(), Packed::from(&record));
            if !names.has_runs {
                names.insert(&record);
            }
        }
    }

    /// Notes when an instance will expire.
    fn keep_order(&mut self, record: &InstanceRecord) {
        let key = |record: &InstanceRecord| {
            (PackedNumber::from(record.expires.micros()), PackedNumber::from(record.seq))
        };
        if let Some(expiry) = &mut self.expiry {
            expiry.insert(key(record), ());
            return;
        }
        // Mostly it comes behind all others.
        if is_behind(self.last().as_ref(), record) {
            return;
        }
        let is_later = |it: InstanceRecord| it.expires > record.expires;
        let is_earlier = |it: InstanceRecord| it.expires < record.expires;
        if self.before(record.seq).is_some_and(is_later)
            || self.since(record.seq).next().is_some_and(is_earlier)
        {
            let mut all: Vec<_> = self.since(0).map(|it| key(&it)).collect();
            all.push(key(record));
            all.sort_unstable();
            let mut expiry = DenseMap::default();
            for key in all {
                expiry.insert(key, ());
            }
            self.expiry = Some(expiry);
        }
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<InstanceRecord> {
        if let Some(at) = self.run_of(seq) {
            self.decode_run(at);
        }
        let number = PackedNumber::from(seq);
        let packed = self.by_seq.remove(number)?;
        if packed.name != 0 {
            self.names.get_mut().sorted(&self.runs).remove((packed.name, number.low));
        }
        if let Some(expiry) = &mut self.expiry {
            expiry.remove((packed.expires, number));
        }
        if self.is_empty() {
            self.expiry = None;
        }
        Some(packed.with(number))
    }
}

/// Whether a record comes behind another, by number and by expiry; the first one does.
fn is_behind(before: Option<&InstanceRecord>, record: &InstanceRecord) -> bool {
    before.is_none_or(|before| before.seq < record.seq && before.expires <= record.expires)
}

/// The one of two records with the higher number.
fn later(one: Option<InstanceRecord>, other: Option<InstanceRecord>) -> Option<InstanceRecord> {
    [one, other].into_iter().flatten().max_by_key(|record| record.seq)
}

/// The records of two sequences in the order of `precedes`, in which both are.
fn merged(
    one: impl Iterator<Item = InstanceRecord>,
    other: impl Iterator<Item = InstanceRecord>,
    precedes: impl Fn(&InstanceRecord, &InstanceRecord) -> bool,
) -> impl Iterator<Item = InstanceRecord> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    core::iter::from_fn(move || {
        let is_one = match (one.peek(), other.peek()) {
            (Some(one), Some(other)) => precedes(one, other),
            (first, _) => first.is_some(),
        };
        if is_one { one.next() } else { other.next() }
    })
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

    fn restore_run(records: &mut PagedInstances, new: &[InstanceRecord]) {
        let run = RecordRun::of(new).unwrap();
        let summary = run.summary();
        records.restore_run(run, &summary);
    }

    fn next_expiry(expected: &BTreeMap<u64, InstanceRecord>) -> Option<(Timestamp, u64)> {
        expected.values().map(|it| (it.expires, it.seq)).min()
    }

    proptest! {
        #[test]
        fn the_next_to_expire_and_the_named_are_found(
            steps in prop::collection::vec((0_u64..40, 0_u64..6, 0_u32..4, any::<bool>()), 0..80),
            is_ordered in any::<bool>(),
        ) {
            let mut records = PagedInstances::default();
            let mut expected = BTreeMap::new();
            for (step, (number, expires, name, goes)) in steps.into_iter().enumerate() {
                // On both sides of what 32 bits hold.
                let seq = number + u64::from(u32::MAX) - 20;
                if goes || expected.contains_key(&seq) {
                    prop_assert_eq!(records.remove(seq), expected.remove(&seq));
                } else {
                    // One, or several from there on that are not there yet.
                    let count = if step % 4 == 1 { 9 } else { 1 };
                    let new: Vec<_> = (seq..seq + count)
                        .step_by(2)
                        .filter(|seq| !expected.contains_key(seq))
                        .map(|seq| record(seq, if is_ordered { seq } else { expires }, name))
                        .collect();
                    match step % 4 {
                        0 => records.restore(&new),
                        1 => restore_run(&mut records, &new),
                        _ => new.iter().for_each(|record| records.insert(record)),
                    }
                    expected.extend(new.into_iter().map(|record| (record.seq, record)));
                }
                prop_assert_eq!(records.len(), expected.len());
                prop_assert_eq!(records.next_expiry(), next_expiry(&expected));
                prop_assert!(records.since(0).eq(expected.values().copied()));
                prop_assert!(records.since(seq).eq(expected.range(seq..).map(|(_, it)| *it)));
                prop_assert!(records.latest().eq(expected.values().rev().copied()));
                prop_assert_eq!(records.first(), expected.values().next().copied());
                prop_assert_eq!(records.last(), expected.values().last().copied());
                prop_assert_eq!(records.get(seq), expected.get(&seq).copied());
                prop_assert_eq!(records.before(seq), expected.range(..seq).next_back().map(|(_, it)| *it));
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
            for cut in 1..all.len() {
                let (mut together, mut each) =
                    (PagedInstances::default(), PagedInstances::default());
                let mut in_runs = PagedInstances::default();
                for some in [&all[..cut], &all[cut..]] {
                    together.restore(some);
                    restore_run(&mut in_runs, some);
                }
                for record in &all {
                    each.insert(record);
                }
                while let Some((_, seq)) = each.next_expiry() {
                    let named = each.named("x", 7);
                    let removed = each.remove(seq);
                    for other in [&mut together, &mut in_runs] {
                        assert_eq!(
                            other.next_expiry().map(|(_, seq)| seq),
                            Some(seq),
                            "{times:?} {cut}"
                        );
                        assert_eq!(other.named("x", 7), named);
                        assert_eq!(other.remove(seq), removed);
                    }
                }
                assert!(together.is_empty() && in_runs.is_empty());
            }
        }
    }

    /// Records of a start stay coded until one of their run goes.
    #[test]
    fn a_run_is_decoded_when_one_of_its_records_goes() {
        let mut records = PagedInstances::default();
        for first in [0, 100, 200] {
            let new: Vec<_> = (first..first + 100).map(|seq| record(seq, 9, 7)).collect();
            restore_run(&mut records, &new);
        }
        assert_eq!(
            (records.len(), records.in_runs, records.get(150)),
            (300, 300, Some(record(150, 9, 7)))
        );
        assert_eq!((records.remove(150), records.remove(150)), (Some(record(150, 9, 7)), None));
        assert_eq!((records.len(), records.in_runs, records.runs.len()), (299, 200, 2));
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
        let octets =
            records.by_seq.octets() + records.names.get_mut().sorted(&records.runs).octets();
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

//! An ordered map whose entries lie densely in memory.
//!
//! A `BTreeMap` with keys in ascending order has leaves that are half full: 43 octets for a number
//! with its slot. Resources are numbered in ascending order, and mostly expire in that order, so
//! here every chunk but the last is full: 16 octets and little more. Insertion elsewhere and
//! removal move at most half a chunk.

use std::collections::VecDeque;

/// Entries of a full chunk.
const CHUNK: usize = 512;
/// Room for entries that is never freed.
const ROOM_MIN: usize = 16;

/// An ordered map of small keys and values.
#[derive(Clone, Debug)]
pub(crate) struct DenseMap<K, V> {
    /// In ascending order; none is empty.
    chunks: Vec<Chunk<K, V>>,
    length: usize,
}

/// Consecutive entries.
#[derive(Clone, Debug)]
struct Chunk<K, V> {
    /// The key of the first entry.
    first: K,
    entries: VecDeque<(K, V)>,
}

impl<K, V> Default for DenseMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }
}

impl<K: Copy + Ord, V: Copy> DenseMap<K, V> {
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn get(&self, key: K) -> Option<V> {
        let entries = &self.chunks.get(self.chunk_of(key)?)?.entries;
        let at = entries.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        entries.get(at).map(|(_, value)| *value)
    }

    /// The entry with the lowest key.
    pub(crate) fn first(&self) -> Option<(K, V)> {
        self.chunks.first()?.entries.front().copied()
    }

    /// The entry with the highest key.
    pub(crate) fn last(&self) -> Option<(K, V)> {
        self.chunks.last()?.entries.back().copied()
    }

    /// The entry with the highest key below this one.
    pub(crate) fn before(&self, key: K) -> Option<(K, V)> {
        let at = self.chunk_of(key)?;
        let chunk = self.chunks.get(at)?;
        let below = chunk.entries.partition_point(|(other, _)| *other < key);
        match below.checked_sub(1) {
            Some(place) => chunk.entries.get(place).copied(),
            None => self.chunks.get(at.checked_sub(1)?)?.entries.back().copied(),
        }
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, V)> {
        self.chunks.iter().flat_map(|chunk| chunk.entries.iter().copied())
    }

    /// The values in the order of their keys.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = V> {
        self.iter().map(|(_, value)| value)
    }

    /// The entries from the key `first` on, in order.
    pub(crate) fn since(&self, first: K) -> impl Iterator<Item = (K, V)> {
        let begin = self.chunk_of(first).unwrap_or(0);
        let mut chunks = self.chunks.iter().skip(begin);
        let head = chunks.next().into_iter().flat_map(move |chunk| {
            let before = chunk.entries.partition_point(|(key, _)| *key < first);
            chunk.entries.range(before..).copied()
        });
        head.chain(chunks.flat_map(|chunk| chunk.entries.iter().copied()))
    }

    /// Adds an entry, in the place of the one with this key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let last = self.chunks.len().saturating_sub(1);
        let at = self.chunk_of(key).unwrap_or(0);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.push(key, value);
            return;
        };
        // Mostly it comes behind all others.
        let found = match chunk.entries.back() {
            Some((before, _)) if *before < key => Err(chunk.entries.len()),
            _ => chunk.entries.binary_search_by_key(&key, |(key, _)| *key),
        };
        let place = match found {
            Ok(place) => {
                if let Some(entry) = chunk.entries.get_mut(place) {
                    entry.1 = value;
                }
                return;
            }
            Err(place) => place,
        };
        if chunk.entries.len() < CHUNK {
            self.length += 1;
            chunk.insert(place, (key, value));
        } else if at == last && place == CHUNK {
            self.push(key, value);
        } else {
            self.length += 1;
            let upper = chunk.split(place, (key, value));
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Adds the entries of these items in ascending order, all behind those that are there.
    pub(crate) fn extend<T>(&mut self, mut items: &[T], entry: impl Fn(&T) -> (K, V)) {
        while let Some((first, rest)) = items.split_first() {
            let Some(chunk) = self.chunks.last_mut().filter(|it| it.entries.len() < CHUNK) else {
                let (key, value) = entry(first);
                self.push(key, value);
                items = rest;
                continue;
            };
            // A chunk takes what there is room for at once.
            let room = CHUNK - chunk.entries.len();
            let (now, later) = items.split_at_checked(room).unwrap_or((items, &[]));
            debug_assert!(
                now.iter().map(|item| entry(item).0).is_sorted()
                    && chunk.entries.back().is_none_or(|(last, _)| *last < entry(first).0),
                "in ascending order"
            );
            let length = chunk.entries.len() + now.len();
            if length > chunk.entries.capacity() {
                let capacity = length.next_power_of_two().min(CHUNK);
                chunk.entries.reserve_exact(capacity - chunk.entries.len());
            }
            chunk.entries.extend(now.iter().map(&entry));
            self.length += now.len();
            items = later;
        }
    }

    /// Removes the entry of a key; returns its value.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let at = self.chunk_of(key)?;
        let chunk = self.chunks.get_mut(at)?;
        let place = chunk.entries.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        let (_, value) = chunk.entries.remove(place)?;
        self.length -= 1;
        match chunk.entries.front() {
            Some((first, _)) => {
                chunk.first = *first;
                chunk.give_back();
            }
            None => drop(self.chunks.remove(at)),
        }
        Some(value)
    }

    /// The chunk in which a key is, or would be; `None` without any.
    fn chunk_of(&self, key: K) -> Option<usize> {
        let last = self.chunks.len().checked_sub(1)?;
        // Mostly it is a recent one.
        if self.chunks.last().is_some_and(|chunk| chunk.first <= key) {
            return Some(last);
        }
        Some(self.chunks.partition_point(|chunk| chunk.first <= key).saturating_sub(1))
    }

    /// Adds an entry behind all others, in a chunk of its own.
    fn push(&mut self, key: K, value: V) {
        self.length += 1;
        self.chunks.push(Chunk { first: key, entries: VecDeque::from([(key, value)]) });
    }
}

impl<K: Copy, V: Copy> Chunk<K, V> {
    fn insert(&mut self, place: usize, entry: (K, V)) {
        if place == 0 {
            self.first = entry.0;
        }
        self.entries.insert(place, entry);
    }

    /// Adds an entry, and moves the upper half to a chunk of its own.
    fn split(&mut self, place: usize, entry: (K, V)) -> Self {
        self.insert(place, entry);
        let entries = self.entries.split_off(CHUNK / 2);
        self.entries.shrink_to_fit();
        let first = entries.front().map_or(entry.0, |(key, _)| *key);
        Self { first, entries }
    }

    /// Gives room back that most entries have left.
    fn give_back(&mut self) {
        let (length, room) = (self.entries.len(), self.entries.capacity());
        if room > ROOM_MIN && length < room / 4 {
            self.entries.shrink_to(length * 2);
        }
    }
}

#[cfg(test)]
impl<K, V> DenseMap<K, V> {
    /// Octets of memory for the entries, those that are not used included.
    pub(crate) fn octets(&self) -> usize {
        let entries: usize = self.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        entries * size_of::<(K, V)>() + self.chunks.capacity() * size_of::<Chunk<K, V>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Change {
        /// As numbers of resources are given: behind all others.
        Append(u16),
        Insert(u16),
        Remove(u16),
        RemoveFirst(u16),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let one = prop_oneof![
            3 => (1_u16..900).prop_map(Change::Append),
            2 => any::<u16>().prop_map(Change::Insert),
            1 => any::<u16>().prop_map(Change::Remove),
            1 => (1_u16..600).prop_map(Change::RemoveFirst),
        ];
        prop::collection::vec(one, 0..40)
    }

    fn compare(map: &DenseMap<u32, u32>, expected: &BTreeMap<u32, u32>, key: u32) {
        assert_eq!((map.len(), map.is_empty()), (expected.len(), expected.is_empty()));
        assert_eq!(map.first(), expected.first_key_value().map(|(key, value)| (*key, *value)));
        assert_eq!(map.last(), expected.last_key_value().map(|(key, value)| (*key, *value)));
        assert_eq!(map.get(key), expected.get(&key).copied());
        let before = expected.range(..key).next_back();
        assert_eq!(map.before(key), before.map(|(key, value)| (*key, *value)));
        assert!(map.since(key).eq(expected.range(key..).map(|(key, value)| (*key, *value))));
        assert!(map.values().rev().eq(expected.values().rev().copied()));
        let mut all = map.chunks.iter();
        assert!(all.all(|it| it.entries.front().is_some_and(|(key, _)| *key == it.first)));
        assert!(map.chunks.iter().all(|chunk| chunk.entries.len() <= CHUNK));
    }

    proptest! {
        #[test]
        fn is_as_a_tree_map(changes in changes()) {
            let (mut map, mut expected) = (DenseMap::default(), BTreeMap::new());
            for (at, change) in (0_u32..).zip(changes) {
                let key = match change {
                    Change::Append(count) => {
                        let next = expected.last_key_value().map_or(0, |(key, _)| key + 1);
                        for key in next..next + u32::from(count) {
                            map.insert(key, at);
                            expected.insert(key, at);
                        }
                        next
                    }
                    Change::Insert(key) => {
                        map.insert(key.into(), at);
                        expected.insert(key.into(), at);
                        key.into()
                    }
                    Change::Remove(key) => {
                        let key = u32::from(key) % 2_000;
                        prop_assert_eq!(map.remove(key), expected.remove(&key));
                        key
                    }
                    Change::RemoveFirst(count) => {
                        for _ in 0..count {
                            let first = expected.pop_first();
                            prop_assert_eq!(map.first(), first);
                            prop_assert_eq!(
                                first.and_then(|(key, _)| map.remove(key)),
                                first.map(|(_, value)| value)
                            );
                        }
                        count.into()
                    }
                };
                compare(&map, &expected, key);
            }
        }
    }

    /// What it is for: chunks are full where keys ascend.
    #[test]
    fn ascending_keys_lie_densely() {
        let mut map = DenseMap::default();
        (0..100_000_u64).for_each(|key| map.insert(key, ()));
        let room: usize = map.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        assert!(room < 101_000, "{room}");
        let mut extended = DenseMap::default();
        for part in (0..100_000_u64).collect::<Vec<_>>().chunks(41) {
            extended.extend(part, |key| (*key, ()));
        }
        assert!(extended.iter().eq(map.iter()));
        assert_eq!(extended.len(), map.len());
        assert_eq!(extended.octets(), map.octets());
        for key in 0..99_999 {
            assert_eq!(map.remove(key), Some(()));
        }
        let room: usize = map.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        assert!(room <= 4 * ROOM_MIN, "{room}");
    }
}

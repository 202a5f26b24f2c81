//! The writer of routes: it keeps the set, changes the trie, and links new cells.

use super::arena::{Arena, Exhausted};
use super::prefix::{Family, Prefix, PrefixKey};
use super::trie::{PrefixEntry, Trie};
use super::{
    CHANGES, ENTRY_WORDS, GENERATION, Half, HopIndex, ROOT, Routes, Shape, half_start, index,
};
use crate::memory::Words;
use crate::sync::{AtomicU32, Ordering, fence};
use std::collections::BTreeMap;

/// Freed words that may wait before the generation is moved for them; at least dozens of changes.
#[cfg(not(loom))]
const LIMBO_WORDS_MIN: u32 = 4096;
/// Under loom every second change uses old cells again, which is what is to be watched.
#[cfg(loom)]
const LIMBO_WORDS_MIN: u32 = 0;

/// The table holds as many routes as it was made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the table is full: {routes_max} routes")]
pub struct RoutesFull {
    /// Routes that it was made for.
    pub routes_max: u32,
}

/// Statistics of the routes: memory and maintenance.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoutesStats {
    /// Octets that readers may walk over: direct table, cells, results.
    pub used_octets: u64,
    /// Times the whole trie was built anew and linked at once.
    pub rebuilds: u64,
    /// Times the generation moved so that old cells could be used again.
    pub reclaims: u64,
    /// Routes that were refused because the table was full.
    pub refused: u64,
}

/// The part of the area that readers walk over now.
#[derive(Debug)]
struct Active {
    half: Half,
    arena: Arena,
    /// Bits that index the direct table.
    bits: u8,
    /// For each entry of the direct table, one more than the length of the prefix it has its value
    /// from; 0 where there is none.
    lens: Vec<u8>,
}

/// The writer of the routes of family `A`: there is one, and readers come from [`Self::reader`].
///
/// It keeps the routes themselves in ordinary memory (about 30 octets each); readers see only the
/// trie. A change costs microseconds; [`Self::replace`] rebuilds the whole and links it in one
/// step.
#[derive(Debug)]
pub struct RoutesWriter<A: Family> {
    words: Words,
    shape: Shape,
    routes: BTreeMap<(A::Key, u8), u32>,
    active: Active,
    /// Whether changes wait for [`Self::release`].
    held: bool,
    stats: RoutesStats,
}

impl<A: Family> RoutesWriter<A> {
    /// An empty table for `routes_max` routes in this process's own memory.
    ///
    /// Memory is taken as routes come, about 300 octets a route at the worst.
    ///
    /// # Errors
    ///
    /// [`RoutesFull`] if so many could not be addressed; 16 million can.
    pub fn in_memory(routes_max: u32) -> Result<Self, RoutesFull> {
        let shape = Shape::of::<A>(routes_max);
        let words = shape.words().ok_or(RoutesFull { routes_max })?;
        Ok(Self::new(Words::zeroed(index(words)), shape))
    }

    /// Words that a table for `routes_max` routes needs; `None` if they cannot be addressed.
    pub fn words(routes_max: u32) -> Option<u32> {
        Shape::of::<A>(routes_max).words()
    }

    /// A table for `routes_max` routes in shared memory of [`Self::words`] words.
    ///
    /// # Errors
    ///
    /// [`RoutesFull`] if the memory is too small for so many.
    #[cfg(not(loom))]
    pub fn in_words(words: &crate::SharedWords, routes_max: u32) -> Result<Self, RoutesFull> {
        let shape = Shape::of::<A>(routes_max);
        let needed = shape.words().ok_or(RoutesFull { routes_max })?;
        let part = words.0.part(0, index(needed)).ok_or(RoutesFull { routes_max })?;
        Ok(Self::new(part, shape))
    }

    /// Takes the area in `words` over and begins with no routes; readers keep what is linked there
    /// until the first change.
    pub(crate) fn new(words: Words, shape: Shape) -> Self {
        let root = words.all().get(ROOT).map_or(0, |root| root.load(Ordering::Relaxed));
        // What is linked stays untouched: the first build goes into the other half.
        let half = if root > half_start(shape, Half::Second) { Half::Second } else { Half::First };
        let active = Active { half, arena: Arena::new(0..0), bits: 0, lens: Vec::new() };
        let (held, stats) = (false, RoutesStats::default());
        Self { words, shape, routes: BTreeMap::new(), active, held, stats }
    }

    /// Holds all changes back: readers keep what is linked until [`Self::release`].
    pub const fn hold(&mut self) {
        self.held = true;
    }

    /// Shows readers all changes since [`Self::hold`] at once.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.rebuild();
            self.tell();
        }
    }

    /// A reader of these routes, for any thread.
    pub fn reader(&self) -> Routes<A> {
        Routes::new(self.words.clone())
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<HopIndex> {
        self.routes.get(&key(prefix)).map(|&hop| HopIndex(hop.saturating_sub(1)))
    }

    /// Every route, in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, HopIndex)> + '_ {
        self.routes.iter().filter_map(|(&(key, len), &hop)| {
            let prefix = Prefix::new(A::from_key(key), len).ok()?;
            Some((prefix, HopIndex(hop.saturating_sub(1))))
        })
    }

    /// Statistics of the routes: memory and maintenance.
    pub fn stats(&self) -> RoutesStats {
        let direct = self.active.lens.len() * index(ENTRY_WORDS);
        let words = u64::from(self.active.arena.used_words())
            .saturating_add(u64::try_from(direct).unwrap_or(u64::MAX));
        RoutesStats { used_octets: words * 4, ..self.stats }
    }

    /// Sets the next hop of `prefix` and returns the one it had.
    ///
    /// # Errors
    ///
    /// [`RoutesFull`] if the prefix is new and there is no place left; nothing has changed then.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        hop: HopIndex,
    ) -> Result<Option<HopIndex>, RoutesFull> {
        let key = key(prefix);
        if !self.routes.contains_key(&key) && self.routes.len() >= index(self.shape.routes_max) {
            self.stats.refused += 1;
            return Err(RoutesFull { routes_max: self.shape.routes_max });
        }
        let route = PrefixEntry { key: key.0, len: key.1, hop: value(hop) };
        let old = self.routes.insert(key, route.hop);
        if !self.held && self.change(|writer| writer.link(route)).is_err() {
            self.rebuild();
        }
        self.tell();
        Ok(old.map(|hop| HopIndex(hop.saturating_sub(1))))
    }

    /// Removes `prefix` and returns its next hop.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<HopIndex> {
        let key = key(prefix);
        let old = self.routes.remove(&key)?;
        if !self.held && self.change(|writer| writer.unlink(key)).is_err() {
            self.rebuild();
        }
        self.tell();
        Some(HopIndex(old.saturating_sub(1)))
    }

    /// Replaces all routes by `routes`; readers see the old set or the new one, never a mixture. Of
    /// a prefix named twice the last counts.
    ///
    /// # Errors
    ///
    /// [`RoutesFull`] if there are too many; nothing has changed then.
    pub fn replace(
        &mut self,
        routes: impl IntoIterator<Item = (Prefix<A>, HopIndex)>,
    ) -> Result<(), RoutesFull> {
        let routes: BTreeMap<_, _> =
            routes.into_iter().map(|(prefix, hop)| (key(prefix), value(hop))).collect();
        if routes.len() > index(self.shape.routes_max) {
            self.stats.refused += 1;
            return Err(RoutesFull { routes_max: self.shape.routes_max });
        }
        self.routes = routes;
        if !self.held {
            self.rebuild();
        }
        self.tell();
        Ok(())
    }

    /// Makes a change in the active half, if that suits the number of routes.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Exhausted>,
    ) -> Result<(), Exhausted> {
        if self.active.bits != self.shape.bits_for(self.routes.len()) && !self.is_roomy_enough() {
            return Err(Exhausted);
        }
        let limbo_max = (self.active.arena.used_words() / 8).max(LIMBO_WORDS_MIN);
        if self.active.arena.limbo_words() > limbo_max {
            self.move_generation();
            self.active.arena.reclaim();
            self.stats.reclaims += 1;
        }
        change(self)
    }

    /// Whether a larger direct table than needed may stay. It is given up only well below the
    /// limit, so that a route that comes and goes at the limit costs no rebuild each time.
    fn is_roomy_enough(&self) -> bool {
        self.active.bits > self.shape.bits_for(self.routes.len())
            && self.routes.len() > self.shape.few / 2
    }

    /// Tells readers that cached results may no longer hold.
    fn tell(&self) {
        if let Some(changes) = self.words.all().get(CHANGES) {
            // Releases the links made before: who sees the new number looks up the new routes.
            changes.store(changes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }

    /// Tells readers that cells they may be reading are about to be reused.
    fn move_generation(&self) {
        if let Some(generation) = self.words.all().get(GENERATION) {
            let next = generation.load(Ordering::Relaxed).wrapping_add(1);
            // Releases every link made before: a reader that begins with this generation sees
            // them, and so cannot come to the old cells any more.
            generation.store(next, Ordering::Release);
        }
        // Orders the store before every later one into the old cells: a reader that sees one of
        // those sees, after its own fence, this generation.
        fence(Ordering::Release);
    }

    /// Builds everything anew in the other half and links it.
    fn rebuild(&mut self) {
        let other = self.active.half;
        let half = match other {
            Half::First => Half::Second,
            Half::Second => Half::First,
        };
        self.move_generation();
        let bits = self.shape.bits_for(self.routes.len());
        let start = half_start(self.shape, half);
        let end = start + self.shape.half_words().unwrap_or(0);
        let entries = 1_u32 << bits;
        let arena = Arena::new(start + entries * ENTRY_WORDS..end);
        self.active = Active { half, arena, bits, lens: vec![0; index(entries)] };
        if self.routes.len() > self.shape.few {
            self.words.prefer_large_pages(index(start), index(end - start));
        }
        self.fill();
        if let Some(root) = self.words.all().get(ROOT) {
            root.store(start | u32::from(bits), Ordering::Release);
        }
        self.stats.rebuilds += 1;
        // The other half is of no more use. Its memory goes back, and a reader that is still there
        // sees that the generation has moved.
        self.move_generation();
        let old = half_start(self.shape, other);
        self.words.discard(index(old), index(end - start));
    }

    /// Writes the direct table and the cells of all routes into the active half.
    fn fill(&mut self) {
        for entry in 0..1_u32 << self.active.bits {
            self.set_child(entry, 0);
            self.set_value(entry, 0);
        }
        let bits = self.active.bits;
        let all = self.routes.iter().map(|(&(key, len), &hop)| PrefixEntry { key, len, hop });
        let (mut long, mut short): (Vec<_>, Vec<_>) = all.partition(|route| route.len > bits);
        short.sort_unstable_by_key(|route| route.len);
        for route in short {
            self.cover(route);
        }
        let mut rest = long.as_mut_slice();
        while let Some(first) = rest.first() {
            let entry = first.key.bits(0, bits);
            let count = rest.partition_point(|route| route.key.bits(0, bits) == entry);
            let Some((below, after)) = rest.split_at_mut_checked(count.max(1)) else { break };
            let mut trie = Trie { words: self.words.all(), arena: &mut self.active.arena };
            // The half has room for as many routes as `insert` and `replace` let in, however they
            // lie (`WORDS_A_ROUTE`), so an empty one is never exhausted here.
            let at = trie.build(bits, below).and_then(|cell| trie.lay_one(cell));
            debug_assert!(at.is_ok(), "a half must hold routes_max routes");
            self.set_child(entry, at.unwrap_or(0));
            rest = after;
        }
    }

    /// Links a route that is new or has a new value.
    fn link(&mut self, route: PrefixEntry<A::Key>) -> Result<(), Exhausted> {
        if route.len <= self.active.bits {
            self.cover(route);
            return Ok(());
        }
        let (bits, entry) = (self.active.bits, route.key.bits(0, self.active.bits));
        let old = self.child(entry);
        let mut trie = Trie { words: self.words.all(), arena: &mut self.active.arena };
        let cell = match trie.take_up_one(old) {
            Some(cell) => trie.insert(cell, bits, route)?,
            None => trie.build(bits, &[route])?,
        };
        let new = trie.lay_one(cell)?;
        self.set_child(entry, new);
        Ok(())
    }

    /// Unlinks a route that was removed from the set already.
    fn unlink(&mut self, (key, len): (A::Key, u8)) -> Result<(), Exhausted> {
        if len <= self.active.bits {
            self.uncover(key, len);
            return Ok(());
        }
        let (bits, entry) = (self.active.bits, key.bits(0, self.active.bits));
        let old = self.child(entry);
        let mut trie = Trie { words: self.words.all(), arena: &mut self.active.arena };
        let Some(cell) = trie.take_up_one(old) else { return Ok(()) };
        let new = match trie.remove(cell, bits, (key, len))? {
            Some(cell) => trie.lay_one(cell)?,
            None => 0,
        };
        self.set_child(entry, new);
        Ok(())
    }

    /// Gives a short prefix's value to each direct entry that has none from a longer one.
    fn cover(&mut self, route: PrefixEntry<A::Key>) {
        for entry in self.entries(route.key, route.len) {
            let Some(len) = self.active.lens.get_mut(index(entry)) else { continue };
            if *len <= route.len + 1 {
                *len = route.len + 1;
                self.set_value(entry, route.hop);
            }
        }
    }

    /// Gives the entries that had their value from this prefix the next shorter one's.
    fn uncover(&mut self, key: A::Key, len: u8) {
        let shorter = (0..len).rev().find_map(|shorter| {
            Some((shorter + 1, *self.routes.get(&(key.masked(shorter), shorter))?))
        });
        let (new_len, hop) = shorter.unwrap_or((0, 0));
        for entry in self.entries(key, len) {
            let Some(entry_len) = self.active.lens.get_mut(index(entry)) else { continue };
            if *entry_len == len + 1 {
                *entry_len = new_len;
                self.set_value(entry, hop);
            }
        }
    }

    /// The direct entries that a short prefix covers.
    fn entries(&self, key: A::Key, len: u8) -> std::ops::Range<u32> {
        let first = key.bits(0, self.active.bits);
        first..first + (1 << (self.active.bits - len))
    }

    fn entry(&self, entry: u32, word: u32) -> Option<&AtomicU32> {
        let start = half_start(self.shape, self.active.half);
        self.words.all().get(index(start + entry * ENTRY_WORDS + word))
    }

    fn child(&self, entry: u32) -> u32 {
        self.entry(entry, 0).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Links a cell: a reader that sees it also sees everything written before.
    fn set_child(&self, entry: u32, at: u32) {
        if let Some(word) = self.entry(entry, 0) {
            word.store(at, Ordering::Release);
        }
    }

    fn set_value(&self, entry: u32, hop: u32) {
        if let Some(word) = self.entry(entry, 1) {
            word.store(hop, Ordering::Release);
        }
    }
}

fn key<A: Family>(prefix: Prefix<A>) -> (A::Key, u8) {
    (prefix.address().to_key(), prefix.len())
}

/// A next hop as stored in the trie, where 0 is none.
fn value(HopIndex(hop): HopIndex) -> u32 {
    hop.saturating_add(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Memory is proportional to the routes: the half that readers have left is freed.
    #[test]
    fn a_rebuild_gives_the_other_half_back() {
        let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(40_000).unwrap();
        let route = |number: u32| (Prefix::host(Ipv4Addr::from(number << 12)), HopIndex(number));
        writer.replace((0..20_000).map(route)).unwrap();
        let (first, second) =
            (half_start(writer.shape, Half::First), half_start(writer.shape, Half::Second));
        let used = |writer: &RoutesWriter<Ipv4Addr>, start: u32| {
            let half = &writer.words.all()[index(start)..index(start + second - first)];
            half.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count()
        };
        let of_second = used(&writer, second);
        assert!(of_second > 20_000, "{of_second}");
        writer.replace((0..20_000).map(route)).unwrap();
        assert_eq!(used(&writer, first), of_second);
        // Less than two of the largest pages at its ends may remain.
        assert!(used(&writer, second) < 2 * (64 << 10) / 4, "{}", used(&writer, second));
        assert_eq!(writer.reader().lookup(Ipv4Addr::from(7 << 12)), Ok(HopIndex(7)));
    }
}

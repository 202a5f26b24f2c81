//! Changing the cells: build from a sorted list, insert one, remove one.
//!
//! Every operation creates new cells and frees the old ones in the arena; none changes a linked
//! cell. It returns the cell that replaces the old one.

use super::arena::{Arena, ElementKind, Exhausted};
use super::cell::{Branch, CELL_WORDS, Cell, STRIDE, Skip, Tail, short_index};
use super::prefix::PrefixKey;
use super::{index, view};
use crate::sync::{AtomicU32, Ordering};

/// A prefix with its value, as the trie holds it; the order is that of a depth-first walk.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PrefixEntry<K> {
    pub(crate) key: K,
    pub(crate) len: u8,
    /// The next hop plus one; 0 is none.
    pub(crate) hop: u32,
}

impl<K: PrefixKey> PrefixEntry<K> {
    fn tail(self) -> Cell<K> {
        Cell::Tail(Tail { key: self.key, len: self.len, hop: self.hop })
    }
}

/// The cells of one half, writable.
pub(crate) struct Trie<'area> {
    pub(crate) words: &'area [AtomicU32],
    pub(crate) arena: &'area mut Arena,
}

/// Most results of a branch: 2 + 4 + 8 + 16 + 32 + 64.
const RESULTS_MAX: usize = 126;
/// Most children of a branch.
const CHILDREN_MAX: usize = 64;

/// A few elements on the stack: the results or the children of a branch, to be changed.
struct List<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    fn new(fill: T) -> Self {
        Self { items: [fill; N], len: 0 }
    }

    fn items(&self) -> &[T] {
        self.items.get(..self.len).unwrap_or(&[])
    }

    /// Puts `item` before the element at `at`; a full list stays as it is.
    fn insert(&mut self, at: u32, item: T) {
        let (at, len) = (index(at), self.len + 1);
        let Some(tail) = self.items.get_mut(at..len) else { return };
        tail.rotate_right(1);
        if let Some(first) = tail.first_mut() {
            *first = item;
        }
        self.len = len;
    }

    fn set(&mut self, at: u32, item: T) {
        if let Some(old) = self.items.get_mut(index(at)) {
            *old = item;
        }
    }

    fn remove(&mut self, at: u32) {
        let Some(tail) = self.items.get_mut(index(at)..self.len) else { return };
        tail.rotate_left(1);
        self.len -= 1;
    }
}

type Results = List<u32, RESULTS_MAX>;
type Children<K> = List<Cell<K>, CHILDREN_MAX>;

/// A branch taken apart, to be changed and laid down again.
struct Parts<K> {
    branch: Branch,
    results: Results,
    children: Children<K>,
}

impl<K: PrefixKey> Parts<K> {
    fn empty() -> Self {
        let nothing = Cell::Branch(Branch::default());
        let (results, children) = (List::new(0), List::new(nothing));
        Self { branch: Branch::default(), results, children }
    }

    /// Sets the value of the prefix of `len` bits (1 to 6) at this depth.
    fn set_result(&mut self, len: u8, bits: u32, hop: u32) {
        let (short, exact) = result_bits(len, bits);
        let at = self.result_index(len, bits);
        if (self.branch.short & short) | (self.branch.exact & exact) == 0 {
            self.results.insert(at, hop);
            self.branch.short |= short;
            self.branch.exact |= exact;
        } else {
            self.results.set(at, hop);
        }
    }

    fn clear_result(&mut self, len: u8, bits: u32) {
        let (short, exact) = result_bits(len, bits);
        if (self.branch.short & short) | (self.branch.exact & exact) != 0 {
            self.results.remove(self.result_index(len, bits));
            self.branch.short &= !short;
            self.branch.exact &= !exact;
        }
    }

    /// Where among the results the prefix is, or belongs.
    fn result_index(&self, len: u8, bits: u32) -> u32 {
        if len == STRIDE {
            self.branch.short.count_ones() + (self.branch.exact & below(bits)).count_ones()
        } else {
            (self.branch.short & below(short_index(len, bits))).count_ones()
        }
    }

    /// Puts `cell` below the six bits `slot`, in place of what is there.
    fn set_child(&mut self, slot: u32, cell: Cell<K>) {
        let at = (self.branch.external & below(slot)).count_ones();
        if self.branch.external & (1 << slot) == 0 {
            self.children.insert(at, cell);
            self.branch.external |= 1 << slot;
        } else {
            self.children.set(at, cell);
        }
    }

    fn clear_child(&mut self, slot: u32) {
        if self.branch.external & (1 << slot) != 0 {
            self.children.remove((self.branch.external & below(slot)).count_ones());
            self.branch.external &= !(1 << slot);
        }
    }
}

/// The `short` and the `exact` bit of a prefix, one of them zero.
fn result_bits(len: u8, bits: u32) -> (u64, u64) {
    if len == STRIDE { (0, 1 << bits) } else { (1 << short_index(len, bits), 0) }
}

fn below(bit: u32) -> u64 {
    (1 << bit) - 1
}

/// Depth of the branch at or below `depth` that must decide something about bit `bit`.
fn branch_depth(depth: u8, bit: u8) -> u8 {
    depth + bit.saturating_sub(depth) / STRIDE * STRIDE
}

impl Trie<'_> {
    /// Lays `cells` down, one after the other.
    fn lay<K: PrefixKey>(&mut self, cells: &[Cell<K>]) -> Result<u32, Exhausted> {
        let count = u32::try_from(cells.len()).map_err(|_| Exhausted)?;
        let at = self.arena.take(ElementKind::Cells, count)?;
        let place = self.words.get(index(at)..).unwrap_or(&[]);
        let values = cells.iter().flat_map(|cell| cell.to_words());
        for (word, value) in place.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(at)
    }

    /// Lays one cell down, for a direct entry or below a skip.
    pub(crate) fn lay_one<K: PrefixKey>(&mut self, cell: Cell<K>) -> Result<u32, Exhausted> {
        self.lay(&[cell])
    }

    /// Takes up a cell that lies alone.
    pub(crate) fn take_up_one<K: PrefixKey>(&mut self, at: u32) -> Option<Cell<K>> {
        let cell = view(self.words, at)?.cell();
        self.arena.give(ElementKind::Cells, at, 1);
        Some(cell)
    }

    fn lay_branch<K: PrefixKey>(&mut self, mut parts: Parts<K>) -> Result<Branch, Exhausted> {
        let results = parts.results.items();
        let count = u32::try_from(results.len()).map_err(|_| Exhausted)?;
        parts.branch.results = self.arena.take(ElementKind::Results, count)?;
        let place = self.words.get(index(parts.branch.results)..).unwrap_or(&[]);
        for (word, hop) in place.iter().zip(results) {
            word.store(*hop, Ordering::Relaxed);
        }
        parts.branch.children = self.lay(parts.children.items())?;
        Ok(parts.branch)
    }

    fn take_up<K: PrefixKey>(&mut self, branch: Branch) -> Parts<K> {
        let mut parts = Parts::empty();
        let results = self.words.get(index(branch.results)..).unwrap_or(&[]);
        parts.results.len = index(branch.results_len());
        for (result, word) in parts.results.items.iter_mut().zip(results).take(parts.results.len) {
            *result = word.load(Ordering::Relaxed);
        }
        parts.children.len = index(branch.children_len());
        for (child, nth) in parts.children.items.iter_mut().zip(0..branch.children_len()) {
            if let Some(cell) = view(self.words, branch.children + nth * CELL_WORDS) {
                *child = cell.cell();
            }
        }
        self.arena.give(ElementKind::Results, branch.results, branch.results_len());
        self.arena.give(ElementKind::Cells, branch.children, branch.children_len());
        parts.branch = branch;
        parts
    }

    /// Puts a skip before a branch that lies deeper than its place.
    fn wrap<K: PrefixKey>(
        &mut self,
        depth: u8,
        lies: u8,
        key: K,
        branch: Branch,
    ) -> Result<Cell<K>, Exhausted> {
        if lies == depth {
            return Ok(Cell::Branch(branch));
        }
        let next = self.lay_one(Cell::<K>::Branch(branch))?;
        Ok(Cell::Skip(Skip { key: key.masked(lies), len: lies, next }))
    }

    /// The cell for `routes`: sorted, without duplicates, longer than `depth`, at least one.
    pub(crate) fn build<K: PrefixKey>(
        &mut self,
        depth: u8,
        routes: &[PrefixEntry<K>],
    ) -> Result<Cell<K>, Exhausted> {
        let (Some(first), Some(last)) = (routes.first(), routes.last()) else {
            return Ok(Cell::Branch(Branch::default()));
        };
        if routes.len() == 1 {
            return Ok(first.tail());
        }
        // A prefix that ends before the keys part covers them all, so it is the first.
        let decided = first.key.common(last.key).min(first.len - 1);
        let lies = branch_depth(depth, decided);
        let mut parts = Parts::empty();
        let mut rest = routes;
        while let Some(route) = rest.first() {
            if route.len <= lies + STRIDE {
                let len = route.len - lies;
                parts.set_result(len, route.key.bits(lies, len), route.hop);
                rest = rest.get(1..).unwrap_or(&[]);
                continue;
            }
            let slot = route.key.bits(lies, STRIDE);
            let count = rest.partition_point(|other| other.key.bits(lies, STRIDE) == slot);
            let (below, after) = rest.split_at_checked(count.max(1)).unwrap_or((rest, &[]));
            let child = self.build(lies + STRIDE, below)?;
            parts.set_child(slot, child);
            rest = after;
        }
        let branch = self.lay_branch(parts)?;
        self.wrap(depth, lies, first.key, branch)
    }

    /// The cell that holds what `cell` holds and `route`.
    pub(crate) fn insert<K: PrefixKey>(
        &mut self,
        cell: Cell<K>,
        depth: u8,
        route: PrefixEntry<K>,
    ) -> Result<Cell<K>, Exhausted> {
        match cell {
            Cell::Tail(tail) if (tail.key, tail.len) == (route.key, route.len) => Ok(route.tail()),
            Cell::Tail(Tail { key, len, hop }) => {
                let mut both = [PrefixEntry { key, len, hop }, route];
                both.sort_unstable();
                self.build(depth, &both)
            }
            Cell::Skip(skip) => self.insert_at_skip(skip, depth, route),
            Cell::Branch(branch) => {
                let mut parts = self.take_up(branch);
                self.insert_into(&mut parts, depth, route)?;
                Ok(Cell::Branch(self.lay_branch(parts)?))
            }
        }
    }

    fn insert_at_skip<K: PrefixKey>(
        &mut self,
        skip: Skip<K>,
        depth: u8,
        route: PrefixEntry<K>,
    ) -> Result<Cell<K>, Exhausted> {
        let decided = skip.key.common(route.key).min(route.len - 1);
        if decided >= skip.len {
            let Some(below) = self.take_up_one(skip.next) else { return Err(Exhausted) };
            let below = self.insert(below, skip.len, route)?;
            return Ok(Cell::Skip(Skip { next: self.lay_one(below)?, ..skip }));
        }
        // The route ends or parts before the skip does: a branch comes to lie there.
        let lies = branch_depth(depth, decided);
        let mut parts = Parts::empty();
        let rest = if lies + STRIDE == skip.len {
            self.take_up_one(skip.next).ok_or(Exhausted)?
        } else {
            Cell::Skip(skip)
        };
        parts.set_child(skip.key.bits(lies, STRIDE), rest);
        self.insert_into(&mut parts, lies, route)?;
        let branch = self.lay_branch(parts)?;
        self.wrap(depth, lies, route.key, branch)
    }

    fn insert_into<K: PrefixKey>(
        &mut self,
        parts: &mut Parts<K>,
        depth: u8,
        route: PrefixEntry<K>,
    ) -> Result<(), Exhausted> {
        if route.len <= depth + STRIDE {
            let len = route.len - depth;
            parts.set_result(len, route.key.bits(depth, len), route.hop);
            return Ok(());
        }
        let slot = route.key.bits(depth, STRIDE);
        let child = match child_of(parts, slot) {
            Some(child) => self.insert(child, depth + STRIDE, route)?,
            None => route.tail(),
        };
        parts.set_child(slot, child);
        Ok(())
    }

    /// The cell that holds what `cell` holds but for the prefix `key`, `len`; none if that was all.
    pub(crate) fn remove<K: PrefixKey>(
        &mut self,
        cell: Cell<K>,
        depth: u8,
        (key, len): (K, u8),
    ) -> Result<Option<Cell<K>>, Exhausted> {
        match cell {
            Cell::Tail(tail) => Ok(((tail.key, tail.len) != (key, len)).then_some(cell)),
            Cell::Skip(skip) => {
                if skip.key.common(key) < skip.len || len <= skip.len {
                    return Ok(Some(cell));
                }
                let Some(below) = self.take_up_one(skip.next) else { return Err(Exhausted) };
                match self.remove(below, skip.len, (key, len))? {
                    Some(below @ Cell::Branch(_)) => {
                        Ok(Some(Cell::Skip(Skip { next: self.lay_one(below)?, ..skip })))
                    }
                    // A tail or a skip says itself where it leads, from whatever depth.
                    other => Ok(other),
                }
            }
            Cell::Branch(branch) => {
                let mut parts = self.take_up(branch);
                self.remove_from(&mut parts, depth, (key, len))?;
                self.settle(parts, depth, key)
            }
        }
    }

    fn remove_from<K: PrefixKey>(
        &mut self,
        parts: &mut Parts<K>,
        depth: u8,
        (key, len): (K, u8),
    ) -> Result<(), Exhausted> {
        if len <= depth + STRIDE {
            parts.clear_result(len - depth, key.bits(depth, len - depth));
            return Ok(());
        }
        let slot = key.bits(depth, STRIDE);
        let Some(child) = child_of(parts, slot) else { return Ok(()) };
        match self.remove(child, depth + STRIDE, (key, len))? {
            Some(child) => parts.set_child(slot, child),
            None => parts.clear_child(slot),
        }
        Ok(())
    }

    /// The cell for a branch that has lost something: a branch only if it still decides something.
    fn settle<K: PrefixKey>(
        &mut self,
        parts: Parts<K>,
        depth: u8,
        key: K,
    ) -> Result<Option<Cell<K>>, Exhausted> {
        match (parts.results.items(), parts.children.items()) {
            ([], []) => Ok(None),
            (&[hop], []) => {
                let (len, bits) = only_result(&parts.branch);
                let key = key.masked(depth).with_bits(depth, len, bits);
                Ok(Some(Cell::Tail(Tail { key, len: depth + len, hop })))
            }
            ([], &[only]) => {
                let slot = parts.branch.external.trailing_zeros();
                let Cell::Branch(below) = only else { return Ok(Some(only)) };
                let (lies, next) = (depth + STRIDE, self.lay_one(Cell::<K>::Branch(below))?);
                let key = key.masked(depth).with_bits(depth, STRIDE, slot);
                Ok(Some(Cell::Skip(Skip { key, len: lies, next })))
            }
            _ => Ok(Some(Cell::Branch(self.lay_branch(parts)?))),
        }
    }
}

fn child_of<K: PrefixKey>(parts: &Parts<K>, slot: u32) -> Option<Cell<K>> {
    let nth = parts.branch.child(slot)?;
    parts.children.items().get(index(nth)).copied()
}

/// Length and bits of the one prefix that ends in `branch`.
fn only_result(branch: &Branch) -> (u8, u32) {
    if branch.exact != 0 {
        return (STRIDE, branch.exact.trailing_zeros());
    }
    // Heap order: the prefixes of `len` bits begin at `2^len - 2`.
    let heap = branch.short.trailing_zeros() + 2;
    let len = heap.checked_ilog2().unwrap_or(0);
    (u8::try_from(len).unwrap_or(0), heap - (1 << len))
}

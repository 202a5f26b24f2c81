//! Room for cells and results inside one half of a route area.
//!
//! Cells grow from the bottom and results from the top, so that cells stay aligned to half a cache
//! line. Freed pieces wait in *limbo* until the area's generation ensures that no reader that could
//! still see them trusts its result.

use super::cell::CELL_WORDS;
use std::ops::Range;

/// Sizes of pieces, in cells or in results; a request is rounded up to the next one.
const SIZES: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// The half is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Exhausted;

/// The kind of elements in a piece of the arena.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ElementKind {
    Cells,
    Results,
}

impl ElementKind {
    /// Words of one element.
    const fn words(self) -> u32 {
        match self {
            Self::Cells => CELL_WORDS,
            Self::Results => 1,
        }
    }
}

/// Pieces of one kind that were freed, by the index of their size.
#[derive(Debug, Default)]
struct Free {
    ready: [Vec<u32>; SIZES.len()],
    limbo: Vec<(usize, u32)>,
}

/// The free room of one half.
#[derive(Debug)]
pub(crate) struct Arena {
    room: Range<u32>,
    cells: Free,
    results: Free,
    limbo_words: u32,
    used_words: u32,
}

impl Arena {
    /// All of `room` is free; its start is aligned to a cell.
    pub(crate) fn new(room: Range<u32>) -> Self {
        let (cells, results) = (Free::default(), Free::default());
        Self { room, cells, results, limbo_words: 0, used_words: 0 }
    }

    /// Words in use, rounding included.
    pub(crate) fn used_words(&self) -> u32 {
        self.used_words
    }

    /// Words that wait until no reader can see them.
    pub(crate) fn limbo_words(&self) -> u32 {
        self.limbo_words
    }

    /// Room for `count` elements; nothing (offset 0) for none.
    pub(crate) fn take(&mut self, kind: ElementKind, count: u32) -> Result<u32, Exhausted> {
        let Some((class, words)) = class(kind, count)? else { return Ok(0) };
        let free = match kind {
            ElementKind::Cells => &mut self.cells,
            ElementKind::Results => &mut self.results,
        };
        let at = match free.ready.get_mut(class).and_then(Vec::pop) {
            Some(at) => at,
            None => self.grow(kind, words)?,
        };
        self.used_words += words;
        Ok(at)
    }

    /// Takes new room from the gap in the middle.
    fn grow(&mut self, kind: ElementKind, words: u32) -> Result<u32, Exhausted> {
        let left = self.room.end.saturating_sub(self.room.start);
        if left < words {
            return Err(Exhausted);
        }
        match kind {
            ElementKind::Cells => {
                let at = self.room.start;
                self.room.start += words;
                Ok(at)
            }
            ElementKind::Results => {
                self.room.end -= words;
                Ok(self.room.end)
            }
        }
    }

    /// Frees room that readers may still be reading.
    pub(crate) fn give(&mut self, kind: ElementKind, at: u32, count: u32) {
        let Ok(Some((class, words))) = class(kind, count) else { return };
        let free = match kind {
            ElementKind::Cells => &mut self.cells,
            ElementKind::Results => &mut self.results,
        };
        free.limbo.push((class, at));
        self.used_words = self.used_words.saturating_sub(words);
        self.limbo_words += words;
    }

    /// Makes waiting pieces available again; the caller has just changed the area's generation.
    pub(crate) fn reclaim(&mut self) {
        for free in [&mut self.cells, &mut self.results] {
            for (class, at) in free.limbo.drain(..) {
                if let Some(ready) = free.ready.get_mut(class) {
                    ready.push(at);
                }
            }
        }
        self.limbo_words = 0;
    }
}

/// Index and words of the size that holds `count` elements.
fn class(kind: ElementKind, count: u32) -> Result<Option<(usize, u32)>, Exhausted> {
    if count == 0 {
        return Ok(None);
    }
    let class = SIZES.partition_point(|&size| size < count);
    let size = SIZES.get(class).ok_or(Exhausted)?;
    Ok(Some((class, size * kind.words())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_room_is_handed_out_again_only_after_the_reclaim() {
        let mut arena = Arena::new(64..128);
        let first = arena.take(ElementKind::Cells, 1).unwrap();
        arena.give(ElementKind::Cells, first, 1);
        let second = arena.take(ElementKind::Cells, 1).unwrap();
        assert_ne!(first, second);
        arena.reclaim();
        assert_eq!(arena.take(ElementKind::Cells, 1).unwrap(), first);
    }

    #[test]
    fn cells_and_results_meet_in_the_middle() {
        let mut arena = Arena::new(0..32);
        assert_eq!(arena.take(ElementKind::Cells, 2), Ok(0));
        assert_eq!(arena.take(ElementKind::Results, 5), Ok(26));
        assert_eq!(arena.take(ElementKind::Cells, 1), Ok(16));
        assert_eq!(arena.take(ElementKind::Results, 3), Err(Exhausted));
        assert_eq!(arena.take(ElementKind::Results, 2), Ok(24));
        assert_eq!(arena.take(ElementKind::Cells, 129), Err(Exhausted));
        assert_eq!(arena.used_words(), 32);
    }

    #[test]
    fn every_size_holds_what_was_asked_for_and_wastes_less_than_half() {
        for count in 1..=128 {
            let (_, words) = class(ElementKind::Results, count).unwrap().unwrap();
            assert!(words >= count && words * 2 <= count * 3, "{count} in {words}");
        }
    }
}

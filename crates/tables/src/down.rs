//! Shares of links that are down, a word of workers for each link.

use crate::memory::Words;
use crate::sync::{AtomicU32, Ordering};

/// The shares of links that are down; a link counts as up only when all its shares are. Clones are
/// the same.
///
/// Each worker changes its own bit, by one atomic operation.
#[derive(Clone, Debug)]
pub struct DownShares(Words);

impl Default for DownShares {
    /// No links.
    fn default() -> Self {
        Self(Words::zeroed(0))
    }
}

impl DownShares {
    /// The bits of a number of links, all up, in this process's own memory.
    pub fn private(links: usize) -> Self {
        Self(Words::zeroed(links))
    }

    pub(crate) fn new(words: Words) -> Self {
        Self(words)
    }

    fn word(&self, link: u16) -> Option<&AtomicU32> {
        self.0.all().get(usize::from(link))
    }

    /// Records that a worker has found its share of a link up or down.
    pub fn set(&self, link: u16, worker: usize, up: bool) {
        let own = u32::try_from(worker).ok().and_then(|worker| 1_u32.checked_shl(worker));
        let (Some(down), Some(own)) = (self.word(link), own) else { return };
        if up {
            down.fetch_and(!own, Ordering::AcqRel);
        } else {
            down.fetch_or(own, Ordering::AcqRel);
        }
    }

    /// Whether no worker has found its share of the link down.
    pub fn is_up(&self, link: u16) -> bool {
        self.word(link).is_none_or(|down| down.load(Ordering::Acquire) == 0)
    }

    /// Records all shares as up: for workers that have opened their links anew.
    pub fn clear(&self) {
        for word in self.0.all().iter().filter(|word| word.load(Ordering::Acquire) != 0) {
            word.store(0, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_up_when_all_its_shares_are() {
        let downs = DownShares::private(2);
        assert!(downs.is_up(1));
        downs.set(1, 0, false);
        downs.set(1, 3, false);
        downs.set(1, 0, true);
        assert!(!downs.is_up(1) && downs.is_up(0));
        downs.set(1, 3, true);
        assert!(downs.is_up(1));
        downs.set(1, 31, false);
        downs.clear();
        assert!(downs.is_up(1) && downs.is_up(2), "a link that is not there is not down");
    }
}

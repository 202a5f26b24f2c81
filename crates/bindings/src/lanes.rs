//! Lanes that wait for something to be done about them: each once, and so many at the most.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Lanes in the order in which they were told.
#[derive(Debug)]
pub(crate) struct Lanes {
    most: usize,
    waiting: Mutex<Waiting>,
    told: Notify,
    turned_away: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>>,
}

impl Lanes {
    /// No lanes yet, of which so many may wait.
    pub(crate) fn new(most: usize) -> Self {
        let (waiting, told, turned_away) = Default::default();
        Self { most, waiting, told, turned_away }
    }

    /// Has a lane wait that does not wait already. One that finds no room is to be told again.
    pub(crate) fn tell(&self, lane: Arc<str>) {
        let mut waiting = self.lock();
        if waiting.known.contains(&lane) {
            return;
        }
        if waiting.order.len() >= self.most {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.known.insert(Arc::clone(&lane));
        waiting.order.push_back(lane);
        drop(waiting);
        self.told.notify_one();
    }

    /// The lane that has waited longest, once there is one. Dropping the future loses none.
    pub(crate) async fn next(&self) -> Arc<str> {
        loop {
            if let Some(lane) = self.take() {
                return lane;
            }
            self.told.notified().await;
        }
    }

    fn take(&self) -> Option<Arc<str>> {
        let mut waiting = self.lock();
        let lane = waiting.order.pop_front()?;
        waiting.known.remove(&lane);
        Some(lane)
    }

    /// Lanes that found no room.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// A panic elsewhere leaves lanes that may be told again.
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_waits_once_and_only_so_many_wait() {
        let lanes = Lanes::new(2);
        for lane in ["a", "b", "a", "b", "c", "a"] {
            lanes.tell(lane.into());
        }
        assert_eq!(lanes.turned_away(), 1);
        assert_eq!(&*lanes.next().await, "a");
        // It does not wait any more, and stands behind who waits.
        for lane in ["a", "b"] {
            lanes.tell(lane.into());
        }
        assert_eq!((&*lanes.next().await, &*lanes.next().await), ("b", "a"));
        assert!(lanes.take().is_none());
    }

    #[tokio::test]
    async fn who_waits_for_a_lane_is_woken() {
        let lanes = Arc::new(Lanes::new(1));
        let theirs = Arc::clone(&lanes);
        let next = tokio::spawn(async move { theirs.next().await });
        tokio::task::yield_now().await;
        lanes.tell("a".into());
        assert_eq!(&*next.await.unwrap(), "a");
    }
}

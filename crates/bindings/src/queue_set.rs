//! A bounded set of outbox queues that wait for an action, each at capacity once.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Queues in the order in which they were added.
#[derive(Debug)]
pub(crate) struct QueueSet {
    capacity: usize,
    waiting: Mutex<Waiting>,
    told: Notify,
    turned_away: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>>,
}

impl QueueSet {
    /// Creates an empty set for up to `capacity` queues.
    pub(crate) fn new(capacity: usize) -> Self {
        let (waiting, told, turned_away) = Default::default();
        Self { capacity, waiting, told, turned_away }
    }

    /// Adds a queue unless it is in the set. A queue that finds no room has to be added again.
    pub(crate) fn tell(&self, queue: Arc<str>) {
        let mut waiting = self.lock();
        if waiting.known.contains(&queue) {
            return;
        }
        if waiting.order.len() >= self.capacity {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.known.insert(Arc::clone(&queue));
        waiting.order.push_back(queue);
        drop(waiting);
        self.told.notify_one();
    }

    /// Waits for the oldest queue. Dropping the future loses none.
    pub(crate) async fn next(&self) -> Arc<str> {
        loop {
            if let Some(queue) = self.take() {
                return queue;
            }
            self.told.notified().await;
        }
    }

    fn take(&self) -> Option<Arc<str>> {
        let mut waiting = self.lock();
        let queue = waiting.order.pop_front()?;
        waiting.known.remove(&queue);
        Some(queue)
    }

    /// Queues that found no room.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// A poisoned lock is safe here: queues may be added again.
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_waits_once_and_only_so_many_wait() {
        let queues = QueueSet::new(2);
        for queue in ["a", "b", "a", "b", "c", "a"] {
            queues.tell(queue.into());
        }
        assert_eq!(queues.turned_away(), 1);
        assert_eq!(&*queues.next().await, "a");
        // It does not wait any more, and stands behind who waits.
        for queue in ["a", "b"] {
            queues.tell(queue.into());
        }
        assert_eq!((&*queues.next().await, &*queues.next().await), ("b", "a"));
        assert!(queues.take().is_none());
    }

    #[tokio::test]
    async fn who_waits_for_a_lane_is_woken() {
        let queues = Arc::new(QueueSet::new(1));
        let theirs = Arc::clone(&queues);
        let next = tokio::spawn(async move { theirs.next().await });
        tokio::task::yield_now().await;
        queues.tell("a".into());
        assert_eq!(&*next.await.unwrap(), "a");
    }
}

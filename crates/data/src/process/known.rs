//! What a process that comes after the one that runs is to have.

use super::{adoption::resolved, handshake::Restored};
use crate::{
    port::{HandlerOrder, StageNumber},
    setup::DataSetup,
};
use gatewright_packet::LinkIndex;
use std::collections::BTreeMap;

/// Staged wirings that are known: the workers know as many.
const STAGED_MAX: usize = 8;

/// What a process that comes after the one that runs is to have.
pub(super) struct Known {
    pub(super) setup: DataSetup,
    pub(super) restored: Restored,
    /// The handlers of an earlier control plane, until the first commit replaces them.
    inherited: Option<Vec<HandlerOrder>>,
    /// Staged wirings by numbers that no two processes share.
    staged: BTreeMap<StageNumber, Staged>,
    next_stage: u64,
    commits: CommitNumbers,
    /// What it gives a later control plane.
    pub(super) memo: String,
}

/// A staged wiring.
struct Staged {
    /// Its number at the process that has it; `None` if that has ended.
    at: Option<StageNumber>,
    orders: Vec<HandlerOrder>,
}

/// The number of a commit, in the order of commits.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct CommitNumber(u64);

#[derive(Default)]
struct CommitNumbers {
    last: CommitNumber,
    /// The last one whose handlers are in the order to start the next process.
    ordered: CommitNumber,
    /// The last one whose handlers the process that runs has begun with.
    begun_with: CommitNumber,
}

/// A commit that is noted.
pub(super) struct NotedCommit {
    /// The wiring's number at the process that has staged it; `None` if that has ended.
    pub(super) at: Option<StageNumber>,
    /// Its handlers, all of them new.
    pub(super) orders: Vec<HandlerOrder>,
    pub(super) number: CommitNumber,
}

impl Known {
    pub(super) fn new(setup: DataSetup) -> Self {
        Self {
            setup,
            restored: Restored::default(),
            inherited: None,
            staged: BTreeMap::new(),
            next_stage: 1,
            commits: CommitNumbers::default(),
            memo: String::new(),
        }
    }

    /// Goes on with what an earlier control plane has left: its handlers until the first commit, the
    /// links that it has taken down, and what it wanted a later one to have.
    pub(super) fn inherit(
        &mut self,
        standing: Vec<HandlerOrder>,
        down: Vec<LinkIndex>,
        memo: String,
    ) {
        self.inherited = Some(standing);
        self.restored.down = down;
        self.memo = memo;
    }

    /// What the next process is ordered to begin with.
    pub(super) fn order_next(&mut self) -> (DataSetup, Restored) {
        self.commits.ordered = self.commits.last;
        let mut restored = self.restored.clone();
        if let Some(inherited) = &self.inherited {
            restored.standing.clone_from(inherited);
        }
        (self.setup.clone(), restored)
    }

    /// The process that was ordered last runs.
    pub(super) const fn begin(&mut self) {
        self.commits.begun_with = self.commits.ordered;
    }

    /// The process has ended, with what it had staged.
    pub(super) fn end(&mut self) {
        self.staged.values_mut().for_each(|staged| staged.at = None);
    }

    /// The orders with each kept handler as it was ordered when it was new.
    pub(super) fn resolved(&self, orders: &[HandlerOrder]) -> Vec<HandlerOrder> {
        resolved(orders, &self.restored.standing)
    }

    /// Keeps a wiring that the process has staged under the number `at`; returns its number here.
    pub(super) fn stage(&mut self, at: StageNumber, orders: Vec<HandlerOrder>) -> StageNumber {
        if self.staged.len() >= STAGED_MAX {
            self.staged.pop_first();
        }
        let number = StageNumber(self.next_stage);
        self.next_stage += 1;
        self.staged.insert(number, Staged { at: Some(at), orders });
        number
    }

    /// Notes that the handlers of a staged wiring stand from now on.
    pub(super) fn commit(&mut self, stage: StageNumber) -> Option<NotedCommit> {
        let Staged { at, orders } = self.staged.remove(&stage)?;
        self.restored.standing.clone_from(&orders);
        self.inherited = None;
        self.commits.last.0 += 1;
        Some(NotedCommit { at, orders, number: self.commits.last })
    }

    /// Forgets a staged wiring; returns its number at the process that has it.
    pub(super) fn discard(&mut self, stage: StageNumber) -> Option<StageNumber> {
        self.staged.remove(&stage)?.at
    }

    /// Whether the process that runs has begun with the handlers of this commit, or of a later one.
    pub(super) fn has_begun_with(&self, commit: CommitNumber) -> bool {
        self.commits.begun_with >= commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::HandlerValue;
    use gatewright_stack::{At, Attachment, AttachmentId, NeighbourLimits, Place};
    use std::time::Duration;

    fn known() -> Known {
        Known::new(DataSetup {
            links: Vec::new(),
            workers: 1,
            spin: Duration::ZERO,
            frames: 16,
            chunk_size: 2048,
            cores: Vec::new(),
            neighbours: NeighbourLimits::DEFAULT,
            seed: 7,
            waits: false,
        })
    }

    fn orders(id: u32) -> Vec<HandlerOrder> {
        let at = Attachment::new(At::Frame, Place::Tap);
        vec![HandlerOrder::New(AttachmentId(id), at, HandlerValue::Count)]
    }

    /// Numbers of wirings begin anew in each process: one that was staged in the last process is not
    /// taken for one of the next.
    #[test]
    fn a_wiring_of_a_process_that_has_ended_is_no_other_wiring() {
        let mut known = known();
        let first = known.stage(StageNumber(1), orders(1));
        known.end();
        let second = known.stage(StageNumber(1), orders(2));
        let noted = known.commit(first).unwrap();
        assert_eq!((noted.at, noted.orders), (None, orders(1)));
        assert_eq!(known.discard(second), Some(StageNumber(1)));
        assert!(known.commit(second).is_none() && known.commit(first).is_none());
    }

    /// A process that was ordered before a commit does not have its handlers.
    #[test]
    fn a_process_has_the_handlers_that_were_committed_before_its_order() {
        let mut known = known();
        let stage = known.stage(StageNumber(1), orders(1));
        known.end();
        let (_, restored) = known.order_next();
        let noted = known.commit(stage).unwrap();
        known.begin();
        assert!(restored.standing.is_empty() && !known.has_begun_with(noted.number));
        let (_, restored) = known.order_next();
        known.begin();
        assert!(restored.standing == orders(1) && known.has_begun_with(noted.number));
    }

    #[test]
    fn the_handlers_of_an_earlier_control_plane_go_on_until_the_first_commit() {
        let mut known = known();
        known.inherit(orders(1), vec![LinkIndex(3)], "a memo".to_owned());
        let (_, restored) = known.order_next();
        assert_eq!((restored.standing, restored.down), (orders(1), vec![LinkIndex(3)]));
        assert!(known.restored.standing.is_empty(), "they are not this control plane's");
        let stage = known.stage(StageNumber(1), orders(2));
        known.commit(stage).unwrap();
        assert_eq!(known.order_next().1.standing, orders(2));
    }
}

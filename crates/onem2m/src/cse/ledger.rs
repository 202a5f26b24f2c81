//! What was written and said, in batches: what is said waits until what was written is stored.

use super::{Batch, Output, Token};
use crate::primitive::{Release, Response};
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::Record;
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches not yet stored, how to undo them, and outputs that wait for them.
#[derive(Debug)]
pub(super) struct Ledger {
    next_seq: u64,
    epoch: u64,
    /// The number of the batch being written.
    number: u64,
    committed: u64,
    records: Vec<Record>,
    /// How records are undone, with their batches' numbers: those of the batch being written, and of
    /// batches that were handed out and are not yet known to be stored.
    open: VecDeque<(u64, Undo)>,
    /// Outputs of the step under way.
    fresh: Vec<Output>,
    /// The latest batch whose effect the step under way has seen.
    seen: u64,
    /// By the batch that they wait for, in ascending order.
    waiting: VecDeque<(u64, Output)>,
    ready: VecDeque<Output>,
}

/// How one record is taken back.
#[derive(Debug)]
pub(super) enum Undo {
    /// By another record.
    Row(Record),
    /// An instance goes, and what holds it has again this stateTag and this time of modification,
    /// which are stored with its instances.
    Instance { seq: u64, holder: Option<(u64, Timestamp)> },
}

impl From<Record> for Undo {
    fn from(record: Record) -> Self {
        Self::Row(record)
    }
}

/// What a failure takes back.
#[derive(Debug, Default)]
pub(super) struct Undone {
    pub(super) batches: u64,
    /// To be applied in this order.
    pub(super) steps: Vec<Undo>,
    pub(super) unanswered: Vec<(Token, Arc<str>, Release)>,
}

impl Ledger {
    pub(super) const fn new(next_seq: u64) -> Self {
        Self {
            next_seq,
            epoch: 0,
            number: 1,
            committed: 0,
            records: Vec::new(),
            open: VecDeque::new(),
            fresh: Vec::new(),
            seen: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// The number of the batch being written.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// A number for a new row.
    pub(super) const fn next_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// The number that the next row will have.
    pub(super) const fn peek_seq(&self) -> u64 {
        self.next_seq
    }

    /// Makes sure that new rows are numbered above `seq`.
    pub(super) fn keep_above(&mut self, seq: u64) {
        self.next_seq = self.next_seq.max(seq.saturating_add(1));
    }

    pub(super) fn write(&mut self, record: Record, undo: impl Into<Undo>) {
        self.records.push(record);
        self.open.push_back((self.number, undo.into()));
    }

    /// What is said in this step depends on the batch `number`.
    pub(super) fn see(&mut self, number: u64) {
        self.seen = self.seen.max(number);
    }

    /// What is said in this step depends on everything written so far.
    pub(super) fn see_all(&mut self) {
        self.see(self.number.saturating_sub(1));
    }

    pub(super) fn respond(&mut self, token: Token, response: Response) {
        self.fresh.push(Output::Respond { token, response });
    }

    /// Tells at once how a request ends.
    pub(super) fn settled(&mut self, token: Token, status: Status) {
        self.ready.push_back(Output::Settled { token, status });
    }

    /// Says something that depends on what this step has seen and written.
    pub(super) fn say(&mut self, output: Output) {
        self.fresh.push(output);
    }

    /// Closes the step. Whether it made a batch.
    pub(super) fn settle(&mut self) -> bool {
        let wrote = !self.records.is_empty();
        if wrote {
            let records = core::mem::take(&mut self.records);
            self.seen = self.number;
            self.ready.push_back(Output::Store(Batch {
                number: self.number,
                epoch: self.epoch,
                next_seq: self.next_seq,
                records,
            }));
            self.number += 1;
        }
        if self.seen > self.committed {
            self.wait();
        } else {
            self.ready.extend(self.fresh.drain(..));
        }
        self.seen = 0;
        wrote
    }

    /// Has what this step said wait for the latest batch that it has seen.
    fn wait(&mut self) {
        // Mostly the last: only who has written nothing waits for an earlier batch.
        let at = self.waiting.partition_point(|(number, _)| *number <= self.seen);
        let later = self.waiting.split_off(at);
        self.waiting.extend(self.fresh.drain(..).map(|output| (self.seen, output)));
        self.waiting.extend(later);
    }

    /// Lets out what waited for batches up to `number`.
    pub(super) fn committed(&mut self, number: u64) {
        self.committed = self.committed.max(number.min(self.number - 1));
        let committed = self.committed;
        while self.open.pop_front_if(|(number, _)| *number <= committed).is_some() {}
        while let Some((_, output)) = self.waiting.pop_front_if(|(it, _)| *it <= committed) {
            self.ready.push_back(output);
        }
    }

    /// Gives up the batches from `number` on.
    pub(super) fn fail(&mut self, number: u64) -> Undone {
        // The store takes batches in order: what came before the failed one is stored.
        self.committed(number.saturating_sub(1));
        let mut undone = Undone::default();
        let mut last = self.number;
        while let Some((number, undo)) = self.open.pop_back_if(|(it, _)| *it < self.number) {
            undone.batches += u64::from(number != last);
            undone.steps.push(undo);
            last = number;
        }
        for (_, output) in core::mem::take(&mut self.waiting) {
            if let Output::Respond { token, response } = output {
                undone.unanswered.push((token, response.id, response.release));
            }
        }
        self.ready.retain(|output| !matches!(output, Output::Store(_)));
        self.epoch += 1;
        // Everything up to here is stored or taken back: nothing waits for it any more.
        self.committed = self.number - 1;
        undone
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.ready.pop_front()
    }
}

//! Batches of changes, and outputs that wait until their batch is stored.

use super::outbox::Kept;
use super::repeats::RequestKey;
use super::{AuditEntry, AuditedRequest, Batch, CallId, Output, Token};
use crate::paged::InstanceRecord;
use crate::primitive::{Release, Response};
use crate::time::Timestamp;
use crate::tree::RowChange;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Batches not yet stored, their undo records, and waiting outputs.
#[derive(Debug)]
pub(super) struct Ledger {
    next_seq: u64,
    epoch: u64,
    /// The number of the batch being written.
    number: u64,
    committed: u64,
    records: Vec<RowChange>,
    /// Undo records with their batches' numbers: of the batch being written, and of batches passed
    /// to the store and not yet known to be stored.
    open: VecDeque<(u64, Undo)>,
    /// Audit log entries of the current step.
    entries: Vec<AuditEntry>,
    /// Logged requests with their batches' numbers, as long as those may be undone.
    noted: VecDeque<(u64, Token, Arc<AuditedRequest>)>,
    /// Outputs of the current step.
    fresh: Vec<Output>,
    /// Requests answered in the current step, to be remembered.
    remembered: Vec<RequestKey>,
    /// The latest batch whose effect the current step has seen.
    seen: u64,
    /// The latest batch with rows.
    rows: u64,
    /// Outputs by the batch that they wait for, in ascending order; with it, the latest batch with
    /// rows whose effect they have seen.
    waiting: VecDeque<(u64, u64, Output)>,
    ready: VecDeque<Output>,
}

/// How one record is undone.
#[derive(Debug)]
pub(super) enum Undo {
    /// By another record.
    Row(RowChange),
    /// Removes an instance and restores its parent's stateTag and time of modification, which are
    /// stored with its instances.
    Instance { seq: u64, holder: Option<(u64, Timestamp)> },
    /// Adds an instance again that was paged out, below the resource of the number `holder`.
    PagedOut { holder: u64, record: InstanceRecord },
    /// Deletes the row of an outbox message that is done with another time.
    Message { seq: u64, kept: Box<Kept> },
}

impl From<RowChange> for Undo {
    fn from(record: RowChange) -> Self {
        Self::Row(record)
    }
}

/// Effects of a failed batch.
#[derive(Debug, Default)]
pub(super) struct Undone {
    pub(super) batches: u64,
    /// To be applied in this order.
    pub(super) steps: Vec<Undo>,
    pub(super) unanswered: Vec<Unanswered>,
    /// Outgoing requests that were not sent.
    pub(super) unsent: Vec<CallId>,
}

/// An answer that must not be sent.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) token: Token,
    pub(super) id: Arc<str>,
    pub(super) release: Release,
    /// Audit data of the request.
    pub(super) asked: Option<Arc<AuditedRequest>>,
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
            entries: Vec::new(),
            noted: VecDeque::new(),
            fresh: Vec::new(),
            remembered: Vec::new(),
            seen: 0,
            rows: 0,
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

    /// Ensures that new rows have numbers above `seq`.
    pub(super) fn keep_above(&mut self, seq: u64) {
        self.next_seq = self.next_seq.max(seq.saturating_add(1));
    }

    pub(super) fn write(&mut self, record: RowChange, undo: impl Into<Undo>) {
        self.records.push(record);
        self.open.push_back((self.number, undo.into()));
    }

    /// Makes this step's outputs depend on the batch `number`.
    pub(super) fn see(&mut self, number: u64) {
        self.seen = self.seen.max(number);
    }

    /// Makes this step's outputs depend on everything written so far.
    pub(super) fn see_all(&mut self) {
        self.see(self.rows);
    }

    pub(super) fn respond(&mut self, token: Token, response: Response) {
        self.fresh.push(Output::Respond { token, response });
    }

    /// Sends an answer that depends on no batch.
    pub(super) fn respond_now(&mut self, token: Token, response: Response) {
        self.ready.push_back(Output::Respond { token, response });
    }

    /// Emits an output that depends on no batch.
    pub(super) fn say_now(&mut self, output: Output) {
        self.ready.push_back(output);
    }

    /// Whether every batch up to this number is stored.
    pub(super) const fn is_stored(&self, number: u64) -> bool {
        number <= self.committed
    }

    /// Whether this step has a success answer for `token`.
    pub(super) fn has_succeeded(&self, token: Token) -> bool {
        self.fresh.iter().rev().any(|output| match output {
            Output::Respond { token: it, response } => *it == token && response.status.is_success(),
            _ => false,
        })
    }

    /// Whether this step has an answer for `token`.
    pub(super) fn has_answered(&self, token: Token) -> bool {
        let is_it =
            |output: &Output| matches!(output, Output::Respond { token: it, .. } if *it == token);
        self.fresh.iter().rev().any(is_it)
    }

    /// The answer of this step for `token`.
    pub(super) fn response_to(&self, token: Token) -> Option<Response> {
        self.fresh.iter().rev().find_map(|output| match output {
            Output::Respond { token: it, response } if *it == token => Some(response.clone()),
            _ => None,
        })
    }

    /// Adds an audit log entry to the current step.
    pub(super) fn note(&mut self, entry: AuditEntry) {
        self.entries.push(entry);
    }

    /// Links the last entry with this request, in case its answer is undone.
    pub(super) fn noted(&mut self, token: Token, asked: Arc<AuditedRequest>) {
        self.noted.push_back((self.number, token, asked));
    }

    /// Adds an output that depends on what this step has seen and written.
    pub(super) fn say(&mut self, output: Output) {
        self.fresh.push(output);
    }

    /// Remembers a request with what this step has stored.
    pub(super) fn remember(&mut self, key: RequestKey) {
        self.remembered.push(key);
    }

    /// The requests to be remembered with what this step has stored.
    pub(super) fn remembered(&self) -> &[RequestKey] {
        &self.remembered
    }

    /// The row of this step with this text.
    pub(super) fn row_of(&self, text: &Arc<str>) -> Option<u64> {
        self.records.iter().find_map(|record| match record {
            RowChange::Put { seq, body } if Arc::ptr_eq(body, text) => Some(*seq),
            _ => None,
        })
    }

    /// Whether this step has something to store.
    pub(super) const fn has_written(&self) -> bool {
        !self.records.is_empty()
    }

    /// Closes the step, with the clocks to store. Returns whether it made a batch of rows.
    pub(super) fn settle(
        &mut self,
        (clock, remembered): (Option<Arc<str>>, Option<Arc<str>>),
    ) -> bool {
        self.remembered.clear();
        let wrote = !self.records.is_empty();
        if wrote {
            (self.seen, self.rows) = (self.number, self.number);
        }
        let mut until = self.seen;
        let logs = wrote || !self.entries.is_empty();
        if logs {
            until = self.number;
        }
        // Nothing waits for the clocks alone.
        if logs || clock.is_some() {
            self.ready.push_back(Output::Store(Batch {
                number: self.number,
                epoch: self.epoch,
                next_seq: self.next_seq,
                records: core::mem::take(&mut self.records),
                entries: core::mem::take(&mut self.entries),
                clock,
                remembered,
            }));
            self.number += 1;
        }
        if until > self.committed {
            self.wait(until);
        } else {
            self.ready.extend(self.fresh.drain(..));
        }
        self.seen = 0;
        wrote
    }

    /// Makes this step's outputs wait for the batch `until`.
    fn wait(&mut self, until: u64) {
        // Mostly the last: only who has written nothing waits for an earlier batch.
        let at = self.waiting.partition_point(|(number, ..)| *number <= until);
        let later = self.waiting.split_off(at);
        self.waiting.extend(self.fresh.drain(..).map(|output| (until, self.seen, output)));
        self.waiting.extend(later);
    }

    /// Releases outputs that waited for batches up to `number`.
    pub(super) fn committed(&mut self, number: u64) {
        self.committed = self.committed.max(number.min(self.number - 1));
        let committed = self.committed;
        while self.open.pop_front_if(|(number, _)| *number <= committed).is_some() {}
        while self.noted.pop_front_if(|(number, ..)| *number <= committed).is_some() {}
        while let Some((.., output)) = self.waiting.pop_front_if(|(it, ..)| *it <= committed) {
            self.ready.push_back(output);
        }
    }

    /// Discards the batches from `number` on. If `lenient`, outputs that depend on none of their
    /// rows are released.
    pub(super) fn fail(&mut self, number: u64, lenient: bool) -> Undone {
        // The store takes batches in order: what came before the failed one is stored.
        self.committed(number.saturating_sub(1));
        let mut undone = Undone::default();
        let mut last = self.number;
        while let Some((number, undo)) = self.open.pop_back_if(|(it, _)| *it < self.number) {
            undone.batches += u64::from(number != last);
            undone.steps.push(undo);
            last = number;
        }
        self.ready.retain(|output| !matches!(output, Output::Store(_)));
        let noted = core::mem::take(&mut self.noted).into_iter();
        let mut noted: HashMap<Token, Arc<AuditedRequest>> =
            noted.map(|(_, token, asked)| (token, asked)).collect();
        for (_, seen, output) in core::mem::take(&mut self.waiting) {
            match output {
                output if lenient && seen < number => self.ready.push_back(output),
                Output::Respond { token, response } => undone.unanswered.push(Unanswered {
                    token,
                    id: response.id,
                    release: response.release,
                    asked: noted.remove(&token),
                }),
                Output::Call(call) => undone.unsent.push(call.id),
                Output::AskDevice(call) => undone.unsent.push(call.id),
                Output::Store(_)
                | Output::Lost { .. }
                | Output::Read { .. }
                | Output::Unreadable(_) => {}
            }
        }
        self.epoch += 1;
        // Everything up to here is stored or taken back: nothing waits for it any more.
        self.committed = self.number - 1;
        undone
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.ready.pop_front()
    }
}

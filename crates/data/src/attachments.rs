//! The handlers of all workers: built from values, compiled to wirings, exchanged.

use crate::{
    error::DataError,
    port::{HandlerOrder, HandlerValue, KeptHandler, StageNumber},
};
use gatewright_stack::{
    Attachment, AttachmentId, Counter, Handler, Plan, Swap, WiringError,
    builtin::{Count, Filter, Mirror, RateLimit},
};
use std::collections::BTreeMap;

/// Staged wirings that are kept: with more, the oldest is dropped.
const STAGED_MAX: usize = 8;

/// Handlers of embedders that may wait to be attached.
const KEPT_MAX: usize = 1024;

/// The handlers of all workers.
pub(crate) struct Attachments {
    /// The plan of each worker.
    plans: Vec<Plan>,
    standing: Vec<Standing>,
    staged: BTreeMap<StageNumber, Staged>,
    /// The number of the next staged wiring or kept handler.
    next: u64,
    /// Handlers of embedders that are not attached yet.
    kept: BTreeMap<KeptHandler, Box<dyn Handler>>,
    /// Handlers before the last exchange, until the first worker has returned its old wiring.
    leaving: Vec<Standing>,
    /// Handlers of embedders that the last exchange has detached.
    detached: BTreeMap<KeptHandler, Box<dyn Handler>>,
}

/// An attached handler.
#[derive(Clone)]
struct Standing {
    id: AttachmentId,
    attachment: Attachment,
    taken: Counter,
    count: Option<Count>,
    missed: Option<Counter>,
    kept: Option<KeptHandler>,
}

struct Staged {
    standing: Vec<Standing>,
    /// One for each worker.
    swaps: Vec<Swap>,
}

/// An attached handler at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HandlerNow {
    /// Its id.
    pub id: AttachmentId,
    /// Its position.
    pub attachment: Attachment,
    /// Packets that it has taken.
    pub taken: u64,
    /// Packets and octets that it has counted, if it counts.
    pub counted: Option<(u64, u64)>,
    /// Packets that it could not copy, if it copies.
    pub missed: Option<u64>,
    /// Its number, if it is of the embedder's own code.
    pub kept: Option<KeptHandler>,
}

impl Attachments {
    /// No handlers, for workers with these plans.
    pub(crate) fn new(plans: Vec<Plan>) -> Self {
        let (standing, staged) = (Vec::new(), BTreeMap::new());
        let (kept, detached, leaving) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { plans, standing, staged, next: 1, kept, leaving, detached }
    }

    const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Keeps a handler until it is attached under the returned number.
    pub(crate) fn keep(&mut self, handler: Box<dyn Handler>) -> KeptHandler {
        if self.kept.len() >= KEPT_MAX {
            // Nobody attaches what has waited for so many others.
            self.kept.pop_first();
        }
        let number = KeptHandler(self.number());
        self.kept.insert(number, handler);
        number
    }

    /// A handler that was kept and is not, or no longer, attached.
    pub(crate) fn take_kept(&mut self, number: KeptHandler) -> Option<Box<dyn Handler>> {
        self.kept.remove(&number).or_else(|| self.detached.remove(&number))
    }

    /// Builds the handlers of a new wiring and compiles it for each worker.
    pub(crate) fn stage(&mut self, orders: Vec<HandlerOrder>) -> Result<StageNumber, DataError> {
        let mut standing: Vec<Standing> = Vec::new();
        let mut handlers: Vec<Vec<_>> = self.plans.iter().map(|_| Vec::new()).collect();
        for order in orders {
            let (id, attachment, value) = match order {
                HandlerOrder::Kept(id) => {
                    standing.extend(self.standing.iter().find(|known| known.id == id).cloned());
                    continue;
                }
                HandlerOrder::New(id, attachment, value) => (id, attachment, value),
            };
            let (one, handler) = self.build(id, attachment, value)?;
            let others = handlers.iter_mut().skip(1);
            for of in others {
                let another = handler.another().ok_or(DataError::OneOnly(attachment))?;
                of.push((id, another, one.taken.part()));
            }
            if let Some(first) = handlers.first_mut() {
                first.push((id, handler, one.taken.clone()));
            }
            standing.push(one);
        }
        let records: Vec<_> = standing.iter().map(|one| (one.id, one.attachment)).collect();
        let swaps = self.plans.iter().zip(handlers);
        let swaps = swaps
            .map(|(plan, handlers)| Ok(Swap { wiring: plan.wire(&records)?, handlers }))
            .collect::<Result<_, WiringError>>()?;
        let number = StageNumber(self.number());
        if self.staged.len() >= STAGED_MAX {
            self.staged.pop_first();
        }
        self.staged.insert(number, Staged { standing, swaps });
        Ok(number)
    }

    fn build(
        &mut self,
        id: AttachmentId,
        attachment: Attachment,
        value: HandlerValue,
    ) -> Result<(Standing, Box<dyn Handler>), DataError> {
        let taken = Counter::default();
        let one = Standing { id, attachment, taken, count: None, missed: None, kept: None };
        Ok(match value {
            HandlerValue::Count => {
                let count = Count::default();
                (Standing { count: Some(count.clone()), ..one }, Box::new(count))
            }
            HandlerValue::Drop { which } => (one, Box::new(Filter::dropping(which))),
            HandlerValue::Filter { rules, default } => (one, Box::new(Filter::new(rules, default))),
            HandlerValue::RateLimit { rate, burst } => (one, Box::new(RateLimit::new(rate, burst))),
            HandlerValue::Mirror { to } => {
                let mirror = Mirror::new(to);
                (Standing { missed: Some(mirror.missed_counter()), ..one }, Box::new(mirror))
            }
            HandlerValue::Kept(number) => {
                let handler = self.kept.remove(&number).ok_or(DataError::Unknown)?;
                (Standing { kept: Some(number), ..one }, handler)
            }
        })
    }

    /// Makes a staged wiring the current one; returns the workers' swaps.
    pub(crate) fn commit(&mut self, number: StageNumber) -> Result<Vec<Swap>, DataError> {
        let Staged { standing, swaps } = self.staged.remove(&number).ok_or(DataError::Unknown)?;
        self.leaving = std::mem::replace(&mut self.standing, standing);
        self.detached.clear();
        Ok(swaps)
    }

    /// Drops a staged wiring.
    pub(crate) fn discard(&mut self, number: StageNumber) {
        self.staged.remove(&number);
    }

    /// Takes the first worker's old wiring, with the handlers that were detached.
    pub(crate) fn take_back(&mut self, old: Swap) {
        for (id, handler, _) in old.handlers {
            let leaving = self.leaving.iter().find(|one| one.id == id);
            if let Some(number) = leaving.and_then(|one| one.kept) {
                self.detached.insert(number, handler);
            }
        }
        self.leaving.clear();
    }

    /// The handlers in order.
    pub(crate) fn now(&self) -> Vec<HandlerNow> {
        let now = |one: &Standing| HandlerNow {
            id: one.id,
            attachment: one.attachment,
            taken: one.taken.get(),
            counted: one.count.as_ref().map(|count| (count.packets(), count.octets())),
            missed: one.missed.as_ref().map(Counter::get),
            kept: one.kept,
        };
        self.standing.iter().map(now).collect()
    }
}

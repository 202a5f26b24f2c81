//! The handlers of all workers: built from values, compiled to wirings, exchanged.

use crate::{
    captures::CaptureReaders,
    driver_buckets::DriverBuckets,
    error::DataError,
    next_hops::NextHopBalance,
    port::{HandlerOrder, HandlerValue, KeptHandler, StageNumber},
    udp_gateway::{FlowBalanceCounts, balance_item, balance_items},
};
use gatewright_stack::{
    Attachment, AttachmentId, Counter, Handler, Plan, Swap, WiringError,
    builtin::{Capture, Count, Filter, HostHandler, Mirror, RateLimit},
};
use gatewright_tables::{
    CounterName, CounterOwner, CounterSlots, CounterSums, CountersFull, records::Name,
};
use std::{collections::BTreeMap, sync::Arc};

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
    /// Where handlers count.
    counters: CounterSlots,
    /// Where captured packets go.
    readers: Arc<CaptureReaders>,
    /// The buckets of limits that drivers have, too.
    buckets: DriverBuckets,
}

/// An attached handler.
#[derive(Clone)]
struct Standing {
    id: AttachmentId,
    attachment: Attachment,
    kept: Option<KeptHandler>,
    /// Its counters, which stay in the table as long as it is attached: a worker whose packets do
    /// not pass its position gives its handler back at once.
    _counters: Vec<Counter>,
}

/// A new handler of one worker.
struct Built {
    handler: Box<dyn Handler>,
    taken: Counter,
}

/// The item of packets that a handler has taken, in the table of counters.
pub const HANDLER_TAKEN: &str = "taken";

/// Items of a handler that counts: packets and octets.
const COUNTED: [&str; 2] = ["packets", "octets"];

/// The item of packets that a handler could not copy.
const MISSED: &str = "missed";

/// Relays of a balance at the most, as in descriptions.
const RELAYS_MAX: usize = 64;

/// The names of a handler's counters.
struct HandlerCounters<'a> {
    slots: &'a CounterSlots,
    id: AttachmentId,
    of: Name,
    made: Vec<Counter>,
}

impl HandlerCounters<'_> {
    /// A counter of `worker`.
    fn counter(&mut self, worker: u16, item: &str) -> Result<Counter, CountersFull> {
        let name = CounterName {
            worker,
            owner: CounterOwner::Handler(self.id.0),
            of: self.of,
            link: None,
            item: Name::new(item).unwrap_or_default(),
        };
        let counter = Counter::from(self.slots.named(&name)?);
        self.made.push(counter.clone());
        Ok(counter)
    }
}

struct Staged {
    standing: Vec<Standing>,
    /// One for each worker.
    swaps: Vec<Swap>,
}

/// An attached handler at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
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
    /// Its flows, if it gives each a next hop.
    pub balance: Option<FlowBalanceCounts>,
}

impl HandlerNow {
    /// A handler with the sums of its counters.
    pub(crate) fn of(
        id: AttachmentId,
        attachment: Attachment,
        kept: Option<KeptHandler>,
        sums: &CounterSums,
    ) -> Self {
        let sum = |item: &str| sums.get(CounterOwner::Handler(id.0), item);
        let [packets, octets] = COUNTED.map(sum);
        let (taken, missed) = (sum(HANDLER_TAKEN).unwrap_or(0), sum(MISSED));
        let counted = packets.zip(octets);
        let item = |place| sum(&balance_item(place));
        let is_relay = |at: &usize| item(balance_items(*at)).is_some();
        let relays = (0..RELAYS_MAX).take_while(is_relay).count();
        let count = |place| item(place).unwrap_or(0);
        let balance = (relays > 0).then(|| FlowBalanceCounts::of(relays, count));
        Self { id, attachment, taken, counted, missed, kept, balance }
    }
}

impl Attachments {
    /// No handlers, for workers with these plans.
    pub(crate) fn new(plans: Vec<Plan>, counters: CounterSlots, buckets: DriverBuckets) -> Self {
        let (standing, staged) = (Vec::new(), BTreeMap::new());
        let (kept, detached, leaving) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let readers = Arc::default();
        Self {
            plans,
            standing,
            staged,
            next: 1,
            kept,
            leaving,
            detached,
            counters,
            readers,
            buckets,
        }
    }

    /// The readers of captured packets.
    pub(crate) const fn capture_readers(&self) -> &Arc<CaptureReaders> {
        &self.readers
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
            let kept = if let HandlerValue::Kept(number) = value { Some(number) } else { None };
            let (all, counters) = self.build(id, attachment, &value)?;
            let mut all = all.into_iter();
            for of in &mut handlers {
                of.extend(all.next().map(|Built { handler, taken }| (id, handler, taken)));
            }
            standing.push(Standing { id, attachment, kept, _counters: counters });
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

    /// A handler for each worker, with its counter of packets taken; and all their counters.
    fn build(
        &mut self,
        id: AttachmentId,
        attachment: Attachment,
        value: &HandlerValue,
    ) -> Result<(Vec<Built>, Vec<Counter>), DataError> {
        let of = Name::new(&attachment.at.to_string()).unwrap_or_default();
        let slots = self.counters.clone();
        let mut counters = HandlerCounters { slots: &slots, id, of, made: Vec::new() };
        let mut all: Vec<Built> = Vec::new();
        for worker in (0..).take(self.plans.len()) {
            let handler: Box<dyn Handler> = match (value, all.first()) {
                (HandlerValue::Count, _) => {
                    let [packets, octets] = COUNTED.map(|item| counters.counter(worker, item));
                    Box::new(Count::new(packets?, octets?))
                }
                (HandlerValue::Mirror { to }, _) => {
                    Box::new(Mirror::counting(*to, counters.counter(worker, MISSED)?))
                }
                (HandlerValue::Host { part, to }, _) => {
                    Box::new(HostHandler::new(*part, *to, counters.counter(worker, MISSED)?))
                }
                (HandlerValue::Capture { which, to }, _) => {
                    let out = self.readers.channel(*to).ok_or(DataError::Unknown)?;
                    let (missed, position) =
                        (counters.counter(worker, MISSED)?, (attachment.at, attachment.side));
                    Box::new(Capture::sending((to.0, out), missed, position, *which))
                }
                (HandlerValue::NextHops { to, balance }, None) => {
                    let places = 0..balance_items(balance.relays.len());
                    let counts = places.map(|place| counters.counter(worker, &balance_item(place)));
                    let counts = counts.collect::<Result<Vec<_>, _>>()?;
                    let balance = NextHopBalance::new(*to, balance.clone(), counts);
                    Box::new(balance.ok_or(DataError::Unknown)?)
                }
                (_, Some(Built { handler: first, .. })) => {
                    first.another().ok_or(DataError::OneOnly(attachment))?
                }
                (_, None) => self.first(value)?,
            };
            all.push(Built { handler, taken: counters.counter(worker, HANDLER_TAKEN)? });
        }
        Ok((all, counters.made))
    }

    /// The first worker's handler, of which the others have copies.
    fn first(&mut self, value: &HandlerValue) -> Result<Box<dyn Handler>, DataError> {
        Ok(match value {
            HandlerValue::Drop { which } => Box::new(Filter::dropping(*which)),
            HandlerValue::Filter { rules, default } => {
                Box::new(Filter::new(rules.clone(), *default))
            }
            HandlerValue::RateLimit { rate, burst } => Box::new(RateLimit::new(*rate, *burst)),
            HandlerValue::RateLimitWithDrivers { rate, burst, bucket } => {
                Box::new(match self.buckets.get(*bucket)? {
                    Some(bucket) => RateLimit::with_drivers(*rate, *burst, bucket),
                    // No driver has a part in it.
                    None => RateLimit::new(*rate, *burst),
                })
            }
            HandlerValue::Kept(number) => self.kept.remove(number).ok_or(DataError::Unknown)?,
            // Each of these counts for itself.
            HandlerValue::Count
            | HandlerValue::Mirror { .. }
            | HandlerValue::NextHops { .. }
            | HandlerValue::Host { .. }
            | HandlerValue::Capture { .. } => return Err(DataError::Unknown),
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
        let sums = self.counters.reader().sums();
        let now = |one: &Standing| HandlerNow::of(one.id, one.attachment, one.kept, &sums);
        self.standing.iter().map(now).collect()
    }
}

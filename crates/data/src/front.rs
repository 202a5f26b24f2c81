//! From requests to commands of workers, and from what workers return to answers.

use crate::{
    attachments::{Attachments, HandlerNow},
    captures::CaptureReaders,
    driver_buckets::DriverBuckets,
    error::DataError,
    group::FIRST,
    port::{
        HandlerValue, KeptHandler, PortAnswer, PortRequest, RequestNumber, TraceNumber, TraceOrder,
    },
    worker::{Command, Tracing},
    workers::{Hand, LinkNow, ShareNow},
};
use gatewright_link::{LinkInfo, LinkState};
use gatewright_stack::{GraphTimes, Handler, Plan, Swap, Trace};
use gatewright_tables::CounterSlots;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

/// Requests whose answers nobody has fetched: with more, the oldest is forgotten.
const PENDING_MAX: usize = 256;

/// The workers behind a port, whoever runs them.
pub(crate) struct Front {
    hands: Vec<Hand>,
    attachments: Mutex<Attachments>,
    pending: Mutex<PendingAnswers>,
}

#[derive(Default)]
struct PendingAnswers {
    next: u64,
    waiting: BTreeMap<RequestNumber, PendingAnswer>,
}

/// An answer that is being made.
pub(crate) enum PendingAnswer {
    Ready(PortAnswer),
    /// Old wirings that workers return, in their order.
    Swapped(Vec<Receiver<Swap>>, bool),
    Links(Vec<Receiver<Vec<ShareNow>>>, Vec<Vec<ShareNow>>),
    Done(Receiver<()>),
    Prepared(Receiver<Result<(), DataError>>),
    Reopened(Receiver<Result<LinkInfo, DataError>>),
    /// The traces of all workers, and those so far if they were ended.
    Traced(TraceNumber, Receiver<Trace>, Option<Vec<Trace>>),
    /// The times of each worker, and the sum of those that have come.
    Measured(Vec<Receiver<GraphTimes>>, GraphTimes),
}

/// A lock that is poisoned is safe here: each change is whole before the next.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front {
    pub(crate) fn new(
        hands: Vec<Hand>,
        plans: Vec<Plan>,
        counters: CounterSlots,
        buckets: DriverBuckets,
    ) -> Self {
        let attachments = Mutex::new(Attachments::new(plans, counters, buckets));
        Self { hands, attachments, pending: Mutex::default() }
    }

    pub(crate) fn hands(&self) -> &[Hand] {
        &self.hands
    }

    pub(crate) fn keep(&self, handler: Box<dyn Handler>) -> HandlerValue {
        HandlerValue::Kept(lock(&self.attachments).keep(handler))
    }

    pub(crate) fn take_kept(&self, number: KeptHandler) -> Option<Box<dyn Handler>> {
        lock(&self.attachments).take_kept(number)
    }

    pub(crate) fn capture_readers(&self) -> Arc<CaptureReaders> {
        Arc::clone(lock(&self.attachments).capture_readers())
    }

    pub(crate) fn handlers(&self) -> Vec<HandlerNow> {
        lock(&self.attachments).now()
    }

    fn each(&self, command: impl Fn() -> Command) -> Result<(), DataError> {
        self.hands.iter().try_for_each(|hand| hand.send(command()))
    }

    fn first(&self, command: Command) -> Result<(), DataError> {
        self.hands.get(FIRST).ok_or(DataError::Ended)?.send(command)
    }

    /// Sends a request to the workers, unless it is to open a device.
    pub(crate) fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        let waiting = match request {
            PortRequest::Stage(orders) => {
                PendingAnswer::Ready(PortAnswer::Staged(lock(&self.attachments).stage(orders)?))
            }
            PortRequest::Commit(number) => {
                let swaps = lock(&self.attachments).commit(number)?;
                PendingAnswer::Swapped(self.swap(swaps)?, false)
            }
            PortRequest::Discard(number) => {
                lock(&self.attachments).discard(number);
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Neighbours(updates) => {
                self.first(Command::Neighbours(updates))?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::NeighboursUsed(used) => {
                self.first(Command::NeighboursUsed(used))?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::LookAtNeighbours(forget) => {
                let (answer, done) = channel();
                self.first(Command::LookAtNeighbours(forget, answer))?;
                PendingAnswer::Done(done)
            }
            PortRequest::Links => {
                let ask = |hand: &Hand| {
                    let (answer, links) = channel();
                    hand.send(Command::Links(answer)).map(|()| links)
                };
                PendingAnswer::Links(
                    self.hands.iter().map(ask).collect::<Result<_, _>>()?,
                    Vec::new(),
                )
            }
            PortRequest::Pace(pace) => {
                self.each(|| Command::Pace(pace))?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Prepare(order) | PortRequest::Reopen(order) => {
                let (name, reason) = (order.device.name, "no device is opened here".to_owned());
                return Err(DataError::Reopen { name, reason });
            }
            PortRequest::SetLink { link, up } => {
                self.each(|| Command::Close(link, !up))?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Receive => {
                self.each(|| Command::Receive)?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Begin => {
                self.each(|| Command::Receive)?;
                self.each(|| Command::Begin)?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Trace(order) => {
                PendingAnswer::Traced(order.number, self.trace(order)?, None)
            }
            PortRequest::Measure(time) => self.measure(time)?,
            PortRequest::EndTrace(meant) => self.end_trace(meant)?,
            // Handlers on threads send straight to the readers.
            PortRequest::FlushCaptures | PortRequest::DropPrepared => {
                PendingAnswer::Ready(PortAnswer::Done)
            }
        };
        Ok(self.wait(waiting))
    }

    /// Registers an answer that is being made.
    pub(crate) fn wait(&self, waiting: PendingAnswer) -> RequestNumber {
        let mut pending = lock(&self.pending);
        let number = RequestNumber(pending.next);
        pending.next += 1;
        // An answer that says nothing need not be fetched.
        if !matches!(waiting, PendingAnswer::Ready(PortAnswer::Done)) {
            if pending.waiting.len() >= PENDING_MAX {
                pending.waiting.pop_first();
            }
            pending.waiting.insert(number, waiting);
        }
        number
    }

    fn swap(&self, swaps: Vec<Swap>) -> Result<Vec<Receiver<Swap>>, DataError> {
        let exchange = |(hand, swap): (&Hand, Swap)| {
            let (answer, old) = channel();
            hand.send(Command::Swap(swap, answer)).map(|()| old)
        };
        self.hands.iter().zip(swaps).map(exchange).collect()
    }

    fn trace(&self, order: TraceOrder) -> Result<Receiver<Trace>, DataError> {
        let TraceOrder { number, link, which, frame, own } = order;
        let (back, traced) = channel();
        let epoch = Instant::now();
        let tracing = |frame| {
            let trace = Trace::new(link, which, move || epoch.elapsed());
            Command::Trace(Tracing { number, trace, frame, own, back: back.clone() })
        };
        match link.zip(frame) {
            Some(frame) => self.first(tracing(Some(frame)))?,
            // Whoever meets the packet answers first.
            None => self.each(|| tracing(None))?,
        }
        Ok(traced)
    }

    /// Ends this trace, or all.
    fn end_trace(&self, meant: Option<TraceNumber>) -> Result<PendingAnswer, DataError> {
        self.each(|| Command::EndTrace(meant))?;
        for waiting in lock(&self.pending).waiting.values_mut() {
            if let PendingAnswer::Traced(number, _, ended) = waiting
                && meant.is_none_or(|meant| meant == *number)
            {
                ended.get_or_insert_default();
            }
        }
        Ok(PendingAnswer::Ready(PortAnswer::Done))
    }

    fn measure(&self, time: Duration) -> Result<PendingAnswer, DataError> {
        let ask = |hand: &Hand| {
            let (answer, times) = channel();
            let epoch = Instant::now();
            let clock = Box::new(move || epoch.elapsed());
            hand.send(Command::Measure(time, clock, answer)).map(|()| times)
        };
        let times = self.hands.iter().map(ask).collect::<Result<_, _>>()?;
        Ok(PendingAnswer::Measured(times, GraphTimes::default()))
    }

    /// The answer to a request, if it comes within `patience`.
    pub(crate) fn answer(
        &self,
        number: RequestNumber,
        patience: Duration,
    ) -> Result<PortAnswer, DataError> {
        let waiting = {
            let mut pending = lock(&self.pending);
            match pending.waiting.remove(&number) {
                Some(waiting) => waiting,
                None if number.0 < pending.next => return Ok(PortAnswer::Done),
                None => return Err(DataError::Unknown),
            }
        };
        match self.finish(waiting, Instant::now() + patience) {
            Ok(answer) => Ok(answer),
            Err(Unfinished::Late(waiting)) => {
                lock(&self.pending).waiting.insert(number, *waiting);
                Err(DataError::Late)
            }
            Err(Unfinished::Failed(error)) => Err(error),
        }
    }

    fn finish(&self, waiting: PendingAnswer, deadline: Instant) -> Result<PortAnswer, Unfinished> {
        match waiting {
            PendingAnswer::Ready(answer) => Ok(answer),
            PendingAnswer::Done(done) => match until(&done, deadline) {
                Ok(()) => Ok(PortAnswer::Done),
                Err(error) => Err(Unfinished::of(error, PendingAnswer::Done(done))),
            },
            PendingAnswer::Prepared(done) => match until(&done, deadline) {
                Ok(Ok(())) => Ok(PortAnswer::Done),
                Ok(Err(error)) => Err(Unfinished::Failed(error)),
                Err(error) => Err(Unfinished::of(error, PendingAnswer::Prepared(done))),
            },
            PendingAnswer::Reopened(opened) => match until(&opened, deadline) {
                Ok(Ok(info)) => Ok(PortAnswer::Reopened(Box::new(info))),
                Ok(Err(error)) => Err(Unfinished::Failed(error)),
                Err(error) => Err(Unfinished::of(error, PendingAnswer::Reopened(opened))),
            },
            PendingAnswer::Swapped(old, taken) => self.swapped(old, taken, deadline),
            PendingAnswer::Links(links, got) => self::links(links, got, deadline),
            PendingAnswer::Traced(number, traced, ended) => {
                self.traced(number, traced, ended, deadline)
            }
            PendingAnswer::Measured(times, sum) => measured(times, sum, deadline),
        }
    }

    /// Awaits the old wirings; that of the first worker has the handlers that were attached.
    fn swapped(
        &self,
        mut old: Vec<Receiver<Swap>>,
        mut taken: bool,
        deadline: Instant,
    ) -> Result<PortAnswer, Unfinished> {
        while let Some(next) = old.first() {
            match until(next, deadline) {
                Ok(swap) if !taken => {
                    lock(&self.attachments).take_back(swap);
                    taken = true;
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(Unfinished::of(error, PendingAnswer::Swapped(old, taken)));
                }
            }
            old.remove(0);
        }
        Ok(PortAnswer::Done)
    }

    fn traced(
        &self,
        number: TraceNumber,
        traced: Receiver<Trace>,
        ended: Option<Vec<Trace>>,
        deadline: Instant,
    ) -> Result<PortAnswer, Unfinished> {
        if let Some(all) = ended {
            return ended_trace(number, traced, all, deadline);
        }
        match until(&traced, deadline) {
            Ok(trace) => {
                if self.hands.len() > 1 {
                    // The others wait for theirs still.
                    self.each(|| Command::EndTrace(Some(number))).map_err(Unfinished::Failed)?;
                }
                Ok(PortAnswer::Traced(trace.steps().to_vec()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Unfinished::Failed(DataError::Busy)),
            Err(RecvTimeoutError::Timeout) => {
                Err(Unfinished::Late(Box::new(PendingAnswer::Traced(number, traced, None))))
            }
        }
    }
}

/// Awaits the traces of all workers, which were told to end them; the longest is the answer.
fn ended_trace(
    number: TraceNumber,
    traced: Receiver<Trace>,
    mut all: Vec<Trace>,
    deadline: Instant,
) -> Result<PortAnswer, Unfinished> {
    loop {
        match until(&traced, deadline) {
            Ok(trace) => all.push(trace),
            Err(RecvTimeoutError::Timeout) => {
                let waiting = PendingAnswer::Traced(number, traced, Some(all));
                return Err(Unfinished::Late(Box::new(waiting)));
            }
            Err(RecvTimeoutError::Disconnected) => {
                // Whoever traces another packet has sent none.
                let longest = all.iter().max_by_key(|trace| trace.steps().len());
                let longest = longest.ok_or(Unfinished::Failed(DataError::Busy))?;
                return Ok(PortAnswer::Traced(longest.steps().to_vec()));
            }
        }
    }
}

/// Why there is no answer.
enum Unfinished {
    Late(Box<PendingAnswer>),
    Failed(DataError),
}

impl Unfinished {
    fn of(error: RecvTimeoutError, waiting: PendingAnswer) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::Late(Box::new(waiting)),
            RecvTimeoutError::Disconnected => Self::Failed(DataError::Ended),
        }
    }
}

fn until<T>(from: &Receiver<T>, deadline: Instant) -> Result<T, RecvTimeoutError> {
    from.recv_timeout(deadline.saturating_duration_since(Instant::now()))
}

/// Awaits the times of all workers, and adds them.
fn measured(
    mut times: Vec<Receiver<GraphTimes>>,
    mut sum: GraphTimes,
    deadline: Instant,
) -> Result<PortAnswer, Unfinished> {
    while let Some(next) = times.first() {
        match until(next, deadline) {
            Ok(more) => sum.add(&more),
            Err(error) => return Err(Unfinished::of(error, PendingAnswer::Measured(times, sum))),
        }
        times.remove(0);
    }
    Ok(PortAnswer::Measured(sum))
}

/// Awaits the workers' reports on their shares, and joins them.
fn links(
    mut reports: Vec<Receiver<Vec<ShareNow>>>,
    mut got: Vec<Vec<ShareNow>>,
    deadline: Instant,
) -> Result<PortAnswer, Unfinished> {
    while let Some(next) = reports.first() {
        match until(next, deadline) {
            Ok(report) => got.push(report),
            Err(error) => return Err(Unfinished::of(error, PendingAnswer::Links(reports, got))),
        }
        reports.remove(0);
    }
    let mut all: Vec<LinkNow> = Vec::new();
    for (worker, links) in got.into_iter().enumerate() {
        all.resize_with(links.len(), LinkNow::default);
        for (now, ShareNow { state, queues }) in all.iter_mut().zip(links) {
            // Who does not have a link says that it is up.
            now.state = if now.state == LinkState::Up { state } else { now.state };
            now.queues.extend(queues.into_iter().map(|queue| (queue, worker)));
        }
    }
    for now in &mut all {
        now.queues.sort_unstable();
    }
    Ok(PortAnswer::Links(all))
}

//! Orders to the UDP layer, and what became of each: the control plane's list of those that are not
//! answered, and the data plane's of those that its UDP layer has not executed.

use super::{
    message::{Incoming, Outgoing},
    port::ProcessPort,
    sockets::SocketRelay,
};
use crate::{error::DataError, port::PortAnswer};
use gatewright_stack::{OrderReply, SocketOrder};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Orders that the data plane's process has not answered, on the control plane's side.
pub(super) struct GivenOrders {
    port: Arc<ProcessPort>,
    unanswered: BTreeMap<u64, (SocketOrder, Option<OrderReply>)>,
}

/// Maximum orders without an answer. Who gives one waits, so only those of a process that hangs
/// come together; with more, the oldest is told that nobody answers.
const UNANSWERED_MAX: usize = 4096;

impl GivenOrders {
    pub(super) const fn new(port: Arc<ProcessPort>) -> Self {
        Self { port, unanswered: BTreeMap::new() }
    }

    /// Gives an order. One to a process that has died is given to the next.
    pub(super) fn give(&mut self, order: SocketOrder, reply: Option<OrderReply>) {
        let number = self.port.next_number();
        if self.port.is_given_up() {
            return answer(reply, Err(DataError::Ended));
        }
        if self.port.is_running() {
            let message = Incoming::Sockets { number, order: order.clone() };
            if let Err(error) = self.port.send(&message) {
                return answer(reply, Err(error));
            }
        } else if ends(&order) {
            // A process that is dead has nothing open, and the next one is not told of it.
            return answer(reply, Ok(()));
        }
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.pop_first();
        }
        self.unanswered.insert(number, (order, reply));
    }

    /// Gives all that stands to a new process: who waits for an answer of the last one has the new
    /// one's.
    pub(super) fn restore(&mut self, standing: Vec<SocketOrder>) {
        let mut before = std::mem::take(&mut self.unanswered);
        for order in standing {
            let mut same = before.extract_if(.., |_, (known, _)| *known == order);
            let reply = same.next().and_then(|(_, (_, reply))| reply);
            drop(same);
            self.give(order, reply);
        }
        for (_, reply) in before.into_values() {
            // What the others closed is not open there.
            answer(reply, Ok(()));
        }
    }

    /// Takes an answer; returns it if it is to a request.
    pub(super) fn take(&mut self, outgoing: Outgoing) -> Option<Outgoing> {
        let Some((_, reply)) = self.unanswered.remove(&outgoing.number) else {
            return Some(outgoing);
        };
        answer(reply, outgoing.answer.map(|_| ()));
        None
    }

    /// Tells all who wait if no process will answer them.
    pub(super) fn end_if_given_up(&mut self) {
        if self.port.is_given_up() {
            for (_, reply) in std::mem::take(&mut self.unanswered).into_values() {
                answer(reply, Err(DataError::Ended));
            }
        }
    }
}

/// Whether an order ends something.
const fn ends(order: &SocketOrder) -> bool {
    matches!(
        order,
        SocketOrder::Close { .. } | SocketOrder::Stop { .. } | SocketOrder::Leave { .. }
    )
}

fn answer(reply: Option<OrderReply>, outcome: Result<(), DataError>) {
    let Some(reply) = reply else { return };
    reply.answer(outcome.map_err(|error| match error {
        DataError::Ended => io::Error::new(io::ErrorKind::NotConnected, error),
        error => io::Error::other(error),
    }));
}

/// Orders that the UDP layer has not executed, on the data plane's side.
#[derive(Default)]
pub(super) struct TakenOrders {
    new: Vec<(u64, Result<(), DataError>)>,
    executing: VecDeque<Executing>,
}

/// Orders that the UDP layer has got together.
struct Executing {
    executed: Receiver<()>,
    orders: Vec<(u64, Result<(), DataError>)>,
}

impl TakenOrders {
    /// Keeps the outcome of an order until the UDP layer has executed it.
    pub(super) fn note(&mut self, number: u64, outcome: Result<(), DataError>) {
        self.new.push((number, outcome));
    }

    /// Whether the UDP layer is at some.
    pub(super) fn are_executing(&self) -> bool {
        !self.executing.is_empty()
    }

    /// Forgets them: who gave them is gone.
    pub(super) fn clear(&mut self) {
        self.new.clear();
        self.executing.clear();
    }

    /// The answers to those that are executed; awaits new ones for `patience`.
    pub(super) fn answers(&mut self, sockets: &SocketRelay, patience: Duration) -> Vec<Outgoing> {
        let mut answers = Vec::new();
        let mut deadline = Instant::now();
        if !self.new.is_empty() {
            deadline += patience;
            let orders = std::mem::take(&mut self.new);
            match sockets.executed() {
                Ok(executed) => self.executing.push_back(Executing { executed, orders }),
                Err(_) => answers.extend(orders.into_iter().map(ended)),
            }
        }
        while let Some(first) = self.executing.pop_front() {
            let left = deadline.saturating_duration_since(Instant::now());
            match first.executed.recv_timeout(left) {
                Ok(()) => answers.extend(first.orders.into_iter().map(outgoing)),
                Err(RecvTimeoutError::Disconnected) => {
                    answers.extend(first.orders.into_iter().map(ended));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.executing.push_front(first);
                    break;
                }
            }
        }
        answers
    }
}

fn outgoing((number, outcome): (u64, Result<(), DataError>)) -> Outgoing {
    Outgoing { number, answer: outcome.map(|()| PortAnswer::Done) }
}

fn ended((number, _): (u64, Result<(), DataError>)) -> Outgoing {
    Outgoing { number, answer: Err(DataError::Ended) }
}

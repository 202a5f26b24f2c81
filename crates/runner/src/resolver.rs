//! Resolves names to addresses, by one thread with a bounded queue.

use crate::worker::{Mailbox, Message};
use gatewright_edge::{Network, Poller};
use gatewright_translate::machine::QueryId;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

/// Names that wait for the resolver, from all loops together.
const QUEUE_MAX: usize = 256;

/// A name that a machine asks to resolve.
#[derive(Debug)]
pub(crate) struct Question<P: Poller> {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The machine of the loop that asks.
    pub(crate) serial: u64,
    pub(crate) query: QueryId,
    pub(crate) from: Mailbox<P>,
}

/// The queue of questions; the thread ends when the last sender is dropped.
#[derive(Debug)]
pub(crate) struct Resolver<P: Poller>(SyncSender<Question<P>>);

impl<P: Poller> Clone for Resolver<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Poller> Resolver<P> {
    pub(crate) fn start(network: &impl Network<Poller = P>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUEUE_MAX);
        let network = network.clone();
        let answer = move || answer(&network, &asked);
        thread::Builder::new().name("gw-resolver".to_owned()).spawn(answer)?;
        Ok(Self(questions))
    }

    /// Queues a question; `false` if too many names wait already.
    pub(crate) fn ask(&self, question: Question<P>) -> bool {
        self.0.try_send(question).is_ok()
    }
}

fn answer<N: Network>(network: &N, asked: &Receiver<Question<N::Poller>>) {
    for Question { host, port, serial, query, from } in asked {
        let address = network.resolve(&host, port);
        from.send(Message::Resolved { serial, query, address });
    }
}

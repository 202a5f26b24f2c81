//! Resolves names to addresses: by one thread with a bounded queue, or in place.

use crate::mailbox::{LoopMessage, Mailbox};
use gatewright_edge::{Network, Poller};
use gatewright_translate::machine::QueryId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{fmt, io, thread};

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

/// The names of a network, whatever its sockets are.
pub(crate) trait Resolve: Send + Sync {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr>;
}

impl<N: Network> Resolve for N {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.resolve(host, port)
    }
}

/// Where names are resolved.
pub(crate) enum Resolver<P: Poller> {
    /// On a thread behind a queue of questions; it ends when the last sender is dropped.
    Thread(SyncSender<Question<P>>),
    /// On the thread of the loop.
    Here(Arc<dyn Resolve>),
}

impl<P: Poller> fmt::Debug for Resolver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Resolver::Thread",
            Self::Here(_) => "Resolver::Here",
        })
    }
}

impl<P: Poller> Clone for Resolver<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Thread(questions) => Self::Thread(questions.clone()),
            Self::Here(resolve) => Self::Here(Arc::clone(resolve)),
        }
    }
}

impl<P: Poller> Resolver<P> {
    pub(crate) fn start(network: &impl Network<Poller = P>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUEUE_MAX);
        let network = network.clone();
        let answer = move || answer(&network, &asked);
        thread::Builder::new().name("gw-resolver".to_owned()).spawn(answer)?;
        Ok(Self::Thread(questions))
    }

    /// Resolves on the thread of the loop.
    pub(crate) fn here(network: &impl Network<Poller = P>) -> Self {
        Self::Here(Arc::new(network.clone()))
    }

    /// Takes a question, which is answered by a message; `false` if too many wait already.
    pub(crate) fn ask(&self, question: Question<P>) -> bool {
        match self {
            Self::Thread(questions) => questions.try_send(question).is_ok(),
            Self::Here(resolve) => {
                let Question { host, port, serial, query, from } = question;
                let address = resolve.address(&host, port);
                from.try_send(LoopMessage::Resolved { serial, query, address })
            }
        }
    }
}

fn answer<N: Network>(network: &N, asked: &Receiver<Question<N::Poller>>) {
    for Question { host, port, serial, query, from } in asked {
        let address = network.resolve(&host, port);
        from.send(LoopMessage::Resolved { serial, query, address });
    }
}

//! Resolves names to addresses, by one thread with a bounded queue.

use crate::worker::{Mailbox, Message};
use gatewright_translate::machine::QueryId;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

/// Names that wait for the resolver, from all loops together.
const QUEUE_MAX: usize = 256;

/// A name that a machine asks to resolve.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The machine of the loop that asks.
    pub(crate) serial: u64,
    pub(crate) query: QueryId,
    pub(crate) from: Mailbox,
}

/// The queue of questions; the thread ends when the last sender is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(SyncSender<Question>);

impl Resolver {
    pub(crate) fn start() -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUEUE_MAX);
        thread::Builder::new().name("gw-resolver".to_owned()).spawn(move || answer(&asked))?;
        Ok(Self(questions))
    }

    /// Queues a question; `false` if too many names wait already.
    pub(crate) fn ask(&self, question: Question) -> bool {
        self.0.try_send(question).is_ok()
    }
}

fn answer(asked: &Receiver<Question>) {
    for Question { host, port, serial, query, from } in asked {
        let address = resolve(&host, port);
        from.send(Message::Resolved { serial, query, address });
    }
}

/// The first address that the system gives for a name, which is the one it prefers (RFC 6724).
pub(crate) fn resolve(host: &str, port: u16) -> Option<SocketAddr> {
    (host, port).to_socket_addrs().ok().and_then(|mut all| all.next())
}

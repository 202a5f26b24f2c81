//! The control plane's ends of the rings, beside that of requests: answers, captured packets, and
//! the datagrams of its sockets.

use super::{message::Outgoing, orders::GivenOrders, port::ProcessPort};
use crate::{captures::CaptureReaders, plain::Plain, waker::Waker};
use gatewright_stack::{FoundApplication, RemoteDatagram, RemoteSockets, Sockets};
use gatewright_tables::{MessageReceiver, MessageSender, TablesWriter};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// What one thread of the control plane's process reads and sends.
pub(super) struct Uplink {
    port: Arc<ProcessPort>,
    answers: MessageReceiver,
    captured: MessageReceiver,
    readers: Arc<CaptureReaders>,
    arrivals: MessageReceiver,
    departures: MessageSender,
    sockets: RemoteSockets,
    orders: GivenOrders,
    octets: Vec<u8>,
}

/// Time between two looks without a call. The waker ends it at once.
const PATIENCE: Duration = Duration::from_secs(1);

impl Uplink {
    /// The ends in `tables`, and the sockets whose datagrams go there; `waker` is that of the reader.
    pub(super) fn new(
        port: Arc<ProcessPort>,
        tables: &TablesWriter,
        readers: Arc<CaptureReaders>,
        waker: &Waker,
        found: Vec<FoundApplication>,
    ) -> (Sockets, Self) {
        let counters = tables.readers().counters;
        let (sockets, end) = RemoteSockets::new(Arc::new(waker.clone()), counters, found);
        let this = Self {
            orders: GivenOrders::new(Arc::clone(&port)),
            port,
            answers: tables.answers(),
            captured: tables.captured(),
            readers,
            arrivals: tables.arrivals(),
            departures: tables.departures(),
            sockets: end,
            octets: Vec::new(),
        };
        (sockets, this)
    }

    /// Reads and sends until it is told to stop.
    pub(super) fn run(mut self, waker: &Waker) {
        while !waker.flags().is_stopped() {
            let any = self.read() | self.arrive();
            self.depart();
            if !any {
                waker.sleep(PATIENCE, || {
                    !self.answers.is_empty()
                        || !self.captured.is_empty()
                        || !self.arrivals.is_empty()
                        || self.sockets.has_work()
                });
            }
        }
    }

    /// Takes captured packets and answers; returns whether there were any.
    fn read(&mut self) -> bool {
        let mut any = self.take_captured();
        while self.answers.take(&mut self.octets) {
            any = true;
            let Some(answer) = Outgoing::of(&self.octets) else { continue };
            // What was captured before the answer comes before it.
            self.take_captured();
            if let Some(answer) = self.orders.take(answer) {
                self.port.take_answer(answer);
            }
        }
        any
    }

    fn take_captured(&mut self) -> bool {
        let mut any = false;
        while self.captured.take(&mut self.octets) {
            any = true;
            if let Some(packet) = Plain::of(&self.octets) {
                self.readers.deliver(packet);
            }
        }
        any
    }

    /// Gives arrived datagrams to their sockets; returns whether there were any.
    fn arrive(&mut self) -> bool {
        let mut any = false;
        while self.arrivals.take(&mut self.octets) {
            any = true;
            if let Some(datagram) = RemoteDatagram::of(&self.octets) {
                self.sockets.deliver(datagram);
            }
        }
        any
    }

    /// Sends what sockets order and what they send. A ring without room drops datagrams and counts
    /// them as lost.
    fn depart(&mut self) {
        let Self { port, sockets, orders, departures, octets, .. } = self;
        if port.has_restarted.swap(false, Ordering::AcqRel) {
            orders.restore(sockets.standing());
            port.receive_again();
        }
        orders.end_if_given_up();
        let mut sent = false;
        let give = |order, reply| orders.give(order, reply);
        sockets.take(give, |datagram| {
            octets.clear();
            datagram.put(octets);
            sent |= departures.send(octets).is_ok();
        });
        if sent {
            port.wake_server();
        }
    }
}

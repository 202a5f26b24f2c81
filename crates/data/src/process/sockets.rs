//! Sockets of the control plane's process at the UDP layer of the data plane's.

use crate::{
    error::{DataError, failed, refused},
    plain::{ApplicationSetup, Plain},
    report_forwarder::{FORWARDER_ITEMS, forwarder},
    udp_gateway::relay,
};
use gatewright_edge::ReadySet;
use gatewright_stack::{
    Counter, FoundApplication, RemoteDatagram, RunningApplication, SOCKETS_MAX, SocketApplication,
    SocketOrder, Sockets, UdpSocket, Wake,
};
use gatewright_tables::{
    CounterName, CounterOwner, CounterSlots, CountersFull, DataEntities, MessageReceiver,
    MessageSender, records::Name,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, mpsc::Receiver},
};

/// The sockets, and the applications that run here.
pub(super) struct SocketRelay {
    sockets: Sockets,
    counters: CounterSlots,
    entities: DataEntities,
    ready: Arc<ReadySet>,
    open: BTreeMap<u32, UdpSocket>,
    /// The sockets that have datagrams, or may have.
    pending: BTreeSet<u32>,
    /// The socket at each place of the set.
    places: BTreeMap<usize, u32>,
    applications: Vec<(FoundApplication, RunningApplication)>,
    arrivals: MessageSender,
    departures: MessageReceiver,
    octets: Vec<u8>,
    /// A datagram for which the ring had no room.
    held: bool,
}

/// Datagrams passed on at once, so that requests do not wait for more.
const DATAGRAMS_AT_ONCE: usize = 256;

/// The worker that runs the UDP layer.
const FIRST_WORKER: u16 = 0;

impl SocketRelay {
    /// Relays between `sockets` and the rings; `wake` is called when a socket has datagrams.
    pub(super) fn new(
        sockets: Sockets,
        (counters, entities): (CounterSlots, DataEntities),
        (arrivals, departures): (MessageSender, MessageReceiver),
        wake: Arc<dyn Wake>,
    ) -> Self {
        Self {
            sockets,
            counters,
            entities,
            ready: ReadySet::new(SOCKETS_MAX, wake),
            open: BTreeMap::new(),
            pending: BTreeSet::new(),
            places: BTreeMap::new(),
            applications: Vec::new(),
            arrivals,
            departures,
            octets: Vec::new(),
            held: false,
        }
    }

    /// The applications that run.
    pub(super) fn applications(&self) -> Vec<FoundApplication> {
        self.applications.iter().map(|(application, _)| application.clone()).collect()
    }

    /// Closes the sockets of a control plane that is gone; applications run on.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
        self.pending.clear();
        self.places.clear();
        self.held = false;
    }

    /// Executes an order. A socket that cannot be opened, or a group that it cannot join, leaves it without
    /// datagrams.
    pub(super) fn order(&mut self, order: SocketOrder) -> Result<(), DataError> {
        match order {
            // One that is there was opened by the same order before a death.
            SocketOrder::Open { socket, local } if !self.open.contains_key(&socket) => {
                // The control plane has reserved the address: only memory can be short.
                let opened = self.open(socket, local);
                opened.map_err(|error| refused(format!("no socket for {local}: {error}")))?;
            }
            SocketOrder::Open { .. } => {}
            SocketOrder::Close { socket } => {
                self.open.remove(&socket);
                self.pending.remove(&socket);
                self.places.retain(|_, at| *at != socket);
            }
            SocketOrder::Start(application) => {
                let is_known = |(known, _): &(FoundApplication, _)| known.id == application.id;
                if !self.applications.iter().any(is_known) {
                    let started = self.start(&application)?;
                    self.applications.push((application, started));
                }
            }
            SocketOrder::Stop { application } => {
                self.applications.retain(|(known, _)| known.id != application);
            }
            SocketOrder::Join { socket, group, link } => {
                if let Some(socket) = self.open.get(&socket) {
                    socket.join_multicast(group, link).map_err(failed("join a group"))?;
                }
            }
            SocketOrder::Leave { socket, group, link } => {
                if let Some(socket) = self.open.get(&socket) {
                    socket.leave_multicast(group, link).map_err(failed("leave a group"))?;
                }
            }
        }
        Ok(())
    }

    /// Receives `()` when the UDP layer has executed all orders until now.
    pub(super) fn executed(&self) -> io::Result<Receiver<()>> {
        self.sockets.executed()
    }

    fn open(&mut self, number: u32, local: std::net::SocketAddr) -> io::Result<()> {
        let socket = self.sockets.bind(local)?;
        socket.set_nonblocking(true);
        let notifier = self.ready.notifier().ok_or(io::ErrorKind::OutOfMemory)?;
        self.places.insert(notifier.place(), number);
        // It is new, so that it has none.
        let _set = socket.set_notifier(notifier);
        self.open.insert(number, socket);
        // The first look arms it.
        self.pending.insert(number);
        Ok(())
    }

    fn start(&self, application: &FoundApplication) -> Result<RunningApplication, DataError> {
        let FoundApplication { id, parameters, locals, precedes } = application;
        let (run, action): (Box<dyn SocketApplication>, _) = match ApplicationSetup::of(parameters)
        {
            Some(ApplicationSetup::UdpGateway(setup)) => {
                let items = setup.items();
                let counters = items.iter().map(|item| self.counter(*id, item));
                let counters = counters.collect::<Result<_, _>>()?;
                (relay(setup, counters), "start a UDP gateway")
            }
            Some(ApplicationSetup::ReportForwarder(setup)) => {
                let counters = self.counters(*id, FORWARDER_ITEMS)?;
                (forwarder(setup, &self.entities, counters), "start the forwarder of reports")
            }
            None => return Err(refused("no such application is known".to_owned())),
        };
        let started = match locals.split_first().filter(|_| *precedes) {
            Some((shared, own)) => self.sockets.run_before(*shared, own, run),
            None => self.sockets.run(locals, run),
        };
        started.map_err(failed(action))
    }

    fn counters<const N: usize>(
        &self,
        application: u32,
        items: [&str; N],
    ) -> Result<[Counter; N], CountersFull> {
        let mut counters = std::array::from_fn(|_| Counter::default());
        for (counter, item) in counters.iter_mut().zip(items) {
            *counter = self.counter(application, item)?;
        }
        Ok(counters)
    }

    fn counter(&self, application: u32, item: &str) -> Result<Counter, CountersFull> {
        let name = CounterName {
            worker: FIRST_WORKER,
            owner: CounterOwner::Application(application),
            of: Name::default(),
            link: None,
            item: Name::new(item).unwrap_or_default(),
        };
        self.counters.named(&name).map(Counter::from)
    }

    /// Whether datagrams wait that can be passed on.
    pub(super) fn has_work(&self) -> bool {
        !self.departures.is_empty() || (!self.pending.is_empty() && !self.held)
    }

    /// Whether the reader of arrivals has left no room.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Passes datagrams on in both directions; returns whether some have arrived.
    pub(super) fn relay(&mut self) -> bool {
        self.depart();
        self.arrive()
    }

    /// Sends the control plane's datagrams.
    fn depart(&mut self) {
        for _ in 0..DATAGRAMS_AT_ONCE {
            if !self.departures.take(&mut self.octets) {
                return;
            }
            let Some(datagram) = RemoteDatagram::of(&self.octets) else { continue };
            if let Some(socket) = self.open.get(&datagram.socket) {
                // A worker that does not keep up drops it, as its sockets do.
                let _dropped = datagram.send(socket);
            }
        }
    }

    /// Passes on what the sockets have received. What does not fit into the ring stays in their queues,
    /// which drop and count.
    fn arrive(&mut self) -> bool {
        let (places, pending) = (&self.places, &mut self.pending);
        self.ready.take(|place| pending.extend(places.get(&place)));
        self.held = false;
        let mut left = DATAGRAMS_AT_ONCE;
        for number in self.pending.clone() {
            let Some(socket) = self.open.get(&number) else { continue };
            loop {
                if left == 0 {
                    return true;
                }
                if !self.arrivals.has_room(DATAGRAM_OCTETS_MAX) {
                    self.held = true;
                    return true;
                }
                let Ok(datagram) = RemoteDatagram::receive(number, socket) else { break };
                left -= 1;
                // There is room for any.
                let _fits = self.arrivals.send(&datagram.octets());
            }
            self.pending.remove(&number);
        }
        left < DATAGRAMS_AT_ONCE
    }
}

/// Octets of a message with the largest datagram.
const DATAGRAM_OCTETS_MAX: usize = 65_536 + 64;

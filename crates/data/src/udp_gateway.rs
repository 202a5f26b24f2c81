//! The UDP gateway: a socket application that relays between two links and knows how many datagrams
//! wait.
//!
//! A relay that reads until nothing is left would block on the last read. Waiting datagrams are
//! counted below the sockets, so this relay reads exactly those, merges them, and sends. No
//! datagram waits for a later one that may never come. The relay runs on the worker, which calls it
//! once for each batch. A client costs a socket and a place in a table, not a thread.
//!
//! In place of one server several relays can share the clients: `admission.rs` admits each as a flow,
//! and leaves out relays that do not answer.

mod admission;
mod balance;

pub use balance::{FlowBalance, FlowBalanceCounts, FlowRelay, FlowRelayCounts, UdpTarget};

use crate::plain::{ApplicationSetup, Plain};
pub(crate) use admission::{ClientAdmission, ClientFlow};
pub(crate) use balance::{balance_item, balance_items};
use gatewright_delay::client_network as network;
use gatewright_stack::{
    ApplicationSockets, Counter, CutShort, Datagram, Form, Merger, Origin, RunningApplication,
    SocketApplication, SocketIndex, Sockets, split,
};
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// The treatment of datagrams on their way to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Series {
    /// Each is forwarded unchanged.
    Plain,
    /// Waiting datagrams are merged, up to this limit.
    Merge(Form, MergeLimit),
    /// Datagrams merged in the prefixed form are split.
    Split,
}

/// The size limit of a merged datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MergeLimit {
    /// A number of octets of payload.
    Octets(usize),
    /// The path MTU to the server: one packet.
    PathMtu,
}

/// A UDP gateway to be started.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpGatewaySetup {
    /// The address of this gateway to which clients send.
    pub listen: SocketAddr,
    /// The server that receives their datagrams, or the relays that share them.
    pub target: UdpTarget,
    /// Their treatment on the way.
    pub series: Series,
    /// Maximum clients whose answers are carried back, at most [`UDP_CLIENTS_MAX`]; each has a
    /// socket towards the server. With one server, the last quarter is for clients of addresses that
    /// have less than a quarter.
    pub clients_max: u16,
}

/// Maximum clients of a UDP gateway: a stack has 4096 sockets, some of which are others'.
pub const UDP_CLIENTS_MAX: u16 = gatewright_config::UDP_CLIENTS_MAX;

/// A client that is silent for this long gives its place to a new client if one is wanted (RFC 4787
/// §4.3: "A NAT UDP mapping timer MUST NOT expire in less than two minutes").
const CLIENT_FOR: Duration = Duration::from_mins(2);

/// The same for a client that has never sent again after an answer: its address may be forged. It
/// is long enough for a slow server's answer, which must not go to the next client in that place.
const UNCONFIRMED_FOR: Duration = Duration::from_secs(5);

/// The last quarter of the table is for clients of addresses that have less than a quarter of it: one
/// host with many ports locks nobody out.
const SHARES: usize = 4;

/// A table smaller than this is not divided.
const DIVIDED_MIN: usize = 8;

/// How often is looked whether the last quarter is still needed.
const SPARE_EVERY: Duration = Duration::from_secs(1);

/// Maximum merged octets while there is no route to the server: the size that IPv4 allows
/// everywhere (RFC 791 §3.1: 576), without its headers.
const PAYLOAD_WITHOUT_ROUTE: usize = 548;

/// Counts of a UDP gateway at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UdpGatewayCounts {
    /// Datagrams read from clients.
    pub received: u64,
    /// Datagrams sent to the server.
    pub sent: u64,
    /// Datagrams carried back.
    pub returned: u64,
    /// Datagrams that could not be split.
    pub cut_short: u64,
    /// Datagrams that could not be sent.
    pub not_sent: u64,
    /// Datagrams of new clients above the maximum.
    pub datagrams_refused: u64,
    /// Clients that gave their place to a new client.
    pub clients_replaced: u64,
    /// Datagrams for clients from another sender than the server, and datagrams of the server to
    /// the relay.
    pub strangers: u64,
}

/// The names of [`UdpGatewayCounts`] in the table of counters, in their order.
const UDP_GATEWAY_ITEMS: [&str; 8] = [
    "received",
    "sent",
    "returned",
    "cut-short",
    "not-sent",
    "datagrams-refused",
    "clients-replaced",
    "strangers",
];

impl UdpGatewaySetup {
    /// The names of its counters in the table of counters, in their order.
    pub(crate) fn items(&self) -> Vec<String> {
        let own = UDP_GATEWAY_ITEMS.map(str::to_owned);
        let balance = self.relay_count().map_or(0, balance_items);
        own.into_iter().chain((0..balance).map(balance_item)).collect()
    }

    /// The relays of its balance, if it has one.
    const fn relay_count(&self) -> Option<usize> {
        match &self.target {
            UdpTarget::Server(_) => None,
            UdpTarget::Balance(balance) => Some(balance.relays.len()),
        }
    }
}

impl UdpGatewayCounts {
    /// The counts by the name of each.
    fn of(count: impl Fn(usize) -> u64) -> Self {
        let mut counts = (0..UDP_GATEWAY_ITEMS.len()).map(count);
        let mut next = || counts.next().unwrap_or_default();
        Self {
            received: next(),
            sent: next(),
            returned: next(),
            cut_short: next(),
            not_sent: next(),
            datagrams_refused: next(),
            clients_replaced: next(),
            strangers: next(),
        }
    }
}

/// A running UDP gateway; dropping it ends it.
#[derive(Debug)]
pub struct UdpGateway {
    /// The names of its counters.
    items: Vec<String>,
    /// Its counters, if it runs in this process.
    counters: Vec<Counter>,
    /// The relays of its balance, if it has one.
    relays: Option<usize>,
    running: RunningApplication,
}

impl UdpGateway {
    /// Starts relaying with sockets of the gateway's own stack.
    ///
    /// # Errors
    ///
    /// If the port is taken, or too many sockets are open.
    pub fn start(sockets: &Sockets, setup: UdpGatewaySetup) -> io::Result<Self> {
        let items = setup.items();
        let counters = items.iter().map(|_| Counter::default()).collect::<Vec<_>>();
        // Ports towards the server are taken now: the worker asks nobody for one later.
        let clients_max = setup.clients_max.clamp(1, UDP_CLIENTS_MAX);
        let any: IpAddr = match setup.target.addresses().next() {
            None | Some(SocketAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let towards_server = (0..clients_max).map(|_| SocketAddr::new(any, 0));
        let locals: Vec<_> = std::iter::once(setup.listen).chain(towards_server).collect();
        let relays = setup.relay_count();
        let relay = relay(UdpGatewaySetup { clients_max, ..setup }, counters.clone());
        let running = sockets.run(&locals, relay)?;
        Ok(Self { items, counters, relays, running })
    }

    /// Its counts at this moment.
    pub fn counts(&self) -> UdpGatewayCounts {
        UdpGatewayCounts::of(|at| self.count(at))
    }

    /// The counts of its balance at this moment; `None` if it has one server.
    pub fn balance_counts(&self) -> Option<FlowBalanceCounts> {
        let at = |place| self.count(UDP_GATEWAY_ITEMS.len() + place);
        self.relays.map(|relays| FlowBalanceCounts::of(relays, at))
    }

    fn count(&self, at: usize) -> u64 {
        let own = || self.counters.get(at).map_or(0, Counter::get);
        let item = self.items.get(at);
        item.and_then(|item| self.running.count(item)).unwrap_or_else(own)
    }
}

/// The application of a UDP gateway, with a counter for each of its items.
pub(crate) fn relay(setup: UdpGatewaySetup, counters: Vec<Counter>) -> Box<dyn SocketApplication> {
    Box::new(Relay::new(setup, counters))
}

/// The socket to which clients send; the others are the clients' towards the server.
const LISTENER: SocketIndex = SocketIndex(0);

/// One client; its place in the table is that of its socket.
struct Client {
    address: SocketAddr,
    /// The server of its datagrams.
    server: SocketAddr,
    /// Its place at that relay, if that is one of a balance. It ends with the client's silence; the
    /// client asks for another one when it sends again.
    flow: Option<ClientFlow>,
    /// When the first of its datagrams since the last answer was sent, and the octets of all of these.
    awaits: Option<(Duration, u32)>,
    /// Our address to which it sends, the source of its answers.
    asked: IpAddr,
    seen: Duration,
    trust: Trust,
    merger: Option<Merger>,
    /// The origin of the datagrams in the merger.
    origin: Origin,
}

/// The evidence that a client's address is real.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trust {
    /// It has sent.
    Unanswered,
    /// It has been answered.
    Answered,
    /// It has sent again after that: it receives at its address, or needs no answer.
    Confirmed,
}

impl Client {
    /// The time after which its table entry may be reused, if it stays silent.
    fn until(&self) -> Duration {
        let silence = if self.trust == Trust::Confirmed { CLIENT_FOR } else { UNCONFIRMED_FOR };
        self.seen.saturating_add(silence)
    }
}

/// The application.
struct Relay {
    setup: UdpGatewaySetup,
    counters: Vec<Counter>,
    /// Admits clients, if relays share them.
    admission: Option<ClientAdmission>,
    clients: Vec<Client>,
    places: HashMap<SocketAddr, usize>,
    /// The client of the last datagram: the datagrams of a batch mostly have one client.
    last: Option<(SocketAddr, usize)>,
    /// Clients whose mergers are not empty.
    merging: Vec<usize>,
    /// No client gives up its place before this time.
    full_until: Duration,
    /// Clients of each address, or of each IPv6 network of 64 bits.
    shares: HashMap<IpAddr, usize>,
    /// Before this time the places that are free are for addresses with few clients.
    scarce_until: Duration,
}

impl SocketApplication for Relay {
    fn parameters(&self) -> Option<Vec<u8>> {
        Some(ApplicationSetup::UdpGateway(self.setup.clone()).octets())
    }

    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        let mut tally = Tally::default();
        if self.admission.as_mut().is_some_and(ClientAdmission::take_changed) {
            // Its client may have to go to another relay.
            self.last = None;
        }
        while let Some(socket) = sockets.next_ready() {
            // Exactly those that wait, as counted below.
            for _ in 0..sockets.waiting(socket) {
                let Some(datagram) = sockets.receive(socket) else { break };
                if socket == LISTENER {
                    self.relay(datagram, sockets, &mut tally);
                } else {
                    self.answer(socket, datagram, sockets, &mut tally);
                }
            }
        }
        self.flush(sockets, &mut tally);
        tally.add_to(&self.counters);
    }

    fn handle_unreachable(&mut self, socket: SocketIndex, peer: SocketAddr, now: Duration) {
        let Some(admission) = &mut self.admission else { return };
        let place = usize::from(socket.0).checked_sub(1);
        let client = place.and_then(|place| self.clients.get(place));
        let client = client.filter(|client| client.server == peer);
        if let Some(flow) = client.and_then(|client| client.flow.as_ref()) {
            admission.refused(flow, now);
        }
    }
}

impl Relay {
    fn new(setup: UdpGatewaySetup, mut counters: Vec<Counter>) -> Self {
        let of_balance = counters.split_off(UDP_GATEWAY_ITEMS.len().min(counters.len()));
        let admission = match &setup.target {
            UdpTarget::Server(_) => None,
            UdpTarget::Balance(balance) => Some(ClientAdmission::new(balance.clone(), of_balance)),
        };
        Self {
            setup,
            counters,
            admission,
            clients: Vec::new(),
            places: HashMap::new(),
            last: None,
            merging: Vec::new(),
            full_until: Duration::ZERO,
            shares: HashMap::new(),
            scarce_until: Duration::ZERO,
        }
    }

    /// Relays one datagram of a client.
    fn relay(
        &mut self,
        datagram: Datagram,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut Tally,
    ) {
        // The server is no client of its own: forged in its name, a datagram that it answers would go
        // to and fro for ever.
        if self.is_server(datagram.from()) {
            tally.strangers += 1;
            return;
        }
        tally.received += 1;
        // Why there is no place has been counted.
        let Some(place) = self.place(&datagram, sockets, tally) else { return };
        let socket = socket_of(place);
        let Some(client) = self.clients.get_mut(place) else { return };
        let server = client.server;
        client.seen = sockets.now();
        if let (Some(admission), Some(flow)) = (&mut self.admission, &client.flow) {
            admission.sent(flow, client.seen);
            let octets = u32::try_from(datagram.octets().len()).unwrap_or(u32::MAX);
            let (_, sum) = client.awaits.get_or_insert((client.seen, 0));
            *sum = sum.saturating_add(octets);
        }
        if client.trust == Trust::Answered {
            client.trust = Trust::Confirmed;
        }
        let origin = datagram.origin();
        match (&mut client.merger, self.setup.series) {
            (Some(merger), _) => {
                if merger.is_empty() {
                    client.origin = origin;
                    self.merging.push(place);
                }
                merger.push(datagram.octets(), |octets| {
                    tally.sent(sockets.send(socket, octets, server, client.origin).is_ok());
                    client.origin = origin;
                });
                client.origin = client.origin.joined_by(origin);
            }
            (None, Series::Split) => {
                for part in split(datagram.octets()) {
                    match part {
                        Ok(part) => {
                            tally.sent(sockets.send(socket, part, server, origin).is_ok());
                        }
                        Err(CutShort { .. }) => tally.cut_short += 1,
                    }
                }
            }
            (None, _) => tally.sent(sockets.forward(socket, datagram, server).is_ok()),
        }
    }

    /// Relays one datagram for a client.
    fn answer(
        &mut self,
        socket: SocketIndex,
        datagram: Datagram,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut Tally,
    ) {
        let place = usize::from(socket.0).checked_sub(1);
        let client = place.and_then(|place| self.clients.get_mut(place));
        let Some(client) = client.filter(|client| datagram.from() == client.server) else {
            tally.strangers += 1;
            return;
        };
        if client.trust == Trust::Unanswered {
            client.trust = Trust::Answered;
        }
        if let (Some(admission), Some(flow)) = (&mut self.admission, &client.flow) {
            admission.answered(flow);
            if let Some((since, octets)) = client.awaits.take() {
                let now = sockets.now();
                admission.measured(flow, now, (now.saturating_sub(since), octets));
            }
        }
        let (asked, address) = (client.asked, client.address);
        match sockets.forward_from(LISTENER, asked, datagram, address) {
            Ok(()) => tally.returned += 1,
            Err(_) => tally.not_sent += 1,
        }
    }

    /// Sends the merged datagrams.
    fn flush(&mut self, sockets: &mut ApplicationSockets<'_, '_>, tally: &mut Tally) {
        for place in self.merging.drain(..) {
            let Some(client) = self.clients.get_mut(place) else { continue };
            let server = client.server;
            let Some(merger) = &mut client.merger else { continue };
            merger.flush(|octets| {
                tally.sent(sockets.send(socket_of(place), octets, server, client.origin).is_ok());
            });
            if let Series::Merge(_, MergeLimit::PathMtu) = self.setup.series {
                // The path may have changed; what is joined next fits it.
                merger.set_limit(payload_max(server, sockets));
            }
        }
    }

    /// The table index of the client that sent a datagram.
    fn place(
        &mut self,
        datagram: &Datagram,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut Tally,
    ) -> Option<usize> {
        let from = datagram.from();
        if let Some((_, place)) = self.last.filter(|&(last, _)| last == from) {
            return Some(place);
        }
        let place = match self.places.get(&from) {
            Some(&place) => self.readmit(place, sockets.now())?,
            None => self.settle(datagram, sockets, tally)?,
        };
        self.last = Some((from, place));
        Some(place)
    }

    /// Whether an address is that of the server, or of a relay.
    fn is_server(&self, from: SocketAddr) -> bool {
        // The client of the last datagram is none.
        if self.last.is_some_and(|(last, _)| last == from) {
            return false;
        }
        match (&self.admission, &self.setup.target) {
            (Some(admission), _) => admission.is_relay(from),
            (None, UdpTarget::Server(server)) => from == *server,
            (None, UdpTarget::Balance(_)) => false,
        }
    }

    /// Gives a known client a flow again if its own has ended, or has a relay that is left out.
    fn readmit(&mut self, place: usize, now: Duration) -> Option<usize> {
        let Some(admission) = &mut self.admission else { return Some(place) };
        let client = self.clients.get_mut(place)?;
        match client.flow.take() {
            Some(flow) if admission.leaves(&flow) => admission.end(&flow, now),
            Some(flow) => {
                client.flow = Some(flow);
                return Some(place);
            }
            None => {}
        }
        end_silent(&mut self.clients, admission, now);
        let client = self.clients.get_mut(place)?;
        let until = now.saturating_add(UNCONFIRMED_FOR);
        let (flow, server) = admission.admit(client.address.ip(), now, until)?;
        (client.flow, client.server, client.awaits) = (Some(flow), server, None);
        Some(place)
    }

    /// The table entry for a new client: a free one, or that of the client that expired first.
    fn free_place(&mut self, from: IpAddr, now: Duration) -> Option<usize> {
        let (place, clients_max) = (self.clients.len(), usize::from(self.setup.clients_max));
        let reserved = self.reserved();
        if place + reserved < clients_max {
            return Some(place);
        }
        let has_share = self.shares.get(&network(from)).copied().unwrap_or_default() >= reserved;
        if reserved > 0 && has_share && !self.has_spare(clients_max - reserved, now) {
            return None;
        }
        if place < clients_max {
            return Some(place);
        }
        if now < self.full_until {
            return None;
        }
        let first = self.clients.iter().enumerate().min_by_key(|(_, old)| old.until());
        let (place, old) = first?;
        // Whoever sends meanwhile only stays longer. One whose datagrams are being merged was seen
        // just now.
        self.full_until = old.until();
        (now >= self.full_until).then_some(place)
    }

    /// Places that are kept for addresses with fewer clients than that. With relays, `flows_per_client`
    /// bounds what one client has.
    fn reserved(&self) -> usize {
        let clients_max = usize::from(self.setup.clients_max);
        let is_divided = self.admission.is_none() && clients_max >= DIVIDED_MIN;
        if is_divided { clients_max / SHARES } else { 0 }
    }

    /// Whether fewer clients than `most` are there that have not expired.
    fn has_spare(&mut self, most: usize, now: Duration) -> bool {
        if now < self.scarce_until {
            return false;
        }
        let live = self.clients.iter().filter(|client| client.until() > now).count();
        if live >= most {
            self.scarce_until = now.saturating_add(SPARE_EVERY);
        }
        live < most
    }

    /// Allocates an entry for a new client, and admits it if relays share the clients.
    fn settle(
        &mut self,
        datagram: &Datagram,
        sockets: &mut ApplicationSockets<'_, '_>,
        tally: &mut Tally,
    ) -> Option<usize> {
        let (address, asked, seen) = (datagram.from(), datagram.to(), sockets.now());
        let Some(place) = self.free_place(address.ip(), seen) else {
            tally.datagrams_refused += 1;
            return None;
        };
        self.last = None;
        let (flow, server) = match (&mut self.admission, &self.setup.target) {
            (Some(admission), _) => {
                end_silent(&mut self.clients, admission, seen);
                let until = seen.saturating_add(UNCONFIRMED_FOR);
                let (flow, relay) = admission.admit(address.ip(), seen, until)?;
                (Some(flow), relay)
            }
            (None, UdpTarget::Server(server)) => (None, *server),
            (None, UdpTarget::Balance(_)) => return None,
        };
        let merger = match self.setup.series {
            Series::Merge(form, MergeLimit::Octets(limit)) => Some(Merger::new(form, limit)),
            Series::Merge(form, MergeLimit::PathMtu) => {
                Some(Merger::new(form, payload_max(server, sockets)))
            }
            Series::Plain | Series::Split => None,
        };
        let (trust, origin, awaits) = (Trust::Unanswered, Origin::default(), None);
        let client = Client { address, server, flow, awaits, asked, seen, trust, merger, origin };
        match self.clients.get_mut(place) {
            None => self.clients.push(client),
            Some(old) => {
                // Its flow has ended with its silence.
                self.places.remove(&old.address);
                let its = network(old.address.ip());
                *old = client;
                self.leave_share(its);
                tally.clients_replaced += 1;
            }
        }
        self.places.insert(address, place);
        *self.shares.entry(network(address.ip())).or_default() += 1;
        Some(place)
    }

    fn leave_share(&mut self, network: IpAddr) {
        if let Some(clients) = self.shares.get_mut(&network) {
            *clients = clients.saturating_sub(1);
            if *clients == 0 {
                self.shares.remove(&network);
            }
        }
    }
}

/// Ends the flows of clients that have been silent for too long.
fn end_silent(clients: &mut [Client], admission: &mut ClientAdmission, now: Duration) {
    if !admission.is_due(now) {
        return;
    }
    let mut next_end = Duration::MAX;
    for client in clients {
        let Some(flow) = &client.flow else { continue };
        // Those that send meanwhile only stay longer.
        if client.until() <= now {
            admission.end(flow, now);
            client.flow = None;
        } else {
            next_end = next_end.min(client.until());
        }
    }
    admission.set_next_end(next_end);
}

/// The socket of the client at a place of the table.
fn socket_of(place: usize) -> SocketIndex {
    SocketIndex(u16::try_from(place + 1).unwrap_or(u16::MAX))
}

/// Octets of payload that the path to the server carries.
fn payload_max(server: SocketAddr, sockets: &mut ApplicationSockets<'_, '_>) -> usize {
    sockets.payload_max(server.ip()).unwrap_or(PAYLOAD_WITHOUT_ROUTE)
}

/// Counts of one call, added to the shared counters once a call.
#[derive(Debug, Default)]
struct Tally {
    received: u64,
    sent: u64,
    returned: u64,
    cut_short: u64,
    not_sent: u64,
    datagrams_refused: u64,
    clients_replaced: u64,
    strangers: u64,
}

impl Tally {
    fn sent(&mut self, is_sent: bool) {
        *(if is_sent { &mut self.sent } else { &mut self.not_sent }) += 1;
    }

    fn add_to(&self, counters: &[Counter]) {
        let counts = [
            self.received,
            self.sent,
            self.returned,
            self.cut_short,
            self.not_sent,
            self.datagrams_refused,
            self.clients_replaced,
            self.strangers,
        ];
        for (counter, count) in counters.iter().zip(counts).filter(|(_, count)| *count > 0) {
            counter.add(count);
        }
    }
}

#[cfg(test)]
mod tests;

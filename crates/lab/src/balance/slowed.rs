//! The same flows over real nodes: each node of the network is a relay in a network namespace.
//!
//! A relay is one thread over a socket. It takes one datagram at a time, computes what a processor of
//! its speed would work on it, and sends it on by the path in the datagram: a relay of half the speed
//! does the work twice ([`Computation`]). All relays share the processors of this machine, so the
//! flows that ask must be as few as these can compute for. Models are fitted from what the relays took
//! for probes, admission is that of the simulation, and then every packet of the admitted flows is sent.

use super::{
    AdmittedFlows, BalanceExperiment, BalanceOutcome, SIZES, fitted, gap, model_of, nanoseconds,
    offers, service_time, violated,
};
use crate::clock;
use crate::computation::Computation;
use crate::relay::sockets::{is_idle, receive_stamped};
use gatewright_delay::{NodeModel, PathPolicy, PlacedFlow};
use gatewright_sim::Random;
use gatewright_testbed::{Namespace, TestbedError, Veth};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port of relays and of the receiver.
const PORT: u16 = 9000;
/// Octets of the largest datagram.
const DATAGRAM_MAX: usize = 2048;
/// How long a call waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Probes of each size by which a node's model is fitted, and the time between two of them on any way:
/// probes on several ways at once would wait for each other's processors, and that be in the models.
const PROBES: usize = 30;
const PROBE_GAP_NS: u64 = 25_000_000;
/// How long packets may be under way when the last one has been sent.
const DRAIN: Duration = Duration::from_millis(500);
/// Longest path, in nodes.
const PATH_MAX: usize = 16;
/// Nodes at the most: a path has an octet for each.
const NODES_MAX: usize = 250;
/// Octets before the filling: flow, place on the path, the path, the time when it was due.
const HEADER: usize = 4 + 1 + PATH_MAX + 8;
/// The flow of probes.
const PROBE: u32 = u32::MAX;
/// The place of a path that no node has.
const NOWHERE: u8 = u8::MAX;

/// Offers the same flows to min-hop and to least load, and sends what each admits over namespaces.
///
/// # Errors
///
/// In words: without root, or if a relay cannot start.
pub fn balance_on_namespaces(
    experiment: &BalanceExperiment,
) -> Result<Vec<BalanceOutcome>, String> {
    if experiment.speeds.len() > NODES_MAX {
        return Err(format!("at most {NODES_MAX} nodes can be namespaces"));
    }
    let mut random = Random::new(experiment.seed);
    let offers = offers(experiment, &mut random);
    let network = SlowedNetwork::build(experiment)?;
    let models = network.models(experiment, &offers, &mut random)?;
    let mut outcomes = Vec::new();
    for policy in [PathPolicy::MinHop, PathPolicy::LeastLoad] {
        let admitted = AdmittedFlows::new(experiment, &models, &offers, policy);
        let sendings = poisson(experiment, &admitted.flows, &mut random);
        let counts = network.send(experiment, &sendings, admitted.flows.len())?;
        let packets = counts.iter().map(|(packets, _)| packets).sum();
        let late = violated(&admitted.flows, &counts);
        outcomes.push(admitted.outcome(policy, (late, packets)));
    }
    Ok(outcomes)
}

/// A datagram that is to be sent.
#[derive(Clone, Debug)]
struct Sending {
    /// When, since the start.
    at_ns: u64,
    flow: u32,
    octets: usize,
    path: Arc<[u8]>,
}

impl Sending {
    /// Its octets; the first node of its path has it already.
    fn payload(&self, due_ns: u64) -> Vec<u8> {
        let mut payload = self.flow.to_be_bytes().to_vec();
        payload.push(0);
        payload.extend_from_slice(&self.path);
        payload.resize(HEADER - 8, NOWHERE);
        payload.extend_from_slice(&due_ns.to_be_bytes());
        payload.resize(self.octets.max(HEADER), 0);
        payload
    }
}

/// The node that a datagram goes to next, which is noted in it; `None` at the end of its path.
fn next_node(payload: &mut [u8]) -> Option<u8> {
    let place = payload.get(4)?.checked_add(1)?;
    let path = payload.get(5..5 + PATH_MAX)?;
    let next = path.get(usize::from(place)).copied().filter(|next| *next != NOWHERE)?;
    *payload.get_mut(4)? = place;
    Some(next)
}

/// The flow of a datagram, and when it was due.
fn flow_and_time(payload: &[u8]) -> Option<(u32, u64)> {
    let flow = payload.first_chunk().copied().map(u32::from_be_bytes)?;
    let due = payload.get(HEADER - 8..HEADER)?.first_chunk().copied().map(u64::from_be_bytes)?;
    Some((flow, due))
}

fn octets_of(path: &[usize]) -> Result<Arc<[u8]>, String> {
    let octets: Result<Vec<u8>, _> = path.iter().map(|&node| u8::try_from(node)).collect();
    let octets = octets.ok().filter(|octets| octets.len() <= PATH_MAX);
    octets.map(Into::into).ok_or_else(|| format!("a path has at most {PATH_MAX} nodes"))
}

/// The packets of flows as Poisson processes, in the order of time.
fn poisson(
    experiment: &BalanceExperiment,
    flows: &[PlacedFlow],
    random: &mut Random,
) -> Vec<Sending> {
    let end_ns = nanoseconds(experiment.seconds);
    let mut heap = BinaryHeap::new();
    for (number, placed) in flows.iter().enumerate() {
        heap.push(Reverse((nanoseconds(gap(placed.kind.rate, random)), number)));
    }
    let paths: Vec<_> = flows.iter().map(|placed| octets_of(&placed.path)).collect();
    let mut sendings = Vec::new();
    while let Some(Reverse((at_ns, number))) = heap.pop() {
        let (Some(placed), Some(Ok(path))) = (flows.get(number), paths.get(number)) else {
            continue;
        };
        if at_ns >= end_ns {
            continue;
        }
        let octets =
            usize::try_from(nanoseconds((placed.kind.octets + 0.5) / 1e9)).unwrap_or(HEADER);
        let flow = u32::try_from(number).unwrap_or(PROBE);
        sendings.push(Sending { at_ns, flow, octets, path: Arc::clone(path) });
        heap.push(Reverse((at_ns + nanoseconds(gap(placed.kind.rate, random)), number)));
    }
    sendings
}

/// Payload sizes of datagrams, and what the relay took for them, in seconds.
type ServiceTimes = Arc<Mutex<Vec<(f64, f64)>>>;

/// A relay in its namespace, on a thread; it ends when dropped.
#[derive(Debug)]
struct SlowedNode {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    times: ServiceTimes,
}

impl Drop for SlowedNode {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its failure shows as loss.
            let _ended = thread.join();
        }
    }
}

/// The address by which each neighbour of a node is reached.
type Neighbours = BTreeMap<u8, SocketAddrV4>;

/// The nodes in namespaces, with their cables and relays.
#[derive(Debug)]
struct SlowedNetwork {
    nodes: Vec<Namespace>,
    neighbours: Vec<Neighbours>,
    relays: BTreeMap<usize, SlowedNode>,
    /// Held as long as the network is.
    cables: Vec<Veth>,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

impl SlowedNetwork {
    /// Lays the cables, and starts a relay in each node but the first and the last.
    fn build(experiment: &BalanceExperiment) -> Result<Self, String> {
        let count = experiment.speeds.len();
        let nodes: Result<Vec<_>, _> = (0..count).map(|_| Namespace::new().map_err(text)).collect();
        let mut this = Self {
            nodes: nodes?,
            neighbours: vec![Neighbours::new(); count],
            relays: BTreeMap::new(),
            cables: Vec::new(),
        };
        for (number, &ends) in experiment.links.iter().enumerate() {
            this.lay_cable(number, ends)?;
        }
        let relays = experiment.speeds.iter().enumerate().skip(1).take(count.saturating_sub(2));
        let computation = Computation::calibrate();
        for (at, &speed) in relays {
            let seed = experiment.seed ^ (u64::try_from(at).unwrap_or(0) << 32);
            let relay = this.start(at, speed, computation, Random::new(seed))?;
            this.relays.insert(at, relay);
        }
        Ok(this)
    }

    fn node(&self, at: usize) -> Result<&Namespace, String> {
        self.nodes.get(at).ok_or_else(|| "no such node".to_owned())
    }

    fn lay_cable(&mut self, number: usize, (one, other): (usize, usize)) -> Result<(), String> {
        let names = [format!("to{other}"), format!("to{one}")];
        let [near, far] = [&names[0], &names[1]];
        let cable = Veth::pair(self.node(one)?, near, self.node(other)?, far).map_err(text)?;
        let number = u8::try_from(number).map_err(|_| "at most 256 cables".to_owned())?;
        let address = |end| Ipv4Addr::new(10, 75, number, end);
        for (end, host) in [(&cable.a, 1), (&cable.b, 2)] {
            end.disable_ipv6().map_err(text)?;
            end.add_address(&format!("{}/24", address(host))).map_err(text)?;
        }
        cable.up().map_err(text)?;
        for ((at, to), host) in [((one, other), 2), ((other, one), 1)] {
            let to = u8::try_from(to).unwrap_or(NOWHERE);
            if let Some(neighbours) = self.neighbours.get_mut(at) {
                neighbours.insert(to, SocketAddrV4::new(address(host), PORT));
            }
        }
        self.cables.push(cable);
        Ok(())
    }

    fn start(
        &self,
        at: usize,
        speed: f64,
        computation: Computation,
        mut random: Random,
    ) -> Result<SlowedNode, String> {
        let node = self.node(at)?.clone();
        let neighbours = self.neighbours.get(at).cloned().unwrap_or_default();
        let (stop, times) = (Arc::new(AtomicBool::new(false)), ServiceTimes::default());
        let (its, taken) = (Arc::clone(&stop), Arc::clone(&times));
        let socket = node.run(stamped_socket).map_err(text)?;
        let socket = socket.map_err(|error| format!("node {at}: {error}"))?;
        let mut work = move |octets| {
            let time = service_time(speed, crate::analysis::real(octets), &mut random);
            computation.compute(nanoseconds(time));
        };
        let body = move || relay(&socket, &neighbours, &its, &taken, &mut work);
        let thread = std::thread::Builder::new().name(format!("node {at}")).spawn(body);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        Ok(SlowedNode { stop, thread, times })
    }

    /// Models by what each relay takes for probes of several sizes, one at a time. The ends relay
    /// nothing, and have those of their speeds.
    fn models(
        &self,
        experiment: &BalanceExperiment,
        offers: &[Vec<Vec<usize>>],
        random: &mut Random,
    ) -> Result<Vec<NodeModel>, String> {
        let ways = offers.first().map(Vec::as_slice).unwrap_or_default();
        let paths: Result<Vec<_>, _> = ways.iter().map(|way| octets_of(way)).collect();
        let (mut sendings, mut at_ns) = (Vec::new(), 0);
        for octets in SIZES.into_iter().cycle().take(PROBES * SIZES.len()) {
            let octets = usize::try_from(nanoseconds((octets + 0.5) / 1e9)).unwrap_or(HEADER);
            for path in paths.as_ref().map_err(Clone::clone)? {
                sendings.push(Sending { at_ns, flow: PROBE, octets, path: Arc::clone(path) });
                at_ns += PROBE_GAP_NS;
            }
        }
        self.send(experiment, &sendings, 0)?;
        let model = |(at, &speed): (usize, &f64)| match self.relays.get(&at) {
            Some(relay) => {
                let times = relay.times.lock().unwrap_or_else(PoisonError::into_inner);
                model_of(&times).ok_or_else(|| format!("node {at} has relayed no probes"))
            }
            None => fitted(speed, random).ok_or_else(|| "no model".to_owned()),
        };
        experiment.speeds.iter().enumerate().map(model).collect()
    }

    /// Sends from the first node, and receives at the last: packets of each flow, and how many of
    /// these were late or lost.
    fn send(
        &self,
        experiment: &BalanceExperiment,
        sendings: &[Sending],
        flows: usize,
    ) -> Result<Vec<(u64, u64)>, String> {
        let last = self.node(self.nodes.len().saturating_sub(1))?;
        let receiving = last.run(stamped_socket).map_err(text)?;
        let receiving = receiving.map_err(|error| format!("receiver: {error}"))?;
        let sending = self.node(0)?.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let sending = sending.map_err(text)?.map_err(|error| format!("sender: {error}"))?;
        let first = self.neighbours.first().cloned().unwrap_or_default();
        let bound_ns = nanoseconds(experiment.kind.bound_us / 1e6);
        let stop = AtomicBool::new(false);
        let in_time = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&receiving, bound_ns, flows, &stop));
            let sent = depart(&sending, &first, sendings);
            std::thread::sleep(DRAIN);
            stop.store(true, Ordering::Relaxed);
            let in_time = receiver.join().map_err(|_| "the receiver has ended".to_owned())?;
            sent.map_err(|error| format!("sender: {error}"))?;
            in_time.map_err(|error| format!("receiver: {error}"))
        })?;
        let mut counts: Vec<(u64, u64)> = vec![(0, 0); flows];
        for sending in sendings {
            let flow = usize::try_from(sending.flow).ok().and_then(|flow| counts.get_mut(flow));
            if let Some((packets, late)) = flow {
                (*packets, *late) = (*packets + 1, *late + 1);
            }
        }
        for ((_, late), in_time) in counts.iter_mut().zip(in_time) {
            *late = late.saturating_sub(in_time);
        }
        Ok(counts)
    }
}

/// A socket at the port whose datagrams have the time when the kernel received them.
fn stamped_socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    socket.set_read_timeout(Some(LOOK))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    Ok(socket)
}

/// The next datagram with the time when it came; `None` if none came for a while.
fn next_datagram(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<(usize, u64)>> {
    match receive_stamped(socket, buffer) {
        Ok(it) => Ok(Some((it.len, it.stamp.unwrap_or_else(clock::now)))),
        Err(error) if is_idle(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Relays one datagram at a time, each after `work` on so many octets.
fn relay(
    socket: &UdpSocket,
    neighbours: &Neighbours,
    stop: &AtomicBool,
    times: &ServiceTimes,
    work: &mut impl FnMut(usize),
) -> io::Result<()> {
    let (mut buffer, mut free_ns) = ([0; DATAGRAM_MAX], 0);
    while !stop.load(Ordering::Relaxed) {
        let Some((len, came)) = next_datagram(socket, &mut buffer)? else { continue };
        let Some(payload) = buffer.get_mut(..len) else { continue };
        let Some(to) = next_node(payload).and_then(|next| neighbours.get(&next)) else { continue };
        work(len);
        match socket.send_to(payload, to) {
            Ok(_) => {}
            Err(error) if is_idle(&error) => {}
            Err(error) => return Err(error),
        }
        let given = clock::now();
        if flow_and_time(payload).is_some_and(|(flow, _)| flow == PROBE) {
            let took = Duration::from_nanos(given.saturating_sub(came.max(free_ns)));
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            if times.len() < PROBES * SIZES.len() {
                times.push((crate::analysis::real(len), took.as_secs_f64()));
            }
        }
        free_ns = given;
    }
    Ok(())
}

/// Sends each datagram when it is due. A late sender is part of the delay.
fn depart(socket: &UdpSocket, first: &Neighbours, sendings: &[Sending]) -> io::Result<()> {
    let _slack = nix::sys::prctl::set_timerslack(1);
    let start = clock::now() + nanoseconds(LOOK.as_secs_f64());
    for sending in sendings {
        let due_ns = start + sending.at_ns;
        let mut payload = sending.payload(due_ns);
        let Some(to) = next_node(&mut payload).and_then(|next| first.get(&next)) else { continue };
        clock::sleep_until(due_ns);
        match socket.send_to(&payload, to) {
            Ok(_) => {}
            // Full queues lose it.
            Err(error) if is_idle(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Counts the datagrams of each flow that came within the bound.
fn receive(
    socket: &UdpSocket,
    bound_ns: u64,
    flows: usize,
    stop: &AtomicBool,
) -> io::Result<Vec<u64>> {
    let mut in_time = vec![0; flows];
    let mut buffer = [0; DATAGRAM_MAX];
    while !stop.load(Ordering::Relaxed) {
        let Some((len, came)) = next_datagram(socket, &mut buffer)? else { continue };
        let Some((flow, due)) = buffer.get(..len).and_then(flow_and_time) else { continue };
        let count = usize::try_from(flow).ok().and_then(|flow| in_time.get_mut(flow));
        if let Some(count) = count.filter(|_| came.saturating_sub(due) <= bound_ns) {
            *count += 1;
        }
    }
    Ok(in_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_goes_by_its_path_to_the_end() {
        let path: Arc<[u8]> = octets_of(&[0, 6, 7, 11]).unwrap();
        let sending = Sending { at_ns: 0, flow: 5, octets: 400, path };
        let mut payload = sending.payload(1_000_000_007);
        assert_eq!((payload.len(), flow_and_time(&payload)), (400, Some((5, 1_000_000_007))));
        let nodes: Vec<_> = std::iter::from_fn(|| next_node(&mut payload)).collect();
        assert_eq!(nodes, [6, 7, 11]);
        assert!(octets_of(&[0; PATH_MAX + 1]).is_err() && octets_of(&[256]).is_err());
        assert_eq!((next_node(&mut []), flow_and_time(&payload[..HEADER - 1])), (None, None));
    }

    #[test]
    fn a_relay_works_on_each_datagram_and_sends_it_on() {
        let [local, next] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        local.set_read_timeout(Some(LOOK)).unwrap();
        next.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let port = next.local_addr().unwrap().port();
        let neighbours = Neighbours::from([(7, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))]);
        let path: Arc<[u8]> = octets_of(&[0, 7]).unwrap();
        let (stop, times) = (AtomicBool::new(false), ServiceTimes::default());
        let (at, mut worked) = (local.local_addr().unwrap(), Vec::new());
        let arrived = std::thread::scope(|scope| {
            let relay = scope.spawn(|| {
                relay(&local, &neighbours, &stop, &times, &mut |octets| worked.push(octets))
            });
            let mut buffer = [0; DATAGRAM_MAX];
            let mut arrived = Vec::new();
            for octets in [100, 400] {
                let sending = Sending { at_ns: 0, flow: PROBE, octets, path: Arc::clone(&path) };
                next.send_to(&sending.payload(0), at).unwrap();
                arrived.push(next.recv(&mut buffer).unwrap());
            }
            stop.store(true, Ordering::Relaxed);
            relay.join().unwrap().unwrap();
            arrived
        });
        assert_eq!((arrived, worked), (vec![100, 400], vec![100, 400]));
        assert_eq!(times.lock().unwrap().len(), 2, "probes are what models are fitted from");
    }

    #[test]
    fn packets_are_sent_in_the_order_of_time_at_the_flows_rates() {
        let mut experiment = BalanceExperiment::three_ways(1);
        experiment.seconds = 100.0;
        let flow = |id| PlacedFlow {
            id: gatewright_delay::FlowId(id),
            kind: experiment.kind,
            path: vec![0, 1, 2, 11],
        };
        let sendings = poisson(&experiment, &[flow(0), flow(1)], &mut Random::new(3));
        assert!(sendings.is_sorted_by_key(|sending| sending.at_ns));
        // 2 flows, 10 packets a second, 100 s: 2,000 of a Poisson process, whose deviation is 45.
        assert!((1800..2200).contains(&sendings.len()), "{}", sendings.len());
        assert!(sendings.iter().all(|sending| sending.octets == 400));
    }
}

//! Simulated networks of nodes of unequal speed, and the flows that they carry by policy.
//!
//! Each node is a relay with one queue. Its model is fitted from samples of its service times, as
//! the lab fits that of a real relay. Flows between random nodes ask one after the other and are
//! admitted by [`FlowAdmission`]; then every packet of the admitted flows is simulated, and a flow that
//! is later than its bound more often than it may be is a violation. `balance/slowed.rs` does the same
//! with real packets over relays in network namespaces.

mod slowed;

pub use slowed::balance_on_namespaces;

use crate::analysis::{mean, quantile, sorted};
use gatewright_delay::{
    FlowAdmission, FlowKind, NodeModel, PathPolicy, PlacedFlow, QueueModel, least_squares,
};
use gatewright_sim::Random;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// Service time of a node of speed 1: a constant part, and that of each octet, in seconds. About
/// what the paper's slow relays take.
const SERVICE: (f64, f64) = (400e-6, 0.4e-6);
/// Paths among which a flow has the choice.
const PATHS_MAX: usize = 4;
/// Samples of each of four sizes that a node's model is fitted from.
const SAMPLES: usize = 200;
/// Those sizes, in octets.
const SIZES: [f64; 4] = [100.0, 400.0, 700.0, 1400.0];
/// Service times are uniform from a half to three halves of their mean.
const HALF: f64 = 0.5;
/// Nodes of a network.
pub const BALANCE_NODES: std::ops::RangeInclusive<usize> = 4..=1000;

/// A network and what asks to be carried.
#[derive(Clone, Debug, PartialEq)]
pub struct BalanceExperiment {
    /// Speed of each node; 1 is the slowest.
    pub speeds: Vec<f64>,
    /// Pairs of nodes with a link.
    pub links: Vec<(usize, usize)>,
    /// What each flow is like.
    pub kind: FlowKind,
    /// Flows that ask.
    pub offered: usize,
    /// How far apart in their numbers the ends of a flow are at the most; without it flows go from
    /// the first node to the last, which relay nothing themselves.
    pub apart_max: Option<usize>,
    /// Seconds that packets are simulated for.
    pub seconds: f64,
    /// Seed of pairs, samples and arrivals.
    pub seed: u64,
}

impl BalanceExperiment {
    /// A network of `nodes` nodes in rows of five, each linked to its neighbours in its row and
    /// column; speeds are 1, 2 and 4 in turn. 80 flows a node ask, and at most
    /// 8,000, between nodes whose numbers
    /// differ by at most 20.
    pub fn grid(nodes: usize, seed: u64) -> Self {
        const WIDTH: usize = 5;
        let speeds = [1.0, 2.0, 4.0].into_iter().cycle().take(nodes).collect();
        let across = (0..nodes).filter(|at| at % WIDTH != WIDTH - 1).map(|at| (at, at + 1));
        let down = (0..nodes).map(|at| (at, at + WIDTH));
        let links = across.chain(down).filter(|&(_, to)| to < nodes).collect();
        Self {
            speeds,
            links,
            kind: KIND,
            offered: (80 * nodes).min(8000),
            apart_max: Some(20),
            seconds: 60.0,
            seed,
        }
    }

    /// Ten relays between two sites, on three ways: two of speed 1, three of speed 2, five of speed
    /// 4. So the fewest hops lead over the slowest relays. 2,000 flows ask.
    pub fn three_ways(seed: u64) -> Self {
        const ENDS: f64 = 1e9;
        let speeds = vec![ENDS, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, ENDS];
        let ways: [&[usize]; 3] = [&[0, 1, 2, 11], &[0, 3, 4, 5, 11], &[0, 6, 7, 8, 9, 10, 11]];
        let pairs = ways.iter().flat_map(|way| way.iter().zip(way.iter().skip(1)));
        let links = pairs.map(|(&one, &other)| (one, other)).collect();
        Self { speeds, links, kind: KIND, offered: 2000, apart_max: None, seconds: 60.0, seed }
    }

    /// The same for ten relays that compute on the processors of one machine
    /// ([`balance_on_namespaces`]): nodes half as fast, so that the system's own delays weigh less; a
    /// bound that leaves their queues short and at which every way carries some flows; and as many flows
    /// as one processor can compute for. More would wait for processors, which no node's model knows.
    #[must_use]
    pub fn computed(self) -> Self {
        const SLOWER: f64 = 2.0;
        let speeds = self.speeds.iter().map(|speed| speed / SLOWER).collect();
        let kind = FlowKind { bound_us: 4500.0, ..self.kind };
        Self { speeds, kind, offered: 28, ..self }
    }
}

/// The flows of both topologies.
const KIND: FlowKind = FlowKind { rate: 10.0, octets: 400.0, bound_us: 10_000.0, quantile: 0.95 };

/// What one policy carries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BalanceOutcome {
    /// The policy.
    pub policy: PathPolicy,
    /// Flows that were admitted.
    pub flows: usize,
    /// Of these, flows later than their bound in more packets than allowed, in percent.
    pub violations_pct: f64,
    /// Packets simulated.
    pub packets: u64,
    /// Load of the busiest node, in percent.
    pub busiest_pct: f64,
    /// Refused flows by the kind of reason.
    pub refused: BTreeMap<&'static str, usize>,
}

/// Offers the same flows to every policy, and simulates what each admits.
pub fn balance(experiment: &BalanceExperiment) -> Vec<BalanceOutcome> {
    let mut random = Random::new(experiment.seed);
    let models: Vec<NodeModel> =
        experiment.speeds.iter().filter_map(|&speed| fitted(speed, &mut random)).collect();
    let offers = offers(experiment, &mut random);
    let outcome = |policy| {
        let admitted = AdmittedFlows::new(experiment, &models, &offers, policy);
        let carried = simulate(experiment, &admitted.flows);
        admitted.outcome(policy, carried)
    };
    POLICIES.map(outcome).to_vec()
}

/// The policies, in the order of their outcomes.
const POLICIES: [PathPolicy; 3] = [PathPolicy::MinHop, PathPolicy::Weighted, PathPolicy::LeastLoad];

/// What one policy admits.
struct AdmittedFlows {
    flows: Vec<PlacedFlow>,
    refused: BTreeMap<&'static str, usize>,
    busiest_pct: f64,
}

impl AdmittedFlows {
    /// Offers flows with these candidate paths, one after the other.
    fn new(
        experiment: &BalanceExperiment,
        models: &[NodeModel],
        offers: &[Vec<Vec<usize>>],
        policy: PathPolicy,
    ) -> Self {
        let mut admission = FlowAdmission::new(models.iter().copied(), experiment.offered);
        let mut refused = BTreeMap::new();
        for paths in offers {
            if let Err(refusal) = admission.place(experiment.kind, paths, policy) {
                *refused.entry(refusal.name()).or_insert(0) += 1;
            }
        }
        let loads = (0..models.len()).filter_map(|node| admission.load(node));
        let busiest_pct = 100.0 * loads.map(|load| load.utilisation).fold(0.0, f64::max);
        Self { flows: admission.flows().cloned().collect(), refused, busiest_pct }
    }

    /// The outcome when so many flows were late, of so many packets.
    fn outcome(self, policy: PathPolicy, (violated, packets): (usize, u64)) -> BalanceOutcome {
        let (real, flows) = (crate::analysis::real, self.flows.len());
        BalanceOutcome {
            policy,
            flows,
            violations_pct: 100.0 * real(violated) / real(flows.max(1)),
            packets,
            busiest_pct: self.busiest_pct,
            refused: self.refused,
        }
    }
}

/// A service time of a node, as it is on one packet.
fn service_time(speed: f64, octets: f64, random: &mut Random) -> f64 {
    SERVICE.1.mul_add(octets, SERVICE.0) / speed * (HALF + uniform(random))
}

/// The model of a node by samples of its service times.
fn fitted(speed: f64, random: &mut Random) -> Option<NodeModel> {
    let mut points = Vec::new();
    for octets in SIZES {
        for _sample in 0..SAMPLES {
            points.push((octets, service_time(speed, octets, random)));
        }
    }
    model_of(&points)
}

/// The model of a node by service times of packets of several sizes.
fn model_of(points: &[(f64, f64)]) -> Option<NodeModel> {
    let service = least_squares(points)?;
    let ratios: Vec<f64> = points.iter().map(|&(b, time)| time / service.at(b)).collect();
    let mean = mean(&ratios)?;
    let squares: Vec<f64> = ratios.iter().map(|it| (it / mean - 1.0).powi(2)).collect();
    let variation = crate::analysis::mean(&squares)?;
    let spread = quantile(&sorted(&ratios), 0.95)? / mean;
    Some(NodeModel { queue: QueueModel::FirstInFirstOut, service, setup: None, variation, spread })
}

/// The candidate paths of each flow that asks, between random nodes.
fn offers(experiment: &BalanceExperiment, random: &mut Random) -> Vec<Vec<Vec<usize>>> {
    let count = experiment.speeds.len();
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &(one, other) in &experiment.links {
        for (from, to) in [(one, other), (other, one)] {
            neighbours.get_mut(from).into_iter().for_each(|its| its.push(to));
        }
    }
    let mut draw = |bound: usize| {
        usize::try_from(random.below(u64::try_from(bound).unwrap_or(0))).unwrap_or(0)
    };
    let last = count.saturating_sub(1);
    let mut pair = || match experiment.apart_max {
        None => (0, last),
        Some(apart) => {
            let from = draw(count);
            let least = from.saturating_sub(apart);
            (from, least + draw((from + apart).min(last) + 1 - least))
        }
    };
    let pairs = (0..experiment.offered).map(|_| pair()).filter(|(from, to)| from != to);
    pairs.map(|(from, to)| paths(&neighbours, from, to)).collect()
}

/// Up to [`PATHS_MAX`] paths, shortest first: each next one avoids the nodes between the ends of one
/// before it, first all of them, then one at a time.
fn paths(neighbours: &[Vec<usize>], from: usize, to: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut waiting: VecDeque<BTreeSet<usize>> = VecDeque::from([BTreeSet::new()]);
    while let Some(avoided) = waiting.pop_front() {
        let Some(path) = shortest(neighbours, from, to, &avoided) else { continue };
        if found.contains(&path) {
            continue;
        }
        let between: Vec<usize> =
            path.iter().copied().filter(|&node| node != from && node != to).collect();
        found.push(path);
        if found.len() >= PATHS_MAX || between.is_empty() {
            break;
        }
        let all: BTreeSet<usize> = avoided.iter().chain(&between).copied().collect();
        waiting.push_front(all);
        for node in between {
            let mut one = avoided.clone();
            one.insert(node);
            waiting.push_back(one);
        }
    }
    found.sort_by_key(Vec::len);
    found
}

/// The shortest path without these nodes, by breadth-first search.
fn shortest(
    neighbours: &[Vec<usize>],
    from: usize,
    to: usize,
    avoided: &BTreeSet<usize>,
) -> Option<Vec<usize>> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::from([(from, from)]);
    let mut waiting = VecDeque::from([from]);
    while let Some(node) = waiting.pop_front() {
        if node == to {
            break;
        }
        for &next in neighbours.get(node)? {
            if !avoided.contains(&next) && !before.contains_key(&next) {
                before.insert(next, node);
                waiting.push_back(next);
            }
        }
    }
    let (mut path, mut node) = (vec![to], to);
    while node != from {
        node = *before.get(&node)?;
        path.push(node);
    }
    path.reverse();
    Some(path)
}

/// A packet that comes to the node at this place of its flow's path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct PacketAt {
    at_ns: u64,
    flow: usize,
    place: usize,
    sent_ns: u64,
}

/// Simulates the packets of the flows; how many flows are later than allowed, and the packets.
fn simulate(experiment: &BalanceExperiment, flows: &[PlacedFlow]) -> (usize, u64) {
    let mut random = Random::new(experiment.seed ^ 1);
    let end_ns = nanoseconds(experiment.seconds);
    let mut heap = BinaryHeap::new();
    for (flow, placed) in flows.iter().enumerate() {
        let at_ns = nanoseconds(gap(placed.kind.rate, &mut random));
        heap.push(Reverse(PacketAt { at_ns, flow, place: 0, sent_ns: at_ns }));
    }
    let mut free_ns = vec![0_u64; experiment.speeds.len()];
    let mut counts = vec![(0_u64, 0_u64); flows.len()];
    while let Some(Reverse(packet)) = heap.pop() {
        let Some(placed) = flows.get(packet.flow) else { continue };
        if packet.place == 0 {
            let at_ns = packet.at_ns + nanoseconds(gap(placed.kind.rate, &mut random));
            if at_ns < end_ns {
                heap.push(Reverse(PacketAt { at_ns, sent_ns: at_ns, ..packet }));
            }
        }
        let node = placed.path.get(packet.place).copied();
        let node = node.and_then(|at| Some((free_ns.get_mut(at)?, experiment.speeds.get(at)?)));
        if let Some((free_ns, &speed)) = node {
            let service = nanoseconds(service_time(speed, placed.kind.octets, &mut random));
            *free_ns = packet.at_ns.max(*free_ns) + service;
            let place = packet.place + 1;
            heap.push(Reverse(PacketAt { at_ns: *free_ns, place, ..packet }));
            continue;
        }
        if let Some((arrived, late)) = counts.get_mut(packet.flow) {
            *arrived += 1;
            let delay = packet.at_ns - packet.sent_ns;
            *late += u64::from(delay > nanoseconds(placed.kind.bound_us / 1e6));
        }
    }
    (violated(flows, &counts), counts.iter().map(|(arrived, _)| arrived).sum())
}

/// The number of flows that are late more often than they may be, by their packets and those of
/// them that were late.
fn violated(flows: &[PlacedFlow], counts: &[(u64, u64)]) -> usize {
    let real = |count: u64| crate::analysis::real(usize::try_from(count).unwrap_or(usize::MAX));
    let is_violated = |(placed, (packets, late)): &(&PlacedFlow, &(u64, u64))| {
        real(*late) > (1.0 - placed.kind.quantile) * real(*packets)
    };
    flows.iter().zip(counts).filter(is_violated).count()
}

/// The gap before the next packet of a Poisson process.
fn gap(rate: f64, random: &mut Random) -> f64 {
    -(1.0 - uniform(random)).ln() / rate
}

/// A number in 0..1.
fn uniform(random: &mut Random) -> f64 {
    let bits = u32::try_from(random.bits() >> 32).unwrap_or(u32::MAX);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a simulation are positive and far below 2^63 nanoseconds"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_delay::FlowId;

    #[test]
    fn a_longer_way_by_fast_nodes_is_among_the_paths() {
        // 0–1–4 and 0–2–3–4.
        let neighbours = [vec![1, 2], vec![0, 4], vec![0, 3], vec![2, 4], vec![1, 3]];
        assert_eq!(paths(&neighbours, 0, 4), [vec![0, 1, 4], vec![0, 2, 3, 4]]);
        assert_eq!(paths(&neighbours, 0, 1), [vec![0, 1]], "neighbours need no detour");
    }

    #[test]
    fn flows_that_are_admitted_keep_their_bounds() {
        let mut experiment = BalanceExperiment::grid(10, 7);
        experiment.seconds = 30.0;
        experiment.offered = 600;
        let outcomes = balance(&experiment);
        for it in &outcomes {
            assert!(it.violations_pct < 5.0 && it.flows > 100, "{it:?}");
            assert!(it.busiest_pct < 100.0, "{it:?}");
            let refused: usize = it.refused.values().sum();
            assert!(refused > 0 && it.flows + refused <= 600, "{it:?}");
        }
        assert_eq!(outcomes, balance(&experiment), "the same seed, the same run");
    }

    #[test]
    fn relays_that_compute_keep_one_processor_busy_and_no_more() {
        for seed in 1..=3 {
            let experiment = BalanceExperiment {
                seconds: 20.0,
                ..BalanceExperiment::three_ways(seed).computed()
            };
            let outcomes = balance(&experiment);
            let [min_hop, _, least_load] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert_eq!(least_load.flows, 28, "{least_load:?}");
            assert!(2 * least_load.flows >= 3 * min_hop.flows, "{outcomes:?}");
            assert!(outcomes.iter().all(|it| it.violations_pct <= 1.0), "{outcomes:?}");
            // 400 octets, the slowest way: two relays of speed a half.
            let most = 28.0 * 10.0 * 2.0 * SERVICE.1.mul_add(400.0, SERVICE.0) / 0.5;
            assert!(most <= 1.0, "processors: {most}");
        }
    }

    #[test]
    fn flows_beyond_what_the_model_admits_are_late() {
        // One node of speed 1: what is admitted is within its bounds, twice as much is not.
        let mut experiment = BalanceExperiment::grid(4, 7);
        (experiment.speeds, experiment.links) = (vec![1.0], Vec::new());
        let placed = |flows: u64| -> Vec<PlacedFlow> {
            let flow = |id| PlacedFlow { id: FlowId(id), kind: experiment.kind, path: vec![0] };
            (0..flows).map(flow).collect()
        };
        // 560 µs a packet, 10 packets a second: 178 flows are a load of 1.
        assert_eq!(simulate(&experiment, &placed(100)).0, 0);
        assert_eq!(simulate(&experiment, &placed(200)).0, 200);
    }
}

//! Experiments in virtual time, each with its figures.

use super::mobility::{MOBILITY_LINKS, MOBILITY_NODES, Mobility};
use super::world::{LinkCut, MeshWorld, Ping};
use crate::edge::{MeshRouting, MeshSettings, PathClass};
use crate::message::{HOPS_MAX, Profile};
use gatewright_sim::{Chance, Random, Topology, distances};
use std::time::Duration;

/// Nodes of an experiment at the most.
pub const SCENARIO_NODES_MAX: usize = 20_000;

/// Worlds with more nodes run without the checks after every event.
const CHECKED_NODES_MAX: usize = 200;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Shape of a mesh.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshShape {
    /// Each node has a link to the next one.
    Line,
    /// A line whose ends are joined.
    Ring,
    /// Rows and columns.
    #[default]
    Grid,
    /// Random places of a square, those within a range joined.
    Random,
    /// A triangular lattice on a torus: each node has six links, whatever their number.
    Lattice,
    /// Links between random pairs, over a random tree that joins all nodes.
    Pairs,
    /// The Lilith paper's Figure 6: three paths between two nodes, seven nodes in all.
    ThreePaths,
}

/// What is done to a mesh.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshScenario {
    /// Every node pings another one at the very start.
    #[default]
    Cold,
    /// Nobody sends anything.
    Idle,
    /// Links of Figure 6 are cut near and far, with and without loss of the carrier.
    Failover,
    /// Packets for all nodes.
    Broadcast,
    /// A minute with pings among a hundred pairs.
    Minute,
    /// Fifty nodes on the air that walk and are pinged in turn.
    Mobility,
}

/// An experiment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MeshExperiment {
    /// What is done.
    pub scenario: MeshScenario,
    /// Shape of the mesh.
    pub shape: MeshShape,
    /// Nodes; a grid has the square below.
    pub nodes: usize,
    /// Links of a node on average in a mesh of random places or pairs; more where places need more to be joined.
    pub degree: u32,
    /// Frames that each direction of each link loses, in per cent; none in failover and mobility.
    pub loss_percent: u32,
    /// Profile of the protocol.
    pub profile: Profile,
    /// How routes are found.
    pub routing: MeshRouting,
    /// Seed of everything random.
    pub seed: u64,
}

/// A figure of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeshFigure {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// What an experiment gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshReport {
    /// Nodes of the mesh.
    pub nodes: usize,
    /// Links of the mesh.
    pub links: usize,
    /// Events of the simulator.
    pub events: u64,
    /// The figures.
    pub figures: Vec<MeshFigure>,
    /// Broken invariants; small meshes are checked after every event.
    pub violations: Vec<String>,
}

impl MeshExperiment {
    /// Runs the experiment.
    pub fn run(&self) -> MeshReport {
        let mut report = MeshReport::default();
        match self.scenario {
            MeshScenario::Cold => self.cold(&mut report),
            MeshScenario::Idle => self.idle(&mut report),
            MeshScenario::Failover => self.failover(&mut report),
            MeshScenario::Broadcast => self.broadcast(&mut report),
            MeshScenario::Minute => self.minute(&mut report),
            MeshScenario::Mobility => self.mobility(&mut report),
        }
        report
    }

    fn topology(&self) -> Topology {
        let nodes = self.nodes.clamp(2, SCENARIO_NODES_MAX);
        let topology = match self.shape {
            MeshShape::Line => Topology::line(nodes),
            MeshShape::Ring => Topology::ring(nodes),
            MeshShape::Grid => Topology::grid(nodes.isqrt().max(2), nodes.isqrt().max(2)),
            MeshShape::Random => Topology::random_geometric(nodes, self.degree, self.seed),
            MeshShape::Lattice => Topology::lattice(nodes),
            MeshShape::Pairs => Topology::random_pairs(nodes, self.degree, self.seed),
            MeshShape::ThreePaths => Topology::three_paths(),
        };
        let loss = Chance::percent(self.loss_percent);
        topology.with(self.seed, |direction, _| direction.loss = loss)
    }

    const fn change(&self) -> fn(&mut MeshSettings) {
        match self.routing {
            MeshRouting::OnDemand => |_| {},
            MeshRouting::Olsr => |settings| settings.routing = MeshRouting::Olsr,
        }
    }

    fn world(&self, topology: Topology, seed: u64) -> MeshWorld {
        let mut world = MeshWorld::new(topology, self.profile, seed, self.change());
        if world.nodes() > CHECKED_NODES_MAX {
            world.without_checks();
        }
        world
    }

    fn cold(&self, report: &mut MeshReport) {
        let mut world = self.world(self.topology(), self.seed);
        let mut random = Random::new(self.seed);
        let nodes = world.nodes();
        for from in 0..nodes {
            let to = (from + 1 + below(&mut random, nodes - 1)) % nodes;
            world.ping(from, to, PathClass::BULK);
        }
        world.run_for(2 * SECOND);
        let mut rtts: Vec<Duration> = world.pings().iter().filter_map(|ping| ping.rtt).collect();
        rtts.sort_unstable();
        report.add("pings_answered_within_2s_pct", percent(rtts.len(), nodes));
        report.add("first_rtt_median_ms", millis(quantile(&rtts, 50)));
        report.add("first_rtt_max_ms", millis(quantile(&rtts, 100)));
        report.finish(&world);
    }

    fn idle(&self, report: &mut MeshReport) {
        let mut world = self.world(self.topology(), self.seed);
        world.run_for(20 * SECOND);
        let before = world.figures().octets;
        world.run_for(60 * SECOND);
        let octets = world.figures().octets - before;
        let degree = world.topology().mean_degree_tenths();
        report.add("mean_degree", ratio(degree, 10));
        report.add("octets_per_node_s", whole(octets) / 60.0 / count(world.nodes()));
        report.finish(&world);
    }

    fn failover(&self, report: &mut MeshReport) {
        const CUTS: u64 = 20;
        let cells = [
            ("near_down_ms", (0, 1), LinkCut::Carrier),
            ("far_down_ms", (1, 6), LinkCut::Carrier),
            ("near_silent_ms", (0, 1), LinkCut::Silent),
            ("far_silent_ms", (1, 6), LinkCut::Silent),
        ];
        for (name, (a, b), cut) in cells {
            let mut holes = Vec::new();
            for seed in 0..CUTS {
                let mut world = self.world(Topology::three_paths(), self.seed.wrapping_add(seed));
                world.run_for(5 * SECOND);
                world.ping(0, 6, PathClass::BULK);
                // The cut meets I'M ALIVE and LIVENESS at any phase.
                let phase = Duration::from_millis(37 * seed);
                world.run_for(3 * SECOND + phase);
                if let Some(link) = world.link(a, b) {
                    world.cut(link, cut);
                }
                holes.push(outage(&mut world, 8 * SECOND));
                report.finish(&world);
            }
            holes.sort_unstable();
            report.add(name, millis(quantile(&holes, 50)));
            report.add("  its maximum_ms", millis(quantile(&holes, 100)));
        }
        self.protection(report);
    }

    /// Octets that a link of Figure 6 carries in a direction while a path leads over it.
    fn protection(&self, report: &mut MeshReport) {
        let mut world = self.world(Topology::three_paths(), self.seed);
        let octets = |world: &mut MeshWorld| {
            let before = world.figures().octets;
            world.run_for(4 * SECOND);
            world.figures().octets - before
        };
        world.run_for(20 * SECOND);
        let idle = octets(&mut world);
        world.ping(0, 6, PathClass::BULK);
        world.run_for(3 * SECOND);
        let protected = octets(&mut world);
        let directions = 2.0 * count(world.topology().links.len());
        let more = whole(protected.saturating_sub(idle)) / 4.0 / directions;
        report.add("protected_link_octets_per_direction_s", more);
    }

    fn broadcast(&self, report: &mut MeshReport) {
        const BROADCASTS: usize = 20;
        let mut world = self.world(self.topology(), self.seed);
        world.run_for(10 * SECOND);
        for number in 0..BROADCASTS {
            world.broadcast(number * 37 % world.nodes());
            world.run_for(SECOND);
        }
        let (nodes, links) = (world.nodes(), world.topology().links.len());
        let all = BROADCASTS * (nodes - 1);
        let relayed = world.sum(|counters| counters.broadcasts_relayed);
        // In a flood each node sends on all links but the one that it has first heard the packet on.
        let flooded = BROADCASTS * (2 * links + 1 - nodes);
        report.add("mean_degree", ratio(world.topology().mean_degree_tenths(), 10));
        report.add("reach_pct", 100.0 * whole(world.figures().delivered) / count(all));
        report.add("transmissions_to_flooding", whole(relayed) / count(all));
        report.add("frames_to_flooding", whole(world.figures().broadcasts) / count(flooded));
        report.finish(&world);
    }

    fn minute(&self, report: &mut MeshReport) {
        const PAIRS: usize = 100;
        let mut world = self.world(self.topology(), self.seed);
        let mut random = Random::new(self.seed);
        let nodes = world.nodes();
        for _ in 0..PAIRS {
            let from = below(&mut random, nodes);
            let to = (from + 1 + below(&mut random, nodes - 1)) % nodes;
            world.ping(from, to, PathClass::BULK);
            world.run_for(SECOND * 55 / 100);
        }
        world.run_until(60 * SECOND);
        let answered = world.pings().iter().filter(|ping| ping.rtt.is_some()).count();
        report.add("pings_answered_pct", percent(answered, PAIRS));
        let near = world.topology().neighbours(|_| true);
        let beyond = |ping: &Ping| relays_between(&near, ping).is_none_or(|it| it > HOPS_MAX);
        let (beyond, within): (Vec<&Ping>, Vec<&Ping>) =
            world.pings().iter().partition(|ping| beyond(ping));
        let unanswered = within.iter().filter(|ping| ping.rtt.is_none()).count();
        report.add("pairs_beyond_32_relays", count(beyond.len()));
        report.add("pairs_within_32_relays_unanswered", count(unanswered));
        report.add("octets_per_node_s", whole(world.figures().octets) / 60.0 / count(nodes));
        report.finish(&world);
    }

    fn mobility(&self, report: &mut MeshReport) {
        let runs = [
            ("pings_answered_10s_30m_pct", Mobility::of_source(10, 30)),
            ("pings_answered_30s_60m_pct", Mobility::of_source(30, 60)),
        ];
        for (name, run) in runs {
            let mut world =
                MeshWorld::on_air(MOBILITY_NODES, self.profile, self.seed, self.change());
            // After every event they would take most of the time.
            world.without_checks();
            let outcome = run.run(&mut world, self.seed);
            let seconds = world.now().as_secs_f64();
            report.add(name, percent(outcome.answered, outcome.sent));
            report.add("  of its worst round_pct", percent(outcome.round_min, run.pings));
            report.add("  links lost at a walk", ratio(outcome.links_lost, run.rounds));
            let octets = whole(world.figures().octets) / seconds / count(world.nodes());
            report.add("  octets_per_node_s", octets);
            report.finish(&world);
        }
        report.links = MOBILITY_LINKS;
    }
}

impl MeshReport {
    fn add(&mut self, name: &'static str, value: f64) {
        self.figures.push(MeshFigure { name, value });
    }

    fn finish(&mut self, world: &MeshWorld) {
        self.nodes = world.nodes();
        self.links = world.topology().links.len();
        self.events += world.figures().events;
        self.violations.extend(world.violations().iter().cloned());
    }
}

/// Relays of the shortest way between the ends of a ping.
fn relays_between(near: &[Vec<usize>], ping: &Ping) -> Option<usize> {
    let links = distances(near, ping.from).get(ping.to).copied().flatten()?;
    Some(links.saturating_sub(1))
}

/// Pings each millisecond from the source to the target of Figure 6: the longest hole between the
/// sending times of answered pings.
fn outage(world: &mut MeshWorld, time: Duration) -> Duration {
    let first = world.pings().len();
    let start = world.now();
    while world.now() < start + time {
        world.ping(0, 6, PathClass::BULK);
        world.run_for(MILLISECOND);
    }
    world.run_for(SECOND);
    let mut last = start;
    let mut longest = Duration::ZERO;
    for ping in world.pings().iter().skip(first).filter(|ping| ping.rtt.is_some()) {
        longest = longest.max(ping.sent_at.saturating_sub(last));
        last = ping.sent_at;
    }
    longest.max((start + time).saturating_sub(last))
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(u64::try_from(limit).unwrap_or(u64::MAX))).unwrap_or(0)
}

/// A value of a sorted list.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn count(number: usize) -> f64 {
    whole(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Exact up to 2⁵³, which no count here reaches.
#[allow(clippy::cast_precision_loss, reason = "counts are below 2⁵³")]
fn whole(number: u64) -> f64 {
    number as f64
}

fn percent(part: usize, all: usize) -> f64 {
    100.0 * ratio(part, all)
}

fn ratio(part: usize, all: usize) -> f64 {
    count(part) / count(all.max(1))
}

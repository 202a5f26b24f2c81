//! Nodes that walk while others are pinged: the mobility test of meshnet-lab, as it was run in 2024 for babel,
//! batman-adv, bmx7, OLSR and others (`tests/mobility1` and `results/2024` of
//! <https://github.com/mwarning/meshnet-lab>).
//!
//! 50 nodes are at random places of a square of 1 km. Each has one interface, which keeps its carrier. Thirty
//! times, every node walks a step in a random direction, and the 149 pairs that are nearest to each other have
//! links from then on. After an interval, 200 random pairs are pinged within 2 s: once each, those that are two
//! links apart and more. An answer counts that comes within a second.

use super::world::MeshWorld;
use crate::edge::PathClass;
use gatewright_sim::{Random, WalkingNodes, distances};
use std::time::Duration;

/// Nodes of the source's runs.
pub const MOBILITY_NODES: usize = 50;

/// Links at any time: the source asks for 150, and its program keeps one less.
pub const MOBILITY_LINKS: usize = 149;

/// Side of the square of the first places.
const SIDE_M: u32 = 1_000;

/// How the pings of a round are spread, and how long an answer to the last may take.
const PING_TIME: Duration = Duration::from_secs(2);
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Walks and pings in turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mobility {
    /// Walks.
    pub rounds: usize,
    /// Time from each walk to its pings.
    pub interval: Duration,
    /// Metres that each node walks.
    pub step_m: u32,
    /// Pairs that are pinged after each walk.
    pub pings: usize,
}

/// What became of the pings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MobilityOutcome {
    /// Pings sent.
    pub sent: usize,
    /// Pings answered within a second.
    pub answered: usize,
    /// The fewest answers of a round.
    pub round_min: usize,
    /// Links that were lost at the walks.
    pub links_lost: usize,
}

impl Mobility {
    /// The source's run with an interval and a step.
    pub const fn of_source(interval_s: u64, step_m: u32) -> Self {
        let interval = Duration::from_secs(interval_s);
        Self { rounds: 30, interval, step_m, pings: 200 }
    }

    /// Walks and pings in a world [on the air](MeshWorld::on_air), whose nodes have just been started.
    /// Invariants are checked once in each round, also where they are not after every event.
    pub fn run(&self, world: &mut MeshWorld, seed: u64) -> MobilityOutcome {
        let mut nodes = WalkingNodes::new(world.nodes(), SIDE_M, seed);
        let mut random = Random::new(!seed);
        let mut outcome = MobilityOutcome { round_min: usize::MAX, ..MobilityOutcome::default() };
        let mut links = nodes.nearest_pairs(MOBILITY_LINKS);
        for _ in 0..self.rounds {
            nodes.walk(self.step_m);
            let now = nodes.nearest_pairs(MOBILITY_LINKS);
            outcome.links_lost += links.iter().filter(|link| !now.contains(link)).count();
            links = now;
            world.reach(&links);
            world.run_for(self.interval);
            let pairs = self.pairs(world.nodes(), &links, &mut random);
            let sent = pairs.len();
            let answered = ping(world, pairs);
            outcome.sent += sent;
            outcome.answered += answered;
            outcome.round_min = outcome.round_min.min(answered);
            world.check_all();
        }
        outcome
    }

    /// Random pairs, none twice, that are at least two links apart and that the graph connects.
    fn pairs(
        &self,
        nodes: usize,
        links: &[[usize; 2]],
        random: &mut Random,
    ) -> Vec<(usize, usize)> {
        let mut near = vec![Vec::new(); nodes];
        for &[a, b] in links {
            for (from, to) in [(a, b), (b, a)] {
                if let Some(list) = near.get_mut(from) {
                    list.push(to);
                }
            }
        }
        let mut pairs = Vec::new();
        for from in 0..nodes {
            let far = distances(&near, from).into_iter().enumerate().take(from);
            pairs.extend(
                far.filter(|&(_, far)| far.is_some_and(|far| far >= 2)).map(|(to, _)| (from, to)),
            );
        }
        let mut order: Vec<_> = pairs.into_iter().map(|pair| (random.bits(), pair)).collect();
        order.sort_unstable();
        order.into_iter().take(self.pings).map(|(_, pair)| pair).collect()
    }
}

/// Pings pairs, evenly spread; the number of those that answer in time.
fn ping(world: &mut MeshWorld, pairs: Vec<(usize, usize)>) -> usize {
    let start = world.now();
    let first = world.pings().len();
    let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    let gap = PING_TIME.checked_div(count).unwrap_or_default();
    for (from, to) in pairs {
        world.ping(from, to, PathClass::BULK);
        world.run_for(gap);
    }
    world.run_until(start + PING_TIME + ANSWER_TIME);
    let pings = world.pings().iter().skip(first);
    pings.filter(|ping| ping.rtt.is_some_and(|rtt| rtt <= ANSWER_TIME)).count()
}

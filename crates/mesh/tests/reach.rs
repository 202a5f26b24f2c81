//! Broadcasts reach all nodes at a part of what a flood costs, also over links that lose frames.
#![allow(clippy::print_stdout, reason = "a test says what it has measured")]

use gatewright_mesh::simulate::MeshWorld;
use gatewright_mesh::{MeshSettings, Profile};
use gatewright_sim::{Chance, Topology};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const NODES: usize = 200;
const SEEDS: u64 = 20;
const BROADCASTS: usize = 10;

fn same(_: &mut MeshSettings) {}

/// Nodes at random places with 12 links on average or a little more. At the border they have fewer than within.
fn dense(seed: u64) -> Topology {
    let mut topologies = (12..).map(|degree| Topology::random_geometric(NODES, degree, seed));
    topologies.find(|topology| topology.mean_degree_tenths() >= 120).unwrap_or_default()
}

/// What the broadcasts of a world have reached and cost.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// Deliveries, of the expected ones.
    delivered: u64,
    expected: u64,
    /// Nodes that have passed a broadcast on; all but its origin in a flood.
    relayed: u64,
    /// Frames on links, and those of a flood: each node sends on all links but the one that brought it.
    frames: u64,
    flooded: u64,
}

impl Reached {
    fn of(topology: Topology, loss: Chance, seed: u64) -> Self {
        let links = topology.links.len();
        let topology = topology.with(seed, |direction, _| direction.loss = loss);
        let mut world = MeshWorld::new(topology, Profile::Default, seed, same);
        // Nodes learn by I'M ALIVE, each 2 s, what links lose.
        world.run_for(60 * SECOND);
        for number in 0..BROADCASTS {
            world.broadcast(number * 37 % world.nodes());
            world.run_for(SECOND);
        }
        let count = |number: usize| u64::try_from(number * BROADCASTS).unwrap_or(u64::MAX);
        Self {
            delivered: world.figures().delivered,
            expected: count(world.nodes() - 1),
            relayed: world.sum(|counters| counters.broadcasts_relayed),
            frames: world.figures().broadcasts,
            flooded: count(2 * links + 1 - world.nodes()),
        }
    }

    fn add(&mut self, other: Self) {
        self.delivered += other.delivered;
        self.expected += other.expected;
        self.relayed += other.relayed;
        self.frames += other.frames;
        self.flooded += other.flooded;
    }

    /// Deliveries, relays and frames, in parts of ten thousand of all, of those of a flood, and of its frames.
    fn shares(self) -> [u64; 3] {
        [
            self.delivered * 10_000 / self.expected,
            self.relayed * 10_000 / self.expected,
            self.frames * 10_000 / self.flooded,
        ]
    }
}

/// Twenty worlds with the same loss, by what the worst has reached and all together.
fn worlds(loss: Chance) -> (u64, [u64; 3]) {
    let (mut worst, mut all) = (10_000, Reached::default());
    for seed in 0..SEEDS {
        let reached = Reached::of(dense(seed), loss, seed);
        println!("{loss}, seed {seed}: {:?} {reached:?}", reached.shares());
        worst = worst.min(reached.shares()[0]);
        all.add(reached);
    }
    println!("{loss}: the worst reaches {worst}, together {:?}", all.shares());
    (worst, all.shares())
}

/// At most 0.6 of the transmissions of a flood, and at least 99.9 % of the nodes.
#[test]
fn broadcasts_reach_all_below_the_cost_of_a_flood() {
    let (worst, [_, relayed, frames]) = worlds(Chance::NEVER);
    assert!(worst >= 9_990, "{worst}");
    assert!(relayed <= 6_000 && frames <= 6_000, "{relayed} {frames}");
}

/// Each direction of each link loses a fifth of the frames.
#[test]
fn broadcasts_reach_all_over_links_that_lose_frames() {
    let (worst, [reach, ..]) = worlds(Chance::percent(20));
    assert!(worst >= 9_900 && reach >= 9_900, "{worst} {reach}");
}

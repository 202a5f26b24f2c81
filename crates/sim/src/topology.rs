//! Topologies: which nodes have a link, and how good it is in each direction.

use crate::{Chance, Random};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Nodes of a topology at the most.
pub const NODES_MAX: usize = 100_000;

/// One direction of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkDirection {
    /// Time from sending to arrival.
    pub delay: Duration,
    /// Probability of loss.
    pub loss: Chance,
    /// Probability of duplication.
    pub duplicate: Chance,
}

impl Default for LinkDirection {
    fn default() -> Self {
        Self { delay: Duration::from_micros(100), loss: Chance::NEVER, duplicate: Chance::NEVER }
    }
}

/// A link between two nodes of a topology.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TopologyLink {
    /// Its ends.
    pub ends: [usize; 2],
    /// From the first end to the second, and back.
    pub directions: [LinkDirection; 2],
}

/// Nodes, counted from 0, and links between two of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Topology {
    /// Number of nodes.
    pub nodes: usize,
    /// The links.
    pub links: Vec<TopologyLink>,
    /// Place of each node, in thousandths of the side of a square; empty if there are none.
    pub places: Vec<(u32, u32)>,
}

impl Topology {
    /// Nodes joined by perfect links.
    pub fn of(nodes: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let link =
            |(a, b)| TopologyLink { ends: [a, b], directions: [LinkDirection::default(); 2] };
        Self { nodes, links: pairs.into_iter().map(link).collect(), places: Vec::new() }
    }

    /// A line: each node has a link to the next one.
    pub fn line(nodes: usize) -> Self {
        Self::of(nodes, (1..nodes).map(|node| (node - 1, node)))
    }

    /// A ring.
    pub fn ring(nodes: usize) -> Self {
        Self::of(nodes, (0..nodes).map(|node| (node, (node + 1) % nodes)))
    }

    /// A grid of `width` by `height` nodes, row by row.
    pub fn grid(width: usize, height: usize) -> Self {
        let right = (0..width * height).filter(|node| node % width + 1 < width);
        let right = right.map(|node| (node, node + 1));
        let below = (0..width * height.saturating_sub(1)).map(|node| (node, node + width));
        Self::of(width * height, right.chain(below))
    }

    /// The third experiment of the Lilith paper (its Figure 6): a source (0) and a target (6) with
    /// three paths between them, of one (1), two (2, 3) and two relays (4, 5).
    pub fn three_paths() -> Self {
        Self::of(7, [(0, 1), (1, 6), (0, 2), (2, 3), (3, 6), (0, 4), (4, 5), (5, 6)])
    }

    /// Nodes at random places of a square, those within a range joined; the range gives `degree`
    /// links to a node on average, and is enlarged until the graph is connected.
    pub fn random_geometric(nodes: usize, degree: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut place = || u32::try_from(random.below(SIDE)).unwrap_or(0);
        let places: Vec<(u32, u32)> = (0..nodes).map(|_| (place(), place())).collect();
        // The area of a circle of this range holds `degree` of `nodes` places.
        let area = u64::from(degree) * SIDE * SIDE / u64::try_from(nodes.max(1)).unwrap_or(1);
        let mut range_squared = area * 113 / 355;
        loop {
            let pairs = within(&places, range_squared);
            let topology = Self { places: places.clone(), ..Self::of(nodes, pairs) };
            if topology.is_connected() || range_squared > 4 * SIDE * SIDE {
                return topology;
            }
            range_squared += range_squared / 8 + 1;
        }
    }

    /// A triangular lattice on a torus: each of seven nodes or more has six links. It is the circulant graph of 1,
    /// `w` and `w + 1`, where `w` is the root of the number of nodes.
    pub fn lattice(nodes: usize) -> Self {
        let width = nodes.isqrt().max(2);
        let steps = [1, width, width + 1];
        let pairs = (0..nodes).flat_map(|node| steps.map(|step| (node, (node + step) % nodes)));
        let pairs = pairs.filter(|(a, b)| a != b).map(|(a, b)| (a.min(b), a.max(b)));
        Self::of(nodes, pairs.collect::<BTreeSet<_>>())
    }

    /// A random tree that joins all nodes, and links between random pairs until a node has `degree` links on
    /// average; as many as there are pairs at the most, and as few as a tree has. Degrees differ, and ways are
    /// short.
    pub fn random_pairs(nodes: usize, degree: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut below = |limit: usize| {
            let number = random.below(u64::try_from(limit).unwrap_or(u64::MAX));
            usize::try_from(number).unwrap_or(0)
        };
        // Each node joins one of those before it.
        let mut pairs: BTreeSet<_> = (1..nodes).map(|node| (below(node), node)).collect();
        let wanted = nodes.saturating_mul(usize::try_from(degree).unwrap_or(usize::MAX)) / 2;
        let all = nodes.saturating_mul(nodes.saturating_sub(1)) / 2;
        while pairs.len() < wanted.min(all) {
            let (a, b) = (below(nodes), below(nodes));
            if a != b {
                pairs.insert((a.min(b), a.max(b)));
            }
        }
        Self::of(nodes, pairs)
    }

    /// Changes every direction of every link by a function of a random source.
    #[must_use]
    pub fn with(mut self, seed: u64, change: impl Fn(&mut LinkDirection, &mut Random)) -> Self {
        let mut random = Random::new(seed);
        for link in &mut self.links {
            for direction in &mut link.directions {
                change(direction, &mut random);
            }
        }
        self
    }

    /// Neighbours of every node, over the links that `works` accepts.
    pub fn neighbours(&self, works: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
        let mut near = vec![Vec::new(); self.nodes];
        let links = self.links.iter().enumerate().filter(|&(index, _)| works(index));
        for [a, b] in links.map(|(_, link)| link.ends) {
            for (from, to) in [(a, b), (b, a)] {
                if let Some(list) = near.get_mut(from) {
                    list.push(to);
                }
            }
        }
        near
    }

    /// Links of a node on average, in tenths.
    pub fn mean_degree_tenths(&self) -> usize {
        self.links.len() * 20 / self.nodes.max(1)
    }

    /// Whether every node can be reached from every other.
    pub fn is_connected(&self) -> bool {
        let near = self.neighbours(|_| true);
        distances(&near, 0).iter().all(Option::is_some)
    }
}

/// The side of the square in which nodes are placed.
const SIDE: u64 = 1_000_000;

/// Pairs of places within a range. Cells of that range's side bound the comparisons.
fn within(places: &[(u32, u32)], range_squared: u64) -> Vec<(usize, usize)> {
    let side = u32::try_from(range_squared.isqrt() + 1).unwrap_or(u32::MAX);
    let mut cells: std::collections::BTreeMap<(u32, u32), Vec<usize>> =
        std::collections::BTreeMap::new();
    let mut pairs = Vec::new();
    for (index, &(x, y)) in places.iter().enumerate() {
        let (column, row) = (x / side, y / side);
        for near in column.saturating_sub(1)..=column + 1 {
            for other in cells.range((near, row.saturating_sub(1))..=(near, row + 1)) {
                for &before in other.1 {
                    let Some(&(a, b)) = places.get(before) else { continue };
                    let (dx, dy) = (u64::from(x.abs_diff(a)), u64::from(y.abs_diff(b)));
                    if dx * dx + dy * dy <= range_squared {
                        pairs.push((before, index));
                    }
                }
            }
        }
        cells.entry((column, row)).or_default().push(index);
    }
    pairs
}

/// Links from one node to every other; `None` where there is no way.
pub fn distances(near: &[Vec<usize>], from: usize) -> Vec<Option<usize>> {
    let mut distance = vec![None; near.len()];
    if let Some(start) = distance.get_mut(from) {
        *start = Some(0);
    }
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        let here = distance.get(node).copied().flatten().unwrap_or(0);
        for &next in near.get(node).into_iter().flatten() {
            if let Some(unknown) = distance.get_mut(next).filter(|known| known.is_none()) {
                *unknown = Some(here + 1);
                queue.push_back(next);
            }
        }
    }
    distance
}

/// Whether `to` can be reached from `from` without passing any node of `without`.
pub fn is_reachable_without(
    near: &[Vec<usize>],
    from: usize,
    to: usize,
    without: &BTreeSet<usize>,
) -> bool {
    let kept: Vec<Vec<usize>> = (near.iter().enumerate())
        .map(|(node, list)| {
            // Nothing leaves a node that may not be passed.
            let stays = !without.contains(&node);
            list.iter().filter(|_| stays).copied().collect()
        })
        .collect();
    distances(&kept, from).get(to).copied().flatten().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_links_that_they_must() {
        assert_eq!(Topology::line(4).links.len(), 3);
        assert_eq!(Topology::ring(5).links.len(), 5);
        // 7 x 7: 7 rows and 7 columns of 6 links.
        assert_eq!(Topology::grid(7, 7).links.len(), 84);
        let near = Topology::three_paths().neighbours(|_| true);
        assert_eq!(distances(&near, 0)[6], Some(2));
        assert!(is_reachable_without(&near, 0, 6, &BTreeSet::from([1])));
        assert!(!is_reachable_without(&near, 0, 6, &BTreeSet::from([1, 2, 5])));
    }

    #[test]
    fn a_lattice_gives_each_node_six_links() {
        for nodes in [7, 8, 10, 50, 100, 1_000, 10_000] {
            let topology = Topology::lattice(nodes);
            assert!(topology.is_connected());
            let near = topology.neighbours(|_| true);
            let others = |list: &Vec<usize>| list.iter().collect::<BTreeSet<_>>().len();
            assert!(near.iter().all(|list| list.len() == 6 && others(list) == 6), "{nodes}");
        }
        // Fewer nodes than six links need.
        assert_eq!(Topology::lattice(2).links.len(), 1);
        assert_eq!(Topology::lattice(4).links.len(), 6);
        // A way over a torus of 100 x 100 is no longer than over its diagonals.
        let near = Topology::lattice(10_000).neighbours(|_| true);
        assert!(distances(&near, 0).iter().all(|way| way.is_some_and(|way| way <= 100)));
    }

    #[test]
    fn random_pairs_give_the_degree_and_are_joined() {
        for (nodes, degree, links) in [(7, 6, 21), (7, 64, 21), (100, 6, 300), (1_000, 1, 999)] {
            let topology = Topology::random_pairs(nodes, degree, 7);
            assert_eq!(topology, Topology::random_pairs(nodes, degree, 7));
            assert!(topology.is_connected());
            assert_eq!(topology.links.len(), links);
            assert!(topology.links.iter().all(|link| link.ends[0] < link.ends[1]));
        }
    }

    #[test]
    fn random_places_give_the_degree_and_the_same_graph_for_a_seed() {
        let topology = Topology::random_geometric(1_000, 12, 7);
        assert_eq!(topology, Topology::random_geometric(1_000, 12, 7));
        assert!(topology.is_connected());
        let tenths = topology.mean_degree_tenths();
        assert!((100..=150).contains(&tenths), "{tenths}");
    }

    /// Every pair within the range is joined, by comparison of all pairs.
    #[test]
    fn cells_lose_no_pair() {
        let topology = Topology::random_geometric(100, 8, 3);
        let range = 60_000_u64 * 60_000;
        let near = |a: (u32, u32), b: (u32, u32)| {
            let (dx, dy) = (u64::from(a.0.abs_diff(b.0)), u64::from(a.1.abs_diff(b.1)));
            dx * dx + dy * dy <= range
        };
        let places = &topology.places;
        let all = (0..100).flat_map(|a| (a + 1..100).map(move |b| (a, b)));
        let mut expected: Vec<_> = all.filter(|&(a, b)| near(places[a], places[b])).collect();
        let mut found = within(places, range);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

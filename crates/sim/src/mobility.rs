//! Nodes that walk on a plane, and the links between those that are nearest to each other.

use crate::Random;

/// Nodes at places of a plane, in millimetres.
#[derive(Clone, Debug)]
pub struct WalkingNodes {
    places: Vec<(i64, i64)>,
    random: Random,
}

impl WalkingNodes {
    /// Nodes at random places of a square with a side of so many metres.
    pub fn new(nodes: usize, side_m: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut below = || draw(&mut random, i64::from(side_m) * MILLIMETRES);
        let places = (0..nodes).map(|_| (below(), below())).collect();
        Self { places, random }
    }

    /// Moves every node by so many metres in a random direction; nothing holds it in the square.
    ///
    /// The direction is that to a random place of a square around the node.
    pub fn walk(&mut self, step_m: u32) {
        let random = &mut self.random;
        for (x, y) in &mut self.places {
            let mut component = || draw(random, 2 * FINENESS + 1) - FINENESS;
            let (dx, dy) = (component(), component());
            let length = (dx * dx + dy * dy).isqrt().max(1);
            let step = i64::from(step_m) * MILLIMETRES;
            *x += dx * step / length;
            *y += dy * step / length;
        }
    }

    /// The pairs that are nearest to each other, at most `count`; the smaller number of a pair first.
    pub fn nearest_pairs(&self, count: usize) -> Vec<[usize; 2]> {
        let places = || self.places.iter().copied().enumerate();
        let mut pairs: Vec<(i64, [usize; 2])> = places()
            .flat_map(|(a, from)| places().skip(a + 1).map(move |(b, to)| ((a, from), (b, to))))
            .map(|((a, from), (b, to))| (distance_squared(from, to), [a, b]))
            .collect();
        pairs.sort_unstable();
        pairs.truncate(count);
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }

    /// The places, in millimetres.
    pub fn places(&self) -> &[(i64, i64)] {
        &self.places
    }
}

const MILLIMETRES: i64 = 1_000;

/// Half the side of the square of places that give a direction.
const FINENESS: i64 = 1_000_000;

fn draw(random: &mut Random, limit: i64) -> i64 {
    i64::try_from(random.below(u64::try_from(limit).unwrap_or(0))).unwrap_or(0)
}

fn distance_squared(a: (i64, i64), b: (i64, i64)) -> i64 {
    let (dx, dy) = (a.0.abs_diff(b.0), a.1.abs_diff(b.1));
    i64::try_from(dx.saturating_mul(dx).saturating_add(dy.saturating_mul(dy))).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_walks_the_whole_step_in_a_direction_of_its_own() {
        let mut nodes = WalkingNodes::new(50, 1_000, 7);
        let before = nodes.places().to_vec();
        assert!(before.iter().all(|&(x, y)| x.max(y) < 1_000_000 && x.min(y) >= 0));
        nodes.walk(30);
        let mut quadrants = [0; 4];
        for (&from, &to) in before.iter().zip(nodes.places()) {
            let length = distance_squared(from, to).isqrt();
            // Both components are rounded to millimetres.
            assert!((29_998..=30_000).contains(&length), "{length}");
            quadrants[usize::from(to.0 > from.0) * 2 + usize::from(to.1 > from.1)] += 1;
        }
        assert!(quadrants.iter().all(|&count| count > 0), "{quadrants:?}");
    }

    #[test]
    fn the_nearest_pairs_are_nearer_than_all_others() {
        let nodes = WalkingNodes::new(20, 1_000, 3);
        let pairs = nodes.nearest_pairs(30);
        assert_eq!(pairs.len(), 30);
        let far = |pair: [usize; 2]| {
            let [a, b] = pair.map(|node| nodes.places()[node]);
            distance_squared(a, b)
        };
        let longest = pairs.iter().map(|&pair| far(pair)).max().unwrap();
        for a in 0..20 {
            for b in a + 1..20 {
                assert_eq!(pairs.contains(&[a, b]), far([a, b]) <= longest, "{a} {b}");
            }
        }
        assert_eq!(WalkingNodes::new(3, 1_000, 3).nearest_pairs(30).len(), 3);
    }
}

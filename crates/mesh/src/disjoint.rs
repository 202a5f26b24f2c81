//! Maximally disjoint paths in the union of recorded routes.
//!
//! The union is a graph whose nodes are split in two, so that passing a node is an arc. A second
//! path over the same node or link costs a penalty above any sum of costs. Minimum-cost flow by
//! successive shortest paths (Suurballe 1974, Bhandari 1999) then gives the paths that share least,
//! and among them the cheapest.

use crate::identity::NodeId;
use std::collections::{BTreeMap, VecDeque};

/// A recorded route: the relays, and the cost of the link to each; then the last link's cost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RecordedRoute {
    /// Relays from the origin's side, each with the cost of the link to it.
    pub(crate) relays: Vec<(NodeId, u16)>,
    /// Cost of the link to the target.
    pub(crate) last: u16,
}

/// What sharing a node or a link costs: more than any path without sharing.
const PENALTY: i64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Arc {
    to: usize,
    capacity: u32,
    cost: i64,
}

/// A residual graph: arc `i` and `i ^ 1` are each other's reverse.
#[derive(Debug, Default)]
struct Graph {
    arcs: Vec<Arc>,
    from: Vec<Vec<usize>>,
}

impl Graph {
    fn node(&mut self) -> usize {
        self.from.push(Vec::new());
        self.from.len().saturating_sub(1)
    }

    /// One arc without and one with the penalty.
    fn connect(&mut self, from: usize, to: usize, cost: i64, count: u32) {
        self.arc(from, to, 1, cost);
        if count > 1 {
            self.arc(from, to, count - 1, cost + PENALTY);
        }
    }

    fn arc(&mut self, from: usize, to: usize, capacity: u32, cost: i64) {
        for (from, arc) in
            [(from, Arc { to, capacity, cost }), (to, Arc { to: from, capacity: 0, cost: -cost })]
        {
            let index = self.arcs.len();
            self.arcs.push(arc);
            if let Some(list) = self.from.get_mut(from) {
                list.push(index);
            }
        }
    }

    /// Sends one unit along the cheapest path (Bellman and Ford, with a queue).
    fn augment(&mut self, source: usize, sink: usize) -> bool {
        let nodes = self.from.len();
        let mut cost = vec![i64::MAX; nodes];
        let mut by = vec![usize::MAX; nodes];
        let mut waiting = vec![false; nodes];
        let mut queue = VecDeque::from([source]);
        if let Some(start) = cost.get_mut(source) {
            *start = 0;
        }
        while let Some(node) = queue.pop_front() {
            if let Some(flag) = waiting.get_mut(node) {
                *flag = false;
            }
            let here = cost.get(node).copied().unwrap_or(i64::MAX);
            for &index in self.from.get(node).into_iter().flatten() {
                let Some(arc) = self.arcs.get(index) else { continue };
                let there = here.saturating_add(arc.cost);
                if arc.capacity == 0 || cost.get(arc.to).is_none_or(|&known| known <= there) {
                    continue;
                }
                if let (Some(known), Some(via), Some(flag)) =
                    (cost.get_mut(arc.to), by.get_mut(arc.to), waiting.get_mut(arc.to))
                {
                    *known = there;
                    *via = index;
                    if !*flag {
                        *flag = true;
                        queue.push_back(arc.to);
                    }
                }
            }
        }
        self.push(source, sink, &by)
    }

    fn push(&mut self, source: usize, sink: usize, by: &[usize]) -> bool {
        let mut node = sink;
        let mut path = Vec::new();
        while node != source {
            let Some(&index) = by.get(node).filter(|&&index| index != usize::MAX) else {
                return false;
            };
            path.push(index);
            node = self.arcs.get(index ^ 1).map_or(source, |arc| arc.to);
        }
        for index in path {
            if let Some(arc) = self.arcs.get_mut(index) {
                arc.capacity -= 1;
            }
            if let Some(arc) = self.arcs.get_mut(index ^ 1) {
                arc.capacity += 1;
            }
        }
        true
    }

    /// Takes one unit of flow from `source` to `sink`: the nodes on its way.
    fn unit(&mut self, source: usize, sink: usize) -> Vec<usize> {
        let mut way = Vec::new();
        let mut node = source;
        while node != sink && way.len() <= self.from.len() {
            let arcs = self.from.get(node).into_iter().flatten().copied();
            // An arc carries flow if its reverse has capacity; forward arcs have even numbers.
            let carries = |&index: &usize| {
                index % 2 == 0 && self.arcs.get(index + 1).is_some_and(|arc| arc.capacity > 0)
            };
            let Some(index) = arcs.into_iter().find(carries) else { break };
            if let Some(reverse) = self.arcs.get_mut(index + 1) {
                reverse.capacity -= 1;
            }
            node = self.arcs.get(index).map_or(sink, |arc| arc.to);
            way.push(node);
        }
        way
    }
}

/// At most `count` maximally disjoint routes over the links of `routes`, each as its relays.
pub(crate) fn disjoint(routes: &[RecordedRoute], count: u32) -> Vec<Vec<NodeId>> {
    let mut graph = Graph::default();
    let (source, sink) = (graph.node(), graph.node());
    let mut halves: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    let mut links: BTreeMap<(usize, usize), u16> = BTreeMap::new();
    for route in routes {
        let mut at = source;
        for &(relay, cost) in &route.relays {
            let (entry, exit) = *halves.entry(relay).or_insert_with(|| {
                let (entry, exit) = (graph.node(), graph.node());
                graph.connect(entry, exit, 0, count);
                (entry, exit)
            });
            let known = links.entry((at, entry)).or_insert(cost);
            *known = cost.min(*known);
            at = exit;
        }
        let known = links.entry((at, sink)).or_insert(route.last);
        *known = route.last.min(*known);
    }
    for ((from, to), cost) in links {
        // A cost of at least one: without it, flow could run in a circle.
        graph.connect(from, to, i64::from(cost.max(1)), count);
    }
    let units = (0..count).take_while(|_| graph.augment(source, sink)).count();
    let names: BTreeMap<usize, NodeId> =
        halves.iter().map(|(&relay, &(entry, _))| (entry, relay)).collect();
    let mut found: Vec<Vec<NodeId>> = Vec::new();
    for _ in 0..units {
        let way = graph.unit(source, sink);
        let relays: Vec<NodeId> = way.iter().filter_map(|node| names.get(node).copied()).collect();
        if way.last() == Some(&sink) && !found.contains(&relays) {
            found.push(relays);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(relays: &[u64]) -> RecordedRoute {
        RecordedRoute { relays: relays.iter().map(|&id| (NodeId(id), 10)).collect(), last: 10 }
    }

    fn ids(paths: &[Vec<NodeId>]) -> Vec<Vec<u64>> {
        let mut ids: Vec<Vec<u64>> =
            paths.iter().map(|path| path.iter().map(|node| node.0).collect()).collect();
        ids.sort();
        ids
    }

    #[test]
    fn disjoint_records_stay_as_they_are() {
        let routes = [route(&[1]), route(&[2, 3]), route(&[4, 5])];
        assert_eq!(ids(&disjoint(&routes, 3)), [vec![1], vec![2, 3], vec![4, 5]]);
    }

    /// The trap of Suurballe's paper: the shortest path takes a node from each of two disjoint ones.
    #[test]
    fn a_trap_is_avoided() {
        // 1-4 is the cheap diagonal between the rails 1-2 and 3-4.
        let routes = [route(&[1, 4]), route(&[1, 2, 5]), route(&[3, 6, 4])];
        assert_eq!(ids(&disjoint(&routes, 2)), [vec![1, 2, 5], vec![3, 6, 4]]);
    }

    /// A bridge is shared, the rest is not.
    #[test]
    fn paths_share_only_what_they_must() {
        let routes = [route(&[1, 9, 2]), route(&[3, 9, 4]), route(&[1, 9, 4])];
        let paths = ids(&disjoint(&routes, 2));
        assert_eq!(paths.len(), 2);
        assert!(paths.iter().all(|path| path[1] == 9));
        assert_ne!(paths[0][0], paths[1][0]);
        assert_ne!(paths[0][2], paths[1][2]);
    }

    #[test]
    fn neighbours_need_no_relay() {
        assert_eq!(ids(&disjoint(&[route(&[]), route(&[1])], 3)), [vec![], vec![1]]);
        assert!(disjoint(&[], 3).is_empty());
    }
}

//! FlowAdmission of flows to paths: each goes where all keep their bounds, or is refused.

use crate::node::{FlowKind, NodeLoad, NodeModel};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The number of an admitted flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct FlowId(pub u64);

/// How the path of a flow is chosen among its candidates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathPolicy {
    /// The path on which the flow adds the least to the delays of all, of those on which all flows
    /// keep their bounds: its work at each node, by how busy that node is.
    #[default]
    LeastLoad,
    /// A path by the flow's number, in proportion to the speed of its slowest node.
    Weighted,
    /// The path of fewest nodes; the flow's number chooses among several.
    MinHop,
}

impl PathPolicy {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::Weighted => "weighted",
            Self::MinHop => "min-hop",
        }
    }
}

/// Relays, by the hops to each, as paths of one node each: all of them, or by
/// [`PathPolicy::MinHop`] those of fewest hops.
pub fn relay_paths(policy: PathPolicy, hops: &[u8]) -> Vec<Vec<usize>> {
    let least = hops.iter().min();
    let is_candidate = |its: &u8| policy != PathPolicy::MinHop || Some(its) == least;
    (hops.iter().enumerate()).filter(|(_, its)| is_candidate(its)).map(|(at, _)| vec![at]).collect()
}

/// Why a flow is refused. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "why")]
#[non_exhaustive]
pub enum FlowRefusal {
    /// No candidate names only known nodes.
    #[error("no path to carry it")]
    NoPath,
    /// As many flows are admitted as the table has room for.
    #[error("{limit} flows are admitted, and there is room for no more")]
    Full {
        /// Its room.
        limit: usize,
    },
    /// The client has as many flows as one client may have.
    #[error("its client has {limit} flows, and one client may have no more")]
    Client {
        /// The most of one client.
        limit: u32,
    },
    /// A node could not keep up.
    #[error("node {node} would be busy for {load_pct:.0} % of the time")]
    Overload {
        /// The node.
        node: usize,
        /// Its load with the flow, in percent.
        load_pct: f64,
    },
    /// The flow itself would be late.
    #[error("its delay would be {delay_us:.0} µs, and its bound is {bound_us:.0}")]
    Late {
        /// The predicted delay at the flow's quantile.
        delay_us: f64,
        /// Its bound.
        bound_us: f64,
    },
    /// A flow admitted before would be late.
    #[error("the delay of flow {} would be {delay_us:.0} µs, and its bound is {bound_us:.0}", flow.0)]
    Disturbs {
        /// That flow.
        flow: FlowId,
        /// Its predicted delay at its quantile.
        delay_us: f64,
        /// Its bound.
        bound_us: f64,
    },
}

impl FlowRefusal {
    /// The kinds of reasons, in the order of the variants.
    pub const NAMES: [&str; 6] = ["no-path", "full", "client", "overload", "late", "disturbs"];

    /// Its place in [`NAMES`](Self::NAMES).
    pub const fn place(&self) -> usize {
        match self {
            Self::NoPath => 0,
            Self::Full { .. } => 1,
            Self::Client { .. } => 2,
            Self::Overload { .. } => 3,
            Self::Late { .. } => 4,
            Self::Disturbs { .. } => 5,
        }
    }

    /// The kind of reason, without its numbers.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoPath => "no-path",
            Self::Full { .. } => "full",
            Self::Client { .. } => "client",
            Self::Overload { .. } => "overload",
            Self::Late { .. } => "late",
            Self::Disturbs { .. } => "disturbs",
        }
    }
}

/// A flow with its path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedFlow {
    /// Its number.
    pub id: FlowId,
    /// Its kind.
    pub kind: FlowKind,
    /// The nodes that it passes, by their indices.
    pub path: Vec<usize>,
}

#[derive(Clone, Debug)]
struct LoadedNode {
    model: NodeModel,
    /// By how much its service takes longer than at first.
    factor: f64,
    load: NodeLoad,
    flows: BTreeSet<FlowId>,
}

/// Nodes with their models, and the flows admitted to them.
#[derive(Clone, Debug)]
pub struct FlowAdmission {
    nodes: Vec<LoadedNode>,
    flows: BTreeMap<FlowId, PlacedFlow>,
    flows_max: usize,
    next: u64,
}

impl FlowAdmission {
    /// Nodes without flows, and the room for flows.
    pub fn new(models: impl IntoIterator<Item = NodeModel>, flows_max: usize) -> Self {
        let node = |model| {
            let (factor, load, flows) = (1.0, NodeLoad::default(), BTreeSet::new());
            LoadedNode { model, factor, load, flows }
        };
        let nodes = models.into_iter().map(node).collect();
        Self { nodes, flows: BTreeMap::new(), flows_max, next: 0 }
    }

    /// The admitted flows.
    pub fn flows(&self) -> impl Iterator<Item = &PlacedFlow> {
        self.flows.values()
    }

    /// The load of a node; `None` if there is no such node.
    pub fn load(&self, node: usize) -> Option<NodeLoad> {
        self.nodes.get(node).map(|node| node.load)
    }

    /// The number of flows that a node carries.
    pub fn flow_count(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |node| node.flows.len())
    }

    /// The predicted delay of an admitted flow at its quantile, in microseconds.
    pub fn delay_us(&self, flow: FlowId) -> Option<f64> {
        let flow = self.flows.get(&flow)?;
        self.path_delay(&flow.kind, &flow.path, None)
    }

    /// Sets by how much the service of a node takes longer than that of its first model. Flows that
    /// are admitted stay, with the load that they are now.
    pub fn set_service_factor(&mut self, node: usize, factor: f64) {
        if let Some(node) = self.nodes.get_mut(node).filter(|_| factor > 0.0) {
            let times = factor / node.factor;
            node.factor = factor;
            node.model.service.intercept *= times;
            node.model.service.slope *= times;
            node.load.utilisation *= times;
            node.load.second_moment *= times * times;
        }
    }

    /// Admits a flow to one of `candidates`.
    ///
    /// # Errors
    ///
    /// [`FlowRefusal`]; by [`PathPolicy::LeastLoad`] that of the candidate of fewest nodes.
    pub fn place(
        &mut self,
        kind: FlowKind,
        candidates: &[Vec<usize>],
        policy: PathPolicy,
    ) -> Result<PlacedFlow, FlowRefusal> {
        if self.flows.len() >= self.flows_max {
            return Err(FlowRefusal::Full { limit: self.flows_max });
        }
        let id = FlowId(self.next);
        let known = |path: &&Vec<usize>| path.iter().all(|&node| self.nodes.get(node).is_some());
        let mut known: Vec<&Vec<usize>> = candidates.iter().filter(known).collect();
        known.sort_by_key(|path| path.len());
        let path = match policy {
            PathPolicy::LeastLoad => self.least_load(&kind, &known)?,
            PathPolicy::Weighted => self.checked(&kind, self.weighted(&kind, &known, id))?,
            PathPolicy::MinHop => self.checked(&kind, min_hop(&known, id))?,
        };
        let flow = PlacedFlow { id, kind, path };
        self.next += 1;
        self.change(&flow, 1.0);
        self.flows.insert(id, flow.clone());
        Ok(flow)
    }

    /// Ends a flow, and returns it; `None` if it is not admitted.
    pub fn release(&mut self, flow: FlowId) -> Option<PlacedFlow> {
        let flow = self.flows.remove(&flow)?;
        self.change(&flow, -1.0);
        Some(flow)
    }

    fn change(&mut self, flow: &PlacedFlow, by: f64) {
        for &at in &flow.path {
            let Some(node) = self.nodes.get_mut(at) else { continue };
            node.load = node.load.with(&node.model, &flow.kind, by);
            if by > 0.0 {
                node.flows.insert(flow.id);
            } else {
                node.flows.remove(&flow.id);
            }
        }
    }

    fn least_load(
        &self,
        kind: &FlowKind,
        known: &[&Vec<usize>],
    ) -> Result<Vec<usize>, FlowRefusal> {
        let mut by_cost: Vec<(f64, &Vec<usize>)> =
            known.iter().map(|path| (self.cost(kind, path), *path)).collect();
        by_cost.sort_by(|one, other| one.0.total_cmp(&other.0));
        let kept = by_cost.iter().find(|(_, path)| self.check(kind, path).is_ok());
        match (kept, known.first()) {
            (Some((_, path)), _) => Ok((*path).clone()),
            (None, first) => self.checked(kind, first.copied()),
        }
    }

    fn checked(
        &self,
        kind: &FlowKind,
        path: Option<&Vec<usize>>,
    ) -> Result<Vec<usize>, FlowRefusal> {
        let path = path.ok_or(FlowRefusal::NoPath)?;
        self.check(kind, path).map(|()| path.clone())
    }

    /// What the flow costs on a path: the sum of S/(1−ρ)² over its nodes, with which the delays of
    /// all packets there grow with the load. Long ways and busy nodes both cost.
    fn cost(&self, kind: &FlowKind, path: &[usize]) -> f64 {
        let nodes = path.iter().filter_map(|&at| self.nodes.get(at));
        let cost = |node: &LoadedNode| {
            let load = node.load.with(&node.model, kind, 1.0).utilisation;
            let rest = (1.0 - load).max(f64::EPSILON);
            node.model.service_time(kind.octets) / (rest * rest)
        };
        nodes.map(cost).sum()
    }

    /// The path whose share of the weights has the flow's number.
    fn weighted<'path>(
        &self,
        kind: &FlowKind,
        known: &[&'path Vec<usize>],
        id: FlowId,
    ) -> Option<&'path Vec<usize>> {
        let speed = |path: &[usize]| {
            let nodes = path.iter().filter_map(|&at| self.nodes.get(at));
            let slowest =
                nodes.map(|node| node.model.service_time(kind.octets)).fold(0.0, f64::max);
            1.0 / slowest.max(f64::MIN_POSITIVE)
        };
        let all: f64 = known.iter().map(|path| speed(path)).sum();
        let mut left = all * spread_evenly(id);
        for path in known {
            left -= speed(path);
            if left < 0.0 {
                return Some(path);
            }
        }
        known.last().copied()
    }

    /// Whether the flow on this path and all flows that share a node with it keep their bounds.
    fn check(&self, kind: &FlowKind, path: &[usize]) -> Result<(), FlowRefusal> {
        let with = Some((kind, path));
        for &at in path {
            let Some(node) = self.nodes.get(at) else { return Err(FlowRefusal::NoPath) };
            let load = node.load.with(&node.model, kind, 1.0).utilisation;
            if load >= 1.0 {
                return Err(FlowRefusal::Overload { node: at, load_pct: load * 100.0 });
            }
        }
        let bound_us = kind.bound_us;
        match self.path_delay(kind, path, with) {
            Some(delay_us) if delay_us <= bound_us => {}
            delay => {
                return Err(FlowRefusal::Late {
                    delay_us: delay.unwrap_or(f64::INFINITY),
                    bound_us,
                });
            }
        }
        let union: BTreeSet<FlowId>;
        // Flows of one node need no set of their own.
        let others = if let [at] = path {
            self.nodes.get(*at).map(|node| &node.flows)
        } else {
            let nodes = path.iter().filter_map(|&at| self.nodes.get(at));
            union = nodes.flat_map(|node| node.flows.iter().copied()).collect();
            Some(&union)
        };
        // Flows of one kind on one path have one delay; one after the other is often such a one.
        let mut last: Option<&PlacedFlow> = None;
        for flow in others.into_iter().flatten().filter_map(|id| self.flows.get(id)) {
            if last.is_some_and(|last| (last.kind, &last.path) == (flow.kind, &flow.path)) {
                continue;
            }
            last = Some(flow);
            let delay_us = self.path_delay(&flow.kind, &flow.path, with).unwrap_or(f64::INFINITY);
            let bound_us = flow.kind.bound_us;
            if delay_us > bound_us {
                return Err(FlowRefusal::Disturbs { flow: flow.id, delay_us, bound_us });
            }
        }
        Ok(())
    }

    /// The delay of a flow over its nodes at its quantile, in microseconds: the sum of the means,
    /// and what is above them as that of independent delays. `with` is a flow more.
    fn path_delay(
        &self,
        kind: &FlowKind,
        path: &[usize],
        with: Option<(&FlowKind, &[usize])>,
    ) -> Option<f64> {
        let (mut means, mut squares) = (0.0, 0.0);
        for at in path {
            let node = self.nodes.get(*at)?;
            let load = match with {
                Some((more, its)) if its.contains(at) => node.load.with(&node.model, more, 1.0),
                _ => node.load,
            };
            let mean = node.model.mean(kind.octets, &load)?;
            let late = node.model.quantile(kind.octets, &load, kind.quantile)?;
            means += mean;
            squares += (late - mean).max(0.0).powi(2);
        }
        Some((means + squares.sqrt()) * 1e6)
    }
}

/// One of the paths of fewest nodes, by the flow's number.
fn min_hop<'path>(known: &[&'path Vec<usize>], id: FlowId) -> Option<&'path Vec<usize>> {
    let least = known.first()?.len();
    let equal: Vec<&'path Vec<usize>> =
        known.iter().copied().filter(|path| path.len() == least).collect();
    let count = u64::try_from(equal.len()).ok()?;
    equal.get(usize::try_from(id.0 % count.max(1)).ok()?).copied()
}

/// A number in 0..1 for each flow; those of successive flows are spread evenly (multiples of the
/// golden ratio).
fn spread_evenly(id: FlowId) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let high = u32::try_from(id.0.wrapping_mul(GOLDEN) >> 32).unwrap_or(u32::MAX);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::LinearFit;
    use crate::queue::QueueModel;

    /// A node with a service time of so many milliseconds, whatever the size: M/M/1.
    fn node(service_ms: f64) -> NodeModel {
        let service =
            LinearFit { intercept: service_ms / 1e3, slope: 0.0, r_squared: 1.0, count: 4 };
        let queue = QueueModel::FirstInFirstOut;
        NodeModel { queue, service, setup: None, variation: 1.0, spread: 1.0 }
    }

    fn kind(bound_ms: f64) -> FlowKind {
        FlowKind { rate: 10.0, octets: 100.0, bound_us: bound_ms * 1e3, quantile: 0.95 }
    }

    fn fill(
        admission: &mut FlowAdmission,
        paths: &[Vec<usize>],
        policy: PathPolicy,
    ) -> FlowRefusal {
        loop {
            if let Err(refusal) = admission.place(kind(6.0), paths, policy) {
                return refusal;
            }
        }
    }

    #[test]
    fn the_fewest_hops_leave_the_others_out() {
        assert_eq!(relay_paths(PathPolicy::MinHop, &[2, 1, 1]), [[1], [2]]);
        assert_eq!(relay_paths(PathPolicy::Weighted, &[2, 1, 1]), [[0], [1], [2]]);
        assert_eq!(relay_paths(PathPolicy::MinHop, &[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn one_node_carries_what_m_m_1_allows() {
        // As in the lab's promise: P(W > 5 ms) = ρ exp(−(1000 − λ) 5 ms) ≤ 0.05 up to ρ = 0.52.
        let mut one = FlowAdmission::new([node(1.0)], 1000);
        let refusal = fill(&mut one, &[vec![0]], PathPolicy::MinHop);
        assert_eq!(one.flows().count(), 52);
        assert!(matches!(refusal, FlowRefusal::Late { bound_us: 6000.0, .. }), "{refusal}");
        assert!((one.load(0).unwrap().utilisation - 0.52).abs() < 1e-9);
    }

    #[test]
    fn a_flow_with_a_wide_bound_may_not_make_a_strict_one_late() {
        let mut one = FlowAdmission::new([node(1.0)], 1000);
        one.place(kind(6.0), &[vec![0]], PathPolicy::LeastLoad).unwrap();
        let refusal = loop {
            if let Err(it) = one.place(kind(100.0), &[vec![0]], PathPolicy::LeastLoad) {
                break it;
            }
        };
        assert!(matches!(refusal, FlowRefusal::Disturbs { flow: FlowId(0), .. }), "{refusal}");
        assert_eq!(one.flows().count(), 52);
        // When it has ended, the others may go on to their own bound.
        assert_eq!(one.release(FlowId(0)).unwrap().id, FlowId(0));
        one.place(kind(100.0), &[vec![0]], PathPolicy::LeastLoad).unwrap();
        one.place(kind(100.0), &[vec![0]], PathPolicy::LeastLoad).unwrap();
    }

    #[test]
    fn flows_go_where_the_load_is_least_and_speeds_count() {
        // Two relays of one service time and a third that is four times as fast.
        let models = [node(1.0), node(1.0), node(0.25)];
        let paths = [vec![0], vec![1], vec![2]];
        let mut nodes = FlowAdmission::new(models, 10_000);
        fill(&mut nodes, &paths, PathPolicy::LeastLoad);
        let on = |at: usize| nodes.flows().filter(|flow| flow.path == [at]).count();
        let (slow, fast) = (on(0), on(2));
        assert_eq!((slow, on(1)), (52, 52));
        // P(W > 5.75 ms) = ρ exp(−(4000 − λ) 5.75 ms) ≤ 0.05: λ ≤ 3500.
        assert_eq!(fast, 350);
        let mut weighted = FlowAdmission::new(models, 10_000);
        for _flow in 0..60 {
            weighted.place(kind(6.0), &paths, PathPolicy::Weighted).unwrap();
        }
        let on = |at: usize| weighted.flows().filter(|flow| flow.path == [at]).count();
        assert!((38..=42).contains(&on(2)), "two thirds of 60: {}", on(2));
    }

    #[test]
    fn what_cannot_be_carried_is_refused_with_the_reason() {
        let mut one = FlowAdmission::new([node(1.0)], 1);
        let place = |admission: &mut FlowAdmission, kind, paths: &[Vec<usize>]| {
            admission.place(kind, paths, PathPolicy::LeastLoad).map(|flow| flow.id)
        };
        assert_eq!(place(&mut one, kind(6.0), &[]), Err(FlowRefusal::NoPath));
        assert_eq!(place(&mut one, kind(6.0), &[vec![7]]), Err(FlowRefusal::NoPath));
        let much = FlowKind { rate: 2000.0, ..kind(6.0) };
        let overload = FlowRefusal::Overload { node: 0, load_pct: 200.0 };
        assert_eq!(place(&mut one, much, &[vec![0]]), Err(overload));
        assert_eq!(place(&mut one, kind(6.0), &[vec![0]]), Ok(FlowId(0)));
        assert_eq!(place(&mut one, kind(6.0), &[vec![0]]), Err(FlowRefusal::Full { limit: 1 }));
    }
}

//! Balancing: the relay that a new flow goes to, and the flows that are refused.
//!
//! A flow is admitted to a relay if the relay's delay model says that it keeps its bound there, and
//! so do all flows admitted before. The flow has its place until its [`AdmittedFlow`] is dropped. A
//! relay that does not accept connections is left out for a while.

use gatewright_config as config;
use gatewright_delay::{
    FlowAdmission, FlowId, FlowKind, FlowRefusal, LEFT_OUT_MAX, LEFT_OUT_MIN, LinearFit, NodeLoad,
    NodeModel, QueueModel, Reachability, reachable_paths,
};
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_planes::{FlowBalance, FlowBalanceCounts, FlowRelay, FlowRelayCounts};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Admits flows to the relays of a balance.
#[derive(Debug)]
pub struct Balancer {
    described: config::Balance,
    state: Mutex<BalanceState>,
    log: EventSink,
}

#[derive(Debug)]
struct BalanceState {
    admission: FlowAdmission,
    /// That of each relay.
    reachability: Vec<Reachability<Instant>>,
    admitted: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// A flow with its place at a relay, until this value is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedFlow {
    balancer: Arc<Balancer>,
    kind: FlowKind,
    id: FlowId,
    /// The relay's index.
    relay: usize,
    /// Relays that have not accepted its connection.
    tried: Vec<usize>,
    /// Whether this flow is the one that tries a relay again that was left out.
    is_trial: bool,
}

impl AdmittedFlow {
    /// The relay's address.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        self.balancer.described.relays.get(self.relay).map(|relay| relay.address.value)
    }

    /// The relay has accepted the flow's connection.
    pub(crate) fn accepted(&mut self) {
        self.is_trial = false;
        let mut state = self.balancer.lock();
        let is_back = state.reachability.get_mut(self.relay).is_some_and(Reachability::accepted);
        drop(state);
        if is_back {
            let text = "accepts connections again";
            self.balancer.log_relay(self.relay, (LogLevel::Info, "relay-back"), text);
        }
    }

    /// The relay has not accepted the flow's connection: leaves it out for a while, and gives the
    /// flow a place at a relay that it has not tried. Returns that relay's address; `None` if no
    /// such relay can carry the flow, which has no place then.
    pub(crate) fn try_elsewhere(&mut self, now: Instant) -> Option<SocketAddr> {
        let mut state = self.balancer.lock();
        state.admission.release(self.id);
        let failed = self.relay;
        let reachability = state.reachability.get_mut(failed);
        let is_first = reachability.is_some_and(|it| it.failed(now, self.is_trial));
        self.is_trial = false;
        self.tried.push(failed);
        let placed = self.balancer.place(&mut state, self.kind, &self.tried, now);
        drop(state);
        if is_first {
            let text = format!(
                "does not accept connections, and is left out for {} s, and for up to {} s while \
                 that lasts",
                LEFT_OUT_MIN.as_secs(),
                LEFT_OUT_MAX.as_secs()
            );
            self.balancer.log_relay(failed, (LogLevel::Warning, "relay-left-out"), &text);
        }
        (self.id, self.relay, self.is_trial) = placed.ok()?;
        self.server()
    }
}

impl Drop for AdmittedFlow {
    fn drop(&mut self) {
        let mut state = self.balancer.lock();
        state.admission.release(self.id);
        if self.is_trial
            && let Some(relay) = state.reachability.get_mut(self.relay)
        {
            relay.abandon_trial();
        }
    }
}

/// A balance at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BalanceStatus {
    /// Its name.
    pub name: String,
    /// How it chooses relays.
    pub policy: &'static str,
    /// Flows admitted since the start.
    pub admitted: u64,
    /// Flows refused since the start, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Its relays.
    pub relays: Vec<BalancedRelayStatus>,
}

/// A relay of a balance at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BalancedRelayStatus {
    /// Its address.
    pub address: SocketAddr,
    /// Flows that it has.
    pub flows: usize,
    /// The share of the time in which these keep it busy, by its model.
    pub load: f64,
    /// a of its service time a + c·b, in microseconds.
    pub a_us: f64,
    /// c, in nanoseconds for each octet.
    pub c_ns: f64,
    /// Whether it can be reached; `None` where nothing shows it.
    pub reachability: Option<RelayReachability>,
}

/// Whether a relay of a balance can be reached, as its flows show it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct RelayReachability {
    /// Whether it is left out at this moment.
    pub left_out: bool,
    /// Failures to reach it since the start: connections that it has not accepted, ICMP errors and
    /// silences of a UDP gateway's relay, and next hops whose link-layer address nobody told.
    pub unreachable: u64,
}

impl Balancer {
    /// A balance without flows, whose refusals are logged by `log`.
    pub fn new(described: &config::Balance, log: EventSink) -> Arc<Self> {
        let models = described.relays.iter().map(model);
        let admission = FlowAdmission::new(models, described.flows_max);
        let reachability = vec![Reachability::default(); described.relays.len()];
        let refused = BTreeMap::new();
        let state = BalanceState { admission, reachability, admitted: 0, refused };
        Arc::new(Self { described: described.clone(), state: Mutex::new(state), log })
    }

    /// What it was made from.
    pub(crate) const fn described(&self) -> &config::Balance {
        &self.described
    }

    /// A panic elsewhere leaves flows and counters that are whole.
    fn lock(&self) -> MutexGuard<'_, BalanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a flow to a relay; a refusal is counted and an event.
    pub(crate) fn admit(
        self: &Arc<Self>,
        kind: FlowKind,
        now: Instant,
    ) -> Result<AdmittedFlow, FlowRefusal> {
        let config::Balance { name, relays, .. } = &self.described;
        let mut state = self.lock();
        let refusal = match self.place(&mut state, kind, &[], now) {
            Ok((id, relay, is_trial)) => {
                state.admitted += 1;
                let (balancer, tried) = (Arc::clone(self), Vec::new());
                return Ok(AdmittedFlow { balancer, kind, id, relay, tried, is_trial });
            }
            Err(refusal) => refusal,
        };
        *state.refused.entry(refusal.name()).or_default() += 1;
        drop(state);
        let name = &name.value;
        let at = match &refusal {
            FlowRefusal::Overload { node, .. } => relays.get(*node),
            _ => None,
        };
        let at = at.map(|relay| format!(" ({})", relay.address.value)).unwrap_or_default();
        let text = format!(
            "balance {name} refuses a flow of {} packets of {} octets a second: {refusal}{at}; more \
             relays, or a wider bound, would carry it",
            kind.rate, kind.octets
        );
        let event = LogEvent::new(LogLevel::Warning, "balance", "flow-refused", text);
        self.log.log(event.with("balance", name).with("reason", refusal.name()));
        Err(refusal)
    }

    /// Gives a flow a place at a relay outside `tried`; returns its number, the relay, and whether
    /// the flow is the one that tries this relay again.
    fn place(
        &self,
        state: &mut BalanceState,
        kind: FlowKind,
        tried: &[usize],
        now: Instant,
    ) -> Result<(FlowId, usize, bool), FlowRefusal> {
        let candidates = self.candidates(&state.reachability, tried, now);
        let flow = state.admission.place(kind, &candidates, self.described.policy)?;
        let relay = *flow.path.first().ok_or(FlowRefusal::NoPath)?;
        let is_trial = state.reachability.get_mut(relay).is_some_and(|it| it.choose(now));
        Ok((flow.id, relay, is_trial))
    }

    /// The relays that a flow may go to, as paths.
    fn candidates(
        &self,
        reachability: &[Reachability<Instant>],
        tried: &[usize],
        now: Instant,
    ) -> Vec<Vec<usize>> {
        let hops = self.described.relays.iter().map(|relay| relay.hops);
        reachable_paths(self.described.policy, hops.zip(reachability), tried, now)
    }

    /// Logs that a relay is left out or back.
    fn log_relay(&self, relay: usize, (level, kind): (LogLevel, &'static str), text: &str) {
        let Some(relay) = self.described.relays.get(relay) else { return };
        let (name, address) = (&self.described.name.value, relay.address.value);
        let text = format!("relay {address} of balance {name} {text}");
        let event = LogEvent::new(level, "balance", kind, text);
        self.log.log(event.with("balance", name).with("relay", address));
    }

    /// Its state at this moment.
    pub(crate) fn status(&self) -> BalanceStatus {
        let state = self.lock();
        let relays = self.described.relays.iter().enumerate();
        let relays = relays.map(|(at, relay)| {
            let load = state.admission.load(at).unwrap_or_default();
            let reachability = state.reachability.get(at).map(|it| RelayReachability {
                left_out: it.is_left_out(),
                unreachable: it.unreachable(),
            });
            relay_status(relay, state.admission.flow_count(at), load, reachability)
        });
        BalanceStatus {
            name: self.described.name.value.clone(),
            policy: self.described.policy.name(),
            admitted: state.admitted,
            refused: state.refused.clone(),
            relays: relays.collect(),
        }
    }
}

fn relay_status(
    relay: &config::BalancedRelay,
    flows: usize,
    load: NodeLoad,
    reachability: Option<RelayReachability>,
) -> BalancedRelayStatus {
    let model = model(relay);
    BalancedRelayStatus {
        address: relay.address.value,
        flows,
        load: load.utilisation,
        a_us: model.service.intercept * 1e6,
        c_ns: model.service.slope * 1e9,
        reachability,
    }
}

/// A balance of the data plane, by its counts.
pub(crate) fn status_of(
    described: &config::Balance,
    flow: &config::BalancedFlow,
    counts: FlowBalanceCounts,
) -> BalanceStatus {
    let kind = flow_kind(flow);
    let relay = |(relay, its): (&config::BalancedRelay, &FlowRelayCounts)| {
        // A flow that ends between the two readings is counted as one that goes on.
        let flows = its.admitted.saturating_sub(its.ended);
        let count = u32::try_from(flows).unwrap_or(u32::MAX);
        let load = NodeLoad::default().with(&model(relay), &kind, count.into());
        let reachability =
            RelayReachability { left_out: its.is_left_out(), unreachable: its.unreachable };
        let flows = usize::try_from(flows).unwrap_or(usize::MAX);
        relay_status(relay, flows, load, Some(reachability))
    };
    BalanceStatus {
        name: described.name.value.clone(),
        policy: described.policy.name(),
        admitted: counts.relays.iter().map(|its| its.admitted).sum(),
        relays: described.relays.iter().zip(&counts.relays).map(relay).collect(),
        refused: counts.refused.into_iter().filter(|(_, count)| *count > 0).collect(),
    }
}

/// The watched counters of balances of the data plane, as sums; none without one.
pub(crate) fn watched_counters(
    balances: impl Iterator<Item = [u64; 3]>,
) -> Vec<(&'static str, u64)> {
    let sums = balances.reduce(|sums, more| std::array::from_fn(|at| sum_at(&sums, &more, at)));
    let names = ["flows_refused", "relays_left_out", "relays_back"];
    sums.map_or_else(Vec::new, |sums| names.into_iter().zip(sums).collect())
}

fn sum_at(sums: &[u64], more: &[u64], at: usize) -> u64 {
    let of = |counts: &[u64]| counts.get(at).copied().unwrap_or_default();
    of(sums).saturating_add(of(more))
}

/// The data plane's setup of relays that share flows.
pub(crate) fn flow_balance(balance: &config::Balance, flow: &config::BalancedFlow) -> FlowBalance {
    let relay = |relay: &config::BalancedRelay| FlowRelay {
        address: relay.address.value,
        model: model(relay),
        hops: relay.hops,
    };
    FlowBalance {
        policy: balance.policy,
        kind: flow_kind(flow),
        flows_max: balance.flows_max,
        relays: balance.relays.iter().map(relay).collect(),
    }
}

/// The flow that a described one is.
pub(crate) fn flow_kind(flow: &config::BalancedFlow) -> FlowKind {
    FlowKind {
        rate: flow.rate.into(),
        octets: flow.octets.into(),
        bound_us: flow.within.as_secs_f64() * 1e6,
        quantile: f64::from(flow.share_pct) / 100.0,
    }
}

/// The model of a described relay: one server, first in, first out.
pub(crate) fn model(relay: &config::BalancedRelay) -> NodeModel {
    let picoseconds = u32::try_from(relay.octet_ps).unwrap_or(u32::MAX);
    let service = LinearFit {
        intercept: relay.fixed.as_secs_f64(),
        slope: f64::from(picoseconds) * 1e-12,
        r_squared: 1.0,
        count: 0,
    };
    NodeModel {
        queue: QueueModel::FirstInFirstOut,
        service,
        setup: None,
        variation: f64::from(relay.variation_pct) / 100.0,
        spread: f64::from(relay.spread_pct) / 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_config::{BalancedRelay, Located};
    use gatewright_delay::PathPolicy;
    use std::time::Duration;

    fn located<T>(value: T) -> Located<T> {
        Located { value, span: gatewright_diagnostic::Span::default() }
    }

    fn balancer(policy: PathPolicy, relays: &[(u64, u8)], log: EventSink) -> Arc<Balancer> {
        let relay = |(at, &(fixed_ms, hops)): (usize, &(u64, u8))| BalancedRelay {
            address: located(SocketAddr::new(
                [127, 0, 0, 1].into(),
                8000 + u16::try_from(at).unwrap(),
            )),
            fixed: Duration::from_millis(fixed_ms),
            octet_ps: 0,
            variation_pct: 100,
            spread_pct: 100,
            hops,
        };
        let relays = relays.iter().enumerate().map(relay).collect();
        let described = config::Balance {
            name: located("servers".to_owned()),
            policy,
            flows_max: 1000,
            relays,
        };
        Balancer::new(&described, log)
    }

    /// M/M/1 at 1000/s with flows of 10/s and a bound of 6 ms for 95 %: 52 flows, by hand in
    /// `gatewright-delay`'s admission.
    const KIND: FlowKind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };

    #[test]
    fn flows_have_places_until_they_end_and_refusals_are_told() {
        let (seen, now) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let its = Arc::clone(&seen);
        let log = EventSink::new(move |event| its.lock().unwrap().push(event));
        let balancer = balancer(PathPolicy::LeastLoad, &[(1, 1), (1, 1)], log);
        let mut flows: Vec<_> = (0..104).map(|_| balancer.admit(KIND, now).unwrap()).collect();
        let count = |status: &BalanceStatus| -> Vec<usize> {
            status.relays.iter().map(|relay| relay.flows).collect()
        };
        assert_eq!(count(&balancer.status()), [52, 52]);
        assert!(balancer.admit(KIND, now).is_err());
        flows.remove(0);
        assert_eq!(count(&balancer.status()).iter().sum::<usize>(), 103);
        let _place = balancer.admit(KIND, now).unwrap();
        let status = balancer.status();
        assert_eq!((status.admitted, status.refused.get("late")), (105, Some(&1)), "{status:?}");
        assert!((status.relays[0].load - 0.52).abs() < 1e-9);
        let events = seen.lock().unwrap();
        assert_eq!((events.len(), events[0].kind), (1, "flow-refused"));
        assert!(events[0].text.contains("its bound is 6000"), "{}", events[0].text);
    }

    #[test]
    fn the_fewest_hops_and_the_speeds_decide_where_they_are_asked_for() {
        let now = Instant::now();
        let near = balancer(PathPolicy::MinHop, &[(1, 2), (4, 1), (4, 1)], EventSink::default());
        let slow = FlowKind { bound_us: 60_000.0, ..KIND };
        let flows: Vec<_> = (0..4).map(|_| near.admit(slow, now).unwrap()).collect();
        assert!(flows.iter().all(|flow| flow.server().unwrap().port() != 8000), "two hops away");
        let fast = balancer(PathPolicy::Weighted, &[(1, 1), (4, 1)], EventSink::default());
        let flows: Vec<_> = (0..10).map(|_| fast.admit(slow, now).unwrap()).collect();
        let at_first = flows.iter().filter(|flow| flow.server().unwrap().port() == 8000).count();
        assert!((7..=9).contains(&at_first), "four fifths of 10: {at_first}");
    }

    #[test]
    fn a_relay_that_accepts_nothing_is_left_out_until_it_accepts_the_connection_of_a_trial() {
        let (seen, now) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let its = Arc::clone(&seen);
        let log = EventSink::new(move |event| its.lock().unwrap().push(event.kind));
        // The second is quicker and nearer, and has no listener.
        let balancer = balancer(PathPolicy::MinHop, &[(4, 2), (1, 1)], log);
        let kind = FlowKind { bound_us: 60_000.0, ..KIND };
        let port = |flow: &AdmittedFlow| flow.server().unwrap().port();
        let mut first = balancer.admit(kind, now).unwrap();
        assert_eq!(port(&first), 8001);
        assert_eq!(first.try_elsewhere(now).unwrap().port(), 8000);
        first.accepted();
        let status = balancer.status();
        let relay = |at: usize, flows, left_out, unreachable| {
            let its: &BalancedRelayStatus = &status.relays[at];
            let reachability = RelayReachability { left_out, unreachable };
            assert_eq!((its.flows, its.reachability), (flows, Some(reachability)), "{status:?}");
        };
        relay(0, 1, false, 0);
        relay(1, 0, true, 1);
        assert_eq!(status.admitted, 1);
        assert_eq!(port(&balancer.admit(kind, now).unwrap()), 8000);
        // One flow tries it again; when that ends without an answer, another does.
        let later = now + LEFT_OUT_MIN;
        let trial = balancer.admit(kind, later).unwrap();
        assert_eq!(port(&trial), 8001);
        assert_eq!(port(&balancer.admit(kind, later).unwrap()), 8000);
        drop(trial);
        let mut trial = balancer.admit(kind, later).unwrap();
        assert_eq!(port(&trial), 8001);
        trial.accepted();
        assert_eq!(port(&balancer.admit(kind, later).unwrap()), 8001);
        assert_eq!(*seen.lock().unwrap(), ["relay-left-out", "relay-back"]);
    }

    /// A flow without an answer anywhere has no place, and none is refused for that.
    #[test]
    fn where_all_relays_are_left_out_each_flow_tries_each_of_them_once() {
        let now = Instant::now();
        let relays = [(1, 1), (1, 1), (1, 1)];
        let balancer = balancer(PathPolicy::LeastLoad, &relays, EventSink::default());
        for _ in 0..2 {
            let mut flow = balancer.admit(KIND, now).unwrap();
            assert!(flow.try_elsewhere(now).is_some() && flow.try_elsewhere(now).is_some());
            assert_eq!(flow.try_elsewhere(now), None);
        }
        let status = balancer.status();
        let tried = |it: &BalancedRelayStatus| {
            (it.flows, it.reachability.unwrap().left_out, it.reachability.unwrap().unreachable)
        };
        assert!(status.relays.iter().all(|it| tried(it) == (0, true, 2)), "{status:?}");
        assert_eq!((status.admitted, status.refused.len()), (2, 0));
        // The one that accepts is back for the next.
        balancer.admit(KIND, now).unwrap().accepted();
        assert!(!balancer.status().relays.iter().all(|it| it.reachability.unwrap().left_out));
    }
}

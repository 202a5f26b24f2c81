//! Balancing: the relay that a new flow goes to, and the flows that are refused.
//!
//! A flow is admitted to a relay if the relay's delay model says that it keeps its bound there, and
//! so do all flows admitted before. The flow has its place until its [`AdmittedFlow`] is dropped. A
//! relay that does not accept connections is left out for a while.

use gatewright_config as config;
use gatewright_delay::{
    ClientFlows, FactorChange, FlowAdmission, FlowId, FlowKind, FlowRefusal, LEFT_OUT_MAX,
    LEFT_OUT_MIN, LinearFit, NodeLoad, NodeModel, QueueModel, Reachability, ServiceFactor,
    reachable_paths,
};
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_planes::{FlowBalance, FlowBalanceCounts, FlowRelay, FlowRelayCounts};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Admits flows to the relays of a balance.
#[derive(Debug)]
pub struct Balancer {
    described: config::Balance,
    state: Mutex<BalanceState>,
    /// Where times of measurements count from.
    began: Instant,
    log: EventSink,
}

#[derive(Debug)]
struct BalanceState {
    admission: FlowAdmission,
    /// That of each relay.
    reachability: Vec<Reachability<Instant>>,
    /// What the answers of each live relay say.
    factors: Vec<Option<ServiceFactor>>,
    clients: ClientFlows,
    admitted: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// A flow with its place at a relay, until this value is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedFlow {
    balancer: Arc<Balancer>,
    client: IpAddr,
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

    /// The relay has accepted the flow's connection, for which it took so long.
    pub(crate) fn accepted(&mut self, now: Instant, took: Duration) {
        self.is_trial = false;
        let mut state = self.balancer.lock();
        if let Some(Some(factor)) = state.factors.get_mut(self.relay) {
            factor.round_trip(now.saturating_duration_since(self.balancer.began), took);
        }
        let is_back = state.reachability.get_mut(self.relay).is_some_and(Reachability::accepted);
        drop(state);
        if is_back {
            let text = "accepts connections again";
            self.balancer.log_relay(self.relay, (LogLevel::Info, "relay-back"), text);
        }
    }

    /// The relay has answered a request of so many octets after this time.
    pub(crate) fn answered(&self, now: Instant, time: Duration, octets: u64) {
        let balancer = &self.balancer;
        let mut state = balancer.lock();
        let Some(Some(factor)) = state.factors.get_mut(self.relay) else { return };
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        factor.answered(now.saturating_duration_since(balancer.began), time, octets);
        let changes = balancer.look(&mut state, now);
        drop(state);
        balancer.log_drifts(&changes);
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
        state.clients.remove(self.client);
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
    /// What its answers say of its service; `None` unless its model is live.
    pub live: Option<LiveService>,
}

/// The measured service of a live relay of a balance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LiveService {
    /// By how much it takes longer than described; `a_us` and `c_ns` of the relay have it already.
    pub factor: f64,
    /// Answers since the start.
    pub answers: u64,
    /// Whether the described and the measured service differ by more than half.
    pub drifts: bool,
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
        let factor = |relay: &config::BalancedRelay| {
            relay.is_live.then(|| ServiceFactor::new(model(relay), relay.path))
        };
        let state = BalanceState {
            admission,
            reachability,
            factors: described.relays.iter().map(factor).collect(),
            clients: ClientFlows::new(described.flows_per_client),
            admitted: 0,
            refused: BTreeMap::new(),
        };
        let (described, state) = (described.clone(), Mutex::new(state));
        Arc::new(Self { described, state, began: Instant::now(), log })
    }

    /// What it was made from.
    pub(crate) const fn described(&self) -> &config::Balance {
        &self.described
    }

    /// A panic elsewhere leaves flows and counters that are whole.
    fn lock(&self) -> MutexGuard<'_, BalanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a flow of `client` to a relay; a refusal is counted and an event.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: IpAddr,
        kind: FlowKind,
        now: Instant,
    ) -> Result<AdmittedFlow, FlowRefusal> {
        let mut state = self.lock();
        let changes = self.look(&mut state, now);
        let place = |state: &mut BalanceState| {
            state.clients.check(client)?;
            self.place(state, kind, &[], now)
        };
        let placed = place(&mut state);
        match &placed {
            Ok(_) => {
                state.admitted += 1;
                state.clients.add(client);
            }
            Err(refusal) => *state.refused.entry(refusal.name()).or_default() += 1,
        }
        drop(state);
        self.log_drifts(&changes);
        match placed {
            Ok((id, relay, is_trial)) => {
                let (balancer, tried) = (Arc::clone(self), Vec::new());
                Ok(AdmittedFlow { balancer, client, kind, id, relay, tried, is_trial })
            }
            Err(refusal) => {
                self.log_refusal(client, kind, &refusal);
                Err(refusal)
            }
        }
    }

    fn log_refusal(&self, client: IpAddr, kind: FlowKind, refusal: &FlowRefusal) {
        let config::Balance { name, relays, .. } = &self.described;
        let name = &name.value;
        let at = match refusal {
            FlowRefusal::Overload { node, .. } => relays.get(*node),
            _ => None,
        };
        let at = at.map(|relay| format!(" ({})", relay.address.value)).unwrap_or_default();
        let remedy = match refusal {
            FlowRefusal::Client { .. } => "flows_per_client of the balance bounds it",
            FlowRefusal::Full { .. } => "flows_max of the balance bounds it",
            _ => "more relays, or a wider bound, would carry it",
        };
        let text = format!(
            "balance {name} refuses a flow of {} packets of {} octets a second from {client}: \
             {refusal}{at}; {remedy}",
            kind.rate, kind.octets
        );
        let event = LogEvent::new(LogLevel::Warning, "balance", "flow-refused", text);
        self.log.log(event.with("balance", name).with("reason", refusal.name()));
    }

    /// Ends the measurements that are due, and takes them into the models; returns drifts that have
    /// begun or ended, each with its factor.
    fn look(&self, state: &mut BalanceState, now: Instant) -> Vec<(usize, FactorChange, f64)> {
        let now = now.saturating_duration_since(self.began);
        let BalanceState { factors, admission, .. } = state;
        let mut changes = Vec::new();
        for (relay, factor) in factors.iter_mut().enumerate() {
            let Some(factor) = factor else { continue };
            let Some(change) = factor.look(now) else { continue };
            admission.set_service_factor(relay, factor.factor());
            if change != FactorChange::Moved {
                changes.push((relay, change, factor.factor()));
            }
        }
        changes
    }

    fn log_drifts(&self, changes: &[(usize, FactorChange, f64)]) {
        for &(relay, change, factor) in changes {
            let (as_what, text) = if change == FactorChange::Drifts {
                let text = format!(
                    "takes {factor:.2} times as long to serve a request as its model says, and flows \
                     are placed by that; `gatewright lab promise --model` measures it anew"
                );
                ((LogLevel::Warning, "relay-drifts"), text)
            } else {
                let text = "takes as long as its model says, or gives no answers to measure";
                ((LogLevel::Info, "relay-steady"), text.to_owned())
            };
            self.log_relay(relay, as_what, &text);
        }
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

    /// Logs a change of a relay.
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
            let live = state.factors.get(at).and_then(|factor| factor.as_ref());
            let live = live.map(|factor| LiveService {
                factor: factor.factor(),
                answers: factor.samples(),
                drifts: factor.drifts(),
            });
            let flows = state.admission.flow_count(at);
            relay_status(relay, (flows, load), reachability, live)
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
    (flows, load): (usize, NodeLoad),
    reachability: Option<RelayReachability>,
    live: Option<LiveService>,
) -> BalancedRelayStatus {
    let (model, factor) = (model(relay), live.map_or(1.0, |live| live.factor));
    BalancedRelayStatus {
        address: relay.address.value,
        flows,
        load: load.utilisation,
        a_us: model.service.intercept * factor * 1e6,
        c_ns: model.service.slope * factor * 1e9,
        reachability,
        live,
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
        let live = relay.is_live.then(|| live_service(its));
        let mut load = NodeLoad::default().with(&model(relay), &kind, count.into());
        load.utilisation *= live.map_or(1.0, |live| live.factor);
        let reachability =
            RelayReachability { left_out: its.is_left_out(), unreachable: its.unreachable };
        let flows = usize::try_from(flows).unwrap_or(usize::MAX);
        relay_status(relay, (flows, load), Some(reachability), live)
    };
    BalanceStatus {
        name: described.name.value.clone(),
        policy: described.policy.name(),
        admitted: counts.relays.iter().map(|its| its.admitted).sum(),
        relays: described.relays.iter().zip(&counts.relays).map(relay).collect(),
        refused: counts.refused.into_iter().filter(|(_, count)| *count > 0).collect(),
    }
}

/// The measured service of a relay, by its counts.
fn live_service(its: &FlowRelayCounts) -> LiveService {
    let permille = u32::try_from(its.factor_permille).unwrap_or(u32::MAX);
    // It is told when it changes for the first time.
    let factor = if permille == 0 { 1.0 } else { f64::from(permille) / 1e3 };
    LiveService { factor, answers: its.answers, drifts: its.drifts() }
}

/// The watched counters of balances of the data plane, as sums; none without one.
pub(crate) fn watched_counters(
    balances: impl Iterator<Item = [u64; 5]>,
) -> Vec<(&'static str, u64)> {
    let sums = balances.reduce(|sums, more| std::array::from_fn(|at| sum_at(&sums, &more, at)));
    let names =
        ["flows_refused", "relays_left_out", "relays_back", "relays_drift", "relays_steady"];
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
        is_live: relay.is_live,
        path: relay.path,
    };
    FlowBalance {
        policy: balance.policy,
        kind: flow_kind(flow),
        flows_max: balance.flows_max,
        flows_per_client: balance.flows_per_client,
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
            is_live: true,
            path: None,
        };
        let relays = relays.iter().enumerate().map(relay).collect();
        let described = config::Balance {
            name: located("servers".to_owned()),
            policy,
            flows_max: 1000,
            flows_per_client: Some(200),
            relays,
        };
        Balancer::new(&described, log)
    }

    /// M/M/1 at 1000/s with flows of 10/s and a bound of 6 ms for 95 %: 52 flows, by hand in
    /// `gatewright-delay`'s admission.
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const KIND: FlowKind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };

    #[test]
    fn flows_have_places_until_they_end_and_refusals_are_told() {
        let (seen, now) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let its = Arc::clone(&seen);
        let log = EventSink::new(move |event| its.lock().unwrap().push(event));
        let balancer = balancer(PathPolicy::LeastLoad, &[(1, 1), (1, 1)], log);
        let mut flows: Vec<_> =
            (0..104).map(|_| balancer.admit(CLIENT, KIND, now).unwrap()).collect();
        let count = |status: &BalanceStatus| -> Vec<usize> {
            status.relays.iter().map(|relay| relay.flows).collect()
        };
        assert_eq!(count(&balancer.status()), [52, 52]);
        assert!(balancer.admit(CLIENT, KIND, now).is_err());
        flows.remove(0);
        assert_eq!(count(&balancer.status()).iter().sum::<usize>(), 103);
        let _place = balancer.admit(CLIENT, KIND, now).unwrap();
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
        let flows: Vec<_> = (0..4).map(|_| near.admit(CLIENT, slow, now).unwrap()).collect();
        assert!(flows.iter().all(|flow| flow.server().unwrap().port() != 8000), "two hops away");
        let fast = balancer(PathPolicy::Weighted, &[(1, 1), (4, 1)], EventSink::default());
        let flows: Vec<_> = (0..10).map(|_| fast.admit(CLIENT, slow, now).unwrap()).collect();
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
        let mut first = balancer.admit(CLIENT, kind, now).unwrap();
        assert_eq!(port(&first), 8001);
        assert_eq!(first.try_elsewhere(now).unwrap().port(), 8000);
        first.accepted(now, Duration::ZERO);
        let status = balancer.status();
        let relay = |at: usize, flows, left_out, unreachable| {
            let its: &BalancedRelayStatus = &status.relays[at];
            let reachability = RelayReachability { left_out, unreachable };
            assert_eq!((its.flows, its.reachability), (flows, Some(reachability)), "{status:?}");
        };
        relay(0, 1, false, 0);
        relay(1, 0, true, 1);
        assert_eq!(status.admitted, 1);
        assert_eq!(port(&balancer.admit(CLIENT, kind, now).unwrap()), 8000);
        // One flow tries it again; when that ends without an answer, another does.
        let later = now + LEFT_OUT_MIN;
        let trial = balancer.admit(CLIENT, kind, later).unwrap();
        assert_eq!(port(&trial), 8001);
        assert_eq!(port(&balancer.admit(CLIENT, kind, later).unwrap()), 8000);
        drop(trial);
        let mut trial = balancer.admit(CLIENT, kind, later).unwrap();
        assert_eq!(port(&trial), 8001);
        trial.accepted(now, Duration::ZERO);
        assert_eq!(port(&balancer.admit(CLIENT, kind, later).unwrap()), 8001);
        assert_eq!(*seen.lock().unwrap(), ["relay-left-out", "relay-back"]);
    }

    /// A flow without an answer anywhere has no place, and none is refused for that.
    #[test]
    fn where_all_relays_are_left_out_each_flow_tries_each_of_them_once() {
        let now = Instant::now();
        let relays = [(1, 1), (1, 1), (1, 1)];
        let balancer = balancer(PathPolicy::LeastLoad, &relays, EventSink::default());
        for _ in 0..2 {
            let mut flow = balancer.admit(CLIENT, KIND, now).unwrap();
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
        balancer.admit(CLIENT, KIND, now).unwrap().accepted(now, Duration::ZERO);
        assert!(!balancer.status().relays.iter().all(|it| it.reachability.unwrap().left_out));
    }

    /// Two relays with one model. The second takes 5 ms for each request, not 1 ms; flows go to the
    /// first, until the second gives no answers for so long that its measurement counts no more.
    #[test]
    fn a_relay_that_is_slower_than_described_gets_fewer_flows() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&seen);
        let log = EventSink::new(move |event| its.lock().unwrap().push((event.kind, event.text)));
        let balancer = balancer(PathPolicy::LeastLoad, &[(1, 1), (1, 1)], log);
        let mut now = Instant::now();
        let kind = FlowKind { bound_us: 30_000.0, ..KIND };
        let mut pair = [(); 2].map(|()| balancer.admit(CLIENT, kind, now).unwrap());
        assert_eq!(pair.each_ref().map(|flow| flow.server().unwrap().port()), [8000, 8001]);
        let path = Duration::from_micros(500);
        for flow in &mut pair {
            flow.accepted(now, path);
        }
        for _ in 0..20 * 50 {
            now += Duration::from_millis(20);
            for (flow, milliseconds) in pair.iter().zip([1, 5]) {
                flow.answered(now, path + Duration::from_millis(milliseconds), 100);
            }
        }
        let status = balancer.status();
        let live = |at: usize| status.relays[at].live.unwrap();
        assert!((0.9..1.1).contains(&live(0).factor) && !live(0).drifts, "{status:?}");
        // T = 5 ms at 50/s: 5 / (1 + 0.25) = 4 ms.
        assert!((3.8..4.1).contains(&live(1).factor) && live(1).drifts, "{status:?}");
        assert_eq!(live(1).answers, 1000);
        assert!((status.relays[1].a_us / 1e3 - live(1).factor).abs() < 1e-6, "{status:?}");
        assert!((status.relays[1].load - live(1).factor * 0.01).abs() < 1e-6, "{status:?}");
        let more: Vec<_> = (0..20).map(|_| balancer.admit(CLIENT, kind, now).unwrap()).collect();
        let at_first = more.iter().filter(|flow| flow.server().unwrap().port() == 8000).count();
        assert!(at_first >= 18, "{at_first}");
        let events = seen.lock().unwrap().clone();
        assert_eq!(events.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["relay-drifts"]);
        assert!(events[0].1.contains("127.0.0.1:8001"), "{events:?}");
        for _ in 0..8 {
            now += Duration::from_secs(30);
            drop(balancer.admit(CLIENT, kind, now));
        }
        assert!(balancer.status().relays[1].live.is_some_and(|live| live.factor < 1.1));
        assert_eq!(seen.lock().unwrap().last().unwrap().0, "relay-steady");
    }

    #[test]
    fn one_client_has_no_more_flows_than_one_client_may() {
        let now = Instant::now();
        let balancer = balancer(PathPolicy::LeastLoad, &[(1, 1)], EventSink::default());
        let kind = FlowKind { rate: 1.0, ..KIND };
        let mut flows: Vec<_> =
            (0..200).map(|_| balancer.admit(CLIENT, kind, now).unwrap()).collect();
        assert_eq!(
            balancer.admit(CLIENT, kind, now).unwrap_err(),
            FlowRefusal::Client { limit: 200 }
        );
        let other = IpAddr::from([192, 0, 2, 1]);
        let _other = balancer.admit(other, kind, now).unwrap();
        assert_eq!(balancer.status().refused.get("client"), Some(&1));
        flows.remove(0);
        balancer.admit(CLIENT, kind, now).unwrap();
    }
}

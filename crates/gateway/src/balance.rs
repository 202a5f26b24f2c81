//! Balancing: the relay that a new flow goes to, and the flows that are refused.
//!
//! A flow is admitted to a relay if the relay's delay model says that it keeps its bound there, and
//! so do all flows admitted before. The flow has its place until its [`AdmittedFlow`] is dropped.

use gatewright_config as config;
use gatewright_delay::{
    FlowAdmission, FlowId, FlowKind, FlowRefusal, LinearFit, NodeLoad, NodeModel, QueueModel,
    relay_paths,
};
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_planes::{FlowBalance, FlowBalanceCounts, FlowRelay};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    admitted: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// A flow with its place at a relay, until this value is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedFlow {
    balancer: Arc<Balancer>,
    id: FlowId,
    /// The relay's address.
    pub(crate) server: SocketAddr,
}

impl Drop for AdmittedFlow {
    fn drop(&mut self) {
        self.balancer.lock().admission.release(self.id);
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
}

impl Balancer {
    /// A balance without flows, whose refusals are logged by `log`.
    pub fn new(described: &config::Balance, log: EventSink) -> Arc<Self> {
        let models = described.relays.iter().map(model);
        let admission = FlowAdmission::new(models, described.flows_max);
        let state = BalanceState { admission, admitted: 0, refused: BTreeMap::new() };
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
    pub(crate) fn admit(self: &Arc<Self>, kind: FlowKind) -> Result<AdmittedFlow, FlowRefusal> {
        let config::Balance { name, policy, relays, .. } = &self.described;
        let hops: Vec<u8> = relays.iter().map(|relay| relay.hops).collect();
        let candidates = relay_paths(*policy, &hops);
        let mut state = self.lock();
        let placed = state.admission.place(kind, &candidates, *policy).and_then(|flow| {
            let relay = flow.path.first().and_then(|&at| relays.get(at));
            Ok((flow.id, relay.ok_or(FlowRefusal::NoPath)?.address.value))
        });
        let refusal = match placed {
            Ok((id, server)) => {
                state.admitted += 1;
                return Ok(AdmittedFlow { balancer: Arc::clone(self), id, server });
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

    /// Its state at this moment.
    pub(crate) fn status(&self) -> BalanceStatus {
        let state = self.lock();
        let relays = self.described.relays.iter().enumerate();
        let relays = relays.map(|(at, relay)| {
            let load = state.admission.load(at).unwrap_or_default();
            relay_status(relay, state.admission.flow_count(at), load)
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
) -> BalancedRelayStatus {
    let model = model(relay);
    BalancedRelayStatus {
        address: relay.address.value,
        flows,
        load: load.utilisation,
        a_us: model.service.intercept * 1e6,
        c_ns: model.service.slope * 1e9,
    }
}

/// A balance of the data plane, by its counts.
pub(crate) fn status_of(
    described: &config::Balance,
    flow: &config::BalancedFlow,
    counts: FlowBalanceCounts,
) -> BalanceStatus {
    let kind = flow_kind(flow);
    let relay = |(relay, (admitted, ended)): (&config::BalancedRelay, (&u64, &u64))| {
        // A flow that ends between the two readings is counted as one that goes on.
        let flows = admitted.saturating_sub(*ended);
        let count = u32::try_from(flows).unwrap_or(u32::MAX);
        let load = NodeLoad::default().with(&model(relay), &kind, count.into());
        relay_status(relay, usize::try_from(flows).unwrap_or(usize::MAX), load)
    };
    let flows = counts.admitted.iter().zip(&counts.ended);
    BalanceStatus {
        name: described.name.value.clone(),
        policy: described.policy.name(),
        admitted: counts.admitted.iter().sum(),
        relays: described.relays.iter().zip(flows).map(relay).collect(),
        refused: counts.refused.into_iter().filter(|(_, count)| *count > 0).collect(),
    }
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
        let seen = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&seen);
        let log = EventSink::new(move |event| its.lock().unwrap().push(event));
        let balancer = balancer(PathPolicy::LeastLoad, &[(1, 1), (1, 1)], log);
        let mut flows: Vec<_> = (0..104).map(|_| balancer.admit(KIND).unwrap()).collect();
        let count = |status: &BalanceStatus| -> Vec<usize> {
            status.relays.iter().map(|relay| relay.flows).collect()
        };
        assert_eq!(count(&balancer.status()), [52, 52]);
        assert!(balancer.admit(KIND).is_err());
        flows.remove(0);
        assert_eq!(count(&balancer.status()).iter().sum::<usize>(), 103);
        let _place = balancer.admit(KIND).unwrap();
        let status = balancer.status();
        assert_eq!((status.admitted, status.refused.get("late")), (105, Some(&1)), "{status:?}");
        assert!((status.relays[0].load - 0.52).abs() < 1e-9);
        let events = seen.lock().unwrap();
        assert_eq!((events.len(), events[0].kind), (1, "flow-refused"));
        assert!(events[0].text.contains("its bound is 6000"), "{}", events[0].text);
    }

    #[test]
    fn the_fewest_hops_and_the_speeds_decide_where_they_are_asked_for() {
        let near = balancer(PathPolicy::MinHop, &[(1, 2), (4, 1), (4, 1)], EventSink::default());
        let slow = FlowKind { bound_us: 60_000.0, ..KIND };
        let flows: Vec<_> = (0..4).map(|_| near.admit(slow).unwrap()).collect();
        assert!(flows.iter().all(|flow| flow.server.port() != 8000), "two hops away");
        let fast = balancer(PathPolicy::Weighted, &[(1, 1), (4, 1)], EventSink::default());
        let flows: Vec<_> = (0..10).map(|_| fast.admit(slow).unwrap()).collect();
        let at_first = flows.iter().filter(|flow| flow.server.port() == 8000).count();
        assert!((7..=9).contains(&at_first), "four fifths of 10: {at_first}");
    }
}

//! Admission of a UDP gateway's clients, or of a route's flows, to the relays that can be reached.
//!
//! A relay is left out after an ICMP error about a datagram to it, after a silence that is long by
//! its own measure, or, as a next hop, when nobody tells its link-layer address. Its flows go to
//! another relay with their next datagram, if one can be reached.

use super::balance::{FlowBalance, FlowRelay, RelayItem, balance_place};
use gatewright_delay::{
    ClientFlows, FactorChange, FlowAdmission, FlowId, Reachability, ServiceFactor, reachable_paths,
    relay_paths,
};
use gatewright_stack::Counter;
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// How many times as many datagrams as a relay has ever left unanswered in a row make a silence.
const SILENT_RUNS: u64 = 8;

/// The most of these that count: a relay that seldom answers would never be called silent.
const RUN_MAX: u64 = 64;

/// A relay has not answered for at least this long when it is called silent.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// How long a flow tries a relay: resolution of a neighbour fails after 3 s (RFC 4861 §10), and
/// answers that come later than this count for nothing.
const TRIAL_FOR: Duration = Duration::from_secs(5);

/// How often measurements of relays that give no answers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An admitted flow.
#[derive(Debug)]
pub(crate) struct ClientFlow {
    id: FlowId,
    client: IpAddr,
    relay: usize,
}

/// A relay, and its signs of life.
#[derive(Clone, Copy, Debug, Default)]
struct WatchedRelay {
    reachability: Reachability<Duration>,
    /// The flow that tries it again, and since when.
    trial: Option<(FlowId, Duration)>,
    /// Datagrams sent to it since its last answer or failure.
    unanswered: u64,
    /// When the first of these was sent.
    since: Duration,
    /// The most datagrams before one of its answers, at most [`RUN_MAX`]; 0 if it has never
    /// answered: then its silence says nothing.
    longest: u64,
    /// What its answers say of its service, and the factor that is shown, in thousandths; `None`
    /// unless it is live.
    factor: Option<(ServiceFactor, u64)>,
}

impl WatchedRelay {
    fn is_tried_by(&self, flow: &ClientFlow) -> bool {
        self.trial.is_some_and(|(id, _)| id == flow.id)
    }

    /// Whether it was tried for long enough to tell.
    fn is_trial_over(&self, now: Duration) -> bool {
        self.trial.is_some_and(|(_, since)| now.saturating_sub(since) >= TRIAL_FOR)
    }

    fn is_silent(&self, now: Duration) -> bool {
        self.longest > 0
            && self.unanswered > SILENT_RUNS * self.longest
            && now.saturating_sub(self.since) >= SILENT_FOR
    }
}

/// Admits the clients of a UDP gateway, or the flows of a route, to relays.
pub(crate) struct ClientAdmission {
    balance: FlowBalance,
    /// The paths of a flow while all relays can be reached.
    candidates: Vec<Vec<usize>>,
    admission: FlowAdmission,
    clients: ClientFlows,
    relays: Vec<WatchedRelay>,
    counters: Vec<Counter>,
    /// The refusal of all further flows, by its place among the reasons, and its end. All are of one
    /// kind, so it holds until one ends or a relay may be back: a refused one costs no computation.
    full: Option<(usize, Duration)>,
    /// When measurements of all relays are looked at again.
    next_look: Duration,
    /// No flow ends before this time.
    next_end: Duration,
    /// Whether a relay was left out, or has come back, since the last look.
    has_changed: bool,
}

impl ClientAdmission {
    pub(crate) fn new(balance: FlowBalance, counters: Vec<Counter>) -> Self {
        let hops: Vec<u8> = balance.relays.iter().map(|relay| relay.hops).collect();
        let models = balance.relays.iter().map(|relay| relay.model);
        let watched = |relay: &FlowRelay| WatchedRelay {
            factor: relay.is_live.then(|| (ServiceFactor::new(relay.model, relay.path), 0)),
            ..WatchedRelay::default()
        };
        Self {
            candidates: relay_paths(balance.policy, &hops),
            admission: FlowAdmission::new(models, balance.flows_max),
            clients: ClientFlows::new(balance.flows_per_client),
            relays: balance.relays.iter().map(watched).collect(),
            balance,
            counters,
            full: None,
            next_look: Duration::ZERO,
            next_end: Duration::MAX,
            has_changed: false,
        }
    }

    /// Whether one of the relays has this address.
    pub(crate) fn is_relay(&self, address: SocketAddr) -> bool {
        self.balance.relays.iter().any(|relay| relay.address == address)
    }

    /// The addresses of the relays, each with its place.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (usize, SocketAddr)> + '_ {
        self.balance.relays.iter().map(|relay| relay.address).enumerate()
    }

    /// Whether flows may have ended by `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now >= self.next_end
    }

    /// Sets when the next flow can end.
    pub(crate) const fn set_next_end(&mut self, next_end: Duration) {
        self.next_end = next_end;
    }

    /// Whether a relay was left out or has come back since the last call.
    pub(crate) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.has_changed, false)
    }

    /// Admits a flow of `client` that ends at `until` if it stays silent; `None` if it is refused,
    /// which is counted.
    pub(crate) fn admit(
        &mut self,
        client: IpAddr,
        now: Duration,
        until: Duration,
    ) -> Option<(ClientFlow, SocketAddr)> {
        self.look(now);
        if let Some((reason, _)) = self.full.filter(|&(_, end)| now < end) {
            self.count(reason);
            return None;
        }
        if let Err(refusal) = self.clients.check(client) {
            self.count(refusal.place());
            return None;
        }
        let FlowBalance { kind, policy, relays, .. } = &self.balance;
        let reachable;
        let candidates = if self.relays.iter().any(|its| its.reachability.is_left_out()) {
            let hops = relays.iter().map(|relay| relay.hops);
            let its = self.relays.iter().map(|its| &its.reachability);
            reachable = reachable_paths(*policy, hops.zip(its), &[], now);
            &reachable
        } else {
            &self.candidates
        };
        let refusal = match self.admission.place(*kind, candidates, *policy) {
            Ok(flow) => {
                let relay = flow.path.first().copied().unwrap_or_default();
                let address = relays.get(relay)?.address;
                let its = self.relays.get_mut(relay)?;
                if its.reachability.choose(now) {
                    its.trial = Some((flow.id, now));
                }
                self.clients.add(client);
                self.next_end = self.next_end.min(until);
                self.count(balance_place(relay, RelayItem::Admitted));
                return Some((ClientFlow { id: flow.id, client, relay }, address));
            }
            Err(refusal) => refusal,
        };
        let ends = self.relays.iter().filter_map(|its| its.reachability.left_out_until());
        let end = ends.filter(|end| *end > now).min().unwrap_or(Duration::MAX);
        self.full = Some((refusal.place(), end));
        self.count(refusal.place());
        None
    }

    /// Ends a flow.
    pub(crate) fn end(&mut self, flow: &ClientFlow, now: Duration) {
        if let Some(its) = self.relays.get_mut(flow.relay).filter(|its| its.is_tried_by(flow)) {
            if its.is_trial_over(now) {
                self.judge(flow.relay, now);
            } else {
                its.trial = None;
                its.reachability.abandon_trial();
            }
        }
        if self.admission.release(flow.id).is_some() {
            self.full = None;
            self.clients.remove(flow.client);
            self.count(balance_place(flow.relay, RelayItem::Ended));
        }
    }

    /// Whether a flow is to go to another relay: its own is left out, and another one is not.
    pub(crate) fn leaves(&self, flow: &ClientFlow) -> bool {
        let is_left_out = |its: &WatchedRelay| its.reachability.is_left_out();
        let leaves = |its: &WatchedRelay| is_left_out(its) && !its.is_tried_by(flow);
        self.relays.get(flow.relay).is_some_and(leaves) && !self.relays.iter().all(is_left_out)
    }

    /// Records that a datagram of a flow goes to its relay, which may end the relay's trial, or show
    /// that it is silent.
    pub(crate) fn sent(&mut self, flow: &ClientFlow, now: Duration) {
        let Some(its) = self.relays.get_mut(flow.relay) else { return };
        if its.unanswered == 0 {
            its.since = now;
        }
        its.unanswered = its.unanswered.saturating_add(1);
        let is_trial = its.is_tried_by(flow);
        if is_trial && its.is_trial_over(now) {
            self.judge(flow.relay, now);
        } else if its.is_silent(now) {
            self.failed(flow.relay, is_trial, now);
        }
    }

    /// Records an answer to a flow by its relay.
    pub(crate) fn answered(&mut self, flow: &ClientFlow) {
        if let Some(its) = self.relays.get_mut(flow.relay) {
            its.longest = its.longest.max(its.unanswered.clamp(1, RUN_MAX));
            its.unanswered = 0;
            self.reached(flow.relay);
        }
    }

    /// Records that an answer to a flow came so long after its datagrams of so many octets.
    pub(crate) fn measured(
        &mut self,
        flow: &ClientFlow,
        now: Duration,
        (time, octets): (Duration, u32),
    ) {
        let its = self.relays.get_mut(flow.relay).and_then(|its| its.factor.as_mut());
        let Some((factor, _)) = its else { return };
        factor.answered(now, time, octets);
        self.count(balance_place(flow.relay, RelayItem::Answers));
        self.look_at(flow.relay, now);
    }

    /// Ends the measurements that are due. A refused flow asks with each of its packets, so this is
    /// done once in a while.
    fn look(&mut self, now: Duration) {
        if now < self.next_look {
            return;
        }
        self.next_look = now.saturating_add(LOOK_EVERY);
        for relay in 0..self.relays.len() {
            self.look_at(relay, now);
        }
    }

    fn look_at(&mut self, relay: usize, now: Duration) {
        let its = self.relays.get_mut(relay).and_then(|its| its.factor.as_mut());
        let Some((factor, shown)) = its else { return };
        let Some(change) = factor.look(now) else { return };
        let permille = factor.permille();
        // A counter that is only added to shows a value that goes up and down.
        let more = permille.wrapping_sub(std::mem::replace(shown, permille));
        self.admission.set_service_factor(relay, factor.factor());
        // It may carry more than before.
        self.full = None;
        self.add(balance_place(relay, RelayItem::FactorPermille), more);
        match change {
            FactorChange::Moved => {}
            FactorChange::Drifts => self.count(balance_place(relay, RelayItem::Drifted)),
            FactorChange::Steady => self.count(balance_place(relay, RelayItem::Steady)),
        }
    }

    /// Records an ICMP error about a datagram of a flow. Without a datagram since the last answer it
    /// is forged, or late.
    pub(crate) fn refused(&mut self, flow: &ClientFlow, now: Duration) {
        if let Some(its) = self.relays.get(flow.relay).filter(|its| its.unanswered > 0) {
            self.failed(flow.relay, its.is_tried_by(flow), now);
        }
    }

    /// Ends a trial that has lasted long enough: a relay that has answered before must have answered
    /// again, and of another one no failure was heard.
    fn judge(&mut self, relay: usize, now: Duration) {
        if self.relays.get(relay).is_some_and(|its| its.longest > 0) {
            self.failed(relay, true, now);
        } else {
            self.reached(relay);
        }
    }

    fn reached(&mut self, relay: usize) {
        let Some(its) = self.relays.get_mut(relay) else { return };
        its.trial = None;
        if its.reachability.accepted() {
            (self.full, self.has_changed) = (None, true);
            self.count(balance_place(relay, RelayItem::Back));
        }
    }

    /// Records a failure to reach a relay; `is_trial` if it ends the trial of one that is left out.
    pub(crate) fn failed(&mut self, relay: usize, is_trial: bool, now: Duration) {
        let Some(its) = self.relays.get_mut(relay) else { return };
        its.unanswered = 0;
        if is_trial {
            its.trial = None;
        }
        let is_first = its.reachability.failed(now, is_trial);
        (self.full, self.has_changed) = (None, true);
        self.count(balance_place(relay, RelayItem::Unreachable));
        if is_first {
            self.count(balance_place(relay, RelayItem::LeftOut));
        }
    }

    fn count(&self, place: usize) {
        self.add(place, 1);
    }

    fn add(&self, place: usize, more: u64) {
        if let Some(counter) = self.counters.get(place) {
            counter.add(more);
        }
    }
}

//! ROUTE REQUESTs: relays pass them on, the target answers.

use super::MeshNode;
use crate::disjoint::{RecordedRoute, disjoint};
use crate::edge::{Adjacency, PathClass};
use crate::identity::NodeId;
use crate::message::{HOPS_MAX, Message, RecordedHop, RequestRelays, RouteRequest};
use crate::routing::RequestWay;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::{BTreeMap, VecDeque};

/// Requests that a node remembers, to recognise copies.
const REQUESTS_MAX: usize = 1_024;

/// How long a request is remembered at least while there is room.
const REQUEST_LIFE: Duration = Duration::from_secs(10);

/// Copies of a request that a relay passes on at the most, if it asks for as many paths: the first, and
/// two whose records are node-disjoint from it and from each other.
const COPIES_MAX: u8 = 3;

/// Copies of a request that the target considers.
const RECORDS_MAX: usize = 16;

/// Requests that a target answers at the same time.
const ANSWERS_MAX: usize = 256;

/// From the first copy to the answers by further paths.
const SETTLE: Duration = Duration::from_millis(40);

/// Paths that a target offers beyond the first.
pub(super) const PATHS_OFFERED: u8 = 3;

/// Requests of one origin that are passed on in a second, and at once.
const ORIGIN_PER_SECOND: u32 = 10;
const ORIGIN_BURST: u32 = 20;

/// Origins whose rates are remembered.
const ORIGINS_MAX: usize = 1_024;

/// Relays that a request along a route may pass: as many as a record has.
const HOPS_LEFT_MAX: u8 = 32;

/// What an origin asks for.
#[derive(Clone, Debug)]
pub(super) struct RouteQuery {
    /// The node or station that is searched.
    pub(super) target: NodeId,
    /// Requests of the same search before this one.
    pub(super) attempt: usize,
    /// Relays that a flood may pass.
    pub(super) hops_left: u8,
    /// Whether the search is one in the background.
    pub(super) background: bool,
    /// Paths that are wanted.
    pub(super) paths: u8,
    /// The nodes that relay a flood.
    pub(super) relays: RequestRelays,
    /// Whether paths are to avoid the listed nodes.
    pub(super) avoids: bool,
    /// Nodes to avoid, or near which the relays are.
    pub(super) listed: Vec<NodeId>,
}

/// A request by its origin, the origin's start, and its number.
type RequestId = (NodeId, u32, u32);

/// Allowance of one origin.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    requests: u32,
    at: Duration,
}

/// A request that this node is the target of.
#[derive(Clone, Debug)]
struct Answer {
    request: RouteRequest,
    routes: Vec<(RecordedRoute, Adjacency, Vec<RecordedHop>)>,
    settle_at: Duration,
}

/// What a node has done with the copies of a request.
#[derive(Clone, Debug, Default)]
struct RelayedCopies {
    /// Copies that the node passes on at the most.
    copies_max: usize,
    /// Records of the copies that were passed on; each is empty where one is all.
    records: Vec<Vec<NodeId>>,
}

impl RelayedCopies {
    /// Whether one more copy is passed on: its record is node-disjoint from those of the others. An
    /// empty record has nothing in common with any, but only one copy has it.
    fn takes(&mut self, request: &RouteRequest) -> bool {
        if self.records.len() >= self.copies_max {
            return false;
        }
        let again = !self.records.is_empty();
        let relays = || request.record.iter().map(|hop| hop.node);
        let is_new = |other: &Vec<NodeId>| !relays().any(|node| other.contains(&node));
        if again && (request.record.is_empty() || !self.records.iter().all(is_new)) {
            return false;
        }
        self.records.push(if self.copies_max > 1 { relays().collect() } else { Vec::new() });
        true
    }
}

/// Requests that have passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    passed: BTreeMap<RequestId, RelayedCopies>,
    order: VecDeque<(Duration, RequestId)>,
    answers: BTreeMap<RequestId, Answer>,
    origins: BTreeMap<NodeId, Allowance>,
}

impl Requests {
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.answers.values().map(|answer| answer.settle_at).min()
    }

    /// Remembers a new request; the oldest give way.
    fn remember(&mut self, now: Duration, id: RequestId, copies_max: usize) {
        let old = |&(at, _): &(Duration, RequestId)| now.saturating_sub(at) > REQUEST_LIFE;
        while self.order.len() >= REQUESTS_MAX || self.order.front().is_some_and(old) {
            if let Some((_, id)) = self.order.pop_front() {
                self.passed.remove(&id);
            }
        }
        self.order.push_back((now, id));
        self.passed.insert(id, RelayedCopies { copies_max, records: Vec::new() });
    }

    /// Whether an origin may flood one more request.
    fn allows(&mut self, now: Duration, origin: NodeId) -> bool {
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(&origin) {
            // Whoever has been silent for the time of a whole burst has a whole burst again.
            let rest = Duration::from_secs(u64::from(ORIGIN_BURST / ORIGIN_PER_SECOND));
            self.origins.retain(|_, allowance| now.saturating_sub(allowance.at) < rest);
            if self.origins.len() >= ORIGINS_MAX {
                return false;
            }
        }
        let full = Allowance { requests: ORIGIN_BURST, at: now };
        let allowance = self.origins.entry(origin).or_insert(full);
        let passed = now.saturating_sub(allowance.at).as_millis();
        let earned = passed.saturating_mul(ORIGIN_PER_SECOND.into()) / 1_000;
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(ORIGIN_BURST);
            allowance.requests = ORIGIN_BURST.min(allowance.requests.saturating_add(earned));
            allowance.at = now;
        }
        if allowance.requests == 0 {
            return false;
        }
        allowance.requests -= 1;
        true
    }
}

impl MeshNode {
    /// Processes a ROUTE REQUEST.
    pub(super) fn request(&mut self, now: Duration, from: Adjacency, request: RouteRequest) {
        let own = self.settings.id;
        let last = request.record.last().map_or(request.origin, |hop| hop.node);
        let visited = request.record.iter().any(|hop| hop.node == own);
        if last != from.node || request.origin == own || visited {
            self.counters.requests_repeated += 1;
            return;
        }
        let usable = self.near.all.get(&from).is_some_and(crate::neighbour::Neighbour::is_usable);
        if !usable {
            return;
        }
        if request.target == own || self.bridge.port_of(request.target).is_some() {
            self.asked(now, from, request);
        } else {
            self.relay(now, from, request);
        }
    }

    /// The hop that brought a request, as an entry of its record.
    fn last_hop(&self, from: Adjacency) -> RecordedHop {
        let delay_us = self.near.properties(from.link).delay_us;
        let delay_us = delay_us.saturating_add(self.settings.relay_delay.bounded_us());
        RecordedHop { node: self.settings.id, cost: self.near.cost(from), delay_us }
    }

    fn relay(&mut self, now: Duration, from: Adjacency, mut request: RouteRequest) {
        let full = request.record.len() >= HOPS_MAX || request.hops_left == 0;
        if full || (request.avoids && request.listed.contains(&self.settings.id)) {
            return;
        }
        let id = (request.origin, request.origin_epoch, request.request);
        if !self.requests.passed.contains_key(&id) {
            if !self.requests.allows(now, request.origin) {
                self.counters.requests_limited += 1;
                return;
            }
            let copies_max = self.copies_max(&request);
            self.requests.remember(now, id, copies_max);
        }
        if !self.requests.passed.get_mut(&id).is_some_and(|passed| passed.takes(&request)) {
            self.counters.requests_repeated += 1;
            return;
        }
        request.hops_left -= 1;
        request.record.push(self.last_hop(from));
        request.frame_limit = self.limit(request.frame_limit, from.link);
        let way = if request.routed {
            self.routing.follow(now, &self.near, &request)
        } else {
            RequestWay::Flood
        };
        match way {
            RequestWay::Flood => self.flood(&Message::Request(request), Some(from)),
            RequestWay::Next(next) => self.send_to(next, &Message::Request(request)),
            RequestWay::Nowhere => {
                self.counters.requests_unrouted += 1;
                return;
            }
        }
        self.counters.requests_relayed += 1;
    }

    /// Copies of a request that this node passes on.
    fn copies_max(&mut self, request: &RouteRequest) -> usize {
        let relays = match request.relays {
            RequestRelays::All => true,
            _ if request.routed => true,
            RequestRelays::Elected => self.relays_broadcasts(),
            RequestRelays::Near => self.is_near(request),
        };
        match (relays, self.is_classic()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => request.paths.clamp(1, COPIES_MAX).into(),
        }
    }

    /// Whether this node is one of those near which a request stays, a neighbour of one, or a neighbour of
    /// such a neighbour, as the lists in I'M ALIVE say.
    fn is_near(&self, request: &RouteRequest) -> bool {
        let mut centres = request.listed.clone();
        centres.extend([request.origin, request.target]);
        centres.sort_unstable();
        let is_centre = |node: &NodeId| centres.binary_search(node).is_ok();
        let mut near = self.near.all.iter().filter(|(_, known)| known.is_usable());
        is_centre(&self.settings.id)
            || near.any(|(at, known)| is_centre(&at.node) || known.list.iter().any(is_centre))
    }

    /// The smaller of two frame limits, of which 0 is none.
    fn limit(&self, so_far: u16, link: LinkIndex) -> u16 {
        match (so_far, self.near.properties(link).frame_limit) {
            (0, limit) | (limit, 0) => limit,
            (one, other) => one.min(other),
        }
    }

    /// Sends a message on every link; on that by which it came only if it has not reached all there.
    pub(super) fn flood(&mut self, message: &Message<'_>, from: Option<Adjacency>) {
        let links = self.flooded_links(from);
        if links.is_empty() {
            return;
        }
        let octets = self.encode_unnumbered(message);
        self.send_on(&links, &octets);
    }

    /// The links on which a message goes on that has come from a neighbour, or begins here.
    pub(super) fn flooded_links(&self, from: Option<Adjacency>) -> Vec<LinkIndex> {
        let done = from.filter(|&from| !self.near.has_hidden(from)).map(|from| from.link);
        self.near.links.keys().copied().filter(|&link| Some(link) != done).collect()
    }

    /// Sends an encoded message to all neighbours of some links.
    pub(super) fn send_on(&mut self, links: &[LinkIndex], octets: &[u8]) {
        for &link in links {
            let (_, octets) = self.with_sequence(octets.to_vec());
            self.counters.sent += 1;
            self.transmit(link, None, octets);
        }
    }

    /// A request has reached its target.
    fn asked(&mut self, now: Duration, from: Adjacency, request: RouteRequest) {
        let id = (request.origin, request.origin_epoch, request.request);
        let last = self.last_hop(from);
        let relays = request.record.iter().map(|hop| (hop.node, hop.cost)).collect();
        let route = RecordedRoute { relays, last: last.cost };
        let mut hops = request.record.clone();
        hops.push(last);
        let first = !self.requests.passed.contains_key(&id);
        if first {
            if !self.requests.allows(now, request.origin)
                || self.requests.answers.len() >= ANSWERS_MAX
            {
                self.counters.requests_limited += 1;
                return;
            }
            self.requests.remember(now, id, 0);
        }
        let answered = self.requests.passed.get(&id).map_or(0, |passed| passed.records.len());
        if first || (self.is_classic() && answered < usize::from(PATHS_OFFERED)) {
            if let Some(passed) = self.requests.passed.get_mut(&id) {
                passed.records.push(Vec::new());
            }
            self.answer(now, from, &request, &hops);
        }
        if self.is_classic() || request.paths <= 1 {
            return;
        }
        if first {
            let settle_at = now + SETTLE;
            let answer = Answer { request, routes: vec![(route, from, hops)], settle_at };
            self.requests.answers.insert(id, answer);
        } else if let Some(answer) = self.requests.answers.get_mut(&id)
            && answer.routes.len() < RECORDS_MAX
        {
            answer.routes.push((route, from, hops));
        }
    }

    /// Answers settled requests by further paths, as disjoint as their records allow.
    pub(super) fn tick_answers(&mut self, now: Duration) {
        let due: Vec<RequestId> = (self.requests.answers.iter())
            .filter(|(_, answer)| answer.settle_at <= now)
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            let Some(answer) = self.requests.answers.remove(&id) else { continue };
            let count = u32::from(answer.request.paths.min(PATHS_OFFERED));
            let routes: Vec<RecordedRoute> =
                answer.routes.iter().map(|(route, ..)| route.clone()).collect();
            let Some(first) = routes.first() else { continue };
            let first: Vec<NodeId> = first.relays.iter().map(|&(node, _)| node).collect();
            for relays in disjoint(&routes, count) {
                if relays != first
                    && let Some((from, hops)) = self.recorded(&answer, &relays)
                {
                    self.answer(now, from, &answer.request, &hops);
                }
            }
        }
    }

    /// The hops of a path over recorded links.
    fn recorded(
        &self,
        answer: &Answer,
        relays: &[NodeId],
    ) -> Option<(Adjacency, Vec<RecordedHop>)> {
        let origin = answer.request.origin;
        let mut before = origin;
        let mut hops = Vec::new();
        for &node in relays {
            let mut all = answer.routes.iter();
            hops.push(all.find_map(|(.., hops)| hop(origin, hops, before, node))?);
            before = node;
        }
        let own = self.settings.id;
        let mut last = answer
            .routes
            .iter()
            .filter_map(|(_, from, hops)| hop(origin, hops, before, own).map(|last| (*from, last)));
        let (from, last) = last.next()?;
        hops.push(last);
        Some((from, hops))
    }

    /// Asks for paths to a destination, by the way that route finding says.
    pub(super) fn ask(&mut self, now: Duration, query: RouteQuery) {
        let RouteQuery { target, attempt, hops_left, background, paths, relays, avoids, listed } =
            query;
        self.counters.searches += 1;
        let mut request = RouteRequest {
            origin: self.settings.id,
            origin_epoch: self.settings.epoch,
            request: self.next_number(),
            target,
            class: PathClass::BULK.number(),
            background,
            routed: false,
            relays,
            avoids,
            frame_limit: 0,
            paths,
            hops_left,
            listed,
            record: Vec::new(),
        };
        match self.routing.begin(now, &self.near, &request, attempt) {
            RequestWay::Flood => self.flood(&Message::Request(request), None),
            RequestWay::Next(next) => {
                request.routed = true;
                // A route has its length, and no ring bounds it.
                request.hops_left = HOPS_LEFT_MAX;
                self.send_to(next, &Message::Request(request));
            }
            RequestWay::Nowhere => self.counters.requests_unrouted += 1,
        }
    }
}

/// The hop from `before` to `node` in a record, if it has one.
fn hop(origin: NodeId, hops: &[RecordedHop], before: NodeId, node: NodeId) -> Option<RecordedHop> {
    let mut previous = origin;
    for hop in hops {
        if previous == before && hop.node == node {
            return Some(*hop);
        }
        previous = hop.node;
    }
    None
}

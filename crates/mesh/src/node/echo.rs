//! ECHO in the associated channel: which nodes a path leads through, and in which time.

use super::MeshNode;
use crate::edge::{EchoOutcome, EchoToken, LabelledHop, MeshOutput, PathClass};
use crate::identity::NodeId;
use crate::labels::LabelDirection;
use crate::layout::{EchoHeader, EchoHeaderFields};
use core::time::Duration;
use gatewright_wire::mpls::Label;
use std::collections::BTreeMap;

/// TTL of the label of an answer and of a probe: the longest path.
pub(super) const CHANNEL_TTL: u8 = 64;

/// Requests of this node that wait for their answers at the most.
const ECHOES_MAX: usize = 64;

/// How long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long a path is waited for: longer than the whole search.
const PATH_WITHIN: Duration = Duration::from_secs(3);

/// Answers in a second at the most.
const ANSWERS_PER_SECOND: u32 = 100;

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;

/// A request of this node.
#[derive(Clone, Copy, Debug)]
struct EchoRequest {
    token: EchoToken,
    destination: NodeId,
    class: PathClass,
    ttl: u8,
    /// When it was sent; `None` while there is no path.
    sent_at: Option<Duration>,
    until: Duration,
}

/// Requests of this node by number, and the answers that it has given lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes {
    requests: BTreeMap<u32, EchoRequest>,
    second: Duration,
    answered: u32,
}

impl Echoes {
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.requests.values().map(|request| request.until).min()
    }

    /// Whether one more answer may be given.
    fn may_answer(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.answered = 0;
        }
        self.answered = self.answered.saturating_add(1);
        self.answered <= ANSWERS_PER_SECOND
    }
}

impl MeshNode {
    /// Sends an echo request, or has its path searched first.
    pub(super) fn echo(
        &mut self,
        now: Duration,
        token: EchoToken,
        destination: NodeId,
        (class, ttl): (PathClass, u8),
    ) {
        if self.echoes.requests.len() >= ECHOES_MAX {
            self.output(MeshOutput::Echoed { token, outcome: EchoOutcome::Refused });
            return;
        }
        if !self.want_path(now, destination, class) {
            self.output(MeshOutput::Echoed { token, outcome: EchoOutcome::Unreachable });
            return;
        }
        let number = self.next_number();
        let until = now + PATH_WITHIN;
        let request = EchoRequest { token, destination, class, ttl, sent_at: None, until };
        self.echoes.requests.insert(number, request);
        self.send_echoes(now, destination);
    }

    /// Sends the requests to a destination that waited for its path.
    pub(super) fn send_echoes(&mut self, now: Duration, destination: NodeId) {
        let waiting: Vec<(u32, PathClass, u8)> = (self.echoes.requests.iter())
            .filter(|(_, request)| request.destination == destination && request.sent_at.is_none())
            .map(|(&number, request)| (number, request.class, request.ttl))
            .collect();
        for (number, class, ttl) in waiting {
            let Some(hop) = self.primary_hop(destination, class) else { continue };
            if let Some(request) = self.echoes.requests.get_mut(&number) {
                request.sent_at = Some(now);
                request.until = now + ANSWER_WITHIN;
            }
            let fields = EchoHeaderFields {
                kind: REQUEST,
                ttl,
                hops: 0,
                origin: self.settings.id,
                responder: destination,
                number,
                label: Label::IPV4_EXPLICIT_NULL,
            };
            self.send_in_channel(hop, ttl, &fields);
        }
    }

    fn send_in_channel(&mut self, hop: LabelledHop, ttl: u8, fields: &EchoHeaderFields) {
        let octets = fields.emit().to_vec();
        self.output(MeshOutput::Channel { hop, ttl, octets });
    }

    /// Processes a message in the associated channel.
    pub(super) fn channel(&mut self, now: Duration, label: Label, ttl: u8, octets: &[u8]) {
        // A probe, perhaps padded by Ethernet: its label is counted elsewhere.
        if octets.first().is_none_or(|&first| first == 0) {
            return self.probed(now, label, octets);
        }
        let head = EchoHeader::split(octets).ok().map(|(head, _)| head);
        let Some(head) = head.filter(|head| head.has_constants()) else {
            self.counters.malformed += 1;
            return;
        };
        match head.kind() {
            REQUEST => self.echo_requested(now, (label, ttl), head),
            ANSWER if head.origin() == self.settings.id => self.echo_answered(now, head),
            _ => self.counters.malformed += 1,
        }
    }

    fn echo_requested(&mut self, now: Duration, (label, ttl): (Label, u8), head: EchoHeader<'_>) {
        let back = self.way_back(label, head.origin());
        let Some(hop) = back.filter(|_| self.echoes.may_answer(now)) else {
            self.counters.echoes_unanswered += 1;
            return;
        };
        self.counters.echoes += 1;
        let answer = EchoHeaderFields {
            kind: ANSWER,
            ttl: head.ttl(),
            hops: head.ttl().saturating_sub(ttl).saturating_add(1),
            origin: head.origin(),
            responder: self.settings.id,
            number: head.number(),
            label,
        };
        self.send_in_channel(hop, CHANNEL_TTL, &answer);
    }

    /// First hop of an answer to what arrived with a label: the other direction of its path, or, at
    /// its end in `classic`, the own path to the origin.
    fn way_back(&self, label: Label, origin: NodeId) -> Option<LabelledHop> {
        let (path, direction) = self.labels.owner(label)?;
        let segment = self.segments.get(&path)?;
        let (back, ahead) = match direction {
            LabelDirection::ToTarget => (segment.upstream.as_ref()?, &segment.downstream),
            LabelDirection::ToOrigin => (segment.downstream.as_ref()?, &segment.upstream),
        };
        match back.leave() {
            Some((adjacency, label)) => Some(self.labelled(adjacency, label)),
            None if ahead.is_none() => self.primary_hop(origin, PathClass::CONTROL),
            None => None,
        }
    }

    fn echo_answered(&mut self, now: Duration, head: EchoHeader<'_>) {
        let sent_at = self.echoes.requests.get(&head.number()).and_then(|request| request.sent_at);
        let (Some(sent_at), Some(request)) = (sent_at, self.echoes.requests.remove(&head.number()))
        else {
            return;
        };
        let outcome = EchoOutcome::Answered {
            node: head.responder(),
            label: head.label(),
            hops: head.hops(),
            rtt: now.saturating_sub(sent_at),
        };
        self.output(MeshOutput::Echoed { token: request.token, outcome });
    }

    /// Ends the requests whose time is over.
    pub(super) fn tick_echoes(&mut self, now: Duration) {
        self.end_echoes(|request| request.until <= now);
    }

    /// Ends the requests that wait for a path that is not found.
    pub(super) fn lose_echoes(&mut self, destination: NodeId) {
        self.end_echoes(|request| request.destination == destination && request.sent_at.is_none());
    }

    fn end_echoes(&mut self, ends: impl Fn(&EchoRequest) -> bool) {
        let ended: Vec<EchoRequest> = self
            .echoes
            .requests
            .extract_if(.., |_, request| ends(request))
            .map(|(_, it)| it)
            .collect();
        for EchoRequest { token, sent_at, .. } in ended {
            let outcome =
                if sent_at.is_some() { EchoOutcome::Silent } else { EchoOutcome::Unreachable };
            self.output(MeshOutput::Echoed { token, outcome });
        }
    }
}

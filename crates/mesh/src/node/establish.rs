//! ROUTE REPLYs and their acknowledgements: paths are established hop by hop.
//!
//! A reply travels from the target to the origin and brings the labels of packets to the target. In
//! the profile `default` the acknowledgement of each hop brings the label of packets to the origin,
//! so one round trip establishes both directions and a flood leaves no state in relays.

use super::MeshNode;
use crate::edge::{Adjacency, MeshEvent, MeshOutput, PathClass};
use crate::identity::{NodeId, PathId, Reason};
use crate::labels::{LabelDirection, LabelOwner};
use crate::message::{Message, RecordedHop, RouteReply, RouteRequest};
use crate::segment::{AskedBypass, SEGMENTS_MAX, Segment, Side};
use core::time::Duration;
use gatewright_wire::mpls::Label;

/// Messages that wait for their acknowledgement at the most.
const UNACKNOWLEDGED_MAX: usize = 4_096;

/// Until a message is repeated for the first time; it doubles.
const REPEAT_FIRST: Duration = Duration::from_millis(20);

/// Repetitions of a message.
const REPEATS_MAX: u32 = 4;

/// A node's place on the way back along a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordPlace {
    /// The message has arrived.
    Origin,
    /// It goes on to this neighbour.
    Relay(Adjacency),
}

/// A message that waits for its acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct Unacknowledged {
    adjacency: Adjacency,
    octets: Vec<u8>,
    repeats: u32,
    sent_at: Duration,
    pub(super) repeat_at: Duration,
    awaited: Awaited,
}

/// What the acknowledgement of a message brings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    /// Nothing: it does not matter any more when it is given up.
    Nothing,
    /// The label of a path of which it is the ROUTE REPLY.
    Reply(PathId),
    /// The label of a bypass.
    Bypass(AskedBypass),
}

impl MeshNode {
    /// Answers a request by a path over `hops`, whose last leads to this node.
    pub(super) fn answer(
        &mut self,
        now: Duration,
        from: Adjacency,
        request: &RouteRequest,
        hops: &[RecordedHop],
    ) {
        let own = self.settings.id;
        let relays: Vec<NodeId> =
            hops.iter().map(|hop| hop.node).filter(|&node| node != own).collect();
        let sum = |number: fn(&RecordedHop) -> u16| {
            hops.iter().fold(0_u16, |sum, hop| sum.saturating_add(number(hop)))
        };
        let (cost, delay_us) = (sum(|hop| hop.cost), sum(|hop| hop.delay_us));
        let station = Some(request.target).filter(|&target| target != own);
        let known = (self.segments.iter()).find(|(path, segment)| {
            path.origin == request.origin
                && path.target == own
                && segment.bypassed_at.is_none()
                && segment.station == station
                && segment.relays == relays
                && segment.upstream.as_ref().is_some_and(|side| side.adjacency == from)
        });
        let known = known.map(|(&path, _)| path);
        let path = known.unwrap_or_else(|| PathId {
            origin: request.origin,
            target: own,
            number: self.next_number(),
        });
        if known.is_none() {
            let segment = Segment {
                upstream: Some(Side::new(from)),
                downstream: None,
                station,
                class: PathClass::of(request.class),
                relays,
                cost,
                delay_us,
                frame_limit: request.frame_limit,
                made_at: now,
                used_at: now,
                carried_at: None,
                bypassed_at: None,
            };
            if !self.insert(now, path, segment) {
                return;
            }
        } else if let Some(segment) = self.segments.get_mut(&path) {
            segment.cost = cost;
            segment.delay_us = delay_us;
        }
        if let Some(peer) = crate::segment::peer(path, own) {
            self.expect_path(now, peer);
        }
        self.send_reply(now, path, request.request);
    }

    /// Adds a path with the labels that this node gives for it; `false` if there is no room.
    fn insert(&mut self, now: Duration, path: PathId, mut segment: Segment) -> bool {
        if self.segments.len() >= SEGMENTS_MAX {
            self.counters.table_full += 1;
            return false;
        }
        let classic = self.is_classic();
        if let Some(side) = &mut segment.upstream {
            side.given = self.labels.give(now, LabelOwner::Path(path, LabelDirection::ToTarget));
            if side.given.is_none() {
                self.counters.table_full += 1;
                return false;
            }
        }
        if let Some(side) = &mut segment.downstream
            && !classic
        {
            side.given = self.labels.give(now, LabelOwner::Path(path, LabelDirection::ToOrigin));
            if side.given.is_none() {
                let given = segment.upstream.as_ref().and_then(|side| side.given);
                if let Some(label) = given {
                    self.labels.take_back(now, label);
                }
                self.counters.table_full += 1;
                return false;
            }
        }
        let adjacencies: Vec<Adjacency> = segment.sides().map(|side| side.adjacency).collect();
        self.segments.insert(path, segment);
        for adjacency in adjacencies {
            self.count_path(now, adjacency, true);
        }
        self.install(path);
        self.schedule_sweep(now);
        true
    }

    /// Sends the reply of a path to its previous hop.
    fn send_reply(&mut self, now: Duration, path: PathId, request: u32) {
        let Some(segment) = self.segments.get(&path) else { return };
        let Some(side) = &segment.upstream else { return };
        let Some(label) = side.given else { return };
        let own = self.settings.id;
        let place = segment.relays.iter().position(|&relay| relay == own);
        // The previous hop is the relay before this one, or the origin.
        let position = place.unwrap_or(segment.relays.len());
        let reply = RouteReply {
            path,
            request,
            label,
            class: segment.class.number(),
            frame_limit: segment.frame_limit,
            position: u8::try_from(position).unwrap_or(u8::MAX),
            cost: segment.cost,
            delay_us: segment.delay_us,
            station: segment.station,
            record: segment.relays.clone(),
        };
        let adjacency = side.adjacency;
        self.send_reliably(now, adjacency, &Message::Reply(reply), Awaited::Reply(path));
    }

    /// Processes a ROUTE REPLY.
    pub(super) fn reply(
        &mut self,
        now: Duration,
        from: Adjacency,
        sequence: u32,
        reply: &RouteReply,
    ) {
        let ends = (reply.path.origin, reply.path.target);
        let Some(place) = self.place(from, ends, &reply.record, reply.position) else {
            self.counters.malformed += 1;
            return;
        };
        let path = reply.path;
        let known = self
            .segments
            .get(&path)
            .map(|segment| segment.downstream.as_ref().is_some_and(|side| side.adjacency == from));
        let accepted = match known {
            Some(true) => {
                self.refresh(now, reply);
                true
            }
            // The path's identity is in use for another one: a mistake or a forgery.
            Some(false) => false,
            None => self.accept(now, from, place, reply),
        };
        let segment = self.segments.get(&path).filter(|_| accepted);
        let given = segment.and_then(|segment| segment.downstream.as_ref()?.given);
        if !self.is_classic() {
            self.acknowledge(from, sequence, given);
            if !accepted {
                self.end_path(now, from, path, Reason::EXHAUSTED);
            }
        }
        if !accepted {
            return;
        }
        if path.origin == self.settings.id {
            self.path_ready(now, reply.station.unwrap_or(path.target), path);
        } else {
            self.send_reply(now, path, reply.request);
        }
    }

    /// The node's place in the record of a message that travels from `sayer` to `origin`; `None` if the
    /// message is not for this node, or did not come from the next hop of its record.
    pub(super) fn place(
        &self,
        from: Adjacency,
        (origin, sayer): (NodeId, NodeId),
        record: &[NodeId],
        position: u8,
    ) -> Option<RecordPlace> {
        let own = self.settings.id;
        let position = usize::from(position);
        let next = record.get(position).copied().unwrap_or(sayer);
        if next != from.node {
            return None;
        }
        let Some(place) = position.checked_sub(1) else {
            return (origin == own).then_some(RecordPlace::Origin);
        };
        if record.get(place) != Some(&own) {
            return None;
        }
        let previous = match place.checked_sub(1) {
            Some(before) => record.get(before).copied()?,
            None => origin,
        };
        self.near.best(previous).map(RecordPlace::Relay)
    }

    fn accept(
        &mut self,
        now: Duration,
        from: Adjacency,
        place: RecordPlace,
        reply: &RouteReply,
    ) -> bool {
        let mut downstream = Side::new(from);
        downstream.expected = Some(reply.label);
        let segment = Segment {
            upstream: match place {
                RecordPlace::Origin => None,
                RecordPlace::Relay(upstream) => Some(Side::new(upstream)),
            },
            downstream: Some(downstream),
            station: reply.station,
            class: PathClass::of(reply.class),
            relays: reply.record.clone(),
            cost: reply.cost,
            delay_us: reply.delay_us,
            frame_limit: reply.frame_limit,
            made_at: now,
            used_at: now,
            carried_at: None,
            bypassed_at: None,
        };
        self.insert(now, reply.path, segment)
    }

    /// The reply of a known path: its cost may have changed.
    fn refresh(&mut self, now: Duration, reply: &RouteReply) {
        if let Some(segment) = self.segments.get_mut(&reply.path) {
            segment.cost = reply.cost;
            segment.delay_us = reply.delay_us;
            segment.used_at = now;
            let freed = segment.downstream.as_mut().and_then(|side| side.expect(reply.label));
            self.tear_bypass(now, freed);
        }
        self.restore(now, reply.path, LabelDirection::ToTarget);
        self.install(reply.path);
    }

    /// A path can be used by this end.
    pub(super) fn path_ready(&mut self, now: Duration, destination: NodeId, path: PathId) {
        let hops = self.segments.get(&path).map_or(0, |segment| segment.relays.len() + 1);
        if self.add_path(now, destination, path) {
            self.counters.paths_found += 1;
            let hops = u8::try_from(hops).unwrap_or(u8::MAX);
            self.output(MeshOutput::Event(MeshEvent::PathFound { destination, path, hops }));
        }
        self.choose(now, destination);
        self.release(now, destination);
    }

    /// Sends a message that is repeated until it is acknowledged; once in `classic`.
    pub(super) fn send_reliably(
        &mut self,
        now: Duration,
        adjacency: Adjacency,
        message: &Message<'_>,
        awaited: Awaited,
    ) {
        if self.is_classic() {
            self.send_to(adjacency, message);
            return;
        }
        let Some(address) = self.near.all.get(&adjacency).map(|neighbour| neighbour.address) else {
            return;
        };
        let (sequence, octets) = self.encode(message);
        self.counters.sent += 1;
        self.transmit(adjacency.link, Some((address, adjacency.node)), octets.clone());
        if self.unacknowledged.len() >= UNACKNOWLEDGED_MAX {
            self.counters.table_full += 1;
            return;
        }
        let repeat_at = now + REPEAT_FIRST;
        let entry =
            Unacknowledged { adjacency, octets, repeats: 0, sent_at: now, repeat_at, awaited };
        self.unacknowledged.insert(sequence, entry);
    }

    pub(super) fn acknowledge(&mut self, to: Adjacency, acknowledged: u32, label: Option<Label>) {
        self.send_to(to, &Message::Acknowledgement { acknowledged, label });
    }

    /// Processes a PATH ACKNOWLEDGEMENT.
    pub(super) fn acknowledged(
        &mut self,
        now: Duration,
        from: Adjacency,
        sequence: u32,
        label: Option<Label>,
    ) {
        let known = self.unacknowledged.get(&sequence);
        if known.is_none_or(|message| message.adjacency != from) {
            return;
        }
        let Some(message) = self.unacknowledged.remove(&sequence) else { return };
        let path = match message.awaited {
            Awaited::Nothing => return,
            Awaited::Bypass(asked) => return self.bypass_answered(now, from, asked, label),
            Awaited::Reply(path) => path,
        };
        let Some(label) = label else { return };
        let Some(segment) = self.segments.get_mut(&path) else { return };
        let Some(side) = &mut segment.upstream else { return };
        let first = side.expected.is_none();
        let freed = side.expect(label);
        let ends_here = segment.downstream.is_none();
        // A relay upstream has its label of this direction one hop later than the one before it:
        // half a round trip of the first hop for each.
        let hop = now.saturating_sub(message.sent_at) / 2;
        let ready_at = now + hop * u32::try_from(segment.relays.len()).unwrap_or(0);
        self.tear_bypass(now, freed);
        self.restore(now, path, LabelDirection::ToOrigin);
        self.install(path);
        if ends_here && first && ready_at > now {
            self.defer(now, ready_at, path.origin, path);
        } else if ends_here && first {
            self.path_ready(now, path.origin, path);
        } else if ends_here {
            self.choose(now, path.origin);
        }
    }

    /// Repeats what was not acknowledged, and gives up what was repeated often enough.
    pub(super) fn tick_repeats(&mut self, now: Duration) {
        let due: Vec<u32> = (self.unacknowledged.iter())
            .filter(|(_, message)| message.repeat_at <= now)
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in due {
            let Some(message) = self.unacknowledged.get_mut(&sequence) else { continue };
            if message.repeats >= REPEATS_MAX {
                let (adjacency, awaited) = (message.adjacency, message.awaited);
                self.unacknowledged.remove(&sequence);
                self.counters.given_up += 1;
                match awaited {
                    Awaited::Nothing => {}
                    Awaited::Bypass(asked) => self.bypass_answered(now, adjacency, asked, None),
                    Awaited::Reply(path) => {
                        self.remove_path(now, path, Reason::UNACKNOWLEDGED, Some(adjacency));
                    }
                }
                continue;
            }
            message.repeats += 1;
            message.repeat_at = now + REPEAT_FIRST * 2_u32.pow(message.repeats);
            let (adjacency, octets) = (message.adjacency, message.octets.clone());
            self.counters.repeated += 1;
            if let Some(neighbour) = self.near.all.get(&adjacency) {
                let to = Some((neighbour.address, adjacency.node));
                self.transmit(adjacency.link, to, octets);
            }
        }
    }

    /// Forgets messages to a neighbour that is lost.
    pub(super) fn forget_messages(&mut self, adjacency: Adjacency) {
        self.unacknowledged.retain(|_, message| message.adjacency != adjacency);
    }
}

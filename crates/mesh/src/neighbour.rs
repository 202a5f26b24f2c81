//! Neighbours: what a node knows of the nodes at the other ends of its links.

use crate::edge::{Adjacency, LinkProperties};
use crate::identity::NodeId;
use crate::liveness::{LivenessSession, SessionState};
use crate::relay_delay::RelayDelay;
use crate::timed::Timed;
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};
use std::collections::BTreeMap;

/// Neighbours at the most.
const NEIGHBOURS_MAX: usize = 512;

/// Neighbours over one link at the most: half of all, so that forged ones on one link leave room for
/// those of the others.
const NEIGHBOURS_LINK_MAX: usize = NEIGHBOURS_MAX / 2;

/// Neighbours with one link-layer address on a link: a station is one node, and another one for the
/// time in which it is forgotten after it has got another identity.
const NEIGHBOURS_ADDRESS_MAX: usize = 4;

/// Full lists without this node after which a link counts as one-way.
const DEAF_LISTS: u8 = 2;

/// LABEL UNKNOWNs to one neighbour in a second.
const UNKNOWN_PER_SECOND: u8 = 10;

/// Certain reception, in the unit of [`Neighbour::quality`].
const QUALITY_MAX: u32 = 1 << 16;

/// Of so many messages for all one may be lost on its way to a neighbour, if that takes no more than so many
/// sendings.
const LOST_MAX: u64 = 64;
const SENDINGS_MAX: u32 = 4;

/// A link of this node.
#[derive(Clone, Debug)]
pub(crate) struct MeshLink {
    pub(crate) properties: LinkProperties,
    /// When the next I'M ALIVE is due.
    pub(crate) alive_at: Duration,
    /// Messages left that carry the whole neighbour list.
    pub(crate) full_lists: u8,
    /// Messages since the list was sent.
    pub(crate) since_list: u8,
}

/// A neighbour over one link.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    pub(crate) address: LinkAddress,
    pub(crate) epoch: u32,
    pub(crate) heard_at: Duration,
    pub(crate) interval: Duration,
    pub(crate) up: bool,
    /// Whether it has ever shown that it hears this node.
    pub(crate) confirmed: bool,
    /// Full lists in a row without this node.
    pub(crate) deaf: u8,
    /// Its neighbours, sorted.
    pub(crate) list: Vec<NodeId>,
    pub(crate) delay: RelayDelay,
    /// Share of its I'M ALIVE that arrived, of [`QUALITY_MAX`].
    quality: u32,
    alive_at: Option<Duration>,
    /// Paths that lead through it.
    pub(crate) paths: usize,
    pub(crate) session: Option<LivenessSession>,
    /// Whether the session has been up, so that its being down means something.
    pub(crate) watched: bool,
    unknown: (Duration, u8),
}

impl Neighbour {
    pub(crate) fn new(now: Duration, address: LinkAddress, epoch: u32, interval: Duration) -> Self {
        Self {
            address,
            epoch,
            heard_at: now,
            interval,
            up: true,
            confirmed: false,
            deaf: 0,
            list: Vec::new(),
            delay: RelayDelay::default(),
            quality: QUALITY_MAX,
            alive_at: None,
            paths: 0,
            session: None,
            watched: false,
            unknown: (now, 0),
        }
    }

    /// Whether packets may be sent to it.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && self.deaf < DEAF_LISTS
    }

    /// Whether messages for all are to reach it: also one that is not usable for a while, as its link loses
    /// frames.
    pub(crate) fn is_to_be_reached(&self) -> bool {
        self.is_usable() || (self.confirmed && self.sendings() > 1)
    }

    /// Whether its last list lacked this node.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.deaf > 0
    }

    /// Whether its liveness session has found it silent and not yet heard again.
    pub(crate) fn is_session_down(&self) -> bool {
        let down = |session: &LivenessSession| session.state() != SessionState::Up;
        self.watched && self.session.as_ref().is_some_and(down)
    }

    /// When it is lost if it stays silent.
    pub(crate) fn deadline(&self, missed_max: u32) -> Duration {
        self.heard_at + self.interval * missed_max
    }

    /// Cost of the hop: the link's, divided by the squared probability of reception (both
    /// directions of a frame and its answer must succeed).
    pub(crate) fn cost(&self, properties: LinkProperties) -> u16 {
        let quality = u64::from(self.quality.max(QUALITY_MAX / 16));
        let whole = u64::from(QUALITY_MAX);
        let cost = u64::from(properties.cost) * whole * whole / (quality * quality);
        u16::try_from(cost).unwrap_or(u16::MAX)
    }

    /// How often a message for all is sent to it, so that one of [`LOST_MAX`] reaches it by none of them: as
    /// many as its I'M ALIVE that are lost ask for.
    pub(crate) fn sendings(&self) -> u32 {
        let loss = u64::from(QUALITY_MAX - self.quality);
        let (whole, mut lost) = (u64::from(QUALITY_MAX), u64::from(QUALITY_MAX));
        let mut sendings = 0;
        while sendings < SENDINGS_MAX && lost * LOST_MAX > whole {
            lost = lost * loss / whole;
            sendings += 1;
        }
        sendings
    }

    /// Learns from the time of an I'M ALIVE how many were lost.
    pub(crate) fn count_alive(&mut self, now: Duration, interval: Duration) {
        if let Some(last) = self.alive_at.replace(now) {
            let passed = now.saturating_sub(last).as_millis();
            let each = interval.as_millis().max(1);
            // Triggered messages come early: they count as received and say nothing of losses.
            let missed = (passed + each / 2) / each;
            for _ in 1..missed.min(16) {
                self.quality -= self.quality / 8;
            }
        }
        self.quality += (QUALITY_MAX - self.quality) / 8;
        self.interval = interval;
    }

    /// Learns from a full list whether the neighbour hears this node; `true` if the list, or whether
    /// packets may be sent to it, has changed.
    pub(crate) fn learn_list(&mut self, mut list: Vec<NodeId>, own: NodeId) -> bool {
        let was_usable = self.is_usable();
        let hears = list.contains(&own);
        self.confirmed |= hears;
        self.deaf = if hears { 0 } else { self.deaf.saturating_add(1) };
        list.sort_unstable();
        let is_new = self.list != list;
        self.list = list;
        is_new || self.is_usable() != was_usable
    }

    /// Whether a LABEL UNKNOWN may be sent to it.
    pub(crate) fn may_complain(&mut self, now: Duration) -> bool {
        let (since, count) = &mut self.unknown;
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= UNKNOWN_PER_SECOND
    }
}

/// Admission of a new neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NeighbourAdmission {
    /// There is room.
    Free,
    /// There is room when this one is removed, which has never shown that it hears this node.
    Instead(Adjacency),
    /// There is no room.
    Refused,
}

/// The links and neighbours of a node.
#[derive(Debug, Default)]
pub(crate) struct Neighbourhood {
    pub(crate) links: Timed<BTreeMap<LinkIndex, MeshLink>>,
    pub(crate) all: Timed<BTreeMap<Adjacency, Neighbour>>,
}

impl Neighbourhood {
    /// When an I'M ALIVE is due.
    pub(crate) fn alive_due(&self) -> Option<Duration> {
        self.links.due_at(|links| links.values().map(|link| link.alive_at).min())
    }

    /// When a neighbour is lost if it stays silent for `missed_max` intervals, or a session takes a step.
    pub(crate) fn neighbours_due(&self, missed_max: u32) -> Option<Duration> {
        let neighbour = |neighbour: &Neighbour| {
            let silent = neighbour.up.then(|| neighbour.deadline(missed_max));
            let session = neighbour.session.as_ref().map(LivenessSession::poll_timeout);
            silent.into_iter().chain(session).min()
        };
        self.all.due_at(|all| all.values().filter_map(neighbour).min())
    }

    /// The neighbours on a link.
    pub(crate) fn on(&self, link: LinkIndex) -> impl Iterator<Item = (&Adjacency, &Neighbour)> {
        let at = |node| Adjacency { link, node };
        self.all.range(at(NodeId(0))..=at(NodeId(u64::MAX)))
    }

    /// A neighbour for a change that does not make it lost earlier.
    pub(crate) fn postpone(&mut self, at: &Adjacency, missed_max: u32) -> Option<&mut Neighbour> {
        let deadline = self.all.get(at)?.deadline(missed_max);
        self.all.postpone(deadline).get_mut(at)
    }

    /// Whether there is room for a neighbour with a link-layer address. Whoever can send on a link
    /// can send for any number of nodes, so an address, a link and the whole have bounds; in a full
    /// one, the neighbour gives way that is not confirmed and was silent longest.
    pub(crate) fn admit(&self, new: Adjacency, address: LinkAddress) -> NeighbourAdmission {
        let here = || self.on(new.link);
        let same = || here().filter(|(_, known)| known.address == address);
        if same().count() >= NEIGHBOURS_ADDRESS_MAX {
            instead(same())
        } else if here().count() >= NEIGHBOURS_LINK_MAX {
            instead(here())
        } else if self.all.len() >= NEIGHBOURS_MAX {
            instead(self.all.iter())
        } else {
            NeighbourAdmission::Free
        }
    }

    /// Whether the link has a usable neighbour that may not hear another one there: the other one's list
    /// lacks it. So what the other one sends to all must be passed on also on the link that it came by.
    pub(crate) fn has_hidden(&self, from: Adjacency) -> bool {
        let known = self.all.get(&from).map_or(&[][..], |known| &known.list);
        self.on(from.link).any(|(at, near)| {
            *at != from && near.is_usable() && known.binary_search(&at.node).is_err()
        })
    }

    /// The cheapest usable adjacency with a node.
    pub(crate) fn best(&self, node: NodeId) -> Option<Adjacency> {
        let usable = self.all.iter().filter(|(at, known)| at.node == node && known.is_usable());
        usable.min_by_key(|&(&at, _)| (self.cost(at), at.link)).map(|(&at, _)| at)
    }

    /// Cost of a hop; the highest if the neighbour is not known.
    pub(crate) fn cost(&self, at: Adjacency) -> u16 {
        match (self.links.get(&at.link), self.all.get(&at)) {
            (Some(link), Some(neighbour)) => neighbour.cost(link.properties),
            _ => u16::MAX,
        }
    }

    /// Properties of a link; the default ones if it is not there.
    pub(crate) fn properties(&self, link: LinkIndex) -> LinkProperties {
        self.links.get(&link).map(|link| link.properties).unwrap_or_default()
    }

    /// Distinct usable neighbours.
    pub(crate) fn usable(&self) -> Vec<NodeId> {
        let usable = self.all.iter().filter(|(_, known)| known.is_usable());
        let mut nodes: Vec<NodeId> = usable.map(|(at, _)| at.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Nodes heard lately: those of one link first, and of these the confirmed ones, as they must
    /// not be cut from a long list.
    pub(crate) fn heard(&self, link: LinkIndex) -> Vec<NodeId> {
        let up = self.all.iter().filter(|(_, known)| known.up);
        let mut heard: Vec<_> =
            up.map(|(at, known)| (at.link != link, !known.confirmed, at.node)).collect();
        heard.sort_unstable();
        let mut nodes: Vec<NodeId> = Vec::with_capacity(heard.len());
        for (.., node) in heard {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }
}

/// Of neighbours without room for another one, the one that gives way.
fn instead<'a>(all: impl Iterator<Item = (&'a Adjacency, &'a Neighbour)>) -> NeighbourAdmission {
    let strangers = all.filter(|(_, known)| !known.confirmed && known.paths == 0);
    let oldest = strangers.min_by_key(|(_, known)| known.heard_at);
    oldest.map_or(NeighbourAdmission::Refused, |(&at, _)| NeighbourAdmission::Instead(at))
}

//! The wiring: the target of each edge, compiled beside the running graph and swapped in between
//! two batches.

use crate::{
    At, Attachment, AttachmentId, Counter, Place, Side, VirtualLink,
    layer::{down_key, released_key},
};
use gatewright_packet::{LinkIndex, Packet};
use gatewright_tables::{CounterName, CounterOwner, CounterSlots, CountersFull, records::Name};
use gatewright_wire::{EtherType, Framing};
use std::sync::Arc;

/// The index of a layer in a graph.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeIndex(pub(crate) u16);

impl NodeIndex {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The index of an edge in a wiring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EdgeIndex(pub(crate) u16);

impl EdgeIndex {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The target of an edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EdgeTarget {
    /// A layer, from below or from above by the edge's side.
    Layer(NodeIndex),
    /// The device of a link.
    Device(LinkIndex),
    /// Nowhere: packets that no handler took are dropped and counted.
    Nothing,
}

/// An edge of a plan, from a layer or from a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Binding {
    /// The layer it leaves; `None` for frames from the device of `link`.
    pub from: Option<NodeIndex>,
    /// The position, by which handlers find it.
    pub at: At,
    /// The direction of the packets.
    pub side: Side,
    /// The link, if the edge is of one link.
    pub link: Option<LinkIndex>,
    /// Its target.
    pub to: EdgeTarget,
}

impl Binding {
    /// The key by which [`crate::Out`] finds the edge.
    fn key(&self) -> u64 {
        match (self.side, self.link) {
            (Side::Transmit, Some(link)) if matches!(self.at, At::Unresolved(_)) => {
                released_key(link)
            }
            (Side::Transmit, Some(link)) => down_key(link),
            _ => self.at.key(),
        }
    }
}

/// The layers and ways of a graph without handlers, from which a wiring is compiled.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    nodes: Vec<(&'static str, Option<LinkIndex>)>,
    bindings: Vec<(Binding, Counter)>,
    virtual_links: Vec<VirtualLink>,
    /// The first header of the frames of each link that is not Ethernet.
    framings: Vec<(LinkIndex, Framing)>,
}

/// Why a plan or an attachment is impossible.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// No packet can pass the handler's position.
    #[error("nothing passes {0}: no layer pushes packets there")]
    NoSuchPosition(Attachment),
    /// More edges than a wiring can have.
    #[error("a graph has at most {EDGES_MAX} edges")]
    TooManyEdges,
}

/// The item by which the packets of a way are found in the table of counters.
pub const WAY_PACKETS: &str = "packets";

/// Maximum edges of a wiring.
const EDGES_MAX: usize = 4096;

impl Plan {
    /// Adds a layer; `link` is its link, if it belongs to one.
    pub fn add(&mut self, name: &'static str, link: Option<LinkIndex>) -> NodeIndex {
        let index = u16::try_from(self.nodes.len()).unwrap_or(u16::MAX);
        self.nodes.push((name, link));
        NodeIndex(index)
    }

    /// Adds a way; one from the same layer by the same position replaces the earlier.
    pub fn bind(&mut self, binding: Binding) {
        let same = |&(old, _): &(Binding, Counter)| {
            old.from == binding.from
                && old.key() == binding.key()
                && old.side == binding.side
                && (binding.from.is_some() || old.link == binding.link)
        };
        self.bindings.retain(|old| !same(old));
        self.bindings.push((binding, Counter::default()));
    }

    /// Counts the packets of each way in a table from now on, for `worker`; wirings compiled before
    /// count as before.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if the table has no room.
    pub fn count_in(&mut self, slots: &CounterSlots, worker: u16) -> Result<(), CountersFull> {
        for (number, (way, packets)) in (0..).zip(&mut self.bindings) {
            let of = format!("{} {}", way.at, way.side);
            let name = CounterName {
                worker,
                owner: CounterOwner::Edge(number),
                of: Name::new(&of).unwrap_or_default(),
                link: way.link.map(|link| link.0),
                item: Name::new(WAY_PACKETS).unwrap_or_default(),
            };
            *packets = slots.named(&name)?.into();
        }
        Ok(())
    }

    /// A copy for a further worker, which counts in the edges of this one.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = |(binding, packets): &(Binding, Counter)| (*binding, packets.part());
        let bindings = self.bindings.iter().map(part).collect();
        Self {
            bindings,
            nodes: self.nodes.clone(),
            virtual_links: self.virtual_links.clone(),
            framings: self.framings.clone(),
        }
    }

    /// Records that a link is virtual: its frames are those of a lower link with its tag.
    pub fn add_virtual(&mut self, link: VirtualLink) {
        self.virtual_links.push(link);
    }

    /// The virtual links.
    pub fn virtual_links(&self) -> &[VirtualLink] {
        &self.virtual_links
    }

    /// The virtual links whose frames are those of `link`.
    pub fn virtual_on(&self, link: LinkIndex) -> impl Iterator<Item = &VirtualLink> {
        self.virtual_links.iter().filter(move |of| of.below == link)
    }

    /// Sets the first header of a link's frames; without it the link is Ethernet.
    pub fn set_framing(&mut self, link: LinkIndex, framing: Framing) {
        self.framings.retain(|&(known, _)| known != link);
        self.framings.push((link, framing));
    }

    /// The first header of a link's frames.
    pub fn framing(&self, link: LinkIndex) -> Framing {
        framing_of(&self.framings, link)
    }

    /// The layers, each with its link.
    pub fn layers(&self) -> impl Iterator<Item = (NodeIndex, &'static str, Option<LinkIndex>)> {
        (0..).map(NodeIndex).zip(&self.nodes).map(|(index, &(name, link))| (index, name, link))
    }

    /// The link of the layer, if it belongs to a single one.
    pub fn link_of(&self, node: NodeIndex) -> Option<LinkIndex> {
        self.nodes.get(node.index()).and_then(|&(_, link)| link)
    }

    /// The ways with their packet counts.
    pub fn ways(&self) -> impl Iterator<Item = (&Binding, u64)> {
        self.bindings.iter().map(|(binding, counter)| (binding, counter.get()))
    }

    /// The wiring of this plan with `attachments`, in the order they were attached.
    ///
    /// A handler may be attached where a layer pushes packets that no other layer takes: its
    /// position is then bound to nothing, and the demultiplexing layer finds it.
    ///
    /// # Errors
    ///
    /// [`WiringError`] if an attachment's position is on no way, or there are too many ways.
    pub fn wire(&self, attachments: &[(AttachmentId, Attachment)]) -> Result<Wiring, WiringError> {
        let mut edges: Vec<Edge> = (self.bindings.iter())
            .map(|(binding, packets)| Edge::new(*binding, packets.clone()))
            .collect();
        for edge in edges.iter_mut().filter(|edge| edge.binding.at == At::Frame) {
            edge.framing = edge.binding.link.map(|link| framing_of(&self.framings, link));
        }
        let stands = |&(id, attachment): &(AttachmentId, Attachment)| {
            let (attachment, of) = self.frames_of(attachment)?;
            Ok((id, attachment, of))
        };
        let stands: Vec<_> = attachments.iter().map(stands).collect::<Result<_, WiringError>>()?;
        for &(_, attachment, _) in &stands {
            open(attachment, &self.framings, &mut edges)?;
        }
        for (id, attachment, of) in stands {
            attach(id, attachment, of, &mut edges);
        }
        if edges.len() > EDGES_MAX {
            return Err(WiringError::TooManyEdges);
        }
        Ok(Wiring {
            virtual_links: self.virtual_links.as_slice().into(),
            framings: self.framings.as_slice().into(),
            ways: self.bindings.len(),
            ..Wiring::index(edges, self.nodes.len())
        })
    }

    /// The position of an attachment that selects the frames of a virtual link: on the link below,
    /// for frames with its tag.
    fn frames_of(&self, of: Attachment) -> Result<(Attachment, Option<VirtualLink>), WiringError> {
        let is_meant = |own: &&VirtualLink| of.at == At::Frame && of.link == Some(own.link);
        match self.virtual_links.iter().find(is_meant) {
            // Behind the layer that takes frames there are none.
            Some(_) if of.place == Place::After => Err(WiringError::NoSuchPosition(of)),
            Some(own) => Ok((Attachment { link: Some(own.below), ..of }, Some(*own))),
            None => Ok((of, None)),
        }
    }
}

/// Ensures that packets can pass the position of `attachment`.
fn open(
    attachment: Attachment,
    framings: &[(LinkIndex, Framing)],
    edges: &mut Vec<Edge>,
) -> Result<(), WiringError> {
    let is_possible = |link: Option<LinkIndex>| {
        link.is_none_or(|link| is_framed(attachment.at, framing_of(framings, link)))
    };
    if !is_possible(attachment.link) {
        return Err(WiringError::NoSuchPosition(attachment));
    }
    if edges.iter().any(|edge| edge.passes(attachment)) {
        return Ok(());
    }
    // Nobody takes just these packets. The layers that could push them are those that push to
    // positions of the same kind; they go where the layer's packets for any value go, if there
    // is such a way, and otherwise nowhere.
    let kind = std::mem::discriminant(&attachment.at);
    let mut froms: Vec<_> = (edges.iter().map(|edge| edge.binding))
        .filter(|way| {
            std::mem::discriminant(&way.at) == kind
                && (way.side, attachment.side) == (Side::Receive, Side::Receive)
                && shares_link(way.link, attachment.link)
                && is_possible(way.link)
        })
        .map(|way| (way.from, way.link))
        .collect();
    froms.sort_unstable();
    froms.dedup();
    if froms.is_empty() {
        return Err(WiringError::NoSuchPosition(attachment));
    }
    for (from, link) in froms {
        let any = |edge: &&Edge| {
            edge.binding.from == from
                && Some(edge.binding.at) == attachment.at.any()
                && edge.binding.side == Side::Receive
        };
        let to = edges.iter().find(any).map_or(EdgeTarget::Nothing, |edge| edge.binding.to);
        let binding = Binding { from, at: attachment.at, side: Side::Receive, link, to };
        edges.push(Edge::new(binding, Counter::default()));
    }
    Ok(())
}

/// Whether frames of this framing can have payloads for `at`: without a link layer there is only IP.
fn is_framed(at: At, framing: Framing) -> bool {
    match (framing, at) {
        (Framing::Ip, At::EtherType(kind)) => [EtherType::IPV4, EtherType::IPV6].contains(&kind),
        _ => true,
    }
}

/// Whether both can apply to the same packets.
fn shares_link(one: Option<LinkIndex>, other: Option<LinkIndex>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Adds the handler's id to each edge at its position; of whole frames it sees those with the tag
/// of a virtual link, if there is one.
fn attach(id: AttachmentId, attachment: Attachment, of: Option<VirtualLink>, edges: &mut [Edge]) {
    let behind: Vec<NodeIndex> = (edges.iter())
        .filter(|edge| edge.passes(attachment))
        .filter_map(|edge| match edge.binding.to {
            EdgeTarget::Layer(node) => Some(node),
            EdgeTarget::Device(_) | EdgeTarget::Nothing => None,
        })
        .collect();
    for edge in edges {
        let stands = match attachment.place {
            Place::After => {
                edge.binding.from.is_some_and(|from| behind.contains(&from))
                    && edge.binding.side == attachment.side
            }
            _ => edge.passes(attachment),
        };
        if stands {
            // A link-bound edge carries only that link's packets: no need to look at each.
            let link = attachment.link.filter(|_| edge.binding.link.is_none());
            let only = of.map(Only::Virtual).or(link.map(Only::Link));
            let post = Post { id, place: attachment.place, only };
            // After the layer comes before what the next layer's handlers see.
            let order = |place: Place| match place {
                Place::After => 0,
                Place::Before => 1,
                Place::Tap => 2,
                Place::Instead => 3,
            };
            let position =
                edge.posts.partition_point(|other| order(other.place) <= order(post.place));
            edge.posts.insert(position, post);
        }
    }
}

/// A handler on an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) id: AttachmentId,
    pub(crate) place: Place,
    /// The packets that it sees; all if none is given.
    pub(crate) only: Option<Only>,
}

/// The packets on an edge that a handler sees.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Only {
    /// Those of one link.
    Link(LinkIndex),
    /// Frames with the tag of one virtual link.
    Virtual(VirtualLink),
}

impl Only {
    /// Whether it selects `packet`, which travels to this side.
    pub(crate) fn means(self, packet: &Packet, side: Side) -> bool {
        match (self, side) {
            (Self::Link(link), Side::Receive) => packet.meta().ingress == link,
            (Self::Link(link), Side::Transmit) => packet.meta().egress == link,
            (Self::Virtual(of), _) => of.carries(packet.octets()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) binding: Binding,
    pub(crate) posts: Vec<Post>,
    pub(crate) packets: Counter,
    /// The first header of its packets, if they are whole frames.
    pub(crate) framing: Option<Framing>,
}

impl Edge {
    fn new(binding: Binding, packets: Counter) -> Self {
        Self { binding, posts: Vec::new(), packets, framing: None }
    }

    fn passes(&self, attachment: Attachment) -> bool {
        let binding = &self.binding;
        binding.at == attachment.at
            && binding.side == attachment.side
            && shares_link(binding.link, attachment.link)
    }
}

/// A compiled [`Plan`] with its handlers' places: immutable, and sent to the worker whole.
#[derive(Clone, Debug)]
pub struct Wiring {
    pub(crate) edges: Arc<[Edge]>,
    /// How many of them are ways of the plan: the first ones.
    pub(crate) ways: usize,
    /// For each layer its edges by key, sorted.
    by_key: Vec<Vec<(u64, EdgeIndex)>>,
    /// For each link the edge of its received frames.
    entries: Vec<Option<EdgeIndex>>,
    pub(crate) virtual_links: Arc<[VirtualLink]>,
    pub(crate) framings: Arc<[(LinkIndex, Framing)]>,
}

/// The first header of a link's frames, with those of all links that are not Ethernet.
pub(crate) fn framing_of(framings: &[(LinkIndex, Framing)], link: LinkIndex) -> Framing {
    framings
        .iter()
        .find(|&&(known, _)| known == link)
        .map_or_else(Framing::default, |&(_, own)| own)
}

impl Wiring {
    fn index(edges: Vec<Edge>, nodes: usize) -> Self {
        let mut by_key = vec![Vec::new(); nodes];
        let mut entries = Vec::new();
        for (index, edge) in (0..).map(EdgeIndex).zip(&edges) {
            let binding = &edge.binding;
            if let Some(keys) = binding.from.and_then(|from| by_key.get_mut(from.index())) {
                keys.push((binding.key(), index));
            } else if let Some(link) = binding.link {
                if entries.len() <= link.index() {
                    entries.resize(link.index() + 1, None);
                }
                if let Some(entry) = entries.get_mut(link.index()) {
                    *entry = Some(index);
                }
            }
        }
        for keys in &mut by_key {
            keys.sort_unstable_by_key(|&(key, _)| key);
        }
        Self {
            ways: edges.len(),
            edges: edges.into(),
            by_key,
            entries,
            virtual_links: Arc::default(),
            framings: Arc::default(),
        }
    }

    pub(crate) fn edge_of(&self, node: usize, key: u64) -> Option<EdgeIndex> {
        let keys = self.by_key.get(node)?;
        let found = keys.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        keys.get(found).map(|&(_, edge)| edge)
    }

    /// Whether a handler is at a label that the layer pushes to.
    pub(crate) fn has_label_handlers(&self, node: usize) -> bool {
        let edges = self.by_key.get(node).into_iter().flatten();
        edges
            .filter_map(|(_, edge)| self.edges.get(edge.index()))
            .any(|edge| matches!(edge.binding.at, At::Label(_)) && edge.binding.at != At::ANY_LABEL)
    }

    pub(crate) fn entry(&self, link: LinkIndex) -> Option<EdgeIndex> {
        self.entries.get(link.index()).copied().flatten()
    }
}

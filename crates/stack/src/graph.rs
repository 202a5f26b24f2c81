//! The running graph: batches in, batches out.

mod measure;

pub use measure::{GraphTimes, MeasureClock, SAMPLE_EVERY, TimeSum};

use crate::{
    At, AttachmentId, Binding, Context, Counter, Drops, EdgeTarget, Event, Groups, HandedOver,
    Handler, Layer, LostNeighbours, NodeIndex, Out, Paths, Place, Plan, Reason, Side, View,
    VirtualLink, Wiring,
    hop_counters::NextHopTraffic,
    icmp_counters::IcmpCounters,
    layer::{Found, LayerEvents, NOTHING_FOUND, UNCLAIMED},
    link_layer::NO_HEADROOM,
    trace::{Trace, TraceOutcome, TraceStep},
    wiring::{Edge, EdgeIndex, Post, framing_of},
};
use gatewright_packet::{Batch, LinkIndex, Packet, Pool};
use gatewright_tables::{CounterName, CounterOwner, CounterSlots, CountersFull, records::Name};
use gatewright_wire::Framing;
use measure::Measurement;
use std::{
    fmt,
    rc::Rc,
    sync::atomic::{Ordering, fence},
    time::Duration,
};

/// The receiver of frames that leave the graph.
pub trait Exit {
    /// Takes frames to be sent by `link`; frames left in the batch are dropped and counted.
    fn send(&mut self, link: LinkIndex, batch: &mut Batch);
}

impl<F: FnMut(LinkIndex, &mut Batch)> Exit for F {
    fn send(&mut self, link: LinkIndex, batch: &mut Batch) {
        self(link, batch);
    }
}

/// A packet that a layer left in its batch.
const LEFT: Reason = Reason("left");

/// A batch took more steps than any real path has.
const LOOP: Reason = Reason("loop");

/// Maximum edge visits of one run: a batch of 64 takes below 200, floods of fragments included, so
/// more means a loop between layers.
const VISITS_MAX: u32 = 8192;

struct Node {
    layer: Box<dyn Layer>,
    drops: Drops,
    /// The edge that the layer found last, in the current wiring.
    last: Found,
}

impl Node {
    fn new(layer: Box<dyn Layer>) -> Self {
        Self { layer, drops: Drops::default(), last: NOTHING_FOUND }
    }
}

/// A handler with its count of packets taken.
struct Attached {
    id: AttachmentId,
    handler: Box<dyn Handler>,
    taken: Counter,
}

/// Layers, the wiring between them, and the packets on their way: the whole of one worker's work.
pub struct Graph {
    wiring: Wiring,
    floor: Floor,
    ready: Vec<EdgeIndex>,
    batch: Batch,
}

/// State under the wiring; separate, so that an edge can be read while layers work.
struct Floor {
    nodes: Vec<Node>,
    attached: Vec<Attached>,
    queues: Vec<Vec<Packet>>,
    ready: Vec<EdgeIndex>,
    host: View,
    /// The generation of the groups that the layers have seen, once they have seen the host.
    seen_groups: Option<u64>,
    told: LayerEvents,
    groups: Groups,
    paths: Paths,
    lost: LostNeighbours,
    frames: Rc<Pool>,
    datagrams: Rc<Pool>,
    /// Drops that belong to no layer: on edges that lead nowhere, and in loops.
    drops: Drops,
    icmp: IcmpCounters,
    hops: NextHopTraffic,
    /// Buffer to split a batch by link.
    seen: Batch,
    others: Batch,
    /// Frames that handlers send past the graph.
    sent: Vec<(LinkIndex, Packet)>,
    trace: Option<Trace>,
    measurement: Option<Box<Measurement>>,
    /// Whether a packet is traced, or this run is measured.
    is_watched: bool,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.floor.nodes.iter().map(|node| node.layer.name());
        f.debug_list().entries(layers).finish()
    }
}

/// Input and output of [`Graph::swap`]: a wiring, and handlers with their counts of packets taken.
pub struct Swap {
    /// The wiring to run from now on; in the result, the earlier one.
    pub wiring: Wiring,
    /// Handlers that the wiring newly names; in the result, those that it no longer names.
    pub handlers: Vec<(AttachmentId, Box<dyn Handler>, Counter)>,
}

impl fmt::Debug for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Swap({} handlers)", self.handlers.len())
    }
}

impl Graph {
    /// A graph of `layers`, in the order in which the plan of `wiring` names them.
    ///
    /// `host` is shared by the layers, `frames` is the slab for frames that they create,
    /// `datagrams` the slab for reassembly.
    pub fn new(
        layers: Vec<Box<dyn Layer>>,
        wiring: Wiring,
        host: View,
        frames: Rc<Pool>,
        datagrams: Rc<Pool>,
    ) -> Self {
        let nodes = layers.into_iter().map(Node::new).collect();
        let queues = wiring.edges.iter().map(|_| Vec::with_capacity(QUEUE_START)).collect();
        let ready = || Vec::with_capacity(wiring.edges.len());
        let floor = Floor {
            nodes,
            attached: Vec::new(),
            queues,
            ready: ready(),
            host,
            seen_groups: None,
            told: LayerEvents::default(),
            groups: Groups::default(),
            paths: Paths::default(),
            lost: LostNeighbours::default(),
            frames,
            datagrams,
            drops: Drops::default(),
            icmp: IcmpCounters::default(),
            hops: NextHopTraffic::default(),
            seen: Batch::default(),
            others: Batch::default(),
            sent: Vec::new(),
            trace: None,
            measurement: None,
            is_watched: false,
        };
        Self { ready: ready(), wiring, floor, batch: Batch::default() }
    }

    /// Counts in a table from now on: the drops of each layer, those of no layer, the ICMP
    /// messages of this host, and packets by the next hops of groups. `plan` is that of the layers; the graph has taken no packet yet.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if the table has no room.
    pub fn count_in(
        &mut self,
        slots: &CounterSlots,
        worker: u16,
        plan: &Plan,
    ) -> Result<(), CountersFull> {
        let name = |owner, of, link: Option<LinkIndex>| CounterName {
            worker,
            owner,
            of: Name::new(of).unwrap_or_default(),
            link: link.map(|link| link.0),
            item: Name::default(),
        };
        for (node, layer, link) in plan.layers() {
            if let Some(of) = self.floor.nodes.get_mut(node.index()) {
                of.drops = Drops::named(slots, name(CounterOwner::Layer(node.0), layer, link))?;
            }
        }
        self.floor.drops = Drops::named(slots, name(CounterOwner::Graph, "graph", None))?;
        self.floor.icmp = IcmpCounters::named(slots, worker)?;
        self.floor.hops = NextHopTraffic::named(slots, worker)?;
        Ok(())
    }

    /// The slab for frames: links receive into it.
    pub fn frames(&self) -> &Rc<Pool> {
        &self.floor.frames
    }

    /// The drops of the layer `node`, to be read from anywhere.
    pub fn drops_of(&self, node: NodeIndex) -> Option<Drops> {
        self.floor.nodes.get(node.index()).map(|node| node.drops.clone())
    }

    /// The drops that belong to no layer, to be read from anywhere.
    pub fn drops(&self) -> Drops {
        self.floor.drops.clone()
    }

    /// Swaps the wiring between two batches, with handlers that it newly names. Returns the old
    /// wiring and the handlers that the new one no longer names, to be freed outside the packet
    /// path.
    pub fn swap(&mut self, swap: Swap) -> Swap {
        // Counters of new handlers come from another thread ([`gatewright_tables::CounterSlot`]): whoever reads a count
        // sees that the slot's earlier name is gone.
        fence(Ordering::Release);
        let old = std::mem::replace(&mut self.wiring, swap.wiring);
        for node in &mut self.floor.nodes {
            node.last = NOTHING_FOUND;
        }
        // Edges of the plan keep their place, so their queues keep their memory.
        self.floor.queues.resize_with(self.wiring.edges.len(), Vec::new);
        let arrived = swap.handlers.into_iter();
        self.floor.attached.extend(arrived.map(|(id, handler, taken)| Attached {
            id,
            handler,
            taken,
        }));
        let edges = &self.wiring.edges;
        let named = |id| edges.iter().any(|edge| edge.posts.iter().any(|post| post.id == id));
        let gone = self.floor.attached.extract_if(.., |attached| !named(attached.id));
        let handlers = gone.map(|Attached { id, handler, taken }| (id, handler, taken)).collect();
        Swap { wiring: old, handlers }
    }

    /// Traces one packet; `false` if another trace runs.
    pub fn trace(&mut self, trace: Trace) -> bool {
        let free = self.floor.trace.is_none();
        if free {
            self.floor.trace = Some(trace);
            self.floor.watch();
        }
        free
    }

    /// The trace that has ended at `now` or is to end, if there is one.
    pub fn take_trace(&mut self, now: Duration, is_over: bool) -> Option<Trace> {
        let ended = self.floor.trace.take_if(|trace| is_over || trace.is_over(now));
        self.floor.watch();
        ended
    }

    /// Events from the layers since the last call.
    pub fn take_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.floor.told.events.drain(..)
    }

    /// Passes frames received by `link` through the graph; frames that leave it go to `exit`.
    pub fn receive(
        &mut self,
        link: LinkIndex,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        self.refresh(now);
        if let Some(trace) = &mut self.floor.trace {
            let framing = framing_of(&self.wiring.framings, link);
            trace.choose((link, framing), &self.wiring.virtual_links, batch, now);
        }
        match self.wiring.entry(link) {
            Some(entry) => self.floor.visit(&self.wiring, entry, batch, now, exit),
            None => self.floor.drops.add(UNCLAIMED, batch.len() as u64),
        }
        batch.clear();
        self.run(now, exit);
    }

    /// Passes a batch to the layer `node` from above, as a socket does.
    pub fn transmit(
        &mut self,
        node: NodeIndex,
        at: At,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        self.refresh(now);
        self.floor.call(&self.wiring, node, at, now, |layer, out| layer.transmit(batch, out));
        batch.clear();
        self.run(now, exit);
    }

    /// Packets to resume in the first worker's graph, since the last call.
    pub fn take_handed(&mut self) -> impl ExactSizeIterator<Item = HandedOver> + '_ {
        self.floor.told.handed.drain(..)
    }

    /// Resumes packets that another worker passed to the layer `node`, from below or above.
    pub fn resume(
        &mut self,
        (node, at, side): (NodeIndex, At, Side),
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        self.refresh(now);
        self.floor.call(&self.wiring, node, at, now, |layer, out| match side {
            Side::Receive => layer.receive(batch, out),
            Side::Transmit => layer.transmit(batch, out),
        });
        self.floor.drops.add_some(LEFT, batch.len() as u64);
        batch.clear();
        self.run(now, exit);
    }

    /// When [`Self::handle_timeouts`] is to be called, if nothing is received before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.has_news() {
            return Some(Duration::ZERO);
        }
        self.floor.nodes.iter().filter_map(|node| node.layer.poll_timeout()).min()
    }

    /// Whether the layers have not yet seen the current host or groups.
    fn has_news(&self) -> bool {
        self.floor.seen_groups != Some(self.floor.groups.generation())
            || self.floor.host.has_changed()
    }

    /// Makes each layer do its due work.
    pub fn handle_timeouts(&mut self, now: Duration, exit: &mut impl Exit) {
        self.refresh(now);
        for index in (0..).map(NodeIndex).take(self.floor.nodes.len()) {
            let due = (self.floor.nodes.get(index.index()))
                .is_some_and(|node| node.layer.poll_timeout().is_some_and(|at| at <= now));
            if due {
                let timeout = |layer: &mut dyn Layer, out: &mut Out<'_>| layer.handle_timeout(out);
                self.floor.call(&self.wiring, index, At::Frame, now, timeout);
            }
        }
        self.run(now, exit);
    }

    /// Makes each layer send its last messages before the graph ends.
    pub fn end(&mut self, now: Duration, exit: &mut impl Exit) {
        for index in (0..).map(NodeIndex).take(self.floor.nodes.len()) {
            let end = |layer: &mut dyn Layer, out: &mut Out<'_>| layer.handle_end(out);
            self.floor.call(&self.wiring, index, At::Frame, now, end);
        }
        self.run(now, exit);
    }

    /// Checks what a run begins with: whether it is measured, and whether the host or its groups
    /// have changed; if so, informs each layer.
    fn refresh(&mut self, now: Duration) {
        if self.floor.measurement.is_some() {
            self.floor.sample(now);
        }
        if !self.floor.host.refresh() && !self.has_news() {
            return;
        }
        self.floor.seen_groups = Some(self.floor.groups.generation());
        for index in (0..).map(NodeIndex).take(self.floor.nodes.len()) {
            let look = |layer: &mut dyn Layer, out: &mut Out<'_>| layer.handle_host(out);
            self.floor.call(&self.wiring, index, At::Frame, now, look);
        }
    }

    /// Visits edges until no packet is on its way.
    fn run(&mut self, now: Duration, exit: &mut impl Exit) {
        let mut visits = 0;
        while !self.floor.ready.is_empty() {
            std::mem::swap(&mut self.floor.ready, &mut self.ready);
            for edge in self.ready.drain(..) {
                // The whole queue is taken: the next packet makes the edge ready again.
                let Some(queue) = self.floor.queues.get_mut(edge.index()) else { continue };
                let mut queue = std::mem::take(queue);
                while !queue.is_empty() && visits < VISITS_MAX {
                    visits += 1;
                    self.batch.fill_from(&mut queue);
                    self.floor.visit(&self.wiring, edge, &mut self.batch, now, exit);
                }
                self.floor.drops.add_some(LOOP, queue.len() as u64);
                queue.clear();
                self.floor.give_back(edge, queue);
            }
        }
    }
}

/// Counters that packets on an edge can increment.
struct Counted {
    taken: Vec<(AttachmentId, u64)>,
    dropped: Vec<(&'static str, u64)>,
    handed: usize,
}

impl Floor {
    /// Returns an emptied queue for its memory; new packets may have come meanwhile.
    fn give_back(&mut self, edge: EdgeIndex, mut empty: Vec<Packet>) {
        if let Some(queue) = self.queues.get_mut(edge.index()) {
            empty.append(queue);
            *queue = empty;
        }
    }

    /// Takes a batch over one edge: past its handlers, to its target.
    fn visit(
        &mut self,
        wiring: &Wiring,
        edge: EdgeIndex,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        let way = edge;
        let Some(edge) = wiring.edges.get(edge.index()) else { return };
        edge.packets.add(batch.len() as u64);
        if self.is_watched {
            self.pass_watched(wiring, (way, edge), batch, now, exit);
        } else {
            self.pass(wiring, edge, batch, now, exit);
        }
    }

    /// Takes a batch over an edge while a packet is traced or the run is measured.
    #[cold]
    fn pass_watched(
        &mut self,
        wiring: &Wiring,
        (way, edge): (EdgeIndex, &Edge),
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        if self.trace.is_some() && batch.iter().any(Trace::is_traced) {
            self.pass_traced(wiring, edge, batch, now, exit);
        } else if self.measures_run() {
            self.pass_measured(wiring, (way, edge), batch, now, exit);
        } else {
            self.pass_apart(wiring, edge, batch, now, exit);
        }
    }

    /// Notes whether batches pass edges with the care that a trace or a measurement needs.
    fn watch(&mut self) {
        self.is_watched = self.trace.is_some() || self.measures_run();
    }

    /// Takes a batch over an edge in three parts, so that a traced packet is alone.
    #[cold]
    fn pass_traced(
        &mut self,
        wiring: &Wiring,
        edge: &Edge,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        let packets: Vec<Packet> = batch.drain().collect();
        for packet in packets {
            if !Trace::is_traced(&packet) {
                // All of them came in one batch, so they fit.
                let _fits = batch.push(packet);
                continue;
            }
            if !batch.is_empty() {
                self.pass_apart(wiring, edge, batch, now, exit);
            }
            let counted = self.counted(edge);
            let step = self.step(edge, &packet);
            let _fits = batch.push(packet);
            let begun = self.trace.as_mut().map(|trace| trace.begin(step)).unwrap_or_default();
            self.pass_apart(wiring, edge, batch, now, exit);
            let outcome = self.outcome(edge, &counted);
            if let Some(step) = self.trace.as_mut().and_then(|trace| trace.end(begun)) {
                step.outcome = outcome;
            }
        }
        if !batch.is_empty() {
            self.pass_apart(wiring, edge, batch, now, exit);
        }
    }

    /// The place of a traced packet.
    fn step(&self, edge: &Edge, packet: &Packet) -> TraceStep {
        let Binding { at, side, to, .. } = edge.binding;
        let node =
            if let EdgeTarget::Layer(node) = to { self.nodes.get(node.index()) } else { None };
        TraceStep {
            at,
            side,
            layer: node.map(|node| node.layer.name()),
            ingress: packet.meta().ingress,
            egress: packet.meta().egress,
            octets: packet.octets().to_vec(),
            framing: edge.framing,
            handlers: edge.posts.iter().map(|post| post.id).collect(),
            took: Duration::ZERO,
            outcome: TraceOutcome::Kept,
            reassembly: None,
        }
    }

    /// The counters that a packet on this edge can increment: taken by handlers, dropped.
    fn counted(&self, edge: &Edge) -> Counted {
        let taken = self.attached.iter().map(|attached| (attached.id, attached.taken.get()));
        let node = if let EdgeTarget::Layer(node) = edge.binding.to { Some(node) } else { None };
        let node = node.and_then(|node| self.nodes.get(node.index()));
        let of_layer = node.into_iter().flat_map(|node| node.drops.iter());
        let dropped = of_layer.chain(self.drops.iter()).collect();
        Counted { taken: taken.collect(), dropped, handed: self.told.handed.len() }
    }

    /// The outcome of the one packet that passed since `before` was counted.
    fn outcome(&self, edge: &Edge, before: &Counted) -> TraceOutcome {
        let Counted { taken, dropped, .. } = self.counted(edge);
        let new = taken.into_iter().find(|taken| !before.taken.contains(taken));
        if let Some((id, _)) = new {
            return TraceOutcome::Taken(id);
        }
        if let EdgeTarget::Device(_) = edge.binding.to {
            return TraceOutcome::Sent;
        }
        if self.queues.iter().flatten().any(Trace::is_traced) {
            return TraceOutcome::Passed;
        }
        if self.told.handed.len() > before.handed {
            return TraceOutcome::HandedOver;
        }
        let new = dropped
            .into_iter()
            .find(|(reason, count)| *count > 0 && !before.dropped.contains(&(*reason, *count)));
        new.map_or(TraceOutcome::Kept, |(reason, _)| TraceOutcome::Dropped(reason))
    }

    /// As [`Self::pass`], out of line for rare cases: [`Self::pass`] is inlined in each visit, and
    /// large.
    #[inline(never)]
    fn pass_apart(
        &mut self,
        wiring: &Wiring,
        edge: &Edge,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        self.pass(wiring, edge, batch, now, exit);
    }

    /// Takes a batch past an edge's handlers, to its target.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in `visit`, its only frequent caller")]
    fn pass(
        &mut self,
        wiring: &Wiring,
        edge: &Edge,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        for post in &edge.posts {
            self.hand(wiring, (*post, edge.framing), edge.binding.side, batch, now);
            self.send_past(&wiring.virtual_links, exit);
            if batch.is_empty() {
                return;
            }
        }
        self.deliver(wiring, edge, batch, now, exit);
    }

    /// Gives a batch to an edge's target.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `pass`")]
    fn deliver(
        &mut self,
        wiring: &Wiring,
        edge: &Edge,
        batch: &mut Batch,
        now: Duration,
        exit: &mut impl Exit,
    ) {
        let Binding { at, side, to, .. } = edge.binding;
        match (to, side) {
            (EdgeTarget::Layer(node), Side::Receive) => {
                self.call(wiring, node, at, now, |layer, out| layer.receive(batch, out));
            }
            (EdgeTarget::Layer(node), Side::Transmit) => {
                self.call(wiring, node, at, now, |layer, out| layer.transmit(batch, out));
            }
            (EdgeTarget::Device(link), _) => exit.send(link, batch),
            (EdgeTarget::Nothing, _) => {
                self.drops.add_some(UNCLAIMED, batch.len() as u64);
                batch.clear();
            }
        }
        self.drops.add_some(LEFT, batch.len() as u64);
        batch.clear();
    }

    /// Shows the batch to one handler; packets left by a handler that replaces the layer are taken.
    fn hand(
        &mut self,
        wiring: &Wiring,
        (post, framing): (Post, Option<Framing>),
        side: Side,
        batch: &mut Batch,
        now: Duration,
    ) {
        let found = self.attached.iter_mut().find(|attached| attached.id == post.id);
        let Some(Attached { handler, taken, .. }) = found else { return };
        let mut context = Context {
            now,
            frames: &self.frames,
            sent: &mut self.sent,
            framing,
            framings: &wiring.framings,
            host: Some(&self.host),
            lost: Some(&self.lost),
        };
        let Some(only) = post.only else {
            handle(handler.as_mut(), post, batch, &mut context, taken);
            return;
        };
        for packet in batch.drain() {
            let is_meant = only.means(&packet, side);
            let part = if is_meant { &mut self.seen } else { &mut self.others };
            // Neither can be full: together they hold what one batch held.
            let _refused = part.push(packet);
        }
        if !self.seen.is_empty() {
            handle(handler.as_mut(), post, &mut self.seen, &mut context, taken);
        }
        for packet in self.seen.drain().chain(self.others.drain()) {
            if batch.push(packet).is_err() {
                // The handler added more than a batch holds.
                self.drops.add(HANDLER_FULL, 1);
            }
        }
    }

    /// Sends frames of handlers past the graph; on a virtual link, with its tag.
    fn send_past(&mut self, virtual_links: &[VirtualLink], exit: &mut impl Exit) {
        for (mut link, mut frame) in self.sent.drain(..) {
            if let Some(own) = virtual_links.iter().find(|own| own.link == link) {
                link = own.below;
                if own.insert(&mut frame).is_err() {
                    self.drops.add(NO_HEADROOM, 1);
                    continue;
                }
            }
            // Both are empty between two uses.
            let _refused = self.others.push(frame);
            exit.send(link, &mut self.others);
            self.others.clear();
        }
    }

    fn call(
        &mut self,
        wiring: &Wiring,
        node: NodeIndex,
        at: At,
        now: Duration,
        call: impl FnOnce(&mut dyn Layer, &mut Out<'_>),
    ) {
        let Some(Node { layer, drops, last }) = self.nodes.get_mut(node.index()) else { return };
        let mut out = Out {
            node: node.index(),
            at,
            now,
            wiring,
            queues: &mut self.queues,
            ready: &mut self.ready,
            drops,
            icmp: &self.icmp,
            hops: &self.hops,
            trace: self.trace.as_mut(),
            host: &self.host,
            told: &mut self.told,
            groups: &mut self.groups,
            paths: &mut self.paths,
            lost: &mut self.lost,
            frames: &self.frames,
            datagrams: &self.datagrams,
            last,
        };
        call(layer.as_mut(), &mut out);
    }
}

/// Calls one handler with one batch.
fn handle(
    handler: &mut dyn Handler,
    post: Post,
    batch: &mut Batch,
    context: &mut Context<'_>,
    taken: &Counter,
) {
    let before = batch.len();
    handler.handle(batch, context);
    let mut gone = before.saturating_sub(batch.len());
    if post.place == Place::Instead {
        gone += batch.len();
        batch.clear();
    }
    if gone > 0 {
        taken.add(gone as u64);
    }
}

/// Initial packets of each queue's memory.
const QUEUE_START: usize = 64;

/// A handler added packets to a full batch.
const HANDLER_FULL: Reason = Reason("handler-full");

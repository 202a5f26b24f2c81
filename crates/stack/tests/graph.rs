//! The graph by itself, with layers of two octets: a type and a payload.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_packet::{BATCH_MAX, Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_stack::{
    At, Attachment, AttachmentId, Binding, Counter, EdgeTarget, Graph, Handler, Host, Layer,
    MeasureClock, Out, Place, Plan, Reason, Side, Swap, TimeSum, Trace, UNCLAIMED, View,
    WiringError, builtin::Match, tap,
};
use gatewright_wire::{EtherType, Framing};
use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const LAN: LinkIndex = LinkIndex(0);
const WAN: LinkIndex = LinkIndex(1);
const ODD: Reason = Reason("odd");

/// Demultiplexes by its first octet; sends down what comes from above.
struct Demux(LinkIndex);

impl Layer for Demux {
    fn name(&self) -> &'static str {
        "demux"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            let kind = u16::from(packet.octets()[0]);
            packet.strip(1);
            packet.meta_mut().ingress = self.0;
            out.push_or_drop(At::EtherType(EtherType(kind)), packet);
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            out.push_down(self.0, packet).unwrap();
        }
    }
}

/// Sends every packet to the other link, after it wrote an `x` in front; drops `!`.
struct Cross;

impl Layer for Cross {
    fn name(&self) -> &'static str {
        "cross"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            if packet.octets() == b"!" {
                out.drop(ODD, packet);
                continue;
            }
            packet.prepend(b"x").unwrap();
            let egress = if packet.meta().ingress == LAN { WAN } else { LAN };
            packet.meta_mut().egress = egress;
            out.push_down(egress, packet).unwrap();
        }
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
}

const CROSSED: At = At::EtherType(EtherType(b'c' as u16));

fn plan() -> Plan {
    let mut plan = Plan::default();
    let cross = plan.add("cross", None);
    for link in [LAN, WAN] {
        let demux = plan.add("demux", Some(link));
        let up = |from, at, to| Binding { from, at, side: Side::Receive, link: Some(link), to };
        let down = |from, at, to| Binding { from, at, side: Side::Transmit, link: Some(link), to };
        plan.bind(up(None, At::Frame, EdgeTarget::Layer(demux)));
        plan.bind(up(Some(demux), CROSSED, EdgeTarget::Layer(cross)));
        plan.bind(down(Some(cross), CROSSED, EdgeTarget::Layer(demux)));
        plan.bind(down(Some(demux), At::Frame, EdgeTarget::Device(link)));
    }
    plan
}

fn view() -> View {
    Host::new(16).unwrap().view()
}

type Attached = (AttachmentId, Attachment, Box<dyn Handler>);

fn graph_with(attached: Vec<Attached>) -> (Plan, Graph) {
    let plan = plan();
    let layers: Vec<Box<dyn Layer>> =
        vec![Box::new(Cross), Box::new(Demux(LAN)), Box::new(Demux(WAN))];
    let frames = Rc::new(Pool::new(256, CHUNK_SIZE).unwrap());
    let datagrams = Rc::new(Pool::new(1, CHUNK_SIZE_DATAGRAM).unwrap());
    let mut graph = Graph::new(layers, plan.wire(&[]).unwrap(), view(), frames, datagrams);
    let records: Vec<_> = attached.iter().map(|&(id, at, _)| (id, at)).collect();
    let wiring = plan.wire(&records).unwrap();
    let handlers = attached.into_iter().map(|(id, _, handler)| (id, handler, Counter::default()));
    graph.swap(Swap { wiring, handlers: handlers.collect() });
    (plan, graph)
}

/// What leaves the graph when `frames` come by the LAN.
fn through(graph: &mut Graph, frames: &[&[u8]]) -> Vec<(LinkIndex, Vec<u8>)> {
    let mut batch = Batch::default();
    for frame in frames {
        batch.push(graph.frames().packet_of(frame).unwrap()).unwrap();
    }
    let mut sent = Vec::new();
    let mut exit = |link: LinkIndex, batch: &mut Batch| {
        sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
    };
    graph.receive(LAN, &mut batch, Duration::ZERO, &mut exit);
    sent
}

fn counting(seen: &Arc<AtomicUsize>) -> Box<dyn Handler> {
    let seen = seen.clone();
    tap(move |batch| {
        seen.fetch_add(batch.len(), Ordering::Relaxed);
    })
}

fn on(at: At, side: Side, place: Place) -> Attachment {
    Attachment { at, side, place, link: None }
}

#[test]
fn frames_go_up_across_and_down_and_nothing_is_lost_uncounted() {
    let (plan, mut graph) = graph_with(Vec::new());
    let sent = through(&mut graph, &[b"ca", b"c!", b"?b", b"cd"]);
    assert_eq!(sent, [(WAN, b"xa".to_vec()), (WAN, b"xd".to_vec())]);
    let drops: Vec<_> = plan
        .layers()
        .map(|(node, ..)| graph.drops_of(node).unwrap().iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(drops, [vec![(ODD.0, 1)], vec![(UNCLAIMED.0, 1)], vec![]]);
    let frames: Vec<u64> = plan.ways().map(|(_, packets)| packets).collect();
    assert_eq!(frames, [4, 3, 0, 0, 0, 0, 2, 2]);
    assert_eq!(graph.frames().available(), 256, "every chunk is home");
}

#[test]
fn each_place_sees_what_its_name_says() {
    let cases: [(Place, Side, &[&[u8]], usize); 5] = [
        (Place::Tap, Side::Receive, &[b"xa", b"xb"], 3),
        (Place::Before, Side::Receive, &[b"xa", b"xb"], 3),
        (Place::Instead, Side::Receive, &[], 3),
        (Place::After, Side::Transmit, &[b"xa", b"xb"], 2),
        (Place::Tap, Side::Transmit, &[b"xa", b"xb"], 2),
    ];
    for (place, side, expected, count) in cases {
        let seen = Arc::new(AtomicUsize::new(0));
        let at = on(CROSSED, side, place);
        let (_, mut graph) = graph_with(vec![(AttachmentId(1), at, counting(&seen))]);
        let sent = through(&mut graph, &[b"ca", b"c!", b"cb"]);
        let sent: Vec<&[u8]> = sent.iter().map(|(_, octets)| &octets[..]).collect();
        assert_eq!(sent, expected, "{at}");
        assert_eq!(seen.load(Ordering::Relaxed), count, "{at}");
    }
}

#[test]
fn a_handler_may_change_and_take_packets() {
    let shout = |batch: &mut Batch| {
        batch.retain(|packet| {
            packet.octets_mut().make_ascii_uppercase();
            packet.octets() != b"B"
        });
    };
    let at = on(CROSSED, Side::Receive, Place::Before);
    let (_, mut graph) = graph_with(vec![(AttachmentId(1), at, Box::new(shout))]);
    assert_eq!(through(&mut graph, &[b"ca", b"cb"]), [(WAN, b"xA".to_vec())]);
}

#[test]
fn a_handler_of_one_link_sees_no_other() {
    let seen = Arc::new(AtomicUsize::new(0));
    for (link, expected) in [(WAN, 0), (LAN, 2)] {
        let at = Attachment { link: Some(link), ..on(CROSSED, Side::Receive, Place::Tap) };
        let (_, mut graph) = graph_with(vec![(AttachmentId(1), at, counting(&seen))]);
        through(&mut graph, &[b"ca", b"cb"]);
        assert_eq!(seen.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn a_handler_may_claim_what_no_layer_takes() {
    let seen = Arc::new(AtomicUsize::new(0));
    let at = on(At::EtherType(EtherType(u16::from(b'?'))), Side::Receive, Place::Instead);
    let (_, mut graph) = graph_with(vec![(AttachmentId(1), at, counting(&seen))]);
    through(&mut graph, &[b"?b", b"?c"]);
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[test]
fn a_position_where_nothing_passes_is_refused() {
    let at = on(At::Label(7), Side::Receive, Place::Tap);
    assert_eq!(plan().wire(&[(AttachmentId(1), at)]).unwrap_err(), WiringError::NoSuchPosition(at));
}

/// A link without Ethernet has only IP packets, whatever another link has.
#[test]
fn no_other_type_passes_a_link_without_ethernet() {
    let mut plan = plan();
    plan.set_framing(LAN, Framing::Ip);
    for kind in [EtherType::ARP, EtherType(0x88b5)] {
        let at =
            Attachment { link: Some(LAN), ..on(At::EtherType(kind), Side::Receive, Place::Tap) };
        let refused = plan.wire(&[(AttachmentId(1), at)]).unwrap_err();
        assert_eq!(refused, WiringError::NoSuchPosition(at));
    }
    for kind in [EtherType::IPV4, EtherType::IPV6] {
        let at =
            Attachment { link: Some(LAN), ..on(At::EtherType(kind), Side::Receive, Place::Tap) };
        assert!(plan.wire(&[(AttachmentId(1), at)]).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_swap_keeps_counts_and_gives_back_what_is_detached() {
    let seen = Arc::new(AtomicUsize::new(0));
    let at = on(CROSSED, Side::Receive, Place::Tap);
    let (plan, mut graph) = graph_with(vec![(AttachmentId(1), at, counting(&seen))]);
    for swaps in 0..100 {
        let both = [(AttachmentId(1), at), (AttachmentId(2 + swaps), at)];
        let handlers = vec![(AttachmentId(2 + swaps), counting(&seen), Counter::default())];
        let back = graph.swap(Swap { wiring: plan.wire(&both).unwrap(), handlers });
        assert_eq!(back.handlers.len(), usize::from(swaps > 0));
        assert_eq!(through(&mut graph, &[b"ca"]).len(), 1);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 200);
    let crossed = plan.ways().find(|(way, _)| way.at == CROSSED).unwrap().1;
    assert_eq!(crossed, 100, "the count of a way goes on over swaps");
}

#[test]
fn a_full_batch_passes_whole() {
    let (_, mut graph) = graph_with(Vec::new());
    let frames = [b"ca".as_slice(); BATCH_MAX];
    assert_eq!(through(&mut graph, &frames).len(), BATCH_MAX);
}

/// Two layers that send each packet to one another forever.
#[test]
fn a_loop_between_layers_ends_and_is_counted() {
    struct Bounce;
    impl Layer for Bounce {
        fn name(&self) -> &'static str {
            "bounce"
        }
        fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
            for packet in batch.drain() {
                out.push_or_drop(CROSSED, packet);
            }
        }
        fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
    }
    let mut plan = Plan::default();
    let (one, two) = (plan.add("bounce", None), plan.add("bounce", None));
    let way = |from, at, to| Binding { from, at, side: Side::Receive, link: None, to };
    plan.bind(Binding { link: Some(LAN), ..way(None, At::Frame, EdgeTarget::Layer(one)) });
    plan.bind(way(Some(one), CROSSED, EdgeTarget::Layer(two)));
    plan.bind(way(Some(two), CROSSED, EdgeTarget::Layer(one)));
    let frames = Rc::new(Pool::new(4, CHUNK_SIZE).unwrap());
    let datagrams = Rc::new(Pool::new(1, CHUNK_SIZE_DATAGRAM).unwrap());
    let layers: Vec<Box<dyn Layer>> = vec![Box::new(Bounce), Box::new(Bounce)];
    let mut graph = Graph::new(layers, plan.wire(&[]).unwrap(), view(), frames, datagrams);
    assert_eq!(through(&mut graph, &[b"c", b"c"]), []);
    assert_eq!(graph.drops().get(Reason("loop")), 2);
}

/// A clock that a test moves; each look at it takes a nanosecond.
fn moved_clock(ns: &Arc<AtomicUsize>) -> MeasureClock {
    let ns = ns.clone();
    Box::new(move || {
        let ns = ns.fetch_add(LOOK_NS, Ordering::Relaxed);
        Duration::from_nanos(u64::try_from(ns).unwrap())
    })
}

const LOOK_NS: usize = 1;

/// The layer `cross` takes 50 ns a packet, a handler there 7 ns a batch, and everything else nothing.
fn slow_graph(ns: &Arc<AtomicUsize>) -> Graph {
    struct Slow(Arc<AtomicUsize>);
    impl Layer for Slow {
        fn name(&self) -> &'static str {
            "cross"
        }
        fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
            self.0.fetch_add(50 * batch.len(), Ordering::Relaxed);
            Cross.receive(batch, out);
        }
        fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
    }
    let slow = ns.clone();
    let handler = tap(move |_| {
        slow.fetch_add(7, Ordering::Relaxed);
    });
    let plan = plan();
    let layers: Vec<Box<dyn Layer>> =
        vec![Box::new(Slow(ns.clone())), Box::new(Demux(LAN)), Box::new(Demux(WAN))];
    let frames = Rc::new(Pool::new(256, CHUNK_SIZE).unwrap());
    let datagrams = Rc::new(Pool::new(1, CHUNK_SIZE_DATAGRAM).unwrap());
    let mut graph = Graph::new(layers, plan.wire(&[]).unwrap(), view(), frames, datagrams);
    let at = on(CROSSED, Side::Receive, Place::Tap);
    let wiring = plan.wire(&[(AttachmentId(4), at)]).unwrap();
    let handlers = vec![(AttachmentId(4), handler, Counter::default())];
    graph.swap(Swap { wiring, handlers });
    graph
}

fn at_time(graph: &mut Graph, frames: &[&[u8]], now: Duration) {
    let mut batch = Batch::default();
    for frame in frames {
        batch.push(graph.frames().packet_of(frame).unwrap()).unwrap();
    }
    let mut exit = |_: LinkIndex, batch: &mut Batch| batch.clear();
    graph.receive(LAN, &mut batch, now, &mut exit);
}

#[test]
fn times_are_those_of_each_layer_way_and_handler_in_measured_runs() {
    let ns = Arc::new(AtomicUsize::new(0));
    let mut graph = slow_graph(&ns);
    let until = Duration::from_secs(1);
    at_time(&mut graph, &[b"ca"], Duration::ZERO);
    assert!(!graph.is_measuring(), "nobody has asked");
    let nothing = graph.measure(until, moved_clock(&ns));
    assert_eq!((nothing.runs, nothing.layers.len(), nothing.ways.len()), (0, 3, 8));

    at_time(&mut graph, &[b"ca", b"cb", b"cd"], Duration::from_millis(1));
    // Within a millisecond of a measured run none is.
    at_time(&mut graph, &[b"ca"], Duration::from_micros(1999));
    let times = graph.measure(until, moved_clock(&ns));
    let sum = |packets, ns| TimeSum { packets, ns };
    assert_eq!(times.runs, 1);
    // `cross`, then the two `demux`: one receives three packets, the other sends them.
    assert_eq!(times.layers, [sum(3, 150), sum(3, 0), sum(3, 0)]);
    assert_eq!(times.handlers, [(AttachmentId(4), sum(3, 7))]);
    let passed: Vec<_> = times.ways.iter().map(|way| (way.packets, way.ns)).collect();
    // As the plan names them: of the LAN up and up; of the WAN down, and to the device.
    let expected = [(3, 0), (3, 150), (0, 0), (0, 0), (0, 0), (0, 0), (3, 0), (3, 0)];
    assert_eq!(passed, expected);

    at_time(&mut graph, &[b"ce"], Duration::from_millis(2));
    let times = graph.measure(until, moved_clock(&ns));
    assert_eq!((times.runs, times.layers[0]), (2, sum(4, 200)));
}

#[test]
fn a_measurement_ends_when_nobody_asks_any_more_and_begins_anew() {
    let ns = Arc::new(AtomicUsize::new(0));
    let mut graph = slow_graph(&ns);
    graph.measure(Duration::from_secs(1), moved_clock(&ns));
    // An earlier end does not shorten what somebody else has asked for.
    graph.measure(Duration::from_millis(3), moved_clock(&ns));
    at_time(&mut graph, &[b"ca"], Duration::from_millis(999));
    assert!(graph.is_measuring());
    at_time(&mut graph, &[b"ca"], Duration::from_secs(1));
    assert!(!graph.is_measuring());
    let before = ns.load(Ordering::Relaxed);
    at_time(&mut graph, &[b"ca"], Duration::from_secs(1));
    assert_eq!(ns.load(Ordering::Relaxed), before + 50 + 7, "nobody looks at the clock");
    let times = graph.measure(Duration::from_secs(2), moved_clock(&ns));
    assert_eq!(times.runs, 0);
}

#[test]
fn what_is_measured_while_a_packet_is_traced_leaves_the_trace_whole() {
    let ns = Arc::new(AtomicUsize::new(0));
    let mut graph = slow_graph(&ns);
    graph.measure(Duration::from_secs(9), moved_clock(&ns));
    assert!(graph.trace(Trace::new(Some(LAN), Match::default(), || Duration::ZERO)));
    at_time(&mut graph, &[b"ca", b"cb"], Duration::ZERO);
    let trace = graph.take_trace(Duration::ZERO, false).unwrap();
    let layers: Vec<_> = trace.steps().iter().map(|step| step.layer).collect();
    assert_eq!(layers, [Some("demux"), Some("cross"), Some("demux"), None]);
    at_time(&mut graph, &[b"ca"], Duration::from_millis(5));
    let times = graph.measure(Duration::from_secs(9), moved_clock(&ns));
    assert_eq!((times.runs, times.layers[0].packets), (1, 1), "of what passed with a trace, none");
}

//! One message of each type, with what its fields say.

use gatewright_mesh::message::{
    Alive, Broadcast, BypassRequest, LinkBack, Message, PortHello, Profile, RecordedHop,
    RequestRelays, RouteReply, RouteRequest, Sender,
};
use gatewright_mesh::{NodeId, PathId, Reason, RelayDelay};
use gatewright_wire::mpls::Label;

/// The sender of all samples.
pub(crate) const SENDER: Sender =
    Sender { node: NodeId(0x0123_4567_89ab_cdef), epoch: 7, sequence: 4_000_000_000 };
/// The path of all samples.
pub(crate) const PATH: PathId =
    PathId { origin: NodeId(0xa0), target: NodeId(0xffff_ffff_ffff_ffff), number: 99 };

/// The name of a message, its octets, and its fields with their values.
pub(crate) type Sample = (&'static str, Vec<u8>, Vec<(&'static str, &'static str)>);

/// Encoded messages with the fields that Wireshark must find.
pub(crate) fn samples() -> Vec<Sample> {
    let all = [
        alive(),
        request(),
        reply(),
        broadcast(),
        acknowledgement(),
        path_error(),
        path_tear(),
        label_unknown(),
        liveness(),
        challenge(),
        challenge_reply(),
        port_hello(),
        olsr(),
        bypass_request(),
        bypass_tear(),
        link_back(),
    ];
    all.into()
}

/// The octets of two neighbours.
fn neighbours() -> Vec<u8> {
    [1_u64, 2].iter().flat_map(|node| node.to_be_bytes()).collect()
}

fn sample(
    name: &'static str,
    message: &Message<'_>,
    fields: Vec<(&'static str, &'static str)>,
) -> Sample {
    (name, message.encode(SENDER, Profile::Default), fields)
}

fn alive() -> Sample {
    let neighbours = neighbours();
    // Label 16 with 300 octets, label 1,048,575 with 2.
    let labels = [0x00, 0x01, 0x00, 0, 0, 0, 1, 44, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 2];
    let message = Message::Alive(Alive {
        interval_ms: 2_000,
        more: true,
        part: 5,
        wants_list: true,
        delay: RelayDelay { base_us: 77, octet_ns: 12, p99_us: 900, load_permille: 430 },
        neighbours: Some(&neighbours),
        labels: &labels,
    });
    let fields = vec![
        ("gwmesh.head.kind", "1"),
        ("gwmesh.head.profile", "1"),
        ("gwmesh.head.sender", "0x0123456789abcdef"),
        ("gwmesh.head.sequence", "4000000000"),
        ("gwmesh.alive.interval", "2000"),
        ("gwmesh.alive.part", "5"),
        ("gwmesh.alive.wants_list", "1"),
        ("gwmesh.alive.delay_base", "77"),
        ("gwmesh.alive.octet_delay", "12"),
        ("gwmesh.alive.delay_p99", "900"),
        ("gwmesh.alive.load", "430"),
        ("gwmesh.node.node", "0x0000000000000001,0x0000000000000002"),
        ("gwmesh.label.label", "16,1048575"),
        ("gwmesh.label.octets_received", "300,2"),
    ];
    sample("I'M ALIVE", &message, fields)
}

fn request() -> Sample {
    let message = Message::Request(RouteRequest {
        origin: PATH.origin,
        origin_epoch: 3,
        request: 12,
        target: PATH.target,
        class: 2,
        background: true,
        routed: true,
        relays: RequestRelays::Near,
        avoids: true,
        frame_limit: 1_500,
        paths: 3,
        hops_left: 8,
        listed: vec![NodeId(9)],
        record: vec![RecordedHop { node: NodeId(10), cost: 20, delay_us: 30 }],
    });
    let fields = vec![
        ("gwmesh.request.origin", "0x00000000000000a0"),
        ("gwmesh.request.target", "0xffffffffffffffff"),
        ("gwmesh.request.request", "12"),
        ("gwmesh.request.frame_limit", "1500"),
        ("gwmesh.request.routed", "1"),
        ("gwmesh.request.relays", "2"),
        ("gwmesh.request.avoids", "1"),
        ("gwmesh.request.hops_left", "8"),
        ("gwmesh.node.node", "0x0000000000000009"),
        ("gwmesh.hop.relay", "0x000000000000000a"),
        ("gwmesh.hop.cost", "20"),
        ("gwmesh.hop.delay", "30"),
    ];
    sample("ROUTE REQUEST", &message, fields)
}

fn reply() -> Sample {
    let message = Message::Reply(RouteReply {
        path: PATH,
        request: 12,
        label: Label(1_000_000),
        class: 1,
        frame_limit: 9_000,
        position: 1,
        cost: 40,
        delay_us: 50,
        station: Some(NodeId(0x0202_0304_0506)),
        record: vec![NodeId(10), NodeId(11)],
    });
    let fields = vec![
        ("gwmesh.reply.path", "99"),
        ("gwmesh.reply.label", "1000000"),
        ("gwmesh.reply.position", "1"),
        ("gwmesh.reply.cost", "40"),
        ("gwmesh.reply.station", "0x0000020203040506"),
        ("gwmesh.node.node", "0x000000000000000a,0x000000000000000b"),
    ];
    sample("ROUTE REPLY", &message, fields)
}

fn broadcast() -> Sample {
    let message = Message::Broadcast(Broadcast {
        origin: NodeId(1),
        origin_epoch: 2,
        number: 3,
        hops_left: 4,
        parts: 2,
        part: 1,
        stations: false,
        payload: &[0xca, 0xfe],
    });
    let fields = vec![
        ("gwmesh.broadcast.number", "3"),
        ("gwmesh.broadcast.parts", "2"),
        ("gwmesh.broadcast.part", "1"),
        ("gwmesh.broadcast.stations", "0"),
        ("gwmesh.payload", "cafe"),
    ];
    sample("BROADCAST", &message, fields)
}

fn acknowledgement() -> Sample {
    let message = Message::Acknowledgement { acknowledged: 41, label: Some(Label(17)) };
    let fields =
        vec![("gwmesh.acknowledgement.acknowledged", "41"), ("gwmesh.acknowledgement.label", "17")];
    sample("PATH ACKNOWLEDGEMENT", &message, fields)
}

fn path_error() -> Sample {
    let message = Message::PathEnd { path: PATH, reporter: NodeId(10), reason: Reason::SILENT };
    let fields = vec![("gwmesh.head.kind", "6"), ("gwmesh.path_end.reason", "2")];
    sample("PATH ERROR", &message, fields)
}

fn path_tear() -> Sample {
    let message = Message::PathEnd { path: PATH, reporter: NodeId(10), reason: Reason::UNUSED };
    let fields = vec![("gwmesh.head.kind", "7"), ("gwmesh.path_end.reason", "7")];
    sample("PATH TEAR", &message, fields)
}

fn label_unknown() -> Sample {
    let message = Message::LabelUnknown(Label(99_999));
    let fields = vec![("gwmesh.unknown.label", "99999")];
    sample("LABEL UNKNOWN", &message, fields)
}

fn liveness() -> Sample {
    let message = Message::Liveness(gatewright_mesh::layout::LivenessHeaderFields {
        diagnostic: 1,
        state: 3,
        poll: true,
        final_: false,
        control_plane_independent: false,
        authentication: false,
        demand: false,
        multipoint: false,
        detect_mult: 3,
        length: 24,
        my_discriminator: 5,
        your_discriminator: 6,
        desired_min_tx_interval: 50_000,
        required_min_rx_interval: 40_000,
        required_min_echo_rx_interval: 0,
    });
    // These fields are those of Wireshark's own dissector.
    let fields = vec![
        ("bfd.version", "1"),
        ("bfd.sta", "0x03"),
        ("bfd.detect_time_multiplier", "3"),
        ("bfd.my_discriminator", "0x00000005"),
        ("bfd.your_discriminator", "0x00000006"),
        ("bfd.desired_min_tx_interval", "50000"),
        ("bfd.required_min_rx_interval", "40000"),
    ];
    sample("LIVENESS", &message, fields)
}

fn challenge() -> Sample {
    let message = Message::Challenge(0x0102_0304_0506_0708);
    let fields = vec![("gwmesh.head.kind", "10"), ("gwmesh.challenge.nonce", "72623859790382856")];
    sample("CHALLENGE", &message, fields)
}

fn challenge_reply() -> Sample {
    let message = Message::ChallengeReply(9);
    let fields = vec![("gwmesh.head.kind", "11"), ("gwmesh.challenge.nonce", "9")];
    sample("CHALLENGE REPLY", &message, fields)
}

fn port_hello() -> Sample {
    let neighbours = neighbours();
    let message = Message::PortHello(PortHello {
        port: 2,
        interval_ms: 300,
        forwards: true,
        ready: true,
        stations: &neighbours,
    });
    let fields = vec![
        ("gwmesh.head.kind", "13"),
        ("gwmesh.port_hello.port", "2"),
        ("gwmesh.port_hello.interval", "300"),
        ("gwmesh.port_hello.forwards", "1"),
        ("gwmesh.port_hello.ready", "1"),
        ("gwmesh.node.node", "0x0000000000000001,0x0000000000000002"),
    ];
    sample("PORT HELLO", &message, fields)
}

/// RFC 3626 §3.3 and §6.1: a HELLO of 1.2.3.4, to which 5.6.7.8 is a symmetric neighbour.
const OLSR: [u8; 28] = [
    0, 28, 0, 9, // packet length and sequence
    1, 0x86, 0, 24, 1, 2, 3, 4, 1, 0, 0, 7, // message: 6 s, one hop
    0, 0, 0x05, 3, 6, 0, 0, 8, 5, 6, 7, 8, // every 2 s, default willingness
];

fn olsr() -> Sample {
    // The fields of the messages are those of Wireshark's own dissector.
    let fields = vec![
        ("gwmesh.head.kind", "14"),
        ("gwmesh.olsr.packet_length", "28"),
        ("gwmesh.olsr.packet_sequence", "9"),
        ("olsr.message_type", "1"),
        ("olsr.origin_addr", "1.2.3.4"),
        ("olsr.neighbor_addr", "5.6.7.8"),
    ];
    sample("OLSR", &Message::Olsr(&OLSR), fields)
}

fn bypass_request() -> Sample {
    let message = Message::BypassRequest(BypassRequest {
        neighbour: NodeId(10),
        epoch: 5,
        label: Label(99_998),
        frame_limit: 1_500,
    });
    let fields = vec![
        ("gwmesh.head.kind", "15"),
        ("gwmesh.bypass_request.neighbour", "0x000000000000000a"),
        ("gwmesh.bypass_request.neighbour_epoch", "5"),
        ("gwmesh.bypass_request.label", "99998"),
        ("gwmesh.bypass_request.frame_limit", "1500"),
    ];
    sample("BYPASS REQUEST", &message, fields)
}

fn bypass_tear() -> Sample {
    let message = Message::BypassTear(Label(99_997));
    let fields = vec![("gwmesh.head.kind", "16"), ("gwmesh.unknown.label", "99997")];
    sample("BYPASS TEAR", &message, fields)
}

fn link_back() -> Sample {
    let message = Message::LinkBack(LinkBack {
        path: PATH,
        reporter: NodeId(12),
        position: 1,
        record: vec![NodeId(10), NodeId(11)],
    });
    let fields = vec![
        ("gwmesh.head.kind", "12"),
        ("gwmesh.link_back.origin", "0x00000000000000a0"),
        ("gwmesh.link_back.path", "99"),
        ("gwmesh.link_back.reporter", "0x000000000000000c"),
        ("gwmesh.link_back.position", "1"),
        ("gwmesh.node.node", "0x000000000000000a,0x000000000000000b"),
    ];
    sample("LINK BACK", &message, fields)
}

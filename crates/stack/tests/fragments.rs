//! Fragments of both families and what is put together of them, as RFC 8200 §4.5, RFC 6946, RFC 7112,
//! RFC 6980, RFC 3168 §5.3 and RFC 791 §3.2 have it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{
    A, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_MAC, from_a, ipv4,
    ipv6::{
        A_MAC, A6, B_MAC, LAN6, cold, echo_request, fragments, frame, gateway, icmp, link_local,
        packets,
    },
};
use gatewright_stack::{
    At, IcmpError, Reason, Reassembling, ReassemblyState, Trace, TraceOutcome, TraceStep,
    builtin::Match,
};
use gatewright_wire::{
    EtherType, IpProtocol, checksum,
    icmpv4::{EchoFields, Icmpv4Type},
    icmpv6::Icmpv6Type,
    ipv4::Ipv4,
    ipv6::FragmentFields,
    ndp::NeighborSolicitationFields,
};
use std::{net::Ipv4Addr, time::Duration};

/// A fragment of a packet from A to the gateway: where it stands, whether more follow, and what
/// kind of header its packet begins with.
fn fragment6(
    start: usize,
    more: bool,
    next_header: IpProtocol,
    identification: u32,
    octets: &[u8],
) -> Vec<u8> {
    let head = FragmentFields {
        next_header,
        fragment_offset: u16::try_from(start / 8).unwrap(),
        more_fragments: more,
        identification,
    };
    let payload = [&head.emit()[..], octets].concat();
    frame(LAN_MAC, A_MAC, IpProtocol::FRAGMENT, (A6, LAN6), 255, &payload)
}

fn count_of(gateway: &Gateway, layer: &str, reason: &str) -> u64 {
    let drops = gateway.drops();
    drops.iter().find(|drop| (drop.0, drop.1) == (layer, reason)).map_or(0, |drop| drop.2)
}

/// A datagram of 47 frames that is nothing but fragment headers: each would be one more datagram to
/// put together. RFC 8200 §4.1 has each header occur once.
#[test]
fn a_fragment_header_behind_a_fragment_header_ends_the_datagram() {
    let head = FragmentFields {
        next_header: IpProtocol::FRAGMENT,
        fragment_offset: 0,
        more_fragments: false,
        identification: 1,
    };
    let message = head.emit().repeat(8000);
    let pieces: Vec<_> = fragments(&message, 1400)
        .into_iter()
        .map(|mut piece| {
            piece[14 + 40] = IpProtocol::FRAGMENT.0;
            piece
        })
        .collect();
    let mut gateway = gateway();
    assert!(packets(&gateway.receive(LAN, &pieces)).is_empty());
    assert_eq!(count_of(&gateway, "ipv6", "nested-fragment"), 1);
    let atomic = fragment6(0, false, IpProtocol::FRAGMENT, 3, &message[..800]);
    assert!(packets(&gateway.receive(LAN, &[atomic])).is_empty());
    assert_eq!(count_of(&gateway, "ipv6", "nested-fragment"), 2);
}

/// RFC 6946 §4: "A host that receives an IPv6 atomic fragment MUST process it in isolation from any
/// other packets/fragments, even if such packets/fragments contain the same set {IPv6 Source Address,
/// IPv6 Destination Address, Fragment Identification}."
#[test]
fn an_atomic_fragment_is_a_packet_of_its_own() {
    let mut gateway = gateway();
    let large = echo_request((A6, LAN6), &[7; 2000]);
    let pieces = fragments(&large, 1000);
    gateway.receive(LAN, &pieces[..1]);
    let small = echo_request((A6, LAN6), &[1; 16]);
    let atomic = fragment6(0, false, IpProtocol::ICMPV6, 77, &small);
    let answered = packets(&gateway.receive(LAN, &[atomic]));
    assert_eq!(answered.len(), 1, "{:?}", gateway.drops());
    let mut reply = small;
    reply[0] = Icmpv6Type::ECHO_REPLY.0;
    assert_eq!(answered[0].2, icmp((LAN6, A6), reply));
    assert_eq!(packets(&gateway.receive(LAN, &pieces[1..])).len(), 2, "the large one, too");
}

/// RFC 8200 §4.5: "If the first fragment does not include all headers through an Upper-Layer header,
/// then that fragment should be discarded and an ICMP Parameter Problem, Code 3, message should be
/// sent to the source of the fragment, with the Pointer field set to zero."
#[test]
fn a_first_fragment_without_all_headers_is_refused() {
    let mut gateway = gateway();
    let before = |next: IpProtocol| [next.0, 0, 1, 4, 0, 0, 0, 0];
    let whole = [&before(IpProtocol::UDP)[..], &[0; 16]].concat();
    let kind = IpProtocol::DESTINATION_OPTIONS;
    let pieces =
        [fragment6(0, true, kind, 5, &whole[..8]), fragment6(8, false, kind, 5, &whole[8..])];
    let sent = packets(&gateway.receive(LAN, &pieces));
    let told: Vec<_> = sent.iter().map(|(_, _, message)| &message[..8]).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0][0], told[0][1], &told[0][4..]), (4, 3, &[0; 4][..]));

    // RFC 4443 §2.4 (e.1): of ICMPv6 it might be an error, about which none is sent.
    let echo = echo_request((A6, LAN6), &[7; 100]);
    let whole = [&before(IpProtocol::ICMPV6)[..], &echo].concat();
    let pieces =
        [fragment6(0, true, kind, 5, &whole[..8]), fragment6(8, false, kind, 5, &whole[8..])];
    assert!(packets(&gateway.receive(LAN, &pieces)).is_empty());

    // With the first eight octets of the echo request behind them the headers are all there.
    let pieces =
        [fragment6(0, true, kind, 6, &whole[..16]), fragment6(16, false, kind, 6, &whole[16..])];
    let sent = packets(&gateway.receive(LAN, &pieces));
    assert_eq!(sent[0].2[0], Icmpv6Type::ECHO_REPLY.0);
}

/// RFC 6980 §5: "Nodes MUST silently ignore the following Neighbor Discovery and SEcure Neighbor
/// Discovery messages if the packet carrying them includes an IPv6 Fragmentation Header".
#[test]
fn neighbour_discovery_in_fragments_is_ignored() {
    let head = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code: 0,
        checksum: 0,
        target_address: LAN6,
    };
    let message = icmp((A6, LAN6), [&head.emit()[..], &[1, 1], &A_MAC.0].concat());
    let cut = [
        fragment6(0, true, IpProtocol::ICMPV6, 5, &message[..16]),
        fragment6(16, false, IpProtocol::ICMPV6, 5, &message[16..]),
    ];
    let atomic = [fragment6(0, false, IpProtocol::ICMPV6, 5, &message)];
    for frames in [&cut[..], &atomic] {
        let mut gateway = cold(|_| {});
        assert!(packets(&gateway.receive(LAN, frames)).is_empty());
        assert_eq!(count_of(&gateway, "ipv6", "fragmented-discovery"), 1);
    }
}

/// An echo request over IPv4.
fn echo4(data: &[u8]) -> Vec<u8> {
    let kind = Icmpv4Type::ECHO_REQUEST;
    let fields = EchoFields { kind, code: 0, checksum: 0, identifier: 7, sequence_number: 1 };
    let mut message = [&fields.emit()[..], data].concat();
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    message
}

/// A fragment over IPv4 of a message of ICMP to the gateway.
fn fragment4(
    from: Ipv4Addr,
    identification: u16,
    (start, more): (usize, bool),
    type_of_service: u8,
    octets: &[u8],
) -> Vec<u8> {
    from_a(&ipv4(from, LAN_IP, IpProtocol::ICMPV4, octets, |ip| {
        ip.identification = identification;
        ip.fragment_offset = u16::try_from(start / 8).unwrap();
        ip.flags = if more { Ipv4::MORE_FRAGMENTS } else { 0 };
        ip.type_of_service = type_of_service;
    }))
}

/// A message in fragments of `piece` octets.
fn cut4(message: &[u8], identification: u16, piece: usize) -> Vec<Vec<u8>> {
    let last = message.len().div_ceil(piece) - 1;
    let cut = |(index, octets): (usize, &[u8])| {
        fragment4(A.1, identification, (index * piece, index < last), 0, octets)
    };
    message.chunks(piece).enumerate().map(cut).collect()
}

#[test]
fn a_flood_of_one_source_costs_its_own_packets_first() {
    let mut gateway = Gateway::new();
    let echo = echo4(&[3; 3000]);
    let pieces = cut4(&echo, 9, 1480);
    gateway.receive(LAN, &pieces[..1]);
    let flooder = Ipv4Addr::new(10, 0, 0, 66);
    for identification in 100..140 {
        for place in 0..64 {
            let start = place * 32;
            let piece = fragment4(flooder, identification, (start, true), 0, &[0; 16]);
            gateway.receive(LAN, &[piece]);
        }
    }
    assert!(count_of(&gateway, "ipv4", "reassembly-evicted") > 30);
    assert!(!gateway.receive(LAN, &pieces[1..]).is_empty(), "{:?}", gateway.drops());
    // From many invented sources, each with little, the oldest give way.
    for host in 0..2000 {
        let source = Ipv4Addr::from_bits(0x0a00_0a00 + host);
        gateway.receive(LAN, &[fragment4(source, 1, (0, true), 0, &[0; 16])]);
    }
    assert!(!gateway.receive(LAN, &cut4(&echo, 10, 1480)).is_empty());
}

/// RFC 3168 §5.3: "Reassembly of a fragmented packet MUST NOT lose indications of congestion", and
/// congestion must not be marked where a fragment is of a sender that does not know the mark.
#[test]
fn congestion_on_a_fragment_is_on_the_whole() {
    let echo = echo4(&[3; 24]);
    let dscp = 0xb8;
    let cases = [
        ([0b10, 0b11], Some(0b11)),
        ([0b11, 0b01], Some(0b11)),
        ([0b01, 0b01], Some(0b01)),
        ([0b00, 0b00], Some(0b00)),
        ([0b00, 0b11], None),
    ];
    for ([first, last], whole) in cases {
        let mut gateway = Gateway::new();
        let pieces = [
            fragment4(A.1, 9, (0, true), dscp | first, &echo[..16]),
            fragment4(A.1, 9, (16, false), dscp | last, &echo[16..]),
        ];
        let sent = gateway.receive(LAN, &pieces);
        // RFC 1122 §3.2.2.6: the reply has the request's type of service.
        let seen = sent.first().map(|(_, frame)| frame[15]);
        assert_eq!(seen, whole.map(|ecn| dscp | ecn), "{first:02b} {last:02b}");
        let dropped = count_of(&gateway, "ipv4", "fragment-congestion");
        assert_eq!(dropped, u64::from(whole.is_none()));
    }
}

/// RFC 791 §3.1: 65,535 octets cut for an MTU of 1500 and on their way again for one of 576.
#[test]
fn the_largest_datagram_is_put_together_however_it_was_cut() {
    let echo = echo4(&vec![9; 65_507]);
    let mut pieces = Vec::new();
    for start in (0..echo.len()).step_by(1480) {
        let end = (start + 1480).min(echo.len());
        for start in (start..end).step_by(552) {
            let end = (start + 552).min(end);
            let place = (start, end < echo.len());
            pieces.push(fragment4(A.1, 9, place, 0, &echo[start..end]));
        }
    }
    assert_eq!(pieces.len(), 133);
    let mut gateway = Gateway::new();
    assert_eq!(gateway.receive(LAN, &pieces).len(), 45, "{:?}", gateway.drops());
    assert!(gateway.is_clean());
}

#[test]
fn more_fragments_than_are_kept_are_told_as_that_and_forgotten() {
    let mut gateway = Gateway::of_frames(8192);
    for place in 0..513 {
        gateway.receive(LAN, &[fragment4(A.1, 9, (place * 16, true), 0, &[0; 8])]);
    }
    assert_eq!(gateway.drops(), [("ipv4", "too-many-fragments", 1)]);
    assert!(gateway.is_clean());
    let pieces = cut4(&echo4(&[3; 24]), 9, 16);
    assert_eq!(gateway.receive(LAN, &pieces).len(), 1, "the next one of this identification");
}

/// RFC 791 §3.1, RFC 8200 §4.5: what is put together fits its length field, headers counted.
#[test]
fn no_packet_is_longer_than_its_length_field_can_say() {
    let whole = vec![0; 65_535];
    // IPv4 counts its header of 20 octets.
    for (len, reason) in [(65_515, "checksum"), (65_516, "fragment-beyond-end")] {
        let mut gateway = Gateway::new();
        gateway.receive(LAN, &cut4(&whole[..len], 9, 1480));
        let layer = if reason == "checksum" { "icmpv4" } else { "ipv4" };
        assert!(gateway.drops().iter().any(|drop| drop.0 == layer), "{len}: {:?}", gateway.drops());
        assert_eq!(count_of(&gateway, "ipv4", reason), u64::from(layer == "ipv4"));
    }
    // IPv6 counts what is behind its header; the options here are 8 octets of that, and the message
    // that tells of it points at the fragment offset (RFC 8200 §4.5).
    let head = |start: usize, more| FragmentFields {
        next_header: IpProtocol(253),
        fragment_offset: u16::try_from(start / 8).unwrap(),
        more_fragments: more,
        identification: 4,
    };
    let piece = |start: usize, len| {
        let options = [IpProtocol::FRAGMENT.0, 0, 1, 4, 0, 0, 0, 0];
        let payload = [&options[..], &head(start, false).emit(), &whole[..len]].concat();
        frame(LAN_MAC, A_MAC, IpProtocol::DESTINATION_OPTIONS, (A6, LAN6), 64, &payload)
    };
    let mut gateway = gateway();
    assert!(packets(&gateway.receive(LAN, &[piece(65_520, 7)])).is_empty());
    let sent = packets(&gateway.receive(LAN, &[piece(65_520, 8)]));
    let [(_, _, told)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((told[0], told[1], &told[4..8]), (4, 0, &[0, 0, 0, 40 + 8 + 2][..]));
}

/// RFC 4007 §6: a link-local address means another host on another link.
#[test]
fn fragments_of_link_local_hosts_on_two_links_are_apart() {
    let mut gateway = gateway();
    let ends = (link_local(0xa), link_local(0x10));
    let request = echo_request(ends, &[7; 100]);
    let piece = |start: usize, end: usize, to, from| {
        let head = FragmentFields {
            next_header: IpProtocol::ICMPV6,
            fragment_offset: u16::try_from(start / 8).unwrap(),
            more_fragments: end < request.len(),
            identification: 4,
        };
        let payload = [&head.emit()[..], &request[start..end]].concat();
        frame(to, from, IpProtocol::FRAGMENT, ends, 64, &payload)
    };
    gateway.host.add_address(WAN, common::ipv6::with(ends.1)).unwrap();
    gateway.receive(LAN, &[piece(0, 48, LAN_MAC, A_MAC)]);
    gateway.receive(WAN, &[piece(48, 108, WAN_MAC, B_MAC)]);
    assert_eq!(count_of(&gateway, "icmpv6", "bad-checksum"), 0);
    let sent = packets(&gateway.receive(LAN, &[piece(48, 108, LAN_MAC, A_MAC)]));
    assert!(!sent.is_empty(), "each with its own: {:?}", gateway.drops());
}

/// Traces the next packet by the LAN, and the steps so far.
fn trace_next(gateway: &mut Gateway) {
    let trace = Trace::new(Some(LAN), Match::default(), || Duration::ZERO);
    assert!(gateway.graph.trace(trace));
}

/// The steps of a trace that is over by itself.
fn traced(gateway: &mut Gateway) -> Vec<TraceStep> {
    let trace = gateway.graph.take_trace(gateway.now, false);
    trace.unwrap().steps().to_vec()
}

/// The one reassembly that the steps tell of.
fn reassembly(steps: &[TraceStep]) -> Reassembling {
    let all: Vec<_> = steps.iter().filter_map(|step| step.reassembly).collect();
    assert_eq!(all.len(), 1, "{steps:?}");
    all[0]
}

/// Whichever fragment is traced, the trace waits for the datagram and follows it.
#[test]
fn a_trace_of_a_fragment_follows_the_datagram() {
    for chosen in 0..3 {
        let mut gateway = Gateway::new();
        let pieces = cut4(&echo4(&[7; 2000]), 9, 1000);
        assert_eq!(pieces.len(), 3);
        gateway.receive(LAN, &pieces[..chosen]);
        trace_next(&mut gateway);
        gateway.receive(LAN, &pieces[chosen..=chosen]);
        if chosen < 2 {
            assert!(gateway.graph.take_trace(gateway.now, false).is_none(), "it waits");
            gateway.receive(LAN, &pieces[chosen + 1..]);
        }
        let steps = traced(&mut gateway);
        let (state, octets) = (ReassemblyState::Complete, 2008);
        let complete = Reassembling { state, fragments: 3, octets, total: Some(octets) };
        assert_eq!(reassembly(&steps), complete);
        assert!(steps.iter().any(|step| step.layer == Some("icmpv4")), "{steps:?}");
        assert_eq!(steps.last().unwrap().outcome, TraceOutcome::Sent);
    }
    // Over IPv6, too.
    let mut gateway = gateway();
    trace_next(&mut gateway);
    gateway.receive(LAN, &fragments(&echo_request((A6, LAN6), &[7; 2000]), 1000));
    let steps = traced(&mut gateway);
    assert_eq!(reassembly(&steps).state, ReassemblyState::Complete);
    assert!(steps.iter().any(|step| step.layer == Some("icmpv6")), "{steps:?}");
}

/// A datagram that does not become whole is told as waiting, then as given up, with the reason; the
/// error about its first fragment is followed.
#[test]
fn a_trace_of_a_fragment_ends_with_its_reassembly() {
    let mut gateway = Gateway::new();
    let pieces = cut4(&echo4(&[7; 2000]), 9, 1000);
    trace_next(&mut gateway);
    gateway.receive(LAN, &pieces[..2]);
    assert!(gateway.tick(59).is_empty());
    assert!(gateway.graph.take_trace(gateway.now, false).is_none(), "it waits still");
    assert_eq!(gateway.tick(2).len(), 1, "time exceeded");
    let steps = traced(&mut gateway);
    let state = ReassemblyState::GivenUp(Reason("reassembly-timeout"));
    let expected = Reassembling { state, fragments: 2, octets: 2000, total: None };
    assert_eq!(reassembly(&steps), expected);
    let at = At::Error(EtherType::IPV4, IcmpError::Reassembly);
    assert!(steps.iter().any(|step| step.at == at), "{steps:?}");
    assert_eq!(steps.last().unwrap().outcome, TraceOutcome::Sent);

    // Of a later fragment nothing is sent; what waits is told if the trace is ended before.
    let mut gateway = Gateway::new();
    trace_next(&mut gateway);
    gateway.receive(LAN, &pieces[1..2]);
    let waiting = gateway.graph.take_trace(gateway.now, true).unwrap();
    let state = ReassemblyState::Waiting;
    let expected = Reassembling { state, fragments: 1, octets: 1000, total: None };
    assert_eq!(reassembly(waiting.steps()), expected);

    // Another fragment contradicts it.
    let mut gateway = Gateway::new();
    trace_next(&mut gateway);
    gateway.receive(LAN, &pieces[..1]);
    gateway.receive(LAN, &[fragment4(A.1, 9, (8, true), 0, &[0; 8])]);
    let state = ReassemblyState::GivenUp(Reason("fragment-overlap"));
    assert_eq!(reassembly(&traced(&mut gateway)).state, state);
}

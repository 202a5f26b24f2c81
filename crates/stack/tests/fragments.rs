//! Fragments of both families and what is put together of them, as RFC 8200 §4.5, RFC 6946, RFC 7112,
//! RFC 6980, RFC 3168 §5.3 and RFC 791 §3.2 have it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    Gateway, LAN, LAN_MAC,
    ipv6::{A_MAC, A6, LAN6, cold, echo_request, fragments, frame, gateway, icmp, packets},
};
use gatewright_wire::{
    IpProtocol, icmpv6::Icmpv6Type, ipv6::FragmentFields, ndp::NeighborSolicitationFields,
};

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
    let options = [IpProtocol::ICMPV6.0, 0, 1, 4, 0, 0, 0, 0];
    let whole = [&options[..], &echo_request((A6, LAN6), &[7; 100])].concat();
    let kind = IpProtocol::DESTINATION_OPTIONS;
    let pieces =
        [fragment6(0, true, kind, 5, &whole[..8]), fragment6(8, false, kind, 5, &whole[8..])];
    let sent = packets(&gateway.receive(LAN, &pieces));
    let told: Vec<_> = sent.iter().map(|(_, _, message)| &message[..8]).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0][0], told[0][1], &told[0][4..]), (4, 3, &[0; 4][..]));

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

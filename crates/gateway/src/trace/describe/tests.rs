//! Fragments, errors and reassemblies in words.

use super::*;
use gatewright_packet::LinkIndex;
use gatewright_stack::{At, Reason, Side, TraceOutcome};
use gatewright_wire::{
    EtherType,
    ipv4::Ipv4Fields,
    ipv6::{FragmentFields, Ipv6Fields},
};
use std::time::Duration;

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
/// Ports 4096 and 53.
const UDP: [u8; 8] = [0x10, 0, 0, 53, 0, 8, 0, 0];

fn said(family: EtherType, octets: Vec<u8>) -> Option<String> {
    let step = TraceStep {
        at: At::EtherType(family),
        side: Side::Receive,
        layer: None,
        ingress: LinkIndex(0),
        egress: LinkIndex::NONE,
        octets,
        framing: None,
        handlers: Vec::new(),
        took: Duration::ZERO,
        outcome: TraceOutcome::Passed,
        reassembly: None,
    };
    description(&step).map(|description| description.text)
}

fn ipv4(protocol: IpProtocol, (from, to): (Ipv4Addr, Ipv4Addr), payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).unwrap();
    let fields = Ipv4Fields::new(protocol, from, to, len);
    [&fields.emit_with_checksum()[..], payload].concat()
}

fn ipv6(protocol: IpProtocol, (from, to): (Ipv6Addr, Ipv6Addr), payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    [&Ipv6Fields::new(protocol, from, to, len).emit()[..], payload].concat()
}

#[test]
fn an_error_of_ipv4_names_what_it_is_about() {
    let udp = ipv4(IpProtocol::UDP, (A, B), &UDP);
    let tcp = ipv4(IpProtocol::TCP, (A, B), &UDP);
    let echo = ipv4(IpProtocol::ICMPV4, (A, B), &[8, 0, 0, 0, 0, 0, 0, 0]);
    let nothing = vec![0];
    for (head, about, expected) in [
        (
            [11, 0, 0, 0, 0, 0, 0, 0],
            &udp,
            "ICMP time exceeded in transit (type 11, code 0) \
             about UDP 192.0.2.2:4096 → 198.51.100.2:53",
        ),
        (
            [3, 4, 0, 0, 0, 0, 0x05, 0x14],
            &tcp,
            "ICMP fragmentation needed, MTU 1300 (type 3, code 4) \
             about TCP 192.0.2.2:4096 → 198.51.100.2:53",
        ),
        (
            [3, 1, 0, 0, 0, 0, 0, 0],
            &echo,
            "ICMP host unreachable (type 3, code 1) \
             about ICMP echo request 192.0.2.2 → 198.51.100.2",
        ),
        (
            [5, 1, 0, 0, 192, 0, 2, 9],
            &udp,
            "ICMP redirect to 192.0.2.9 (type 5, code 1) \
             about UDP 192.0.2.2:4096 → 198.51.100.2:53",
        ),
        (
            [3, 9, 0, 0, 0, 0, 0, 0],
            &nothing,
            "ICMP destination unreachable (type 3, code 9) about nothing that can be read",
        ),
    ] {
        let message = [&head[..], about].concat();
        let error = ipv4(IpProtocol::ICMPV4, (ROUTER, A), &message);
        assert_eq!(said(EtherType::IPV4, error).as_deref(), Some(expected));
    }
    // One of ours, which has no length yet.
    let message = [&[11_u8, 0, 0, 0, 0, 0, 0, 0][..], &udp].concat();
    let head = Ipv4Fields::new(IpProtocol::ICMPV4, ROUTER, A, 0).emit();
    let error = said(EtherType::IPV4, [&head[..], &message].concat());
    assert!(error.is_some_and(|text| text.contains("about UDP 192.0.2.2:4096")));
    assert_eq!(said(EtherType::IPV4, udp), None, "neither fragment nor error");
    assert_eq!(said(EtherType::IPV4, echo), None);
}

#[test]
fn an_error_of_ipv6_names_what_it_is_about() {
    let udp = ipv6(IpProtocol::UDP, (A6, B6), &UDP);
    let redirect = [ROUTER6.octets(), B6.octets()].concat();
    for (head, about, expected) in [
        (
            [2, 0, 0, 0, 0, 0, 0x05, 0x14],
            &udp,
            "ICMPv6 packet too big, MTU 1300 (type 2, code 0) \
             about UDP [2001:db8:1::2]:4096 → [2001:db8:2::2]:53",
        ),
        (
            [4, 1, 0, 0, 0, 0, 0, 6],
            &udp,
            "ICMPv6 unrecognized next header at octet 6 (type 4, code 1) \
             about UDP [2001:db8:1::2]:4096 → [2001:db8:2::2]:53",
        ),
        (
            [137, 0, 0, 0, 0, 0, 0, 0],
            &redirect,
            "ICMPv6 redirect to 2001:db8:1::1 (type 137, code 0) for 2001:db8:2::2",
        ),
    ] {
        let message = [&head[..], about].concat();
        let error = ipv6(IpProtocol::ICMPV6, (ROUTER6, A6), &message);
        assert_eq!(said(EtherType::IPV6, error).as_deref(), Some(expected));
    }
}

#[test]
fn a_fragment_tells_its_part_of_the_datagram() {
    let mut fields = Ipv4Fields::new(IpProtocol::UDP, A, B, 20 + 1480);
    (fields.identification, fields.fragment_offset, fields.flags) = (9, 185, 1);
    let second = [&fields.emit_with_checksum()[..], &[0; 1480]].concat();
    let expected = "fragment 0x9 of UDP 192.0.2.2 → 198.51.100.2: octets 1480 to 2959, more follow";
    assert_eq!(said(EtherType::IPV4, second).as_deref(), Some(expected));

    let head = FragmentFields {
        next_header: IpProtocol::ICMPV6,
        fragment_offset: 3,
        more_fragments: false,
        identification: 77,
    };
    let last = ipv6(IpProtocol::FRAGMENT, (A6, B6), &[&head.emit()[..], &[0; 16]].concat());
    let expected =
        "fragment 0x4d of ICMPv6 2001:db8:1::2 → 2001:db8:2::2: octets 24 to 39, the last";
    assert_eq!(said(EtherType::IPV6, last).as_deref(), Some(expected));
}

#[test]
fn a_reassembly_tells_its_state() {
    let of = |state, fragments, octets, total| {
        reassembly(&Reassembling { state, fragments, octets, total })
    };
    assert_eq!(
        of(ReassemblyState::Waiting, 1, 1480, None),
        "reassembly waits for further fragments; 1 fragment, 1480 octets, the last fragment has \
         not come"
    );
    assert_eq!(
        of(ReassemblyState::Waiting, 2, 1528, Some(3008)),
        "reassembly waits for further fragments; 2 fragments, 1528 of 3008 octets"
    );
    assert_eq!(
        of(ReassemblyState::Complete, 3, 3008, Some(3008)),
        "reassembly is complete; 3 fragments, 3008 octets"
    );
    assert_eq!(
        of(ReassemblyState::GivenUp(Reason("reassembly-timeout")), 1, 8, Some(16)),
        "reassembly timed out, 60 s after the first fragment; 1 fragment, 8 of 16 octets"
    );
    assert_eq!(
        of(ReassemblyState::GivenUp(Reason("fragment-overlap")), 2, 96, Some(128)),
        "reassembly was given up: fragment-overlap; 2 fragments, 96 of 128 octets"
    );
}

//! Filters: rules in order, behind all headers, and fragments by their first one's verdict.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_MAC, WAN, ether, from_a, ipv4,
    ipv6::{self, A_MAC, A6, B6, frame},
};
use gatewright_stack::{
    At, Attachment, AttachmentId, Counter, Place, Swap,
    builtin::{Among, Filter, FilterCounters, Match, PortRange, Rule, Selector, Subnet, Verdict},
};
use gatewright_wire::{
    EtherType, IpProtocol,
    ipv4::{Ipv4, Ipv4Fields},
    ipv6::FragmentFields,
};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const UDP: IpProtocol = IpProtocol::UDP;

/// A gateway with a filter before its network layers.
fn attach(gateway: &mut Gateway, filter: Filter) -> FilterCounters {
    let counters = filter.counters();
    let at = Attachment::new(At::Frame, Place::Before);
    let id = AttachmentId(1);
    let wiring = gateway.plan.wire(&[(id, at)]).unwrap();
    let handlers = vec![(id, Box::new(filter) as _, Counter::default())];
    gateway.graph.swap(Swap { wiring, handlers });
    counters
}

fn to_port(text: &str) -> Selector {
    Selector { destination_port: ports(text), ..Selector::default() }
}

fn ports(text: &str) -> Among<PortRange> {
    Among::In(text.split(',').map(|range| range.parse().unwrap()).collect())
}

fn accept(which: Selector) -> Rule {
    Rule { which, verdict: Verdict::Accept }
}

fn drop_all(which: Selector) -> Rule {
    Rule { which, verdict: Verdict::Drop }
}

/// The head of a datagram with some payload.
fn udp(from: u16, to: u16) -> Vec<u8> {
    [&[from, to, 24, 0].map(u16::to_be_bytes).concat()[..], &[0; 16]].concat()
}

fn from_a6(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(LAN_MAC, A_MAC, IpProtocol(first), (A6, B6), 64, payload)
}

/// How many of `frames` are forwarded to the WAN.
fn forwarded(gateway: &mut Gateway, frames: &[Vec<u8>]) -> usize {
    gateway.receive(LAN, frames).iter().filter(|(link, _)| *link == WAN).count()
}

/// RFC 8200 §4.1: whatever headers stand before it, the port is the port.
#[test]
fn no_header_hides_a_port() {
    let fragment = |next: u8| [&[next, 0, 0, 0][..], &[0, 0, 0, 1]].concat();
    let chains: [(&str, u8, Vec<u8>); 6] = [
        ("nothing", 17, vec![]),
        ("destination options", 60, vec![17, 0, 1, 4, 0, 0, 0, 0]),
        ("hop-by-hop options", 0, vec![17, 0, 1, 4, 0, 0, 0, 0]),
        ("authentication", 51, [&[17, 1][..], &[0; 10]].concat()),
        ("an atomic fragment", 44, fragment(17)),
        (
            "all of them",
            0,
            [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[44, 0, 1, 4, 0, 0, 0, 0], &fragment(17)].concat(),
        ),
    ];
    for (name, first, chain) in chains {
        let mut gateway = ipv6::gateway();
        let counters =
            attach(&mut gateway, Filter::dropping(Match { port: Some(53), ..Match::default() }));
        let [refused, other] =
            [53, 54].map(|port| from_a6(first, &[&chain[..], &udp(5000, port)].concat()));
        assert_eq!(forwarded(&mut gateway, &[refused]), 0, "{name}");
        assert_eq!(forwarded(&mut gateway, &[other]), 1, "{name}");
        assert_eq!([counters.rules[0].get(), counters.default.get()], [1, 1], "{name}");
    }
    // Over IPv4 options do not hide it either.
    let mut gateway = Gateway::new();
    attach(&mut gateway, Filter::dropping(Match { port: Some(53), ..Match::default() }));
    for (port, passes) in [(53, 0), (54, 1)] {
        let options = [1; 4];
        let mut fields = Ipv4Fields::new(UDP, A.1, B.1, 48);
        fields.ihl = 6;
        let header = fields.emit_with_options(&options);
        let packet = [&header[..], &options, &udp(5000, port)].concat();
        assert_eq!(forwarded(&mut gateway, &[from_a(&packet)]), passes);
    }
}

/// A packet whose headers end before what a rule asks for would reach its host all the same, which
/// may see more in it than the filter does.
#[test]
fn what_cannot_be_read_is_taken_where_a_rule_asks_for_it() {
    let options = [60, 0, 1, 4, 0, 0, 0, 0];
    let cases: [(&str, Vec<u8>); 4] = [
        ("cut short", from_a6(60, &[17, 9, 1, 4, 0, 0, 0, 0])),
        ("without ports", from_a6(17, &[0, 53])),
        ("too many headers", from_a6(60, &[&options.repeat(9)[..], &udp(1, 54)].concat())),
        (
            "a fragment of a fragment",
            from_a6(
                44,
                &[&[44, 0, 0, 0, 0, 0, 0, 1][..], &[17, 0, 0, 0, 0, 0, 0, 1], &udp(1, 54)].concat(),
            ),
        ),
    ];
    for (name, packet) in cases {
        let mut gateway = ipv6::gateway();
        let counters =
            attach(&mut gateway, Filter::new(vec![drop_all(to_port("53"))], Verdict::Accept));
        assert_eq!(forwarded(&mut gateway, std::slice::from_ref(&packet)), 0, "{name}");
        assert_eq!(counters.malformed.get(), 1, "{name}");
        // A rule about addresses does not mind.
        let subnet = Subnet { address: "2001:db8::".parse().unwrap(), bits: 32 };
        let elsewhere = Selector { source: Among::In(vec![subnet]), ..Selector::default() };
        let mut gateway = ipv6::gateway();
        attach(&mut gateway, Filter::new(vec![drop_all(elsewhere)], Verdict::Accept));
        assert_eq!(forwarded(&mut gateway, &[packet]), 1, "{name}");
    }
}

fn fragment4(id: u16, port: Option<u16>) -> Vec<u8> {
    let octets = port.map_or(vec![0; 16], |port| udp(5000, port));
    from_a(&ipv4(A.1, B.1, UDP, &octets, |ip| {
        ip.identification = id;
        ip.fragment_offset = if port.is_some() { 0 } else { 3 };
        ip.flags = if port.is_some() { Ipv4::MORE_FRAGMENTS } else { 0 };
    }))
}

fn fragment6(id: u32, port: Option<u16>) -> Vec<u8> {
    let head = FragmentFields {
        next_header: IpProtocol::DESTINATION_OPTIONS,
        fragment_offset: if port.is_some() { 0 } else { 4 },
        more_fragments: port.is_some(),
        identification: id,
    };
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    let octets = port.map_or(vec![0; 16], |port| [&options[..], &udp(5000, port)].concat());
    from_a6(44, &[&head.emit()[..], &octets].concat())
}

/// RFC 791 §3.2, RFC 8200 §4.5: the ports are in the first fragment; the others go where it goes.
#[test]
fn fragments_share_the_verdict_of_the_first() {
    let rules = || vec![drop_all(to_port("53")), accept(to_port("1-1023"))];
    for (mut gateway, fragment) in [
        (Gateway::new(), (|id, port| fragment4(id, port)) as fn(u16, Option<u16>) -> Vec<u8>),
        (ipv6::gateway(), |id, port| fragment6(id.into(), port)),
    ] {
        let counters = attach(&mut gateway, Filter::new(rules(), Verdict::Drop));
        let mut pass = |id, port| forwarded(&mut gateway, &[fragment(id, port)]);
        assert_eq!([pass(1, Some(53)), pass(1, None), pass(1, None)], [0, 0, 0]);
        assert_eq!([pass(2, Some(80)), pass(2, None), pass(2, None)], [1, 1, 1]);
        assert_eq!([pass(3, Some(8080)), pass(3, None)], [0, 0]);
        // An identification that is used again is another packet's.
        assert_eq!([pass(1, Some(80)), pass(1, None)], [1, 1]);
        let [first, second] = [&counters.rules[0], &counters.rules[1]].map(Counter::get);
        assert_eq!([first, second, counters.default.get()], [3, 5, 2]);
        assert_eq!(pass(4, None), 0, "nobody has seen the first");
        assert_eq!(counters.fragments_unknown.get(), 1);
        gateway.tick(61);
        assert_eq!(counters.fragments_forgotten.get(), 0);
        forwarded(&mut gateway, &[fragment(2, None)]);
        assert_eq!(counters.fragments_unknown.get(), 2, "a minute is over");
    }
}

#[test]
fn a_flood_of_fragments_is_remembered_within_bounds_and_counted() {
    let mut gateway = Gateway::new();
    let counters = attach(&mut gateway, Filter::new(vec![accept(to_port("80"))], Verdict::Drop));
    for id in 0..1500 {
        assert_eq!(forwarded(&mut gateway, &[fragment4(id, Some(80))]), 1);
    }
    assert_eq!(counters.fragments_forgotten.get(), 1500 - 1024);
    assert_eq!(forwarded(&mut gateway, &[fragment4(1499, None), fragment4(0, None)]), 1);
    assert_eq!(counters.fragments_unknown.get(), 1);
}

/// What a filter of a small network says: nothing from outside but what is listed.
#[test]
fn the_first_rule_that_fits_decides_and_else_the_default() {
    let subnet = |text: &str, bits| Subnet { address: text.parse().unwrap(), bits };
    let any = Selector::default;
    let rules = vec![
        drop_all(Selector { source: Among::In(vec![subnet("10.0.0.66", 32)]), ..any() }),
        accept(Selector { protocol: Among::In(vec![IpProtocol::ICMPV4]), ..any() }),
        accept(Selector {
            protocol: Among::In(vec![UDP]),
            source_port: Among::NotIn(vec!["0-1023".parse().unwrap()]),
            ..to_port("53,5683-5684")
        }),
        accept(Selector {
            destination: Among::NotIn(vec![subnet("10.0.0.0", 16), subnet("192.0.2.0", 24)]),
            ..to_port("9000")
        }),
    ];
    let mut gateway = Gateway::new();
    let via = gatewright_stack::Route::Via { link: WAN, gateway: B.1.into() };
    gateway.host.add_route("203.0.113.0/24".parse().unwrap(), via).unwrap();
    let counters = attach(&mut gateway, Filter::new(rules, Verdict::Drop));
    let far = Ipv4Addr::new(203, 0, 113, 1);
    let other = Ipv4Addr::new(10, 0, 0, 66);
    let tcp = IpProtocol::TCP;
    let icmp = IpProtocol::ICMPV4;
    for (from, to, protocol, ports, passes) in [
        (A.1, B.1, icmp, (0, 0), 1),
        (other, B.1, icmp, (0, 0), 0),
        (A.1, B.1, UDP, (5000, 53), 1),
        (A.1, B.1, UDP, (5000, 5684), 1),
        (A.1, B.1, UDP, (5000, 5685), 0),
        (A.1, B.1, UDP, (1023, 53), 0),
        (A.1, B.1, tcp, (5000, 53), 0),
        (A.1, far, tcp, (5000, 9000), 1),
        (A.1, B.1, tcp, (5000, 9000), 0),
        // A condition on ports is about packets that have ports.
        (A.1, far, IpProtocol(253), (5000, 9000), 0),
    ] {
        let packet = ipv4(from, to, protocol, &udp(ports.0, ports.1), |_| {});
        let name = format!("{from} to {to}, {protocol:?} {ports:?}");
        assert_eq!(forwarded(&mut gateway, &[from_a(&packet)]), passes, "{name}");
    }
    let counted: Vec<_> = counters.rules.iter().map(Counter::get).collect();
    assert_eq!((counted, counters.default.get()), (vec![1, 1, 2, 1], 5));
    // ARP is no IP packet: a filter that drops what is not listed lets it be.
    let ask = gatewright_wire::arp::ArpFields::request(A.0, A.1, common::LAN_IP);
    let ask = ether(LAN_MAC, A.0, EtherType::ARP, &ask.emit());
    assert_eq!(gateway.receive(LAN, &[ask]).len(), 1);
}

#[test]
fn ports_are_written_as_one_or_from_one_to_another() {
    for (text, range) in [("53", (53, 53)), ("0-65535", (0, 65_535)), (" 1 - 2 ", (1, 2))] {
        let read: PortRange = text.parse().unwrap();
        assert_eq!((read.first, read.last), range);
        assert_eq!(read.to_string().parse(), Ok(read));
    }
    for text in ["", "-", "5-", "-5", "2-1", "65536", "http", "1-2-3"] {
        assert!(text.parse::<PortRange>().is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever extension headers stand before a port, the verdict is that of the port.
    #[test]
    fn extension_headers_change_no_verdict(
        chain in prop::collection::vec(prop::sample::select(vec![0_u8, 43, 60, 135, 139, 140]), 0..8),
        port in any::<u16>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut gateway = ipv6::gateway();
        let filter = Filter::new(vec![drop_all(to_port("0-32767"))], Verdict::Accept);
        attach(&mut gateway, filter);
        let kinds: Vec<u8> = chain.into_iter().chain([17]).collect();
        let headers = kinds.windows(2).flat_map(|pair| [pair[1], 0, 1, 4, 0, 0, 0, 0]);
        let payload: Vec<u8> = headers.chain(udp(5000, port)).collect();
        let passes = usize::from(port > 32_767);
        prop_assert_eq!(forwarded(&mut gateway, &[from_a6(kinds[0], &payload)]), passes);
        // Whatever else comes, the filter goes on.
        let odd = [from_a6(kinds[0], &noise), from_a(&noise), noise];
        gateway.receive(LAN, &odd);
        prop_assert!(gateway.is_clean());
    }
}

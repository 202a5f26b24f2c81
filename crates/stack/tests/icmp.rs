//! ICMP of both families: about what no error is sent, how many are, and what an answer keeps of its
//! request.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_MAC, ether, from_a, hex, ipv4,
    ipv6::{self, A_MAC, A6, B6, frame, icmp, packets},
};
use gatewright_stack::{Route, Trace, TraceOutcome, builtin::Match};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, checksum,
    ipv4::{Ipv4, Ipv4Fields},
    ipv6::Ipv6Fields,
};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// RFC 4443 §2.4 (e): "An ICMPv6 error message MUST NOT be originated as a result of receiving … an
/// ICMPv6 error message [or] an ICMPv6 redirect message", behind whatever headers it is.
#[test]
fn no_error_is_sent_about_an_error_behind_extension_headers() {
    let options = hex("3a 00 01 04 00000000");
    let mobility = hex("3a 00 00 00 00000000");
    let authentication = [&hex("3a 04")[..], &[0; 22]].concat();
    let fragment = |offset: u8| [&hex("3a 00 00")[..], &[offset << 3], &[0, 0, 0, 1]].concat();
    let chains: [(&str, u8, Vec<u8>); 5] = [
        ("options", 60, options.clone()),
        ("routing", 43, options),
        ("authentication", 51, authentication),
        ("mobility", 135, mobility),
        ("a fragment", 44, fragment(0)),
    ];
    for kind in [1, 137] {
        let error = icmp((A6, B6), vec![kind, 0, 0, 0, 0, 0, 0, 0]);
        for (name, first, chain) in &chains {
            let mut gateway = ipv6::gateway();
            let payload = [&chain[..], &error].concat();
            let spent = frame(LAN_MAC, A_MAC, IpProtocol(*first), (A6, B6), 1, &payload);
            assert_eq!(gateway.receive(LAN, &[spent]), [], "{name}");
            assert_eq!(gateway.drops(), [("icmpv6", "error-not-sent", 1)], "{name}");
        }
    }
    // What a later fragment is of cannot be seen; what is no error is told of.
    let echo = icmp((A6, B6), vec![128, 0, 0, 0, 0, 0, 0, 0]);
    for (payload, answers) in
        [([fragment(1), echo.clone()].concat(), 0), ([fragment(0), echo].concat(), 1)]
    {
        let mut gateway = ipv6::gateway();
        let spent = frame(LAN_MAC, A_MAC, IpProtocol::FRAGMENT, (A6, B6), 1, &payload);
        assert_eq!(packets(&gateway.receive(LAN, &[spent])).len(), answers);
    }
}

/// RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f): errors are limited; who provokes many takes none of the
/// others'.
#[test]
fn a_subnet_that_provokes_errors_takes_nobody_elses() {
    let mut gateway = Gateway::new();
    let spent =
        |from: Ipv4Addr, to| ipv4(from, to, IpProtocol::UDP, b"12345678", |ip| ip.time_to_live = 1);
    let flood = vec![from_a(&spent(Ipv4Addr::new(192, 0, 2, 7), B.1)); 2000];
    gateway.receive(LAN, &flood);
    assert!(gateway.drops().contains(&("icmpv4", "rate-limited", 1950)), "{:?}", gateway.drops());
    let told = |gateway: &mut Gateway, link, frame: Vec<u8>| {
        gateway.receive(link, &[frame]).iter().filter(|(_, sent)| sent[12..14] == [8, 0]).count()
    };
    assert_eq!(told(&mut gateway, LAN, from_a(&spent(A.1, B.1))), 1, "another subnet");

    // From many subnets at once, the link's share is all that they take.
    for subnet in 0..200 {
        let from = Ipv4Addr::new(198, 18, subnet, 1);
        gateway.receive(LAN, &vec![from_a(&spent(from, B.1)); 10]);
    }
    assert_eq!(told(&mut gateway, LAN, from_a(&spent(A.1, B.1))), 0, "the link has had its share");
    let from_b = ether(WAN_MAC, B.0, EtherType::IPV4, &spent(B.1, A.1));
    assert_eq!(told(&mut gateway, WAN, from_b), 1, "another link");
}

#[test]
fn errors_are_limited_by_subnet_over_ipv6_too() {
    let mut gateway = ipv6::gateway();
    let spent = |from: Ipv6Addr| frame(LAN_MAC, A_MAC, IpProtocol(253), (from, B6), 1, b"12345678");
    let limited = |gateway: &Gateway| {
        let drops = gateway.drops();
        let found = drops.iter().find(|drop| drop.1 == "error-rate-limited");
        found.map_or(0, |found| found.2)
    };
    for host in 0..1000 {
        let from = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, host);
        gateway.receive(LAN, &[spent(from)]);
    }
    assert_eq!(limited(&gateway), 950, "of all hosts of one subnet");
    assert_eq!(packets(&gateway.receive(LAN, &[spent(A6)])).len(), 1);
}

/// RFC 4861 §8.2: "A router MUST limit the rate at which Redirect messages are sent". A host that
/// ignores them takes neither the redirects nor the errors of its neighbours; the redirects of one
/// link have a limit of their own.
#[test]
fn a_host_that_ignores_redirects_takes_nobody_elses() {
    let other = (MacAddress([2, 0, 0, 0, 0, 0xc]), Ipv4Addr::new(10, 0, 0, 7));
    let router = Ipv4Addr::new(10, 0, 0, 254);
    let beyond = Ipv4Addr::new(192, 0, 2, 1);
    let mut gateway = Gateway::new();
    gateway.introduce(LAN, LAN_MAC, LAN_IP, other);
    gateway.introduce(LAN, LAN_MAC, LAN_IP, (MacAddress([2, 0, 0, 0, 0, 0xfe]), router));
    let via = Route::Via { link: LAN, gateway: router.into() };
    gateway.host.add_route("192.0.2.0/24".parse().unwrap(), via).unwrap();
    let packet = |from: Ipv4Addr, hops| {
        from_a(&ipv4(from, beyond, IpProtocol::UDP, b"12345678", |ip| ip.time_to_live = hops))
    };
    // To `host`: redirects, and time exceeded.
    let told = |sent: &[common::Frame], host: Ipv4Addr| {
        let to = |kind: u8| {
            let of = |frame: &[u8]| frame[30..34] == host.octets() && frame[34] == kind;
            sent.iter().filter(|(_, frame)| frame[23] == 1 && of(frame)).count()
        };
        [to(5), to(11)]
    };
    let sent = gateway.receive(LAN, &vec![packet(A.1, 64); 2000]);
    assert_eq!(told(&sent, A.1), [5, 0]);
    let sent = gateway.receive(LAN, &[packet(other.1, 64), packet(A.1, 1)]);
    assert_eq!((told(&sent, other.1), told(&sent, A.1)), ([1, 0], [0, 1]));

    let each = |last: u32| packet(Ipv4Addr::from_bits(0x0a00_0000 | last), 64);
    let sent = gateway.receive(LAN, &(100..200).map(each).collect::<Vec<_>>());
    let redirects = sent.iter().filter(|(_, frame)| frame[23] == 1 && frame[34] == 5).count();
    assert!(redirects < 50, "{redirects} redirects: the link has its limit, too");
}

/// The same over IPv6, where neighbour discovery has the redirects.
#[test]
fn redirects_are_limited_by_host_over_ipv6_too() {
    let mut gateway = ipv6::gateway();
    let router = ipv6::link_local(0x254);
    let via = Route::Via { link: LAN, gateway: router.into() };
    gateway.host.add_route6("2001:db8::/32".parse().unwrap(), via).unwrap();
    let beyond = "2001:db8::1".parse().unwrap();
    let other = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0xd);
    gateway.receive(LAN, &[ipv6::solicitation(A_MAC, other, ipv6::LAN6)]);
    let packet = |from| frame(LAN_MAC, A_MAC, IpProtocol(253), (from, beyond), 64, b"12345678");
    let told = |gateway: &mut Gateway, from, times| {
        let sent = gateway.receive(LAN, &vec![packet(from); times]);
        let is_redirect = |(_, ip, message): &(_, Ipv6Fields, Vec<u8>)| {
            ip.destination_address == from && message[0] == 137
        };
        packets(&sent).iter().filter(|sent| is_redirect(sent)).count()
    };
    assert_eq!(told(&mut gateway, A6, 1000), 5);
    assert_eq!(told(&mut gateway, other, 1), 1);
}

/// Whoever floods with echo requests takes the replies of nobody else.
#[test]
fn echo_replies_are_limited_by_subnet_over_ipv6() {
    let mut gateway = ipv6::gateway();
    let request = |from: Ipv6Addr| {
        let message = ipv6::echo_request((from, ipv6::LAN6), b"x");
        frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (from, ipv6::LAN6), 64, &message)
    };
    let far = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 7);
    let via = Route::Via { link: LAN, gateway: A6.into() };
    gateway.host.add_route6("fd00:7::/64".parse().unwrap(), via).unwrap();
    let replies = |gateway: &mut Gateway, from, times: usize| {
        packets(&gateway.receive(LAN, &vec![request(from); times])).len()
    };
    assert_eq!(replies(&mut gateway, far, 12_000), 5_000);
    assert_eq!(replies(&mut gateway, A6, 1), 1);
}

/// RFC 1122 §3.2.2.6: "If a Record Route … option is received in an ICMP Echo Request, this option …
/// SHOULD be updated to include the current host and included in the IP header of the Echo Reply
/// message, without 'truncation'."
#[test]
fn an_echo_reply_has_the_route_that_its_request_recorded() {
    for (request, reply) in [
        ("07 0b 08 0a090909 00000000 00", "07 0b 0c 0a090909 0a000001 00"),
        ("01 07 07 04 00000000", "07 07 08 0a000001 00"),
        ("07 07 08 01020304 00", "07 07 08 01020304 00"),
        ("94 04 0000", ""),
    ] {
        let mut gateway = Gateway::new();
        let mut message = hex("0800 0000 0007 0001 61626364");
        let sum = checksum::of(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        let options = hex(request);
        let len = u16::try_from(20 + options.len() + message.len()).unwrap();
        let mut fields = Ipv4Fields::new(IpProtocol::ICMPV4, A.1, LAN_IP, len);
        fields.ihl = u8::try_from(5 + options.len() / 4).unwrap();
        let header = fields.emit_with_options(&options);
        let sent = gateway.receive(LAN, &[from_a(&[&header[..], &options, &message].concat())]);
        let (ip, rest) = Ipv4::split(&sent[0].1[14..]).unwrap();
        let (options, answer) = ip.options(rest).unwrap();
        assert_eq!(options, hex(reply), "{request}");
        assert!(ip.is_checksum_valid(options), "{request}");
        assert_eq!(usize::from(ip.total_length()), sent[0].1.len() - 14);
        assert_eq!((answer[0], &answer[4..]), (0, &message[4..]), "{request}");
        assert_eq!(checksum::of(answer), 0);
    }
}

#[test]
fn a_broadcast_datagram_without_a_listener_is_counted() {
    let mut gateway = Gateway::new();
    for to in [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::new(224, 0, 0, 1)] {
        let datagram = ipv4(A.1, to, IpProtocol::UDP, &hex("1000 2000 0008 0000"), |_| {});
        let frame = ether(MacAddress::BROADCAST, A.0, EtherType::IPV4, &datagram);
        assert_eq!(gateway.receive(LAN, &[frame]), [], "RFC 1122 §3.2.2: nobody is told");
    }
    assert_eq!(gateway.drops(), [("udp-sockets", "no-socket", 3)]);
    assert!(gateway.is_clean());
}

/// RFC 4293 §5, `icmpMsgStatsTable`: each message that the gateway sends as a router or answers is
/// counted by its type.
#[test]
fn messages_of_ipv4_are_counted_by_type() {
    let mut gateway = Gateway::new();
    gateway.count();
    let echo = hex("0800 f7fd 0001 0001");
    let spent = |ip: &mut Ipv4Fields| ip.time_to_live = 1;
    let nowhere = Ipv4Addr::new(203, 0, 113, 1);
    let unroutable = ipv4(A.1, nowhere, IpProtocol::UDP, b"12345678", |_| {});
    let closed = ipv4(A.1, LAN_IP, IpProtocol::UDP, &hex("0400 0400 0008 0000"), |_| {});
    let wrong = ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &hex("0800 0000 0001 0001"), |_| {});
    let unknown = ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &hex("c800 37ff 0000 0000"), |_| {});
    let sent = gateway.receive(
        LAN,
        &[
            from_a(&ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &echo, |_| {})),
            from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"12345678", spent)),
            from_a(&unroutable),
            from_a(&closed),
            from_a(&wrong),
            from_a(&unknown),
        ],
    );
    assert_eq!(sent.len(), 4, "{sent:?}");
    let expected = [
        ("echo-reply", [0, 1, 0]),
        ("destination-unreachable", [0, 2, 0]),
        ("echo-request", [1, 0, 0]),
        ("time-exceeded", [0, 1, 0]),
        ("other", [1, 0, 0]),
    ];
    assert_eq!(gateway.icmp(), expected);
}

/// *Fragmentation needed* has a row apart from the other codes of its type: it makes path MTU
/// discovery work (RFC 1191).
#[test]
fn a_packet_too_big_is_counted_apart_over_both_families() {
    let mut gateway = Gateway::cold();
    gateway.host.change_interface(WAN, |wan| wan.mtu = 1300);
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    gateway.count();
    let whole = |ip: &mut Ipv4Fields| ip.flags = Ipv4::DONT_FRAGMENT;
    let large = ipv4(A.1, B.1, IpProtocol::UDP, &[0; 1400], whole);
    assert_eq!(gateway.receive(LAN, &[from_a(&large)]).len(), 1);
    assert_eq!(gateway.icmp(), [("fragmentation-needed", [0, 1, 0])]);

    let mut gateway = ipv6::gateway();
    gateway.count();
    let large = frame(LAN_MAC, A_MAC, IpProtocol::UDP, (A6, B6), 64, &[0; 1400]);
    assert_eq!(gateway.receive(LAN, &[large]).len(), 1);
    assert_eq!(gateway.icmp(), [("packet-too-big", [0, 1, 0])]);
}

/// The same over IPv6, where discovery is of ICMP, too.
#[test]
fn messages_of_ipv6_are_counted_by_type() {
    let mut gateway = ipv6::gateway();
    gateway.count();
    let nowhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let to = |to, hops, protocol, payload: &[u8]| {
        frame(LAN_MAC, A_MAC, protocol, (A6, to), hops, payload)
    };
    let echo = ipv6::echo_request((A6, ipv6::LAN6), b"?");
    gateway.receive(
        LAN,
        &[
            to(ipv6::LAN6, 64, IpProtocol::ICMPV6, &echo),
            to(B6, 1, IpProtocol::UDP, b"12345678"),
            to(nowhere, 64, IpProtocol::UDP, b"12345678"),
            ipv6::solicitation(A_MAC, A6, ipv6::LAN6),
        ],
    );
    let expected = [
        ("destination-unreachable", [0, 1, 0]),
        ("time-exceeded", [0, 1, 0]),
        ("echo-request", [1, 0, 0]),
        ("echo-reply", [0, 1, 0]),
        ("neighbor-solicitation", [1, 0, 0]),
        ("neighbor-advertisement", [0, 1, 0]),
    ];
    assert_eq!(gateway.icmp(), expected);
}

/// What the rate limit holds back (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)) is counted by type, too: 50
/// errors go to a subnet at once.
#[test]
fn messages_that_the_rate_limit_holds_back_are_counted_by_type() {
    let mut gateway = Gateway::new();
    gateway.count();
    let spent = ipv4(A.1, B.1, IpProtocol::UDP, b"12345678", |ip| ip.time_to_live = 1);
    gateway.receive(LAN, &vec![from_a(&spent); 200]);
    assert_eq!(gateway.icmp(), [("time-exceeded", [0, 50, 150])]);

    let mut gateway = ipv6::gateway();
    gateway.count();
    let spent = frame(LAN_MAC, A_MAC, IpProtocol::UDP, (A6, B6), 1, b"12345678");
    gateway.receive(LAN, &vec![spent; 200]);
    let echo = ipv6::echo_request((A6, ipv6::LAN6), b"?");
    let echo = frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, ipv6::LAN6), 64, &echo);
    for _ in 0..60 {
        gateway.receive(LAN, &vec![echo.clone(); 100]);
    }
    let expected = [
        ("time-exceeded", [0, 50, 150]),
        ("echo-request", [6000, 0, 0]),
        ("echo-reply", [0, 5000, 1000]),
    ];
    assert_eq!(gateway.icmp(), expected);
}

/// A trace follows a packet to the error about it, over both families, up to the device.
#[test]
fn a_trace_follows_the_error_about_its_packet() {
    let spent4 = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"12345678", |ip| ip.time_to_live = 1));
    let spent6 = frame(LAN_MAC, A_MAC, IpProtocol::UDP, (A6, B6), 1, b"12345678");
    for (mut gateway, spent, layer) in
        [(Gateway::new(), spent4, "icmpv4"), (ipv6::gateway(), spent6, "icmpv6")]
    {
        assert!(gateway.graph.trace(Trace::new(None, Match::default(), || Duration::ZERO)));
        let sent = gateway.receive(LAN, &[spent]);
        let trace = gateway.graph.take_trace(gateway.now, false).unwrap();
        let steps = trace.steps();
        assert!(steps.iter().any(|step| step.layer == Some(layer)), "{steps:?}");
        let last = steps.last().unwrap();
        assert_eq!((last.outcome, &last.octets), (TraceOutcome::Sent, &sent[0].1));
    }
}

//! The forwarding program, run by the kernel on frames without an interface.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_tables::{HopIndex, Prefix, RoutesWriter};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use gatewright_xdp::program::{BpfProgram, Hook, Instruction, TestRun};
use gatewright_xdp::{
    Forwarding, ForwardingReason, ForwardingRule, Generator, Hop, HopNeighbour, LimitIndex,
    LinkPort, LinkProgram, PacketCount, RULES_MAX, Receiver, RuleAction, RuleMatch, TableSizes,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const EGRESS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const NEIGHBOUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// The forms of IPv4 routes.
const SIZES: [TableSizes; 2] = [
    TableSizes {
        hops: 64,
        hop_groups: 2,
        neighbours: 64,
        routes4: 0,
        groups: 16,
        routes6: 1_000,
        devices: 0,
    },
    TableSizes {
        hops: 64,
        hop_groups: 2,
        neighbours: 64,
        routes4: 1_000,
        groups: 0,
        routes6: 1_000,
        devices: 0,
    },
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = Forwarding::new(SIZES[1]).err();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| match &missing {
        None => Trial::test(name, test),
        Some(missing) => {
            let name = format!("{name} (needs BPF: {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("packets_are_forwarded", packets_are_forwarded),
        trial("what_is_not_plain_goes_up_as_it_came", what_is_not_plain_goes_up_as_it_came),
        trial("egress_and_neighbour_decide_too", egress_and_neighbour_decide_too),
        trial("the_kernel_checks_the_program_soon", the_kernel_checks_the_program_soon),
        trial("partial_checksums_go_up", partial_checksums_go_up),
        trial(
            "a_complete_checksum_is_not_taken_for_a_partial_one",
            a_complete_checksum_is_not_taken_for_a_partial_one,
        ),
        trial("rules_count_and_drop", rules_count_and_drop),
        trial("rules_limit_by_one_bucket", rules_limit_by_one_bucket),
        trial(
            "nothing_passes_without_the_program_that_limits",
            nothing_passes_without_the_program_that_limits,
        ),
        trial("a_bucket_fills_again", a_bucket_fills_again),
        trial("processors_share_a_bucket", processors_share_a_bucket),
        trial("code_of_the_link_takes_what_goes_up", code_of_the_link_takes_what_goes_up),
        trial("routes_are_those_of_the_trie", routes_are_those_of_the_trie),
        match Needs::new().namespaces().linux(6, 8).missing() {
            None => trial("a_bound_program_never_moves", a_bound_program_never_moves),
            Some(missing) => {
                let name = format!("a_bound_program_never_moves (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        },
        match Needs::new().namespaces().linux(5, 18).missing() {
            None => trial("frames_are_made_and_counted", frames_are_made_and_counted),
            Some(missing) => {
                let name = format!("frames_are_made_and_counted (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        },
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The kernel's checker makes the forwarding program longer; with room it stays where it was loaded
/// (`with_room`). The program goes before its interface.
fn a_bound_program_never_moves() -> Result<(), Failed> {
    let (near, far) = (Namespace::new()?, Namespace::new()?);
    let cable = Veth::pair(&near, "v0", &far, "v1")?;
    let index = cable.a.index()?;
    for sizes in SIZES {
        let maps = Forwarding::new(sizes)?.maps()?;
        let unbound = maps.program(&LinkProgram::passing(0))?.instructions()?;
        let bound = LinkProgram { bound_to: index, ..LinkProgram::passing(0) };
        let program = near.run(|| maps.program(&bound).map_err(|error| error.to_string()))??;
        // The room is gone, but for the instruction that sets the register.
        let checked = program.instructions()?;
        assert!((unbound..=unbound + 1).contains(&checked), "{unbound} {checked}");
    }
    Ok(())
}

/// The kernel follows few enough ways through the program that a link opens soon; one branch too many
/// behind the choice of a next hop once made them four times as many.
fn the_kernel_checks_the_program_soon() -> Result<(), Failed> {
    // Linux 6.12 takes 195,000 steps, 6.1 and 6.18 fewer than 180,000.
    const STEPS_MAX: u32 = 220_000;
    for sizes in SIZES {
        let bench = Bench::new(sizes)?;
        let descriptor = bench.program.as_fd().as_raw_fd();
        let said = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"))?;
        // Linux 5.16 and later tell it.
        let steps = said.lines().find_map(|line| line.strip_prefix("verified_insns:"));
        let steps: u32 = steps.map_or(Ok(0), |steps| steps.trim().parse())?;
        assert!(steps <= STEPS_MAX, "{steps} steps");
    }
    Ok(())
}

/// Tables with two links, the egress link with a router and with neighbours of its own.
struct Bench {
    forwarding: Forwarding,
    routes: RoutesWriter<Ipv4Addr>,
    program: BpfProgram,
}

impl Bench {
    fn new(sizes: TableSizes) -> Result<Self, Failed> {
        let mut forwarding = Forwarding::new(sizes)?;
        let hop = |neighbour| Hop { port: 1, mtu: 1500, source: EGRESS_MAC, neighbour };
        forwarding.set_hop(HopIndex(0), Some(&hop(HopNeighbour::Router(NEIGHBOUR_MAC))))?;
        forwarding.set_hop(HopIndex(1), Some(&hop(HopNeighbour::Destination)))?;
        forwarding.set_hop(HopIndex(2), Some(&hop(HopNeighbour::Unknown)))?;
        let back = Hop { port: 0, ..hop(HopNeighbour::Router(NEIGHBOUR_MAC)) };
        forwarding.set_hop(HopIndex(3), Some(&back))?;
        // Nothing is sent: the loopback stands for any interface.
        forwarding.set_port(1, 1)?;
        let program = forwarding.program(&LinkPort { index: 0, mac: OWN_MAC })?;
        Ok(Self { forwarding, routes: RoutesWriter::in_memory(1_000)?, program })
    }

    fn route(&mut self, prefix: &str, hop: u32) -> Result<(), Failed> {
        let hop = HopIndex(hop);
        if let Ok(prefix) = prefix.parse() {
            self.routes.insert(prefix, hop)?;
            self.forwarding.insert4(prefix, hop, &self.routes)?;
        } else {
            self.forwarding.routes6().insert(prefix.parse()?, hop)?;
        }
        Ok(())
    }

    fn run(&self, frame: &[u8]) -> Result<TestRun, Failed> {
        Ok(self.program.run(frame, 1)?)
    }

    fn count(&self, reason: ForwardingReason) -> Result<PacketCount, Failed> {
        let counts = self.forwarding.counts(0)?;
        Ok(counts.into_iter().find(|(of, _)| *of == reason).unwrap().1)
    }
}

fn checksum(octets: &[u8]) -> u16 {
    let sum: u32 = octets.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !u16::try_from((folded >> 16) + (folded & 0xffff)).unwrap()
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&OWN_MAC[..], &NEIGHBOUR_MAC, &kind.to_be_bytes(), payload].concat()
}

/// An IPv4 packet with 20 octets of payload.
fn ipv4(destination: [u8; 4], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 40, 1, 2, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0];
    header[16..].copy_from_slice(&destination);
    change(&mut header);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x0800, &[&header[..], &[7; 20]].concat())
}

fn ipv6(destination: Ipv6Addr, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let start = [0x60, 0, 0, 0, 0, 20, 17, 64];
    let mut header = [&start[..], &source.octets(), &destination.octets()].concat();
    change(&mut header);
    ethernet(0x86dd, &[&header[..], &[7; 20]].concat())
}

fn packets_are_forwarded() -> Result<(), Failed> {
    for sizes in SIZES {
        let mut bench = Bench::new(sizes)?;
        bench.route("198.51.100.0/24", 0)?;
        bench.route("203.0.113.0/24", 1)?;
        bench.route("2001:db8:1::/48", 0)?;
        bench.route("2001:db8:2::/64", 1)?;
        let direct: IpAddr = "203.0.113.7".parse()?;
        let direct6: IpAddr = "2001:db8:2::7".parse()?;
        bench.forwarding.set_neighbour(1, direct, Some([2, 0, 0, 0, 0, 7]))?;
        bench.forwarding.set_neighbour(1, direct6, Some([2, 0, 0, 0, 0, 8]))?;
        let frames = [
            (ipv4([198, 51, 100, 1], |_| {}), NEIGHBOUR_MAC),
            (ipv4([203, 0, 113, 7], |_| {}), [2, 0, 0, 0, 0, 7]),
            (ipv6("2001:db8:1::9".parse()?, |_| {}), NEIGHBOUR_MAC),
            (ipv6("2001:db8:2::7".parse()?, |_| {}), [2, 0, 0, 0, 0, 8]),
        ];
        for (frame, to) in frames {
            let mut expected = frame.clone();
            expected[..6].copy_from_slice(&to);
            expected[6..12].copy_from_slice(&EGRESS_MAC);
            if frame[12] == 8 {
                expected[22] -= 1;
                expected[24..26].fill(0);
                let sum = checksum(&expected[14..34]);
                expected[24..26].copy_from_slice(&sum.to_be_bytes());
            } else {
                expected[21] -= 1;
            }
            let padded = [&frame[..], &[0; 6]].concat();
            for frame in [frame, padded] {
                let run = bench.run(&frame)?;
                assert_eq!((run.verdict, run.frame), (XDP_REDIRECT, expected.clone()));
            }
        }
        assert_eq!(
            bench.count(ForwardingReason::Forwarded)?,
            PacketCount { packets: 8, octets: 4 * 40 + 4 * 60 }
        );
        assert_eq!(bench.forwarding.hop_count(HopIndex(1))?.packets, 4);
    }
    Ok(())
}

/// Frames that the program does not forward, each with its reason.
fn passed_frames(to: [u8; 4], to6: Ipv6Addr) -> Result<Vec<(ForwardingReason, Vec<u8>)>, Failed> {
    let mut not_ours = ipv4(to, |_| {});
    not_ours[5] ^= 1;
    let mut of_group = ipv4(to, |_| {});
    of_group[6] ^= 1;
    let mut wrong_sum = ipv4(to, |_| {});
    wrong_sum[30] ^= 1;
    Ok(vec![
        (ForwardingReason::NotIp, ethernet(0x0806, &[0; 46])),
        (ForwardingReason::NotOurs, not_ours),
        (ForwardingReason::BadStation, of_group),
        (ForwardingReason::Malformed, wrong_sum),
        (ForwardingReason::Malformed, ipv4(to, |header| header[3] = 41)),
        (ForwardingReason::Malformed, ipv4(to, |header| header[0] = 0x44)),
        (ForwardingReason::Options, ipv4(to, |header| header[0] = 0x46)),
        (ForwardingReason::Expired, ipv4(to, |header| header[8] = 1)),
        (ForwardingReason::Expired, ipv4(to, |header| header[8] = 0)),
        (ForwardingReason::Scope, ipv4(to, |header| header[12] = 127)),
        (ForwardingReason::Scope, ipv4([224, 0, 0, 1], |_| {})),
        (
            ForwardingReason::Scope,
            ipv4(to, |header| header[12..16].copy_from_slice(&[10, 0, 0, 1])),
        ),
        (ForwardingReason::NoRoute, ipv4([8, 8, 8, 8], |_| {})),
        (ForwardingReason::NoNeighbour, ipv4([203, 0, 113, 8], |_| {})),
        (ForwardingReason::NoNeighbour, ipv4([192, 0, 3, 1], |_| {})),
        (ForwardingReason::SameLink, ipv4([192, 0, 4, 1], |_| {})),
        (ForwardingReason::Malformed, ipv6(to6, |header| header[0] = 0x50)),
        (ForwardingReason::Malformed, ipv6(to6, |header| header[5] = 21)),
        (ForwardingReason::Options, ipv6(to6, |header| header[6] = 0)),
        (ForwardingReason::Expired, ipv6(to6, |header| header[7] = 1)),
        (ForwardingReason::Scope, ipv6("fe80::1".parse()?, |_| {})),
        (ForwardingReason::Scope, ipv6(to6, |header| header[8..24].fill(0))),
        (ForwardingReason::Scope, ipv6(to6, |header| header[23] = 0xee)),
        (ForwardingReason::NoRoute, ipv6("2001:db9::1".parse()?, |_| {})),
        (ForwardingReason::NoNeighbour, ipv6("2001:db8:2::9".parse()?, |_| {})),
    ])
}

fn what_is_not_plain_goes_up_as_it_came() -> Result<(), Failed> {
    let to = [198, 51, 100, 1];
    let to6: Ipv6Addr = "2001:db8:1::9".parse()?;
    let cases = passed_frames(to, to6)?;
    for sizes in SIZES {
        let mut bench = Bench::new(sizes)?;
        let own: [IpAddr; 2] = ["10.0.0.1".parse()?, "2001:db8::ee".parse()?];
        bench.forwarding.set_own(own);
        for (prefix, hop) in [
            ("198.51.100.0/24", 0),
            ("203.0.113.0/24", 1),
            ("192.0.3.0/24", 2),
            ("192.0.4.0/24", 3),
            ("2001:db8:1::/48", 0),
            ("2001:db8:2::/64", 1),
        ] {
            bench.route(prefix, hop)?;
        }
        for (reason, frame) in &cases {
            let before = bench.count(*reason)?.packets;
            let run = bench.run(frame)?;
            assert_eq!((run.verdict, &run.frame), (XDP_PASS, frame), "{reason:?}");
            assert_eq!(bench.count(*reason)?.packets, before + 1, "{reason:?}");
        }
        let plain = ipv4(to, |_| {});
        bench.forwarding.look_at(0, [true, false], [false; 2])?;
        assert_eq!(bench.run(&plain)?.verdict, XDP_PASS);
        assert_eq!(bench.run(&ipv6(to6, |_| {}))?.verdict, XDP_REDIRECT);
        assert_eq!(bench.count(ForwardingReason::LookedAt)?.packets, 1);
        bench.forwarding.look_at(0, [false; 2], [false; 2])?;
        assert_eq!(bench.run(&plain)?.verdict, XDP_REDIRECT);
        let small = Hop {
            port: 1,
            mtu: 39,
            source: EGRESS_MAC,
            neighbour: HopNeighbour::Router(NEIGHBOUR_MAC),
        };
        bench.forwarding.set_hop(HopIndex(0), Some(&small))?;
        assert_eq!(bench.run(&plain)?.verdict, XDP_PASS);
        assert_eq!(bench.count(ForwardingReason::TooBig)?.packets, 1);
    }
    Ok(())
}

/// What an egress link and a stale neighbour keep from the driver's path.
fn egress_and_neighbour_decide_too() -> Result<(), Failed> {
    let mut bench = Bench::new(SIZES[1])?;
    for (prefix, hop) in
        [("198.51.100.0/24", 0), ("203.0.113.0/24", 1), ("192.0.3.0/24", 4), ("2001:db8:1::/48", 0)]
    {
        bench.route(prefix, hop)?;
    }
    let neighbour = HopNeighbour::Elsewhere;
    let elsewhere = Hop { port: 1, mtu: 1500, source: EGRESS_MAC, neighbour };
    bench.forwarding.set_hop(HopIndex(4), Some(&elsewhere))?;
    let (by_router, direct) = (ipv4([198, 51, 100, 1], |_| {}), ipv4([203, 0, 113, 7], |_| {}));
    let by_router6 = ipv6("2001:db8:1::9".parse()?, |_| {});
    // Of a stale neighbour it is told that it is used, once each time that somebody asks; every
    // packet is forwarded.
    let neighbour = "203.0.113.7".parse()?;
    let used = |bench: &Bench| {
        let forwarding = &bench.forwarding;
        (forwarding.take_router_use(HopIndex(0)), forwarding.take_neighbour_use(1, neighbour))
    };
    bench.forwarding.set_neighbour(1, neighbour, Some([2, 0, 0, 0, 0, 7]))?;
    for frame in [&by_router, &direct] {
        assert_eq!(bench.run(frame)?.verdict, XDP_REDIRECT);
    }
    assert_eq!(used(&bench), (false, false), "nobody wants to know");
    bench.forwarding.note_neighbour_use(1, neighbour, [2, 0, 0, 0, 0, 7])?;
    bench.forwarding.note_router_use(HopIndex(0), true);
    assert_eq!(used(&bench), (false, false), "before the first packet");
    for (frame, expected) in [(&by_router, (true, false)), (&direct, (false, true))] {
        let sent = bench.run(frame)?;
        assert_eq!((sent.verdict, bench.run(frame)?.verdict), (XDP_REDIRECT, XDP_REDIRECT));
        assert_eq!(used(&bench), expected);
        assert_eq!(used(&bench), (false, false), "since the last time");
    }
    bench.forwarding.set_neighbour(1, neighbour, Some([2, 0, 0, 0, 0, 7]))?;
    bench.forwarding.note_router_use(HopIndex(0), false);
    for frame in [&by_router, &direct] {
        assert_eq!(bench.run(frame)?.verdict, XDP_REDIRECT);
    }
    assert_eq!(used(&bench), (false, false), "nobody wants to know any more");
    assert_eq!(bench.run(&ipv4([192, 0, 3, 1], |_| {}))?.verdict, XDP_PASS);
    assert_eq!(bench.count(ForwardingReason::Elsewhere)?.packets, 1);
    // Somebody looks at IPv6 where it would leave.
    bench.forwarding.look_at(1, [false; 2], [false, true])?;
    assert_eq!(bench.run(&by_router6)?.verdict, XDP_PASS);
    assert_eq!(bench.run(&by_router)?.verdict, XDP_REDIRECT);
    assert_eq!(bench.count(ForwardingReason::LookedAt)?.packets, 1);
    // A failed neighbour is gone at once, and so is a link.
    bench.forwarding.set_neighbour(1, "203.0.113.7".parse()?, None)?;
    assert_eq!(bench.run(&direct)?.verdict, XDP_PASS);
    assert_eq!(bench.count(ForwardingReason::NoNeighbour)?.packets, 1);
    bench.forwarding.remove_port(1)?;
    bench.forwarding.remove_port(1)?;
    assert_eq!(bench.run(&by_router)?.verdict, XDP_DROP);
    assert_eq!(bench.count(ForwardingReason::NoPort)?.packets, 1);
    Ok(())
}

/// The sum that a kernel leaves in the checksum's field (RFC 768, RFC 9293 §3.1, RFC 8200 §8.1).
fn pseudo_header_sum(addresses: &[u8], protocol: u8, length: u8) -> [u8; 2] {
    let octets = [addresses, &[0, protocol, 0, length]].concat();
    (!checksum(&octets)).to_be_bytes()
}

/// A complete checksum may have the value of a partial one: a packet of each family is made so by two
/// of its octets, with payloads of several lengths. It is forwarded; one that is wrong goes up.
fn a_complete_checksum_is_not_taken_for_a_partial_one() -> Result<(), Failed> {
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.route("2001:db8:1::/48", 0)?;
    let virtual_link = LinkProgram { partial: true, ..LinkProgram::passing(0) };
    let program = bench.forwarding.maps()?.program(&virtual_link)?;
    let to6 = "2001:db8:1::9".parse()?;
    for length in [10_u16, 11, 16, 20, 21, 63, 64, 65, 500, 1459, 1460] {
        let length4 = (20 + length).to_be_bytes();
        let v4 = ipv4([198, 51, 100, 1], |header| header[2..4].copy_from_slice(&length4));
        let v6 = ipv6(to6, |header| header[4..6].copy_from_slice(&length.to_be_bytes()));
        for (mut frame, addresses, start) in [(v4, 26..34, 34), (v6, 22..54, 54)] {
            let pseudo_header = [&frame[addresses], &[0, 17], &length.to_be_bytes()].concat();
            let partial = !checksum(&pseudo_header);
            frame.truncate(start);
            frame.extend((0..length).map(|octet| u8::try_from(octet % 251).unwrap()));
            frame[start + 6..start + 8].copy_from_slice(&partial.to_be_bytes());
            // Two octets of payload make the sum of all what it has to be, all ones.
            frame[start + 8..start + 10].fill(0);
            let left = |frame: &[u8]| {
                let padding = vec![0; usize::from(length % 2)];
                checksum(&[&pseudo_header[..], &frame[start..], &padding].concat())
            };
            let rest = left(&frame);
            frame[start + 8..start + 10].copy_from_slice(&rest.to_be_bytes());
            assert_eq!(left(&frame), 0, "RFC 1071 §1");
            let run = program.run(&frame, 1)?;
            assert_eq!(run.verdict, XDP_REDIRECT, "{length} octets at {start}");
            let before = bench.count(ForwardingReason::Partial)?.packets;
            *frame.last_mut().unwrap() ^= 0x40;
            assert_eq!(program.run(&frame, 1)?.verdict, XDP_PASS, "{length} octets at {start}");
            assert_eq!(bench.count(ForwardingReason::Partial)?.packets, before + 1);
        }
    }
    Ok(())
}

/// UDP and TCP of both families whose checksum is left to the device go up; all else is forwarded.
fn partial_checksums_go_up() -> Result<(), Failed> {
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.route("2001:db8:1::/48", 0)?;
    let virtual_link = LinkProgram { partial: true, ..LinkProgram::passing(0) };
    let program = bench.forwarding.maps()?.program(&virtual_link)?;
    for (protocol, field) in [(17_u8, 6), (6, 16)] {
        let mut v4 = ipv4([198, 51, 100, 1], |header| header[9] = protocol);
        let mut v6 = ipv6("2001:db8:1::9".parse()?, |header| header[6] = protocol);
        assert_eq!(program.run(&v4, 1)?.verdict, XDP_REDIRECT, "another sum");
        assert_eq!(program.run(&v6, 1)?.verdict, XDP_REDIRECT, "another sum");
        let sum = pseudo_header_sum(&v4[26..34], protocol, 20);
        v4[34 + field..36 + field].copy_from_slice(&sum);
        let sum = pseudo_header_sum(&v6[22..54], protocol, 20);
        v6[54 + field..56 + field].copy_from_slice(&sum);
        let before = bench.count(ForwardingReason::Partial)?.packets;
        for frame in [&v4, &v6] {
            assert_eq!(program.run(frame, 1)?.verdict, XDP_PASS, "{protocol}");
            // A link of another kind does not look.
            assert_eq!(bench.run(frame)?.verdict, XDP_REDIRECT, "{protocol}");
        }
        assert_eq!(bench.count(ForwardingReason::Partial)?.packets, before + 2);
        // A fragment's sender has summed the whole datagram.
        let fragment = ipv4([198, 51, 100, 1], |header| (header[9], header[7]) = (protocol, 8));
        let fragment = [&fragment[..34], &v4[34..]].concat();
        assert_eq!(program.run(&fragment, 1)?.verdict, XDP_REDIRECT, "{protocol}");
    }
    Ok(())
}

/// Rules count and drop in their order; what a rule needs and a packet does not show here goes up.
fn rules_count_and_drop() -> Result<(), Failed> {
    type Change = fn(&mut [u8]);
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.route("2001:db8:1::/48", 0)?;
    let rule = |action, place| ForwardingRule { action, place, header_len: 0 };
    let from = Some(("192.0.2.0".parse()?, 24));
    let udp =
        RuleMatch { source: from, protocol: Some(17), port: Some(53), ..RuleMatch::default() };
    let before = rule(RuleAction::Count, 3);
    let drops = rule(RuleAction::Drop(udp), 4);
    let behind = ForwardingRule { header_len: 14, ..rule(RuleAction::Count, 255) };
    bench.forwarding.set_rules(0, false, &[before, drops, behind])?;
    let packet = |change: Change, port: u16| {
        let mut frame = ipv4([198, 51, 100, 1], change);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    };
    let counts = |bench: &Bench| {
        [3, 4, 255]
            .map(|place| bench.forwarding.rule_count(place).unwrap())
            .map(|count| (count.packets, count.octets))
    };
    let cases: [(Change, u16, u32); 6] = [
        (|_| {}, 53, XDP_DROP),
        (|_| {}, 54, XDP_REDIRECT),
        (|header| header[9] = 6, 53, XDP_REDIRECT),
        (|header| header[14] = 3, 53, XDP_REDIRECT),
        // The first fragment, and a later one.
        (|header| header[6] = 0x20, 53, XDP_PASS),
        (|header| header[7] = 9, 53, XDP_PASS),
    ];
    let [mut passed, mut dropped] = [0; 2];
    for (change, port, verdict) in cases {
        assert_eq!(bench.run(&packet(change, port))?.verdict, verdict, "{port}");
        passed += u64::from(verdict == XDP_REDIRECT);
        dropped += u64::from(verdict == XDP_DROP);
        let both = passed + dropped;
        let expected = [(both, both * 40), (dropped, dropped * 40), (passed, passed * 54)];
        assert_eq!(counts(&bench), expected, "{port}");
    }
    assert_eq!(bench.count(ForwardingReason::Dropped)?.packets, 1);
    // What goes up is counted there.
    bench.run(&ipv4([8, 8, 8, 8], |_| {}))?;
    assert_eq!(counts(&bench)[0].0, 4);
    // The other family has rules of its own.
    let to6: Ipv6Addr = "2001:db8:1::9".parse()?;
    let to = Some((to6.into(), 127));
    let drops = RuleMatch { destination: to, ..RuleMatch::default() };
    assert_eq!(bench.run(&ipv6(to6, |_| {}))?.verdict, XDP_REDIRECT);
    bench.forwarding.set_rules(0, true, &[rule(RuleAction::Drop(drops), 0)])?;
    assert_eq!(bench.run(&ipv6(to6, |_| {}))?.verdict, XDP_DROP);
    assert_eq!(bench.run(&ipv6("2001:db8:1::a".parse()?, |_| {}))?.verdict, XDP_REDIRECT);
    bench.forwarding.set_rules(0, true, &[])?;
    assert_eq!(bench.run(&ipv6(to6, |_| {}))?.verdict, XDP_REDIRECT);
    assert!(bench.forwarding.set_rules(0, true, &[before; RULES_MAX]).is_ok());
    assert!(bench.forwarding.set_rules(0, true, &[before; RULES_MAX + 1]).is_err());
    assert!(bench.forwarding.set_rules(0, true, &[rule(RuleAction::Count, 256)]).is_err());
    Ok(())
}

/// Nanoseconds in which no test ends.
const HOUR: u64 = 3_600_000_000_000;

/// A datagram to a port, by a route that there is.
fn to_port(port: u16) -> Vec<u8> {
    let mut frame = ipv4([198, 51, 100, 1], |_| {});
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Packets of both families and of several links take tokens from one bucket, also those that a rule
/// behind it drops; those that go up take none, and what is refused meets no rule behind it.
fn rules_limit_by_one_bucket() -> Result<(), Failed> {
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.route("2001:db8:1::/48", 0)?;
    bench.forwarding.set_limit(LimitIndex(255), [HOUR, 4 * HOUR])?;
    let rule = |action, place| ForwardingRule { action, place, header_len: 0 };
    let limit = rule(RuleAction::Limit(LimitIndex(255)), 1);
    let udp = RuleMatch { protocol: Some(17), port: Some(53), ..RuleMatch::default() };
    let [first, behind] = [0, 2].map(|place| rule(RuleAction::Count, place));
    let rules = [first, limit, behind, rule(RuleAction::Drop(udp), 3)];
    bench.forwarding.set_rules(0, false, &rules)?;
    bench.forwarding.set_rules(0, true, &[limit])?;
    bench.forwarding.set_rules(2, false, &[limit])?;
    let other = bench.forwarding.program(&LinkPort { index: 2, mac: OWN_MAC })?;
    let v6 = ipv6("2001:db8:1::9".parse()?, |_| {});
    let up = ipv4([8, 8, 8, 8], |_| {});
    let counts = || [0, 1, 2, 3].map(|at| bench.forwarding.rule_count(at).unwrap().packets);
    let cases = [
        (&bench.program, to_port(54), XDP_REDIRECT, [1, 0, 1, 0]),
        (&bench.program, up.clone(), XDP_PASS, [1, 0, 1, 0]),
        (&bench.program, to_port(53), XDP_DROP, [2, 0, 2, 1]),
        (&bench.program, v6.clone(), XDP_REDIRECT, [2, 0, 2, 1]),
        (&other, to_port(54), XDP_REDIRECT, [2, 0, 2, 1]),
        (&bench.program, to_port(54), XDP_DROP, [3, 1, 2, 1]),
        (&bench.program, to_port(53), XDP_DROP, [4, 2, 2, 1]),
        (&bench.program, v6, XDP_DROP, [4, 3, 2, 1]),
        (&other, to_port(54), XDP_DROP, [4, 4, 2, 1]),
        (&bench.program, up, XDP_PASS, [4, 4, 2, 1]),
    ];
    for (program, frame, verdict, expected) in cases {
        assert_eq!(program.run(&frame, 1)?.verdict, verdict, "{frame:02x?}");
        assert_eq!(counts(), expected, "{frame:02x?}");
    }
    assert_eq!(bench.count(ForwardingReason::Dropped)?, PacketCount { packets: 4, octets: 180 });
    assert_eq!(bench.forwarding.rule_count(1)?.octets, 180, "40, 40, 60 and 40");
    assert!(bench.forwarding.set_limit(LimitIndex(256), [1, 1]).is_err());
    let beyond = rule(RuleAction::Limit(LimitIndex(256)), 1);
    assert!(bench.forwarding.set_rules(0, false, &[beyond]).is_err());
    Ok(())
}

/// When the last process that has the maps lets go of them, the kernel takes the program that limits away:
/// nothing that is limited passes then, and what no rule limits does.
fn nothing_passes_without_the_program_that_limits() -> Result<(), Failed> {
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.route("2001:db8:1::/48", 0)?;
    bench.forwarding.set_limit(LimitIndex(0), [1, u64::MAX])?;
    let action = RuleAction::Limit(LimitIndex(0));
    bench.forwarding.set_rules(0, false, &[ForwardingRule { action, place: 0, header_len: 0 }])?;
    let (v4, v6) = (to_port(54), ipv6("2001:db8:1::9".parse()?, |_| {}));
    assert_eq!(bench.run(&v4)?.verdict, XDP_REDIRECT);
    let Bench { forwarding, program, .. } = bench;
    drop(forwarding);
    let verdict = |frame: &[u8]| program.run(frame, 1).unwrap().verdict;
    // The kernel does so in a moment.
    assert!(wait_until(Duration::from_secs(30), || verdict(&v4) == XDP_DROP));
    assert_eq!(verdict(&v6), XDP_REDIRECT);
    Ok(())
}

/// A bucket lets its burst pass, and then one packet each time that it has refilled a token.
fn a_bucket_fills_again() -> Result<(), Failed> {
    const REFILL: Duration = Duration::from_millis(20);
    const BURST: u64 = 5;
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    let refill = u64::try_from(REFILL.as_nanos())?;
    bench.forwarding.set_limit(LimitIndex(0), [refill, BURST * refill])?;
    let action = RuleAction::Limit(LimitIndex(0));
    bench.forwarding.set_rules(0, false, &[ForwardingRule { action, place: 0, header_len: 0 }])?;
    let frame = to_port(54);
    // The second time after a pause in which it is full again, and holds no more than that.
    for pause in [Duration::ZERO, REFILL * 10] {
        std::thread::sleep(pause);
        let began = Instant::now();
        let mut passed = 0;
        for _ in 0..100 {
            passed += u64::from(bench.run(&frame)?.verdict == XDP_REDIRECT);
        }
        let refilled = began.elapsed().as_nanos() / REFILL.as_nanos();
        assert!((BURST..=BURST + 1 + u64::try_from(refilled)?).contains(&passed), "{passed}");
    }
    Ok(())
}

/// Two processors at once let pass what the bucket holds, to the packet.
fn processors_share_a_bucket() -> Result<(), Failed> {
    const BURST: u64 = 3_000;
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    bench.forwarding.set_limit(LimitIndex(9), [HOUR, BURST * HOUR])?;
    let action = RuleAction::Limit(LimitIndex(9));
    bench.forwarding.set_rules(0, false, &[ForwardingRule { action, place: 0, header_len: 0 }])?;
    let (frame, program) = (to_port(54), &bench.program);
    let pass = || {
        let verdicts = (0..BURST).map(|_| program.run(&frame, 1).unwrap().verdict);
        verdicts.filter(|verdict| *verdict == XDP_REDIRECT).count()
    };
    let passed: usize = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(pass));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(u64::try_from(passed)?, BURST);
    assert_eq!(bench.forwarding.rule_count(0)?.packets, BURST);
    Ok(())
}

/// The link's own code decides what happens to frames that go up, and to those with a tag.
fn code_of_the_link_takes_what_goes_up() -> Result<(), Failed> {
    const EXIT: Instruction = Instruction(0x95, 0, 0, 0);
    let mut bench = Bench::new(SIZES[1])?;
    bench.route("198.51.100.0/24", 0)?;
    let [up, tagged] =
        [XDP_TX, 1].map(|value| [Instruction(0xb7, 0, 0, value.try_into().unwrap_or(0)), EXIT]);
    let own = LinkProgram { up: &up, ..LinkProgram::passing(0) };
    let program = bench.forwarding.maps()?.program(&own)?;
    assert_eq!(program.run(&ipv4([198, 51, 100, 1], |_| {}), 1)?.verdict, XDP_REDIRECT);
    assert_eq!(program.run(&ipv4([8, 8, 8, 8], |_| {}), 1)?.verdict, XDP_TX);
    let all_tagged = LinkProgram { tag_taken: &tagged, ..own };
    let program = bench.forwarding.maps()?.program(&all_tagged)?;
    assert_eq!(program.run(&ipv4([198, 51, 100, 1], |_| {}), 1)?.verdict, XDP_TX);
    assert_eq!(bench.count(ForwardingReason::NotIp)?.packets, 1);
    Ok(())
}

/// A seeded generator: the same prefixes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Random prefixes of both families in a small space, each address by the program and by the trie.
fn routes_are_those_of_the_trie() -> Result<(), Failed> {
    for sizes in SIZES {
        let mut bench = Bench::new(sizes)?;
        for hop in 0..64 {
            let source = [2, 0, 0, 0, 1, u8::try_from(hop)?];
            let neighbour = HopNeighbour::Router(NEIGHBOUR_MAC);
            bench
                .forwarding
                .set_hop(HopIndex(hop), Some(&Hop { port: 1, mtu: 1500, source, neighbour }))?;
        }
        let mut random = Random(0x5eed_0001);
        for number in 0..400_u32 {
            let bits = random.next();
            let v4 = Ipv4Addr::from_bits(0x5000_0000 | u32::try_from(bits & 0x0003_03ff)?);
            let len4 = 6 + u8::try_from(bits >> 32 & 0xff)? % 27;
            let v6 = Ipv6Addr::from_bits(
                0x2001_0db8 << 96 | u128::from(bits & 0xf) << 60 | u128::from(bits >> 8 & 0x3f),
            );
            let len6 = 20 + u8::try_from(bits >> 40 & 0xff)? % 109;
            let hop = HopIndex(number % 64);
            bench.routes.insert(Prefix::new(v4, len4)?, hop)?;
            bench.forwarding.insert4(Prefix::new(v4, len4)?, hop, &bench.routes)?;
            bench.forwarding.routes6().insert(Prefix::new(v6, len6)?, hop)?;
        }
        let (reader4, reader6) = (bench.routes.reader(), bench.forwarding.routes6().reader());
        let mut asked = 0;
        for _ in 0..4_000 {
            let bits = random.next();
            let v4 = Ipv4Addr::from_bits(0x5000_0000 | u32::try_from(bits & 0x0003_03ff)?);
            let v6 = Ipv6Addr::from_bits(
                0x2001_0db8 << 96 | u128::from(bits & 0xf) << 60 | u128::from(bits >> 8 & 0x3f),
            );
            let expected = [reader4.lookup(v4), reader6.lookup(v6)];
            let frames = [ipv4(v4.octets(), |_| {}), ipv6(v6, |_| {})];
            for (frame, expected) in frames.iter().zip(expected) {
                let run = bench.run(frame)?;
                let found = (run.verdict == XDP_REDIRECT).then(|| u32::from(run.frame[11]));
                // Sixteen groups are fewer than the /24s with longer prefixes.
                if found.is_none() && sizes.groups > 0 && frame[12] == 8 {
                    asked += 1;
                    continue;
                }
                assert_eq!(found, expected.ok().map(|HopIndex(hop)| hop), "{v4} {v6}");
            }
        }
        assert!(asked < 4_000, "{asked}");
    }
    Ok(())
}

/// The generator's frames reach the other end of a cable, and go to each destination alike.
fn frames_are_made_and_counted() -> Result<(), Failed> {
    const FRAMES: u32 = 4_096;
    let [here, there] = [Namespace::new()?, Namespace::new()?];
    let cable = Veth::pair(&here, "n0", &there, "n1")?;
    cable.a.disable_ipv6()?;
    cable.b.disable_ipv6()?;
    cable.up()?;
    let [near, far] = [cable.a.index()?, cable.b.index()?];
    let destinations: Vec<IpAddr> =
        (0..16).map(|last| Ipv4Addr::new(198, 51, 100, last).into()).collect();
    let frame = ipv4([0; 4], |_| {});
    let frame = [&frame[..], &[0; 10]].concat();
    let generator = Generator::new(near, &frame, &destinations)?;
    {
        let receiver = there.run(|| Receiver::attach(far))??;
        here.run(|| generator.send(FRAMES))??;
        let received = receiver.take();
        assert_eq!(received.frames, u64::from(FRAMES));
        assert!(!received.time.is_zero());
        assert_eq!(receiver.take().frames, 0);
    }
    let mut bench = Bench::new(SIZES[0])?;
    bench.route("198.51.100.0/29", 3)?;
    let _attached = there.run(|| bench.program.attach(far, Hook::XdpNative))??;
    here.run(|| generator.send(FRAMES))??;
    // Half of the destinations have a route, back by the same link; no checksum is wrong.
    let counts =
        [ForwardingReason::SameLink, ForwardingReason::NoRoute].map(|reason| bench.count(reason));
    for count in counts {
        assert_eq!(count?.packets, u64::from(FRAMES / 2));
    }
    Ok(())
}

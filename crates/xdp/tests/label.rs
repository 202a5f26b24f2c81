//! The label programs: run by the kernel on frames without an interface, and in a line of four
//! nodes with the kernel's own hosts at both ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

#[path = "label/line.rs"]
mod line;

use gatewright_tables::{LabelHop, LabelHops, LabelLink, PathKey};
use gatewright_testbed::Needs;
use gatewright_xdp::program::TestRun;
use gatewright_xdp::{LabelReason, LabelSwitching};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const EGRESS: [u8; 6] = [2, 0, 0, 0, 0, 2];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 3];
const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0xf];
/// `TC_ACT_UNSPEC` and `TC_ACT_REDIRECT` of linux/pkt_cls.h, `XDP_PASS` and `XDP_REDIRECT`.
const NEXT_PROGRAM: u32 = u32::MAX;
/// `TC_ACT_SHOT`.
const DROP: u32 = 2;
const REDIRECT: u32 = 7;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = LabelSwitching::new().err().map(|error| format!("BPF: {error}"));
    let trial =
        |name: &str, missing: &Option<String>, test: fn() -> Result<(), Failed>| match missing {
            None => Trial::test(name, test),
            Some(missing) => {
                let name = format!("{name} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        };
    let needs = || {
        Needs::new().namespaces().program("ping").program("ethtool").program("python3").linux(6, 6)
    };
    let line = missing.clone().or_else(|| needs().missing().map(|it| it.to_string()));
    let seen =
        line.clone().or_else(|| Needs::new().program("tshark").missing().map(|it| it.to_string()));
    let trials = vec![
        trial(
            "labels_are_pushed_swapped_and_popped",
            &missing,
            labels_are_pushed_swapped_and_popped,
        ),
        trial("what_goes_nowhere_is_passed_up_as_it_came", &missing, what_goes_nowhere),
        trial("stations_at_a_bridge_port_see_no_labels", &missing, stations_at_a_bridge_port),
        trial("one_store_moves_to_the_backup", &missing, one_store_moves_to_the_backup),
        trial("a_spread_path_divides_its_flows", &missing, a_spread_path_divides_its_flows),
        trial("the_driver_swaps_like_the_kernel", &missing, the_driver_swaps_like_the_kernel),
        trial("ping_crosses_a_line", &line, line::ping_crosses_a_line),
        trial("tshark_sees_labels", &seen, line::tshark_sees_labels),
        trial("super_frames_stay_whole", &line, line::super_frames_stay_whole),
        trial("frames_of_an_mtu_cross_a_line", &line, line::frames_of_an_mtu_cross_a_line),
        trial("a_link_without_super_frames_is_crossed", &line, line::a_link_without_super_frames),
        trial("the_driver_swaps_on_a_line", &line, line::the_driver_swaps_on_a_line),
        trial("what_has_no_path_reaches_a_socket", &line, line::what_has_no_path_reaches_a_socket),
        trial("one_store_moves_a_stream_to_another_link", &line, line::one_store_moves_a_stream),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Tables with this link (0), an egress link (1), another (2) and the host (3).
fn switching() -> Result<LabelSwitching, Failed> {
    let mut switching = LabelSwitching::new()?;
    for (link, address) in [(0, OWN), (1, EGRESS), (2, EGRESS), (3, HOST)] {
        // Nothing is sent: the loopback stands for any interface.
        let what = LabelLink { interface: 1, address, takes_super_frames: true };
        switching.tables().set_link(link, Some(&what))?;
        switching.tables().set_link_up(link, true)?;
        switching.set_port(link, 1)?;
    }
    let swap = |link, label| LabelHop { link, address: NEXT, label: Some(label) };
    let tables = switching.tables();
    tables
        .set_label(200, Some(&LabelHops { primary: swap(1, 300), backup: Some(swap(2, 301)) }))?;
    let pop = LabelHop { link: 3, address: FAR, label: None };
    tables.set_label(201, Some(&LabelHops { primary: pop, backup: None }))?;
    for class in 0..4 {
        let hops = LabelHops { primary: swap(1, 400 + u32::from(class)), backup: None };
        tables.set_path(PathKey { destination: FAR, class }, Some(&hops))?;
    }
    Ok(switching)
}

fn frame(to: [u8; 6], from: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

/// RFC 3032 §2.1: label 20 bits, class 3, bottom of stack 1, TTL 8.
fn entry(label: u32, class: u32, bottom: bool, time_to_live: u8) -> Vec<u8> {
    let word = label << 12 | class << 9 | u32::from(bottom) << 8 | u32::from(time_to_live);
    word.to_be_bytes().to_vec()
}

fn labelled(to: [u8; 6], from: [u8; 6], entry: &[u8], payload: &[u8]) -> Vec<u8> {
    frame(to, from, 0x8847, &[entry, payload].concat())
}

fn count(switching: &LabelSwitching, reason: LabelReason) -> Result<u64, Failed> {
    let counts = switching.link_counts(0)?;
    Ok(counts.into_iter().find(|(of, _)| *of == reason).unwrap().1.packets)
}

const IPV4: [u8; 24] =
    [0x45, 0, 0, 24, 0, 1, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4];

fn labels_are_pushed_swapped_and_popped() -> Result<(), Failed> {
    let switching = switching()?;
    let (push, switch) = (switching.push(0)?, switching.switch(0)?);
    // RFC 2474 §4.2.2: precedences 0 and 2 are bulk, 1 background, 5 bounded delay, 7 control.
    for (service, class) in [(0x00, 2), (0x20, 3), (0x40, 2), (0xa0, 1), (0xe0, 0)] {
        let mut packet = IPV4;
        packet[1] = service;
        let gone = labelled(NEXT, EGRESS, &entry(400 + class, class, true, 64), &packet);
        let run = push.run(&frame(FAR, HOST, 0x0800, &packet), 1)?;
        assert_eq!(run, TestRun { verdict: REDIRECT, frame: gone, ..run });
        let mut packet = [0; 44];
        packet[..4].copy_from_slice(&[0x60 | service >> 4, service << 4, 0, 0]);
        let gone = labelled(NEXT, EGRESS, &entry(400 + class, class, true, 64), &packet);
        let run = push.run(&frame(FAR, HOST, 0x86dd, &packet), 1)?;
        assert_eq!(run, TestRun { verdict: REDIRECT, frame: gone, ..run });
    }
    for (come, gone) in [
        (entry(200, 3, true, 64), entry(300, 3, true, 63)),
        (entry(200, 0, false, 2), entry(300, 0, false, 1)),
    ] {
        let run = switch.run(&labelled(OWN, NEXT, &come, &IPV4), 1)?;
        let gone = labelled(NEXT, EGRESS, &gone, &IPV4);
        assert_eq!(run, TestRun { verdict: REDIRECT, frame: gone, ..run });
    }
    for (first, kind) in [(0x45, 0x0800), (0x60, 0x86dd_u16)] {
        let mut packet = IPV4;
        packet[0] = first;
        let run = switch.run(&labelled(OWN, NEXT, &entry(201, 0, true, 64), &packet), 1)?;
        // IEEE 802.1Q: a tag of VLAN 0 is a priority only.
        let tagged = [&[0, 0][..], &kind.to_be_bytes(), &packet].concat();
        let gone = frame(FAR, HOST, 0x8100, &tagged);
        assert_eq!(run, TestRun { verdict: REDIRECT, frame: gone, ..run });
    }
    for (reason, times) in
        [(LabelReason::Pushed, 10), (LabelReason::Swapped, 2), (LabelReason::Popped, 2)]
    {
        assert_eq!(count(&switching, reason)?, times, "{reason:?}");
    }
    assert_eq!(switching.label_count(200)?.packets, 2);
    assert_eq!(switching.label_count(200)?.octets, 2 * (14 + 4 + 24));
    assert_eq!(switching.path_count(PathKey { destination: FAR, class: 2 })?.packets, 4);
    Ok(())
}

/// A packet for a station leaves by its port as it was before it got a label. What a station sends gets
/// its label only while the port forwards, and ARP is not for the host.
fn stations_at_a_bridge_port() -> Result<(), Failed> {
    const PORT: u32 = 4;
    const AT_PORT: [u8; 6] = [2, 0, 0, 0, 0, 0x44];
    let mut switching = switching()?;
    let what = LabelLink { interface: 1, address: AT_PORT, takes_super_frames: true };
    switching.tables().set_bridge_port(PORT, &what)?;
    let pop = LabelHop { link: PORT, address: FAR, label: None };
    switching.tables().set_label(202, Some(&LabelHops { primary: pop, backup: None }))?;
    let (push, switch) = (switching.push(PORT)?, switching.switch(0)?);
    let come = labelled(OWN, NEXT, &entry(202, 2, true, 9), &IPV4);
    let sent = frame(FAR, HOST, 0x0800, &IPV4);
    let arp = frame([0xff; 6], HOST, 0x0806, &[0; 46]);
    for up in [false, true] {
        switching.tables().set_link_up(PORT, up)?;
        let run = switch.run(&come, 1)?;
        let pushed = push.run(&sent, 1)?;
        if up {
            assert_eq!(
                run,
                TestRun { verdict: REDIRECT, frame: frame(FAR, AT_PORT, 0x0800, &IPV4), ..run }
            );
            assert_eq!(pushed.verdict, REDIRECT);
            let ipv6 = [&[0x60], &[0; 43][..]].concat();
            let run = switch.run(&labelled(OWN, NEXT, &entry(202, 2, true, 9), &ipv6), 1)?;
            assert_eq!(
                run,
                TestRun { verdict: REDIRECT, frame: frame(FAR, AT_PORT, 0x86dd, &ipv6), ..run }
            );
        } else {
            assert_eq!(run, TestRun { verdict: NEXT_PROGRAM, frame: come.clone(), ..run });
            assert_eq!(pushed, TestRun { verdict: NEXT_PROGRAM, frame: sent.clone(), ..pushed });
        }
        assert_eq!(push.run(&arp, 1)?.verdict, DROP);
    }
    Ok(())
}

fn what_goes_nowhere() -> Result<(), Failed> {
    use LabelReason::{Expired, NotIp, NotOurs, OtherType, Reserved, Truncated, Unknown};
    let switching = switching()?;
    let (push, switch) = (switching.push(0)?, switching.switch(0)?);
    let to_us = |entry: Vec<u8>| labelled(OWN, NEXT, &entry, &IPV4);
    let group = [1, 0, 0x5e, 0, 0, 1];
    let cases = [
        (&push, OtherType, frame(FAR, HOST, 0x0806, &[0; 46])),
        (&push, NotOurs, frame([0xff; 6], HOST, 0x0800, &IPV4)),
        (&push, NotOurs, frame(group, HOST, 0x0800, &IPV4)),
        (&push, Unknown, frame(NEXT, HOST, 0x0800, &IPV4)),
        (&switch, NotOurs, labelled(FAR, NEXT, &entry(200, 0, true, 64), &IPV4)),
        (&switch, Truncated, frame(OWN, NEXT, 0x8847, &entry(200, 0, true, 64))),
        (&switch, Unknown, to_us(entry(16, 0, true, 64))),
        (&switch, Unknown, to_us(entry(200 + 4096, 0, true, 64))),
        // RFC 3032 §2.1, RFC 5586 §4: reserved labels, the associated channel's under our own.
        (&switch, Reserved, to_us(entry(0, 0, true, 64))),
        (&switch, Reserved, to_us(entry(13, 0, true, 64))),
        (&switch, Reserved, to_us([entry(201, 0, false, 64), entry(13, 0, true, 1)].concat())),
        (&switch, Expired, to_us(entry(200, 0, true, 1))),
        (&switch, Expired, to_us(entry(200, 0, true, 0))),
        (&switch, Expired, to_us(entry(201, 0, true, 1))),
        (&switch, NotIp, labelled(OWN, NEXT, &entry(201, 0, true, 64), &[0x10, 0, 0, 0])),
    ];
    for (program, reason, frame) in cases {
        let before = count(&switching, reason)?;
        let run = program.run(&frame, 1)?;
        assert_eq!(run, TestRun { verdict: NEXT_PROGRAM, frame, ..run }, "{reason:?}");
        assert_eq!(count(&switching, reason)?, before + 1, "{reason:?}");
    }
    let other = frame(OWN, NEXT, 0x0800, &IPV4);
    let run = switch.run(&other, 1)?;
    assert_eq!(run, TestRun { verdict: NEXT_PROGRAM, frame: other, ..run });
    Ok(())
}

fn one_store_moves_to_the_backup() -> Result<(), Failed> {
    let mut switching = switching()?;
    let switch = switching.switch(0)?;
    let come = labelled(OWN, NEXT, &entry(200, 0, true, 64), &IPV4);
    let label_of = |run: &TestRun| u32::from_be_bytes(run.frame[14..18].try_into().unwrap()) >> 12;
    assert_eq!(label_of(&switch.run(&come, 1)?), 300);
    switching.tables().set_link_up(1, false)?;
    assert_eq!(label_of(&switch.run(&come, 1)?), 301);
    switching.tables().set_link_up(2, false)?;
    let run = switch.run(&come, 1)?;
    assert_eq!((run.verdict, &run.frame), (NEXT_PROGRAM, &come));
    assert_eq!(count(&switching, LabelReason::LinkDown)?, 1);
    switching.tables().set_link_up(1, true)?;
    assert_eq!(label_of(&switch.run(&come, 1)?), 300);
    Ok(())
}

/// UDP datagrams of 64 ports: each flow keeps its next hop, both are used, and all take the one that is
/// up. Another class is not spread.
fn a_spread_path_divides_its_flows() -> Result<(), Failed> {
    let mut switching = switching()?;
    let push = switching.push(0)?;
    let hop = |link, label| LabelHop { link, address: NEXT, label: Some(label) };
    let hops = LabelHops { primary: hop(1, 500), backup: Some(hop(2, 501)) };
    let label_of = |run: &TestRun| u32::from_be_bytes(run.frame[14..18].try_into().unwrap()) >> 12;
    let labels = |class: u8| -> Result<Vec<u32>, Failed> {
        let flow = |port: u8| {
            let mut packet = IPV4.to_vec();
            (packet[1], packet[3], packet[9]) = (class << 5, 32, 17);
            packet.truncate(20);
            packet.extend([0x40, port, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
            Ok(label_of(&push.run(&frame(FAR, HOST, 0x0800, &packet), 1)?))
        };
        (0..64).map(flow).collect()
    };
    // Precedence 0 is bulk, 1 background.
    switching.tables().set_spread_path(PathKey { destination: FAR, class: 2 }, &hops)?;
    let found = labels(0)?;
    let odd = found.iter().filter(|&&label| label == 501).count();
    assert!((8..=56).contains(&odd), "{odd} of 64");
    assert!(found.iter().all(|label| [500, 501].contains(label)));
    assert_eq!(labels(0)?, found);
    assert_eq!(labels(1)?, [403; 64]);
    switching.tables().set_link_up(2, false)?;
    assert_eq!(labels(0)?, [500; 64]);
    switching.tables().set_link_up(2, true)?;
    assert_eq!(labels(0)?, found);
    switching.tables().set_path(PathKey { destination: FAR, class: 2 }, Some(&hops))?;
    assert_eq!(labels(0)?, [500; 64]);
    Ok(())
}

fn the_driver_swaps_like_the_kernel() -> Result<(), Failed> {
    let switching = switching()?;
    let (swap, switch) = (switching.swap(0)?, switching.switch(0)?);
    let come = labelled(OWN, NEXT, &entry(200, 5, true, 64), &IPV4);
    let (driver, kernel) = (swap.run(&come, 1)?, switch.run(&come, 1)?);
    assert_eq!((driver.verdict, &driver.frame), (XDP_REDIRECT, &kernel.frame));
    assert_eq!(switching.label_count(200)?.packets, 2);
    // What it does not swap is left to the program behind it, uncounted.
    for frame in [
        labelled(OWN, NEXT, &entry(201, 0, true, 64), &IPV4),
        labelled(OWN, NEXT, &entry(200, 0, true, 1), &IPV4),
        labelled(OWN, NEXT, &entry(77, 0, true, 64), &IPV4),
        labelled(FAR, NEXT, &entry(200, 0, true, 64), &IPV4),
        frame(OWN, NEXT, 0x0800, &IPV4),
    ] {
        let run = swap.run(&frame, 1)?;
        assert_eq!((run.verdict, &run.frame), (XDP_PASS, &frame));
    }
    assert_eq!(switching.label_count(200)?.packets, 2);
    Ok(())
}

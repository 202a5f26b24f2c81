//! Stamps on probes that pass between two kernels.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly")]

use gatewright_testbed::{Namespace, Needs, Veth, in_time_namespace};
use gatewright_xdp::Stamper;
use gatewright_xdp::program::Hook;
use libtest_mimic::{Arguments, Failed, Trial};
use nix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

const TAG: [u8; 8] = *b"the run.";

fn main() -> ExitCode {
    let needs = || Needs::new().namespaces().linux(6, 6);
    let trial = |name: &str, test: fn() -> Result<(), Failed>, needs: Needs| match needs.missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial(STAMPED, run, needs()),
        trial(
            "stamps_are_by_the_clock_of_a_time_namespace",
            || Ok(in_time_namespace(STAMPED)?),
            needs().time_namespaces(),
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const STAMPED: &str = "a_probe_is_stamped_once_at_each_end";

/// Nanoseconds of this process's clock.
fn now() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    now.as_nanos().try_into().unwrap()
}

fn run() -> Result<(), Failed> {
    let (left, right) = (Namespace::new()?, Namespace::new()?);
    let cable = Veth::pair(&left, "l0", &right, "r0")?;
    cable.a.add_address("10.74.9.1/24").unwrap();
    cable.b.add_address("10.74.9.2/24").unwrap();
    cable.up().unwrap();
    let index = [cable.a.index().unwrap(), cable.b.index().unwrap()];
    let egress = left.run(|| Stamper::attach(index[0], Hook::Egress)).unwrap().unwrap();
    let ingress = right.run(|| Stamper::attach(index[1], Hook::Ingress)).unwrap().unwrap();
    for stamper in [&egress, &ingress] {
        stamper.begin(TAG);
    }
    let receiver = right.run(|| UdpSocket::bind("10.74.9.2:9000")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let sender = left.run(|| UdpSocket::bind("10.74.9.1:0")).unwrap().unwrap();
    let send_behind = |octets: usize, sequence: u32, tag: [u8; 8]| {
        let before = vec![0x5a; octets];
        let payload = [&before[..], &sequence.to_be_bytes(), &tag, &[0; 100]].concat();
        sender.send_to(&payload, "10.74.9.2:9000").unwrap();
        receiver.recv(&mut [0; 200]).expect("it arrives as it was sent");
    };
    let send = |sequence, tag| send_behind(0, sequence, tag);
    let began = now();
    send(7, TAG);
    send(70_000, TAG);
    send(8, *b"another.");
    for sequence in [7, 70_000] {
        let (sent, received) = (egress.time(sequence).unwrap(), ingress.time(sequence).unwrap());
        assert!(sent <= received, "{sequence}: it arrived before it was sent");
        assert!(received - sent < 1_000_000_000, "{sequence}: the clocks differ");
        assert!((began..=now()).contains(&sent), "{sequence}: by another clock");
    }
    // Another run's probe, one never sent, and one that shares its place with 70000.
    for sequence in [8, 9, 70_000 - 65_536] {
        assert_eq!((egress.time(sequence), ingress.time(sequence)), (None, None), "{sequence}");
    }
    egress.begin(TAG);
    assert_eq!(egress.time(7), None, "a new run begins without times");
    egress.begin_at(TAG, 42);
    send(3, TAG);
    send_behind(42, 4, TAG);
    assert_eq!(egress.time(3), None, "its identity is not at that place");
    assert!(egress.time(4).is_some(), "an identity behind 42 octets");
    Ok(())
}

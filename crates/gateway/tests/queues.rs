//! Reloads that deal the queues of links anew, between kernels that are not ours.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_config::parse;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::{Gateway, Planes};
use gatewright_planes::{QueueStatus, Status};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::time::Duration;

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(30);

/// The hosts in the north, in the middle and in the south, on cables of so many queues.
fn hosts(queues: usize) -> Result<[Namespace; 3], Failed> {
    let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
    let lan = Veth::with_queues(&north, "n0", &middle, "g0", queues)?;
    let wan = Veth::with_queues(&middle, "g1", &south, "s0", queues)?;
    for end in [&lan.a, &lan.b, &wan.a, &wan.b] {
        // One queue of what arrives, whichever processor it was sent on: without this the kernel
        // has one for each processor, and a thread that moves overtakes itself.
        end.namespace().command("ethtool").args(["-K", end.name(), "gro", "on"]).run()?;
    }
    lan.a.add_address("10.10.1.2/24")?;
    wan.b.add_address("10.10.2.2/24")?;
    lan.up()?;
    wan.up()?;
    north.add_route("default", "10.10.1.1")?;
    south.add_route("default", "10.10.2.1")?;
    Ok([north, middle, south])
}

fn reaches_south(north: &Namespace) -> bool {
    let ping = north.command("ping").args(["-n", "-q", "-c1", "-W1", "10.10.2.2"]);
    ping.output().unwrap().status.success()
}

/// What a gateway says of itself; on a busy machine a worker may answer late.
fn status_of(gateway: &Planes) -> Status {
    let mut status = None;
    wait_until(WITHIN, || {
        status = gateway.status().ok();
        status.is_some()
    });
    status.unwrap()
}

/// The workers that have the queues of a link.
fn queues_of(gateway: &Planes, link: usize) -> Vec<(u32, usize)> {
    let status = status_of(gateway);
    let pair = |queue: &QueueStatus| (queue.queue, queue.worker);
    status.links[link].queues.iter().map(pair).collect()
}

/// A reload deals the queues of a link anew while the gateway runs; one that cannot be had leaves
/// everything as it was.
fn a_reload_deals_queues_anew(mode: &str) -> Result<(), Failed> {
    let [north, middle, _south] = hosts(2)?;
    let read = |lan: &str| {
        let text = format!(
            "[gateway]\nworkers = 2\n[link.lan]\nmode = \"{mode}\"\n{lan}\n\
             addresses = [\"10.10.1.1/24\"]\n[link.wan]\nmode = \"{mode}\"\ndevice = \"g1\"\n\
             addresses = [\"10.10.2.1/24\"]\n"
        );
        parse(SourceId::default(), &text).config.unwrap()
    };
    let (one, all) = (read("device = \"g0\"\nqueues = 1"), read("device = \"g0\""));
    let nowhere = read("device = \"nowhere\"");
    let gateway = middle.run(|| Gateway::open(&one, 7).unwrap())?;
    let both = vec![(0, 0), (1, 1)];
    let of_one = if mode == "xdp" { vec![(0, 0), (1, 0)] } else { vec![(0, 0)] };
    let there = || wait_until(WITHIN, || reaches_south(&north));
    assert!(there());
    assert_eq!(queues_of(gateway.planes(), 0), of_one);
    for (config, queues) in [(&all, &both), (&one, &of_one), (&all, &both)] {
        let changes = middle.run(|| gateway.reload(config))??;
        assert!(changes.iter().any(|change| change.how.starts_with("queues")), "{changes:?}");
        assert_eq!(queues_of(gateway.planes(), 0), *queues);
        assert!(there(), "{:#?}", gateway.planes().status());
    }
    let error = middle.run(|| gateway.reload(&nowhere))?.unwrap_err();
    assert!(error.to_string().contains("there is no interface nowhere"), "{error}");
    assert_eq!(queues_of(gateway.planes(), 0), both, "as before");
    assert!(there(), "{:#?}", gateway.planes().status());
    Ok(())
}

fn main() {
    let missing = Needs::new().namespaces().program("ping").program("ethtool").missing();
    let reloads = ["packet", "xdp"].map(|mode| {
        let name = format!("{mode}::a_reload_deals_queues_anew");
        match &missing {
            None => Trial::test(name, move || a_reload_deals_queues_anew(mode)),
            Some(missing) => {
                Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
            }
        }
    });
    libtest_mimic::run(&Arguments::from_args(), reloads.into()).exit();
}

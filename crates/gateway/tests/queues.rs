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
use gatewright_gateway::{Assembly, Gateway, Planes};
use gatewright_planes::QueueStatus;
use gatewright_testbed::{Needs, TwoSubnets, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::iter;
use std::time::Duration;

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(30);

/// The workers that have the queues of a link; on a busy machine a worker may answer late.
fn queues_of(gateway: &Planes, link: usize) -> Vec<(u32, usize)> {
    let mut queues = None;
    wait_until(WITHIN, || {
        let pair = |queue: &QueueStatus| (queue.queue, queue.worker);
        let status = gateway.status().ok();
        queues = status.map(|status| status.links[link].queues.iter().map(pair).collect());
        queues.is_some()
    });
    queues.unwrap()
}

/// A reload deals the queues of a link anew while the gateway runs; one that cannot be had leaves
/// everything as it was.
fn a_reload_deals_queues_anew(mode: &str) -> Result<(), Failed> {
    let hosts = TwoSubnets::with_queues(2)?;
    let middle = &hosts.middle;
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
    let gateway = middle.run(|| Gateway::open(&one, 7, Assembly::default()).unwrap())?;
    let both = vec![(0, 0), (1, 1)];
    let of_one = if mode == "xdp" { vec![(0, 0), (1, 0)] } else { vec![(0, 0)] };
    let there = || wait_until(WITHIN, || hosts.are_connected().unwrap());
    assert!(there());
    assert_eq!(queues_of(gateway.planes(), 0), of_one);
    // Often: what a worker says that has just lost a link may come late.
    let deals = iter::repeat_n([(&all, &both), (&one, &of_one)], 6).flatten();
    for (config, queues) in deals.chain([(&all, &both)]) {
        let changes = middle.run(|| gateway.reload(config))??;
        assert!(changes.iter().any(|change| change.what == "[link.lan] queues"), "{changes:?}");
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

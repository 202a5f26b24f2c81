//! `bench dpdk`: packets of 64 octets that Gatewright routes between links of mode `dpdk`, beside DPDK's
//! testpmd on the same devices. Needs the feature `dpdk`.

use super::live::Payload;
use super::ours;
use super::testpmd::{self, AF_PACKET, AF_XDP, Testpmd};
use super::world::{Load, OWN_IP, TestHosts, To};
use super::{PAYLOAD, Problems, contestant};
use bench::{Bench, Options, Relation};
use gatewright_link::{DpdkConfig, Mode, WITHOUT_DPDK};
use gatewright_packet::LinkIndex;
use gatewright_planes::{DeviceSetup, LinkSetup, Setup};
use gatewright_testbed::Needs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;

/// A driver of DPDK, the figures of Gatewright and of testpmd by it, and the ratio, which is promised.
const DRIVERS: [(&str, [&str; 2], &str); 2] = [
    (AF_XDP, ["dpdk_af_xdp_mpps", "testpmd_af_xdp_mpps"], "dpdk_vs_testpmd"),
    (AF_PACKET, ["dpdk_af_packet_mpps", "testpmd_af_packet_mpps"], "dpdk_vs_testpmd_af_packet"),
];
const LEAST: f64 = 0.9;
const MTU: usize = 1500;

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("dpdk", options);
    let missing = Needs::new().namespaces().missing().map(|missing| missing.to_string());
    let missing = missing.or_else(testpmd::missing);
    if let Some(why) = WITHOUT_DPDK.map(str::to_owned).or(missing) {
        for (_, _, ratio) in DRIVERS {
            bench.skip(ratio, Relation::AtLeast, LEAST, &why);
        }
        return Ok(bench);
    }
    let world = TestHosts::new(options.quick)?;
    world.forwarding(false)?;
    let (world, problems) = (&world, Problems::default());
    let mut contestants = Vec::new();
    for (driver, [ours, testpmd], _) in DRIVERS {
        contestants.push(contestant(ours, &problems, move || by_gateway(world, driver)));
        contestants.push(contestant(testpmd, &problems, move || by_testpmd(world, driver)));
    }
    bench.interleave(contestants);
    for (_, [ours, testpmd], ratio) in DRIVERS {
        bench.ratio(ratio, ours, testpmd);
        bench.promise(ratio, Relation::AtLeast, LEAST);
    }
    bench.note(
        "a router that asks routes and neighbours, counts down hop limits and corrects checksums, beside \
         one that exchanges link-layer addresses; both poll without a pause on a processor of their own, \
         and the sender and what receives in the kernel share the other",
    );
    problems.into_inner().into_iter().for_each(|problem| bench.note(problem));
    Ok(bench)
}

/// What arrives, in millions a second, while `gateway` works.
fn flood(
    world: &TestHosts,
    driver: &str,
    gateway: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
) -> Result<f64, String> {
    let payload = [0x5a; PAYLOAD];
    let load = Load { to: To::Receiver, payload: &payload, read: Payload::Whole };
    // AF_XDP opens the cable's end by itself.
    let _open = (driver != AF_XDP).then(|| world.open_to_kernel()).transpose()?;
    let (rate, ()) = world.flood(load, gateway)?;
    Ok(rate.packets)
}

fn by_gateway(world: &TestHosts, driver: &str) -> Result<f64, String> {
    let mut setup = Setup::new(42);
    for (index, ip) in (0..).zip(OWN_IP) {
        let (port, promiscuous) = (format!("{driver}{index},iface=g{index}"), false);
        let device = DpdkConfig { index: LinkIndex(index), port, mtu: MTU, promiscuous };
        let mut link = LinkSetup::new(&format!("g{index}"), DeviceSetup::Dpdk(device));
        link.address(ip, 24);
        setup.links.push(link);
    }
    flood(world, driver, |stop| ours::serve(&setup, Mode::Dpdk, None, stop).map(drop))
}

fn by_testpmd(world: &TestHosts, driver: &str) -> Result<f64, String> {
    let testpmd = Testpmd::start(world, driver)?;
    let rate = flood(world, driver, |stop| {
        while !stop.load(Ordering::Relaxed) {
            sleep(ours::LOOK);
        }
        Ok(())
    });
    testpmd.finish()?;
    rate
}

//! Two hosts, two subnets, and a gateway between them, in namespaces.

use anyhow::Result;
use gatewright_planes::{Planes, Setup};
use gatewright_testbed::{Namespace, Veth, wait_until};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Addresses of the world: documentation could not be routed more plainly.
pub(super) const NORTH: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 2);
pub(super) const SOUTH: Ipv4Addr = Ipv4Addr::new(10, 10, 2, 2);
pub(super) const SOUTH6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2);
pub(super) const LAN: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 1);
pub(super) const LAN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
const NORTH6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);
const WAN: Ipv4Addr = Ipv4Addr::new(10, 10, 2, 1);
const WAN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1);

/// Octets of the largest packet on the second link.
pub(super) const SOUTH_MTU: u32 = 1400;

/// How long the hosts may take until they reach one another: IPv6 checks addresses for a second.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The demo's network and its gateway. Fields are dropped in order: the gateway before its links.
pub(super) struct DemoNetwork {
    gateway: Planes,
    _cables: [Veth; 2],
    pub(super) north: Namespace,
    pub(super) south: Namespace,
    _middle: Namespace,
}

impl DemoNetwork {
    /// Makes the namespaces and cables, opens the gateway, and waits until the hosts are ready.
    pub(super) fn build() -> Result<Self> {
        let (north, middle, south) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let lan = Veth::pair(&north, "north", &middle, "lan")?;
        let wan = Veth::pair(&middle, "wan", &south, "south")?;
        wan.a.set_mtu(SOUTH_MTU)?;
        wan.b.set_mtu(SOUTH_MTU)?;
        lan.a.add_address(&format!("{NORTH}/24"))?;
        lan.a.add_address(&format!("{NORTH6}/64"))?;
        wan.b.add_address(&format!("{SOUTH}/24"))?;
        wan.b.add_address(&format!("{SOUTH6}/64"))?;
        lan.up()?;
        wan.up()?;
        for (host, via, via6) in [(&north, LAN, LAN6), (&south, WAN, WAN6)] {
            host.add_route("default", &via.to_string())?;
            host.ip(&["-6", "route", "add", "default", "via", &via6.to_string()])?;
        }
        let gateway = middle.run(|| {
            let mut setup = Setup::new(1);
            setup.link("lan", "lan").address(LAN, 24).address(LAN6, 64);
            setup.link("wan", "wan").address(WAN, 24).address(WAN6, 64);
            Planes::open(&setup)
        })??;
        let world = Self { gateway, _cables: [lan, wan], north, south, _middle: middle };
        let reached = |target: String| {
            let ping = world.north.command("ping").args(["-n", "-q", "-c1", "-W1", &target]);
            ping.output().is_ok_and(|output| output.status.success())
        };
        wait_until(READY_WITHIN, || reached(SOUTH.to_string()) && reached(SOUTH6.to_string()));
        Ok(world)
    }

    /// The gateway in the middle.
    pub(super) const fn gateway(&self) -> &Planes {
        &self.gateway
    }
}

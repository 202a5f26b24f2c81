//! The UDP gateway between kernels and programs that are not ours, in namespaces.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_planes::{
    MergeLimit, Planes, Series, Setup, UdpGateway, UdpGatewayCounts, UdpGatewaySetup,
};
use gatewright_stack::{Form, split};
use gatewright_testbed::{Namespace, Needs, Transport, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

const LAN: Ipv4Addr = Ipv4Addr::new(10, 11, 1, 1);
const NORTH: Ipv4Addr = Ipv4Addr::new(10, 11, 1, 2);
const WAN: Ipv4Addr = Ipv4Addr::new(10, 11, 2, 1);
const SOUTH: Ipv4Addr = Ipv4Addr::new(10, 11, 2, 2);

/// How long something may take on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(30);

/// A client and a server that know no way to each other, and a gateway.
struct World {
    gateway: Option<Planes>,
    north: Namespace,
    south: Namespace,
    _middle: Namespace,
    _links: [Veth; 2],
}

impl World {
    fn new(backend: Backend) -> Result<Self, Failed> {
        let (north, middle, south) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let lan = Veth::pair(&north, "n0", &middle, "g0")?;
        let wan = Veth::pair(&middle, "g1", &south, "s0")?;
        lan.a.add_address(&format!("{NORTH}/24"))?;
        wan.b.add_address(&format!("{SOUTH}/24"))?;
        lan.up()?;
        wan.up()?;
        let gateway = middle.run(|| {
            let mut setup = Setup::new(7);
            setup.link("lan", "g0").backend(backend).address(LAN, 24);
            setup.link("wan", "g1").backend(backend).address(WAN, 24);
            Planes::open(&setup)
        })??;
        Ok(Self { gateway: Some(gateway), north, south, _middle: middle, _links: [lan, wan] })
    }

    fn relay(&self, port: u16, server: SocketAddr, series: Series) -> Result<UdpGateway, Failed> {
        let listen = SocketAddr::new(LAN.into(), port);
        let gateway = self.gateway.as_ref().ok_or("no gateway")?;
        let setup = UdpGatewaySetup { listen, target: server.into(), series, clients_max: 256 };
        Ok(UdpGateway::start(gateway.sockets(), setup)?)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.gateway.take());
    }
}

fn dig_is_answered_by_dnsmasq(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend)?;
    let listen = format!("--listen-address={SOUTH}");
    let server = world.south.command("dnsmasq").args([
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        "--user=root",
        "--pid-file=",
        "--bind-interfaces",
        "--address=/gate.test/192.0.2.7",
        &listen,
    ]);
    let _server = server.spawn()?;
    if !world.south.wait_listening(Transport::Udp, 53, LIMIT)? {
        return Err("dnsmasq does not listen".into());
    }
    let relay = world.relay(5300, (SOUTH, 53).into(), Series::Plain)?;
    let (at, port) = (format!("@{LAN}"), ["-p", "5300"]);
    let ask = ["+short", "+tries=10", "+time=2", "gate.test", "A"];
    let answer = world.north.command("dig").arg(at).args(port).args(ask).run()?;
    let back = relay.counts().returned;
    if answer.trim() == "192.0.2.7" && back > 0 {
        return Ok(());
    }
    Err(format!("{answer}, {back} answers came by the gateway").into())
}

/// Datagrams of each burst, and bursts.
const BURST: u32 = 40;
const BURSTS: u32 = 25;

fn what_is_merged_arrives_whole_and_in_order(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend)?;
    let south = world.south.run(|| UdpSocket::bind((SOUTH, 7000)))??;
    south.set_read_timeout(Some(LIMIT))?;
    let series = Series::Merge(Form::Prefixed, MergeLimit::PathMtu);
    let relay = world.relay(7000, (SOUTH, 7000).into(), series)?;
    let north = world.north.run(|| UdpSocket::bind((NORTH, 0)))??;
    north.connect((LAN, 7000))?;
    let (mut merged, mut buffer, mut expected) = (0, [0; 2048], 0);
    // A kernel lets new datagrams overtake those that wait for its neighbour, while it releases
    // them: the first goes alone.
    let ends = std::iter::once(1).chain((1..=BURSTS).map(|burst| burst * BURST));
    for end in ends {
        // The next burst is sent when this one is there: no queue is overrun, on any machine.
        for number in expected..end {
            let len = usize::try_from(4 + number % 60)?;
            let mut datagram = number.to_be_bytes().to_vec();
            datagram.resize(len, 7);
            north.send(&datagram)?;
        }
        while expected < end {
            let len = south.recv(&mut buffer)?;
            merged += 1;
            for part in split(buffer.get(..len).unwrap_or_default()) {
                let part = part?;
                let number = part.first_chunk().copied().map(u32::from_be_bytes);
                if number != Some(expected) || part.len() != usize::try_from(4 + expected % 60)? {
                    return Err(format!("{number:?} came instead of {expected}").into());
                }
                expected += 1;
            }
        }
    }
    // What is told lags behind what is sent by less than a batch.
    let told = |counts: UdpGatewayCounts| (counts.received, counts.sent);
    let wanted = (u64::from(BURST * BURSTS), merged);
    if wait_until(LIMIT, || told(relay.counts()) == wanted) {
        return Ok(());
    }
    Err(format!("{:?} were counted and {wanted:?} seen", told(relay.counts())).into())
}

type Check = fn(Backend) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let missing = Needs::new().namespaces().program("dig").program("dnsmasq").missing();
    let checks: [(&str, Check); 2] = [
        ("dig_is_answered_by_dnsmasq", dig_is_answered_by_dnsmasq),
        ("what_is_merged_arrives_whole_and_in_order", what_is_merged_arrives_whole_and_in_order),
    ];
    let trials = [("packet_socket", Backend::PacketSocket), ("xdp", Backend::Xdp)]
        .into_iter()
        .flat_map(|(name, backend)| {
            checks.map(|(check, run)| {
                Trial::test(format!("{name}::{check}"), move || run(backend))
                    .with_ignored_flag(missing.is_some())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

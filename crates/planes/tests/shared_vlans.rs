//! VLANs of a link that is shared with the kernel: what is only forwarded is ours, all else goes to the
//! kernel and its VLAN interfaces, with its tag.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod transfer;

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, LogEvent};
use gatewright_planes::{Planes, Setup};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use gatewright_xdp::program::{AttachedProgram, BpfProgram, Hook, Instruction, ProgramType};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use transfer::transfer;

const SOUTH: &str = "10.10.2.2";
const LAN: LinkIndex = LinkIndex(0);
const VLAN: u16 = 10;

/// Longer than any change takes to be followed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host to the north, whose cable carries VLANs, and one to the south. Between them a kernel and our
/// gateway beside it, whose links are all shared: `lan`, its VLAN `red`, and `wan`.
struct World {
    gateway: Option<Planes>,
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    links: [Veth; 2],
    /// What has happened to `red`.
    events: Arc<Mutex<Vec<LogEvent>>>,
}

impl World {
    fn new() -> Result<Self, Failed> {
        let [north, middle, south] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for kernel in [&north, &middle, &south] {
            kernel.sysctl("net.ipv6.conf.default.dad_transmits", "0")?;
        }
        let lan = Veth::pair(&north, "n0", &middle, "g0")?;
        let wan = Veth::pair(&middle, "g1", &south, "s0")?;
        for (end, addresses) in
            [(&wan.a, ["10.10.2.1/24", "fd00:2::1/64"]), (&wan.b, ["10.10.2.2/24", "fd00:2::2/64"])]
        {
            for address in addresses {
                end.add_address(address)?;
            }
        }
        lan.up()?;
        wan.up()?;
        south.add_route("default", "10.10.2.1")?;
        south.add_route("default", "fd00:2::1")?;
        let (gateway, events) = (None, Arc::default());
        Ok(Self { gateway, north, middle, south, links: [lan, wan], events })
    }

    fn open(&mut self, backend: Backend, kernel_forwards: bool) -> Result<(), Failed> {
        let forwards = if kernel_forwards { "1" } else { "0" };
        self.middle.sysctl("net.ipv4.ip_forward", forwards)?;
        self.middle.sysctl("net.ipv6.conf.all.forwarding", forwards)?;
        let events = Arc::clone(&self.events);
        let log = EventSink::new(move |event| events.lock().unwrap().push(event));
        self.gateway = Some(self.middle.run(|| {
            let mut setup = Setup::new(7);
            setup.link("lan", "g0").backend(backend).shared();
            setup.link("wan", "g1").backend(backend).shared();
            setup.vlan("red", LAN, VLAN);
            Planes::open_logging(&setup, log)
        })??);
        Ok(())
    }

    fn until(&self, what: &str, condition: impl Fn() -> bool) -> Result<(), Failed> {
        if wait_until(PATIENCE, condition) {
            return Ok(());
        }
        Err(format!("{what}: {}", self.said()).into())
    }

    /// The kinds of events that say whether `red` is up.
    fn kinds(&self) -> Vec<&'static str> {
        let events = self.events.lock().unwrap();
        let about = |event: &&LogEvent| {
            event.text.contains("link red") && ["link-down", "link-up"].contains(&event.kind)
        };
        events.iter().filter(about).map(|event| event.kind).collect()
    }

    fn said(&self) -> String {
        let gateway = self.gateway.as_ref();
        format!("{:#?}\n{:#?}", gateway.map(Planes::routes), gateway.map(Planes::status))
    }

    /// Frames that a link of ours has received and sent.
    fn counted(&self, link: &str) -> [u64; 2] {
        let status = self.gateway.as_ref().and_then(|gateway| gateway.status().ok());
        let found = status.into_iter().flat_map(|status| status.links).find(|it| it.name == link);
        let counters = found.map(|found| found.counters).unwrap_or_default();
        ["received", "sent"].map(|name| {
            counters.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
        })
    }

    /// Packets that the kernel in the middle has forwarded.
    fn forwarded_by_kernel(&self) -> Result<u64, Failed> {
        Ok(self.middle.counter("IpForwDatagrams")? + self.middle.counter("Ip6OutForwDatagrams")?)
    }
}

fn pings(from: &Namespace, to: &str) -> bool {
    let pinged = from.command("ping").args(["-n", "-q", "-c1", "-W0.3", to]).output();
    pinged.is_ok_and(|pinged| pinged.status.success())
}

/// Has the kernel tag what leaves by the interface with `index`: `bpf_skb_vlan_push`, which does
/// what a VLAN interface does.
fn tag_all(index: u32, vlan: u16) -> std::io::Result<AttachedProgram> {
    const VLAN_PUSH: i32 = 18;
    let program = [
        Instruction(0xb7, 2, 0, i32::from(0x8100_u16.to_be())),
        Instruction(0xb7, 3, 0, vlan.into()),
        Instruction(0x85, 0, 0, VLAN_PUSH),
        Instruction(0xb7, 0, 0, 0),
        Instruction(0x95, 0, 0, 0),
    ];
    let program = BpfProgram::load(ProgramType::Egress, "tag_all", &program, 0)?;
    program.attach(index, Hook::Egress)
}

/// Tagged packets are forwarded by us, those of another VLAN by nobody. The answers come untagged, as
/// this kernel needs no VLAN interface for that.
fn tagged_packets_are_forwarded(backend: Backend) -> Result<(), Failed> {
    let mut world = World::new()?;
    world.open(backend, false)?;
    let [lan, _] = &world.links;
    let World { north, middle, .. } = &world;
    // Nobody answers address resolution in a VLAN that the kernel does not have.
    north.ip(&["address", "add", "10.20.1.2/24", "dev", "n0"])?;
    north.ip(&["neigh", "add", "10.20.1.1", "lladdr", &lan.b.mac()?, "dev", "n0"])?;
    north.add_route("default", "10.20.1.1")?;
    middle.ip(&["route", "add", "10.20.1.0/24", "dev", "g0"])?;
    middle.ip(&["neigh", "add", "10.20.1.2", "lladdr", &lan.a.mac()?, "dev", "g0"])?;
    world.until("untagged", || pings(north, SOUTH))?;
    let before = world.counted("red");
    assert_eq!(before, [0, 0], "{}", world.said());
    let why = "VLAN tag 10 on lan; the kernel has no VLAN interface with this tag on g0";
    assert!(world.said().contains(why), "{}", world.said());
    assert_eq!(world.kinds(), ["link-down"]);
    let tagged = north.run(|| tag_all(lan.a.index().unwrap(), VLAN))??;
    world.until("tagged", || pings(north, SOUTH))?;
    let [received, sent] = world.counted("red");
    assert!(received > 0 && sent == 0, "{}", world.said());
    drop(tagged);
    let _other = north.run(|| tag_all(lan.a.index().unwrap(), VLAN + 1))??;
    assert!(!pings(north, SOUTH), "another VLAN: {}", world.said());
    assert_eq!(world.counted("red"), [received, 0]);
    Ok(())
}

/// The kernel's VLAN interfaces are hosts; we forward for the one that is a link of ours, between it,
/// its own cable without a tag, and the other link. Whatever its name, it is known by its tag.
fn vlan_interfaces_are_shared(backend: Backend) -> Result<(), Failed> {
    let mut world = World::new()?;
    let member = |host: &Namespace, device: &str, name: &str, id: &str| -> Result<(), Failed> {
        host.ip(&["link", "add", "link", device, "name", name, "type", "vlan", "id", id])?;
        host.ip(&["link", "set", name, "up"])?;
        Ok(())
    };
    let address = |host: &Namespace, name: &str, address: &str| {
        host.ip(&["address", "add", address, "dev", name]).map(drop)
    };
    for (id, net) in [("10", "20"), ("20", "21")] {
        member(&world.north, "n0", &format!("v{id}"), id)?;
        address(&world.north, &format!("v{id}"), &format!("10.{net}.1.2/24"))?;
    }
    address(&world.north, "n0", "10.10.1.2/24")?;
    address(&world.middle, "g0", "10.10.1.1/24")?;
    member(&world.middle, "g0", "yellow", "20")?;
    address(&world.middle, "yellow", "10.21.1.1/24")?;
    world.north.add_route("default", "10.20.1.1")?;
    world.open(backend, true)?;
    // It comes later, and under a name that says nothing.
    member(&world.middle, "g0", "any", "10")?;
    address(&world.middle, "any", "10.20.1.1/24")?;
    address(&world.middle, "any", "fd00:20::1/64")?;
    address(&world.north, "v10", "fd00:20::2/64")?;
    world.north.add_route("fd00:2::/64", "fd00:20::1")?;
    let World { north, middle, south, .. } = &world;
    let ours = |from, to: &str| {
        let before = (world.forwarded_by_kernel().unwrap(), world.counted("red"));
        pings(from, to)
            && world.forwarded_by_kernel().unwrap() == before.0
            && world.counted("red")[1] > before.1[1]
    };
    let red = || {
        let status = world.gateway.as_ref().and_then(|gateway| gateway.status().ok());
        let found = status.into_iter().flat_map(|it| it.links).find(|it| it.name == "red");
        found.map(|red| (red.up, red.addresses.len(), red.why)).unwrap_or_default()
    };
    for to in [SOUTH, "fd00:2::2"] {
        world.until("by the VLAN and back", || ours(north, to))?;
    }
    world.until("to the VLAN and back", || ours(south, "10.20.1.2"))?;
    // The kernel is the host in its VLANs, and forwards for those that are no links of ours.
    let before = world.counted("red");
    let echoes = middle.counter("IcmpInEchos")?;
    assert!(pings(north, "10.20.1.1") && pings(north, "10.21.1.1"));
    assert_eq!(middle.counter("IcmpInEchos")? - echoes, 2);
    assert_eq!(world.counted("red"), before);
    north.ip(&["route", "add", "10.10.2.0/24", "via", "10.21.1.1"])?;
    let forwarded = world.forwarded_by_kernel()?;
    world.until("a VLAN of the kernel", || pings(north, SOUTH))?;
    assert!(world.forwarded_by_kernel()? > forwarded);
    north.ip(&["route", "del", "10.10.2.0/24"])?;
    transfer(north, (south, SOUTH), PATIENCE)
        .map_err(|error| format!("{error}\n{}", world.said()))?;
    assert_eq!(south.counter("TcpInCsumErrors")?, 0);
    // Gone and back, with another name.
    middle.ip(&["link", "del", "any"])?;
    world.until("without it", || !pings(north, SOUTH))?;
    world.until("it is down", || matches!(red(), (false, 0, _)))?;
    member(middle, "g0", "again", "10")?;
    address(middle, "again", "10.20.1.1/24")?;
    world.until("it is there again", || ours(north, SOUTH))?;
    assert_eq!(red(), (true, 1, "VLAN tag 10 on lan".to_owned()));
    assert_eq!(world.kinds(), ["link-down", "link-up", "link-down", "link-up"]);
    Ok(())
}

type Check = fn(Backend) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let needs = Needs::new().namespaces().program("ping").linux(6, 8);
    let checks: [(&str, Check, Needs); 2] = [
        ("tagged_packets_are_forwarded", tagged_packets_are_forwarded, needs.clone()),
        (
            "vlan_interfaces_are_shared",
            vlan_interfaces_are_shared,
            needs.program("iperf3").vlan_interfaces(),
        ),
    ];
    let backends = [("packet_socket", Backend::PacketSocket), ("xdp", Backend::Xdp)];
    let trials = backends.into_iter().flat_map(|(name, backend)| {
        checks.iter().map(move |(check, run, needs)| {
            let (name, run) = (format!("{name}::{check}"), *run);
            match needs.clone().missing() {
                None => Trial::test(name, move || run(backend)),
                Some(missing) => {
                    let name = format!("{name} (needs {missing})");
                    Trial::test(name, || Ok(())).with_ignored_flag(true)
                }
            }
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit();
}

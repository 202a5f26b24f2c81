//! How a gateway comes by its addresses and groups, judged by a DHCP server, a kernel and a
//! dissector that are not ours.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_planes::{LinkSetup, Planes, Setup};
use gatewright_stack::AddressState;
use gatewright_testbed::{Command, Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

/// The host's address.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);

/// Its address of IPv6.
const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 1);

/// The one address that the server has to give.
const LEASED: &str = "10.20.0.50";

/// Longer than any start and two lost messages take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A host with a gateway beside it on one cable.
struct World {
    host: Namespace,
    middle: Namespace,
    _wire: Veth,
}

fn world() -> Result<World, Failed> {
    let (middle, host) = (Namespace::new()?, Namespace::new()?);
    let wire = Veth::pair(&middle, "g0", &host, "h0")?;
    wire.b.add_address(&format!("{HOST}/24"))?;
    host.sysctl("net.ipv6.conf.h0.dad_transmits", "0")?;
    wire.b.add_address(&format!("{HOST6}/64"))?;
    wire.up()?;
    // A cable that was just plugged in loses what is sent until both its ends know of it, and the
    // kernel hears no question about an address before it listens to the address's group.
    let knows = |end: &Namespace, name| {
        let told = end.ip(&["link", "show", "dev", name]);
        told.is_ok_and(|told| told.contains("state UP"))
    };
    let listens = || {
        let groups = host.ip(&["-6", "maddr", "show", "dev", "h0"]);
        groups.is_ok_and(|groups| groups.contains("ff02::1:ff00:1"))
    };
    if !wait_until(PATIENCE, || knows(&middle, "g0") && knows(&host, "h0") && listens()) {
        return Err("the cable does not come up".into());
    }
    Ok(World { host, middle, _wire: wire })
}

impl World {
    fn gateway(&self, describe: impl FnOnce(&mut LinkSetup) + Send) -> Result<Planes, Failed> {
        let gateway = self.middle.run(|| {
            let mut setup = Setup::new(7);
            describe(setup.link("wan", "g0").backend(Backend::PacketSocket));
            Planes::open(&setup).unwrap()
        })?;
        Ok(gateway)
    }
}

fn a_lease_is_given_by_dnsmasq() -> Result<(), Failed> {
    let world = world()?;
    let range = format!("--dhcp-range={LEASED},{LEASED},255.255.255.0,120");
    let options = ["-k", "--port=0", "--interface=h0", "--bind-interfaces", "--no-ping"];
    let files = ["--conf-file=/dev/null", "--leasefile-ro", "--pid-file=", "--user=root"];
    let server = world.host.command("dnsmasq").args(options).args(files).arg(range);
    leased(&world, server).map(drop)
}

/// RFC 2131 §4.4.6, as dnsmasq says: the address is given back when the gateway ends.
fn a_lease_is_given_back_to_dnsmasq() -> Result<(), Failed> {
    let world = world()?;
    let range = format!("--dhcp-range={LEASED},{LEASED},255.255.255.0,120");
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dnsmasq.log");
    fs::write(&log, "")?;
    let options = ["-k", "--port=0", "--interface=h0", "--bind-interfaces", "--no-ping"];
    let files = ["--conf-file=/dev/null", "--leasefile-ro", "--pid-file=", "--user=root"];
    let facility = format!("--log-facility={}", log.display());
    let server = world.host.command("dnsmasq").args(options).args(files).arg(range).arg(facility);
    let _server = leased(&world, server)?;
    let released = || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains(&format!("DHCPRELEASE(h0) {LEASED}")))
    };
    if !wait_until(PATIENCE, released) {
        return Err(fs::read_to_string(&log)?.into());
    }
    Ok(())
}

/// The address that the one server has, given by another one that is not ours.
fn a_lease_is_given_by_udhcpd() -> Result<(), Failed> {
    let world = world()?;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, leases) = (folder.join("udhcpd.conf"), folder.join("udhcpd.leases"));
    let description = format!(
        "start {LEASED}\nend {LEASED}\ninterface h0\nlease_file {}\npidfile /dev/null\n\
         option subnet 255.255.255.0\noption router {HOST}\noption lease 120\n",
        leases.display()
    );
    fs::write(&file, description)?;
    fs::write(&leases, "")?;
    let server = world.host.command("busybox").args(["udhcpd", "-f"]).arg(&file);
    leased(&world, server.stderr(Stdio::null()).stdout(Stdio::null())).map(drop)
}

/// A gateway that asks for an address gets it from the server, and answers to it; the server, which
/// outlives the gateway.
fn leased(world: &World, server: Command) -> Result<impl Sized, Failed> {
    let server = server.spawn()?;
    let gateway = world.gateway(|link| link.dhcp = true)?;
    let ping = || {
        let pinged = world.host.command("ping").args(["-n", "-q", "-c1", "-W1", LEASED]).output();
        pinged.is_ok_and(|pinged| pinged.status.success())
    };
    if !wait_until(PATIENCE, ping) {
        return Err(format!("{LEASED} does not answer: {:#?}", gateway.status()).into());
    }
    Ok(server)
}

/// RFC 5227 §2.1: the kernel answers our probes of its address.
fn an_address_that_a_kernel_has_is_given_up() -> Result<(), Failed> {
    is_given_up(HOST.into(), 24)
}

/// RFC 4862 §5.4: the same of IPv6, by neighbour advertisements.
fn an_ipv6_address_that_a_kernel_has_is_given_up() -> Result<(), Failed> {
    is_given_up(HOST6.into(), 64)
}

fn is_given_up(taken: IpAddr, bits: u8) -> Result<(), Failed> {
    let world = world()?;
    let gateway = world.gateway(|link| {
        link.address(taken, bits);
    })?;
    let state = || {
        gateway.change_host(|host| {
            let addresses = &host.interfaces()[0].addresses;
            addresses.iter().find(|address| address.ip == taken).map(|found| found.state)
        })
    };
    if !wait_until(PATIENCE, || state() == Some(AddressState::Duplicate)) {
        return Err(format!("{:?}: {:#?}", state(), gateway.status()).into());
    }
    Ok(())
}

/// A device whose MTU and hardware address are changed from outside is followed, without a restart.
fn a_device_that_is_changed_is_followed() -> Result<(), Failed> {
    let world = world()?;
    let gateway = world.gateway(|link| {
        link.address(Ipv4Addr::new(10, 20, 0, 2), 24);
    })?;
    let has = |mtu: u32, mac: &str| {
        gateway.change_host(|host| {
            let own = &host.interfaces()[0];
            own.mtu == mtu && own.link_address.to_string() == mac
        })
    };
    let mac = "02:00:00:00:12:34";
    world.middle.ip(&["link", "set", "g0", "mtu", "1300"])?;
    world.middle.ip(&["link", "set", "g0", "address", mac])?;
    if !wait_until(PATIENCE, || has(1300, mac)) {
        return Err(format!("{:#?}", gateway.status()).into());
    }
    let ping = || {
        let pinged =
            world.host.command("ping").args(["-n", "-q", "-c1", "-W1", "10.20.0.2"]).output();
        pinged.is_ok_and(|pinged| pinged.status.success())
    };
    if !wait_until(PATIENCE, ping) {
        return Err(format!("it does not answer: {:#?}", gateway.status()).into());
    }
    world.middle.ip(&["link", "set", "g0", "mtu", "1500"])?;
    if !wait_until(PATIENCE, || has(1500, mac)) {
        return Err(format!("{:#?}", gateway.status()).into());
    }
    // Above the MTU with which it was opened: a chunk of the slab holds as much.
    world.middle.ip(&["link", "set", "g0", "mtu", "1700"])?;
    world.host.ip(&["link", "set", "h0", "mtu", "1700"])?;
    let large = || {
        let arguments = ["-n", "-q", "-c1", "-W1", "-M", "do", "-s", "1672", "10.20.0.2"];
        let pinged = world.host.command("ping").args(arguments).output();
        pinged.is_ok_and(|pinged| pinged.status.success())
    };
    if !wait_until(PATIENCE, || has(1700, mac) && large()) {
        return Err(format!("{:#?}", gateway.status()).into());
    }
    Ok(())
}

/// What tshark says of our reports of IGMP: type 0x22, one record *change to exclude* for the group.
fn a_joined_group_is_reported_as_tshark_sees_it() -> Result<(), Failed> {
    let fields = ["igmp.type", "igmp.record_type", "igmp.maddr", "ip.ttl"];
    is_reported(
        IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)),
        "igmp and src host 10.20.0.2",
        &fields,
        "0x22\t4\t239.1.2.3\t1",
    )
}

/// What tshark says of our reports of MLD: type 143, one record *change to exclude* for the group,
/// a router alert with value 0, and a right checksum.
fn a_joined_ipv6_group_is_reported_as_tshark_sees_it() -> Result<(), Failed> {
    let fields = [
        "icmpv6.type",
        "icmpv6.mldr.mar.record_type",
        "icmpv6.mldr.mar.multicast_address",
        "ipv6.hlim",
        "ipv6.opt.router_alert",
        "icmpv6.checksum.status",
    ];
    is_reported(
        IpAddr::V6("ff15::3".parse()?),
        "ip6[6] = 0 and ether[54] = 58 and dst host ff02::16",
        &fields,
        "143\t4\tff15::3\t1\t0\t1",
    )
}

/// Joins `group` until tshark, which captures `filter`, has printed `report` as the `fields`.
fn is_reported(group: IpAddr, filter: &str, fields: &[&str], report: &str) -> Result<(), Failed> {
    let world = world()?;
    let mut tshark =
        world.host.command("tshark").args(["-l", "-n", "-i", "h0", "-a", "duration:60"]);
    tshark = tshark.args(["-c", "8", "-f", filter, "-T", "fields"]);
    for field in fields {
        tshark = tshark.args(["-e", field]);
    }
    let gateway = world.gateway(|link| {
        link.address(Ipv4Addr::new(10, 20, 0, 2), 24);
    })?;
    let seen = std::thread::scope(|scope| {
        let seen = scope.spawn(|| tshark.output());
        // It is not told when tshark listens: the group is left and joined until it has seen us.
        let any = if group.is_ipv4() { "0.0.0.0:5000" } else { "[::]:5000" };
        let socket = gateway.sockets().bind(any.parse().unwrap()).unwrap();
        while !seen.is_finished() {
            socket.join_multicast(group, LinkIndex(0)).unwrap();
            std::thread::sleep(Duration::from_millis(500));
            socket.leave_multicast(group, LinkIndex(0)).unwrap();
            std::thread::sleep(Duration::from_millis(500));
        }
        seen.join()
    });
    let seen = seen.map_err(|_| "tshark's thread")??;
    let seen = String::from_utf8_lossy(&[seen.stdout, seen.stderr].concat()).into_owned();
    if !seen.lines().any(|line| line == report) {
        return Err(format!("tshark saw {seen:?}: {:#?}", gateway.status()).into());
    }
    Ok(())
}

type Check = fn() -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let checks: [(&str, &str, Check); 8] = [
        ("a_lease_is_given_by_dnsmasq", "dnsmasq", a_lease_is_given_by_dnsmasq),
        ("a_lease_is_given_back_to_dnsmasq", "dnsmasq", a_lease_is_given_back_to_dnsmasq),
        ("a_device_that_is_changed_is_followed", "ping", a_device_that_is_changed_is_followed),
        ("a_lease_is_given_by_udhcpd", "busybox", a_lease_is_given_by_udhcpd),
        (
            "an_ipv6_address_that_a_kernel_has_is_given_up",
            "ping",
            an_ipv6_address_that_a_kernel_has_is_given_up,
        ),
        (
            "an_address_that_a_kernel_has_is_given_up",
            "ping",
            an_address_that_a_kernel_has_is_given_up,
        ),
        (
            "a_joined_group_is_reported_as_tshark_sees_it",
            "tshark",
            a_joined_group_is_reported_as_tshark_sees_it,
        ),
        (
            "a_joined_ipv6_group_is_reported_as_tshark_sees_it",
            "tshark",
            a_joined_ipv6_group_is_reported_as_tshark_sees_it,
        ),
    ];
    let trials = checks.map(|(name, program, check)| {
        let missing = Needs::new().namespaces().program("ping").program(program).missing();
        Trial::test(name, check).with_ignored_flag(missing.is_some())
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

//! Labels between our programs and the kernel's own MPLS (`mpls_router`, `mpls_iptunnel`), as `cargo xtask
//! interop` has it: a path through a router of the kernel, and one of the kernel through ours.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_tables::{LabelHop, LabelHops, LabelLink, PathKey};
use gatewright_testbed::{Namespace, Needs, NodeLine, TestInterface};
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::program::{AttachedProgram, Hook};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Numbers of a node's links in its tables.
const LEFT: u32 = 0;
const RIGHT: u32 = 1;
const PEER: u32 = 62;
const HOST: u32 = 63;
const LIMIT: Duration = Duration::from_mins(1);
/// Where the kernel's MPLS is: each network namespace has such a folder.
const KERNEL_MPLS: &str = "/proc/sys/net/mpls/platform_labels";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let needs = Needs::new().namespaces().program("ping").program("ip").program("ethtool");
    let missing = needs.linux(6, 6).missing().map(|missing| missing.to_string());
    let kernel = || {
        let there = Path::new(KERNEL_MPLS).exists();
        (!there).then(|| "the kernel's module mpls_router".to_owned())
    };
    let bpf = || LabelSwitching::new().err().map(|error| format!("BPF: {error}"));
    let missing = missing.or_else(kernel).or_else(bpf);
    let trial = |name: &str, test: fn() -> Result<(), Failed>| match &missing {
        None => Trial::test(name, test),
        Some(missing) => {
            let name = format!("{name} (needs {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("a_path_leads_through_a_router_of_the_kernel", through_the_kernel),
        trial("a_path_of_the_kernel_leads_through_ours", through_ours),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A node of ours in a line, whose programs end with it.
struct OurNode {
    switching: LabelSwitching,
    _attached: Vec<AttachedProgram>,
}

fn mac(interface: &TestInterface) -> Result<[u8; 6], Failed> {
    let mut octets = [0; 6];
    for (octet, text) in octets.iter_mut().zip(interface.mac()?.split(':')) {
        *octet = u8::from_str_radix(text, 16)?;
    }
    Ok(octets)
}

impl OurNode {
    fn new(line: &NodeLine, number: usize) -> Result<Self, Failed> {
        let (mut own, mut attached) = (LabelSwitching::new()?, Vec::new());
        let left = number.checked_sub(1).map(|left| (LEFT, &line.cables[left].b));
        let right = line.cables.get(number).map(|cable| (RIGHT, &cable.a));
        let mesh = &line.mesh[number];
        let node = &line.nodes[number];
        let link = |own: &mut LabelSwitching, at, of: &TestInterface, address| {
            let interface = of.index()?;
            let link = LabelLink { interface, address, takes_super_frames: true };
            own.tables().set_link(at, Some(&link))?;
            own.tables().set_link_up(at, true)?;
            Ok::<_, Failed>(())
        };
        link(&mut own, HOST, &mesh.a, mac(&mesh.b)?)?;
        for (at, interface) in [left, right].into_iter().flatten() {
            link(&mut own, at, interface, mac(interface)?)?;
            let (program, index) = (own.switch(at)?, interface.index()?);
            attached.push(node.run(|| program.attach(index, Hook::Ingress))??);
        }
        let (program, index) = (own.push(PEER)?, mesh.b.index()?);
        attached.push(node.run(|| program.attach(index, Hook::Ingress))??);
        Ok(Self { switching: own, _attached: attached })
    }

    /// Packets to `destination` leave with `out`; those that come with `own` are for this host.
    fn end(
        &mut self,
        (destination, host): ([u8; 6], [u8; 6]),
        (link, next): (u32, &TestInterface),
        [out, own]: [u32; 2],
    ) -> Result<(), Failed> {
        let hop = LabelHop { link, address: mac(next)?, label: Some(out) };
        let hops = LabelHops { primary: hop, backup: None };
        for class in 0..4 {
            self.switching.tables().set_path(PathKey { destination, class }, Some(&hops))?;
        }
        let pop = LabelHop { link: HOST, address: host, label: None };
        let hops = LabelHops { primary: pop, backup: None };
        self.switching.tables().set_label(own, Some(&hops))?;
        Ok(())
    }

    fn swap(
        &mut self,
        label: u32,
        link: u32,
        next: &TestInterface,
        out: u32,
    ) -> Result<(), Failed> {
        let primary = LabelHop { link, address: mac(next)?, label: Some(out) };
        let hops = LabelHops { primary, backup: None };
        Ok(self.switching.tables().set_label(label, Some(&hops))?)
    }
}

/// A line of three nodes whose links take a label beyond an IP packet of 1500 octets, as the kernel's MPLS
/// counts it.
fn line() -> Result<NodeLine, Failed> {
    let line = NodeLine::new(3)?;
    for end in line.cables.iter().flat_map(|cable| [&cable.a, &cable.b]) {
        end.set_mtu(1504)?;
    }
    // The kernel cuts no labelled super-frames without its module mpls_gso.
    let hosts = line.mesh.iter().map(|mesh| &mesh.a);
    for end in line.cables.iter().flat_map(|cable| [&cable.a, &cable.b]).chain(hosts) {
        end.namespace().command("ethtool").args(["-K", end.name(), "tso", "off"]).run()?;
    }
    Ok(line)
}

fn kernel_router(node: &Namespace, interfaces: &[&str]) -> Result<(), Failed> {
    node.sysctl("net.mpls.platform_labels", "10000")?;
    for interface in interfaces {
        node.sysctl(&format!("net.mpls.conf.{interface}.input"), "1")?;
    }
    Ok(())
}

fn ping(from: &Namespace, arguments: &[&str], to: &str) -> Result<bool, Failed> {
    let ping = from.command("ping").args(["-n", "-q", "-i0.01", "-W2"]);
    Ok(ping.args(arguments).arg(to).output()?.status.success())
}

/// Sends 1 MiB by one TCP stream; all arrive.
fn stream(from: &Namespace, to: &Namespace, at: &str) -> Result<(), Failed> {
    const LEN: usize = 1 << 20;
    let at: SocketAddr = at.parse()?;
    let listener = to.run(|| TcpListener::bind(at))??;
    let received = std::thread::spawn(move || -> std::io::Result<usize> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)
    });
    let mut stream = from.run(|| TcpStream::connect_timeout(&at, LIMIT))??;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(&vec![0x5a; LEN])?;
    drop(stream);
    assert_eq!(received.join().unwrap()?, LEN);
    Ok(())
}

/// A and C push and pop; B, between them, is the kernel, which swaps in both directions.
fn through_the_kernel() -> Result<(), Failed> {
    let line = line()?;
    let kernel = &line.nodes[1];
    kernel_router(kernel, &["left", "right"])?;
    kernel.ip(&["-f", "mpls", "route", "add", "100", "as", "200", "via", "inet", "10.97.1.2"])?;
    kernel.ip(&["-f", "mpls", "route", "add", "400", "as", "300", "via", "inet", "10.97.0.1"])?;
    let [first, last] = [mac(&line.mesh[0].a)?, mac(&line.mesh[2].a)?];
    let (mut a, mut c) = (OurNode::new(&line, 0)?, OurNode::new(&line, 2)?);
    a.end((last, first), (RIGHT, &line.cables[0].b), [100, 300])?;
    c.end((first, last), (LEFT, &line.cables[1].a), [400, 200])?;
    for to in ["10.99.0.3", "fd99::3"] {
        let full = if to.contains(':') { "1452" } else { "1472" };
        assert!(ping(&line.nodes[0], &["-c5"], to)?, "{to}");
        assert!(ping(&line.nodes[0], &["-c5", "-Mdo", "-s", full], to)?, "{to}");
    }
    assert_eq!(c.switching.label_count(200)?.packets, 20);
    assert_eq!(a.switching.label_count(300)?.packets, 20);
    stream(&line.nodes[0], &line.nodes[2], "10.99.0.3:7000")?;
    stream(&line.nodes[2], &line.nodes[0], "[fd99::1]:7000")
}

/// A and C are the kernel, which pushes by `encap mpls` and pops at `lo`; B, between them, is ours and
/// swaps.
fn through_ours() -> Result<(), Failed> {
    let line = line()?;
    let [a, b, c] = &line.nodes[..] else { return Err("not three nodes".into()) };
    let mut ours = OurNode::new(&line, 1)?;
    ours.swap(500, RIGHT, &line.cables[1].b, 501)?;
    ours.swap(502, LEFT, &line.cables[0].a, 503)?;
    // B forwards no IP: what arrives was labelled.
    b.sysctl("net.ipv4.ip_forward", "0")?;
    for (node, interface, own, other, out, via, label) in [
        (a, "right", "10.95.0.1", "10.95.0.3", "500", "10.97.0.2", "503"),
        (c, "left", "10.95.0.3", "10.95.0.1", "502", "10.97.1.1", "501"),
    ] {
        kernel_router(node, &[interface])?;
        node.ip(&["address", "add", &format!("{own}/32"), "dev", "lo"])?;
        let to = format!("{other}/32");
        let path = ["encap", "mpls", out, "via", "inet", via, "src", own];
        // Some versions of ip(8) want the family, others do not know it there.
        let with = |path: &[&str]| node.ip(&[&["route", "add", &to][..], path].concat());
        let bare: Vec<&str> = path.into_iter().filter(|word| *word != "inet").collect();
        with(&bare).or_else(|_| with(&path))?;
        node.ip(&["-f", "mpls", "route", "add", label, "dev", "lo"])?;
    }
    assert!(ping(a, &["-c5"], "10.95.0.3")?);
    assert!(ping(a, &["-c5", "-Mdo", "-s", "1472"], "10.95.0.3")?);
    assert_eq!(ours.switching.label_count(500)?.packets, 10);
    assert_eq!(ours.switching.label_count(502)?.packets, 10);
    stream(a, c, "10.95.0.3:7000")?;
    stream(c, a, "10.95.0.1:7000")
}

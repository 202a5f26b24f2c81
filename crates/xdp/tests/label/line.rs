//! A line of four nodes A–B–C–D that switch labels between the kernel's hosts at its ends.

use gatewright_tables::{LabelHop, LabelHops, LabelLink, PathKey};
use gatewright_testbed::{NodeLine, TestInterface, Veth, wait_until};
use gatewright_xdp::program::{AttachedProgram, Hook};
use gatewright_xdp::{LabelReason, LabelSwitching, PacketCount};
use libtest_mimic::Failed;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Numbers of a node's links in its tables.
const LEFT: u32 = 0;
const RIGHT: u32 = 1;
const SPARE: u32 = 2;
const PEER: u32 = 62;
const HOST: u32 = 63;

const LIMIT: Duration = Duration::from_secs(20);
/// The largest frame of an MTU of 1500 with a label: 14 + 4 + 1500 octets.
const LABELLED_MAX: u64 = 1518;

/// The line with its programs.
struct LabelLine {
    line: NodeLine,
    nodes: Vec<LabelSwitching>,
    attached: Vec<AttachedProgram>,
}

fn octets(mac: &str) -> [u8; 6] {
    let mut octets = [0; 6];
    for (octet, text) in octets.iter_mut().zip(mac.split(':')) {
        *octet = u8::from_str_radix(text, 16).unwrap();
    }
    octets
}

fn mac(interface: &TestInterface) -> Result<[u8; 6], Failed> {
    Ok(octets(&interface.mac()?))
}

fn link(interface: &TestInterface, address: [u8; 6]) -> Result<LabelLink, Failed> {
    Ok(LabelLink { interface: interface.index()?, address, takes_super_frames: true })
}

fn to(link: u32, next: &TestInterface, label: u32) -> Result<LabelHops, Failed> {
    let primary = LabelHop { link, address: mac(next)?, label: Some(label) };
    Ok(LabelHops { primary, backup: None })
}

impl LabelLine {
    /// Paths of all classes from A to D (labels 100, 200, 300) and back (401, 402, 403).
    fn new() -> Result<Self, Failed> {
        let line = NodeLine::new(4)?;
        let mut nodes = Vec::new();
        let mut attached = Vec::new();
        for (number, node) in line.nodes.iter().enumerate() {
            let mut own = LabelSwitching::new()?;
            let left = number.checked_sub(1).map(|left| (LEFT, &line.cables[left].b));
            let right = line.cables.get(number).map(|cable| (RIGHT, &cable.a));
            for (at, interface) in [left, right].into_iter().flatten() {
                own.tables().set_link(at, Some(&link(interface, mac(interface)?)?))?;
                own.tables().set_link_up(at, true)?;
                let (program, index) = (own.switch(at)?, interface.index()?);
                attached.push(node.run(|| program.attach(index, Hook::Ingress))??);
            }
            let mesh = &line.mesh[number];
            // What is delivered comes from the mesh interface's peer.
            own.tables().set_link(HOST, Some(&link(&mesh.a, mac(&mesh.b)?)?))?;
            own.tables().set_link_up(HOST, true)?;
            let (program, index) = (own.push(PEER)?, mesh.b.index()?);
            attached.push(node.run(|| program.attach(index, Hook::Ingress))??);
            nodes.push(own);
        }
        let mut this = Self { line, nodes, attached };
        this.lay()?;
        Ok(this)
    }

    fn lay(&mut self) -> Result<(), Failed> {
        let line = &self.line;
        let cables = &line.cables;
        let [a, b, c, d] = &mut self.nodes[..] else { return Err("not four nodes".into()) };
        let [first, last] = [mac(&line.mesh[0].a)?, mac(&line.mesh[3].a)?];
        for class in 0..4 {
            let key = PathKey { destination: last, class };
            a.tables().set_path(key, Some(&to(RIGHT, &cables[0].b, 100)?))?;
            let key = PathKey { destination: first, class };
            d.tables().set_path(key, Some(&to(LEFT, &cables[2].a, 401)?))?;
        }
        b.tables().set_label(100, Some(&to(RIGHT, &cables[1].b, 200)?))?;
        c.tables().set_label(200, Some(&to(RIGHT, &cables[2].b, 300)?))?;
        c.tables().set_label(401, Some(&to(LEFT, &cables[1].a, 402)?))?;
        b.tables().set_label(402, Some(&to(LEFT, &cables[0].a, 403)?))?;
        for (node, label, address) in [(a, 403, first), (d, 300, last)] {
            let primary = LabelHop { link: HOST, address, label: None };
            node.tables().set_label(label, Some(&LabelHops { primary, backup: None }))?;
        }
        Ok(())
    }

    fn ping(&self, arguments: &[&str], to: &str) -> Result<bool, Failed> {
        let ping = self.line.nodes[0].command("ping").args(["-n", "-q", "-i0.01", "-W2"]);
        Ok(ping.args(arguments).arg(to).output()?.status.success())
    }

    fn ethtool(interface: &TestInterface, arguments: &[&str]) -> Result<(), Failed> {
        let ethtool = interface.namespace().command("ethtool").args(["-K", interface.name()]);
        ethtool.args(arguments).run()?;
        Ok(())
    }

    /// Sends 32 MiB by one TCP stream from A to D; all arrive.
    fn stream(&self, to: &str) -> Result<(), Failed> {
        const LEN: usize = 32 << 20;
        let (from, far) = (&self.line.nodes[0], &self.line.nodes[3]);
        let at: SocketAddr = to.parse()?;
        let listener = far.run(|| TcpListener::bind(at))??;
        let received = std::thread::spawn(move || -> std::io::Result<usize> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut buffer = vec![0; 1 << 18];
            let mut sum = 0;
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok(sum),
                    more => sum += more,
                }
            }
        });
        let mut stream = from.run(|| TcpStream::connect_timeout(&at, LIMIT))??;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.write_all(&vec![0x5a; LEN])?;
        drop(stream);
        assert_eq!(received.join().unwrap()?, LEN);
        Ok(())
    }

    /// Octets of a frame of a label on the average, at a node.
    fn mean(&self, node: usize, label: u32) -> Result<u64, Failed> {
        let PacketCount { packets, octets, .. } = self.nodes[node].label_count(label)?;
        Ok(octets / packets.max(1))
    }

    fn count(&self, node: usize, link: u32, reason: LabelReason) -> Result<u64, Failed> {
        let counts = self.nodes[node].link_counts(link)?;
        Ok(counts.into_iter().find(|(of, _)| *of == reason).unwrap().1.packets)
    }
}

pub(crate) fn ping_crosses_a_line() -> Result<(), Failed> {
    let line = LabelLine::new()?;
    for to in ["10.99.0.4", "fd99::4"] {
        assert!(line.ping(&["-c5"], to)?, "{to}");
        // A full packet that must not be fragmented: the label is beyond the links' MTU.
        let full = if to.contains(':') { "1452" } else { "1472" };
        assert!(line.ping(&["-c5", "-Mdo", "-s", full], to)?, "{to}");
    }
    // Each node counts requests and replies by label.
    for (node, label) in [(1, 100), (2, 200), (3, 300), (2, 401), (1, 402), (0, 403)] {
        assert_eq!(line.nodes[node].label_count(label)?.packets, 20, "{label}");
    }
    Ok(())
}

pub(crate) fn tshark_sees_labels() -> Result<(), Failed> {
    let line = LabelLine::new()?;
    let capture = line.line.nodes[1]
        .command("tshark")
        .args(["-i", "left", "-c2", "-a", "duration:20", "-Tfields", "-Eseparator=,"])
        .args(["-eeth.type", "-empls.label", "-empls.ttl", "-empls.exp", "-eip.dst"])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut capture = Some(capture);
    // Until it has seen a request and its reply; control traffic of IPv6 is off on this link.
    assert!(wait_until(LIMIT, || {
        let _ = line.ping(&["-c1"], "10.99.0.4");
        capture.as_mut().is_none_or(|capture| capture.try_wait().ok().flatten().is_some())
    }));
    let text = capture.take().unwrap().wait_with_output()?.stdout;
    let text = String::from_utf8(text)?;
    let mut seen: Vec<&str> = text.lines().collect();
    seen.sort_unstable();
    // A's label to B and B's to A, TTL 64 and two hops later; class 2 of an ordinary packet.
    let expected = ["0x8847,100,64,2,10.99.0.4", "0x8847,403,62,2,10.99.0.1"];
    assert_eq!(seen, expected, "{text}");
    Ok(())
}

pub(crate) fn super_frames_stay_whole() -> Result<(), Failed> {
    let line = LabelLine::new()?;
    for to in ["10.99.0.4:5001", "[fd99::4]:5001"] {
        line.stream(to)?;
    }
    for (node, label) in [(1, 100), (2, 200), (3, 300)] {
        let mean = line.mean(node, label)?;
        assert!(mean > 4 * LABELLED_MAX, "{label}: frames of {mean} octets");
    }
    Ok(())
}

pub(crate) fn frames_of_an_mtu_cross_a_line() -> Result<(), Failed> {
    let line = LabelLine::new()?;
    LabelLine::ethtool(&line.line.mesh[0].a, &["tso", "off"])?;
    line.stream("10.99.0.4:5001")?;
    for (node, label) in [(1, 100), (2, 200), (3, 300)] {
        let mean = line.mean(node, label)?;
        assert!((1000..=LABELLED_MAX).contains(&mean), "{label}: frames of {mean} octets");
    }
    Ok(())
}

/// C's link to D takes no super-frames: C labels them anew, and its kernel cuts them.
pub(crate) fn a_link_without_super_frames() -> Result<(), Failed> {
    let mut line = LabelLine::new()?;
    let out = line.line.cables[2].a.clone();
    LabelLine::ethtool(&out, &["tso", "off"])?;
    let what = LabelLink { takes_super_frames: false, ..link(&out, mac(&out)?)? };
    line.nodes[2].tables().set_link(RIGHT, Some(&what))?;
    line.nodes[2].tables().set_link_up(RIGHT, true)?;
    for to in ["10.99.0.4:5001", "[fd99::4]:5001"] {
        line.stream(to)?;
    }
    let (whole, cut) = (line.mean(2, 200)?, line.mean(3, 300)?);
    assert!(whole > 4 * LABELLED_MAX, "frames of {whole} octets arrive");
    assert!((1000..=LABELLED_MAX).contains(&cut), "frames of {cut} octets leave");
    assert_eq!(line.count(2, LEFT, LabelReason::Uncut)?, 0);
    Ok(())
}

/// B and C swap in their drivers; the ends complete their checksums themselves.
pub(crate) fn the_driver_swaps_on_a_line() -> Result<(), Failed> {
    let mut line = LabelLine::new()?;
    let ends = [line.line.cables[0].a.clone(), line.line.cables[2].b.clone()];
    for end in &ends {
        // The end of a cable takes redirected frames when it polls, as with GRO.
        LabelLine::ethtool(end, &["tx", "off", "gro", "on"])?;
    }
    for number in [1, 2] {
        let (cables, node) = (&line.line.cables, &line.line.nodes[number]);
        for (at, interface) in [(LEFT, &cables[number - 1].b), (RIGHT, &cables[number].a)] {
            let index = interface.index()?;
            let own = &line.nodes[number];
            let program = own.swap(at)?;
            node.run(|| own.set_port(at, index))??;
            line.attached.push(node.run(|| program.attach(index, Hook::XdpNative))??);
        }
    }
    assert!(line.ping(&["-c5"], "10.99.0.4")?);
    line.stream("10.99.0.4:5001")?;
    let mean = line.mean(2, 200)?;
    assert!((1000..=LABELLED_MAX).contains(&mean), "frames of {mean} octets");
    Ok(())
}

/// A program that prints the label and TTL of the first labelled frame that no program forwards.
const WATCH: &str = "import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8847))
s.bind(('left', 0x8847))
s.settimeout(20)
print('ready', flush=True)
f = s.recv(2048)
e = int.from_bytes(f[14:18], 'big')
print(e >> 12, e & 255, flush=True)";

/// Frames that B cannot forward reach a socket for their type, with their reason counted.
pub(crate) fn what_has_no_path_reaches_a_socket() -> Result<(), Failed> {
    let mut line = LabelLine::new()?;
    line.nodes[1].tables().set_label(100, None)?;
    let mut watch = line.line.nodes[1]
        .command("python3")
        .args(["-c", WATCH])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut told = watch.stdout().unwrap();
    let mut ready = [0; 6];
    told.read_exact(&mut ready)?;
    assert!(!line.ping(&["-c1", "-W0.2"], "10.99.0.4")?);
    let mut text = String::new();
    told.read_to_string(&mut text)?;
    assert_eq!(text.trim(), "100 64");
    assert_eq!(line.count(1, LEFT, LabelReason::Unknown)?, 1);
    // A destination without a path stays at A's mesh interface.
    assert_eq!(line.count(0, PEER, LabelReason::Unknown)?, 0);
    assert!(!line.ping(&["-c1", "-W0.2"], "10.99.0.3")?);
    assert_eq!(line.count(0, PEER, LabelReason::Unknown)?, 1);
    Ok(())
}

/// A second cable from A to B, and a stream of numbered datagrams from A to D: none sent before the
/// cable is cut or after the one store is lost.
pub(crate) fn one_store_moves_a_stream() -> Result<(), Failed> {
    const DATAGRAMS: u32 = 3_000;
    let mut line = LabelLine::new()?;
    let nodes = &line.line.nodes;
    let spare = Veth::with_queues(&nodes[0], "spare", &nodes[1], "spare", 1)?;
    spare.up()?;
    let what = link(&spare.a, mac(&spare.a)?)?;
    line.nodes[0].tables().set_link(SPARE, Some(&what))?;
    line.nodes[0].tables().set_link_up(SPARE, true)?;
    let what = link(&spare.b, mac(&spare.b)?)?;
    line.nodes[1].tables().set_link(SPARE, Some(&what))?;
    line.nodes[1].tables().set_link_up(SPARE, true)?;
    let (program, index) = (line.nodes[1].switch(SPARE)?, spare.b.index()?);
    line.attached.push(nodes[1].run(|| program.attach(index, Hook::Ingress))??);
    let onward = to(RIGHT, &line.line.cables[1].b, 200)?;
    line.nodes[1].tables().set_label(101, Some(&onward))?;
    let backup = Some(LabelHop { link: SPARE, address: mac(&spare.b)?, label: Some(101) });
    let hops = LabelHops { backup, ..to(RIGHT, &line.line.cables[0].b, 100)? };
    for class in 0..4 {
        let key = PathKey { destination: mac(&line.line.mesh[3].a)?, class };
        line.nodes[0].tables().set_path(key, Some(&hops))?;
    }
    let far = nodes[3].run(|| UdpSocket::bind("10.99.0.4:5001"))??;
    far.set_read_timeout(Some(Duration::from_secs(1)))?;
    let receiver = std::thread::spawn(move || {
        let mut seen = vec![false; usize::try_from(DATAGRAMS).unwrap()];
        let mut number = [0; 4];
        while far.recv(&mut number).is_ok() {
            seen[usize::try_from(u32::from_be_bytes(number)).unwrap()] = true;
        }
        seen
    });
    let near = nodes[0].run(|| UdpSocket::bind("10.99.0.1:0"))??;
    let send = |range: std::ops::Range<u32>| -> Result<(), Failed> {
        for number in range {
            near.send_to(&number.to_be_bytes(), "10.99.0.4:5001")?;
            // The receiver's buffer holds some hundreds.
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    };
    send(0..1_000)?;
    line.line.cables[0].a.down()?;
    send(1_000..1_100)?;
    line.nodes[0].tables().set_link_up(RIGHT, false)?;
    send(1_100..DATAGRAMS)?;
    let seen = receiver.join().unwrap();
    let lost: Vec<usize> = (0..seen.len()).filter(|&number| !seen[number]).collect();
    assert_eq!(lost, (1_000..1_100).collect::<Vec<_>>());
    assert_eq!(line.nodes[1].label_count(101)?.packets, u64::from(DATAGRAMS - 1_100));
    Ok(())
}

//! Four hosts in a line A–B–C–D: TCP and round trips by labels and by IP forwarding, in turn.

use bench::Bench;
use gatewright_tables::{LabelHop, LabelHops, LabelLink, PathKey};
use gatewright_testbed::{Namespace, NodeLine, TestInterface};
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::program::{AttachedProgram, Hook};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const LEFT: u32 = 0;
const RIGHT: u32 = 1;
const PEER: u32 = 62;
const HOST: u32 = 63;
const LIMIT: Duration = Duration::from_secs(10);
/// D's address by labels and by IP forwarding.
const BY_LABEL: &str = "10.99.0.4";
const BY_IP: &str = "10.97.2.2";
const WINDOW: Duration = Duration::from_millis(700);
const PINGS: u32 = 3_000;
/// Pairs of windows, interleaved.
const PAIRS: usize = 9;
/// Share of a window that the host may take from this machine (`steal` in proc(5)).
const STEAL_MAX: f64 = 0.01;
/// Attempts for a window without more steal.
const ATTEMPTS: usize = 4;

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

fn mac(interface: &TestInterface) -> Result<[u8; 6], String> {
    let mut octets = [0; 6];
    let text = interface.mac().map_err(text)?;
    for (octet, text) in octets.iter_mut().zip(text.split(':')) {
        *octet = u8::from_str_radix(text, 16).map_err(|error| error.to_string())?;
    }
    Ok(octets)
}

/// The line with its programs.
struct Line {
    hosts: NodeLine,
    nodes: Vec<LabelSwitching>,
    _attached: Vec<AttachedProgram>,
}

/// The interfaces of a host towards its neighbours, by link number.
fn links(line: &NodeLine, host: usize) -> impl Iterator<Item = (u32, &TestInterface)> {
    let left = host.checked_sub(1).and_then(|left| line.cables.get(left));
    let left = left.map(|cable| (LEFT, &cable.b));
    left.into_iter().chain(line.cables.get(host).map(|cable| (RIGHT, &cable.a)))
}

impl Line {
    fn new() -> Result<Self, String> {
        let line = NodeLine::new(4).map_err(text)?;
        let (mut nodes, mut attached) = (Vec::new(), Vec::new());
        for (host, (node, mesh)) in line.nodes.iter().zip(&line.mesh).enumerate() {
            let mut own = LabelSwitching::new().map_err(text)?;
            let mut add = |number, to: &TestInterface, of: &TestInterface| {
                let interface = to.index().map_err(text)?;
                let what = LabelLink { interface, address: mac(of)?, takes_super_frames: true };
                own.tables().set_link(number, Some(&what)).map_err(text)?;
                own.tables().set_link_up(number, true).map_err(text)
            };
            add(HOST, &mesh.a, &mesh.b)?;
            for (number, interface) in links(&line, host) {
                add(number, interface, interface)?;
            }
            let mut at = vec![(own.push(PEER).map_err(text)?, &mesh.b)];
            for (number, interface) in links(&line, host) {
                at.push((own.switch(number).map_err(text)?, interface));
            }
            for (program, interface) in at {
                let index = interface.index().map_err(text)?;
                let done = node.run(|| program.attach(index, Hook::Ingress)).map_err(text)?;
                attached.push(done.map_err(text)?);
            }
            nodes.push(own);
        }
        let mut this = Self { hosts: line, nodes, _attached: attached };
        this.lay(true)?;
        this.lay(false)?;
        Ok(this)
    }

    /// A path of all classes from A to D, or back: label 100 to the second host, 101 to the third.
    fn lay(&mut self, onward: bool) -> Result<(), String> {
        let (first, link) = if onward { (100, RIGHT) } else { (200, LEFT) };
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        if !onward {
            order.reverse();
        }
        let last = order.last().and_then(|last| self.hosts.mesh.get(*last));
        let destination = mac(&last.ok_or("no host")?.a)?;
        for (step, host) in (0_u32..).zip(&order) {
            let cable = if onward { Some(*host) } else { host.checked_sub(1) };
            let cable = cable.and_then(|cable| self.hosts.cables.get(cable));
            let primary = match cable {
                Some(cable) => {
                    let next = if onward { &cable.b } else { &cable.a };
                    LabelHop { link, address: mac(next)?, label: Some(first + step) }
                }
                None => LabelHop { link: HOST, address: destination, label: None },
            };
            let hops = LabelHops { primary, backup: None };
            let tables = self.nodes.get_mut(*host).ok_or("no host")?.tables();
            if step > 0 {
                tables.set_label(first + step - 1, Some(&hops)).map_err(text)?;
                continue;
            }
            for class in 0..4 {
                let key = PathKey { destination, class };
                tables.set_path(key, Some(&hops)).map_err(text)?;
            }
        }
        Ok(())
    }

    fn ends(&self) -> Result<[&Namespace; 2], String> {
        let [first, .., last] = &self.hosts.nodes[..] else { return Err("no hosts".to_owned()) };
        Ok([first, last])
    }

    /// Super-frames, or frames of an MTU, from both ends by both ways.
    fn set_super_frames(&self, on: bool) -> Result<(), String> {
        let cables = self.hosts.cables.iter();
        let ends = cables.flat_map(|cable| [&cable.a, &cable.b]);
        let hosts = self.hosts.mesh.iter().map(|mesh| &mesh.a);
        for end in ends.chain(hosts) {
            let set = ["-K", end.name(), "tso", if on { "on" } else { "off" }];
            end.namespace().command("ethtool").args(set).run().map_err(text)?;
        }
        Ok(())
    }

    /// Gbit/s of a TCP stream from A to D.
    fn throughput(&self, to: &str) -> Result<f64, String> {
        let [first, last] = self.ends()?;
        let at: SocketAddr = format!("{to}:5201").parse().map_err(text)?;
        let listener = last.run(|| TcpListener::bind(at)).map_err(text)?.map_err(text)?;
        let received = std::thread::spawn(move || receive(&listener).map_err(text));
        let stream = first.run(|| TcpStream::connect_timeout(&at, LIMIT)).map_err(text)?;
        let mut stream = stream.map_err(text)?;
        let data = vec![0x5a; 1 << 17];
        let started = Instant::now();
        while started.elapsed() < WINDOW {
            stream.write_all(&data).map_err(text)?;
        }
        drop(stream);
        let octets = received.join().map_err(|_| "the receiver panicked".to_owned())??;
        Ok(octets * 8.0 / 1e9 / started.elapsed().as_secs_f64())
    }

    /// Mean microseconds of a round trip of 64 octets in UDP.
    fn round_trip(&self, to: &str) -> Result<f64, String> {
        let [first, last] = self.ends()?;
        let at: SocketAddr = format!("{to}:5202").parse().map_err(text)?;
        let echo = last.run(|| UdpSocket::bind(at)).map_err(text)?.map_err(text)?;
        echo.set_read_timeout(Some(LIMIT)).map_err(text)?;
        let echoes = std::thread::spawn(move || {
            let mut octets = [0; 128];
            while let Ok((len, from)) = echo.recv_from(&mut octets) {
                let Some(octets) = octets.get(..len).filter(|octets| !octets.is_empty()) else {
                    return;
                };
                let _ = echo.send_to(octets, from);
            }
        });
        let socket = first.run(|| UdpSocket::bind("0.0.0.0:0")).map_err(text)?.map_err(text)?;
        socket.set_read_timeout(Some(LIMIT)).map_err(text)?;
        socket.connect(at).map_err(text)?;
        let mut octets = [0x5a; 64];
        let started = Instant::now();
        for _ in 0..PINGS {
            socket.send(&octets).map_err(text)?;
            socket.recv(&mut octets).map_err(text)?;
        }
        let time = started.elapsed();
        socket.send(&[]).map_err(text)?;
        echoes.join().map_err(|_| "the echo panicked".to_owned())?;
        Ok(time.as_secs_f64() * 1e6 / f64::from(PINGS))
    }

    /// Octets of a frame with label 100 on the average, and how many there were.
    fn labelled(&self) -> Result<(u64, u64), String> {
        let node = self.nodes.get(1).ok_or("no host")?;
        let count = node.label_count(100).map_err(text)?;
        Ok((count.octets, count.packets))
    }
}

/// Octets until the end of a stream.
fn receive(listener: &TcpListener) -> std::io::Result<f64> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut buffer = vec![0; 1 << 18];
    let mut octets = 0.0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(octets),
            more => octets += f64::from(u32::try_from(more).unwrap_or(0)),
        }
    }
}

/// Ticks of all processors, and those that the host took (`/proc/stat`).
fn ticks() -> [f64; 2] {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let columns = line.split_whitespace().skip(1).take(8);
    let columns: Vec<f64> = columns.filter_map(|column| column.parse().ok()).collect();
    [columns.iter().sum(), columns.get(7).copied().unwrap_or(0.0)]
}

/// Takes a sample in a window with at most 1 % of steal; the last attempt counts in any case.
fn window(
    voids: &mut u32,
    mut measure: impl FnMut() -> Result<f64, String>,
) -> Result<f64, String> {
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let [all, stolen] = ticks();
        let sample = measure()?;
        let [all_then, stolen_then] = ticks();
        let share = (stolen_then - stolen) / (all_then - all).max(1.0);
        let is_last = attempts.next().is_none_or(|attempt| attempt == ATTEMPTS);
        if share <= STEAL_MAX || is_last {
            return Ok(sample);
        }
        *voids += 1;
    }
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let line = Line::new()?;
    let pairs = bench.options().pick(PAIRS, 3);
    let mut voids = 0;
    let modes = [
        (true, "label_gbit_s", "ip_gbit_s", "throughput_vs_ip"),
        (false, "label_mtu_gbit_s", "ip_mtu_gbit_s", "throughput_vs_ip_mtu"),
    ];
    for (super_frames, ours, theirs, ratio) in modes {
        line.set_super_frames(super_frames)?;
        let before = line.labelled()?;
        for _ in 0..pairs {
            bench.sample(theirs, "Gbit/s", window(&mut voids, || line.throughput(BY_IP))?);
            bench.sample(ours, "Gbit/s", window(&mut voids, || line.throughput(BY_LABEL))?);
        }
        let after = line.labelled()?;
        let frames = (after.1 - before.1).max(1);
        let mean = (after.0 - before.0) / frames;
        if (mean > 1518) != super_frames {
            return Err(format!("labelled frames had {mean} octets on the average"));
        }
        bench.note(format!("{ours}: frames of {mean} octets on the average at the second host"));
        bench.ratio(ratio, ours, theirs);
    }
    line.set_super_frames(true)?;
    for _ in 0..pairs {
        bench.sample("ip_rtt_us", "µs", window(&mut voids, || line.round_trip(BY_IP))?);
        bench.sample("label_rtt_us", "µs", window(&mut voids, || line.round_trip(BY_LABEL))?);
    }
    bench.ratio("rtt_vs_ip", "label_rtt_us", "ip_rtt_us");
    bench.note(format!(
        "four hosts in a line on bare veth; both ends and all hosts share the processors; {voids} windows with more than 1 % of steal were repeated"
    ));
    Ok(())
}

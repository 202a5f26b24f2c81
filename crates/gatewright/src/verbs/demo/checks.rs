//! What the demo shows, one function each.

use super::world::{DemoNetwork, LAN, LAN6, NORTH, SOUTH, SOUTH_MTU, SOUTH6};
use gatewright_planes::{MergeLimit, Series, UdpGateway, UdpGatewaySetup};
use gatewright_stack::{At, Attachment, Form, Place, builtin::Count};
use gatewright_wire::EtherType;
use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

/// The observation, or why the check failed.
type Outcome = Result<String, String>;

/// One check of the demo.
type Check = fn(&DemoNetwork) -> Outcome;

/// The checks in the order of the story.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("ping through, IPv4", |world| ping(world, SOUTH.into(), 56)),
    ("ping through, IPv6", |world| ping(world, SOUTH6.into(), 56)),
    ("ping the gateway, IPv4", |world| ping(world, LAN.into(), 56)),
    ("ping the gateway, IPv6", |world| ping(world, LAN6.into(), 56)),
    ("path MTU is reported, IPv4", |world| path_mtu(world, SOUTH.into(), 1472)),
    ("path MTU is reported, IPv6", |world| path_mtu(world, SOUTH6.into(), 1452)),
    // After the path MTU is known: IPv6 hosts cut packets themselves.
    ("large ping in fragments, IPv4", |world| ping(world, SOUTH.into(), 20_000)),
    ("large ping in fragments, IPv6", |world| ping(world, SOUTH6.into(), 20_000)),
    ("the largest ping, reassembled", |world| ping(world, LAN.into(), 65_507)),
    ("traceroute sees the gateway, IPv4", |world| trace(world, SOUTH.into(), LAN.into())),
    ("traceroute sees the gateway, IPv6", |world| trace(world, SOUTH6.into(), LAN6.into())),
    ("TCP transfer, IPv4", |world| tcp(world, SOUTH.into())),
    ("TCP transfer, IPv6", |world| tcp(world, SOUTH6.into())),
    ("UDP there and back", udp),
    ("a handler counts IP packets", count),
    ("the merging UDP gateway", merge),
];

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Five pings from the kernel of the north, one after the other: for the last of several `ping` waits
/// no longer than the others took.
fn ping(world: &DemoNetwork, target: IpAddr, size: u32) -> Outcome {
    const PINGS: u8 = 5;
    let (target, size) = (target.to_string(), size.to_string());
    let mut total_ms = 0.0;
    for _ in 0..PINGS {
        let arguments = ["-n", "-q", "-c1", "-W5", "-s", &size, &target];
        let output = world.north.command("ping").args(arguments).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(said.lines().filter(|line| line.contains("transmitted")).collect());
        }
        let times = said.lines().last().and_then(|line| line.split('=').nth(1)).map(str::trim);
        let mean = times.and_then(|times| times.split('/').nth(1)).and_then(|it| it.parse().ok());
        total_ms += mean.unwrap_or(0.0_f64);
    }
    Ok(format!("{PINGS} of {PINGS} answered, mean {:.3} ms", total_ms / f64::from(PINGS)))
}

/// The way of the kernel's packets: the gateway, then the target.
fn trace(world: &DemoNetwork, target: IpAddr, gateway: IpAddr) -> Outcome {
    let (target, gateway) = (target.to_string(), gateway.to_string());
    let arguments = ["-n", "-q1", "-w2", &target];
    let said = world.north.command("traceroute").args(arguments).run().map_err(text)?;
    let hops = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    let hops: Vec<&str> = hops.collect();
    let told = hops.join(", then ");
    if hops == [gateway, target] { Ok(told) } else { Err(told) }
}

/// A packet that may not be cut is too large for the second link, and the gateway says so.
fn path_mtu(world: &DemoNetwork, target: IpAddr, size: u32) -> Outcome {
    let (target, size) = (target.to_string(), size.to_string());
    let arguments = ["-n", "-c1", "-W2", "-M", "do", "-s", &size, &target];
    let output = world.north.command("ping").args(arguments).output().map_err(text)?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let told = |form: &str| said.contains(&format!("{form}{SOUTH_MTU}"));
    if told("mtu = ") || told("mtu=") {
        Ok(format!("the kernel learnt that the path carries {SOUTH_MTU} octets"))
    } else {
        Err(said.lines().take(3).collect())
    }
}

/// Octets of the TCP transfer.
const TRANSFER: usize = 32 << 20;

/// How long a transfer may take.
const TRANSFER_WITHIN: Duration = Duration::from_secs(20);

/// The octet at `index` of a transfer: no two places of a segment look alike for long.
fn pattern(index: usize) -> u8 {
    let [octet, ..] = (index.wrapping_mul(2_654_435_761) >> 13).to_le_bytes();
    octet
}

/// A stream from the north's kernel to the south's, compared octet by octet.
fn tcp(world: &DemoNetwork, target: IpAddr) -> Outcome {
    let listener = world.south.run(|| TcpListener::bind((target, 7070))).map_err(text)?;
    let listener = listener.map_err(text)?;
    let start = Instant::now();
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> std::io::Result<bool> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TRANSFER_WITHIN))?;
            let mut octets = Vec::with_capacity(TRANSFER);
            stream.read_to_end(&mut octets)?;
            Ok(octets.len() == TRANSFER
                && octets.iter().enumerate().all(|(index, octet)| *octet == pattern(index)))
        });
        let sent = world.north.run(|| -> std::io::Result<()> {
            let address = SocketAddr::new(target, 7070);
            let mut stream = TcpStream::connect_timeout(&address, TRANSFER_WITHIN)?;
            stream.set_write_timeout(Some(TRANSFER_WITHIN))?;
            let octets: Vec<u8> = (0..TRANSFER).map(pattern).collect();
            stream.write_all(&octets)
        });
        let sent = sent.map_err(text).and_then(|sent| sent.map_err(text));
        let read = reader.join().map_err(|_| "the reader ended early".to_owned());
        sent.and(read).and_then(|read| read.map_err(text))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let megabits = f64::from(u32::try_from(TRANSFER / 125_000).unwrap_or(u32::MAX)) / seconds;
    if received {
        Ok(format!("32 MiB, every octet right, {megabits:.0} Mbit/s"))
    } else {
        Err("octets differ".to_owned())
    }
}

/// Datagrams of the UDP check.
const DATAGRAMS: u32 = 1000;

/// Numbered datagrams to an echo in the south, one outstanding.
fn udp(world: &DemoNetwork) -> Outcome {
    let echo = world.south.run(|| UdpSocket::bind((SOUTH, 7071))).map_err(text)?.map_err(text)?;
    let north = world.north.run(|| UdpSocket::bind((NORTH, 0))).map_err(text)?.map_err(text)?;
    for socket in [&echo, &north] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).map_err(text)?;
    }
    let mut answered = 0;
    let mut buffer = [0; 64];
    let start = Instant::now();
    for number in 0..DATAGRAMS {
        north.send_to(&number.to_be_bytes(), (SOUTH, 7071)).map_err(text)?;
        let (len, from) = echo.recv_from(&mut buffer).map_err(text)?;
        echo.send_to(buffer.get(..len).unwrap_or_default(), from).map_err(text)?;
        let len = north.recv(&mut buffer).map_err(text)?;
        answered += u32::from(buffer.get(..len) == Some(&number.to_be_bytes()));
    }
    let mean = start.elapsed() / DATAGRAMS;
    let told = format!("{answered} of {DATAGRAMS} answered, mean {} µs", mean.as_micros());
    if answered == DATAGRAMS { Ok(told) } else { Err(told) }
}

/// The IP counter of the EZgate paper (its Figs. 6 and 7), attached to the running gateway.
fn count(world: &DemoNetwork) -> Outcome {
    let counter = Count::default();
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let id = world.gateway().attach(at, Box::new(counter.clone())).map_err(text)?;
    ping(world, SOUTH.into(), 56)?;
    let counted = counter.packets();
    world.gateway().detach(id).map_err(text)?;
    ping(world, SOUTH.into(), 56)?;
    let told = format!("{counted} packets while 5 pings went there and back, none after detaching");
    if counted == 10 && counter.packets() == counted { Ok(told) } else { Err(told) }
}

/// Small datagrams of the merging check, and octets of each.
const SMALL: u32 = 2000;
const SMALL_LEN: usize = 100;

/// Small datagrams that wait are merged into large ones; the receiver takes them apart.
fn merge(world: &DemoNetwork) -> Outcome {
    let south = world.south.run(|| UdpSocket::bind((SOUTH, 7072))).map_err(text)?.map_err(text)?;
    south.set_read_timeout(Some(Duration::from_millis(300))).map_err(text)?;
    let setup = UdpGatewaySetup {
        listen: SocketAddr::new(LAN.into(), 7072),
        target: SocketAddr::new(SOUTH.into(), 7072).into(),
        series: Series::Merge(Form::Plain, MergeLimit::Octets(1300)),
        clients_max: 256,
    };
    let _relay = UdpGateway::start(world.gateway().sockets(), setup).map_err(text)?;
    let north = world.north.run(|| UdpSocket::bind((NORTH, 0))).map_err(text)?.map_err(text)?;
    let (mut small, mut large) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..SMALL {
                let mut datagram = [0; SMALL_LEN];
                if let Some(head) = datagram.first_chunk_mut() {
                    *head = number.to_be_bytes();
                }
                // One that is not sent is missing in the count below.
                let _not_sent = north.send_to(&datagram, (LAN, 7072));
                if number % 50 == 49 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let mut buffer = [0; 2048];
        while let Ok(len) = south.recv(&mut buffer) {
            large += 1;
            let parts = buffer.get(..len).unwrap_or_default().chunks(SMALL_LEN);
            small +=
                u32::try_from(parts.filter(|part| part.len() == SMALL_LEN).count()).unwrap_or(0);
        }
    });
    let told = format!("{small} of {SMALL} small datagrams arrived in {large} large ones");
    // UDP may lose under a burst; merging must have happened, and most must have come.
    if small >= SMALL * 9 / 10 && large < small { Ok(told) } else { Err(told) }
}

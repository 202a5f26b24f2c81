//! Sender, gateway and receiver: three network namespaces and two virtual cables.

use super::live::{Attached, Generator, Verdict, attach};
use gatewright_testbed::{Interface, Namespace, TestbedError, Veth};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields, udp::UdpFields,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SENDER_IP: Ipv4Addr = Ipv4Addr::new(10, 71, 1, 2);
const RECEIVER_IP: Ipv4Addr = Ipv4Addr::new(10, 71, 2, 2);
/// The gateway's addresses on the two cables.
pub(crate) const OWN_IP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 71, 1, 1), Ipv4Addr::new(10, 71, 2, 1)];
pub(crate) const OWN_MAC: [MacAddress; 2] =
    [MacAddress([2, 0, 0, 0, 1, 1]), MacAddress([2, 0, 0, 0, 2, 1])];
pub(crate) const RECEIVER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 2, 2]);
const SENDER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 2]);
/// Where a relay listens, and where it sends to.
pub(crate) const LOCAL: SocketAddrV4 = SocketAddrV4::new(OWN_IP[0], 9000);
pub(crate) const REMOTE: SocketAddrV4 = SocketAddrV4::new(RECEIVER_IP, 9000);

/// How long a gateway has to come up, and then the flood to reach its pace.
const BEFORE: Duration = Duration::from_millis(150);
const WINDOW: Duration = Duration::from_millis(400);
const WINDOW_QUICK: Duration = Duration::from_millis(200);

/// Processor of the generator and of what receives for the gateway in the kernel.
const SENDER_CPU: usize = 0;
/// Processor of the gateway itself.
const GATEWAY_CPU: usize = 1;

/// To whom the sender's datagrams are addressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum To {
    /// To the relay on the gateway.
    Relay,
    /// To the receiver, by way of the gateway as a router.
    Receiver,
}

impl To {
    /// Source ports that take turns: a relay has one client, a router many flows.
    fn ports(self) -> u16 {
        match self {
            Self::Relay => 1,
            Self::Receiver => 256,
        }
    }
}

/// The three hosts.
#[derive(Debug)]
pub(crate) struct World {
    sender: Namespace,
    pub(crate) gateway: Namespace,
    receiver: Namespace,
    cables: [Veth; 2],
    window: Duration,
}

/// What reached the receiver in a window, a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Million packets.
    pub(crate) mpps: f64,
    /// Million octets of UDP payload.
    pub(crate) payload: f64,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

impl World {
    pub(crate) fn new(quick: bool) -> Result<Self, String> {
        let hosts = [Namespace::new(), Namespace::new(), Namespace::new()];
        let [sender, gateway, receiver] = hosts.map(|host| host.map_err(text));
        let (sender, gateway, receiver) = (sender?, gateway?, receiver?);
        let cables = [("s0", "g0", &sender), ("r0", "g1", &receiver)]
            .map(|(far, near, host)| Veth::pair(host, far, &gateway, near).map_err(text));
        let [lan, wan] = cables;
        let (lan, wan) = (lan?, wan?);
        let ends = [
            (&lan.a, SENDER_MAC, SENDER_IP),
            (&lan.b, OWN_MAC[0], OWN_IP[0]),
            (&wan.b, OWN_MAC[1], OWN_IP[1]),
            (&wan.a, RECEIVER_MAC, RECEIVER_IP),
        ];
        for (end, mac, ip) in ends {
            end.disable_ipv6().map_err(text)?;
            end.set_mac(&mac.to_string()).map_err(text)?;
            end.add_address(&format!("{ip}/24")).map_err(text)?;
        }
        lan.up().map_err(text)?;
        wan.up().map_err(text)?;
        let window = if quick { WINDOW_QUICK } else { WINDOW };
        Ok(Self { sender, gateway, receiver, cables: [lan, wan], window })
    }

    /// The gateway's end of the sender's cable.
    fn near(&self) -> &Interface {
        let [lan, _] = &self.cables;
        &lan.b
    }

    /// Lets the gateway's kernel have what the generator sends, while the result lives.
    pub(crate) fn open_to_kernel(&self) -> Result<Attached, String> {
        let index = self.near().index().map_err(text)?;
        let attached = self.gateway.run(|| attach(index, Verdict::Pass)).map_err(text)?;
        attached.map_err(|error| format!("cannot attach to the gateway: {error}"))
    }

    /// Whether the gateway's kernel forwards.
    pub(crate) fn forwarding(&self, on: bool) -> Result<(), String> {
        let value = if on { "1" } else { "0" };
        self.gateway.sysctl("net.ipv4.ip_forward", value).map_err(text)
    }

    /// Counts and drops what reaches the receiver, while the result lives.
    fn sink(&self) -> Result<Attached, String> {
        let [_, wan] = &self.cables;
        let index = wan.a.index().map_err(text)?;
        let sink = self.receiver.run(|| attach(index, Verdict::Sink)).map_err(text)?;
        sink.map_err(|error| format!("cannot attach the sink: {error}"))
    }

    /// Octets and packets that have reached the receiver.
    fn received(&self) -> Result<[u64; 2], String> {
        let table = self.receiver.run(|| read_to_string("/proc/thread-self/net/dev"));
        let table = table.map_err(text)?.map_err(|error| error.to_string())?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix("r0:"));
        let mut counts = line.into_iter().flat_map(|line| line.split_whitespace());
        let mut next = || counts.next()?.parse().ok();
        let counts = next().zip(next()).map(<[u64; 2]>::from);
        counts.ok_or_else(|| "the receiver's interface has no counters".to_owned())
    }

    /// Runs `gateway` in the middle, on its own processor, until `work` on the others has ended.
    pub(crate) fn beside<T>(
        &self,
        gateway: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let works = scope.spawn(|| {
                let inside = self.gateway.run(|| {
                    pin(GATEWAY_CPU)?;
                    gateway(&stop)
                });
                inside.map_err(text)?
            });
            sleep(BEFORE);
            let worked = work();
            stop.store(true, Ordering::Relaxed);
            works.join().map_err(|_| "the gateway's thread panicked".to_owned())??;
            worked
        })
    }

    /// What reaches the receiver when the sender sends as fast as it can and `gateway` works.
    pub(crate) fn flood(
        &self,
        to: To,
        payload: usize,
        gateway: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
    ) -> Result<Rate, String> {
        let _sink = self.sink()?;
        let [lan, _] = &self.cables;
        let index = lan.a.index().map_err(text)?;
        let frame = frame(to, payload);
        self.beside(gateway, || {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let sends = scope.spawn(|| {
                    let inside = self.sender.run(|| {
                        pin(SENDER_CPU)?;
                        let sent = send(index, &frame, to.ports(), &stop);
                        sent.map_err(|error| format!("the generator: {error}"))
                    });
                    inside.map_err(text)?
                });
                sleep(BEFORE);
                let measured = self.measure();
                stop.store(true, Ordering::Relaxed);
                sends.join().map_err(|_| "the generator panicked".to_owned())??;
                measured
            })
        })
    }

    fn measure(&self) -> Result<Rate, String> {
        let ([octets, packets], start) = (self.received()?, Instant::now());
        sleep(self.window);
        let ([octets_after, packets_after], elapsed) = (self.received()?, start.elapsed());
        let number = |count| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let packets = number(packets_after - packets);
        if packets < 1.0 {
            return Err("nothing reached the receiver".to_owned());
        }
        let payload = number(octets_after - octets) - packets * HEADERS;
        let million_seconds = elapsed.as_secs_f64() * 1e6;
        Ok(Rate { mpps: packets / million_seconds, payload: payload / million_seconds })
    }

    /// Microseconds of each of `count` requests through `gateway`, one outstanding, and how many
    /// had no answer. Client and server are plain sockets on the sender's processor.
    pub(crate) fn requests(
        &self,
        count: usize,
        gateway: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
    ) -> Result<(Vec<f64>, usize), String> {
        self.beside(gateway, || {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let serves = scope.spawn(|| {
                    let inside = self.receiver.run(|| {
                        pin(SENDER_CPU)?;
                        echo(&stop).map_err(|error| format!("the server: {error}"))
                    });
                    inside.map_err(text)?
                });
                let asked = self.sender.run(|| {
                    pin(SENDER_CPU)?;
                    ask(count).map_err(|error| format!("the client: {error}"))
                });
                stop.store(true, Ordering::Relaxed);
                serves.join().map_err(|_| "the server panicked".to_owned())??;
                asked.map_err(text)?
            })
        })
    }
}

/// Octets of a frame besides the UDP payload.
const HEADERS: f64 = 42.0;

/// Octets of a request and of its answer.
const REQUEST: usize = 64;
/// A request that is not answered by then is lost.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

fn echo(stop: &AtomicBool) -> std::io::Result<()> {
    let socket = UdpSocket::bind(REMOTE)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(buffer.get(..len).unwrap_or(&[]), from)?;
        }
    }
    Ok(())
}

fn ask(count: usize) -> std::io::Result<(Vec<f64>, usize)> {
    let socket = UdpSocket::bind((SENDER_IP, 0))?;
    socket.connect(LOCAL)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut buffer = [0; 2048];
    let mut delays = Vec::with_capacity(count);
    let mut lost = 0;
    // The first ones fill neighbour caches and wake what sleeps.
    for number in 0..count + WARM_UP {
        let request = [number.to_be_bytes(); REQUEST / 8].concat();
        let sent = Instant::now();
        // A server or relay that is not there yet answers by an error.
        let answered = socket.send(&request).and_then(|_| {
            loop {
                let len = socket.recv(&mut buffer)?;
                // A late answer to an earlier request is not this one's.
                if buffer.get(..len) == Some(&request) {
                    return Ok(());
                }
            }
        });
        match answered {
            Ok(()) if number >= WARM_UP => delays.push(sent.elapsed().as_secs_f64() * 1e6),
            Err(_) if number >= WARM_UP => lost += 1,
            _ => {}
        }
    }
    Ok((delays, lost))
}

/// Requests before the first that counts.
const WARM_UP: usize = 50;

fn send(interface: u32, frame: &[u8], ports: u16, stop: &AtomicBool) -> std::io::Result<()> {
    let generator = Generator::new(interface, frame, ports)?;
    while !stop.load(Ordering::Relaxed) {
        generator.run()?;
    }
    Ok(())
}

/// Keeps this thread on one processor, as far as there are so many.
fn pin(cpu: usize) -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    let pinned = set.set(cpu % cpus).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|error| format!("cannot stay on processor {cpu}: {error}"))
}

fn frame(to: To, payload: usize) -> Vec<u8> {
    let destination = match to {
        To::Relay => LOCAL,
        To::Receiver => REMOTE,
    };
    let length = u16::try_from(payload + 8).unwrap_or(u16::MAX);
    let ip = Ipv4Fields::new(IpProtocol::UDP, SENDER_IP, *destination.ip(), length + 20);
    // RFC 768: a checksum of zero is none; the ports change after it would have been made.
    let udp =
        UdpFields { source_port: 4096, destination_port: destination.port(), length, checksum: 0 };
    let [own, _] = OWN_MAC;
    let ether_type = EtherType::IPV4;
    let ethernet = EthernetFields { destination: own, source: SENDER_MAC, ether_type };
    let headers = [&ethernet.emit()[..], &ip.emit_with_checksum(), &udp.emit()].concat();
    [headers, vec![0x5a; payload]].concat()
}

//! Sender, gateway and receiver: three network namespaces and two virtual cables between them, and
//! one past the gateway.

use super::bpf::AttachedProgram;
use super::live::{Generator, Pace, Payload, Sink, pass};
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth, wait_until};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields, udp::UdpFields,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const SENDER_IP: Ipv4Addr = Ipv4Addr::new(10, 71, 1, 2);
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
/// The two ends of the cable past the gateway, and where the receiver listens on it.
const DIRECT_IP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 71, 3, 2), Ipv4Addr::new(10, 71, 3, 1)];
const DIRECT_MAC: [MacAddress; 2] =
    [MacAddress([2, 0, 0, 0, 3, 2]), MacAddress([2, 0, 0, 0, 3, 1])];
pub(crate) const DIRECT: SocketAddrV4 = SocketAddrV4::new(DIRECT_IP[1], 9000);

/// How long a gateway has to come up, and then the flood to reach its pace.
const BEFORE: Duration = Duration::from_millis(150);
/// How long a gateway may need until something comes through: a program of its driver is checked by the
/// kernel first.
const START_WITHIN: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_millis(400);
const WINDOW_QUICK: Duration = Duration::from_millis(200);

/// Processor of the generator and of what receives for the gateway in the kernel.
pub(crate) const SENDER_CPU: usize = 0;
/// Processor of the gateway itself.
pub(crate) const GATEWAY_CPU: usize = 1;

/// To whom the sender's datagrams are addressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum To {
    /// To the relay on the gateway.
    Relay,
    /// To the gateway, from as many devices as there are source ports.
    Devices,
    /// To the receiver, by way of the gateway as a router.
    Receiver,
    /// To the receiver, past the gateway.
    Direct,
}

impl To {
    /// Source ports that take turns: a relay has one client, a router many flows.
    fn ports(self) -> u16 {
        match self {
            Self::Relay => 1,
            Self::Devices | Self::Receiver | Self::Direct => 256,
        }
    }
}

/// The three hosts.
#[derive(Debug)]
pub(crate) struct TestHosts {
    sender: Namespace,
    pub(crate) gateway: Namespace,
    receiver: Namespace,
    /// Sender to gateway, gateway to receiver, sender to receiver.
    cables: [Veth; 3],
    window: Duration,
}

/// What reached the receiver in a window, a second, in millions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Packets.
    pub(crate) packets: f64,
    /// Datagrams that were in them.
    pub(crate) datagrams: f64,
    /// Octets of UDP payload.
    pub(crate) octets: f64,
}

/// What the sender sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Load<'payload> {
    /// To whom.
    pub(crate) to: To,
    /// Each datagram's payload.
    pub(crate) payload: &'payload [u8],
    /// How the receiver reads what arrives.
    pub(crate) read: Payload,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

impl TestHosts {
    pub(crate) fn new(quick: bool) -> Result<Self, String> {
        let hosts = [Namespace::new(), Namespace::new(), Namespace::new()];
        let [sender, gateway, receiver] = hosts.map(|host| host.map_err(text));
        let (sender, gateway, receiver) = (sender?, gateway?, receiver?);
        let cables = [("s0", "g0", &sender), ("r0", "g1", &receiver)]
            .map(|(far, near, host)| Veth::pair(host, far, &gateway, near).map_err(text));
        let [lan, wan] = cables;
        let (lan, wan) = (lan?, wan?);
        let past = Veth::pair(&sender, "d0", &receiver, "d1").map_err(text)?;
        let ends = [
            (&past.a, DIRECT_MAC[0], DIRECT_IP[0]),
            (&past.b, DIRECT_MAC[1], DIRECT_IP[1]),
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
        for cable in [&lan, &wan, &past] {
            cable.up().map_err(text)?;
        }
        let window = if quick { WINDOW_QUICK } else { WINDOW };
        Ok(Self { sender, gateway, receiver, cables: [lan, wan, past], window })
    }

    /// Does `work` where the sender is.
    pub(crate) fn in_sender<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        self.sender.run(work).map_err(text)
    }

    /// The gateway's end of the sender's cable.
    fn near(&self) -> &TestInterface {
        let [lan, ..] = &self.cables;
        &lan.b
    }

    /// The sender's and the receiver's end of the way to `to`.
    fn ends(&self, to: To) -> (&TestInterface, &TestInterface) {
        let [lan, wan, past] = &self.cables;
        if to == To::Direct { (&past.a, &past.b) } else { (&lan.a, &wan.a) }
    }

    /// Lets the gateway's kernel have what the generator sends, while the result lives.
    pub(crate) fn open_to_kernel(&self) -> Result<AttachedProgram, String> {
        let index = self.near().index().map_err(text)?;
        let attached = self.gateway.run(|| pass(index)).map_err(text)?;
        attached.map_err(|error| format!("cannot attach to the gateway: {error}"))
    }

    /// Whether the gateway's kernel forwards.
    pub(crate) fn forwarding(&self, on: bool) -> Result<(), String> {
        let value = if on { "1" } else { "0" };
        self.gateway.sysctl("net.ipv4.ip_forward", value).map_err(text)
    }

    /// Counts and drops what reaches the receiver, while the result lives.
    fn sink(&self, load: Load<'_>) -> Result<Sink, String> {
        let (_, end) = self.ends(load.to);
        let index = end.index().map_err(text)?;
        let sink = self.receiver.run(|| Sink::attach(index, load.read)).map_err(text)?;
        sink.map_err(|error| format!("cannot attach the sink: {error}"))
    }

    /// Runs `gateway` in the middle, on its own processor, until `work` on the others has ended;
    /// what both found.
    pub(crate) fn beside<T, G: Send>(
        &self,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<(T, G), String> {
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
            let found = works.join().map_err(|_| "the gateway's thread panicked".to_owned())??;
            Ok((worked?, found))
        })
    }

    /// Does `work` while the sender sends from each of these processors, at its pace if it has one or
    /// as fast as it can.
    fn sending<T>(
        &self,
        load: Load<'_>,
        processors: &[(usize, Option<&Pace>)],
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let index = self.ends(load.to).0.index().map_err(text)?;
        let frame = frame(load.to, load.payload);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (frame, stop) = (&frame, &stop);
            let mut all = Vec::new();
            for &(processor, pace) in processors {
                all.push(scope.spawn(move || {
                    let inside = self.sender.run(|| {
                        pin(processor)?;
                        let sent = send((index, frame), load.to, pace, stop);
                        sent.map_err(|error| format!("the generator: {error}"))
                    });
                    inside.map_err(text)?
                }));
            }
            let worked = work();
            stop.store(true, Ordering::Relaxed);
            for sends in all {
                sends.join().map_err(|_| "the generator panicked".to_owned())??;
            }
            worked
        })
    }

    /// What reaches the receiver when the sender sends as fast as it can and `gateway` works, and
    /// what that found.
    pub(crate) fn flood<G: Send>(
        &self,
        load: Load<'_>,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<(Rate, G), String> {
        self.flood_from(&[SENDER_CPU], load, gateway)
    }

    /// As [`Self::flood`], from each of these processors.
    pub(crate) fn flood_from<G: Send>(
        &self,
        processors: &[usize],
        load: Load<'_>,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<(Rate, G), String> {
        let sink = self.sink(load)?;
        let processors: Vec<_> = processors.iter().map(|&processor| (processor, None)).collect();
        self.beside(gateway, || {
            self.sending(load, &processors, || {
                wait_until(START_WITHIN, || sink.counts() != [0; 3]);
                sleep(BEFORE);
                let (before, start) = (sink.counts(), Instant::now());
                sleep(self.window);
                let (after, elapsed) = (sink.counts(), start.elapsed());
                let million_seconds = elapsed.as_secs_f64() * 1e6;
                let rate = |of: usize| {
                    let count = |counts: [u64; 3]| counts.get(of).copied().unwrap_or(0);
                    number(count(after) - count(before)) / million_seconds
                };
                let (packets, datagrams, octets) = (rate(0), rate(1), rate(2));
                if packets > 0.0 {
                    Ok(Rate { packets, datagrams, octets })
                } else {
                    Err("nothing reached the receiver".to_owned())
                }
            })
        })
    }

    /// What was sent and what arrived in each of `windows`, at a pace of `gap_ns` nanoseconds from
    /// one frame to the next; before each, nothing is on its way.
    pub(crate) fn paced<G: Send>(
        &self,
        load: Load<'_>,
        gap_ns: u64,
        windows: usize,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<Vec<PacedWindow>, String> {
        self.paced_from(&[SENDER_CPU], load, gap_ns, windows, gateway)
    }

    /// As [`Self::paced`], an equal part from each of these processors.
    pub(crate) fn paced_from<G: Send>(
        &self,
        processors: &[usize],
        load: Load<'_>,
        gap_ns: u64,
        windows: usize,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<Vec<PacedWindow>, String> {
        let sink = self.sink(load)?;
        let pace = |&processor: &usize| Ok((processor, Pace::new()?));
        let paces: std::io::Result<Vec<_>> = processors.iter().map(pace).collect();
        let paces = paces.map_err(|error| format!("cannot share memory: {error}"))?;
        let all: Vec<_> = paces.iter().map(|(processor, pace)| (*processor, Some(pace))).collect();
        let made = || paces.iter().map(|(_, pace)| pace.made()).sum::<u64>();
        let parts = u64::try_from(paces.len()).unwrap_or(1);
        let set_gap = |gap: u64| paces.iter().for_each(|(_, pace)| pace.set_gap(gap * parts));
        let arrived = || sink.counts().into_iter().nth(1).unwrap_or(0);
        let (found, _) = self.beside(gateway, || {
            self.sending(load, &all, || {
                // Neighbours are found, what sleeps is woken.
                let window = |length: Duration| {
                    let (before, there, start) = (made(), arrived(), Instant::now());
                    set_gap(gap_ns);
                    sleep(length);
                    set_gap(0);
                    let elapsed = start.elapsed();
                    sleep(DRAIN);
                    PacedWindow { sent: made() - before, arrived: arrived() - there, elapsed }
                };
                wait_until(START_WITHIN, || window(BEFORE).arrived > 0);
                Ok((0..windows).map(|_| window(self.window / 2)).collect())
            })
        })?;
        Ok(found)
    }

    /// For each of `counts`, what arrived of datagrams that were sent as fast as can be until so many
    /// had arrived; before each, nothing is on its way.
    pub(crate) fn bursts<G: Send>(
        &self,
        load: Load<'_>,
        counts: &[u64],
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<Vec<Burst>, String> {
        let sink = self.sink(load)?;
        let pace = Pace::new().map_err(|error| format!("cannot share memory: {error}"))?;
        let arrived = || sink.counts().into_iter().nth(1).unwrap_or(0);
        let burst = |&count: &u64| {
            let (before, start) = (arrived(), Instant::now());
            pace.set_gap(GAP_LEAST_NS);
            let mut burst = Burst { arrived: 0, elapsed: Duration::ZERO };
            while burst.arrived < count && burst.elapsed < START_WITHIN {
                sleep(BURST_LOOK);
                burst.arrived = arrived() - before;
                burst.elapsed = start.elapsed();
            }
            pace.set_gap(0);
            sleep(DRAIN);
            if burst.arrived < count { Err("a burst did not arrive".to_owned()) } else { Ok(burst) }
        };
        let (found, _) = self.beside(gateway, || {
            self.sending(load, &[(SENDER_CPU, Some(&pace))], || {
                // Neighbours are found, what sleeps is woken.
                burst(&1)?;
                counts.iter().map(burst).collect()
            })
        })?;
        Ok(found)
    }

    /// Microseconds of each of `asked` to `to` while `gateway` works, one outstanding, and how many
    /// had no answer. Client and server are plain sockets on the sender's processor.
    pub(crate) fn requests<G: Send>(
        &self,
        to: SocketAddrV4,
        asked: PacedRequests,
        gateway: impl FnOnce(&AtomicBool) -> Result<G, String> + Send,
    ) -> Result<(Vec<f64>, usize), String> {
        let (found, _) = self.beside(gateway, || {
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
                    ask(to, asked).map_err(|error| format!("the client: {error}"))
                });
                stop.store(true, Ordering::Relaxed);
                serves.join().map_err(|_| "the server panicked".to_owned())??;
                asked.map_err(text)?
            })
        })?;
        Ok(found)
    }
}

/// A window at a pace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PacedWindow {
    /// Frames that were made.
    pub(crate) sent: u64,
    /// Datagrams that arrived.
    pub(crate) arrived: u64,
    /// How long they were made.
    pub(crate) elapsed: Duration,
}

/// Datagrams that were sent at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Burst {
    /// Datagrams that arrived.
    pub(crate) arrived: u64,
    /// From the first one sent until these had arrived.
    pub(crate) elapsed: Duration,
}

/// Nanoseconds from frame to frame of a generator that goes as fast as it can.
const GAP_LEAST_NS: u64 = 1;
/// Between two looks at what has arrived of a burst.
const BURST_LOOK: Duration = Duration::from_micros(20);

/// How long what is on its way has to arrive after a window.
const DRAIN: Duration = Duration::from_millis(30);

/// A count to compute with.
pub(crate) fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Octets of a request and of its answer.
const REQUEST: usize = 64;
/// A request that is not answered by then is lost.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

fn echo(stop: &AtomicBool) -> std::io::Result<()> {
    // On both of the receiver's cables.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, REMOTE.port()))?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(buffer.get(..len).unwrap_or(&[]), from)?;
        }
    }
    Ok(())
}

/// Requests of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PacedRequests {
    /// How many count.
    pub(crate) count: usize,
    /// The pause between an answer and the next request.
    pub(crate) pause: Duration,
}

fn ask(to: SocketAddrV4, asked: PacedRequests) -> std::io::Result<(Vec<f64>, usize)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut buffer = [0; 2048];
    let PacedRequests { count, pause } = asked;
    let mut delays = Vec::with_capacity(count);
    let mut lost = 0;
    // The first ones fill neighbour caches and wake what sleeps.
    for number in 0..count + WARM_UP {
        let request = [number.to_be_bytes(); REQUEST / 8].concat();
        if number >= WARM_UP && !pause.is_zero() {
            sleep(pause);
        }
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

fn send(
    (interface, frame): (u32, &[u8]),
    to: To,
    pace: Option<&Pace>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let generator = Generator::new(interface, frame, to.ports(), pace, to == To::Devices)?;
    while !stop.load(Ordering::Relaxed) {
        generator.run()?;
    }
    Ok(())
}

/// Keeps this thread on one processor, as far as there are so many.
pub(crate) fn pin(cpu: usize) -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    let pinned = set.set(cpu % cpus).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|error| format!("cannot stay on processor {cpu}: {error}"))
}

fn frame(to: To, payload: &[u8]) -> Vec<u8> {
    let own = (OWN_MAC[0], SENDER_MAC, SENDER_IP);
    let ((destination_mac, source, sender), destination) = match to {
        To::Relay | To::Devices => (own, LOCAL),
        To::Receiver => (own, REMOTE),
        To::Direct => ((DIRECT_MAC[1], DIRECT_MAC[0], DIRECT_IP[0]), DIRECT),
    };
    let length = u16::try_from(payload.len() + 8).unwrap_or(u16::MAX);
    let ip = Ipv4Fields::new(IpProtocol::UDP, sender, *destination.ip(), length + 20);
    // RFC 768: a checksum of zero is none; the ports change after it would have been made.
    let udp =
        UdpFields { source_port: 4096, destination_port: destination.port(), length, checksum: 0 };
    let ether_type = EtherType::IPV4;
    let ethernet = EthernetFields { destination: destination_mac, source, ether_type };
    let headers = [&ethernet.emit()[..], &ip.emit_with_checksum(), &udp.emit()].concat();
    [&headers, payload].concat()
}

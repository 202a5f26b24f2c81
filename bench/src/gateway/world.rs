//! Sender, gateway and receiver: three network namespaces and two virtual cables.

use super::live::{Attached, Generator, Verdict, attach};
use gatewright_testbed::{Interface, Namespace, TestbedError, Veth};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields, udp::UdpFields,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::net::{Ipv4Addr, SocketAddrV4};
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

/// The three hosts.
#[derive(Debug)]
pub(crate) struct World {
    sender: Namespace,
    pub(crate) gateway: Namespace,
    receiver: Namespace,
    cables: [Veth; 2],
    window: Duration,
    /// Counts and drops what reaches the receiver.
    _sink: Attached,
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
        let (to, mac) = (RECEIVER_IP.to_string(), RECEIVER_MAC.to_string());
        let neighbour = ["neigh", "add", &to, "lladdr", &mac, "dev", "g1", "nud", "permanent"];
        gateway.ip(&neighbour).map_err(text)?;
        let index = wan.a.index().map_err(text)?;
        let sink = receiver.run(|| attach(index, Verdict::Drop)).map_err(text)?;
        let sink = sink.map_err(|error| format!("cannot attach the sink: {error}"))?;
        let window = if quick { WINDOW_QUICK } else { WINDOW };
        Ok(Self { sender, gateway, receiver, cables: [lan, wan], window, _sink: sink })
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

    /// Packets that have reached the receiver.
    fn received(&self) -> Result<u64, String> {
        let table = self.receiver.run(|| read_to_string("/proc/thread-self/net/dev"));
        let table = table.map_err(text)?.map_err(|error| error.to_string())?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix("r0:"));
        let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| "the receiver's interface has no counter".to_owned())
    }

    /// Million packets a second that reach the receiver when the sender sends as fast as it can
    /// and `gateway` works, until it is told to stop, on its own processor.
    pub(crate) fn flood(
        &self,
        to: To,
        payload: usize,
        gateway: impl FnOnce(&AtomicBool) -> Result<(), String> + Send,
    ) -> Result<f64, String> {
        let [lan, _] = &self.cables;
        let index = lan.a.index().map_err(text)?;
        let frame = frame(to, payload);
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
            let sends = scope.spawn(|| {
                let inside = self.sender.run(|| {
                    pin(SENDER_CPU)?;
                    send(index, &frame, &stop).map_err(|error| format!("the generator: {error}"))
                });
                inside.map_err(text)?
            });
            sleep(BEFORE);
            let measured = self.measure();
            stop.store(true, Ordering::Relaxed);
            let ended = [works.join(), sends.join()];
            for end in ended {
                end.map_err(|_| "a thread of the benchmark panicked".to_owned())??;
            }
            measured
        })
    }

    fn measure(&self) -> Result<f64, String> {
        let (before, start) = (self.received()?, Instant::now());
        sleep(self.window);
        let (after, elapsed) = (self.received()?, start.elapsed());
        let packets = u32::try_from(after - before).unwrap_or(u32::MAX);
        if packets == 0 {
            return Err("nothing reached the receiver".to_owned());
        }
        Ok(f64::from(packets) / elapsed.as_secs_f64() / 1e6)
    }
}

fn send(interface: u32, frame: &[u8], stop: &AtomicBool) -> std::io::Result<()> {
    let generator = Generator::new(interface, frame)?;
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

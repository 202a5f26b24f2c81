//! The stack as a machine: a gateway of four links in memory, frames in, frames out, time as the
//! target says.

mod discovery;
mod gateway;
mod leases;
mod reassembly;
mod repair;
pub mod seeds;

pub use discovery::discovery;
pub use gateway::{Reached, gateway, gateway_reaches};
pub use leases::leases;
pub use reassembly::reassembly;

use gatewright_packet::{Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkAddress, LinkIndex, Pool};
use gatewright_stack::{
    Address, AddressState, Advertise, ApplicationSockets, Event, FlowKey, Graph, Host, Interface,
    Plan, RunningApplication, SocketApplication, Sockets, Suite, SuiteLink, UdpSocket, VirtualLink,
    Wake, assemble, flow_of,
};
use gatewright_wire::{Framing, MacAddress};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// Chunks of the slab: what floods may hold, and room to go on.
const FRAMES: usize = 2048;

/// More than any layer waits with a packet: reassembly a minute, resolution some seconds.
const SILENCE: Duration = Duration::from_mins(5);

/// A router's link, whose hosts it advertises itself to.
pub(crate) const LAN: LinkIndex = LinkIndex(0);
/// A router's link with a smaller MTU.
pub(crate) const WAN: LinkIndex = LinkIndex(1);
/// A host's link: addresses from routers and a DHCP server, nothing is forwarded.
pub(crate) const HOST: LinkIndex = LinkIndex(2);
/// VLAN 10 of the WAN.
pub(crate) const VLAN: LinkIndex = LinkIndex(3);

/// The port of the socket application.
pub(crate) const PORT: u16 = 4096;

/// A group that a socket has joined on the LAN, in both families.
pub(crate) const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// The same for IPv6.
pub(crate) const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x77);

/// Whoever drives the fuzzed stack never sleeps.
struct Awake;

impl Wake for Awake {
    fn wake(&self) {}
}

/// The station of a link of ours.
pub(crate) fn station_of(link: LinkIndex) -> MacAddress {
    let [_, last] = if link == VLAN { WAN } else { link }.0.to_be_bytes();
    MacAddress([2, 0, 0, 0, 0, last])
}

/// Our address of a link.
pub(crate) fn own4(link: LinkIndex) -> Ipv4Addr {
    let [_, last] = (link.0 + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, last, 1)
}

/// Our address of a link, in IPv6.
pub(crate) fn own6(link: LinkIndex) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, link.0 + 1, 0, 0, 0, 0, 0, 1)
}

/// Our link-local address of a link.
pub(crate) fn local6(link: LinkIndex) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, link.0 + 1)
}

/// A received datagram: its sender and payload.
pub(crate) type Delivered = (SocketAddr, Vec<u8>);

/// Returns each datagram to its sender, one that begins with `L` as 1,400 octets, so that errors
/// about large packets have something to be about.
struct Echo(Sender<Delivered>);

impl SocketApplication for Echo {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            while let Some(datagram) = sockets.receive(socket) {
                let (from, origin) = (datagram.from(), datagram.origin());
                let mut octets = datagram.octets().to_vec();
                // The driver may have gone.
                let _gone = self.0.send((from, octets.clone()));
                if octets.first() == Some(&b'L') {
                    octets.resize(1400, 0);
                }
                let _unsent = sockets.send(socket, &octets, from, origin);
            }
        }
    }
}

/// The gateway and its clock.
pub(crate) struct Links {
    // Before the graph, whose slab their datagrams are from.
    _running: RunningApplication,
    member: UdpSocket,
    pub(crate) host: Host,
    pub(crate) graph: Graph,
    pub(crate) plan: Plan,
    pub(crate) now: Duration,
    /// Frames that left since they were last taken.
    pub(crate) sent: Vec<(LinkIndex, Vec<u8>)>,
    /// Events since they were last taken; the host has acted upon them.
    pub(crate) events: Vec<Event>,
    pub(crate) delivered: Receiver<Delivered>,
}

impl Links {
    /// The gateway, its addresses checked and announced.
    pub(crate) fn new() -> Option<Self> {
        let tagged = SuiteLink::Virtual(VirtualLink::vlan(VLAN, WAN, 10, 0));
        let ethernet = [LAN, WAN, HOST].map(SuiteLink::Ethernet);
        let links = [&ethernet[..], &[tagged]].concat();
        let Suite { plan, layers, sockets, .. } = assemble(&links, Arc::new(Awake), 1);
        let mut host = Host::new(64).ok()?;
        for link in [LAN, WAN, HOST, VLAN] {
            host.add_interface(interface(link)).ok()?;
        }
        let wiring = plan.wire(&[]).ok()?;
        let frames = Rc::new(Pool::new(FRAMES, CHUNK_SIZE).ok()?);
        let datagrams = Rc::new(Pool::new(8, CHUNK_SIZE_DATAGRAM).ok()?);
        let graph = Graph::new(layers, wiring, host.view(), frames, datagrams);
        let (told, delivered) = channel();
        let (running, member) = applications(&sockets, told)?;
        let mut this = Self {
            _running: running,
            member,
            host,
            graph,
            plan,
            now: Duration::from_secs(1),
            sent: Vec::new(),
            events: Vec::new(),
            delivered,
        };
        this.advance(Duration::from_secs(10));
        Some(this)
    }

    /// Passes a frame received by a link through the graph.
    pub(crate) fn receive(&mut self, link: LinkIndex, frame: &[u8]) {
        let Some(mut packet) = self.graph.frames().packet_of(frame) else { return };
        packet.meta_mut().ingress = link;
        // By this several workers would divide the frames.
        for framing in [Framing::Ethernet, Framing::Ip] {
            let _flow = flow_of(packet.octets(), framing);
            let _key = framing.ip_packet(packet.octets()).and_then(FlowKey::of);
        }
        let mut batch = Batch::default();
        drop(batch.push(packet));
        let sent = &mut self.sent;
        let mut exit = |link: LinkIndex, batch: &mut Batch| keep(sent, link, batch);
        self.graph.receive(link, &mut batch, self.now, &mut exit);
        self.act();
    }

    /// Lets time pass; the layers do what is due.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        loop {
            let sent = &mut self.sent;
            let mut exit = |link: LinkIndex, batch: &mut Batch| keep(sent, link, batch);
            self.graph.handle_timeouts(self.now, &mut exit);
            self.act();
            let Some(due) = self.graph.poll_timeout().filter(|&due| due <= end) else { break };
            steps += 1;
            assert!(steps < 100_000, "time stands still at {:?}", self.now);
            self.now = self.now.max(due);
        }
        self.now = end;
    }

    /// Acts upon events as the control side does, as far as the layers' work depends on it.
    fn act(&mut self) {
        let events: Vec<_> = self.graph.take_events().collect();
        for event in &events {
            match *event {
                Event::Duplicate { link, address, .. } => {
                    self.set_state(link, address, AddressState::Duplicate);
                }
                Event::Unique { link, address } => {
                    self.set_state(link, address, AddressState::Preferred);
                }
                _ => {}
            }
        }
        self.events.extend(events);
        while self.member.recv(&mut [0; 16]).is_ok() {}
        assert!(self.events.len() < 100_000, "events without end");
    }

    pub(crate) fn set_state(&mut self, link: LinkIndex, ip: IpAddr, state: AddressState) {
        self.host.change_interface(link, |interface| {
            interface.addresses.iter_mut().filter(|own| own.ip == ip).for_each(|own| {
                own.state = state;
            });
        });
    }

    /// Chunks that are not in the slab.
    pub(crate) fn held(&self) -> usize {
        self.graph.frames().capacity() - self.graph.frames().available()
    }

    /// After silence nothing is held: no packet waits for ever, and none is lost.
    pub(crate) fn end(mut self) {
        assert!(self.held() <= FRAMES / 2 + 512, "{} chunks are held", self.held());
        self.advance(SILENCE);
        assert_eq!(self.held(), 0, "chunks are held after {SILENCE:?}");
    }
}

/// Keeps the frames that leave, as many as a target looks at.
fn keep(sent: &mut Vec<(LinkIndex, Vec<u8>)>, link: LinkIndex, batch: &mut Batch) {
    for packet in batch.drain() {
        if sent.len() < FRAMES {
            sent.push((link, packet.octets().to_vec()));
        }
    }
}

fn applications(
    sockets: &Sockets,
    told: Sender<Delivered>,
) -> Option<(RunningApplication, UdpSocket)> {
    let any = [
        SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT),
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
    ];
    let running = sockets.run(&any, Box::new(Echo(told))).ok()?;
    let member = sockets.bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT + 1)).ok()?;
    member.set_nonblocking(true);
    member.join_multicast(GROUP4.into(), LAN).ok()?;
    member.join_multicast(GROUP6.into(), LAN).ok()?;
    Some((running, member))
}

fn interface(link: LinkIndex) -> Interface {
    let address =
        |ip: IpAddr, prefix_len| Address { ip, prefix_len, state: AddressState::Preferred };
    let addresses = vec![
        address(own4(link).into(), 24),
        address(own6(link).into(), 64),
        address(local6(link).into(), 64),
    ];
    let advertise = Advertise {
        interval: Duration::from_mins(10),
        lifetime: Duration::from_mins(30),
        hop_limit: 64,
        mtu: true,
    };
    Interface {
        name: format!("link{}", link.0),
        link_address: LinkAddress::ethernet(station_of(link).0),
        mtu: if link == WAN { 1400 } else { 1500 },
        addresses,
        link,
        promiscuous: false,
        up: true,
        forwarding: link != HOST,
        advertise: (link == LAN).then_some(advertise),
        autoconfigure: link == HOST,
        dhcp: link == HOST,
        shared: false,
    }
}

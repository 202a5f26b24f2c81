//! The thread of a node: gives the machine what arrives and the time, and does what it says.

mod host;
mod stations;

use crate::bridge::StationPort;
use crate::connections::TcpConnections;
use crate::early::EarlyFrames;
use crate::forwarding::{FIRST_PORT, Forwarding, Installed, PEER, TrafficReport, node_of};
use crate::frames::{
    self, FramePayload, HEADER_LEN, IPV4, IPV6, LabelledFrame, Mac, destination, ether_type,
};
use crate::lateness::Lateness;
use crate::port::Port;
use crate::report;
use crate::router::{LinksAtStart, MeshSetup};
use crate::state::{self, MeshState, Neighbours};
use crate::tunnel::Tunnels;
use gatewright_link::{
    InterfaceNotices, InterfacePair, InterfaceProperties, OFFLOADS_LEN, without_offloads,
};
use gatewright_mesh::message::{ETHER_TYPE, GROUP_ADDRESS};
use gatewright_mesh::{
    BridgePort, EchoOutcome, EchoToken, LabelAction, LabelledHop, MeshEvent, MeshInput, MeshNode,
    MeshOutput, MeshRouting, MeshSettings, MeshTrust, NodeId, PathClass, Profile,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_part::{EventSink, LogLevel};
use gatewright_wire::mpls::Label;
use gatewright_xdp::program::AttachedProgram;
use host::HostSockets;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of the reports on traffic.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Frames taken from one socket before the others are looked at.
const FRAMES_AT_ONCE: usize = 64;

/// A super-frame with its headers.
const BUFFER_LEN: usize = 1 << 17;

/// A question to the thread.
#[derive(Debug)]
pub(crate) enum NodeQuestion {
    State(SyncSender<MeshState>),
    Echo { destination: NodeId, class: PathClass, ttl: u8, tell: SyncSender<EchoOutcome> },
    Cut { link: String, is_cut: bool, tell: SyncSender<Result<(), String>> },
    Stop { leaves_interface: bool },
}

/// The latest numbers for status and metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) words: Vec<(&'static str, String)>,
    pub(crate) gauges: Vec<(&'static str, u64)>,
    pub(crate) counters: Vec<(&'static str, u64)>,
}

/// Counters of the thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadCounters {
    /// Times that the thread has woken.
    wake_ups: u64,
    /// Packets of the host without an installed path.
    taken_up: u64,
    /// Packets sent when their path was there.
    released: u64,
    /// Packets dropped: their path is not in the label table.
    not_installed: u64,
    /// Super-frames dropped: the host sends again what is missing.
    super_frames: u64,
    /// Frames dropped: too long for a pseudowire.
    too_long: u64,
    /// Frames that a device refused.
    send_refused: u64,
    /// Labelled frames that ended here without being for the host.
    not_forwarded: u64,
    /// Labelled frames that came before the entry of their label and went on with it.
    early: u64,
    /// Labelled frames dropped: the entry of their label did not come in time.
    early_dropped: u64,
    /// Labelled frames that are no IP packets, delivered.
    carried: u64,
    /// Frames dropped: malformed.
    malformed_frames: u64,
}

/// A node with its devices.
#[derive(Debug)]
pub(crate) struct Driver {
    node: MeshNode,
    profile: Profile,
    routing: MeshRouting,
    trust: &'static str,
    own: Mac,
    began: Instant,
    forwarding: Forwarding,
    ports: Vec<Port>,
    bridge: Vec<StationPort>,
    host: HostSockets,
    notices: InterfaceNotices,
    wake: Arc<EventFd>,
    inbox: Receiver<NodeQuestion>,
    summary: Arc<Mutex<Summary>>,
    /// Whether the node has ended by itself, for who asks from outside.
    has_ended: Arc<AtomicBool>,
    sink: EventSink,
    neighbours: Neighbours,
    /// Who waits for the outcomes of echo requests; the machine bounds them.
    echoes: BTreeMap<EchoToken, SyncSender<EchoOutcome>>,
    echo: u32,
    counters: ThreadCounters,
    early: EarlyFrames,
    connections: TcpConnections,
    report_at: Duration,
    lateness: Lateness,
    ended: bool,
    _push: AttachedProgram,
    tunnels: Tunnels,
    /// Last, as its end removes what the others use.
    pair: InterfacePair,
}

impl Driver {
    pub(crate) fn new(
        (pair, push, tunnels): (InterfacePair, AttachedProgram, Tunnels),
        (own, settings, forwarding): (Mac, MeshSettings, Forwarding),
        (setup, at_start): (&MeshSetup, LinksAtStart),
        (wake, inbox): (Arc<EventFd>, Receiver<NodeQuestion>),
        (summary, has_ended): (Arc<Mutex<Summary>>, Arc<AtomicBool>),
        sink: EventSink,
    ) -> io::Result<Self> {
        let links = setup.links.iter().chain(setup.tunnels.iter().map(|it| &it.interface));
        let ports = (FIRST_PORT..).zip(links);
        let bridge = (0..).zip(&setup.ports);
        let mut this = Self {
            profile: settings.profile,
            routing: settings.routing,
            trust: match settings.trust {
                MeshTrust::Open => "open",
                MeshTrust::Psk(_) => "psk",
                MeshTrust::Pki(_) => "pki",
            },
            node: MeshNode::new(settings),
            own,
            began: Instant::now(),
            forwarding,
            ports: ports.map(|(number, name)| Port::new(name.clone(), number)).collect(),
            bridge: bridge
                .map(|(number, name)| StationPort::new(name.clone(), BridgePort(number)))
                .collect(),
            host: HostSockets::open(&pair)?,
            notices: InterfaceNotices::open()?,
            wake,
            inbox,
            summary,
            has_ended,
            sink,
            neighbours: Neighbours::new(),
            echoes: BTreeMap::new(),
            echo: 0,
            counters: ThreadCounters::default(),
            early: EarlyFrames::default(),
            connections: TcpConnections::default(),
            report_at: Duration::ZERO,
            lateness: Lateness::new(),
            ended: false,
            _push: push,
            tunnels,
            pair,
        };
        for port in &mut this.ports {
            port.look();
            if port.properties.is_some() || at_start == LinksAtStart::All {
                port.begin(&this.forwarding.switching)?;
            }
        }
        for port in &mut this.bridge {
            port.look();
            if port.properties.is_some() || at_start == LinksAtStart::All {
                port.begin(&this.forwarding.switching)?;
            }
        }
        Ok(this)
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        self.pair.adopt();
        self.follow_ports(true);
        self.follow_bridge(true);
        // The start is no late timer.
        self.report_at = self.now();
        while !self.ended {
            let due = self.node.poll_timeout().map_or(self.report_at, |at| at.min(self.report_at));
            // What has arrived counts before what is due: a thread that comes late has heard its
            // neighbours all the same.
            if let Err(error) = self.wait(due.saturating_sub(self.now())) {
                self.end(format!("the mesh ends, as its thread cannot wait: {error}"));
                return;
            }
            self.counters.wake_ups += 1;
            self.take_all();
            let now = self.now();
            if due <= now {
                self.lateness.count(now, now.saturating_sub(due));
                self.tick(now);
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn tick(&mut self, now: Duration) {
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            self.report();
        }
        self.input(MeshInput::Tick);
    }

    /// Waits for a frame, a notice or a question. An interface that has gone down leaves an error at its
    /// sockets, which are not asked until it is up.
    fn wait(&self, patience: Duration) -> io::Result<()> {
        let mut fds = vec![
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.notices.as_fd(), PollFlags::POLLIN),
        ];
        let at_host = self.host.receive.iter().chain([&self.host.arrivals]);
        let at_ports = self.ports.iter().filter(|port| port.is_up);
        let at_ports = at_ports.filter_map(|port| port.open.as_ref());
        let at_ports = at_ports.flat_map(|open| [&open.control, &open.passed_up]);
        let at_bridge = self.bridge.iter().filter(|port| port.is_up).flat_map(StationPort::receive);
        let sockets = at_host.chain(at_ports).chain(at_bridge);
        fds.extend(sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        match ppoll(&mut fds, Some(TimeSpec::from_duration(patience)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes everything that has arrived: notices first, as they move packets to other paths.
    fn take_all(&mut self) {
        if self.notices.take() {
            self.follow_ports(false);
            self.follow_bridge(false);
            self.follow_host();
        }
        let mut buffer = vec![0; BUFFER_LEN];
        for link in 0..self.ports.len() {
            self.take_control(link, &mut buffer);
            self.take_labelled(link, &mut buffer);
        }
        self.take_host_frames(&mut buffer);
        self.take_station_frames(&mut buffer);
        if self.wake.read().is_ok() {
            while let Ok(command) = self.inbox.try_recv() {
                self.command(command);
            }
        }
    }

    fn take_control(&mut self, link: usize, buffer: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(port) = self.ports.get(link) else { return };
            let (Some(open), true) = (&port.open, port.is_up) else { return };
            let Ok(Some(frame)) = open.control.receive(buffer) else { return };
            let (Some(from), Some(octets)) = (frames::source(frame), frame.get(HEADER_LEN..))
            else {
                continue;
            };
            let link = link_index(link);
            self.input(MeshInput::Received { link, from: LinkAddress::ethernet(from), octets });
        }
    }

    fn take_labelled(&mut self, link: usize, buffer: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(port) = self.ports.get(link) else { return };
            let (Some(open), Some(properties), true) = (&port.open, port.properties, port.is_up)
            else {
                return;
            };
            let Ok(Some(received)) = open.passed_up.receive(buffer) else { return };
            let is_super = received.get(1).is_some_and(|cut| *cut != 0);
            let Some(frame) = without_offloads(received) else {
                let of = &mut self.counters;
                *if is_super { &mut of.super_frames } else { &mut of.malformed_frames } += 1;
                continue;
            };
            if destination(frame) == Some(properties.mac) {
                self.labelled(link_index(link), frame);
            }
        }
    }

    /// A labelled frame that the program has passed up.
    fn labelled(&mut self, link: LinkIndex, received: &[u8]) {
        let Some(frame) = LabelledFrame::parse(received) else {
            self.counters.malformed_frames += 1;
            return;
        };
        let octets = u64::try_from(received.len()).unwrap_or(0);
        let from = LinkAddress::ethernet(frame.from);
        let Some(action) = self.forwarding.in_force(frame.label) else {
            if self.node.is_own_label(frame.label) {
                let of = (link, frame.label);
                self.counters.early_dropped += self.early.keep(self.now(), of, received);
            } else {
                self.input(MeshInput::UnknownLabel { link, from, label: frame.label });
            }
            return;
        };
        match (action, frame.payload) {
            (LabelAction::Pop, FramePayload::Ethernet(carried)) => {
                self.counters.carried += 1;
                self.deliver(carried);
                self.input(MeshInput::Counters { label: frame.label, packets: 1, octets });
            }
            (LabelAction::Station { port, station }, FramePayload::Ethernet(carried)) => {
                self.counters.carried += 1;
                self.deliver_station(port, station, carried);
                self.input(MeshInput::Counters { label: frame.label, packets: 1, octets });
            }
            (LabelAction::Pop | LabelAction::Station { .. }, FramePayload::Channel(octets)) => {
                let (label, ttl) = (frame.label, frame.ttl);
                self.input(MeshInput::Counters { label, packets: 1, octets: 0 });
                self.input(MeshInput::Channel { label, ttl, octets });
            }
            (LabelAction::Swap(_), FramePayload::Channel(octets)) if frame.ttl <= 1 => {
                self.input(MeshInput::Channel { label: frame.label, ttl: frame.ttl, octets });
            }
            // Its hops are spent, or it is for a link that is down: programs have passed it up for that.
            (LabelAction::Pop | LabelAction::Station { .. }, FramePayload::Ip)
                if frame.ttl <= 1 =>
            {
                self.counters.not_forwarded += 1;
            }
            (LabelAction::Swap(hop), _) if !self.forwarding.is_up(hop.adjacency) => {
                self.counters.not_forwarded += 1;
            }
            // Its entry came while it was on the way up.
            (LabelAction::Swap(hop), _) if frame.ttl > 1 => {
                let sent = self.send_labelled(hop, |to| frames::swapped(to, hop.label, received));
                self.counters.early += u64::from(sent);
                self.input(MeshInput::Counters { label: frame.label, packets: 1, octets });
            }
            (LabelAction::Station { port, station }, FramePayload::Ip) => {
                let sent = self.deliver_early(port, station, received);
                self.counters.early += u64::from(sent);
                self.input(MeshInput::Counters { label: frame.label, packets: 1, octets });
            }
            (LabelAction::Pop, FramePayload::Ip) => {
                let Some(popped) = frames::popped(self.forwarding.ends, received) else {
                    self.counters.not_forwarded += 1;
                    return;
                };
                self.counters.early += u64::from(self.deliver(&popped));
                self.input(MeshInput::Counters { label: frame.label, packets: 1, octets });
            }
            _ => self.counters.not_forwarded += 1,
        }
    }

    /// The entry of a label is there: what came before it goes on.
    fn release(&mut self, label: Label) {
        let (frames, given_up) = self.early.take(self.now(), label);
        self.counters.early_dropped += given_up;
        for frame in frames {
            self.labelled(frame.link, &frame.octets);
        }
    }

    /// Gives the machine an input, and does what it says.
    fn input(&mut self, input: MeshInput<'_>) {
        self.node.handle(self.now(), input);
        self.drain();
    }

    /// Does what the machine says.
    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            self.output(output);
        }
    }

    fn output(&mut self, output: MeshOutput) {
        match self.forwarding.install(&output, &self.ports) {
            Installed::Done => {
                match output {
                    MeshOutput::InstallLabel { label, .. } => self.release(label),
                    MeshOutput::RemoveLabel { label } => {
                        self.counters.early_dropped += self.early.give_up(label);
                    }
                    _ => {}
                }
                return;
            }
            Installed::LabelRefused(label) => {
                self.node.handle(self.now(), MeshInput::LabelRefused { label });
                return;
            }
            Installed::Other => {}
        }
        match output {
            MeshOutput::Send { link, to, octets } => self.send_control(link, to, &octets),
            MeshOutput::SendPacket { hop, packet } => self.send_packet(hop, &packet),
            MeshOutput::Channel { hop, ttl, octets } => {
                self.send_labelled(hop, |to| frames::channel(to, hop.label, ttl, &octets));
            }
            MeshOutput::Echoed { token, outcome } => self.echoed(token, outcome),
            MeshOutput::Deliver { packet, .. } => {
                self.deliver(&packet);
            }
            MeshOutput::SendHello { port, to, octets } => self.send_hello(port, to, &octets),
            MeshOutput::Teach { port, addresses } => self.teach(port, &addresses),
            MeshOutput::SendPort { port, packet } => {
                let sent = self.station_port(port).map(|port| port.send_whole(&packet));
                self.counters.send_refused += u64::from(!matches!(sent, Some(Ok(()))));
            }
            MeshOutput::PortState { port, forwards } => self.port_state(port, forwards),
            MeshOutput::Event(event) => self.event(&event),
            _ => {}
        }
    }

    fn event(&mut self, event: &MeshEvent) {
        let now = self.now();
        match *event {
            MeshEvent::NeighbourUp(adjacency) => {
                state::note(&mut self.neighbours, adjacency, true, now);
            }
            MeshEvent::NeighbourDown(adjacency, _) => {
                state::note(&mut self.neighbours, adjacency, false, now);
            }
            _ => {}
        }
        if let Some(event) = report::event(event, &self.ports) {
            self.sink.log(event);
        }
    }

    fn send_control(&mut self, link: LinkIndex, to: Option<LinkAddress>, octets: &[u8]) {
        let Some(port) = self.ports.get(link.index()) else { return };
        let (Some(open), Some(properties)) = (&port.open, port.properties) else { return };
        let to = to.and_then(LinkAddress::to_ethernet).unwrap_or(GROUP_ADDRESS);
        let mut frame = frames::header(to, properties.mac, ETHER_TYPE);
        frame.extend(octets);
        self.counters.send_refused += u64::from(open.control.send(&frame).is_err());
    }

    /// Sends a packet that waited for its path: as the host did, so that the program labels it.
    fn send_packet(&mut self, hop: LabelledHop, packet: &[u8]) {
        let frame = packet.get(OFFLOADS_LEN..).unwrap_or_default();
        let class = frames::class(frame);
        if !matches!(ether_type(frame), Some(IPV4 | IPV6)) {
            let pseudowire = |addresses| frames::pseudowire(addresses, hop.label, class, frame);
            self.send_labelled(hop, pseudowire);
            return;
        }
        let to = destination(frame).unwrap_or_default();
        // What no program takes would come back.
        if !self.forwarding.has_path((node_of(to), class)) {
            self.counters.not_installed += 1;
        } else if self.host.inject.send(packet).is_ok() {
            self.counters.released += 1;
        } else {
            self.counters.send_refused += 1;
        }
    }

    /// Sends a labelled frame; `false` if it has not left.
    fn send_labelled(
        &mut self,
        hop: LabelledHop,
        frame: impl FnOnce((Mac, Mac)) -> Vec<u8>,
    ) -> bool {
        let Some(port) = self.ports.get(hop.adjacency.link.index()) else { return false };
        let (Some(open), Some(properties)) = (&port.open, port.properties) else { return false };
        let Some(to) = hop.address.to_ethernet() else { return false };
        let frame = frame((to, properties.mac));
        if frame.len() > properties.mtu + HEADER_LEN {
            self.counters.too_long += 1;
            return false;
        }
        let sent = open.labelled.send(&frame).is_ok();
        self.counters.send_refused += u64::from(!sent);
        sent
    }

    /// Ends the node if somebody has deleted its interface: nothing can leave it or reach it.
    fn follow_host(&mut self) {
        let name = self.pair.name();
        let is_there = InterfaceProperties::of(name).is_ok_and(|it| it.index == self.pair.index());
        if !is_there {
            let text = format!(
                "the mesh ends, as {name} has been deleted; `gatewright reload` starts it again"
            );
            self.end(text);
        }
    }

    /// Ends the node by itself. Who hears of it asks for its status at once, while its programs and
    /// interfaces still take their time to end: so the mark comes before the event.
    fn end(&mut self, text: String) {
        self.has_ended.store(true, Ordering::Release);
        self.sink.log(report::about(LogLevel::Error, "mesh-ended", text));
        self.ended = true;
    }

    /// Looks at the interfaces of all links, and tells the machine what has changed.
    fn follow_ports(&mut self, at_start: bool) {
        for link in 0..self.ports.len() {
            let Some(port) = self.ports.get_mut(link) else { return };
            if port.look() || at_start {
                self.follow_port(link);
            }
        }
    }

    fn follow_port(&mut self, link: usize) {
        let index = link_index(link);
        let Some(port) = self.ports.get_mut(link) else { return };
        if port.properties.is_some()
            && let Err(error) = port.begin(&self.forwarding.switching)
        {
            let text = format!("link {} cannot be joined: {error}", port.name);
            self.sink.log(report::about(LogLevel::Error, "mesh-link-refused", text));
        }
        let (was, now) = (port.is_up, port.can_carry());
        port.is_up = now;
        if was || now {
            self.sink.log(report::link(port));
        }
        let properties = port.link_properties();
        if was {
            self.input(MeshInput::LinkDown { link: index });
        }
        if now {
            if let Some(port) = self.ports.get(link) {
                self.forwarding.set_port(index, port);
            }
            self.input(MeshInput::LinkUp { link: index, properties });
        }
    }

    fn command(&mut self, command: NodeQuestion) {
        // Who asked may have gone.
        match command {
            NodeQuestion::State(tell) => {
                let _gone = tell.try_send(self.state());
            }
            NodeQuestion::Echo { destination, class, ttl, tell } => {
                self.echo = self.echo.wrapping_add(1);
                let token = EchoToken(self.echo);
                self.echoes.insert(token, tell);
                self.input(MeshInput::Echo { token, destination, class, ttl });
            }
            NodeQuestion::Cut { link, is_cut, tell } => {
                let _gone = tell.try_send(self.cut(&link, is_cut));
            }
            NodeQuestion::Stop { leaves_interface } => {
                if leaves_interface {
                    self.pair.leave();
                }
                self.ended = true;
            }
        }
    }

    fn echoed(&mut self, token: EchoToken, outcome: EchoOutcome) {
        if let Some(tell) = self.echoes.remove(&token) {
            // Who asked may have gone.
            let _gone = tell.try_send(outcome);
        }
    }

    fn cut(&mut self, name: &str, is_cut: bool) -> Result<(), String> {
        let Some(link) = self.ports.iter().position(|port| port.name == name) else {
            let names: Vec<_> = self.ports.iter().map(|port| port.name.as_str()).collect();
            return Err(format!("the mesh has no link {name}; it has {}", names.join(", ")));
        };
        if let Some(port) = self.ports.get_mut(link)
            && port.is_cut != is_cut
        {
            port.is_cut = is_cut;
            self.follow_port(link);
        }
        Ok(())
    }

    /// Tells the machine which paths carry packets, and writes the numbers for status.
    fn report(&mut self) {
        let TrafficReport { by_label, by_destination } = self.forwarding.report();
        for (label, count) in by_label {
            let (packets, octets) = (count.packets, count.octets);
            self.input(MeshInput::Counters { label, packets, octets });
        }
        let now = self.now();
        for (destination, octets) in by_destination {
            self.connections.traffic(now, destination);
            self.input(MeshInput::Traffic { destination, octets });
        }
        for destination in self.connections.expire(now) {
            self.input(MeshInput::Connections { destination, any: false });
        }
        self.input(MeshInput::TimerLateness { p999: self.lateness.p999() });
        let summary = self.summarise();
        *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = summary;
    }

    fn profile(&self) -> &'static str {
        match self.profile {
            Profile::Classic => "classic",
            Profile::Default => "default",
        }
    }

    const fn routing(&self) -> &'static str {
        match self.routing {
            MeshRouting::OnDemand => "on-demand",
            MeshRouting::Olsr => "olsr",
        }
    }

    fn summarise(&self) -> Summary {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let up = self.neighbours.values().filter(|(up, _)| *up).count();
        let links = self.ports.iter().filter(|port| port.is_up).count();
        let mut destinations: Vec<_> = self.forwarding.paths.keys().map(|(to, _)| to).collect();
        destinations.dedup();
        Summary {
            words: vec![
                ("interface", self.pair.name().to_owned()),
                ("node", state::mac_text(self.own)),
                ("profile", self.profile().to_owned()),
                ("routing", self.routing().to_owned()),
            ],
            gauges: vec![
                ("links_up", number(links)),
                ("neighbours_up", number(up)),
                ("destinations", number(destinations.len())),
                ("labels", number(self.forwarding.labels.len())),
                ("bypasses", number(self.node.bypasses())),
                ("stations", number(self.node.stations().count())),
                ("tcp_connections", number(self.connections.len())),
                ("liveness_interval_us", micros(self.node.liveness_interval())),
                ("timer_lateness_p999_us", micros(self.lateness.p999())),
                ("timer_lateness_us", micros(self.lateness.highest())),
            ],
            counters: self.all_counters(),
        }
    }

    fn all_counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = state::protocol_counters(&self.node.counters());
        let (of, table) = (self.counters, self.forwarding.counters);
        all.extend([
            ("wake_ups", of.wake_ups),
            ("taken_up", of.taken_up),
            ("released", of.released),
            ("not_installed", of.not_installed),
            ("super_frames_dropped", of.super_frames),
            ("too_long", of.too_long),
            ("send_refused", of.send_refused),
            ("not_forwarded", of.not_forwarded),
            ("early", of.early),
            ("early_dropped", of.early_dropped),
            ("carried", of.carried),
            ("malformed_frames", of.malformed_frames),
            ("tcp_connections_refused", self.connections.refused()),
            ("labels_full", table.labels),
            ("paths_full", table.paths),
            ("next_hops_full", table.next_hops),
        ]);
        all.extend(state::bridge_counters(&self.node.bridge_counters()));
        all.extend(self.tunnels.counters.named());
        all
    }

    fn state(&self) -> MeshState {
        let mut links = state::links(&self.ports, &self.forwarding);
        links.push(state::MeshLinkState {
            link: self.pair.peer().to_owned(),
            state: "host",
            mac: None,
            mtu: None,
            frames: state::frames(&self.forwarding, PEER),
        });
        MeshState {
            node: state::mac_text(self.own),
            interface: self.pair.name().to_owned(),
            taken_over: self.pair.is_taken_over(),
            profile: self.profile(),
            routing: self.routing(),
            trust: self.trust,
            uptime_s: self.now().as_secs(),
            liveness_interval_us: micros(self.node.liveness_interval()),
            timer_lateness_us: micros(self.lateness.p999()),
            links,
            tunnels: state::tunnels(&self.tunnels.running),
            ports: state::ports(&self.bridge, &self.node, &self.forwarding),
            neighbours: state::neighbours(&self.neighbours, &self.ports, self.now()),
            destinations: state::destinations(&self.forwarding, &self.node, &self.ports),
            labels: self.forwarding.labels.len(),
            bypasses: self.node.bypasses(),
            tcp_connections: self.connections.len(),
            counters: self.all_counters(),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn link_index(link: usize) -> LinkIndex {
    u16::try_from(link).map_or(LinkIndex::NONE, LinkIndex)
}

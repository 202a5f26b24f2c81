//! Recorded conversations as tests: what TCP connections and datagrams of a capture file carried
//! becomes what mocked peers send and see.

use super::import;
use gatewright_command::{
    description::read,
    exit::{Exit, Failure},
};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{
    Compiled, Import,
    ir::{Program, Role, Side, Transport},
};
use gatewright_link::pcapng::CaptureReader;
use gatewright_programs::recorded_test::{
    PeerEvent, RECORDED, RecordedStep, importing, test_block,
};
use gatewright_wire::{IpProtocol, ipv4::Ipv4, ipv6::Ipv6, tcp::Tcp, udp::Udp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Maximum octets of a test.
const OCTETS_MAX: usize = 16 << 20;

/// Maximum segments of a connection that wait for an earlier one.
const WAITING_MAX: usize = 1_024;

/// The shortest pause of the peers that a test repeats.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Compiles a program with one more test, the last one: what a capture file recorded. Its text is
/// the third result, empty if the program does not compile.
///
/// # Errors
///
/// A file cannot be read, or the capture holds nothing of the program's roles.
pub(super) fn compile(file: &str, capture: &str) -> Result<(Sources, Compiled, String), Failure> {
    let text = read(file)?;
    let compiled = |name: &str, text: String, import: &dyn Fn(&str, &str) -> Import| {
        let mut sources = Sources::of(name, text);
        let compiled =
            gatewright_lang::compile_importing(&mut sources, SourceId::default(), import);
        (sources, compiled)
    };
    let (sources, first) = compiled(file, text.clone(), &import);
    let Some(program) = &first.program else { return Ok((sources, first, String::new())) };
    let test = test(program, capture)?;
    let with_program = |from: &str, path: &str| match from {
        RECORDED => Import::Found(file.to_owned(), text.clone()),
        _ => import(from, path),
    };
    let (sources, compiled) = compiled(RECORDED, importing(file, &test), &with_program);
    Ok((sources, compiled, test))
}

/// The text of a test block.
fn test(program: &Program, capture: &str) -> Result<String, Failure> {
    let failure =
        |why: &dyn std::fmt::Display| Failure::new(Exit::Negative, format!("{capture}: {why}"));
    let file = File::open(capture).map_err(|error| Failure::file(capture, &error))?;
    let mut reader = CaptureReader::new(BufReader::new(file));
    let mut recording = Recording::new(program);
    loop {
        let record = reader.next_record().map_err(|error| failure(&error))?;
        let Some((interface, at, octets)) =
            record.map(|it| (it.interface, it.at, it.octets.to_vec()))
        else {
            break;
        };
        let framing = reader.interface(interface).and_then(|it| it.framing);
        if let Some(packet) = framing.and_then(|framing| framing.ip_packet(&octets)) {
            recording.add(at, packet);
        }
    }
    if recording.octets > OCTETS_MAX {
        return Err(failure(&format!("more than {OCTETS_MAX} octets of messages")));
    }
    if recording.steps.is_empty() {
        let ports = recording.roles.iter().map(|of| format!("{} {}", of.about.name, of.port));
        let ports = ports.collect::<Vec<_>>().join(", ");
        return Err(failure(&format!("no message at the port of a role ({ports})")));
    }
    Ok(recording.text(capture))
}

/// A role with what of a capture belongs to it.
struct RecordedRole<'p> {
    about: &'p Role,
    port: u16,
    /// The first peer of a server; a test has one.
    peer: Option<SocketAddr>,
    /// Whether the end of a connection was recorded.
    is_closed: bool,
}

/// One direction of a connection: octets in order, whatever the order of segments.
#[derive(Default)]
struct SegmentOrder {
    /// The next sequence number, once one is known.
    next: Option<u32>,
    waiting: Vec<(u32, Vec<u8>)>,
}

impl SegmentOrder {
    /// The octets that continue the stream with this segment (RFC 9293 §3.4: numbers wrap).
    fn take(&mut self, sequence: u32, octets: &[u8]) -> Vec<u8> {
        let mut taken = Vec::new();
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push((sequence, octets.to_vec()));
        }
        let next = self.next.get_or_insert(sequence);
        let is_due =
            |&(sequence, _): &(u32, Vec<u8>), next: u32| next.wrapping_sub(sequence) < u32::MAX / 2;
        while let Some(at) = self.waiting.iter().position(|it| is_due(it, *next)) {
            let (sequence, octets) = self.waiting.swap_remove(at);
            let known = usize::try_from(next.wrapping_sub(sequence)).unwrap_or(usize::MAX);
            let new = octets.get(known..).unwrap_or_default();
            *next = next.wrapping_add(u32::try_from(new.len()).unwrap_or_default());
            taken.extend_from_slice(new);
        }
        taken
    }
}

/// The conversation of a program's roles in a capture.
struct Recording<'p> {
    roles: Vec<RecordedRole<'p>>,
    connections: BTreeMap<(SocketAddr, SocketAddr), SegmentOrder>,
    steps: Vec<RecordedStep>,
    octets: usize,
}

impl<'p> Recording<'p> {
    fn new(program: &'p Program) -> Self {
        let role = |about: &'p Role| {
            let port = about.address.rsplit(':').next()?.parse().ok()?;
            Some(RecordedRole { about, port, peer: None, is_closed: false })
        };
        let roles = program.roles.iter().filter_map(role).collect();
        Self { roles, connections: BTreeMap::new(), steps: Vec::new(), octets: 0 }
    }

    /// Adds an IP packet; what belongs to no role is left out, and so are fragments.
    fn add(&mut self, at: Duration, packet: &[u8]) {
        let Some((ends, protocol, octets)) = transport(packet) else { return };
        if protocol == IpProtocol::UDP
            && let Ok((udp, octets)) = Udp::split(octets)
        {
            let ports = (udp.source_port(), udp.destination_port());
            let length = usize::from(udp.length()).saturating_sub(Udp::LEN);
            let octets = octets.get(..length).unwrap_or(octets);
            if let Some((role, is_inbound, _)) = self.role(Transport::Udp, ends, ports) {
                self.step(at, role, message(is_inbound, octets.to_vec()));
            }
        } else if protocol == IpProtocol::TCP
            && let Ok((tcp, _)) = Tcp::split(octets)
        {
            let ports = (tcp.source_port(), tcp.destination_port());
            let Some((role, is_inbound, key)) = self.role(Transport::Tcp, ends, ports) else {
                return;
            };
            let octets = octets.get(tcp.header_len()..).unwrap_or_default();
            let order = self.connections.entry(key).or_default();
            if tcp.syn() {
                order.next = Some(tcp.sequence_number().wrapping_add(1));
                return;
            }
            let new = order.take(tcp.sequence_number(), octets);
            if !new.is_empty() {
                self.step(at, role, message(is_inbound, new));
            }
            if tcp.fin() || tcp.rst() {
                self.end(at, role, is_inbound);
            }
        }
    }

    /// The role that a packet belongs to, and whether it comes from the role's peer.
    fn role(
        &mut self,
        transport: Transport,
        (from, to): (IpAddr, IpAddr),
        (source, destination): (u16, u16),
    ) -> Option<(usize, bool, (SocketAddr, SocketAddr))> {
        let key = (SocketAddr::new(from, source), SocketAddr::new(to, destination));
        let roles = self.roles.iter_mut().enumerate();
        let mut roles = roles.filter(|(_, role)| role.about.transport == transport);
        roles.find_map(|(index, role)| {
            let is_server = role.about.side == Side::Server;
            let is_inbound = match role.port {
                port if port == destination => is_server,
                port if port == source => !is_server,
                _ => return None,
            };
            let peer = if is_inbound { key.0 } else { key.1 };
            let known = *role.peer.get_or_insert(peer);
            (!is_server || known == peer).then_some((index, is_inbound, key))
        })
    }

    fn step(&mut self, at: Duration, role: usize, event: PeerEvent) {
        let is_stream =
            self.roles.get(role).is_some_and(|role| role.about.transport == Transport::Tcp);
        let last = self.steps.last_mut().filter(|last| is_stream && last.role == role);
        let length = match &event {
            PeerEvent::Sends(octets) | PeerEvent::Sees(octets) => octets.len(),
            _ => 0,
        };
        self.octets = self.octets.saturating_add(length);
        if self.octets > OCTETS_MAX {
            return;
        }
        match (last.filter(|last| at < last.at + PAUSE_MIN).map(|last| &mut last.event), event) {
            (Some(PeerEvent::Sends(before)), PeerEvent::Sends(octets))
            | (Some(PeerEvent::Sees(before)), PeerEvent::Sees(octets)) => before.extend(octets),
            (_, event) => self.steps.push(RecordedStep { at, role, event }),
        }
    }

    /// Records the end of a role's connection, by the side that ended it first.
    fn end(&mut self, at: Duration, role: usize, is_inbound: bool) {
        let Some(of) = self.roles.get_mut(role).filter(|of| !of.is_closed) else { return };
        of.is_closed = true;
        self.step(at, role, if is_inbound { PeerEvent::Closes } else { PeerEvent::SeesClose });
    }

    /// The test block.
    fn text(&self, name: &str) -> String {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.about.name.as_str()).collect();
        let name = format!("recorded in {name}");
        test_block(&name, &[], &self.steps, &roles, PAUSE_MIN)
    }
}

fn message(is_inbound: bool, octets: Vec<u8>) -> PeerEvent {
    if is_inbound { PeerEvent::Sends(octets) } else { PeerEvent::Sees(octets) }
}

/// Both addresses, protocol and payload of an IP packet that is no fragment.
fn transport(packet: &[u8]) -> Option<((IpAddr, IpAddr), IpProtocol, &[u8])> {
    let version = packet.first()? >> 4;
    if version == 4 {
        let (header, _) = Ipv4::split(packet).ok()?;
        let payload = packet.get(header.header_len()..usize::from(header.total_length()))?;
        let is_whole = header.fragment_offset() == 0 && !header.more_fragments();
        let ends = (header.source_address().into(), header.destination_address().into());
        return is_whole.then_some((ends, header.protocol(), payload));
    }
    let (header, payload) = Ipv6::split(packet).ok()?;
    let payload = payload.get(..usize::from(header.payload_length()))?;
    let ends = (header.source_address().into(), header.destination_address().into());
    Some((ends, header.next_header(), payload))
}

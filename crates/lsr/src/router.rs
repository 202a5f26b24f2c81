//! A running node: starts its thread, asks it, and ends it.

use crate::driver::{Driver, NodeQuestion, Summary};
use crate::forwarding::{Forwarding, PEER, PORTS_MAX, mac_of, node_of};
use crate::frames::Mac;
use crate::state::{MeshEcho, MeshState, mac_of_text, node_text};
use crate::tunnel::{MeshTunnel, Tunnels};
use gatewright_link::{InterfacePair, InterfaceProperties};
use gatewright_mesh::{
    EchoOutcome, MeshRouting, MeshSettings, MeshTrust, NodeId, PathClass, Profile,
};
use gatewright_part::EventSink;
use gatewright_sim::Random;
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::program::Hook;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What marks the interfaces that a node has made.
const MARK: &str = "gatewright mesh";

/// The thread answers between two events.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Questions that wait for the thread.
const COMMANDS_MAX: usize = 64;

/// Setup of a node.
#[derive(Clone, Debug)]
pub struct MeshSetup {
    /// Name of the mesh interface.
    pub interface: String,
    /// Names of the interfaces of the links.
    pub links: Vec<String>,
    /// Names of the interfaces of the bridge ports, whose stations take part.
    pub ports: Vec<String>,
    /// Links to other sites, whose interfaces the node makes.
    pub tunnels: Vec<MeshTunnel>,
    /// The profile of the mesh.
    pub profile: Profile,
    /// How routes are found.
    pub routing: MeshRouting,
    /// Who may take part.
    pub trust: MeshTrust,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A link's interface.
    #[error("[mesh] links: {link}: {source}")]
    Link {
        /// The link.
        link: String,
        /// Why.
        source: io::Error,
    },
    /// A tunnel's interface or socket.
    #[error("[mesh.tunnel.{tunnel}] {source}")]
    Tunnel {
        /// The tunnel.
        tunnel: String,
        /// Why.
        source: io::Error,
    },
    /// A bridge port's interface.
    #[error("[mesh] ports: {port}: {source}")]
    Port {
        /// The port.
        port: String,
        /// Why.
        source: io::Error,
    },
    /// There are too many links.
    #[error("[mesh] links: {0} links, tunnels and ports, at most {PORTS_MAX}")]
    TooManyLinks(usize),
    /// A file of keys or members.
    #[error("[mesh] {key}: {file}: {why}")]
    Keys {
        /// The key of the description that names it.
        key: &'static str,
        /// The file.
        file: String,
        /// Why, and what to do.
        why: String,
    },
    /// The mesh interface.
    #[error("[mesh] interface {interface}: {why}")]
    Interface {
        /// Its name.
        interface: String,
        /// Why, and what to do.
        why: String,
    },
    /// The label programs.
    #[error("the mesh's label programs: {0}; they need CAP_BPF, CAP_NET_ADMIN and Linux 6.6")]
    Programs(String),
    /// A thread or descriptor.
    #[error("the mesh's thread: {0}")]
    Thread(io::Error),
}

/// Which links a node needs at its start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinksAtStart {
    /// All of its description: one that is absent may be a wrong name.
    All,
    /// Those that are present.
    Present,
}

/// A running node of the mesh; dropping it ends the node and removes its interface.
#[derive(Debug)]
pub struct MeshRouter {
    interface: String,
    commands: SyncSender<NodeQuestion>,
    wake: Arc<EventFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
    summary: Arc<Mutex<Summary>>,
    has_ended: Arc<AtomicBool>,
}

impl MeshRouter {
    /// Starts a node; `seed` begins all its randomness, and is another one at each start.
    ///
    /// # Errors
    ///
    /// [`MeshError`] names what failed; then nothing is left, but for an interface that an earlier node
    /// had left.
    pub fn start(setup: &MeshSetup, seed: u64, sink: EventSink) -> Result<Self, MeshError> {
        Self::begin(setup, LinksAtStart::All, (seed, sink))
    }

    /// As [`Self::start`], for a node that ran a moment ago: a link whose device is absent is joined
    /// when it comes, as while the node ran.
    ///
    /// # Errors
    ///
    /// As those of [`Self::start`].
    pub fn start_again(setup: &MeshSetup, seed: u64, sink: EventSink) -> Result<Self, MeshError> {
        Self::begin(setup, LinksAtStart::Present, (seed, sink))
    }

    fn begin(
        setup: &MeshSetup,
        links: LinksAtStart,
        (seed, sink): (u64, EventSink),
    ) -> Result<Self, MeshError> {
        let first = first_link(setup, links)?;
        let own = own_address(&setup.interface, &sign(first, &setup.tunnels), &setup.trust);
        let (pair, mac, peer) = interface(&setup.interface, own)?;
        // An identity that follows from a key is no other one.
        if matches!(setup.trust, MeshTrust::Pki(_)) && mac != own {
            return Err(MeshError::Interface {
                interface: setup.interface.clone(),
                why: format!(
                    "it has an address that is not that of the node's key: `ip link delete {}`, \
                     and start again",
                    setup.interface
                ),
            });
        }
        let tunnels = tunnels(&setup.tunnels)?;
        let programs = |error: &dyn std::fmt::Display| MeshError::Programs(error.to_string());
        let switching = LabelSwitching::new().map_err(|error| programs(&error))?;
        let push = switching.push(PEER).map_err(|error| programs(&error))?;
        let push = push.attach(pair.peer_index(), Hook::Ingress);
        let push = push.map_err(|error| programs(&error))?;
        let forwarding = Forwarding::new(switching, mac, (pair.index(), peer));
        let forwarding = forwarding.map_err(|error| programs(&error))?;

        let mut random = Random::new(seed);
        let epoch = u32::try_from(random.bits() >> 32).unwrap_or(0);
        let mut settings = MeshSettings::new(node_of(mac), epoch, setup.profile);
        settings.seed = random.bits();
        settings.routing = setup.routing;
        settings.trust = setup.trust.clone();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags);
        let wake = Arc::new(wake.map_err(|errno| MeshError::Thread(errno.into()))?);
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        let summary = Arc::new(Mutex::new(Summary::default()));
        let has_ended = Arc::<AtomicBool>::default();
        let driver = Driver::new(
            (pair, push, tunnels),
            (mac, settings, forwarding),
            (setup, links),
            (Arc::clone(&wake), inbox),
            (Arc::clone(&summary), Arc::clone(&has_ended)),
            sink,
        )
        .map_err(MeshError::Thread)?;
        let thread = std::thread::Builder::new().name("mesh".to_owned());
        let thread = thread.spawn(move || driver.run()).map_err(MeshError::Thread)?;
        let (interface, thread) = (setup.interface.clone(), Mutex::new(Some(thread)));
        Ok(Self { interface, commands, wake, thread, summary, has_ended })
    }

    /// Checks what a start would refuse, as far as it is seen without a change: so the node `running`
    /// goes on if it is refused. What that node has is free for the next one.
    ///
    /// # Errors
    ///
    /// That of a start.
    pub fn check(setup: &MeshSetup, running: Option<&MeshSetup>) -> Result<(), MeshError> {
        first_link(setup, LinksAtStart::All)?;
        let interface = &setup.interface;
        let checked = InterfacePair::check(interface, MARK);
        checked.map_err(|error| refused_interface(interface, &error))?;
        let running = running.map_or(&[][..], |running| &running.tunnels);
        for tunnel in &setup.tunnels {
            let refused = |source| MeshError::Tunnel { tunnel: tunnel.interface.clone(), source };
            tunnel.check(running).map_err(refused)?;
        }
        Ok(())
    }

    /// Deletes the interface that a node has handed over, where none could take it.
    pub fn remove_left(interface: &str) {
        InterfacePair::remove_left(interface, MARK);
    }

    /// The state of the node.
    ///
    /// # Errors
    ///
    /// In words, if its thread has ended or is busy.
    pub fn state(&self) -> Result<MeshState, String> {
        let (tell, told) = sync_channel(1);
        self.send(NodeQuestion::State(tell))?;
        answer(&told)
    }

    /// Cuts a link as if its cable were pulled, or heals it.
    ///
    /// # Errors
    ///
    /// In words, if the node has no such link.
    pub fn cut(&self, link: &str, is_cut: bool) -> Result<(), String> {
        let (tell, told) = sync_channel(1);
        self.send(NodeQuestion::Cut { link: link.to_owned(), is_cut, tell })?;
        answer(&told)?
    }

    /// Asks a node for an answer over the path of a class to it, or the relay at `ttl` links on it.
    ///
    /// # Errors
    ///
    /// In words, if there is no such node, no path or no answer.
    pub fn echo(&self, node: &str, class: u8, ttl: u8) -> Result<MeshEcho, String> {
        let Some(destination) = mac_of_text(node).map(node_of) else {
            return Err(format!("{node} is not the link-layer address of a mesh interface"));
        };
        let class = PathClass::of(class);
        let (tell, told) = sync_channel(1);
        self.send(NodeQuestion::Echo { destination, class, ttl, tell })?;
        match answer(&told)? {
            EchoOutcome::Answered { node, label, hops, rtt } => {
                let rtt_us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
                Ok(MeshEcho { node: node_text(node), label: label.0, hops, rtt_us })
            }
            EchoOutcome::Silent => {
                Err(format!("no answer within a second over the path to {node}"))
            }
            EchoOutcome::Unreachable => {
                Err(format!("{node} is this node, or no path to it is found"))
            }
            EchoOutcome::Refused => Err("too many requests wait for their answers".to_owned()),
        }
    }

    /// The latest numbers; waits for nothing.
    pub(crate) fn summary(&self) -> Summary {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Name of its interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether it has ended by itself: its interface was deleted, or its thread could not go on.
    pub fn has_ended(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let is_finished = thread.as_ref().is_none_or(JoinHandle::is_finished);
        is_finished || self.has_ended.load(Ordering::Acquire)
    }

    /// Ends the node: its thread, its interface and its programs.
    pub fn stop(&self) {
        self.end(false);
    }

    /// As [`Self::stop`], but the interface stays with the host's addresses for a node that takes it
    /// over.
    pub fn hand_over(&self) {
        self.end(true);
    }

    fn end(&self, leaves_interface: bool) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It may have ended by itself.
            let _gone = self.send(NodeQuestion::Stop { leaves_interface });
            let _panicked = thread.join();
        }
    }

    fn send(&self, command: NodeQuestion) -> Result<(), String> {
        self.commands.try_send(command).map_err(|_| "the mesh's thread is busy or has ended")?;
        self.wake.write(1).map_err(|errno| errno.to_string())?;
        Ok(())
    }
}

impl Drop for MeshRouter {
    fn drop(&mut self) {
        self.stop();
    }
}

fn answer<T>(told: &Receiver<T>) -> Result<T, String> {
    told.recv_timeout(ANSWER_WITHIN).map_err(|_| "the mesh's thread has ended".to_owned())
}

/// The link-layer address of the first link that is there.
fn first_link(setup: &MeshSetup, links: LinksAtStart) -> Result<Option<Mac>, MeshError> {
    let count = setup.links.len() + setup.tunnels.len() + setup.ports.len();
    if u32::try_from(count).map_or(true, |count| count > PORTS_MAX) {
        return Err(MeshError::TooManyLinks(count));
    }
    let mut first: Option<Mac> = None;
    for link in &setup.links {
        match InterfaceProperties::of(link) {
            Ok(found) => first = first.or(Some(found.mac)),
            Err(_) if links == LinksAtStart::Present => {}
            Err(source) => return Err(MeshError::Link { link: link.clone(), source }),
        }
    }
    for port in &setup.ports {
        if let (Err(source), LinksAtStart::All) = (InterfaceProperties::of(port), links) {
            return Err(MeshError::Port { port: port.clone(), source });
        }
    }
    Ok(first)
}

fn refused_interface(name: &str, error: &io::Error) -> MeshError {
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "there is an interface of this name that no mesh has made: choose another name".into()
        }
        io::ErrorKind::AddrInUse => format!("the mesh of {error} has it"),
        _ => error.to_string(),
    };
    MeshError::Interface { interface: name.to_owned(), why }
}

/// The mesh interface with its own address and its peer's.
fn interface(name: &str, own: Mac) -> Result<(InterfacePair, Mac, Mac), MeshError> {
    let refused = |error: io::Error| refused_interface(name, &error);
    let pair = InterfacePair::make(name, own, MARK).map_err(refused)?;
    let address = |name: &str| InterfaceProperties::of(name).map(|it| it.mac).map_err(refused);
    let (own, peer) = (address(pair.name())?, address(pair.peer())?);
    Ok((pair, own, peer))
}

fn tunnels(wanted: &[MeshTunnel]) -> Result<Tunnels, MeshError> {
    let mut tunnels = Tunnels::new().map_err(MeshError::Thread)?;
    for tunnel in wanted {
        let refused = |source| MeshError::Tunnel { tunnel: tunnel.interface.clone(), source };
        tunnels.add(tunnel).map_err(refused)?;
    }
    Ok(tunnels)
}

/// What tells a machine from others, and stays: the address of its first link, or that of its first tunnel
/// where it has tunnels alone, whose interfaces have other link-layer addresses at each start.
fn sign(first_link: Option<Mac>, tunnels: &[MeshTunnel]) -> Vec<u8> {
    match (first_link, tunnels.first()) {
        (None, Some(tunnel)) => tunnel.local.to_string().into_bytes(),
        (first_link, _) => first_link.unwrap_or_default().to_vec(),
    }
}

/// Link-layer address of the mesh interface: the same at each start on the same machine, of which the
/// node's key or else `sign` is one.
fn own_address(name: &str, sign: &[u8], trust: &MeshTrust) -> Mac {
    if let MeshTrust::Pki(own) = trust {
        return mac_of(own.0.public().node()).unwrap_or_default();
    }
    let NodeId(hash) = NodeId::of_key(&[sign, name.as_bytes()].concat());
    let [_, _, first, rest @ ..] = hash.to_be_bytes();
    let mut address = [0; 6];
    // Locally administered, and of one station (IEEE 802 §8.2).
    let octets = [first & 0xfc | 2].into_iter().chain(rest);
    for (to, from) in address.iter_mut().zip(octets) {
        *to = from;
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_is_a_stations_and_stays() {
        let sign = |last, tunnels| sign(Some([2, 0, 0, 0, 0, last]), tunnels);
        let link = &sign(1, &[]);
        let own = own_address("mesh0", link, &MeshTrust::Open);
        assert_eq!(own[0] & 3, 2);
        assert_eq!(own, own_address("mesh0", link, &MeshTrust::Open));
        assert_ne!(own, own_address("mesh1", link, &MeshTrust::Open));
        assert_ne!(own, own_address("mesh0", &sign(2, &[]), &MeshTrust::Open));
        assert_eq!(*link, sign(1, &[tunnel("192.0.2.2:6087")]));
        let key = gatewright_mesh::MeshNodeKey::of_seed([1; 32]).unwrap();
        let of_key = key.public().node();
        let trust = MeshTrust::Pki(Box::new((key, gatewright_mesh::MeshMembers::default())));
        assert_eq!(node_of(own_address("mesh0", link, &trust)), of_key);
    }

    fn tunnel(local: &str) -> MeshTunnel {
        let (local, remote) = (local.parse().unwrap(), "198.51.100.2:6087".parse().unwrap());
        MeshTunnel { interface: "site".into(), local, remote }
    }

    /// Nodes of tunnels alone have addresses of their own: thirty-two differ.
    #[test]
    fn the_own_address_of_a_node_without_links_is_a_tunnels() {
        let own = |node| {
            let tunnels = [tunnel(&format!("192.0.2.{node}:6087"))];
            own_address("mesh0", &sign(None, &tunnels), &MeshTrust::Open)
        };
        let all: std::collections::BTreeSet<_> = (1..=32).map(own).collect();
        assert_eq!(all.len(), 32);
    }
}

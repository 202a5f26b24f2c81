//! The label table of the node: what the machine installs, as the programs read it.
//!
//! A link of the table is a next hop here: an adjacency of the node has a number of its own, so that
//! the loss of one neighbour is one store and leaves the others of its link alone.

use crate::frames::Mac;
use crate::port::Port;
use gatewright_link::InterfaceProperties;
use gatewright_mesh::{
    Adjacency, BridgePort, LabelAction, LabelledHop, MeshOutput, NodeId, PathClass, PathId,
    PathRole,
};
use gatewright_packet::LinkIndex;
use gatewright_tables::{
    LABEL_LINKS_MAX, LabelHop, LabelHops, LabelLink, LabelTableError, PathKey,
};
use gatewright_wire::mpls::Label;
use gatewright_xdp::{LabelSwitching, PacketCount};
use std::collections::BTreeMap;

/// Number of the mesh interface in the table: what is popped is delivered there.
pub(crate) const HOST: u32 = 0;
/// Number under which the push program counts.
pub(crate) const PEER: u32 = 1;
/// Number of the first link.
pub(crate) const FIRST_PORT: u32 = 2;
/// Links and bridge ports of a node at the most: the other numbers are for its neighbours.
pub(crate) const PORTS_MAX: u32 = 16;

/// Number of a bridge port: the last ones of those for links.
pub(crate) fn port_number(port: BridgePort) -> u32 {
    (FIRST_PORT + PORTS_MAX - 1).saturating_sub(port.0.into())
}

/// A path of a destination and a class in a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InstalledPath {
    pub(crate) path: PathId,
    pub(crate) hop: LabelledHop,
    pub(crate) frame_limit: u16,
}

/// The paths of a destination and a class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstalledPaths {
    pub(crate) primary: Option<InstalledPath>,
    pub(crate) backup: Option<InstalledPath>,
    /// Whether flows are spread over both.
    pub(crate) spreads: bool,
    /// Whether the programs have it.
    pub(crate) is_in_table: bool,
    /// The path's counter when it was reported last.
    reported: PacketCount,
}

/// An installed label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstalledLabel {
    pub(crate) action: LabelAction,
    /// The next hop while that of the action is down.
    backup: Option<LabelledHop>,
    reported: PacketCount,
}

impl InstalledLabel {
    /// The neighbour that an action leads to.
    fn first_hop(action: LabelAction) -> Option<Adjacency> {
        match action {
            LabelAction::Swap(hop) => Some(hop.adjacency),
            LabelAction::Pop | LabelAction::Station { .. } => None,
        }
    }

    /// The neighbours that it leads to.
    fn next_hops(&self) -> impl Iterator<Item = Adjacency> {
        Self::first_hop(self.action).into_iter().chain(self.backup.map(|hop| hop.adjacency))
    }
}

/// Times that the table had no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableCounters {
    /// No place for a label.
    pub(crate) labels: u64,
    /// No place for a path.
    pub(crate) paths: u64,
    /// No number for a neighbour.
    pub(crate) next_hops: u64,
}

/// Traffic since the last report.
#[derive(Debug)]
pub(crate) struct TrafficReport {
    /// Packets received by label.
    pub(crate) by_label: Vec<(Label, PacketCount)>,
    /// Octets sent by destination.
    pub(crate) by_destination: Vec<(NodeId, u64)>,
}

/// Outcome of an output at the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Installed {
    /// It is in force.
    Done,
    /// The table has no place for the label: the machine must end its path.
    LabelRefused(Label),
    /// The output is about something else.
    Other,
}

/// The label table with what is in it.
#[derive(Debug)]
pub(crate) struct Forwarding {
    pub(crate) switching: LabelSwitching,
    /// Addresses of the two ends of the mesh interface: the host's own, and what is delivered to it
    /// comes from the other.
    pub(crate) ends: (Mac, Mac),
    slots: Vec<Option<Adjacency>>,
    down: BTreeMap<Adjacency, bool>,
    pub(crate) labels: BTreeMap<Label, InstalledLabel>,
    pub(crate) paths: BTreeMap<(NodeId, PathClass), InstalledPaths>,
    pub(crate) counters: TableCounters,
}

impl Forwarding {
    /// An empty table of the node whose mesh interface has the address `host`; what is delivered
    /// comes from `peer`.
    pub(crate) fn new(
        switching: LabelSwitching,
        host: Mac,
        (interface, peer): (u32, Mac),
    ) -> Result<Self, LabelTableError> {
        let slots = usize::try_from(LABEL_LINKS_MAX).unwrap_or(0);
        let mut this = Self {
            switching,
            ends: (host, peer),
            slots: vec![None; slots],
            down: BTreeMap::new(),
            labels: BTreeMap::new(),
            paths: BTreeMap::new(),
            counters: TableCounters::default(),
        };
        let link = LabelLink { interface, address: peer, takes_super_frames: true };
        this.switching.tables().set_link(HOST, Some(&link))?;
        this.switching.tables().set_link_up(HOST, true)?;
        Ok(this)
    }

    /// A link is there, or is another interface now: its program finds its address here, and its
    /// neighbours are reached by it.
    pub(crate) fn set_port(&mut self, link: LinkIndex, port: &Port) {
        let Some(found) = port.properties else { return };
        let own = LabelLink {
            interface: found.index,
            address: found.mac,
            takes_super_frames: found.cuts_super_frames,
        };
        let slots = (0..).zip(&self.slots).filter_map(|(number, adjacency)| {
            let adjacency = adjacency.filter(|adjacency| adjacency.link == link)?;
            Some((number, self.is_up(adjacency)))
        });
        let numbers: Vec<(u32, bool)> = slots.chain([(port.number, true)]).collect();
        for (number, up) in numbers {
            let set = self.switching.tables().set_link(number, Some(&own));
            let set = set.and_then(|()| self.switching.tables().set_link_up(number, up));
            debug_assert!(set.is_ok(), "numbers are below the table's limit");
        }
    }

    /// A bridge port is there, or is another interface now; it does not forward yet.
    pub(crate) fn set_bridge_port(&mut self, port: BridgePort, found: &InterfaceProperties) {
        let own = LabelLink {
            interface: found.index,
            address: found.mac,
            takes_super_frames: found.cuts_super_frames,
        };
        let set = self.switching.tables().set_bridge_port(port_number(port), &own);
        debug_assert!(set.is_ok(), "numbers are below the table's limit");
    }

    /// Whether a bridge port forwards: one store.
    pub(crate) fn set_forwards(&mut self, port: BridgePort, forwards: bool) {
        let set = self.switching.tables().set_link_up(port_number(port), forwards);
        debug_assert!(set.is_ok(), "numbers are below the table's limit");
    }

    pub(crate) fn is_up(&self, adjacency: Adjacency) -> bool {
        !self.down.contains_key(&adjacency)
    }

    /// Does what an output says.
    pub(crate) fn install(&mut self, output: &MeshOutput, ports: &[Port]) -> Installed {
        match *output {
            MeshOutput::InstallLabel { label, action, backup } => {
                self.set_label(label, (action, backup), ports)
            }
            MeshOutput::RemoveLabel { label } => {
                self.labels.remove(&label);
                let _in_range = self.switching.tables().set_label(label.0, None);
                Installed::Done
            }
            MeshOutput::InstallPath { destination, class, role, path, hop, frame_limit } => {
                let installed = InstalledPath { path, hop, frame_limit };
                self.set_path((destination, class), role, Some(installed), ports);
                Installed::Done
            }
            MeshOutput::RemovePath { destination, class, role } => {
                self.set_path((destination, class), role, None, ports);
                Installed::Done
            }
            MeshOutput::SpreadPath { destination, class, spreads } => {
                let key = (destination, class);
                if let Some(&paths) = self.paths.get(&key) {
                    self.write_path(key, InstalledPaths { spreads, ..paths }, ports);
                }
                Installed::Done
            }
            MeshOutput::LinkState { adjacency, up } => {
                self.set_state(adjacency, up);
                Installed::Done
            }
            MeshOutput::PortState { port, forwards } => {
                self.set_forwards(port, forwards);
                // It is reported, too.
                Installed::Other
            }
            _ => Installed::Other,
        }
    }

    /// One store moves all labels and paths of a neighbour to their backups, or back.
    fn set_state(&mut self, adjacency: Adjacency, up: bool) {
        let slot = self.slots.iter().position(|known| *known == Some(adjacency));
        if let Some(slot) = slot.and_then(|slot| u32::try_from(slot).ok()) {
            let set = self.switching.tables().set_link_up(slot, up);
            debug_assert!(set.is_ok(), "slots are below the table's limit");
        }
        if up {
            self.down.remove(&adjacency);
        } else {
            // Neighbours that are gone for good take no room.
            let slots = &self.slots;
            self.down.retain(|known, _| slots.contains(&Some(*known)));
            self.down.insert(adjacency, false);
        }
    }

    fn set_label(
        &mut self,
        label: Label,
        (action, backup): (LabelAction, Option<LabelledHop>),
        ports: &[Port],
    ) -> Installed {
        let hop = match action {
            LabelAction::Pop => Some(LabelHop { link: HOST, address: self.ends.0, label: None }),
            LabelAction::Swap(hop) => self.resolve(hop, None, ports),
            LabelAction::Station { port, station } => mac_of(station).map(|address| LabelHop {
                link: port_number(port),
                address,
                label: None,
            }),
        };
        let Some(primary) = hop else { return Installed::LabelRefused(label) };
        // Without a number for its neighbour, the label has no backup.
        let beside = InstalledLabel::first_hop(action);
        let around = backup.and_then(|hop| self.resolve(hop, beside, ports));
        let hops = LabelHops { primary, backup: around };
        if self.switching.tables().set_label(label.0, Some(&hops)).is_err() {
            self.counters.labels += 1;
            return Installed::LabelRefused(label);
        }
        // A place of the table goes on from the count of the label before.
        let reported = match self.labels.get(&label) {
            Some(known) => known.reported,
            None => self.switching.label_count(label.0).unwrap_or_default(),
        };
        let backup = backup.filter(|_| around.is_some());
        self.labels.insert(label, InstalledLabel { action, backup, reported });
        Installed::Done
    }

    fn set_path(
        &mut self,
        key: (NodeId, PathClass),
        role: PathRole,
        path: Option<InstalledPath>,
        ports: &[Port],
    ) {
        let mut paths = self.paths.get(&key).copied().unwrap_or_default();
        match role {
            PathRole::Primary => paths.primary = path,
            PathRole::Backup => paths.backup = path,
        }
        self.write_path(key, paths, ports);
    }

    /// Puts the paths of a destination and a class into the table.
    fn write_path(&mut self, key: (NodeId, PathClass), mut paths: InstalledPaths, ports: &[Port]) {
        let hop = |this: &mut Self, path: Option<InstalledPath>, beside| {
            path.and_then(|path| this.resolve(path.hop, beside, ports))
        };
        let first = paths.primary.map(|path| path.hop.adjacency);
        let (primary, backup) = (hop(self, paths.primary, None), hop(self, paths.backup, first));
        let hops = match (primary, backup) {
            (Some(primary), backup) => Some(LabelHops { primary, backup }),
            (None, backup) => backup.map(|primary| LabelHops { primary, backup: None }),
        };
        let Some(table) = path_key(key) else { return };
        let spread = hops.filter(|hops| paths.spreads && hops.backup.is_some());
        let set = match spread {
            Some(hops) => self.switching.tables().set_spread_path(table, &hops),
            None => self.switching.tables().set_path(table, hops.as_ref()),
        };
        self.counters.paths += u64::from(set.is_err());
        if !paths.is_in_table {
            paths.reported = self.switching.path_count(table).unwrap_or_default();
        }
        paths.is_in_table = set.is_ok() && hops.is_some();
        if paths.primary.is_none() && paths.backup.is_none() {
            self.paths.remove(&key);
        } else {
            self.paths.insert(key, paths);
        }
    }

    /// What is done with packets of a label now: its backup is taken while its next hop is down.
    pub(crate) fn in_force(&self, label: Label) -> Option<LabelAction> {
        let known = self.labels.get(&label)?;
        let is_down = |hop: &LabelledHop| !self.is_up(hop.adjacency);
        Some(match (known.action, known.backup) {
            (LabelAction::Swap(hop), Some(backup)) if is_down(&hop) => LabelAction::Swap(backup),
            (action, _) => action,
        })
    }

    /// Whether the programs forward packets of a class to a destination.
    pub(crate) fn has_path(&self, key: (NodeId, PathClass)) -> bool {
        let up =
            |path: Option<InstalledPath>| path.is_some_and(|path| self.is_up(path.hop.adjacency));
        let known = self.paths.get(&key);
        known.is_some_and(|paths| paths.is_in_table && (up(paths.primary) || up(paths.backup)))
    }

    /// The paths that carry packets of a class to a destination: two where flows are spread.
    pub(crate) fn all_carrying(&self, key: (NodeId, PathClass)) -> [Option<InstalledPath>; 2] {
        let up = |path: &InstalledPath| self.is_up(path.hop.adjacency);
        let spread = self.paths.get(&key).filter(|paths| paths.spreads);
        [self.carrying(key), spread.and_then(|paths| paths.backup.filter(up))]
    }

    /// The path that carries packets of a class to a destination; the first of two.
    pub(crate) fn carrying(&self, key: (NodeId, PathClass)) -> Option<InstalledPath> {
        let paths = self.paths.get(&key)?;
        let up = |path: &InstalledPath| self.is_up(path.hop.adjacency);
        paths.primary.filter(up).or(paths.backup.filter(up))
    }

    /// A next hop as the table has it. The number of `beside`, to which no entry may lead yet, stays its own.
    fn resolve(
        &mut self,
        hop: LabelledHop,
        beside: Option<Adjacency>,
        ports: &[Port],
    ) -> Option<LabelHop> {
        let address = hop.address.to_ethernet()?;
        let link = self.slot(hop.adjacency, beside, ports)?;
        Some(LabelHop { link, address, label: Some(hop.label.0) })
    }

    /// The number of a neighbour in the table, which it gets when it is first needed.
    fn slot(
        &mut self,
        adjacency: Adjacency,
        beside: Option<Adjacency>,
        ports: &[Port],
    ) -> Option<u32> {
        let known = self.slots.iter().position(|slot| *slot == Some(adjacency));
        if let Some(known) = known {
            return u32::try_from(known).ok();
        }
        let Some(number) = self.free_slot(beside) else {
            self.counters.next_hops += 1;
            return None;
        };
        let found = ports.get(adjacency.link.index())?.properties?;
        let link = LabelLink {
            interface: found.index,
            address: found.mac,
            takes_super_frames: found.cuts_super_frames,
        };
        let up = self.is_up(adjacency);
        self.switching.tables().set_link(number, Some(&link)).ok()?;
        self.switching.tables().set_link_up(number, up).ok()?;
        *self.slots.get_mut(usize::try_from(number).ok()?)? = Some(adjacency);
        Some(number)
    }

    /// A number without a neighbour, or of one that no entry leads to.
    fn free_slot(&self, beside: Option<Adjacency>) -> Option<u32> {
        let is_used = |adjacency: Adjacency| {
            let mut by_label = self.labels.values().flat_map(InstalledLabel::next_hops);
            let both = |paths: &InstalledPaths| [paths.primary, paths.backup];
            let mut by_path = self.paths.values().flat_map(both).flatten();
            beside == Some(adjacency)
                || by_label.any(|known| known == adjacency)
                || by_path.any(|path| path.hop.adjacency == adjacency)
        };
        let first = FIRST_PORT + PORTS_MAX;
        let slots = (0..).zip(&self.slots).skip_while(|(number, _)| *number < first);
        let mut free = slots.clone().filter(|(_, slot)| slot.is_none()).map(|(number, _)| number);
        let unused = |(number, slot): (u32, &Option<Adjacency>)| {
            slot.is_some_and(|adjacency| !is_used(adjacency)).then_some(number)
        };
        free.next().or_else(|| slots.clone().find_map(unused))
    }

    /// Packets by label, and octets by destination, since the last report.
    pub(crate) fn report(&mut self) -> TrafficReport {
        let since = |now: PacketCount, before: &mut PacketCount| {
            let more = PacketCount {
                packets: now.packets.saturating_sub(before.packets),
                octets: now.octets.saturating_sub(before.octets),
            };
            *before = now;
            more
        };
        let (switching, mut by_label) = (&self.switching, Vec::new());
        for (label, known) in &mut self.labels {
            let now = switching.label_count(label.0).unwrap_or(known.reported);
            by_label.push((*label, since(now, &mut known.reported)));
        }
        let mut by_destination = Vec::new();
        for (key, known) in &mut self.paths {
            let Some(table) = path_key(*key).filter(|_| known.is_in_table) else { continue };
            let now = switching.path_count(table).unwrap_or(known.reported);
            by_destination.push((key.0, since(now, &mut known.reported).octets));
        }
        by_label.retain(|(_, count)| count.packets > 0);
        by_destination.retain(|(_, octets)| *octets > 0);
        TrafficReport { by_label, by_destination }
    }
}

/// The identity of the node whose mesh interface has this address.
pub(crate) fn node_of(mac: Mac) -> NodeId {
    NodeId(mac.iter().fold(0, |node, &octet| node << 8 | u64::from(octet)))
}

/// Address of a node's mesh interface; `None` for an identity of another kind.
pub(crate) fn mac_of(node: NodeId) -> Option<Mac> {
    match node.0.to_be_bytes() {
        [0, 0, mac @ ..] => Some(mac),
        _ => None,
    }
}

fn path_key((node, class): (NodeId, PathClass)) -> Option<PathKey> {
    Some(PathKey { destination: mac_of(node)?, class: class.number() })
}

//! Label switching in the kernel: programs that push, swap and pop, and the tables they share with
//! user space.
//!
//! ```text
//! host ─▶ mesh interface ─▶ its peer ─[push]─▶ link ─▶ … ─▶ link ─[switch: swap]─▶ link ─▶ …
//! host ◀─ mesh interface ◀──────────────────────────── link ─[switch: pop]
//! station ─▶ bridge port ─[push]─▶ link ─▶ …    … ─▶ link ─[switch: pop]─▶ bridge port ─▶ station
//! ```
//!
//! The mesh interface is one end of a veth pair; [`LabelSwitching::push`] stands at the ingress of
//! the other end, [`LabelSwitching::switch`] at that of each link. Frames keep their offloads, so a
//! super-frame is labelled, swapped and delivered whole. A frame that goes nowhere is passed up as
//! it came: a packet socket for its type on that interface receives it, and no other does.

use crate::compiled::{CompiledProgram, Symbol};
use crate::forward::{ForwardingError, PacketCount, SharedMap, failed, total};
use crate::map::{BpfMap, MapType};
use crate::program::{BpfProgram, ProgramType};
use gatewright_tables::{
    LABEL_LINKS_MAX, LABEL_PATHS_MAX, LABELS_MAX, LabelAreas, LabelTable, LabelTableWriter, PathKey,
};
use std::os::fd::AsFd;

static PUSH: &[u8] = include_bytes!("../programs/label_push.bpf");
static SWITCH: &[u8] = include_bytes!("../programs/label_switch.bpf");
static SWAP: &[u8] = include_bytes!("../programs/label_swap.bpf");

/// Octets of `struct label_constants`.
const CONSTANTS_LEN: u32 = 8;
/// Octets of `struct label_count`.
const COUNT_LEN: u32 = 16;
/// Places of each link in `link_counts`.
const REASON_ROOM: u32 = 16;

/// Outcome of a frame at a label program (`enum label_reason`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum LabelReason {
    /// A label was pushed.
    Pushed,
    /// Its label was swapped.
    Swapped,
    /// Its label was popped, and the packet delivered.
    Popped,
    /// Another EtherType than the program is for: passed up. At a bridge port only sockets for all types
    /// receive it. Of a VLAN where packets get their labels: dropped.
    OtherType,
    /// To another station, or to a group: passed up.
    NotOurs,
    /// Shorter than its headers: passed up.
    Truncated,
    /// A reserved label, or further labels below one that ends here: passed up.
    Reserved,
    /// A label or a destination that is not in the table: passed up.
    Unknown,
    /// TTL of 0 or 1: passed up.
    Expired,
    /// The links of all next hops are down: passed up.
    LinkDown,
    /// The entry changed during the lookup: passed up.
    Unsettled,
    /// The payload is neither IPv4 nor IPv6: passed up.
    NotIp,
    /// The kernel has no room for a label: dropped.
    NoRoom,
    /// A super-frame that could not be cut for its link: dropped.
    Uncut,
}

impl LabelReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Pushed,
        Self::Swapped,
        Self::Popped,
        Self::OtherType,
        Self::NotOurs,
        Self::Truncated,
        Self::Reserved,
        Self::Unknown,
        Self::Expired,
        Self::LinkDown,
        Self::Unsettled,
        Self::NotIp,
        Self::NoRoom,
        Self::Uncut,
    ];

    /// Its name in `status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Swapped => "swapped",
            Self::Popped => "popped",
            Self::OtherType => "other-type",
            Self::NotOurs => "not-ours",
            Self::Truncated => "truncated",
            Self::Reserved => "reserved-label",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::LinkDown => "link-down",
            Self::Unsettled => "unsettled",
            Self::NotIp => "not-ip",
            Self::NoRoom => "no-room",
            Self::Uncut => "uncut",
        }
    }
}

/// Tables and counters of label switching, shared by the programs of all links of a node.
#[derive(Debug)]
pub struct LabelSwitching {
    tables: LabelTableWriter,
    labels: BpfMap,
    paths: BpfMap,
    links: BpfMap,
    ports: BpfMap,
    link_counts: BpfMap,
    label_counts: BpfMap,
    path_counts: BpfMap,
}

impl LabelSwitching {
    /// Makes empty tables.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system refuses one: without `CAP_BPF`, or for want of memory.
    pub fn new() -> Result<Self, ForwardingError> {
        if cfg!(target_endian = "big") {
            return Err(ForwardingError::Endian);
        }
        let area = |name, words: u32| SharedMap::new(name, words * 4, 1);
        let labels = area("labels", LabelAreas::LABEL_WORDS)?;
        let paths = area("paths", LabelAreas::PATH_WORDS)?;
        let links = area("links", LabelAreas::LINK_WORDS)?;
        let counts = |name, entries| {
            let map = BpfMap::new(MapType::PerProcessorArray, name, 4, COUNT_LEN, entries);
            map.map_err(failed("make a map of counters"))
        };
        let ports = BpfMap::new(MapType::Interfaces, "ports", 4, 4, LABEL_LINKS_MAX);
        let areas = LabelAreas { labels: labels.words, paths: paths.words, links: links.words };
        Ok(Self {
            tables: LabelTableWriter::new(areas),
            labels: labels.map,
            paths: paths.map,
            links: links.map,
            ports: ports.map_err(failed("make a map of interfaces"))?,
            link_counts: counts("link_counts", LABEL_LINKS_MAX * REASON_ROOM)?,
            label_counts: counts("label_counts", LABELS_MAX)?,
            path_counts: counts("path_counts", LABEL_PATHS_MAX)?,
        })
    }

    /// The writer of labels, paths and links: what it writes is in force at once.
    pub const fn tables(&mut self) -> &mut LabelTableWriter {
        &mut self.tables
    }

    /// A reader of the same tables, for a graph beside the programs.
    pub fn table(&self) -> LabelTable {
        self.tables.table()
    }

    /// Sets the interface to which [`Self::swap`] redirects frames of a link.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if there is no such interface.
    pub fn set_port(&self, link: u32, interface: u32) -> Result<(), ForwardingError> {
        let set = self.ports.set(&link.to_ne_bytes(), &interface.to_ne_bytes());
        set.map_err(failed("set a link's interface"))
    }

    /// Loads the program for the ingress of the mesh interface's peer, or of a bridge port; it counts as
    /// `link`.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn push(&self, link: u32) -> Result<BpfProgram, ForwardingError> {
        self.load(ProgramType::Ingress, "gw_label_push", PUSH, link)
    }

    /// Loads the program for the ingress of a link.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn switch(&self, link: u32) -> Result<BpfProgram, ForwardingError> {
        self.load(ProgramType::Ingress, "gw_label_switch", SWITCH, link)
    }

    /// Loads the program for the driver of a link, before [`Self::switch`]: it swaps labels of
    /// frames of at most an MTU.
    ///
    /// Senders on the link must complete their checksums themselves: behind a driver's program
    /// nothing is known of those left to a device.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn swap(&self, link: u32) -> Result<BpfProgram, ForwardingError> {
        self.load(ProgramType::Xdp, "gw_label_swap", SWAP, link)
    }

    fn load(
        &self,
        kind: ProgramType,
        name: &str,
        program: &[u8],
        link: u32,
    ) -> Result<BpfProgram, ForwardingError> {
        if link >= LABEL_LINKS_MAX {
            return Err(ForwardingError::Index { what: "link", index: link });
        }
        let constants = constants(link).map_err(failed("make a map of constants"))?;
        let linked = CompiledProgram::read(program)?.link(|name| {
            Some(match name {
                "constants" => Symbol::Memory(constants.as_fd()),
                "labels" => Symbol::Memory(self.labels.as_fd()),
                "paths" => Symbol::Memory(self.paths.as_fd()),
                "links" => Symbol::Memory(self.links.as_fd()),
                "ports" => Symbol::Map(self.ports.as_fd()),
                "link_counts" => Symbol::Map(self.link_counts.as_fd()),
                "label_counts" => Symbol::Map(self.label_counts.as_fd()),
                "path_counts" => Symbol::Map(self.path_counts.as_fd()),
                _ => return None,
            })
        })?;
        Ok(BpfProgram::load(kind, name, &linked, 0)?)
    }

    /// Numbers of frames that arrived on a link by outcome, over all processors; octets count whole
    /// frames as they arrived.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn link_counts(
        &self,
        link: u32,
    ) -> Result<Vec<(LabelReason, PacketCount)>, ForwardingError> {
        let count = |(number, reason)| {
            let number: u32 = link * REASON_ROOM + number;
            total(&self.link_counts, number).map(|count| (reason, count))
        };
        (0..).zip(LabelReason::ALL).map(count).collect()
    }

    /// Number of frames that were swapped or popped by a label, over all processors; 0 if there is
    /// no such label.
    ///
    /// A label that takes the place of an earlier one goes on from its number.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn label_count(&self, label: u32) -> Result<PacketCount, ForwardingError> {
        match self.tables.table().place_of_label(label) {
            Some(place) => total(&self.label_counts, place),
            None => Ok(PacketCount::default()),
        }
    }

    /// Number of frames that were sent by a path, over all processors; 0 if there is no such path.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn path_count(&self, key: PathKey) -> Result<PacketCount, ForwardingError> {
        match self.tables.table().place_of_path(key) {
            Some(place) => total(&self.path_counts, place),
            None => Ok(PacketCount::default()),
        }
    }
}

/// The constants of a link's program, which the kernel checks it with.
fn constants(link: u32) -> std::io::Result<BpfMap> {
    // Loads are not reordered with loads on x86-64.
    let needs_fence = u32::from(cfg!(not(target_arch = "x86_64")));
    let value = [link.to_ne_bytes(), needs_fence.to_ne_bytes()].concat();
    let map = BpfMap::new(MapType::Constants, "constants", 4, CONSTANTS_LEN, 1)?;
    map.set(&0_u32.to_ne_bytes(), &value)?;
    map.freeze()?;
    Ok(map)
}

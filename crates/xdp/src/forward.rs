//! Forwarding in the driver: tables that all links share, and a program for each link.

mod maps;
mod reports;
mod rules;

pub use maps::{ForwardingMaps, LinkProgram};
pub use reports::DriverReason;
pub use rules::{ForwardingRule, LimitIndex, RuleAction, RuleMatch};

use crate::compiled::CompiledError;
use crate::direct::Direct;
use crate::layout::{
    COUNT_LEN, DIRECT_ENTRIES, ForwardingReason, HOP_ELSEWHERE, HOP_GROUP, HOP_LEN, HOP_NEIGHBOUR,
    LIMIT_LEN, LIMITED_LEN, LINK_LEN, LINKS_MAX, NEIGHBOUR_KEY_LEN, NEIGHBOUR_LEN, NOTE_USE,
    OWN_BITS, REASON_ROOM, RULE_COUNTS_MAX, RULE_LIMITS_MAX, USED, own_bit,
};
use crate::map::{BpfMap, MapType};
use crate::program::{BpfProgram, LoadError};
use gatewright_tables::{
    BUCKETS, GroupMember, HopGroupIndex, HopGroupsWriter, HopIndex, Prefix, RoutesFull,
    RoutesWriter, SharedWords,
};
use reports::ReportMaps;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The size of the tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableSizes {
    /// Next hops.
    pub hops: u32,
    /// Groups of next hops, 4 KiB each.
    pub hop_groups: u32,
    /// Neighbours of all links.
    pub neighbours: u32,
    /// IPv4 routes of a trie; 0 for a DIR-24-8 table with `groups`, which takes 32 MiB.
    pub routes4: u32,
    /// /24 networks with longer prefixes in a DIR-24-8 table, 512 octets each.
    pub groups: u16,
    /// IPv6 routes.
    pub routes6: u32,
    /// Devices whose reports drivers send on, some 2 KiB each; 0 if they send on none.
    pub devices: u32,
}

/// Why forwarding cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardingError {
    /// The system refuses a map.
    #[error("cannot {action}: {source}")]
    Map {
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refuses the program.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The program cannot be linked.
    #[error(transparent)]
    Compiled(#[from] CompiledError),
    /// More routes than the tables have room for.
    #[error(transparent)]
    Full(#[from] RoutesFull),
    /// A next hop or link beyond the size of its table.
    #[error("there is no room for {what} {index}")]
    Index {
        /// The kind of the index: `next hop` or `link`.
        what: &'static str,
        /// Its index.
        index: u32,
    },
    /// Programs are compiled for little-endian machines only.
    #[error("XDP forwarding is for little-endian machines")]
    Endian,
}

/// A next hop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// The egress link's index.
    pub port: u32,
    /// The egress link's MTU.
    pub mtu: u32,
    /// The egress link's own address.
    pub source: [u8; 6],
    /// The neighbour.
    pub neighbour: HopNeighbour,
}

/// The neighbour behind a next hop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HopNeighbour {
    /// The destination itself, found among the link's neighbours.
    Destination,
    /// A router with this link address.
    Router([u8; 6]),
    /// A router whose link address is not known: packets go up.
    Unknown,
    /// Any, on a link that takes no frames from a driver: packets go up.
    Elsewhere,
}

/// A link as its program needs it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkPort {
    /// Its index, below [`LINKS_MAX`].
    pub index: u32,
    /// Its own address.
    pub mac: [u8; 6],
}

/// Packets and their octets, from the IP header on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub octets: u64,
}

/// IPv4 routes in one of two forms.
#[derive(Debug)]
enum Routes4 {
    Direct(Box<Direct>),
    Trie(Box<RoutesWriter<Ipv4Addr>>),
}

/// A map and its memory.
#[derive(Debug)]
pub(crate) struct SharedMap {
    pub(crate) map: BpfMap,
    pub(crate) words: SharedWords,
}

/// Tables and counters of forwarding, shared by the programs of all links.
#[derive(Debug)]
pub struct Forwarding {
    sizes: TableSizes,
    links: SharedMap,
    own: SharedMap,
    rules: SharedMap,
    limits: SharedMap,
    hops: SharedMap,
    groups: HopGroupsWriter,
    routes4: Routes4,
    /// `direct`, `groups`, `routes4`, `routes6`, `members`.
    areas: [BpfMap; 5],
    routes6: RoutesWriter<Ipv6Addr>,
    neighbours: BpfMap,
    ports: BpfMap,
    counts: BpfMap,
    hop_counts: BpfMap,
    rule_counts: BpfMap,
    limited_packets: BpfMap,
    reports: ReportMaps,
}

impl Forwarding {
    /// Makes empty tables.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system refuses one: without `CAP_BPF`, or for want of memory.
    pub fn new(sizes: TableSizes) -> Result<Self, ForwardingError> {
        if cfg!(target_endian = "big") {
            return Err(ForwardingError::Endian);
        }
        let words6 = RoutesWriter::<Ipv6Addr>::words(sizes.routes6);
        let words6 = words6.ok_or(RoutesFull { routes_max: sizes.routes6 })?;
        let area6 = SharedMap::new("routes6", words6 * 4, 1)?;
        let direct = if sizes.routes4 == 0 { DIRECT_ENTRIES * 2 } else { 8 };
        let direct = SharedMap::new("direct", direct, 1)?;
        let groups = SharedMap::new("groups", Direct::group_words(sizes.groups.max(1)) * 4, 1)?;
        let words4 = match sizes.routes4 {
            0 => 8,
            routes => {
                RoutesWriter::<Ipv4Addr>::words(routes).ok_or(RoutesFull { routes_max: routes })?
            }
        };
        let area4 = SharedMap::new("routes4", words4 * 4, 1)?;
        let members = sizes.hop_groups.checked_mul(BUCKETS * 4);
        let members = members.ok_or(ForwardingError::Index {
            what: "group of next hops",
            index: sizes.hop_groups,
        })?;
        let members = SharedMap::new("members", members.max(8), 1)?;
        let routes4 = match sizes.routes4 {
            0 => Routes4::Direct(Box::new(Direct::new(direct.words, groups.words))),
            routes => Routes4::Trie(Box::new(RoutesWriter::in_words(&area4.words, routes)?)),
        };
        let map = |kind, name, key, value: usize, entries| {
            let value = u32::try_from(value).unwrap_or(u32::MAX);
            BpfMap::new(kind, name, key, value, entries).map_err(failed("make a map"))
        };
        let key = u32::try_from(NEIGHBOUR_KEY_LEN).unwrap_or(u32::MAX);
        let each = MapType::PerProcessorArray;
        Ok(Self {
            links: SharedMap::new("links", LINKS_MAX * LINK_LEN, 1)?,
            own: SharedMap::new("own", OWN_BITS / 8, 1)?,
            rules: SharedMap::new("rules", rules::LEN, 1)?,
            limits: SharedMap::new("limits", LIMIT_LEN * u32::from(RULE_LIMITS_MAX), 1)?,
            hops: SharedMap::new("hops", HOP_LEN, sizes.hops)?,
            routes6: RoutesWriter::in_words(&area6.words, sizes.routes6)?,
            neighbours: map(MapType::Hash, "neighbours", key, NEIGHBOUR_LEN, sizes.neighbours)?,
            ports: map(MapType::Interfaces, "ports", 4, 4, LINKS_MAX)?,
            counts: map(each, "counts", 4, COUNT_LEN, LINKS_MAX * REASON_ROOM)?,
            hop_counts: map(each, "hop_counts", 4, COUNT_LEN, sizes.hops)?,
            rule_counts: map(each, "rule_counts", 4, COUNT_LEN, RULE_COUNTS_MAX)?,
            limited_packets: map(each, "limited_packets", 4, LIMITED_LEN, 1)?,
            reports: ReportMaps::new(sizes.devices)?,
            groups: HopGroupsWriter::in_words(&members.words),
            areas: [direct.map, groups.map, area4.map, area6.map, members.map],
            sizes,
            routes4,
        })
    }

    /// Loads a program for a link that hands what goes up to the kernel.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Load`] if the kernel refuses it.
    pub fn program(&self, link: &LinkPort) -> Result<BpfProgram, ForwardingError> {
        self.set_mac(link.index, link.mac)?;
        self.maps()?.program(&LinkProgram::passing(link.index))
    }

    /// The maps, for whoever loads and attaches programs.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the process has no descriptors left.
    pub fn maps(&self) -> Result<ForwardingMaps, ForwardingError> {
        let words4 = match &self.routes4 {
            Routes4::Direct(_) => 0,
            Routes4::Trie(_) => RoutesWriter::<Ipv4Addr>::words(self.sizes.routes4).unwrap_or(0),
        };
        let [direct, groups, routes4, routes6, members] = &self.areas;
        let [links, own, rules, limits, hops] =
            [&self.links, &self.own, &self.rules, &self.limits, &self.hops]
                .map(|shared| &shared.map);
        let (reports, of_reports) = self.reports.parts();
        let routes = [direct, groups, routes4, routes6, members];
        let tables = [links, own, rules, limits].into_iter().chain(routes).chain([reports, hops]);
        let counts = [&self.counts, &self.hop_counts, &self.rule_counts, &self.limited_packets];
        let others = [&self.neighbours, &self.ports].into_iter().chain(counts).chain(of_reports);
        let shape = self.reports.shape();
        ForwardingMaps::of(&self.sizes, (words4, shape), tables.chain(others))
    }

    /// Sets a link's own address; frames to others go up.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] for a link beyond [`LINKS_MAX`].
    pub fn set_mac(&self, link: u32, mac: [u8; 6]) -> Result<(), ForwardingError> {
        let mut octets = [0; 12];
        octets.iter_mut().zip(mac).for_each(|(to, from)| *to = from);
        let [front, back, _] = chunks(octets);
        for (word, value) in self.link(link)?.iter().skip(1).zip([front, back]) {
            word.store(value, Ordering::Release);
        }
        Ok(())
    }

    /// The words of a link's record.
    fn link(&self, link: u32) -> Result<&[AtomicU32], ForwardingError> {
        check("link", link, LINKS_MAX)?;
        let len = LINK_LEN / 4;
        let [start, end] =
            [link * len, (link + 1) * len].map(|at| usize::try_from(at).unwrap_or(0));
        Ok(self.links.words.all().get(start..end).unwrap_or(&[]))
    }

    /// Sets the next hop of an IPv4 prefix, which `routes` has already.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Full`] if the trie is full; packets of that prefix then go by a shorter
    /// one, so the caller makes larger tables.
    pub fn insert4(
        &mut self,
        prefix: Prefix<Ipv4Addr>,
        hop: HopIndex,
        routes: &RoutesWriter<Ipv4Addr>,
    ) -> Result<(), ForwardingError> {
        match &mut self.routes4 {
            Routes4::Direct(direct) => direct.insert(prefix, hop, routes),
            Routes4::Trie(trie) => drop(trie.insert(prefix, hop)?),
        }
        Ok(())
    }

    /// Removes an IPv4 prefix, which `routes` no longer has.
    pub fn remove4(&mut self, prefix: Prefix<Ipv4Addr>, routes: &RoutesWriter<Ipv4Addr>) {
        match &mut self.routes4 {
            Routes4::Direct(direct) => direct.remove(prefix, routes),
            Routes4::Trie(trie) => drop(trie.remove(prefix)),
        }
    }

    /// The writer of IPv6 routes.
    pub fn routes6(&mut self) -> &mut RoutesWriter<Ipv6Addr> {
        &mut self.routes6
    }

    /// The DIR-24-8 table, if there is one.
    pub fn direct(&mut self) -> Option<&mut Direct> {
        match &mut self.routes4 {
            Routes4::Direct(direct) => Some(direct),
            Routes4::Trie(_) => None,
        }
    }

    /// Sets a next hop; `None` removes it, and its packets are passed to the graph.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] beyond the size of the table.
    pub fn set_hop(&mut self, index: HopIndex, hop: Option<&Hop>) -> Result<(), ForwardingError> {
        check("next hop", index.0, self.sizes.hops)?;
        let mut macs = [0; 12];
        let (destination, source) = macs.split_at_mut(6);
        let mut flags = 0;
        if let Some(hop) = hop {
            source.copy_from_slice(&hop.source);
            match hop.neighbour {
                HopNeighbour::Destination => flags = HOP_NEIGHBOUR,
                HopNeighbour::Router(mac) => destination.copy_from_slice(&mac),
                HopNeighbour::Unknown => {}
                HopNeighbour::Elsewhere => flags = HOP_ELSEWHERE,
            }
        }
        let (port, mtu) = hop.map_or((0, 0), |hop| (hop.port, hop.mtu));
        self.write_hop(index, [flags, port, mtu], macs);
        Ok(())
    }

    /// Makes a next hop one of several: each flow has its own of the group ([`Self::set_group`]).
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] beyond the size of a table.
    pub fn set_hop_to_group(
        &mut self,
        index: HopIndex,
        group: HopGroupIndex,
    ) -> Result<(), ForwardingError> {
        check("next hop", index.0, self.sizes.hops)?;
        check("group of next hops", group.0, self.sizes.hop_groups)?;
        self.write_hop(index, [HOP_GROUP, group.0, 0], [0; 12]);
        Ok(())
    }

    /// Sets the next hops of a group, of which each flow keeps one. None of them is a group.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] beyond the size of the table.
    pub fn set_group(
        &mut self,
        group: HopGroupIndex,
        members: &[GroupMember],
    ) -> Result<(), ForwardingError> {
        check("group of next hops", group.0, self.sizes.hop_groups)?;
        self.groups.set(group, members);
        Ok(())
    }

    /// Writes the record of a next hop: flags, link and MTU, and both link addresses.
    fn write_hop(&self, index: HopIndex, front: [u32; 3], macs: [u8; 12]) {
        let words = self.hop(index);
        let Some((version, rest)) = words.split_first() else { return };
        // Odd while the rest is being written, so that a program which reads meanwhile knows.
        let next = version.load(Ordering::Relaxed).wrapping_add(1) | 1;
        version.store(next, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in rest.iter().zip(front.into_iter().chain(chunks(macs))) {
            word.store(value, Ordering::Relaxed);
        }
        version.store(next.wrapping_add(1), Ordering::Release);
    }

    /// Notes from now on whether packets go by a next hop's router, or no longer.
    pub fn note_router_use(&self, index: HopIndex, notes: bool) {
        if let Some(used) = self.router_use(index) {
            used.store(if notes { NOTE_USE } else { 0 }, Ordering::Release);
        }
    }

    /// Whether packets have gone by a next hop's router since it is noted, or since the last time.
    pub fn take_router_use(&self, index: HopIndex) -> bool {
        let taken = |used: &AtomicU32| {
            used.compare_exchange(USED, NOTE_USE, Ordering::AcqRel, Ordering::Relaxed)
        };
        self.router_use(index).is_some_and(|used| taken(used).is_ok())
    }

    /// The word of a next hop in which its program notes the use.
    fn router_use(&self, index: HopIndex) -> Option<&AtomicU32> {
        const USE: usize = 7;
        self.hop(index).get(USE)
    }

    /// The words of a next hop's record.
    fn hop(&self, index: HopIndex) -> &[AtomicU32] {
        let len = usize::try_from(HOP_LEN / 4).unwrap_or(0);
        let start = usize::try_from(index.0).unwrap_or(usize::MAX).saturating_mul(len);
        let words = self.hops.words.all();
        words.get(start..start.saturating_add(len)).unwrap_or(&[])
    }

    /// As [`Self::set_neighbour`]; notes from now on whether packets are sent to it.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn note_neighbour_use(
        &self,
        port: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), ForwardingError> {
        self.put_neighbour(port, address, Some(mac), NOTE_USE)
    }

    /// Whether packets were sent to a neighbour since that is noted, or since the last time. One
    /// that is not there has none.
    pub fn take_neighbour_use(&self, port: u32, address: IpAddr) -> bool {
        let Ok(value) = self.neighbours.get(&neighbour_key(port, address)) else { return false };
        let Some((mac, rest)) = value.split_first_chunk() else { return false };
        let is_used =
            rest.first_chunk().is_some_and(|used| u32::from(u16::from_ne_bytes(*used)) == USED);
        is_used && self.note_neighbour_use(port, address, *mac).is_ok()
    }

    /// Sets the link address of a neighbour on a link; `None` takes it away.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if there is no room.
    pub fn set_neighbour(
        &self,
        port: u32,
        address: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> Result<(), ForwardingError> {
        self.put_neighbour(port, address, mac, 0)
    }

    fn put_neighbour(
        &self,
        port: u32,
        address: IpAddr,
        mac: Option<[u8; 6]>,
        noted: u32,
    ) -> Result<(), ForwardingError> {
        let key = neighbour_key(port, address);
        let Some(mac) = mac else {
            return match self.neighbours.remove(&key) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other.map_err(failed("remove a neighbour")),
            };
        };
        let mut value = [0; NEIGHBOUR_LEN];
        let noted = u16::try_from(noted).unwrap_or(0);
        let octets = mac.into_iter().chain(noted.to_ne_bytes());
        value.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        self.neighbours.set(&key, &value).map_err(failed("add a neighbour"))
    }

    /// Sets the interface of a link, to which frames are redirected.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if there is no such interface.
    pub fn set_port(&self, link: u32, interface: u32) -> Result<(), ForwardingError> {
        let set = self.ports.set(&link.to_ne_bytes(), &interface.to_ne_bytes());
        set.map_err(failed("set a link's interface"))
    }

    /// Removes the interface of a link: what is routed there is dropped, until its next hops say
    /// otherwise.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system refuses it.
    pub fn remove_port(&self, link: u32) -> Result<(), ForwardingError> {
        match self.ports.remove(&link.to_ne_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(failed("remove a link's interface")),
        }
    }

    /// Passes packets to the graph, IPv4 and IPv6 apart: those that a link receives, and those that
    /// it would send.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] for a link beyond [`LINKS_MAX`].
    pub fn look_at(
        &self,
        link: u32,
        received: [bool; 2],
        sent: [bool; 2],
    ) -> Result<(), ForwardingError> {
        let bits = received.into_iter().chain(sent);
        let up = (0..).zip(bits).fold(0, |up, (bit, is_up)| up | u32::from(is_up) << bit);
        if let Some(word) = self.link(link)?.first() {
            word.store(up, Ordering::Release);
        }
        Ok(())
    }

    /// Sets the source addresses whose packets are passed to the graph: this host's, and its
    /// subnets' broadcast addresses.
    pub fn set_own(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        const LOW: u128 = u32::MAX as u128;
        let mut bits = vec![0_u32; self.own.words.all().len()];
        for address in addresses {
            let words = match address {
                IpAddr::V4(address) => [address.to_bits(), 0, 0, 0],
                IpAddr::V6(address) => {
                    let bits = address.to_bits();
                    [96, 64, 32, 0].map(|shift| u32::try_from(bits >> shift & LOW).unwrap_or(0))
                }
            };
            let bit = own_bit(words);
            if let Some(word) = bits.get_mut(usize::try_from(bit / 32).unwrap_or(usize::MAX)) {
                *word |= 1 << (bit % 32);
            }
        }
        for (word, bits) in self.own.words.all().iter().zip(bits) {
            word.store(bits, Ordering::Release);
        }
    }

    /// Numbers of a link's frames by outcome, over all processors.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn counts(
        &self,
        link: u32,
    ) -> Result<Vec<(ForwardingReason, PacketCount)>, ForwardingError> {
        let count = |(index, reason)| {
            let index = link * REASON_ROOM + index;
            total(&self.counts, index).map(|count| (reason, count))
        };
        (0..).zip(ForwardingReason::ALL).map(count).collect()
    }

    /// Number of packets forwarded by a next hop, over all processors.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn hop_count(&self, hop: HopIndex) -> Result<PacketCount, ForwardingError> {
        total(&self.hop_counts, hop.0)
    }
}

impl SharedMap {
    pub(crate) fn new(name: &str, value_len: u32, entries: u32) -> Result<Self, ForwardingError> {
        let map = BpfMap::new(MapType::SharedArray, name, 4, value_len, entries);
        let map = map.map_err(failed("make a table"))?;
        let words = map.words().map_err(failed("map a table's memory"))?;
        Ok(Self { map, words })
    }
}

/// The sum of a counter over all processors.
pub(crate) fn total(map: &BpfMap, index: u32) -> Result<PacketCount, ForwardingError> {
    let values = map.get(&index.to_ne_bytes()).map_err(failed("read a counter"))?;
    let (counts, _) = values.as_chunks::<COUNT_LEN>();
    Ok(counts.iter().fold(PacketCount::default(), |sum, count| {
        let (packets, octets) = count.split_at(8);
        let number = |octets: &[u8]| octets.try_into().map_or(0, u64::from_ne_bytes);
        PacketCount {
            packets: sum.packets.wrapping_add(number(packets)),
            octets: sum.octets.wrapping_add(number(octets)),
        }
    }))
}

/// The key of a neighbour on a link.
fn neighbour_key(port: u32, address: IpAddr) -> Vec<u8> {
    let mut key = port.to_ne_bytes().to_vec();
    match address {
        IpAddr::V4(address) => key.extend(address.octets()),
        IpAddr::V6(address) => key.extend(address.octets()),
    }
    key.resize(NEIGHBOUR_KEY_LEN, 0);
    key
}

/// Octets as they lie in words.
fn chunks(octets: [u8; 12]) -> [u32; 3] {
    let (words, _) = octets.as_chunks::<4>();
    let word = |at: usize| words.get(at).copied().map_or(0, u32::from_ne_bytes);
    [word(0), word(1), word(2)]
}

fn check(what: &'static str, index: u32, end: u32) -> Result<(), ForwardingError> {
    if index < end { Ok(()) } else { Err(ForwardingError::Index { what, index }) }
}

pub(crate) fn failed(action: &'static str) -> impl Fn(io::Error) -> ForwardingError {
    move |source| ForwardingError::Map { action, source }
}

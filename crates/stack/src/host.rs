//! State that the layers of a host share: its interfaces and its one router.
//!
//! The control side owns a [`Host`] and changes it. Each worker reads a [`View`] of it without
//! waiting: routes in the mapped tables at once, the rest at its next refresh ([`View::refresh`]).
//! A layer reports what it learns from the network as an [`Event`]; the control side acts upon it.

mod event;
mod follower;
mod hop_groups;
mod own;
mod records;
mod shared;
mod sources;

pub use event::{Event, Lease, RouterPreference};
pub use follower::RouteFollower;
pub use hop_groups::{HopShare, ROUTE_HOPS_MAX, WeightedHop};

use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_tables::{
    CounterSlots, Flow, HopGroupIndex, HopIndex, MapWriter, Prefix, RegionError, Routes,
    RoutesFull, Tables, TablesWriter, Wakers,
    records::{Neighbour, NeighbourKey, Published},
};
use gatewright_wire::MacAddress;
use hop_groups::HopGroupSet;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// An address of an interface with the prefix of its subnet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Address {
    /// The address itself.
    pub ip: IpAddr,
    /// Its prefix length in bits.
    pub prefix_len: u8,
    /// Whether it may be used.
    pub state: AddressState,
}

impl Address {
    /// Whether `ip` is in its subnet.
    pub fn covers(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                Prefix::new(own, self.prefix_len).is_ok_and(|subnet| subnet.contains(ip))
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                Prefix::new(own, self.prefix_len).is_ok_and(|subnet| subnet.contains(ip))
            }
            _ => false,
        }
    }
}

/// The permitted use of an address (RFC 4862 §5.5.4).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum AddressState {
    /// Being checked for duplicates: not to be used yet.
    Tentative,
    /// In use.
    #[default]
    Preferred,
    /// Still answered to, no longer a source for new exchanges.
    Deprecated,
    /// Another host has it: not used.
    Duplicate,
}

/// One link as the network layers see it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent setting of the link")]
pub struct Interface {
    /// The link.
    pub link: LinkIndex,
    /// Its name in the gateway's description.
    pub name: String,
    /// Its link-layer address, if its link layer has addresses.
    pub link_address: LinkAddress,
    /// Octets of the largest packet, without the link header.
    pub mtu: u32,
    /// Its addresses, of both families.
    pub addresses: Vec<Address>,
    /// Whether frames to other stations are passed up too, marked as such.
    pub promiscuous: bool,
    /// Whether frames can be sent and received.
    pub up: bool,
    /// Whether packets that arrive here for other hosts are forwarded.
    pub forwarding: bool,
    /// Its router advertisements to hosts (RFC 4861 §6.2), if it sends any.
    pub advertise: Option<Advertise>,
    /// Whether it configures itself from router advertisements (RFC 4862) and solicits them.
    pub autoconfigure: bool,
    /// Whether it requests an IPv4 address from a DHCP server (RFC 2131).
    pub dhcp: bool,
    /// Whether the kernel is the host here: it claims addresses, resolves neighbours, joins groups
    /// and answers, and we only forward.
    pub shared: bool,
}

/// The content of router advertisements on a link (RFC 4861 §6.2.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Advertise {
    /// Longest time between two unsolicited advertisements.
    pub interval: Duration,
    /// How long hosts may use this router.
    pub lifetime: Duration,
    /// Hop limit that hosts should start with.
    pub hop_limit: u8,
    /// Whether the link's MTU is advertised.
    pub mtu: bool,
}

impl Interface {
    /// Its link-layer address, if that is one of Ethernet.
    pub fn ethernet_address(&self) -> Option<MacAddress> {
        self.link_address.to_ethernet().map(MacAddress)
    }

    /// Its first usable IPv4 address.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.usable().find_map(|address| match address.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
    }

    /// Its link-local IPv6 address, if usable.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.usable().find_map(|address| match address.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
            _ => None,
        })
    }

    /// Its addresses that may be used.
    pub fn usable(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().filter(|address| {
            matches!(address.state, AddressState::Preferred | AddressState::Deprecated)
        })
    }

    /// The state of its address `ip`, if it has it.
    pub fn state(&self, ip: IpAddr) -> Option<AddressState> {
        self.addresses.iter().find(|address| address.ip == ip).map(|address| address.state)
    }

    /// Whether `ip` is one of its usable addresses.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.usable().any(|address| address.ip == ip)
    }
}

/// The router's decision for a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// To this host: one of its addresses.
    Local,
    /// To everyone on a link, this host included; never forwarded.
    Broadcast(LinkIndex),
    /// To the destination itself, which is on the link.
    Connected(LinkIndex),
    /// To a gateway on the link.
    Via {
        /// The link.
        link: LinkIndex,
        /// The next hop.
        gateway: IpAddr,
    },
    /// To one of several next hops, by the packet's flow.
    Group(HopGroupIndex),
    /// Nowhere, silently.
    Blackhole,
    /// By the kernel beside us, which decides by more than we follow. It has such packets of shared
    /// links already; those of other links have no route here.
    Kernel,
    /// Nowhere, with an ICMP error *prohibited*.
    Prohibited,
    /// No route: an ICMP error reports it.
    None,
}

/// Maximum next hops of a host, counted by kind, link and gateway.
const HOPS_MAX: u32 = 65_536;

/// Maximum interfaces of a host: links, virtual ones too.
const INTERFACES_MAX: u32 = 256;

/// Maximum addresses of a host.
const ADDRESSES_MAX: u32 = 4096;

/// Maximum neighbours in the shared table, which costs memory for those in use; each link's cache
/// has its own limit.
const NEIGHBOURS_MAX: u32 = 262_144;

/// The control side of a host: changes its interfaces and routes.
#[derive(Debug)]
pub struct Host {
    interfaces: Vec<Interface>,
    tables: TablesWriter,
    hops: Vec<Route>,
    hop_of: HashMap<Route, HopIndex>,
    groups: HopGroupSet,
    /// Whether changes are not published one by one: [`Host::change`] publishes them together.
    quiet: bool,
    /// A copy of the routes elsewhere.
    follower: Option<Box<dyn RouteFollower>>,
}

/// Why a route cannot be added.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The table of routes is full.
    #[error(transparent)]
    Routes(#[from] RoutesFull),
    /// The table of next hops is full.
    #[error("a host has at most {HOPS_MAX} next hops")]
    Hops,
    /// The table of groups of next hops is full.
    #[error("a host has at most {} groups of next hops", hop_groups::GROUPS_MAX)]
    Groups,
    /// A route has too many next hops.
    #[error("a route has at most {ROUTE_HOPS_MAX} next hops")]
    GroupHops,
    /// The table of interfaces is full.
    #[error("a host has at most {INTERFACES_MAX} interfaces")]
    Interfaces,
    /// The table of addresses is full.
    #[error("a host has at most {ADDRESSES_MAX} addresses")]
    Addresses,
    /// The kernel's table that divides shared links is full.
    #[error("the kernel has no room for a further prefix of shared links")]
    Division,
    /// The memory for the tables could not be allocated.
    #[error("no memory for a table of {0} routes of each family")]
    Memory(u32),
}

impl Host {
    /// A host without interfaces, with room for `routes_max` routes of each family. Its tables are
    /// in this process's own memory; `random` keeps outsiders from choosing neighbours that collide
    /// there.
    ///
    /// # Errors
    ///
    /// [`HostError::Memory`] if the tables cannot be mapped.
    pub fn with_random(routes_max: u32, random: [u64; 2]) -> Result<Self, HostError> {
        let tables = TablesWriter::in_memory(&Self::capacities(routes_max), random);
        tables.map(Self::over).map_err(|_: RegionError| HostError::Memory(routes_max))
    }

    /// As [`Self::with_random`], with a fixed secret: for tests and simulations, which have no
    /// attackers.
    ///
    /// # Errors
    ///
    /// As [`Self::with_random`].
    pub fn new(routes_max: u32) -> Result<Self, HostError> {
        Self::with_random(routes_max, [0; 2])
    }

    /// A reader of this host, for one worker.
    pub fn view(&self) -> View {
        View::of(self.tables.readers())
    }

    /// Its tables, to read.
    pub fn tables(&self) -> Tables {
        self.tables.readers()
    }

    /// The writers of the attachments and of the permanent neighbours, which belong to the control
    /// side.
    pub const fn tables_mut(&mut self) -> &mut TablesWriter {
        &mut self.tables
    }

    /// The only writer of learnt neighbours, for the worker that learns them.
    pub const fn take_neighbours(&mut self) -> Option<MapWriter<NeighbourKey, Neighbour>> {
        self.tables.neighbours.take()
    }

    /// Slots for the counters of the workers, which are the data plane's.
    pub fn counter_slots(&mut self) -> CounterSlots {
        self.tables.counters.slots()
    }

    /// The sleep flags of the workers.
    pub fn wakers(&self) -> Wakers {
        self.tables.wakers.clone()
    }

    /// Its interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Adds an interface with the routes of its addresses.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a table is full.
    pub fn add_interface(&mut self, mut interface: Interface) -> Result<(), HostError> {
        let addresses = std::mem::take(&mut interface.addresses);
        let link = interface.link;
        if u32::from(link.0) >= INTERFACES_MAX {
            return Err(HostError::Interfaces);
        }
        self.interfaces.push(interface);
        for address in addresses {
            self.add_address(link, address)?;
        }
        self.publish();
        Ok(())
    }

    /// Changes an interface in place by `change`, which must not change its addresses.
    pub fn change_interface(&mut self, link: LinkIndex, change: impl FnOnce(&mut Interface)) {
        if let Some(interface) = self.interfaces.iter_mut().find(|found| found.link == link) {
            change(interface);
            self.publish();
        }
    }

    /// Sets the addresses of an interface without changing routes. It is for a host whose routes,
    /// also those to its own addresses, come from the kernel.
    pub fn set_addresses(&mut self, link: LinkIndex, addresses: Vec<Address>) {
        let found = self.interfaces.iter_mut().find(|found| found.link == link);
        if let Some(interface) = found.filter(|found| found.addresses != addresses) {
            interface.addresses = addresses;
            self.publish();
        }
    }

    /// Adds an address, or changes the state of an existing one. Its routes follow: to itself, to
    /// its subnet, and for IPv4 to the subnet's broadcast address.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a table is full.
    pub fn add_address(&mut self, link: LinkIndex, address: Address) -> Result<(), HostError> {
        let count: usize = self.interfaces.iter().map(|own| own.addresses.len()).sum();
        if u32::try_from(count).is_ok_and(|count| count >= ADDRESSES_MAX) {
            return Err(HostError::Addresses);
        }
        let Some(interface) = self.interfaces.iter_mut().find(|found| found.link == link) else {
            return Ok(());
        };
        interface.addresses.retain(|old| old.ip != address.ip);
        interface.addresses.push(address);
        let usable = interface.has(address.ip);
        match address.ip {
            IpAddr::V4(ip) if usable => {
                if let Ok(subnet) = Prefix::new(ip, address.prefix_len) {
                    self.add_route(subnet, Route::Connected(link))?;
                    if let Some(broadcast) = broadcast(subnet) {
                        self.add_route(Prefix::host(broadcast), Route::Broadcast(link))?;
                    }
                }
                self.add_route(Prefix::host(ip), Route::Local)?;
            }
            IpAddr::V6(ip) if usable => {
                // Link-local destinations are reached by the link they are scoped to, not by route.
                if !ip.is_unicast_link_local()
                    && let Ok(subnet) = Prefix::new(ip, address.prefix_len)
                {
                    self.add_route6(subnet, Route::Connected(link))?;
                }
                self.add_route6(Prefix::host(ip), Route::Local)?;
            }
            IpAddr::V4(ip) => self.remove_local4(ip),
            IpAddr::V6(ip) => self.remove_local6(ip),
        }
        self.publish();
        Ok(())
    }

    /// Removes an address with its routes.
    pub fn remove_address(&mut self, link: LinkIndex, ip: IpAddr) {
        let Some(interface) = self.interfaces.iter_mut().find(|found| found.link == link) else {
            return;
        };
        let Some(index) = interface.addresses.iter().position(|address| address.ip == ip) else {
            return;
        };
        let address = interface.addresses.remove(index);
        let still_on_link = |other: &Address| same_subnet(other, &address);
        let subnet_stays = interface.addresses.iter().any(still_on_link);
        match ip {
            IpAddr::V4(ip) => {
                self.remove_local4(ip);
                if let (false, Ok(subnet)) = (subnet_stays, Prefix::new(ip, address.prefix_len)) {
                    self.remove_route(subnet);
                    if let Some(broadcast) = broadcast(subnet) {
                        self.remove_route(Prefix::host(broadcast));
                    }
                }
            }
            IpAddr::V6(ip) => {
                self.remove_local6(ip);
                if let (false, Ok(subnet)) = (subnet_stays, Prefix::new(ip, address.prefix_len)) {
                    self.remove_route6(subnet);
                }
            }
        }
        self.publish();
    }

    /// Removes an interface with its addresses and their routes.
    pub fn remove_interface(&mut self, link: LinkIndex) {
        let own = self.interfaces.iter().find(|own| own.link == link);
        let addresses: Vec<_> = own.into_iter().flat_map(|own| own.addresses.clone()).collect();
        for address in addresses {
            self.remove_address(link, address.ip);
        }
        self.interfaces.retain(|own| own.link != link);
        self.publish();
    }

    /// Makes several changes that workers see at once, except routes, each of which is visible by
    /// itself.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.quiet, true);
        let changed = change(self);
        self.quiet = outer;
        self.publish();
        changed
    }

    fn remove_local4(&mut self, ip: Ipv4Addr) {
        if !self.interfaces.iter().any(|interface| interface.has(ip.into())) {
            self.remove_route(Prefix::host(ip));
        }
    }

    fn remove_local6(&mut self, ip: Ipv6Addr) {
        if !self.interfaces.iter().any(|interface| interface.has(ip.into())) {
            self.remove_route6(Prefix::host(ip));
        }
    }

    /// Routes IPv4 packets for `to` by `route`.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a table is full.
    pub fn add_route(&mut self, to: Prefix<Ipv4Addr>, route: Route) -> Result<(), HostError> {
        let hop = self.hop(route)?;
        let before = self.tables.routes4.insert(to, hop)?;
        self.count_routes(before, Some(hop));
        if let Some(follower) = &mut self.follower {
            follower.insert4(to, hop, &self.tables.routes4);
        }
        Ok(())
    }

    /// Routes IPv6 packets for `to` by `route`.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a table is full.
    pub fn add_route6(&mut self, to: Prefix<Ipv6Addr>, route: Route) -> Result<(), HostError> {
        let hop = self.hop(route)?;
        let before = self.tables.routes6.insert(to, hop)?;
        self.count_routes(before, Some(hop));
        if let Some(follower) = &mut self.follower {
            follower.insert6(to, hop);
        }
        Ok(())
    }

    /// Removes the IPv4 route to exactly `to`.
    pub fn remove_route(&mut self, to: Prefix<Ipv4Addr>) {
        let before = self.tables.routes4.remove(to);
        self.count_routes(before, None);
        if let Some(follower) = &mut self.follower {
            follower.remove4(to, &self.tables.routes4);
        }
    }

    /// Removes the IPv6 route to exactly `to`.
    pub fn remove_route6(&mut self, to: Prefix<Ipv6Addr>) {
        let before = self.tables.routes6.remove(to);
        self.count_routes(before, None);
        if let Some(follower) = &mut self.follower {
            follower.remove6(to);
        }
    }

    /// The IPv4 routes.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix<Ipv4Addr>, Route)> + '_ {
        self.tables.routes4.iter().map(|(to, hop)| (to, self.route_of(hop)))
    }

    /// The IPv6 routes.
    pub fn routes6(&self) -> impl Iterator<Item = (Prefix<Ipv6Addr>, Route)> + '_ {
        self.tables.routes6.iter().map(|(to, hop)| (to, self.route_of(hop)))
    }

    /// The IPv4 route to exactly `to`.
    pub fn route_to(&self, to: Prefix<Ipv4Addr>) -> Option<Route> {
        self.tables.routes4.get(to).map(|hop| self.route_of(hop))
    }

    /// The IPv6 route to exactly `to`.
    pub fn route6_to(&self, to: Prefix<Ipv6Addr>) -> Option<Route> {
        self.tables.routes6.get(to).map(|hop| self.route_of(hop))
    }

    fn route_of(&self, HopIndex(hop): HopIndex) -> Route {
        let hop = usize::try_from(hop).ok().and_then(|hop| self.hops.get(hop));
        hop.copied().unwrap_or(Route::None)
    }

    /// The index of a next hop. Equal next hops share it, and its meaning never changes.
    fn hop(&mut self, route: Route) -> Result<HopIndex, HostError> {
        if let Some(&hop) = self.hop_of.get(&route) {
            return Ok(hop);
        }
        let index = u32::try_from(self.hops.len()).unwrap_or(HOPS_MAX);
        // Written before the first route that names it.
        self.tables.hops.set(index, &records::next_hop(route)).map_err(|_| HostError::Hops)?;
        self.hops.push(route);
        self.hop_of.insert(route, HopIndex(index));
        if let Some(follower) = &mut self.follower {
            follower.add_hop(HopIndex(index), route);
        }
        Ok(HopIndex(index))
    }

    /// Publishes changes to workers.
    fn publish(&mut self) {
        if self.quiet {
            return;
        }
        // The tables have room for all that `add_interface` and `add_address` let in.
        let _there = self.tables.published.set(0, &Published { is_under_way: true });
        records::write(&self.interfaces, &mut self.tables);
        let _there = self.tables.published.set(0, &Published { is_under_way: false });
        self.settle_groups();
    }
}

/// The subnet's last address, if it is not a host address (RFC 3021 for 31 bits).
fn broadcast(subnet: Prefix<Ipv4Addr>) -> Option<Ipv4Addr> {
    let host_bits = 32_u8.checked_sub(subnet.len()).filter(|&bits| bits >= 2)?;
    let hosts = u32::MAX.checked_shr(32 - u32::from(host_bits))?;
    Some(Ipv4Addr::from_bits(subnet.address().to_bits() | hosts))
}

fn same_subnet(one: &Address, other: &Address) -> bool {
    one.prefix_len == other.prefix_len && one.covers(other.ip)
}

/// Whether `ip` is valid on one link only (RFC 4291 §2.5.6, §2.7).
fn scope_is_link(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local()
        || (ip.is_multicast() && matches!(ip.segments(), [0xff01 | 0xff02, ..]))
}

/// A worker's side of a host: read-only, without waiting.
#[derive(Debug)]
pub struct View {
    tables: Tables,
    /// The version of [`Published`] when the interfaces here were read.
    seen: u32,
    generation: u64,
    interfaces: Vec<Interface>,
    /// Buffer for interfaces, until they are known to be consistent.
    spare: Vec<Interface>,
    /// Next hops read so far; they are never removed.
    hops: Vec<Route>,
    /// Data for the source addresses of packets, derived from the interfaces.
    sources: sources::Sources,
}

impl View {
    /// Reads changes of the tables; returns whether there were any. Called between two batches.
    pub fn refresh(&mut self) -> bool {
        let changes = self.tables.published.changes();
        if changes == self.seen {
            return false;
        }
        // Never waits: what is being written right now, the next batch will see.
        let is_whole = |read: Result<Option<Published>, _>| {
            matches!(read, Ok(Some(Published { is_under_way: false })))
        };
        if !is_whole(self.tables.published.get(0))
            || !records::read(&self.tables, &mut self.spare)
            || self.tables.published.changes() != changes
        {
            return false;
        }
        std::mem::swap(&mut self.interfaces, &mut self.spare);
        self.sources.set(&self.interfaces);
        records::read_hops(&self.tables, &mut self.hops);
        self.seen = changes;
        self.generation += 1;
        true
    }

    /// A number that changes when interfaces or next hops do.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// A number that changes when IPv4 routes do.
    pub(crate) fn changes4(&self) -> u32 {
        self.tables.routes4.changes()
    }

    /// A number that changes when IPv6 routes do.
    pub(crate) fn changes6(&self) -> u32 {
        self.tables.routes6.changes()
    }

    /// The IPv4 routes.
    pub(crate) const fn routes4(&self) -> &Routes<Ipv4Addr> {
        &self.tables.routes4
    }

    /// The IPv6 routes.
    pub(crate) const fn routes6(&self) -> &Routes<Ipv6Addr> {
        &self.tables.routes6
    }

    /// Whether there are changes for [`Self::refresh`].
    pub fn has_changed(&self) -> bool {
        self.tables.published.changes() != self.seen
    }

    /// The interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface of `link`.
    pub fn interface(&self, link: LinkIndex) -> Option<&Interface> {
        let interfaces = self.interfaces();
        // Mostly in the order of links.
        let here = interfaces.get(link.index()).filter(|interface| interface.link == link);
        here.or_else(|| interfaces.iter().find(|interface| interface.link == link))
    }

    /// Whether the kernel is the host on `link`.
    pub fn is_shared(&self, link: LinkIndex) -> bool {
        self.interface(link).is_some_and(|interface| interface.shared)
    }

    /// The route for a packet to `destination`. Multicast and link-local destinations are not
    /// looked up here: they are bound to a link. Of several next hops it is one for each destination.
    #[inline]
    pub fn route4(&self, destination: Ipv4Addr) -> Route {
        let [octets, rest] = [destination.octets(), [0; 4]];
        self.alone(self.way4(destination), [octets, rest, rest, rest])
    }

    /// The route for a packet to `destination`, as [`Self::route4`].
    pub fn route6(&self, destination: Ipv6Addr) -> Route {
        let octets = destination.octets();
        let (words, _) = octets.as_chunks();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        self.alone(self.way6(destination), [word(0), word(1), word(2), word(3)])
    }

    /// As [`Self::route4`], or a group of next hops.
    #[inline]
    pub(crate) fn way4(&self, destination: Ipv4Addr) -> Route {
        self.hop(self.tables.routes4.lookup(destination).ok())
    }

    /// As [`Self::route6`], or a group of next hops.
    pub(crate) fn way6(&self, destination: Ipv6Addr) -> Route {
        self.hop(self.tables.routes6.lookup(destination).ok())
    }

    /// The route of a packet by a route that may be a group, and which of the group's next hops it
    /// leads by.
    #[inline]
    pub(crate) fn for_packet(&self, route: Route, packet: &[u8]) -> (Route, Option<HopIndex>) {
        match route {
            Route::Group(group) => self.member(group, crate::flow::group_flow(packet).bucket()),
            route => (route, None),
        }
    }

    /// The next hop of a flow.
    pub(crate) fn member(&self, group: HopGroupIndex, bucket: u32) -> (Route, Option<HopIndex>) {
        let member = self.tables.hop_groups.member(group, bucket);
        (self.hop(member), member)
    }

    /// The one next hop of a destination, whatever the flow.
    #[inline]
    fn alone(&self, route: Route, destination: [[u8; 4]; 4]) -> Route {
        let Route::Group(group) = route else { return route };
        let destination = destination.map(u32::from_le_bytes);
        self.member(group, Flow { destination, ..Flow::default() }.bucket()).0
    }

    #[inline]
    pub(crate) fn hop(&self, found: Option<HopIndex>) -> Route {
        let Some(HopIndex(place)) = found else { return Route::None };
        let known = usize::try_from(place).ok().and_then(|place| self.hops.get(place));
        known.copied().unwrap_or_else(|| self.new_hop(place))
    }

    /// Reads a next hop that is new since the last refresh.
    #[cold]
    fn new_hop(&self, place: u32) -> Route {
        records::route(self.tables.hops.get(place).ok().flatten())
    }
}

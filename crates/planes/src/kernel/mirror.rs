//! A mirror of the kernel's state from its messages, and the resulting changes for the gateway.
//!
//! The mirror is a pure machine: messages in, changes out. It keeps every route of the tables that
//! the kernel consults by default (*local* and *main*). So it knows which route counts when another
//! goes.

use super::message::{
    Destination, Hop, KernelAddress, KernelLink, KernelMessage, KernelNeighbour,
    KernelReachability, KernelRoute, RouteType,
};
use gatewright_link::Division;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{Address, AddressState, Route, WeightedHop};
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

/// Tables in the order in which they are consulted (`RT_TABLE_LOCAL`, `RT_TABLE_MAIN`).
const TABLES: [u32; 2] = [255, 254];

/// Maximum kept routes, of all tables and families together, for each place in the gateway's own
/// tables. Further routes leave everything to the kernel.
const ROUTES_PER_PLACE: usize = 4;

/// Maximum kept neighbours; the kernel keeps 1024 of each family itself.
const NEIGHBOURS_MAX: usize = 262_144;

/// The mirrored state of the kernel.
#[derive(Debug)]
pub(super) struct Mirror {
    /// The gateway's links with the kernel's under them.
    ours: Vec<(LinkIndex, LinkUnder)>,
    links: HashMap<u32, KernelLink>,
    addresses: Vec<KernelAddress>,
    routes: HashMap<Destination, Vec<KernelRoute>>,
    route_count: usize,
    routes_max: usize,
    neighbours: HashMap<(u32, IpAddr), KernelReachability>,
    /// Destinations whose routes have changed, some more than once.
    changed: Vec<Destination>,
    /// Neighbours that have changed.
    moved: BTreeSet<(u32, IpAddr)>,
    links_changed: bool,
    /// A message cannot be understood without a full dump.
    doubtful: bool,
    overfull: bool,
}

/// The kernel's link under one of the gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum LinkUnder {
    /// The interface of this name.
    Device(String),
    /// The VLAN on an interface, whatever its name.
    Vlan { device: String, id: u16 },
}

/// Our router's route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WayRoute {
    /// By one next hop, or by none.
    One(Route),
    /// By several, of which each flow keeps one.
    Several(Arc<[WeightedHop]>),
}

impl WayRoute {
    /// The route by these next hops.
    pub(crate) fn by(hops: &[WeightedHop]) -> Self {
        match hops {
            [] => Self::One(Route::None),
            [only] => Self::One(only.route()),
            several => Self::Several(several.into()),
        }
    }
}

/// The route of a packet, and which host forwards it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Way {
    /// Our router's route for its own packets to that destination.
    pub(super) route: WayRoute,
    /// Whether we forward other hosts' packets to that destination.
    pub(super) ours: bool,
}

/// A link of the gateway as the kernel has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Face {
    pub(super) mtu: u32,
    pub(super) link_address: LinkAddress,
    pub(super) addresses: Vec<Address>,
    /// Whether its device has a carrier.
    pub(super) carries: bool,
}

/// A changed neighbour of the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Moved {
    pub(super) link: LinkIndex,
    pub(super) address: IpAddr,
    pub(super) knowledge: KernelReachability,
}

impl Mirror {
    /// An empty mirror for links on these devices. The gateway has room for `routes_max` routes of
    /// each family.
    pub(super) fn new(ours: Vec<(LinkIndex, LinkUnder)>, routes_max: u32) -> Self {
        let places = usize::try_from(routes_max).unwrap_or(usize::MAX);
        Self {
            ours,
            links: HashMap::new(),
            addresses: Vec::new(),
            routes: HashMap::new(),
            route_count: 0,
            routes_max: places.saturating_mul(ROUTES_PER_PLACE),
            neighbours: HashMap::new(),
            changed: Vec::new(),
            moved: BTreeSet::new(),
            links_changed: false,
            doubtful: false,
            overfull: false,
        }
    }

    /// Applies changes.
    pub(super) fn hear(&mut self, messages: Vec<KernelMessage>) {
        for message in messages {
            self.take(message);
        }
    }

    /// Replaces the whole state: anything not in `messages` is gone.
    pub(super) fn renew(&mut self, messages: Vec<KernelMessage>) {
        self.changed.extend(self.routes.keys());
        self.moved.extend(self.neighbours.keys());
        self.links.clear();
        self.addresses.clear();
        self.routes.clear();
        self.neighbours.clear();
        (self.route_count, self.links_changed, self.overfull) = (0, true, false);
        self.hear(messages);
        self.doubtful = false;
    }

    /// Whether only [`Self::renew`] can restore a correct state.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Whether the kernel has more routes than are kept; then it forwards everything.
    pub(super) const fn is_overfull(&self) -> bool {
        self.overfull
    }

    /// Records that messages were lost.
    pub(super) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    pub(super) const fn routes(&self) -> usize {
        self.route_count
    }

    pub(super) fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    fn take(&mut self, message: KernelMessage) {
        match message {
            KernelMessage::Link(link) => {
                let before = self.links.get(&link.index);
                // The kernel drops a link's routes when it goes down, and does not tell all of them.
                let what = |link: &KernelLink| (link.up, link.name.clone(), link.vlan);
                self.doubtful |= before.is_none_or(|old| what(old) != what(&link));
                self.links_changed = true;
                self.links.insert(link.index, link);
            }
            KernelMessage::LinkGone(index) => {
                self.links.remove(&index);
                (self.links_changed, self.doubtful) = (true, true);
            }
            KernelMessage::Address(address) => {
                self.forget_address(address);
                self.addresses.push(address);
                self.links_changed = true;
            }
            KernelMessage::AddressGone(address) => {
                self.forget_address(address);
                // Routes that were sent from it go untold.
                (self.links_changed, self.doubtful) = (true, true);
            }
            KernelMessage::Route(route, replaces) => self.route(route, replaces),
            KernelMessage::RouteGone(route) => self.route_gone(&route),
            KernelMessage::Neighbour(neighbour) => self.neighbour(neighbour),
            KernelMessage::Done | KernelMessage::Refused(_) | KernelMessage::Other => {}
        }
    }

    fn forget_address(&mut self, gone: KernelAddress) {
        let same = |known: &KernelAddress| {
            (known.link, known.address, known.prefix_len)
                == (gone.link, gone.address, gone.prefix_len)
        };
        self.addresses.retain(|known| !same(known));
    }

    fn route(&mut self, route: KernelRoute, replaces: bool) {
        if !TABLES.contains(&route.table) || !Division::may_be_ours(route.to.address) {
            return;
        }
        let known = self.routes.entry(route.to).or_default();
        let place = |other: &KernelRoute| (other.table, other.priority, other.special);
        let mut same = known.iter_mut().filter(|other| place(other) == place(&route));
        self.changed.push(route.to);
        match (same.next(), same.next()) {
            (None, _) if self.route_count >= self.routes_max => self.overfull = true,
            (None, _) => {
                known.push(route);
                self.route_count += 1;
            }
            (Some(old), _) if *old == route => {}
            (Some(old), None) if replaces => *old = route,
            // Which of several alike comes first is the kernel's secret.
            _ => self.doubtful = true,
        }
    }

    fn route_gone(&mut self, route: &KernelRoute) {
        let Some(known) = self.routes.get_mut(&route.to) else { return };
        let before = known.len();
        known.retain(|other| other != route);
        let alike =
            |other: &KernelRoute| (other.table, other.priority) == (route.table, route.priority);
        // A next hop of several is gone, or we have it otherwise than the kernel.
        self.doubtful |= known.len() == before && known.iter().any(alike);
        self.route_count -= before - known.len();
        if known.is_empty() {
            self.routes.remove(&route.to);
        }
        self.changed.push(route.to);
    }

    fn neighbour(&mut self, neighbour: KernelNeighbour) {
        let key = (neighbour.link, neighbour.address);
        if neighbour.knowledge == KernelReachability::Gone {
            self.neighbours.remove(&key);
        } else if self.neighbours.len() < NEIGHBOURS_MAX || self.neighbours.contains_key(&key) {
            self.neighbours.insert(key, neighbour.knowledge);
        }
        self.moved.insert(key);
    }

    /// The gateway's link on a link of the kernel.
    fn link_of(&self, index: u32) -> Option<LinkIndex> {
        let found = self.links.get(&index)?;
        self.ours.iter().find(|(_, under)| self.is_under(found, under)).map(|(link, _)| *link)
    }

    /// The kernel's link under a link of the gateway.
    pub(super) fn kernel_link(&self, link: LinkIndex) -> Option<u32> {
        let (_, under) = self.ours.iter().find(|(known, _)| *known == link)?;
        self.links.values().find(|found| self.is_under(found, under)).map(|found| found.index)
    }

    /// The VLANs of the gateway for which the kernel has no interface.
    pub(super) fn without_interface(&self) -> impl Iterator<Item = LinkIndex> {
        let vlans = self.ours.iter().filter(|(_, under)| matches!(under, LinkUnder::Vlan { .. }));
        vlans.map(|(link, _)| *link).filter(|link| self.kernel_link(*link).is_none())
    }

    /// The tag of a VLAN of the gateway.
    pub(super) fn tag_of(&self, link: LinkIndex) -> Option<u16> {
        self.ours.iter().find_map(|(known, under)| match under {
            LinkUnder::Vlan { id, .. } if *known == link => Some(*id),
            _ => None,
        })
    }

    fn is_under(&self, found: &KernelLink, under: &LinkUnder) -> bool {
        match under {
            LinkUnder::Device(name) => found.name == *name,
            LinkUnder::Vlan { device, id } => found.vlan.is_some_and(|vlan| {
                let below = self.links.get(&vlan.below);
                vlan.id == *id && below.is_some_and(|below| below.name == *device)
            }),
        }
    }

    /// Has all links told by [`Self::changed_links`], as the gateway's side of them has changed.
    pub(super) const fn tell_links(&mut self) {
        self.links_changed = true;
    }

    /// Destinations whose way may have changed, each once, in the order in which the tables are laid.
    pub(super) fn changed(&mut self) -> Vec<Destination> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Whether the kernel has a way to exactly `to`.
    pub(super) fn has(&self, to: &Destination) -> bool {
        self.routes.contains_key(to)
    }

    /// The kernel's way to exactly `to`; `None` if it has none.
    pub(super) fn way(&self, to: Destination) -> Option<Way> {
        let known = self.routes.get(&to)?;
        let table = TABLES.into_iter().find(|table| known.iter().any(|r| r.table == *table))?;
        let of_table = || known.iter().filter(|route| route.table == table);
        let best = of_table().min_by_key(|route| route.priority)?;
        if of_table().any(|route| route.special) {
            return Some(Way { route: WayRoute::One(Route::Kernel), ours: false });
        }
        Some(self.way_of(best))
    }

    fn way_of(&self, route: &KernelRoute) -> Way {
        let kernels = |route| Way { route: WayRoute::One(route), ours: false };
        match route.kind {
            RouteType::Local => kernels(Route::Local),
            RouteType::Broadcast => {
                let link = route.hops.first().and_then(|hop| self.link_of(hop.link));
                kernels(link.map_or(Route::Local, Route::Broadcast))
            }
            RouteType::Prohibit => kernels(Route::Prohibited),
            RouteType::Other => kernels(Route::Kernel),
            RouteType::Unicast => {
                // One hop of several that is not ours makes the choice the kernel's.
                let all: Option<Vec<WeightedHop>> =
                    route.hops.iter().map(|hop| self.hop(route.to, *hop)).collect();
                match all.as_deref() {
                    None | Some([]) => kernels(Route::Kernel),
                    Some(hops) => Way { route: WayRoute::by(hops), ours: true },
                }
            }
        }
    }

    fn hop(&self, to: Destination, hop: Hop) -> Option<WeightedHop> {
        let Hop { link, gateway, weight } = hop;
        let link = self.link_of(link)?;
        let is_of_family = gateway.is_none_or(|ip| ip.is_ipv4() == to.address.is_ipv4());
        is_of_family.then_some(WeightedHop { link, gateway, weight })
    }

    /// The gateway's links as the kernel has them, if any has changed.
    pub(super) fn changed_links(&mut self) -> Vec<(LinkIndex, Face)> {
        if !std::mem::take(&mut self.links_changed) {
            return Vec::new();
        }
        let faces = self.ours.iter().filter_map(|(link, _)| {
            let found = self.links.get(&self.kernel_link(*link)?)?;
            let mut addresses: Vec<Address> = (self.addresses.iter())
                .filter(|address| address.link == found.index)
                .map(|address| Address {
                    ip: address.address,
                    prefix_len: address.prefix_len,
                    state: state(address.flags),
                })
                .collect();
            addresses.sort_by_key(|address| address.ip);
            let KernelLink { mtu, link_address, carries, .. } = *found;
            Some((*link, Face { mtu, link_address, addresses, carries }))
        });
        faces.collect()
    }

    /// The gateway's neighbours that have changed.
    pub(super) fn changed_neighbours(&mut self) -> Vec<Moved> {
        let moved = std::mem::take(&mut self.moved);
        let of = |(index, address)| {
            let known = self.neighbours.get(&(index, address)).copied();
            let (link, knowledge) =
                (self.link_of(index)?, known.unwrap_or(KernelReachability::Gone));
            Some(Moved { link, address, knowledge })
        };
        moved.into_iter().filter_map(of).collect()
    }

    /// The kernel's knowledge of a neighbour.
    pub(super) fn neighbour_of(
        &self,
        link: LinkIndex,
        address: IpAddr,
    ) -> Option<KernelReachability> {
        self.neighbours.get(&(self.kernel_link(link)?, address)).copied()
    }
}

/// The permitted use of an address (linux/if_addr.h).
const fn state(flags: u32) -> AddressState {
    const FAILED: u32 = 0x08;
    const DEPRECATED: u32 = 0x20;
    const TENTATIVE: u32 = 0x40;
    const OPTIMISTIC: u32 = 0x04;
    if flags & FAILED != 0 {
        AddressState::Duplicate
    } else if flags & TENTATIVE != 0 && flags & OPTIMISTIC == 0 {
        AddressState::Tentative
    } else if flags & DEPRECATED != 0 {
        AddressState::Deprecated
    } else {
        AddressState::Preferred
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::KernelVlan, *};

    const LAN: u32 = 2;
    const WAN: u32 = 3;
    const OTHER: u32 = 9;

    fn link(index: u32, name: &str) -> KernelMessage {
        carrying(index, name, true)
    }

    fn carrying(index: u32, name: &str, carries: bool) -> KernelMessage {
        let (name, mtu, link_address, up) = (name.to_owned(), 1500, LinkAddress::NONE, true);
        KernelMessage::Link(KernelLink { index, name, mtu, link_address, up, carries, vlan: None })
    }

    fn vlan(index: u32, name: &str, below: u32, id: u16) -> KernelMessage {
        let KernelMessage::Link(link) = link(index, name) else { return KernelMessage::Other };
        KernelMessage::Link(KernelLink { vlan: Some(KernelVlan { below, id }), ..link })
    }

    fn mirror(routes_max: u32) -> Mirror {
        let device = |name: &str| LinkUnder::Device(name.to_owned());
        let tagged = LinkUnder::Vlan { device: "eth1".to_owned(), id: 10 };
        let ours = [
            (LinkIndex(0), device("eth1")),
            (LinkIndex(1), device("eth0")),
            (LinkIndex(2), tagged),
        ];
        let mut mirror = Mirror::new(ours.to_vec(), routes_max);
        mirror.renew(vec![link(LAN, "eth1"), link(WAN, "eth0"), link(OTHER, "wg0")]);
        mirror
    }

    fn to() -> Destination {
        Destination { address: "192.0.2.0".parse().unwrap(), len: 24 }
    }

    /// A route of the main table by a neighbour on `link`.
    fn by(link: u32, priority: u32) -> KernelRoute {
        let gateway = Some("198.51.100.1".parse().unwrap());
        let hops = vec![Hop { link, gateway, weight: 1 }];
        KernelRoute {
            to: to(),
            table: 254,
            priority,
            kind: RouteType::Unicast,
            hops,
            special: false,
        }
    }

    fn via(link: u16) -> WayRoute {
        let gateway = "198.51.100.1".parse().unwrap();
        WayRoute::One(Route::Via { link: LinkIndex(link), gateway })
    }

    /// By a neighbour on each of the links, with its weight.
    fn several(links: &[(u16, u16)]) -> WayRoute {
        let gateway = Some("198.51.100.1".parse().unwrap());
        let hop = |(link, weight): &(u16, u16)| WeightedHop {
            link: LinkIndex(*link),
            gateway,
            weight: *weight,
        };
        WayRoute::Several(links.iter().map(hop).collect())
    }

    fn way(mirror: &mut Mirror) -> Option<Way> {
        mirror.changed().contains(&to()).then(|| mirror.way(to()))?
    }

    #[test]
    fn which_route_counts_and_whose_it_is() {
        let local = KernelRoute { table: 255, kind: RouteType::Local, ..by(LAN, 0) };
        let special = KernelRoute { special: true, ..by(LAN, 9) };
        let both = KernelRoute { hops: [by(LAN, 0).hops, by(WAN, 0).hops].concat(), ..by(LAN, 5) };
        let astray =
            KernelRoute { hops: [by(LAN, 0).hops, by(OTHER, 0).hops].concat(), ..by(LAN, 5) };
        let router = Some("fe80::1".parse().unwrap());
        let other_family = Hop { link: LAN, gateway: router, weight: 1 };
        let other_family = KernelRoute { hops: vec![other_family], ..by(LAN, 5) };
        let direct = Hop { link: WAN, gateway: None, weight: 1 };
        let direct = KernelRoute { hops: vec![direct], ..by(LAN, 5) };
        let forbidden = KernelRoute { kind: RouteType::Prohibit, ..by(LAN, 5) };
        let elsewhere = KernelRoute { table: 77, ..by(LAN, 5) };
        let ours = |route| Some(Way { route, ours: true });
        let kernels = |route| Some(Way { route: WayRoute::One(route), ours: false });
        let connected = WayRoute::One(Route::Connected(LinkIndex(1)));
        let cases = [
            ("a neighbour of ours", vec![by(LAN, 5)], ours(via(0))),
            ("a network of ours", vec![direct], ours(connected)),
            ("the lesser metric", vec![by(LAN, 5), by(WAN, 4)], ours(via(1))),
            ("a foreign link goes first", vec![by(LAN, 5), by(OTHER, 4)], kernels(Route::Kernel)),
            ("the kernel's own address", vec![by(LAN, 0), local], kernels(Route::Local)),
            ("more than the destination", vec![by(LAN, 5), special], kernels(Route::Kernel)),
            ("two hops of ours", vec![both], ours(several(&[(0, 1), (1, 1)]))),
            ("one hop of two is foreign", vec![astray], kernels(Route::Kernel)),
            ("a neighbour of the other family", vec![other_family], kernels(Route::Kernel)),
            ("forbidden", vec![forbidden], kernels(Route::Prohibited)),
            ("another table", vec![elsewhere], None),
        ];
        for (name, routes, expected) in cases {
            let mut mirror = mirror(100);
            mirror.hear(
                routes.iter().map(|route| KernelMessage::Route(route.clone(), false)).collect(),
            );
            assert_eq!(way(&mut mirror), expected, "{name}");
            assert!(!mirror.is_doubtful(), "{name}");
            mirror.hear(routes.into_iter().map(KernelMessage::RouteGone).collect());
            assert_eq!((way(&mut mirror), mirror.routes()), (None, 0), "{name}, gone");
        }
    }

    #[test]
    fn all_next_hops_of_a_route_are_told_with_their_weights() {
        let mut mirror = mirror(100);
        let heavy = |link, weight| {
            let hop = by(link, 0).hops.into_iter().next().unwrap();
            Hop { weight, ..hop }
        };
        let both = KernelRoute { hops: vec![heavy(LAN, 3), heavy(WAN, 1)], ..by(LAN, 5) };
        mirror.hear(vec![KernelMessage::Route(both, false)]);
        let expected = Way { route: several(&[(0, 3), (1, 1)]), ours: true };
        assert_eq!(way(&mut mirror), Some(expected));
        // A carrier changes no way: the next hop is left out of its group.
        for carries in [false, true] {
            mirror.hear(vec![carrying(LAN, "eth1", carries)]);
            assert!(mirror.changed().is_empty());
            let faces = mirror.changed_links();
            let lan = faces.iter().find(|(link, _)| *link == LinkIndex(0)).unwrap();
            assert_eq!(lan.1.carries, carries);
            assert!(!mirror.is_doubtful());
        }
    }

    /// A VLAN of ours is the kernel's on the same device with the same tag, whatever its name. It may
    /// come later than its routes, and go.
    #[test]
    fn a_vlan_is_known_by_device_and_tag() {
        const OF_LAN: u32 = 20;
        let mut mirror = mirror(100);
        let ours = Some(Way { route: via(2), ours: true });
        let kernels = Some(Way { route: WayRoute::One(Route::Kernel), ours: false });
        assert_eq!([0, 2].map(|link| mirror.tag_of(LinkIndex(link))), [None, Some(10)]);
        mirror.hear(vec![KernelMessage::Route(by(OF_LAN, 5), false)]);
        assert_eq!(mirror.way(to()), kernels, "there is no such link");
        for (name, message, expected) in [
            ("another tag", vlan(OF_LAN, "eth1.10", LAN, 11), &kernels),
            ("on another device", vlan(OF_LAN, "eth1.10", WAN, 10), &kernels),
            ("by its tag", vlan(OF_LAN, "red", LAN, 10), &ours),
        ] {
            mirror.hear(vec![message]);
            assert_eq!(mirror.way(to()), *expected, "{name}");
            assert_eq!(
                mirror.without_interface().count(),
                usize::from(*expected != ours),
                "{name}"
            );
            assert!(mirror.is_doubtful(), "its routes may have come untold");
        }
        assert_eq!(mirror.kernel_link(LinkIndex(2)), Some(OF_LAN));
        assert_eq!(mirror.link_of(OF_LAN), Some(LinkIndex(2)));
        mirror.hear(vec![KernelMessage::LinkGone(OF_LAN)]);
        assert_eq!((mirror.way(to()), mirror.kernel_link(LinkIndex(2))), (kernels, None));
    }

    #[test]
    fn a_route_takes_the_place_of_one_alike() {
        let mut mirror = mirror(100);
        mirror.hear(vec![
            KernelMessage::Route(by(LAN, 5), false),
            KernelMessage::Route(by(WAN, 5), true),
        ]);
        assert_eq!(way(&mut mirror), Some(Way { route: via(1), ours: true }));
        assert!(!mirror.is_doubtful());
    }

    #[test]
    fn what_cannot_be_understood_alone_is_doubted() {
        let gone_link = KernelMessage::LinkGone(LAN);
        let address = KernelAddress {
            link: LAN,
            address: "192.0.2.1".parse().unwrap(),
            prefix_len: 24,
            flags: 0,
        };
        let down = KernelLink {
            index: LAN,
            name: "eth1".to_owned(),
            mtu: 1500,
            link_address: LinkAddress::NONE,
            up: false,
            carries: false,
            vlan: None,
        };
        for (name, message) in [
            ("another beside one alike", KernelMessage::Route(by(WAN, 5), false)),
            ("one of two next hops is gone", KernelMessage::RouteGone(by(WAN, 5))),
            ("a link is gone", gone_link),
            ("a link is down", KernelMessage::Link(down)),
            ("an address is gone", KernelMessage::AddressGone(address)),
        ] {
            let mut mirror = mirror(100);
            mirror.hear(vec![KernelMessage::Route(by(LAN, 5), false)]);
            assert!(!mirror.is_doubtful());
            mirror.hear(vec![message]);
            assert!(mirror.is_doubtful(), "{name}");
        }
    }

    #[test]
    fn more_routes_than_are_kept_are_told() {
        let mut mirror = mirror(1);
        for number in 0..4 {
            mirror.hear(vec![KernelMessage::Route(by(LAN, number), false)]);
        }
        assert!(!mirror.is_overfull());
        mirror.hear(vec![KernelMessage::Route(by(LAN, 4), false)]);
        assert!(mirror.is_overfull());
        assert_eq!(mirror.routes(), 4);
    }
}

//! The kinds of record that control and data plane share.
//!
//! A `link` is a link's index, as in the frames' metadata. Each kind is a handful of words,
//! described where it is encoded; none holds a pointer or a value of the machine's word size.

mod plan;

pub use plan::{EntityPlan, EntityReports, LATEST_OCTETS_MAX, LatestReport, PLAN_OCTETS_MAX};

use crate::hop_groups::HopGroupIndex;
use crate::pack::{Packer, Unpacker};
use crate::record::Record;
use crate::routes::HopIndex;
use gatewright_packet::LinkAddress;
use std::fmt;
use std::net::IpAddr;

/// A short name of at most 35 octets: names of interfaces have 15, those of a description 32.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Name([u8; NAME_OCTETS]);

impl Default for Name {
    fn default() -> Self {
        Self([0; NAME_OCTETS])
    }
}

const NAME_OCTETS: usize = 36;

impl Name {
    /// The name; `None` if it is longer than 35 octets or contains a zero.
    pub fn new(text: &str) -> Option<Self> {
        let mut octets = [0; NAME_OCTETS];
        let [place @ .., _end] = &mut octets;
        if text.bytes().any(|octet| octet == 0) {
            return None;
        }
        place.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self(octets))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&octet| octet == 0).unwrap_or(NAME_OCTETS);
        self.0.get(..end).and_then(|octets| str::from_utf8(octets).ok()).unwrap_or("")
    }

    /// Adds the name to the words of a record, nine of them.
    pub(crate) fn pack<const N: usize>(self, packer: Packer<N>) -> Packer<N> {
        packer.octets(&self.0)
    }

    /// Takes a name from the words of a record.
    pub(crate) fn unpack<const N: usize>(words: &mut Unpacker<N>) -> Option<Self> {
        Self::from_octets(words.octets()?)
    }

    fn from_octets(octets: [u8; NAME_OCTETS]) -> Option<Self> {
        let end = octets.iter().position(|&octet| octet == 0)?;
        str::from_utf8(octets.get(..end)?).ok()?;
        Some(Self(octets))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Adds a link-layer address: its width and eight octets.
#[inline]
fn pack_link_address<const N: usize>(address: LinkAddress, packer: Packer<N>) -> Packer<N> {
    let mut octets = [0; LinkAddress::WIDTH_MAX];
    for (place, octet) in octets.iter_mut().zip(address.octets()) {
        *place = *octet;
    }
    packer.word(u32::try_from(address.width()).unwrap_or_default()).octets(&octets)
}

/// The next link-layer address; nothing if no link has addresses of its width, or if octets beyond
/// the width are set, by which equal addresses would differ.
#[inline]
fn unpack_link_address<const N: usize>(words: &mut Unpacker<N>) -> Option<LinkAddress> {
    let width: usize = words.small()?;
    let octets: [u8; LinkAddress::WIDTH_MAX] = words.octets()?;
    let (address, beyond) = octets.split_at_checked(width)?;
    if beyond.iter().any(|&octet| octet != 0) {
        return None;
    }
    LinkAddress::new(address)
}

/// A link as both planes see it; its place in the table is its index.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Interface {
    /// Its name in the gateway's description.
    pub name: Name,
    /// Its own link-layer address, if the link has them.
    pub address: LinkAddress,
    /// Octets of the largest network-layer packet.
    pub mtu: u32,
    /// The kernel's index of the device behind it, 0 for none.
    pub device: u32,
    /// Its properties and state: an or of the constants of [`Interface`].
    pub flags: u32,
    /// The longest time between two router advertisements in milliseconds, 0 for none at all
    /// (RFC 4861 §6.2.1, as the next two).
    pub advertise_every_ms: u32,
    /// How long hosts may use this router, in seconds.
    pub advertise_lifetime_s: u32,
    /// The hop limit that hosts should start with.
    pub advertise_hop_limit: u8,
}

impl Interface {
    /// The link is up: frames may be sent.
    pub const UP: u32 = 1 << 0;
    /// The interface has a carrier.
    pub const RUNNING: u32 = 1 << 1;
    /// Our own stack is the host; otherwise the kernel shares the link.
    pub const EXCLUSIVE: u32 = 1 << 2;
    /// Frames can arrive with a checksum that is only a pseudo-header sum.
    pub const PARTIAL_CHECKSUMS: u32 = 1 << 3;
    /// Every frame reaches everyone: no address resolution is needed.
    pub const POINT_TO_POINT: u32 = 1 << 4;
    /// Packets that arrive here may leave by another link.
    pub const FORWARDING: u32 = 1 << 5;
    /// Frames to other stations are passed up, too.
    pub const PROMISCUOUS: u32 = 1 << 6;
    /// IPv6 addresses are formed from router advertisements.
    pub const AUTOCONFIGURE: u32 = 1 << 7;
    /// A DHCP server is asked for an IPv4 address.
    pub const DHCP: u32 = 1 << 8;
    /// The kernel is the host there.
    pub const SHARED: u32 = 1 << 9;
    /// Router advertisements tell the link's MTU.
    pub const ADVERTISE_MTU: u32 = 1 << 10;
}

impl Record for Interface {
    const NAME: &'static str = "interface/3";
    type Words = [u32; 18];

    fn to_words(&self) -> [u32; 18] {
        let packer = pack_link_address(self.address, Packer::default().octets(&self.name.0));
        let packer = packer.word(self.mtu).word(self.device).word(self.flags);
        let packer = packer.word(self.advertise_every_ms).word(self.advertise_lifetime_s);
        packer.word(self.advertise_hop_limit.into()).finish()
    }

    #[inline]
    fn from_words(words: [u32; 18]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        Some(Self {
            name: Name::from_octets(words.octets()?)?,
            address: unpack_link_address(&mut words)?,
            mtu: words.word()?,
            device: words.word()?,
            flags: words.word()?,
            advertise_every_ms: words.word()?,
            advertise_lifetime_s: words.word()?,
            advertise_hop_limit: words.small()?,
        })
    }
}

/// An address of our own on a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Address {
    /// The link.
    pub link: u16,
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix that is on the link.
    pub prefix_len: u8,
    /// Its state: an or of the constants of [`Address`].
    pub flags: u32,
}

impl Address {
    /// Not yet known to be ours alone (RFC 4862 §5.4): not to be used as a source.
    pub const TENTATIVE: u32 = 1 << 0;
    /// Another host has the address; it must not be used.
    pub const DUPLICATE: u32 = 1 << 1;
    /// Formed or leased, not configured: it can expire.
    pub const DYNAMIC: u32 = 1 << 2;
    /// Still valid, but no longer for new connections.
    pub const DEPRECATED: u32 = 1 << 3;
}

impl Record for Address {
    const NAME: &'static str = "address/1";
    type Words = [u32; 8];

    #[inline]
    fn to_words(&self) -> [u32; 8] {
        let packer = Packer::default().word(self.link.into()).word(self.prefix_len.into());
        packer.word(self.flags).address(Some(self.address)).finish()
    }

    #[inline]
    fn from_words(words: [u32; 8]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        Some(Self {
            link: words.small()?,
            prefix_len: words.small().filter(|&len| len <= 128)?,
            flags: words.word()?,
            address: words.address()??,
        })
    }
}

/// The kind of a route's next hop.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HopKind {
    /// A network on the link itself: the destination is the neighbour.
    #[default]
    Connected,
    /// A router on the link: [`NextHop::gateway`] is the neighbour.
    Gateway,
    /// One of our own addresses: deliver here.
    Local,
    /// Drop silently.
    Blackhole,
    /// The kernel beside us forwards there.
    Kernel,
    /// Drop and say that the destination is unreachable.
    Unreachable,
    /// Drop and report that it is prohibited.
    Prohibited,
    /// Everyone on the link, this host included: never forwarded.
    Broadcast,
    /// One of a group of next hops ([`HopGroups`](crate::HopGroups)), by the packet's flow.
    Group(HopGroupIndex),
}

/// The next hop of a route; its place in the table is the route's [`HopIndex`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NextHop {
    /// Its kind.
    pub kind: HopKind,
    /// The outgoing link; meaningless where packets do not leave.
    pub link: u16,
    /// The router's address, for [`HopKind::Gateway`].
    pub gateway: Option<IpAddr>,
    /// The known MTU of the way beyond, 0 for the link's.
    pub mtu: u32,
}

impl NextHop {
    /// A network on the link itself.
    pub fn connected(link: u16) -> Self {
        Self { kind: HopKind::Connected, link, gateway: None, mtu: 0 }
    }

    /// A router on the link.
    pub fn via(link: u16, gateway: IpAddr) -> Self {
        Self { kind: HopKind::Gateway, link, gateway: Some(gateway), mtu: 0 }
    }
}

impl Record for NextHop {
    const NAME: &'static str = "next-hop/4";
    type Words = [u32; 8];

    #[inline]
    fn to_words(&self) -> [u32; 8] {
        let kind = match self.kind {
            HopKind::Connected => 0,
            HopKind::Gateway => 1,
            HopKind::Local => 2,
            HopKind::Blackhole => 3,
            HopKind::Unreachable => 4,
            HopKind::Prohibited => 5,
            HopKind::Broadcast => 6,
            HopKind::Group(_) => 7,
            HopKind::Kernel => 8,
        };
        let place = if let HopKind::Group(group) = self.kind { group.0 } else { self.link.into() };
        Packer::default().word(kind).word(place).word(self.mtu).address(self.gateway).finish()
    }

    #[inline]
    fn from_words(words: [u32; 8]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let kind = match words.word()? {
            0 => HopKind::Connected,
            1 => HopKind::Gateway,
            2 => HopKind::Local,
            3 => HopKind::Blackhole,
            4 => HopKind::Unreachable,
            5 => HopKind::Prohibited,
            6 => HopKind::Broadcast,
            7 => {
                let kind = HopKind::Group(HopGroupIndex(words.word()?));
                return Some(Self { kind, link: 0, mtu: words.word()?, gateway: words.address()? });
            }
            8 => HopKind::Kernel,
            _ => return None,
        };
        Some(Self { kind, link: words.small()?, mtu: words.word()?, gateway: words.address()? })
    }
}

/// The key of a neighbour record.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NeighbourKey {
    /// The link.
    pub link: u16,
    /// The address on it.
    pub address: IpAddr,
}

impl Record for NeighbourKey {
    const NAME: &'static str = "neighbour-key/1";
    type Words = [u32; 6];

    #[inline]
    fn to_words(&self) -> [u32; 6] {
        Packer::default().word(self.link.into()).address(Some(self.address)).finish()
    }

    #[inline]
    fn from_words(words: [u32; 6]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        Some(Self { link: words.small()?, address: words.address()?? })
    }
}

/// The reachability state of a neighbour (RFC 4861 §7.3.2, for both families).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NeighbourState {
    /// Solicited, not answered: its address is not known.
    #[default]
    Incomplete,
    /// Confirmed a moment ago.
    Reachable,
    /// Known, but not confirmed lately.
    Stale,
    /// Used while stale: a confirmation is awaited before it is probed.
    Delay,
    /// Probed.
    Probe,
    /// Did not answer.
    Failed,
    /// Configured: never solicited.
    Permanent,
}

/// A known neighbour.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Neighbour {
    /// Its link-layer address; none while it is not known.
    pub address: LinkAddress,
    /// Its reachability.
    pub state: NeighbourState,
    /// Whether it is a router (RFC 4861 §4.4).
    pub router: bool,
}

impl Record for Neighbour {
    const NAME: &'static str = "neighbour/2";
    type Words = [u32; 5];

    #[inline]
    fn to_words(&self) -> [u32; 5] {
        let state = match self.state {
            NeighbourState::Incomplete => 0,
            NeighbourState::Reachable => 1,
            NeighbourState::Stale => 2,
            NeighbourState::Delay => 3,
            NeighbourState::Probe => 4,
            NeighbourState::Failed => 5,
            NeighbourState::Permanent => 6,
        };
        let packer = Packer::default().word(state).word(self.router.into());
        pack_link_address(self.address, packer).finish()
    }

    #[inline]
    fn from_words(words: [u32; 5]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let state = match words.word()? {
            0 => NeighbourState::Incomplete,
            1 => NeighbourState::Reachable,
            2 => NeighbourState::Stale,
            3 => NeighbourState::Delay,
            4 => NeighbourState::Probe,
            5 => NeighbourState::Failed,
            6 => NeighbourState::Permanent,
            _ => return None,
        };
        let router = words.word()? != 0;
        Some(Self { state, router, address: unpack_link_address(&mut words)? })
    }
}

/// Whether the writer is between two records that belong together.
///
/// The table of this one record is written before the first of them and after the last. A reader
/// reads [`Table::changes`](crate::Table::changes) of it, then the records. They are consistent if
/// no write is in progress and the number has not changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Published {
    /// Whether only some of them are written yet.
    pub is_under_way: bool,
}

impl Record for Published {
    const NAME: &'static str = "published/1";
    type Words = [u32; 1];

    #[inline]
    fn to_words(&self) -> [u32; 1] {
        [self.is_under_way.into()]
    }

    #[inline]
    fn from_words([under_way]: [u32; 1]) -> Option<Self> {
        Some(Self { is_under_way: under_way != 0 })
    }
}

/// A sender: address and port.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Sender {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl Record for Sender {
    const NAME: &'static str = "sender/1";
    type Words = [u32; 6];

    #[inline]
    fn to_words(&self) -> [u32; 6] {
        Packer::default().address(Some(self.address)).word(self.port.into()).finish()
    }

    #[inline]
    fn from_words(words: [u32; 6]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        Some(Self { address: words.address()??, port: words.small()? })
    }
}

/// Kinds of measurement that an entity's record has room for.
pub const KINDS_MAX: usize = 6;

/// A health device that is associated: an application entity of the gateway, found by its
/// [`Sender`].
///
/// ISO/IEEE 11073 defines the meaning of the codes; here they are only carried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Entity {
    /// Its system-id, an EUI-64.
    pub system_id: [u8; 8],
    /// The number of its configuration.
    pub configuration: u16,
    /// The state of its association, as numbered by the manager's state machine.
    pub state: u8,
    /// Objects that measure.
    pub objects: u8,
    /// When it associated: microseconds since 1970.
    pub associated: u64,
    /// The types of its first objects, partition and code; 0 for the unused rest.
    pub kinds: [u32; KINDS_MAX],
    /// The place of its [`EntityPlan`], and that plan's serial number; 0 for none.
    pub plan: (u32, u32),
}

impl Record for Entity {
    const NAME: &'static str = "entity/2";
    type Words = [u32; 14];

    #[inline]
    fn to_words(&self) -> [u32; 14] {
        let packer = Packer::default().octets(&self.system_id).word(self.configuration.into());
        let packer = packer.word(u32::from(self.state) << 8 | u32::from(self.objects));
        let packer = packer.octets(&self.associated.to_be_bytes());
        let packer = self.kinds.iter().fold(packer, |packer, kind| packer.word(*kind));
        packer.word(self.plan.0).word(self.plan.1).finish()
    }

    #[inline]
    fn from_words(words: [u32; 14]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let system_id = words.octets()?;
        let configuration = words.small()?;
        let [_, _, state, objects] = words.word()?.to_be_bytes();
        let associated = u64::from_be_bytes(words.octets()?);
        let mut kinds = [0; KINDS_MAX];
        for kind in &mut kinds {
            *kind = words.word()?;
        }
        let plan = (words.word()?, words.word()?);
        Some(Self { system_id, configuration, state, objects, associated, kinds, plan })
    }
}

/// A handler at a position of the graph, as the user requested it.
///
/// The graph defines the meaning of a position's numbers; here they are only carried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Attachment {
    /// The handler's name.
    pub handler: Name,
    /// The layer, as in `ipv4`.
    pub layer: Name,
    /// The one link, or `None` for all.
    pub link: Option<u16>,
    /// The layer's own number for the position (EtherType, protocol, port), or 0.
    pub position: u32,
    /// Receive or transmit side, as the graph numbers them.
    pub side: u16,
    /// Before, instead, after or beside, as the graph numbers them.
    pub place: u16,
}

/// All links, in place of one.
const ALL_LINKS: u32 = u32::MAX;

impl Record for Attachment {
    const NAME: &'static str = "attachment/2";
    type Words = [u32; 22];

    fn to_words(&self) -> [u32; 22] {
        let on = self.link.map_or(ALL_LINKS, u32::from);
        let packer = Packer::default().octets(&self.handler.0).octets(&self.layer.0).word(on);
        packer.word(self.position).word(self.side.into()).word(self.place.into()).finish()
    }

    #[inline]
    fn from_words(words: [u32; 22]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        Some(Self {
            handler: Name::from_octets(words.octets()?)?,
            layer: Name::from_octets(words.octets()?)?,
            link: match words.word()? {
                ALL_LINKS => None,
                link => Some(u16::try_from(link).ok()?),
            },
            position: words.word()?,
            side: words.small()?,
            place: words.small()?,
        })
    }
}

impl Record for HopIndex {
    const NAME: &'static str = "hop-index/1";
    type Words = [u32; 1];

    fn to_words(&self) -> [u32; 1] {
        [self.0]
    }

    #[inline]
    fn from_words([index]: [u32; 1]) -> Option<Self> {
        Some(Self(index))
    }
}

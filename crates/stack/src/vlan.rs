//! Virtual LANs: 802.1Q tags, each VLAN a link of its own.

use crate::{
    At, Layer, LinkNeighbours, Out, Reason, UNCLAIMED, VirtualLinkCounters,
    link_layer::{NO_HEADROOM, NO_NEXT_HOP, TRUNCATED},
    station::{Station, Stations},
};
use gatewright_packet::{Batch, LinkAddress, LinkIndex, NextHop, NoRoom, Packet};
use gatewright_wire::{
    EtherType,
    ethernet::Ethernet,
    vlan::{VLAN_ID_PRIORITY, Vlan, VlanFields},
};

/// The tag names a VLAN that is not configured on this link.
pub(crate) const UNKNOWN_VLAN: Reason = Reason("unknown-vlan");

/// The VLAN is down.
const LINK_DOWN: Reason = Reason("link-down");

/// The tag of a VLAN (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VlanTag {
    /// Its identifier, 1 to 4094.
    pub id: u16,
    /// The priority of the frames we send, 0 to 7.
    pub priority: u8,
}

/// One VLAN of a link.
#[derive(Debug)]
pub struct VlanMember {
    /// Its tag.
    pub tag: VlanTag,
    /// The VLAN as a link, with its neighbours.
    pub neighbours: LinkNeighbours,
    /// Its counters.
    pub counters: VirtualLinkCounters,
}

/// The VLANs of one Ethernet link (IEEE 802.1Q).
///
/// Stands above [`EthernetLayer`](crate::EthernetLayer) at `ether:vlan`. Each VLAN is a link of its
/// own, with addresses and neighbours. Receives tagged packets, strips the tag, and pushes them on
/// by the inner type as from that link. Transmits packets of that link with a tag, down to the link
/// below. A tag without an identifier is a priority only: its packet continues as the link's own.
/// Drops `truncated`, `unknown-vlan`, `link-down`, `no-next-hop`, `no-headroom`.
#[derive(Debug)]
pub struct VlanLayer {
    below: LinkIndex,
    members: Vec<Member>,
}

/// A VLAN with the stations on it.
#[derive(Debug)]
struct Member {
    tag: VlanTag,
    link: LinkIndex,
    stations: Stations,
    counters: VirtualLinkCounters,
    /// Whether the host has the VLAN up.
    up: bool,
}

impl VlanLayer {
    /// The VLANs `members` of the link `below`.
    pub fn new(below: LinkIndex, members: Vec<VlanMember>) -> Self {
        let member = |VlanMember { tag, neighbours, counters }| Member {
            tag,
            link: neighbours.link,
            stations: Stations::new(neighbours),
            counters,
            up: false,
        };
        Self { below, members: members.into_iter().map(member).collect() }
    }

    fn untag(&self, packet: &mut Packet) -> Result<EtherType, Reason> {
        let (tag, _) = Vlan::split(packet.octets()).map_err(|_| TRUNCATED)?;
        let (id, ether_type) = (tag.vlan_id(), tag.ether_type());
        let ingress = if id == VLAN_ID_PRIORITY {
            self.below
        } else {
            let member =
                self.members.iter().find(|member| member.tag.id == id).ok_or(UNKNOWN_VLAN)?;
            if !member.up {
                return Err(LINK_DOWN);
            }
            member.counters.received.add(1);
            member.counters.received_octets.add((Ethernet::LEN + packet.len()) as u64);
            member.link
        };
        packet.strip(Vlan::LEN);
        let meta = packet.meta_mut();
        meta.ingress = ingress;
        meta.ether_type = ether_type.0;
        Ok(ether_type)
    }

    /// Writes the tag, or returns the position to which the packet goes instead.
    fn tag(&mut self, packet: &mut Packet, out: &Out<'_>) -> Result<(), Untagged> {
        let egress = packet.meta().egress;
        let member = self.members.iter_mut().find(|member| member.link == egress);
        let member = member.ok_or(Untagged::Drop(UNKNOWN_VLAN))?;
        if !member.up {
            return Err(Untagged::Drop(LINK_DOWN));
        }
        let station = match member.stations.find(&packet.meta().next_hop, out.now()) {
            Station::At(station) => station,
            Station::Unknown(family) => return Err(Untagged::Push(At::Unresolved(family))),
            Station::Nowhere => return Err(Untagged::Drop(NO_NEXT_HOP)),
        };
        let tag = VlanFields {
            priority: member.tag.priority,
            drop_eligible: false,
            vlan_id: member.tag.id,
            ether_type: EtherType(packet.meta().ether_type),
        };
        packet.prepend(&tag.emit()).map_err(|_| Untagged::Drop(NO_HEADROOM))?;
        member.counters.sent.add(1);
        member.counters.sent_octets.add((Ethernet::LEN + packet.len()) as u64);
        let meta = packet.meta_mut();
        meta.egress = self.below;
        meta.ether_type = EtherType::VLAN.0;
        meta.next_hop = NextHop::Station(LinkAddress::ethernet(station.octets()));
        Ok(())
    }
}

enum Untagged {
    Push(At),
    Drop(Reason),
}

impl Layer for VlanLayer {
    fn name(&self) -> &'static str {
        "vlan"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            match self.untag(&mut packet) {
                Ok(ether_type) => out.push_or_drop(At::EtherType(ether_type), packet),
                Err(reason) => out.drop(reason, packet),
            }
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for member in &mut self.members {
            member.stations.refresh();
        }
        for mut packet in batch.drain() {
            match self.tag(&mut packet, out) {
                Ok(()) => {
                    if let Err(packet) = out.push_down(self.below, packet) {
                        out.drop(UNCLAIMED, packet);
                    }
                }
                Err(Untagged::Push(at)) => out.push_or_drop(at, packet),
                Err(Untagged::Drop(reason)) => out.drop(reason, packet),
            }
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        for member in &mut self.members {
            member.up = out.host().interface(member.link).is_some_and(|interface| interface.up);
        }
    }
}

/// Octets of the two addresses, which precede a tag.
const ADDRESSES_LEN: usize = 12;

/// The identifier in the tag of a whole frame, if it has one.
pub(crate) fn id_of(frame: &[u8]) -> Option<u16> {
    let (header, behind) = Ethernet::split(frame).ok()?;
    let (tag, _) = Vlan::split(behind).ok().filter(|_| header.ether_type() == EtherType::VLAN)?;
    Some(tag.vlan_id())
}

impl VlanTag {
    /// Puts the tag into a whole frame, behind the addresses.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the frame's chunk has no room in front.
    pub(crate) fn insert(self, frame: &mut Packet) -> Result<(), NoRoom> {
        let addresses = frame.octets().first_chunk::<ADDRESSES_LEN>().copied();
        let Some(addresses) = addresses else { return Ok(()) };
        let control = u16::from(self.priority) << PRIORITY_SHIFT | self.id;
        let ([a, b], [c, d]) = (EtherType::VLAN.0.to_be_bytes(), control.to_be_bytes());
        frame.strip(ADDRESSES_LEN);
        frame.prepend(&[a, b, c, d])?;
        frame.prepend(&addresses)
    }
}

/// The priority stands above the drop eligibility and the twelve bits of the identifier
/// (IEEE 802.1Q §9.6).
const PRIORITY_SHIFT: u32 = 13;

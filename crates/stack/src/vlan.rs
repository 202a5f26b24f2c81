//! Virtual LANs: 802.1Q tags, each VLAN a link of its own.

use crate::{
    At, Layer, LinkNeighbours, Out, Reason, UNCLAIMED,
    ethernet::{NO_HEADROOM, NO_NEXT_HOP, TRUNCATED},
    station::{Station, Stations},
};
use gatewright_packet::{Batch, LinkIndex, NextHop, Packet};
use gatewright_wire::{
    EtherType,
    vlan::{Vlan, VlanFields},
};

/// The tag names a VLAN that is not configured on this link.
pub(crate) const UNKNOWN_VLAN: Reason = Reason("unknown-vlan");

/// One VLAN of a link.
#[derive(Debug)]
pub struct VlanMember {
    /// Its identifier, 1 to 4094.
    pub id: u16,
    /// The priority of the frames we send, 0 to 7.
    pub priority: u8,
    /// The VLAN as a link, with its neighbours.
    pub neighbours: LinkNeighbours,
}

/// The VLANs of one Ethernet link (IEEE 802.1Q).
///
/// Stands above [`EthernetLayer`](crate::EthernetLayer) at `ether:vlan`. Each VLAN is a link of its own, with
/// addresses and neighbours: receives tagged packets, strips the tag, and pushes them on by the
/// inner type as from that link; transmits what is sent by that link with a tag, down to the link
/// below. Drops `truncated`, `unknown-vlan`, `no-next-hop`, `no-headroom`.
#[derive(Debug)]
pub struct VlanLayer {
    below: LinkIndex,
    members: Vec<Member>,
}

/// A VLAN with the stations on it.
#[derive(Debug)]
struct Member {
    id: u16,
    priority: u8,
    link: LinkIndex,
    stations: Stations,
}

impl VlanLayer {
    /// The VLANs `members` of the link `below`.
    pub fn new(below: LinkIndex, members: Vec<VlanMember>) -> Self {
        let members = members.into_iter().map(|VlanMember { id, priority, neighbours }| Member {
            id,
            priority,
            link: neighbours.link,
            stations: Stations::new(neighbours),
        });
        Self { below, members: members.collect() }
    }

    fn untag(&self, packet: &mut Packet) -> Result<EtherType, Reason> {
        let (tag, _) = Vlan::split(packet.octets()).map_err(|_| TRUNCATED)?;
        let (id, ether_type) = (tag.vlan_id(), tag.ether_type());
        let member = self.members.iter().find(|member| member.id == id).ok_or(UNKNOWN_VLAN)?;
        packet.strip(Vlan::LEN);
        let meta = packet.meta_mut();
        meta.ingress = member.link;
        meta.ether_type = ether_type.0;
        Ok(ether_type)
    }

    /// Writes the tag, or says to which position the packet goes instead.
    fn tag(&mut self, packet: &mut Packet, out: &Out<'_>) -> Result<(), Untagged> {
        let egress = packet.meta().egress;
        let member = self.members.iter_mut().find(|member| member.link == egress);
        let member = member.ok_or(Untagged::Drop(UNKNOWN_VLAN))?;
        let station = match member.stations.find(&packet.meta().next_hop, out.now()) {
            Station::At(station) => station,
            Station::Unknown(family) => return Err(Untagged::Push(At::Unresolved(family))),
            Station::Nowhere => return Err(Untagged::Drop(NO_NEXT_HOP)),
        };
        let tag = VlanFields {
            priority: member.priority,
            drop_eligible: false,
            vlan_id: member.id,
            ether_type: EtherType(packet.meta().ether_type),
        };
        packet.prepend(&tag.emit()).map_err(|_| Untagged::Drop(NO_HEADROOM))?;
        let meta = packet.meta_mut();
        meta.egress = self.below;
        meta.ether_type = EtherType::VLAN.0;
        meta.next_hop = NextHop::Station(station.octets());
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
}

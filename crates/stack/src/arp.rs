//! The address resolution protocol of IPv4 (RFC 826), with conflict detection (RFC 5227).

mod claim;

use crate::{
    AddressState, At, Event, IcmpError, Interface, Layer, LinkNeighbours, NeighbourOutput, Out,
    Reason, SharedNeighbours, UNCLAIMED,
    link_layer::{BAD_STATION, OTHER_STATION, TRUNCATED},
    neighbour::Advertised,
    random::Random,
};
use claim::{Claim, ClaimVerdict, Due};
use gatewright_packet::{Arrival, Batch, LinkAddress, LinkIndex, NextHop, Packet};
use gatewright_wire::{
    EtherType,
    arp::{Arp, ArpFields, Operation},
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// The message is for address types other than Ethernet and IPv4, or is inconsistent.
pub(crate) const BAD_ARP: Reason = Reason("bad-arp");

/// A message that we sent ourselves came back.
pub(crate) const OWN_ARP: Reason = Reason("own-arp");

/// No frame was free in the slab.
pub(crate) const NO_FRAME: Reason = Reason("no-frame");

/// Another station uses the address too.
pub(crate) const CONFLICT: Reason = Reason("conflict");

/// ARP on all links of a host with Ethernet addresses; on other links it is silent.
///
/// Receives `ether:arp` and answers the station that asked; keeps the neighbours of each link.
/// Transmits only its own messages: packets that come by `unresolved:ipv4` wait here until their
/// neighbour has answered, and go to `error:ipv4:HostUnreachable` if it does not. Probes each
/// tentative address before its use, announces it afterwards, and defends it while it is in use
/// (RFC 5227). An address that is in use at once is probed meanwhile. An address of another station
/// is probed again every minute. Reports [`Event::Unique`], [`Event::Duplicate`] and
/// [`Event::Conflict`]. Drops `truncated`, `bad-arp`, `bad-station`, `own-arp`, `other-station`,
/// `no-frame`, `conflict`, and the drops of the neighbour cache.
#[derive(Debug)]
pub struct ArpLayer {
    links: Vec<ArpLink>,
    random: Random,
}

#[derive(Debug)]
struct ArpLink {
    link: LinkIndex,
    neighbours: SharedNeighbours,
    claims: Vec<Claim>,
    /// The link-layer address that neighbours know.
    link_address: LinkAddress,
    up: bool,
}

impl ArpLayer {
    /// ARP on the links of `neighbours`; `random` spreads the probes of hosts that start together.
    pub fn new(neighbours: &[LinkNeighbours], random: u64) -> Self {
        let link = |of: &LinkNeighbours| ArpLink {
            link: of.link,
            neighbours: of.v4.clone(),
            claims: Vec::new(),
            link_address: LinkAddress::NONE,
            up: false,
        };
        Self { links: neighbours.iter().map(link).collect(), random: Random::new(random) }
    }
}

impl Layer for ArpLayer {
    fn name(&self) -> &'static str {
        "arp"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            let ingress = packet.meta().ingress;
            let Some(link) = self.links.iter_mut().find(|link| link.link == ingress) else {
                out.drop(UNCLAIMED, packet);
                continue;
            };
            let arrival = packet.meta().arrival;
            // A promiscuous link shows what is said to other stations: they answer it themselves.
            let heard = if arrival == Arrival::Other {
                Err(OTHER_STATION)
            } else {
                read(&packet).and_then(|message| link.hear(message, arrival, out))
            };
            if let Err(reason) = heard {
                out.drop(reason, packet);
            }
            link.settle(out);
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            let meta = *packet.meta();
            let link = self.links.iter_mut().find(|link| link.link == meta.egress);
            match (link, meta.next_hop) {
                (Some(link), NextHop::Neighbour(ip)) => {
                    link.neighbours.borrow_mut().wait(ip, packet, out.now());
                    link.settle(out);
                }
                _ => out.drop(UNCLAIMED, packet),
            }
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        for link in &mut self.links {
            link.look_at_host(&mut self.random, out);
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.links.iter().filter_map(ArpLink::poll_timeout).min()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        for link in &mut self.links {
            link.handle_timeout(&mut self.random, out);
        }
    }
}

fn read(packet: &Packet) -> Result<ArpFields, Reason> {
    let (message, _) = Arp::split(packet.octets()).map_err(|_| TRUNCATED)?;
    let fields = message.fields();
    let sane = message.has_constants()
        && !fields.sender_protocol.is_multicast()
        && !fields.sender_protocol.is_broadcast();
    if !sane {
        return Err(BAD_ARP);
    }
    // RFC 1812 §3.3.2: "A router MUST not believe any ARP reply that claims that the Link Layer
    // address of another host or router is a broadcast or multicast address." Zeros are no
    // station's address either.
    if !LinkAddress::ethernet(fields.sender_hardware.0).is_unicast() {
        return Err(BAD_STATION);
    }
    Ok(fields)
}

impl ArpLink {
    /// Handles a message; answers if it asks for us.
    fn hear(
        &mut self,
        message: ArpFields,
        arrival: Arrival,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        // RFC 826: "?Do I have the hardware type in ar$hrd?"
        let mac = interface.ethernet_address().ok_or(BAD_ARP)?;
        let (from, now) = (LinkAddress::ethernet(message.sender_hardware.0), out.now());
        if message.sender_hardware == mac {
            return Err(OWN_ARP);
        }
        let (sender, target) = (message.sender_protocol, message.target_protocol);
        let for_us = interface.has(target.into());
        let on_link = interface.addresses.iter().any(|address| address.covers(sender.into()));
        if self.conflicts(&message, out) {
            return Err(CONFLICT);
        }
        if !sender.is_unspecified() && on_link {
            let mut neighbours = self.neighbours.borrow_mut();
            let answers = message.operation == Operation::REPLY && for_us;
            // One that nobody has asked for proves nothing: it may correct an address, as RFC 4861
            // §7.2.5 has it of advertisements without the solicited flag, and is then probed (RFC 1122
            // §2.3.2.1).
            if answers && arrival == Arrival::Unicast && neighbours.is_solicited(sender.into()) {
                let said = Advertised {
                    link_address: Some(from),
                    solicited: true,
                    overrides: true,
                    router: false,
                };
                neighbours.advertised(sender.into(), said, now);
            } else {
                // RFC 826: whoever is known is updated; whoever asks for us is added, for we shall
                // have to answer more than this.
                let add = for_us && message.operation == Operation::REQUEST;
                neighbours.heard(sender.into(), from, add, now);
            }
        }
        if for_us && message.operation == Operation::REQUEST {
            self.send(message.reply(mac), NextHop::Station(from), out);
        }
        Ok(())
    }

    /// Whether another station uses our address, or is about to; defends it or gives it up.
    fn conflicts(&mut self, message: &ArpFields, out: &mut Out<'_>) -> bool {
        let probed = message.sender_protocol.is_unspecified().then_some(message.target_protocol);
        // Whoever has an address that we gave up is a neighbour like any other.
        let claim = self.claims.iter_mut().filter(|claim| !claim.is_duplicate()).find(|claim| {
            claim.address == message.sender_protocol
                || (claim.is_probing() && Some(claim.address) == probed)
        });
        let Some(claim) = claim else { return false };
        let by = LinkAddress::ethernet(message.sender_hardware.0);
        let (link, ip) = (self.link, claim.address);
        let address = IpAddr::V4(ip);
        match claim.conflict(out.now()) {
            ClaimVerdict::Silent => {}
            ClaimVerdict::Defend => {
                self.announce(ip, out);
                out.report(Event::Conflict { link, address, by });
            }
            ClaimVerdict::GiveUp => {
                let known = out.host().interface(link).and_then(|own| own.state(address));
                // One that was probed again and found taken is no news.
                if known != Some(AddressState::Duplicate) {
                    out.report(Event::Duplicate { link, address, by });
                }
            }
        }
        true
    }

    /// Starts to claim new addresses, and forgets removed ones.
    fn look_at_host(&mut self, random: &mut Random, out: &mut Out<'_>) {
        let now = out.now();
        let interface = out.host().interface(self.link).filter(|interface| interface.up);
        let Some(interface) = interface else {
            self.claims.clear();
            self.neighbours.borrow_mut().clear();
            if std::mem::replace(&mut self.up, false) {
                out.paths().clear();
            }
            self.settle(out);
            return;
        };
        self.up = true;
        if interface.shared {
            self.claims.clear();
            self.handle_timeout(random, out);
            return;
        }
        self.claims.retain(|claim| interface.state(claim.address.into()).is_some());
        let known = std::mem::replace(&mut self.link_address, interface.link_address);
        if known != interface.link_address {
            self.claims.iter_mut().for_each(|claim| claim.announce_again(now));
        }
        for address in &interface.addresses {
            let IpAddr::V4(ip) = address.ip else { continue };
            let found = self.claims.iter_mut().find(|claim| claim.address == ip);
            match (address.state, found) {
                // A duplicate without a claim is one of before the link went down: the other station
                // may be gone.
                (AddressState::Tentative | AddressState::Duplicate, None) => {
                    self.claims.push(Claim::probing(ip, now, random));
                }
                (AddressState::Preferred | AddressState::Deprecated, None) => {
                    self.claims.push(Claim::checking(ip, now));
                }
                (AddressState::Preferred, Some(claim)) => claim.take_up(now),
                _ => {}
            }
        }
        self.handle_timeout(random, out);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let claims = self.claims.iter().filter_map(|claim| claim.due);
        claims.chain(self.neighbours.borrow_mut().poll_timeout()).min()
    }

    fn handle_timeout(&mut self, random: &mut Random, out: &mut Out<'_>) {
        let now = out.now();
        for index in 0..self.claims.len() {
            let Some(claim) = self.claims.get_mut(index) else { continue };
            let address = claim.address;
            match claim.handle_timeout(now, random) {
                Some(Due::Probe) => self.ask(Ipv4Addr::UNSPECIFIED, address, None, out),
                Some(Due::Announce) => self.announce(address, out),
                Some(Due::Unique) => {
                    out.report(Event::Unique { link: self.link, address: address.into() });
                }
                None => {}
            }
        }
        self.neighbours.borrow_mut().handle_timeout(now);
        self.settle(out);
    }

    /// Carries out the outputs of the neighbour cache.
    fn settle(&mut self, out: &mut Out<'_>) {
        loop {
            let Some(output) = self.neighbours.borrow_mut().poll_output() else { return };
            match output {
                NeighbourOutput::Solicit { address, .. } if out.host().is_shared(self.link) => {
                    out.report(Event::Wanted { link: self.link, address });
                }
                NeighbourOutput::Solicit { address: IpAddr::V4(address), to } => {
                    let source = source_for(out.host().interface(self.link), address);
                    self.ask(source, address, to, out);
                }
                NeighbourOutput::Send(packet) => {
                    if let Err(packet) = out.push_released(self.link, packet) {
                        out.drop(UNCLAIMED, packet);
                    }
                }
                NeighbourOutput::Unreachable(packet) => {
                    out.note_lost(self.link, &packet);
                    out.push_or_drop(
                        At::Error(EtherType::IPV4, IcmpError::HostUnreachable),
                        packet,
                    );
                }
                NeighbourOutput::Drop(reason, packet) => out.drop(reason, packet),
                NeighbourOutput::Count(reason) => out.count(reason),
                NeighbourOutput::Solicit { .. } | NeighbourOutput::RouterGone(_) => {}
            }
        }
    }

    fn announce(&self, address: Ipv4Addr, out: &mut Out<'_>) {
        self.ask(address, address, None, out);
    }

    /// Asks for the owner of `target`, at all stations or only at `to`.
    fn ask(&self, source: Ipv4Addr, target: Ipv4Addr, to: Option<LinkAddress>, out: &mut Out<'_>) {
        let interface = out.host().interface(self.link);
        let Some(mac) = interface.and_then(Interface::ethernet_address) else { return };
        let next_hop = to.map_or(NextHop::Broadcast, NextHop::Station);
        self.send(ArpFields::request(mac, source, target), next_hop, out);
    }

    fn send(&self, message: ArpFields, next_hop: NextHop, out: &mut Out<'_>) {
        let Some(mut packet) = out.frames().packet_of(&message.emit()) else {
            out.count(NO_FRAME);
            return;
        };
        let meta = packet.meta_mut();
        meta.egress = self.link;
        meta.ether_type = EtherType::ARP.0;
        meta.next_hop = next_hop;
        self.push(packet, out);
    }

    fn push(&self, packet: Packet, out: &mut Out<'_>) {
        if let Err(packet) = out.push_down(self.link, packet) {
            out.drop(UNCLAIMED, packet);
        }
    }
}

/// The source address of a request: one of the target's subnet if we have one there. Without any
/// address we ask as a probe does.
fn source_for(interface: Option<&Interface>, target: Ipv4Addr) -> Ipv4Addr {
    let usable = || interface.into_iter().flat_map(Interface::usable);
    let of_v4 = |ip| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    };
    (usable().filter(|address| address.covers(target.into())).find_map(|address| of_v4(address.ip)))
        .or_else(|| usable().find_map(|address| of_v4(address.ip)))
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
}

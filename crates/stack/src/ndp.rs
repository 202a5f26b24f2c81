//! Neighbour discovery (RFC 4861), as host and as router, with address autoconfiguration
//! (RFC 4862).

mod dad;
mod message;
pub(crate) mod router;

use crate::bucket::{Rates, SenderLimit};
use crate::{
    AddressState, Advertise, At, Event, IcmpError, Interface, Layer, LinkNeighbours,
    NeighbourOutput, Out, Reason, RouterPreference, SharedNeighbours, UNCLAIMED,
    icmp_counters::{IcmpFate, IcmpType},
    ipv6::solicited_node,
    link_layer::OTHER_STATION,
    neighbour::Advertised,
    random::Random,
};
use dad::{Dad, DadVerdict, Probe};
use gatewright_packet::{Arrival, Batch, LinkAddress, LinkIndex, NextHop, Packet};
use gatewright_tables::Prefix;
use gatewright_wire::{
    EtherType,
    icmpv6::Icmpv6Type,
    ipv6::{Ipv6, MTU_MIN},
    ndp::{
        NdpOption, NdpOptions, NeighborAdvertisement, NeighborSolicitation, PrefixInformation,
        Redirect, RouterAdvertisement, RouterSolicitation,
    },
};
use message::{ALL_NODES, Heard, INVALID, link_address};
use router::{Advertiser, SOLICITATION_EVERY, Solicitor};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// There is no address to send from.
const NO_SOURCE: Reason = Reason("no-source");
/// The message is about an address that is not ours.
const NOT_OURS: Reason = Reason("not-ours");
/// An advertisement or redirect that this link is not configured to accept.
const NOT_ASKED: Reason = Reason("not-configured");
/// More redirects than the rate allows (RFC 4861 §8.2).
const RATE_LIMITED: Reason = Reason("rate-limited");
/// The better first hop is a router whose link-local address is not known.
const NOT_TOLD: Reason = Reason("no-link-local");
/// Another station uses the address too.
const CONFLICT: Reason = Reason("conflict");

/// Neighbour discovery on all links of a host.
///
/// Receives `icmpv6:133` to `icmpv6:137` and `unresolved:ipv6`. Its packets wait here until their
/// neighbour has answered; they go to `error:ipv6:HostUnreachable` if it does not. Checks each
/// address for duplicates, and repeats the check every minute for one that another station has;
/// defends those in use. Solicits routers where the link configures itself. Advertises this host as
/// a router where the link says so, and once more with lifetime zero when it no longer does.
/// Reports [`Event::Unique`], [`Event::Duplicate`], [`Event::Conflict`], [`Event::Router`],
/// [`Event::Prefix`], [`Event::LinkMtu`] and [`Event::Redirect`]. Drops `invalid-message`,
/// `bad-station`, `own-station`, `other-station`, `not-ours`, `not-configured`, `conflict`,
/// `rate-limited`, `no-link-local`, and the drops of the neighbour cache. Receives
/// `error:ipv6:Redirect`, packets whose sender is to be informed of a better first hop.
#[derive(Debug)]
pub struct NdpLayer {
    links: Vec<NdpLink>,
    redirects: SenderLimit,
    random: Random,
}

#[derive(Debug)]
struct NdpLink {
    link: LinkIndex,
    neighbours: SharedNeighbours,
    /// The link-layer address that neighbours know.
    link_address: LinkAddress,
    dad: Dad,
    solicitor: Solicitor,
    advertiser: Advertiser,
}

impl NdpLayer {
    /// Neighbour discovery on the links of `neighbours`; `random` spreads the messages of hosts
    /// that start together.
    pub(crate) fn new(neighbours: &[LinkNeighbours], random: u64) -> Self {
        let link = |of: &LinkNeighbours| NdpLink {
            link: of.link,
            neighbours: of.v6.clone(),
            link_address: LinkAddress::NONE,
            dad: Dad::default(),
            solicitor: Solicitor::default(),
            advertiser: Advertiser::default(),
        };
        Self {
            links: neighbours.iter().map(link).collect(),
            redirects: SenderLimit::new(Rates::REDIRECTS, random),
            random: Random::new(random),
        }
    }
}

impl Layer for NdpLayer {
    fn name(&self) -> &'static str {
        "ndp"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let redirects = matches!(out.at(), At::Error(..));
        for packet in batch.drain() {
            let ingress = packet.meta().ingress;
            let Some(link) = self.links.iter_mut().find(|link| link.link == ingress) else {
                out.drop(UNCLAIMED, packet);
                continue;
            };
            if redirects {
                if let Err(reason) = link.redirect(&packet, &mut self.redirects, out) {
                    out.drop(reason, packet);
                }
                continue;
            }
            match link.hear(&packet, &mut self.random, out) {
                Ok(()) => {}
                Err(reason) => out.drop(reason, packet),
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
            let Some(interface) = out.host().interface(link.link).cloned() else {
                link.end(out);
                continue;
            };
            if interface.shared {
                continue;
            }
            link.look_at(&interface, &mut self.random, out);
        }
    }

    fn handle_end(&mut self, out: &mut Out<'_>) {
        for link in &mut self.links {
            let interface = out.host().interface(link.link).filter(|interface| interface.up);
            let Some(interface) = interface.cloned() else { continue };
            if link.advertiser.has_advertised() && !interface.shared {
                advertise_no_more(&interface, out);
            }
            link.advertiser = Advertiser::default();
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let of_link = |link: &NdpLink| {
            let timers = [
                link.neighbours.borrow_mut().poll_timeout(),
                link.dad.poll_timeout(),
                link.solicitor.poll_timeout(),
                link.advertiser.poll_timeout(),
            ];
            timers.into_iter().flatten().min()
        };
        self.links.iter().filter_map(of_link).min()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        let now = out.now();
        for link in &mut self.links {
            link.neighbours.borrow_mut().handle_timeout(now);
            link.settle(out);
            let Some(interface) = out.host().interface(link.link).cloned() else { continue };
            let retransmit = link.neighbours.borrow_mut().retransmit();
            for probe in link.dad.due(now, retransmit) {
                match probe {
                    Probe::Ask(target) => message::probe(&interface, target, out),
                    Probe::Unique(address) => {
                        let address = IpAddr::V6(address);
                        out.report(Event::Unique { link: link.link, address });
                    }
                }
            }
            if link.solicitor.due(now, SOLICITATION_EVERY) {
                let source = interface.link_local().filter(|ip| !link.dad.is_probing(*ip));
                message::solicit_routers(&interface, source, out);
            }
            if let Some(advertise) = link.advertiser.due(&interface, now, &mut self.random) {
                message::advertise_router(&interface, &advertise, ALL_NODES, out);
            }
        }
    }
}

impl NdpLink {
    /// Starts and ends its work by the interface's settings; work in progress ends when the link
    /// goes down.
    fn look_at(&mut self, interface: &Interface, random: &mut Random, out: &mut Out<'_>) {
        let now = out.now();
        if !interface.up {
            self.neighbours.borrow_mut().clear();
            self.settle(out);
        }
        self.dad.look_at(interface, now, random, out);
        let known = std::mem::replace(&mut self.link_address, interface.link_address);
        if known != interface.link_address && interface.up {
            // RFC 4861 §7.2.6: "inform its neighbors of the new link-layer address quickly".
            for target in self.dad.unique() {
                message::advertise(interface, target, ALL_NODES, (false, true), out);
            }
        }
        self.solicitor.look_at(interface, now, random);
        let was_router = self.advertiser.has_advertised();
        if let Some(begun) = self.advertiser.look_at(interface, now, random) {
            // A router listens to what is for all of them.
            out.join(message::ALL_ROUTERS.into(), interface.link, begun);
            if !begun && was_router && interface.up {
                advertise_no_more(interface, out);
            }
        }
    }

    /// The interface was removed.
    fn end(&mut self, out: &mut Out<'_>) {
        let none = Interface { link: self.link, ..Interface::default() };
        // Nothing begins there, and so nothing is random.
        self.look_at(&none, &mut Random::new(0), out);
    }

    /// The source address to solicit `target`, and whether it is known to be ours alone.
    ///
    /// RFC 4429 §3.2: "A node MUST NOT use an Optimistic Address as the source address of a
    /// Neighbor Solicitation." If there is no other address, it is used without our link-layer
    /// address, so that it changes no neighbour's cache.
    fn source_for(&self, target: Ipv6Addr, out: &Out<'_>) -> Option<(Ipv6Addr, bool)> {
        let chosen = out.host().source6(Some(self.link), target)?;
        if !self.dad.is_probing(chosen) {
            return Some((chosen, true));
        }
        let own = out.host().interface(self.link)?.usable();
        let settled = own.filter_map(|address| match address.ip {
            IpAddr::V6(ip) if !self.dad.is_probing(ip) => Some(ip),
            _ => None,
        });
        let nearest = settled.max_by_key(|ip| (ip.to_bits() ^ target.to_bits()).leading_zeros());
        Some(nearest.map_or((chosen, false), |ip| (ip, true)))
    }

    /// Carries out the outputs of the neighbour cache.
    fn settle(&mut self, out: &mut Out<'_>) {
        loop {
            let output = self.neighbours.borrow_mut().poll_output();
            match output {
                None => return,
                Some(NeighbourOutput::Solicit { address, .. })
                    if out.host().is_shared(self.link) =>
                {
                    out.report(Event::Wanted { link: self.link, address });
                }
                Some(NeighbourOutput::Solicit { address: IpAddr::V6(target), to }) => {
                    match self.source_for(target, out) {
                        Some(source) => message::solicit(self.link, target, to, source, out),
                        None => out.count(NO_SOURCE),
                    }
                }
                Some(NeighbourOutput::Send(packet)) => {
                    if let Err(packet) = out.push_released(self.link, packet) {
                        out.drop(UNCLAIMED, packet);
                    }
                }
                Some(NeighbourOutput::Unreachable(mut packet)) => {
                    out.note_lost(self.link, &packet);
                    packet.restore_network();
                    let at = At::Error(EtherType::IPV6, IcmpError::HostUnreachable);
                    out.push_or_drop(at, packet);
                }
                Some(NeighbourOutput::Drop(reason, packet)) => out.drop(reason, packet),
                Some(NeighbourOutput::Count(reason)) => out.count(reason),
                Some(NeighbourOutput::RouterGone(address)) => {
                    let lifetime = Duration::ZERO;
                    let preference = RouterPreference::default();
                    // It is no default router until it advertises itself again: where it has only
                    // been away for a moment, its next regular advertisement is minutes off.
                    self.solicitor.again(out.now());
                    out.report(Event::Router { link: self.link, address, lifetime, preference });
                }
                // A cache of IPv6 asks for IPv6 addresses.
                Some(NeighbourOutput::Solicit { .. }) => {}
            }
        }
    }

    /// Redirects the sender of a packet that goes back over its link to the packet's next hop (RFC
    /// 4861 §8.2).
    fn redirect(
        &mut self,
        packet: &Packet,
        limit: &mut SenderLimit,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let (ip, _) = Ipv6::split(packet.octets()).map_err(|_| INVALID)?;
        let (to, destination) = (ip.source_address(), ip.destination_address());
        let NextHop::Neighbour(IpAddr::V6(target)) = packet.meta().next_hop else {
            return Err(INVALID);
        };
        // "the redirection target is a router: the Target Address MUST be the router's link-local
        // address", by which alone hosts know routers.
        if (target != destination && !target.is_unicast_link_local()) || destination.is_multicast()
        {
            return Err(NOT_TOLD);
        }
        if !limit.take(self.link, to.into(), out.now()) {
            out.count_icmp(IcmpFate::RateLimited, IcmpType::V6(Icmpv6Type::REDIRECT));
            return Err(RATE_LIMITED);
        }
        let station = self.neighbours.borrow_mut().resolve(target.into(), out.now());
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?.clone();
        message::redirect(&interface, (target, station), (to, destination), packet, out);
        Ok(())
    }

    /// Handles one message.
    fn hear(
        &mut self,
        packet: &Packet,
        random: &mut Random,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        // A promiscuous link shows what is said to other stations; they answer it themselves.
        if packet.meta().arrival == Arrival::Other {
            return Err(OTHER_STATION);
        }
        let heard = Heard::of(packet, out.at()).ok_or(INVALID)?;
        match heard.kind {
            Icmpv6Type::NEIGHBOR_SOLICITATION => self.solicited(&heard, out),
            Icmpv6Type::NEIGHBOR_ADVERTISEMENT => self.advertised(&heard, out),
            Icmpv6Type::ROUTER_SOLICITATION => self.router_solicited(&heard, random, out),
            Icmpv6Type::ROUTER_ADVERTISEMENT => self.router_advertised(&heard, out),
            Icmpv6Type::REDIRECT => self.redirected(&heard, out),
            _ => Err(INVALID),
        }
    }

    /// Our own link-layer address.
    fn own(&self, out: &Out<'_>) -> Result<LinkAddress, Reason> {
        out.host().interface(self.link).map(|own| own.link_address).ok_or(UNCLAIMED)
    }

    /// Neighbor solicitation (RFC 4861 §7.2.3, RFC 4862 §5.4.3).
    fn solicited(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = NeighborSolicitation::split(heard.octets).map_err(|_| INVALID)?;
        let target = message.target_address();
        let source = link_address(options, true, self.own(out)?)?;
        let probing = heard.source.is_unspecified();
        // §7.1.1: "If the IP source address is the unspecified address, the IP destination address is
        // a solicited-node multicast address", and "there is no source link-layer address option".
        let to_group = heard.destination == solicited_node(target);
        if target.is_multicast() || (probing && (source.is_some() || !to_group)) {
            return Err(INVALID);
        }
        if probing && self.dad.is_probing(target) {
            // "If the source address of the Neighbor Solicitation is the unspecified address, the
            // solicitation is from a node performing Duplicate Address Detection."
            self.conflict(target, LinkAddress::NONE, out);
            return Err(CONFLICT);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?.clone();
        if !interface.has(target.into()) {
            return Err(NOT_OURS);
        }
        if let (Some(source), false) = (source, probing) {
            self.neighbours.borrow_mut().heard(heard.source.into(), source, true, out.now());
        }
        let to = if probing { ALL_NODES } else { heard.source };
        // RFC 4429 §3.3: an address that is still checked overrides nobody's cache.
        let overrides = !self.dad.is_probing(target);
        message::advertise(&interface, target, to, (!probing, overrides), out);
        Ok(())
    }

    /// Neighbor advertisement (RFC 4861 §7.2.5, RFC 4862 §5.4.4).
    fn advertised(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = NeighborAdvertisement::split(heard.octets).map_err(|_| INVALID)?;
        let target = message.target_address();
        let link_address = link_address(options, false, self.own(out)?)?;
        if target.is_multicast() || (heard.destination.is_multicast() && message.solicited()) {
            return Err(INVALID);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        let ours = interface.has(target.into()) || self.dad.is_probing(target);
        if ours {
            self.conflict(target, link_address.unwrap_or_default(), out);
            return Err(CONFLICT);
        }
        let said = Advertised {
            link_address,
            solicited: message.solicited(),
            overrides: message.override_flag(),
            router: message.router(),
        };
        self.neighbours.borrow_mut().advertised(target.into(), said, out.now());
        Ok(())
    }

    /// The station `by` uses an address of ours.
    fn conflict(&mut self, target: Ipv6Addr, by: LinkAddress, out: &mut Out<'_>) {
        let (link, address) = (self.link, IpAddr::V6(target));
        match self.dad.conflict(target, out.now()) {
            DadVerdict::Silent => {}
            DadVerdict::Defend => {
                if let Some(interface) = out.host().interface(link).cloned() {
                    message::advertise(&interface, target, ALL_NODES, (false, true), out);
                }
                out.report(Event::Conflict { link, address, by });
            }
            DadVerdict::GiveUp => {
                // One that was probed again and found taken is no news.
                let known = out.host().interface(link).and_then(|own| own.state(address));
                if known != Some(AddressState::Duplicate) {
                    out.report(Event::Duplicate { link, address, by });
                }
            }
        }
    }

    /// Router solicitation (RFC 4861 §6.2.6).
    fn router_solicited(
        &mut self,
        heard: &Heard<'_>,
        random: &mut Random,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let (_, options) = RouterSolicitation::split(heard.octets).map_err(|_| INVALID)?;
        let source = link_address(options, true, self.own(out)?)?;
        if heard.source.is_unspecified() && source.is_some() {
            return Err(INVALID);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        if interface.advertise.is_none() {
            return Err(NOT_ASKED);
        }
        if let Some(source) = source {
            self.neighbours.borrow_mut().heard(heard.source.into(), source, true, out.now());
        }
        self.advertiser.asked(out.now(), random);
        Ok(())
    }

    /// Router advertisement (RFC 4861 §6.3.4, RFC 4862 §5.5.3).
    fn router_advertised(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = RouterAdvertisement::split(heard.octets).map_err(|_| INVALID)?;
        if !heard.source.is_unicast_link_local() {
            return Err(INVALID);
        }
        let source = link_address(options, true, self.own(out)?)?;
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        if !interface.autoconfigure {
            return Err(NOT_ASKED);
        }
        let (router, now) = (IpAddr::V6(heard.source), out.now());
        let lifetime = Duration::from_secs(message.router_lifetime().into());
        {
            let mut neighbours = self.neighbours.borrow_mut();
            if let Some(source) = source {
                neighbours.heard(router, source, true, now);
            }
            neighbours.set_router(router, !lifetime.is_zero());
            let time = |ms: u32| (ms > 0).then(|| Duration::from_millis(ms.into()));
            neighbours.set_times(time(message.reachable_time()), time(message.retrans_timer()));
        }
        self.solicitor.answered();
        let preference = RouterPreference::of_bits(message.preference());
        out.report(Event::Router { link: self.link, address: router, lifetime, preference });
        for option in NdpOptions::new(options).flatten() {
            match option {
                NdpOption::PrefixInformation(found) => self.prefix(found, out),
                // §6.3.4: "greater than or equal to the minimum IPv6 link MTU"; whether the link
                // carries as much, the control side knows.
                NdpOption::Mtu(mtu) if usize::try_from(mtu).is_ok_and(|mtu| mtu >= MTU_MIN) => {
                    out.report(Event::LinkMtu { link: self.link, mtu });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports a prefix that a router advertises (RFC 4861 §6.3.4, RFC 4862 §5.5.3).
    fn prefix(&self, found: PrefixInformation<'_>, out: &mut Out<'_>) {
        let Ok(prefix) = Prefix::new(found.prefix(), found.prefix_length()) else { return };
        let (valid, preferred) = (found.valid_lifetime(), found.preferred_lifetime());
        if prefix.address().is_unicast_link_local() || preferred > valid {
            return;
        }
        // "A value of all one bits (0xffffffff) represents infinity" (RFC 4861 §4.6.2).
        let seconds = |seconds: u32| match seconds {
            u32::MAX => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        };
        out.report(Event::Prefix {
            link: self.link,
            prefix,
            on_link: found.on_link(),
            // An address is made of a prefix that, with the interface identifier, fills 128 bits.
            autonomous: found.autonomous() && prefix.len() == 64,
            valid: seconds(valid),
            preferred: seconds(preferred),
        });
    }

    /// Redirect (RFC 4861 §8.3).
    fn redirected(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = Redirect::split(heard.octets).map_err(|_| INVALID)?;
        let (target, destination) = (message.target_address(), message.destination_address());
        let link_address = link_address(options, false, self.own(out)?)?;
        let sane = heard.source.is_unicast_link_local()
            && !destination.is_multicast()
            && (target == destination || target.is_unicast_link_local());
        if !sane {
            return Err(INVALID);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        // "The IP source address of the Redirect is the same as the current first-hop router for
        // the specified ICMP Destination Address" (§8.1); a router never believes one (§8.3).
        let from_router = matches!(
            out.host().route6(destination),
            crate::Route::Via { gateway, .. } if gateway == IpAddr::V6(heard.source)
        );
        if interface.forwarding || !from_router {
            return Err(NOT_ASKED);
        }
        {
            let mut neighbours = self.neighbours.borrow_mut();
            if let Some(link_address) = link_address {
                neighbours.heard(target.into(), link_address, true, out.now());
            }
            // §8.3: "If the Target Address is not the same as the Destination Address, the host MUST
            // set IsRouter to TRUE for the target."
            if target != destination {
                neighbours.set_router(target.into(), true);
            }
        }
        let (destination, gateway) = (destination.into(), target.into());
        out.report(Event::Redirect { link: self.link, destination, gateway });
        Ok(())
    }
}

/// Tells the hosts of a link that this is no longer a router (RFC 4861 §6.2.5: "a Router Lifetime
/// field of zero").
fn advertise_no_more(interface: &Interface, out: &mut Out<'_>) {
    let last =
        Advertise { interval: Duration::ZERO, lifetime: Duration::ZERO, hop_limit: 0, mtu: false };
    message::advertise_router(interface, &last, ALL_NODES, out);
}

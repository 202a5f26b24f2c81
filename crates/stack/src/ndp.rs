//! Neighbour discovery (RFC 4861), as host and as router, with address autoconfiguration
//! (RFC 4862).

mod dad;
mod message;
pub(crate) mod router;

use crate::icmpv4::{REDIRECTS_AT_ONCE, REDIRECTS_PER_SECOND};
use crate::{
    At, Bucket, Event, IcmpError, Layer, LinkNeighbours, NeighbourOutput, Out, Reason,
    SharedNeighbours, UNCLAIMED, neighbour::Advertised, random::Random,
};
use dad::{Dad, Probe};
use gatewright_packet::{Batch, LinkIndex, NextHop, Packet};
use gatewright_tables::Prefix;
use gatewright_wire::{
    EtherType, MacAddress,
    icmpv6::Icmpv6Type,
    ipv6::Ipv6,
    ndp::{
        NdpOption, NdpOptions, NeighborAdvertisement, NeighborSolicitation, Redirect,
        RouterAdvertisement, RouterSolicitation,
    },
};
use message::{ALL_NODES, Heard};
use router::{Advertiser, SOLICITATION_EVERY, Solicitor};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// The message breaks a rule of RFC 4861 §6.1, §7.1 or §8.1: it came over a router, or is cut.
const INVALID: Reason = Reason("invalid-message");
/// The message is about an address that is not ours.
const NOT_OURS: Reason = Reason("not-ours");
/// An advertisement or redirect that this link is not configured to believe.
const NOT_ASKED: Reason = Reason("not-configured");
/// More redirects than the rate allows (RFC 4861 §8.2).
const RATE_LIMITED: Reason = Reason("rate-limited");
/// The better first hop is a router whose link-local address is not known.
const NOT_TOLD: Reason = Reason("no-link-local");
/// An address is used by another station too.
const CONFLICT: Reason = Reason("conflict");

/// Neighbour discovery on all links of a host.
///
/// Receives `dispatch:133` to `dispatch:137` (ICMPv6 types) and `unresolved:ipv6`, whose packets
/// wait here until their neighbour has answered; they go to `error:ipv6:HostUnreachable` if it does
/// not. Checks each address for duplicates, asks for routers where the link configures itself,
/// and advertises this host as a router where the link says so. Tells [`Event::Unique`],
/// [`Event::Duplicate`], [`Event::Router`], [`Event::Prefix`] and [`Event::Redirect`]. Drops
/// `invalid-message`, `not-ours`, `not-configured`, `conflict`, `rate-limited`, `no-link-local`, and
/// what the neighbour cache drops. Receives `error:ipv6:Redirect`, packets whose sender is to be told
/// of a better first hop.
#[derive(Debug)]
pub struct NdpLayer {
    links: Vec<NdpLink>,
    redirects: Bucket,
    random: Random,
}

#[derive(Debug)]
struct NdpLink {
    link: LinkIndex,
    neighbours: SharedNeighbours,
    dad: Dad,
    solicitor: Solicitor,
    advertiser: Advertiser,
}

impl NdpLayer {
    /// Neighbour discovery on the links of `neighbours`; `random` spreads what hosts that start
    /// together send.
    pub(crate) fn new(neighbours: &[LinkNeighbours], random: u64) -> Self {
        let link = |of: &LinkNeighbours| NdpLink {
            link: of.link,
            neighbours: of.v6.clone(),
            dad: Dad::default(),
            solicitor: Solicitor::default(),
            advertiser: Advertiser::default(),
        };
        Self {
            links: neighbours.iter().map(link).collect(),
            redirects: Bucket::new(REDIRECTS_PER_SECOND, REDIRECTS_AT_ONCE),
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
                if !self.redirects.take(out.now()) {
                    out.drop(RATE_LIMITED, packet);
                } else if let Err(reason) = link.redirect(&packet, out) {
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
                    link.neighbours.lock().wait(ip, packet, out.now());
                    link.settle(out);
                }
                _ => out.drop(UNCLAIMED, packet),
            }
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        let now = out.now();
        for link in &mut self.links {
            let Some(interface) = out.host().interface(link.link).cloned() else { continue };
            if interface.shared {
                continue;
            }
            link.dad.look_at(&interface, now, &mut self.random, out);
            link.solicitor.look_at(&interface, now, &mut self.random);
            if let Some(begun) = link.advertiser.look_at(&interface, now, &mut self.random) {
                // A router listens to what is for all of them.
                out.join(message::ALL_ROUTERS.into(), interface.link, begun);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        let of_link = |link: &NdpLink| {
            let timers = [
                link.neighbours.lock().poll_timeout(),
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
            link.neighbours.lock().handle_timeout(now);
            link.settle(out);
            let Some(interface) = out.host().interface(link.link).cloned() else { continue };
            for probe in link.dad.due(now, link.neighbours.lock().retransmit()) {
                match probe {
                    Probe::Ask(target) => message::probe(&interface, target, out),
                    Probe::Unique(address) => {
                        let address = IpAddr::V6(address);
                        out.report(Event::Unique { link: link.link, address });
                    }
                }
            }
            if link.solicitor.due(now, SOLICITATION_EVERY) {
                message::solicit_routers(&interface, out);
            }
            if let Some(advertise) = link.advertiser.due(&interface, now, &mut self.random) {
                message::advertise_router(&interface, &advertise, ALL_NODES, out);
            }
        }
    }
}

impl NdpLink {
    /// Does what the neighbour cache asks for.
    fn settle(&mut self, out: &mut Out<'_>) {
        loop {
            let output = self.neighbours.lock().poll_output();
            match output {
                None => return,
                Some(NeighbourOutput::Solicit { address, .. })
                    if out.host().is_shared(self.link) =>
                {
                    out.report(Event::Wanted { link: self.link, address });
                }
                Some(NeighbourOutput::Solicit { address: IpAddr::V6(target), to }) => {
                    message::solicit(self.link, target, to, out);
                }
                Some(NeighbourOutput::Send(packet)) => {
                    if let Err(packet) = out.push_released(self.link, packet) {
                        out.drop(UNCLAIMED, packet);
                    }
                }
                Some(NeighbourOutput::Unreachable(mut packet)) => {
                    packet.restore_network();
                    let at = At::Error(EtherType::IPV6, IcmpError::HostUnreachable);
                    out.push_or_drop(at, packet);
                }
                Some(NeighbourOutput::Drop(reason, packet)) => out.drop(reason, packet),
                Some(NeighbourOutput::Count(reason)) => out.count(reason),
                Some(NeighbourOutput::RouterGone(address)) => {
                    let lifetime = Duration::ZERO;
                    out.report(Event::Router { link: self.link, address, lifetime });
                }
                // A cache of IPv6 asks for IPv6 addresses.
                Some(NeighbourOutput::Solicit { .. }) => {}
            }
        }
    }

    /// Tells the sender of a packet, which goes back over this link, of the better first hop that is
    /// its next hop (RFC 4861 §8.2).
    fn redirect(&mut self, packet: &Packet, out: &mut Out<'_>) -> Result<(), Reason> {
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
        let station = self.neighbours.lock().resolve(target.into(), out.now());
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?.clone();
        message::redirect(&interface, (target, station), (to, destination), packet.octets(), out);
        Ok(())
    }

    /// Takes one message.
    fn hear(
        &mut self,
        packet: &Packet,
        random: &mut Random,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
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

    /// Neighbor solicitation (RFC 4861 §7.2.3, RFC 4862 §5.4.3).
    fn solicited(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = NeighborSolicitation::split(heard.octets).map_err(|_| INVALID)?;
        let target = message.target_address();
        let source_mac = link_address(options, true).map_err(|()| INVALID)?;
        let probing = heard.source.is_unspecified();
        if target.is_multicast() || (probing && source_mac.is_some()) {
            return Err(INVALID);
        }
        if probing && self.dad.is_probing(target) {
            // "If the source address of the Neighbor Solicitation is the unspecified address, the
            // solicitation is from a node performing Duplicate Address Detection."
            self.duplicate(target, MacAddress::ZERO, out);
            return Err(CONFLICT);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?.clone();
        if !interface.has(target.into()) {
            return Err(NOT_OURS);
        }
        if let (Some(mac), false) = (source_mac, probing) {
            self.neighbours.lock().heard(heard.source.into(), mac, true, out.now());
        }
        let to = if probing { ALL_NODES } else { heard.source };
        message::advertise(&interface, target, to, !probing, out);
        Ok(())
    }

    /// Neighbor advertisement (RFC 4861 §7.2.5, RFC 4862 §5.4.4).
    fn advertised(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = NeighborAdvertisement::split(heard.octets).map_err(|_| INVALID)?;
        let target = message.target_address();
        let mac = link_address(options, false).map_err(|()| INVALID)?;
        if target.is_multicast() || (heard.destination.is_multicast() && message.solicited()) {
            return Err(INVALID);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        let ours = interface.has(target.into()) || self.dad.is_probing(target);
        if ours {
            if mac != Some(interface.mac) {
                self.duplicate(target, mac.unwrap_or(MacAddress::ZERO), out);
            }
            return Err(CONFLICT);
        }
        let said = Advertised {
            mac,
            solicited: message.solicited(),
            overrides: message.override_flag(),
            router: message.router(),
        };
        self.neighbours.lock().advertised(target.into(), said, out.now());
        Ok(())
    }

    fn duplicate(&mut self, address: Ipv6Addr, by: MacAddress, out: &mut Out<'_>) {
        self.dad.give_up(address);
        out.report(Event::Duplicate { link: self.link, address: address.into(), by });
    }

    /// Router solicitation (RFC 4861 §6.2.6).
    fn router_solicited(
        &mut self,
        heard: &Heard<'_>,
        random: &mut Random,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let (_, options) = RouterSolicitation::split(heard.octets).map_err(|_| INVALID)?;
        let mac = link_address(options, true).map_err(|()| INVALID)?;
        if heard.source.is_unspecified() && mac.is_some() {
            return Err(INVALID);
        }
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?;
        if interface.advertise.is_none() {
            return Err(NOT_ASKED);
        }
        if let Some(mac) = mac {
            self.neighbours.lock().heard(heard.source.into(), mac, true, out.now());
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
        let mac = link_address(options, true).map_err(|()| INVALID)?;
        let interface = out.host().interface(self.link).ok_or(UNCLAIMED)?.clone();
        if !interface.autoconfigure {
            return Err(NOT_ASKED);
        }
        let (router, now) = (IpAddr::V6(heard.source), out.now());
        let lifetime = Duration::from_secs(message.router_lifetime().into());
        {
            let mut neighbours = self.neighbours.lock();
            if let Some(mac) = mac {
                neighbours.heard(router, mac, true, now);
            }
            neighbours.set_router(router, !lifetime.is_zero());
            let time = |ms: u32| (ms > 0).then(|| Duration::from_millis(ms.into()));
            neighbours.set_times(time(message.reachable_time()), time(message.retrans_timer()));
        }
        self.solicitor.answered();
        out.report(Event::Router { link: self.link, address: router, lifetime });
        for option in NdpOptions::new(options).flatten() {
            let NdpOption::PrefixInformation(found) = option else { continue };
            let Ok(prefix) = Prefix::new(found.prefix(), found.prefix_length()) else { continue };
            let (valid, preferred) = (found.valid_lifetime(), found.preferred_lifetime());
            if prefix.address().is_unicast_link_local() || preferred > valid {
                continue;
            }
            let seconds = |seconds: u32| Duration::from_secs(seconds.into());
            // RFC 4862 §5.5.3: an address is made of a prefix that, with the interface identifier,
            // fills 128 bits.
            let autonomous = found.autonomous() && prefix.len() == 64;
            out.report(Event::Prefix {
                link: self.link,
                prefix,
                on_link: found.on_link(),
                autonomous,
                valid: seconds(valid),
                preferred: seconds(preferred),
            });
            if autonomous && valid > 0 {
                self.dad.form(prefix.address(), &interface, now, out);
            }
        }
        Ok(())
    }

    /// Redirect (RFC 4861 §8.3).
    fn redirected(&mut self, heard: &Heard<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let (message, options) = Redirect::split(heard.octets).map_err(|_| INVALID)?;
        let (target, destination) = (message.target_address(), message.destination_address());
        let mac = link_address(options, false).map_err(|()| INVALID)?;
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
        if let Some(mac) = mac {
            self.neighbours.lock().heard(target.into(), mac, true, out.now());
        }
        let (destination, gateway) = (destination.into(), target.into());
        out.report(Event::Redirect { link: self.link, destination, gateway });
        Ok(())
    }
}

/// The source (or else the target) link-layer address among the options; an error if any of them
/// cannot be read.
fn link_address(options: &[u8], source: bool) -> Result<Option<MacAddress>, ()> {
    let mut found = None;
    for option in NdpOptions::new(options) {
        let octets = match option.map_err(|_| ())? {
            NdpOption::SourceLinkLayerAddress(octets) if source => octets,
            NdpOption::TargetLinkLayerAddress(octets) if !source => octets,
            _ => continue,
        };
        let mac = octets.first_chunk().copied().map(MacAddress);
        found = mac.filter(|mac| mac.is_unicast()).or(found);
    }
    Ok(found)
}

//! Router discovery of IPv4 (RFC 1256): advertising as a router, and asking for routers as a host.
//!
//! The timers are those of neighbour discovery, which took them over from here.

use super::{NO_HEADROOM, forget_the_way, sign};
use crate::{
    Advertise, Interface, Out, Reason,
    ipv4::{ALL_ROUTERS, ALL_SYSTEMS},
    ndp::router::{Advertiser, Solicitor},
    random::Random,
};
use gatewright_packet::LinkIndex;
use gatewright_wire::{
    IpProtocol,
    icmpv4::{
        Icmpv4Type, RouterAddressFields, RouterAdvertisementFields, RouterSolicitationFields,
    },
    ipv4::Ipv4Fields,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// SOLICITATION_INTERVAL (RFC 1256 §6.1).
const SOLICITATION_EVERY: Duration = Duration::from_secs(3);

/// Words of a router's entry: its address and its preference (RFC 1256 §3).
const ENTRY_WORDS: u8 = 2;

/// Routers of one advertisement at the most: our own addresses on one link.
const ROUTERS_MAX: usize = 16;

/// How long advertised addresses may be used at the most, in seconds (RFC 1256 §4.1).
const LIFETIME_MAX: u16 = 9000;

/// No packet was free for a message.
const NO_PACKET: Reason = Reason("no-packet");

/// Router discovery on one link.
#[derive(Debug)]
struct OfLink {
    link: LinkIndex,
    advertiser: Advertiser,
    solicitor: Solicitor,
}

/// Router discovery on all links of a host.
#[derive(Debug)]
pub(super) struct Discovery {
    links: Vec<OfLink>,
    random: Random,
}

impl Discovery {
    pub(super) const fn new(random: u64) -> Self {
        Self { links: Vec::new(), random: Random::new(random) }
    }

    /// Starts and ends by the interfaces' settings.
    pub(super) fn look_at_host(&mut self, out: &mut Out<'_>) {
        let now = out.now();
        let found: Vec<Interface> =
            out.host().interfaces().iter().filter(|found| !found.shared).cloned().collect();
        self.links.retain(|link| found.iter().any(|interface| interface.link == link.link));
        for mut interface in found {
            // Without an address there is nobody to speak for (RFC 1256 §4.1), and the timers are not
            // to begin; a router asks nobody for routers (§5).
            if interface.ipv4().is_none() || !interface.up {
                interface.advertise = None;
            }
            interface.autoconfigure &= interface.up && !interface.forwarding;
            let known = self.links.iter().position(|link| link.link == interface.link);
            let index = known.unwrap_or_else(|| {
                let (advertiser, solicitor) = (Advertiser::default(), Solicitor::default());
                self.links.push(OfLink { link: interface.link, advertiser, solicitor });
                self.links.len() - 1
            });
            let Some(link) = self.links.get_mut(index) else { continue };
            // The group of all routers needs no joining: whoever forwards is in it.
            let was_router = link.advertiser.has_advertised();
            let begun = link.advertiser.look_at(&interface, now, &mut self.random);
            if begun == Some(false) && was_router && interface.up {
                advertise_no_more(&interface, out);
            }
            link.solicitor.look_at(&interface, now, &mut self.random);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let of = |link: &OfLink| [link.advertiser.poll_timeout(), link.solicitor.poll_timeout()];
        self.links.iter().flat_map(of).flatten().min()
    }

    /// Sends the messages that are due.
    pub(super) fn handle_timeout(&mut self, out: &mut Out<'_>) {
        let now = out.now();
        for link in &mut self.links {
            let Some(interface) = out.host().interface(link.link).cloned() else { continue };
            if let Some(advertise) = link.advertiser.due(&interface, now, &mut self.random) {
                advertise_router(&interface, &advertise, out);
            }
            if link.solicitor.due(now, SOLICITATION_EVERY) {
                solicit(&interface, out);
            }
        }
    }

    /// Tells hosts that this is no longer a router for them.
    pub(super) fn end(&mut self, out: &mut Out<'_>) {
        for link in &mut self.links {
            let interface = out.host().interface(link.link).filter(|interface| interface.up);
            if let Some(interface) = interface.cloned()
                && link.advertiser.has_advertised()
            {
                advertise_no_more(&interface, out);
            }
            link.advertiser = Advertiser::default();
        }
    }

    /// Handles a solicitation on a link; returns whether we are a router that answers.
    pub(super) fn asked(&mut self, link: LinkIndex, now: Duration) -> bool {
        let found = self.links.iter_mut().find(|known| known.link == link);
        let Some(found) = found.filter(|found| found.advertiser.poll_timeout().is_some()) else {
            return false;
        };
        found.advertiser.asked(now, &mut self.random);
        true
    }

    /// A router has answered.
    pub(super) fn answered(&mut self, link: LinkIndex) {
        if let Some(link) = self.links.iter_mut().find(|known| known.link == link) {
            link.solicitor.answered();
        }
    }
}

/// RFC 1256 §4.3: from each of the link's addresses, which it tells of itself.
fn advertise_router(interface: &Interface, advertise: &Advertise, out: &mut Out<'_>) {
    let addresses = interface.usable().filter_map(|address| match address.ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let addresses: Vec<Ipv4Addr> = addresses.take(ROUTERS_MAX).collect();
    let Some(&source) = addresses.first() else { return };
    let lifetime = u16::try_from(advertise.lifetime.as_secs()).unwrap_or(u16::MAX);
    let head = RouterAdvertisementFields {
        kind: Icmpv4Type::ROUTER_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        num_addrs: u8::try_from(addresses.len()).unwrap_or(u8::MAX),
        addr_entry_size: ENTRY_WORDS,
        lifetime: lifetime.min(LIFETIME_MAX),
    };
    let entries = addresses.iter().flat_map(|&router_address| {
        RouterAddressFields { router_address, preference_level: 0 }.emit()
    });
    let message: Vec<u8> = head.emit().into_iter().chain(entries).collect();
    send(interface.link, source, ALL_SYSTEMS, &message, out);
}

/// The last advertisement, with a lifetime of zero, of an interface that ceases to advertise
/// (RFC 1256 §4.3).
fn advertise_no_more(interface: &Interface, out: &mut Out<'_>) {
    let (interval, lifetime) = (Duration::ZERO, Duration::ZERO);
    let last = Advertise { interval, lifetime, hop_limit: 0, mtu: false };
    advertise_router(interface, &last, out);
}

/// RFC 1256 §5.3: to all routers, from our address if we have one.
fn solicit(interface: &Interface, out: &mut Out<'_>) {
    let kind = Icmpv4Type::ROUTER_SOLICITATION;
    let message = RouterSolicitationFields { kind, code: 0, checksum: 0 }.emit();
    let Some(source) = interface.ipv4() else { return };
    send(interface.link, source, ALL_ROUTERS, &message, out);
}

/// Sends a message to a group on a link, which no router passes on (RFC 1256 §3: TTL 1).
fn send(link: LinkIndex, source: Ipv4Addr, group: Ipv4Addr, message: &[u8], out: &mut Out<'_>) {
    let Some(mut packet) = out.frames().packet_of(message) else { return out.count(NO_PACKET) };
    sign(packet.octets_mut());
    let fields =
        Ipv4Fields { time_to_live: 1, ..Ipv4Fields::new(IpProtocol::ICMPV4, source, group, 0) };
    if packet.prepend(&fields.emit()).is_err() {
        return out.drop(NO_HEADROOM, packet);
    }
    forget_the_way(&mut packet);
    packet.meta_mut().egress = link;
    super::send(packet, out);
}

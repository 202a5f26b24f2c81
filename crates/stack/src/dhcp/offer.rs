//! Parsing of a server's message.

use crate::{Lease, Reason};
use gatewright_tables::Prefix;
use gatewright_wire::{
    MacAddress,
    dhcpv4::{DhcpOption, DhcpOptions, DhcpType, Operation, read},
};
use std::{net::Ipv4Addr, time::Duration};

/// The message is cut short, or has no type.
const TRUNCATED: Reason = Reason("truncated");

/// An option is invalid.
const BAD_OPTION: Reason = Reason("bad-option");

/// The message belongs to a different transaction or station.
const NOT_OURS: Reason = Reason("not-ours");

/// Maximum routers and name servers that are taken over.
const SERVERS_MAX: usize = 8;

/// Maximum routes of a lease that are taken over.
const ROUTES_MAX: usize = 64;

/// The lease time that never ends (RFC 2131 §3.3).
const FOREVER: u32 = u32::MAX;

/// A server's message.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) kind: DhcpType,
    pub(super) server: Option<Ipv4Addr>,
    pub(super) lease: Lease,
    /// When to renew and to rebind, after the lease began.
    pub(super) renew: Duration,
    pub(super) rebind: Duration,
}

impl Offer {
    /// Reads a message that answers the transaction `xid` of the station `mac`.
    pub(super) fn read(message: &[u8], mac: MacAddress, xid: u32) -> Result<Self, Reason> {
        let (header, options) = read(message).map_err(|_| TRUNCATED)?;
        let ours = header.op() == Operation::BOOT_REPLY
            && header.xid() == xid
            && header.chaddr().starts_with(&mac.octets());
        if !ours {
            return Err(NOT_OURS);
        }
        let mut said = OfferedOptions::default();
        for (kind, data) in &whole(options)? {
            said.take(DhcpOption::of(*kind, data).map_err(|_| BAD_OPTION)?);
        }
        let address = header.yiaddr();
        let prefix_len = prefix_len(said.mask, address);
        let duration = seconds(said.lease_time.unwrap_or(0));
        let renew = said.renewal.map_or(duration / 2, seconds).min(duration);
        let rebind = said.rebinding.map_or(duration / 8 * 7, seconds).clamp(renew, duration);
        // RFC 3442: "the DHCP client MUST ignore the Router option" beside classless routes.
        let (routers, routes) = said.classless.unwrap_or((said.routers, Vec::new()));
        let name_servers = said.name_servers;
        let lease = Lease { address, prefix_len, routers, name_servers, routes, duration };
        let kind = said.kind.ok_or(TRUNCATED)?;
        Ok(Self { kind, server: said.server, lease, renew, rebind })
    }
}

/// Classless routes: the default routers, and other routes.
type Classless = (Vec<Ipv4Addr>, Vec<(Prefix<Ipv4Addr>, Ipv4Addr)>);

#[derive(Default)]
struct OfferedOptions {
    kind: Option<DhcpType>,
    server: Option<Ipv4Addr>,
    mask: Option<Ipv4Addr>,
    routers: Vec<Ipv4Addr>,
    classless: Option<Classless>,
    name_servers: Vec<Ipv4Addr>,
    lease_time: Option<u32>,
    renewal: Option<u32>,
    rebinding: Option<u32>,
}

impl OfferedOptions {
    fn take(&mut self, option: DhcpOption<'_>) {
        let list = |addresses: &[[u8; 4]]| {
            addresses.iter().take(SERVERS_MAX).map(|&ip| Ipv4Addr::from_octets(ip)).collect()
        };
        match option {
            DhcpOption::MessageType(kind) => self.kind = Some(kind),
            DhcpOption::ServerIdentifier(server) => self.server = Some(server),
            DhcpOption::SubnetMask(mask) => self.mask = Some(mask),
            DhcpOption::Routers(routers) => self.routers = list(routers),
            DhcpOption::DomainNameServers(servers) => self.name_servers = list(servers),
            DhcpOption::LeaseTime(time) => self.lease_time = Some(time),
            DhcpOption::RenewalTime(time) => self.renewal = Some(time),
            DhcpOption::RebindingTime(time) => self.rebinding = Some(time),
            DhcpOption::ClasslessRoutes(routes) => self.classless = Some(classless(routes)),
            _ => {}
        }
    }
}

/// The options with the pieces of each joined (RFC 3396 §7), in the order of their first ones.
fn whole(options: DhcpOptions<'_>) -> Result<Vec<(u8, Vec<u8>)>, Reason> {
    let mut whole: Vec<(u8, Vec<u8>)> = Vec::new();
    for piece in options.pieces() {
        let (kind, data) = piece.map_err(|_| BAD_OPTION)?;
        match whole.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, octets)) => octets.extend(data),
            None => whole.push((kind, data.to_vec())),
        }
    }
    Ok(whole)
}

/// Default routers and other routes of classless routes (RFC 3442): width, as many octets of the
/// prefix as it has, router. Routes after an invalid one are left out.
fn classless(mut rest: &[u8]) -> Classless {
    let (mut routers, mut routes) = (Vec::new(), Vec::new());
    while let Some((&width, tail)) = rest.split_first() {
        let octets = usize::from(width).div_ceil(8);
        let Some((prefix, tail)) = tail.split_at_checked(octets) else { break };
        let Some((router, tail)) = tail.split_first_chunk() else { break };
        let mut network = [0; 4];
        for (to, from) in network.iter_mut().zip(prefix) {
            *to = *from;
        }
        let router = Ipv4Addr::from_octets(*router);
        let Ok(to) = Prefix::new(Ipv4Addr::from_octets(network), width) else { break };
        if width == 0 && routers.len() < SERVERS_MAX {
            routers.push(router);
        } else if width > 0 && routes.len() < ROUTES_MAX {
            routes.push((to, router));
        }
        rest = tail;
    }
    (routers, routes)
}

/// Bits of the subnet: of the mask if it is one, else of the address's class (RFC 950 §1).
fn prefix_len(mask: Option<Ipv4Addr>, address: Ipv4Addr) -> u8 {
    let bits = mask
        .map(Ipv4Addr::to_bits)
        .filter(|bits| bits.leading_ones() + bits.trailing_zeros() == 32);
    let classful = match address.octets() {
        [0..=127, ..] => 8,
        [128..=191, ..] => 16,
        _ => 24,
    };
    bits.and_then(|bits| u8::try_from(bits.leading_ones()).ok()).unwrap_or(classful)
}

fn seconds(time: u32) -> Duration {
    if time == FOREVER { Duration::MAX } else { Duration::from_secs(time.into()) }
}

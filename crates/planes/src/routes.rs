//! The routes of a running gateway: listed with their origins, added and removed by command.

use crate::{
    Planes,
    control::{Control, Origin},
    setup::{RouteTo, StaticRoute},
};
use gatewright_config::Prefix as Network;
use gatewright_packet::LinkIndex;
use gatewright_stack::{Route, WeightedHop};
use gatewright_tables::Prefix;
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};

/// The network or single address in a text.
///
/// # Errors
///
/// The expected form, in words for the operator.
pub fn network(text: &str) -> Result<Network, String> {
    let host = text.parse::<IpAddr>().ok().and_then(|ip| {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        Network::parse(&format!("{ip}/{bits}"))
    });
    host.or_else(|| Network::parse(text))
        .ok_or_else(|| format!("{text} is neither ADDRESS nor ADDRESS/LENGTH"))
}

/// A route in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RouteStatus {
    /// Destinations: `192.0.2.0/24`.
    pub to: String,
    /// `connected`, `via`, `several`, `local`, `broadcast`, `blackhole`, `prohibited`, or `kernel` for
    /// what the kernel forwards.
    pub kind: &'static str,
    /// The next hop, if it is the only one.
    pub via: Option<IpAddr>,
    /// The outgoing link.
    pub link: Option<String>,
    /// The next hops of `several`, of which each flow keeps one.
    pub next_hops: Vec<RouteHop>,
    /// Its origin: `address`, `command`, `description`, `network` (a router, a DHCP server) or
    /// `kernel`.
    pub origin: &'static str,
}

/// A next hop of a route that has several.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RouteHop {
    /// The router; none if destinations are neighbours themselves.
    pub via: Option<IpAddr>,
    /// The outgoing link.
    pub link: String,
    /// Its weight among the others.
    pub weight: u16,
    /// Flows that it has of 1024.
    pub flows: u32,
    /// Whether it is left out: its link has no carrier, or nobody tells its link-layer address.
    pub left_out: bool,
}

impl fmt::Display for RouteHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Some(via) => write!(f, "via {via} on {}", self.link)?,
            None => write!(f, "connected on {}", self.link)?,
        }
        let left_out = if self.left_out { ", left out" } else { "" };
        write!(f, " (weight {}{left_out})", self.weight)
    }
}

impl fmt::Display for RouteStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        if !self.next_hops.is_empty() {
            let hops: Vec<_> = self.next_hops.iter().map(ToString::to_string).collect();
            return write!(f, " {}, by {}", hops.join(", "), self.origin);
        }
        match self.via {
            Some(via) => write!(f, " via {via}")?,
            None => write!(f, " {}", self.kind)?,
        }
        if let Some(link) = &self.link {
            write!(f, " on {link}")?;
        }
        write!(f, ", by {}", self.origin)
    }
}

/// A route as given in a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RouteOrder {
    /// Destinations.
    pub to: RouteTarget,
    /// The next hop; none if the destinations are neighbours themselves.
    pub via: Option<IpAddr>,
    /// The link; found by `via` if not given.
    pub link: Option<String>,
}

/// Destinations as given in a command.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RouteTarget {
    /// All destinations of the next hop's family.
    #[default]
    Default,
    /// The destinations of a network.
    Network(Network),
}

impl RouteTarget {
    /// Reads `default`, an address or `ADDRESS/LENGTH`.
    ///
    /// # Errors
    ///
    /// The error, in words for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let network = network(text)
            .map_err(|_| format!("{text} is no network: ADDRESS/LENGTH or default"))?;
        if network.network() != network {
            let meant = network.network();
            return Err(format!("{text} has bits behind its prefix: {meant} is the network"));
        }
        Ok(Self::Network(network))
    }

    /// The destinations; the family of `default` is that of `via`.
    fn of_family(self, via: Option<IpAddr>) -> Option<RouteTo> {
        match self {
            Self::Default if via?.is_ipv4() => Some(RouteTo::V4(Prefix::all())),
            Self::Default => Some(RouteTo::V6(Prefix::all())),
            Self::Network(network) => match network.address() {
                IpAddr::V4(ip) => Prefix::new(ip, network.length()).ok().map(RouteTo::V4),
                IpAddr::V6(ip) => Prefix::new(ip, network.length()).ok().map(RouteTo::V6),
            },
        }
    }
}

/// A route that was set by command, as a later control plane reads it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CommandRoute {
    /// Destinations: `192.0.2.0/24`.
    pub to: String,
    /// The next hop, if the destinations are no neighbours themselves.
    pub via: Option<IpAddr>,
    /// The outgoing link.
    pub link: String,
}

impl CommandRoute {
    /// The route over links whose names by place are `names`; `None` if it has no such link, or is no
    /// route.
    pub fn among(&self, names: &[String]) -> Option<StaticRoute> {
        let place = names.iter().position(|name| *name == self.link)?;
        let link = LinkIndex(u16::try_from(place).ok()?);
        let to = RouteTarget::parse(&self.to).ok()?.of_family(None)?;
        if self.via.is_some_and(|via| via.is_ipv4() != matches!(to, RouteTo::V4(_))) {
            return None;
        }
        Some(StaticRoute { to, hops: vec![WeightedHop { link, gateway: self.via, weight: 1 }] })
    }
}

impl fmt::Display for CommandRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}", self.to)?;
        self.via.map_or(Ok(()), |via| write!(f, " via {via}"))?;
        write!(f, " on {}", self.link)
    }
}

impl Planes {
    /// The routes that were set by command, also those whose link is down.
    pub fn command_routes(&self) -> Vec<CommandRoute> {
        self.change(|control| {
            let own = control.static_routes(Origin::Command).filter_map(|(to, hops)| {
                // A command gives one.
                let hop = hops.first()?;
                let (link, _) = control.links.get(hop.link.index())?;
                Some(CommandRoute { to: to.to_string(), via: hop.gateway, link: link.clone() })
            });
            own.collect()
        })
    }

    /// The routes in force, of both families.
    pub fn routes(&self) -> Vec<RouteStatus> {
        self.change(|control| {
            let v4 = control.host.routes().map(|(to, route)| (RouteTo::V4(to), route));
            let v6 = control.host.routes6().map(|(to, route)| (RouteTo::V6(to), route));
            v4.chain(v6).map(|(to, route)| route_status(control, to, route)).collect()
        })
    }

    /// The routes in force from place `offset` on, at most `limit`, and how many there are in all.
    /// Places are those of [`Self::routes`], until a route comes or goes.
    pub fn routes_from(&self, offset: usize, limit: usize) -> (Vec<RouteStatus>, usize) {
        self.change(|control| {
            let v4 = control.host.routes().map(|(to, route)| (RouteTo::V4(to), route));
            let v6 = control.host.routes6().map(|(to, route)| (RouteTo::V6(to), route));
            let (mut total, mut page) = (0, Vec::new());
            for (place, (to, route)) in v4.chain(v6).enumerate() {
                total = place + 1;
                if place >= offset && page.len() < limit {
                    page.push(route_status(control, to, route));
                }
            }
            (page, total)
        })
    }

    /// Refuses changes where there are no links, and where all are shared with the kernel: only its
    /// routes are followed.
    fn refuse_if_shared(&self) -> Result<(), String> {
        self.refuse_without_links("route")?;
        if self.change(|control| control.host.interfaces().iter().all(|own| own.shared)) {
            return Err("the links are shared with the kernel: change its routes, which are \
                        followed (ip route)"
                .to_owned());
        }
        Ok(())
    }

    /// Adds a route, in place of an earlier command's route for the same destinations.
    ///
    /// # Errors
    ///
    /// Why it cannot be added, in words for the operator.
    pub fn add_route(&self, order: &RouteOrder) -> Result<RouteStatus, String> {
        let link = order.link.as_deref().map(|name| self.link(name)).transpose()?;
        self.refuse_if_shared()?;
        let to = order.to.of_family(order.via).ok_or("`default` needs a next hop: via ADDRESS")?;
        self.change(|control| {
            let hop = match (order.via, link) {
                (Some(gateway), link) => by_neighbour(control, to, gateway, link)?,
                (None, Some(link)) => WeightedHop { link, gateway: None, weight: 1 },
                (None, None) => return Err("the route leads nowhere: say via or link".to_owned()),
            };
            refuse_shared(control, hop.link)?;
            let route = StaticRoute { to, hops: vec![hop] };
            control.add_static(route, Origin::Command).map_err(|error| error.to_string())?;
            Ok(route_status(control, to, hop.route()))
        })
    }

    /// Removes a route of a command or of the description, the latter until the next start or
    /// reload. Returns the removed routes, which are two for `default` in both families.
    ///
    /// # Errors
    ///
    /// Why it cannot be removed, in words for the operator.
    pub fn remove_route(&self, target: RouteTarget) -> Result<Vec<RouteStatus>, String> {
        self.refuse_if_shared()?;
        let targets = match target {
            RouteTarget::Default => vec![RouteTo::V4(Prefix::all()), RouteTo::V6(Prefix::all())],
            RouteTarget::Network(_) => target.of_family(None).into_iter().collect(),
        };
        let mut removed = Vec::new();
        let mut other = None;
        self.change(|control| {
            for to in targets {
                let found = match to {
                    RouteTo::V4(to) => control.host.route_to(to),
                    RouteTo::V6(to) => control.host.route6_to(to),
                };
                let Some(found) = found else { continue };
                let status = route_status(control, to, found);
                let origin = match status.origin {
                    "command" => Origin::Command,
                    "description" => Origin::Configured,
                    _ => {
                        other = Some(status);
                        continue;
                    }
                };
                control.remove_static(to, origin);
                removed.push(status);
            }
        });
        match (removed.is_empty(), other) {
            (false, _) => Ok(removed),
            (true, Some(status)) => Err(format!("{status}: it goes when that goes")),
            (true, None) => Err("there is no such route".to_owned()),
        }
    }
}

fn route_status(control: &Control, to: RouteTo, route: Route) -> RouteStatus {
    let name = |link: LinkIndex| control.links.get(link.index()).map(|(name, _)| name.clone());
    let (kind, via, link) = match route {
        Route::Local => ("local", None, None),
        Route::Broadcast(link) => ("broadcast", None, name(link)),
        Route::Connected(link) => ("connected", None, name(link)),
        Route::Via { link, gateway } => ("via", Some(gateway), name(link)),
        Route::Group(_) => ("several", None, None),
        Route::Blackhole => ("blackhole", None, None),
        Route::Kernel => ("kernel", None, None),
        Route::Prohibited => ("prohibited", None, None),
        Route::None => ("none", None, None),
    };
    let shares = match route {
        Route::Group(group) => control.host.group_of(group),
        _ => Vec::new(),
    };
    let next_hops = shares.into_iter().map(|share| RouteHop {
        via: share.hop.gateway,
        link: name(share.hop.link).unwrap_or_default(),
        weight: share.hop.weight,
        flows: share.buckets,
        left_out: share.is_left_out,
    });
    let (next_hops, origin) = (next_hops.collect(), control.origin(to));
    RouteStatus { to: to.to_string(), kind, via, link, next_hops, origin }
}

/// Refuses a route over a link whose routes are the kernel's.
fn refuse_shared(control: &Control, link: LinkIndex) -> Result<(), String> {
    let own = control.host.interfaces().iter().find(|own| own.link == link);
    match own.filter(|own| own.shared) {
        Some(own) => Err(format!(
            "{} is shared with the kernel: change its routes, which are followed (ip route)",
            own.name
        )),
        None => Ok(()),
    }
}

/// The route by a neighbour, if it is possible.
fn by_neighbour(
    control: &Control,
    to: RouteTo,
    gateway: IpAddr,
    link: Option<LinkIndex>,
) -> Result<WeightedHop, String> {
    if matches!(to, RouteTo::V4(_)) != gateway.is_ipv4() {
        return Err(format!("the next hop {gateway} of {to} has another family"));
    }
    let interfaces = control.host.interfaces();
    if interfaces.iter().any(|own| own.has(gateway)) {
        return Err(format!("{gateway} is this gateway's own address"));
    }
    let scoped = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if scoped {
        let link = link.ok_or_else(|| format!("on which link is {gateway}?"))?;
        return Ok(WeightedHop { link, gateway: Some(gateway), weight: 1 });
    }
    let asked = interfaces.iter().filter(|own| link.is_none_or(|link| link == own.link));
    let near = |own: &&gatewright_stack::Interface| own.usable().any(|own| own.covers(gateway));
    match asked.into_iter().find(near) {
        Some(own) => Ok(WeightedHop { link: own.link, gateway: Some(gateway), weight: 1 }),
        None if link.is_some() => Err(format!("the next hop {gateway} is not on that link")),
        None => Err(format!("the next hop {gateway} is on no link")),
    }
}

//! Rules for routes.

use super::{check_link, check_unused, twice, unusable};
use crate::balance::Balance;
use crate::codes;
use crate::model::{Attach, Config, Handler, Link, Located, Place, Route, Side};
use crate::shape::Findings;
use crate::values::{Prefix, is_host_address, is_link_local};
use crate::view::View;
use gatewright_diagnostic::{Code, Diagnostic};
use gatewright_stack::At;
use gatewright_wire::EtherType;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum next hops of a route, of which each flow keeps one.
const NEXT_HOPS_MAX: usize = gatewright_stack::ROUTE_HOPS_MAX;

pub(super) fn check(
    config: &mut Config,
    root: View<'_>,
    names: &[String],
    findings: &mut Findings,
) {
    let tables = root.tables("route");
    let places = tables.iter().filter_map(|table| Some((table.text("to")?.span.start, *table)));
    let tables: BTreeMap<_, _> = places.collect();
    let Config { links, routes, balances, attachments, workers, .. } = config;
    for route in routes.iter_mut() {
        if let Some(link) = &route.link {
            check_link(link, names, findings);
        }
        let table = tables.get(&route.to.span.start);
        if table.is_some_and(|table| table.key("balance").is_some()) {
            // Whether the balance is there is checked with those of proxies.
            let named = route.balance.as_ref().map(|flow| &flow.balance.value);
            let balance = balances.iter().find(|known| Some(&known.name.value) == named);
            attachments.extend(balance.and_then(|it| next_hops(route, it, links, findings)));
            check_workers(route, *workers, findings);
            if let Some(table) = table {
                check_unused(*table, "weight", "a route with a balance", findings);
            }
        } else if let Some(via) = route.via.clone() {
            check_via(route, &via, links, findings);
        } else if table.is_none_or(|table| table.key("via").is_none()) {
            // A next hop that could not be read was reported.
            check_direct(route, findings);
        }
    }
    check_alike(routes, findings);
    // A route that could not be read may have been the other one of its metric.
    if routes.len() == tables.len() {
        check_lone(routes, &tables, findings);
    }
}

/// Checks that only routes with others of their destination and metric have a weight.
fn check_lone(routes: &[Route], tables: &BTreeMap<usize, View<'_>>, findings: &mut Findings) {
    let mut alike: BTreeMap<_, Vec<&Route>> = BTreeMap::new();
    for route in routes {
        alike.entry((route.to.value, route.metric)).or_default().push(route);
    }
    for routes in alike.values() {
        if let [route] = routes.as_slice()
            && route.balance.is_none()
            && let Some(table) = tables.get(&route.to.span.start)
        {
            check_unused(
                *table,
                "weight",
                "the only route of its destination and metric",
                findings,
            );
        }
    }
}

/// Checks routes of one destination and metric: different next hops, not too many, and none of a
/// balance, which shares flows itself.
fn check_alike(routes: &[Route], findings: &mut Findings) {
    let mut known: BTreeMap<_, Vec<&Route>> = BTreeMap::new();
    for route in routes {
        let alike = known.entry((route.to.value, route.metric)).or_default();
        if alike.len() > NEXT_HOPS_MAX {
            continue;
        }
        let next_hop = |of: &Route| {
            let link = of.link.as_ref().map(|link| link.value.clone());
            (of.via.as_ref().map(|via| via.value), link)
        };
        let clashes = |other: &&&Route| {
            let has_balance = route.balance.is_some() || other.balance.is_some();
            has_balance || next_hop(other) == next_hop(route)
        };
        let (to, metric) = (route.to.value, route.metric);
        if let Some(other) = alike.iter().find(clashes) {
            let message = format!("{to} has two routes of metric {metric}");
            twice(&codes::ROUTE_TWICE, (other.to.span, route.to.span), message, findings);
        } else if alike.len() == NEXT_HOPS_MAX
            && let Some(first) = alike.first()
        {
            let message =
                format!("{to} has more than {NEXT_HOPS_MAX} next hops of metric {metric}");
            let finding = Diagnostic::error(&codes::ROUTE_TWICE, route.to.span, message);
            let finding = finding.label("one too many");
            findings.add(finding.also(first.to.span, "the first"));
        }
        alike.push(route);
    }
}

/// Checks that a balance's relays are neighbours of the route on one link. The route leads to the first
/// of them, and the handler gives each flow its own.
fn next_hops(
    route: &mut Route,
    balance: &Balance,
    links: &[Link],
    findings: &mut Findings,
) -> Option<Attach> {
    let flow = route.balance.clone()?;
    if route.via.is_some() {
        return None;
    }
    for relay in &balance.relays {
        let Located { value: address, span } = relay.address;
        if address.port() != 0 {
            let message = format!("{} is a next hop, and has no port", address.ip());
            let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
            let finding = finding.also(flow.balance.span, "the route to it");
            findings.add(finding.help("leave its `port` out"));
        }
        check_via(route, &Located { value: address.ip(), span }, links, findings);
    }
    let first = balance.relays.first()?;
    route.via = Some(Located { value: first.address.ip(), span: first.address.span });
    let ether = if first.address.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    let handler = Handler::NextHops { to: route.to.value, balance: balance.clone(), flow };
    Some(Attach {
        handler,
        at: Located { value: At::EtherType(ether), span: route.to.span },
        side: Side::Transmit,
        place: Place::Before,
        link: route.link.clone(),
    })
}

/// Checks that one worker has all flows of a route with a balance.
fn check_workers(route: &Route, workers: u16, findings: &mut Findings) {
    if let Some(flow) = route.balance.as_ref().filter(|_| workers > 1) {
        let message = format!("{workers} data cores would share the flows to {}", route.to.value);
        let finding = Diagnostic::error(&codes::BALANCE_SHARED, flow.balance.span, message);
        findings.add(finding.help("leave `[planes] data_cores` out"));
    }
}

/// Checks a route without a next hop: its destinations are neighbours on its link.
fn check_direct(route: &Route, findings: &mut Findings) {
    // The span of `default` is the word in its quotes; a prefix of length 0 is longer.
    let span = route.to.span;
    let is_word = span.end - span.start == "\"default\"".len() && route.to.length() == 0;
    let to = if is_word { "default".to_owned() } else { route.to.to_string() };
    let message = if route.link.is_none() {
        format!("the route to {to} leads nowhere")
    } else if is_word {
        "`default` without a next hop has no family".to_owned()
    } else {
        return;
    };
    let finding = Diagnostic::error(&codes::NO_NEXT_HOP, span, message);
    findings.add(finding.help("name the neighbour: via = \"192.0.2.1\""));
}

fn check_via(route: &mut Route, via: &Located<IpAddr>, links: &[Link], findings: &mut Findings) {
    let Located { value: address, span } = *via;
    let error = |code, message| Diagnostic::error(code, span, message);
    if address.is_ipv4() != route.to.address().is_ipv4() {
        let message = format!("the next hop {address} of {} has another family", route.to.value);
        findings.add(error(&codes::OTHER_FAMILY, message).also(route.to.span, "the destination"));
        return;
    }
    if route.to.address().is_multicast() {
        let message = format!("{} are groups, which have no next hop", route.to.value);
        let finding = error(&codes::MULTICAST_ROUTE, message);
        findings.add(finding.also(route.to.span, "the destination"));
        return;
    }
    if !check_station(via, links, findings, &codes::OWN_ADDRESS) {
        return;
    }
    if is_link_local(address) {
        if route.link.is_none() {
            let message = format!("on which link is {address}?");
            findings.add(error(&codes::LINK_LOCAL, message).help("add `link = \"NAME\"`"));
        }
        return;
    }
    let asked = |link: &&Link| route.link.as_ref().is_none_or(|name| name.value == link.name.value);
    let near = |link: &&Link| link.addresses.iter().any(|prefix| prefix.contains(address));
    let candidates: Vec<&Link> = links.iter().filter(asked).collect();
    if let Some(link) = candidates.iter().copied().find(near) {
        route.link.get_or_insert_with(|| link.name.clone());
    } else if route.link.is_none() || candidates.iter().any(|link| !link.is_dynamic()) {
        findings.add(unreachable(
            route,
            error(&codes::UNREACHABLE, String::new()),
            address,
            &candidates,
        ));
    }
}

/// Whether an address can be another station's: no group's, no network's, and not the gateway's own,
/// which is a finding of the code `own_code`.
pub(super) fn check_station(
    station: &Located<IpAddr>,
    links: &[Link],
    findings: &mut Findings,
    own_code: &'static Code,
) -> bool {
    let Located { value: address, span } = *station;
    if !is_host_address(address) {
        let message = format!("{address} cannot be a neighbour");
        findings.add(unusable(address, span, message));
        return false;
    }
    let end = |own: &&Located<Prefix>| {
        let within = Prefix::new(address, own.length()).filter(|_| own.contains(address));
        within.is_some_and(Prefix::is_network_or_broadcast)
    };
    if let Some(own) = links.iter().flat_map(|link| &link.addresses).find(end) {
        let which =
            if own.network().address() == address { "names" } else { "is the broadcast of" };
        let message = format!("{address} {which} the network {}", own.network());
        let finding = Diagnostic::error(&codes::NETWORK_ADDRESS, span, message);
        findings
            .add(finding.also(own.span, "of this link").help("take the neighbour's own address"));
        return false;
    }
    let own = links.iter().flat_map(|link| &link.addresses).find(|own| own.address() == address);
    if let Some(own) = own {
        let message = format!("{address} is this gateway's own address");
        findings.add(Diagnostic::error(own_code, span, message).also(own.span, "here"));
        return false;
    }
    true
}

/// Reports the networks that do not contain the next hop, and another link that does.
fn unreachable(
    route: &Route,
    finding: Diagnostic,
    address: IpAddr,
    candidates: &[&Link],
) -> Diagnostic {
    let message = match &route.link {
        Some(link) => format!("the next hop {address} is not on link `{}`", link.value),
        None => format!("the next hop {address} is on no link"),
    };
    let networks = candidates.iter().flat_map(|link| {
        let family =
            link.addresses.iter().filter(|own| own.address().is_ipv4() == address.is_ipv4());
        family.map(|own| format!("{} ({})", own.network(), link.name.value))
    });
    let networks: Vec<String> = networks.collect();
    let finding = Diagnostic { message, ..finding };
    if route.link.is_none() && candidates.iter().any(|link| link.is_dynamic()) {
        return finding.help("if it is on a link that gets its addresses later, name that link");
    }
    if networks.is_empty() {
        finding
    } else {
        finding.help(format!("there are: {}", networks.join(", ")))
    }
}

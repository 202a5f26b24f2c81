//! Rules of balances and of the targets of TCP proxies, UDP gateways and routes.

use crate::balance::ProxyTarget;
use crate::codes;
use crate::model::{Config, Located};
use crate::shape::Findings;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;

/// Checks that each proxy, UDP gateway and route has one target, and a balance that exists.
pub(super) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let known: Vec<_> = root.named("balance").into_iter().map(|(name, _)| name.value).collect();
    for (name, table) in ["tcp_proxy", "udp_gateway"].into_iter().flat_map(|key| root.named(key)) {
        let [forward, balance, flow] = ["forward", "balance", "flow"].map(|key| table.key(key));
        let (span, message) = match (forward, balance, flow) {
            (Some(_), None, None) => continue,
            (None, Some(_), Some(_)) => {
                check_known(table, &known, findings);
                continue;
            }
            (Some(_), Some(span), _) => (span, "has a server and a balance"),
            (Some(_), None, Some(span)) => (span, "has a flow and no balance"),
            (None, Some(span), None) => (span, "has a balance, and does not say of what flows"),
            (None, None, _) => (table.header, "has neither a server nor a balance"),
        };
        let message = format!("`{}` {message}", name.value);
        let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
        findings.add(finding.help("give it `forward`, or `balance` with `flow`"));
    }
    check_routes(root, &known, findings);
    check_relays(config, findings);
    check_users(config, findings);
    check_ports(config, findings);
    check_live(config, findings);
}

/// Checks that no relay of a route's balance is live: a route carries flows in one direction, so it
/// sees no answers.
fn check_live(config: &Config, findings: &mut Findings) {
    for flow in config.routes.iter().filter_map(|route| route.balance.as_ref()) {
        let mut known = config.balances.iter();
        let Some(balance) = known.find(|it| it.name.value == flow.balance.value) else { continue };
        for relay in balance.relays.iter().filter(|relay| relay.is_live) {
            let message = format!("the model of the next hop {} is live", relay.address.ip());
            let finding = Diagnostic::error(&codes::LIVE_NEXT_HOP, relay.address.span, message);
            let finding = finding.also(flow.balance.span, "a route uses it here");
            findings.add(finding.help("model = \"described\""));
        }
    }
}

/// Checks that the balance of a table exists.
fn check_known(table: View<'_>, known: &[String], findings: &mut Findings) {
    let named = table.name("balance");
    if let Some(Located { value, span }) = named.filter(|named| !known.contains(&named.value)) {
        let message = format!("there is no balance `{value}`");
        let finding = Diagnostic::error(&codes::UNKNOWN_BALANCE, span, message);
        findings.add(finding.help(format!("describe it: [balance.{value}]")));
    }
}

/// Checks that a route goes by one neighbour or by a balance, of which it says what flows are.
fn check_routes(root: View<'_>, known: &[String], findings: &mut Findings) {
    for table in root.tables("route") {
        let [via, balance, flow] = ["via", "balance", "flow"].map(|key| table.key(key));
        let (span, message) = match (via, balance, flow) {
            (_, None, None) => continue,
            (None, Some(_), Some(_)) => {
                check_known(table, known, findings);
                continue;
            }
            (Some(_), Some(span), _) => (span, "the route has a next hop and a balance"),
            (_, None, Some(span)) => (span, "the route has a flow and no balance"),
            (None, Some(span), None) => {
                (span, "the route has a balance, and does not say of what flows")
            }
        };
        let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
        findings.add(finding.help("give it `via`, or `balance` with `flow`"));
    }
}

/// Checks that relays of proxies and UDP gateways have ports.
fn check_ports(config: &Config, findings: &mut Findings) {
    let proxies = config.tcp_proxies.iter().map(|proxy| &proxy.target);
    let gateways = config.udp_gateways.iter().map(|gateway| &gateway.target);
    for target in proxies.chain(gateways) {
        let ProxyTarget::Balance(flow) = target else { continue };
        let balance = config.balances.iter().find(|it| it.name.value == flow.balance.value);
        let relays = balance.map(|balance| balance.relays.as_slice()).unwrap_or_default();
        for relay in relays.iter().filter(|relay| relay.address.port() == 0) {
            let message = format!("the relay {} has no port", relay.address.ip());
            let finding = Diagnostic::error(&codes::PROXY_TARGET, relay.address.span, message);
            findings.add(finding.help("port = 80"));
        }
    }
}

/// Checks that a balance of a UDP gateway or a route has no other user, and that of a UDP gateway relays
/// of one family: the data plane admits these flows, and knows of no others.
fn check_users(config: &Config, findings: &mut Findings) {
    let named = |name: &Located<String>| format!("`{}`", name.value);
    let proxies = config.tcp_proxies.iter().map(|it| (named(&it.name), &it.target));
    let gateways = config.udp_gateways.iter().map(|it| (named(&it.name), &it.target));
    let routes = config.routes.iter().filter_map(|route| route.balance.as_ref());
    let routes = routes.map(|flow| ("a route".to_owned(), &flow.balance));
    let users: Vec<_> = proxies
        .chain(gateways)
        .filter_map(|(name, target)| match target {
            ProxyTarget::Balance(flow) => Some((name, &flow.balance)),
            ProxyTarget::Server(_) => None,
        })
        .chain(routes)
        .collect();
    let gateways_from =
        config.tcp_proxies.iter().filter(|it| matches!(it.target, ProxyTarget::Balance(_))).count();
    let routes_from =
        users.len() - config.routes.iter().filter(|route| route.balance.is_some()).count();
    for (at, (name, balance)) in users.iter().enumerate().skip(gateways_from) {
        let mut before = users.iter().take(at);
        if let Some((first, its)) = before.find(|(_, its)| its.value == balance.value) {
            let message = format!("{name} shares a balance with {first}");
            let finding = Diagnostic::error(&codes::BALANCE_SHARED, balance.span, message);
            let finding = finding.also(its.span, "it is used here");
            findings.add(finding.help("give it a balance of its own"));
        }
        // The family of a route's next hops is checked with the route.
        let mut known = config.balances.iter().filter(|_| at < routes_from);
        let relays = known.find(|known| known.name.value == balance.value);
        let relays = relays.map(|balance| balance.relays.as_slice()).unwrap_or_default();
        let Some((first, others)) = relays.split_first() else { continue };
        let family = first.address.is_ipv4();
        for other in others.iter().filter(|other| other.address.is_ipv4() != family) {
            let (one, two) = (first.address.ip(), other.address.ip());
            let message = format!("clients of {name} would be sent to {one} and {two}");
            let finding = Diagnostic::error(&codes::OTHER_FAMILY, other.address.span, message);
            findings.add(finding.also(first.address.span, "the other family"));
        }
    }
}

/// Checks that a balance has usable relays, each once.
fn check_relays(config: &Config, findings: &mut Findings) {
    for balance in &config.balances {
        let relays = &balance.relays;
        for (count, second) in relays.iter().enumerate() {
            let address = second.address.value;
            let span = second.address.span;
            if address.ip().is_unspecified() || address.ip().is_multicast() {
                let message = format!("{} is no relay", address.ip());
                findings.add(Diagnostic::error(&codes::UNUSABLE_ADDRESS, span, message));
            }
            let first = relays.iter().take(count).find(|first| first.address.value == address);
            if let Some(first) = first {
                let message = format!("{address} is a relay of `{}` twice", balance.name.value);
                let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
                findings.add(finding.also(first.address.span, "it is one already"));
            }
        }
    }
}

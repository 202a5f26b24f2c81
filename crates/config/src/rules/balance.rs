//! Rules of balances and of the targets of TCP proxies and UDP gateways.

use crate::balance::ProxyTarget;
use crate::codes;
use crate::model::Config;
use crate::shape::Findings;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;

/// Checks that each proxy and UDP gateway has one target, and a balance that exists.
pub(super) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let known: Vec<_> = root.named("balance").into_iter().map(|(name, _)| name.value).collect();
    for (name, table) in ["tcp_proxy", "udp_gateway"].into_iter().flat_map(|key| root.named(key)) {
        let [forward, balance, flow] = ["forward", "balance", "flow"].map(|key| table.key(key));
        let (span, message) = match (forward, balance, flow) {
            (Some(_), None, None) => continue,
            (None, Some(span), Some(_)) => {
                let named = table.name("balance");
                let Some(named) = named.filter(|named| !known.contains(&named.value)) else {
                    continue;
                };
                let message = format!("there is no balance `{}`", named.value);
                let finding = Diagnostic::error(&codes::UNKNOWN_BALANCE, span, message);
                findings.add(finding.help(format!("describe it: [balance.{}]", named.value)));
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
    check_relays(config, findings);
    check_users(config, findings);
}

/// Checks that a balance of a UDP gateway has no other user, and relays of one family: the data plane
/// admits the clients of a UDP gateway, and knows of no flows of others.
fn check_users(config: &Config, findings: &mut Findings) {
    let proxies = config.tcp_proxies.iter().map(|proxy| (&proxy.name, &proxy.target));
    let gateways = config.udp_gateways.iter().map(|gateway| (&gateway.name, &gateway.target));
    let users: Vec<_> = proxies
        .chain(gateways)
        .filter_map(|(name, target)| match target {
            ProxyTarget::Balance(flow) => Some((name, &flow.balance)),
            ProxyTarget::Server(_) => None,
        })
        .collect();
    let gateways_from =
        config.tcp_proxies.iter().filter(|it| matches!(it.target, ProxyTarget::Balance(_))).count();
    for (at, (name, balance)) in users.iter().enumerate().skip(gateways_from) {
        let mut before = users.iter().take(at);
        if let Some((first, its)) = before.find(|(_, its)| its.value == balance.value) {
            let message = format!("`{}` shares a balance with `{}`", name.value, first.value);
            let finding = Diagnostic::error(&codes::BALANCE_SHARED, balance.span, message);
            let finding = finding.also(its.span, "it is used here");
            findings.add(finding.help("give the UDP gateway a balance of its own"));
        }
        let relays = config.balances.iter().find(|known| known.name.value == balance.value);
        let relays = relays.map(|balance| balance.relays.as_slice()).unwrap_or_default();
        let Some((first, others)) = relays.split_first() else { continue };
        let family = first.address.is_ipv4();
        for other in others.iter().filter(|other| other.address.is_ipv4() != family) {
            let (one, two) = (first.address.ip(), other.address.ip());
            let message = format!("clients of `{}` would be sent to {one} and {two}", name.value);
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

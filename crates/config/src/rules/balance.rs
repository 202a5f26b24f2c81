//! Rules of balances and of the targets of TCP proxies.

use crate::codes;
use crate::model::Config;
use crate::shape::Findings;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;

/// Checks that each proxy has one target, and a balance that exists.
pub(super) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let known: Vec<_> = root.named("balance").into_iter().map(|(name, _)| name.value).collect();
    for (name, table) in root.named("tcp_proxy") {
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

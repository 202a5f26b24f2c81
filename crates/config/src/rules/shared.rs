//! Rules for links that are shared with the kernel, and for what is beside them.

use crate::codes;
use crate::model::{Config, Link};
use crate::shape::Findings;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;

/// Checks that a shared link has no key for what the kernel decides.
pub(super) fn check_link(link: &Link, table: View<'_>, findings: &mut Findings) {
    const KERNELS: [&str; 8] =
        ["addresses", "dhcp", "autoconfigure", "mtu", "mac", "forwarding", "advertise", "host"];
    if !link.is_shared() {
        return;
    }
    for key in KERNELS {
        if let Some(span) = table.key(key) {
            let message = format!("`{key}` of the shared link `{}`", link.name.value);
            let finding = Diagnostic::error(&codes::SHARED_LINK, span, message);
            let finding = finding.label("the kernel decides this");
            findings.add(match (table.key("exclusive"), link.below()) {
                (_, Some(below)) => finding.also(below.span, "shared with the kernel").help(
                    "leave it out and set it at the kernel's interface (ip link add … type vlan)",
                ),
                (Some(other), None) => finding.also(other, "shared here").help(OR_EXCLUSIVE),
                (None, None) => finding.help(OR_EXCLUSIVE),
            });
        }
    }
}

const OR_EXCLUSIVE: &str = "leave it out and set it in the kernel, or say `exclusive = true`";

/// Checks that no route leads over a shared link, where the kernel's routes are followed, and that no
/// UDP gateway listens there, where the kernel receives what is for this host's addresses.
pub(super) fn check(config: &Config, findings: &mut Findings) {
    let shared = config.links.iter().filter(|link| link.is_shared());
    let is_shared = |name: &str| shared.clone().any(|link| link.name.value == name);
    let all = shared.clone().count() == config.links.len();
    let Some(first) = shared.clone().next() else { return };
    for route in &config.routes {
        // With all links shared, the next hop is on none that the description knows the networks of.
        let link = route.link.as_ref().filter(|link| is_shared(link));
        let Some(name) = link.or(all.then_some(&first.name)) else { continue };
        let message = format!("a route over the shared link `{}`", name.value);
        let finding = Diagnostic::error(&codes::SHARED_LINK, route.to.span, message);
        let finding = finding.label("the kernel decides this").also(name.span, "shared");
        findings
            .add(finding.help(format!("set it in the kernel: ip route add {} …", route.to.value)));
    }
    for relay in config.udp_gateways.iter().filter(|relay| is_shared(&relay.link.value)) {
        let message = format!("a UDP gateway at the shared link `{}`", relay.link.value);
        let finding = Diagnostic::error(&codes::SHARED_LINK, relay.name.span, message);
        let finding = finding.label("would receive nothing").also(relay.link.span, "shared");
        findings.add(finding.help(
            "what is for the kernel's addresses goes to its sockets; listen at an exclusive link",
        ));
    }
}

//! Rules for virtual links: the link below, tags, MTU.

use super::{check_link, twice};
use crate::codes;
use crate::model::{Config, Device, Link, Located, VirtualTag};
use crate::shape::Findings;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;

/// Has each virtual link shared with the kernel as the link below is.
pub(crate) fn derive(config: &mut Config) {
    let is_shared = |link: &&Link| link.is_shared() && link.below().is_none();
    let shared: Vec<String> =
        config.links.iter().filter(is_shared).map(|link| link.name.value.clone()).collect();
    for link in &mut config.links {
        let below = link.below().map(|below| below.value.clone());
        link.exclusive &= below.is_none_or(|below| !shared.contains(&below));
    }
}

pub(super) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let tables = root.named("link");
    let names: Vec<String> = tables.iter().map(|(name, _)| name.value.clone()).collect();
    let mut seen: Vec<(&str, &Located<u16>)> = Vec::new();
    for link in &config.links {
        let Device::Virtual { on, tag } = &link.device else { continue };
        check_link(on, &names, findings);
        if let Some(below) = config.links.iter().find(|below| below.name.value == on.value) {
            check_below(link, on, below, findings);
            let table = tables.iter().find(|(name, _)| *name == link.name);
            if let Some((_, table)) = table {
                check_mtu(link, *table, below, findings);
            }
        }
        let VirtualTag::Vlan { id, .. } = tag;
        let same =
            |(other, known): &&(&str, &Located<u16>)| *other == on.value && known.value == id.value;
        if let Some((_, first)) = seen.iter().find(same) {
            let message = format!("VLAN {} of `{}` is two links", id.value, on.value);
            twice(&codes::VLAN_TWICE, (first.span, id.span), message, findings);
        }
        seen.push((&on.value, id));
    }
}

/// Checks that the link below carries Ethernet frames.
fn check_below(link: &Link, on: &Located<String>, below: &Link, findings: &mut Findings) {
    let name = &below.name.value;
    let why = match &below.device {
        Device::Virtual { .. } if link.name == below.name => "itself",
        Device::Virtual { .. } => "a VLAN itself",
        Device::Tun { .. } => "a link without Ethernet frames",
        _ => return,
    };
    let message = format!("a VLAN on `{name}`, which is {why}");
    let finding = Diagnostic::error(&codes::NO_TAGS, on.span, message);
    let finding = finding.also(below.name.span, "this link");
    findings.add(finding.help("name the Ethernet link whose cable carries the tags"));
}

/// Checks the MTU of a VLAN. A tag adds four octets to the frame, not to the packet: a VLAN takes
/// the MTU of the link below.
fn check_mtu(link: &Link, table: View<'_>, below: &Link, findings: &mut Findings) {
    let (Some(mtu), Some(span)) = (link.mtu, table.key("mtu")) else { return };
    if let Some(carried) = below.mtu.filter(|carried| mtu > *carried) {
        let message = format!("MTU {mtu} of a VLAN on a link of MTU {carried}");
        let finding = Diagnostic::error(&codes::VLAN_MTU, span, message);
        let finding = finding.also(below.name.span, format!("MTU {carried}"));
        findings.add(finding.help(format!("at most {carried}; leave it out to have the same")));
    }
}

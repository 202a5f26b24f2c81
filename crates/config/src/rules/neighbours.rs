//! Rules for static neighbours.

use super::routes::check_station;
use super::{check_link, twice};
use crate::codes;
use crate::model::{Config, Device, Link, StaticNeighbour};
use crate::shape::Findings;
use crate::values::is_link_local;
use gatewright_diagnostic::Diagnostic;

/// Checks each static neighbour, and derives its link from its address.
pub(super) fn check(config: &mut Config, names: &[String], findings: &mut Findings) {
    let Config { links, neighbours, .. } = config;
    for neighbour in neighbours.iter_mut() {
        if let Some(link) = &neighbour.link {
            check_link(link, names, findings);
        }
        check_one(neighbour, links, findings);
    }
    for (count, second) in neighbours.iter().enumerate() {
        let same = |first: &&StaticNeighbour| {
            first.address.value == second.address.value
                && first.link.as_ref().map(|link| &link.value)
                    == second.link.as_ref().map(|link| &link.value)
        };
        if let Some(first) = neighbours.iter().take(count).find(same) {
            let message = format!("{} has two link-layer addresses", second.address.value);
            let spans = (first.address.span, second.address.span);
            twice(&codes::NEIGHBOUR_TWICE, spans, message, findings);
        }
    }
}

fn check_one(neighbour: &mut StaticNeighbour, links: &[Link], findings: &mut Findings) {
    let address = neighbour.address.value;
    let error =
        |message| Diagnostic::error(&codes::STATIC_NEIGHBOUR, neighbour.address.span, message);
    if !check_station(&neighbour.address, links, findings, &codes::STATIC_NEIGHBOUR) {
        return;
    }
    let asked =
        |link: &&Link| neighbour.link.as_ref().is_none_or(|name| name.value == link.name.value);
    let near = |link: &&Link| link.addresses.iter().any(|prefix| prefix.contains(address));
    let candidates: Vec<&Link> = links.iter().filter(asked).collect();
    let is_named = neighbour.link.is_some();
    let link = match candidates.iter().copied().find(near) {
        Some(link) => Some(link),
        // An address of fe80::/10 is on every link, and a link may get its networks later.
        None if is_named => {
            candidates.first().copied().filter(|link| is_link_local(address) || link.is_dynamic())
        }
        None => None,
    };
    let Some(link) = link else {
        // The name of a link that is not there was reported.
        if is_link_local(address) && !is_named {
            let finding = error(format!("on which link is {address}?"));
            findings.add(finding.help("add `link = \"NAME\"`"));
        } else if !candidates.is_empty() {
            findings.add(
                error(format!("{address} is in no network of a link")).help(networks(&candidates)),
            );
        }
        return;
    };
    if !link.exclusive {
        let message = format!("the kernel keeps the neighbours of `{}`", link.name.value);
        findings.add(error(message).help("set it in the kernel: ip neigh add …"));
    } else if matches!(link.device, Device::Tun { .. }) {
        let message = format!("`{}` has no link-layer addresses", link.name.value);
        findings.add(error(message).help("a tun carries IP packets without Ethernet"));
    }
    let name = link.name.clone();
    neighbour.link.get_or_insert(name);
}

/// The networks of links, as help.
fn networks(links: &[&Link]) -> String {
    let networks = links.iter().flat_map(|link| {
        link.addresses.iter().map(|own| format!("{} ({})", own.network(), link.name.value))
    });
    let networks: Vec<String> = networks.collect();
    if networks.is_empty() {
        "the link has no addresses: give it one of the neighbour's network".to_owned()
    } else {
        format!("there are: {}", networks.join(", "))
    }
}

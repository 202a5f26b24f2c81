//! Rules for links: their keys, devices and addresses.

use super::{check_kind, check_needed, check_unused, shared, twice, unusable, virtual_links};
use crate::codes;
use crate::model::{Advertise, Config, Device, Link, Located, PlaneMode};
use crate::sections::is_virtual;
use crate::shape::Findings;
use crate::tables::{LINK, RUNNING, kind_of_link};
use crate::values::{Prefix, is_host_address, is_link_local};
use crate::view::View;
use gatewright_diagnostic::{Diagnostic, nearest};

/// Minimum MTU of a link that carries IPv6 (RFC 8200 §5).
const IPV6_MTU_MIN: u32 = 1280;

pub(super) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let tables = root.named("link");
    check_present(root, findings);
    for (name, table) in &tables {
        check_keys(*table, findings);
        let link = config.links.iter().find(|link| link.name == *name);
        if let Some(link) = link {
            shared::check_link(link, *table, findings);
            check_mtu(link, *table, findings);
            check_advertise(link, *table, findings);
            check_queues(link, *table, config.workers, findings);
            check_host(link, *table, findings);
            check_forward(link, *table, findings);
        }
    }
    virtual_links::check(config, root, findings);
    check_devices(&config.links, findings);
    check_dpdk(config, root, findings);
    check_addresses(&config.links, findings);
}

/// Checks that a gateway without links has devices, a service entity, a program or a TCP proxy,
/// unless one of those was already refused.
fn check_present(root: View<'_>, findings: &mut Findings) {
    if root.key("link").is_none() && RUNNING.iter().any(|key| root.key(key).is_some()) {
        return;
    }
    let span = match root.table("link") {
        Some(link) if link.keys().next().is_none() => link.header,
        None if !are_meant(root) => root.header,
        _ => return,
    };
    let finding = Diagnostic::error(&codes::NO_LINK, span, "the gateway has no link");
    findings.add(finding.help(
        "describe one: [link.lan]; or what needs none: [cse], [devices], [[program]], \
         [tcp_proxy.NAME]. Of a description in several files name the folder",
    ));
}

/// Whether a description has links, or something that is nearly called so.
fn are_meant(root: View<'_>) -> bool {
    root.keys().any(|key| nearest(key, ["link"]).is_some())
}

/// Whether a description has no links, and what needs none.
pub(super) fn runs_without(root: View<'_>) -> bool {
    !are_meant(root) && RUNNING.iter().any(|key| root.key(key).is_some())
}

/// Reports keys that another kind of link has, and required keys that are missing.
fn check_keys(table: View<'_>, findings: &mut Findings) {
    let mode = table.text("mode").map_or("auto", |mode| mode.value);
    let Some(kind) = kind_of_link(is_virtual(table), mode) else { return };
    let (whose, needed) = match kind {
        "vlan" if table.key("on").is_none() => ("a VLAN".to_owned(), Some(("on", "\"lan\""))),
        "vlan" => ("a VLAN".to_owned(), Some(("vlan", "10"))),
        "segment" => (format!("mode {mode}"), Some(("segment", "\"radio\""))),
        "dpdk" => (format!("mode {mode}"), Some(("port", "\"net_af_packet0,iface=eth0\""))),
        _ => (format!("mode {mode}"), None),
    };
    check_kind(table, LINK.keys, (kind, &whose), findings);
    if let Some(needed) = needed {
        check_needed(table, needed, &whose, findings);
    }
    if kind == "pcapng" && table.key("read").is_none() {
        if table.key("write").is_some() {
            check_unused(table, "pace", "mode pcapng without `read`", findings);
        } else {
            let needed = ("read", "\"in.pcapng\", or write = \"out.pcapng\"");
            check_needed(table, needed, &whose, findings);
        }
    }
}

fn check_mtu(link: &Link, table: View<'_>, findings: &mut Findings) {
    let ipv6 = link.addresses.iter().find(|prefix| prefix.address().is_ipv6());
    let (Some(mtu), Some(address), Some(span)) = (link.mtu, ipv6, table.key("mtu")) else { return };
    if mtu < IPV6_MTU_MIN {
        let message = format!("MTU {mtu} on a link with IPv6");
        let finding = Diagnostic::error(&codes::MTU_TOO_SMALL, span, message);
        let finding = finding.also(address.span, "an IPv6 address");
        findings.add(finding.help(format!("IPv6 needs at least {IPV6_MTU_MIN}")));
    }
}

/// Checks that a router's lifetime is not shorter than its advertisement interval (RFC 4861
/// §6.2.1).
fn check_advertise(link: &Link, table: View<'_>, findings: &mut Findings) {
    let told = table.table("advertise");
    let (Some(advertise), Some(told)) = (&link.advertise, told) else { return };
    check_router(link, table, findings);
    let Advertise { interval, lifetime, .. } = *advertise;
    if let Some(span) = told.key("lifetime_s")
        && !lifetime.is_zero()
        && lifetime < interval
    {
        let message = format!("{} s are less than the interval", lifetime.as_secs());
        let finding = Diagnostic::error(&codes::ROUTER_LIFETIME, span, message);
        findings.add(finding.help(format!(
            "at least {} s, as the interval, or 0 for a router that hosts do not use",
            interval.as_secs()
        )));
    }
}

/// Checks that a link with router advertisements has networks to advertise, and does not configure
/// itself from those of others.
fn check_router(link: &Link, table: View<'_>, findings: &mut Findings) {
    let Some(advertise) = table.key("advertise") else { return };
    if let Some(host) = table.key("autoconfigure").filter(|_| link.autoconfigure) {
        let message = format!("`{}` is a router, and a host of other routers", link.name.value);
        let finding = Diagnostic::error(&codes::ROUTER_AUTOCONFIGURES, advertise, message);
        findings.add(finding.also(host, "as a host"));
        return;
    }
    let is_network =
        |prefix: &Located<Prefix>| prefix.address().is_ipv6() && !is_link_local(prefix.address());
    // An address that could not be read was reported.
    if link.addresses.len() == table.texts("addresses").len()
        && !link.addresses.iter().any(is_network)
    {
        let message = format!("`{}` has no IPv6 network to advertise", link.name.value);
        let finding = Diagnostic::warning(&codes::ADVERTISES_NOTHING, advertise, message);
        findings.add(finding.help("give it one: addresses = [\"2001:db8:1::1/64\"]"));
    }
}

/// Checks that the kernel's interface beside a link gets addresses: those of the description.
fn check_host(link: &Link, table: View<'_>, findings: &mut Findings) {
    let is_beside = link.may_have_host();
    let Some(host) = table.key("host").filter(|_| is_beside) else { return };
    let dynamic = [("dhcp", link.dhcp), ("autoconfigure", link.autoconfigure)];
    let message = if let Some((key, _)) = dynamic.into_iter().find(|(_, on)| *on) {
        format!("`host` with `{key}`: the kernel gets the addresses of the description only")
    } else if table.texts("addresses").is_empty() {
        "`host` on a link without addresses".to_owned()
    } else {
        return;
    };
    let finding = Diagnostic::error(&codes::HOST_ADDRESSES, host, message);
    findings.add(finding.help("addresses = [\"192.0.2.1/24\"]"));
}

/// Reports forwarding in the driver over packet sockets, which have no program in the driver.
fn check_forward(link: &Link, table: View<'_>, findings: &mut Findings) {
    let mode = table.text("mode").filter(|mode| mode.value == "packet");
    let (Some(mode), Some((_, span))) = (mode, table.value("forward")) else { return };
    if link.forwards_in_driver {
        let message = "`forward = \"xdp\"` does nothing with mode packet";
        let finding = Diagnostic::warning(&codes::KEY_WITHOUT_USE, span, message);
        let finding = finding.also(mode.span, "the mode");
        findings.add(finding.help("leave `mode` out, or write `mode = \"xdp\"`"));
    }
}

/// Whether links of this kind have a key.
fn has_key(table: View<'_>, name: &str) -> bool {
    let mode = table.text("mode").map_or("auto", |mode| mode.value);
    let kind = kind_of_link(is_virtual(table), mode);
    let key = LINK.keys.iter().find(|key| key.name == name);
    key.is_some_and(|key| key.kinds.is_empty() || kind.is_none_or(|kind| key.kinds.contains(&kind)))
}

/// Checks that a link has at most one queue per worker; another would receive nothing.
fn check_queues(link: &Link, table: View<'_>, workers: u16, findings: &mut Findings) {
    if let (Some(queues), Some(span)) = (link.queues, table.key("queues"))
        && queues > workers
        && has_key(table, "queues")
    {
        let cores = if workers == 1 { "core" } else { "cores" };
        let message = format!("`queues` is {queues}, and the gateway has {workers} data {cores}");
        let finding = Diagnostic::error(&codes::OUT_OF_RANGE, span, message);
        findings.add(finding.help(format!("[planes] data_cores = {queues}, or leave it out")));
    }
}

fn check_devices(links: &[Link], findings: &mut Findings) {
    let devices: Vec<&Located<String>> = (links.iter())
        .filter_map(|link| match &link.device {
            Device::Interface { name, .. }
            | Device::Tap { name }
            | Device::Tun { name }
            | Device::Dpdk { port: name } => Some(name),
            Device::Pcapng { .. } | Device::Segment { .. } | Device::Virtual { .. } => None,
        })
        .collect();
    check_files(links, findings);
    for (count, second) in devices.iter().enumerate() {
        if let Some(first) = devices.iter().take(count).find(|first| first.value == second.value) {
            let message = format!("`{}` is the device of two links", second.value);
            twice(&codes::DEVICE_TWICE, (first.span, second.span), message, findings);
        }
    }
}

/// Checks that ports of DPDK are opened by the control plane's process.
fn check_dpdk(config: &Config, root: View<'_>, findings: &mut Findings) {
    let port = config.links.iter().find_map(|link| match &link.device {
        Device::Dpdk { port } => Some(port),
        _ => None,
    });
    let mode = root.table("planes").and_then(|planes| planes.key("mode"));
    if let (PlaneMode::Process, Some(port), Some(mode)) = (config.plane_mode, port, mode) {
        let message = format!("`{}` and a data plane in a process of its own", port.value);
        let finding = Diagnostic::error(&codes::DPDK_APART, mode, message);
        let finding = finding.also(port.span, "a port of DPDK");
        findings.add(finding.help("leave it out: the data plane is threads then"));
    }
}

/// Checks that each capture file is written by one link, and read by none while it is written.
fn check_files(links: &[Link], findings: &mut Findings) {
    let files = links.iter().filter_map(|link| match &link.device {
        Device::Pcapng { read, write, .. } => Some((read, write)),
        _ => None,
    });
    let (read, written): (Vec<_>, Vec<_>) = files.unzip();
    let written: Vec<_> = written.into_iter().flatten().collect();
    for (count, write) in written.iter().enumerate() {
        let others = written.iter().take(count).copied().chain(read.iter().copied().flatten());
        if let Some(other) = others.into_iter().find(|other| other.value == write.value) {
            let message = format!("`{}` is written, and not by one link alone", write.value);
            twice(&codes::CAPTURE_TWICE, (other.span, write.span), message, findings);
        }
    }
}

fn check_addresses(links: &[Link], findings: &mut Findings) {
    let mut seen: Vec<(&Link, &Located<Prefix>)> = Vec::new();
    for link in links {
        for prefix in &link.addresses {
            if check_address(prefix, findings) {
                check_against(link, prefix, &seen, findings);
                seen.push((link, prefix));
            }
        }
    }
}

/// Whether a host can have the address; if not, reports it.
fn check_address(prefix: &Located<Prefix>, findings: &mut Findings) -> bool {
    let address = prefix.address();
    if !is_host_address(address) {
        let message = format!("{address} cannot be the address of a host");
        findings.add(unusable(address, prefix.span, message));
        return false;
    }
    if prefix.is_network_or_broadcast() {
        let which = if prefix.network() == prefix.value {
            "names the network"
        } else {
            "is the broadcast address"
        };
        let message = format!("{} {which}", prefix.value);
        let finding = Diagnostic::error(&codes::NETWORK_ADDRESS, prefix.span, message);
        findings.add(finding.help("take an address between the network's first and last"));
        return false;
    }
    true
}

fn check_against(
    link: &Link,
    prefix: &Located<Prefix>,
    seen: &[(&Link, &Located<Prefix>)],
    findings: &mut Findings,
) {
    let same = |(_, other): &&(&Link, &Located<Prefix>)| other.address() == prefix.address();
    let overlaps = |(on, other): &&(&Link, &Located<Prefix>)| {
        // Every link has its own fe80::/10 (RFC 4291 §2.5.6).
        on.name != link.name && !is_link_local(prefix.address()) && other.overlaps(prefix.value)
    };
    let local = is_link_local(prefix.address());
    if let Some((on, other)) =
        seen.iter().find(same).filter(|(on, _)| !local || on.name == link.name)
    {
        let message = format!("{} is on `{}` already", prefix.address(), on.name.value);
        twice(&codes::ADDRESS_TWICE, (other.span, prefix.span), message, findings);
    } else if let Some((on, other)) = seen.iter().find(overlaps) {
        let (own, other_name) = (&link.name.value, &on.name.value);
        let message = format!("the prefixes of `{other_name}` and `{own}` overlap");
        let label = format!("{} of `{own}`", prefix.network());
        let finding = Diagnostic::error(&codes::OVERLAP, prefix.span, message).label(label);
        let label = format!("{} of `{other_name}`", other.network());
        findings.add(finding.also(other.span, label));
    }
}

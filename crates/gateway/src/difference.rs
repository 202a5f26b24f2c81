//! Differences between two descriptions, and which of them a running gateway can take.

use gatewright_config::{self as config, Attach, Config, Device, Link};
use gatewright_packet::LinkAddress;
use gatewright_part::Change;
use std::collections::BTreeMap;

/// Differences in a table that exists once, by key.
pub(crate) fn by_key(old: &Config, new: &Config, table: &str) -> Vec<Change> {
    config::differences(old, new, table).into_iter().map(Change::from).collect()
}

/// Differences in the gateway itself, its links and its routes.
pub(crate) fn links(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = by_key(old, new, "gateway");
    changes.extend(by_key(old, new, "planes"));
    if old.workers == new.workers {
        // The same by the former name of the key.
        changes.retain(|change| !DATA_CORES.contains(&change.what.as_str()));
    }
    each_link(old, new, &mut changes);
    lists(&old.routes, &new.routes, route, &mut changes);
    lists(&old.neighbours, &new.neighbours, neighbour, &mut changes);
    changes
}

/// The key of the number of workers, and its former name.
const DATA_CORES: [&str; 2] = ["[planes] data_cores", "[gateway] workers"];

/// Differences in handlers at packets.
pub(crate) fn handlers(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    lists(&old.attachments, &new.attachments, handler, &mut changes);
    changes
}

/// Differences in handlers at messages of programs.
pub(crate) fn messages(old: &Config, new: &Config) -> Vec<Change> {
    let at = |one: &config::AttachMessages| format!("{} at {}", one.handler.name(), one.at.value);
    let mut changes = Vec::new();
    lists(&old.message_attachments, &new.message_attachments, at, &mut changes);
    changes
}

/// Differences in UDP gateways.
pub(crate) fn udp_gateways(old: &Config, new: &Config) -> Vec<Change> {
    let relay = |relay: &config::UdpGateway| format!("udp_gateway {}", relay.name.value);
    let mut changes = Vec::new();
    named(&old.udp_gateways, &new.udp_gateways, relay, &mut changes);
    changes
}

/// Differences in TCP proxies and their balances.
pub(crate) fn tcp_proxies(old: &Config, new: &Config) -> Vec<Change> {
    let proxy = |proxy: &config::TcpProxy| format!("tcp_proxy {}", proxy.name.value);
    let mut changes = Vec::new();
    named(&old.tcp_proxies, &new.tcp_proxies, proxy, &mut changes);
    let balance = |balance: &config::Balance| format!("balance {}", balance.name.value);
    named(&old.balances, &new.balances, balance, &mut changes);
    changes
}

/// Items that are in one list only.
fn lists<T: PartialEq>(
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> String,
    changes: &mut Vec<Change>,
) {
    let by_name = |list: &'_ [T]| {
        let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, item) in list.iter().enumerate() {
            named.entry(name(item)).or_default().push(at);
        }
        named
    };
    let (in_old, in_new) = (by_name(old), by_name(new));
    // Equal items have equal names; a description may have very many routes.
    let is_in = |list: &[T], named: &BTreeMap<String, Vec<usize>>, item: &T| {
        let same = named.get(&name(item));
        same.into_iter().flatten().any(|&at| list.get(at) == Some(item))
    };
    let gone = old.iter().filter(|item| !is_in(new, &in_new, item)).map(|item| (item, "removed"));
    let come = new.iter().filter(|item| !is_in(old, &in_old, item)).map(|item| (item, "added"));
    changes.extend(gone.chain(come).map(|(item, how)| Change::new(name(item), how)));
}

/// As [`lists`]; also items in both lists that differ.
fn named<T: PartialEq>(
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> String,
    changes: &mut Vec<Change>,
) {
    let in_list = |list: &[T], item: &T| list.iter().any(|other| name(other) == name(item));
    for item in old.iter().filter(|item| !in_list(new, item)) {
        changes.push(Change::new(name(item), "removed"));
    }
    for item in new.iter().filter(|item| !old.contains(item)) {
        let how = if in_list(old, item) { "changed" } else { "added" };
        changes.push(Change::new(name(item), how));
    }
}

fn each_link(old: &Config, new: &Config, changes: &mut Vec<Change>) {
    let find = |list: &[Link], link: &Link| list.iter().find(|l| l.name == link.name).cloned();
    let what = |link: &Link| format!("link {}", link.name.value);
    // Virtual links stand in a layer that is made at the start, as a TUN device's link layer is, and shared
    // links with the kernel's follower.
    let change = |link: &Link, how| {
        let fixed =
            !link.exclusive || link.below().is_some() || is_tun(link) || lacks_maps(old, link);
        let change = if fixed { Change::restart } else { Change::new };
        change(what(link), how)
    };
    for link in old.links.iter().filter(|link| find(&new.links, link).is_none()) {
        changes.push(change(link, "removed"));
    }
    for link in &new.links {
        match find(&old.links, link) {
            None => changes.push(change(link, "added")),
            Some(before) if before != *link => changes.extend(keys((old, &before), (new, link))),
            Some(_) => {}
        }
    }
}

/// Whether the link is to forward in its driver and no link does yet: the maps for that are made at the
/// start, with the size of the tables.
fn lacks_maps(old: &Config, link: &Link) -> bool {
    link.forwards_in_driver && !old.links.iter().any(|link| link.forwards_in_driver)
}

const fn is_tun(link: &Link) -> bool {
    matches!(link.device, Device::Tun { .. })
}

/// Differences in the keys of a link, as the key tables have them.
fn keys((old_config, old): (&Config, &Link), (config, new): (&Config, &Link)) -> Vec<Change> {
    let mut changes = Vec::new();
    // Shared links are known to the kernel's follower by the names of their interfaces, and a virtual
    // link has no device that could be opened anew. Link layers are made at the start.
    let is_virtual = old.below().or(new.below()).is_some();
    let is_fixed = !new.exclusive || is_virtual || is_tun(old) != is_tun(new);
    for found in config::differences_of(old_config, config, "link", &new.name.value) {
        let restart = match found.name {
            "exclusive" => true,
            "forward" => lacks_maps(old_config, new) || is_fixed && found.of_device,
            _ => is_fixed && found.of_device,
        };
        // Addresses are told one by one.
        if found.name != "addresses" {
            changes.push(Change { restart, ..Change::from(found) });
        }
    }
    let address = |address: &config::Located<config::Prefix>| {
        format!("link {} address {}", new.name.value, address.value)
    };
    lists(&old.addresses, &new.addresses, address, &mut changes);
    if changes.is_empty() && old != new {
        // One that is in no text: the kernel's interface beside another link.
        changes.push(Change::new(format!("link {}", new.name.value), "changed"));
    }
    changes
}

fn route(route: &config::Route) -> String {
    let via = route.via.as_ref().map_or_else(String::new, |via| format!(" via {}", via.value));
    let on = route.link.as_ref().map_or_else(String::new, |link| format!(" on {}", link.value));
    let weight = match route.weight {
        1 => String::new(),
        weight => format!(" of weight {weight}"),
    };
    format!("route {}{via}{on}{weight}", route.to.value)
}

fn neighbour(neighbour: &config::StaticNeighbour) -> String {
    let on = neighbour.link.as_ref().map_or_else(String::new, |link| format!(" on {}", link.value));
    let mac = LinkAddress::ethernet(neighbour.mac);
    format!("neighbour {} at {mac}{on}", neighbour.address.value)
}

fn handler(attach: &Attach) -> String {
    let name = attach.handler.name();
    let on = attach.link.as_ref().map_or_else(String::new, |link| format!(" on {}", link.value));
    format!("{name} at {}{on}", attach.at.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_config::parse;
    use gatewright_diagnostic::SourceId;

    const OLD: &str = "[link.lan]\naddresses = [\"192.0.2.1/24\"]\n[link.wan]\nmode = \"packet\"\n\
        addresses = [\"198.51.100.1/24\"]\n[[route]]\nto = \"default\"\nvia = \"198.51.100.9\"\n\
        [[attach]]\nhandler = \"count\"\nat = \"ether:ipv4\"\n[udp_gateway.x]\n\
        listen = { link = \"lan\", port = 53 }\nforward = { address = \"198.51.100.53\", port = 53 }\n";

    fn read(text: &str) -> Config {
        let parsed = parse(SourceId::default(), text);
        parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
    }

    fn told(text: &str) -> Vec<String> {
        let tell = |change: Change| {
            let restart = if change.restart { " (restart)" } else { "" };
            format!("{change}{restart}")
        };
        let (old, new) = (read(OLD), read(text));
        let control: fn(&Config, &Config) -> Vec<Change> = |old, new| by_key(old, new, "control");
        let all = [links, handlers, messages, udp_gateways, tcp_proxies, control];
        all.into_iter().flat_map(|differences| differences(&old, &new)).map(tell).collect()
    }

    #[test]
    fn a_description_written_otherwise_says_the_same() {
        assert_eq!(told(&format!("# a comment\n\n{OLD}")), [""; 0]);
    }

    #[test]
    fn each_difference_is_told_by_name() {
        let cases: [(&str, &str, &[&str]); 18] = [
            ("\"packet\"", "\"xdp\"", &["[link.wan] mode: xdp, not packet"]),
            (
                "\"packet\"",
                "\"xdp\"\nforward = \"xdp\"",
                &[
                    "[link.wan] mode: xdp, not packet",
                    "[link.wan] forward: xdp, not graph (restart)",
                ],
            ),
            (
                "[[attach]]",
                "[link.new]\nforward = \"xdp\"\n[[attach]]",
                &["link new: added (restart)"],
            ),
            ("\"packet\"", "\"packet\"\nmtu = 1400", &["[link.wan] mtu: 1400"]),
            ("\"packet\"", "\"packet\"\ndhcp = true", &["[link.wan] dhcp: true, not false"]),
            ("\"packet\"", "\"packet\"\nqueues = 1", &["[link.wan] queues: 1"]),
            ("\"packet\"", "\"packet\"\ndevice = \"wan\"", &[]),
            ("\"packet\"", "\"tun\"", &["[link.wan] mode: tun, not packet (restart)"]),
            (
                "\"packet\"",
                "\"pcapng\"\nread = \"x\"",
                &["[link.wan] mode: pcapng, not packet", "[link.wan] read: x"],
            ),
            (
                "192.0.2.1/24",
                "192.0.2.2/24",
                &["link lan address 192.0.2.1/24: removed", "link lan address 192.0.2.2/24: added"],
            ),
            (
                "100.9",
                "100.8",
                &[
                    "route 0.0.0.0/0 via 198.51.100.9 on wan: removed",
                    "route 0.0.0.0/0 via 198.51.100.8 on wan: added",
                ],
            ),
            (
                "[[attach]]",
                "[[neighbour]]\naddress = \"192.0.2.9\"\nmac = \"02:00:00:00:00:09\"\n[[attach]]",
                &["neighbour 192.0.2.9 at 02:00:00:00:00:09 on lan: added"],
            ),
            (
                "ether:ipv4",
                "ether:ipv6",
                &["count at ether:ipv4: removed", "count at ether:ipv6: added"],
            ),
            ("port = 53 }\nforward", "port = 54 }\nforward", &["udp_gateway x: changed"]),
            (
                "[[attach]]",
                "[gateway]\nroutes_max = 100\n[[attach]]",
                &["[gateway] routes_max: 100 (restart)"],
            ),
            ("gateway.x", "gateway.y", &["udp_gateway x: removed", "udp_gateway y: added"]),
            ("[[attach]]", "[link.new]\n[[attach]]", &["link new: added"]),
            (
                "[[attach]]",
                "[gateway]\nname = \"a\"\n[control]\nsocket = \"s\"\n[[attach]]",
                &["[gateway] name: a, not gatewright (restart)", "[control] socket: s"],
            ),
        ];
        for (from, to, expected) in cases {
            let text = OLD.replace(from, to);
            assert_ne!(text, OLD, "{from}");
            assert_eq!(told(&text), expected, "{from} -> {to}");
        }
    }
}

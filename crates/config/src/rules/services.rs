//! Rules for listeners (relays, metrics, devices, service entity) and for programs.

use super::{check_link, check_needed, check_unused, twice, unusable};
use crate::balance::{ProxyTarget, TcpProxy};
use crate::codes;
use crate::form::{Form, is_right};
use crate::model::{
    Config, Delivery, Devices, Link, Listen, Located, Merge, Mesh, Series, UdpGateway, Web, WebTls,
};
use crate::shape::Findings;
use crate::values::is_host_address;
use crate::view::View;
use gatewright_diagnostic::Diagnostic;
use std::net::SocketAddr;

pub(super) fn check(config: &Config, root: View<'_>, names: &[String], findings: &mut Findings) {
    for gateway in &config.udp_gateways {
        check_link(&gateway.link, names, findings);
        check_listen(gateway, config, findings);
        check_dhcp(gateway, config, root, findings);
        receivers(gateway, config).for_each(|forward| check_forward(forward, config, findings));
    }
    check_relays_apart(&config.udp_gateways, findings);
    config.tcp_proxies.iter().for_each(|proxy| check_proxy(proxy, findings));
    for (name, table) in root.named("udp_gateway") {
        let gateway = config.udp_gateways.iter().find(|gateway| gateway.name == name);
        if let Some(gateway) = gateway {
            check_series(gateway, table, findings);
        }
    }
    check_sockets(config, findings);
    check_entity(config, root, findings);
    check_mesh(config, root, findings);
    for (count, second) in config.programs.iter().enumerate() {
        let earlier = config.programs.iter().take(count);
        if let Some(first) = earlier.into_iter().find(|first| first.file.value == second.file.value)
        {
            let message = format!("`{}` would run twice", second.file.value);
            twice(&codes::PROGRAM_TWICE, (first.file.span, second.file.span), message, findings);
        }
    }
}

/// Checks that the mesh joins each link once, and not itself.
fn check_mesh(config: &Config, root: View<'_>, findings: &mut Findings) {
    let Some(mesh) = &config.mesh else { return };
    if let Some(table) = root.table("mesh") {
        match table.text("trust").map(|trust| trust.value) {
            Some("psk") => {
                let example = "\"mesh.key\", with a line of `openssl rand -hex 32`";
                check_needed(table, ("key_file", example), "trust = \"psk\"", findings);
                check_unused(table, "members_file", "trust = \"psk\"", findings);
            }
            Some("pki") => {
                let example = "\"node.key\", as `gatewright mesh key new node.key` writes it";
                check_needed(table, ("key_file", example), "trust = \"pki\"", findings);
                let example = "\"members\", with a line `authority KEY` or `member KEY`";
                check_needed(table, ("members_file", example), "trust = \"pki\"", findings);
            }
            _ => {
                for key in ["key_file", "members_file"] {
                    check_unused(table, key, "a mesh with trust = \"open\"", findings);
                }
            }
        }
    }
    for (count, second) in mesh.links.iter().enumerate() {
        if let Some(first) = mesh.links.iter().take(count).find(|first| first.value == second.value)
        {
            let message = format!("the mesh joins `{}` twice", second.value);
            twice(&codes::DEVICE_TWICE, (first.span, second.span), message, findings);
        }
        if second.value == mesh.interface || second.value == format!("{}p", mesh.interface) {
            let message = format!("`{}` is the mesh itself, not a link of it", second.value);
            findings.add(Diagnostic::error(&codes::DEVICE_TWICE, second.span, message));
        }
    }
    check_ports(mesh, findings);
    check_tunnels(mesh, findings);
}

/// Checks that each bridge port of the mesh is one once, no link, and not the mesh itself.
fn check_ports(mesh: &Mesh, findings: &mut Findings) {
    for (count, port) in mesh.ports.iter().enumerate() {
        let mut earlier = mesh.ports.iter().take(count);
        if let Some(first) = earlier.find(|first| first.value == port.value) {
            let message = format!("`{}` is a port of the mesh twice", port.value);
            twice(&codes::DEVICE_TWICE, (first.span, port.span), message, findings);
        }
        if let Some(link) = mesh.links.iter().find(|link| link.value == port.value) {
            let message = format!("`{}` is a link and a port", port.value);
            twice(&codes::DEVICE_TWICE, (link.span, port.span), message, findings);
        }
        if port.value == mesh.interface || port.value == format!("{}p", mesh.interface) {
            let message = format!("`{}` is the mesh itself, not a port of it", port.value);
            findings.add(Diagnostic::error(&codes::DEVICE_TWICE, port.span, message));
        }
    }
}

/// Checks that each tunnel of the mesh can have an interface and a socket of its own, and that its ends
/// are of one family.
fn check_tunnels(mesh: &Mesh, findings: &mut Findings) {
    for (count, tunnel) in mesh.tunnels.iter().enumerate() {
        let name = &tunnel.interface;
        if !is_right(Form::Interface, &name.value) {
            let message = format!("`{}` cannot be the name of an interface", name.value);
            let finding = Diagnostic::error(&codes::BAD_NAME, name.span, message);
            findings.add(finding.label("at most 15 octets"));
        }
        if let Some(link) = mesh.links.iter().find(|link| link.value == name.value) {
            let message = format!("`{}` is a link and a tunnel", name.value);
            twice(&codes::DEVICE_TWICE, (link.span, name.span), message, findings);
        }
        if let Some(port) = mesh.ports.iter().find(|port| port.value == name.value) {
            let message = format!("`{}` is a port and a tunnel", name.value);
            twice(&codes::DEVICE_TWICE, (port.span, name.span), message, findings);
        }
        if name.value == mesh.interface || name.value == format!("{}p", mesh.interface) {
            let message = format!("`{}` is the mesh itself, not a tunnel of it", name.value);
            findings.add(Diagnostic::error(&codes::DEVICE_TWICE, name.span, message));
        }
        let (local, remote) = (&tunnel.local, &tunnel.remote);
        if local.is_ipv4() != remote.is_ipv4() {
            let message = format!("a tunnel from {} to {}", local.value, remote.value);
            let finding = Diagnostic::error(&codes::OTHER_FAMILY, remote.span, message);
            findings.add(finding.also(local.span, "the other family"));
        }
        let mut earlier = mesh.tunnels.iter().take(count);
        if let Some(first) = earlier.find(|first| first.local.value == local.value) {
            let message = format!("two tunnels have the port {}", local.value);
            twice(&codes::LISTENER_TWICE, (first.local.span, local.span), message, findings);
        }
    }
}

fn check_listen(gateway: &UdpGateway, config: &Config, findings: &mut Findings) {
    let Some(address) = &gateway.address else { return };
    for forward in receivers(gateway, config) {
        if address.is_ipv4() != forward.is_ipv4() {
            let message = format!("listens at {}, sends to {}", address.value, forward.ip());
            let finding = Diagnostic::error(&codes::OTHER_FAMILY, forward.span, message);
            findings.add(finding.also(address.span, "the other family"));
        }
    }
    let link = config.links.iter().find(|link| link.name.value == gateway.link.value);
    let Some(link) = link.filter(|link| !link.is_dynamic()) else { return };
    if !link.addresses.iter().any(|own| own.address() == address.value) {
        let message = format!("{} is no address of `{}`", address.value, link.name.value);
        let finding = Diagnostic::error(&codes::FOREIGN_ADDRESS, address.span, message);
        let own: Vec<String> = link.addresses.iter().map(|own| own.address().to_string()).collect();
        findings.add(if own.is_empty() {
            finding.help("give the link an address, or leave this one out")
        } else {
            finding.help(format!("it has {}", own.join(", ")))
        });
    }
}

/// The port of DHCP clients (RFC 2131 §4.1).
const DHCP_CLIENT: u16 = 68;

/// Checks that a UDP gateway does not listen where the link's own DHCP client does.
fn check_dhcp(gateway: &UdpGateway, config: &Config, root: View<'_>, findings: &mut Findings) {
    let asks = |link: &&Link| link.name.value == gateway.link.value && link.dhcp;
    let Some(link) = config.links.iter().find(asks) else { return };
    let is_ipv4 = gateway.address.as_ref().is_none_or(|address| address.is_ipv4());
    if gateway.port.value != DHCP_CLIENT || !is_ipv4 {
        return;
    }
    let name = &link.name.value;
    let message = format!("port {DHCP_CLIENT} of `{name}` is that of its DHCP client");
    let finding = Diagnostic::error(&codes::LISTENER_TWICE, gateway.port.span, message);
    let tables = root.named("link");
    let dhcp = tables.iter().find(|(known, _)| known == &link.name);
    findings.add(match dhcp.and_then(|(_, table)| table.key("dhcp")) {
        Some(dhcp) => finding.also(dhcp, "it runs here"),
        None => finding,
    });
}

/// The server of a UDP gateway, or the relays of its balance.
fn receivers<'config>(
    gateway: &'config UdpGateway,
    config: &'config Config,
) -> impl Iterator<Item = &'config Located<SocketAddr>> {
    let (server, relays) = match &gateway.target {
        ProxyTarget::Server(server) => (Some(server), None),
        ProxyTarget::Balance(flow) => {
            let balances = &config.balances;
            (None, balances.iter().find(|balance| balance.name.value == flow.balance.value))
        }
    };
    let relays = relays.into_iter().flat_map(|balance| &balance.relays);
    server.into_iter().chain(relays.map(|relay| &relay.address))
}

fn check_forward(forward: &Located<SocketAddr>, config: &Config, findings: &mut Findings) {
    let Located { value: forward, span } = *forward;
    let address = forward.ip();
    if !is_host_address(address) {
        let message = format!("{address} is no receiver");
        findings.add(unusable(address, span, message));
        return;
    }
    let owner = |link: &&Link| link.addresses.iter().any(|own| own.address() == address);
    if let Some(link) = config.links.iter().find(owner) {
        let message = format!("{address} is this gateway's own address, on `{}`", link.name.value);
        findings.add(Diagnostic::error(&codes::FORWARD_LOOP, span, message));
        return;
    }
    let mut networks = config.links.iter().flat_map(|link| &link.addresses);
    let near = networks.any(|own| own.contains(address));
    let routed = config.routes.iter().any(|route| route.to.contains(address));
    let later = config.links.iter().any(Link::is_dynamic);
    if !(near || routed || later || config.links.is_empty()) {
        let message = format!("no link and no route leads to {address}");
        findings.add(Diagnostic::error(&codes::FORWARD_UNREACHABLE, span, message));
    }
}

/// Checks that a TCP proxy forwards to a host's address, and not to itself.
fn check_proxy(proxy: &TcpProxy, findings: &mut Findings) {
    let ProxyTarget::Server(Located { value: forward, span }) = proxy.target.clone() else {
        return;
    };
    let listen = &proxy.listen;
    let address = forward.ip();
    let here = listen.ip() == address || (listen.ip().is_unspecified() && address.is_loopback());
    if address.is_unspecified() || address.is_multicast() {
        let message = format!("{address} is no server");
        findings.add(Diagnostic::error(&codes::UNUSABLE_ADDRESS, span, message));
    } else if here && listen.port() == forward.port() {
        let message = format!("`{}` would relay to itself", proxy.name.value);
        let finding = Diagnostic::error(&codes::FORWARD_LOOP, span, message);
        findings.add(finding.also(listen.span, "it listens here"));
    }
}

fn check_relays_apart(gateways: &[UdpGateway], findings: &mut Findings) {
    for (count, second) in gateways.iter().enumerate() {
        let same = |first: &&UdpGateway| {
            let address = |gateway: &UdpGateway| gateway.address.as_ref().map(|own| own.value);
            let (one, other) = (address(first), address(second));
            let apart = one.is_some() && other.is_some() && one != other;
            first.link.value == second.link.value && first.port.value == second.port.value && !apart
        };
        if let Some(first) = gateways.iter().take(count).find(same) {
            let (one, other) = (&first.name.value, &second.name.value);
            let port = second.port.value;
            let message = format!("`{one}` and `{other}` both listen at port {port}");
            twice(&codes::LISTENER_TWICE, (first.port.span, second.port.span), message, findings);
        }
    }
}

fn check_series(gateway: &UdpGateway, table: View<'_>, findings: &mut Findings) {
    let message = match (gateway.series, gateway.merge) {
        (Series::Merge, Merge::Off) => "series \"merge\" with nothing to merge",
        (Series::Split, Merge::Octets(_) | Merge::PathMtu) => "series \"split\" does not merge",
        _ => return,
    };
    let span = table.key("series").unwrap_or(table.header);
    let finding = Diagnostic::error(&codes::SERIES, span, message);
    findings.add(match (gateway.series, table.key("merge")) {
        (Series::Split, Some(merge)) => finding.also(merge, "leave this out"),
        _ => finding.help("add `merge = \"mtu\"`, or a number of octets"),
    });
}

/// Checks that devices have a service entity, and that the entity has the registrar that they need.
fn check_entity(config: &Config, root: View<'_>, findings: &mut Findings) {
    if let Some(table) = root.table("cse")
        && config.cse.as_ref().is_some_and(|cse| cse.infrastructure)
        && let Some(span) = table.key("registrar")
    {
        let message =
            "`registrar` does nothing with an infrastructure CSE: there is no CSE above it";
        findings.add(Diagnostic::error(&codes::KEY_WITHOUT_USE, span, message));
    }
    check_certificates(config, root, findings);
    check_use(config, root, findings);
    let Some(devices) = &config.devices else { return };
    let is_direct = devices.delivery == Delivery::Direct || !devices.direct.is_empty();
    match &config.cse {
        None if root.key("cse").is_none() => {
            let message = "devices without a place for their readings";
            let finding = Diagnostic::error(&codes::NO_CSE, devices.listen.span, message);
            findings.add(finding.help("describe one: [cse]"));
        }
        Some(cse) if is_direct && cse.registrar.is_none() => {
            let message = "readings are forwarded at once, but there is no receiver";
            let finding = Diagnostic::error(&codes::NO_CSE, devices.listen.span, message);
            findings.add(finding.help("say where: [cse.registrar]"));
        }
        _ => {}
    }
    check_stack_port(devices, config, findings);
    check_data_plane(is_direct, config, findings);
    check_containers(root, findings);
}

/// Checks that the CSE is not above itself, that somebody can reach it, and that an audit log has a
/// file.
fn check_use(config: &Config, root: View<'_>, findings: &mut Findings) {
    let (Some(cse), Some(table)) = (&config.cse, root.table("cse")) else { return };
    if let (Some(above), Some(given)) = (&cse.registrar, table.table("registrar")) {
        let own = cse.http.as_ref().map(|http| format!("http://{}", http.value));
        if let Some(span) = given.key("id").filter(|_| above.id == cse.id) {
            let message = format!("the CSE above has this gateway's own identifier, {}", cse.id);
            findings.add(Diagnostic::error(&codes::KEY_WITHOUT_USE, span, message));
        }
        if let Some(span) = given.key("url").filter(|_| own.as_ref() == Some(&above.url)) {
            let message = format!("the CSE above has this gateway's own address, {}", above.url);
            findings.add(Diagnostic::error(&codes::KEY_WITHOUT_USE, span, message));
        }
    }
    let listeners = ["http", "coap", "ws", "mqtt", "registrar"];
    let is_read_here = ["devices", "web"].iter().any(|name| root.key(name).is_some());
    if !is_read_here && listeners.iter().all(|name| table.key(name).is_none()) {
        let message = "nobody reaches this CSE: it listens nowhere, and there is none above it";
        let finding = Diagnostic::warning(&codes::KEY_WITHOUT_USE, table.header, message);
        findings.add(finding.help("say where it listens, as: http = \"127.0.0.1:8080\""));
    }
    if let Some(span) = table.key("audit").filter(|_| cse.audit && cse.store.is_none()) {
        let message = "an audit log without a file: its entries are gone with the gateway";
        let finding = Diagnostic::warning(&codes::KEY_WITHOUT_USE, span, message);
        findings.add(finding.help("say where it is kept, as: store = \"ward.db\""));
    }
}

/// Names below a device's AE that are no container of readings: containers and policies that the gateway
/// makes there itself, and virtual resources (TS-0001 §9.6.6).
const TAKEN_NAMES: [&str; 8] =
    ["about", "commands", "device-itself", "fopt", "la", "ol", "pcu", "results"];

/// Checks that no readings go where something else is.
fn check_containers(root: View<'_>, findings: &mut Findings) {
    let maps = root.table("devices").map(|devices| devices.tables("map")).unwrap_or_default();
    for name in maps.iter().filter_map(|map| map.text("container")) {
        if TAKEN_NAMES.contains(&name.value) {
            let message = format!("`{}` below a device is something else", name.value);
            let finding = Diagnostic::error(&codes::BAD_NAME, name.span, message);
            findings.add(finding.help("choose another container, as \"heart-rate\""));
        }
    }
}

/// Checks that the devices' port of the gateway's own stack is at an address of an exclusive link.
fn check_stack_port(devices: &Devices, config: &Config, findings: &mut Findings) {
    let Some(stack) = &devices.stack else { return };
    let mut exclusive = config.links.iter().filter(|link| link.exclusive).peekable();
    let message = if exclusive.peek().is_none() {
        "no link is exclusive, so the gateway's own stack is no host".to_owned()
    } else {
        let has = |link: &Link| {
            link.is_dynamic() || link.addresses.iter().any(|own| own.address() == stack.ip())
        };
        if stack.ip().is_unspecified() || exclusive.any(has) {
            return;
        }
        format!("{} is no address of an exclusive link", stack.ip())
    };
    findings.add(Diagnostic::error(&codes::DEVICES_OVER_STACK, stack.span, message));
}

/// Checks that the data plane has readings for the registrar's CoAP address, and says that they
/// travel in the clear.
fn check_data_plane(is_direct: bool, config: &Config, findings: &mut Findings) {
    let registrar = config.cse.as_ref().and_then(|cse| cse.registrar.as_ref());
    let Some((registrar, coap)) = registrar.and_then(|it| Some((it, it.coap.as_ref()?))) else {
        return;
    };
    let stack = config.devices.as_ref().and_then(|devices| devices.stack.as_ref());
    let message = match stack {
        _ if !is_host_address(coap.ip()) => format!("{} is no CSE", coap.ip()),
        None => "the data plane has no port for devices".to_owned(),
        Some(_) if !is_direct => "the delivery of all kinds of devices is durable".to_owned(),
        Some(_) => {
            if ["https", "wss", "mqtts"].iter().any(|scheme| registrar.url.starts_with(scheme)) {
                let message = "readings that the data plane sends are not protected by TLS";
                let finding = Diagnostic::warning(&codes::COAP_IN_CLEAR, coap.span, message);
                findings.add(finding.help("leave `coap` out unless the network is trusted"));
            }
            return;
        }
    };
    let finding = Diagnostic::error(&codes::DIRECT_BY_DATA_PLANE, coap.span, message);
    findings.add(finding.help("it needs [devices] with `stack`, and `delivery = \"direct\"`"));
}

/// Checks that what is reached over TLS is shown a certificate.
fn check_certificates(config: &Config, root: View<'_>, findings: &mut Findings) {
    let (Some(cse), Some(table)) = (&config.cse, root.table("cse")) else { return };
    if table.key("tls").is_some() {
        return;
    }
    let registrar = table.table("registrar");
    let devices = root.table("devices").and_then(|devices| devices.table("home_assistant"));
    let announced = config.devices.as_ref().and_then(|devices| devices.home_assistant.as_ref());
    let places = [
        (announced.map(|it| &it.broker), devices.and_then(|it| it.key("broker"))),
        (cse.mqtt.as_ref(), table.key("mqtt")),
        (cse.registrar.as_ref().map(|above| &above.url), registrar.and_then(|it| it.key("url"))),
    ];
    for (url, span) in places {
        let is_of = |scheme: &&str| url.is_some_and(|it| it.starts_with(*scheme));
        let what = match (is_of(&"mqtts://"), ["https://", "wss://"].iter().any(is_of)) {
            (true, _) => "broker",
            (_, true) => "CSE",
            _ => continue,
        };
        let Some(span) = span else { continue };
        let message = format!("a {what} over TLS, and no certificate to show it");
        let finding = Diagnostic::error(&codes::NO_CERTIFICATE, span, message);
        findings.add(finding.help("[cse.tls] says which: certificate, key, authorities"));
    }
}

/// Checks that a web interface which other machines reach knows who asks.
fn check_web(web: &Web, socket: &Located<SocketAddr>, findings: &mut Findings) {
    let is_known = |tls: &WebTls| tls.authorities.is_some() || web.tokens.is_some();
    if socket.ip().is_loopback() || web.tls.as_ref().is_some_and(is_known) {
        return;
    }
    let message = "other machines reach the web interface, and it does not know who asks";
    let finding = Diagnostic::error(&codes::WEB_WIDE_OPEN, socket.span, message);
    let port = socket.port();
    findings.add(finding.help(format!(
        "127.0.0.1:{port} is for this machine only; else it needs `tls`, and `tokens` or \
         `tls.authorities`"
    )));
}

fn check_sockets(config: &Config, findings: &mut Findings) {
    let metrics = config.control.metrics.as_ref().and_then(|listen| match listen.value {
        Listen::Tcp(socket) => Some(Located { value: socket, span: listen.span }),
        Listen::Unix(_) => None,
    });
    let devices = config.devices.as_ref().map(|devices| devices.listen.clone());
    // Datagrams meet no stream.
    let datagrams = config.devices.as_ref().and_then(|devices| devices.udp.clone());
    for (what, socket) in [("metrics", &metrics), ("devices", &devices), ("devices", &datagrams)] {
        if let Some(socket) = socket.as_ref().filter(|socket| !socket.ip().is_loopback()) {
            let message = format!("{what} can be reached from other machines");
            let finding = Diagnostic::warning(&codes::WIDE_OPEN, socket.span, message);
            findings.add(finding.help(format!("127.0.0.1:{} is for this one only", socket.port())));
        }
    }
    let web = config.web.as_ref().and_then(|web| match web.listen.value {
        Listen::Tcp(socket) => Some(Located { value: socket, span: web.listen.span }),
        Listen::Unix(_) => None,
    });
    if let (Some(socket), Some(asked)) = (&web, &config.web) {
        check_web(asked, socket, findings);
    }
    // CoAP is UDP and meets nobody here.
    let http = config.cse.as_ref().and_then(|cse| cse.http.clone());
    let ws = config.cse.as_ref().and_then(|cse| cse.ws.clone());
    let proxies = config.tcp_proxies.iter().map(|proxy| proxy.listen.clone());
    let sockets: Vec<Located<SocketAddr>> =
        [metrics, web, devices, http, ws].into_iter().flatten().chain(proxies).collect();
    for (count, second) in sockets.iter().enumerate() {
        let meets = |first: &&Located<SocketAddr>| {
            let any = first.ip().is_unspecified() || second.ip().is_unspecified();
            first.port() == second.port() && (any || first.ip() == second.ip())
        };
        if let Some(first) = sockets.iter().take(count).find(meets) {
            let message = format!("port {} is taken twice", second.port());
            twice(&codes::LISTENER_TWICE, (first.span, second.span), message, findings);
        }
    }
}

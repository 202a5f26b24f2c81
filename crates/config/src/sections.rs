//! Converts the tables of a text to the typed description. Invalid values were reported before and
//! are omitted, so that the rules can check everything else.

use crate::balance::{self, TcpProxy};
use crate::filter;
use crate::log::Log;
use crate::messages::{self, AttachMessages};
use crate::model::{
    Advertise, Attach, Config, Control, Cse, CseAlarms, CseTls, Delivery, Device, DeviceMap,
    DeviceView, Devices, DevicesTls, Handler, HomeAssistant, Link, Listen, Located, Match, Merge,
    Mesh, MeshProfile, MeshRouting, MeshTunnel, Mode, PeerBounds, Place, PlaneMode, Program,
    Registrar, ReplayPace, Route, SegmentImpairment, Series, Side, SilentAfter, StaticNeighbour,
    SystemIdField, UdpGateway, VirtualTag, Web, WebTls,
};
use crate::values::{self, Prefix};
use crate::view::View;
use gatewright_stack::builtin::Verdict;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::time::Duration;

/// Default time that a worker polls for the next frame before it sleeps.
const SPIN_US: u32 = 50;
/// Default maximum time between two router advertisements (RFC 4861 §6.2.1: 600 s).
const ADVERTISE_EVERY: Duration = Duration::from_mins(10);
/// Default hop limit that hosts start with (RFC 1700: 64).
const HOP_LIMIT: u8 = 64;
/// Default burst of a limiter, in packets.
const BURST: u32 = 32;
/// Default maximum number of concurrent associations.
const DEVICES: u32 = 1000;
/// Default time that a reading waits for the registrar: a week.
const KEEP_HOURS: u32 = 168;
/// Default maximum number of one device's readings that wait for the registrar: more than a day at
/// one in ten seconds.
const WAITING: u32 = 10_000;
/// Default maximum number of all devices' readings that wait for the registrar; each takes about a
/// kibibyte of memory.
const WAITING_TOTAL: u32 = 100_000;

/// Default address of the web interface.
const WEB_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8787));

/// Reads the whole description.
pub(crate) fn config(root: View<'_>) -> Config {
    let (gateway, planes) = (root.table("gateway"), root.table("planes"));
    let name = gateway.and_then(|table| table.owned("name"));
    Config {
        name: name.unwrap_or_else(|| "gatewright".to_owned()),
        workers: planes
            .and_then(|table| table.number("data_cores"))
            .or_else(|| gateway.and_then(|table| table.number("workers")))
            .unwrap_or(1),
        plane_mode: match planes.and_then(|table| table.text("mode")).map(|mode| mode.value) {
            Some("process") => PlaneMode::Process,
            _ => PlaneMode::Threads,
        },
        control_core: planes.and_then(|table| table.number_at("control_core")),
        neighbours_max: gateway.and_then(|table| table.number("neighbours_max")),
        routes_max: gateway.and_then(|table| table.number("routes_max")),
        links: root
            .named("link")
            .into_iter()
            .filter_map(|(name, table)| link(name, table))
            .collect(),
        routes: root.tables("route").into_iter().filter_map(route).collect(),
        neighbours: root.tables("neighbour").into_iter().filter_map(neighbour).collect(),
        attachments: root.tables("attach").into_iter().filter_map(attach).collect(),
        message_attachments: (root.tables("attach").into_iter())
            .filter_map(attach_messages)
            .collect(),
        tcp_proxies: (root.named("tcp_proxy").into_iter())
            .filter_map(|(name, table)| tcp_proxy(name, table))
            .collect(),
        udp_gateways: (root.named("udp_gateway").into_iter())
            .filter_map(|(name, table)| udp_gateway(name, table))
            .collect(),
        balances: (root.named("balance").into_iter())
            .filter_map(|(name, table)| balance::balance(name, table))
            .collect(),
        control: root.table("control").map(control).unwrap_or_default(),
        web: root.table("web").map(web),
        log: root.table("log").map(log).unwrap_or_default(),
        programs: root.tables("program").into_iter().filter_map(program).collect(),
        devices: root.table("devices").and_then(devices),
        cse: root.table("cse").and_then(cse),
        mesh: root.table("mesh").map(mesh),
        ..Config::default()
    }
}

fn link(name: Located<String>, table: View<'_>) -> Option<Link> {
    let addresses = table
        .texts("addresses")
        .into_iter()
        .filter_map(|Located { value, span }| Some(Located { value: Prefix::parse(value)?, span }));
    Some(Link {
        device: device(&name, table)?,
        exclusive: table.flag("exclusive").unwrap_or(true),
        mtu: table.number("mtu"),
        addresses: addresses.collect(),
        dhcp: table.flag("dhcp").unwrap_or(false),
        autoconfigure: table.flag("autoconfigure").unwrap_or(false),
        forwarding: table.flag("forwarding").unwrap_or(true),
        forwards_in_driver: table.text("forward").is_some_and(|forward| *forward.value == *"xdp"),
        advertise: table.table("advertise").map(advertise),
        mac: table.parsed("mac", values::mac).map(|mac| mac.value),
        promiscuous: table.flag("promiscuous").unwrap_or(false),
        queues: table.number("queues"),
        host: table.name("host"),
        spin: Duration::from_micros(table.number::<u32>("spin_us").unwrap_or(SPIN_US).into()),
        name,
    })
}

fn mesh(table: View<'_>) -> Mesh {
    let interfaces = |key| {
        let names = table.texts(key).into_iter();
        names.map(|Located { value, span }| Located { value: value.to_owned(), span }).collect()
    };
    let profile = table.text("profile").map(|profile| profile.value);
    Mesh {
        interface: table.owned("interface").unwrap_or_else(|| "mesh0".to_owned()),
        links: interfaces("links"),
        ports: interfaces("ports"),
        tunnels: (table.named("tunnel").into_iter())
            .filter_map(|(name, table)| mesh_tunnel(name, table))
            .collect(),
        profile: match profile {
            Some("classic") => MeshProfile::Classic,
            _ => MeshProfile::Default,
        },
        routing: match table.text("routing").map(|routing| routing.value) {
            Some("olsr") => MeshRouting::Olsr,
            _ => MeshRouting::OnDemand,
        },
        key_file: table.owned("key_file"),
        members_file: table.owned("members_file"),
    }
}

fn mesh_tunnel(interface: Located<String>, table: View<'_>) -> Option<MeshTunnel> {
    let address = |key| table.parsed(key, |text| text.parse().ok());
    Some(MeshTunnel { interface, local: address("local")?, remote: address("remote")? })
}

fn advertise(table: View<'_>) -> Advertise {
    let seconds = |key| table.number::<u32>(key).map(|number| Duration::from_secs(number.into()));
    let interval = seconds("interval_s").unwrap_or(ADVERTISE_EVERY);
    Advertise {
        interval,
        lifetime: seconds("lifetime_s").unwrap_or(interval * 3),
        hop_limit: table.number("hop_limit").unwrap_or(HOP_LIMIT),
        mtu: table.flag("mtu").unwrap_or(true),
    }
}

fn log(table: View<'_>) -> Log {
    let parsed = |key| table.text(key).map(|text| text.value);
    Log {
        format: parsed("format").and_then(|text| text.parse().ok()),
        level: parsed("level").and_then(|text| text.parse().ok()),
    }
}

/// Whether the table describes a virtual link.
pub(crate) fn is_virtual(table: View<'_>) -> bool {
    table.key("vlan").or(table.key("on")).is_some()
}

fn device(link: &Located<String>, table: View<'_>) -> Option<Device> {
    if is_virtual(table) {
        let (id, priority) = (table.number_at("vlan")?, table.number("priority").unwrap_or(0));
        return Some(Device::Virtual {
            on: table.name("on")?,
            tag: VirtualTag::Vlan { id, priority },
        });
    }
    let name = || table.name("device").unwrap_or_else(|| link.clone());
    let interface = |mode| Some(Device::Interface { name: name(), mode });
    match table.text("mode").map_or("auto", |mode| mode.value) {
        "auto" => interface(Mode::Auto),
        "xdp" => interface(Mode::Xdp),
        "xdp-generic" => interface(Mode::XdpGeneric),
        "packet" => interface(Mode::Packet),
        "tap" => Some(Device::Tap { name: name() }),
        "tun" => Some(Device::Tun { name: name() }),
        "pcapng" => {
            let (read, write) = (table.name("read"), table.name("write"));
            let is_named = read.is_some() || write.is_some();
            is_named.then(|| Device::Pcapng { read, write, pace: pace(table) })
        }
        "dpdk" => Some(Device::Dpdk { port: table.name("port")? }),
        "segment" => {
            let time = |key| Duration::from_micros(table.number(key).unwrap_or(0));
            let impairment = SegmentImpairment {
                delay: time("delay_us"),
                jitter: time("jitter_us"),
                loss_per_million: table.number("loss_per_million").unwrap_or(0),
                seed: table.number("seed"),
            };
            Some(Device::Segment { name: table.name("segment")?, impairment })
        }
        _ => None,
    }
}

fn pace(table: View<'_>) -> ReplayPace {
    match table.text("pace").map(|pace| pace.value) {
        Some("fastest") => ReplayPace::Fastest,
        Some(_) => ReplayPace::Captured,
        None => table
            .number::<u32>("pace")
            .and_then(NonZeroU32::new)
            .map_or(ReplayPace::Captured, ReplayPace::FramesPerSecond),
    }
}

fn neighbour(table: View<'_>) -> Option<StaticNeighbour> {
    Some(StaticNeighbour {
        address: table.parsed("address", |text| text.parse::<IpAddr>().ok())?,
        mac: table.parsed("mac", values::mac)?.value,
        link: table.name("link"),
    })
}

fn route(table: View<'_>) -> Option<Route> {
    let via = table.parsed("via", |text| text.parse::<IpAddr>().ok());
    let default = match via.as_deref() {
        Some(IpAddr::V6(_)) => Prefix::parse("::/0"),
        _ => Prefix::parse("0.0.0.0/0"),
    };
    let to = |text: &str| if text == "default" { default } else { Prefix::parse(text) };
    Some(Route {
        to: table.parsed("to", to)?,
        via,
        link: table.name("link"),
        metric: table.number("metric").unwrap_or(0),
        weight: table.number("weight").unwrap_or(1),
        balance: balance::flow(table),
    })
}

/// Reads an `[[attach]]` at a message position.
pub(crate) fn attach_messages(table: View<'_>) -> Option<AttachMessages> {
    messages::attach(table, BURST)
}

/// Reads an `[[attach]]` at a packet position.
pub(crate) fn attach(table: View<'_>) -> Option<Attach> {
    let handler = handler(table)?;
    let place = match (table.text("place").map(|place| place.value), &handler) {
        (Some("instead"), _) => Place::Instead,
        (Some("after"), _) => Place::After,
        (Some("tap"), _)
        | (None, Handler::Count | Handler::Capture { .. } | Handler::Mirror { .. }) => Place::Tap,
        (Some("before"), _)
        | (None, Handler::Drop { .. } | Handler::Filter { .. } | Handler::RateLimit { .. }) => {
            Place::Before
        }
        (Some(_), _) | (None, Handler::Host { .. } | Handler::NextHops { .. }) => return None,
    };
    let side = table.text("side").map(|side| side.value);
    Some(Attach {
        handler,
        at: table.parsed("at", values::position)?,
        side: if side == Some("transmit") { Side::Transmit } else { Side::Receive },
        place,
        link: table.name("link"),
    })
}

fn handler(table: View<'_>) -> Option<Handler> {
    Some(match table.text("handler")?.value {
        "count" => Handler::Count,
        "capture" => Handler::Capture { file: table.name("file")? },
        "drop" => {
            Handler::Drop { matching: table.table("match").map(matching).unwrap_or_default() }
        }
        "filter" => Handler::Filter {
            rules: filter::rules(table)?,
            default: filter::verdict(table, "default").unwrap_or(Verdict::Accept),
        },
        "mirror" => Handler::Mirror { to: table.name("to")? },
        "rate-limit" => Handler::RateLimit {
            rate: table.number("rate")?,
            burst: table.number("burst").unwrap_or(BURST),
        },
        _ => return None,
    })
}

fn matching(table: View<'_>) -> Match {
    let network = |key| table.parsed(key, Prefix::parse).map(|network| network.value);
    Match {
        source: network("source"),
        destination: network("destination"),
        protocol: table.parsed("protocol", values::protocol).map(|protocol| protocol.value),
        port: table.number("port"),
    }
}

fn udp_gateway(name: Located<String>, table: View<'_>) -> Option<UdpGateway> {
    let listen = table.table("listen")?;
    let address = |text: &str| text.parse::<IpAddr>().ok();
    let merge = match table.text("merge").map(|merge| merge.value) {
        Some("mtu") => Merge::PathMtu,
        Some(_) => Merge::Off,
        None => table.number("merge").map_or(Merge::Off, Merge::Octets),
    };
    let series = match table.text("series").map(|series| series.value) {
        Some("merge") => Series::Merge,
        Some("split") => Series::Split,
        _ => Series::Plain,
    };
    Some(UdpGateway {
        name,
        link: listen.name("link")?,
        address: listen.parsed("address", address),
        port: listen.number_at("port")?,
        target: balance::target(table)?,
        merge,
        series,
        clients_max: table.number("clients_max").unwrap_or(UDP_CLIENTS),
    })
}

/// Default maximum number of concurrent clients of a UDP gateway.
const UDP_CLIENTS: u16 = 1024;

/// Default maximum number of concurrent connections of a TCP proxy.
const CONNECTIONS: usize = 512;

/// Default timeouts of a TCP proxy: longer than most exchanges pause, and than most paths take.
const IDLE: Duration = Duration::from_mins(5);
const CONNECT: Duration = Duration::from_secs(10);

fn tcp_proxy(name: Located<String>, table: View<'_>) -> Option<TcpProxy> {
    let seconds = |key| table.number(key).map(Duration::from_secs);
    Some(TcpProxy {
        name,
        listen: table.parsed("listen", |text| text.parse().ok())?,
        target: balance::target(table)?,
        connections_max: table.number("connections_max").unwrap_or(CONNECTIONS),
        idle: seconds("idle_s").unwrap_or(IDLE),
        connect: seconds("connect_s").unwrap_or(CONNECT),
    })
}

fn control(table: View<'_>) -> Control {
    Control { socket: table.owned("socket"), metrics: table.parsed("metrics", listen) }
}

/// Parses a listener's address: `127.0.0.1:80` or `unix:PATH`.
fn listen(text: &str) -> Option<Listen> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(Listen::Unix(path.to_owned())),
        None => text.parse().ok().map(Listen::Tcp),
    }
}

fn web(table: View<'_>) -> Web {
    let usual = Located { value: Listen::Tcp(WEB_LISTEN), span: table.header };
    let tls = table.table("tls").and_then(|table| {
        let (certificate, key) = (table.owned("certificate")?, table.owned("key")?);
        Some(WebTls { certificate, key, authorities: table.owned("authorities") })
    });
    Web {
        listen: table.parsed("listen", listen).unwrap_or(usual),
        tokens: table.owned("tokens"),
        audit: table.owned("audit"),
        reports: table.owned("reports"),
        tls,
    }
}

fn program(table: View<'_>) -> Option<Program> {
    let at = table.texts("at").into_iter().filter_map(|text| values::role_address(text.value));
    let pairs = |key| -> Vec<(String, String)> {
        let texts = table.texts(key).into_iter();
        texts.filter_map(|text| values::field(text.value)).collect()
    };
    let names = |key: &'static str| {
        let name = move |text: Located<&str>| {
            let (name, _) = text.value.split_once('=')?;
            Some((key, Located { value: name.to_owned(), span: text.span }))
        };
        table.texts(key).into_iter().filter_map(name)
    };
    Some(Program {
        file: table.name("file")?,
        written: ["at", "set", "set_env", "set_file"].into_iter().flat_map(names).collect(),
        at: at.collect(),
        stack: table.texts("stack").into_iter().map(Located::owned).collect(),
        set: pairs("set"),
        set_env: pairs("set_env"),
        set_file: pairs("set_file"),
    })
}

fn devices(table: View<'_>) -> Option<Devices> {
    let direct = table.text("delivery").is_some_and(|delivery| *delivery == "direct");
    Some(Devices {
        listen: table.parsed("listen", |text| text.parse().ok())?,
        udp: table.parsed("udp", |text| text.parse().ok()),
        stack: table.parsed("stack", |text| text.parse().ok()),
        tls: table.table("tls").and_then(devices_tls),
        delivery: if direct { Delivery::Direct } else { Delivery::Durable },
        direct: owned(&table, "direct"),
        durable: owned(&table, "durable"),
        devices_max: table.number("devices_max").unwrap_or(DEVICES),
        peer_connections: table.number("peer_connections"),
        admit: (table.texts("admit").into_iter())
            .filter_map(|text| values::system_id(text.value))
            .collect(),
        operators: owned(&table, "operators"),
        keep: Duration::from_hours(table.number("keep_hours").unwrap_or(KEEP_HOURS).into()),
        waiting_max: table.number("waiting_max").unwrap_or(WAITING),
        waiting_total: table.number("waiting_total").unwrap_or(WAITING_TOTAL),
        waiting_mib: table.number("waiting_mib"),
        views: table.flag("views").unwrap_or(false),
        maps: table.tables("map").into_iter().filter_map(device_map).collect(),
        silent: table.tables("silent").into_iter().filter_map(silent_after).collect(),
        home_assistant: table.table("home_assistant").and_then(home_assistant),
    })
}

fn home_assistant(table: View<'_>) -> Option<HomeAssistant> {
    Some(HomeAssistant {
        broker: table.owned("broker")?,
        prefix: table.owned("prefix").unwrap_or_else(|| "homeassistant".to_owned()),
        topic: table.owned("topic").unwrap_or_else(|| "gatewright".to_owned()),
    })
}

fn silent_after(table: View<'_>) -> Option<SilentAfter> {
    let minutes: u32 = table.number("minutes")?;
    Some(SilentAfter { after: Duration::from_mins(minutes.into()), kinds: owned(&table, "kinds") })
}

fn device_map(table: View<'_>) -> Option<DeviceMap> {
    let measured = table.number("partition").zip(table.number("code"));
    Some(DeviceMap {
        container: table.owned("container")?,
        measured,
        unit: table.number("unit"),
        labels: owned(&table, "labels"),
        instances: table.number("instances"),
        loinc: table.owned("loinc"),
        view: table.table("view").and_then(|view| {
            Some(DeviceView {
                name: view.owned("name")?,
                definition: view.owned("definition")?,
                attribute: view.owned("attribute")?,
            })
        }),
    })
}

/// The texts of a list.
fn owned(table: &View<'_>, key: &str) -> Vec<String> {
    table.texts(key).into_iter().map(|text| text.value.to_owned()).collect()
}

/// Networks of a list; one that cannot be read was reported.
fn networks(table: &View<'_>, key: &str) -> Vec<Prefix> {
    table.texts(key).into_iter().filter_map(|text| Prefix::parse(text.value)).collect()
}

fn cse(table: View<'_>) -> Option<Cse> {
    let socket = |key| table.parsed(key, |text| text.parse().ok());
    Some(Cse {
        base: table.name("base")?,
        id: table.owned("id")?,
        http: socket("http"),
        coap: socket("coap"),
        ws: socket("ws"),
        mqtt: table.owned("mqtt"),
        store: table.owned("store"),
        store_mib: table.number("store_mib"),
        reserve_mib: table.number("reserve_mib"),
        memory_mib: table.number("memory_mib"),
        resources_max: table.number("resources_max"),
        branch_max: table.number("branch_max"),
        instances_max: table.number("instances_max"),
        infrastructure: table.text("type").is_some_and(|kind| *kind == "infrastructure"),
        admin: table.owned("admin"),
        admit: owned(&table, "admit"),
        admit_devices: table.key("admit_devices").map(|_| owned(&table, "admit_devices")),
        adopt_devices: owned(&table, "adopt_devices"),
        admit_beyond: owned(&table, "admit_beyond"),
        audit: table.flag("audit").unwrap_or(false),
        audit_mib: table.number("audit_mib"),
        audit_strict: table.flag("audit_strict").unwrap_or(true),
        points_of_access: owned(&table, "points_of_access"),
        reach_own: table.flag("reach_own").unwrap_or(false),
        reach_only: networks(&table, "reach_only"),
        reach_not: networks(&table, "reach_not"),
        peer: PeerBounds {
            rate: table.number("peer_rate"),
            requests: table.number("peer_requests"),
            mib: table.number("peer_mib"),
            mib_of_all: table.number("content_mib"),
            answers_mib: table.number("peer_answers_mib"),
            answers_mib_of_all: table.number("answers_mib"),
            connections: table.number("peer_connections"),
        },
        provider: table.owned("provider"),
        tls: table.table("tls").and_then(cse_tls),
        registrar: table.table("registrar").and_then(registrar),
        alarms: table.table("alarms").map(alarms).unwrap_or_default(),
    })
}

fn alarms(table: View<'_>) -> CseAlarms {
    let usual = CseAlarms::default();
    let number = |key, usual| table.number(key).unwrap_or(usual);
    CseAlarms {
        outbox_percent: number("outbox_percent", usual.outbox_percent),
        certificate_days: number("certificate_days", usual.certificate_days),
        certificate_days_urgent: number("certificate_days_urgent", usual.certificate_days_urgent),
    }
}

fn cse_tls(table: View<'_>) -> Option<CseTls> {
    let socket = |key| table.parsed(key, |text| text.parse().ok());
    Some(CseTls {
        https: socket("https"),
        wss: socket("wss"),
        certificate: table.owned("certificate")?,
        key: table.owned("key")?,
        authorities: table.owned("authorities")?,
        crl: table.owned("crl"),
        ocsp_response: table.owned("ocsp_response"),
        ocsp_required: table.flag("ocsp_required").unwrap_or(false),
    })
}

fn devices_tls(table: View<'_>) -> Option<DevicesTls> {
    let field = table.text("system_id").map(|field| {
        let is_dns = *field == "dns";
        if is_dns { SystemIdField::Dns } else { SystemIdField::Uri }
    });
    Some(DevicesTls {
        system_id: field,
        listen: table.parsed("listen", |text| text.parse().ok())?,
        certificate: table.owned("certificate")?,
        key: table.owned("key")?,
        authorities: table.owned("authorities")?,
        crl: table.owned("crl"),
        ocsp_response: table.owned("ocsp_response"),
    })
}

fn registrar(table: View<'_>) -> Option<Registrar> {
    Some(Registrar {
        url: table.owned("url")?,
        id: table.owned("id")?,
        base: table.owned("base")?,
        readings: table.owned("readings"),
        coap: table.parsed("coap", |text| text.parse().ok()),
        coap_json: table.text("coap_content").is_some_and(|content| *content == "json"),
    })
}

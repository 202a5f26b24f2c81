//! The tables of devices and of the service entity.

use super::{Form, Key, Shape, TABLES_MAX, Table, fixed, key, or, required};
use crate::values::DEVICE_KINDS;

/// Maximum number of associations of devices.
const DEVICES_MAX: i64 = 100_000;
/// Maximum number of labels of a container.
const LABELS_MAX: usize = 64;
/// Maximum number of readings that a container keeps.
const INSTANCES_MAX: i64 = 100_000_000;
/// A code or a partition of the nomenclature: 16 bits (IEEE 11073-10101).
const CODE: Shape = Shape::Number(0, 65_535);
/// Names in a device's certificate that may contain its system-id.
const SYSTEM_ID_FIELDS: &[&str] = &["uri", "dns"];
/// Maximum number of names in a list of permitted peers.
const ADMITTED_MAX: usize = 4096;
/// Maximum time that readings wait for the registrar, in hours: ten years.
const KEEP_HOURS_MAX: i64 = 87_600;
/// Maximum number of readings that wait for the registrar, of one device or of all.
const WAITING_MAX: i64 = 10_000_000;
/// Maximum size of the database, in MiB: 1 TiB.
const STORE_MIB_MAX: i64 = 1 << 20;
/// The reserve on the disk in MiB: more serves nobody.
const RESERVE_MIB_MAX: i64 = 1 << 10;
/// Maximum number of requests of one peer per second.
const PEER_RATE_MAX: i64 = 1_000_000;
/// Resources of a service entity: its base and a few AEs at the least; 12 GiB at the most.
const RESOURCES_MIN: i64 = 100;
const RESOURCES_MAX: i64 = 10_000_000;
/// Maximum number of concurrent requests or connections of one peer.
const PEER_REQUESTS_MAX: i64 = 65_536;
/// Maximum content of one peer, in MiB.
const PEER_MIB_MAX: i64 = 1 << 16;
const DELIVERIES: &[&str] = &["durable", "direct"];
const CSE_TYPES: &[&str] = &["middle", "infrastructure"];

/// The certificate that a listener shows.
const CERTIFICATE: Key = required(
    "certificate",
    Shape::Text(Form::Any("/etc/gatewright/certificate.pem")),
    "The certificate that is shown, PEM; a relative path is one in the description's folder.",
);
/// The key of that certificate.
const PRIVATE_KEY: Key = required(
    "key",
    Shape::Text(Form::Any("/etc/gatewright/key.pem")),
    "The certificate's key, PEM.",
);
/// The authorities of the peers.
const AUTHORITIES: Key = required(
    "authorities",
    Shape::Text(Form::Any("/etc/gatewright/authorities.pem")),
    "Whose certificates are taken, PEM.",
);
/// The authorities' lists of revoked certificates.
const CRL: Key = key(
    "crl",
    Shape::Text(Form::Any("/etc/gatewright/revoked.pem")),
    "Lists of revoked certificates (CRL), PEM: one of each authority; none if not given.",
);

pub(super) static DEVICES: Table = Table {
    name: "[devices]",
    doc: "IEEE 11073 devices that associate with this gateway.",
    keys: &[
        required("listen", Shape::Text(Form::Socket), "Where the manager listens (TCP)."),
        key("udp", Shape::Text(Form::Socket), "Where it takes datagrams; nowhere if not given."),
        key("tls", Shape::Table(&DEVICES_TLS), "Where it takes devices that show a certificate."),
        key(
            "delivery",
            Shape::Choice(DELIVERIES),
            "durable stores a reading before it is acknowledged; direct sends it on at once.",
        ),
        key(
            "direct",
            Shape::List(Form::DeviceKind, DEVICE_KINDS.len()),
            "Kinds of devices whose readings are sent on at once, whatever delivery says.",
        ),
        key(
            "durable",
            Shape::List(Form::DeviceKind, DEVICE_KINDS.len()),
            "Kinds of devices whose readings are stored first, whatever else is said.",
        ),
        or(
            "1000",
            fixed(key(
                "devices_max",
                Shape::Number(1, DEVICES_MAX),
                "Associations at once; of as many connections again without one, the oldest gives way.",
            )),
        ),
        key(
            "peer_connections",
            Shape::Number(1, DEVICES_MAX),
            "Connections of one address at once, associated or not; no limit of their own if not given, as a hub has one address.",
        ),
        key(
            "admit",
            Shape::List(Form::SystemId, ADMITTED_MAX),
            "System-ids of the devices that may associate; all if not given.",
        ),
        key(
            "operators",
            Shape::List(Form::Any("CNurse"), ADMITTED_MAX),
            "Who may read what devices report and ask them something: CNurse, /id-in/CNurse.",
        ),
        key(
            "keep_hours",
            Shape::Number(1, KEEP_HOURS_MAX),
            "How long a reading waits for the registrar before it is given up; 168 if not given.",
        ),
        key(
            "waiting_max",
            Shape::Number(1, WAITING_MAX),
            "Readings of one device that wait for the registrar; then the device keeps its own.",
        ),
        key(
            "waiting_total",
            Shape::Number(1, WAITING_MAX),
            "Readings of all devices that wait for the registrar.",
        ),
        or(
            "false",
            fixed(key(
                "views",
                Shape::Flag,
                "Show the latest values also as the flexContainers of TS-0023; false if not given.",
            )),
        ),
        fixed(key(
            "map",
            Shape::Many(&DEVICES_MAP, TABLES_MAX),
            "What objects of devices become, before what is known by itself.",
        )),
    ],
};

static DEVICES_MAP: Table = Table {
    name: "[[devices.map]]",
    doc: "What an object of a device becomes: the first that fits.",
    keys: &[
        required("container", Shape::Text(Form::Name), "The container of its readings."),
        key("partition", CODE, "Partition of what is measured: 2 for vital signs; with code."),
        key("code", CODE, "Code of what is measured in its partition; all if not given."),
        key("unit", CODE, "Code of the unit (IEEE 11073-10101): 544 for %; all if not given."),
        key(
            "labels",
            Shape::List(Form::Any("ward-3"), LABELS_MAX),
            "Labels of the container, too.",
        ),
        key("instances", Shape::Number(1, INSTANCES_MAX), "Readings kept; 10000 if not given."),
        key("loinc", Shape::Text(Form::Any("8867-4")), "Its LOINC code, for FHIR."),
        key("view", Shape::Table(&DEVICES_VIEW), "A flexContainer that shows the latest value."),
    ],
};

static DEVICES_VIEW: Table = Table {
    name: "[devices.map.view]",
    doc: "A flexContainer that shows the latest value as a whole number (TS-0023).",
    keys: &[
        required(
            "name",
            Shape::Text(Form::Any("cod:oximr")),
            "Its name with its namespace: cod:oximr.",
        ),
        required(
            "definition",
            Shape::Text(Form::Any("org.onem2m.health.moduleclass.oximeter")),
            "Its containerDefinition.",
        ),
        required("attribute", Shape::Text(Form::Any("oxySn")), "The attribute: oxySn."),
    ],
};

static DEVICES_TLS: Table = Table {
    name: "[devices.tls]",
    doc: "Devices that show a certificate (TLS 1.3).",
    keys: &[
        required("listen", Shape::Text(Form::Socket), "Where they connect."),
        CERTIFICATE,
        PRIVATE_KEY,
        AUTHORITIES,
        CRL,
        key(
            "system_id",
            Shape::Choice(SYSTEM_ID_FIELDS),
            "Name in a device's certificate that must be its system-id; none if not given.",
        ),
    ],
};

pub(super) static CSE: Table = Table {
    name: "[cse]",
    doc: "The gateway's own oneM2M service entity.",
    keys: &[
        fixed(required("base", Shape::Text(Form::Name), "Name of its base resource.")),
        fixed(required("id", Shape::Text(Form::CseId), "Its identifier, with / in front.")),
        key("http", Shape::Text(Form::Socket), "Where it answers HTTP; nowhere if not given."),
        key("coap", Shape::Text(Form::Socket), "Where it answers CoAP; nowhere if not given."),
        key("ws", Shape::Text(Form::Socket), "Where it answers WebSocket; nowhere if not given."),
        fixed(key(
            "mqtt",
            Shape::Text(Form::Broker),
            "The broker that it takes MQTT requests from, mqtts:// by TLS; none if not given.",
        )),
        fixed(key(
            "store",
            Shape::Text(Form::Any("/var/lib/gatewright/cse.db")),
            "Path of its database, relative to the description's folder; in memory if not given.",
        )),
        fixed(key(
            "store_mib",
            Shape::Number(1, STORE_MIB_MAX),
            "What the database may grow to, its audit log apart; beyond, it refuses as on a full disk.",
        )),
        fixed(key(
            "reserve_mib",
            Shape::Number(0, RESERVE_MIB_MAX),
            "Room kept on the disk, in a file beside the database: on a full disk deletions and the \
             audit log use it. 4 if not given; 0 keeps none.",
        )),
        key(
            "resources_max",
            Shape::Number(RESOURCES_MIN, RESOURCES_MAX),
            "Resources; an instance of 300 octets takes 1.2 KiB of memory. Beyond, an instance \
             replaces its container's oldest, and all else is refused. 1000000 if not given.",
        ),
        key(
            "branch_max",
            Shape::Number(RESOURCES_MIN, RESOURCES_MAX),
            "Those of one AE or CSE, with everything below it; a quarter of resources_max if not \
             given.",
        ),
        key(
            "instances_max",
            Shape::Number(1, RESOURCES_MAX),
            "Instances of a container that sets no maximum (mni) itself; 100000 if not given.",
        ),
        or(
            "middle",
            fixed(key("type", Shape::Choice(CSE_TYPES), "middle (a gateway's) or infrastructure.")),
        ),
        key(
            "admin",
            Shape::Text(Form::Name),
            "The originator that may do everything; nobody if not given.",
        ),
        key(
            "admit",
            Shape::List(Form::CseId, ADMITTED_MAX),
            "Identifiers of the CSEs that may register here; none if not given.",
        ),
        key(
            "admit_devices",
            Shape::List(Form::AeIds, ADMITTED_MAX),
            "AE-IDs that those may register here by their certificates, * for any characters; \
             Cphd-* if not given.",
        ),
        key(
            "adopt_devices",
            Shape::List(Form::AeIdsOfCse, ADMITTED_MAX),
            "AEs that were registered without a certificate, each with the CSE that takes it over: \
             /gw/Cphd-*; none if not given.",
        ),
        key(
            "admit_beyond",
            Shape::List(Form::CseBeyond, ADMITTED_MAX),
            "CSEs beyond those that register here, each behind the one whose certificate speaks for \
             it: /gw/ward; none if not given.",
        ),
        key(
            "audit",
            Shape::Flag,
            "Whether each request and how it ended is noted in the audit log.",
        ),
        fixed(key(
            "audit_mib",
            Shape::Number(1, STORE_MIB_MAX),
            "What the audit log may grow to, beside store_mib; then its oldest entries are dropped, \
             and that is noted. 256 if not given.",
        )),
        key(
            "audit_strict",
            Shape::Flag,
            "Whether a request that cannot be noted, as on a full disk, is refused; true if not \
             given. If false, what is only read is answered all the same, and counted as lost.",
        ),
        key(
            "reach_own",
            Shape::Flag,
            "Whether peers may have this machine's own addresses asked, loopback and link-local \
             ones too, by subscriptions and points of access; false if not given, unless the CSE \
             listens on loopback only.",
        ),
        key(
            "peer_rate",
            Shape::Number(1, PEER_RATE_MAX),
            "Requests of one peer (an address; behind a broker, an originator) in a second.",
        ),
        key(
            "peer_requests",
            Shape::Number(1, PEER_REQUESTS_MAX),
            "Requests of one peer that are not answered, at the same time; 4096 if not given.",
        ),
        key(
            "peer_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "Content in those and in what is still arriving, in MiB; 64 if not given.",
        ),
        key(
            "content_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "The same of all peers together; 256 if not given.",
        ),
        key(
            "peer_connections",
            Shape::Number(1, PEER_REQUESTS_MAX),
            "Connections of one address at the same time; 1024 if not given.",
        ),
        fixed(key(
            "provider",
            Shape::Text(Form::Any("provider.example")),
            "Domain of its service provider, as it stands in certificates: m2m://DOMAIN/CSE/AE.",
        )),
        key(
            "tls",
            Shape::Table(&CSE_TLS),
            "TLS 1.3 with certificates on both sides: who asks is who its certificate says.",
        ),
        key("registrar", Shape::Table(&REGISTRAR), "The CSE above, which gets the readings."),
    ],
};

static CSE_TLS: Table = Table {
    name: "[cse.tls]",
    doc: "The entity's certificate, which it shows as a client too, and whom it trusts.",
    keys: &[
        key("https", Shape::Text(Form::Socket), "Where it answers HTTP over TLS."),
        key("wss", Shape::Text(Form::Socket), "Where it answers WebSocket over TLS."),
        CERTIFICATE,
        PRIVATE_KEY,
        AUTHORITIES,
        CRL,
    ],
};

static REGISTRAR: Table = Table {
    name: "[cse.registrar]",
    doc: "The CSE above: this one registers there, and devices' readings are sent on to it.",
    keys: &[
        required(
            "url",
            Shape::Text(Form::Url),
            "Where it answers: http, https, coap, ws, wss, or an mqtt or mqtts broker.",
        ),
        fixed(required("id", Shape::Text(Form::CseId), "Its identifier, with / in front.")),
        fixed(required("base", Shape::Text(Form::Name), "Name of its base resource.")),
        key(
            "readings",
            Shape::Text(Form::Place),
            "The place at a CSE beyond it that readings go to by way of it; its own base if not given.",
        ),
    ],
};

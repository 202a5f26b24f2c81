//! The tables of devices and of the service entity.

use super::{Form, Key, Shape, TABLES_MAX, Table, key, required};
use crate::values::DEVICE_KINDS;

/// Maximum number of associations of devices.
const DEVICES_MAX: i64 = 100_000;
/// Maximum number of labels of a container.
const LABELS_MAX: usize = 64;
/// Maximum number of readings that a container keeps.
const INSTANCES_MAX: i64 = 100_000_000;
/// Maximum time until a device counts as silent, in minutes: a year.
const SILENT_MINUTES_MAX: i64 = 366 * 24 * 60;
/// Maximum time before a certificate's end, in days: ten years.
const CERTIFICATE_DAYS_MAX: i64 = 3_653;
/// A code or a partition of the nomenclature: 16 bits (IEEE 11073-10101).
const CODE: Shape = Shape::Number(0, 65_535);
/// Names in a device's certificate that may contain its system-id.
const SYSTEM_ID_FIELDS: &[&str] = &["uri", "dns"];
/// Maximum number of names in a list of permitted peers.
const ADMITTED_MAX: usize = 4096;
/// Maximum octets of readings that wait for the registrar, in MiB: a TiB.
const WAITING_MIB_MAX: i64 = 1 << 20;
/// Maximum time that readings wait for the registrar, in hours: ten years.
const KEEP_HOURS_MAX: i64 = 87_600;
/// Maximum number of readings that wait for the registrar, of one device or of all.
const WAITING_MAX: i64 = 10_000_000;
/// Maximum size of the database, in MiB: 1 TiB.
const STORE_MIB_MAX: i64 = 1 << 20;
/// The reserve on the disk in MiB: more serves nobody.
const RESERVE_MIB_MAX: i64 = 1 << 10;
/// Most memory for whole instances.
const MEMORY_MIB_MAX: i64 = 1 << 20;
/// Maximum number of requests of one peer per second.
const PEER_RATE_MAX: i64 = 1_000_000;
/// Resources of a service entity: its base and a few AEs at the least; with a store, a thousand
/// million take 48 GB of memory.
const RESOURCES_MIN: i64 = 100;
const RESOURCES_MAX: i64 = 1_000_000_000;
/// Maximum number of concurrent requests or connections of one peer.
const PEER_REQUESTS_MAX: i64 = 65_536;
/// Maximum content of one peer, in MiB.
const PEER_MIB_MAX: i64 = 1 << 16;
const DELIVERIES: &[&str] = &["durable", "direct"];
const CONTENTS: &[&str] = &["cbor", "json"];
const CSE_TYPES: &[&str] = &["middle", "infrastructure"];

/// Networks of a list of destinations: each is compared with every address.
const REACH_MAX: usize = 64;
/// Points of access at the most.
const POINTS_OF_ACCESS_MAX: usize = 16;

/// The certificate that a listener shows.
const CERTIFICATE: Key = required(
    "certificate",
    Shape::Text(Form::File("/etc/gatewright/certificate.pem")),
    "The certificate, PEM; a relative path starts in the description's folder.",
);
/// The key of that certificate.
const PRIVATE_KEY: Key = required(
    "key",
    Shape::Text(Form::File("/etc/gatewright/key.pem")),
    "The certificate's key, PEM.",
);
/// The authorities of the peers.
const AUTHORITIES: Key = required(
    "authorities",
    Shape::Text(Form::File("/etc/gatewright/authorities.pem")),
    "The trusted certificate authorities, PEM.",
);
/// The authorities' lists of revoked certificates.
const CRL: Key = key(
    "crl",
    Shape::Text(Form::File("/etc/gatewright/revoked.pem")),
    "Certificate revocation lists (CRL), PEM: one for each authority; none if not \
             given.",
);
/// The response that a server staples.
const OCSP_RESPONSE: Key = key(
    "ocsp_response",
    Shape::Text(Form::File("/etc/gatewright/ocsp.der")),
    "The OCSP response about the certificate, DER: stapled in handshakes; none if not given.",
);

pub(super) static DEVICES: Table = Table {
    name: "[devices]",
    doc: "IEEE 11073 devices that associate with this gateway.",
    keys: &[
        required("listen", Shape::Text(Form::Socket), "Where the manager listens (TCP).")
            .such_as("127.0.0.1:6024"),
        key(
            "udp",
            Shape::Text(Form::Socket),
            "Where it accepts datagrams (UDP); nowhere if not given.",
        )
        .such_as("127.0.0.1:6024"),
        key(
            "stack",
            Shape::Text(Form::Socket),
            "Where it accepts datagrams at the gateway's own stack: an address of an exclusive \
             link; nowhere if not given.",
        )
        .such_as("192.0.2.1:6024")
        .fixed(),
        key(
            "tls",
            Shape::Table(&DEVICES_TLS),
            "Where it accepts devices that authenticate with a certificate.",
        ),
        key(
            "home_assistant",
            Shape::Table(&HOME_ASSISTANT),
            "Announces devices and their readings to Home Assistant.",
        ),
        key(
            "delivery",
            Shape::Choice(DELIVERIES),
            "durable stores a reading before it is acknowledged; direct forwards it at \
             once.",
        ),
        key(
            "direct",
            Shape::List(Form::DeviceKind, DEVICE_KINDS.len()),
            "Kinds of devices whose readings are forwarded at once, whatever delivery \
             says.",
        ),
        key(
            "durable",
            Shape::List(Form::DeviceKind, DEVICE_KINDS.len()),
            "Kinds of devices whose readings are stored first, whatever delivery says.",
        ),
        key(
            "devices_max",
            Shape::Number(1, DEVICES_MAX),
            "Maximum number of associations. As many connections may have none; of more, \
             the oldest is closed.",
        )
        .fixed()
        .or("1000"),
        key(
            "peer_connections",
            Shape::Number(1, DEVICES_MAX),
            "Maximum number of connections from one address, associated or not; no \
             separate limit if not given, as a hub has one address.",
        )
        .such_as("100"),
        key(
            "admit",
            Shape::List(Form::SystemId, ADMITTED_MAX),
            "System-ids of the devices that may associate; all if not given.",
        ),
        key(
            "operators",
            Shape::List(Form::Any("CNurse"), ADMITTED_MAX),
            "Originators that may read devices' readings and send them requests: CNurse, \
             /id-in/CNurse.",
        ),
        key(
            "keep_hours",
            Shape::Number(1, KEEP_HOURS_MAX),
            "Hours after which a reading that the registrar did not accept is discarded; \
             168 if not given.",
        ),
        key(
            "waiting_max",
            Shape::Number(1, WAITING_MAX),
            "Maximum number of one device's readings that wait for the registrar; further \
             ones are stored here and sent later.",
        )
        .such_as("10000"),
        key(
            "waiting_total",
            Shape::Number(1, WAITING_MAX),
            "Maximum number of all devices' readings that wait for the registrar; further \
             ones are stored here and sent later.",
        )
        .such_as("100000"),
        key(
            "waiting_mib",
            Shape::Number(1, WAITING_MIB_MAX),
            "Maximum octets of those readings, in MiB, each counted as 512 octets and one and a half \
             times its content; further ones are stored here and sent later. 128 if not given, and \
             at most a sixteenth of store_mib.",
        ),
        key(
            "views",
            Shape::Flag,
            "Whether the latest values are also flexContainers (TS-0023); false if not \
             given.",
        )
        .fixed()
        .or("false"),
        key(
            "map",
            Shape::Many(&DEVICES_MAP, TABLES_MAX),
            "Resources for objects of devices, in addition to the built-in mapping and \
             before it.",
        )
        .fixed(),
        key(
            "silent",
            Shape::Many(&DEVICES_SILENT, TABLES_MAX),
            "Time without a report after which a device is silent; never if not given.",
        ),
    ],
};

static DEVICES_SILENT: Table = Table {
    name: "[[devices.silent]]",
    doc: "When a device counts as silent, which is an alarm; the first entry that matches applies.",
    keys: &[
        required(
            "minutes",
            Shape::Number(1, SILENT_MINUTES_MAX),
            "Time without a report and without a new association.",
        )
        .such_as("60"),
        key(
            "kinds",
            Shape::List(Form::DeviceKind, DEVICE_KINDS.len()),
            "Kinds of devices; all if not given.",
        ),
    ],
};

static DEVICES_MAP: Table = Table {
    name: "[[devices.map]]",
    doc: "The resource for an object of a device; the first entry that matches is \
             used.",
    keys: &[
        required("container", Shape::Text(Form::Name), "The container of its readings.")
            .such_as("heart-rate"),
        key("partition", CODE, "Partition of what is measured: 2 for vital signs; with code.")
            .such_as("2"),
        key("code", CODE, "Code of what is measured in its partition; all if not given.")
            .such_as("18458"),
        key("unit", CODE, "Code of the unit (IEEE 11073-10101): 544 for %; all if not given.")
            .such_as("544"),
        key(
            "labels",
            Shape::List(Form::Any("ward-3"), LABELS_MAX),
            "Additional labels of the container.",
        ),
        key(
            "instances",
            Shape::Number(1, INSTANCES_MAX),
            "Maximum number of readings in the container; 10000 if not given.",
        ),
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

static HOME_ASSISTANT: Table = Table {
    name: "[devices.home_assistant]",
    doc: "Home Assistant, which finds devices and their readings by its MQTT discovery.",
    keys: &[
        required(
            "broker",
            Shape::Text(Form::Broker),
            "The MQTT broker that Home Assistant uses; mqtts:// for TLS, with the certificate of \
             [cse.tls].",
        ),
        key(
            "prefix",
            Shape::Text(Form::Name),
            "The discovery prefix of Home Assistant; homeassistant if not given.",
        )
        .or("homeassistant"),
        key(
            "topic",
            Shape::Text(Form::Name),
            "First level of the topics of states, and name of this gateway at the broker: each gateway \
             of a broker needs its own. gatewright if not given.",
        )
        .or("gatewright"),
    ],
};

static DEVICES_TLS: Table = Table {
    name: "[devices.tls]",
    doc: "Devices that authenticate with a certificate (TLS 1.3).",
    keys: &[
        required("listen", Shape::Text(Form::Socket), "Where they connect.")
            .such_as("192.0.2.1:6025"),
        CERTIFICATE,
        PRIVATE_KEY,
        AUTHORITIES,
        CRL,
        OCSP_RESPONSE,
        key(
            "system_id",
            Shape::Choice(SYSTEM_ID_FIELDS),
            "The name in a device's certificate that must be its system-id; not checked \
             if not given.",
        ),
    ],
};

pub(super) static CSE: Table = Table {
    name: "[cse]",
    doc: "The gateway's own oneM2M service entity.",
    keys: &[
        required(
            "base",
            Shape::Text(Form::Name),
            "Name of its base resource. A database belongs to one name.",
        )
        .such_as("cse-gw")
        .fixed(),
        required(
            "id",
            Shape::Text(Form::CseId),
            "Its identifier, with / in front. A database belongs to one identifier.",
        )
        .fixed(),
        key("http", Shape::Text(Form::Socket), "Where it answers HTTP; nowhere if not given.")
            .such_as("127.0.0.1:8080"),
        key("coap", Shape::Text(Form::Socket), "Where it answers CoAP; nowhere if not given.")
            .such_as("127.0.0.1:5683"),
        key("ws", Shape::Text(Form::Socket), "Where it answers WebSocket; nowhere if not given.")
            .such_as("127.0.0.1:8081"),
        key(
            "mqtt",
            Shape::Text(Form::Broker),
            "The MQTT broker for requests, mqtts:// for TLS; none if not given.",
        )
        .fixed(),
        key(
            "store",
            Shape::Text(Form::Any("/var/lib/gatewright/cse.db")),
            "Path of its database, relative to the description's folder; in memory if not given.",
        )
        .fixed(),
        key(
            "store_mib",
            Shape::Number(1, STORE_MIB_MAX),
            "Maximum size of the database without the audit log, in MiB; beyond, requests \
             are refused as on a full disk.",
        )
        .such_as("1024")
        .fixed(),
        key(
            "reserve_mib",
            Shape::Number(0, RESERVE_MIB_MAX),
            "Space reserved on the disk in a file beside the database, in MiB, for \
             deletions and the audit log when the disk is full. 4 if not given; 0 for \
             none.",
        )
        .fixed(),
        key(
            "memory_mib",
            Shape::Number(0, MEMORY_MIB_MAX),
            "Memory for whole instances with a store: older ones are read from it when they are \
             asked for, and take 48 octets each in memory. 64 if not given.",
        ),
        key(
            "resources_max",
            Shape::Number(RESOURCES_MIN, RESOURCES_MAX),
            "Maximum number of resources, each counted once more for each 2 KiB that it has in \
             memory; 1000000 if not given. Beyond, a new instance replaces its container's oldest, \
             and all else is refused. Without a store an instance of 300 octets takes 1.2 KiB of \
             memory; with one, 48 octets.",
        ),
        key(
            "branch_max",
            Shape::Number(RESOURCES_MIN, RESOURCES_MAX),
            "Maximum number of resources of one AE or CSE, with everything below it; a \
             quarter of resources_max if not given.",
        )
        .such_as("250000"),
        key(
            "instances_max",
            Shape::Number(1, RESOURCES_MAX),
            "Maximum number of instances of a container that has no maximum (mni) of its \
             own; 100000 if not given.",
        ),
        key("type", Shape::Choice(CSE_TYPES), "middle (a gateway's) or infrastructure.")
            .fixed()
            .or("middle"),
        key(
            "admin",
            Shape::Text(Form::Name),
            "The originator with all access rights; none if not given.",
        )
        .such_as("CAdmin"),
        key(
            "admit",
            Shape::List(Form::CseId, ADMITTED_MAX),
            "Identifiers of the CSEs that may register here; none if not given.",
        ),
        key(
            "admit_devices",
            Shape::List(Form::AeIds, ADMITTED_MAX),
            "AE-IDs that those CSEs may register here on the authority of their \
             certificates, * for any characters; Cphd-* if not given.",
        ),
        key(
            "adopt_devices",
            Shape::List(Form::AeIdsOfCse, ADMITTED_MAX),
            "AEs registered without a certificate, each with the CSE that may take it \
             over: /gw/Cphd-*; none if not given.",
        ),
        key(
            "admit_beyond",
            Shape::List(Form::CseBeyond, ADMITTED_MAX),
            "CSEs that are registered at a CSE which registers here, behind the \
             identifier of that one, whose certificate authorises them: /gw/ward; none if \
             not given.",
        ),
        key(
            "audit",
            Shape::Flag,
            "Whether each request and its result are recorded in the audit log.",
        ),
        key(
            "audit_mib",
            Shape::Number(1, STORE_MIB_MAX),
            "Maximum size of the audit log in MiB, in addition to store_mib; 256 if not \
             given. Beyond, its oldest entries are deleted, and that is recorded.",
        )
        .fixed(),
        key(
            "audit_strict",
            Shape::Flag,
            "Whether a request that cannot be recorded, as on a full disk, is refused; \
             true if not given. If false, requests that only read are answered, and their \
             entries are counted as lost.",
        ),
        key(
            "points_of_access",
            Shape::List(Form::Url, POINTS_OF_ACCESS_MAX),
            "URLs at which other CSEs reach this one, as behind an address translator; those \
             of its listeners and of its broker if not given. A listener at all addresses is \
             told with the address from which the registrar is reached.",
        ),
        key(
            "reach_own",
            Shape::Flag,
            "Whether the CSE sends requests to this machine's own addresses, loopback and \
             link-local ones included, on behalf of peers (subscriptions, points of \
             access); false if not given, unless the CSE listens on loopback only.",
        ),
        key(
            "reach_only",
            Shape::List(Form::Network, REACH_MAX),
            "The only networks to which it sends such requests; all if not given.",
        ),
        key(
            "reach_not",
            Shape::List(Form::Network, REACH_MAX),
            "Networks to which it sends no such requests, whatever else is given.",
        ),
        key(
            "peer_rate",
            Shape::Number(1, PEER_RATE_MAX),
            "Maximum number of requests per second of one peer: an address, or behind a \
             broker an originator.",
        )
        .such_as("1000"),
        key(
            "peer_requests",
            Shape::Number(1, PEER_REQUESTS_MAX),
            "Maximum number of one peer's unanswered requests; 4096 if not given.",
        ),
        key(
            "peer_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "Maximum content of one peer's unanswered and incomplete requests, in MiB; 64 \
             if not given.",
        ),
        key(
            "content_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "The same for all peers together; 256 if not given.",
        ),
        key(
            "peer_answers_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "Maximum content of the answers that one peer has not read yet, in MiB; 64 if not \
             given. A quarter is for answers of at most 64 KiB.",
        ),
        key(
            "answers_mib",
            Shape::Number(1, PEER_MIB_MAX),
            "The same for all peers together; 256 if not given.",
        ),
        key(
            "peer_connections",
            Shape::Number(1, PEER_REQUESTS_MAX),
            "Maximum number of connections from one address; 1024 if not given.",
        )
        .such_as("100"),
        key(
            "provider",
            Shape::Text(Form::Any("provider.example")),
            "Domain of its service provider, as in certificates: m2m://DOMAIN/CSE/AE.",
        )
        .fixed(),
        key(
            "tls",
            Shape::Table(&CSE_TLS),
            "TLS 1.3 with certificates on both sides: the certificate identifies the \
             originator.",
        ),
        key("registrar", Shape::Table(&REGISTRAR), "The CSE above, which receives the readings."),
        key("alarms", Shape::Table(&CSE_ALARMS), "Thresholds of the alarms for operators."),
    ],
};

static CSE_ALARMS: Table = Table {
    name: "[cse.alarms]",
    doc: "Thresholds of the alarms for operators: instances in the container `alarms`, events, a metric.",
    keys: &[
        key(
            "outbox_percent",
            Shape::Number(1, 100),
            "Readings that wait for the registrar, as a share of waiting_total.",
        )
        .such_as("80")
        .or("80"),
        key(
            "certificate_days",
            Shape::Number(0, CERTIFICATE_DAYS_MAX),
            "Days before the end of a certificate of the CSE or of an authority; 0 for never.",
        )
        .such_as("30")
        .or("30"),
        key(
            "certificate_days_urgent",
            Shape::Number(0, CERTIFICATE_DAYS_MAX),
            "Days before that end at which the alarm is an error.",
        )
        .such_as("7")
        .or("7"),
    ],
};

static CSE_TLS: Table = Table {
    name: "[cse.tls]",
    doc: "The entity's certificate, as server and client, and the authorities that it \
             trusts.",
    keys: &[
        key("https", Shape::Text(Form::Socket), "Where it answers HTTP over TLS.")
            .such_as("192.0.2.1:8443"),
        key("wss", Shape::Text(Form::Socket), "Where it answers WebSocket over TLS.")
            .such_as("192.0.2.1:8444"),
        CERTIFICATE,
        PRIVATE_KEY,
        AUTHORITIES,
        CRL,
        OCSP_RESPONSE,
        key(
            "ocsp_required",
            Shape::Flag,
            "Servers must staple an OCSP response to their certificates; not if not given.",
        ),
    ],
};

static REGISTRAR: Table = Table {
    name: "[cse.registrar]",
    doc: "The CSE above: this one registers there and forwards devices' readings to \
             it.",
    keys: &[
        required(
            "url",
            Shape::Text(Form::Url),
            "Its address: http, https, coap, ws, wss, or an mqtt or mqtts broker.",
        ),
        key(
            "coap",
            Shape::Text(Form::Socket),
            "Where it accepts CoAP over the gateway's links: direct readings of devices at \
             `[devices] stack` go there from the data plane.",
        )
        .such_as("198.51.100.7:5683")
        .fixed(),
        key(
            "coap_content",
            Shape::Choice(CONTENTS),
            "How these readings are written: cbor (the default) or json.",
        )
        .fixed(),
        required("id", Shape::Text(Form::CseId), "Its identifier, with / in front.").fixed(),
        required("base", Shape::Text(Form::Name), "Name of its base resource.")
            .such_as("cse-in")
            .fixed(),
        key(
            "readings",
            Shape::Text(Form::Place),
            "The resource at another CSE to which readings are forwarded through it; its \
             own base if not given.",
        ),
    ],
};

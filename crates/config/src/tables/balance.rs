//! The tables of balances, and of the flows that go to them.

use super::{Form, Key, PORT, Shape, Table, key, required};

/// Maximum number of relays of a balance: each new flow is tried on every one.
const RELAYS_MAX: usize = 64;
/// Maximum number of flows of a balance: a new one may disturb each of the others, which is
/// computed.
const FLOWS_MAX: i64 = 16_384;
/// Nanoseconds of a service time at the most: ten seconds.
const FIXED_NS_MAX: i64 = 10_000_000_000;
/// Picoseconds of an octet at the most: a line of 8 kbit/s.
const OCTET_PS_MAX: i64 = 1_000_000_000;
/// Microseconds of a round trip at the most: a minute.
const PATH_US_MAX: i64 = 60_000_000;
const POLICIES: &[&str] = &["least-load", "weighted", "min-hop"];
const MODELS: &[&str] = &["described", "live"];

pub(super) static BALANCE: Table = Table {
    name: "[balance.NAME]",
    doc: "Relays that share flows: a flow goes where it and those before it keep their bounds.",
    keys: &[
        key(
            "policy",
            Shape::Choice(POLICIES),
            "How a relay is chosen: least-load where the flow adds least to the delays of all, \
             weighted by speed, min-hop by hops. least-load if not given.",
        )
        .or("least-load"),
        key(
            "flows_max",
            Shape::Number(1, FLOWS_MAX),
            "Maximum number of flows; 4096 if not given. Others are refused.",
        ),
        key(
            "flows_per_client",
            Shape::Number(1, FLOWS_MAX),
            "Maximum number of flows of one client: an IPv4 address or an IPv6 /64. No such bound if \
             not given.",
        ).such_as("10"),
        required("relay", Shape::Many(&RELAY, RELAYS_MAX), "The relays, with their delay models."),
    ],
};

static RELAY: Table = Table {
    name: "[[balance.NAME.relay]]",
    doc: "A relay with its delay model: service times of a + c·b for b octets.",
    keys: &[
        required("address", Shape::Text(Form::Address), "Its address."),
        key("port", PORT, "Its port; a next hop has none.").such_as("8080"),
        required("fixed_ns", Shape::Number(1, FIXED_NS_MAX), "a, in nanoseconds.").such_as("40000"),
        key(
            "octet_ps",
            Shape::Number(0, OCTET_PS_MAX),
            "c, in picoseconds for each octet; 0 if not given.",
        ),
        key(
            "variation_pct",
            Shape::Number(0, 100_000),
            "Squared coefficient of variation of service times, in percent; 100 if not given, as of \
             exponential times.",
        ),
        key(
            "spread_pct",
            Shape::Number(100, 100_000),
            "The 95th percentile of its delay when idle relative to the mean, in percent; 100 if \
             not given.",
        ),
        key("hops", Shape::Number(1, 255), "Hops to it, for min-hop; 1 if not given."),
        key(
            "model",
            Shape::Choice(MODELS),
            "described: the model stands as it is. live: the times to answers of this relay make its \
             service time longer or shorter, to an eighth and eight times at most. described if not \
             given.",
        )
        .or("described"),
        key(
            "path_us",
            Shape::Number(0, PATH_US_MAX),
            "Microseconds of the round trip to it without its own work, which `live` subtracts; \
             measured if not given.",
        ).such_as("500"),
    ],
};

/// The key of a proxy's flow.
pub(super) const FLOW_KEY: Key = key(
    "flow",
    Shape::Table(&FLOW),
    "The flow that each connection or client is, or each flow of a route, for its balance.",
);

static FLOW: Table = Table {
    name: "flow",
    doc: "What a balance admits for each connection, client or flow of a route.",
    keys: &[
        required("rate", Shape::Number(1, 1_000_000), "Packets a second.").such_as("50"),
        required("octets", Shape::Number(1, 65_507), "Octets of payload of a packet.")
            .such_as("160"),
        required(
            "within_us",
            Shape::Number(1, 3_600_000_000),
            "Microseconds in the relay or next hop that a packet may take.",
        )
        .such_as("20000"),
        key(
            "share_pct",
            Shape::Number(1, 99),
            "Percent of the packets that must keep it; 95 if not given.",
        ),
    ],
};

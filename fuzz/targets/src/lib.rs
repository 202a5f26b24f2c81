//! One function for each decoder and machine that takes octets from the network or from a file.
//!
//! What reads a user's text (configuration, diagrams, programs) is fuzzed beside these, and its
//! corpus replayed by its own crate.
//!
//! The fuzzer (`cargo xtask fuzz`) and the plain test that replays its corpus call the same
//! functions. A function returns for whatever octets it is given; a panic, a hang or growth without
//! bound is the finding.
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "a panic is what the fuzzer looks for")]

mod coap_endpoint;
mod control;
mod criteria;
mod cse;
mod layouts;
mod machine;
mod mesh;
mod olsr;
mod report_plan;
pub mod stack;
mod stamp;
mod stored;
mod web;

pub use coap_endpoint::coap_endpoint;
pub use control::control;
pub use criteria::criteria;
pub use cse::{cse, record_block, rows};
pub use layouts::layouts;
pub use machine::machine;
pub use mesh::{labelled_frame, mesh_member, mesh_message};
pub use olsr::olsr;
pub use report_plan::report_plan;
pub use stack::{discovery, gateway, leases, reassembly};
pub use stamp::{agent_message, stamp};
pub use stored::stored;
pub use web::web;

use core::time::Duration;
use gatewright_bindings::tls::check_staple;
use gatewright_onem2m::Timestamp;
use gatewright_onem2m::mqtt::{Input, MqttSession, MqttSettings, Output, Topic, filters};
use gatewright_wire::partial::{Framing, complete};
use gatewright_wire::{coap, dhcpv4, igmp, ipv4, ipv6, mld, ndp, tcp};

/// A target: octets in, nothing out.
pub type Target = fn(&[u8]);

/// All targets by name; each has a corpus in `fuzz/corpus/NAME`.
pub const TARGETS: &[(&str, Target)] = &[
    ("options", options),
    ("coap", coap_message),
    ("dhcp", dhcp_message),
    ("multicast", multicast),
    ("health", health),
    ("onem2m", onem2m),
    ("coap_endpoint", coap_endpoint),
    ("mqtt", mqtt),
    ("ocsp", ocsp),
    ("partial", partial),
    ("pcapng", pcapng),
    ("gateway", gateway),
    ("reassembly", reassembly),
    ("discovery", discovery),
    ("leases", leases),
    ("layouts", layouts),
    ("machine", machine),
    ("control", control),
    ("cse", cse),
    ("rows", rows),
    ("record_block", record_block),
    ("report_plan", report_plan),
    ("stored", stored),
    ("criteria", criteria),
    ("mesh_message", mesh_message),
    ("mesh_member", mesh_member),
    ("labelled_frame", labelled_frame),
    ("olsr", olsr),
    ("agent_message", agent_message),
    ("stamp", stamp),
    ("web", web),
];

/// Options of every header that has some.
pub fn options(octets: &[u8]) {
    let most = octets.len() + 1;
    assert!(ipv4::Ipv4Options::new(octets).count() <= most);
    assert!(tcp::TcpOptions::new(octets).count() <= most);
    assert!(ipv6::Ipv6Options::new(octets).count() <= most);
    assert!(ndp::NdpOptions::new(octets).count() <= most);
}

/// A CoAP message.
pub fn coap_message(octets: &[u8]) {
    if let Ok(message) = coap::Message::parse(octets) {
        assert!(message.options().count() <= octets.len());
    }
}

/// A DHCP message.
pub fn dhcp_message(octets: &[u8]) {
    if let Ok((_, options)) = dhcpv4::read(octets) {
        assert!(options.count() <= octets.len() + 1);
    }
}

/// Records of multicast reports.
pub fn multicast(octets: &[u8]) {
    let Some((&[high, low], records)) = octets.split_first_chunk() else { return };
    let count = u16::from_be_bytes([high, low]);
    assert!(mld::Records::new(count, records).count() <= usize::from(count));
    assert!(igmp::Records::new(count, records).count() <= usize::from(count));
}

/// An APDU of IEEE 11073-20601.
pub fn health(octets: &[u8]) {
    let _refused = gatewright_health::apdu::Apdu::decode(octets).is_err();
    let _refused = gatewright_health::data::DataApdu::decode(octets).is_err();
    let _refused = gatewright_health::report::ConfigReport::decode(octets).is_err();
}

/// A broker of MQTT, in two pieces.
pub fn mqtt(octets: &[u8]) {
    let settings = MqttSettings {
        client: "C::id".to_owned(),
        clean: true,
        keep_alive: Duration::from_mins(1),
        will: None,
        credentials: None,
        filters: filters("/id"),
        packet_octets_max: 4_096,
    };
    let mut session = MqttSession::new(Duration::ZERO, settings);
    let (first, second) = octets.split_at(octets.len() / 2);
    for piece in [first, second] {
        session.handle(Duration::ZERO, Input::Octets(piece));
        while let Some(output) = session.poll_output() {
            if let Output::Arrived { topic, payload } = output {
                let _answer = Topic::parse(&topic).and_then(Topic::answering);
                onem2m(&payload);
            }
        }
    }
}

/// An OCSP response to a certificate: whoever is not its authority vouches for nothing. All are of
/// a week in November 2026.
pub fn ocsp(octets: &[u8]) {
    const CERTIFICATE: &[u8] = include_bytes!("../../../crates/bindings/tests/ocsp/server.crt");
    const AUTHORITY: &[u8] = include_bytes!("../../../crates/bindings/tests/ocsp/authority.crt");
    let now = Timestamp::new(Duration::from_secs(1_795_543_809));
    let checked = check_staple(octets, CERTIFICATE, &[AUTHORITY], now);
    let alone = check_staple(octets, CERTIFICATE, &[CERTIFICATE], now);
    assert!(alone.is_err(), "{checked:?}");
}

/// A oneM2M request in each serialisation.
pub fn onem2m(octets: &[u8]) {
    let _refused = gatewright_onem2m::Request::from_json(octets).is_err();
    let _refused = gatewright_onem2m::Request::from_cbor(octets).is_err();
}

/// A frame with a partial checksum: a completed one is complete.
pub fn partial(octets: &[u8]) {
    for framing in [Framing::Ethernet, Framing::Ip] {
        let mut frame = octets.to_vec();
        if complete(&mut frame, framing) {
            let once = frame.clone();
            assert!(complete(&mut frame, framing));
            assert_eq!(frame, once);
        }
    }
}

/// A capture file.
pub fn pcapng(octets: &[u8]) {
    let mut reader = gatewright_link::pcapng::CaptureReader::new(octets);
    // Each record takes octets of the file, so this ends.
    while let Ok(Some(_)) = reader.next_record() {}
}

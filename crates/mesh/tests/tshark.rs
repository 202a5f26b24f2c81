//! Each message as Wireshark reads it with the generated dissector; a LIVENESS message is also read
//! by Wireshark's own dissector of BFD.
//!
//! Skipped by name where tshark is not installed (last run with 4.0.17).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[path = "dissector/place.rs"]
mod dissector;
mod samples;

use gatewright_mesh::layout::EchoHeaderFields;
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshKeys, MeshMembers, MeshNode, MeshNodeKey, MeshOutput,
    MeshSettings, MeshTrust, NodeId, Profile,
};
use gatewright_packet::LinkIndex;
use gatewright_wire::mpls::Label;
use libtest_mimic::{Arguments, Failed, Trial};
use std::time::Duration;
use std::{env, fs, path::PathBuf, process::Command};

fn main() {
    let ignored = !is_installed("tshark");
    let trials = samples::samples().into_iter().map(|(name, octets, expected)| {
        let frame = control(&octets);
        Trial::test(name, move || compare(name, &frame, &expected)).with_ignored_flag(ignored)
    });
    let echo = Trial::test("ECHO", || compare("ECHO", &echo(), &ECHO)).with_ignored_flag(ignored);
    let fields = [
        ("gwmesh.head.kind", "1"),
        ("gwmesh.authentication.algorithm", "1"),
        ("gwmesh.authentication.unicast", "0"),
        ("gwmesh.authentication.counter", "1"),
    ];
    let sealed = move || compare("Authentication", &control(&sealed()), &fields);
    let sealed = Trial::test("Authentication", sealed).with_ignored_flag(ignored);
    let fields = [
        ("gwmesh.head.kind", "4"),
        ("gwmesh.signature.scope", "16,17"),
        ("gwmesh.authentication.algorithm", "3"),
    ];
    let signed = move || compare("Signature", &control(&signed()), &fields);
    let signed = Trial::test("Signature", signed).with_ignored_flag(ignored);
    let trials = trials.chain([echo, sealed, signed]);
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

/// Fields of the echo request below.
const ECHO: [(&str, &str); 8] = [
    ("mpls.label", "100,13"),
    ("gwmesh.echo.kind", "1"),
    ("gwmesh.echo.ttl", "7"),
    ("gwmesh.echo.hops", "0"),
    ("gwmesh.echo.origin", "0x00000000000000a0"),
    ("gwmesh.echo.responder", "0x00000000000000b0"),
    ("gwmesh.echo.number", "99"),
    ("gwmesh.echo.label", "0"),
];

/// A frame with an echo request in the associated channel of label 100.
fn echo() -> Vec<u8> {
    let fields = EchoHeaderFields {
        kind: 1,
        ttl: 7,
        hops: 0,
        origin: NodeId(0xa0),
        responder: NodeId(0xb0),
        number: 99,
        label: Label::IPV4_EXPLICIT_NULL,
    };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
    frame.extend([0, 6, 0x40, 7, 0, 0, 0xd1, 1, 0x10, 0, 0x7f, 0xf8]);
    frame.extend(fields.emit());
    frame
}

/// The first message of a node of an authenticated mesh.
fn sealed() -> Vec<u8> {
    let mut settings = MeshSettings::new(NodeId(1), 1, Profile::Default);
    settings.trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap());
    let mut node = MeshNode::new(settings);
    let up = MeshInput::LinkUp { link: LinkIndex(0), properties: LinkProperties::default() };
    node.handle(Duration::ZERO, up);
    node.handle(Duration::from_secs(1), MeshInput::Tick);
    let Some(MeshOutput::Send { octets, .. }) = node.poll_output() else { panic!("no message") };
    octets
}

/// A broadcast of a member: with its origin's signature and that of its sender.
fn signed() -> Vec<u8> {
    let key = MeshNodeKey::of_seed([1; 32]).unwrap();
    let mut settings = MeshSettings::new(NodeId(1), 1, Profile::Default);
    settings.trust = MeshTrust::Pki(Box::new((key, MeshMembers::default())));
    let mut node = MeshNode::new(settings);
    let up = MeshInput::LinkUp { link: LinkIndex(0), properties: LinkProperties::default() };
    node.handle(Duration::ZERO, up);
    node.handle(Duration::ZERO, MeshInput::Broadcast { from: None, packet: b"packet" });
    let Some(MeshOutput::Send { octets, .. }) = node.poll_output() else { panic!("no message") };
    octets
}

/// A frame with a control message.
fn control(message: &[u8]) -> Vec<u8> {
    let mut frame = gatewright_mesh::message::GROUP_ADDRESS.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(gatewright_mesh::message::ETHER_TYPE.to_be_bytes());
    frame.extend(message);
    frame
}

fn is_installed(tool: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|directory| directory.join(tool).is_file())
}

fn compare(name: &str, octets: &[u8], expected: &[(&str, &str)]) -> Result<(), Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("mesh-{}.pcap", name.replace([' ', '\''], "-")));
    fs::write(&file, capture(octets))?;
    let script = dissector::repository("docs/mesh-protocol.lua");
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-X").arg(format!("lua_script:{}", script.display()));
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|"]);
    tshark.args(["-E", "occurrence=a", "-E", "aggregator=,"]);
    for field in ["_ws.malformed", "gwmesh.truncated"].iter().chain(expected.iter().map(|(f, _)| f))
    {
        tshark.args(["-e", field]);
    }
    let output = tshark.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = text.trim_end_matches('\n').split('|');
    if found.next() != Some("") || found.next() != Some("") {
        return Err(format!("malformed: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    for (field, expected) in expected {
        let found = found.next().unwrap_or_default();
        // Wireshark 4.0 and later print small numbers of some fields without leading zeros.
        if found != *expected {
            return Err(format!("{field}: wrote {expected}, read {found}").into());
        }
    }
    Ok(())
}

/// A capture file (libpcap format, big endian) of one Ethernet frame.
fn capture(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).unwrap();
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0xffff, 1, 0, 0, length, length] {
        file.extend(u32::to_be_bytes(word));
    }
    file.extend(frame);
    file
}

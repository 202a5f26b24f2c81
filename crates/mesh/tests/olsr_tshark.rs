//! Packets of OLSR as Wireshark's own dissector reads them.
//!
//! Skipped by name where tshark is not installed (last run with 4.0.17).
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_mesh::olsr::message::{
    OLSR_PORT, OlsrContent, OlsrHead, OlsrLinkCode, OlsrLinkType, OlsrMessage, OlsrNeighbourType,
    OlsrNetwork, OlsrPacket, OlsrTime,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{env, fs, path::PathBuf, process::Command, time::Duration};

/// A message's content, and the fields that Wireshark must find with their values.
type Sample = (&'static str, OlsrContent, &'static [(&'static str, &'static str)]);

fn main() {
    let paths = env::var_os("PATH").unwrap_or_default();
    let installed = env::split_paths(&paths).any(|directory| directory.join("tshark").is_file());
    let trials = samples().into_iter().map(|(name, content, expected)| {
        Trial::test(name, move || compare(name, &content, expected)).with_ignored_flag(!installed)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn samples() -> Vec<Sample> {
    let code = |link, neighbour| OlsrLinkCode { link, neighbour };
    let symmetric = code(OlsrLinkType::Symmetric, OlsrNeighbourType::Symmetric);
    let relay = code(OlsrLinkType::Symmetric, OlsrNeighbourType::Relay);
    let heard = code(OlsrLinkType::Asymmetric, OlsrNeighbourType::Not);
    let hello = OlsrContent::Hello {
        interval: OlsrTime::at_least(Duration::from_secs(2)),
        willingness: 6,
        links: vec![
            (symmetric, [10, 0, 0, 2].into()),
            (relay, [10, 0, 0, 3].into()),
            (heard, [10, 0, 0, 4].into()),
            (relay, [10, 0, 0, 5].into()),
        ],
    };
    let neighbours = vec![[10, 0, 0, 7].into(), [10, 0, 0, 8].into()];
    vec![
        (
            "hello",
            hello,
            &[
                ("olsr.message_type", "1"),
                // 16 of header, 4 of HELLO... three groups of 4, four addresses of 4.
                ("olsr.message_size", "44"),
                ("olsr.htime", "2"),
                ("olsr.willingness", "6"),
                ("olsr.link_type", "1,6,10"),
                ("olsr.link_message_size", "8,8,12"),
                ("olsr.neighbor_addr", "10.0.0.4,10.0.0.2,10.0.0.3,10.0.0.5"),
            ],
        ),
        (
            "tc",
            OlsrContent::Topology { sequence: 0xfffe, neighbours },
            &[
                ("olsr.message_type", "2"),
                ("olsr.message_size", "24"),
                ("olsr.ansn", "65534"),
                ("olsr.neighbor_addr", "10.0.0.7,10.0.0.8"),
            ],
        ),
        (
            "mid",
            OlsrContent::Interfaces(vec![[10, 1, 0, 1].into(), [10, 2, 0, 1].into()]),
            &[
                ("olsr.message_type", "3"),
                ("olsr.message_size", "20"),
                ("olsr.interface_addr", "10.1.0.1,10.2.0.1"),
            ],
        ),
        (
            "hna",
            OlsrContent::Networks(vec![
                OlsrNetwork::new([0, 0, 0, 0].into(), 0),
                OlsrNetwork::new([192, 168, 7, 9].into(), 24),
            ]),
            &[
                ("olsr.message_type", "4"),
                ("olsr.message_size", "28"),
                ("olsr.network_addr", "0.0.0.0,192.168.7.0"),
                ("olsr.netmask", "0.0.0.0,255.255.255.0"),
            ],
        ),
    ]
}

fn compare(name: &str, content: &OlsrContent, expected: &[(&str, &str)]) -> Result<(), Failed> {
    let head = OlsrHead {
        kind: content.kind(),
        validity: OlsrTime::at_least(Duration::from_secs(15)),
        originator: [10, 0, 0, 1].into(),
        ttl: 255,
        hops: 3,
        sequence: 4_660,
    };
    let message = OlsrMessage { head, body: &content.encode() }.encode();
    let packet = OlsrPacket::encode(999, &message);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("olsr-{name}.pcap"));
    fs::write(&file, capture(&packet))?;
    let length = packet.len().to_string();
    let common = [
        ("_ws.malformed", ""),
        ("olsr.not_enough_bytes", ""),
        ("olsr.data.misaligned", ""),
        ("olsr.packet_len", length.as_str()),
        ("olsr.packet_seq_num", "999"),
        ("olsr.vtime", "15"),
        ("olsr.origin_addr", "10.0.0.1"),
        ("olsr.ttl", "255"),
        ("olsr.hop_count", "3"),
        ("olsr.message_seq_num", "4660"),
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|"]);
    tshark.args(["-E", "occurrence=a", "-E", "aggregator=,"]);
    for (field, _) in common.iter().chain(expected) {
        tshark.args(["-e", field]);
    }
    let output = tshark.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = text.trim_end_matches('\n').split('|');
    for (field, expected) in common.iter().chain(expected) {
        let found = found.next().ok_or_else(|| {
            format!("no {field} in {text}: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        // The dissector adds the number in brackets to a name, or prints the number alone.
        if found != *expected {
            return Err(format!("{field}: wrote {expected}, read {found}").into());
        }
    }
    Ok(())
}

/// A capture file (libpcap format, big endian) of one IPv4 packet with a UDP datagram.
fn capture(payload: &[u8]) -> Vec<u8> {
    let length = |more: usize| u16::try_from(payload.len() + more).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0];
    packet.extend(length(28));
    packet.extend([0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 1, 255, 255, 255, 255]);
    packet.extend(OLSR_PORT.to_be_bytes());
    packet.extend(OLSR_PORT.to_be_bytes());
    packet.extend(length(8));
    packet.extend([0, 0]);
    packet.extend(payload);
    let size = u32::try_from(packet.len()).unwrap();
    let mut file = Vec::new();
    // Link type 101: packets begin with their IP header.
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0xffff, 101, 0, 0, size, size] {
        file.extend(u32::to_be_bytes(word));
    }
    file.extend(packet);
    file
}

//! Partial checksums: what is taken for one, and what completing it gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_wire::partial::{self, Framing};
use proptest::prelude::*;

/// A datagram without its checksum, `192.0.2.1` to `192.0.2.2`, ports 4444 and 4000.
const UDP_IPV4: [u8; 58] = [
    0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x45, 0x00,
    0x00, 0x2c, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb6, 0xbe, 0xc0, 0x00, 0x02, 0x01, 0xc0, 0x00,
    0x02, 0x02, 0x11, 0x5c, 0x0f, 0xa0, 0x00, 0x18, 0x00, 0x00, 0x73, 0x69, 0x78, 0x74, 0x65, 0x65,
    0x6e, 0x20, 0x6f, 0x63, 0x74, 0x65, 0x74, 0x73, 0x20, 0x21,
];

fn ipv6(protocol: u8, extensions: &[u8], segment: &[u8]) -> Vec<u8> {
    let len = u16::try_from(extensions.len() + segment.len()).unwrap();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend([0x11; 16]);
    packet.extend([0x22; 16]);
    packet.extend(extensions);
    packet.extend(segment);
    packet
}

fn word(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

/// 1's complement sum of 16-bit words, written as plainly as RFC 1071 §4.1 has it.
fn plain_sum(octets: &[u8], mut sum: u32) -> u16 {
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

#[test]
fn a_partial_checksum_is_the_folded_sum_of_the_pseudo_header() {
    let pseudo = plain_sum(&UDP_IPV4[26..34], 17 + 24);
    let mut frame = UDP_IPV4;
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    assert!(partial::is_partial(&frame, Framing::Ethernet));
    assert!(partial::is_partial(&frame[14..], Framing::Ip));
    assert!(partial::complete(&mut frame, Framing::Ethernet));
    assert!(!partial::is_partial(&frame, Framing::Ethernet));
    assert_eq!(plain_sum(&frame[34..], u32::from(pseudo)), 0xffff, "RFC 768");
    let once = frame;
    assert!(partial::complete(&mut frame, Framing::Ethernet));
    assert_eq!(frame, once, "a complete checksum stays what it is");
}

#[test]
fn only_unfragmented_tcp_and_udp_have_one() {
    let cases: [(&str, usize, u8); 5] = [
        ("a later fragment", 21, 1),
        ("a first fragment", 20, 0x20),
        ("another protocol", 23, 1),
        ("another version", 14, 0x55),
        ("a length behind the end", 16, 0xff),
    ];
    for (name, at, value) in cases {
        let mut frame = UDP_IPV4;
        frame[at] = value;
        let before = frame;
        assert!(!partial::complete(&mut frame, Framing::Ethernet), "{name}");
        assert_eq!(frame, before, "{name}");
    }
    for cut in 0..UDP_IPV4.len() {
        let mut frame = UDP_IPV4;
        assert!(!partial::complete(&mut frame[..cut], Framing::Ethernet), "{cut} octets");
    }
}

#[test]
fn padding_and_tags_are_not_covered() {
    let mut plain = UDP_IPV4;
    assert!(partial::complete(&mut plain, Framing::Ethernet));
    let mut tagged = UDP_IPV4[..12].to_vec();
    tagged.extend([0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 9]);
    tagged.extend(&UDP_IPV4[12..]);
    tagged.extend([0xff; 6]);
    assert!(partial::complete(&mut tagged, Framing::Ethernet));
    assert_eq!(word(&tagged, 48), word(&plain, 40));
}

#[test]
fn ipv6_extension_headers_are_passed_over() {
    let segment = [0x11, 0x5c, 0x0f, 0xa0, 0, 10, 0, 0, 0xab, 0xcd];
    let pseudo = plain_sum(&ipv6(17, &[], &[])[8..40], 17 + 10);
    let expected = !plain_sum(&segment, u32::from(pseudo));
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    let route_spent = [17, 0, 0, 0, 0, 0, 0, 0];
    let route_ahead = [17, 0, 0, 1, 0, 0, 0, 0];
    let cases: [(&str, u8, &[u8], bool); 6] = [
        ("none", 17, &[], true),
        ("hop-by-hop options", 0, &options, true),
        ("destination options", 60, &options, true),
        ("a route that is spent", 43, &route_spent, true),
        ("a route with stations ahead", 43, &route_ahead, false),
        ("a fragment", 44, &options, false),
    ];
    for (name, next, extensions, has_one) in cases {
        let mut packet = ipv6(next, extensions, &segment);
        assert_eq!(partial::complete(&mut packet, Framing::Ip), has_one, "{name}");
        if has_one {
            assert_eq!(word(&packet, 40 + extensions.len() + 6), expected, "{name}");
        }
    }
}

/// RFC 768: "If the computed checksum is zero, it is transmitted as all ones"; TCP has no such
/// rule (RFC 9293 §3.1).
#[test]
fn a_zero_is_all_ones_for_udp_only() {
    for (protocol, len, field, expected) in [(17, 10, 6, 0xffff), (6, 22, 16, 0)] {
        let mut segment = vec![0; len];
        if protocol == 17 {
            segment[5] = 10;
        } else {
            segment[12] = 0x50;
        }
        let len = u32::try_from(len).unwrap();
        let sum = plain_sum(&ipv6(17, &[], &[])[8..40], u32::from(protocol) + len);
        let sum = plain_sum(&segment, u32::from(sum));
        let last = segment.len() - 2;
        segment[last..].copy_from_slice(&(!sum).to_be_bytes());
        let mut packet = ipv6(protocol, &[], &segment);
        assert!(partial::complete(&mut packet, Framing::Ip));
        assert_eq!(word(&packet, 40 + field), expected, "protocol {protocol}");
    }
}

/// RFC 3720 §B.4, "32 bytes of zeroes": aa 36 91 8a. They are an SCTP packet without its checksum.
#[test]
fn sctp_has_a_crc32c() {
    const CHECKSUM: [u8; 4] = [0xaa, 0x36, 0x91, 0x8a];
    let mut packet = ipv6(132, &[], &[0; 32]);
    assert!(partial::is_partial(&packet, Framing::Ip));
    assert_eq!(partial::pseudo_header(&packet, Framing::Ip), None);
    for _ in 0..2 {
        assert!(partial::complete(&mut packet, Framing::Ip));
        assert_eq!(packet[48..52], CHECKSUM, "and a complete one stays what it is");
        assert!(!partial::is_partial(&packet, Framing::Ip));
    }
    let mut short = ipv6(132, &[], &[0; 11]);
    assert!(!partial::complete(&mut short, Framing::Ip));
}

#[test]
fn the_fuzz_corpus_is_completed_or_left_alone() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/partial");
    let mut completed = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let octets = std::fs::read(entry.unwrap().path()).unwrap();
        for framing in [Framing::Ethernet, Framing::Ip] {
            let mut frame = octets.clone();
            let done = partial::complete(&mut frame, framing);
            assert!(done || frame == octets);
            completed += usize::from(done);
        }
    }
    assert!(completed >= 7, "{completed} frames");
}

proptest! {
    #[test]
    fn no_octets_make_it_panic(
        mut octets in prop::collection::vec(any::<u8>(), 0..200),
        start in prop::sample::select(vec![0x45, 0x46, 0x60, 0x00]),
        protocol in prop::sample::select(vec![6, 17, 132, 0, 43, 60]),
    ) {
        if octets.len() > 40 {
            octets[0] = start;
            octets[if start == 0x60 { 6 } else { 9 }] = protocol;
        }
        partial::is_partial(&octets, Framing::Ip);
        partial::is_partial(&octets, Framing::Ethernet);
        partial::complete(&mut octets, Framing::Ip);
        partial::complete(&mut octets, Framing::Ethernet);
    }

    #[test]
    fn a_completed_checksum_is_right(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        protocol in prop::sample::select(vec![6_u8, 17]),
        addresses: [u8; 32],
    ) {
        let mut segment = vec![0; if protocol == 6 { 20 } else { 8 }];
        segment.extend(&payload);
        let mut packet = ipv6(protocol, &[], &segment);
        packet[8..40].copy_from_slice(&addresses);
        prop_assert!(partial::complete(&mut packet, Framing::Ip));
        let len = u32::try_from(segment.len()).unwrap();
        let pseudo = plain_sum(&addresses, u32::from(protocol) + len);
        prop_assert_eq!(plain_sum(&packet[40..], u32::from(pseudo)), 0xffff);
    }
}

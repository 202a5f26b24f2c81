//! The example of a link layer of one's own does what it says.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "../examples/own_layer.rs"]
mod own_layer;

mod common;

use common::hex;
use gatewright_packet::LinkIndex;
use own_layer::{forward, main as run};

/// RFC 1812 §5.3.1: one hop less, and the checksum of the header follows (RFC 1141); all else is
/// as it came, and the frame is the line's, not Ethernet's.
#[test]
fn a_packet_is_forwarded_between_two_lines() {
    let frame = hex("0800 4500001c 00010000 4011 65cd 0a000002 0a000102 1000 2000 0008 0000");
    let sent = hex("0800 4500001c 00010000 3f11 66cd 0a000002 0a000102 1000 2000 0008 0000");
    let left = forward(&frame).unwrap();
    assert!(left.contains(&(LinkIndex(1), sent)), "{left:02x?}");
    run().unwrap();
}

/// A frame without a whole header, and packets of a type that nothing here takes.
#[test]
fn what_the_line_cannot_carry_on_is_dropped() {
    for frame in ["", "08", "88b5 0000"] {
        let left = forward(&hex(frame)).unwrap();
        assert!(left.iter().all(|(_, frame)| !frame.starts_with(&[8, 0])), "{left:02x?}");
    }
}

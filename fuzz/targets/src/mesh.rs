//! Messages of the mesh protocol, and the labelled frames between its nodes.

use gatewright_lsr::{FramePayload, LabelledFrame};
use gatewright_mesh::message::{Message, Profile};

/// A message in each profile; what is read is written as it was read.
pub fn mesh_message(octets: &[u8]) {
    for profile in [Profile::Classic, Profile::Default] {
        if let Ok((sender, message)) = Message::decode(octets, profile) {
            let again = message.encode(sender, profile);
            assert_eq!(Message::decode(&again, profile), Ok((sender, message)));
        }
    }
}

/// A labelled frame: its content is its end, behind the Ethernet header and one label at least.
pub fn labelled_frame(octets: &[u8]) {
    const HEADERS_LEN: usize = 14 + 4;
    let Some(frame) = LabelledFrame::parse(octets) else { return };
    assert!(octets.get(6..12) == Some(frame.from.as_slice()) && frame.label.0 < 1 << 20);
    if let FramePayload::Ethernet(content) | FramePayload::Channel(content) = frame.payload {
        assert!(octets.ends_with(content) && content.len() + HEADERS_LEN + 4 <= octets.len());
    }
}

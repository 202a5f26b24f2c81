//! Messages of the mesh protocol, and the labelled frames between its nodes.

use gatewright_lsr::{FramePayload, LabelledFrame};
use gatewright_mesh::message::{Message, Profile};
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshMembers, MeshNode, MeshNodeKey, MeshSettings, MeshTrust, NodeId,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use std::time::Duration;

/// A message in each profile; what is read is written as it was read.
pub fn mesh_message(octets: &[u8]) {
    for profile in [Profile::Classic, Profile::Default] {
        if let Ok((sender, message)) = Message::decode(octets, profile) {
            let again = message.encode(sender, profile);
            assert_eq!(Message::decode(&again, profile), Ok((sender, message)));
        }
    }
}

/// Octets at a node of a mesh of members: without a signature of a member nobody is heard. As text,
/// they are a file of members or of a node's key.
pub fn mesh_member(octets: &[u8]) {
    if let Ok(text) = str::from_utf8(octets) {
        let _members = MeshMembers::parse(text);
        if let Ok(key) = MeshNodeKey::parse(text) {
            assert_eq!(MeshNodeKey::parse(&key.text()), Ok(key));
        }
    }
    let Some(key) = MeshNodeKey::of_seed([1; 32]) else { return };
    let members = MeshMembers { authorities: vec![key.public()], ..MeshMembers::default() };
    let mut settings = MeshSettings::new(NodeId(1), 1, Profile::Default);
    settings.trust = MeshTrust::Pki(Box::new((key, members)));
    let mut node = MeshNode::new(settings);
    let (link, properties) = (LinkIndex(0), LinkProperties::default());
    node.handle(Duration::ZERO, MeshInput::LinkUp { link, properties });
    node.handle(Duration::ZERO, MeshInput::Received { link, from: LinkAddress::NONE, octets });
    assert!(node.neighbours().is_empty() && node.poll_output().is_none());
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

//! Messages of the mesh protocol.

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

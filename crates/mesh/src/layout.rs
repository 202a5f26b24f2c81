//! Headers of the messages, from the diagrams in `docs/mesh-protocol.md`.

use crate::identity::{NodeId, Reason};
use gatewright_wire::{header, mpls::Label};

header! {
    /// The header that every message begins with.
    CommonHeader = page "../../docs/mesh-protocol.md", "Common header"
}

header! {
    /// I'M ALIVE.
    AliveHeader = page "../../docs/mesh-protocol.md", "I'M ALIVE"
}

header! {
    /// An entry of the neighbour list, and of a reply's record.
    NodeRecord = page "../../docs/mesh-protocol.md", "Neighbour"
}

header! {
    /// An entry of the label list.
    LabelRecord = page "../../docs/mesh-protocol.md", "Label"
}

header! {
    /// ROUTE REQUEST with PATH REQUEST.
    RequestHeader = page "../../docs/mesh-protocol.md", "ROUTE REQUEST"
}

header! {
    /// An entry of a request's record.
    HopRecord = page "../../docs/mesh-protocol.md", "Record"
}

header! {
    /// ROUTE REPLY with PATH REPLY.
    ReplyHeader = page "../../docs/mesh-protocol.md", "ROUTE REPLY"
}

header! {
    /// PATH ACKNOWLEDGEMENT.
    AcknowledgementHeader = page "../../docs/mesh-protocol.md", "PATH ACKNOWLEDGEMENT"
}

header! {
    /// PATH ERROR and PATH TEAR.
    PathEndHeader = page "../../docs/mesh-protocol.md", "PATH ERROR"
}

header! {
    /// LINK BACK.
    LinkBackHeader = page "../../docs/mesh-protocol.md", "LINK BACK"
}

header! {
    /// BYPASS REQUEST.
    BypassRequestHeader = page "../../docs/mesh-protocol.md", "BYPASS REQUEST"
}

header! {
    /// PORT HELLO.
    PortHelloHeader = page "../../docs/mesh-protocol.md", "PORT HELLO"
}

header! {
    /// OLSR: the header of a packet (RFC 3626 §3.3).
    OlsrHeader = page "../../docs/mesh-protocol.md", "OLSR"
}

header! {
    /// LABEL UNKNOWN and BYPASS TEAR.
    UnknownHeader = page "../../docs/mesh-protocol.md", "LABEL UNKNOWN"
}

header! {
    /// BROADCAST.
    BroadcastHeader = page "../../docs/mesh-protocol.md", "BROADCAST"
}

header! {
    /// CHALLENGE and CHALLENGE REPLY.
    ChallengeHeader = page "../../docs/mesh-protocol.md", "CHALLENGE"
}

header! {
    /// What authenticates a message, without its proof.
    AuthenticationHeader = page "../../docs/mesh-protocol.md", "Authentication"
}

header! {
    /// A signature with its key and certificate, without them.
    SignatureHeader = page "../../docs/mesh-protocol.md", "Signature"
}

header! {
    /// ECHO, in the associated channel.
    EchoHeader = page "../../docs/mesh-protocol.md", "ECHO"
}

header! {
    /// LIVENESS: a control packet of BFD (RFC 5880 §4.1).
    LivenessHeader = page "../../docs/mesh-protocol.md", "LIVENESS"
}

//! The `test` blocks of a gateway: a transcript in virtual time.

use super::{MessageId, Operand, RoleId, SlotId};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// One `test` block: peers are mocked, time is virtual, steps run in order.
///
/// Every role has one peer. A server's peer connects before the first step; a client's accepts
/// when the gateway connects, and what it was told to send earlier goes out then. A `sees` that is
/// not fulfilled when nothing moves any more fails the test, and so do octets that are left over
/// when the steps are through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestCase {
    /// What it shows.
    pub name: String,
    /// Its place.
    pub span: Span,
    /// The transcript.
    pub steps: Vec<Step>,
}

/// One line of a transcript.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// What happens.
    pub action: StepAction,
    /// Its place.
    pub span: Span,
}

/// What happens in a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StepAction {
    /// The peer sends octets (UDP: one datagram).
    Sends {
        /// Whose peer.
        role: RoleId,
        /// What.
        octets: Vec<u8>,
    },
    /// The peer has got this from the gateway, next.
    Sees {
        /// Whose peer.
        role: RoleId,
        /// What.
        expect: Expect,
    },
    /// The peer closes its connection.
    Closes {
        /// Whose peer.
        role: RoleId,
    },
    /// Time goes by.
    Pass(Duration),
}

/// What a peer must see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Exactly these octets.
    Octets(Vec<u8>),
    /// One message of this view, with these values; other slots may be as they are.
    Message {
        /// The view.
        view: MessageId,
        /// The values.
        values: Vec<(SlotId, Operand)>,
    },
    /// The connection ends.
    Closed,
}

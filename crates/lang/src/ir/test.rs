//! The `test` blocks of a gateway: transcripts in virtual time.

use super::{MessageId, Operand, ParameterId, ParameterValue, RoleId, SlotId};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// One `test` block: peers are mocked, time is virtual, steps run in order.
/// Every role has one peer. A server's peer connects before the first step. A client's peer accepts
/// when the gateway connects, and then sends what it was told to send earlier. The test fails if a
/// `sees` is not fulfilled when nothing moves any more, or if octets are left over after the last
/// step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestCase {
    /// Its name.
    pub name: String,
    /// Its source position.
    pub span: Span,
    /// The transcript.
    pub steps: Vec<Step>,
    /// The next fresh numbers of roles, in order; afterwards a role counts on from its last one.
    pub fresh: Vec<(RoleId, u32)>,
    /// Values of parameters, in place of their defaults.
    pub parameters: Vec<(ParameterId, ParameterValue)>,
}

/// One line of a transcript.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// The action.
    pub action: StepAction,
    /// Its source position.
    pub span: Span,
}

/// Action of a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StepAction {
    /// The peer sends octets (UDP: one datagram).
    Sends {
        /// The role.
        role: RoleId,
        /// The octets.
        octets: Vec<u8>,
    },
    /// The peer must have received this next from the gateway.
    Sees {
        /// The role.
        role: RoleId,
        /// The expected result.
        expect: Expect,
    },
    /// The peer closes its connection.
    Closes {
        /// The role.
        role: RoleId,
    },
    /// Time goes by.
    Pass(Duration),
}

/// Expectation of a `sees` step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Exactly these octets.
    Octets(Vec<u8>),
    /// One message of this view with these values; other slots may have any value.
    Message {
        /// The view.
        view: MessageId,
        /// The values.
        values: Vec<(SlotId, Operand)>,
    },
    /// The connection ends.
    Closed,
}

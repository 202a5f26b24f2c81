//! A message of a running program, traced: what is asked and answered.

use serde::{Deserialize, Serialize};

/// A message to be traced, as given on the command line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MessageTraceRequest {
    /// The handlers, `gateway:NAME/HANDLER`: the next conversation that reaches one of them.
    pub at: String,
    /// How long to wait for its end.
    #[serde(default)]
    pub seconds: Option<f64>,
}

/// A recorded conversation, with the program that had it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ConversationAnswer {
    /// Texts of the program, each with its file; its own is the first.
    pub texts: Vec<(String, String)>,
    /// The handler that was reached; empty if no message came in time.
    pub handler: String,
    /// Its steps.
    pub steps: Vec<ConversationStepAnswer>,
    /// The fresh numbers of its roles, in order.
    pub fresh: Vec<(String, u32)>,
    /// Values of the parameters that are not those of the program's text, in hexadecimal digits.
    pub parameters: Vec<(String, String)>,
    /// Why a test may not repeat it, in words.
    pub gaps: Vec<String>,
}

/// A step of a conversation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConversationStepAnswer {
    /// Microseconds since the first step.
    pub at_us: u64,
    /// The role.
    pub role: String,
    /// Its peer's actions.
    pub does: PeerAction,
    /// Octets that it sends or sees, in hexadecimal digits.
    pub octets: String,
}

/// A peer's action in a step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerAction {
    /// It sends octets.
    Sends,
    /// It receives octets.
    Sees,
    /// It ends its connection.
    Closes,
    /// The gateway ends its connection.
    SeesClose,
}

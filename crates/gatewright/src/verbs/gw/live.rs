//! A message of a running gateway, as a test of its program.

use gatewright_command::{
    exit::{Exit, Failure},
    socket,
};
use gatewright_gateway::{ConversationAnswer, MessageTraceRequest, api::ControlRequest};
use gatewright_programs::recorded_test::{RecordedTest, recorded_test};

/// Waits for the next conversation at `at` of a running gateway, and compiles that gateway's program
/// with one more test, its last; `None` if no message came in time.
///
/// # Errors
///
/// No gateway answers, or it refuses.
pub(super) fn record(
    gateway: &socket::Which,
    at: &str,
    seconds: f64,
) -> Result<Option<RecordedTest>, Failure> {
    let request = MessageTraceRequest { at: at.to_owned(), seconds: Some(seconds) };
    let answer = gateway.ask(&ControlRequest::TraceMessage(request))?;
    let garbled = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Unavailable, format!("the gateway answers something else: {why}"))
    };
    let answer: ConversationAnswer =
        serde_json::from_value(answer).map_err(|error| garbled(&error))?;
    recorded_test(&answer).map_err(|why| garbled(&why))
}

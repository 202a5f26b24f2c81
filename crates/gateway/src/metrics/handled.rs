//! Metrics of the requests of gateway programs, by handler.

use super::{Family, head, sample, written};
use gatewright_part::HandledRequests;

const REQUESTS: Family = (
    "gatewright_program_requests",
    "requests",
    "Requests that a program's handler began, finished, or did not come to an end of its own with.",
);
/// The family of all handlers; nothing if there is none.
pub(super) fn text(out: &mut String, handlers: &[&HandledRequests]) {
    if handlers.is_empty() {
        return;
    }
    head(out, REQUESTS, "counter");
    for of in handlers {
        for (outcome, count) in
            [("begun", of.started), ("finished", of.finished), ("failed", of.failed)]
        {
            let labels = [
                ("program", of.program.as_str()),
                ("handler", of.handler.as_str()),
                ("outcome", outcome),
            ];
            sample(out, REQUESTS.0, "_total", &written(&labels), count);
        }
    }
}

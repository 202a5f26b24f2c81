//! Why a session variable may be absent where it is used: where it was assigned, and since where nothing
//! is known of it.

use crate::ir::SlotId;
use gatewright_diagnostic::Span;

/// What was done with session variables so far, in the order of the text.
#[derive(Debug, Default)]
pub(super) struct SessionTrail {
    /// Last assignments.
    assigned: Vec<(SlotId, Span)>,
    /// Where it ceased to be known that they are set, and why.
    forgotten: Vec<(SlotId, Span, &'static str)>,
}

impl SessionTrail {
    /// A variable was assigned.
    pub(super) fn assign(&mut self, slot: SlotId, span: Span) {
        self.assigned.retain(|(of, _)| *of != slot);
        self.forgotten.retain(|(of, ..)| *of != slot);
        self.assigned.push((slot, span));
    }

    /// From here on it is not known any more that a variable is set.
    pub(super) fn forget(&mut self, slot: SlotId, span: Span, why: &'static str) {
        self.forgotten.retain(|(of, ..)| *of != slot);
        self.forgotten.push((slot, span, why));
    }

    /// Whether a variable was assigned at all.
    pub(super) fn is_assigned(&self, slot: SlotId) -> bool {
        self.assigned.iter().any(|(of, _)| *of == slot)
    }

    /// Places that explain why a variable may be absent, each with a remark.
    pub(super) fn remarks(&self, slot: SlotId) -> Vec<(Span, &'static str)> {
        let assigned = self.assigned.iter().find(|(of, _)| *of == slot);
        let forgotten = self.forgotten.iter().find(|(of, ..)| *of == slot);
        let set = assigned.map(|(_, span)| {
            let on_some = "it is assigned here, but not on every path to its use";
            (*span, if forgotten.is_some() { "it is assigned here" } else { on_some })
        });
        set.into_iter().chain(forgotten.map(|(_, span, why)| (*span, *why))).collect()
    }
}

/// The handler waits, and requests of others with the same key are served meanwhile.
pub(super) const WAITS: &str =
    "then the handler waits here, and another request may clear it or end the session";
/// A part of a message may still be on its way.
pub(super) const ARRIVES: &str = "then the handler waits here until this has arrived, and another \
                                  request may clear it or end the session";
/// The loop's turns wait.
pub(super) const TURNS: &str = "then turns of this loop wait, and another request may clear it or \
                                end the session: assign it in each turn";
/// `clear`.
pub(super) const CLEARED: &str = "it is cleared here";
/// Another session, or none.
pub(super) const OTHER_SESSION: &str = "from here on the session is another one, or none";

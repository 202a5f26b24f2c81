//! Metrics of handlers at messages of gateway programs: seen and refused.

use super::{Family, head, sample, written};
use crate::status::AttachedAnswer;

const SEEN: Family = (
    "gatewright_attached_messages",
    "messages",
    "Messages that an attached handler counted or captured.",
);
const OCTETS: Family = (
    "gatewright_attached_messages_bytes",
    "bytes",
    "Octets of messages that an attached handler counted or captured.",
);
const REFUSED: Family = (
    "gatewright_attached_refused_messages",
    "messages",
    "Requests that an attached handler refused.",
);
const MISSED: Family = (
    "gatewright_attached_missed_pieces",
    "pieces",
    "Pieces of messages that a capture could not write in time.",
);

/// A handler's counter, if it has this counter.
type Count = fn(&AttachedAnswer) -> Option<u64>;

/// The families of all handlers at messages; nothing if there is none.
pub(super) fn text(out: &mut String, attached: &[AttachedAnswer]) {
    let at_messages = attached.iter().filter(|one| one.messages.is_some() || one.refused.is_some());
    let at_messages: Vec<_> = at_messages.collect();
    let families: [(Family, Count); 4] = [
        (SEEN, |one| one.messages),
        (OCTETS, |one| one.octets),
        (REFUSED, |one| one.refused),
        (MISSED, |one| one.missed),
    ];
    for (family, count) in families {
        let counts = at_messages.iter().filter_map(|one| Some((one, count(one)?)));
        let counts: Vec<_> = counts.collect();
        if counts.is_empty() {
            continue;
        }
        head(out, family, "counter");
        for (one, count) in counts {
            let id = one.id.to_string();
            let labels = [("id", id.as_str()), ("handler", one.handler), ("at", one.at.as_str())];
            sample(out, family.0, "_total", &written(&labels), count);
        }
    }
}

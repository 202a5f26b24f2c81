//! Tokens of a loop: which source of which program an event belongs to.

use gatewright_edge::Token;

/// Maximum number of programs in one loop: the current one and those being drained.
pub(crate) const GENERATIONS_MAX: usize = 4;

/// The part of a loop that an event belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventSource {
    Connection(usize),
    Listener(usize),
    Datagrams(usize),
}

/// Number of token kinds. The low bits of a token hold kind and generation; the slot stands above
/// them.
const KINDS: usize = 3;

/// A token for a source of a generation.
pub(crate) const fn token(source: EventSource, generation: usize) -> Token {
    let (kind, slot) = match source {
        EventSource::Connection(slot) => (0, slot),
        EventSource::Listener(slot) => (1, slot),
        EventSource::Datagrams(slot) => (2, slot),
    };
    Token((slot * GENERATIONS_MAX + generation) * KINDS + kind)
}

pub(crate) const fn source(token: Token) -> (EventSource, usize) {
    let (above, kind) = (token.0 / KINDS, token.0 % KINDS);
    let (slot, generation) = (above / GENERATIONS_MAX, above % GENERATIONS_MAX);
    let source = match kind {
        0 => EventSource::Connection(slot),
        1 => EventSource::Listener(slot),
        _ => EventSource::Datagrams(slot),
    };
    (source, generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_where_it_belongs() {
        for generation in 0..GENERATIONS_MAX {
            for place in [
                EventSource::Connection(0),
                EventSource::Connection(100_000),
                EventSource::Listener(3),
                EventSource::Datagrams(1),
            ] {
                assert_eq!(source(token(place, generation)), (place, generation));
            }
        }
    }
}

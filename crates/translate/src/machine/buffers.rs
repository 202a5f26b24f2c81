//! Buffers that are lent while octets are pending.

use super::BUFFER_OCTETS;
use crate::flat::Layouts;
use crate::parser::Parser;
use gatewright_lang::ir::MessageId;
use std::sync::Arc;

/// How many unused buffers are kept: as many as a busy loop needs at once, in half a mebibyte.
const SPARE_MAX: usize = 64;

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
    /// Read buffers, kept at their full length.
    windows: Vec<Vec<u8>>,
}

impl Pool {
    /// Gives an empty buffer memory, if it has none yet.
    fn equip(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            *buffer = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_OCTETS));
        }
    }

    /// Appends octets to a buffer.
    pub(crate) fn append(&mut self, buffer: &mut Vec<u8>, octets: &[u8]) {
        if !octets.is_empty() {
            self.equip(buffer);
            buffer.extend_from_slice(octets);
        }
    }

    /// Takes a buffer's memory back if it is empty.
    pub(crate) fn reclaim(&mut self, buffer: &mut Vec<u8>) {
        if buffer.is_empty() && buffer.capacity() > 0 {
            let spare = core::mem::take(buffer);
            if self.spare.len() < SPARE_MAX && spare.capacity() <= 2 * BUFFER_OCTETS {
                self.spare.push(spare);
            }
        }
    }

    /// Takes a window's memory back if it holds no octets.
    pub(crate) fn reclaim_window(&mut self, unread: &mut Unread) {
        if unread.is_empty() && !unread.buffer.is_empty() {
            let spare = core::mem::take(unread).buffer;
            if self.windows.len() < SPARE_MAX && spare.len() <= 2 * BUFFER_OCTETS {
                self.windows.push(spare);
            }
        }
    }

    /// Lends an empty buffer for temporary use.
    pub(crate) fn lend(&mut self) -> Vec<u8> {
        let mut buffer = Vec::new();
        self.equip(&mut buffer);
        buffer
    }

    /// Takes a lent buffer back.
    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.reclaim(&mut buffer);
    }
}

/// Octets that wait to be read, somewhere in a buffer that is lent while there are any.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Unread {
    pub(crate) fn octets(&self) -> &[u8] {
        self.buffer.get(self.from..self.to).unwrap_or_default()
    }

    pub(crate) const fn len(&self) -> usize {
        self.to.saturating_sub(self.from)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The window for further octets, at most `most`.
    pub(crate) fn window(&mut self, pool: &mut Pool, most: usize) -> &mut [u8] {
        if most == 0 {
            return &mut [];
        }
        if self.buffer.is_empty() {
            self.buffer = pool.windows.pop().unwrap_or_else(|| vec![0; BUFFER_OCTETS]);
        }
        if self.from > 0 && self.buffer.len() - self.to < most {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.len());
        }
        if self.to == self.buffer.len() {
            // One long message, within the bound of its program.
            self.buffer.resize(self.to.saturating_mul(2), 0);
        }
        let end = self.to.saturating_add(most).min(self.buffer.len());
        self.buffer.get_mut(self.to..end).unwrap_or_default()
    }

    /// Records that `octets` octets of the window arrived.
    pub(crate) fn arrived(&mut self, octets: usize) {
        self.to = self.to.saturating_add(octets).min(self.buffer.len());
    }

    pub(crate) fn append(&mut self, pool: &mut Pool, octets: &[u8]) {
        let mut rest = octets;
        while !rest.is_empty() {
            let window = self.window(pool, rest.len());
            let Some((now, later)) = rest.split_at_checked(window.len()) else { return };
            window.copy_from_slice(now);
            self.arrived(now.len());
            rest = later;
        }
    }

    /// Discards the first octets, which were used.
    pub(crate) fn consume(&mut self, octets: usize) {
        self.from = self.from.saturating_add(octets);
        if self.from >= self.to {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.from, self.to) = (0, 0);
    }
}

/// How many unused parsers are kept: as many as a busy loop needs at once, of several kinds.
const PARSERS_MAX: usize = 16;

/// Unused parsers, each kept for the next message of its layout, which it reads into the same view.
/// A parser never moves in memory, however often it changes hands.
#[derive(Debug, Default)]
pub(crate) struct Parsers {
    #[expect(clippy::vec_box, reason = "what is handed out and taken back is the box")]
    spare: Vec<Box<Parser>>,
}

impl Parsers {
    /// A parser before the first octet of a message; `None` if the program has none for it.
    pub(crate) fn take(
        &mut self,
        layouts: &Arc<Layouts>,
        message: MessageId,
    ) -> Option<Box<Parser>> {
        let known = self.spare.iter().rposition(|parser| parser.message() == message);
        match known.map(|at| self.spare.swap_remove(at)) {
            Some(mut parser) => {
                parser.restart();
                Some(parser)
            }
            None => Parser::new(Arc::clone(layouts), message).ok().map(Box::new),
        }
    }

    /// Takes a parser back, unless its view has become large.
    pub(crate) fn keep(&mut self, parser: Box<Parser>) {
        if self.spare.len() < PARSERS_MAX && parser.view().room() <= BUFFER_OCTETS {
            self.spare.push(parser);
        }
    }
}

/// Octets that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    octets: Vec<u8>,
    /// Number of them already sent.
    gone: usize,
}

impl Unsent {
    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(self.gone..).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.octets.len() - self.gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn append(&mut self, pool: &mut Pool, octets: &[u8]) {
        pool.append(&mut self.octets, octets);
    }

    /// The end of the queue, to which further octets are appended.
    pub(crate) fn end(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        pool.equip(&mut self.octets);
        &mut self.octets
    }

    /// The octets after the first `length`.
    pub(crate) fn behind(&self, length: usize) -> &[u8] {
        self.octets().get(length..).unwrap_or_default()
    }

    /// Truncates the queue to `length` octets.
    pub(crate) fn cut(&mut self, length: usize) {
        self.octets.truncate(self.gone.saturating_add(length));
    }

    /// Takes back memory that turned out not to be needed.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        pool.reclaim(&mut self.octets);
    }

    /// Removes the first octets, which were sent.
    pub(crate) fn advance(&mut self, pool: &mut Pool, octets: usize) {
        self.gone = self.gone.saturating_add(octets).min(self.octets.len());
        if self.is_empty() {
            self.octets.clear();
            self.gone = 0;
            pool.reclaim(&mut self.octets);
        } else if self.gone >= BUFFER_OCTETS {
            self.octets.drain(..self.gone);
            self.gone = 0;
        }
    }
}

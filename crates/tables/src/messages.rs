//! A bounded ring of plain messages, from one writer to one reader.
//!
//! ```text
//! line 0  word 0  sent   words ever written behind the lines; the writer's
//!              1  lost   messages refused because the ring was full; the writer's
//! line 1  word 0  taken  words ever read; the reader's
//! then a power of two of words: each message is its octets in a word, then these
//! ```
//!
//! A message counts only when `sent` has moved past it: of a writer that dies inside of one, no
//! reader sees anything. A reader that dies leaves the message to the next reader. A reader believes
//! nothing: words that cannot be a message are skipped together with all others that wait, and
//! counted.

use crate::memory::Words;
use crate::routes::index;
use crate::sync::{AtomicU32, Ordering};

/// Words of a cache line: writer and reader have one each.
const LINE: usize = 16;
/// Words before the messages.
const HEADER: usize = 2 * LINE;
const SENT: usize = 0;
const LOST: usize = 1;
const TAKEN: usize = LINE;
/// Octets of a word.
const WORD_OCTETS: usize = 4;

/// Words of a whole ring of `words` words of messages, rounded up to a power of two.
pub(crate) fn ring_words(words: u32) -> Option<usize> {
    index(words.max(2).checked_next_power_of_two()?).checked_add(HEADER)
}

/// The ring is full, or the message larger than the ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the ring has no room for a message of {octets} octets")]
pub struct RingFull {
    /// Octets of the message.
    pub octets: usize,
}

/// The words of a ring, as both ends see them.
#[derive(Clone, Debug)]
struct Ring(Words);

impl Ring {
    fn word(&self, at: usize) -> Option<&AtomicU32> {
        self.0.all().get(at)
    }

    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.word(at).map_or(0, |word| word.load(order))
    }

    fn store(&self, at: usize, value: u32, order: Ordering) {
        if let Some(word) = self.word(at) {
            word.store(value, order);
        }
    }

    /// The number of words for messages, a power of two; 0 for no ring.
    fn capacity(&self) -> u32 {
        u32::try_from(self.0.all().len().saturating_sub(HEADER)).unwrap_or(0)
    }

    /// The place of the `number`th word.
    fn place(&self, number: u32) -> usize {
        HEADER + index(number & self.capacity().saturating_sub(1))
    }
}

/// The number of words of a message, with that of its length.
fn message_words(octets: usize) -> Option<u32> {
    u32::try_from(octets.div_ceil(WORD_OCTETS)).ok()?.checked_add(1)
}

/// The sending end of a ring; there is one.
#[derive(Debug)]
pub struct MessageSender(Ring);

impl MessageSender {
    pub(crate) fn new(words: Words) -> Self {
        Self(Ring(words))
    }

    /// Whether a message of so many octets has room now.
    pub fn has_room(&self, octets: usize) -> bool {
        let ring = &self.0;
        let sent = ring.load(SENT, Ordering::Relaxed);
        let waiting = sent.wrapping_sub(ring.load(TAKEN, Ordering::Acquire));
        let room = ring.capacity().saturating_sub(waiting);
        message_words(octets).is_some_and(|words| words <= room)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if there is no room for it: then it is counted as lost.
    pub fn send(&mut self, message: &[u8]) -> Result<(), RingFull> {
        let ring = &self.0;
        let full = RingFull { octets: message.len() };
        let sent = ring.load(SENT, Ordering::Relaxed);
        // Acquire: the reader has read the words that it says it has taken.
        let waiting = sent.wrapping_sub(ring.load(TAKEN, Ordering::Acquire));
        let room = ring.capacity().saturating_sub(waiting);
        let Some(words) = message_words(message.len()).filter(|words| *words <= room) else {
            ring.store(LOST, ring.load(LOST, Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return Err(full);
        };
        // A length that fits into the ring fits into a word.
        let octets = u32::try_from(message.len()).unwrap_or(0);
        ring.store(ring.place(sent), octets, Ordering::Relaxed);
        let mut at = sent.wrapping_add(1);
        for chunk in message.chunks(WORD_OCTETS) {
            let mut word = [0; WORD_OCTETS];
            for (to, octet) in word.iter_mut().zip(chunk) {
                *to = *octet;
            }
            ring.store(ring.place(at), u32::from_be_bytes(word), Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
        // Release: the words are there before they are counted.
        ring.store(SENT, sent.wrapping_add(words), Ordering::Release);
        Ok(())
    }
}

/// The receiving end of a ring; there is one.
#[derive(Debug)]
pub struct MessageReceiver {
    ring: Ring,
    malformed: u64,
}

impl MessageReceiver {
    pub(crate) fn new(words: Words) -> Self {
        Self { ring: Ring(words), malformed: 0 }
    }

    /// Takes the oldest message into `message`; returns whether there was one.
    pub fn take(&mut self, message: &mut Vec<u8>) -> bool {
        message.clear();
        let ring = &self.ring;
        let taken = ring.load(TAKEN, Ordering::Relaxed);
        // Acquire: what was counted is to be seen.
        let sent = ring.load(SENT, Ordering::Acquire);
        let waiting = sent.wrapping_sub(taken);
        if waiting == 0 {
            return false;
        }
        let octets = index(ring.load(ring.place(taken), Ordering::Relaxed));
        let may_be = |words: &u32| *words <= waiting && waiting <= ring.capacity();
        let words = message_words(octets).filter(may_be);
        let Some(words) = words else {
            // Where the next message would begin, nobody knows.
            self.malformed += 1;
            ring.store(TAKEN, sent, Ordering::Release);
            return false;
        };
        for number in 1..words {
            let word = ring.load(ring.place(taken.wrapping_add(number)), Ordering::Relaxed);
            message.extend(word.to_be_bytes());
        }
        message.truncate(octets);
        // Release: the words are read before they may be written again.
        ring.store(TAKEN, taken.wrapping_add(words), Ordering::Release);
        true
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        let taken = self.ring.load(TAKEN, Ordering::Relaxed);
        self.ring.load(SENT, Ordering::Acquire) == taken
    }

    /// Drops waiting messages, whose reader has ended.
    pub fn clear(&mut self) {
        self.ring.store(TAKEN, self.ring.load(SENT, Ordering::Acquire), Ordering::Release);
    }

    /// Messages that the writer could not send because the ring was full.
    pub fn lost(&self) -> u32 {
        self.ring.load(LOST, Ordering::Relaxed)
    }

    /// Times that the words were no message.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(words: u32) -> (MessageSender, MessageReceiver, Words) {
        let words = Words::zeroed(ring_words(words).unwrap());
        (MessageSender::new(words.clone()), MessageReceiver::new(words.clone()), words)
    }

    fn all(receiver: &mut MessageReceiver) -> Vec<Vec<u8>> {
        let mut one = Vec::new();
        std::iter::from_fn(|| receiver.take(&mut one).then(|| one.clone())).collect()
    }

    #[test]
    fn a_full_ring_refuses_and_counts_until_something_is_taken() {
        let (mut sender, mut receiver, _) = ring(8);
        // A word of length and two of octets each: two messages fill six words of eight.
        assert_eq!(sender.send(b"octets"), Ok(()));
        assert_eq!(sender.send(b"others"), Ok(()));
        assert_eq!(sender.send(b"latest"), Err(RingFull { octets: 6 }));
        assert_eq!(sender.send(b"four"), Ok(()));
        assert_eq!(receiver.lost(), 1);
        assert_eq!(all(&mut receiver), [&b"octets"[..], b"others", b"four"]);
        assert_eq!(sender.send(&[7; 28]), Ok(()), "a message as large as the ring");
        assert_eq!(sender.send(b""), Err(RingFull { octets: 0 }));
        assert_eq!(all(&mut receiver), [[7; 28]]);
        assert_eq!(sender.send(&[7; 29]), Err(RingFull { octets: 29 }));
        assert!(receiver.is_empty());
    }

    #[test]
    fn words_that_are_no_message_are_skipped_and_counted() {
        let (mut sender, mut receiver, words) = ring(8);
        sender.send(b"one").unwrap();
        for wrong in [5, 29, u32::MAX] {
            words.all()[HEADER].store(wrong, Ordering::Relaxed);
            words.all()[TAKEN].store(0, Ordering::Relaxed);
            assert!(!receiver.take(&mut Vec::new()) && receiver.is_empty());
        }
        assert_eq!(receiver.malformed(), 3);
        words.all()[SENT].store(u32::MAX, Ordering::Relaxed);
        words.all()[TAKEN].store(1, Ordering::Relaxed);
        while receiver.take(&mut Vec::new()) {}
        sender.send(b"two").unwrap();
        assert_eq!(all(&mut receiver), [b"two"]);
    }

    proptest! {
        /// Whatever is sent and accepted arrives once, whole and in order, also where the numbers
        /// of words wrap around.
        #[test]
        fn what_is_accepted_arrives(
            start in prop_oneof![Just(0), Just(u32::MAX - 20), any::<u32>()],
            steps in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..200),
        ) {
            let (mut sender, mut receiver, words) = ring(32);
            for at in [SENT, TAKEN] {
                words.all()[at].store(start, Ordering::Relaxed);
            }
            let (mut expected, mut arrived, mut refused) = (Vec::new(), Vec::new(), 0);
            for step in steps {
                match step {
                    Some(message) if sender.send(&message).is_ok() => expected.push(message),
                    Some(_) => refused += 1,
                    None => arrived.extend(all(&mut receiver)),
                }
            }
            arrived.extend(all(&mut receiver));
            prop_assert_eq!(arrived, expected);
            prop_assert_eq!((receiver.lost(), receiver.malformed()), (refused, 0));
        }
    }

    /// Both ends at once, in a ring of few words.
    #[test]
    fn under_stress_all_arrive_whole_and_in_order() {
        const MESSAGES: u32 = 20_000;
        let (mut sender, mut receiver, _) = ring(16);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let message = number.to_be_bytes().repeat(1 + index(number % 4));
                    while sender.send(&message).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            let (mut next, mut message) = (0_u32, Vec::new());
            while next < MESSAGES {
                if receiver.take(&mut message) {
                    assert_eq!(message, next.to_be_bytes().repeat(1 + index(next % 4)));
                    next += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
    }
}

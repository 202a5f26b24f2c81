//! The last frames of the stream, within bounds.

use hyper::body::Bytes;
use std::collections::VecDeque;

/// Maximum frames kept: more than a minute, if a few events come a second.
const FRAMES_MAX: usize = 256;

/// Maximum octets of the frames kept; the last frame is kept even if it is larger.
const OCTETS_MAX: usize = 2 * 1024 * 1024;

/// What ends a frame (WHATWG HTML §9.2.5).
const END: &str = "\n\n";

/// The last frames, numbered without gaps.
#[derive(Debug)]
pub(super) struct FrameRing {
    /// Tells this run's numbers from those of other runs of the program.
    run: u64,
    frames: VecDeque<(u64, Bytes)>,
    octets: usize,
    last: u64,
}

/// What follows a frame.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum NextFrame {
    /// This one, with its number.
    Frame(u64, Bytes),
    /// Nothing yet.
    NotYet,
    /// A frame that is no longer kept.
    Overtaken,
}

impl FrameRing {
    /// An empty ring of the run `run`.
    pub(super) const fn new(run: u64) -> Self {
        Self { run, frames: VecDeque::new(), octets: 0, last: 0 }
    }

    /// The number of the last frame; 0 before the first.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Forgets all frames; numbers go on, so that no viewer mistakes a later frame for the next.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.octets = 0;
        self.last += 1;
    }

    /// A frame with this number. `data` has no line break, as JSON of our own writing has none.
    pub(super) fn frame(&self, number: u64, kind: &str, data: &str) -> Bytes {
        let head = format!("id: {:x}-{number}\nevent: {kind}\ndata: ", self.run);
        // With no room to spare: what a frame has is kept as long as the frame.
        let mut frame = Vec::with_capacity(head.len() + data.len() + END.len());
        for part in [head.as_str(), data, END] {
            frame.extend_from_slice(part.as_bytes());
        }
        frame.into()
    }

    /// Adds a frame; returns its number.
    pub(super) fn push(&mut self, kind: &str, data: &str) -> u64 {
        self.last += 1;
        let frame = self.frame(self.last, kind, data);
        self.octets += frame.len();
        self.frames.push_back((self.last, frame));
        while self.frames.len() > FRAMES_MAX || (self.octets > OCTETS_MAX && self.frames.len() > 1)
        {
            let Some((_, old)) = self.frames.pop_front() else { break };
            self.octets = self.octets.saturating_sub(old.len());
        }
        self.last
    }

    /// What follows the frame `number`.
    pub(super) fn after(&self, number: u64) -> NextFrame {
        if number >= self.last {
            return NextFrame::NotYet;
        }
        let first = self.frames.front().map_or(self.last + 1, |(first, _)| *first);
        let next = number + 1;
        let at = next.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.frames.get(at)) {
            Some((number, frame)) => NextFrame::Frame(*number, frame.clone()),
            None => NextFrame::Overtaken,
        }
    }

    /// The number of the frame with this identifier, if what follows it is still kept.
    pub(super) fn position_of(&self, id: &str) -> Option<u64> {
        let (run, number) = id.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        let is_ours = u64::from_str_radix(run, 16).ok()? == self.run && number <= self.last;
        (is_ours && self.after(number) != NextFrame::Overtaken).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_form_of_server_sent_events() {
        let mut ring = FrameRing::new(0xa1);
        assert_eq!(ring.push("delta", "{}"), 1);
        // WHATWG HTML §9.2.5: fields by line, an empty line ends an event.
        let frame = Bytes::from_static(b"id: a1-1\nevent: delta\ndata: {}\n\n");
        assert_eq!(ring.after(0), NextFrame::Frame(1, frame));
        assert_eq!(ring.after(1), NextFrame::NotYet);
        assert_eq!(ring.after(9), NextFrame::NotYet);
    }

    #[test]
    fn the_oldest_give_way_by_number_and_by_size() {
        let mut ring = FrameRing::new(1);
        for _ in 0..FRAMES_MAX + 10 {
            ring.push("delta", "{}");
        }
        assert_eq!(ring.frames.len(), FRAMES_MAX);
        assert_eq!(ring.after(9), NextFrame::Overtaken);
        assert!(matches!(ring.after(10), NextFrame::Frame(11, _)));
        let large = "x".repeat(OCTETS_MAX / 2);
        for _ in 0..5 {
            ring.push("delta", &large);
        }
        assert!(ring.octets <= OCTETS_MAX && ring.frames.len() == 1, "{}", ring.frames.len());
        let huge = "x".repeat(2 * OCTETS_MAX);
        let last = ring.push("delta", &huge);
        assert!(matches!(ring.after(last - 1), NextFrame::Frame(..)), "the last one is kept");
    }

    #[test]
    fn only_what_is_kept_is_gone_on_from() {
        let mut ring = FrameRing::new(0xff);
        for _ in 0..FRAMES_MAX + 3 {
            ring.push("delta", "{}");
        }
        let last = ring.last();
        for (id, position) in [
            (format!("ff-{last}"), Some(last)),
            ("ff-3".to_owned(), Some(3)),
            ("ff-2".to_owned(), None),
            (format!("ff-{}", last + 1), None),
            (format!("fe-{last}"), None),
            ("ff".to_owned(), None),
            ("-".to_owned(), None),
            ("ff-18446744073709551616".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(ring.position_of(&id), position, "{id}");
        }
        ring.clear();
        assert_eq!(ring.position_of(&format!("ff-{last}")), None);
        assert_eq!(ring.push("delta", "{}"), last + 2);
    }
}

//! One direction of a relayed connection: octets from one end to the other, then its end.

use std::{
    io::{self, ErrorKind, Read, Write},
    time::{Duration, Instant},
};

/// Maximum octets queued in one direction.
pub(super) const BUFFER_LEN: usize = 16 * 1024;

/// Maximum reads at one time, so that no connection delays the others.
const ROUNDS_MAX: usize = 16;

/// Octets on their way in one direction. It reads and writes until one end would block. It neither
/// opens nor closes anything: its owner does.
#[derive(Debug)]
pub(super) struct Pipe {
    octets: Box<[u8]>,
    start: usize,
    end: usize,
    /// When the first of the queued octets was read.
    since: Option<Instant>,
    /// Octets read since then.
    taken: u64,
    /// The source has sent its end.
    ended: bool,
    /// The owner was told to pass the end on to the sink.
    finished: bool,
}

/// Octets that have passed: everything that was queued is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stay {
    /// From reading the first of them to writing the last.
    pub(super) time: Duration,
    /// How many there were.
    pub(super) octets: u64,
}

/// The result of an attempt to carry octets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Carried {
    /// Octets written to the sink.
    pub(super) octets: usize,
    /// Everything is written and the source has ended: the owner passes the end on, now and only
    /// once.
    pub(super) finish: bool,
    /// Neither end would block: there is more to do at once.
    pub(super) more: bool,
    /// Whether anything happened.
    pub(super) moved: bool,
}

impl Pipe {
    pub(super) fn new() -> Self {
        let octets = vec![0; BUFFER_LEN].into_boxed_slice();
        Self { octets, start: 0, end: 0, since: None, taken: 0, ended: false, finished: false }
    }

    /// Whether its end has been passed on.
    pub(super) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Carries octets as far as possible without waiting. Calls `passed` for octets that have
    /// passed, by the clock `now`.
    pub(super) fn carry(
        &mut self,
        from: &mut impl Read,
        to: &mut impl Write,
        now: impl Fn() -> Instant,
        mut passed: impl FnMut(Stay),
    ) -> io::Result<Carried> {
        let mut carried = Carried::default();
        for _ in 0..ROUNDS_MAX {
            let written = self.write(to)?;
            carried.octets += written;
            if let Some(since) = self.since.take_if(|_| self.start == self.end) {
                let octets = std::mem::take(&mut self.taken);
                passed(Stay { time: now().saturating_duration_since(since), octets });
            }
            let read = self.read(from, &now)?;
            carried.moved |= written > 0 || read;
            if !read {
                // What was there is written, or the sink would block.
                carried.finish = self.ended && self.start == self.end && !self.finished;
                self.finished |= carried.finish;
                return Ok(carried);
            }
        }
        carried.more = true;
        Ok(carried)
    }

    /// Writes queued octets, as far as the sink takes them.
    fn write(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let before = self.start;
        while let Some(waiting @ [_, ..]) = self.octets.get(self.start..self.end) {
            match to.write(waiting) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.start += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let written = self.start - before;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(written)
    }

    /// Reads once, if there is room; returns whether anything came, the end included.
    fn read(&mut self, from: &mut impl Read, now: impl Fn() -> Instant) -> io::Result<bool> {
        let Some(room @ [_, ..]) = self.octets.get_mut(self.end..) else { return Ok(false) };
        if self.ended {
            return Ok(false);
        }
        loop {
            return match from.read(room) {
                Ok(0) => {
                    self.ended = true;
                    Ok(true)
                }
                Ok(len) => {
                    self.end += len;
                    self.taken = self.taken.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
                    self.since.get_or_insert_with(&now);
                    Ok(true)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{cell::Cell, collections::VecDeque};

    /// An end that gives its octets in pieces, and would block between them.
    struct Source(VecDeque<Option<Vec<u8>>>);

    impl Read for Source {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                None => Ok(0),
                Some(None) => Err(ErrorKind::WouldBlock.into()),
                Some(Some(mut piece)) => {
                    let len = piece.len().min(into.len());
                    into[..len].copy_from_slice(&piece[..len]);
                    let rest = piece.split_off(len);
                    if !rest.is_empty() {
                        self.0.push_front(Some(rest));
                    }
                    Ok(len)
                }
            }
        }
    }

    /// An end that takes so many octets at a time, and would block at a zero.
    struct Sink(VecDeque<usize>, Vec<u8>);

    impl Write for Sink {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let len = match self.0.pop_front() {
                Some(0) => return Err(ErrorKind::WouldBlock.into()),
                Some(most) => most.min(octets.len()),
                None => octets.len(),
            };
            self.1.extend(&octets[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        /// However the octets come and are taken: they arrive whole and in order, then the end, once.
        #[test]
        fn what_comes_in_goes_out(
            pieces in prop::collection::vec(
                prop::option::of(prop::collection::vec(any::<u8>(), 1..40_000)), 0..12),
            takes in prop::collection::vec(0_usize..30_000, 0..40),
        ) {
            let expected = pieces.iter().flatten().flatten().copied().collect::<Vec<_>>();
            let (mut source, mut sink) =
                (Source(pieces.into()), Sink(takes.into(), Vec::new()));
            let mut pipe = Pipe::new();
            let (mut octets, mut ends) = (0, 0);
            let (start, time, mut stays) = (Instant::now(), Cell::new(0_u64), Vec::new());
            for _ in 0..1000 {
                let clock = || start + Duration::from_millis(time.replace(time.get() + 1));
                let carried = pipe.carry(&mut source, &mut sink, clock, |stay| stays.push(stay));
                let carried = carried.unwrap();
                octets += carried.octets;
                ends += u32::from(carried.finish);
                prop_assert!(!carried.finish || sink.1.len() == expected.len());
            }
            prop_assert_eq!(&sink.1, &expected);
            prop_assert_eq!((octets, ends, pipe.is_finished()), (expected.len(), 1, true));
            // The clock is read when octets arrive in an empty pipe, and when it is empty again.
            prop_assert!(stays.iter().all(|stay| stay.time == Duration::from_millis(1)));
            let passed: u64 = stays.iter().map(|stay| stay.octets).sum();
            prop_assert_eq!(passed, expected.len() as u64);
        }
    }

    #[test]
    fn an_error_of_either_end_is_told() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(ErrorKind::ConnectionReset.into())
            }
        }
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sink = Sink(VecDeque::new(), Vec::new());
        let error = Pipe::new().carry(&mut Broken, &mut sink, Instant::now, |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let mut source = Source([Some(vec![1])].into());
        let error = Pipe::new().carry(&mut source, &mut Broken, Instant::now, |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}

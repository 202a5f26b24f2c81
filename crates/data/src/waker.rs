//! Wakes a sleeping worker: flags in the region, and a descriptor to sleep on.

use gatewright_stack::Wake;
use gatewright_tables::WakeFlags;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        time::TimeSpec,
    },
    unistd,
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// Wakes a worker, from any thread, and from any process that has both of its parts.
///
/// The parts are the worker's flags in the region and its eventfd. Clones wake the same worker.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
    flags: WakeFlags,
}

impl Waker {
    /// A waker with an eventfd of its own.
    pub(crate) fn new(flags: WakeFlags) -> nix::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self::attach(event.into(), flags))
    }

    /// The waker of a worker of another process, of which `event` is the eventfd.
    pub fn attach(event: OwnedFd, flags: WakeFlags) -> Self {
        Self { event: Arc::new(event), flags }
    }

    /// The eventfd, to be passed to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The flags.
    pub const fn flags(&self) -> &WakeFlags {
        &self.flags
    }

    /// Wakes a sleeping worker to look at messages from other workers.
    pub(crate) fn rouse(&self) {
        self.signal(self.flags.rouse());
    }

    /// Ends the worker's loop.
    pub fn stop(&self) {
        self.signal(self.flags.stop());
    }

    fn signal(&self, sleeps: bool) {
        if sleeps {
            // The counter can only be full if wake-ups wait already, which is as good.
            let _full = unistd::write(&*self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sets the worker's flag before it looks for work a last time and sleeps on the descriptor.
    pub fn fall_asleep(&self) {
        self.flags.fall_asleep();
    }

    /// Clears the worker's flag, and the eventfd if it is or will be readable: `is_readable` says
    /// what a wait has found.
    pub fn wake_up(&self, is_readable: bool) {
        // Somebody may have found it asleep since: then the event is, or will soon be, there.
        let was_woken = !self.flags.wake_up();
        if is_readable || was_woken {
            let mut count = [0; size_of::<u64>()];
            // One that comes later wakes the worker once for nothing.
            let _not_yet = unistd::read(&*self.event, &mut count);
        }
    }
}

impl Waker {
    /// Sleeps until somebody wakes it, or for `patience`; not at all if there is work, which
    /// `has_work` looks for once the flag is set.
    pub(crate) fn sleep(&self, patience: Duration, has_work: impl FnOnce() -> bool) {
        self.fall_asleep();
        // A call that came while it was awake is seen by whoever looks for work.
        let _called = self.flags.take_call();
        if has_work() || self.flags.is_stopped() {
            self.wake_up(false);
            return;
        }
        let mut fds = [PollFd::new(self.descriptor(), PollFlags::POLLIN)];
        // An error is a signal, and a signal is a reason to look again.
        let _interrupted = ppoll(&mut fds, Some(TimeSpec::from_duration(patience)), None);
        self.wake_up(fds.iter().any(|fd| fd.any().unwrap_or(false)));
    }
}

impl Wake for Waker {
    fn wake(&self) {
        self.signal(self.flags.call());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollTimeout, poll};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Sleeps until there is work; fails if that takes longer than any scheduler.
    fn sleep(waker: &Waker, has_work: impl Fn() -> bool) {
        waker.fall_asleep();
        if has_work() {
            waker.wake_up(false);
            return;
        }
        let mut fds = [PollFd::new(waker.descriptor(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(60_000_u16)).unwrap();
        assert_eq!(ready, 1, "a wake-up was lost");
        waker.wake_up(true);
    }

    /// Two threads hand a number to and fro, each asleep while it has nothing to do. A lost wake-up
    /// leaves both asleep.
    #[test]
    fn no_wake_up_is_lost_between_two_that_sleep() {
        const ROUNDS: u64 = 100_000;
        let wakers = [(); 2].map(|()| Waker::new(WakeFlags::default()).unwrap());
        let turn = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for own in 0..2_u64 {
                let (wakers, turn) = (&wakers, &turn);
                scope.spawn(move || {
                    let [mine, other] =
                        if own == 0 { [&wakers[0], &wakers[1]] } else { [&wakers[1], &wakers[0]] };
                    loop {
                        let now = turn.load(Ordering::Acquire);
                        if now >= ROUNDS {
                            return;
                        }
                        if now % 2 != own {
                            sleep(mine, || turn.load(Ordering::Acquire) != now);
                            continue;
                        }
                        turn.store(now + 1, Ordering::Release);
                        // By turns as other workers do, and as the control side does.
                        if now % 4 < 2 {
                            other.rouse();
                        } else {
                            other.wake();
                        }
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::Relaxed), ROUNDS);
    }

    /// Several call one worker, which sees each call, or a later one.
    #[test]
    fn a_worker_sees_each_call_of_several() {
        const CALLS: u64 = 30_000;
        let waker = Waker::new(WakeFlags::default()).unwrap();
        let (made, mut seen) = ([AtomicU64::new(0), AtomicU64::new(0)], 0);
        std::thread::scope(|scope| {
            for count in &made {
                let waker = waker.clone();
                scope.spawn(move || {
                    for _ in 0..CALLS {
                        count.fetch_add(1, Ordering::Release);
                        waker.wake();
                    }
                });
            }
            let sum = || made.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>();
            while seen < 2 * CALLS {
                sleep(&waker, || waker.flags().is_called());
                assert!(waker.flags().take_call() || sum() == seen, "woken without a call");
                seen = sum();
            }
        });
        assert!(!waker.flags().is_stopped());
    }
}

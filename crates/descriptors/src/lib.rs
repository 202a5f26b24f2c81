//! Budget of file descriptors: the parts of a process claim them, and its soft limit is raised to
//! their sum.
//!
//! A process may have as many descriptors as its soft limit allows, mostly 1,024, and may raise
//! that itself up to the hard limit. Each part that serves connections makes a [`Claim`] for its
//! maximum; the limit is raised to the sum of all claims. If the hard limit is too low, a
//! [`Shortage`] reports it, with the numbers that an operator needs.
//!
//! The last descriptors are not for connections of peers ([`is_among_last`]): a flood of those leaves
//! the control socket usable, and files and outgoing requests possible.
//!
//! [`clock_is_set`] says whether the wall clock can be believed.
#![forbid(unsafe_code)]

mod clock;

pub use clock::clock_is_set;

use core::fmt;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Descriptors that belong to no connection: listeners, loops, the database, logs.
const BESIDE: u64 = 128;

/// Descriptors that no connection of a peer takes, unless the limit is below four times as many.
const LAST: u64 = 32;

/// Maximum of one claim: no kernel gives a process more (Linux, `sysctl_nr_open_max`).
const COUNT_MAX: u64 = 1 << 31;

/// The sum of all claims of this process. It is locked while the limit is raised, so that of two
/// claims at once neither lowers the other's limit.
static CLAIMED: Mutex<u64> = Mutex::new(0);

/// Descriptors that a part claims until this is dropped.
#[derive(Debug)]
pub struct Claim {
    count: u64,
    shortage: Option<Shortage>,
}

/// The limit of this process is below the claims of its parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shortage {
    /// Descriptors needed by all parts, and a few more.
    pub needed: u64,
    /// Descriptors allowed.
    pub allowed: u64,
}

/// `10128 descriptors are needed and 4096 allowed (`ulimit -Hn`)`.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, allowed } = self;
        write!(f, "{needed} descriptors are needed and {allowed} allowed (`ulimit -Hn`)")
    }
}

impl Claim {
    /// Claims so many more descriptors, and raises the soft limit as far as all claims need and the
    /// hard limit allows.
    pub fn new(count: u64) -> Self {
        let count = count.min(COUNT_MAX);
        let mut claimed = claimed();
        *claimed = claimed.saturating_add(count);
        let shortage = raise(claimed.saturating_add(BESIDE));
        drop(claimed);
        Self { count, shortage }
    }

    /// The shortage when the claim was made.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = claimed();
        *claimed = claimed.saturating_sub(self.count);
    }
}

/// Raises the soft limit to `needed`, which a process cannot do without.
///
/// # Errors
///
/// [`Shortage`] if the hard limit is lower; the soft limit is as before then.
pub fn require(needed: u64) -> Result<(), Shortage> {
    // Held, so that the limit that a claim sets meanwhile is not lowered.
    let claimed = claimed();
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let refused = soft < needed
        && (hard < needed || setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_err());
    drop(claimed);
    if refused { Err(Shortage { needed, allowed: hard.min(needed) }) } else { Ok(()) }
}

/// Whether a descriptor is one of the last that the process may have: a connection of a peer is then
/// to be closed at once.
///
/// The system gives the lowest number that is free (accept(2)), so with one of the last all others
/// are taken. They are a quarter of the limit, and 32 at the most.
pub fn is_among_last(connection: impl AsFd) -> bool {
    let number = u64::try_from(connection.as_fd().as_raw_fd()).unwrap_or_default();
    // A system without this limit has no last one.
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| number >= soft - LAST.min(soft / 4))
}

/// Whether a call failed because the process, or the system, has no descriptor left.
pub fn are_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}

/// A poisoned lock is safe here: the number is always whole.
fn claimed() -> MutexGuard<'static, u64> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises the soft limit to `needed` or to the hard limit.
///
/// Only descriptors matter here, not the number of mappings (`vm.max_map_count`): pending octets
/// lie on the heap and none is mapped.
fn raise(needed: u64) -> Option<Shortage> {
    // A system without this limit has none that could be too small.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if soft >= needed {
        return None;
    }
    let wanted = needed.min(hard);
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok();
    let allowed = if raised { wanted } else { soft };
    (allowed < needed).then_some(Shortage { needed, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as the limit is the whole process's.
    #[test]
    fn the_limit_follows_the_sum_of_all_claims_as_far_as_the_system_allows() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 256.min(hard), hard).unwrap();
        let small = Claim::new(1);
        assert_eq!(small.shortage(), None);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, 256.min(hard));
        what_is_required_is_had_or_refused(256.min(hard), hard);
        let (first, second) = (Claim::new(300), Claim::new(400));
        if hard >= 1 + 300 + 400 + BESIDE {
            assert_eq!((first.shortage(), second.shortage()), (None, None));
            assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, 1 + 300 + 400 + BESIDE);
        }
        drop((first, second));
        assert_eq!(*claimed(), 1);
        let told = Claim::new(u64::MAX).shortage().unwrap();
        assert_eq!(told, Shortage { needed: COUNT_MAX + 1 + BESIDE, allowed: hard });
        assert!(told.to_string().contains("2147483777 descriptors are needed"), "{told}");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
        the_last_descriptors_are_for_no_connection(hard);
    }

    fn what_is_required_is_had_or_refused(soft: u64, hard: u64) {
        assert_eq!(require(3), Ok(()));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (soft, hard), "never lowered");
        let more = (soft + 1).min(hard);
        assert_eq!(require(more), Ok(()));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (more, hard));
        if let Some(needed) = hard.checked_add(1) {
            assert_eq!(require(needed), Err(Shortage { needed, allowed: hard }));
        }
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (more, hard));
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    }

    fn the_last_descriptors_are_for_no_connection(hard: u64) {
        let (limit, last) = (128.min(hard), LAST.min(128.min(hard) / 4));
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let mut taken = Vec::new();
        let mut seen_last = 0;
        while let Ok(file) = std::fs::File::open("/dev/null") {
            seen_last += u64::from(is_among_last(&file));
            taken.push(file);
        }
        // No other test of this crate opens files meanwhile.
        assert_eq!(seen_last, last);
        drop(taken);
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    }
}

//! The wait for the last probes of a repetition.

/// Turns of the waiting thread without an arrival after which the rest is lost, and turns in all.
const QUIET_TURNS: u32 = 200;
const TURNS_MAX: u32 = 2000;

/// The wait for probes that are on their way when the last one has been sent.
///
/// It counts its own turns on the processor, and no time: where others use the processors, the relay's
/// threads and the receiver's wait for turns as this one does. By the clock, probes that wait for a
/// processor longer than usual would count as lost.
#[derive(Debug)]
pub(crate) struct LastProbes {
    missing: u64,
    quiet: u32,
    turns: u32,
}

impl LastProbes {
    /// The wait for `count` probes.
    pub(crate) fn of(count: u32) -> Self {
        Self { missing: u64::from(count), quiet: 0, turns: 0 }
    }

    /// Whether more of `count` may arrive when so many have.
    pub(crate) fn may_arrive(&mut self, arrived: u64, count: u32) -> bool {
        let missing = u64::from(count).saturating_sub(arrived);
        self.quiet = if missing < self.missing { 0 } else { self.quiet + 1 };
        self.missing = missing;
        self.turns += 1;
        missing > 0 && self.quiet < QUIET_TURNS && self.turns < TURNS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More turns than any wait may take.
    const MANY: u64 = 1_000_000;

    fn waiting(count: u32) -> LastProbes {
        LastProbes::of(count)
    }

    #[test]
    fn the_wait_ends_when_all_have_arrived_or_nothing_comes_any_more() {
        let mut last = waiting(50);
        assert!(last.may_arrive(49, 50) && !last.may_arrive(50, 50));
        let mut last = waiting(50);
        let turns = (0..MANY).take_while(|_| last.may_arrive(3, 50)).count();
        // The first turn has three arrivals.
        assert_eq!(turns, usize::try_from(QUIET_TURNS).unwrap());
    }

    #[test]
    fn arrivals_make_it_go_on_but_not_for_ever() {
        let mut last = waiting(50);
        // A processor for one probe, every hundredth turn: 47 of them would be lost by the clock.
        let turns = (0..MANY).take_while(|turn| last.may_arrive(3 + turn / 100, 50)).count();
        assert_eq!(turns, usize::try_from(TURNS_MAX).unwrap() - 1);
        let mut last = waiting(20);
        let turns = (0..MANY).take_while(|turn| last.may_arrive(turn / 50, 20)).count();
        assert_eq!(turns, 20 * 50, "all have arrived");
    }
}

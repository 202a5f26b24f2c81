//! Reachability of a relay, as the flows that go to it show it: pure, with the time as an argument.
//!
//! A relay that does not answer has no flow that keeps it busy, so its delay model calls it idle and
//! would attract all flows. It is therefore left out for a while, and then one flow tries it again.
//! Each failed trial doubles the while.

use crate::{PathPolicy, relay_paths};
use std::{ops::Add, time::Duration};

/// How long a relay is left out after the first failure.
pub const LEFT_OUT_MIN: Duration = Duration::from_secs(1);

/// The longest time for which a relay is left out.
pub const LEFT_OUT_MAX: Duration = Duration::from_mins(1);

/// Whether a relay can be reached, and its failures; `Time` is a moment of the caller's clock.
#[derive(Clone, Copy, Debug)]
pub struct Reachability<Time> {
    state: ReachabilityState<Time>,
    unreachable: u64,
}

#[derive(Clone, Copy, Debug)]
enum ReachabilityState<Time> {
    Reachable,
    LeftOut {
        until: Time,
        back_off: Duration,
    },
    /// One flow tries the relay, whose time has passed.
    Tried {
        until: Time,
        back_off: Duration,
    },
}

impl<Time> Default for Reachability<Time> {
    fn default() -> Self {
        Self { state: ReachabilityState::Reachable, unreachable: 0 }
    }
}

impl<Time: Copy + PartialOrd + Add<Duration, Output = Time>> Reachability<Time> {
    /// Whether a flow may go to the relay.
    pub fn takes_flows(&self, now: Time) -> bool {
        match self.state {
            ReachabilityState::Reachable => true,
            ReachabilityState::LeftOut { until, .. } => until <= now,
            ReachabilityState::Tried { .. } => false,
        }
    }

    /// Whether the relay is left out, or is tried for the first time since.
    pub const fn is_left_out(&self) -> bool {
        !matches!(self.state, ReachabilityState::Reachable)
    }

    /// The end of the time for which the relay is left out; `None` while a flow tries it, too.
    pub const fn left_out_until(&self) -> Option<Time> {
        match self.state {
            ReachabilityState::LeftOut { until, .. } => Some(until),
            ReachabilityState::Reachable | ReachabilityState::Tried { .. } => None,
        }
    }

    /// Failures to reach the relay.
    pub const fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// Sends a flow to the relay; returns whether it is the one that tries it again.
    pub fn choose(&mut self, now: Time) -> bool {
        match self.state {
            ReachabilityState::LeftOut { until, back_off } if until <= now => {
                self.state = ReachabilityState::Tried { until, back_off };
                true
            }
            _ => false,
        }
    }

    /// Records that the relay was reached; returns whether it was left out before.
    pub const fn accepted(&mut self) -> bool {
        let was_left_out = self.is_left_out();
        self.state = ReachabilityState::Reachable;
        was_left_out
    }

    /// Records a failure to reach the relay; returns whether it is left out from now on.
    ///
    /// While it is left out, only the flow that tries it again (`is_trial`) prolongs that: several
    /// flows that began before fail together, and are one failure.
    pub fn failed(&mut self, now: Time, is_trial: bool) -> bool {
        self.unreachable += 1;
        let back_off = match self.state {
            ReachabilityState::Reachable => LEFT_OUT_MIN,
            ReachabilityState::Tried { back_off, .. } if is_trial => {
                LEFT_OUT_MAX.min(back_off.saturating_mul(2))
            }
            _ => return false,
        };
        let was_reachable = !self.is_left_out();
        self.state = ReachabilityState::LeftOut { until: now + back_off, back_off };
        was_reachable
    }

    /// Ends the trial before the relay answered: the next flow tries it.
    pub const fn abandon_trial(&mut self) {
        if let ReachabilityState::Tried { until, back_off } = self.state {
            self.state = ReachabilityState::LeftOut { until, back_off };
        }
    }
}

/// The paths of one relay each that a flow may take now, as [`relay_paths`] of the relays that are
/// not left out. Those in `tried` are none.
pub fn reachable_paths<'a, Time>(
    policy: PathPolicy,
    relays: impl IntoIterator<Item = (u8, &'a Reachability<Time>)>,
    tried: &[usize],
    now: Time,
) -> Vec<Vec<usize>>
where
    Time: Copy + PartialOrd + Add<Duration, Output = Time> + 'a,
{
    let all = relays.into_iter().enumerate().filter(|(at, _)| !tried.contains(at));
    let (takes, left_out): (Vec<_>, Vec<_>) = all.partition(|(_, (_, it))| it.takes_flows(now));
    // Where all are left out, one that may be back is better than a certain refusal.
    let these = if takes.is_empty() { left_out } else { takes };
    let hops: Vec<u8> = these.iter().map(|(_, (hops, _))| *hops).collect();
    let paths = relay_paths(policy, &hops).into_iter();
    let index = |at: usize| these.get(at).map(|(index, _)| *index);
    paths.map(|path| path.into_iter().filter_map(index).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_relay_is_left_out_from_one_second_to_one_minute_and_tried_by_one_flow() {
        let (mut relay, mut now) = (Reachability::default(), Instant::now());
        assert!(relay.takes_flows(now) && !relay.choose(now));
        assert!(relay.failed(now, false));
        // Others that began before fail together with it.
        assert!(!relay.failed(now, false));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let end = now + Duration::from_secs(seconds);
            assert!(!relay.takes_flows(end.checked_sub(Duration::from_millis(1)).unwrap()));
            now = end;
            assert!(relay.takes_flows(now) && relay.choose(now), "{seconds}");
            assert!(!relay.takes_flows(now + LEFT_OUT_MAX), "one flow only");
            assert!(!relay.failed(now, false), "an older flow decides nothing");
            assert!(!relay.failed(now, true), "left out already");
        }
        assert_eq!((relay.is_left_out(), relay.unreachable()), (true, 18));
        now += LEFT_OUT_MAX;
        assert!(relay.choose(now) && relay.accepted() && !relay.accepted());
        // The next failure is a first one again.
        assert!(relay.failed(now, false) && relay.takes_flows(now + LEFT_OUT_MIN));
    }

    #[test]
    fn a_trial_that_ends_without_an_answer_is_another_flow_s() {
        let (mut relay, now) = (Reachability::default(), Instant::now());
        relay.failed(now, false);
        assert!(relay.choose(now + LEFT_OUT_MIN));
        assert_eq!(relay.left_out_until(), None);
        relay.abandon_trial();
        assert!(!relay.takes_flows(now) && relay.choose(now + LEFT_OUT_MIN));
    }
}

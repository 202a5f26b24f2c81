//! Reachability of a relay, as connections to it show it: pure, with the time as an argument.
//!
//! A relay that does not accept a connection has no flow that keeps it busy, so its delay model
//! calls it idle and would attract all flows. It is therefore left out for a while, and then one
//! flow tries it again. Each failed trial doubles the while.

use std::time::{Duration, Instant};

/// How long a relay is left out after the first connection that it does not accept.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_secs(1);

/// The longest time for which a relay is left out.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_mins(1);

/// Whether a relay can be reached, and the connections that it has not accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reachability {
    state: ReachabilityState,
    unreachable: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum ReachabilityState {
    #[default]
    Reachable,
    LeftOut {
        until: Instant,
        back_off: Duration,
    },
    /// One flow tries the relay, whose time has passed.
    Tried {
        until: Instant,
        back_off: Duration,
    },
}

impl Reachability {
    /// Whether a flow may go to the relay.
    pub(super) fn takes_flows(&self, now: Instant) -> bool {
        match self.state {
            ReachabilityState::Reachable => true,
            ReachabilityState::LeftOut { until, .. } => until <= now,
            ReachabilityState::Tried { .. } => false,
        }
    }

    /// Whether the relay is left out, or is tried for the first time since.
    pub(super) const fn is_left_out(&self) -> bool {
        !matches!(self.state, ReachabilityState::Reachable)
    }

    /// Connections that the relay has not accepted.
    pub(super) const fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// A flow goes to the relay; returns whether it is the one that tries it again.
    pub(super) fn choose(&mut self, now: Instant) -> bool {
        match self.state {
            ReachabilityState::LeftOut { until, back_off } if until <= now => {
                self.state = ReachabilityState::Tried { until, back_off };
                true
            }
            _ => false,
        }
    }

    /// The relay has accepted a connection; returns whether it was left out before.
    pub(super) fn accepted(&mut self) -> bool {
        let was_left_out = self.is_left_out();
        self.state = ReachabilityState::Reachable;
        was_left_out
    }

    /// The relay has not accepted a connection; returns whether it is left out from now on.
    ///
    /// While it is left out, only the flow that tries it again (`is_trial`) prolongs that: several
    /// connections that began before fail together, and are one failure.
    pub(super) fn failed(&mut self, now: Instant, is_trial: bool) -> bool {
        self.unreachable += 1;
        let back_off = match self.state {
            ReachabilityState::Reachable => BACK_OFF_MIN,
            ReachabilityState::Tried { back_off, .. } if is_trial => {
                BACK_OFF_MAX.min(back_off.saturating_mul(2))
            }
            _ => return false,
        };
        let was_reachable = !self.is_left_out();
        self.state = ReachabilityState::LeftOut { until: now + back_off, back_off };
        was_reachable
    }

    /// The flow that tries the relay ended before the relay answered: the next flow tries it.
    pub(super) fn abandon_trial(&mut self) {
        if let ReachabilityState::Tried { until, back_off } = self.state {
            self.state = ReachabilityState::LeftOut { until, back_off };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(!relay.takes_flows(now + BACK_OFF_MAX), "one flow only");
            assert!(!relay.failed(now, false), "an older flow decides nothing");
            assert!(!relay.failed(now, true), "left out already");
        }
        assert_eq!((relay.is_left_out(), relay.unreachable()), (true, 18));
        now += BACK_OFF_MAX;
        assert!(relay.choose(now) && relay.accepted() && !relay.accepted());
        // The next failure is a first one again.
        assert!(relay.failed(now, false) && relay.takes_flows(now + BACK_OFF_MIN));
    }

    #[test]
    fn a_trial_that_ends_without_an_answer_is_another_flow_s() {
        let (mut relay, now) = (Reachability::default(), Instant::now());
        relay.failed(now, false);
        assert!(relay.choose(now + BACK_OFF_MIN));
        relay.abandon_trial();
        assert!(!relay.takes_flows(now) && relay.choose(now + BACK_OFF_MIN));
    }
}

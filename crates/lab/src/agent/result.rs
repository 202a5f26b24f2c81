//! What came of a run between machines, merged; and where the machines contradict each other.

use super::clocks::ClockComparison;
use super::message::AgentSamples;
use crate::analysis::{
    DelayJitter, DelaySummary, coefficient_of_variation, jitter, quantile, sorted,
};
use crate::covariates::Covariates;
use crate::stamp::StampReflectorCounters;
use gatewright_config::{AgentExperiment, AgentSession};
use serde::{Deserialize, Serialize};

/// The result of a run between machines. Delays are in microseconds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AgentRun {
    /// Version of this form: 1.
    pub form: u32,
    /// The experiment as it was run.
    pub experiment: AgentExperiment,
    /// Version of the coordinator's program.
    pub version: String,
    /// Seconds since 1970 at the start, by the coordinator's clock.
    pub started: u64,
    /// Seconds that the run took.
    pub seconds: f64,
    /// The machines.
    pub machines: Vec<AgentMachine>,
    /// Every session under every condition.
    pub conditions: Vec<AgentCondition>,
    /// What disturbs the results, or contradicts them: agents that ended, clocks that leapt, counts
    /// that cannot be.
    pub findings: Vec<String>,
}

/// A machine of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AgentMachine {
    /// Its name.
    pub name: String,
    /// Processors, kernel and load, as its agent says.
    pub machine: String,
    /// Version of its program.
    pub version: String,
    /// Its clock beside the coordinator's, from time to time.
    pub clocks: Vec<ClockComparison>,
    /// What may have changed delays there; none if the agent ended before.
    pub covariates: Option<Covariates>,
    /// Why it took no further part, if it did not.
    pub ended: Option<String>,
}

/// A session under one condition.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AgentCondition {
    /// The session.
    pub session: AgentSession,
    /// Octets of test packets.
    pub octets: u16,
    /// Packets a second.
    pub rate: u32,
    /// Packets sent, as the sender says.
    pub sent: u32,
    /// Packets that came back.
    pub received: u32,
    /// Further reflections of the same packet.
    pub repeated: u32,
    /// Datagrams that are no reflection of the session.
    pub foreign: u32,
    /// Packets lost on the way there; none if the reflector has no agent.
    pub lost_there: Option<u32>,
    /// Packets lost on the way back; none if the reflector has no agent.
    pub lost_back: Option<u32>,
    /// Median round trip of each repetition.
    pub medians: Vec<f64>,
    /// Coefficient of variation of these, in percent.
    pub cv_pct: Option<f64>,
    /// Whether that is within the experiment's bound.
    pub steady: bool,
    /// Round trips without the time in the reflector.
    pub round_trip: Option<DelaySummary>,
    /// Differences of successive round trips (RFC 3393).
    pub jitter: Option<DelayJitter>,
    /// Delays on the way there, by clocks compared within each repetition.
    pub there: Option<DelaySummary>,
    /// Delays on the way back.
    pub back: Option<DelaySummary>,
    /// How far both may be off: half of the shortest round trip.
    pub one_way_error_us: Option<f64>,
    /// Time in the reflector.
    pub inside: Option<DelaySummary>,
}

/// One repetition of a session under a condition.
#[derive(Clone, Debug)]
pub(super) struct AgentRepetition {
    pub(super) samples: AgentSamples,
    /// The reflector's counters; none if it has no agent.
    pub(super) reflected: Option<StampReflectorCounters>,
}

impl AgentRepetition {
    fn round_trips(&self) -> Vec<f64> {
        self.samples.samples.iter().map(|(there, _, back)| there + back).collect()
    }

    /// The reflector's clock minus the sender's by the exchange with the shortest round trip, and half
    /// of that.
    pub(super) fn offset(&self) -> Option<(f64, f64)> {
        let samples = self.samples.samples.iter();
        let shortest = samples.min_by(|one, other| (one.0 + one.2).total_cmp(&(other.0 + other.2)));
        shortest.map(|(there, _, back)| ((there - back) / 2.0, f64::midpoint(*there, *back)))
    }

    fn lost_there(&self) -> Option<u32> {
        Some(self.samples.sent.saturating_sub(arrived(&self.reflected?)))
    }

    fn lost_back(&self) -> Option<u32> {
        Some(arrived(&self.reflected?).saturating_sub(received(&self.samples)))
    }

    /// Counts of both machines that cannot be, in words; `wanted` packets were asked for.
    pub(super) fn contradictions(&self, session: &AgentSession, wanted: u32) -> Vec<String> {
        let (from, to) = (&session.from, session.to.as_deref().unwrap_or("the reflector"));
        let AgentSamples { sent, reached, .. } = self.samples;
        let received = received(&self.samples);
        let mut found = Vec::new();
        let mut say = |is_so: bool, text: String| {
            if is_so {
                found.push(text);
            }
        };
        say(
            sent != wanted,
            format!("{from} was asked for {wanted} packets and says it sent {sent}"),
        );
        say(received > sent, format!("{from} says it sent {sent} packets and has {received} back"));
        if let Some(counters) = &self.reflected {
            let reflected = arrived(counters);
            say(
                reflected > sent,
                format!("{from} says it sent {sent} packets, {to} that it reflected {reflected}"),
            );
            say(
                reflected < received.max(reached),
                format!(
                    "{to} says it reflected {reflected} packets; {from} has {received} back, with \
                     numbers up to {reached}"
                ),
            );
        }
        let backwards = self.samples.samples.iter().filter(|it| it.0 + it.2 < 0.0).count();
        say(
            backwards > 0,
            format!(
                "{backwards} packets were back at {from} before {to} had let them go: a clock leapt, \
                 or times are not true"
            ),
        );
        found
    }
}

fn received(samples: &AgentSamples) -> u32 {
    u32::try_from(samples.samples.len()).unwrap_or(u32::MAX)
}

fn arrived(counters: &StampReflectorCounters) -> u32 {
    u32::try_from(counters.reflected.saturating_add(counters.not_sent)).unwrap_or(u32::MAX)
}

impl AgentCondition {
    /// Of all repetitions.
    pub(super) fn of(
        session: &AgentSession,
        (octets, rate): (u16, u32),
        repetitions: &[AgentRepetition],
        steady_pct: f64,
    ) -> Self {
        let sum = |count: &dyn Fn(&AgentRepetition) -> u32| repetitions.iter().map(count).sum();
        let all = |count: &dyn Fn(&AgentRepetition) -> Option<u32>| {
            repetitions.iter().map(count).try_fold(0, |sum, it| Some(sum + it?))
        };
        let trips: Vec<Vec<f64>> = repetitions.iter().map(AgentRepetition::round_trips).collect();
        let medians: Vec<f64> =
            trips.iter().filter_map(|trips| quantile(&sorted(trips), 0.5)).collect();
        let cv_pct = coefficient_of_variation(&medians).map(|cv| cv * 100.0);
        let (mut there, mut back, mut inside) = (Vec::new(), Vec::new(), Vec::new());
        let mut error = None;
        for repetition in repetitions {
            let Some((offset, its)) = repetition.offset() else { continue };
            error = Some(f64::max(error.unwrap_or(0.0), its));
            for sample in &repetition.samples.samples {
                there.push(sample.0 - offset);
                inside.push(sample.1);
                back.push(sample.2 + offset);
            }
        }
        let trips = trips.concat();
        let has_any = !repetitions.is_empty();
        Self {
            session: session.clone(),
            octets,
            rate,
            sent: sum(&|it| it.samples.sent),
            received: sum(&|it| received(&it.samples)),
            repeated: sum(&|it| it.samples.repeated),
            foreign: sum(&|it| it.samples.foreign),
            lost_there: all(&AgentRepetition::lost_there).filter(|_| has_any),
            lost_back: all(&AgentRepetition::lost_back).filter(|_| has_any),
            steady: cv_pct.is_some_and(|cv| cv <= steady_pct),
            cv_pct,
            medians,
            round_trip: DelaySummary::of(&trips),
            jitter: jitter(&[&trips]),
            there: DelaySummary::of(&there),
            back: DelaySummary::of(&back),
            one_way_error_us: error,
            inside: DelaySummary::of(&inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> AgentSession {
        let (from, to) = ("left".to_owned(), Some("right".to_owned()));
        AgentSession { from, to, reflector: None, through: Vec::new() }
    }

    fn repetition(sent: u32, reflected: u64, reached: u32, back: usize) -> AgentRepetition {
        let samples = AgentSamples {
            sent,
            reached,
            samples: vec![(1_010.0, 1.0, -980.0); back],
            ..AgentSamples::default()
        };
        let reflected = StampReflectorCounters { reflected, ..StampReflectorCounters::default() };
        AgentRepetition { samples, reflected: Some(reflected) }
    }

    #[test]
    fn machines_that_contradict_each_other_are_named() {
        let found = |it: AgentRepetition| it.contradictions(&session(), 100).concat();
        // 100 sent, 2 lost there, 3 lost back: the numbers of those that came back end anywhere.
        assert_eq!(found(repetition(100, 98, 97, 95)), "");
        for (it, wanted) in [
            (repetition(90, 90, 90, 90), "left was asked for 100 packets and says it sent 90"),
            (repetition(100, 101, 100, 100), "right that it reflected 101"),
            (repetition(100, 94, 94, 95), "right says it reflected 94 packets"),
            (repetition(100, 94, 99, 94), "numbers up to 99"),
            (repetition(100, 200, 100, 101), "has 101 back"),
        ] {
            let text = found(it);
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let mut leapt = repetition(100, 100, 100, 100);
        leapt.samples.samples[7] = (1_010.0, 1.0, -5_000.0);
        assert!(found(leapt).contains("1 packets were back"));
    }

    /// By hand: a clock that is 995 µs ahead, 15 µs each way.
    #[test]
    fn ways_are_told_apart_within_the_bound() {
        let all = [repetition(100, 98, 97, 95), repetition(100, 100, 100, 100)];
        let it = AgentCondition::of(&session(), (200, 50), &all, 5.0);
        assert_eq!(
            (it.sent, it.received, it.lost_there, it.lost_back),
            (200, 195, Some(2), Some(3))
        );
        assert_eq!(
            (it.medians.as_slice(), it.cv_pct, it.steady),
            (&[30.0, 30.0][..], Some(0.0), true)
        );
        assert_eq!((it.there.unwrap().p50, it.back.unwrap().p50), (15.0, 15.0));
        assert_eq!(it.one_way_error_us, Some(15.0));
        let none = AgentCondition::of(&session(), (200, 50), &[], 5.0);
        assert_eq!((none.sent, none.lost_there, none.steady), (0, None, false));
    }
}

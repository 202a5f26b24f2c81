//! What a run will do, and how long it takes.

use crate::line::WIRE_OCTETS;
use crate::probe::PROBES_MAX;
use crate::processor::{FrequencyBound, KeptAwake};
use crate::relay;
use crate::report::counted;
use crate::result::LeftOut;
use gatewright_config::{Centre, Experiment, RelayKind};
use gatewright_testbed::Needs;
use serde::Serialize;
use std::time::Duration;

/// Probes at the front of each repetition that no result has: caches and neighbours are cold.
pub(crate) const COLD_PROBES: u32 = 5;
/// Probes of a repetition at the least.
const PROBES_MIN: u32 = 20;
/// Time of a repetition beside its probes: the lead, and waiting for the last ones.
const AROUND: Duration = Duration::from_millis(60);
/// Time to start a relay, its receiver and its stamps, and to warm them up.
const START: Duration = Duration::from_millis(500);
/// Time to build the hosts and to summarise.
const BUILD: Duration = Duration::from_secs(3);
/// Pairs of repetitions that measure the observer's cost.
pub(crate) const OBSERVER_PAIRS: usize = 5;
/// The shortest repetition that [`fit`] makes, in seconds.
const SECONDS_MIN: f64 = 0.1;

/// What a run will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabPlan {
    /// Relays that can be measured here.
    pub relays: Vec<RelayKind>,
    /// What cannot, and why.
    pub left_out: Vec<LeftOut>,
    /// What will disturb the run.
    pub warnings: Vec<String>,
    /// Conditions of each relay.
    pub conditions: usize,
    /// Repetitions of all, without those for unsteady conditions.
    pub repetitions: usize,
    /// Probes of all these.
    pub probes: u64,
    /// Seconds that they take.
    pub seconds: f64,
    /// Seconds at the most, if no condition is steady.
    pub seconds_max: f64,
    /// Whether hosts are network namespaces.
    pub namespaces: bool,
}

/// The plan of an experiment on this machine. Without namespaces, what can be done on loopback.
pub fn plan(experiment: &Experiment) -> LabPlan {
    plan_with(experiment, Needs::new().namespaces().linux(6, 6).missing().map(|it| it.to_string()))
}

/// The plan where `missing` keeps hosts from being namespaces.
pub(crate) fn plan_with(experiment: &Experiment, missing: Option<String>) -> LabPlan {
    let namespaces = missing.is_none();
    let mut left_out = Vec::new();
    if let Some(why) = missing {
        let (what, why) = ("hosts as network namespaces".to_owned(), format!("needs {why}"));
        left_out.push(LeftOut { what, why });
        if experiment.link.is_some() {
            let why = "loopback has no links".to_owned();
            left_out.push(LeftOut { what: "links of a given shape".to_owned(), why });
        }
        if experiment.node.relays > 1 {
            let why = "loopback has one relay".to_owned();
            left_out.push(LeftOut { what: "relays in line".to_owned(), why });
        }
    }
    let mut relays = Vec::new();
    for &kind in &experiment.relays {
        match relay::unavailable(kind, experiment, namespaces) {
            None if !relays.contains(&kind) => relays.push(kind),
            None => {}
            Some(why) => left_out.push(LeftOut { what: format!("relay {}", kind.name()), why }),
        }
    }
    let (conditions, impossible) = possible_conditions(experiment, namespaces);
    left_out.extend(impossible);
    let round = |rounds: u32| {
        let of_relay: Duration =
            conditions.iter().map(|it| duration(experiment, *it) + AROUND).sum::<Duration>()
                + START;
        of_relay * rounds * u32::try_from(relays.len()).unwrap_or(u32::MAX)
    };
    let observer =
        if namespaces { duration(experiment, experiment.centre) * 10 } else { Duration::ZERO };
    let each: u64 = conditions.iter().map(|it| u64::from(probes(experiment, *it))).sum();
    let rounds = u64::from(experiment.repeats);
    let relay_count = u64::try_from(relays.len()).unwrap_or(u64::MAX);
    LabPlan {
        conditions: conditions.len(),
        repetitions: conditions.len()
            * relays.len()
            * usize::try_from(experiment.repeats).unwrap_or(1),
        probes: each * rounds * relay_count,
        seconds: (round(experiment.repeats) + BUILD + observer).as_secs_f64(),
        seconds_max: (round(experiment.repeats_max) + BUILD + observer).as_secs_f64(),
        warnings: overload(experiment, &conditions).filter(|_| namespaces).into_iter().collect(),
        relays,
        left_out,
        namespaces,
    }
}

/// Octets of a frame beside the payload: headers of Ethernet, IPv4 and UDP, and those on the wire.
pub(crate) const AROUND_PAYLOAD: u32 = 14 + 20 + 8 + WIRE_OCTETS;

/// What conditions ask of a link beyond its capacity; none if it carries all.
fn overload(experiment: &Experiment, conditions: &[Centre]) -> Option<String> {
    let capacity = experiment.link?.capacity_mbps;
    let asked = |it: &Centre| {
        let bits = 8 * (u32::from(it.octets) + AROUND_PAYLOAD);
        f64::from(bits) * f64::from(it.rate) / 1e6
    };
    let beyond: Vec<&Centre> = conditions.iter().filter(|it| asked(it) > capacity).collect();
    let most = beyond.iter().max_by(|one, other| asked(one).total_cmp(&asked(other)))?;
    let (count, all) = (beyond.len(), counted(conditions.len(), "condition"));
    let ask = if count == 1 { "asks" } else { "ask" };
    (capacity > 0.0).then(|| {
        format!(
            "{count} of {all} {ask} for more than the link's capacity of {capacity} Mbit/s, so that \
             probes wait and are lost: {} octets at {}/s ask for {:.2} Mbit/s with their headers",
            most.octets,
            most.rate,
            asked(most)
        )
    })
}

/// The conditions that this machine can bring about, and what it cannot.
pub(crate) fn possible_conditions(
    experiment: &Experiment,
    namespaces: bool,
) -> (Vec<Centre>, Vec<LeftOut>) {
    let mut conditions = experiment.conditions();
    let mut left_out = Vec::new();
    let mut leave_out = |what: &str, why: Option<String>, is_such: fn(&Centre) -> bool| {
        if let Some(why) = why.filter(|_| conditions.iter().any(is_such)) {
            conditions.retain(|it| !is_such(it));
            left_out.push(LeftOut { what: what.to_owned(), why });
        }
    };
    let awake = KeptAwake::unavailable(namespaces);
    leave_out("conditions with processors kept awake", awake, |it| it.awake);
    let frequency = FrequencyBound::unavailable();
    leave_out("conditions of a given frequency", frequency, |it| it.frequency_mhz > 0);
    (conditions, left_out)
}

/// Makes repetitions shorter or longer so that the whole run takes `within`, unsteady conditions
/// included; they do not get shorter than a tenth of a second.
pub fn fit(experiment: &mut Experiment, within: Duration) {
    let fixed = Experiment { seconds: 0.0, ..experiment.clone() };
    // Conditions with few packets a second have their fewest probes whatever the time.
    let least = plan(&fixed).seconds_max;
    let one = plan(&Experiment { seconds: 10.0, ..experiment.clone() }).seconds_max;
    let each = (one - least).max(f64::EPSILON) / 10.0;
    experiment.seconds = ((within.as_secs_f64() - least) / each).clamp(SECONDS_MIN, 3600.0);
}

/// Probes of a repetition of a condition, the cold ones included.
pub(crate) fn probes(experiment: &Experiment, condition: Centre) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and saturates"
    )]
    let wanted = (f64::from(condition.rate) * experiment.seconds) as u32;
    wanted.max(PROBES_MIN).saturating_add(COLD_PROBES).min(PROBES_MAX)
}

/// The time of a repetition's probes.
fn duration(experiment: &Experiment, condition: Centre) -> Duration {
    Duration::from_secs(1) * probes(experiment, condition) / condition.rate.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_config::parse_experiment;
    use gatewright_diagnostic::SourceId;

    const TEXT: &str = "title = 't'\nrelays = ['kernel', 'translate-udp']\nseconds = 1.0\n\
        [centre]\noctets = 1000\nrate = 200\n[vary]\nrate = [100, 1000]\n";

    fn experiment() -> Experiment {
        parse_experiment(SourceId::default(), TEXT).unwrap()
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let plan = plan_with(&experiment(), Some("root".to_owned()));
        assert_eq!(plan.relays, [RelayKind::TranslateUdp]);
        let what: Vec<&str> = plan.left_out.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(what, ["hosts as network namespaces", "relay kernel"]);
        assert_eq!(plan.left_out[0].why, "needs root");
    }

    #[test]
    fn relays_whose_work_is_done_once_are_left_out_of_a_slower_node() {
        let relays = "'translate-udp', 'socat-tcp', 'program-native'";
        let text = TEXT.replace("'kernel', 'translate-udp'", relays) + "[node]\nslowdown = 4\n";
        let plan = plan_with(&parse_experiment(SourceId::default(), &text).unwrap(), None);
        assert_eq!(plan.relays, [RelayKind::TranslateUdp]);
        assert_eq!(plan.left_out.len(), 2);
        for it in &plan.left_out {
            assert_eq!(it.why, "this relay's work cannot be done several times (slowdown)");
        }
    }

    /// Which machine has what is another question: processors are kept awake by what ends with its
    /// namespace.
    #[test]
    fn conditions_that_cannot_be_are_named() {
        let text = TEXT.replace("[vary]", "[vary]\nawake = [false, true]");
        let experiment = parse_experiment(SourceId::default(), &text).unwrap();
        let (conditions, left_out) = possible_conditions(&experiment, false);
        assert!(!conditions.iter().any(|it| it.awake), "{conditions:?}");
        assert_eq!(conditions.len(), 3);
        assert_eq!(left_out[0].what, "conditions with processors kept awake");
    }

    /// (1400 + 66) octets at 200/s are 2.3456 Mbit/s, ten times what IEEE 802.15.4 carries.
    #[test]
    fn conditions_beyond_the_capacity_of_the_link_are_said() {
        let plan = |rate: u32, link: &str, missing: Option<String>| {
            let text = format!(
                "title = 't'\nrelays = ['translate-udp']\n[centre]\noctets = 1400\nrate = {rate}\n\
                 [vary]\nrate = [1]\n{link}"
            );
            let experiment = parse_experiment(SourceId::default(), &text).unwrap();
            plan_with(&experiment, missing).warnings
        };
        let wpan = "[link]\nlike = '802.15.4'\n";
        let warnings = plan(200, wpan, None);
        let said = "1 of 2 conditions asks for more than the link's capacity of 0.25 Mbit/s";
        assert!(warnings[0].starts_with(said), "{warnings:?}");
        assert!(warnings[0].contains("1400 octets at 200/s ask for 2.35 Mbit/s"), "{warnings:?}");
        assert_eq!(plan(20, wpan, None), [""; 0]);
        assert_eq!(plan(200, "[link]\nlatency_us = 5\n", None), [""; 0], "without a limit");
        assert_eq!(plan(200, wpan, Some("root".to_owned())), [""; 0], "loopback has no links");
    }

    #[test]
    fn the_time_is_that_of_the_schedule() {
        let plan = plan_with(&experiment(), None);
        assert_eq!((plan.conditions, plan.repetitions), (3, 18));
        assert_eq!(plan.probes, u64::from(105 + 205 + 1005_u32) * 3 * 2);
        // Three conditions of a little more than a second, three rounds, two relays.
        assert!((20.0..45.0).contains(&plan.seconds), "{plan:?}");
        assert!(plan.seconds_max > plan.seconds);
    }

    #[test]
    fn repetitions_fit_into_the_time() {
        let mut experiment = experiment();
        fit(&mut experiment, Duration::from_mins(2));
        let seconds = plan(&experiment).seconds_max;
        assert!((100.0..125.0).contains(&seconds), "{seconds}");
        fit(&mut experiment, Duration::ZERO);
        assert!((experiment.seconds - SECONDS_MIN).abs() < f64::EPSILON);
    }
}

//! Runs an experiment.

use crate::analysis::{coefficient_of_variation, mean, mean_interval, quantile, sorted};
use crate::bed::{Bed, NodeStamps};
use crate::clock;
use crate::covariates::CovariatesBefore;
use crate::ends::{Carriage, ProbeForm, Receiver, send};
use crate::last_probes::LastProbes;
use crate::plan::{self, COLD_PROBES, LabPlan, OBSERVER_PAIRS};
use crate::probe::{IDENTITY_LEN, Place, ProbeIdentity, ProbeRecords};
use crate::processor::{FrequencyBound, OtherLoad, ProcessorTime, machine, pin, seats};
use crate::relay::program::BuiltPrograms;
use crate::relay::{self, RunningRelay};
use crate::report::in_words;
use crate::result::{LabRun, LeftOut, ObserverCost};
use crate::summarise::{
    ProbeTimes, RESAMPLES, RESAMPLES_UNFINISHED, Repetition, condition_result, relay_model,
};
use gatewright_config::{Centre, Experiment, RelayKind};
use gatewright_sim::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// No relay, or no condition, of the experiment is possible here.
    #[error("nothing of the experiment can be measured here: {0}")]
    Nothing(String),
    /// The hosts cannot be built.
    #[error("the hosts cannot be built: {0}")]
    Bed(String),
}

/// How far a run is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabProgress {
    /// Repetitions done.
    pub done: usize,
    /// Repetitions in all, as far as it is known.
    pub all: usize,
    /// Time since the start.
    pub elapsed: Duration,
    /// What is measured now.
    pub now: String,
}

/// Sleep before a turn.
const TURN: Duration = Duration::from_millis(2);
/// How often it is looked whether a repetition is to end before its last probe: seldom, as it is done on
/// the processors that are measured.
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);
/// A jump of the wall clock against the monotonic one that is a warning.
const JUMP_NS: u64 = 1_000_000;

/// Receives the progress and the results of a run while it goes on, and may end it.
pub trait RunListener {
    /// Receives after each repetition how far the run is.
    fn progress(&mut self, progress: &LabProgress);

    /// Receives the results so far, after each round but the last: what is left of a run that is killed.
    ///
    /// # Errors
    ///
    /// Why they could not be kept, which becomes a warning of the run.
    fn unfinished(&mut self, run: &LabRun) -> Result<(), String>;

    /// Whether the run is to end now. It is asked before each relay and each repetition.
    fn is_stop_requested(&self) -> bool;
}

/// Receives progress alone.
struct Progress<'receiver>(&'receiver mut dyn FnMut(&LabProgress));

impl RunListener for Progress<'_> {
    fn progress(&mut self, progress: &LabProgress) {
        (self.0)(progress);
    }

    fn unfinished(&mut self, _: &LabRun) -> Result<(), String> {
        Ok(())
    }

    fn is_stop_requested(&self) -> bool {
        false
    }
}

/// Runs `experiment`; `progress` receives after each repetition how far it is.
///
/// # Errors
///
/// [`LabError`]; what a single relay cannot do is left out and said in the result.
pub fn run(
    experiment: &Experiment,
    progress: &mut dyn FnMut(&LabProgress),
) -> Result<LabRun, LabError> {
    run_with(experiment, &mut Progress(progress))
}

/// The same for a listener that may end the run; then the result says so.
///
/// # Errors
///
/// As [`run`].
pub fn run_with(
    experiment: &Experiment,
    listener: &mut dyn RunListener,
) -> Result<LabRun, LabError> {
    let plan = plan::plan(experiment);
    let (relays, namespaces) = (plan.relays.clone(), plan.namespaces);
    let mut lab = Lab::build(experiment, plan)?;
    lab.rounds(&relays, listener);
    let observer = if namespaces { lab.observer(&relays, listener) } else { None };
    let is_stopped = listener.is_stop_requested();
    let covariates = Some(lab.facts.before.end());
    lab.check_line();
    lab.name_quota();
    let unfinished = is_stopped.then(|| lab.unfinished("it was ended by who ran it"));
    Ok(LabRun { covariates, observer, ..lab.result(unfinished, RESAMPLES) })
}

/// What is known of a run from its beginning on.
#[derive(Debug)]
struct RunFacts {
    machine: String,
    started: u64,
    begin: Instant,
    before: CovariatesBefore,
    namespaces: bool,
}

type Measured = BTreeMap<RelayKind, Vec<(Centre, Vec<Repetition>)>>;

fn summaries(
    measured: &Measured,
    experiment: &Experiment,
    resamples: usize,
    warnings: &mut Vec<String>,
) -> (Vec<crate::result::ConditionResult>, Vec<crate::result::RelayModel>) {
    let mut conditions = Vec::new();
    for (&relay, of_relay) in measured {
        for (condition, repetitions) in of_relay {
            conditions.push(condition_result(
                relay,
                *condition,
                repetitions,
                experiment,
                resamples,
            ));
        }
    }
    let model = |(&relay, of_relay): (&RelayKind, &Vec<_>)| {
        relay_model(relay, of_relay, &conditions, experiment, resamples)
    };
    let models = measured.iter().map(model).collect();
    let unstamped: usize = conditions.iter().map(|it| it.unstamped).sum();
    if unstamped > 0 {
        warnings.push(format!("{unstamped} probes arrived without all stamps of the node"));
    }
    let once = conditions.iter().filter(|it| it.cv_pct.is_none()).count();
    if once > 0 {
        warnings.push(format!(
            "whether {once} of {} conditions are steady is not known: fewer than two repetitions have \
             delays",
            conditions.len()
        ));
    }
    for (it, cv) in conditions.iter().filter_map(|it| Some((it, it.cv_pct?))) {
        if it.steady {
            continue;
        }
        warnings.push(format!(
            "unsteady: {} at {} octets, {}/s{}: medians of repetitions vary by {cv:.1} %; the host took \
             {:.1} % of the time",
            it.relay.name(),
            it.octets,
            it.rate,
            Some(in_words(it.condition()))
                .filter(|it| !it.is_empty())
                .map_or_else(String::new, |beside| format!(", {beside}")),
            it.steal_pct
        ));
    }
    (conditions, models)
}

/// A run in progress.
#[derive(Debug)]
struct Lab<'experiment> {
    experiment: &'experiment Experiment,
    conditions: Vec<Centre>,
    facts: RunFacts,
    bed: Bed,
    records: Arc<ProbeRecords>,
    built: Arc<BuiltPrograms>,
    random: Random,
    measured: Measured,
    left_out: Vec<LeftOut>,
    warnings: Vec<String>,
    /// Tenths of a second that ended before a relay with a quota was done.
    throttled: u64,
    /// Repetitions that were done when results were kept last.
    kept: usize,
    /// Repetitions begun, which their tags tell apart.
    tags: u64,
    progress: LabProgress,
}

/// What runs while a relay is measured.
#[derive(Debug)]
struct Setting {
    kind: RelayKind,
    stamps: Option<NodeStamps>,
    receiver: Receiver,
    relays: Vec<RunningRelay>,
}

impl Setting {
    /// Ends the relays; what went wrong in them, if anything did.
    fn end(&mut self) -> Result<(), String> {
        self.relays.iter_mut().try_for_each(RunningRelay::end)
    }
}

impl<'experiment> Lab<'experiment> {
    /// Builds the hosts of what the plan leaves of the experiment.
    fn build(experiment: &'experiment Experiment, plan: LabPlan) -> Result<Self, LabError> {
        let LabPlan { relays, conditions, left_out, warnings, repetitions, namespaces, .. } = plan;
        if relays.is_empty() || conditions == 0 {
            let why: Vec<String> =
                left_out.iter().map(|it| format!("{}: {}", it.what, it.why)).collect();
            return Err(LabError::Nothing(why.join("; ")));
        }
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let facts = RunFacts {
            machine: machine(),
            started: started.as_secs(),
            begin: Instant::now(),
            before: CovariatesBefore::read(),
            namespaces,
        };
        let bed = Bed::build(experiment, namespaces).map_err(LabError::Bed)?;
        let (conditions, _) = plan::possible_conditions(experiment, namespaces);
        let (elapsed, now) = (Duration::ZERO, String::new());
        Ok(Self {
            experiment,
            conditions,
            facts,
            bed,
            records: Arc::new(ProbeRecords::new()),
            built: Arc::default(),
            random: Random::new(experiment.seed),
            measured: BTreeMap::new(),
            left_out,
            warnings,
            throttled: 0,
            kept: 0,
            tags: 0,
            progress: LabProgress { done: 0, all: repetitions, elapsed, now },
        })
    }

    /// All rounds: each relay, and under it each condition in random order. After the experiment's
    /// repetitions only unsteady conditions go on.
    fn rounds(&mut self, relays: &[RelayKind], listener: &mut dyn RunListener) {
        let conditions = self.conditions.clone();
        for round in 0..self.experiment.repeats_max {
            if round > 0 && !self.keep(listener) {
                return;
            }
            for &kind in relays {
                if listener.is_stop_requested() {
                    return;
                }
                let mut wanted: Vec<Centre> =
                    conditions.iter().copied().filter(|it| self.wants(kind, *it, round)).collect();
                if wanted.is_empty() || self.is_left_out(kind) {
                    continue;
                }
                self.shuffle(&mut wanted);
                if round >= self.experiment.repeats {
                    self.progress.all += wanted.len();
                }
                self.measure(kind, &wanted, listener);
            }
        }
    }

    /// Sets a relay up and measures it once under each condition, until the listener requests a stop.
    fn measure(&mut self, kind: RelayKind, wanted: &[Centre], listener: &mut dyn RunListener) {
        let mut setting = match self.set(kind) {
            Ok(setting) => setting,
            Err(why) => {
                self.progress.done += wanted.len();
                return self.leave_out(kind, why);
            }
        };
        for &condition in wanted {
            if listener.is_stop_requested() {
                break;
            }
            self.repeat(&setting, condition, listener);
            if listener.is_stop_requested() {
                break;
            }
            self.tell(kind, condition);
            listener.progress(&self.progress);
        }
        let throttled = setting.relays.iter().filter_map(RunningRelay::throttled);
        self.throttled += throttled.sum::<u64>();
        if let Err(why) = setting.end() {
            self.warn(format!("{}: {why}", kind.name()));
        }
    }

    /// Gives the listener what is there so far; returns whether the run goes on.
    fn keep(&mut self, listener: &mut dyn RunListener) -> bool {
        if listener.is_stop_requested() {
            return false;
        }
        if std::mem::replace(&mut self.kept, self.progress.done) == self.progress.done {
            return true;
        }
        let why = self.unfinished("it was still going on, or was killed, after this was written");
        if let Err(why) = listener.unfinished(&self.result(Some(why), RESAMPLES_UNFINISHED)) {
            let done = self.progress.done;
            self.warn(format!("results after {done} repetitions could not be kept: {why}"));
        }
        true
    }

    /// How far an unfinished run is.
    fn unfinished(&self, why: &str) -> String {
        let LabProgress { done, all, .. } = self.progress;
        format!("{done} of {all} repetitions; {why}")
    }

    /// The results so far.
    fn result(&self, unfinished: Option<String>, resamples: usize) -> LabRun {
        let mut warnings = self.warnings.clone();
        let (conditions, models) =
            summaries(&self.measured, self.experiment, resamples, &mut warnings);
        LabRun {
            form: LabRun::FORM,
            unfinished,
            experiment: self.experiment.clone(),
            machine: self.facts.machine.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
            started: self.facts.started,
            seconds: self.facts.begin.elapsed().as_secs_f64(),
            namespaces: self.facts.namespaces,
            processors: seats(),
            covariates: None,
            left_out: self.left_out.clone(),
            warnings,
            observer: None,
            conditions,
            models,
        }
    }

    fn tell(&mut self, kind: RelayKind, it: Centre) {
        self.progress.done += 1;
        self.progress.elapsed = self.facts.begin.elapsed();
        let (Centre { octets, rate, .. }, beside) = (it, in_words(it));
        let comma = if beside.is_empty() { "" } else { ", " };
        self.progress.now = format!("{}, {octets} octets, {rate}/s{comma}{beside}", kind.name());
    }

    fn wants(&self, kind: RelayKind, condition: Centre, round: u32) -> bool {
        if round < self.experiment.repeats {
            return true;
        }
        let measured = self.measured.get(&kind).into_iter().flatten();
        let done = measured.filter(|(it, _)| *it == condition);
        let medians: Vec<f64> =
            done.flat_map(|(_, all)| all).filter_map(Repetition::median).collect();
        coefficient_of_variation(&medians).is_some_and(|cv| cv * 100.0 > self.experiment.steady_pct)
    }

    fn shuffle(&mut self, conditions: &mut [Centre]) {
        for last in (1..conditions.len()).rev() {
            let other = self.random.below(u64::try_from(last + 1).unwrap_or(1));
            conditions.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }

    fn is_left_out(&self, kind: RelayKind) -> bool {
        let what = format!("relay {}", kind.name());
        self.left_out.iter().any(|it| it.what == what)
    }

    fn leave_out(&mut self, kind: RelayKind, why: String) {
        self.left_out.push(LeftOut { what: format!("relay {}", kind.name()), why });
        self.measured.remove(&kind);
    }

    /// Starts the relays in line, the receiver and the stamps, and warms them up.
    fn set(&mut self, kind: RelayKind) -> Result<Setting, String> {
        let (ends, node) = seats();
        self.bed.prepare(kind)?;
        let receiver = Receiver::start(&self.bed, kind, &self.records, Some(ends))?;
        let mut relays = Vec::new();
        // The last one first, so that each finds its next one listening.
        for seat in self.bed.seats(Some(node))?.iter().rev() {
            relays.extend(relay::start(kind, self.experiment, seat, &self.records, &self.built)?);
        }
        let stamps = self.bed.stamp(kind)?;
        let mut setting = Setting { kind, stamps, receiver, relays };
        for _attempt in 0..5 {
            let repetition = self.probe(&setting, relay::WARM, 25, &|| false);
            if repetition.is_ok_and(|it| it.median_end_to_end().is_some()) {
                return Ok(setting);
            }
        }
        let why = setting.end().err().unwrap_or_else(|| "no probe came through it".to_owned());
        Err(why)
    }

    /// One repetition of a condition; a failure is a warning, and the condition has one fewer. So it has
    /// if the listener requests a stop meanwhile.
    fn repeat(&mut self, setting: &Setting, condition: Centre, listener: &dyn RunListener) {
        let count = plan::probes(self.experiment, condition);
        match self.probe(setting, condition, count, &|| listener.is_stop_requested()) {
            _ if listener.is_stop_requested() => {}
            Ok(repetition) => {
                let of_relay = self.measured.entry(setting.kind).or_default();
                match of_relay.iter_mut().find(|(it, _)| *it == condition) {
                    Some((_, repetitions)) => repetitions.push(repetition),
                    None => of_relay.push((condition, vec![repetition])),
                }
            }
            Err(why) => self.warnings.push(format!("{}: {why}", setting.kind.name())),
        }
    }

    /// Sends `count` probes, fewer if a stop is requested, and collects their times.
    fn probe(
        &mut self,
        setting: &Setting,
        condition: Centre,
        count: u32,
        is_stop_requested: &dyn Fn() -> bool,
    ) -> Result<Repetition, String> {
        self.tags += 1;
        let tag = (self.experiment.seed ^ self.tags << 16).to_be_bytes();
        let form = ProbeForm::of(setting.kind);
        self.records.begin(tag, condition.octets, count);
        for stamper in setting.stamps.iter().flat_map(|it| [&it.ingress, &it.egress]) {
            stamper.begin_at(tag, form.identity_at());
        }
        let (ends, node) = seats();
        // The kernel routes on the processor that sends; all other relays have their own.
        let relays = if relay::is_kernels(setting.kind) { ends } else { node };
        let _load = OtherLoad::start(condition.load_pct, relays);
        let _awake = condition.awake.then(|| self.bed.keep_awake(&[ends, node])).transpose()?;
        let _frequency = FrequencyBound::set(condition.frequency_mhz)?;
        let target = self.bed.target(setting.kind);
        let mut carriage = Carriage::connect(&self.bed, target, (form, condition.octets))?;
        let (times, clocks) = (ProcessorTime::read(), (clock::now(), clock::wall()));
        let before = setting.receiver.arrived();
        let records = &self.records;
        let (arrivals, random) = (self.experiment.arrivals, &mut self.random);
        let stop = &AtomicBool::new(false);
        let (tell, ended) = channel();
        let sending = std::thread::scope(|scope| {
            let work = move || {
                pin(ends);
                // Wake-ups as exact as the system has them; without it they are 50 µs late.
                let _ = nix::sys::prctl::set_timerslack(1);
                let schedule = (condition, arrivals, random);
                let refused = send(&mut carriage, records, schedule, (tag, count), stop);
                // Nobody waits if the sender's thread ends otherwise.
                let _ended = tell.send(());
                refused
            };
            let sender = scope.spawn(work);
            while ended.recv_timeout(LOOK_FOR_STOP) == Err(RecvTimeoutError::Timeout) {
                if is_stop_requested() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            sender.join()
        });
        let refused = sending.map_err(|_| "the sender's thread panicked".to_owned())?;
        let mut last = LastProbes::of(count);
        let is_stopped = stop.load(Ordering::Relaxed);
        while !is_stopped && last.may_arrive(setting.receiver.arrived() - before, count) {
            std::thread::sleep(TURN);
        }
        let (steal_pct, _) = ProcessorTime::read().since(times);
        self.check(setting.kind, condition, refused, clocks);
        let (repeated, _) = self.records.repeated_and_unaltered();
        let repeated = usize::try_from(repeated).unwrap_or(0);
        let probes = (COLD_PROBES.min(count)..count).map(|at| self.times(setting, at)).collect();
        Ok(Repetition { probes, repeated, steal_pct })
    }

    /// Looks for disturbances of a repetition, and whether the relay did its work.
    fn check(&mut self, kind: RelayKind, condition: Centre, refused: u32, clocks: (u64, u64)) {
        let (monotonic, wall) = (clock::now() - clocks.0, clock::wall().wrapping_sub(clocks.1));
        let name = kind.name();
        if has_jumped(monotonic, wall) {
            self.warn(format!("{name}: the wall clock jumped during a repetition"));
        }
        if refused > 0 {
            self.warn(format!("{name}: the sender's system refused {refused} probes"));
        }
        let encrypts = matches!(kind, RelayKind::EncryptPortable | RelayKind::EncryptHardware);
        let (_, unaltered) = self.records.repeated_and_unaltered();
        let altered = self.records.altered();
        if altered > 0 {
            self.warn(format!("{name}: {altered} readings arrived with other values"));
        }
        if encrypts && unaltered > 0 && usize::from(condition.octets) > IDENTITY_LEN {
            self.warn(format!("{name}: {unaltered} probes arrived in clear"));
        }
    }

    /// Adds a warning once.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn times(&self, setting: &Setting, sequence: u32) -> ProbeTimes {
        let at = |place| self.records.time(sequence, place);
        let arrived = at(Place::Arrived);
        let (ingress, egress) = match &setting.stamps {
            // A program at a hook does not read requests: the receiver's kernel stamps them there.
            Some(stamps) if matches!(ProbeForm::of(setting.kind), ProbeForm::Reports { .. }) => {
                (stamps.ingress.time(sequence), arrived)
            }
            Some(stamps) => (stamps.ingress.time(sequence), stamps.egress.time(sequence)),
            // On loopback a packet is received within the call that sends it.
            None => (at(Place::Ingress), arrived),
        };
        ProbeTimes {
            due: at(Place::Due),
            sent: at(Place::Sent),
            ingress,
            taken: at(Place::Taken),
            given: at(Place::Given),
            egress,
            arrived,
        }
    }

    /// The cost of observing: the programs alone, and delays with and without them, in turn. None if it
    /// cannot be measured here, or the run is to end.
    fn observer(
        &mut self,
        relays: &[RelayKind],
        listener: &dyn RunListener,
    ) -> Option<ObserverCost> {
        let measurable = |kind: &RelayKind| {
            matches!(kind, RelayKind::TranslateUdp | RelayKind::EncryptPortable | RelayKind::Kernel)
        };
        let kind = relays.iter().copied().filter(|it| !self.is_left_out(*it)).find(measurable)?;
        let kind =
            if relays.contains(&RelayKind::TranslateUdp) { RelayKind::TranslateUdp } else { kind };
        let mut setting = self.set(kind).ok()?;
        let program_ns = setting.stamps.as_ref().and_then(program_cost)?;
        let condition = self.experiment.centre;
        let count = plan::probes(self.experiment, condition);
        let mut medians = [Vec::new(), Vec::new()];
        for pair in 0..OBSERVER_PAIRS {
            // On and off, then off and on, so that drift falls on both alike.
            for turn in [pair % 2, 1 - pair % 2] {
                if listener.is_stop_requested() {
                    return None;
                }
                let is_on = turn == 0;
                setting.stamps = if is_on { self.bed.stamp(kind).ok()? } else { None };
                let stops = || listener.is_stop_requested();
                let repetition = self.probe(&setting, condition, count, &stops).ok()?;
                let median = repetition.median_end_to_end()?;
                if let Some(medians) = medians.get_mut(turn) {
                    medians.push(median);
                }
            }
        }
        let [with, without] = &medians;
        let differences: Vec<f64> =
            with.iter().zip(without).map(|(with, without)| with - without).collect();
        let difference_us = mean_interval(&differences, 0.95);
        let [with_us, without_us] = medians.map(|it| quantile(&sorted(&it), 0.5));
        let (with_us, without_us, pairs) = (with_us?, without_us?, OBSERVER_PAIRS);
        Some(ObserverCost { program_ns, with_us, without_us, pairs, difference_us })
    }

    /// Says of a quota what it is, and whether it has made a difference.
    fn name_quota(&mut self) {
        let percent = self.experiment.node.quota_pct;
        if percent < 100 {
            let throttled = self.throttled;
            self.warn(format!(
                "relays had a quota of {percent} % of a processor, which makes bursts and no slower \
                 processor: it was used up in {throttled} tenths of a second"
            ));
        }
    }

    fn check_line(&mut self) {
        let late = self.bed.line_late_max();
        if let Some(late) = late.filter(|late| *late > Duration::from_micros(200)) {
            self.warn(format!("frames left a delay line up to {} µs late", late.as_micros()));
        }
    }
}

/// Whether the wall clock went another way than the monotonic one, by what passed on each.
const fn has_jumped(monotonic: u64, wall: u64) -> bool {
    monotonic.abs_diff(wall) > JUMP_NS
}

/// The mean time of both programs on a probe of UDP, in nanoseconds.
fn program_cost(stamps: &NodeStamps) -> Option<f64> {
    const REPEAT: u32 = 100_000;
    let tag = *b"observer";
    let payload = ProbeIdentity { sequence: 1, tag }.payload(100);
    // Ethernet, IPv4 and UDP headers with what the program reads: type, version, protocol.
    let mut frame = vec![0; 42];
    for (at, octet) in [(12, 0x08), (14, 0x45), (23, 17)] {
        if let Some(place) = frame.get_mut(at) {
            *place = octet;
        }
    }
    frame.extend(payload);
    let cost = |stamper: &gatewright_xdp::Stamper| {
        stamper.begin(tag);
        stamper.cost(&frame, REPEAT).ok().map(f64::from)
    };
    mean(&[cost(&stamps.ingress)?, cost(&stamps.egress)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests a stop when the first repetition is done.
    #[derive(Default)]
    struct StopAfterFirst {
        is_stop_requested: bool,
    }

    impl RunListener for StopAfterFirst {
        fn progress(&mut self, _: &LabProgress) {
            self.is_stop_requested = true;
        }

        fn unfinished(&mut self, _: &LabRun) -> Result<(), String> {
            Ok(())
        }

        fn is_stop_requested(&self) -> bool {
            self.is_stop_requested
        }
    }

    fn experiment(more: &str) -> Experiment {
        let text = format!("title = 't'\nrelays = ['translate-udp']\nseconds = 0.1\n{more}");
        gatewright_config::parse_experiment(gatewright_diagnostic::SourceId::default(), &text)
            .unwrap()
    }

    /// The plan where there are no namespaces, so that all is on loopback.
    fn loopback(experiment: &Experiment) -> LabPlan {
        plan::plan_with(experiment, Some("no namespaces here".to_owned()))
    }

    /// The second relay routes, which is impossible on loopback: where it is set up, it is left out.
    #[test]
    fn no_relay_is_set_up_after_a_stop_is_requested() {
        let experiment = experiment("[centre]\noctets = 100\nrate = 200\n");
        let mut lab = Lab::build(&experiment, loopback(&experiment)).unwrap();
        let mut listener = StopAfterFirst::default();
        lab.rounds(&[RelayKind::TranslateUdp, RelayKind::GraphXdp], &mut listener);
        assert!(listener.is_stop_requested(), "{:?}", lab.left_out);
        let measured: Vec<RelayKind> = lab.measured.keys().copied().collect();
        assert_eq!(measured, [RelayKind::TranslateUdp]);
        assert!(!lab.is_left_out(RelayKind::GraphXdp), "{:?}", lab.left_out);
    }

    /// Requests a stop a while after the beginning.
    struct StopAfter(Instant);

    impl RunListener for StopAfter {
        fn progress(&mut self, _: &LabProgress) {}

        fn unfinished(&mut self, _: &LabRun) -> Result<(), String> {
            Ok(())
        }

        fn is_stop_requested(&self) -> bool {
            self.0.elapsed() > Duration::from_secs(2)
        }
    }

    /// A repetition of an hour: what there is of it is no repetition.
    #[test]
    fn a_stop_ends_the_repetition_that_is_under_way() {
        let experiment = experiment("[centre]\noctets = 100\nrate = 10\n");
        let experiment = Experiment { seconds: 3600.0, ..experiment };
        let mut lab = Lab::build(&experiment, loopback(&experiment)).unwrap();
        lab.rounds(&[RelayKind::TranslateUdp], &mut StopAfter(Instant::now()));
        assert!(lab.measured.is_empty() && lab.warnings.is_empty(), "{:?}", lab.warnings);
        assert!(lab.facts.begin.elapsed() < Duration::from_mins(10));
    }

    #[test]
    fn an_experiment_without_a_possible_condition_is_an_error_with_the_reason() {
        let experiment = experiment("[centre]\noctets = 100\nrate = 200\nawake = true\n");
        let plan = loopback(&experiment);
        assert_eq!(plan.relays, [RelayKind::TranslateUdp]);
        let error = Lab::build(&experiment, plan).unwrap_err();
        assert!(matches!(error, LabError::Nothing(_)), "{error}");
        let why = "conditions with processors kept awake: it needs network namespaces";
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn a_wall_clock_that_jumps_is_no_slewed_one() {
        // A second that was set back by an hour, and one slewed by 500 ppm.
        assert!(has_jumped(1_000_000_000, 1_000_000_000_u64.wrapping_sub(3_600_000_000_000)));
        assert!(has_jumped(1_000_000_000, 3_601_000_000_000));
        assert!(!has_jumped(1_000_000_000, 1_000_500_000));
    }

    /// Ten probes that came through, of which the program at the egress has dropped four, and one that
    /// was lost.
    #[test]
    fn dropped_samples_are_said_and_smoothed_over_nowhere() {
        let text = "title = 't'\nrelays = ['kernel']\n[centre]\noctets = 100\nrate = 10\n";
        let experiment =
            gatewright_config::parse_experiment(gatewright_diagnostic::SourceId::default(), text);
        let experiment = experiment.unwrap();
        let probe = |at: u64| ProbeTimes {
            due: Some(at),
            sent: Some(at),
            ingress: Some(at + 1000),
            egress: (at % 5 < 3).then_some(at + 3000),
            arrived: (at != 10).then_some(at + 4000),
            ..ProbeTimes::default()
        };
        let repetition = Repetition { probes: (0..=10).map(probe).collect(), ..Default::default() };
        let of_relay = vec![(experiment.centre, vec![repetition])];
        let measured = Measured::from([(RelayKind::Kernel, of_relay)]);
        let mut warnings = Vec::new();
        let (conditions, _) = summaries(&measured, &experiment, RESAMPLES, &mut warnings);
        let it = &conditions[0];
        assert_eq!((it.sent, it.received, it.unstamped), (11, 10, 4), "{it:?}");
        assert_eq!(it.node.unwrap().count, 7, "the others are in no delay");
        let said = "4 probes arrived without all stamps of the node";
        assert!(warnings.iter().any(|it| it == said), "{warnings:?}");
    }
}

//! The coordinator of a run between machines.

use super::channel::AgentChannel;
use super::clocks::{ClockComparison, ClockExchange, CoordinatorClock};
use super::host::connect;
use super::message::{AgentAnswer, AgentRequest, AgentSamples, AgentSending};
use super::result::{AgentCondition, AgentMachine, AgentRepetition, AgentRun};
use crate::run::LabProgress;
use crate::stamp::{StampKey, StampReflectorCounters};
use gatewright_config::{AgentExperiment, AgentSession};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// Exchanges of a comparison of clocks.
const EXCHANGES: u32 = 16;
/// How long a short answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the last reflection of a repetition is waited for.
const WAIT_MS: u32 = 1_000;

/// Coordinates a run; `progress` hears after each repetition how far it is.
///
/// What an agent cannot do, or does not do any more, is left out and said in the result.
pub fn run_between_agents(
    experiment: &AgentExperiment,
    key: &StampKey,
    progress: &mut dyn FnMut(&LabProgress),
) -> AgentRun {
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let clock = CoordinatorClock::start();
    let mut run = Coordinator { experiment, clock, agents: Vec::new(), findings: Vec::new() };
    for address in &experiment.agents {
        let mut agent = CoordinatedAgent {
            machine: AgentMachine { name: address.name.clone(), ..AgentMachine::default() },
            channel: None,
            reflects: None,
        };
        match connect(address.address, key) {
            Ok(channel) => agent.channel = Some(channel),
            Err(error) => {
                let why = format!("no agent at {}: {error}", address.address);
                run.findings.push(format!("{} took no part: {why}", address.name));
                agent.machine.ended = Some(why);
            }
        }
        run.agents.push(agent);
    }
    run.begin();
    let conditions = run.repetitions(progress);
    run.end();
    let machines = run.agents.into_iter().map(|it| it.machine).collect();
    AgentRun {
        form: 1,
        experiment: experiment.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: started.as_secs(),
        seconds: clock.second(),
        machines,
        conditions,
        findings: run.findings,
    }
}

/// An agent, as its coordinator knows it.
struct CoordinatedAgent {
    machine: AgentMachine,
    channel: Option<AgentChannel>,
    /// Where it would reflect.
    reflects: Option<SocketAddr>,
}

/// A run in progress.
struct Coordinator<'experiment> {
    experiment: &'experiment AgentExperiment,
    clock: CoordinatorClock,
    agents: Vec<CoordinatedAgent>,
    findings: Vec<String>,
}

/// A session under a condition, and its repetitions.
struct MeasuredCondition<'experiment> {
    session: &'experiment AgentSession,
    condition: (u16, u32),
    repetitions: Vec<AgentRepetition>,
}

impl Coordinator<'_> {
    /// Asks an agent; one that does not answer takes no further part.
    fn ask(
        &mut self,
        name: &str,
        request: &AgentRequest,
        within: Duration,
    ) -> Result<AgentAnswer, String> {
        let second = self.clock.second();
        let agent = self.agents.iter_mut().find(|it| it.machine.name == name);
        let agent = agent.ok_or_else(|| format!("no agent is called {name}"))?;
        let channel = agent.channel.as_mut();
        let channel = channel.ok_or_else(|| format!("{name} takes no part any more"))?;
        let octets = request.octets();
        let answer = channel.send(&octets).and_then(|()| channel.receive(within, &|| false));
        let answer = answer.map_err(|error| error.to_string()).and_then(|octets| {
            let answer = AgentAnswer::parse(&octets);
            answer.ok_or_else(|| "its answer is none of this version".to_owned())
        });
        match answer {
            Ok(AgentAnswer::Refused(why)) => Err(format!("{name} refuses: {why}")),
            Ok(answer) => Ok(answer),
            Err(why) => {
                agent.channel = None;
                let why = format!("after {second:.1} s of the run {why}");
                self.findings.push(format!("{name} took no further part: {why}"));
                agent.machine.ended = Some(why);
                Err(format!("{name} has ended"))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let there = self.agents.iter().filter(|it| it.channel.is_some());
        there.map(|it| it.machine.name.clone()).collect()
    }

    fn find(&mut self, finding: String) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Has each agent describe itself, compares clocks, and begins covariates.
    fn begin(&mut self) {
        for name in self.names() {
            match self.ask(&name, &AgentRequest::Describe, ANSWER_WITHIN) {
                Ok(AgentAnswer::Description(description)) => {
                    let agent = self.agents.iter_mut().find(|it| it.machine.name == name);
                    if let Some(agent) = agent {
                        agent.machine.machine = description.machine;
                        agent.machine.version = description.version;
                        agent.reflects = description.reflects;
                    }
                }
                other => self.misanswered(&name, &other),
            }
            self.compare_clock(&name);
            match self.ask(&name, &AgentRequest::Begin, ANSWER_WITHIN) {
                Ok(AgentAnswer::Begun) => {}
                other => self.misanswered(&name, &other),
            }
        }
    }

    /// Compares clocks once more, and collects covariates.
    fn end(&mut self) {
        for name in self.names() {
            self.compare_clock(&name);
            match self.ask(&name, &AgentRequest::Covariates, ANSWER_WITHIN) {
                Ok(AgentAnswer::Covariates(covariates)) => {
                    let agent = self.agents.iter_mut().find(|it| it.machine.name == name);
                    if let Some(agent) = agent {
                        agent.machine.covariates = Some(covariates);
                    }
                }
                other => self.misanswered(&name, &other),
            }
        }
    }

    fn misanswered(&mut self, name: &str, answer: &Result<AgentAnswer, String>) {
        match answer {
            Ok(_) => self.find(format!("{name} answered something that was not asked")),
            Err(why) => self.find(why.clone()),
        }
    }

    /// Compares an agent's clock with ours, and looks whether it has leapt.
    fn compare_clock(&mut self, name: &str) {
        let mut exchanges = Vec::new();
        for _exchange in 0..EXCHANGES {
            let asked = self.clock.now();
            let Ok(AgentAnswer::Clock(its)) = self.ask(name, &AgentRequest::Clock, ANSWER_WITHIN)
            else {
                return;
            };
            let (received, sent, answered) = (its.received, its.sent, self.clock.now());
            exchanges.push(ClockExchange { asked, received, sent, answered });
        }
        let second = self.clock.second();
        let agent = self.agents.iter_mut().find(|it| it.machine.name == name);
        let Some(agent) = agent else { return };
        let Some(now) = ClockComparison::of(second, &exchanges) else {
            self.findings.push(format!("{name} tells times that cannot be"));
            return;
        };
        let leap = agent.machine.clocks.last().and_then(|it| {
            let (difference, within) = now.leap_since(it)?;
            Some((difference, within, it.second))
        });
        agent.machine.clocks.push(now);
        if let Some((difference, within, before)) = leap {
            self.findings.push(format!(
                "the clock of {name} leapt by {difference:.0} µs, to within {within:.0}, between \
                 {before:.1} and {second:.1} s of the run: delays on one way are not true there"
            ));
        }
    }

    /// All repetitions, round after round.
    fn repetitions(&mut self, progress: &mut dyn FnMut(&LabProgress)) -> Vec<AgentCondition> {
        let AgentExperiment { sessions, octets, rate, repeats, steady_pct, .. } = self.experiment;
        let mut all: Vec<MeasuredCondition<'_>> = Vec::new();
        for session in sessions {
            for &octets in octets {
                for &rate in rate {
                    let (condition, repetitions) = ((octets, rate), Vec::new());
                    all.push(MeasuredCondition { session, condition, repetitions });
                }
            }
        }
        let begin = Instant::now();
        let count = all.len() * usize::try_from(*repeats).unwrap_or(1);
        let mut done = 0;
        for _round in 0..*repeats {
            for it in &mut all {
                match self.repetition(it.session, it.condition) {
                    Ok(repetition) => it.repetitions.push(repetition),
                    Err(why) => {
                        let from = &it.session.from;
                        self.find(format!("a session from {from} was left out: {why}"));
                    }
                }
                done += 1;
                let now =
                    format!("{}, {} octets, {}/s", way(it.session), it.condition.0, it.condition.1);
                progress(&LabProgress { done, all: count, elapsed: begin.elapsed(), now });
            }
        }
        let result = |it: MeasuredCondition<'_>| {
            AgentCondition::of(it.session, it.condition, &it.repetitions, *steady_pct)
        };
        all.into_iter().map(result).collect()
    }

    /// One repetition: the reflector starts, the sender sends, both tell, clocks are compared.
    fn repetition(
        &mut self,
        session: &AgentSession,
        (octets, rate): (u16, u32),
    ) -> Result<AgentRepetition, String> {
        let (to, authenticated) = match (&session.to, session.reflector) {
            (Some(to), _) => (self.reflect(to)?, true),
            (None, Some(at)) => (at, false),
            (None, None) => return Err("it has no reflector".to_owned()),
        };
        let count = self.experiment.packets(rate);
        let sending = AgentSending { to, authenticated, count, rate, octets, wait_ms: WAIT_MS };
        let within = Duration::from_secs(1) * count / rate.max(1) + ANSWER_WITHIN;
        let sent = self.ask(&session.from, &AgentRequest::Send(sending), within);
        // Whatever became of the sender, the reflector ends.
        let reflected = session.to.as_ref().map(|to| self.stop_reflecting(to));
        let reflected = reflected.and_then(|it| it.map_err(|why| self.find(why)).ok());
        let samples = match sent {
            Ok(AgentAnswer::Sent(samples)) => samples,
            Ok(_) => return Err("it answered something that was not asked".to_owned()),
            Err(why) => return Err(why),
        };
        let repetition = AgentRepetition { samples, reflected };
        for contradiction in repetition.contradictions(session, count) {
            self.find(contradiction);
        }
        if received_none(&repetition.samples) {
            self.find(format!("nothing came back from {}: is the way open?", way(session)));
        }
        // All of them: one that hears nothing for long takes its coordinator for gone.
        for name in self.names() {
            self.compare_clock(&name);
        }
        self.compare_offsets(session, &repetition);
        Ok(repetition)
    }

    fn reflect(&mut self, name: &str) -> Result<SocketAddr, String> {
        match self.ask(name, &AgentRequest::Reflect, ANSWER_WITHIN)? {
            AgentAnswer::Reflects(at) => Ok(at),
            _ => Err(format!("{name} answered something that was not asked")),
        }
    }

    fn stop_reflecting(&mut self, name: &str) -> Result<StampReflectorCounters, String> {
        match self.ask(name, &AgentRequest::StopReflecting, ANSWER_WITHIN)? {
            AgentAnswer::Reflected(counters) => Ok(counters),
            _ => Err(format!("{name} answered something that was not asked")),
        }
    }

    /// The difference of two clocks by test packets must be that by the coordinator's comparisons.
    fn compare_offsets(&mut self, session: &AgentSession, repetition: &AgentRepetition) {
        /// What the clocks may drift in between is part of the errors.
        const BESIDE_US: f64 = 200.0;
        let clock = |name: &str| {
            let agent = self.agents.iter().find(|it| it.machine.name == name)?;
            agent.machine.clocks.last().copied()
        };
        let Some(to) = &session.to else { return };
        let (Some(from), Some(its)) = (clock(&session.from), clock(to)) else { return };
        let Some((offset, error)) = repetition.offset() else { return };
        let compared = its.offset_us - from.offset_us;
        let within = error + its.error_us + from.error_us + BESIDE_US;
        let apart = (offset - compared).abs();
        if apart > within {
            self.find(format!(
                "test packets and comparisons of clocks differ by {apart:.0} µs, more than {within:.0}, \
                 for {}: a clock leapt meanwhile, or one machine tells times that are not true",
                way(session)
            ));
        }
    }
}

fn received_none(samples: &AgentSamples) -> bool {
    samples.samples.is_empty()
}

/// A session in words.
pub fn way(session: &AgentSession) -> String {
    let to = session.to.clone().or_else(|| session.reflector.map(|at| at.to_string()));
    let through: Vec<&str> =
        session.through.iter().flat_map(|it| [" through ", it.as_str()]).collect();
    format!("{} to {}{}", session.from, to.unwrap_or_default(), through.concat())
}

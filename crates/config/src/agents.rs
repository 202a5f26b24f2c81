//! A delay experiment between machines: from TOML to a typed [`AgentExperiment`], or to findings.

use crate::experiment::read_experiment;
use gatewright_diagnostic::{Diagnostic, SourceId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// An agent of the delay lab, on a machine of its own.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AgentAddress {
    /// The machine's name in the report.
    pub name: String,
    /// Where its agent listens.
    pub address: SocketAddr,
}

/// A session of test packets from one machine to another.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSession {
    /// The machine that sends.
    pub from: String,
    /// The machine whose agent reflects.
    #[serde(default)]
    pub to: Option<String>,
    /// The address of a reflector without an agent, in place of `to`.
    #[serde(default)]
    pub reflector: Option<SocketAddr>,
    /// Nodes under test on the way, by name; those with an agent report their load.
    #[serde(default)]
    pub through: Vec<String>,
}

/// A delay experiment between machines.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AgentExperiment {
    /// Title of the report.
    pub title: String,
    /// File with the key that all agents have; relative to this experiment's folder.
    pub key_file: PathBuf,
    /// The agents.
    #[serde(rename = "agent")]
    pub agents: Vec<AgentAddress>,
    /// The sessions.
    #[serde(rename = "session")]
    pub sessions: Vec<AgentSession>,
    /// Octets of test packets, without headers.
    pub octets: Vec<u16>,
    /// Packets a second.
    pub rate: Vec<u32>,
    /// Seconds of a repetition.
    pub seconds: f64,
    /// Repetitions of each session under each condition, interleaved.
    pub repeats: u32,
    /// Coefficient of variation of the repetitions' medians below which a condition is steady, in
    /// percent.
    pub steady_pct: f64,
}

/// Agents, and sessions, of an experiment at the most.
const AGENTS_MAX: usize = 16;
const SESSIONS_MAX: usize = 64;
/// Values of a list at the most.
const VALUES_MAX: usize = 16;
/// Packets of a repetition at the most.
const PACKETS_MAX: f64 = 20_000.0;

impl AgentExperiment {
    /// Packets of a repetition at this rate.
    pub fn packets(&self, rate: u32) -> u32 {
        const PACKETS_MIN: u32 = 20;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturates"
        )]
        let wanted = (f64::from(rate) * self.seconds) as u32;
        wanted.max(PACKETS_MIN)
    }
}

/// Reads an experiment between machines; `source` is its id in the caller's
/// [`Sources`](gatewright_diagnostic::Sources).
///
/// # Errors
///
/// Findings: the first about the form of the text, or all about its values.
pub fn parse_agent_experiment(
    source: SourceId,
    text: &str,
) -> Result<AgentExperiment, Vec<Diagnostic>> {
    read_experiment(source, text, wrong_values)
}

/// Keys whose values are out of range, each with what is needed.
fn wrong_values(experiment: &AgentExperiment) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let mut check = |key, good: bool, needed: String| {
        if !good {
            wrong.push((key, needed));
        }
    };
    let AgentExperiment { agents, sessions, octets, rate, seconds, .. } = experiment;
    let is_list = |len: usize, max: usize| (1..=max).contains(&len);
    check("name", is_list(agents.len(), AGENTS_MAX), "1 to 16 agents are needed".to_owned());
    let mut names: Vec<&str> = agents.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    check("name", names.len() == agents.len(), "two agents have one name".to_owned());
    check("from", is_list(sessions.len(), SESSIONS_MAX), "1 to 64 sessions are needed".to_owned());
    for AgentSession { from, to, reflector, .. } in sessions {
        for (key, name) in [("from", Some(from)), ("to", to.as_ref())] {
            let Some(name) = name else { continue };
            let is_known = names.binary_search(&name.as_str()).is_ok();
            check(key, is_known, format!("no agent is called `{name}`"));
        }
        let is_one = to.is_some() != reflector.is_some();
        check("from", is_one, "a session has either `to` or `reflector`".to_owned());
        check("to", to.as_ref() != Some(from), format!("a session of `{from}` with itself"));
    }
    let sizes = octets.iter().all(|it| (112..=8972).contains(it));
    check(
        "octets",
        is_list(octets.len(), VALUES_MAX) && sizes,
        "1 to 16 sizes of 112 to 8972 octets are needed".to_owned(),
    );
    let rates = rate.iter().all(|it| (1..=100_000).contains(it));
    check(
        "rate",
        is_list(rate.len(), VALUES_MAX) && rates,
        "1 to 16 rates of 1 to 100000 packets a second are needed".to_owned(),
    );
    check("seconds", (0.05..=600.0).contains(seconds), "0.05 to 600 seconds are needed".to_owned());
    let packets = rate.iter().all(|&it| f64::from(it) * seconds <= PACKETS_MAX);
    check("seconds", packets, "a repetition has at most 20000 packets".to_owned());
    check(
        "repeats",
        (1..=1000).contains(&experiment.repeats),
        "1 to 1000 repetitions are needed".to_owned(),
    );
    let steady = (0.1..=1000.0).contains(&experiment.steady_pct);
    check("steady_pct", steady, "0.1 to 1000 percent are needed".to_owned());
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = 't'\nkey_file = 'lab.key'\noctets = [200]\nrate = [100]\n\
        seconds = 1.0\nrepeats = 3\nsteady_pct = 5.0\n\
        [[agent]]\nname = 'left'\naddress = '192.0.2.1:8620'\n\
        [[agent]]\nname = 'right'\naddress = '192.0.2.2:8620'\n\
        [[session]]\nfrom = 'left'\nto = 'right'\nthrough = ['router']\n\
        [[session]]\nfrom = 'right'\nreflector = '192.0.2.9:862'\n";

    #[test]
    fn sessions_are_between_agents_or_with_any_reflector() {
        let experiment = parse_agent_experiment(SourceId::default(), SMALL).unwrap();
        assert_eq!(experiment.packets(100), 100);
        assert_eq!(experiment.packets(1), 20, "enough for a median");
        assert_eq!(experiment.sessions[0].to.as_deref(), Some("right"));
        assert_eq!(experiment.sessions[1].reflector.unwrap().port(), 862);
    }

    #[test]
    fn a_wrong_text_is_found_at_its_place() {
        for (from, to, code, at) in [
            ("rate =", "pace =", 101, "pace"),
            ("rate = [100]", "rate = [0]", 105, "rate"),
            ("octets = [200]", "octets = [44]", 105, "octets"),
            ("to = 'right'", "to = 'up'", 105, "to"),
            ("to = 'right'", "to = 'left'", 105, "to"),
            ("reflector = '192.0.2.9:862'", "", 105, "from"),
            ("name = 'right'", "name = 'left'", 105, "name"),
            ("seconds = 1.0", "seconds = 300.0", 105, "seconds"),
            ("'192.0.2.2:8620'", "'192.0.2.2'", 105, ""),
        ] {
            let text = SMALL.replacen(from, to, 1);
            let findings = parse_agent_experiment(SourceId::default(), &text).unwrap_err();
            let finding = &findings[0];
            let span = finding.primary.span;
            assert!(text[span.start..].starts_with(at), "{to}: at {}", &text[span.start..]);
            if !at.is_empty() {
                assert_eq!(finding.code.number, code, "{to}: {}", finding.message);
            }
        }
    }
}

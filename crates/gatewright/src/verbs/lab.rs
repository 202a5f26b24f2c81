//! `gatewright lab`: how long relaying takes on this node, measured and modelled.

mod agent;
mod balance;
mod compare;
mod mesh;
mod plan;
mod promise;
mod run;
mod stamp;

use anyhow::Result;
use gatewright_command::{
    description::{read, read_whole},
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_config::{Experiment, parse_experiment};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_gateway::ReplacedFile;
use gatewright_lab::LabRun;
use gatewright_lab::agent::AgentRun;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub(super) const JSON: &str = "run: {title, unfinished, files: {html, json, csv}, seconds, probes, conditions, left_out, warnings}, with --agents {title, files, seconds, machines, packets, findings}, and \
     the file json has everything; plan: {relays, left_out: [{what, why}], warnings, conditions, \
     repetitions, probes, seconds, seconds_max, namespaces}; compare: {machines, conditions: \
     [{relay, octets, rate, load_pct, batch, awake, frequency_mhz, steady, difference: {delays, relative, interval, verdict}}], \
     unmatched, level}; promise: [{relay, flows, or_more, load, delay_us, next_us, error_pct, conditions, unsteady, beyond_rate, \
     beyond_octets, limited_by: {octets, rate, quantile, delay_us}, beyond_link, slowdown, model: {fixed_ns, octet_ps, variation_pct, spread_pct}} or {relay, flows: null, \
     model: null, cause}]; balance: {nodes, links, offered, \
     seed, policies: [{policy, flows, violations_pct, packets, busiest_pct, refused}]}; mesh: {seed, nodes, links, \
     events, seconds, figures: [{name, value}], violations}; stamp send: {sent, reflected, repeated, foreign, stateful, \
     lost_there, lost_back, lost_either, lost_unknown, round_trip, jitter, inside, offset_us, offset_error_us, reflector_error_us (null if its clock is not synchronised), ttl}; stamp \
     reflect: {listens, mode}, at the end its counters; agent: {listens, reflects, sends_to}, at the end its counters";

/// Measures how long relaying takes on this node, models it, and says what the node can promise;
/// simulates meshes and networks that carry flows; measures to hosts that reflect test packets.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LabVerb {
    Run(run::RunLab),
    Plan(plan::Plan),
    Compare(compare::Compare),
    Promise(promise::Promise),
    Balance(balance::Balance),
    Mesh(mesh::Mesh),
    Stamp(stamp::Stamp),
    Agent(agent::Agent),
}

impl Lab {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self.verb {
            LabVerb::Run(verb) => verb.run(face),
            LabVerb::Plan(verb) => verb.run(face),
            LabVerb::Compare(verb) => verb.run(face),
            LabVerb::Promise(verb) => verb.run(face),
            LabVerb::Balance(verb) => verb.run(face),
            LabVerb::Mesh(verb) => verb.run(face),
            LabVerb::Stamp(verb) => verb.run(face),
            LabVerb::Agent(verb) => verb.run(face),
        }
    }
}

/// Writes the files of a report, `lab-NAME.ENDING` with its text for each, into a folder; returns
/// their paths. None replaces an earlier one until all are written: a full disk leaves the earlier
/// report as it was.
fn write_report<const N: usize>(
    folder: &Path,
    name: &str,
    texts: &[(&str, String); N],
) -> Result<[String; N], Failure> {
    let paths = texts.each_ref().map(|(ending, _)| report_file(folder, name, ending));
    let failure = |path: &Path, error| Failure::file(&path.to_string_lossy(), &error);
    let mut written = Vec::with_capacity(N);
    for ((_, text), path) in texts.iter().zip(&paths) {
        let replaced = ReplacedFile::create(path).and_then(|replaced| {
            replaced.file().write_all(text.as_bytes())?;
            replaced.file().sync_all()?;
            Ok(replaced)
        });
        written.push(replaced.map_err(|error| failure(path, error))?);
    }
    for (replaced, path) in written.into_iter().zip(&paths) {
        replaced.place().map_err(|error| failure(path, error))?;
    }
    Ok(paths.map(|path| path.to_string_lossy().into_owned()))
}

fn report_file(folder: &Path, name: &str, ending: &str) -> PathBuf {
    folder.join(format!("lab-{name}.{ending}"))
}

/// Experiments that need no file, by name.
const EXPERIMENTS: [(&str, &str); 3] = [
    ("default", include_str!("../../../../examples/lab/default.toml")),
    ("paper", include_str!("../../../../examples/lab/paper.toml")),
    ("unexplained", include_str!("../../../../examples/lab/unexplained.toml")),
];

/// The experiment of this name or in this file, with a name for its results.
fn experiment(name: &str, face: Face) -> Result<(Experiment, String), Failure> {
    let known = EXPERIMENTS.iter().find(|(known, _)| *known == name);
    let text = match known {
        Some((_, text)) => (*text).to_owned(),
        None if Path::new(name).extension().is_none() && !Path::new(name).exists() => {
            let known = EXPERIMENTS.map(|(name, _)| name).join(", ");
            let message = format!("there is no experiment `{name}`: {known}, or a TOML file");
            return Err(Failure::new(Exit::Usage, message));
        }
        None => read(name)?,
    };
    let sources = Sources::of(name, text);
    let text = sources.get(SourceId::default()).text();
    let experiment = parse_experiment(SourceId::default(), text).map_err(|findings| {
        face.findings(&findings, &sources);
        let first = findings.first().map_or_else(String::new, |it| it.message.clone());
        let is_of_agents = text.lines().any(|line| line.trim_start().starts_with("[[agent]]"));
        let hint = if is_of_agents {
            format!("; `gatewright lab run --agents {name}` runs an experiment between machines")
        } else {
            String::new()
        };
        let message = format!("{name} is no experiment: {first}{hint}");
        Failure::new(Exit::Configuration, message)
    })?;
    let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok((experiment, stem.unwrap_or_else(|| "experiment".to_owned())))
}

/// A result that `lab run` has written; one of an unfinished run is said to be that.
fn result(path: &str, face: Face) -> Result<LabRun, Failure> {
    let text = read_whole(path)?;
    let run: LabRun = serde_json::from_str(&text).map_err(|error| {
        let message = match serde_json::from_str::<AgentRun>(&text) {
            Ok(_) => format!(
                "{path}: a result of `gatewright lab run --agents`: between machines no relay is \
                 modelled, so there is nothing to compare or to promise"
            ),
            Err(_) => format!("{path}: not a result of `gatewright lab run`: {error}"),
        };
        Failure::new(Exit::Configuration, message)
    })?;
    let wrong = |why: String| Failure::new(Exit::Configuration, format!("{path}: {why}"));
    if run.form != LabRun::FORM {
        let why = format!("results of form {}: this program reads form {}", run.form, LabRun::FORM);
        return Err(wrong(why));
    }
    if run.conditions.iter().any(|it| it.received > it.sent) {
        return Err(wrong("more probes were received than sent".to_owned()));
    }
    if let Some(why) = &run.unfinished {
        face.note(&format!("{path}: the run is unfinished: {why}"));
    }
    Ok(run)
}

/// Seconds as minutes and seconds.
fn time(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

/// The least and the greatest time, or the one time where both read the same.
fn time_span(seconds: f64, seconds_max: f64) -> String {
    let [least, most] = [seconds, seconds_max].map(time);
    if least == most { least } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_time_is_no_span() {
        assert_eq!(time_span(40.1, 40.4), "40 s");
        assert_eq!(time_span(40.0, 120.0), "40 s to 2.0 min");
    }

    /// The second report fails at its last file, as on a full disk: the first one is whole.
    #[test]
    fn a_report_that_cannot_be_written_leaves_the_earlier_one() {
        let folder = std::env::temp_dir().join(format!("lab-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let texts = |text: &str| ["json", "csv", "html"].map(|ending| (ending, text.to_owned()));
        let paths = write_report(&folder, "x", &texts("first")).unwrap();
        let obstacle = folder.join("lab-x.html.part");
        fs::create_dir(&obstacle).unwrap();
        assert!(write_report(&folder, "x", &texts("second")).is_err());
        for path in &paths {
            assert_eq!(fs::read_to_string(path).unwrap(), "first", "{path}");
        }
        fs::remove_dir(&obstacle).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "nothing incomplete is left");
        write_report(&folder, "x", &texts("third")).unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "third");
        fs::remove_dir_all(&folder).unwrap();
    }
}

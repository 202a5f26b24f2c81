//! `gatewright lab agent`, and `gatewright lab run --agents`.

use super::stamp::StampKeyFile;
use anyhow::Result;
use gatewright_command::{
    description,
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_config::{AgentExperiment, parse_agent_experiment};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lab::agent::{
    AGENT_PORT, AgentCondition, AgentRun, AgentSetup, run_between_agents, serve_agent,
};
use gatewright_lab::report::{agents_csv, agents_html};
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Takes part in experiments between machines (`lab run --agents`), until interrupted.
///
/// The coordinator has the same key. What it may ask for is given here: an address to reflect test
/// packets at, and reflectors to send them to.
#[derive(Debug, clap::Args)]
pub(super) struct Agent {
    /// Address and port for the coordinator; loopback unless it is given.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), AGENT_PORT))]
    listen: SocketAddr,
    /// Where test packets are reflected during sessions, by the same key; nowhere unless it is given.
    #[arg(long, value_name = "ADDRESS:PORT")]
    reflect: Option<SocketAddr>,
    /// A reflector that test packets may be sent to; may be given several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    send_to: Vec<SocketAddr>,
    #[command(flatten)]
    key: StampKeyFile,
    /// Stop by itself after this long.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
}

impl Agent {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let no_key = "an agent needs a key: --key-file FILE, the same file as the coordinator's";
        let key = self.key.read()?.ok_or_else(|| Failure::new(Exit::Usage, no_key.to_owned()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        gatewright_command::signals::on_stop(move || its.store(true, Ordering::Relaxed))?;
        let end = self.stop_after.map(|after| Instant::now() + Duration::from_secs(after));
        let failed = |error: std::io::Error| {
            let exit = match error.kind() {
                ErrorKind::PermissionDenied => Exit::Permission,
                _ => Exit::Unavailable,
            };
            Failure::new(exit, format!("cannot listen at {}: {error}", self.listen))
        };
        let listener = TcpListener::bind(self.listen).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let Self { reflect, send_to, .. } = &self;
        face.line(&json!({ "listens": at, "reflects": reflect, "sends_to": send_to }), || {
            let reflect = reflect.map_or("nowhere".to_owned(), |at| format!("at {at}"));
            format!("agent at {at}; reflects {reflect}, sends to {} reflectors", send_to.len())
        })?;
        let setup = AgentSetup {
            key,
            reflect: self.reflect,
            send_to: self.send_to.clone(),
            clock: gatewright_lab::agent::wall_clock,
        };
        let is_stop_requested =
            || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
        let counters = serve_agent(&listener, &setup, &is_stop_requested).map_err(failed)?;
        face.line(&counters, || {
            format!(
                "{} coordinators, {} connections without the key, {} requests, {} refused",
                counters.coordinators, counters.not_authentic, counters.requests, counters.refused
            )
        })?;
        Ok(Exit::Success)
    }
}

/// How often progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// Runs the experiment between machines of a file; writes report, results and table into a folder.
pub(super) fn run_file(file: &Path, output: &Path, face: Face) -> Result<Exit> {
    let experiment = read(file, face)?;
    let key_file = file.parent().unwrap_or(Path::new("")).join(&experiment.key_file);
    let key = StampKeyFile { key_file: Some(key_file) }.read()?;
    let key = key.ok_or_else(|| Failure::new(Exit::Configuration, "no key".to_owned()))?;
    // Tried before the time is spent.
    fs::create_dir_all(output).map_err(|error| Failure::file(&output.to_string_lossy(), &error))?;
    let mut told = Instant::now();
    let run = run_between_agents(&experiment, &key, &mut |progress| {
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            face.note(&super::run::line(progress));
        }
    });
    let stem = file.file_stem().map_or("agents".into(), |stem| stem.to_string_lossy());
    let json = serde_json::to_string(&run).unwrap_or_default() + "\n";
    let texts = [("html", agents_html(&run)), ("json", json), ("csv", agents_csv(&run))];
    let files = super::write_report(output, &stem, &texts)?;
    let answer = json!({
        "title": run.experiment.title,
        "files": files,
        "seconds": run.seconds,
        "machines": run.machines.len(),
        "packets": run.conditions.iter().map(|it| u64::from(it.received)).sum::<u64>(),
        "findings": run.findings,
    });
    face.answer(&answer, || summary(&run, &files))?;
    // A session of which nothing came back is not measured, whether or not anything was sent.
    let is_measured = !run.conditions.is_empty() && run.conditions.iter().all(|it| it.received > 0);
    Ok(if is_measured { Exit::Success } else { Exit::Negative })
}

fn read(file: &Path, face: Face) -> Result<AgentExperiment, Failure> {
    let name = file.to_string_lossy();
    let sources = Sources::of(&*name, description::read(&name)?);
    let text = sources.get(SourceId::default()).text();
    parse_agent_experiment(SourceId::default(), text).map_err(|findings| {
        face.findings(&findings, &sources);
        let first = findings.first().map_or_else(String::new, |it| it.message.clone());
        let message = format!("{name} is no experiment between machines: {first}");
        Failure::new(Exit::Configuration, message)
    })
}

fn summary(run: &AgentRun, files: &[String]) -> String {
    let mut text = String::from("round trips in µs; delays on one way to within ±\n");
    for it in &run.conditions {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{}, {} octets, {}/s: {} of {} back",
            gatewright_lab::agent::way(&it.session),
            it.octets,
            it.rate,
            it.received,
            it.sent
        );
        if let (Some(trip), Some(there), Some(back)) = (it.round_trip, it.there, it.back) {
            let _ = write!(
                text,
                ", median {:.1}, 99 % within {:.1}; there {:.1}, back {:.1}, ± {:.1}",
                trip.p50,
                trip.p99,
                there.p50,
                back.p50,
                it.one_way_error_us.unwrap_or(f64::NAN)
            );
        }
        text.push_str(match it {
            AgentCondition { received: 0, .. } => "; nothing came back\n",
            AgentCondition { steady: false, .. } => "; unsteady\n",
            _ => "\n",
        });
    }
    for it in &run.machines {
        if let (Some(first), Some(last)) = (it.clocks.first(), it.clocks.last()) {
            let _ = writeln!(
                text,
                "clock of {}: {:+.1} µs, at the end {:+.1}, ± {:.1}",
                it.name, first.offset_us, last.offset_us, last.error_us
            );
        }
    }
    for finding in &run.findings {
        let _ = writeln!(text, "finding: {finding}");
    }
    let _ = writeln!(text, "files: {}", files.join(", "));
    text
}

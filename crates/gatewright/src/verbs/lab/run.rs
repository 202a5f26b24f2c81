//! `gatewright lab run`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_gateway::ReplacedFile;
use gatewright_lab::analysis::ConfidenceInterval;
use gatewright_lab::report::{Agreement, counted, csv, html, statements};
use gatewright_lab::{LabError, LabPlan, LabProgress, LabRun, LeftOut, RunListener, fit};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs an experiment; writes a report (HTML), all results (JSON) and a table (CSV).
///
/// EXPERIMENT is `default` (five minutes at the most), `paper`, `unexplained` (what the paper found and
/// did not explain), or a TOML file such as examples/lab/default.toml. Sender, node and receiver are network namespaces, which needs root;
/// without it, relays over sockets are measured on loopback, and the report says what was left out.
///
/// The terminal shows the first ten warnings; the report has all. Ends with 1 if no relay has a result,
/// with 75 while another run writes the same files.
///
/// Interrupted, it writes what it has measured and ends with 1. After each round it writes
/// lab-NAME-unfinished.html, .json and .csv, which stay if it is killed.
#[derive(Debug, clap::Args)]
pub(super) struct RunLab {
    /// The experiment.
    #[arg(value_name = "EXPERIMENT", default_value = "default")]
    experiment: String,
    /// Time for the whole run, in place of the experiment's time for each repetition.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// An experiment between machines, in place of EXPERIMENT: a TOML file with agents and sessions
    /// such as examples/lab/agents.toml. It ends with 1 if nothing came back in a session.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiment", "minutes"])]
    agents: Option<PathBuf>,
    /// Folder for the files.
    #[arg(long, short, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
}

#[derive(Serialize)]
struct RunAnswer {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<String>,
    files: Files,
    seconds: f64,
    probes: usize,
    conditions: usize,
    left_out: Vec<LeftOut>,
    warnings: usize,
}

#[derive(Serialize)]
struct Files {
    html: String,
    json: String,
    csv: String,
}

/// How often progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(2);

impl RunLab {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        if let Some(file) = &self.agents {
            return super::agent::run_file(file, &self.output, face);
        }
        let (mut experiment, name) = super::experiment(&self.experiment, face)?;
        if let Some(minutes) = self.minutes {
            let time = Duration::try_from_secs_f64(minutes * 60.0);
            let wrong = || Failure::new(Exit::Usage, format!("{minutes} minutes are no time"));
            fit(&mut experiment, time.map_err(|_| wrong())?);
        }
        let _own = own(&self.output, &name)?;
        tell(&gatewright_lab::plan(&experiment), face);
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        gatewright_command::signals::on_stop(move || its.store(true, Ordering::Relaxed))?;
        let kept = KeptFiles { folder: self.output.clone(), name: format!("{name}-unfinished") };
        let mut listener = Listener { face, told: Instant::now(), stop, kept };
        let run = gatewright_lab::run_with(&experiment, &mut listener);
        let run = run.map_err(|error| Failure::new(exit_of(&error), error.to_string()))?;
        let files = match write(&self.output, &name, &run) {
            Ok(files) => files,
            Err(failure) => {
                // What was measured is told at least, as the disk has no room for it.
                face.note(&summary(&run, None));
                return Err(failure.into());
            }
        };
        listener.kept.remove();
        let answer = RunAnswer {
            title: run.experiment.title.clone(),
            unfinished: run.unfinished.clone(),
            files,
            seconds: run.seconds,
            probes: run.conditions.iter().map(|it| it.sent).sum(),
            conditions: run.conditions.len(),
            left_out: run.left_out.clone(),
            warnings: run.warnings.len(),
        };
        face.answer(&answer, || summary(&run, Some(&answer.files)))?;
        let is_whole = run.unfinished.is_none() && run.has_delays();
        Ok(if is_whole { Exit::Success } else { Exit::Negative })
    }
}

fn tell(plan: &LabPlan, face: Face) {
    for LeftOut { what, why } in &plan.left_out {
        face.note(&format!("left out: {what}: {why}"));
    }
    for warning in &plan.warnings {
        face.note(&format!("warning: {warning}"));
    }
    face.note(&format!(
        "{} under {}: {}",
        counted(plan.relays.len(), "relay"),
        counted(plan.conditions, "condition"),
        super::time_span(plan.seconds, plan.seconds_max)
    ));
}

/// Tries, before the time is spent, whether the files can be written, and keeps other runs from writing
/// these: beside each other, two would disturb each other's delays, and the later one would replace the
/// earlier one's report. Others may write again when the result is dropped, or this process ends.
fn own(folder: &Path, name: &str) -> Result<ReplacedFile, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::file(&folder.to_string_lossy(), &error))?;
    let begin = |ending| {
        let path = super::report_file(folder, name, ending);
        let begun = refuse_foreign(&path).and_then(|()| ReplacedFile::create(&path));
        begun.map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => Failure::new(
                Exit::Busy,
                format!(
                    "{}: another `gatewright lab run` is measuring for this file; two at once disturb \
                     each other: try again when it has ended",
                    super::report_file(folder, name, "html").to_string_lossy()
                ),
            ),
            _ => Failure::file(&path.to_string_lossy(), &error),
        })
    };
    let own = begin("lock")?;
    for ending in ENDINGS {
        begin(ending)?;
    }
    Ok(own)
}

/// Refuses a file of another user in a folder such as `/tmp`, where only its owner may replace it.
fn refuse_foreign(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let user = nix::unistd::geteuid();
    let (Ok(file), Some(folder)) = (fs::symlink_metadata(path), path.parent()) else {
        return Ok(());
    };
    // A file of the current folder has an empty parent.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = fs::metadata(folder)?;
    let is_sticky = folder.mode() & STICKY != 0;
    let is_foreign = [file.uid(), folder.uid()].iter().all(|it| *it != user.as_raw());
    if is_sticky && is_foreign && !user.is_root() {
        let why = "another user's file, which only that user may replace in this folder";
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Endings of the files of a report.
const ENDINGS: [&str; 3] = ["json", "csv", "html"];

/// Tells progress, keeps what is there so far, and ends the run when a signal comes.
struct Listener {
    face: Face,
    told: Instant,
    stop: Arc<AtomicBool>,
    kept: KeptFiles,
}

impl RunListener for Listener {
    fn progress(&mut self, progress: &LabProgress) {
        if self.told.elapsed() >= TOLD_EVERY {
            self.told = Instant::now();
            self.face.note(&line(progress));
        }
    }

    fn unfinished(&mut self, run: &LabRun) -> Result<(), String> {
        let KeptFiles { folder, name } = &self.kept;
        let written = write(folder, name, run).map(drop).map_err(|failure| failure.to_string());
        if let Err(why) = &written {
            self.face.note(&format!("the unfinished report is not kept: {why}"));
        }
        written
    }

    fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The report of an unfinished run, which stays if the run is killed.
struct KeptFiles {
    folder: PathBuf,
    name: String,
}

impl KeptFiles {
    fn remove(&self) {
        for ending in ENDINGS {
            // There is none if there was one round only.
            let _ = fs::remove_file(super::report_file(&self.folder, &self.name, ending));
        }
    }
}

fn exit_of(error: &LabError) -> Exit {
    match error {
        // Root lacks no right: then it is the machine that cannot.
        LabError::Nothing(_) if nix::unistd::geteuid().is_root() => Exit::Unavailable,
        LabError::Nothing(_) => Exit::Permission,
        _ => Exit::Negative,
    }
}

pub(super) fn line(progress: &LabProgress) -> String {
    let LabProgress { done, all, elapsed, now } = progress;
    let done_share = u32::try_from((*done).max(1)).unwrap_or(1);
    let rest = u32::try_from(all.saturating_sub(*done)).unwrap_or(0);
    let left = *elapsed / done_share * rest;
    format!("{done} of {all} repetitions, {} to go: {now}", super::time(left.as_secs_f64()))
}

fn write(folder: &Path, name: &str, run: &LabRun) -> Result<Files, Failure> {
    let text = serde_json::to_string(run).unwrap_or_default() + "\n";
    let texts = [("json", text), ("csv", csv(run)), ("html", html(run))];
    let [json, csv, html] = super::write_report(folder, name, &texts)?;
    Ok(Files { html, json, csv })
}

/// A figure, with its interval where there are enough probes for one.
fn with_interval(value: f64, interval: Option<ConfidenceInterval>) -> String {
    let interval = interval.map(|it| format!(" ({:.1}–{:.1})", it.low, it.high));
    format!("{value:.1}{}", interval.unwrap_or_default())
}

fn summary(run: &LabRun, files: Option<&Files>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(why) = &run.unfinished {
        let _ = writeln!(text, "UNFINISHED: {why}");
    }
    if run.has_delays() {
        push_delays(&mut text, run);
    } else {
        text.push_str("NO RELAY HAS A RESULT\n");
        for LeftOut { what, why } in &run.left_out {
            let _ = writeln!(text, "left out: {what}: {why}");
        }
    }
    push_warnings(&mut text, &run.warnings);
    if let Some(Files { html, json, csv }) = files {
        let _ = writeln!(text, "report: {html}\nresults: {json}, {csv}");
    }
    text
}

/// Warnings that the terminal shows; the others are in the report.
const WARNINGS_SHOWN: usize = 10;

fn push_warnings(text: &mut String, warnings: &[String]) {
    let colon = if warnings.is_empty() { "" } else { ":" };
    let _ = writeln!(text, "\n{}{colon}", counted(warnings.len(), "warning"));
    for warning in warnings.iter().take(WARNINGS_SHOWN) {
        let _ = writeln!(text, "- {warning}");
    }
    let more = warnings.len().saturating_sub(WARNINGS_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "and {more} more in the report");
    }
}

/// The delays at the centre, and what they say to the paper's statements.
fn push_delays(text: &mut String, run: &LabRun) {
    let centre = run.experiment.centre;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{} octets, {}/s, other load {} %; delays of the node in µs, with intervals of 95 %\n\
         {:20} {:>22} {:>22} {:>22} {:>8} {:>7}\n",
        centre.octets, centre.rate, centre.load_pct, "relay", "p50", "p95", "p99", "delays", "lost"
    );
    for relay in run.relays() {
        let Some(it) = run.centre(relay) else { continue };
        let Some(node) = it.node else { continue };
        let _ = writeln!(
            text,
            "{:20} {:>22} {:>22} {:>22} {:>8} {:>5.1} %{}",
            relay.name(),
            with_interval(node.p50, it.node_median),
            with_interval(node.p95, node.p95_interval),
            with_interval(node.p99, node.p99_interval),
            node.count,
            it.loss_pct(),
            if it.steady || it.cv_pct.is_none() { "" } else { "  unsteady" }
        );
    }
    if run.relays().iter().all(|it| run.centre(*it).is_none_or(|it| it.node.is_none())) {
        text.push_str("no relay has a result under this condition; others are in the report\n");
    }
    text.push_str("\nbeside the paper:\n");
    for it in statements(run) {
        let sign = match it.agreement {
            Agreement::Same => "=",
            Agreement::Different => "≠",
            Agreement::Unknown => " ",
        };
        let _ = writeln!(text, "{sign} {}\n    {}", it.paper, it.ours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_interval_or_none() {
        let interval = ConfidenceInterval { low: 43.14, high: 46.26 };
        assert_eq!(with_interval(44.71, Some(interval)), "44.7 (43.1–46.3)");
        assert_eq!(with_interval(954.3, None), "954.3");
    }

    #[test]
    fn ten_warnings_are_shown_and_the_rest_is_counted() {
        let shown = |count: usize| {
            let warnings: Vec<String> = (1..=count).map(|it| format!("no. {it}")).collect();
            let mut text = String::new();
            push_warnings(&mut text, &warnings);
            text
        };
        assert_eq!(shown(0), "\n0 warnings\n");
        assert_eq!(shown(1), "\n1 warning:\n- no. 1\n");
        assert!(shown(10).ends_with("\n- no. 10\n"));
        assert!(shown(12).ends_with("\n- no. 10\nand 2 more in the report\n"));
    }
}

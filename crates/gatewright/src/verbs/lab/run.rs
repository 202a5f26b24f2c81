//! `gatewright lab run`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_lab::report::{Agreement, csv, html, statements};
use gatewright_lab::{LabError, LabProgress, LabRun, LeftOut, fit};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs an experiment; writes a report (HTML), all results (JSON) and a table (CSV).
///
/// EXPERIMENT is `default` (five minutes at the most), `paper`, `unexplained` (what the paper found and
/// did not explain), or a TOML file such as examples/lab/default.toml. Sender, node and receiver are network namespaces, which needs root;
/// without it, relays over sockets are measured on loopback, and the report says what was left out.
#[derive(Debug, clap::Args)]
pub(super) struct RunLab {
    /// The experiment.
    #[arg(value_name = "EXPERIMENT", default_value = "default")]
    experiment: String,
    /// Time for the whole run, in place of the experiment's time for each repetition.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// An experiment between machines, in place of EXPERIMENT: a TOML file with agents and sessions
    /// such as examples/lab/agents.toml.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiment", "minutes"])]
    agents: Option<PathBuf>,
    /// Folder for the files.
    #[arg(long, short, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
}

#[derive(Serialize)]
struct RunAnswer {
    title: String,
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
        // Tried before the time is spent.
        fs::create_dir_all(&self.output)
            .map_err(|error| Failure::file(&self.output.to_string_lossy(), &error))?;
        let plan = gatewright_lab::plan(&experiment);
        for LeftOut { what, why } in &plan.left_out {
            face.note(&format!("left out: {what}: {why}"));
        }
        face.note(&format!(
            "{} relays under {} conditions: {} to {}",
            plan.relays.len(),
            plan.conditions,
            super::time(plan.seconds),
            super::time(plan.seconds_max)
        ));
        let mut told = Instant::now();
        let run = gatewright_lab::run(&experiment, &mut |progress| {
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                face.note(&line(progress));
            }
        });
        let run = run.map_err(|error| Failure::new(exit_of(&error), error.to_string()))?;
        let files = write(&self.output, &name, &run)?;
        let answer = RunAnswer {
            title: run.experiment.title.clone(),
            files,
            seconds: run.seconds,
            probes: run.conditions.iter().map(|it| it.sent).sum(),
            conditions: run.conditions.len(),
            left_out: run.left_out.clone(),
            warnings: run.warnings.len(),
        };
        face.answer(&answer, || summary(&run, &answer.files))?;
        Ok(Exit::Success)
    }
}

fn exit_of(error: &LabError) -> Exit {
    match error {
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

fn summary(run: &LabRun, files: &Files) -> String {
    let centre = run.experiment.centre;
    let mut text = format!(
        "{} octets, {}/s, other load {} %; delays of the node in µs\n\
         relay                     p50       p95       p99     lost\n",
        centre.octets, centre.rate, centre.load_pct
    );
    for relay in run.relays() {
        let Some(it) = run.centre(relay) else { continue };
        let Some(node) = it.node else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:20} {:>8.1}  {:>8.1}  {:>8.1}  {:>5.1} %{}",
            relay.name(),
            node.p50,
            node.p95,
            node.p99,
            it.loss_pct(),
            if it.steady { "" } else { "  unsteady" }
        );
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
    let _ = write!(
        text,
        "\n{} warnings\nreport: {}\nresults: {}, {}\n",
        run.warnings.len(),
        files.html,
        files.json,
        files.csv
    );
    text
}

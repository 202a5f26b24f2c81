//! `gatewright upgrade`: another binary for a running gateway, one plane after the other.

mod process;
mod program;

use super::status::{list, number, word};
use crate::{
    description::{Description, folder_of, refusals},
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_diagnostic::SourceId;
use gatewright_gateway::api::ControlRequest;
use process::ControlProcess;
use program::{NewProgram, UNCHANGED};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The shape of its answer.
pub const JSON: &str = "{program, control: {process, ms, lost}, data: {before, process, ms, frames}}; no frames where the \
     data plane was given up before";

/// Exchanges the program of a running gateway: first the control plane's, then the data plane's.
///
/// It is for gateways with `[planes] mode = "process"`. The new program begins in the control
/// plane's process, with the same arguments, and adopts the data plane, which forwards meanwhile.
/// Then the data plane's process is exchanged; frames that arrive until its links are open again are
/// lost where links are exclusive, and forwarded by the kernel where they are shared, if forwarding is
/// on there; handlers do not see them. Says how long each took, how many packets were dropped during
/// the first, and how many frames arrived during the second. A data plane that was given up is started
/// again by the new control plane.
///
/// A program whose planes do not understand the running ones is refused, and nothing is changed. So
/// is a description that this program or BINARY refuses, that cannot be read, or that needs a
/// restart: what has changed in it is taken first, as `reload` does. A program whose `run` ends at once
/// when the gateway then tries it with its own arguments is refused, and the gateway goes on as it is.
#[derive(Debug, clap::Args)]
pub struct Upgrade {
    #[command(flatten)]
    which: Which,
    /// The new binary; if not given, what is now at the path of the running one.
    #[arg(value_name = "BINARY")]
    program: Option<PathBuf>,
}

/// Maximum time for the new control plane to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Upgrade {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let before = self.status()?;
        let planes = before.get("planes").unwrap_or(&Value::Null);
        if word(planes, "mode") != "process" {
            // It has no data plane, whatever its description says of the planes.
            let text = if list(&before, "links").is_empty() {
                "the gateway has no links, so it is one process: restart it instead"
            } else {
                "the gateway is one process ([planes] mode = \"threads\"): restart it instead"
            };
            return Err(Failure::new(Exit::Negative, text).into());
        }
        let program = NewProgram::of(self.program.as_deref(), number(planes, "control"))?;
        let (ours, theirs) = (word(planes, "version"), program.version(face)?);
        if ours != theirs {
            let text = format!(
                "{} does not fit: its planes are of version {theirs}, the running ones of {ours}; \
                 {UNCHANGED}; end the gateway and start it with the new program",
                program.path().display()
            );
            return Err(Failure::new(Exit::Negative, text).into());
        }
        self.take_description(face, &program, ran(&before))?;
        let program = program.path();
        let mut control = self.exchange_control(program, &before)?;
        let started = control.as_object_mut().and_then(|told| told.remove("started"));
        face.note(&format!(
            "control: {} ms without it, {} packets dropped meanwhile",
            number(&control, "ms"),
            number(&control, "lost")
        ));
        let data = match &started {
            // The new control plane has started it with its own program.
            Some(started) => started.clone(),
            None => self.which.ask(&ControlRequest::ExchangeDataPlane)?,
        };
        let value = json!({ "program": program, "control": control, "data": data });
        face.answer(&value, || {
            if started.is_some() {
                return format!(
                    "{} runs: control is process {}, data is process {}, started after it was \
                     given up\n",
                    program.display(),
                    number(&control, "process"),
                    number(&data, "process"),
                );
            }
            format!(
                "{} runs: control is process {}, data is process {} after {} ms, in which {} frames \
                 arrived\n",
                program.display(),
                number(&control, "process"),
                number(&data, "process"),
                number(&data, "ms"),
                number(&data, "frames")
            )
        })?;
        Ok(Exit::Success)
    }

    fn status(&self) -> Result<Value, Failure> {
        self.which.ask(&ControlRequest::Status)
    }

    /// Has the running gateway take its description as it is now: then the new control plane begins
    /// with nothing that could end it. Without a data plane the gateway takes nothing, and the
    /// description is only checked.
    fn take_description(
        &self,
        face: Face,
        program: &NewProgram,
        runs: bool,
    ) -> Result<(), Failure> {
        let answer = self.which.ask(&ControlRequest::Description)?;
        // The gateway refuses what came by standard input in its own words.
        let Some(file) = answer.get("file").and_then(Value::as_str) else { return Ok(()) };
        let refused = |exit, why: &str| Failure::new(exit, format!("{why}; {UNCHANGED}"));
        let read =
            Description::load(face.program(), file).map_err(|it| refused(it.exit, &it.message))?;
        if read.config.is_none() {
            face.findings(&read.findings, &read.sources);
            return Err(refused(Exit::Configuration, &read.first_error()));
        }
        program.check(face, file)?;
        if !runs {
            return Ok(());
        }
        let text = read.sources.get(SourceId::default()).text().to_owned();
        let request = ControlRequest::Reload { text, folder: Some(folder_of(file)?) };
        let answer = self.which.ask_to_take(&request).map_err(|(failure, of)| {
            face.findings(&refusals(&read.sources, &of.refused, of.restart), &read.sources);
            match failure.exit {
                Exit::Negative => Failure::new(Exit::Configuration, failure.message),
                _ => failure,
            }
        })?;
        for change in list(&answer, "changes") {
            face.note(&format!("{}: {}", word(change, "what"), word(change, "how")));
        }
        Ok(())
    }

    /// Has the control plane become the new program; returns how long nobody answered.
    fn exchange_control(&self, program: &Path, before: &Value) -> Result<Value, Failure> {
        let (asked, process) = (Instant::now(), self.which.process().and_then(ControlProcess::of));
        let request = ControlRequest::UpgradeControl { program: program.to_owned() };
        let answer = self.which.ask(&request)?;
        if let Some(why) = answer.get("refused").and_then(Value::as_str) {
            // The description may have been taken.
            let text = format!("{}: {why}; the gateway goes on as it is", program.display());
            return Err(Failure::new(Exit::Configuration, text));
        }
        let began = Instant::now();
        loop {
            let answer = self.status();
            let elapsed = began.elapsed();
            if answer.is_err()
                && let Some(how) = process.as_ref().and_then(ControlProcess::end)
            {
                self.which.end_upgrade();
                let text = format!(
                    "the new control plane {how}, as its log says; the data plane goes on: start \
                     `gatewright run` anew"
                );
                return Err(Failure::new(Exit::Unavailable, text));
            }
            match answer {
                // The one before may answer for a moment.
                Ok(after) if uptime(&after) < asked.elapsed() => {
                    let planes = after.get("planes").unwrap_or(&Value::Null);
                    let is_adopted = planes.get("adopted").and_then(Value::as_bool) == Some(true);
                    if !is_adopted && ran(before) {
                        let text = "the new control plane has started another data plane";
                        return Err(Failure::new(Exit::Negative, text));
                    }
                    let lost = dropped(&after).saturating_sub(dropped(before));
                    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
                    let process = number(planes, "control");
                    let mut told = json!({ "process": process, "ms": ms, "lost": lost });
                    if let (false, Some(told)) = (is_adopted, told.as_object_mut()) {
                        let old = before.get("planes").unwrap_or(&Value::Null);
                        let (before, process) = (number(old, "data"), number(planes, "data"));
                        let started = json!({ "before": before, "process": process, "ms": ms });
                        told.insert("started".to_owned(), started);
                    }
                    return Ok(told);
                }
                Ok(_) | Err(_) if elapsed < ANSWERS_WITHIN => thread::sleep(LOOK_EVERY),
                Ok(_) => {
                    let text = "the gateway still runs its old program: see its events";
                    return Err(Failure::new(Exit::Negative, text));
                }
                Err(failure) => {
                    let text = format!(
                        "{}; the data plane goes on: start `gatewright run` anew",
                        failure.message
                    );
                    return Err(Failure::new(Exit::Unavailable, text));
                }
            }
        }
    }
}

/// Whether a gateway's data plane runs; one that was given up does not.
fn ran(status: &Value) -> bool {
    let planes = status.get("planes").unwrap_or(&Value::Null);
    planes.get("running").and_then(Value::as_bool) != Some(false)
}

/// How long the gateway that answered has run.
fn uptime(status: &Value) -> Duration {
    let uptime = status.get("uptime").cloned().unwrap_or_default();
    serde_json::from_value(uptime).unwrap_or(Duration::MAX)
}

/// Packets that layers have dropped, for any reason.
fn dropped(status: &Value) -> u64 {
    let drops = list(status, "layers").iter().flat_map(|layer| list(layer, "drops"));
    // Each is a reason and a number.
    drops.filter_map(|drop| drop.get(1)?.as_u64()).sum()
}

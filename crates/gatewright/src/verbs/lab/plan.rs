//! `gatewright lab plan`.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_lab::report::counted;
use gatewright_lab::{LeftOut, fit};
use std::fmt::Write;
use std::time::Duration;

/// Tells what an experiment would measure here, what it would leave out, and how long it takes.
#[derive(Debug, clap::Args)]
pub(super) struct Plan {
    /// The experiment: default, paper, unexplained, or a TOML file.
    #[arg(value_name = "EXPERIMENT", default_value = "default")]
    experiment: String,
    /// Time for the whole run, in place of the experiment's time for each repetition.
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
}

impl Plan {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let (mut experiment, _) = super::experiment(&self.experiment, face)?;
        if let Some(minutes) = self.minutes {
            let time = Duration::try_from_secs_f64(minutes * 60.0);
            let wrong = || Failure::new(Exit::Usage, format!("{minutes} minutes are no time"));
            fit(&mut experiment, time.map_err(|_| wrong())?);
        }
        let plan = gatewright_lab::plan(&experiment);
        face.answer(&plan, || {
            let relays: Vec<&str> = plan.relays.iter().map(|relay| relay.name()).collect();
            let mut text = format!(
                "{}\nrelays: {}\n{} each, {} of {:.2} s, {} probes\ntime: {}\n",
                experiment.title,
                relays.join(", "),
                counted(plan.conditions, "condition"),
                counted(plan.repetitions, "repetition"),
                experiment.seconds,
                plan.probes,
                super::time_span(plan.seconds, plan.seconds_max)
            );
            for LeftOut { what, why } in &plan.left_out {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "left out: {what}: {why}");
            }
            for warning in &plan.warnings {
                let _ = writeln!(text, "warning: {warning}");
            }
            text
        })?;
        Ok(Exit::Success)
    }
}

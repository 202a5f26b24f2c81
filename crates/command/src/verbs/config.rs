//! `gatewright config`: the descriptions that a running gateway has taken.

use super::status::{list, number, word};
use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::Value;

/// The shape of its answer.
pub const JSON: &str = "history: {kept: [{number, time, cause, octets, in_force}]}; show: \
     {number, text}; diff and rollback: {number, changes: [{what, how}]}";

/// Lists, shows and compares the descriptions that a running gateway has taken, and returns to one.
///
/// A gateway that runs with `--last-good FILE` keeps the last 20, at the start and after each reload.
/// The description's own file is never changed.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
pub struct Config {
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigVerb {
    /// Lists kept descriptions with time and cause, the oldest first.
    History,
    /// Prints the text of a kept description.
    Show(KeptNumber),
    /// Lists what a return to a kept description would change.
    Diff(KeptNumber),
    /// Returns to a kept description, completely or not at all, as a reload does.
    ///
    /// The next reload or start takes the description's file again.
    Rollback(KeptNumber),
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct KeptNumber {
    /// Its number, as `history` lists it.
    #[arg(value_name = "NUMBER")]
    number: u64,
}

impl Config {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Self { which, verb } = self;
        match verb {
            ConfigVerb::History => {
                which.tell_list(face, &ControlRequest::DescriptionHistory, "kept", kept)
            }
            ConfigVerb::Show(KeptNumber { number }) => {
                let answer = which.ask(&ControlRequest::KeptDescription { number })?;
                face.answer(&answer, || word(&answer, "text").to_owned())?;
                Ok(Exit::Success)
            }
            ConfigVerb::Diff(KeptNumber { number }) => {
                let answer = which.ask(&ControlRequest::KeptDifferences { number })?;
                face.answer(&answer, || changes(&answer, "what runs is as it says"))?;
                Ok(Exit::Success)
            }
            ConfigVerb::Rollback(KeptNumber { number }) => {
                let answer = which.ask(&ControlRequest::RollBack { number })?;
                face.answer(&answer, || changes(&answer, "nothing is changed"))?;
                face.note("the description's file is not changed: a reload takes it again");
                Ok(Exit::Success)
            }
        }
    }
}

fn kept(entry: &Value) -> String {
    let is_in_force = entry.get("in_force").and_then(Value::as_bool).unwrap_or(false);
    format!(
        "{}  {}  {:9}  {:>8} octets{}\n",
        number(entry, "number"),
        word(entry, "time"),
        word(entry, "cause"),
        number(entry, "octets"),
        if is_in_force { "  in force" } else { "" }
    )
}

fn changes(answer: &Value, none: &str) -> String {
    let line = |change: &Value| format!("{}: {}\n", word(change, "what"), word(change, "how"));
    match list(answer, "changes") {
        [] => none.to_owned(),
        changes => changes.iter().map(line).collect(),
    }
}

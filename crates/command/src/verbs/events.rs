//! `gatewright events`: what has happened to a running gateway, and what happens now.

use super::status::{list, number, word};
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_gateway::{LogLevel, api::ControlRequest};
use serde_json::{Value, json};
use std::io::BufRead;

/// The shape of its answer.
pub const JSON: &str = "{events: [{sequence, time, level, part, kind, fields, text}], missed, run}; with --follow one of these events a line, \
     {missed} where some came faster than they were read";

/// Shows the events of a running gateway: links down and up, addresses and routers learnt or lost,
/// reloads, full tables.
///
/// The gateway keeps the last 4096 events, wherever else it writes them. Each has a number, which
/// continues over reloads and begins anew with each start, adoption and upgrade. If one kind of event is too frequent, the log says how many of it were
/// left out.
#[derive(Debug, clap::Args)]
pub struct Events {
    #[command(flatten)]
    which: Which,
    /// Continue with new events, until interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Only events after this number; all if no event of this run has had it.
    #[arg(long, value_name = "NUMBER")]
    since: Option<u64>,
    /// The lowest severity: error, warning, info, debug; all if not given.
    #[arg(long, value_name = "LEVEL")]
    level: Option<LogLevel>,
}

impl Events {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Self { which, follow, since, level } = self;
        let request = ControlRequest::Events { since, level, follow };
        if !follow {
            let answer = which.ask(&request)?;
            face.answer(&answer, || {
                let missed = missed(number(&answer, "missed"));
                let lines = list(&answer, "events").iter().map(line);
                missed.into_iter().chain(lines).map(|line| line + "\n").collect()
            })?;
            return Ok(Exit::Success);
        }
        for text in which.follow(&request)?.lines() {
            let event: Value = serde_json::from_str(&text?)?;
            face.line(&event, || missed(number(&event, "missed")).unwrap_or_else(|| line(&event)))?;
        }
        Err(Failure::new(Exit::Unavailable, "the gateway has ended").into())
    }
}

/// Shows the events of one part that are kept.
pub(super) fn of_part(which: &Which, part: &str, face: Face) -> Result<Exit> {
    let answer = which.ask(&ControlRequest::Events { since: None, level: None, follow: false })?;
    let own = list(&answer, "events").iter().filter(|event| word(event, "part") == part);
    let own: Vec<&Value> = own.collect();
    let value = json!({ "events": own, "missed": answer.get("missed") });
    face.answer(&value, || own.iter().map(|event| line(event) + "\n").collect())?;
    Ok(Exit::Success)
}

/// An event as text, as `run` writes it.
fn line(event: &Value) -> String {
    let [time, level, kind, text] = ["time", "level", "kind", "text"].map(|name| word(event, name));
    format!("{time} {level:<7} {kind}: {text}")
}

fn missed(count: u64) -> Option<String> {
    (count > 0).then(|| format!("{count} earlier events are no longer kept"))
}

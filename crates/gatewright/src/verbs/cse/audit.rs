//! `gatewright cse audit`: whether a CSE's audit log holds together.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_onem2m::Timestamp;
use gatewright_store::{Entry, Outcomes, StoreError, Told, verify_telling};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;

/// Follows the chain of hashes in the audit log of a CSE's database, from its first entry.
///
/// Ends with 1 if an entry was changed, left out or put in between. The head that it prints, kept
/// elsewhere, shows later whether the end was cut off.
#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Verify the chain; there is nothing else to be done with it yet.
    #[arg(long, required = true)]
    verify: bool,
    /// Show the last entries, too: who asked for what, and how it ended.
    #[arg(long, value_name = "N", default_value_t = 0)]
    last: usize,
    /// The head that the log had earlier, in hexadecimal: it must still be in the chain.
    #[arg(long, value_name = "HASH", value_parser = head)]
    head: Option<String>,
    /// The database (`[cse] store`).
    store: PathBuf,
}

#[derive(Debug, Serialize)]
struct Answer {
    entries: u64,
    head: String,
    broken_at: Option<u64>,
    intact: bool,
    allowed: u64,
    denied: u64,
    failed: u64,
    waiting: u64,
    last: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    number: u64,
    at: String,
    text: String,
}

fn head(text: &str) -> Result<String, String> {
    let fits = text.len() == 64 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
    fits.then(|| text.to_ascii_lowercase()).ok_or_else(|| "not 64 hexadecimal digits".to_owned())
}

impl Audit {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let shown = self.store.display().to_string();
        // SQLite would say the same of a folder, a missing file and a missing right.
        std::fs::File::open(&self.store).map_err(|error| Failure::file(&shown, &error))?;
        let unreadable =
            |error: StoreError| Failure::new(Exit::Configuration, format!("{shown}: {error}"));
        let mut last = VecDeque::new();
        let keep = |told: Told| {
            if last.len() >= self.last {
                last.pop_front();
            }
            last.push_back(told);
            last.truncate(self.last);
        };
        let verified = verify_telling(&self.store, keep).map_err(unreadable)?;
        let mut head = String::new();
        for octet in verified.head {
            // Writing to a string cannot fail.
            let _ = write!(head, "{octet:02x}");
        }
        let cut = self.head.as_ref().is_some_and(|known| *known != head);
        let intact = verified.broken_at.is_none() && !cut;
        let Outcomes { allowed, denied, failed, waiting, .. } = verified.outcomes;
        let line = |Told { number, entry: Entry { at_micros, text } }| {
            let at = Timestamp::from_micros(at_micros).to_string();
            Line { number, at, text }
        };
        let answer = Answer {
            entries: verified.entries,
            head,
            broken_at: verified.broken_at,
            intact,
            allowed,
            denied,
            failed,
            waiting,
            last: last.into_iter().map(line).collect(),
        };
        face.answer(&answer, || answer.text(cut))?;
        Ok(if intact { Exit::Success } else { Exit::Negative })
    }
}

impl Answer {
    fn text(&self, cut: bool) -> String {
        let Self { entries, head, allowed, denied, failed, waiting, .. } = self;
        let mut text = String::new();
        for Line { number, at, text: said } in &self.last {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{number} {at} {said}");
        }
        let _ = match (self.broken_at, cut) {
            (Some(number), _) => {
                writeln!(text, "BROKEN at entry {number}: {entries} entries hold")
            }
            (None, true) => writeln!(text, "CHANGED: {entries} entries, head {head}"),
            (None, false) => writeln!(text, "intact: {entries} entries, head {head}"),
        };
        let _ = write!(text, "{allowed} allowed, {denied} denied, {failed} failed");
        if *waiting > 0 {
            let _ = write!(text, ", {waiting} waited for others");
        }
        text
    }
}

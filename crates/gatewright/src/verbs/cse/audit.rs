//! `gatewright cse audit` and `gatewright web audit`: what an audit log says, and whether it holds
//! together.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_onem2m::Timestamp;
use gatewright_store::{Outcomes, StoreError, StoredEntry, Verified, last_entries, verify_telling};
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;

/// Entries that are shown at the most.
const LAST_MAX: u32 = 100_000;
/// Entries that are shown of a log that is not verified.
const LAST: u32 = 50;

/// Shows the last entries of an audit log, newest last; with --verify, checks its chain of hashes.
///
/// An entry has the originator, the request, and its result: a response status code, `waits` for
/// what is yet to come, or `given up`. --verify follows the chain from the first entry and ends with 1 if an
/// entry was changed, removed or inserted. It prints the head of the chain: if that is kept
/// elsewhere, it shows later whether the end was cut off. Where the oldest entries were deleted for
/// lack of room (`audit_mib`), the chain begins with the log's record of them.
#[derive(Debug, clap::Args)]
pub(in crate::verbs) struct Audit {
    /// Verify the chain.
    #[arg(long)]
    verify: bool,
    /// Number of entries to show; 50 if not given, none with --verify.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(LAST_MAX)))]
    last: Option<u32>,
    /// An earlier head of the log, in hexadecimal: it must still be in the chain.
    #[arg(long, value_name = "HASH", value_parser = head, requires = "verify")]
    head: Option<String>,
    /// The database (`[cse] store`, `[web] audit`).
    store: PathBuf,
}

#[derive(Debug, Serialize)]
struct AuditReport {
    #[serde(flatten)]
    proof: Option<Proof>,
    last: Vec<AuditLine>,
}

#[derive(Debug, Serialize)]
struct Proof {
    entries: u64,
    head: String,
    broken_at: Option<u64>,
    intact: bool,
    allowed: u64,
    denied: u64,
    failed: u64,
    waiting: u64,
    counted: u64,
    dropped: u64,
    lost: u64,
    #[serde(skip)]
    known_head_is_gone: bool,
}

#[derive(Debug, Serialize)]
struct AuditLine {
    number: u64,
    at: String,
    entry: Value,
}

fn head(text: &str) -> Result<String, String> {
    let fits = text.len() == 64 && text.bytes().all(|octet| octet.is_ascii_hexdigit());
    fits.then(|| text.to_ascii_lowercase()).ok_or_else(|| "not 64 hexadecimal digits".to_owned())
}

impl Audit {
    pub(in crate::verbs) fn run(self, face: Face) -> Result<Exit> {
        let shown = self.store.display().to_string();
        // SQLite would say the same of a folder, a missing file and a missing right.
        std::fs::File::open(&self.store).map_err(|error| Failure::file(&shown, &error))?;
        let unreadable =
            |error: StoreError| Failure::new(Exit::Configuration, format!("{shown}: {error}"));
        let answer = if self.verify { self.prove() } else { self.list() }.map_err(unreadable)?;
        face.answer(&answer, || answer.text())?;
        let is_sound = answer.proof.as_ref().is_none_or(|proof| proof.intact);
        Ok(if is_sound { Exit::Success } else { Exit::Negative })
    }

    fn list(&self) -> Result<AuditReport, StoreError> {
        let last = last_entries(&self.store, self.last.unwrap_or(LAST))?;
        Ok(AuditReport { proof: None, last: last.into_iter().map(AuditLine::from).collect() })
    }

    fn prove(&self) -> Result<AuditReport, StoreError> {
        let most = usize::try_from(self.last.unwrap_or(0)).unwrap_or(usize::MAX);
        let mut last = VecDeque::new();
        let mut found = self.head.is_none();
        let keep = |told: StoredEntry| {
            found |= self.head.as_deref() == Some(&hexadecimal(&told.hash));
            if last.len() >= most {
                last.pop_front();
            }
            last.push_back(told);
            last.truncate(most);
        };
        let verified = verify_telling(&self.store, keep)?;
        // Of an empty log, or of the last entry that was dropped.
        let is = |hash| self.head.as_deref() == Some(&hexadecimal(hash));
        found |= is(&verified.head) || verified.dropped > 0 && is(&verified.start);
        let proof = Proof::new(&verified, found);
        Ok(AuditReport {
            proof: Some(proof),
            last: last.into_iter().map(AuditLine::from).collect(),
        })
    }
}

impl Proof {
    fn new(verified: &Verified, known_head_found: bool) -> Self {
        let Outcomes { allowed, denied, failed, waiting, counted, .. } = verified.outcomes;
        Self {
            entries: verified.entries,
            dropped: verified.dropped,
            lost: verified.lost,
            head: hexadecimal(&verified.head),
            broken_at: verified.broken_at,
            intact: verified.broken_at.is_none() && known_head_found,
            allowed,
            denied,
            failed,
            waiting,
            counted,
            known_head_is_gone: !known_head_found,
        }
    }

    fn text(&self) -> String {
        let Self { entries, head, allowed, denied, failed, waiting, counted, dropped, .. } = self;
        let mut text = match (self.broken_at, self.known_head_is_gone) {
            (Some(number), _) => format!("BROKEN at entry {number}: {entries} entries hold"),
            (None, true) => {
                format!("CHANGED: {entries} entries, none with the head that was, head {head}")
            }
            (None, false) => format!("intact: {entries} entries, head {head}"),
        };
        let _ = write!(text, "\n{allowed} allowed, {denied} denied, {failed} failed");
        for (number, what) in [(waiting, "waited for others"), (counted, "only counted")] {
            if *number > 0 {
                let _ = write!(text, ", {number} {what}");
            }
        }
        if *dropped > 0 {
            let _ = write!(text, "\n{dropped} older entries were dropped to make room");
        }
        if self.lost > 0 {
            let _ = write!(text, "\n{} more entries are lost, as the store had failed", self.lost);
        }
        text
    }
}

/// A hash as it is shown.
fn hexadecimal(hash: &[u8; 32]) -> String {
    let mut text = String::new();
    for octet in hash {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

impl From<StoredEntry> for AuditLine {
    fn from(told: StoredEntry) -> Self {
        let StoredEntry { number, at_micros, text, fields, .. } = told;
        let at = Timestamp::from_micros(at_micros).to_string();
        Self { number, at, entry: fields.unwrap_or(Value::String(text)) }
    }
}

impl AuditReport {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.last.iter().map(AuditLine::text).collect();
        lines.extend(self.proof.as_ref().map(Proof::text));
        if lines.is_empty() {
            lines.push("there are no entries".to_owned());
        }
        lines.join("\n")
    }
}

impl AuditLine {
    /// Names are quoted and what cannot be seen is escaped, so that none passes for more.
    fn text(&self) -> String {
        let Self { number, at, entry } = self;
        let word = |name: &str| entry.get(name).and_then(Value::as_str);
        let mut text = format!("{number} {at} ");
        let (Some(operation), Some(from)) = (word("op"), word("fr")) else {
            let _ = write!(
                text,
                "{:?}",
                entry.as_str().map_or_else(|| entry.to_string(), str::to_owned)
            );
            return text;
        };
        text.extend(operation.escape_debug());
        if let Some(to) = word("to") {
            let _ = write!(text, " {to:?}");
        }
        let _ = write!(text, " by {from:?}");
        for (name, before) in [("ip", "at"), ("by", "authenticated by"), ("as", "as"), ("of", "of")]
        {
            if let Some(word) = word(name) {
                let _ = write!(text, ", {before} {word:?}");
            }
        }
        if entry.get("later").is_some() {
            text.push_str(", later");
        }
        if let Some(number) = entry.pointer("/kept/number").and_then(Value::as_u64) {
            let at = entry.pointer("/kept/at_micros").and_then(Value::as_u64).unwrap_or_default();
            let _ = write!(text, ", kept from {number} {}", Timestamp::from_micros(at));
        }
        for (name, before) in
            [("end", ":"), ("count", ": times"), ("more", ", more at most"), ("made", ", made")]
        {
            match entry.get(name) {
                Some(Value::String(word)) if name == "end" => text.extend([": ", word]),
                Some(value) => {
                    let _ = write!(text, "{before} {value}");
                }
                None => {}
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_counted_in_entries() {
        let outcomes = Outcomes { allowed: 3, ..Outcomes::default() };
        let (start, head) = ([0; 32], [1; 32]);
        let verified =
            Verified { entries: 4, dropped: 0, lost: 24, start, head, broken_at: None, outcomes };
        let text = Proof::new(&verified, true).text();
        let lost = "24 more entries are lost, as the store had failed";
        assert_eq!(text.lines().last(), Some(lost), "{text}");
    }
}

//! `gatewright cse audit`: whether a CSE's audit log holds together.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_store::{StoreError, verify};
use serde::Serialize;
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
        let verified = verify(&self.store).map_err(unreadable)?;
        let mut head = String::new();
        for octet in verified.head {
            // Writing to a string cannot fail.
            let _ = write!(head, "{octet:02x}");
        }
        let cut = self.head.as_ref().is_some_and(|known| *known != head);
        let intact = verified.broken_at.is_none() && !cut;
        let answer =
            Answer { entries: verified.entries, head, broken_at: verified.broken_at, intact };
        face.answer(&answer, || match (verified.broken_at, cut) {
            (Some(number), _) => {
                format!("BROKEN at entry {number}: {} entries hold", answer.entries)
            }
            (None, true) => format!("CHANGED: {} entries, head {}", answer.entries, answer.head),
            (None, false) => format!("intact: {} entries, head {}", answer.entries, answer.head),
        })?;
        Ok(if intact { Exit::Success } else { Exit::Negative })
    }
}

//! `gatewright store`: care of a CSE's database.

use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_store::{
    BadRow, BrokenAudit, Inspection, Salvaged, StoreError, backup, inspect, quarantined, restore,
    salvage,
};
use serde::Serialize;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

pub(crate) const JSON: &str = "verify, backup: {sound, version, rows, unchecked, resources, structure, bad: [{row, why, body}], \
     gaps: [[first, last]], refused, audit_broken_at}; restore: {kept}; salvage: {rows, entries, \
     bad, gaps, bad_entries: [[first, last]]}; quarantine: {bad}";

/// Verifies, backs up, restores and salvages a CSE's database (`[cse] store`).
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
pub(crate) struct Store {
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Debug, clap::Subcommand)]
enum StoreVerb {
    /// Checks a database, and reports what is wrong; ends with 1 if something is.
    ///
    /// Checked are the structure of the file, the checksum of each row, each row as a start reads
    /// it, and the chain of the audit log. A gateway may be running with it.
    Verify(One),
    /// Copies the database of a running or stopped gateway to a new file, and verifies the copy.
    Backup(Two),
    /// Replaces a stopped gateway's database by a backup, which is verified first. The old file is
    /// kept as `STORE.before-restore`.
    Restore(Restore),
    /// Writes all readable content of a damaged database, or of one cut short, to a new file, and
    /// lists the rest.
    Salvage(Two),
    /// Lists the rows that a start leaves out, with their text; ends with 1 if there are any.
    Quarantine(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// The database.
    store: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Two {
    /// The database.
    store: PathBuf,
    /// The new file.
    to: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Restore {
    /// The backup.
    backup: PathBuf,
    /// The database.
    store: PathBuf,
    /// Also restores a file whose audit log lacks entries, as one that `salvage` has written.
    #[arg(long)]
    broken_audit: bool,
}

#[derive(Debug, Serialize)]
struct Bad {
    row: u64,
    why: String,
    body: String,
}

#[derive(Debug, Serialize)]
struct Verified {
    sound: bool,
    version: i64,
    rows: u64,
    unchecked: u64,
    resources: u64,
    structure: Vec<String>,
    bad: Vec<Bad>,
    gaps: Vec<(u64, u64)>,
    refused: Option<String>,
    audit_broken_at: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Restored {
    kept: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Rescued {
    rows: u64,
    entries: u64,
    bad: Vec<Bad>,
    gaps: Vec<(u64, u64)>,
    bad_entries: Vec<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Quarantined {
    bad: Vec<Bad>,
}

impl Store {
    pub(crate) fn run(self, face: Face) -> Result<Exit> {
        match self.verb {
            StoreVerb::Verify(One { store }) => {
                let found =
                    Verified::from(inspect(&store).map_err(|error| failure(&store, &error))?);
                face.answer(&found, || found.text("sound"))?;
                Ok(found.exit())
            }
            StoreVerb::Backup(Two { store, to }) => {
                let found = backup(&store, &to).map_err(|error| failure(&store, &error))?;
                let found = Verified::from(found);
                face.answer(&found, || found.text("backed up"))?;
                Ok(found.exit())
            }
            StoreVerb::Restore(Restore { backup, store, broken_audit }) => {
                let audit = if broken_audit { BrokenAudit::Taken } else { BrokenAudit::Refused };
                let kept =
                    restore(&backup, &store, audit).map_err(|error| failure(&store, &error))?;
                let done = Restored { kept };
                face.answer(&done, || done.text())?;
                Ok(Exit::Success)
            }
            StoreVerb::Salvage(Two { store, to }) => {
                let done = salvage(&store, &to).map_err(|error| failure(&store, &error))?;
                let done = Rescued::from(done);
                let next = format!(
                    "\nto go on with it: gatewright store restore {}{} {}",
                    to.display(),
                    if done.bad_entries.is_empty() { "" } else { " --broken-audit" },
                    store.display()
                );
                face.answer(&done, || done.text() + &next)?;
                Ok(Exit::Success)
            }
            StoreVerb::Quarantine(One { store }) => {
                let bad = quarantined(&store).map_err(|error| failure(&store, &error))?;
                let found = Quarantined { bad: bad.into_iter().map(Bad::from).collect() };
                face.answer(&found, || found.text())?;
                Ok(if found.bad.is_empty() { Exit::Success } else { Exit::Negative })
            }
        }
    }
}

/// The SQLite databases in a folder, by name, of its first files.
fn databases_in(folder: &Path) -> Vec<String> {
    let is_database = |path: &Path| {
        let mut head = [0; SQLITE_HEAD.len()];
        File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok())
            && &head == SQLITE_HEAD
    };
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files = entries.map(|entry| entry.path()).filter(|path| path.is_file()).take(FILES_MAX);
    let found = files.filter(|path| is_database(path)).map(|path| path.display().to_string());
    let mut names: Vec<String> = found.collect();
    names.sort();
    names
}

/// The first octets of a database (SQLite's file format, 1.3).
const SQLITE_HEAD: &[u8; 16] = b"SQLite format 3\0";

/// Maximum files of a folder that are looked at for databases.
const FILES_MAX: usize = 256;

fn failure(path: &Path, error: &StoreError) -> Failure {
    let exit = error.exit_code().map_or(Exit::Configuration, Exit::of);
    // Every other error names the file that is at fault, which may be the second of two.
    let text = match error {
        StoreError::Database(_) => format!("{}: {error}", path.display()),
        StoreError::Folder(folder) => {
            let names = databases_in(folder).join(", ");
            if names.is_empty() {
                format!("{error}; there is no database in it")
            } else {
                format!("{error}; in it there are: {names}")
            }
        }
        named => named.to_string(),
    };
    Failure::new(exit, text)
}

impl From<BadRow> for Bad {
    fn from(BadRow { row, why, body }: BadRow) -> Self {
        Self { row, why, body: body.to_string() }
    }
}

impl From<Inspection> for Verified {
    fn from(found: Inspection) -> Self {
        Self {
            sound: found.is_sound(),
            version: found.version,
            rows: found.rows,
            unchecked: found.unchecked,
            resources: found.resources,
            structure: found.structure,
            bad: found.bad.into_iter().map(Bad::from).collect(),
            gaps: found.gaps,
            refused: found.refused,
            audit_broken_at: found.audit_broken_at,
        }
    }
}

impl From<Salvaged> for Rescued {
    fn from(Salvaged { rows, bad, gaps, entries, bad_entries }: Salvaged) -> Self {
        let bad = bad.into_iter().map(Bad::from).collect();
        Self { rows, entries, bad, gaps, bad_entries }
    }
}

impl Verified {
    const fn exit(&self) -> Exit {
        if self.sound { Exit::Success } else { Exit::Negative }
    }

    fn text(&self, word: &str) -> String {
        let Self { rows, resources, unchecked, .. } = self;
        let word = if self.sound { word } else { "DAMAGED" };
        let mut text = format!("{word}: {rows} rows, {resources} resources");
        // Writing to a string cannot fail.
        if *unchecked > 0 {
            let _ = write!(text, ", {unchecked} rows of an earlier version without a checksum");
        }
        for line in self.refused.iter().chain(&self.structure) {
            let _ = write!(text, "\n{line}");
        }
        if let Some(number) = self.audit_broken_at {
            let _ = write!(text, "\nthe audit log is broken at entry {number}");
        }
        text.push_str(&lines(&self.bad, &self.gaps));
        text
    }
}

impl Restored {
    fn text(&self) -> String {
        match &self.kept {
            Some(kept) => format!("restored; the file that was there is {}", kept.display()),
            None => "restored".to_owned(),
        }
    }
}

impl Rescued {
    fn text(&self) -> String {
        let Self { rows, entries, bad, gaps, bad_entries } = self;
        let rest = lines(bad, gaps);
        let mut text = format!("salvaged: {rows} rows, {entries} audit entries{rest}");
        for (first, last) in bad_entries {
            // Writing to a string cannot fail.
            let _ = write!(text, "\naudit entries {first} to {last}: not readable");
        }
        text
    }
}

impl Quarantined {
    fn text(&self) -> String {
        if self.bad.is_empty() {
            return "every row can be read".to_owned();
        }
        let line = |Bad { row, why, body }: &Bad| format!("row {row}: {why}\n{body}");
        self.bad.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Rows and ranges that cannot be read, a line each.
fn lines(bad: &[Bad], gaps: &[(u64, u64)]) -> String {
    let bad = bad.iter().map(|Bad { row, why, .. }| format!("\nrow {row}: {why}"));
    let gaps = gaps.iter().map(|(first, last)| format!("\nrows {first} to {last}: not readable"));
    bad.chain(gaps).collect()
}

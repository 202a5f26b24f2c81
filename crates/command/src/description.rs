//! Reads a description with the files that it names.

use crate::exit::{Exit, Failure};
use crate::program::CommandLine;
use gatewright_config::{Config, codes, parse, place_of};
use gatewright_diagnostic::{
    Diagnostic, Severity, SourceId, SourceRange, Sources, Span, has_errors,
};
use gatewright_gateway::{
    Change, NOT_IN_THIS_PROGRAM, beside, credentials_folder, further_files, open_file, read_text,
    unfit_devices, unusable_mesh_files, with_strays,
};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A description, with the findings about it and its programs.
#[derive(Debug)]
pub struct Description {
    /// The description's text and those of its programs.
    pub sources: Sources,
    /// The parsed description, if it has no errors; the files of its programs are absolute paths.
    pub config: Option<Config>,
    /// All findings.
    pub findings: Vec<Diagnostic>,
    /// What could be read of a description that is refused; the files of it as in `config`.
    draft: Option<Config>,
}

impl Description {
    /// The place of the first error and its kind, in a line for logs and status: its words may quote
    /// the description, which whoever reads those need not know.
    pub fn first_error(&self) -> String {
        let first = self.findings.iter().find(|found| found.severity == Severity::Error);
        first.map_or_else(
            || "it has errors".to_owned(),
            |found| {
                let SourceRange { file, line, column, .. } = self.sources.place(found.primary.span);
                format!("{file}:{line}:{column}: {}: {}", found.code, found.code.title)
            },
        )
    }

    /// Reads `path` for `program`, and compiles what it names: a file, standard input (`-`), or a
    /// folder with `gateway.toml` and `conf.d/*.toml`, which are one description.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if a file itself cannot be read; everything else is a finding.
    pub fn load(program: &CommandLine, path: &str) -> Result<Self, Failure> {
        let files = files_of(path)?;
        let path = &files.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let mut sources = Sources::default();
        sources.add_files(files);
        Self::of(program, path, sources)
    }

    /// Checks the description first in `sources` for `program`, and compiles what it names; paths in it
    /// are relative to the folder of `path`.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the process has no working directory.
    pub fn of(program: &CommandLine, path: &str, mut sources: Sources) -> Result<Self, Failure> {
        let parsed = parse(SourceId::default(), sources.get(SourceId::default()).text());
        let mut findings = with_strays(parsed.diagnostics, sources.get(SourceId::default()));
        if let Some(config) = &parsed.config {
            let lacks = program.assembly.lacks(config);
            findings
                .extend(lacks.map(|table| refusal(&sources, table, NOT_IN_THIS_PROGRAM, false)));
        }
        if let Some(compile) = program.programs {
            let found = compile(path, parsed.config.as_ref(), &parsed.programs, &mut sources);
            findings.extend(found);
        }
        let beside = |file: &str| beside(path, file);
        let unfit = |config| unfit_devices(config, beside);
        findings.extend(parsed.config.iter().flat_map(unfit));
        let config = parsed.config.filter(|_| !has_errors(&findings));
        let folder = folder_of(path)?;
        let credentials = credentials_folder();
        let in_folder = |config: Config| config.with_files_in(&folder, credentials.as_deref());
        let (config, draft) = (config.map(in_folder), parsed.draft.map(in_folder));
        Ok(Self { sources, config, findings, draft })
    }
}

impl Description {
    /// Adds findings about the files of certificates, keys and secrets that it names: each is loaded as
    /// by a start, and nothing is connected. Of a description that is refused those of tables without
    /// errors are loaded.
    pub fn check_files(&mut self, program: &CommandLine) {
        let Some(config) = self.config.as_ref().or(self.draft.as_ref()) else { return };
        let source = self.sources.get(SourceId::default());
        let mut found = unusable_mesh_files(config, source);
        found.extend((program.files)(config, source));
        if self.config.is_none() {
            let table = |finding: &Diagnostic| {
                let Span { source: id, start, .. } = finding.primary.span;
                (id == SourceId::default()).then(|| table_at(source.text(), start)).flatten()
            };
            let errors = self.findings.iter().filter(|of| of.severity == Severity::Error);
            let wrong: Vec<_> = errors.filter_map(table).collect();
            found.retain(|of| table(of).is_some_and(|of| !wrong.contains(&of)));
        }
        if has_errors(&found) {
            self.config = None;
        }
        self.findings.extend(found);
    }
}

/// The first word of the last header before `offset`: `cse` of `[cse.tls]`.
fn table_at(text: &str, offset: usize) -> Option<&str> {
    let before =
        text.get(..text.get(offset..)?.find('\n').map_or(text.len(), |end| offset + end))?;
    let header = before.lines().rfind(|line| line.trim_start().starts_with('['))?;
    let name = header.trim_start().trim_start_matches('[').trim_start();
    name.split(['.', ']', ' ']).next().filter(|name| !name.is_empty())
}

/// The files of a description with their texts: of a folder `gateway.toml`, and what is in `conf.d`, in
/// the order of the names.
fn files_of(path: &str) -> Result<Vec<(String, String)>, Failure> {
    let main = main_file(path);
    let mut files = vec![(main.clone(), read(&main)?)];
    if main == path {
        return Ok(files);
    }
    let paths = further_files(Path::new(path))
        .map_err(|error| Failure::file(&error.path, &error.source))?;
    for path in paths {
        let name = path.to_string_lossy().into_owned();
        let text = read(&name)?;
        files.push((name, text));
    }
    Ok(files)
}

/// The file of a description at `path`, which may be its folder.
fn main_file(path: &str) -> String {
    let folder = Path::new(path);
    if path != "-" && folder.is_dir() {
        folder.join("gateway.toml").to_string_lossy().into_owned()
    } else {
        path.to_owned()
    }
}

/// A finding for each key that a gateway refuses, in the description that is first in `sources`.
pub fn refusals(sources: &Sources, refused: &[Change], restart: bool) -> Vec<Diagnostic> {
    let one = |change: &Change| refusal(sources, &change.what, &change.how, restart);
    refused.iter().map(one).collect()
}

/// A finding for a key that a gateway refuses, because of `why`; with `restart` a new start takes
/// it.
pub fn refusal(sources: &Sources, key: &str, why: &str, restart: bool) -> Diagnostic {
    let source = SourceId::default();
    let place = place_of(source, sources.get(source).text(), key);
    refusal_at(place, key, why, restart)
}

/// As [`refusal`], at a known place.
pub fn refusal_at(span: Span, key: &str, why: &str, restart: bool) -> Diagnostic {
    let (code, help) = if restart && matches!(key, "[cse] id" | "[cse] base") {
        let help = "undo this change: a database belongs to one CSE, so that a restart takes another one \
                    only with another `store`";
        (&codes::NEEDS_RESTART, help)
    } else if restart {
        let help = "undo this change, or stop the gateway and start it again: what is stored, and what \
                    devices have not been answered, is there afterwards";
        (&codes::NEEDS_RESTART, help)
    } else if why.starts_with("cannot listen on") {
        let help = "take an address of this machine and a port that nobody listens at: `ss -ltnup` shows \
                    who does";
        (&codes::CANNOT_LISTEN, help)
    } else {
        (&codes::NOT_TAKEN, "nothing of the description is taken until this can be")
    };
    Diagnostic::error(code, span, format!("{key}: {why}")).help(help)
}

/// The folder of a description, as an absolute path; for standard input, the working directory.
///
/// # Errors
///
/// A [`Failure`] if this process has none.
pub fn folder_of(path: &str) -> Result<PathBuf, Failure> {
    let main = main_file(path);
    let folder = Path::new(&main).parent().unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::path::absolute(folder).map_err(|error| Failure::file(path, &error))
}

/// The text of a file, or of standard input for `-`; of one that is too long, see [`read_text`].
///
/// # Errors
///
/// A [`Failure`] that names the file.
pub fn read(path: &str) -> Result<String, Failure> {
    let octets = if path == "-" {
        read_text(std::io::stdin())
    } else {
        open_file(Path::new(path)).and_then(read_text)
    };
    text_of(path, octets)
}

/// Maximum octets of a file that is no description: results of the lab, RFCs.
const FILE_MAX: u64 = 64 << 20;

/// The text of a file of at most 64 MiB, or of standard input for `-`.
///
/// # Errors
///
/// A [`Failure`] that names the file.
pub fn read_whole(path: &str) -> Result<String, Failure> {
    text_of(path, octets_of(path, FILE_MAX))
}

/// The octets of a file that has at most so many, or of standard input for `-`.
///
/// # Errors
///
/// A [`Failure`] that names the file.
pub fn read_octets(path: &str, octets_max: u64) -> Result<Vec<u8>, Failure> {
    octets_of(path, octets_max).map_err(|error| Failure::file(path, &error))
}

fn octets_of(path: &str, octets_max: u64) -> std::io::Result<Vec<u8>> {
    if path == "-" {
        read_most(std::io::stdin(), octets_max)
    } else {
        open_file(Path::new(path)).and_then(|file| read_most(file, octets_max))
    }
}

fn read_most(file: impl Read, octets_max: u64) -> std::io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let read = file.take(octets_max + 1).read_to_end(&mut octets)?;
    if read as u64 > octets_max {
        let (mebi, kibi) = (octets_max >> 20, octets_max >> 10);
        let most = if mebi > 0 { format!("{mebi} MiB") } else { format!("{kibi} KiB") };
        let words = format!("longer than {most}");
        return Err(std::io::Error::new(ErrorKind::InvalidData, words));
    }
    Ok(octets)
}

fn text_of(path: &str, octets: std::io::Result<Vec<u8>>) -> Result<String, Failure> {
    let octets = octets.map_err(|error| Failure::file(path, &error))?;
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(Exit::Configuration, format!("{path}: not UTF-8 from octet {at} on"))
    })
}

//! The files of a description: one, or `gateway.toml` of a folder with those in its `conf.d`.

use crate::read_file;
use gatewright_config::codes;
use gatewright_diagnostic::{Diagnostic, Source, SourceId, Span};
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// The folder beside `gateway.toml` with further files of a description.
const FURTHER: &str = "conf.d";
/// Maximum number of these files.
const FURTHER_MAX: usize = 256;

/// Why a file of a description cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct DescriptionFileError {
    /// The path of the file, or of the folder.
    pub path: String,
    /// The cause.
    pub source: io::Error,
}

impl DescriptionFileError {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_string_lossy().into_owned();
        |source| Self { path, source }
    }
}

/// The files of the description at `path` with their texts, in the order in which they are one text.
///
/// # Errors
///
/// [`DescriptionFileError`] names the one that cannot be read.
pub fn description_files(path: &Path) -> Result<Vec<(String, String)>, DescriptionFileError> {
    let paths = if path.is_dir() {
        let mut paths = vec![path.join("gateway.toml")];
        paths.extend(further_files(path)?);
        paths
    } else {
        vec![path.to_owned()]
    };
    let read = |path: &PathBuf| {
        let text = read_file(path).map_err(DescriptionFileError::of(path))?;
        Ok((path.to_string_lossy().into_owned(), text))
    };
    paths.iter().map(read).collect()
}

/// The paths of the files in `conf.d` of the folder of a description, in the order of their names.
///
/// # Errors
///
/// [`DescriptionFileError`] if `conf.d` cannot be read, or has more than 256 files.
pub fn further_files(folder: &Path) -> Result<Vec<PathBuf>, DescriptionFileError> {
    let folder = folder.join(FURTHER);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(DescriptionFileError::of(&folder))?,
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_further = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".toml") && !name.starts_with('.')
    };
    let mut paths: Vec<_> = paths.filter(is_further).collect();
    if paths.len() > FURTHER_MAX {
        let many = io::Error::other(format!("more than {FURTHER_MAX} files"));
        return Err(DescriptionFileError::of(&folder)(many));
    }
    paths.sort();
    Ok(paths)
}

/// The `findings` about a description with those about further files that do not begin with a table,
/// in place of any about what stands before a table there: it would belong to the last table of the
/// file before.
pub fn with_strays(mut findings: Vec<Diagnostic>, description: &Source) -> Vec<Diagnostic> {
    let strays = without_table(description);
    let is_before_table = |line: &&str| !line.trim_start().starts_with('[');
    for stray in &strays {
        let at = stray.primary.span.start;
        let is_there = |(start, text): &(usize, &str)| (*start..start + text.len()).contains(&at);
        let Some((start, text)) = description.files().find(is_there) else { continue };
        let lines = text.split_inclusive('\n').take_while(is_before_table);
        let end = start + lines.map(str::len).sum::<usize>();
        findings.retain(|found| !(start..end).contains(&found.primary.span.start));
    }
    findings.extend(strays);
    findings
}

/// Findings about further files that do not begin with a table.
fn without_table(description: &Source) -> Vec<Diagnostic> {
    let stray = |(begin, text): (usize, &str)| {
        let mut at = begin;
        for line in text.split_inclusive('\n') {
            let content = line.trim();
            if !content.is_empty() && !content.starts_with('#') {
                let end = at + line.trim_end().len();
                return (!content.starts_with('[')).then_some((at, end));
            }
            at += line.len();
        }
        None
    };
    let strays = description.files().skip(1).filter_map(stray);
    let finding = |(start, end)| {
        let message = format!("a file in {FURTHER} does not begin with a table");
        let help = "put a header in front, such as [link.NAME] or [[route]]; a table that another \
                    file has cannot go on here";
        let span = Span::new(SourceId::default(), start, end);
        Diagnostic::error(&codes::SYNTAX, span, message).help(help)
    };
    strays.map(finding).collect()
}

//! `gatewright header`: accessors from a packet diagram.

use anyhow::Result;
use clap::ValueEnum;
use gatewright_command::{
    description::read_whole,
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{Finding, Sources, has_errors};
use gatewright_diagram::{Document, Layout, RUST_SUPPORT, c, java, rust};
use serde::Serialize;
use std::{fs, path::Path};

pub(super) const JSON: &str = "{file, lang, headers: [name], text, findings}, findings as in `check`; text is null if no \
     header could be read";

/// Generates accessors in Rust, C or Java from packet diagrams as RFCs print them.
///
/// FILE is an RFC as text or in xml2rfc's XML, a field list in XML, or one diagram. What a diagram
/// cannot express follows it after the word `where`, or is given by `--where`. The accessors read
/// and write fields in place, without copies. Diagrams that cannot be read are findings (exit code
/// 78); accessors of the others are written.
#[derive(Debug, clap::Args)]
pub(crate) struct Header {
    /// The diagrams; `-` is standard input.
    file: String,
    /// Only the diagrams of this section, by number (`3.1`) or title.
    #[arg(long, short, value_name = "SECTION")]
    section: Option<String>,
    /// The language.
    #[arg(long, value_enum)]
    lang: Lang,
    /// What the diagram cannot express, unless it follows the diagram: `version = 4, options: [ihl
    /// * 4 - 20]`.
    #[arg(long = "where", value_name = "LIST")]
    annotations: Option<String>,
    /// Name of a single diagram; derived from the name of the file if not given.
    #[arg(long)]
    name: Option<String>,
    /// Write headers.rs, headers.h, or a file for each class of Java into this folder instead of
    /// standard output.
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<String>,
}

/// A language that accessors can be in.
#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Lang {
    /// Views and builders over `&[u8; N]`, without `std`.
    Rust,
    /// C99, `static inline`.
    C,
    /// Java 17, over a `ByteBuffer`.
    Java,
}

#[derive(Serialize)]
struct HeaderReport {
    file: String,
    lang: Lang,
    headers: Vec<String>,
    files: Vec<Written>,
    findings: Vec<Finding>,
}

/// A file of accessors.
#[derive(Serialize)]
struct Written {
    name: String,
    text: String,
}

impl Header {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let text = read_whole(&self.file)?;
        let name = self.name.unwrap_or_else(|| type_name(&self.file));
        let mut sources = Sources::of(&*self.file, &*text);
        let section = self.section.as_deref();
        let Document { layouts, findings, .. } = match &self.annotations {
            Some(list) => {
                let source = sources.add("--where", list);
                gatewright_diagram::read_annotated(&name, &text, section, list, source)
            }
            None => gatewright_diagram::read(&name, &text, section),
        };
        face.findings(&findings, &sources);
        let files = generate(self.lang, &layouts);
        if let Some(folder) = &self.output {
            write(folder, &files)?;
        }
        let answer = HeaderReport {
            file: self.file,
            lang: self.lang,
            headers: layouts.into_iter().map(|layout| layout.name).collect(),
            files,
            findings: Face::data(&findings, &sources),
        };
        face.answer(&answer, || match &self.output {
            Some(_) => joined(&answer.files, |file| &file.name),
            None => joined(&answer.files, |file| &file.text),
        })?;
        Ok(if has_errors(&findings) { Exit::Configuration } else { Exit::Success })
    }
}

fn joined(files: &[Written], part: impl Fn(&Written) -> &str) -> String {
    files.iter().map(part).collect::<Vec<_>>().join("\n")
}

fn write(folder: &str, files: &[Written]) -> Result<(), Failure> {
    for Written { name, text } in files {
        let path = Path::new(folder).join(name);
        let shown = path.to_string_lossy().into_owned();
        fs::write(&path, text).map_err(|error| Failure::file(&shown, &error))?;
    }
    Ok(())
}

/// The files of accessors; none if there is no header.
fn generate(lang: Lang, layouts: &[Layout]) -> Vec<Written> {
    let one = |name: &str, text: String| vec![Written { name: name.to_owned(), text }];
    match lang {
        _ if layouts.is_empty() => Vec::new(),
        Lang::Rust => {
            let headers: String = layouts.iter().map(|layout| rust(layout, "support")).collect();
            let doc = "//! Accessors of packet headers, generated from their diagrams.";
            let support =
                format!("/// What the accessors share.\npub mod support {{{RUST_SUPPORT}}}");
            one("headers.rs", format!("{doc}\n\n{support}\n\n{headers}"))
        }
        Lang::C => one("headers.h", c(layouts)),
        // A public class of Java stands in a file of its name.
        Lang::Java => (layouts.iter())
            .map(|layout| Written { name: format!("{}.java", layout.name), text: java(layout) })
            .collect(),
    }
}

/// A file's name as the name of a type: `udp-header.txt` is `UdpHeader`.
fn type_name(file: &str) -> String {
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.filter(|stem| stem.starts_with(char::is_alphabetic));
    let stem = stem.unwrap_or_else(|| "header".to_owned());
    let words = stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

//! `gatewright header`: accessors from a packet diagram.

use crate::{description::read, exit::Exit, face::Face};
use anyhow::Result;
use clap::ValueEnum;
use gatewright_diagnostic::{Finding, Sources};
use gatewright_diagram::{Layout, RUST_SUPPORT, c, java, read_art, rust};
use serde::Serialize;
use std::path::Path;

pub(super) const JSON: &str = "{file, lang, headers: [name], text, findings}, findings as in `check`, text being null if \
     there are any";

/// Reads a packet diagram as an RFC prints it and writes accessors in Rust, C or Java.
///
/// What art cannot say stands behind it, after the word `where`. The accessors read and write
/// fields in place, without copies.
#[derive(Debug, clap::Args)]
pub(crate) struct Header {
    /// The diagram; `-` is standard input.
    file: String,
    /// The language.
    #[arg(long, value_enum)]
    lang: Lang,
    /// The header's name; made of the file's name if not given.
    #[arg(long)]
    name: Option<String>,
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
struct Answer {
    file: String,
    lang: Lang,
    headers: Vec<String>,
    text: Option<String>,
    findings: Vec<Finding>,
}

impl Header {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let text = read(&self.file)?;
        let name = self.name.unwrap_or_else(|| type_name(&self.file));
        let read = read_art(&name, &text);
        let sources = Sources::of(&*self.file, text);
        let (layouts, findings) = match read {
            Ok(layout) => (vec![layout], Vec::new()),
            Err(findings) => (Vec::new(), findings),
        };
        face.findings(&findings, &sources);
        let text = findings.is_empty().then(|| generate(self.lang, &layouts));
        let answer = Answer {
            file: self.file,
            lang: self.lang,
            headers: layouts.into_iter().map(|layout| layout.name).collect(),
            findings: Face::data(&findings, &sources),
            text,
        };
        face.answer(&answer, || answer.text.clone().unwrap_or_default())?;
        Ok(if answer.findings.is_empty() { Exit::Success } else { Exit::Configuration })
    }
}

fn generate(lang: Lang, layouts: &[Layout]) -> String {
    match lang {
        Lang::Rust => {
            let headers: String = layouts.iter().map(|layout| rust(layout, "support")).collect();
            let doc = "//! Accessors generated from a packet diagram by `gatewright header`.";
            format!(
                "{doc}\n\n/// What the accessors share.\npub mod support {{{RUST_SUPPORT}}}\n\n{headers}"
            )
        }
        Lang::C => c(layouts),
        Lang::Java => layouts.iter().map(java).collect(),
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

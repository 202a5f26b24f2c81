//! Reads packet diagrams, as printed in RFCs, into field tables, and generates accessors in Rust, C
//! and Java.
//!
//! [`read_art`] reads a diagram into a [`Layout`]. The art itself gives names, positions and
//! widths; annotations that art cannot express follow it after the word `where`:
//!
//! ```
//! let text = "
//!      0                   1                   2                   3
//!      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!     |  Next Header  |   Reserved    |      Fragment Offset    |Res|M|
//!     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!     |                         Identification                        |
//!     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!     where m as more_fragments";
//! let fragment = gatewright_diagram::read_art("Fragment", text)?;
//! assert_eq!(fragment.octets(), 8);
//! assert_eq!(fragment.fields[4].name, "more_fragments");
//! # Ok::<(), Vec<gatewright_diagnostic::Diagnostic>>(())
//! ```
//!
//! Every error in a text is a [`Diagnostic`] (`GW0001` to `GW0099`) that points into it. Its spans
//! belong to [`Sources::of`](gatewright_diagnostic::Sources::of) the same text.
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "a finding is made once, and ends the reading")]

mod annotation;
mod art;
mod assemble;
mod borders;
mod c;
pub mod codes;
mod draw;
mod expression;
mod grid;
mod java;
mod layout;
mod names;
mod pieces;
mod rfc;
mod rust;
mod text;
mod title;
mod xml;

pub use c::c;
pub use draw::draw;
pub use expression::{Expression, Operator};
pub use java::java;
pub use layout::{Field, FieldKind, FieldRole, Layout, NUMBER_BITS_MAX, ROW_BITS, Variable};
pub use rust::{RUST_SUPPORT, rust};

use annotation::Annotation;
use assemble::Beside;
use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// The contents of a document with any number of diagrams.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The headers that could be read, in order, each with a unique name.
    pub layouts: Vec<Layout>,
    /// Findings about the others, and about the document.
    pub findings: Vec<Diagnostic>,
}

impl Document {
    /// A document that cannot be read.
    fn refused(finding: Diagnostic) -> Self {
        Self { layouts: Vec::new(), findings: vec![finding] }
    }

    /// Adds one header under a unique name.
    fn add(&mut self, reading: Result<Layout, Vec<Diagnostic>>) {
        match reading {
            Ok(mut layout) => {
                let taken = |name: &str| self.layouts.iter().any(|other| other.name == name);
                let plain = layout.name.clone();
                let mut number = 1_usize;
                while taken(&layout.name) {
                    number += 1;
                    layout.name = format!("{plain}{number}");
                }
                self.layouts.push(layout);
            }
            Err(findings) => self.findings.extend(findings),
        }
    }
}

/// Reads `text` by its kind: a field list or an xml2rfc document (XML), an RFC, or one diagram with
/// its annotations, which becomes the header `name`.
///
/// With a `section`, given by its number or its title, only the diagrams in it are read.
pub fn read(name: &str, text: &str, section: Option<&str>) -> Document {
    read_with(name, text, section, &mut Beside::default())
}

/// Reads like [`read`], with annotations outside the document: the list that follows the word
/// `where`, as its own text `source`. Each annotation applies to the diagrams that have its field;
/// at least one must have it. A field list does not take annotations.
pub fn read_annotated(
    name: &str,
    text: &str,
    section: Option<&str>,
    annotations: &str,
    source: SourceId,
) -> Document {
    match annotation::read_beside(annotations, source) {
        Ok(annotations) => {
            let mut beside = Beside::of(annotations);
            let mut document = read_with(name, text, section, &mut beside);
            document.findings.extend(beside.unused());
            document
        }
        Err(finding) => Document::refused(finding),
    }
}

fn read_with(name: &str, text: &str, section: Option<&str>, beside: &mut Beside) -> Document {
    if text.trim_start().starts_with('<') {
        return xml::read(text, section, beside);
    }
    let diagrams = grid::find(&text::lines(text, 0)).len();
    if section.is_some() || diagrams > 1 {
        return rfc::read(text, section, beside);
    }
    let mut document = Document::default();
    let reading = read_one(name, text, beside, &mut document.findings);
    document.add(reading);
    document
}

/// The first fenced block below the `heading` of a page in Markdown, without its fences; `None` if
/// there is no such heading, or no block before the next one.
///
/// ```
/// let page = "### Probe\n\nIts layout:\n\n```diagram\n+-+-+\n```\n\n### Other\n";
/// assert_eq!(gatewright_diagram::fenced(page, "Probe"), Some("+-+-+\n"));
/// assert_eq!(gatewright_diagram::fenced(page, "Other"), None);
/// ```
pub fn fenced<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let mut below = false;
    let mut start = None;
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        match start {
            Some(start) if line.starts_with("```") => return page.get(start..at),
            None if below && line.starts_with("```") => start = Some(at + line.len()),
            None if line.starts_with('#') => {
                below = line.trim_start_matches('#').trim() == heading;
            }
            Some(_) | None => {}
        }
        at += line.len();
    }
    None
}

/// Reads one diagram, followed by its annotations, as the header `name`.
///
/// # Errors
///
/// The errors, each a finding with its position in `text`. Warnings are left out; [`read`] has them.
pub fn read_art(name: &str, text: &str) -> Result<Layout, Vec<Diagnostic>> {
    read_one(name, text, &mut Beside::default(), &mut Vec::new())
}

fn read_one(
    name: &str,
    text: &str,
    beside: &mut Beside,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Layout, Vec<Diagnostic>> {
    let split = annotation::find(text).unwrap_or(text.len());
    let (art, behind) = text.split_at(split);
    let mut annotations = Vec::new();
    if !behind.is_empty() {
        let start = Span::new(SourceId::default(), split, split);
        annotations.extend(annotation::read(behind, start).map_err(|finding| vec![finding])?);
    }
    let lines = text::lines(art, 0);
    let found = grid::find(&lines);
    let Some(first) = found.first() else {
        let span = Span::new(SourceId::default(), 0, split.min(1));
        let message = "no packet diagram found";
        return Err(vec![
            Diagnostic::error(&codes::NO_DIAGRAM, span, message)
                .help("a diagram begins with a ruled line such as `+-+-+-+-+`"),
        ]);
    };
    read_found(name, first, (beside, annotations), warnings)
}

/// One diagram to a layout, with the annotations beside the document and those behind the diagram.
fn read_found(
    name: &str,
    found: &grid::FoundDiagram<'_>,
    (beside, behind): (&mut Beside, Vec<Annotation>),
    warnings: &mut Vec<Diagnostic>,
) -> Result<Layout, Vec<Diagnostic>> {
    let drawn = art::read(found, warnings)?;
    let parts = assemble::parts(&drawn).map_err(|finding| vec![finding])?;
    let mut annotations = beside.fitting(&parts);
    annotations.extend(behind);
    assemble::layout(name, parts, annotations)
}

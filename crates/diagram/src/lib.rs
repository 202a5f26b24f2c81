//! Packet diagrams as RFCs print them, read into field tables; from these, accessors in Rust, C
//! and Java.
//!
//! A diagram is read by [`read_art`] into a [`Layout`]: the art itself gives names, places and
//! widths; what art cannot say stands behind it, after the word `where`:
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
//! Whatever is wrong with a text is a [`Diagnostic`] (`GW0001` to `GW0099`) that points into it;
//! its spans belong to [`Sources::of`](gatewright_diagnostic::Sources::of) the same text.
#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "a finding is made once, and ends the reading")]

mod annotation;
mod art;
mod assemble;
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
pub use layout::{Field, Kind, Layout, NUMBER_BITS_MAX, ROW_BITS, Role, Variable};
pub use rust::{RUST_SUPPORT, rust};

use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// What a document with any number of diagrams holds.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The headers that could be read, in order, each with a name of its own.
    pub layouts: Vec<Layout>,
    /// What is wrong with the others, and with the document.
    pub findings: Vec<Diagnostic>,
}

impl Document {
    /// A document of which nothing can be read.
    fn refused(finding: Diagnostic) -> Self {
        Self { layouts: Vec::new(), findings: vec![finding] }
    }

    /// Takes one reading in, under a name that no other has.
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

/// Reads whatever `text` is: a field list or an xml2rfc document (XML), an RFC, or one diagram with
/// its annotations, which becomes the header `name`.
///
/// With a `section`, given by its number or its title, only the diagrams in it are read.
pub fn read(name: &str, text: &str, section: Option<&str>) -> Document {
    if text.trim_start().starts_with('<') {
        return xml::read(text, section);
    }
    let diagrams = grid::find(&text::lines(text, 0)).len();
    if section.is_some() || diagrams > 1 {
        return read_rfc(text, section);
    }
    let mut document = Document::default();
    document.add(read_art(name, text));
    document
}

/// Reads the diagrams of an RFC as published in plain text, or of one `section` of it.
///
/// Each is called after its caption or its section; it has no annotations.
pub fn read_rfc(text: &str, section: Option<&str>) -> Document {
    rfc::read(text, section)
}

/// Reads the diagrams of an RFC in xml2rfc's vocabulary, version 2 or 3, or a field list.
pub fn read_xml(text: &str, section: Option<&str>) -> Document {
    xml::read(text, section)
}

/// Reads one diagram, with its annotations behind it, as the header `name`.
///
/// # Errors
///
/// What is wrong, each finding with its place in `text`.
pub fn read_art(name: &str, text: &str) -> Result<Layout, Vec<Diagnostic>> {
    let split = annotation::find(text).unwrap_or(text.len());
    let (art, annotations) = text.split_at(split);
    let annotations = if annotations.is_empty() {
        Vec::new()
    } else {
        annotation::read(annotations, split).map_err(|finding| vec![finding])?
    };
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
    read_found(name, first, annotations)
}

/// One diagram to a layout.
fn read_found(
    name: &str,
    found: &grid::Found<'_>,
    annotations: Vec<annotation::Annotation>,
) -> Result<Layout, Vec<Diagnostic>> {
    let drawn = art::read(found)?;
    let parts = assemble::parts(&drawn).map_err(|finding| vec![finding])?;
    assemble::layout(name, parts, annotations)
}

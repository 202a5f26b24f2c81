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
mod rust;
mod text;

pub use c::c;
pub use draw::draw;
pub use expression::{Expression, Operator};
pub use java::java;
pub use layout::{Field, Kind, Layout, NUMBER_BITS_MAX, ROW_BITS, Role, Variable};
pub use rust::{RUST_SUPPORT, rust};

use gatewright_diagnostic::{Diagnostic, SourceId, Span};

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
    let drawn = art::read(first)?;
    let parts = assemble::parts(&drawn).map_err(|finding| vec![finding])?;
    assemble::layout(name, parts, annotations)
}

//! Writes the typed programs of the gateway language as source text: readable C11 or Java 17 that
//! needs nothing but the hand-written runtime in `runtime/c` or `runtime/java`.
//!
//! A program is walked once: what reads and writes its messages becomes functions in a small
//! imperative tree ([`walk`](self)) that belongs to no language, and a printer for each language
//! turns the tree into text. So a further language adds a printer and no further reading of
//! [`gatewright_lang::ir`]. Nothing here ever sees the program's own text; where a line of it is to
//! be named, the caller says which ([`Places`]).
#![forbid(unsafe_code)]

mod c;
mod code;
mod java;
mod names;
mod walk;
mod wrap;

pub use c::{RIM as C_RIM, RUNTIME as C_RUNTIME, c};
pub use code::{Place, Places};
pub use java::{RUNTIME as JAVA_RUNTIME, java, java_package};

/// One file of source text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceFile {
    /// Its name; in Java it is a path, with `/` between folders.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A program that the generated languages cannot hold: a limit of the back end, not the author's
/// fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// Lines, counted blocks and checks are too deep within each other.
    #[error("message {message} nests {depth} regions, more than {max}")]
    TooDeep {
        /// The message.
        message: String,
        /// How deep.
        depth: usize,
        /// How deep it may be.
        max: usize,
    },
    /// A list's rows are too wide.
    #[error("a list of message {message} has {columns} columns, more than {max}")]
    TooWide {
        /// The message.
        message: String,
        /// How many columns.
        columns: usize,
        /// How many there may be.
        max: usize,
    },
}

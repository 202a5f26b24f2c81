//! Generates source text from typed programs of the gateway language: readable C11 or Java 17 that
//! only needs the hand-written runtime in `runtime/c` or `runtime/java`.
//!
//! A program is walked once ([`walk`](self)). The walk turns its readers and writers of messages
//! into functions in a small, language-independent imperative tree. A printer for each language
//! converts the tree to text. So another language only needs a printer, and no other reader of
//! [`gatewright_lang::ir`]. This crate never sees the program's own text; the caller supplies its
//! line numbers ([`Places`]).
#![forbid(unsafe_code)]

mod c;
mod code;
mod java;
mod names;
mod walk;
mod wrap;

pub use c::{IO as C_IO, RUNTIME as C_RUNTIME, c};
pub use code::{Places, SourceLine};
pub use java::{RUNTIME as JAVA_RUNTIME, java, java_package};

/// One file of source text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceFile {
    /// Its name; in Java it is a path, with `/` between folders.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A program that exceeds a limit of the generated languages: a limit of the back end, not the
/// author's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwritable {
    /// Lines, counted blocks and checks are nested too deeply.
    #[error("message {message} nests {depth} regions, more than {max}")]
    TooDeep {
        /// The message.
        message: String,
        /// The depth.
        depth: usize,
        /// The maximum depth.
        max: usize,
    },
    /// A list's rows are too wide.
    #[error("a list of message {message} has {columns} columns, more than {max}")]
    TooWide {
        /// The message.
        message: String,
        /// The number of columns.
        columns: usize,
        /// The maximum number of columns.
        max: usize,
    },
}

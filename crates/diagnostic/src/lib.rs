//! Findings about a user's text, rendered in the style of rustc.
//!
//! A [`Diagnostic`] says what is wrong, where, and how to fix it. The crates that read a user's
//! text (configuration, gateway programs, packet diagrams) create it. The command line shows it
//! with an excerpt ([`Diagnostic::render`]) or as data ([`Finding`]).
//!
//! Every finding carries a [`Code`] with its explanation, so every reported code is explained. The
//! hundreds of a code number identify the reporting crate:
//!
//! | codes | reported by |
//! |---|---|
//! | `GW00xx` | `diagram`: packet diagrams and field lists |
//! | `GW01xx` | `config`: the gateway description |
//! | `GW02xx` to `GW05xx` | `lang`: gateway programs |
#![forbid(unsafe_code)]

mod render;
mod secrets;
mod source;

pub use render::shown;
pub use secrets::REMOVED;
pub use source::{Position, Source, SourceId, Sources, Span};

use secrets::without_userinfo;
use serde::Serialize;
use std::fmt;

/// A kind of finding, with the text of `gatewright explain`.
#[derive(Debug, Eq, PartialEq)]
pub struct Code {
    /// The number after `GW`, unique in the project.
    pub number: u16,
    /// What is wrong, in a few words without a full stop.
    pub title: &'static str,
    /// Why it is refused, with an example of wrong and right.
    pub explanation: &'static str,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GW{:04}", self.number)
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The text is accepted, but is probably not what was meant.
    Warning,
    /// The text is refused.
    Error,
}

/// A position in the text with a short remark.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The remark; may be empty.
    pub text: String,
}

/// An edit that fixes the finding and changes nothing else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fix {
    /// The text to replace; empty to insert.
    pub span: Span,
    /// The replacement.
    pub replacement: String,
    /// What the edit does, as the user reads it: "write `lan`".
    pub message: String,
}

/// One finding: a code, a message, the position, and help.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// Whether the text is refused.
    pub severity: Severity,
    /// The kind of finding.
    pub code: &'static Code,
    /// What is wrong here, with the names and numbers of this case.
    pub message: String,
    /// The position of the message.
    pub primary: Label,
    /// Other positions that explain it.
    pub secondary: Vec<Label>,
    /// Related facts, one per line.
    pub notes: Vec<String>,
    /// Advice for the user.
    pub help: Option<String>,
    /// The edit that follows this advice.
    pub fix: Option<Fix>,
    /// Secrets that excerpts of the text do not show, beside users and passwords in URLs.
    pub hidden: Vec<Span>,
}

impl Diagnostic {
    /// A finding that rejects the text.
    pub fn error(code: &'static Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message.into())
    }

    /// A finding that accepts the text.
    pub fn warning(code: &'static Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, span, message.into())
    }

    fn new(severity: Severity, code: &'static Code, span: Span, message: String) -> Self {
        let primary = Label { span, text: String::new() };
        Self {
            severity,
            code,
            message,
            primary,
            secondary: Vec::new(),
            notes: Vec::new(),
            help: None,
            fix: None,
            hidden: Vec::new(),
        }
    }

    /// Sets the remark at the primary position.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Adds a second position.
    #[must_use]
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Sets the advice for the user.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Sets the edit that fixes it.
    #[must_use]
    pub fn fix(mut self, span: Span, replacement: impl Into<String>, message: &str) -> Self {
        let replacement = replacement.into();
        self.fix = Some(Fix { span, replacement, message: message.to_owned() });
        self
    }

    /// Leaves a secret out of excerpts.
    #[must_use]
    pub fn hide(mut self, span: Span) -> Self {
        self.hidden.push(span);
        self
    }

    /// The finding as data, with line and column instead of octet offsets, and without users and
    /// passwords of URLs; an edit that has such a URL is left out, as a part of it is of no use.
    pub fn finding(&self, sources: &Sources) -> Finding {
        let place = |span: Span| sources.place(span);
        let told = |words: &str| without_userinfo(words).into_owned();
        let fix = self.fix.as_ref().filter(|fix| told(&fix.replacement) == fix.replacement);
        Finding {
            code: self.code.to_string(),
            severity: self.severity,
            message: told(&self.message),
            label: told(&self.primary.text),
            place: place(self.primary.span),
            related: (self.secondary.iter())
                .map(|label| Related { place: place(label.span), message: told(&label.text) })
                .collect(),
            notes: self.notes.iter().map(|note| told(note)).collect(),
            help: self.help.as_deref().map(told),
            fix: fix.map(|fix| Edit {
                place: place(fix.span),
                replacement: fix.replacement.clone(),
                message: told(&fix.message),
            }),
        }
    }
}

/// A [`Diagnostic`] as data, for `--json`: a stable shape.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// `GW` and four digits.
    pub code: String,
    /// `error` or `warning`.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// The remark at the position.
    pub label: String,
    /// The position.
    pub place: SourceRange,
    /// Other positions that explain it.
    pub related: Vec<Related>,
    /// Related facts.
    pub notes: Vec<String>,
    /// Advice for the user.
    pub help: Option<String>,
    /// The edit that follows this advice.
    pub fix: Option<Edit>,
}

/// A range of a file; lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SourceRange {
    /// The file's name as the user gave it.
    pub file: String,
    /// First line.
    pub line: usize,
    /// First column.
    pub column: usize,
    /// Last line.
    pub end_line: usize,
    /// The column after the last.
    pub end_column: usize,
}

/// Another position of a [`Finding`].
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Related {
    /// The position.
    pub place: SourceRange,
    /// Its relevance.
    pub message: String,
}

/// An edit of a [`Finding`].
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Edit {
    /// The range to replace.
    pub place: SourceRange,
    /// The replacement.
    pub replacement: String,
    /// What the edit does.
    pub message: String,
}

/// Whether any of `diagnostics` rejects the text.
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

/// The candidate closest to `word`, if at most a third of it differs: a suggestion for a typing
/// error.
///
/// ```
/// use gatewright_diagnostic::nearest;
/// assert_eq!(nearest("adress", ["address", "mtu"]), Some("address"));
/// assert_eq!(nearest("x", ["address", "mtu"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count().max(3) / 3;
    (candidates.into_iter().map(|candidate| (distance(word, candidate), candidate)))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Damerau's distance: the fewest insertions, deletions, replacements or swaps of neighbouring
/// characters, where no substring is edited twice.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or_default();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    let mut row_before = row.clone();
    let mut from_before = None;
    for (i, from) in from.chars().enumerate() {
        let mut next = vec![i + 1];
        let mut to_before = None;
        for (j, &to) in to.iter().enumerate() {
            let replaced = at(&row, j) + usize::from(from != to);
            let mut least = replaced.min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            if let Some(two_left) = j.checked_sub(1)
                && (from_before, to_before) == (Some(to), Some(from))
            {
                least = least.min(at(&row_before, two_left) + 1);
            }
            next.push(least);
            to_before = Some(to);
        }
        row_before = std::mem::replace(&mut row, next);
        from_before = Some(from);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("cuont", "count", 1),
            ("defualt", "default", 1),
            ("abcd", "badc", 2),
            // Swapped and then parted would be two, but no stretch is edited twice.
            ("ca", "abc", 3),
            ("\u{fc}n", "n\u{fc}", 1),
        ] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
            assert_eq!(distance(to, from), edits, "{to} {from}");
        }
    }

    #[test]
    fn a_swapped_word_is_found() {
        let words = ["count", "default", "mount"];
        for (word, meant) in
            [("cuont", Some("count")), ("defualt", Some("default")), ("ocnut", None)]
        {
            assert_eq!(nearest(word, words), meant, "{word}");
        }
    }
}

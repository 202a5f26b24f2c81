//! The text being read, line by line, with the position of each column.

use gatewright_diagnostic::{SourceId, Span};

/// One line: its characters with their positions in the whole text.
#[derive(Clone, Debug)]
pub(crate) struct TextLine {
    start: usize,
    chars: Vec<char>,
}

impl TextLine {
    /// The character in `column`; a blank right of the end.
    pub(crate) fn at(&self, column: usize) -> char {
        self.chars.get(column).copied().unwrap_or(' ')
    }

    /// Columns up to the last character that is not blank.
    pub(crate) fn width(&self) -> usize {
        self.chars.iter().rposition(|c| !c.is_whitespace()).map_or(0, |last| last + 1)
    }

    /// The first column that is not blank.
    pub(crate) fn indent(&self) -> Option<usize> {
        self.chars.iter().position(|c| !c.is_whitespace())
    }

    /// The text between two columns.
    pub(crate) fn slice(&self, from: usize, to: usize) -> String {
        (from..to.min(self.chars.len())).map(|column| self.at(column)).collect()
    }

    /// The columns of `wanted` from `from` on.
    pub(crate) fn columns_of(&self, wanted: char, from: usize) -> Vec<usize> {
        (from..self.width()).filter(|&column| self.at(column) == wanted).collect()
    }

    /// The position of columns `from` to `to` in the whole text; at least one character.
    pub(crate) fn span(&self, from: usize, to: usize) -> Span {
        let offset = |column: usize| {
            self.start + self.chars.iter().take(column).map(|c| c.len_utf8()).sum::<usize>()
        };
        Span::new(SourceId::default(), offset(from), offset(to.max(from + 1)))
    }

    /// The position of the whole line without its indentation.
    pub(crate) fn whole(&self) -> Span {
        self.span(self.indent().unwrap_or(0), self.width())
    }
}

/// The lines of `text`, which begins at octet `base` of the user's file.
pub(crate) fn lines(text: &str, base: usize) -> Vec<TextLine> {
    let mut start = base;
    (text.split_inclusive('\n'))
        .map(|line| {
            let chars = line.trim_end_matches(['\n', '\r']).chars().collect();
            let read = TextLine { start, chars };
            start += line.len();
            read
        })
        .collect()
}

//! The source texts of findings.

use crate::SourceRange;

/// A text with its name: a file, or a substitute for one.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// The name as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of the octet at `offset`; past the end, those of the end.
    pub fn position(&self, offset: usize) -> Position {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&octet| octet == b'\n').count() + 1;
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Position { line, column }
    }
}

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// Index of a text in a [`Sources`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SourceId(u32);

/// A range of a text, in octets from its beginning.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Span {
    /// The text's id.
    pub source: SourceId,
    /// The first octet.
    pub start: usize,
    /// The octet after the last.
    pub end: usize,
}

impl Span {
    /// A stretch of one text.
    pub const fn new(source: SourceId, start: usize, end: usize) -> Self {
        Self { source, start, end }
    }

    /// The range from the beginning of this one to the end of `other`, both in one text.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { end: self.end.max(other.end), ..self }
    }
}

/// The texts of one run, each with its id.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    sources: Vec<Source>,
}

impl Sources {
    /// One text alone; its id is `SourceId::default()`.
    pub fn of(name: impl Into<String>, text: impl Into<String>) -> Self {
        let mut sources = Self::default();
        sources.add(name, text);
        sources
    }

    /// Adds a text.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> SourceId {
        let id = SourceId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        self.sources.push(Source { name: name.into(), text: text.into() });
        id
    }

    /// The text of `id`; an empty one if the id belongs to other sources.
    pub fn get(&self, id: SourceId) -> &Source {
        const NONE: &Source = &Source { name: String::new(), text: String::new() };
        usize::try_from(id.0).ok().and_then(|index| self.sources.get(index)).unwrap_or(NONE)
    }

    /// Position of a span, in lines and columns.
    pub fn place(&self, span: Span) -> SourceRange {
        let source = self.get(span.source);
        let (start, end) = (source.position(span.start), source.position(span.end));
        SourceRange {
            file: source.name().to_owned(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
        }
    }

    /// All texts with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        (0..).map(SourceId).zip(&self.sources)
    }
}

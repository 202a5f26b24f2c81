//! The source texts of findings.

use crate::SourceRange;

/// A text with its name: a file, or a substitute for one; or several files as one text.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Where lines end, in ascending order: a text may have as many findings as lines.
    line_ends: Vec<usize>,
    /// The files behind the first one, in order.
    further: Vec<FileStart>,
}

/// Where a file begins in a text of several.
#[derive(Clone, Debug)]
struct FileStart {
    offset: usize,
    name: String,
}

impl Source {
    /// The name as the user gave it; of several files, the first one's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the file that has the octet at `offset`, and where that file begins.
    pub fn file_at(&self, offset: usize) -> (&str, usize) {
        let before = self.further.partition_point(|file| file.offset <= offset);
        let file = before.checked_sub(1).and_then(|last| self.further.get(last));
        file.map_or((&self.name, 0), |file| (&file.name, file.offset))
    }

    /// Where each file begins, with its text.
    pub fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        let further = || self.further.iter().map(|file| file.offset);
        let starts = std::iter::once(0).chain(further());
        let ends = further().chain([self.text.len()]);
        starts.zip(ends).map(|(start, end)| (start, self.text.get(start..end).unwrap_or_default()))
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of the octet at `offset` in its file; past the end, those of the end.
    pub fn position(&self, offset: usize) -> Position {
        let (_, begin) = self.file_at(offset.min(self.text.len()));
        let is_inside = self.text.get(begin..offset).is_some();
        let offset = if is_inside { offset } else { self.text.len() };
        let lines_before = |offset| self.line_ends.partition_point(|&end| end < offset);
        let (first, here) = (lines_before(begin), lines_before(offset));
        let last_end = here.checked_sub(1).and_then(|last| self.line_ends.get(last));
        let line_start = last_end.map_or(begin, |end| begin.max(end + 1));
        let column = self.text.get(line_start..offset).unwrap_or_default().chars().count() + 1;
        Position { line: here.saturating_sub(first) + 1, column }
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
        let text = text.into();
        let line_ends = text.match_indices('\n').map(|(end, _)| end).collect();
        self.sources.push(Source { name: name.into(), text, line_ends, further: Vec::new() });
        id
    }

    /// Adds files as one text, in their order; each one's last line is ended. Places in it are told by
    /// file.
    pub fn add_files(&mut self, files: impl IntoIterator<Item = (String, String)>) -> SourceId {
        let mut files = files.into_iter();
        let (name, mut text) = files.next().unwrap_or_default();
        let mut further = Vec::new();
        for (name, file) in files {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            further.push(FileStart { offset: text.len(), name });
            text.push_str(&file);
        }
        let id = self.add(name, text);
        if let Some(source) = self.sources.last_mut() {
            source.further = further;
        }
        id
    }

    /// The text of `id`; an empty one if the id belongs to other sources.
    pub fn get(&self, id: SourceId) -> &Source {
        const NONE: &Source = &Source {
            name: String::new(),
            text: String::new(),
            line_ends: Vec::new(),
            further: Vec::new(),
        };
        usize::try_from(id.0).ok().and_then(|index| self.sources.get(index)).unwrap_or(NONE)
    }

    /// Position of a span, in lines and columns.
    pub fn place(&self, span: Span) -> SourceRange {
        let source = self.get(span.source);
        let (start, end) = (source.position(span.start), source.position(span.end));
        SourceRange {
            file: source.file_at(span.start).0.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_several_files_is_one_in_its_own() {
        let mut sources = Sources::default();
        let files = [("a", "one\ntwo"), ("b", "three\n"), ("c", ""), ("d", "f\u{fc}nf\nsix")];
        let id = sources.add_files(files.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let text = sources.get(id).text().to_owned();
        assert_eq!(text, "one\ntwo\nthree\nf\u{fc}nf\nsix");
        for (word, file, line, column) in [
            ("one", "a", 1, 1),
            ("two", "a", 2, 1),
            ("three", "b", 1, 1),
            ("nf", "d", 1, 3),
            ("six", "d", 2, 1),
        ] {
            let start = text.find(word).unwrap();
            let place = sources.place(Span::new(id, start, start + word.len()));
            assert_eq!(
                (place.file.as_str(), place.line, place.column),
                (file, line, column),
                "{word}"
            );
        }
        let end = sources.place(Span::new(id, text.len() + 9, text.len() + 9));
        assert_eq!((end.file.as_str(), end.line, end.column), ("d", 2, 4));
    }
}

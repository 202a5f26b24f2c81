//! Renders a finding with an excerpt of the text, by rustc's own renderer.

use crate::{
    Diagnostic, Label, Severity, Source, Sources, Span,
    secrets::{Redacted, without_userinfo},
};
use annotate_snippets::{
    AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet, renderer::DecorStyle,
};
use std::borrow::Cow;
use std::ops::Range;

/// Maximum octets of an excerpt. The renderer looks at every character of what it is given, for
/// each finding anew; a person reads no line this long.
const EXCERPT_OCTETS_MAX: usize = 8 << 10;

impl Diagnostic {
    /// The finding with file, line, excerpt, code and help; with colours for a terminal.
    /// The result contains no control character of the text, of its name or of the finding's words,
    /// except line ends. So a file's author cannot control the reader's terminal. Lines that are too
    /// long for an excerpt are named by their number. Users and passwords of URLs are not shown.
    pub fn render(&self, sources: &Sources, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let id = self.code.to_string();
        let source = sources.get(self.primary.span.source);
        let file = |span: Span| (span.source, sources.get(span.source).file_at(span.start).1);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            (self.secondary.iter()).partition(|label| file(label.span) == file(self.primary.span));
        let mut labels = vec![(AnnotationKind::Primary, &self.primary)];
        labels.extend(here.into_iter().map(|label| (AnnotationKind::Context, label)));
        let title = level.primary_title(told(&self.message)).id(id);
        let mut main = self.drawn(Group::with_title(title), source, &labels);
        for label in elsewhere {
            let source = sources.get(label.span.source);
            main = self.drawn(main, source, &[(AnnotationKind::Context, label)]);
        }
        for note in &self.notes {
            main = main.element(Level::NOTE.message(told(note)));
        }
        if let Some(help) = &self.help {
            main = main.element(Level::HELP.message(told(help)));
        }
        let mut groups = vec![main];
        groups.extend(self.patch(sources));
        let picture = renderer.decor_style(DecorStyle::Ascii).render(&groups);
        // The renderer draws the C0 characters of an excerpt as pictures, but lets C1 and some that
        // change the direction of text pass. It writes none of its own, so that they can be replaced
        // in what it has drawn.
        let steers = |c| matches!(c, '\u{80}'..='\u{9f}') || is_bidirectional(c);
        picture.replace(steers, "\u{fffd}")
    }

    fn patch<'a>(&'a self, sources: &'a Sources) -> Option<Group<'a>> {
        let fix = self.fix.as_ref()?;
        let source = sources.get(fix.span.source);
        let title = Level::HELP.secondary_title(told(&fix.message));
        let Some(excerpt) = self.excerpt(source, [fix.span]) else {
            return Some(Group::with_title(title));
        };
        let patch = Patch::new(excerpt.within(fix.span), told(&fix.replacement));
        Some(title.element(excerpt.snippet().patch(patch)))
    }

    /// Adds an excerpt with labels; one for each label if that for all is too long.
    fn drawn<'a>(
        &self,
        mut group: Group<'a>,
        source: &'a Source,
        labels: &[(AnnotationKind, &'a Label)],
    ) -> Group<'a> {
        if let Some(excerpt) = self.excerpt(source, labels.iter().map(|(_, label)| label.span)) {
            let snippet = labels.iter().fold(excerpt.snippet(), |snippet, (kind, label)| {
                let annotation = kind.span(excerpt.within(label.span));
                let silent = label.text.is_empty();
                snippet.annotation(if silent {
                    annotation
                } else {
                    annotation.label(told(&label.text))
                })
            });
            return group.element(snippet);
        }
        if labels.len() > 1 {
            return labels.iter().fold(group, |group, label| self.drawn(group, source, &[*label]));
        }
        for (_, label) in labels {
            let at = source.position(label.span.start);
            let (name, _) = source.file_at(label.span.start);
            let origin = Origin::path(shown(name)).line(at.line).char_column(at.column);
            group = group.element(origin);
            if !label.text.is_empty() {
                group = group.element(Level::NOTE.message(told(&label.text)));
            }
        }
        group
    }

    /// The lines of these spans of one text, without secrets.
    fn excerpt<'a>(
        &self,
        source: &'a Source,
        spans: impl IntoIterator<Item = Span> + Clone,
    ) -> Option<Excerpt<'a>> {
        let id = spans.clone().into_iter().next().map(|span| span.source)?;
        let hidden = self.hidden.iter().filter(|span| span.source == id);
        Excerpt::of(source, spans, hidden.copied())
    }
}

/// The lines of a text that a finding is about.
struct Excerpt<'a> {
    /// The name of their file.
    file: &'a str,
    text: Redacted<'a>,
    /// Its position in the whole text.
    from: usize,
    /// The number of its first line.
    line: usize,
}

impl<'a> Excerpt<'a> {
    /// The lines of these spans, and the one before: a span may stand behind the last line's end.
    /// `None` if that is too long.
    fn of(
        source: &'a Source,
        spans: impl IntoIterator<Item = Span>,
        hidden: impl Iterator<Item = Span>,
    ) -> Option<Self> {
        let text = source.text();
        let (mut start, mut end) = (text.len(), 0);
        for span in spans {
            start = start.min(span.start);
            end = end.max(span.end).max(span.start);
        }
        let before =
            |at: usize| text.as_bytes().get(..at)?.iter().rposition(|octet| *octet == b'\n');
        let begin = before(start.min(text.len())).and_then(|end| Some(before(end)? + 1));
        let (file, first) = source.file_at(start.min(text.len()));
        let from = begin.unwrap_or(0).max(first);
        let behind = text.as_bytes().get(end..).unwrap_or_default();
        let to = behind.iter().position(|octet| *octet == b'\n');
        let to = to.map_or(text.len(), |newline| end + newline + 1);
        let excerpt = text.get(from..to).filter(|text| text.len() <= EXCERPT_OCTETS_MAX)?;
        let hidden = hidden.map(|Span { start, end, .. }| {
            start.saturating_sub(from)..end.saturating_sub(from).min(excerpt.len())
        });
        let line = source.position(from).line;
        Some(Self { file, text: Redacted::excerpt(excerpt, hidden), from, line })
    }

    fn snippet<T: Clone>(&self) -> Snippet<'a, T> {
        Snippet::source(self.text.text().to_owned()).path(shown(self.file)).line_start(self.line)
    }

    /// The span in the excerpt, limited to it and to whole characters: the renderer does not check.
    fn within(&self, span: Span) -> Range<usize> {
        self.text.within(span.start.saturating_sub(self.from)..span.end.saturating_sub(self.from))
    }
}

/// The words of a finding as they are shown: without secrets, and without steering a terminal.
fn told(words: &str) -> Cow<'_, str> {
    match without_userinfo(words) {
        Cow::Borrowed(words) => shown(words),
        Cow::Owned(words) => shown(&words).into_owned().into(),
    }
}

/// The words with visible symbols in place of characters that steer a terminal: control characters
/// other than the end of a line, and those that change the direction of text. The renderer draws
/// them so in excerpts.
pub fn shown(words: &str) -> Cow<'_, str> {
    let steers = |c: char| (c.is_control() && c != '\n') || is_bidirectional(c);
    if !words.contains(steers) {
        return Cow::Borrowed(words);
    }
    let picture = |c: char| match c {
        '\u{0}'..='\u{1f}' => char::from_u32(PICTURES + u32::from(c)).unwrap_or(c),
        '\u{7f}' => '\u{2421}',
        _ => '\u{fffd}',
    };
    words.chars().map(|c| if steers(c) { picture(c) } else { c }).collect::<String>().into()
}

/// Whether a character changes the direction of the text around it (Unicode, UAX 9 §2).
const fn is_bidirectional(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// The first of Unicode's symbols for the C0 characters, which are in the same order.
const PICTURES: u32 = 0x2400;

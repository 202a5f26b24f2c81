//! Renders a finding with an excerpt of the text, by rustc's own renderer.

use crate::{Diagnostic, Label, Severity, Source, Sources, Span};
use annotate_snippets::{
    Annotation, AnnotationKind, Group, Level, Patch, Renderer, Snippet, renderer::DecorStyle,
};
use std::borrow::Cow;
use std::ops::Range;

impl Diagnostic {
    /// The finding with file, line, excerpt, code and help; with colours for a terminal.
    /// The result contains no control character of the text, of its name or of the finding's words,
    /// except line ends. So a file's author cannot control the reader's terminal.
    /// line ends: what a stranger wrote into a file cannot steer the reader's terminal.
    pub fn render(&self, sources: &Sources, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let id = self.code.to_string();
        let source = sources.get(self.primary.span.source);
        let mut snippet =
            snippet(source).annotation(annotation(source, AnnotationKind::Primary, &self.primary));
        let (here, elsewhere): (Vec<_>, Vec<_>) = (self.secondary.iter())
            .partition(|label| label.span.source == self.primary.span.source);
        for label in here {
            snippet = snippet.annotation(annotation(source, AnnotationKind::Context, label));
        }
        let mut main = level.primary_title(shown(&self.message)).id(id).element(snippet);
        for label in elsewhere {
            let source = sources.get(label.span.source);
            main = main.element(self::snippet(source).annotation(annotation(
                source,
                AnnotationKind::Context,
                label,
            )));
        }
        for note in &self.notes {
            main = main.element(Level::NOTE.message(shown(note)));
        }
        if let Some(help) = &self.help {
            main = main.element(Level::HELP.message(shown(help)));
        }
        let mut groups = vec![main];
        groups.extend(self.patch(sources));
        let picture = renderer.decor_style(DecorStyle::Ascii).render(&groups);
        // The renderer draws the C0 characters of an excerpt as pictures, but lets C1 pass. It
        // writes none of its own, so that they can be replaced in what it has drawn.
        picture.replace(|c| matches!(c, '\u{80}'..='\u{9f}'), "\u{fffd}")
    }

    fn patch<'a>(&'a self, sources: &'a Sources) -> Option<Group<'a>> {
        let fix = self.fix.as_ref()?;
        let source = sources.get(fix.span.source);
        let patch = Patch::new(within(source, fix.span), shown(&fix.replacement));
        let snippet = Snippet::source(source.text()).path(shown(source.name())).patch(patch);
        Some(Level::HELP.secondary_title(shown(&fix.message)).element(snippet))
    }
}

fn snippet(source: &Source) -> Snippet<'_, Annotation<'_>> {
    Snippet::source(source.text()).path(shown(source.name()))
}

/// The words with visible symbols in place of control characters, as the renderer draws them in
/// excerpts.
fn shown(words: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n';
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

/// The first of Unicode's symbols for the C0 characters, which are in the same order.
const PICTURES: u32 = 0x2400;

fn annotation<'a>(source: &Source, kind: AnnotationKind, label: &'a Label) -> Annotation<'a> {
    let annotation = kind.span(within(source, label.span));
    if label.text.is_empty() { annotation } else { annotation.label(shown(&label.text)) }
}

/// The span, limited to the text and to whole characters: the renderer does not check it.
fn within(source: &Source, span: Span) -> Range<usize> {
    let text = source.text();
    let start = text.floor_char_boundary(span.start);
    start..text.ceil_char_boundary(span.end).max(start)
}

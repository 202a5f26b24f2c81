//! A finding as a picture of the text, drawn by rustc's own renderer.

use crate::{Diagnostic, Label, Severity, Source, Sources, Span};
use annotate_snippets::{
    Annotation, AnnotationKind, Group, Level, Patch, Renderer, Snippet, renderer::DecorStyle,
};
use std::ops::Range;

impl Diagnostic {
    /// The finding with file, line, excerpt, code and help; with colours for a terminal.
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
        let mut main = level.primary_title(self.message.as_str()).id(id).element(snippet);
        for label in elsewhere {
            let source = sources.get(label.span.source);
            main = main.element(self::snippet(source).annotation(annotation(
                source,
                AnnotationKind::Context,
                label,
            )));
        }
        for note in &self.notes {
            main = main.element(Level::NOTE.message(note.as_str()));
        }
        if let Some(help) = &self.help {
            main = main.element(Level::HELP.message(help.as_str()));
        }
        let mut groups = vec![main];
        groups.extend(self.patch(sources));
        renderer.decor_style(DecorStyle::Ascii).render(&groups)
    }

    fn patch<'a>(&'a self, sources: &'a Sources) -> Option<Group<'a>> {
        let fix = self.fix.as_ref()?;
        let source = sources.get(fix.span.source);
        let patch = Patch::new(within(source, fix.span), fix.replacement.as_str());
        let snippet = Snippet::source(source.text()).path(source.name()).patch(patch);
        Some(Level::HELP.secondary_title(fix.message.as_str()).element(snippet))
    }
}

fn snippet(source: &Source) -> Snippet<'_, Annotation<'_>> {
    Snippet::source(source.text()).path(source.name())
}

fn annotation<'a>(source: &Source, kind: AnnotationKind, label: &'a Label) -> Annotation<'a> {
    let annotation = kind.span(within(source, label.span));
    if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) }
}

/// The span, cut to the text and to whole characters: the renderer trusts what it is given.
fn within(source: &Source, span: Span) -> Range<usize> {
    let text = source.text();
    let start = text.floor_char_boundary(span.start);
    start..text.ceil_char_boundary(span.end).max(start)
}

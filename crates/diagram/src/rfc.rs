//! Reads an RFC as published in plain text: sections, page breaks, captions.

use crate::{
    Document,
    assemble::Beside,
    codes,
    grid::{self, FoundDiagram},
    read_found,
    text::{self, TextLine},
    title::{is_in, type_name},
};
use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// A heading and its line.
#[derive(Clone, Debug)]
struct Heading {
    at: usize,
    /// Such as `4.6.2`; empty where sections are not numbered (RFC 792).
    number: String,
    title: String,
}

/// Number of lines below a diagram that are searched for its caption.
const CAPTION_LINES: usize = 6;

/// Reads the diagrams of the document, or of one section.
pub(crate) fn read(text: &str, section: Option<&str>, beside: &mut Beside) -> Document {
    let lines = text::lines(text, 0);
    let headings = headings(&lines);
    let wanted = |heading: Option<&Heading>| match (section, heading) {
        (None, _) => true,
        (Some(wanted), Some(heading)) => is_in(wanted, &heading.number, &heading.title),
        (Some(_), None) => false,
    };
    if let Some(section) = section
        && !headings.iter().any(|heading| wanted(Some(heading)))
    {
        return Document::refused(no_section(section, &headings));
    }
    let mut document = Document::default();
    let mut found_any = false;
    for (at, found) in positions(&lines) {
        let heading = headings.iter().rev().find(|heading| heading.at < at);
        if wanted(heading) {
            found_any = true;
            let below = lines.get(at + found.lines.len()..).unwrap_or_default();
            let title = caption(below).or(heading.map(|heading| heading.title.clone()));
            let name = type_name(title.as_deref().unwrap_or("Header"));
            let behind = (&mut *beside, Vec::new());
            let reading = read_found(&name, &found, behind, &mut document.findings);
            document.add(reading);
        }
    }
    if !found_any {
        let span = Span::new(SourceId::default(), 0, text.len().min(1));
        let message = "no packet diagram found";
        document.findings.push(Diagnostic::error(&codes::NO_DIAGRAM, span, message));
    }
    document
}

fn no_section(section: &str, headings: &[Heading]) -> Diagnostic {
    let span = Span::new(SourceId::default(), 0, 1);
    let numbers = headings.iter().map(|heading| heading.number.as_str());
    let finding = Diagnostic::error(
        &codes::NO_SECTION,
        span,
        format!("the document has no section `{section}`"),
    );
    match gatewright_diagnostic::nearest(section, numbers.filter(|number| !number.is_empty())) {
        Some(near) => finding.help(format!("did you mean `{near}`?")),
        None => finding.help("give its number or its title as printed"),
    }
}

/// Each diagram with the line on which it begins.
fn positions(lines: &[TextLine]) -> Vec<(usize, FoundDiagram<'_>)> {
    let mut from = 0;
    let mut positions = Vec::new();
    for found in grid::find(lines) {
        let first = found.lines.first().map(TextLine::whole);
        let rest = lines.get(from..).unwrap_or_default();
        let at = from + rest.iter().position(|line| Some(line.whole()) == first).unwrap_or(0);
        from = at + 1;
        positions.push((at, found));
    }
    positions
}

/// Finds headings: at the left border, between blank lines, but not at the top of a page.
fn headings(lines: &[TextLine]) -> Vec<Heading> {
    let blank = |at: Option<usize>| {
        at.and_then(|at| lines.get(at)).is_none_or(|line| line.indent().is_none())
    };
    let mut headings = Vec::new();
    // An excerpt may begin with its heading; only pages begin with what repeats on each of them.
    let mut page_top = false;
    for (at, line) in lines.iter().enumerate() {
        let text = line.slice(0, line.width());
        if text.to_ascii_lowercase().contains("[page ") || text.contains('\u{c}') {
            page_top = true;
            continue;
        }
        let Some(indent) = line.indent() else {
            continue;
        };
        let alone = blank(at.checked_sub(1)) && blank(at.checked_add(1));
        let top = page_top;
        if blank(at.checked_add(1)) {
            page_top = false;
        }
        // Without a letter it is the scale above a diagram.
        let heading = indent == 0
            && text.contains(char::is_alphabetic)
            && !text.contains("...")
            && !text.starts_with("RFC ");
        if heading && !top && (alone || text.starts_with(|c: char| c.is_ascii_digit())) {
            headings.push(heading_of(at, &text));
        }
    }
    headings
}

fn heading_of(at: usize, text: &str) -> Heading {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let number = first.trim_end_matches('.');
    let numbered = number.split('.').all(|part| part.parse::<u16>().is_ok());
    if numbered {
        Heading { at, number: number.to_owned(), title: rest.trim().to_owned() }
    } else {
        Heading { at, number: String::new(), title: text.trim().to_owned() }
    }
}

/// `Figure 1: TCP Header Format` below a diagram.
fn caption(below: &[TextLine]) -> Option<String> {
    let near = below.iter().take(CAPTION_LINES);
    let captions = near.map(|line| line.slice(0, line.width()).trim().to_owned());
    captions.into_iter().find_map(|text| {
        let (number, title) = text.strip_prefix("Figure ")?.split_once(':')?;
        let number = number.chars().all(|c| c.is_ascii_alphanumeric());
        (number && !title.trim().is_empty()).then(|| title.trim().to_owned())
    })
}

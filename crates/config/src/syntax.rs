//! Findings about text that is no TOML.

use crate::{codes, shape::Findings};
use gatewright_diagnostic::Diagnostic;
use std::ops::Range;
use toml::de::{DeTable, DeValue, Error};

/// What the parser says of a key or a table that is there already.
const DUPLICATE: &str = "duplicate key";

/// Adds a finding for each error. Of a key or table that is there twice it says where the first is: in a
/// description of several files that may be another one.
pub(crate) fn add(errors: &[Error], text: &str, document: &DeTable<'_>, findings: &mut Findings) {
    // A table that is there twice is one mistake, not one for each key in it as well.
    let mut repeated = Vec::new();
    for error in errors {
        let range = error.span().unwrap_or(0..0);
        let (message, help) = told(error.message(), text, &range);
        let finding = Diagnostic::error(&codes::SYNTAX, findings.span(range.clone()), message);
        let mut finding = finding.help(help);
        if error.message() == DUPLICATE {
            let header = header_before(text, range.start);
            if header.is_some_and(|(at, _)| at < line_start(text, range.start))
                && repeated.contains(&header)
            {
                continue;
            }
            if header.is_some_and(|(at, _)| at == line_start(text, range.start)) {
                repeated.push(header);
            }
            if let Some(first) = first_of(text, document, &range, header.map(|(_, path)| path)) {
                finding = finding.also(findings.span(first), "the first is here");
            }
        }
        findings.add(finding);
    }
}

/// The message of the parser, or a plainer one, and what to do.
fn told<'text>(
    message: &'text str,
    text: &str,
    range: &Range<usize>,
) -> (&'text str, &'static str) {
    let is_without_value = || {
        let rest = text.get(range.start..).and_then(|rest| rest.lines().next());
        rest.is_none_or(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('#'))
    };
    for (begins, plainer, help) in MESSAGES {
        if message.starts_with(begins) {
            if *begins == UNQUOTED && is_without_value() {
                break;
            }
            return (plainer.unwrap_or(message), help);
        }
    }
    if message.starts_with(UNQUOTED) {
        return ("a key without a value", "write a value after `=`, or leave the key out");
    }
    let help = "a line is `KEY = VALUE` or a header `[TABLE]`; a comment begins with `#`";
    (message, help)
}

/// How the parser begins its message about a value that is no string, number, date, true or false.
const UNQUOTED: &str = "string values must be quoted";

/// How messages of the parser begin, what is said in their place, and what to do.
static MESSAGES: &[(&str, Option<&str>, &str)] = &[
    (
        UNQUOTED,
        Some("a string without quotes"),
        "put it between quotes: \"eth0\"; numbers, true and false have none",
    ),
    (DUPLICATE, None, "write each key and each table once: put the keys of both into one table"),
    ("unclosed table", None, "a header ends with `]`: [link.lan]; and one of a list with `]]`"),
    ("key with no value", None, "write `=` between the key and its value"),
    ("missing comma", None, "write a comma between two elements of a list"),
    ("invalid basic string", None, "a string ends with a quote on the same line: \"eth0\""),
    (
        "missing escaped value",
        None,
        "write `\\\\` for a backslash, or single quotes around a text with backslashes",
    ),
];

/// Where the line of `offset` begins.
fn line_start(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or_default();
    before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// The header of the table in which `offset` stands, or of which it is: where its line begins, and the
/// words between its brackets.
fn header_before(text: &str, offset: usize) -> Option<(usize, &str)> {
    let end = text.get(offset..)?.find('\n').map_or(text.len(), |newline| offset + newline);
    let mut start = end;
    for line in text.get(..end)?.rsplit('\n') {
        start -= line.len();
        if let Some(words) = line.trim_start().strip_prefix('[').filter(|it| !it.starts_with('[')) {
            return Some((start, words.split_once(']')?.0));
        }
        start = start.saturating_sub(1);
    }
    None
}

/// The place of the key that `range` repeats, if it is found where the text lets expect it.
fn first_of(
    text: &str,
    document: &DeTable<'_>,
    range: &Range<usize>,
    header: Option<&str>,
) -> Option<Range<usize>> {
    let begin = line_start(text, range.start);
    let own = text.get(begin..range.end)?.trim_start();
    let path: Vec<&str> = match own.strip_prefix('[') {
        // The parser keeps the place of the last one.
        Some(own) => return first_header(text.get(..begin)?, own),
        None => header.into_iter().chain([own]).flat_map(|it| it.split('.')).collect(),
    };
    let (last, tables) = path.split_last()?;
    let mut table = document;
    for name in tables {
        let DeValue::Table(inner) = table.get(plain(name))?.get_ref() else { return None };
        table = inner;
    }
    let (key, _) = table.get_key_value(plain(last))?;
    // Else it was the parser's guess, or this one.
    (key.span().start < range.start).then(|| key.span())
}

/// The place of the first header in `text` of the table with these words between its brackets.
fn first_header(text: &str, words: &str) -> Option<Range<usize>> {
    let path = |words: &str| words.split('.').map(|it| plain(it).to_owned()).collect::<Vec<_>>();
    let wanted = path(words);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inside = line.trim_start().strip_prefix('[').and_then(|it| it.split_once(']'));
        if let Some((inside, _)) = inside.filter(|(inside, _)| path(inside) == wanted) {
            let start = at + line.find('[')? + 1;
            return Some(start..start + inside.len());
        }
        at += line.len();
    }
    None
}

/// A key without blanks and quotes around it.
fn plain(key: &str) -> &str {
    key.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use gatewright_diagnostic::SourceId;

    /// The texts of finding and label, by the lines on which they stand.
    fn told(text: &str) -> Vec<(usize, Vec<usize>)> {
        let line = |at: usize| 1 + text.get(..at).unwrap().matches('\n').count();
        let findings = crate::parse(SourceId::default(), text).diagnostics;
        let of = findings.iter().filter(|it| it.message == super::DUPLICATE).map(|it| {
            let also = it.secondary.iter().map(|label| line(label.span.start));
            (line(it.primary.span.start), also.collect())
        });
        of.collect()
    }

    #[test]
    fn the_first_of_a_repeated_key_or_table_is_named() {
        assert_eq!(told("[web]\nlisten = 1\n\n[web]\nlisten = 2\n"), [(4, vec![1])]);
        assert_eq!(told("[web]\nlisten = 1\nlisten = 2\n"), [(3, vec![2])]);
        assert_eq!(told("[link.\"a\"]\n[link.b]\n[link.a]\nmtu = 1\nmtu = 2"), [(3, vec![1])]);
        assert_eq!(told("[a]\nb.c = 1\nb.c = 2\n"), [(3, vec![2])]);
        // Without a header above, and where the text only looks as if it had one.
        assert_eq!(told("a = 1\na = 2\n"), [(2, vec![1])]);
        assert_eq!(told("[[route]]\na = 1\na = 2\n"), [(3, vec![])]);
        assert_eq!(told("[a]\nb = '''\n[c]\n'''\nb = 2\n"), [(5, vec![])]);
    }
}

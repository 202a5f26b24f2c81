//! Checks whether a text has the tables, keys and value types of `tables`.

use crate::codes;
use crate::form;
use crate::tables::{Key, Shape, Table};
use gatewright_diagnostic::{Code, Diagnostic, SourceId, Span, nearest};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

/// The findings about one text.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) source: SourceId,
    pub(crate) list: Vec<Diagnostic>,
}

impl Findings {
    pub(crate) fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.source, range.start, range.end)
    }

    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        self.list.push(diagnostic);
    }

    fn error(&self, code: &'static Code, at: Range<usize>, message: String) -> Diagnostic {
        Diagnostic::error(code, self.span(at), message)
    }
}

/// Checks a table whose header is at `header`.
pub(crate) fn check_table(
    table: &DeTable<'_>,
    header: Range<usize>,
    shape: &Table,
    findings: &mut Findings,
) {
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        match shape.keys.iter().find(|known| known.name == name) {
            Some(known) => check_value(known, key.span(), value, findings),
            None => unknown(name, key.span(), shape, findings),
        }
    }
    let is_there = |key: &Key| table.keys().any(|found| found.get_ref().as_ref() == key.name);
    // Who misspelt a key is told so, and not that it is missing, too.
    let unknown = table.keys().map(|key| key.get_ref().as_ref());
    let unknown = unknown.filter(|name| shape.keys.iter().all(|key| key.name != *name));
    let meant: Vec<_> = unknown.filter_map(|name| meant(name, shape)).collect();
    let is_there = |key: &Key| is_there(key) || meant.contains(&key.name);
    for key in shape.keys.iter().filter(|key| key.required && !is_there(key)) {
        let message = format!("{} needs `{}`", shape.name, key.name);
        findings.add(findings.error(&codes::MISSING_KEY, header.clone(), message).help(format!(
            "{} = {}   # {}",
            key.name,
            example(key),
            key.doc
        )));
    }
}

fn unknown(name: &str, at: Range<usize>, shape: &Table, findings: &mut Findings) {
    let (code, what) = if is_root(shape) {
        (&codes::UNKNOWN_TABLE, format!("unknown table `{name}`"))
    } else {
        (&codes::UNKNOWN_KEY, format!("unknown key `{name}` in {}", shape.name))
    };
    let finding = findings.error(code, at.clone(), what);
    if let Some(key) = meant_by(name, shape) {
        let label = format!("`{}` says that here", key.name);
        findings.add(finding.label(label).help(usage(key)));
        return;
    }
    let finding = match meant(name, shape) {
        Some(meant) => finding.label(format!("did you mean `{meant}`?")).fix(
            findings.span(at),
            meant,
            "write it so",
        ),
        None => finding.help(keys_there(name, shape)),
    };
    findings.add(finding);
}

/// The key of a table that says what a word of other programs does: it is spelled like none.
fn meant_by<'t>(name: &str, shape: &'t Table) -> Option<&'t Key> {
    const FORWARD: &str = "forward";
    let is_receiver = matches!(name, "server" | "target" | "to" | "upstream" | "backend");
    let forwards = |key: &&Key| key.name == FORWARD && matches!(key.shape, Shape::Table(_));
    let forward = shape.keys.iter().find(forwards).filter(|_| is_receiver);
    // A handler's condition has one port; rules of a filter have one of each side.
    let is_port = matches!(name, "destination_port" | "dst_port" | "dport");
    let port = shape.keys.iter().find(|key| key.name == "port" && is_port);
    forward.or(port)
}

fn is_root(shape: &Table) -> bool {
    shape.name == crate::tables::ROOT.name
}

/// The key of a table that is likely meant by an unknown name: a similar one, unless a table below
/// has a key of this very name.
fn meant(name: &str, shape: &Table) -> Option<&'static str> {
    let is_of_another = !is_root(shape) && !tables_below(name, shape).is_empty();
    let names = shape.keys.iter().map(|key| key.name);
    nearest(name, names).filter(|_| !is_of_another)
}

/// Headers of the tables below `shape` that have a key of this name.
fn tables_below(name: &str, shape: &Table) -> Vec<&'static str> {
    let mut found = Vec::new();
    for key in shape.keys {
        let (Shape::Table(inner) | Shape::Named(inner, _) | Shape::Many(inner, _)) = key.shape
        else {
            continue;
        };
        if inner.keys.iter().any(|key| key.name == name) {
            found.push(inner.name);
        }
        found.extend(tables_below(name, inner));
    }
    found.dedup();
    found
}

/// The keys of a table, for who wrote another one, with the tables that have that.
fn keys_there(name: &str, shape: &Table) -> String {
    let here = shape.keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    let others = tables_with(name).join(" and ");
    if others.is_empty() {
        return format!("there are: {here}");
    }
    format!("`{name}` is a key of {others}; in {} there are: {here}", shape.name)
}

/// Headers of the tables that have a key of this name; none if they are many, as then the name tells
/// nothing.
fn tables_with(name: &str) -> Vec<&'static str> {
    let found = tables_below(name, &crate::tables::ROOT);
    if found.len() > HOMES_MAX { Vec::new() } else { found }
}

/// Maximum number of tables that are named as the place of a key.
const HOMES_MAX: usize = 3;

fn check_value(
    key: &Key,
    at_key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    findings: &mut Findings,
) {
    let at = value.span();
    match (key.shape, value.get_ref()) {
        (Shape::Text(form), DeValue::String(text)) => form::check(key, form, text, at, findings),
        (Shape::Flag, DeValue::Boolean(_)) => {}
        (
            Shape::Number(min, max) | Shape::ChoiceOrNumber(_, min, max),
            DeValue::Integer(number),
        ) => check_number(key, number, min..=max, at, findings),
        (Shape::Choice(words) | Shape::ChoiceOrNumber(words, ..), DeValue::String(text)) => {
            check_choice(key, words, text, at, findings);
        }
        (Shape::List(form, max), DeValue::Array(items)) => {
            check_count(key, items.len(), max, at, findings);
            for item in items {
                match item.get_ref() {
                    DeValue::String(text) => form::check(key, form, text, item.span(), findings),
                    other => wrong_type(key, other, "a list of strings", item.span(), findings),
                }
            }
        }
        (Shape::Table(table), DeValue::Table(inner)) => check_table(inner, at, table, findings),
        (Shape::Many(table, max), DeValue::Array(items)) => {
            check_many(key, items, table, max, at, findings);
        }
        (Shape::Named(table, max), DeValue::Table(inner)) => {
            check_named(key, inner, table, max, at_key, findings);
        }
        (_, other) => wrong_type(key, other, wanted(key.shape), at, findings),
    }
}

fn check_many(
    key: &Key,
    items: &DeArray<'_>,
    table: &Table,
    max: usize,
    at: Range<usize>,
    findings: &mut Findings,
) {
    check_count(key, items.len(), max, at, findings);
    for item in items {
        match item.get_ref() {
            DeValue::Table(inner) => check_table(inner, item.span(), table, findings),
            other => wrong_type(key, other, "a list of tables", item.span(), findings),
        }
    }
}

fn check_named(
    key: &Key,
    inner: &DeTable<'_>,
    table: &Table,
    max: usize,
    at: Range<usize>,
    findings: &mut Findings,
) {
    check_count(key, inner.len(), max, at, findings);
    for (name, value) in inner {
        form::check(key, form::Form::Name, name.get_ref(), name.span(), findings);
        match value.get_ref() {
            DeValue::Table(inner) => check_table(inner, value.span(), table, findings),
            other => {
                wrong_type(
                    key,
                    other,
                    "a table of tables, each with a name",
                    value.span(),
                    findings,
                );
            }
        }
    }
}

fn check_count(key: &Key, count: usize, max: usize, at: Range<usize>, findings: &mut Findings) {
    if count > max {
        let message = format!("{count} of `{}`; at most {max}", key.name);
        findings.add(findings.error(&codes::TOO_MANY, at, message));
    }
}

fn check_number(
    key: &Key,
    number: &DeInteger<'_>,
    range: std::ops::RangeInclusive<i64>,
    at: Range<usize>,
    findings: &mut Findings,
) {
    if integer(number).is_some_and(|number| range.contains(&number)) {
        return;
    }
    let (min, max) = range.into_inner();
    let message = format!("`{}` must be a number from {min} to {max}", key.name);
    let finding = findings.error(&codes::OUT_OF_RANGE, at, message);
    findings.add(finding.label("out of range").note(key.doc));
}

fn check_choice(key: &Key, words: &[&str], text: &str, at: Range<usize>, findings: &mut Findings) {
    if words.contains(&text) {
        return;
    }
    let message = format!("`{}` cannot be \"{text}\"", key.name);
    let finding = findings.error(&codes::NOT_A_CHOICE, at.clone(), message);
    let finding = finding.help(format!("it is one of {}", quoted(words)));
    findings.add(match nearest(text, words.iter().copied()).or_else(|| begun(text, words)) {
        Some(meant) => {
            let finding = finding.label(format!("did you mean \"{meant}\"?"));
            finding.fix(findings.span(at), format!("\"{meant}\""), "write it so")
        }
        None => finding,
    });
}

/// Octets that a word has at least if it is to be the beginning of another.
const BEGUN_LEN_MIN: usize = 3;

/// The one word that begins with this text, such as `warning` with `warn`.
fn begun<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    let mut meant = words.iter().filter(|word| word.starts_with(text));
    let first = meant.next().filter(|_| text.len() >= BEGUN_LEN_MIN)?;
    meant.next().is_none().then_some(first)
}

fn wrong_type(
    key: &Key,
    found: &DeValue<'_>,
    wanted: &str,
    at: Range<usize>,
    findings: &mut Findings,
) {
    let message = format!("`{}` is {wanted}", key.name);
    let finding = findings.error(&codes::WRONG_TYPE, at.clone(), message);
    let finding = finding.label(format!("this is {}", kind(found)));
    findings.add(match mended(key.shape, found) {
        Some(text) => finding.fix(findings.span(at), text, "write it so"),
        None => finding.help(usage(key)),
    });
}

/// The same value in the right type, where the intention is unambiguous.
fn mended(shape: Shape, found: &DeValue<'_>) -> Option<String> {
    match (shape, found) {
        (Shape::Number(min, max) | Shape::ChoiceOrNumber(_, min, max), DeValue::String(text)) => {
            text.parse().ok().filter(|number: &i64| (min..=max).contains(number))?;
            Some(text.to_string())
        }
        (Shape::Flag, DeValue::String(text)) if matches!(text.as_ref(), "true" | "false") => {
            Some(text.to_string())
        }
        (Shape::List(form, _), DeValue::String(text)) if form::is_right(form, text) => {
            Some(format!("[\"{text}\"]"))
        }
        _ => None,
    }
}

/// The number of a TOML integer; `None` beyond 64 bits.
pub(crate) fn integer(number: &DeInteger<'_>) -> Option<i64> {
    let digits: String = number.as_str().chars().filter(|&digit| digit != '_').collect();
    i64::from_str_radix(&digits, number.radix()).ok()
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

const fn wanted(shape: Shape) -> &'static str {
    match shape {
        Shape::Text(_) | Shape::Choice(_) => "a string",
        Shape::Flag => "true or false",
        Shape::Number(..) => "a whole number",
        Shape::ChoiceOrNumber(..) => "a string or a whole number",
        Shape::List(..) => "a list of strings",
        Shape::Table(_) | Shape::Named(..) => "a table",
        Shape::Many(..) => "a table with double brackets",
    }
}

const fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// How a key of this shape is written, for help texts.
pub(crate) fn usage(key: &Key) -> String {
    match key.shape {
        Shape::Many(table, _) => format!("write a table of its own: {}", table.name),
        Shape::Named(table, _) => {
            format!("write a table of its own: {}", table.name.replace("NAME", "lan"))
        }
        _ => format!("for example `{} = {}`", key.name, example(key)),
    }
}

/// An example value of this key.
pub(crate) fn example(key: &Key) -> String {
    match key.shape {
        Shape::Text(form) => format!("\"{}\"", text_of(key, form)),
        Shape::Flag => "true".to_owned(),
        Shape::Number(min, max) => {
            let usual = key.usual().and_then(|usual| usual.parse().ok());
            usual.unwrap_or(min).clamp(min, max).to_string()
        }
        Shape::Choice(words) | Shape::ChoiceOrNumber(words, ..) => {
            format!("\"{}\"", words.first().copied().unwrap_or_default())
        }
        Shape::List(form, _) => format!("[\"{}\"]", text_of(key, form)),
        Shape::Table(table) | Shape::Many(table, _) | Shape::Named(table, _) => {
            let required = table.keys.iter().filter(|key| key.required);
            let pairs = required.map(|key| format!("{} = {}", key.name, example(key)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// An example of a text that this key takes.
pub(crate) fn text_of(key: &Key, form: form::Form) -> &'static str {
    key.usual().filter(|usual| form::is_right(form, usual)).unwrap_or_else(|| form::example(form))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::ROOT;

    /// Calls `look` with each key of the table and of those in it.
    fn each(table: &Table, look: &mut impl FnMut(&Table, &Key)) {
        for key in table.keys {
            look(table, key);
            if let Shape::Table(inner) | Shape::Named(inner, _) | Shape::Many(inner, _) = key.shape
            {
                each(inner, look);
            }
        }
    }

    /// A number's range says nothing of what is usual in it, so each has a value of its own.
    #[test]
    fn each_number_has_an_example_in_its_range() {
        let mut wrong = Vec::new();
        each(&ROOT, &mut |table, key| {
            if let Shape::Number(min, max) = key.shape {
                let usual: Option<i64> = key.usual().and_then(|usual| usual.parse().ok());
                if usual.is_none_or(|usual| usual < min || usual > max) {
                    wrong.push(format!("{} {}", table.name, key.name));
                }
            }
        });
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// An example that is given is one: it has the form of its key.
    #[test]
    fn each_example_of_a_text_has_its_form() {
        each(&ROOT, &mut |table, key| {
            if let (Shape::Text(form) | Shape::List(form, _), Some(example)) =
                (key.shape, key.example)
            {
                assert!(form::is_right(form, example), "{} {}", table.name, key.name);
            }
        });
    }

    #[test]
    fn examples_suit_their_keys() {
        let mut found = Vec::new();
        each(&ROOT, &mut |table, key| {
            let wanted = [
                ("[[devices.silent]]", "minutes"),
                ("[devices]", "keep_hours"),
                ("[cse]", "admin"),
                ("[cse]", "http"),
                ("[web]", "listen"),
                ("forward", "port"),
            ];
            if wanted.contains(&(table.name, key.name)) {
                found.push(format!("{} = {}", key.name, example(key)));
            }
        });
        found.sort();
        found.dedup();
        let expected = [
            "admin = \"CAdmin\"",
            "http = \"127.0.0.1:8080\"",
            "keep_hours = 168",
            "listen = \"127.0.0.1:8787\"",
            "minutes = 60",
            "port = 8080",
        ];
        assert_eq!(found, expected);
    }
}

//! Differences between two descriptions in tables that exist once and in those that have names, by
//! key.
//!
//! They follow from the key tables: a new key needs nothing here. What a text gives to each key is
//! kept beside the typed description for this.

use crate::model::Config;
use crate::redact::PRIVATE;
use crate::tables::{Form, Key, ROOT, Shape, Table};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// The values that a text gives to keys of tables that exist once, or that have names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WrittenValues(BTreeMap<TableId, BTreeMap<&'static str, String>>);

/// A table: its header in the key tables, and its name if it is one of several (`[link.lan]`); that of
/// a table in such a one is the same.
type TableId = (&'static str, String);

/// A difference between two descriptions in one key, or in a whole table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyDifference {
    /// The key with its table, `[cse] http`, `[link.lan] mtu`, or the table, `[cse]`.
    pub key: String,
    /// The key alone; empty for a table.
    pub name: &'static str,
    /// The difference: `127.0.0.1:80, not 127.0.0.1:8080`.
    pub how: String,
    /// Whether it takes effect only after a restart.
    pub restart: bool,
    /// Whether the key says which device is behind a link.
    pub of_device: bool,
}

/// Tables that come and go only with a restart: what runs for them exists from the start.
const FIXED_TABLES: [&str; 4] = ["[devices]", "[cse]", "[cse.tls]", "[cse.registrar]"];

impl WrittenValues {
    /// The values of a document.
    pub(crate) fn of(document: &DeTable<'_>) -> Self {
        let mut written = Self::default();
        written.take(document, &ROOT, "");
        written
    }

    /// Takes the values of a table, which is `named` if it is one of several.
    fn take(&mut self, table: &DeTable<'_>, shape: &'static Table, named: &str) {
        let mut values = BTreeMap::new();
        for key in shape.keys {
            match (key.shape, table.get(key.name).map(toml::Spanned::get_ref)) {
                (Shape::Table(inner), Some(DeValue::Table(below))) => {
                    self.take(below, inner, named);
                }
                (Shape::Named(inner, _), Some(DeValue::Table(below))) => {
                    for (name, table) in below {
                        if let DeValue::Table(table) = table.get_ref() {
                            self.take(table, inner, name.get_ref());
                        }
                    }
                }
                (_, None) => {}
                (_, Some(value)) => {
                    values.insert(key.name, text(value));
                }
            }
        }
        self.0.insert((shape.name, named.to_owned()), values);
    }
}

/// A value as text, the same however it is laid out.
fn text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            crate::shape::integer(number).map_or_else(String::new, |number| number.to_string())
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| format!("{:?}", text(item.get_ref())));
            items.collect::<Vec<_>>().join(",")
        }
        DeValue::Table(table) => {
            let mut pairs: Vec<_> = (table.iter())
                .map(|(key, value)| format!("{}={:?}", key.get_ref(), text(value.get_ref())))
                .collect();
            pairs.sort();
            pairs.join(",")
        }
    }
}

/// Differences between `old` and `new` in the table `name` of the root and the tables in it, in the
/// order of the key tables.
pub fn differences(old: &Config, new: &Config, name: &str) -> Vec<KeyDifference> {
    let found = ROOT.keys.iter().find(|key| key.name == name);
    let mut all = Vec::new();
    if let Some(Key { shape: Shape::Table(table), .. }) = found {
        compare([&old.written, &new.written], (table, table.name, ""), &mut all);
    }
    all
}

/// Differences between `old` and `new` in the table `[kind.name]`, which both have, and in those in it.
pub fn differences_of(old: &Config, new: &Config, kind: &str, name: &str) -> Vec<KeyDifference> {
    let found = ROOT.keys.iter().find(|key| key.name == kind);
    let mut all = Vec::new();
    if let Some(Key { shape: Shape::Named(table, _), .. }) = found {
        let header = format!("[{kind}.{name}]");
        compare([&old.written, &new.written], (table, &header, name), &mut all);
    }
    all
}

/// Compares a table with this header, which is `named` if it is one of several.
fn compare(
    [old, new]: [&WrittenValues; 2],
    (table, header, named): (&Table, &str, &str),
    all: &mut Vec<KeyDifference>,
) {
    let id = (table.name, named.to_owned());
    let [before, now] = [old, new].map(|written| written.0.get(&id));
    if before.is_some() != now.is_some() && FIXED_TABLES.contains(&table.name) {
        let how = if now.is_some() { "is new" } else { "is gone" };
        let (key, how) = (table.name.to_owned(), how.to_owned());
        all.push(KeyDifference { key, name: "", how, restart: true, of_device: false });
        return;
    }
    for key in table.keys {
        if let Shape::Table(inner) = key.shape {
            if named.is_empty() {
                compare([old, new], (inner, inner.name, ""), all);
            } else {
                compare_inner([old, new], (key, inner, header, named), all);
            }
            continue;
        }
        let [before, now] = [given(before, key), given(now, key)];
        let how = match (before, now) {
            (before, now) if before == now => continue,
            (Some(before), Some(now)) if is_shown(key) => format!("{now}, not {before}"),
            (Some(before), None) if is_shown(key) => format!("no longer {before}"),
            (None, Some(now)) if is_shown(key) => now.to_owned(),
            _ => "changed".to_owned(),
        };
        let full = format!("{header} {}", key.name);
        all.push(key.difference(full, how));
    }
}

/// Compares a table in one of several, `advertise` of a link, which may be empty.
fn compare_inner(
    [old, new]: [&WrittenValues; 2],
    (key, inner, header, named): (&Key, &Table, &str, &str),
    all: &mut Vec<KeyDifference>,
) {
    let id = (inner.name, named.to_owned());
    let how = match [old, new].map(|written| written.0.contains_key(&id)) {
        [false, true] => "is new",
        [true, false] => "is gone",
        _ => {
            let header = format!("{}.{}]", header.trim_end_matches(']'), key.name);
            return compare([old, new], (inner, &header, named), all);
        }
    };
    let full = format!("{header} {}", key.name);
    all.push(key.difference(full, how.to_owned()));
}

impl Key {
    /// A difference in this key, whose name with its table is `key`.
    const fn difference(&self, key: String, how: String) -> KeyDifference {
        let (restart, of_device) = (self.fixed, self.of_device);
        KeyDifference { key, name: self.name, how, restart, of_device }
    }
}

/// The value of a key in a table's values, or its default.
fn given<'a>(of: Option<&'a BTreeMap<&'static str, String>>, key: &Key) -> Option<&'a str> {
    of.and_then(|of| of.get(key.name)).map(String::as_str).or(key.default)
}

/// Whether a key's values may be shown: one value, without a password in it, and no identity that is
/// as good as one.
fn is_shown(key: &Key) -> bool {
    match key.shape {
        _ if PRIVATE.contains(&key.name) => false,
        Shape::Text(form) => !matches!(form, Form::Broker | Form::Url),
        Shape::Flag | Shape::Number(..) | Shape::Choice(_) | Shape::ChoiceOrNumber(..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use gatewright_diagnostic::SourceId;

    const OLD: &str = "[link.lan]\n[gateway]\nname = \"a\"\n[cse]\nbase = \"gw\"\nid = \"/gw\"\n\
        http = \"127.0.0.1:8080\"\nadmit = [\"/x\", \"/y\"]\nmqtt = \"mqtt://me:secret@127.0.0.1\"\n";

    fn told(text: &str) -> Vec<String> {
        let read = |text: &str| {
            let parsed = parse(SourceId::default(), text);
            parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
        };
        let (old, new) = (read(OLD), read(text));
        let all = ["gateway", "planes", "cse", "devices", "web", "log"]
            .map(|name| differences(&old, &new, name));
        let line = |found: KeyDifference| {
            let restart = if found.restart { " (restart)" } else { "" };
            format!("{}: {}{restart}", found.key, found.how)
        };
        all.into_iter().flatten().map(line).collect()
    }

    #[test]
    fn each_key_is_compared_by_the_key_tables() {
        let cases: [(&str, &str, &[&str]); 11] = [
            ("\n[cse]", "\n# the same\n\n[cse]  ", &[]),
            ("[\"/x\", \"/y\"]", "[ \"/x\",\n\"/y\" ]", &[]),
            ("\"a\"", "\"a\"\nworkers = 1", &[]),
            (
                "\"a\"",
                "\"b\"\nworkers = 2",
                &["[gateway] name: b, not a (restart)", "[gateway] workers: 2, not 1 (restart)"],
            ),
            (
                "[cse]",
                "[planes]\nmode = \"process\"\n[cse]",
                &["[planes] mode: process, not threads (restart)"],
            ),
            (":8080", ":8081", &["[cse] http: 127.0.0.1:8081, not 127.0.0.1:8080"]),
            ("http = \"127.0.0.1:8080\"\n", "", &["[cse] http: no longer 127.0.0.1:8080"]),
            ("\"/y\"", "\"/z\"", &["[cse] admit: changed"]),
            ("secret", "other", &["[cse] mqtt: changed (restart)"]),
            ("[cse]", "[log]\nlevel = \"debug\"\n[cse]", &["[log] level: debug"]),
            (
                "[cse]",
                "[cse.tls]\ncertificate = \"c\"\nkey = \"k\"\nauthorities = \"a\"\n[cse]",
                &["[cse.tls]: is new (restart)"],
            ),
        ];
        for (from, to, expected) in cases {
            let text = OLD.replace(from, to);
            assert_ne!(text, OLD, "{from}");
            assert_eq!(told(&text), expected, "{from} -> {to}");
        }
    }

    /// Every key that exists once is compared: the tables say so, nobody else needs to.
    #[test]
    fn no_key_is_forgotten() {
        let text =
            "[link.lan]\n[devices]\nlisten = \"127.0.0.1:1\"\n[cse]\nbase = \"a\"\nid = \"/a\"\n";
        let parsed = parse(SourceId::default(), text).config.unwrap();
        let mut other = parsed.clone();
        for (table, keys) in [("devices", "[devices]"), ("cse", "[cse]")] {
            let Some(Key { shape: Shape::Table(shape), .. }) =
                ROOT.keys.iter().find(|key| key.name == table)
            else {
                panic!("{table}")
            };
            for key in shape.keys.iter().filter(|key| !matches!(key.shape, Shape::Table(_))) {
                let id = (keys, String::new());
                let values = other.written.0.get_mut(&id).unwrap();
                let before = values.insert(key.name, "another".to_owned());
                let found = differences(&parsed, &other, table);
                assert_eq!(found.len(), 1, "{table} {}", key.name);
                assert_eq!(found[0].restart, key.fixed, "{table} {}", key.name);
                let values = other.written.0.get_mut(&id).unwrap();
                match before {
                    Some(before) => values.insert(key.name, before),
                    None => values.remove(key.name),
                };
            }
        }
    }

    /// So it is with links: each key is told with its link.
    #[test]
    fn no_key_of_a_link_is_forgotten() {
        let read = |text: &str| parse(SourceId::default(), text).config.unwrap();
        let parsed = read("[link.lan]\n[link.wan]\n");
        let Some(Key { shape: Shape::Named(table, _), .. }) =
            ROOT.keys.iter().find(|key| key.name == "link")
        else {
            panic!("links have names")
        };
        for key in table.keys.iter().filter(|key| !matches!(key.shape, Shape::Table(_))) {
            let mut other = parsed.clone();
            let id = (table.name, "wan".to_owned());
            let values = other.written.0.get_mut(&id).unwrap();
            values.insert(key.name, "another".to_owned());
            let found = differences_of(&parsed, &other, "link", "wan");
            assert_eq!(found.len(), 1, "{}", key.name);
            assert_eq!(found[0].key, format!("[link.wan] {}", key.name));
            assert_eq!(differences_of(&parsed, &other, "link", "lan"), []);
        }
        let advertise = |text: &str| {
            let other = read(&format!("[link.lan]\nforwarding = true\n{text}\n[link.wan]\n"));
            let found = differences_of(&parsed, &other, "link", "lan");
            (
                other,
                found.into_iter().map(|it| format!("{}: {}", it.key, it.how)).collect::<Vec<_>>(),
            )
        };
        let (before, told) = advertise("advertise = {}");
        assert_eq!(told, ["[link.lan] advertise: is new"]);
        let (after, _) = advertise("advertise = { interval_s = 4 }");
        let found = differences_of(&before, &after, "link", "lan");
        assert_eq!(found[0].key, "[link.lan.advertise] interval_s");
    }

    /// A default that is written says nothing new: the typed description is the same.
    #[test]
    fn defaults_are_those_of_the_typed_description() {
        let text = "[link.lan]\n[devices]\nlisten = \"127.0.0.1:1\"\n[cse]\nbase = \"a\"\nid = \"/a\"\n\
            [gateway]\n[planes]\n[web]\n[mesh]\nlinks = [\"eth1\"]\n";
        let read = |text: &str| {
            let parsed = parse(SourceId::default(), text);
            let config =
                parsed.config.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics));
            Config { written: WrittenValues::default(), ..config }
        };
        let mut defaults = 0;
        for key in ROOT.keys {
            let Shape::Table(table) = key.shape else { continue };
            for key in table.keys {
                let Some(default) = key.default else { continue };
                let quoted = matches!(key.shape, Shape::Text(_) | Shape::Choice(_));
                let value = if quoted { format!("\"{default}\"") } else { default.to_owned() };
                let header = format!("{}\n", table.name);
                let written = text.replace(&header, &format!("{header}{} = {value}\n", key.name));
                assert_ne!(written, text, "{header}");
                assert_eq!(read(&written), read(text), "{} {}", table.name, key.name);
                defaults += 1;
            }
        }
        assert_eq!(defaults, 12);
    }
}

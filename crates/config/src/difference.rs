//! Differences between two descriptions in tables that exist once, by key.
//!
//! They follow from the key tables: a new key needs nothing here. What a text gives to each key is
//! kept beside the typed description for this.

use crate::model::Config;
use crate::tables::{Form, Key, ROOT, Shape, Table};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// The values that a text gives to keys of tables that exist once, by table and key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WrittenValues(BTreeMap<&'static str, BTreeMap<&'static str, String>>);

/// A difference between two descriptions in one key, or in a whole table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyDifference {
    /// The key with its table, `[cse] http`, or the table, `[cse]`.
    pub key: String,
    /// The difference: `127.0.0.1:80, not 127.0.0.1:8080`.
    pub how: String,
    /// Whether it takes effect only after a restart.
    pub restart: bool,
}

/// Tables that come and go only with a restart: what runs for them exists from the start.
const FIXED_TABLES: [&str; 4] = ["[devices]", "[cse]", "[cse.tls]", "[cse.registrar]"];

impl WrittenValues {
    /// The values of a document.
    pub(crate) fn of(document: &DeTable<'_>) -> Self {
        let mut written = Self::default();
        written.take(document, &ROOT);
        written
    }

    fn take(&mut self, table: &DeTable<'_>, shape: &'static Table) {
        let mut values = BTreeMap::new();
        for key in shape.keys {
            match (key.shape, table.get(key.name).map(toml::Spanned::get_ref)) {
                (Shape::Table(inner), Some(DeValue::Table(below))) => self.take(below, inner),
                (Shape::Named(..), _) | (_, None) => {}
                (_, Some(value)) => {
                    values.insert(key.name, text(value));
                }
            }
        }
        self.0.insert(shape.name, values);
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
        compare([&old.written, &new.written], table, &mut all);
    }
    all
}

fn compare([old, new]: [&WrittenValues; 2], table: &Table, all: &mut Vec<KeyDifference>) {
    let [before, now] = [old, new].map(|written| written.0.get(table.name));
    if before.is_some() != now.is_some() && FIXED_TABLES.contains(&table.name) {
        let how = if now.is_some() { "is new" } else { "is gone" };
        let (key, how) = (table.name.to_owned(), how.to_owned());
        all.push(KeyDifference { key, how, restart: true });
        return;
    }
    for key in table.keys {
        if let Shape::Table(inner) = key.shape {
            compare([old, new], inner, all);
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
        let name = format!("{} {}", table.name, key.name);
        all.push(KeyDifference { key: name, how, restart: key.fixed });
    }
}

/// The value of a key in a table's values, or its default.
fn given<'a>(of: Option<&'a BTreeMap<&'static str, String>>, key: &Key) -> Option<&'a str> {
    of.and_then(|of| of.get(key.name)).map(String::as_str).or(key.default)
}

/// Whether a key's values may be shown: one value, without a password in it.
const fn is_shown(key: &Key) -> bool {
    match key.shape {
        Shape::Text(form) => !matches!(form, Form::Broker),
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
        let all = ["gateway", "cse", "devices", "log"].map(|name| differences(&old, &new, name));
        let line = |found: KeyDifference| {
            let restart = if found.restart { " (restart)" } else { "" };
            format!("{}: {}{restart}", found.key, found.how)
        };
        all.into_iter().flatten().map(line).collect()
    }

    #[test]
    fn each_key_is_compared_by_the_key_tables() {
        let cases: [(&str, &str, &[&str]); 10] = [
            ("\n[cse]", "\n# the same\n\n[cse]  ", &[]),
            ("[\"/x\", \"/y\"]", "[ \"/x\",\n\"/y\" ]", &[]),
            ("\"a\"", "\"a\"\nworkers = 1", &[]),
            (
                "\"a\"",
                "\"b\"\nworkers = 2",
                &["[gateway] name: b, not a (restart)", "[gateway] workers: 2, not 1 (restart)"],
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
                let values = other.written.0.get_mut(keys).unwrap();
                let before = values.insert(key.name, "another".to_owned());
                let found = differences(&parsed, &other, table);
                assert_eq!(found.len(), 1, "{table} {}", key.name);
                assert_eq!(found[0].restart, key.fixed, "{table} {}", key.name);
                let values = other.written.0.get_mut(keys).unwrap();
                match before {
                    Some(before) => values.insert(key.name, before),
                    None => values.remove(key.name),
                };
            }
        }
    }

    /// A default that is written says nothing new: the typed description is the same.
    #[test]
    fn defaults_are_those_of_the_typed_description() {
        let text = "[link.lan]\n[devices]\nlisten = \"127.0.0.1:1\"\n[cse]\nbase = \"a\"\nid = \"/a\"\n\
            [gateway]\n";
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
        assert_eq!(defaults, 5);
    }
}

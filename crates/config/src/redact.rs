//! A description without its secrets and without identities of patients and devices, for who helps
//! from afar.
//!
//! The table of keys decides by form, and a form that is not listed is removed: so is each key that a
//! later version adds, until somebody lists it. Comments are left out, as anything may stand there.

use crate::tables::{Form, Key, ROOT, Shape, Table};
use gatewright_diagnostic::REMOVED;
use std::{collections::BTreeSet, fmt::Write};
use toml::de::{DeTable, DeValue};

/// Keys whose text names a file, an identifier of a standard, or a size.
const PUBLIC_TEXTS: [&str; 15] = [
    "store",
    "certificate",
    "key",
    "authorities",
    "crl",
    "ocsp_response",
    "read",
    "write",
    "file",
    "socket",
    "loinc",
    "definition",
    "attribute",
    "provider",
    "segment",
];

/// Keys of public forms whose values are secrets or persons: in the clear, the name of an originator
/// is all that it takes to be it.
pub(crate) const PRIVATE: [&str; 5] = ["admin", "operators", "originator", "password", "token"];

/// A description that may be shown, and what was removed from it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RedactedDescription {
    /// The description, in TOML; empty if the text is none.
    pub text: String,
    /// The removed values.
    pub removed: BTreeSet<String>,
}

/// The description `text` without secrets and identities. Of a text that is not TOML nothing is
/// shown.
pub fn redacted(text: &str) -> RedactedDescription {
    let mut redacted = RedactedDescription::default();
    if let Ok(document) = DeTable::parse(text) {
        redacted.table(document.get_ref(), Some(&ROOT), "");
    }
    redacted
}

/// Octets below which a value is not looked for: `on` would be found in every word.
const SEARCHED_MIN: usize = 4;

/// `words` in which none of the `values` is left.
pub fn without_values(words: &str, values: &BTreeSet<String>) -> String {
    // Longer ones first: a value may be a part of another.
    let mut values: Vec<_> = values.iter().filter(|value| value.len() >= SEARCHED_MIN).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.into_iter().fold(words.to_owned(), |words, value| words.replace(value.as_str(), REMOVED))
}

impl RedactedDescription {
    /// Writes the values of a table and the tables in it; `path` is its header.
    fn table(&mut self, table: &DeTable<'_>, shape: Option<&'static Table>, path: &str) {
        let known = |name: &str| shape?.keys.iter().find(|key| key.name == name);
        for (name, value) in table {
            let (name, value) = (name.get_ref().as_ref(), value.get_ref());
            if !is_below(value) {
                let value = self.value(known(name), value);
                self.line(&format!("{} = {value}", quoted_key(name)));
            }
        }
        for (name, value) in table {
            let (name, value) = (name.get_ref().as_ref(), value.get_ref());
            let path = match path {
                "" => quoted_key(name),
                above => format!("{above}.{}", quoted_key(name)),
            };
            self.below(known(name), value, &path);
        }
    }

    /// Writes the table or the tables of a key.
    fn below(&mut self, key: Option<&'static Key>, value: &DeValue<'_>, path: &str) {
        match (key.map(|key| key.shape), value) {
            (Some(Shape::Named(shape, _)), DeValue::Table(tables)) => {
                for (name, value) in tables {
                    let path = format!("{path}.{}", quoted_key(name.get_ref()));
                    self.headed(Some(shape), value.get_ref(), &path, false);
                }
            }
            (Some(Shape::Table(shape)), DeValue::Table(_)) => {
                self.headed(Some(shape), value, path, false);
            }
            (Some(Shape::Many(shape, _)), DeValue::Array(items)) => {
                for item in items {
                    self.headed(Some(shape), item.get_ref(), path, true);
                }
            }
            (_, DeValue::Table(_)) => self.headed(None, value, path, false),
            _ => {}
        }
    }

    fn headed(
        &mut self,
        shape: Option<&'static Table>,
        value: &DeValue<'_>,
        path: &str,
        many: bool,
    ) {
        let DeValue::Table(table) = value else { return };
        self.line(&if many { format!("\n[[{path}]]") } else { format!("\n[{path}]") });
        self.table(table, shape, path);
    }

    /// A value as TOML.
    fn value(&mut self, key: Option<&'static Key>, value: &DeValue<'_>) -> String {
        match value {
            DeValue::String(text) => self.text(key, text),
            DeValue::Array(items) => {
                let items: Vec<_> =
                    items.iter().map(|item| self.value(key, item.get_ref())).collect();
                format!("[{}]", items.join(", "))
            }
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Integer(number) if key.is_some() => number.to_string(),
            _ => quoted(REMOVED),
        }
    }

    fn text(&mut self, key: Option<&'static Key>, text: &str) -> String {
        let form = key.and_then(|key| match key.shape {
            Shape::Text(form) | Shape::List(form, _) if !PRIVATE.contains(&key.name) => Some(form),
            Shape::Choice(_) | Shape::ChoiceOrNumber(..) => Some(Form::Name),
            _ => None,
        });
        let name = key.map_or("", |key| key.name);
        match form {
            Some(Form::Url | Form::Broker) => self.url(text),
            // The name of the parameter stays.
            Some(Form::Setting(_) | Form::FileSetting(_) | Form::Field) => {
                match text.split_once('=') {
                    Some((name, value)) => {
                        self.remove(value);
                        quoted(&format!("{name}={REMOVED}"))
                    }
                    None => self.removed(text),
                }
            }
            Some(Form::Any(_) | Form::File(_)) if PUBLIC_TEXTS.contains(&name) => quoted(text),
            Some(form) if is_public(form) => quoted(text),
            _ => self.removed(text),
        }
    }

    /// A URL's scheme, host and port: not user and password, nor path and query, which may have
    /// others.
    fn url(&mut self, text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else { return self.removed(text) };
        // A password may have any of these characters, though it should not.
        let behind = rest.rfind('@').map_or(0, |at| at + 1);
        let (user, place) = rest.split_at_checked(behind).unwrap_or(("", rest));
        let end = place.find(['/', '?', '#']).unwrap_or(place.len());
        let (place, path) = place.split_at_checked(end).unwrap_or((place, ""));
        let mut shown = format!("{scheme}://");
        if let Some(user) = user.strip_suffix('@') {
            self.remove(user);
            user.split(':').for_each(|part| self.remove(part));
            shown = format!("{shown}{REMOVED}@");
        }
        shown.push_str(place);
        if path.len() > 1 {
            let mut parts = path.chars();
            let first = parts.next().unwrap_or('/');
            self.remove(parts.as_str());
            shown = format!("{shown}{first}{REMOVED}");
        }
        quoted(&shown)
    }

    fn removed(&mut self, text: &str) -> String {
        self.remove(text);
        quoted(REMOVED)
    }

    fn remove(&mut self, text: &str) {
        if !text.is_empty() {
            self.removed.insert(text.to_owned());
        }
    }

    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// Whether a value is a table or a list of tables, which stand behind the other values.
fn is_below(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => {
            items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_)))
        }
        _ => false,
    }
}

/// Forms of addresses, interfaces, positions and protocols, and names that the description gives.
const fn is_public(form: Form) -> bool {
    match form {
        Form::Name
        | Form::Interface
        | Form::Address
        | Form::AddressOfNetwork
        | Form::Network
        | Form::Destination
        | Form::DpdkPort
        | Form::Mac
        | Form::Position
        | Form::Socket
        | Form::Listen
        | Form::Protocol
        | Form::Program
        | Form::CseId
        | Form::Place
        | Form::DeviceKind
        | Form::Role
        | Form::RoleAddress
        | Form::Ports => true,
        // Identities of devices, values of parameters, URLs, and any text.
        Form::Any(_)
        | Form::File(_)
        | Form::AeIds
        | Form::AeIdsOfCse
        | Form::CseBeyond
        | Form::Url
        | Form::Broker
        | Form::SystemId
        | Form::Setting(_)
        | Form::FileSetting(_)
        | Form::Field => false,
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out + "\""
}

/// A key of TOML.
fn quoted_key(name: &str) -> String {
    let bare = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TEMPLATES, parse};
    use gatewright_diagnostic::SourceId;

    const SECRETS: &str = r#"
# SEED-COMMENT
[gateway]
name = "ward"
[cse]
base = "cse-gw"
id = "/gw"
admin = "SEED-ADMIN"
store = "/var/lib/gatewright/cse.db"
mqtt = "mqtt://SEED-USER:SEED-PASSWORD@broker.example:1883" # SEED-TAIL
[cse.registrar]
url = "mqtt://:SEED-SECOND@192.0.2.1/SEED-PATH?SEED-QUERY"
id = "/in"
base = "cse-in"
[devices]
listen = "127.0.0.1:6024"
admit = ["5EED000000000001"]
operators = ["SEED-NURSE"]
[[devices.map]]
container = "heart-rate"
labels = ["SEED-PATIENT"]
[[program]]
file = "mail.gate"
set = ["password=SEED-PARAMETER", "host=SEED-HOST"]
[unknown]
thing = "SEED-UNKNOWN"
number = 5331
deeper = { key = "SEED-DEEP" }
"#;

    #[test]
    fn no_secret_and_no_identity_is_left() {
        let shown = redacted(SECRETS);
        assert!(!shown.text.to_lowercase().contains("seed"), "{}", shown.text);
        assert!(!shown.text.contains("5EED") && !shown.text.contains("5331"), "{}", shown.text);
        for kept in
            ["name = \"ward\"", "store = \"/var/lib", "@broker.example:1883\"", "password=REMOVED"]
        {
            assert!(shown.text.contains(kept), "{kept}: {}", shown.text);
        }
        for secret in
            ["SEED-PASSWORD", "SEED-SECOND", "SEED-PARAMETER", "SEED-NURSE", "5EED000000000001"]
        {
            assert!(shown.removed.contains(secret), "{secret}: {:?}", shown.removed);
        }
    }

    #[test]
    fn words_are_left_without_values() {
        let removed = redacted(SECRETS).removed;
        let words = "mqtt://SEED-USER:SEED-PASSWORD@broker.example:1883: refused";
        let expected = "mqtt://REMOVED@broker.example:1883: refused";
        assert_eq!(without_values(words, &removed), expected);
    }

    #[test]
    fn nothing_is_shown_of_what_is_not_toml() {
        assert_eq!(redacted("password = SEED"), RedactedDescription::default());
    }

    /// What remains of a description is one: the templates are read again, and mean the same without
    /// what was removed.
    #[test]
    fn what_is_shown_is_a_description() {
        for template in TEMPLATES {
            let shown = redacted(template.text);
            let again = parse(SourceId::default(), &shown.text);
            let config =
                again.config.unwrap_or_else(|| panic!("{}: {:#?}", shown.text, again.diagnostics));
            let before = parse(SourceId::default(), template.text).config.unwrap();
            assert_eq!(config.links.len(), before.links.len(), "{}", template.name);
            assert_eq!(config.name, before.name);
            assert_eq!(redacted(&shown.text).text, shown.text, "it is not changed again");
        }
    }
}

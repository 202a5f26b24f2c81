//! Removes values from texts, and replaces devices' identities by numbers.

use gatewright_config::without_values;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Hexadecimal digits of an EUI-64, by which devices are identified.
const IDENTITY_LEN: usize = 16;

/// Values to remove, and devices that were met.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    values: BTreeSet<String>,
    devices: BTreeMap<String, usize>,
}

impl Scrubber {
    /// Has these values removed from all further texts.
    pub(super) fn remove(&mut self, values: impl IntoIterator<Item = String>) {
        self.values.extend(values);
    }

    /// The numbers of values and of devices.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.values.len(), self.devices.len())
    }

    /// A text without them.
    pub(super) fn text(&mut self, text: &str) -> String {
        self.renamed(&without_values(text, &self.values))
    }

    /// Data whose texts and names are without them.
    pub(super) fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                let member = |(name, value): (String, Value)| (self.text(&name), self.value(value));
                Value::Object(members.into_iter().map(member).collect())
            }
            other => other,
        }
    }

    /// A text whose devices are numbered.
    fn renamed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(rest.len());
            let (digits, behind) = rest.split_at(end);
            if digits.len() == IDENTITY_LEN {
                let next = self.devices.len() + 1;
                let number = *self.devices.entry(digits.to_lowercase()).or_insert(next);
                out.extend(["device-", &number.to_string()]);
            } else {
                out.push_str(digits);
            }
            let mut letters = behind.chars();
            out.extend(letters.next());
            rest = letters.as_str();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_removed_wherever_they_occur_and_devices_are_numbered() {
        let mut scrubber = Scrubber::default();
        scrubber.remove(["hunter2".to_owned(), "hunter2-longer".to_owned(), "on".to_owned()]);
        let value = json!({
            "text": "phd-0247000100000001 and PHD-0247000100000002 say hunter2-longer on time",
            "hunter2": [1, true, "0247000100000001/00a", "00112233445566778899"],
        });
        let shown = json!({
            "text": "phd-device-1 and PHD-device-2 say REMOVED on time",
            "REMOVED": [1, true, "device-1/00a", "00112233445566778899"],
        });
        assert_eq!(scrubber.value(value), shown);
        assert_eq!(scrubber.counts(), (3, 2));
        assert_eq!(scrubber.text("äöü 0247000100000002"), "äöü device-2");
    }
}

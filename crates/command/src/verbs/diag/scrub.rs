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
    /// Words that are no devices.
    kept: BTreeSet<String>,
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

    /// Metrics in OpenMetrics' text, whose labels' values are without them: names and numbers say
    /// nothing of a device, and are to stay what they are.
    pub(super) fn metrics(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            if line.starts_with('#') {
                out.push_str(line);
                continue;
            }
            // A quote in a value has a backslash before it, and stays within: it is replaced there.
            let mut rest = line;
            while let Some((before, behind)) = rest.split_once('"') {
                let (value, behind) = behind.split_at(value_len(behind));
                out.extend([before, "\"", &self.text(value)]);
                let end = behind.strip_prefix('"');
                out.push_str(if end.is_some() { "\"" } else { "" });
                rest = end.unwrap_or(behind);
            }
            out.push_str(rest);
        }
        out
    }

    /// Has these words, which look like devices and are none, stay in all further texts.
    pub(super) fn keep(&mut self, text: &str) {
        let digits = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        self.kept.extend(digits.filter(|word| is_identity(word)).map(str::to_lowercase));
    }

    /// A text whose devices are numbered.
    fn renamed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            let digits = word.to_lowercase();
            if is_identity(word) && !is_of_number(&out, behind) && !self.kept.contains(&digits) {
                let next = self.devices.len() + 1;
                let number = *self.devices.entry(digits).or_insert(next);
                out.extend(["device-", &number.to_string()]);
            } else {
                out.push_str(word);
            }
            let mut letters = behind.chars();
            out.extend(letters.next());
            rest = letters.as_str();
        }
        out
    }
}

/// Whether a word is written as an EUI-64.
fn is_identity(word: &str) -> bool {
    word.len() == IDENTITY_LEN && word.chars().all(|letter| letter.is_ascii_hexdigit())
}

/// Whether digits between these texts are a part of a number with a point, such as `7.1e-6`.
fn is_of_number(before: &str, behind: &str) -> bool {
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let fraction =
        before.strip_suffix('.').is_some_and(|whole| is_digit(whole.chars().next_back()));
    fraction || behind.strip_prefix('.').is_some_and(|rest| is_digit(rest.chars().next()))
}

/// Octets of a label's value before the quote that ends it.
fn value_len(text: &str) -> usize {
    let mut escaped = false;
    let ends = |letter: char| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    };
    text.find(ends).unwrap_or(text.len())
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
    #[test]
    fn what_is_no_device_keeps_its_name() {
        let mut scrubber = Scrubber::default();
        scrubber.keep("13, tables 0123456789abcdef");
        let value = json!({
            "version": "13, tables 0123456789abcdef",
            "text": "it took 7.123456789012345e-6 s, or 1234567890123456.5 of 0.1234567890123456",
            "place": "7.0247000100000001x, at 0x0247000100000001, x0247000100000001x",
        });
        assert_eq!(scrubber.value(value.clone()), value);
        assert_eq!(scrubber.text("by 0247000100000001."), "by device-1.");
    }

    #[test]
    fn metrics_stay_metrics() {
        let mut scrubber = Scrubber::default();
        scrubber.remove(["load".to_owned(), "a \\\" b".to_owned()]);
        let metrics = "# HELP gatewright_delay_load 0247000100000001\n\
            gatewright_delay_load{mode=\"graph\"} 7.123456789012345e-6\n\
            gatewright_octets_total 1234567890123456\n\
            gatewright_device{of=\"0247000100000001\",by=\"load a \\\" b\"} 1234567890123456\n\
            # EOF\n";
        let shown = metrics.replace("of=\"0247000100000001\"", "of=\"device-1\"");
        let shown = shown.replace("by=\"load a \\\" b\"", "by=\"REMOVED REMOVED\"");
        assert_eq!(scrubber.metrics(metrics), shown);
    }
}

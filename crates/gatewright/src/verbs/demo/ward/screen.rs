//! What the monitor shows: on a terminal one picture that changes, elsewhere a line for each reading.

use super::Bed;
use gatewright_command::face::Face;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

/// Events shown at the bottom of the screen.
const EVENTS_SHOWN: usize = 4;

/// The monitor's screen, and what it has received.
pub(super) struct Screen {
    face: Face,
    is_live: bool,
    beds: Vec<Row>,
    /// Lines drawn the last time.
    drawn: usize,
    events: Vec<String>,
    names: BTreeSet<String>,
    again: usize,
}

/// One bed's device with the last of each of its values.
struct Row {
    bed: Bed,
    /// Value and unit, by what is measured.
    values: BTreeMap<String, String>,
    received: String,
}

/// The present state of the rest of the ward.
pub(super) struct Ward {
    pub(super) seconds: u64,
    pub(super) devices: usize,
    pub(super) waiting: usize,
    pub(super) central: &'static str,
}

impl Screen {
    pub(super) fn new(face: Face, beds: &[Bed]) -> Self {
        let row =
            |bed: &Bed| Row { bed: bed.clone(), values: BTreeMap::new(), received: String::new() };
        Self {
            face,
            is_live: io::stderr().is_terminal() && !face.is_json(),
            beds: beds.iter().map(row).collect(),
            drawn: 0,
            events: Vec::new(),
            names: BTreeSet::new(),
            again: 0,
        }
    }

    /// The names of all readings received.
    pub(super) const fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Repeated notifications of known readings: their first answer was lost with the CSE.
    pub(super) const fn again(&self) -> usize {
        self.again
    }

    /// Adds an event.
    pub(super) fn event(&mut self, text: &str) {
        if !self.is_live {
            return self.face.note(&format!("--- {text}"));
        }
        self.events.push(text.to_owned());
        if self.events.len() > EVENTS_SHOWN {
            self.events.remove(0);
        }
    }

    /// Takes a notification.
    pub(super) fn take(&mut self, notification: &Value) {
        let Some(instance) = notification.pointer("/nev/rep/m2m:cin") else { return };
        let name = instance.get("rn").and_then(Value::as_str).unwrap_or_default();
        if !self.names.insert(name.to_owned()) {
            self.again += 1;
            return;
        }
        let row = self.beds.iter_mut().find(|row| name.starts_with(&row.bed.system_id));
        let Some(row) = row else { return };
        let told = |member| told(instance, member);
        let handle = name.split('-').nth(3).unwrap_or_default();
        let place = row.bed.places.get(handle);
        let what = place.cloned().or_else(|| told("name")).unwrap_or_default();
        let value = shown(instance);
        if !self.is_live {
            let kind = row.bed.kind;
            self.face.note(&format!("bed {}  {kind:<10} {what:<20} {value}", row.bed.number));
        }
        // The time of day of `2026-11-21T13:00:00,123456`, or of the same without signs.
        let received = told("received").unwrap_or_default();
        let clock = received.split('T').nth(1).unwrap_or_default();
        let digits: Vec<char> = clock.chars().filter(char::is_ascii_digit).take(6).collect();
        row.received = digits.chunks(2).map(String::from_iter).collect::<Vec<_>>().join(":");
        row.values.insert(what, value);
    }

    /// Redraws the screen, on a terminal.
    pub(super) fn draw(&mut self, ward: &Ward) {
        if !self.is_live {
            return;
        }
        let text = self.picture(ward);
        let mut out =
            if self.drawn > 0 { format!("\u{1b}[{}A", self.drawn) } else { String::new() };
        self.drawn = text.lines().count();
        for line in text.lines() {
            // To the end of the line, so that nothing of an older one stays.
            let _ = writeln!(out, "{line}\u{1b}[K");
        }
        // Where standard error is closed, there is nobody to watch.
        let _ = io::stderr().lock().write_all(out.as_bytes());
    }

    // Writing to a string cannot fail.
    fn picture(&self, ward: &Ward) -> String {
        let mut out = String::new();
        let Ward { seconds, devices, waiting, central } = ward;
        let _ = writeln!(
            out,
            "\n  {seconds:>3} s   gateway: {devices} devices, {waiting:>3} readings wait   \
             central: {central}   received: {}\n",
            self.names.len()
        );
        for row in &self.beds {
            let head = format!("bed {}  {}", row.bed.number, row.bed.kind);
            let _ = writeln!(out, "  {head:<18} {}", row.received);
            for what in row.bed.places.values() {
                let value = row.values.get(what).map_or("–", String::as_str);
                let _ = writeln!(out, "      {what:<20} {value:>14}");
            }
            out.push('\n');
        }
        for at in 0..EVENTS_SHOWN {
            let _ = writeln!(out, "  {}", self.events.get(at).map_or("", String::as_str));
        }
        out
    }
}

/// A member of a reading's content, as text.
fn told(instance: &Value, member: &str) -> Option<String> {
    let value = instance.get("con")?.get(member)?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// A reading's value as text: a number with its unit, a code's meaning and duration, or flags.
fn shown(instance: &Value) -> String {
    let value = told(instance, "value").unwrap_or_default();
    if let Some(meaning) = told(instance, "meaning") {
        // `MDC_HF_ACT_WALK`: the last word is what it is, the others where it belongs.
        let word = meaning.rsplit('_').next().unwrap_or_default().to_lowercase();
        let lasted = told(instance, "period").map(|seconds| format!(", {seconds} s"));
        return format!("{word}{}", lasted.unwrap_or_default());
    }
    // UCUM writes words in braces, and 1 where there is no unit.
    match told(instance, "unit").filter(|unit| unit != "1") {
        Some(unit) => format!("{value} {}", unit.replace(['{', '}'], "")),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_as_one_would_say_them() {
        let cases = [
            (json!({"value": "96.8", "unit": "%"}), "96.8 %"),
            (json!({"value": "72", "unit": "{beat}/min"}), "72 beat/min"),
            (json!({"value": "1", "unit": "1"}), "1"),
            (json!({"value": "0000"}), "0000"),
            (
                json!({"value": "129:1017", "meaning": "MDC_HF_ACT_WALK", "period": 60}),
                "walk, 60 s",
            ),
            // A code that nobody here knows stays what it is.
            (json!({"value": "129:9999"}), "129:9999"),
        ];
        for (content, text) in cases {
            assert_eq!(shown(&json!({ "con": content })), text);
        }
    }
}

//! Events without the names of tokens and certificates of the web interface, which may be those of
//! persons.

use serde_json::{Value, json};

/// An answer whose events name callers by numbers, in their field `by` and in their words.
pub(super) fn number_callers(mut answer: Value) -> Value {
    let mut callers: Vec<String> = Vec::new();
    let events = answer.get_mut("events").and_then(Value::as_array_mut).into_iter().flatten();
    for event in events {
        let Some(by) = event.pointer_mut("/fields/by") else { continue };
        let Some(name) = by.as_str().map(str::to_owned) else { continue };
        let known = callers.iter().position(|known| *known == name);
        let number = known.unwrap_or(callers.len()) + 1;
        if known.is_none() {
            callers.push(name.clone());
        }
        let caller = format!("caller-{number}");
        *by = json!(caller);
        if let Some(text) = event.get_mut("text") {
            *text = json!(text.as_str().map(|text| without_word(text, &name, &caller)));
        }
    }
    answer
}

/// A text with `other` where it has `word` that is no part of a longer one.
fn without_word(text: &str, word: &str, other: &str) -> String {
    let is_of_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once(word).filter(|_| !word.is_empty()) {
        let last = before.chars().next_back().or_else(|| out.chars().next_back());
        let is_part = is_of_word(last) || is_of_word(behind.chars().next());
        out.extend([before, if is_part { word } else { other }]);
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_numbered_in_fields_and_words() {
        let event = |by: &str, text: &str| json!({ "text": text, "fields": { "by": by, "role": "viewer" } });
        let other = json!({ "text": "ann drops", "fields": {} });
        let answer = json!({ "events": [
            event("ops", "ops drops a session as operator (ops)"),
            event("ann", "ann traces; 8 packets of annex"),
            other,
            event("ops", "a reload by \"ops\""),
        ] });
        let expected = json!({ "events": [
            event("caller-1", "caller-1 drops a session as operator (caller-1)"),
            event("caller-2", "caller-2 traces; 8 packets of annex"),
            other,
            event("caller-1", "a reload by \"caller-1\""),
        ] });
        assert_eq!(number_callers(answer), expected);
        assert_eq!(number_callers(json!({ "parts": [] })), json!({ "parts": [] }));
        assert_eq!(without_word("a", "", "b"), "a");
    }
}

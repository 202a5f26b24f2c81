//! Formats lines and constants of generated text, as far as the languages agree.

use std::fmt::Write;

/// Maximum length of a generated line, in characters.
const WIDTH: usize = 100;

/// Octets between quotes, with a backslash before those of `escaped`. Octal escapes end after three
/// digits in C and in Java; hexadecimal escapes do not in C.
pub(crate) fn quoted(octets: &[u8], escaped: &[u8]) -> String {
    let mut text = String::from("\"");
    for octet in octets {
        match octet {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            _ if escaped.contains(octet) => {
                text.push('\\');
                text.push(char::from(*octet));
            }
            b' '..=b'~' => text.push(char::from(*octet)),
            _ => {
                let _ = write!(text, "\\{octet:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// Wraps a line, indented by `indent` blanks; continuation lines are indented four further.
pub(crate) fn wrapped(text: &str, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim_end();
    let mut indent = indent;
    loop {
        let room = WIDTH.saturating_sub(indent);
        let at = if rest.len() > room { break_before(rest, room) } else { None };
        let (line, behind) = at.and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
        lines.push(format!("{:indent$}{}", "", line.trim_end()));
        if behind.is_empty() {
            return lines;
        }
        indent = if lines.len() == 1 { indent + 4 } else { indent };
        rest = behind.trim_start();
    }
}

/// Where to break: after the last comma or before the last operator, outside quotes, that leaves
/// the line short enough; after the first one if none does.
fn break_before(text: &str, room: usize) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    let mut best = None;
    for (at, c) in text.char_indices() {
        if at > room && best.is_some() {
            break;
        }
        let (before, behind) = text.split_at_checked(at).unwrap_or_default();
        let operator = behind.starts_with("|| ") || behind.starts_with("&& ");
        if !quoted && at > 0 && (operator || before.ends_with(", ")) {
            best = Some(at);
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    best
}

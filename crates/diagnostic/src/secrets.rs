//! What findings do not show: users and passwords in URLs (RFC 3986 §3.2.1), as a finding is read on
//! terminals and in logs by others than the author of the text.

use std::borrow::Cow;
use std::ops::Range;

/// Stands in place of what is not shown.
pub const REMOVED: &str = "REMOVED";

/// A text with [`REMOVED`] in place of its secrets.
pub(crate) struct Redacted<'a> {
    original: &'a str,
    text: Cow<'a, str>,
    /// What is replaced, in octets of the original and in order.
    ranges: Vec<Range<usize>>,
}

impl<'a> Redacted<'a> {
    /// Replaces what stands between a scheme and the last `@` of a URL, and `hidden`. In a string such
    /// a URL ends with it; elsewhere with the line, as text that a user has not finished has no quotes.
    pub(crate) fn excerpt(original: &'a str, hidden: impl Iterator<Item = Range<usize>>) -> Self {
        let hidden = hidden.filter(|range| original.get(range.clone()).is_some());
        let all = userinfo(original, |rest| rest.find('\n').unwrap_or(rest.len()));
        Self::without(original, all.into_iter().chain(hidden).collect())
    }

    fn without(original: &'a str, mut ranges: Vec<Range<usize>>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let overlap = next.start <= before.end;
            before.end = if overlap { before.end.max(next.end) } else { before.end };
            overlap
        });
        let mut text = Cow::Borrowed(original);
        for range in ranges.iter().rev() {
            text.to_mut().replace_range(range.clone(), REMOVED);
        }
        Self { original, text, ranges }
    }

    /// The text as it is shown.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What of the shown text stands for `span` of the original; the whole [`REMOVED`] for a part of a
    /// secret. It is limited to the text and to whole characters.
    pub(crate) fn within(&self, span: Range<usize>) -> Range<usize> {
        let start = self.shown_at(self.original.floor_char_boundary(span.start), 0);
        let end = self.shown_at(self.original.ceil_char_boundary(span.end), REMOVED.len());
        start..end.max(start)
    }

    /// Where the octet at `offset` of the original is; `inside` octets into the replacement of a secret.
    fn shown_at(&self, offset: usize, inside: usize) -> usize {
        let mut shown = offset;
        for range in self.ranges.iter().take_while(|range| range.start < offset) {
            if offset < range.end {
                return shown.saturating_sub(offset - range.start) + inside;
            }
            shown = (shown + REMOVED.len()).saturating_sub(range.len());
        }
        shown
    }
}

/// The words of a finding without users and passwords of URLs.
pub(crate) fn without_userinfo(words: &str) -> Cow<'_, str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'');
    Redacted::without(words, userinfo(words, |rest| rest.find(ends).unwrap_or(rest.len()))).text
}

/// Where `text` has users and passwords of URLs. `length` is that of a URL outside of a string.
fn userinfo(text: &str, length: impl Fn(&str) -> usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find("://")) {
        let (before, rest) = text.split_at(from + at);
        let start = before.len() + "://".len();
        let rest = rest.get("://".len()..).unwrap_or_default();
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let within = in_string(before.trim_end_matches(is_scheme), rest);
        let url = rest.get(..within.unwrap_or_else(|| length(rest))).unwrap_or_default();
        // A password may have any characters, though `@` should be encoded.
        found.push(start..start + url.rfind('@').unwrap_or_default());
        from = start + url.len();
    }
    found
}

/// How much of `rest` belongs to the string that opens at the end of `before`.
fn in_string(before: &str, rest: &str) -> Option<usize> {
    let quote = before.chars().next_back().filter(|c| matches!(c, '"' | '\''))?;
    let triple = if quote == '"' { "\"\"\"" } else { "'''" };
    if before.ends_with(triple) {
        return rest.find(triple);
    }
    let mut is_escaped = false;
    let end = rest.find(|c: char| {
        let ends = !is_escaped && (c == quote || c == '\n');
        is_escaped = !is_escaped && c == '\\' && quote == '"';
        ends
    });
    Some(end.unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_of_urls_are_removed() {
        for (text, expected) in [
            (
                r#"mqtt = "mqtt://user:secret@broker:1883" # a@b"#,
                r#"mqtt = "mqtt://REMOVED@broker:1883" # a@b"#,
            ),
            (r#"{ url = 'http://u@h', id = "/a" }"#, r#"{ url = 'http://REMOVED@h', id = "/a" }"#),
            (r#"a = "mqtt://u:p\"q@h" b@c"#, r#"a = "mqtt://REMOVED@h" b@c"#),
            ("a = '''mqtt://u:p'q@h''' b@c", "a = '''mqtt://REMOVED@h''' b@c"),
            ("a = \"mqtt://u:p@q@h/x\nb@c", "a = \"mqtt://REMOVED@h/x\nb@c"),
            ("a = mqtt://u:p q@h\nb@c", "a = mqtt://REMOVED@h\nb@c"),
            ("[\"http://h\", \"ws://u:p@i\"]", "[\"http://h\", \"ws://REMOVED@i\"]"),
            ("mail = \"a@example.com\"", "mail = \"a@example.com\""),
            ("a = \"mqtt://@h\"", "a = \"mqtt://@h\""),
            ("://", "://"),
        ] {
            assert_eq!(Redacted::excerpt(text, std::iter::empty()).text(), expected);
        }
        let words = "\"mqtt://u:p@h\" and http://u@i: a@b";
        assert_eq!(without_userinfo(words), "\"mqtt://REMOVED@h\" and http://REMOVED@i: a@b");
    }

    #[test]
    fn spans_follow_what_is_shown() {
        let text = "a://ü:pässwörd@h b://x@i";
        let shown = Redacted::excerpt(text, std::iter::empty());
        assert_eq!(shown.text(), "a://REMOVED@i");
        let shown =
            Redacted::without(text, userinfo(text, |rest| rest.find(' ').unwrap_or(rest.len())));
        assert_eq!(shown.text(), "a://REMOVED@h b://REMOVED@i");
        let of = |part: &str| {
            let start = text.find(part).unwrap();
            shown.text().get(shown.within(start..start + part.len())).unwrap().to_owned()
        };
        assert_eq!(of("a://"), "a://");
        assert_eq!(of("pässw"), "REMOVED");
        assert_eq!(of("@h b"), "@h b");
        assert_eq!(of("x@i"), "REMOVED@i");
        assert_eq!(of(text), shown.text());
        assert_eq!(shown.within(900..901), shown.text().len()..shown.text().len());
    }

    #[test]
    fn hidden_parts_are_removed_once() {
        let text = "x = \"user:secret@host\"";
        assert_eq!(
            Redacted::excerpt(text, [5..21, 7..12, 90..99].into_iter()).text(),
            "x = \"REMOVED\""
        );
    }
}

//! Tokens. What stands between two of them (spaces, comments) is never lost: it is the text
//! between their spans.

use crate::codes;
use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// The longest text that is read, in octets: no gateway is near it, a mistake may be.
pub(crate) const TEXT_OCTETS_MAX: usize = 1 << 20;

/// What a token is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A word: letters, digits, underscores.
    Word,
    /// A number, decimal or `0x…`, underscores allowed.
    Number,
    /// `"…"`, with its quotes.
    Text,
    /// `x"…"`, with its quotes.
    Hex,
    /// `"""…"""`, with its quotes, over any number of lines.
    Art,
    /// One of `{ } ( ) , ; : = + - * / < > .`
    Mark(char),
    /// `->`
    Arrow,
    /// `..`
    Range,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// The end of the text.
    End,
}

/// One token and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Where it is.
    pub(crate) span: Span,
    /// Whether it is the first of its line.
    pub(crate) first: bool,
}

/// Cuts a text into tokens, the last of which is [`Kind::End`].
pub(crate) fn tokens(source: SourceId, text: &str, found: &mut Vec<Diagnostic>) -> Vec<Token> {
    let mut lexer = Lexer { source, text, at: 0, found };
    if text.len() > TEXT_OCTETS_MAX {
        let message = format!("the text has {} octets, more than {TEXT_OCTETS_MAX}", text.len());
        lexer.found.push(Diagnostic::error(
            &codes::TEXT_TOO_LONG,
            Span::new(source, 0, 0),
            message,
        ));
        lexer.text = "";
    }
    let mut tokens = Vec::new();
    loop {
        let first = lexer.skip_trivia() || tokens.is_empty();
        let start = lexer.at;
        let Some(kind) = lexer.token() else { continue };
        tokens.push(Token { kind, span: Span::new(source, start, lexer.at), first });
        if kind == Kind::End {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    source: SourceId,
    text: &'a str,
    at: usize,
    found: &'a mut Vec<Diagnostic>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Goes past spaces and comments; says whether a line ended.
    fn skip_trivia(&mut self) -> bool {
        let mut newline = false;
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let spaces = rest.len() - trimmed.len();
            newline |= rest.get(..spaces).is_some_and(|spaces| spaces.contains('\n'));
            let comment = if trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else {
                0
            };
            self.at += spaces + comment;
            if comment == 0 {
                return newline;
            }
        }
    }

    fn take_while(&mut self, of: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !of(c)).unwrap_or(rest.len());
    }

    /// One token; none for a character that has no place in the language.
    fn token(&mut self) -> Option<Kind> {
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Some(Kind::End) };
        for (text, kind) in
            [("->", Kind::Arrow), ("..", Kind::Range), ("<=", Kind::AtMost), (">=", Kind::AtLeast)]
        {
            if rest.starts_with(text) {
                self.at += text.len();
                return Some(kind);
            }
        }
        if rest.starts_with("x\"") {
            self.at += 1;
            return Some(self.quoted(Kind::Hex));
        }
        if rest.starts_with("\"\"\"") {
            return Some(self.art());
        }
        match first {
            '"' => Some(self.quoted(Kind::Text)),
            '0'..='9' => {
                self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Some(Kind::Number)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Some(Kind::Word)
            }
            '{' | '}' | '(' | ')' | ',' | ';' | ':' | '=' | '+' | '-' | '*' | '/' | '<' | '>'
            | '.' => {
                self.at += 1;
                Some(Kind::Mark(first))
            }
            _ => {
                self.at += first.len_utf8();
                let span = Span::new(self.source, start, self.at);
                let message = format!("`{}` has no meaning here", first.escape_debug());
                self.found.push(Diagnostic::error(&codes::STRANGE_CHARACTER, span, message));
                None
            }
        }
    }

    /// A quoted text, up to its closing quote on the same line.
    fn quoted(&mut self, kind: Kind) -> Kind {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            match c {
                '\n' => {
                    self.at += offset;
                    self.unclosed(start);
                    return kind;
                }
                '"' if !escaped => {
                    self.at += offset + 1;
                    return kind;
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        self.at = self.text.len();
        self.unclosed(start);
        kind
    }

    /// A drawing, up to its three closing quotes.
    fn art(&mut self) -> Kind {
        let start = self.at;
        let inner = self.rest().get(3..).unwrap_or_default();
        if let Some(end) = inner.find("\"\"\"") {
            self.at += end + 6;
        } else {
            self.at = self.text.len();
            self.unclosed(start);
        }
        Kind::Art
    }

    fn unclosed(&mut self, start: usize) {
        let span = Span::new(self.source, start, self.at);
        self.found.push(
            Diagnostic::error(&codes::UNCLOSED_TEXT, span, "this text is not closed on its line")
                .help("close it with `\"`; write `\\n` for a line's end within a text"),
        );
    }
}

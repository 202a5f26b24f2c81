//! Tokens of a text. Spaces and comments between two tokens are never lost: they are the text
//! between the tokens' spans.

use crate::codes;
use gatewright_diagnostic::{Diagnostic, SourceId, Span};

/// Maximum length of a text in octets: no gateway needs as many, but a wrong file may have them.
pub(crate) const TEXT_OCTETS_MAX: usize = 1 << 20;

/// Kind of a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TokenKind {
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

/// One token with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// Its kind.
    pub(crate) kind: TokenKind,
    /// Its position.
    pub(crate) span: Span,
    /// Whether it is the first of its line.
    pub(crate) first: bool,
}

/// Cuts a text into tokens, the last of which is [`TokenKind::End`].
pub(crate) fn tokens(source: SourceId, text: &str, found: &mut Vec<Diagnostic>) -> Vec<Token> {
    let mut lexer = Lexer { source, text, at: 0, found };
    if text.len() > TEXT_OCTETS_MAX {
        let message = format!("the text has more than {TEXT_OCTETS_MAX} octets");
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
        if kind == TokenKind::End {
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

    /// Skips spaces and comments; returns whether a line ended.
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

    /// One token; `None` for a character outside the language.
    fn token(&mut self) -> Option<TokenKind> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Some(TokenKind::End) };
        for (text, kind) in [
            ("->", TokenKind::Arrow),
            ("..", TokenKind::Range),
            ("<=", TokenKind::AtMost),
            (">=", TokenKind::AtLeast),
        ] {
            if rest.starts_with(text) {
                self.at += text.len();
                return Some(kind);
            }
        }
        if rest.starts_with("x\"") {
            self.at += 1;
            return Some(self.quoted(TokenKind::Hex));
        }
        if rest.starts_with("\"\"\"") {
            return Some(self.art());
        }
        if rest.starts_with("/*") {
            self.block_comment();
            return None;
        }
        match first {
            '"' => Some(self.quoted(TokenKind::Text)),
            '0'..='9' => {
                self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Some(TokenKind::Number)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                Some(TokenKind::Word)
            }
            '{' | '}' | '(' | ')' | ',' | ';' | ':' | '=' | '+' | '-' | '*' | '/' | '<' | '>'
            | '.' => {
                self.at += 1;
                Some(TokenKind::Mark(first))
            }
            _ => self.strange(first),
        }
    }

    /// Reports a character that begins no token, with its equivalent here. It is read as that
    /// equivalent, so that one mistake gives one finding.
    fn strange(&mut self, first: char) -> Option<TokenKind> {
        let start = self.at;
        if let Some(kind) = self.quoted_otherwise(first) {
            return Some(kind);
        }
        let doubled = self.rest().chars().nth(1) == Some(first);
        self.at += first.len_utf8();
        let (help, kind) = match first {
            '#' => {
                self.take_while(|c| c != '\n');
                ("a comment begins with `//`", None)
            }
            '&' | '|' if doubled => {
                self.at += 1;
                let help = if first == '&' { "write `and`" } else { "write `or`" };
                (help, Some(TokenKind::Word))
            }
            '!' => ("write `not CONDITION`, or `VALUE is not PATTERN`", None),
            '%' => ("write `mod`: `a mod 8`", Some(TokenKind::Word)),
            '[' | ']' => ("an element of a list is `item N of LIST`, counted from 1", None),
            _ => ("", None),
        };
        let end = if first == '#' { start + 1 } else { self.at };
        let span = Span::new(self.source, start, end);
        let shown = self.text.get(start..end).unwrap_or_default();
        let shown =
            if first.is_control() { first.escape_debug().to_string() } else { shown.to_owned() };
        let message = format!("`{shown}` has no meaning here");
        let diagnostic = Diagnostic::error(&codes::STRANGE_CHARACTER, span, message);
        let fix = match first {
            '#' => Some("//"),
            '&' => Some("and"),
            '|' => Some("or"),
            _ => None,
        };
        self.found.push(match fix.filter(|_| !help.is_empty()) {
            Some(fix) => diagnostic.fix(span, fix, help),
            None if help.is_empty() => diagnostic,
            None => diagnostic.help(help),
        });
        kind
    }

    /// A text between quotes other than `"`, if one begins here.
    fn quoted_otherwise(&mut self, first: char) -> Option<TokenKind> {
        let closing: &[char] = match first {
            '\'' => &['\''],
            '`' => &['`'],
            '\u{201c}' | '\u{201d}' | '\u{201e}' => &['\u{201c}', '\u{201d}', '"'],
            '\u{2018}' | '\u{2019}' => &['\u{2018}', '\u{2019}', '\''],
            _ => return None,
        };
        let start = self.at;
        let line = self.rest().lines().next().unwrap_or_default();
        let mut others = line.char_indices().skip(1);
        let (at, last) = others.find(|(_, c)| closing.contains(c))?;
        let inner = line.get(first.len_utf8()..at).unwrap_or_default().to_owned();
        self.at += at + last.len_utf8();
        let span = Span::new(self.source, start, self.at);
        let message = "a text is quoted by `\"`, not by other quotes";
        let diagnostic = Diagnostic::error(&codes::STRANGE_CHARACTER, span, message);
        let text = format!("\"{inner}\"");
        self.found.push(if inner.contains('"') {
            diagnostic.help("write `\\\"` for a quote within a text")
        } else {
            diagnostic.fix(span, text.clone(), &format!("write `{text}`"))
        });
        Some(TokenKind::Text)
    }

    /// `/* … */`: reported, and skipped.
    fn block_comment(&mut self) {
        let start = self.at;
        let rest = self.rest();
        self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        let span = Span::new(self.source, start, start + 2);
        let message = "`/*` has no meaning here";
        self.found.push(
            Diagnostic::error(&codes::STRANGE_CHARACTER, span, message)
                .help("a comment begins with `//` and ends with its line"),
        );
    }

    /// A quoted text, up to its closing quote on the same line.
    fn quoted(&mut self, kind: TokenKind) -> TokenKind {
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

    /// A diagram, up to its three closing quotes.
    fn art(&mut self) -> TokenKind {
        let start = self.at;
        let inner = self.rest().get(3..).unwrap_or_default();
        if let Some(end) = inner.find("\"\"\"") {
            self.at += end + 6;
        } else {
            self.at = self.text.len();
            self.unclosed(start);
        }
        TokenKind::Art
    }

    fn unclosed(&mut self, start: usize) {
        let span = Span::new(self.source, start, self.at);
        self.found.push(
            Diagnostic::error(&codes::UNCLOSED_TEXT, span, "this text is not closed on its line")
                .help("close it with `\"`; write `\\n` for a line's end within a text"),
        );
    }
}

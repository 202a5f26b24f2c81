//! Syntax of other languages and its equivalent here: help for new users.

use super::super::token::TokenKind;
use super::Parser;
use gatewright_diagnostic::{Diagnostic, Span};

/// Types of other languages, and their equivalents here.
const TYPES: [(&str, &str); 14] = [
    ("string", "token"),
    ("str", "token"),
    ("text", "rest"),
    ("char", "one of \"…\""),
    ("byte", "u8"),
    ("uint8", "u8"),
    ("uint16", "u16"),
    ("uint32", "u32"),
    ("int", "decimal"),
    ("integer", "decimal"),
    ("number", "decimal"),
    ("bytes", "N octets"),
    ("bool", "u1"),
    ("varuint", "varint"),
];

/// The types, for misspellings.
const TYPES_HERE: [&str; 15] = [
    "varint", "decimal", "hex", "token", "word", "rest", "until", "one", "running", "list",
    "stream", "upper", "lower", "u8", "u16",
];

/// Statements of other languages, and their equivalents here.
const STATEMENTS: [(&str, &str); 14] = [
    ("while", "a loop has a bound: `repeat at most N times { if not (…) { leave } … }`"),
    ("loop", "a loop has a bound: `repeat at most N times { … }`"),
    ("do", "a loop has a bound: `repeat at most N times { … }`"),
    ("foreach", "write `for each NAME in LIST { … }`"),
    ("break", "write `leave`"),
    ("continue", "write `next`"),
    (
        "var",
        "write `variable NAME: LOW..HIGH = VALUE` or `variable NAME: fragment, at most N octets = VALUE`",
    ),
    ("const", "write `let NAME = VALUE`; constants belong in a `message` module"),
    ("switch", "write `return when VALUE { PATTERN -> … otherwise -> … }`"),
    ("match", "write `return when VALUE { PATTERN -> … otherwise -> … }`"),
    (
        "when",
        "`when` gives a value: `return when VALUE { PATTERN -> … otherwise -> … }`; a choice of statements is an `if`",
    ),
    ("elif", "write `else if`"),
    ("sleep", "write `wait 5 seconds`"),
    ("reply", "write `return MESSAGE`"),
];

/// Words that begin the parts of a file in other languages.
const PARTS: [(&str, &str); 7] = [
    ("import", "write `use \"FILE\"`"),
    ("include", "write `use \"FILE\"`"),
    ("require", "write `use \"FILE\"`"),
    ("struct", "a layout is a `view` in a `message` module"),
    ("view", "a `view` belongs in a `message NAME { … }`"),
    ("role", "a `role` belongs in a `gateway NAME { … }`"),
    ("on", "a handler belongs in the `gateway NAME { … }`"),
];

fn said(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(of, _)| *of == word).map(|(_, here)| *here)
}

impl Parser<'_> {
    /// Adds help to the finding about the current word, if it is a word of other languages.
    pub(super) fn help_with_a_statement(&mut self, word: &str) {
        if let Some(help) = said(&STATEMENTS, word) {
            self.help_here(help);
        }
    }

    /// The same for a part of a file.
    pub(super) fn help_with_a_part(&mut self, word: &str) {
        if let Some(help) = said(&PARTS, word) {
            self.help_here(help);
        }
    }

    /// The same for a type, or suggests the intended type.
    pub(super) fn help_with_a_type(&mut self) {
        let word = self.word().to_owned();
        if let Some(here) = said(&TYPES, &word.to_ascii_lowercase()) {
            self.help_here(&format!("here it is `{here}`"));
            return;
        }
        if let Some(width) = signed_width(&word) {
            self.help_here(&format!("here it is `i{width}`"));
            return;
        }
        self.suggest(gatewright_diagnostic::nearest(&word, TYPES_HERE).map(str::to_owned));
    }

    /// Adds help to the last finding, if it is about the current token.
    fn help_here(&mut self, help: &str) {
        let span = self.peek().span;
        if let Some(last) = self.found.pop_if(|last| last.primary.span == span) {
            self.found.push(last.help(help));
        }
    }

    /// Whether the two next tokens are these marks, without a space between them.
    pub(super) fn is_double(&self, ahead: usize, first: char, second: char) -> bool {
        let (one, other) = (self.peek_at(ahead), self.peek_at(ahead + 1));
        one.kind == TokenKind::Mark(first)
            && other.kind == TokenKind::Mark(second)
            && one.span.end == other.span.start
    }

    fn double_span(&self) -> Span {
        self.peek().span.to(self.peek_at(1).span)
    }

    /// `==`: reported, and read as `=`.
    pub(super) fn is_compared_twice(&mut self) {
        if self.is_double(0, '=', '=') {
            let span = self.double_span();
            self.found.push(
                Diagnostic::error(&crate::codes::UNEXPECTED, span, "`==` is unexpected")
                    .label("a text or number is compared by `is`, two values by `=`")
                    .fix(span, "=", "write `=`"),
            );
            self.bump();
        }
    }

    /// `x += 1`: whether it follows the current name; reported with its equivalent here.
    pub(super) fn is_changed_in_place(&mut self, name_tokens: usize) -> bool {
        let operators = [('+', '='), ('-', '='), ('*', '='), ('/', '='), ('+', '+'), ('-', '-')];
        let found = operators.iter().find(|(one, two)| self.is_double(name_tokens, *one, *two));
        let Some((operator, second)) = found else { return false };
        let name = self
            .text
            .get(self.peek().span.start..self.peek_at(name_tokens.saturating_sub(1)).span.end);
        let name = name.unwrap_or_default();
        let span = self.peek_at(name_tokens).span.to(self.peek_at(name_tokens + 1).span);
        let value = if second == operator { "1" } else { "…" };
        let help = format!("write `{name} = {name} {operator} {value}`");
        let message = format!("`{operator}{second}` is unexpected");
        self.found.push(Diagnostic::error(&crate::codes::UNEXPECTED, span, message).help(help));
        true
    }

    /// A field of a message that is set, `view.field = VALUE`: reported with its equivalent here.
    pub(super) fn is_a_field_set(&mut self) -> bool {
        let is_path = self.peek().kind == TokenKind::Word
            && self.peek_at(1).kind == TokenKind::Mark('.')
            && self.peek_at(2).kind == TokenKind::Word;
        let changes = ['+', '-', '*', '/'].iter().any(|sign| self.is_double(3, *sign, '='));
        if !is_path || !(changes || self.peek_at(3).kind == TokenKind::Mark('=')) {
            return false;
        }
        let span = self.peek().span.to(self.peek_at(2).span);
        let message = "a field of a message cannot be set";
        let help = "build a new message, `VIEW(FIELD: VALUE)`, or keep the value in a `variable`";
        self.found.push(Diagnostic::error(&crate::codes::UNEXPECTED, span, message).help(help));
        true
    }

    /// `+=` and the like where `=` gives a new name its value: reported with its equivalent here.
    pub(super) fn is_defined_in_place(&mut self) -> bool {
        let found = ['+', '-', '*', '/'].iter().find(|sign| self.is_double(0, **sign, '='));
        let Some(sign) = found else { return false };
        let span = self.double_span();
        let message = format!("`{sign}=` is unexpected: a new name has no value to change");
        let help =
            format!("write `= VALUE`; later a variable is changed by `NAME = NAME {sign} …`");
        self.found.push(Diagnostic::error(&crate::codes::UNEXPECTED, span, message).help(help));
        true
    }

    /// `i++` within a value: reported with its equivalent here.
    pub(super) fn is_counted_up(&mut self) -> bool {
        let found = ['+', '-'].iter().find(|sign| self.is_double(0, **sign, **sign));
        let Some(sign) = found.filter(|_| self.ends_a_value_at(2)) else { return false };
        let span = self.double_span();
        let message = format!("`{sign}{sign}` is unexpected: a value changes no variable");
        let help = format!("write `{sign} 1` here, or change the variable in a statement before");
        self.found.push(Diagnostic::error(&crate::codes::UNEXPECTED, span, message).help(help));
        true
    }

    /// Whether no value follows here: a line's or the text's end, or a closing mark.
    fn ends_a_value_at(&self, ahead: usize) -> bool {
        let token = self.peek_at(ahead);
        let closes = matches!(token.kind, TokenKind::End | TokenKind::Mark('}' | ')' | ',' | ';'));
        token.first || closes
    }

    /// Expects `{` after a condition or a head; helps if a statement follows instead.
    pub(super) fn braces_are_missing(&mut self) {
        if !self.is_mark('{') && self.peek().kind == TokenKind::Word {
            let before = self.found.len();
            self.unexpected("`{`");
            if self.found.len() > before {
                self.help("statements are in braces, even a single one: `if … { … } else { … }`");
            }
        }
    }
}

/// The width of a signed type of another language, as `int16_t` or `s16`, if a field can have it.
fn signed_width(word: &str) -> Option<u32> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_suffix("_t").unwrap_or(&word);
    let digits = ["int", "sint", "s"].iter().find_map(|start| word.strip_prefix(start))?;
    digits.parse().ok().filter(|width| (2..=64).contains(width))
}

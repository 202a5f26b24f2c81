//! A recursive-descent parser. A rule that fails has reported the reason and returns `None`. The
//! block around it continues with the next line, so that one run finds every error.
#![expect(clippy::option_option, reason = "not read, read as missing, and read are three things")]

mod diagram;
mod expression;
mod gateway;
mod habits;
mod layout;
mod message;
mod protocol;
mod statement;
mod test;

use super::ast::{File, Literal, Name, Number, Octets, Path, TextPiece, Time};
use super::token::{Token, TokenKind, tokens};
use crate::codes;
use core::time::Duration;
use gatewright_diagnostic::{Code, Diagnostic, SourceId, Span, nearest};

/// Maximum nesting of blocks and expressions.
const NESTING_MAX: u32 = 64;

/// Maximum operators of a chain such as `a + b + c`, together with those of its longest operand:
/// each makes the tree one level deeper.
const CHAIN_MAX: u32 = 256;

/// Parses a text into a tree, as far as it can be read.
pub(crate) fn parse(source: SourceId, text: &str, found: &mut Vec<Diagnostic>) -> File {
    let tokens = tokens(source, text, found);
    let mut parser = Parser {
        source,
        text,
        tokens,
        at: 0,
        found,
        nesting: 0,
        chained: 0,
        item: 0,
        open_at: None,
        suspect: None,
    };
    parser.file()
}

pub(super) struct Parser<'a> {
    source: SourceId,
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    found: &'a mut Vec<Diagnostic>,
    nesting: u32,
    /// The most operators above each other in what was parsed of the current chain.
    chained: u32,
    /// Token at which the current item of a block began.
    item: usize,
    /// The token at which a block was found to be unclosed.
    open_at: Option<usize>,
    /// The last block whose brace is further left than the line that opened it.
    suspect: Option<Span>,
}

impl Parser<'_> {
    fn file(&mut self) -> File {
        const STARTS: [&str; 5] = ["use", "message", "protocol", "gateway", "test"];
        let mut file = File::default();
        while self.peek().kind != TokenKind::End {
            let start = self.at;
            self.item = start;
            let parsed = match self.word() {
                "use" => self.import().map(|path| file.uses.push(path)),
                "message" => self.message_module().map(|module| file.messages.push(module)),
                "protocol" => self.protocol().map(|protocol| file.protocols.push(protocol)),
                "gateway" => self.gateway().map(|gateway| file.gateways.push(gateway)),
                "test" => self.test().map(|test| file.tests.push(test)),
                word => {
                    let near = nearest(word, STARTS).map(str::to_owned);
                    self.unexpected("`use`, `message`, `protocol`, `gateway` or `test`");
                    let word = self.word().to_owned();
                    self.suggest(near);
                    self.help_with_a_part(&word);
                    None
                }
            };
            if parsed.is_none() {
                self.recover_to_top(start, &STARTS);
            }
        }
        file
    }

    fn import(&mut self) -> Option<Octets> {
        self.bump();
        self.plain_text("the file's name, as in `use \"smtp.gate\"`")
    }

    // -- Looking and stepping.

    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token {
        let last = Token { kind: TokenKind::End, span: Span::new(self.source, 0, 0), first: true };
        self.tokens.get(self.at + ahead).or(self.tokens.last()).copied().unwrap_or(last)
    }

    fn text_of(&self, token: Token) -> &str {
        self.text.get(token.span.start..token.span.end).unwrap_or_default()
    }

    /// The next token's text if it is a word, otherwise empty.
    fn word(&self) -> &str {
        self.word_at(0)
    }

    fn word_at(&self, ahead: usize) -> &str {
        let token = self.peek_at(ahead);
        if token.kind == TokenKind::Word { self.text_of(token) } else { "" }
    }

    fn bump(&mut self) -> Token {
        let token = self.peek();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn is_mark(&self, mark: char) -> bool {
        self.peek().kind == TokenKind::Mark(mark)
    }

    fn eat_mark(&mut self, mark: char) -> bool {
        let is = self.is_mark(mark);
        if is {
            self.bump();
        }
        is
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let is = self.word() == word;
        if is {
            self.bump();
        }
        is
    }

    /// Consumes the words, if all of them come next.
    fn eat_words(&mut self, words: &[&str]) -> bool {
        let all = words.iter().enumerate().all(|(ahead, word)| self.word_at(ahead) == *word);
        if all {
            self.at += words.len();
        }
        all
    }

    /// The position of the text since `start`, a token's index.
    fn since(&self, start: usize) -> Span {
        let first = self.tokens.get(start).map_or(self.peek().span, |token| token.span);
        let last = self.tokens.get(self.at.saturating_sub(1)).map_or(first, |token| token.span);
        if self.at > start { first.to(last) } else { first }
    }

    // -- Reporting and going on.

    fn error(&mut self, code: &'static Code, span: Span, message: impl Into<String>) {
        self.found.push(Diagnostic::error(code, span, message));
    }

    fn is_unclosed(&self, token: Token) -> bool {
        let text = self.text_of(token);
        let quoted = matches!(token.kind, TokenKind::Text | TokenKind::Hex);
        quoted && (text.len() < 2 || !text.ends_with('"') || text == "x\"")
    }

    fn unexpected(&mut self, wanted: &str) {
        let token = self.peek();
        // An unclosed text has swallowed what is missed here, and was reported.
        let before = self.tokens.get(self.at.wrapping_sub(1)).copied();
        if before.is_some_and(|before| self.is_unclosed(before)) {
            return;
        }
        let found = match token.kind {
            TokenKind::End => "the end of the text".to_owned(),
            _ => format!("`{}`", self.text_of(token)),
        };
        // What is missed at a line's end is shown there, not on the next line.
        if let Some(before) = before.filter(|_| token.first && self.at > self.item) {
            let end = Span::new(self.source, before.span.end, before.span.end);
            let message = "something is missing at the end of this line";
            let label = format!("expected {wanted}");
            self.found.push(Diagnostic::error(&codes::UNEXPECTED, end, message).label(label));
            return;
        }
        self.found.push(
            Diagnostic::error(&codes::UNEXPECTED, token.span, format!("{found} is unexpected"))
                .label(format!("expected {wanted}")),
        );
    }

    /// Suggests a word in place of the current one, in the last finding.
    fn suggest(&mut self, near: Option<String>) {
        let span = self.peek().span;
        let Some(near) = near else { return };
        if let Some(last) = self.found.pop_if(|last| last.primary.span == span) {
            let message = format!("write `{near}`");
            self.found.push(last.fix(span, near, &message));
        }
    }

    fn expect_mark(&mut self, mark: char) -> Option<()> {
        if self.eat_mark(mark) {
            return Some(());
        }
        if mark == '=' && self.is_defined_in_place() {
            return None;
        }
        self.unexpected(&format!("`{mark}`"));
        None
    }

    fn expect_word(&mut self, word: &str) -> Option<()> {
        if self.eat_word(word) {
            return Some(());
        }
        self.unexpected(&format!("`{word}`"));
        None
    }

    fn expect_arrow(&mut self) -> Option<()> {
        if self.peek().kind == TokenKind::Arrow {
            self.bump();
            return Some(());
        }
        self.unexpected("`->`");
        None
    }

    /// `{ ITEM… }`; separators are line ends, `;` and `,`.
    fn block<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let open = self.peek().span;
        self.expect_mark('{')?;
        if self.nesting >= NESTING_MAX {
            self.error(&codes::TOO_DEEP, open, format!("more than {NESTING_MAX} blocks nest here"));
            return None;
        }
        self.nesting += 1;
        let mut items = Vec::new();
        loop {
            while self.eat_mark(';') || self.eat_mark(',') {}
            if self.is_mark('}') {
                self.is_further_left(open);
                self.bump();
                break;
            }
            if self.peek().kind == TokenKind::End || self.is_a_part() {
                self.unclosed(open);
                break;
            }
            let start = self.at;
            let outer = std::mem::replace(&mut self.item, start);
            match item(self) {
                Some(item) => items.push(item),
                None => self.recover(start),
            }
            self.item = outer;
        }
        self.nesting -= 1;
        Some(items)
    }

    /// Whether a part of the file begins here, whichever block is open: nothing in a block looks
    /// alike.
    fn is_a_part(&self) -> bool {
        let brace = |ahead| self.peek_at(ahead).kind == TokenKind::Mark('{');
        let named = self.peek_at(1).kind == TokenKind::Word;
        self.peek().first
            && match self.word() {
                "gateway" | "message" => named && brace(2),
                "protocol" => {
                    named
                        && self.peek_at(2).kind == TokenKind::Mark('=')
                        && matches!(self.word_at(3), "tcp" | "udp")
                }
                "test" => self.peek_at(1).kind == TokenKind::Text && brace(2),
                _ => false,
            }
    }

    /// Reports, once, a block that is unclosed where its file or the part around it ends.
    fn unclosed(&mut self, open: Span) {
        if self.open_at.replace(self.at) == Some(self.at) {
            return;
        }
        let (end, begins) = (self.peek().span, self.peek().kind != TokenKind::End);
        let mut diagnostic =
            Diagnostic::error(&codes::UNCLOSED_BLOCK, end, "a block is not closed")
                .also(open, "it opens here")
                .help("close it with `}`");
        if begins {
            diagnostic = diagnostic.label("here the next part of the file begins");
        }
        if let Some(suspect) = self.suspect.filter(|suspect| suspect.start > open.start) {
            diagnostic = diagnostic.also(suspect, "or this one, by how the lines are indented");
        }
        self.found.push(diagnostic);
    }

    /// Remembers a block whose closing brace begins a line further left than its opening one.
    fn is_further_left(&mut self, open: Span) {
        let brace = self.peek();
        let indent = |at: usize| {
            let before = self.text.get(..at).unwrap_or_default();
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            let line = self.text.get(line..).unwrap_or_default();
            line.len() - line.trim_start_matches([' ', '\t']).len()
        };
        if brace.first && indent(brace.span.start) < indent(open.start) {
            self.suspect = Some(open);
        }
    }

    /// Skips unreadable text, up to the next line, `;` or the block's end.
    fn recover(&mut self, start: usize) {
        if self.at == start && !self.is_mark('}') {
            self.skip_one();
        }
        loop {
            let token = self.peek();
            match token.kind {
                TokenKind::End | TokenKind::Mark('}' | ';') => return,
                _ if token.first && self.at > start => return,
                _ => self.skip_one(),
            }
        }
    }

    fn recover_to_top(&mut self, start: usize, starts: &[&str]) {
        if self.at == start {
            self.bump();
        }
        while self.peek().kind != TokenKind::End {
            let column_one = self.text.get(..self.peek().span.start).unwrap_or_default();
            let at_margin = column_one.is_empty() || column_one.ends_with('\n');
            if at_margin && starts.contains(&self.word()) {
                return;
            }
            self.bump();
        }
    }

    /// Skips one token, or a whole block.
    fn skip_one(&mut self) {
        let mut depth = 0_u32;
        loop {
            match self.bump().kind {
                TokenKind::Mark('{') => depth += 1,
                TokenKind::Mark('}') => depth = depth.saturating_sub(1),
                TokenKind::End => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    // -- Words and constants.

    fn name(&mut self, what: &str) -> Option<Name> {
        let token = self.peek();
        if token.kind != TokenKind::Word {
            self.unexpected(what);
            return None;
        }
        self.bump();
        Some(Name { text: self.text_of(token).to_owned(), span: token.span })
    }

    fn path(&mut self, what: &str) -> Option<Path> {
        let name = self.name(what)?;
        if self.eat_mark('.') {
            let inner = self.name(what)?;
            return Some(Path { module: Some(name), name: inner });
        }
        Some(Path { module: None, name })
    }

    fn number(&mut self, what: &str) -> Option<Number> {
        let token = self.peek();
        if token.kind != TokenKind::Number {
            self.unexpected(what);
            return None;
        }
        self.bump();
        let digits = self.text_of(token).replace('_', "");
        let value = value_of("", &digits);
        if let Some(value) = value {
            return Some(Number { value, span: token.span });
        }
        let message = format!("`{}` is no number below 2^63", self.text_of(token));
        self.error(&codes::BAD_NUMBER, token.span, message);
        None
    }

    /// Whether a number comes next, perhaps with a sign.
    fn is_number_at(&self, ahead: usize) -> bool {
        let signed = self.peek_at(ahead).kind == TokenKind::Mark('-');
        self.peek_at(ahead + usize::from(signed)).kind == TokenKind::Number
    }

    /// Whether a line begins here with a negative number: it goes on with no value of the line before.
    fn is_negative_on_its_line(&self) -> bool {
        let (sign, number) = (self.peek(), self.peek_at(1));
        sign.first && is_signed(sign, number)
    }

    /// `12` or `-12`
    fn signed_number(&mut self, what: &str) -> Option<Number> {
        let minus = self.peek().span;
        if !self.is_mark('-') || !self.is_number_at(0) {
            return self.number(what);
        }
        self.bump();
        let token = self.bump();
        let (span, text) = (minus.to(token.span), self.text_of(token));
        if let Some(value) = value_of("-", &text.replace('_', "")) {
            return Some(Number { value, span });
        }
        let message = format!("`-{text}` is no number of at least -2^63");
        self.error(&codes::BAD_NUMBER, span, message);
        None
    }

    /// A text without holes.
    fn plain_text(&mut self, what: &str) -> Option<Octets> {
        let span = self.peek().span;
        match self.peek().kind {
            TokenKind::Hex => self.hex(),
            TokenKind::Text => {
                let mut value = Vec::new();
                for piece in self.pieces()? {
                    match piece {
                        TextPiece::Octets(octets) => value.extend(octets),
                        TextPiece::Hole(hole) => {
                            let message = "a hole is not possible here: this text is a constant";
                            self.error(&codes::HOLE_HERE, hole.span, message);
                            self.help(
                                "write `\\{` for the brace itself; holes are possible in values",
                            );
                            return None;
                        }
                    }
                }
                Some(Octets { value, span })
            }
            _ => {
                self.unexpected(what);
                None
            }
        }
    }

    fn help(&mut self, help: &str) {
        if let Some(last) = self.found.pop() {
            self.found.push(last.help(help));
        }
    }

    fn hex(&mut self) -> Option<Octets> {
        let token = self.bump();
        let inner = self.text_of(token).get(2..).unwrap_or_default().trim_end_matches('"');
        let digits: String = inner.split_whitespace().collect();
        let value: Option<Vec<u8>> = (digits.len().is_multiple_of(2) && digits.is_ascii())
            .then(|| {
                (0..digits.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(digits.get(at..at + 2).unwrap_or(""), 16).ok())
                    .collect()
            })
            .flatten();
        if value.is_none() {
            self.error(&codes::BAD_HEX, token.span, "these are not octets in hexadecimal");
            self.help("two digits an octet, as in `x\"0d 0a\"`");
        }
        Some(Octets { value: value?, span: token.span })
    }

    /// The pieces of a quoted text: octets, and holes in braces.
    fn pieces(&mut self) -> Option<Vec<TextPiece>> {
        let token = self.bump();
        // The quotes are one octet each, but for those that were reported.
        let text = self.text_of(token);
        let quote = |c: Option<char>| c.map_or(0, char::len_utf8);
        let (open, close) = (quote(text.chars().next()), quote(text.chars().next_back()));
        let (start, end) = (token.span.start + open, token.span.end.saturating_sub(close));
        let inner = self.text.get(start..end).unwrap_or_default();
        let mut pieces = Vec::new();
        let mut octets = Vec::new();
        let mut rest = inner.char_indices();
        while let Some((offset, c)) = rest.next() {
            match c {
                '\\' => {
                    if let Some(octet) = escape(&mut rest) {
                        octets.push(octet);
                        continue;
                    }
                    let span = Span::new(self.source, start + offset, start + offset + 2);
                    self.error(&codes::BAD_ESCAPE, span, "this escape means nothing");
                    self.help("`\\r` `\\n` `\\t` `\\0` `\\\\` `\\\"` `\\{` `\\}` and `\\x41` do");
                }
                '{' => {
                    let length = inner.get(offset..).and_then(|rest| rest.find('}'));
                    let Some(length) = length else {
                        let span = Span::new(self.source, start + offset, end);
                        self.error(&codes::UNCLOSED_TEXT, span, "this hole is not closed");
                        return None;
                    };
                    pieces.push(TextPiece::Octets(std::mem::take(&mut octets)));
                    let hole = (start + offset + 1, start + offset + length);
                    pieces.push(TextPiece::Hole(self.within(hole.0, hole.1)?));
                    rest = inner.char_indices();
                    rest.by_ref().find(|&(at, _)| at == offset + length);
                }
                _ => octets.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        pieces.push(TextPiece::Octets(octets));
        pieces.retain(|piece| !matches!(piece, TextPiece::Octets(octets) if octets.is_empty()));
        Some(pieces)
    }

    /// The expression in a hole of a text.
    fn within(&mut self, start: usize, end: usize) -> Option<super::ast::Expression> {
        if self.nesting >= NESTING_MAX {
            let span = Span::new(self.source, start, end);
            self.error(&codes::TOO_DEEP, span, format!("more than {NESTING_MAX} holes nest here"));
            return None;
        }
        // Blanks stand for what is before, so that places stay true.
        let blank = " ".repeat(start) + self.text.get(start..end).unwrap_or_default();
        let tokens = tokens(self.source, &blank, self.found);
        let mut inner = Parser {
            source: self.source,
            text: &blank,
            tokens,
            at: 0,
            found: self.found,
            nesting: self.nesting + 1,
            chained: 0,
            item: 0,
            open_at: None,
            suspect: None,
        };
        let value = inner.expression();
        if value.is_some() && inner.peek().kind != TokenKind::End {
            inner.unexpected("`}`");
            return None;
        }
        self.chained = self.chained.max(inner.chained);
        value
    }

    /// A number, a text, octets, or a declared constant.
    fn literal(&mut self, what: &str) -> Option<Literal> {
        match self.peek().kind {
            _ if self.is_number_at(0) => self.signed_number(what).map(Literal::Number),
            TokenKind::Text | TokenKind::Hex => self.plain_text(what).map(Literal::Octets),
            TokenKind::Word => self.name(what).map(Literal::Name),
            _ => {
                self.unexpected(what);
                None
            }
        }
    }

    fn time(&mut self) -> Option<Time> {
        const UNITS: [(&str, u64); 11] = [
            ("ms", 1),
            ("milliseconds", 1),
            ("millisecond", 1),
            ("seconds", 1_000),
            ("second", 1_000),
            ("minutes", 60_000),
            ("minute", 60_000),
            ("hours", 3_600_000),
            ("hour", 3_600_000),
            ("days", 86_400_000),
            ("day", 86_400_000),
        ];
        let number = self.number("a time, as in `5 minutes`")?;
        let word = self.word();
        let Some(&(_, unit)) = UNITS.iter().find(|(name, _)| *name == word) else {
            self.unexpected("a unit: `ms`, `seconds`, `minutes`, `hours` or `days`");
            return None;
        };
        let span = number.span.to(self.bump().span);
        let milliseconds = u64::try_from(number.value).unwrap_or_default().saturating_mul(unit);
        if milliseconds > TIME_MS_MAX {
            self.error(&codes::BAD_NUMBER, span, "no wait is longer than 365 days");
            return None;
        }
        Some(Time { value: Duration::from_millis(milliseconds), span })
    }

    /// `at most N`, with or without a unit word.
    fn at_most(&mut self, units: &[&str]) -> Option<Option<Number>> {
        if !self.eat_words(&["at", "most"]) {
            return Some(None);
        }
        let number = self.number("a number")?;
        if units.contains(&self.word()) {
            self.bump();
        }
        Some(Some(number))
    }

    /// `, at most N`, if the comma begins it.
    fn comma_at_most(&mut self, units: &[&str]) -> Option<Option<Number>> {
        let leads = self.is_mark(',') && self.word_at(1) == "at" && self.word_at(2) == "most";
        if leads {
            self.bump();
        }
        self.at_most(units)
    }

    /// `, each at most N octets`, if the comma begins it.
    fn comma_each(&mut self) -> Option<Option<Number>> {
        if self.is_mark(',') && self.word_at(1) == "each" {
            self.bump();
        }
        if !self.eat_word("each") {
            return Some(None);
        }
        self.at_most(&["octets", "octet"])
    }
}

/// Maximum duration: a year, in milliseconds.
const TIME_MS_MAX: u64 = 365 * 86_400_000;

/// Whether a sign and a number are a negative number: nothing stands between them.
fn is_signed(sign: Token, number: Token) -> bool {
    sign.kind == TokenKind::Mark('-')
        && number.kind == TokenKind::Number
        && sign.span.end == number.span.start
}

/// The number that a sign and digits give, decimal or `0x…`.
fn value_of(sign: &str, digits: &str) -> Option<i64> {
    match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{digits}").parse().ok(),
    }
}

fn escape(rest: &mut std::str::CharIndices<'_>) -> Option<u8> {
    let hex = |c: Option<(usize, char)>| c.and_then(|(_, c)| c.to_digit(16));
    Some(match rest.next()?.1 {
        'r' => b'\r',
        'n' => b'\n',
        't' => b'\t',
        '0' => 0,
        'x' => {
            let (high, low) = (hex(rest.next())?, hex(rest.next())?);
            u8::try_from(high * 16 + low).ok()?
        }
        c @ ('\\' | '"' | '{' | '}') => u8::try_from(c).ok()?,
        _ => return None,
    })
}

//! The formatter: one layout for every text, without losing a comment.
//!
//! Line breaks stay where the author put them. The formatter sets indentation, spaces within a
//! line, runs of empty lines, and the columns of `->` and of comments after code.

use crate::syntax::token::{Token, TokenKind, tokens};
use gatewright_diagnostic::{Diagnostic, Severity, SourceId};

/// Columns per level.
const INDENT: usize = 4;

/// Maximum column for the alignment of arrows and comments.
const ALIGN_MAX: usize = 60;

/// Formats the text.
///
/// The result has the same tokens and comments, and formatting it again changes nothing.
///
/// # Errors
///
/// The syntax errors: only a text that follows the grammar is formatted.
pub fn format(source: SourceId, text: &str) -> Result<String, Vec<Diagnostic>> {
    let mut found = Vec::new();
    crate::syntax::parse(source, text, &mut found);
    if found.iter().any(|of| of.severity == Severity::Error) {
        return Err(found);
    }
    let tokens = tokens(source, text, &mut found);
    let mut lines = Layouter { text, tokens: &tokens, lines: Vec::new(), depth: 0 }.lines();
    align(&mut lines, |line| line.stops[0], |line, column| line.push(0, column));
    align(&mut lines, |line| line.stops[1], |line, column| line.push(1, column));
    align(
        &mut lines,
        |line| line.comment.as_ref().map(|_| line.width()),
        FormattedLine::push_comment,
    );
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        if line.gap && index > 0 {
            out.push('\n');
        }
        let code = format!("{:indent$}{}", "", line.code, indent = line.indent);
        let comment = line.comment.as_deref().unwrap_or_default();
        let between = " ".repeat(if line.code.is_empty() { 0 } else { line.space });
        let whole = if comment.is_empty() { code } else { code + &between + comment };
        out.push_str(whole.trim_end());
        out.push('\n');
    }
    Ok(out)
}

/// One line of the result.
struct FormattedLine {
    indent: usize,
    code: String,
    /// Positions in `code` to align: the verb of a test's step and then its value, or the line's
    /// own arrow.
    stops: [Option<usize>; 2],
    comment: Option<String>,
    /// Columns between code and comment.
    space: usize,
    /// Whether an empty line precedes it.
    gap: bool,
}

impl FormattedLine {
    fn width(&self) -> usize {
        self.code.chars().count()
    }

    /// Moves a stop, and those after it, to a column.
    fn push(&mut self, stop: usize, column: usize) {
        let Some(at) = self.stops.get(stop).copied().flatten() else { return };
        let pad = column.saturating_sub(at);
        self.code.insert_str(at, &" ".repeat(pad));
        for stop in self.stops.iter_mut().skip(stop).flatten() {
            *stop += pad;
        }
    }

    fn push_comment(&mut self, column: usize) {
        self.space = column.saturating_sub(self.width()) + 2;
    }
}

/// Aligns the stops that `at` finds in neighbouring lines to one column.
fn align(
    lines: &mut [FormattedLine],
    at: impl Fn(&FormattedLine) -> Option<usize>,
    shift: impl Fn(&mut FormattedLine, usize),
) {
    let mut start = 0;
    while start < lines.len() {
        let indent = lines.get(start).map(|line| line.indent);
        let run = lines.get(start..).unwrap_or_default().iter().enumerate();
        let length = run
            .take_while(|(offset, line)| {
                at(line).is_some_and(|column| column <= ALIGN_MAX)
                    && Some(line.indent) == indent
                    && (*offset == 0 || !line.gap)
            })
            .count();
        let group = lines.get_mut(start..start + length).unwrap_or_default();
        let column = group.iter().filter_map(&at).max().unwrap_or_default();
        for line in group {
            shift(line, column);
        }
        start += length.max(1);
    }
}

struct Layouter<'t> {
    text: &'t str,
    tokens: &'t [Token],
    lines: Vec<FormattedLine>,
    depth: usize,
}

impl Layouter<'_> {
    fn lines(mut self) -> Vec<FormattedLine> {
        let mut end = 0;
        let mut start = 0;
        while let Some(first) = self.tokens.get(start) {
            let between = self.text.get(end..first.span.start).unwrap_or_default();
            let gap = self.comments(between, start > 0, first.kind);
            if first.kind == TokenKind::End {
                break;
            }
            let rest = self.tokens.get(start + 1..).unwrap_or_default();
            let length = 1 + rest.iter().take_while(|token| !token.first).count();
            let line = self.tokens.get(start..start + length).unwrap_or_default();
            self.line(line, gap);
            end = line.last().map_or(end, |token| token.span.end);
            start += length;
        }
        self.lines
    }

    fn of(&self, token: Token) -> &str {
        self.text.get(token.span.start..token.span.end).unwrap_or_default()
    }

    /// Adds the comments between two lines of code; returns whether an empty line comes last.
    fn comments(&mut self, between: &str, behind_code: bool, next: TokenKind) -> bool {
        let mut gap = false;
        for (number, line) in between.split('\n').enumerate() {
            let line = line.trim();
            let last = number == between.matches('\n').count();
            if line.is_empty() {
                gap |= number > 0 && !last;
            } else if number == 0 && behind_code {
                if let Some(code) = self.lines.last_mut() {
                    code.comment = Some(line.to_owned());
                }
            } else {
                let gap = std::mem::take(&mut gap) && !self.after_open();
                let comment = Some(line.to_owned());
                let indent = self.depth * INDENT;
                let code = String::new();
                let stops = [None, None];
                self.lines.push(FormattedLine { indent, code, stops, comment, space: 0, gap });
            }
        }
        gap && !self.after_open() && !matches!(next, TokenKind::Mark('}' | ')'))
    }

    /// Whether the last line opens a block.
    fn after_open(&self) -> bool {
        self.lines.last().is_some_and(|line| line.code.ends_with(['{', '(']))
    }

    fn line(&mut self, tokens: &[Token], gap: bool) {
        let closing = tokens
            .iter()
            .take_while(|token| matches!(token.kind, TokenKind::Mark('}' | ')')))
            .count();
        let level = self.depth.saturating_sub(closing);
        let continued = self.continues(tokens);
        let mut code = String::new();
        let mut stops = [None, None];
        let is_step = self.is_step(tokens);
        let mut inner = 0_usize;
        let mut before: Option<Token> = None;
        let mut further: Option<Token> = None;
        for (number, token) in tokens.iter().enumerate() {
            if let Some(before) = before
                && spaced(before, *token)
                && !signs(further, before, *token)
            {
                code.push(' ');
            }
            match token.kind {
                TokenKind::Mark('{' | '(') => {
                    self.depth += 1;
                    inner += 1;
                }
                TokenKind::Mark('}' | ')') => {
                    self.depth = self.depth.saturating_sub(1);
                    inner = inner.saturating_sub(1);
                }
                TokenKind::Arrow if inner == 0 && stops[1].is_none() => stops[1] = Some(code.len()),
                _ => {}
            }
            if let Some(stop) = number.checked_sub(1).and_then(|stop| stops.get_mut(stop))
                && is_step
            {
                *stop = Some(code.len());
            }
            code.push_str(self.of(*token));
            further = before.replace(*token);
        }
        if !code.is_ascii() || code.ends_with('{') || continued {
            stops = [None, None];
        }
        let indent = (level + usize::from(continued)) * INDENT;
        self.lines.push(FormattedLine { indent, code, stops, comment: None, space: 2, gap });
    }

    /// Whether the line is a step of a test: `ROLE sees VALUE`.
    fn is_step(&self, tokens: &[Token]) -> bool {
        matches!(tokens, [role, verb, _, ..]
            if role.kind == TokenKind::Word && matches!(self.of(*verb), "sends" | "sees"))
    }

    /// Whether the line continues the previous one.
    fn continues(&self, tokens: &[Token]) -> bool {
        const WORDS: [&str; 10] =
            ["else", "within", "to", "and", "or", "as", "before", "after", "of", "mod"];
        let Some(first) = tokens.first() else { return false };
        let field = tokens.get(1).is_some_and(|next| next.kind == TokenKind::Mark(':'));
        match first.kind {
            TokenKind::Word => !field && WORDS.contains(&self.of(*first)),
            TokenKind::Mark('-') => !tokens.get(1).is_some_and(|next| signs(None, *first, *next)),
            TokenKind::Mark('=' | '+' | '*' | '/' | '<' | '>')
            | TokenKind::Arrow
            | TokenKind::AtMost
            | TokenKind::AtLeast => true,
            _ => false,
        }
    }
}

/// Whether a `-` is the sign of what touches it, and no subtraction: the author knows.
fn signs(further: Option<Token>, before: Token, token: Token) -> bool {
    let is_left_open = further.is_none_or(|further| {
        further.span.end < before.span.start
            || matches!(further.kind, TokenKind::Mark('(' | ',' | ':' | '=' | '+' | '*' | '/'))
            || matches!(further.kind, TokenKind::Range | TokenKind::Arrow)
    });
    let touching = before.span.end == token.span.start;
    before.kind == TokenKind::Mark('-') && touching && is_left_open
}

/// Whether two tokens of a line are separated by a space.
fn spaced(before: Token, token: Token) -> bool {
    let touching = before.span.end == token.span.start;
    match (before.kind, token.kind) {
        (_, TokenKind::Mark(',' | ';' | ')' | ':' | '.') | TokenKind::Range)
        | (TokenKind::Mark('(' | '.') | TokenKind::Range, _) => false,
        // A call has none, a condition in parentheses has one: the author knows.
        (TokenKind::Word, TokenKind::Mark('(')) => !touching,
        _ => true,
    }
}

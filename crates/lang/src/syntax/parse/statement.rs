//! Parses statements.

use super::super::ast::{
    AssignTarget, Bound, Expression, Send, Statement, StatementKind, ValueType,
};
use super::super::token::TokenKind;
use super::Parser;
use crate::codes;
use gatewright_diagnostic::nearest;

const STARTS: [&str; 23] = [
    "let",
    "variable",
    "send",
    "if",
    "for",
    "return",
    "provisional",
    "close",
    "fail",
    "repeat",
    "next",
    "leave",
    "release",
    "append",
    "session",
    "clear",
    "remove",
    "forget",
    "start",
    "resume",
    "end",
    "wait",
    "else",
];

impl Parser<'_> {
    /// `{ STATEMENT… }`
    pub(super) fn statements(&mut self) -> Option<Vec<Statement>> {
        self.block(Self::statement)
    }

    pub(super) fn statement(&mut self) -> Option<Statement> {
        let start = self.at;
        if self.is_mark('{') {
            let kind = StatementKind::Block(self.statements()?);
            return Some(Statement { kind, span: self.since(start) });
        }
        let word = self.word().to_owned();
        let tokens = if word == "session" { 3 } else { 1 };
        if self.peek().kind == TokenKind::Word && self.is_changed_in_place(tokens) {
            return None;
        }
        if self.peek().kind == TokenKind::Word && self.peek_at(1).kind == TokenKind::Mark('=') {
            let name = self.name("a variable")?;
            self.bump();
            let kind = StatementKind::Set { name, value: self.expression()? };
            return Some(Statement { kind, span: self.since(start) });
        }
        if word != "session" && self.is_a_field_set() {
            return None;
        }
        if !STARTS.contains(&word.as_str()) || word == "else" {
            self.unexpected("a statement: `let`, `if`, `for each`, `send`, `return`, …");
            self.suggest(nearest(&word, STARTS).map(str::to_owned));
            self.help_with_a_statement(&word);
            return None;
        }
        self.bump();
        let kind = self.statement_kind(&word, start)?;
        Some(Statement { kind, span: self.since(start) })
    }

    fn statement_kind(&mut self, word: &str, start: usize) -> Option<StatementKind> {
        Some(match word {
            "let" => return self.let_statement(),
            "variable" => return self.variable_statement(),
            "send" => return self.send_statement(start),
            "if" => return self.if_statement(),
            "for" => return self.for_each(),
            "return" => {
                let bare = self.is_mark('}') || self.is_mark(';') || self.peek().first;
                let value = if bare { None } else { Some(self.expression()?) };
                let close = self.is_mark(',') && self.word_at(1) == "close";
                if close {
                    self.bump();
                    self.bump();
                }
                StatementKind::Return { value, close }
            }
            "provisional" => StatementKind::Provisional(self.expression()?),
            "close" => {
                let named = self.peek().kind == TokenKind::Word && !self.peek().first;
                StatementKind::Close(if named { Some(self.name("a role")?) } else { None })
            }
            "fail" => StatementKind::Fail,
            "repeat" => {
                let times = self.at_most(&["times"])?;
                StatementKind::Repeat { times, body: self.statements()? }
            }
            "next" => StatementKind::Next,
            "leave" => StatementKind::Leave,
            "release" => StatementKind::Release(self.name("a role")?),
            "append" => {
                let value = self.expression()?;
                self.expect_word("to")?;
                let list = self.place()?;
                StatementKind::Append { value, list, otherwise: self.else_statement()? }
            }
            "session" => {
                self.at = start;
                let variable = self.session_variable()?;
                self.expect_mark('=')?;
                StatementKind::Assign { variable, value: self.expression()? }
            }
            "clear" => StatementKind::Clear(self.place()?),
            "remove" => {
                self.expect_word("requester")?;
                self.expect_word("from")?;
                StatementKind::Part(self.session_variable()?)
            }
            "forget" => {
                self.expect_word("requester")?;
                StatementKind::ForgetRequester
            }
            "start" => {
                let key = self.session_named()?;
                StatementKind::StartSession { key, otherwise: self.else_statement()? }
            }
            "resume" => {
                let key = self.session_named()?;
                StatementKind::ResumeSession { key, otherwise: self.else_statement()? }
            }
            "end" => {
                self.expect_word("session")?;
                StatementKind::EndSession
            }
            _ => StatementKind::Wait(self.time()?),
        })
    }

    /// `session [as VALUE]`
    fn session_named(&mut self) -> Option<Option<Expression>> {
        self.expect_word("session")?;
        if !self.eat_word("as") {
            return Some(None);
        }
        self.expression().map(Some)
    }

    /// `send MESSAGE to session.NAME`, or a `send` to a role
    fn send_statement(&mut self, start: usize) -> Option<StatementKind> {
        let message = self.expression()?;
        if self.word() == "to" && self.word_at(1) == "session" {
            self.bump();
            return Some(StatementKind::Tell { message, to: self.session_variable()? });
        }
        let send = self.send_behind(message, start)?;
        Some(StatementKind::Send { send, otherwise: self.else_statement()? })
    }

    /// `session.NAME`
    fn session_variable(&mut self) -> Option<super::super::ast::Name> {
        self.expect_word("session")?;
        self.expect_mark('.')?;
        self.name("a session variable")
    }

    /// `session.NAME` or `NAME`
    fn place(&mut self) -> Option<AssignTarget> {
        let in_session = self.word() == "session" && self.peek_at(1).kind == TokenKind::Mark('.');
        let name = if in_session { self.session_variable()? } else { self.name("a variable")? };
        Some(AssignTarget { in_session, name })
    }

    fn variable_statement(&mut self) -> Option<StatementKind> {
        let variable = self.parameter()?;
        if matches!(variable.ty, ValueType::List { .. }) && !self.is_mark('=') {
            return Some(StatementKind::Variable { variable, value: None });
        }
        self.expect_mark('=')?;
        Some(StatementKind::Variable { variable, value: Some(self.expression()?) })
    }

    fn let_statement(&mut self) -> Option<StatementKind> {
        let name = self.name("a name")?;
        self.expect_mark('=')?;
        let start = self.at;
        let value = match self.word() {
            "send" => {
                self.bump();
                Bound::Send(self.send_rest(start)?)
            }
            "receive" => {
                self.bump();
                let view = self.path("a view")?;
                let within = self.within_time()?;
                Bound::Receive { view, within, span: self.since(start) }
            }
            _ => Bound::Value(self.expression()?),
        };
        let plain = matches!(value, Bound::Value(_));
        if plain && self.word() == "else" && !self.else_leads_to_statement() {
            let Bound::Value(inner) = value else { return None };
            self.bump();
            let otherwise = Box::new(self.expression()?);
            let span = self.since(start);
            let kind =
                super::super::ast::ExpressionKind::Else { value: Box::new(inner), otherwise };
            let value = Bound::Value(Expression { kind, span });
            return Some(StatementKind::Let { name, value, otherwise: None });
        }
        Some(StatementKind::Let { name, value, otherwise: self.else_statement()? })
    }

    fn else_leads_to_statement(&self) -> bool {
        self.peek_at(1).kind == TokenKind::Mark('{')
            || (STARTS.contains(&self.word_at(1)) && self.peek_at(2).kind != TokenKind::Mark('.'))
    }

    /// `else STATEMENT`, if it is there.
    fn else_statement(&mut self) -> Option<Option<Box<Statement>>> {
        if !self.eat_word("else") {
            return Some(None);
        }
        self.statement().map(|statement| Some(Box::new(statement)))
    }

    /// `MESSAGE [to ROLE] [at ADDRESS] [within TIME]`
    fn send_rest(&mut self, start: usize) -> Option<Send> {
        let message = self.expression()?;
        self.send_behind(message, start)
    }

    fn send_behind(&mut self, message: Expression, start: usize) -> Option<Send> {
        let to = if self.eat_word("to") { Some(self.name("a role")?) } else { None };
        let at = if self.word() == "at" && self.word_at(1) != "most" {
            self.bump();
            Some(self.expression()?)
        } else {
            None
        };
        let within = self.within_time()?;
        Some(Send { message, to, at, within, span: self.since(start) })
    }

    fn within_time(&mut self) -> Option<Option<super::super::ast::Time>> {
        if !self.eat_word("within") {
            return Some(None);
        }
        self.time().map(Some)
    }

    fn if_statement(&mut self) -> Option<StatementKind> {
        let condition = self.condition()?;
        if !self.is_mark('{') {
            self.braces_are_missing();
            return None;
        }
        let then = self.statements()?;
        let mut otherwise = None;
        if self.eat_word("else") {
            otherwise = Some(if self.word() == "if" {
                if self.nesting >= super::NESTING_MAX {
                    let span = self.peek().span;
                    self.error(&codes::TOO_DEEP, span, "this chain of `else if` is too long");
                    return None;
                }
                self.nesting += 1;
                let statement = self.statement();
                self.nesting -= 1;
                vec![statement?]
            } else {
                self.statements()?
            });
        }
        Some(StatementKind::If { condition, then, otherwise })
    }

    /// `for each NAME in LIST { … }`, `for each NAME in OCTETS split by TEXT { … }` or
    /// `for each NAME in send MESSAGE to ROLE within TIME, at most N { … }`
    fn for_each(&mut self) -> Option<StatementKind> {
        self.expect_word("each")?;
        let name = self.name("a name for the element")?;
        self.expect_word("in")?;
        let start = self.at;
        if self.eat_word("send") {
            let send = self.send_rest(start)?;
            let max = self.comma_at_most(&["responses"])?;
            let body = self.statements()?;
            return Some(StatementKind::Gather { name, send, max, body });
        }
        let list = self.expression()?;
        if self.eat_words(&["split", "by"]) {
            let separator = self.plain_text("a text that separates")?;
            let body = self.statements()?;
            return Some(StatementKind::ForEachPart { name, of: list, separator, body });
        }
        Some(StatementKind::ForEach { name, list, body: self.statements()? })
    }
}

//! Parses `test "…" { … }`.

use super::super::ast::{Step, StepKind, Test};
use super::super::token::TokenKind;
use super::Parser;
use gatewright_diagnostic::nearest;

const VERBS: [&str; 4] = ["sends", "sees", "closes", "fresh"];

impl Parser<'_> {
    pub(super) fn test(&mut self) -> Option<Test> {
        let start = self.at;
        self.bump();
        let name = self.plain_text("what the test shows, in quotes")?;
        let span = self.since(start);
        let steps = self.block(Self::step)?;
        Some(Test { name: String::from_utf8_lossy(&name.value).into_owned(), span, steps })
    }

    fn step(&mut self) -> Option<Step> {
        let start = self.at;
        let kind = if self.word() == "pass" && self.peek_at(1).kind == TokenKind::Number {
            self.bump();
            StepKind::Pass(self.time()?)
        } else if self.word() == "parameter" && self.peek_at(2).kind == TokenKind::Mark('=') {
            self.bump();
            let name = self.name("a parameter")?;
            self.expect_mark('=')?;
            StepKind::Parameter(name, self.literal("a number or a text")?)
        } else {
            let role = self.name("a role, or `pass`")?;
            let verb = self.word().to_owned();
            if !VERBS.contains(&verb.as_str()) {
                self.unexpected("`sends`, `sees`, `closes` or `fresh`");
                self.suggest(nearest(&verb, VERBS).map(str::to_owned));
                return None;
            }
            self.bump();
            match (verb.as_str(), self.peek().kind) {
                ("sends", _) => StepKind::Sends(role, self.plain_text("what it sends")?),
                ("closes", _) => StepKind::Closes(role),
                ("fresh", _) => StepKind::Fresh(role, self.number("its next fresh number")?),
                (_, TokenKind::Text | TokenKind::Hex) => {
                    StepKind::SeesOctets(role, self.plain_text("what it sees")?)
                }
                _ if self.word() == "close" && self.peek_at(1).kind != TokenKind::Mark('(') => {
                    self.bump();
                    StepKind::SeesClose(role)
                }
                _ => StepKind::SeesMessage(role, self.call()?),
            }
        };
        Some(Step { kind, span: self.since(start) })
    }
}

//! Parses `protocol NAME = tcp, sync unicast { … }`.

use super::super::ast::{
    Answer, Answers, DispatchAction, DispatchCase, Name, Protocol, Request, Retransmit, Reuse,
    Sending, SendingValue, SharedClient, Time,
};
use super::Parser;
use crate::codes;
use crate::ir::TooLong;
use gatewright_diagnostic::{Diagnostic, nearest};

const SETTINGS: [&str; 15] = [
    "message",
    "idle",
    "connections",
    "request",
    "response",
    "flow",
    "sending",
    "malformed",
    "failed",
    "full",
    "retransmit",
    "duplicates",
    "server",
    "client",
    "allow",
];

impl Parser<'_> {
    pub(super) fn protocol(&mut self) -> Option<Protocol> {
        self.bump();
        let name = self.name("the protocol's name")?;
        self.expect_mark('=')?;
        let udp = self.one_of("tcp", "udp")?;
        self.expect_mark(',')?;
        let asynchronous = self.one_of("sync", "async")?;
        let multicast = self.one_of("unicast", "multicast")?;
        let mut protocol = Protocol {
            name,
            udp,
            asynchronous,
            multicast,
            message: None,
            idle: None,
            connections: None,
            requests: Vec::new(),
            response: None,
            flow: Vec::new(),
            sending: Vec::new(),
            malformed: None,
            too_long: Vec::new(),
            failed: None,
            full: None,
            retransmit: None,
            duplicates: None,
            allow_amplification: false,
            greeting: None,
            reuse: None,
            shared: None,
            opening: None,
        };
        self.block(|parser| parser.setting(&mut protocol))?;
        Some(protocol)
    }

    /// Whether the second word comes here, and not the first.
    fn one_of(&mut self, first: &str, second: &str) -> Option<bool> {
        if self.eat_word(first) {
            return Some(false);
        }
        if self.eat_word(second) {
            return Some(true);
        }
        self.unexpected(&format!("`{first}` or `{second}`"));
        None
    }

    fn setting(&mut self, protocol: &mut Protocol) -> Option<()> {
        let keyword = self.peek().span;
        let word = self.word().to_owned();
        if !SETTINGS.contains(&word.as_str()) {
            self.unexpected("a setting: `request`, `response`, `idle`, `connections`, …");
            self.suggest(nearest(&word, SETTINGS).map(str::to_owned));
            return None;
        }
        self.bump();
        let twice = match word.as_str() {
            "message" => protocol.message.replace(self.name("a message module")?).is_some(),
            "idle" => protocol.idle.replace(self.time()?).is_some(),
            "connections" => {
                let max = self.at_most(&["connections", "exchanges"])?;
                let Some(max) = max else {
                    self.unexpected("`at most`");
                    return None;
                };
                protocol.connections.replace(max).is_some()
            }
            "request" => {
                protocol.requests.push(self.request()?);
                false
            }
            "response" => protocol.response.replace(self.name("a view")?).is_some(),
            "flow" => {
                self.expect_word("by")?;
                protocol.flow.push(self.name("a field")?);
                while self.eat_mark(',') {
                    protocol.flow.push(self.name("a field")?);
                }
                false
            }
            "sending" => {
                protocol.sending.push(self.sending()?);
                false
            }
            "malformed" if self.word() == "too" => {
                let what = self.too_long()?;
                let answer = self.outcome()?;
                let twice = protocol.too_long.iter().any(|(other, _)| *other == what);
                protocol.too_long.push((what, answer));
                twice
            }
            "malformed" => protocol.malformed.replace(self.outcome()?).is_some(),
            "failed" => protocol.failed.replace(self.outcome()?).is_some(),
            "full" => protocol.full.replace(self.outcome()?).is_some(),
            "retransmit" => protocol.retransmit.replace(self.retransmit()?).is_some(),
            "duplicates" => protocol.duplicates.replace(self.duplicates()?).is_some(),
            "allow" => {
                self.expect_word("amplification")?;
                std::mem::replace(&mut protocol.allow_amplification, true)
            }
            "server" => self.block(|parser| parser.server_setting(protocol)).map(|_| false)?,
            _ => self.block(|parser| parser.client_setting(protocol)).map(|_| false)?,
        };
        if twice {
            let message = format!("`{word}` is said twice");
            self.found.push(Diagnostic::error(&codes::SAID_TWICE, keyword, message));
        }
        Some(())
    }

    fn server_setting(&mut self, protocol: &mut Protocol) -> Option<()> {
        self.expect_word("greeting")?;
        protocol.greeting = Some(self.call()?);
        Some(())
    }

    fn client_setting(&mut self, protocol: &mut Protocol) -> Option<()> {
        if self.eat_word("opening") {
            protocol.opening = Some(self.statements()?);
            return Some(());
        }
        if self.word() == "shared" {
            return self.shared(protocol);
        }
        self.expect_word("reuse")?;
        let Some(max) = self.at_most(&["connections", "connection"])? else {
            self.unexpected("`at most`");
            return None;
        };
        self.expect_mark(',')?;
        self.expect_word("idle")?;
        let idle = self.time()?;
        self.expect_mark(',')?;
        let each_response = if self.eat_words(&["after", "each", "response"]) {
            true
        } else if self.eat_words(&["when", "released"]) {
            false
        } else {
            self.unexpected("`after each response` or `when released`");
            return None;
        };
        protocol.reuse = Some(Reuse { max, idle, each_response });
        Some(())
    }

    /// `shared, at most N waiting`
    fn shared(&mut self, protocol: &mut Protocol) -> Option<()> {
        let span = self.peek().span;
        self.bump();
        let Some(waiting) = self.comma_at_most(&["waiting"])? else {
            self.unexpected("`, at most N waiting`");
            return None;
        };
        protocol.shared = Some(SharedClient { span, waiting });
        Some(())
    }

    /// `VIEW { when GUARD -> ACTION … otherwise -> ACTION }`
    fn request(&mut self) -> Option<Request> {
        let view = self.name("a view")?;
        let span = view.span;
        let cases = self.block(|parser| {
            let start = parser.at;
            let guard = if parser.eat_word("otherwise") {
                None
            } else {
                parser.expect_word("when")?;
                Some(parser.condition()?)
            };
            parser.expect_arrow()?;
            let action = parser.dispatch_action()?;
            Some(DispatchCase { guard, action, span: parser.since(start) })
        })?;
        Some(Request { view, cases, span })
    }

    fn dispatch_action(&mut self) -> Option<DispatchAction> {
        let is_answer = matches!(self.word(), "ignore" | "close")
            || self.peek_at(1).kind == super::TokenKind::Mark('(');
        if is_answer {
            return self.answer().map(DispatchAction::Answer);
        }
        let name = self.name("a handler, an answer, `ignore` or `close`")?;
        let answers = if self.eat_words(&["without", "response"]) {
            Answers::Never
        } else if self.eat_words(&["or", "ignore"]) {
            Answers::Perhaps
        } else {
            Answers::Always
        };
        Some(DispatchAction::Handler { name, answers })
    }

    /// `too long line`, `table` or `content`
    fn too_long(&mut self) -> Option<TooLong> {
        self.expect_word("too")?;
        self.expect_word("long")?;
        let what = TooLong::ALL.into_iter().find(|what| self.word() == what.word());
        match what {
            Some(_) => {
                self.bump();
            }
            None => self.unexpected("`line`, `table` or `content`"),
        }
        what
    }

    fn outcome(&mut self) -> Option<Answer> {
        self.expect_arrow()?;
        self.answer()
    }

    /// `ignore`, `close`, `reply(…)` or `reply(…), close`
    fn answer(&mut self) -> Option<Answer> {
        if self.eat_word("ignore") {
            return Some(Answer { message: None, close: false });
        }
        if self.eat_word("close") {
            return Some(Answer { message: None, close: true });
        }
        let message = Some(self.call()?);
        let close = self.is_mark(',') && self.word_at(1) == "close";
        if close {
            self.bump();
            self.bump();
        }
        Some(Answer { message, close })
    }

    /// `VIEW [to VIEW | after VIEW] { FIELD = fresh | request.FIELD | CONSTANT … }`
    fn sending(&mut self) -> Option<Sending> {
        let view = self.name("the view that is sent")?;
        let after = self.eat_word("after");
        let answers = after || self.eat_word("to");
        let to = if answers { Some(self.name("the request's view")?) } else { None };
        let assigns = self.block(|parser| {
            let field = parser.name("a private field")?;
            parser.expect_mark('=')?;
            let value = if parser.eat_word("fresh") {
                SendingValue::Fresh
            } else if parser.word() == "request" {
                parser.bump();
                parser.expect_mark('.')?;
                SendingValue::Request(parser.name("a field of the request")?)
            } else {
                SendingValue::Literal(parser.literal("`fresh`, `request.FIELD` or a constant")?)
            };
            Some((field, value))
        })?;
        Some(Sending { view, to, after, assigns })
    }

    /// `by FIELD, … for TIME`
    fn duplicates(&mut self) -> Option<(Vec<Name>, Time)> {
        self.expect_word("by")?;
        let mut fields = vec![self.name("a field of the request")?];
        while self.eat_mark(',') {
            fields.push(self.name("a field of the request")?);
        }
        self.expect_word("for")?;
        Some((fields, self.time()?))
    }

    /// `after TIME, doubling to TIME, N times`
    fn retransmit(&mut self) -> Option<Retransmit> {
        self.expect_word("after")?;
        let after = self.time()?;
        self.expect_mark(',')?;
        let doubling = self.eat_word("doubling");
        let mut to = None;
        if doubling {
            if self.eat_word("to") {
                to = Some(self.time()?);
            }
            self.expect_mark(',')?;
        }
        let times = self.number("how many times")?;
        self.expect_word("times")?;
        Some(Retransmit { after, doubling, to, times })
    }
}

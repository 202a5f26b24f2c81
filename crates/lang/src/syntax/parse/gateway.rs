//! Parses `gateway NAME { … }`.

use super::super::ast::{
    Definition, Gateway, Handler, Literal, Parameter, Role, Session, SessionBy, Start,
};
use super::super::token::TokenKind;
use super::Parser;
use crate::codes;
use gatewright_diagnostic::Diagnostic;

impl Parser<'_> {
    pub(super) fn gateway(&mut self) -> Option<Gateway> {
        self.bump();
        let name = self.name("the gateway's name")?;
        let mut gateway = Gateway {
            name,
            roles: Vec::new(),
            parameters: Vec::new(),
            session: None,
            handlers: Vec::new(),
            definitions: Vec::new(),
        };
        self.block(|parser| parser.gateway_member(&mut gateway))?;
        Some(gateway)
    }

    fn gateway_member(&mut self, gateway: &mut Gateway) -> Option<()> {
        match self.word() {
            "role" => gateway.roles.push(self.role()?),
            "parameter" => gateway.parameters.push(self.program_parameter()?),
            "session" => {
                let span = self.peek().span;
                if gateway.session.replace(self.session()?).is_some() {
                    let message = "a gateway has one session";
                    self.found.push(Diagnostic::error(&codes::SAID_TWICE, span, message));
                }
            }
            "on" | "every" => gateway.handlers.push(self.handler()?),
            "define" => gateway.definitions.push(self.definition()?),
            _ => {
                self.unexpected("`role`, `parameter`, `session`, `on`, `every` or `define`");
                return None;
            }
        }
        Some(())
    }

    /// `role NAME = PROTOCOL server at "HOST:PORT"` or `… client to "HOST:PORT"`
    fn role(&mut self) -> Option<Role> {
        self.bump();
        let name = self.name("the role's name")?;
        self.expect_mark('=')?;
        let protocol = self.name("a protocol")?;
        let client = match self.word() {
            "server" => false,
            "client" => true,
            _ => {
                self.unexpected("`server at` or `client to`");
                return None;
            }
        };
        self.bump();
        self.expect_word(if client { "to" } else { "at" })?;
        let address = self.plain_text("an address, as in `\"127.0.0.1:25\"`")?;
        Some(Role { name, protocol, client, address })
    }

    /// `parameter NAME: TYPE` or `parameter NAME: TYPE = DEFAULT`
    fn program_parameter(&mut self) -> Option<(Parameter, Option<Literal>)> {
        self.bump();
        let parameter = self.parameter()?;
        let default =
            if self.eat_mark('=') { Some(self.literal("a number or a text")?) } else { None };
        Some((parameter, default))
    }

    /// `session for each ROLE connection { … }`,
    /// `session by FIELD of ROLE, at most N, idle TIME { … }` or
    /// `session by value, each at most N octets, at most N, idle TIME { … }`
    fn session(&mut self) -> Option<Session> {
        let start = self.at;
        self.bump();
        if self.eat_words(&["for", "each"]) {
            let role = self.name("a role")?;
            self.expect_word("connection")?;
            let span = self.since(start);
            let variables = self.block(Self::parameter)?;
            let key = SessionBy::Connection(role);
            return Some(Session { span, key, max: None, idle: None, variables });
        }
        self.expect_word("by")?;
        let key = self.session_key()?;
        let max = self.comma_at_most(&["sessions"])?;
        let mut idle = None;
        if self.is_mark(',') && self.word_at(1) == "idle" {
            self.bump();
            self.bump();
            idle = Some(self.time()?);
        }
        let span = self.since(start);
        let variables = self.block(Self::parameter)?;
        Some(Session { span, key, max, idle, variables })
    }

    /// `FIELD, … of ROLE` or `value, each at most N octets`
    fn session_key(&mut self) -> Option<SessionBy> {
        if self.word() == "value" && !(self.word_at(1) == "of" || self.names_follow()) {
            self.bump();
            return Some(SessionBy::Value(self.comma_each()?));
        }
        let mut fields = vec![self.name("a field of the request")?];
        while self.eat_mark(',') {
            fields.push(self.name("a field of the request")?);
        }
        self.expect_word("of")?;
        Some(SessionBy::Fields(fields, self.name("a role")?))
    }

    /// Whether more fields follow the first one, rather than a limit.
    fn names_follow(&self) -> bool {
        self.peek_at(1).kind == TokenKind::Mark(',')
            && !matches!(self.word_at(2), "each" | "at" | "idle")
    }

    /// `on NAME, ROLE.NAME(PARAMETER) { … }` or `every TIME { … }`
    fn handler(&mut self) -> Option<Handler> {
        let start = self.at;
        let starts = if self.eat_word("every") {
            Start::Every(self.time()?)
        } else {
            self.bump();
            let mut names = Vec::new();
            loop {
                let path = self.path("a handler's name")?;
                names.push((path.module, path.name));
                if !self.eat_mark(',') {
                    break;
                }
            }
            self.expect_mark('(')?;
            let parameter = self.name("a name for the request")?;
            self.expect_mark(')')?;
            Start::Request { names, parameter }
        };
        let span = self.since(start);
        let body = self.statements()?;
        Some(Handler { span, starts, body, end: self.last() })
    }

    /// `define NAME(PARAMETER: TYPE, …) -> VIEW { … }`
    fn definition(&mut self) -> Option<Definition> {
        self.bump();
        let name = self.name("the definition's name")?;
        let parameters = self.parameters()?;
        self.expect_arrow()?;
        let returns = self.path("the view that is returned")?;
        let body = self.statements()?;
        Some(Definition { name, parameters, returns, body, end: self.last() })
    }

    fn last(&self) -> gatewright_diagnostic::Span {
        self.since(self.at.saturating_sub(1))
    }
}

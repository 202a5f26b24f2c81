//! Parses `message NAME { … }`.

use super::super::ast::{
    Frame, Layout, LineFrame, ListElement, Literal, MessageModule, Name, Parameter, Template,
    TemplateBody, ValueType,
};
use super::super::token::TokenKind;
use super::Parser;

enum Member {
    Constant(Name, Literal),
    Part(Layout),
    View(Layout),
    Template(Template),
}

impl Parser<'_> {
    pub(super) fn message_module(&mut self) -> Option<MessageModule> {
        self.bump();
        let name = self.name("the module's name")?;
        let mut module = MessageModule {
            name,
            constants: Vec::new(),
            parts: Vec::new(),
            views: Vec::new(),
            templates: Vec::new(),
        };
        for member in self.block(Self::member)? {
            match member {
                Member::Constant(name, value) => module.constants.push((name, value)),
                Member::Part(part) => module.parts.push(part),
                Member::View(view) => module.views.push(view),
                Member::Template(template) => module.templates.push(template),
            }
        }
        Some(module)
    }

    fn member(&mut self) -> Option<Member> {
        match self.word() {
            "constant" => {
                self.bump();
                let name = self.name("the constant's name")?;
                self.expect_mark('=')?;
                Some(Member::Constant(name, self.literal("a number or a text")?))
            }
            "part" => self.layout().map(Member::Part),
            "view" => self.layout().map(Member::View),
            "template" => self.template().map(Member::Template),
            _ => {
                self.unexpected("`view`, `part`, `template` or `constant`");
                None
            }
        }
    }

    /// `view NAME = FRAME { ITEM… }`
    fn layout(&mut self) -> Option<Layout> {
        self.bump();
        let name = self.name("the layout's name")?;
        self.expect_mark('=')?;
        let frame = match self.word() {
            "line" => Frame::Line(self.line_frame()?),
            "datagram" => {
                self.bump();
                Frame::Datagram(self.comma_at_most(&["octets", "octet"])?)
            }
            _ => Frame::Plain,
        };
        Some(Layout { name, frame, items: self.block(Self::item)? })
    }

    /// `line, at most N octets, repeated while GUARD, at most N times`
    pub(super) fn line_frame(&mut self) -> Option<LineFrame> {
        let span = self.bump().span;
        let max = self.comma_at_most(&["octets", "octet"])?;
        let folded = self.is_mark(',') && self.word_at(1) == "folded";
        if folded {
            self.bump();
            self.bump();
        }
        let mut repeat = None;
        if self.is_mark(',') && self.word_at(1) == "repeated" {
            self.bump();
            self.bump();
            self.expect_word("while")?;
            let guard = self.condition()?;
            repeat = Some((guard, self.comma_at_most(&["times"])?));
        }
        Some(LineFrame { span, max, folded, repeat })
    }

    /// `template NAME(HOLE…) = VIEW(…)` or `template NAME(HOLE…) as VIEW = "…"`
    fn template(&mut self) -> Option<Template> {
        self.bump();
        let name = self.name("the template's name")?;
        let holes = self.parameters()?;
        if self.eat_word("as") {
            let view = self.name("the view that it writes")?;
            self.expect_mark('=')?;
            if self.peek().kind != TokenKind::Text {
                self.unexpected("a text with holes");
                return None;
            }
            let start = self.at;
            let pieces = self.pieces()?;
            let body = TemplateBody::Text { view, pieces, span: self.since(start) };
            return Some(Template { name, holes, body });
        }
        self.expect_mark('=')?;
        Some(Template { name, holes, body: TemplateBody::Build(self.call()?) })
    }

    /// `(NAME: TYPE, …)`
    pub(super) fn parameters(&mut self) -> Option<Vec<Parameter>> {
        self.expect_mark('(')?;
        let mut parameters = Vec::new();
        while !self.eat_mark(')') {
            parameters.push(self.parameter()?);
            if !self.eat_mark(',') && !self.is_mark(')') {
                self.unexpected("`,` or `)`");
                return None;
            }
        }
        Some(parameters)
    }

    /// `NAME: TYPE`
    pub(super) fn parameter(&mut self) -> Option<Parameter> {
        let name = self.name("a name")?;
        self.expect_mark(':')?;
        let start = self.at;
        let ty = match (self.peek().kind, self.word()) {
            _ if self.is_number_at(0) => {
                let (low, high) = self.bounds()?;
                ValueType::Int { low, high }
            }
            (_, "fragment") => {
                self.bump();
                let max = self.comma_at_most(&["octets", "octet"])?;
                ValueType::Fragment { max, span: self.since(start) }
            }
            (_, "list") => {
                self.bump();
                self.expect_word("of")?;
                let element = if self.is_number_at(0) {
                    let (low, high) = self.bounds()?;
                    ListElement::Int { low, high }
                } else if self.eat_words(&["peer", "of"]) {
                    ListElement::Peer(self.name("a role")?)
                } else {
                    self.expect_word("fragment")?;
                    ListElement::Fragment
                };
                let max = self.comma_at_most(&["elements", "entries", "peers"])?;
                let each = self.comma_each()?;
                ValueType::List { element, max, each, span: self.since(start) }
            }
            (_, "stream") => {
                self.bump();
                ValueType::Stream
            }
            (_, "peer") if self.word_at(1) == "of" => {
                self.at += 2;
                ValueType::Peer(self.name("a role")?)
            }
            (TokenKind::Word, _) => ValueType::View(self.path("a view")?),
            _ => {
                self.unexpected("a type: `0..255`, `fragment`, `list of …`, `stream` or a view");
                return None;
            }
        };
        Some(Parameter { name, ty })
    }

    /// `LOW..HIGH`
    fn bounds(&mut self) -> Option<(super::super::ast::Number, super::super::ast::Number)> {
        let low = self.signed_number("the least value")?;
        if self.peek().kind != TokenKind::Range {
            self.unexpected("`..` and the greatest value, as in `0..255`");
            return None;
        }
        self.bump();
        Some((low, self.signed_number("the greatest value")?))
    }
}

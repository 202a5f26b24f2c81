//! Lowers the tree to the typed program: names, types, limits, and the code of parsers, serializers
//! and handlers.

mod body;
mod bounds;
mod build;
mod condition;
mod dead;
mod emit;
mod env;
mod fields;
mod follow;
mod gateway;
mod guard;
mod layout;
mod octets;
mod parameter;
mod peers;
mod role;
mod scope;
mod send;
mod session;
mod statement;
mod test;
mod tidy;
mod trail;
mod value;
mod variable;

use crate::codes;
use crate::ir::{Guard, LiteralId, Message, MessageId, Program, SlotId};
use crate::syntax::ast::{File, Literal, MessageModule, Name, Protocol, Template};
use gatewright_diagnostic::{Code, Diagnostic, Span, nearest};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum of any size held at once, in octets or elements.
const HELD_MAX: i64 = 1 << 20;

/// All files of one program.
pub(crate) struct World<'a> {
    modules: BTreeMap<&'a str, &'a MessageModule>,
    protocols: BTreeMap<&'a str, &'a Protocol>,
    files: &'a [File],
}

/// State while a program is lowered.
pub(crate) struct Context<'a> {
    world: &'a World<'a>,
    found: Vec<Diagnostic>,
    literals: Vec<Vec<u8>>,
    interned: BTreeMap<Vec<u8>, LiteralId>,
    messages: Vec<Message>,
    /// (module, view or text template) to message.
    ids: BTreeMap<(&'a str, &'a str), MessageId>,
    /// For each message, the constants for unfilled slots.
    defaults: Vec<Vec<(SlotId, Constant)>>,
    /// For each message, the slots that are mandatory where a guard holds.
    needed: Vec<Vec<(Guard, SlotId)>>,
    /// For each message, the view that it is written as: itself, except for text templates.
    views: Vec<MessageId>,
}

/// A value that is known before the program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Constant {
    Int(i64),
    Octets(LiteralId),
}

/// Lowers the files, the first of which is the requested one; `None` if it has no gateway, or if
/// there is an error.
pub(crate) fn lower(files: &[File]) -> (Option<Program>, Vec<Diagnostic>) {
    let mut found = Vec::new();
    let world = World::new(files, &mut found);
    let mut context = Context {
        world: &world,
        found,
        literals: Vec::new(),
        interned: BTreeMap::new(),
        messages: Vec::new(),
        ids: BTreeMap::new(),
        defaults: Vec::new(),
        views: Vec::new(),
        needed: Vec::new(),
    };
    context.layouts();
    let program = context.gateway();
    (program, once(context.found))
}

/// Each finding once, without those that only follow from a missing limit.
fn once(found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let unlimited = found.iter().any(|of| of.code == &codes::NO_LIMIT);
    let mut known = BTreeSet::new();
    let mut kept: Vec<Diagnostic> = Vec::new();
    for diagnostic in found {
        let span = diagnostic.primary.span;
        let follows = unlimited && diagnostic.code == &codes::TOO_LONG;
        let place = (diagnostic.code.number, span.source, span.start, span.end);
        if !follows && known.insert(place) {
            kept.push(diagnostic);
        }
    }
    kept
}

impl<'a> World<'a> {
    fn new(files: &'a [File], found: &mut Vec<Diagnostic>) -> Self {
        let mut world = Self { modules: BTreeMap::new(), protocols: BTreeMap::new(), files };
        for file in files {
            for module in &file.messages {
                if let Some(other) = world.modules.insert(&module.name.text, module) {
                    found.push(twice(&module.name, other.name.span));
                }
            }
            for protocol in &file.protocols {
                if let Some(other) = world.protocols.insert(&protocol.name.text, protocol) {
                    found.push(twice(&protocol.name, other.name.span));
                }
            }
        }
        world
    }
}

/// The finding that a name is already in use.
fn twice(name: &Name, before: Span) -> Diagnostic {
    let message = format!("`{}` is declared twice", name.text);
    Diagnostic::error(&codes::DECLARED_TWICE, name.span, message).also(before, "first here")
}

impl<'a> Context<'a> {
    fn error(&mut self, code: &'static Code, span: Span, message: impl Into<String>) {
        self.found.push(Diagnostic::error(code, span, message));
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// The finding that a name is unknown, with the nearest known name.
    fn unknown<'n>(&mut self, what: &str, name: &Name, known: impl IntoIterator<Item = &'n str>) {
        let message = format!("there is no {what} `{}`", name.text);
        let mut diagnostic = Diagnostic::error(&codes::UNKNOWN_NAME, name.span, message);
        if let Some(near) = nearest(&name.text, known) {
            diagnostic = diagnostic.fix(name.span, near, &format!("write `{near}`"));
        }
        self.report(diagnostic);
    }

    fn literal(&mut self, octets: &[u8]) -> LiteralId {
        if let Some(id) = self.interned.get(octets) {
            return *id;
        }
        let id = LiteralId::new(self.literals.len());
        self.literals.push(octets.to_vec());
        self.interned.insert(octets.to_vec(), id);
        id
    }

    fn octets(&self, id: LiteralId) -> &[u8] {
        self.literals.get(id.index()).map_or(&[], Vec::as_slice)
    }

    fn message(&self, id: MessageId) -> Option<&Message> {
        self.messages.get(id.index())
    }

    /// The value of a constant of a module.
    fn constant(&mut self, module: &'a MessageModule, literal: &Literal) -> Option<Constant> {
        match literal {
            Literal::Number(number) => Some(Constant::Int(number.value)),
            Literal::Octets(octets) => Some(Constant::Octets(self.literal(&octets.value))),
            Literal::Name(name) => {
                let declared = module.constants.iter().find(|(of, _)| of.text == name.text);
                match declared {
                    Some((_, Literal::Number(number))) => Some(Constant::Int(number.value)),
                    Some((_, Literal::Octets(octets))) => {
                        Some(Constant::Octets(self.literal(&octets.value)))
                    }
                    Some((_, Literal::Name(other))) => {
                        let message = "a constant is a number or a text";
                        self.error(&codes::NOT_CONSTANT, other.span, message);
                        None
                    }
                    None => {
                        let known = module.constants.iter().map(|(name, _)| name.text.as_str());
                        self.unknown("constant", name, known);
                        None
                    }
                }
            }
        }
    }

    /// A limit as a number that can be held.
    fn limit(&mut self, number: Option<crate::syntax::ast::Number>) -> Option<u32> {
        let number = number?;
        if (1..=HELD_MAX).contains(&number.value) {
            return u32::try_from(number.value).ok();
        }
        let message = format!("{} is not between 1 and {HELD_MAX}", number.value);
        self.error(&codes::LIMIT_TOO_BIG, number.span, message);
        Some(1)
    }

    fn template(&self, module: &str, name: &str) -> Option<(&'a MessageModule, &'a Template)> {
        let module = self.world.modules.get(module).copied()?;
        let template = module.templates.iter().find(|template| template.name.text == name)?;
        Some((module, template))
    }
}

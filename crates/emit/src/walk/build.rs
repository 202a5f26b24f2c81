//! Builds messages, and the values that fill them.

use crate::code::{Expr, RecordType, Stmt};
use gatewright_lang::ir::{
    Build, Handler, HandlerKind, MessageId, Operand, ParameterBounds, Program, RegisterId,
    RegisterType, RoleId, SlotId, SlotType,
};

/// The kind of an operand, known before the program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OperandKind {
    Number,
    Octets,
    List,
    Stream,
    Message,
    /// A number that no other exchange uses.
    Fresh,
    Unknown,
}

/// The scope of operands: a handler, or an answer of the protocol.
pub(crate) struct Scope<'s> {
    pub(crate) program: &'s Program,
    pub(crate) records: &'s [RecordType],
    pub(crate) handler: Option<(&'s Handler, &'s [String])>,
}

impl Scope<'_> {
    pub(crate) fn register(&self, id: RegisterId) -> Expr {
        Expr::Slot("v".to_owned(), self.register_name(id))
    }

    fn register_name(&self, id: RegisterId) -> String {
        let names = self.handler.map(|(_, names)| names).unwrap_or_default();
        names.get(id.index()).cloned().unwrap_or_default()
    }

    fn record_slot(&self, message: MessageId, slot: SlotId) -> Option<(String, String)> {
        let record = self.records.get(message.index())?;
        Some((record.name.clone(), record.slots.get(slot.index())?.clone()))
    }

    /// A slot of the message being built.
    pub(crate) fn built(&self, message: MessageId, slot: SlotId) -> Option<Expr> {
        let (record, slot) = self.record_slot(message, slot)?;
        Some(Expr::Built(record, slot))
    }

    /// The message in a handler's value.
    fn message_in(&self, id: RegisterId) -> Option<MessageId> {
        match self.handler?.0.registers.get(id.index())?.ty {
            RegisterType::View(message) => Some(message),
            _ => None,
        }
    }

    /// The view of the request that a handler answers, and the value that it is in.
    fn asked(&self) -> Option<RegisterId> {
        match self.handler?.0.kind {
            HandlerKind::Request { .. } => Some(RegisterId::new(0)),
            _ => None,
        }
    }

    fn inside(&self, view: RegisterId, slot: SlotId) -> Option<Expr> {
        let (record, slot) = self.record_slot(self.message_in(view)?, slot)?;
        Some(Expr::Inside(record, self.register_name(view), slot))
    }

    /// The slot of an operand; `None` for a constant.
    pub(crate) fn slot(&self, operand: Operand) -> Option<Expr> {
        match operand {
            Operand::Register(register) => Some(self.register(register)),
            Operand::Slot { view, slot } => self.inside(view, slot),
            Operand::Request(slot) => Some(match self.asked() {
                Some(view) => self.inside(view, slot)?,
                None => Expr::Call("asked", vec![Expr::local("b"), index(slot.index())]),
            }),
            Operand::Session(slot) => {
                Some(Expr::Call("variable", vec![Expr::local("t"), index(slot.index())]))
            }
            Operand::Parameter(id) => Some(Expr::Parameter(id.index())),
            Operand::Kept(at) => Some(Expr::Call("kept", vec![Expr::local("t"), Expr::number(at)])),
            Operand::Int(_) | Operand::Literal(_) | Operand::Peers(_) | Operand::Fresh => None,
        }
    }

    pub(crate) fn kind(&self, operand: Operand) -> OperandKind {
        let of_slot = |ty: &SlotType| match ty {
            SlotType::Int { .. } => OperandKind::Number,
            SlotType::Octets { .. } => OperandKind::Octets,
            SlotType::List { .. } => OperandKind::List,
            SlotType::Stream => OperandKind::Stream,
        };
        let in_message = |message: MessageId, slot: SlotId| {
            self.program.message(message).and_then(|of| of.slot(slot)).map(|slot| of_slot(&slot.ty))
        };
        let kind = match operand {
            Operand::Int(_) | Operand::Peers(_) => Some(OperandKind::Number),
            Operand::Kept(_) => None,
            Operand::Parameter(id) => {
                self.program.parameter(id).map(|parameter| match parameter.bounds {
                    ParameterBounds::Int { .. } => OperandKind::Number,
                    ParameterBounds::Octets { .. } => OperandKind::Octets,
                })
            }
            Operand::Literal(_) => Some(OperandKind::Octets),
            Operand::Fresh => Some(OperandKind::Fresh),
            Operand::Register(id) => {
                let ty = self.handler.and_then(|of| of.0.registers.get(id.index()));
                ty.map(|register| match register.ty {
                    RegisterType::Int { .. } => OperandKind::Number,
                    RegisterType::Octets { .. } => OperandKind::Octets,
                    RegisterType::View(_) => OperandKind::Message,
                    RegisterType::List { .. } => OperandKind::List,
                })
            }
            Operand::Slot { view, slot } => {
                self.message_in(view).and_then(|message| in_message(message, slot))
            }
            Operand::Request(slot) => self
                .asked()
                .and_then(|view| self.message_in(view))
                .and_then(|message| in_message(message, slot)),
            Operand::Session(slot) => {
                let session = self.program.session.as_ref();
                let slot = session.and_then(|session| session.slots.get(slot.index()));
                slot.map(|slot| of_slot(&slot.ty))
            }
        };
        kind.unwrap_or(OperandKind::Unknown)
    }

    pub(crate) fn number(&self, operand: Operand) -> Expr {
        match (operand, self.slot(operand)) {
            (Operand::Int(value), _) => Expr::Int(value),
            (Operand::Peers(peers), _) => {
                Expr::Call("stored", vec![Expr::local("t"), index(peers.index())])
            }
            (_, Some(slot)) if self.kind(operand) == OperandKind::Number => {
                Expr::Call("number", vec![slot])
            }
            _ => Expr::Int(0),
        }
    }

    pub(crate) fn text(&self, operand: Operand) -> Expr {
        match (operand, self.slot(operand)) {
            (Operand::Literal(literal), _) => Expr::Text(literal),
            (_, Some(slot)) if self.kind(operand) == OperandKind::Octets => {
                Expr::Call("text_of", vec![slot])
            }
            _ => Expr::Constant("NO_TEXT"),
        }
    }

    /// A call in the form for a slot, a number or a text.
    pub(crate) fn by_kind(
        &self,
        functions: [&'static str; 3],
        mut before: Vec<Expr>,
        operand: Operand,
    ) -> Expr {
        let [slot, number, text] = functions;
        let (function, value) = match (operand, self.slot(operand)) {
            (Operand::Int(value), _) => (number, Expr::Int(value)),
            (Operand::Literal(literal), _) => (text, Expr::Text(literal)),
            (_, Some(value)) => (slot, value),
            (_, None) => (number, self.number(operand)),
        };
        before.push(value);
        Expr::Call(function, before)
    }

    /// Builds a message that goes out by a role; without memory, returns a value from the function.
    pub(crate) fn build(&self, build: &Build, role: RoleId, leave: Expr) -> Vec<Stmt> {
        let b = || Expr::local("b");
        let message = Expr::Message(build.message.index());
        let begin = Expr::Call("begin", vec![b(), index(role.index()), message]);
        let mut body = vec![Stmt::Ensure(begin, leave)];
        for hole in &build.holes {
            let Some((record, slot)) = self.record_slot(build.message, hole.slot) else { continue };
            let before = vec![b(), Expr::Built(record, slot)];
            let fill = match (self.kind(hole.value), self.slot(hole.value)) {
                (OperandKind::Fresh, _) => Expr::Call("fill_fresh", before),
                (OperandKind::Stream, Some(stream)) => {
                    body.extend(self.stream(hole.value, before, stream));
                    continue;
                }
                _ => self.by_kind(["fill", "fill_number", "fill_text"], before, hole.value),
            };
            body.push(Stmt::Do(fill));
        }
        body
    }

    /// Passes the stream of a message on, if the message has one.
    fn stream(&self, operand: Operand, mut before: Vec<Expr>, stream: Expr) -> Option<Stmt> {
        let view = match operand {
            Operand::Slot { view, .. } => view,
            Operand::Request(_) => self.asked()?,
            _ => return None,
        };
        before.push(self.register(view));
        let fill = Stmt::Do(Expr::Call("fill_stream", before));
        Some(Stmt::If(Expr::Call("is_set", vec![stream]), vec![fill], vec![]))
    }
}

/// An index; every index is far below any bound.
pub(crate) fn index(index: usize) -> Expr {
    Expr::Int(i64::try_from(index).unwrap_or(i64::MAX))
}

//! Builds a handler's graph: blocks, registers, names, edges for absent values.

use super::Context;
use super::env::Env;
use super::scope::{Flow, Local, SessionState, Ty, Value};
use super::statement::EnclosingLoop;
use super::trail::{self, SessionTrail};
use crate::codes;
use crate::ir::{
    Block, BlockId, Fold, Handler, HandlerKind, Instruction, MessageId, Operand, Partial, Register,
    RegisterId, RegisterType, RoleId, SlotId, Statement, Terminator,
};
use crate::syntax::ast::{Answers, MessageModule, Name};
use gatewright_diagnostic::{Diagnostic, Span};

/// A graph under construction.
pub(super) struct Body<'c, 'a> {
    pub(super) context: &'c mut Context<'a>,
    pub(super) env: &'c Env<'a>,
    pub(super) purpose: BodyPurpose,
    registers: Vec<Register>,
    blocks: Vec<Draft>,
    current: BlockId,
    /// Whether control can reach the current position.
    pub(super) reachable: bool,
    pub(super) scope: Vec<Local>,
    /// Modules in which names of messages and constants are looked up.
    pub(super) modules: Vec<&'a MessageModule>,
    pub(super) flow: Flow,
    /// Targets for absent values; `None` forbids absence.
    edges: Vec<Option<Edge>>,
    /// Definitions that are being inlined.
    pub(super) inlining: Vec<&'a str>,
    /// The loops around the current statement.
    pub(super) loops: Vec<EnclosingLoop>,
    /// The registers of variables: their values may change.
    pub(super) variables: Vec<RegisterId>,
    /// Whether the connection ends after the value returned here.
    pub(super) closing: bool,
    /// Why session variables may be absent.
    pub(super) trail: SessionTrail,
}

/// Purpose of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyPurpose {
    /// The server role that received the request.
    pub(super) server: Option<RoleId>,
    /// The view of its request.
    pub(super) request: Option<MessageId>,
    /// The client role of the new connection.
    pub(super) opening: Option<RoleId>,
    /// Whether a response is required.
    pub(super) answers: Answers,
}

struct Draft {
    statements: Vec<Statement>,
    terminator: Option<Terminator>,
    span: Span,
}

/// The edge for an absent value, created on demand.
struct Edge {
    block: Option<BlockId>,
}

impl<'c, 'a> Body<'c, 'a> {
    pub(super) fn new(
        context: &'c mut Context<'a>,
        env: &'c Env<'a>,
        purpose: BodyPurpose,
        span: Span,
    ) -> Self {
        let session = env.connection_session(purpose.server);
        Self {
            context,
            env,
            purpose,
            registers: Vec::new(),
            blocks: vec![Draft { statements: Vec::new(), terminator: None, span }],
            current: BlockId::new(0),
            reachable: true,
            scope: Vec::new(),
            modules: env.modules.clone(),
            flow: Flow {
                facts: Vec::new(),
                awaited: Vec::new(),
                session: if session { SessionState::Open } else { SessionState::NotOpen },
            },
            edges: Vec::new(),
            inlining: Vec::new(),
            loops: Vec::new(),
            variables: Vec::new(),
            closing: false,
            trail: SessionTrail::default(),
        }
    }

    /// The finished handler.
    pub(super) fn finish(self, name: String, span: Span, kind: HandlerKind) -> Handler {
        let block = |draft: Draft| Block {
            statements: draft.statements,
            terminator: draft.terminator.unwrap_or(Terminator::Fail),
            span: draft.span,
        };
        let blocks = super::tidy::tidy(self.blocks.into_iter().map(block).collect());
        Handler { name, span, kind, registers: self.registers, blocks }
    }

    /// Whether the result is only a constant.
    pub(super) fn is_constant(&self) -> bool {
        let empty = |block: &Draft| block.statements.is_empty() && block.terminator.is_none();
        self.blocks.len() == 1 && self.blocks.iter().all(empty)
    }

    // -- Blocks.

    pub(super) fn new_block(&mut self, span: Span) -> BlockId {
        self.blocks.push(Draft { statements: Vec::new(), terminator: None, span });
        BlockId::new(self.blocks.len() - 1)
    }

    pub(super) fn go_on_in(&mut self, block: BlockId) {
        self.current = block;
    }

    pub(super) fn current(&self) -> BlockId {
        self.current
    }

    pub(super) fn push(&mut self, operation: Instruction, span: Span) {
        if let Some(block) = self.blocks.get_mut(self.current.index()) {
            block.statements.push(Statement { operation, span });
        }
    }

    /// Ends the current block.
    pub(super) fn end(&mut self, terminator: Terminator, span: Span) {
        if let Some(block) = self.blocks.get_mut(self.current.index()) {
            block.terminator.get_or_insert(terminator);
            block.span = span;
        }
    }

    /// Ends the current block and the path.
    pub(super) fn leave(&mut self, terminator: Terminator, span: Span) {
        self.end(terminator, span);
        self.reachable = false;
    }

    // -- Registers and names.

    pub(super) fn register(&mut self, name: &str, span: Span, ty: RegisterType) -> RegisterId {
        self.registers.push(Register { name: name.to_owned(), span, ty });
        RegisterId::new(self.registers.len() - 1)
    }

    /// Case folding of a message's field; other values have none.
    pub(super) fn fold_of(&self, operand: Operand) -> Fold {
        let Operand::Slot { view, slot } = operand else { return Fold::Keep };
        let message = match self.registers.get(view.index()).map(|register| register.ty) {
            Some(RegisterType::View(message)) => self.context.message(message),
            _ => None,
        };
        message.and_then(|message| message.slot(slot)).map_or(Fold::Keep, |slot| slot.fold)
    }

    pub(super) fn retype(&mut self, register: RegisterId, to: RegisterType) {
        if let Some(register) = self.registers.get_mut(register.index()) {
            register.ty = to;
        }
    }

    /// A new register for a value of the type; `None` for lists of several columns and streams.
    pub(super) fn register_for(&mut self, name: &str, ty: &Ty, span: Span) -> Option<RegisterId> {
        let ty = match ty {
            Ty::Int { low, high } => RegisterType::Int { low: *low, high: *high },
            Ty::Octets { max } => RegisterType::Octets { max: *max },
            Ty::View(message) => RegisterType::View(*message),
            Ty::Unknown => RegisterType::Octets { max: 0 },
            Ty::List { columns, max } => match columns.as_slice() {
                [(_, column)] => RegisterType::List { column: *column, max: *max },
                _ => return None,
            },
            Ty::Stream | Ty::Peers { .. } | Ty::Element(_) => return None,
        };
        Some(self.register(name, span, ty))
    }

    /// Names a value.
    pub(super) fn bind(&mut self, name: &Name, value: Value) {
        if let Some(other) = self.scope.iter().find(|local| local.name.text == name.text) {
            let diagnostic = super::twice(name, other.name.span);
            self.context.report(diagnostic);
            self.scope.retain(|local| local.name.text != name.text);
        }
        if let Some(other) = self.env.parameters.iter().find(|of| of.name == name.text) {
            let diagnostic = super::twice(name, other.span);
            self.context.report(diagnostic);
        }
        self.scope.push(Local { name: name.clone(), value, used: false });
    }

    pub(super) fn local(&mut self, name: &str) -> Option<Value> {
        let local = self.scope.iter_mut().rev().find(|local| local.name.text == name)?;
        local.used = true;
        Some(local.value.clone())
    }

    /// Forgets the names since `mark`, and reports unused ones.
    pub(super) fn forget(&mut self, mark: usize) {
        for local in self.scope.split_off(mark.min(self.scope.len())) {
            if !local.used && !local.name.text.starts_with('_') {
                let message = format!("`{}` is never used", local.name.text);
                let name = format!("_{}", local.name.text);
                let help = format!("write `{name}` if that is meant");
                self.context.report(
                    Diagnostic::warning(&codes::UNUSED, local.name.span, message).fix(
                        local.name.span,
                        name,
                        &help,
                    ),
                );
            }
        }
    }

    // -- Absent values.

    /// Directs absent values to a separate edge, until [`Self::take_edge`].
    pub(super) fn open_edge(&mut self) {
        self.edges.push(Some(Edge { block: None }));
    }

    /// Forbids absent values, until [`Self::take_edge`].
    pub(super) fn forbid_edge(&mut self) {
        self.edges.push(None);
    }

    /// The edge, if a value needed it.
    pub(super) fn take_edge(&mut self) -> Option<BlockId> {
        self.edges.pop().flatten().and_then(|edge| edge.block)
    }

    fn edge(&mut self, span: Span) -> Option<BlockId> {
        let block = match self.edges.last() {
            Some(Some(Edge { block: Some(block) })) => return Some(*block),
            Some(Some(_)) => self.new_block(span),
            _ => return None,
        };
        if let Some(Some(edge)) = self.edges.last_mut() {
            edge.block = Some(block);
        }
        Some(block)
    }

    /// Evaluates a value that may be absent; control continues with the result, or takes the absent
    /// edge.
    pub(super) fn attempt(&mut self, partial: Partial, ty: &Ty, span: Span) -> Option<Value> {
        let Some(absent) = self.edge(span) else {
            let of = match &partial {
                Partial::Value(operand) => Some(*operand),
                _ => None,
            };
            self.may_be_absent(of, span);
            return None;
        };
        let into = self.register_for("", ty, span)?;
        let present = self.new_block(span);
        self.end(Terminator::Try { partial, into, present, absent }, span);
        self.go_on_in(present);
        let operand = Operand::Register(into);
        Some(Value { operand, ty: ty.clone(), optional: false, span })
    }

    /// Reports a value of the wrong type, unless another error caused it.
    pub(super) fn wrong_type(&mut self, ty: &Ty, span: Span, message: String) {
        if *ty != Ty::Unknown {
            self.context.error(&codes::WRONG_TYPE, span, message);
        }
    }

    /// Reports a value that is used though it may be absent; of a session variable, why it may be.
    fn may_be_absent(&mut self, of: Option<Operand>, span: Span) {
        let env = self.env;
        let session = env.session.as_ref();
        let variable = of.and_then(|of| match of {
            Operand::Session(slot) => Some((slot, session?.slots.get(slot.index())?.name.as_str())),
            _ => None,
        });
        let Some((slot, name)) = variable else {
            self.context.report(
                Diagnostic::error(&codes::MAY_BE_ABSENT, span, "this may be absent")
                    .help("say what happens then: `let x = … else return …`, or `(… else …)`"),
            );
            return;
        };
        let message = format!("the session variable `{name}` may be absent here");
        let mut found = Diagnostic::error(&codes::MAY_BE_ABSENT, span, message);
        for (place, remark) in self.trail.remarks(slot) {
            found = found.also(place, remark);
        }
        let mut help = format!(
            "say what happens then: `let {name} = session.{name} else return …`, or \
             `(session.{name} else …)`"
        );
        if self.trail.is_assigned(slot) {
            let kept = format!(
                "; or use the value itself: `let {name} = …`, then `session.{name} = {name}`"
            );
            help.push_str(&kept);
        }
        self.context.report(found.help(help));
    }

    /// The value, guaranteed to be set.
    pub(super) fn require(&mut self, value: Value) -> Option<Value> {
        if !value.optional || self.flow.facts.contains(&value.operand) {
            return Some(Value { optional: false, ..value });
        }
        if matches!(value.ty, Ty::Int { .. } | Ty::Octets { .. }) {
            let ty = value.ty.clone();
            return self.attempt(Partial::Value(value.operand), &ty, value.span);
        }
        let Some(absent) = self.edge(value.span) else {
            self.may_be_absent(Some(value.operand), value.span);
            return None;
        };
        let present = self.new_block(value.span);
        let test = crate::ir::Test::Present(value.operand);
        self.end(Terminator::Branch { test, then: present, otherwise: absent }, value.span);
        self.go_on_in(present);
        Some(Value { optional: false, ..value })
    }

    /// Waits until slots of a view are settled.
    pub(super) fn settle(&mut self, view: RegisterId, slots: &[SlotId], span: Span) {
        let missing: Vec<SlotId> = (slots.iter().copied())
            .filter(|slot| !self.flow.awaited.contains(&(view, *slot)))
            .collect();
        if missing.is_empty() {
            return;
        }
        self.flow.awaited.extend(missing.iter().map(|slot| (view, *slot)));
        let then = self.new_block(span);
        self.end(Terminator::Await { view, slots: missing, then }, span);
        self.go_on_in(then);
        self.suspended(span, trail::ARRIVES);
    }

    /// Forgets facts after a wait at `span`: other requests may have changed a keyed session. A
    /// connection's session is used by one handler at a time.
    pub(super) fn suspended(&mut self, span: Span, why: &'static str) {
        if self.env.session.as_ref().is_some_and(|session| session.keyed) {
            self.forget_session(span, why);
        }
    }

    /// Forgets what is known of the session's variables.
    pub(super) fn forget_session(&mut self, span: Span, why: &'static str) {
        let trail = &mut self.trail;
        self.flow.facts.retain(|fact| {
            let Operand::Session(slot) = fact else { return true };
            trail.forget(*slot, span, why);
            false
        });
    }
}

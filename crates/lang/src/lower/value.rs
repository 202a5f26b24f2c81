//! Lowers expressions to operands.

use super::body::Body;
use super::scope::{Ty, Value};
use super::{Constant, HELD_MAX};
use crate::codes;
use crate::ir::{
    Arithmetic, ColumnType, Fold, Instruction, Operand, Partial, RegisterType, SlotId, TextPiece,
};
use crate::syntax::ast::{self, Arm, Expression, ExpressionKind, Literal, Name, Path};
use gatewright_diagnostic::{Diagnostic, Span};

/// Maximum number from digits: eighteen of them.
const DIGITS_MAX: i64 = 999_999_999_999_999_999;

impl Body<'_, '_> {
    /// The value of an expression; `None` after a reported error.
    pub(super) fn value(&mut self, expression: &Expression) -> Option<Value> {
        let span = expression.span;
        match &expression.kind {
            ExpressionKind::Number(number) => Some(int(*number, span)),
            ExpressionKind::Octets(octets) => Some(self.constant_octets(octets, span)),
            ExpressionKind::Text(pieces) => self.text(pieces, span),
            ExpressionKind::Path(path) => self.path_value(path, span),
            ExpressionKind::Call(call) => {
                let message =
                    format!("`{}` builds a message, and that is no value", call.path.name.text);
                self.context.error(&codes::WRONG_TYPE, span, message);
                None
            }
            ExpressionKind::After { of, prefix } => {
                let (operand, max) = self.octets_of(of)?;
                let prefix_length = u32::try_from(prefix.value.len()).unwrap_or(u32::MAX);
                let prefix = self.context.literal(&prefix.value);
                let ty = Ty::Octets { max: max.saturating_sub(prefix_length) };
                self.attempt(Partial::After { of: operand, prefix }, &ty, span)
            }
            ExpressionKind::Before { of, delimiter } => {
                let (operand, max) = self.octets_of(of)?;
                let delimiter = self.context.literal(&delimiter.value);
                self.attempt(Partial::Before { of: operand, delimiter }, &Ty::Octets { max }, span)
            }
            ExpressionKind::Past { of, delimiter } => {
                let (operand, max) = self.octets_of(of)?;
                let length = u32::try_from(delimiter.value.len()).unwrap_or(u32::MAX);
                let delimiter = self.context.literal(&delimiter.value);
                let ty = Ty::Octets { max: max.saturating_sub(length) };
                self.attempt(Partial::Past { of: operand, delimiter }, &ty, span)
            }
            ExpressionKind::Item { index, of } => self.item(index, of, span),
            ExpressionKind::Decimal { of, high } => {
                let (operand, _) = self.octets_of(of)?;
                let high = high.map_or(DIGITS_MAX, |high| high.value);
                let ty = Ty::Int { low: 0, high };
                self.attempt(Partial::Decimal { of: operand, high }, &ty, span)
            }
            ExpressionKind::First { octets, of } => {
                let (operand, max) = self.octets_of(of)?;
                let octets = self.context.limit(Some(*octets))?;
                let max = octets.min(max);
                let into = self.register("", span, RegisterType::Octets { max });
                self.push(Instruction::First { into, of: operand, octets }, span);
                Some(octets_value(Operand::Register(into), max, span))
            }
            ExpressionKind::Hex(of) => {
                let (operand, max) = self.octets_of(of)?;
                let max = max.saturating_mul(2);
                let into = self.register("", span, RegisterType::Octets { max });
                self.push(Instruction::Hex { into, of: operand }, span);
                Some(octets_value(Operand::Register(into), max, span))
            }
            ExpressionKind::Case { of, upper } => {
                let (operand, max) = self.octets_of(of)?;
                let into = self.register("", span, RegisterType::Octets { max });
                let fold = if *upper { Fold::Upper } else { Fold::Lower };
                self.push(Instruction::Fold { into, of: operand, fold }, span);
                Some(octets_value(Operand::Register(into), max, span))
            }
            ExpressionKind::Size(of) => self.size(of, span),
            ExpressionKind::Join { of, separator, max } => self.join(of, separator, *max, span),
            ExpressionKind::Binary { operator, left, right } => {
                self.binary(*operator, left, right, span)
            }
            ExpressionKind::Else { value, otherwise } => self.either(value, otherwise, span),
            ExpressionKind::When { on, arms } => self.choose(on, arms, span),
        }
    }

    /// The value, which must be set.
    pub(super) fn set_value(&mut self, expression: &Expression) -> Option<Value> {
        let value = self.value(expression)?;
        self.require(value)
    }

    fn octets_of(&mut self, expression: &Expression) -> Option<(Operand, u32)> {
        let value = self.set_value(expression)?;
        match value.ty {
            Ty::Octets { max } => Some((value.operand, max)),
            other => {
                let message = format!("this is {}, not octets", other.name());
                self.wrong_type(&other, expression.span, message);
                None
            }
        }
    }

    fn int_of(&mut self, expression: &Expression) -> Option<(Operand, i64, i64)> {
        let value = self.set_value(expression)?;
        match value.ty {
            Ty::Int { low, high } => Some((value.operand, low, high)),
            other => {
                let message = format!("this is {}, not a number", other.name());
                self.wrong_type(&other, expression.span, message);
                None
            }
        }
    }

    pub(super) fn constant_octets(&mut self, octets: &[u8], span: Span) -> Value {
        let max = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        octets_value(Operand::Literal(self.context.literal(octets)), max, span)
    }

    /// A text with its holes filled.
    fn text(&mut self, pieces: &[ast::TextPiece], span: Span) -> Option<Value> {
        match pieces {
            [] => return Some(self.constant_octets(b"", span)),
            [ast::TextPiece::Octets(octets)] => return Some(self.constant_octets(octets, span)),
            _ => {}
        }
        let mut lowered = Vec::new();
        let mut total = 0_u32;
        for piece in pieces {
            let (piece, max) = match piece {
                ast::TextPiece::Octets(octets) => {
                    let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
                    (TextPiece::Literal(self.context.literal(octets)), length)
                }
                ast::TextPiece::Hole(hole) => {
                    let value = self.set_value(hole)?;
                    match value.ty {
                        Ty::Octets { max } => (TextPiece::Octets(value.operand), max),
                        Ty::Int { low, high } => {
                            (TextPiece::Decimal(value.operand), digits(low).max(digits(high)))
                        }
                        other => {
                            let message = format!("{} is not possible in a text", other.name());
                            let diagnostic =
                                Diagnostic::error(&codes::WRONG_TYPE, hole.span, message);
                            match other {
                                Ty::Unknown => {}
                                Ty::View(_) => self.context.report(
                                    diagnostic.help("name one of its fields: `{MESSAGE.FIELD}`"),
                                ),
                                _ => self.context.report(diagnostic),
                            }
                            return None;
                        }
                    }
                }
            };
            total = total.saturating_add(max);
            lowered.push(piece);
        }
        if i64::from(total) > HELD_MAX {
            let message = format!("the text can have {total} octets");
            self.context.error(&codes::LIMIT_TOO_BIG, span, message);
        }
        let into = self.register("", span, RegisterType::Octets { max: total });
        self.push(Instruction::Format { into, pieces: lowered }, span);
        Some(octets_value(Operand::Register(into), total, span))
    }

    // -- Names.

    /// `NAME`, `view.FIELD`, `session.VARIABLE` or `module.CONSTANT`
    pub(super) fn path_value(&mut self, path: &Path, span: Span) -> Option<Value> {
        let Some(base) = &path.module else { return self.name_value(&path.name, span) };
        if let Some(value) = self.local(&base.text) {
            return self.field_value(&value, base, &path.name, span);
        }
        if base.text == "session" {
            return self.session_value(&path.name, span);
        }
        if let Some(module) = self.modules.iter().find(|module| module.name.text == base.text) {
            let constant = self.context.constant(module, &Literal::Name(path.name.clone()))?;
            return Some(self.constant_value(constant, span));
        }
        let known: Vec<String> = self.scope.iter().map(|local| local.name.text.clone()).collect();
        self.context.unknown("value", base, known.iter().map(String::as_str));
        None
    }

    fn name_value(&mut self, name: &Name, span: Span) -> Option<Value> {
        if let Some(value) = self.local(&name.text) {
            return Some(Value { span, ..value });
        }
        if let Some(value) = self.parameter_value(name, span) {
            return Some(value);
        }
        let declares = |module: &&&ast::MessageModule| {
            module.constants.iter().any(|(constant, _)| constant.text == name.text)
        };
        let holders: Vec<_> = self.modules.iter().filter(declares).copied().collect();
        match holders.as_slice() {
            [module] => {
                let constant = self.context.constant(module, &Literal::Name(name.clone()))?;
                Some(self.constant_value(constant, span))
            }
            [one, other, ..] => {
                let message = format!(
                    "`{}` is a constant of `{}` and of `{}`",
                    name.text, one.name.text, other.name.text
                );
                self.context.error(&codes::AMBIGUOUS, span, message);
                None
            }
            [] => {
                let constants = self.modules.iter().flat_map(|module| &module.constants);
                let known: Vec<String> = (self.scope.iter())
                    .map(|local| local.name.text.clone())
                    .chain(self.env.parameters.iter().map(|of| of.name.clone()))
                    .chain(constants.map(|(name, _)| name.text.clone()))
                    .collect();
                self.context.unknown("value", name, known.iter().map(String::as_str));
                None
            }
        }
    }

    fn constant_value(&self, constant: Constant, span: Span) -> Value {
        match constant {
            Constant::Int(value) => int(value, span),
            Constant::Octets(literal) => {
                let max = u32::try_from(self.context.octets(literal).len()).unwrap_or(u32::MAX);
                octets_value(Operand::Literal(literal), max, span)
            }
        }
    }

    fn field_value(
        &mut self,
        base: &Value,
        base_name: &Name,
        name: &Name,
        span: Span,
    ) -> Option<Value> {
        if let Ty::Element(columns) = &base.ty {
            return self.column_value(columns, name, span);
        }
        let (Ty::View(message), Operand::Register(view)) = (&base.ty, base.operand) else {
            let message = format!("`{}` is {} and has no fields", base_name.text, base.ty.name());
            self.wrong_type(&base.ty, base_name.span, message);
            return None;
        };
        let message = self.context.message(*message)?;
        let found = (message.slots.iter()).position(|slot| slot.name == name.text && !slot.scratch);
        let Some(index) = found else {
            let known: Vec<String> = (message.slots.iter())
                .filter(|slot| !slot.scratch)
                .map(|slot| slot.name.clone())
                .collect();
            self.context.unknown("field", name, known.iter().map(String::as_str));
            return None;
        };
        let slot_id = SlotId::new(index);
        let slot = message.slots.get(index)?;
        let (ty, optional) = (Ty::of(&slot.ty), slot.optional);
        self.settle(view, &[slot_id], span);
        let operand = Operand::Slot { view, slot: slot_id };
        let optional = optional && !self.flow.facts.contains(&operand);
        Some(Value { operand, ty, optional, span })
    }

    fn column_value(
        &mut self,
        columns: &[(String, crate::ir::RegisterId, ColumnType)],
        name: &Name,
        span: Span,
    ) -> Option<Value> {
        let Some((_, register, column)) = columns.iter().find(|(of, ..)| *of == name.text) else {
            let known = columns.iter().map(|(name, ..)| name.as_str());
            self.context.unknown("field", name, known);
            return None;
        };
        let (operand, ty) = (Operand::Register(*register), Ty::column(*column));
        Some(Value { operand, ty, optional: false, span })
    }

    /// A session variable, if there is a session.
    pub(super) fn session_slot(&mut self, name: &Name) -> Option<(SlotId, Ty)> {
        if !self.session_is_here(name) {
            return None;
        }
        let session = self.env.session.as_ref()?;
        let Some(index) = session.slots.iter().position(|slot| slot.name == name.text) else {
            let known = session.slots.iter().map(|slot| slot.name.as_str());
            self.context.unknown("session variable", name, known);
            return None;
        };
        let slot = session.slots.get(index)?;
        Some((SlotId::new(index), Ty::of(&slot.ty)))
    }

    fn session_value(&mut self, name: &Name, span: Span) -> Option<Value> {
        if let Some(peers) = self.peers_named(name) {
            self.env.tell_peers(peers);
            if !self.session_is_here(name) {
                return None;
            }
            let max = self.env.session.as_ref()?.peers.get(peers.index())?.max;
            let ty = Ty::Peers { max };
            return Some(Value { operand: Operand::Peers(peers), ty, optional: false, span });
        }
        let named = |slot: &crate::ir::Slot| slot.name == name.text;
        let session = self.env.session.as_ref();
        if let Some(index) = session.and_then(|session| session.slots.iter().position(named)) {
            self.env.read_session(SlotId::new(index));
        }
        let (slot, ty) = self.session_slot(name)?;
        let operand = Operand::Session(slot);
        let list = matches!(ty, Ty::List { .. });
        let optional = !list && !self.flow.facts.contains(&operand);
        Some(Value { operand, ty, optional, span })
    }

    // -- Operators.

    fn item(&mut self, index: &Expression, of: &Expression, span: Span) -> Option<Value> {
        let (index, low, _) = self.int_of(index)?;
        let list = self.value(of)?;
        let Ty::List { columns, .. } = &list.ty else {
            let message = format!("this is {}, not a list", list.ty.name());
            self.wrong_type(&list.ty, of.span, message);
            return None;
        };
        if low < 1 {
            let message = "items are counted from 1";
            self.context.error(&codes::OUT_OF_RANGE, span, message);
        }
        let [(_, column)] = columns.as_slice() else {
            let message = "an element of this list has several fields; go through it by `for each`";
            self.context.error(&codes::WRONG_TYPE, of.span, message);
            return None;
        };
        let ty = Ty::column(*column);
        self.attempt(Partial::Item { of: list.operand, index, column: 0 }, &ty, span)
    }

    fn size(&mut self, of: &Expression, span: Span) -> Option<Value> {
        let value = self.set_value(of)?;
        if let Ty::Peers { max } = value.ty {
            let ty = Ty::Int { low: 0, high: i64::from(max) };
            return Some(Value { ty, ..value });
        }
        let (Ty::Octets { max } | Ty::List { max, .. }) = value.ty else {
            let message = format!("{} has no size", value.ty.name());
            self.wrong_type(&value.ty, of.span, message);
            return None;
        };
        let high = i64::from(max);
        let into = self.register("", span, RegisterType::Int { low: 0, high });
        self.push(Instruction::Size { into, of: value.operand }, span);
        let (operand, ty) = (Operand::Register(into), Ty::Int { low: 0, high });
        Some(Value { operand, ty, optional: false, span })
    }

    /// `join LIST by TEXT at most N octets`
    fn join(
        &mut self,
        of: &Expression,
        separator: &ast::Octets,
        max: Option<ast::Number>,
        span: Span,
    ) -> Option<Value> {
        let list = self.set_value(of)?;
        let octets =
            |columns: &[(String, ColumnType)]| matches!(columns, [(_, ColumnType::Octets { .. })]);
        let fits = matches!(&list.ty, Ty::List { columns, .. } if octets(columns));
        if !fits {
            let message =
                format!("this is {}, and only a list of octets is joined", list.ty.name());
            self.wrong_type(&list.ty, of.span, message);
            return None;
        }
        let Some(max) = self.context.limit(max) else {
            let diagnostic = Diagnostic::error(&codes::NO_LIMIT, span, "how long may it become?")
                .help("write `at most N octets` behind the text");
            self.context.report(diagnostic);
            return None;
        };
        let separator = self.context.literal(&separator.value);
        self.attempt(Partial::Join { of: list.operand, separator, max }, &Ty::Octets { max }, span)
    }

    fn binary(
        &mut self,
        operator: char,
        left: &Expression,
        right: &Expression,
        span: Span,
    ) -> Option<Value> {
        let (left, left_low, left_high) = self.int_of(left)?;
        let (right_operand, low, high) = self.int_of(right)?;
        let (operator, bounds) = match operator {
            '+' => {
                (Arithmetic::Add, (left_low.saturating_add(low), left_high.saturating_add(high)))
            }
            '-' => {
                let bounds = (left_low.saturating_sub(high), left_high.saturating_sub(low));
                (Arithmetic::Subtract, bounds)
            }
            '*' => {
                let ends = [left_low, left_high]
                    .map(|left| [left.saturating_mul(low), left.saturating_mul(high)])
                    .concat();
                let (low, high) = (ends.iter().min(), ends.iter().max());
                (Arithmetic::Multiply, (*low.unwrap_or(&0), *high.unwrap_or(&0)))
            }
            _ => {
                let Operand::Int(divisor @ 1..) = right_operand else {
                    let message = "one divides by a positive constant";
                    self.context.error(&codes::NOT_CONSTANT, right.span, message);
                    return None;
                };
                if operator == '/' {
                    (Arithmetic::Divide, (left_low / divisor, left_high / divisor))
                } else {
                    let least = if left_low < 0 { 1 - divisor } else { 0 };
                    (Arithmetic::Modulo, (least, divisor - 1))
                }
            }
        };
        let (low, high) = bounds;
        let into = self.register("", span, RegisterType::Int { low, high });
        self.push(Instruction::Compute { into, operator, left, right: right_operand }, span);
        let ty = Ty::Int { low, high };
        Some(Value { operand: Operand::Register(into), ty, optional: false, span })
    }

    /// `(VALUE else OTHER)`
    fn either(&mut self, value: &Expression, otherwise: &Expression, span: Span) -> Option<Value> {
        let before = self.flow.clone();
        self.open_edge();
        let first = self.set_value(value);
        let edge = self.take_edge();
        let first = first?;
        let Some(absent) = edge else {
            self.context.error(&codes::NEEDLESS_ELSE, span, "this is never absent");
            return Some(first);
        };
        let list = matches!(first.ty, Ty::List { .. });
        let into = if list { None } else { self.register_for("", &first.ty, span) };
        let Some(into) = into else {
            let message = format!("{} cannot be chosen with `else`", first.ty.name());
            self.context.error(&codes::WRONG_TYPE, span, message);
            return None;
        };
        let join = self.new_block(span);
        self.assign(into, &first, join, span);
        let after = std::mem::replace(&mut self.flow, before);
        self.go_on_in(absent);
        let other = self.set_value(otherwise)?;
        let ty = self.union(&first.ty, &other)?;
        self.assign(into, &other, join, span);
        let other_flow = self.flow.clone();
        self.flow = super::scope::Flow::meet(Some(after), Some(other_flow))?;
        self.go_on_in(join);
        self.set_type(into, &ty);
        Some(Value { operand: Operand::Register(into), ty, optional: false, span })
    }

    fn assign(
        &mut self,
        into: crate::ir::RegisterId,
        value: &Value,
        then: crate::ir::BlockId,
        span: Span,
    ) {
        self.push(Instruction::Set { into, value: value.operand }, value.span);
        self.end(crate::ir::Terminator::Jump(then), span);
    }

    fn set_type(&mut self, register: crate::ir::RegisterId, ty: &Ty) {
        match ty {
            Ty::Int { low, high } => {
                self.retype(register, RegisterType::Int { low: *low, high: *high });
            }
            Ty::Octets { max } => self.retype(register, RegisterType::Octets { max: *max }),
            _ => {}
        }
    }

    /// The type that includes both.
    fn union(&mut self, one: &Ty, other: &Value) -> Option<Ty> {
        match (one, &other.ty) {
            (Ty::Int { low, high }, Ty::Int { low: from, high: to }) => {
                Some(Ty::Int { low: *low.min(from), high: *high.max(to) })
            }
            (Ty::Octets { max }, Ty::Octets { max: more }) => {
                Some(Ty::Octets { max: *max.max(more) })
            }
            (one, two) => {
                let message = format!("this is {}, the other is {}", two.name(), one.name());
                let diagnostic = Diagnostic::error(&codes::WRONG_TYPE, other.span, message);
                self.context.report(match super::build::converted(two, one) {
                    Some(help) => diagnostic.help(help),
                    None => diagnostic,
                });
                None
            }
        }
    }

    /// `when VALUE { PATTERN -> VALUE … }` as a value
    fn choose(&mut self, on: &Expression, arms: &[Arm], span: Span) -> Option<Value> {
        let mut result: Option<(crate::ir::RegisterId, Ty)> = None;
        let join = self.new_block(span);
        let mut flow = None;
        self.arms(on, arms, span, |body, arm| {
            let value = body.set_value(&arm.value)?;
            let (into, ty) = match result.take() {
                None if matches!(value.ty, Ty::List { .. }) => return None,
                None => (body.register_for("", &value.ty, span)?, value.ty.clone()),
                Some((into, ty)) => {
                    let ty = body.union(&ty, &value)?;
                    (into, ty)
                }
            };
            body.assign(into, &value, join, arm.span);
            result = Some((into, ty));
            flow = super::scope::Flow::meet(flow.take(), Some(body.flow.clone()));
            Some(())
        })?;
        let (into, ty) = result?;
        self.set_type(into, &ty);
        self.flow = flow?;
        self.go_on_in(join);
        Some(Value { operand: Operand::Register(into), ty, optional: false, span })
    }
}

fn int(value: i64, span: Span) -> Value {
    let ty = Ty::Int { low: value, high: value };
    Value { operand: Operand::Int(value), ty, optional: false, span }
}

fn octets_value(operand: Operand, max: u32, span: Span) -> Value {
    Value { operand, ty: Ty::Octets { max }, optional: false, span }
}

/// Number of characters of a number in decimal.
fn digits(number: i64) -> u32 {
    u32::try_from(number.to_string().len()).unwrap_or(u32::MAX)
}

/// Whether elements of one list fit another.
pub(super) fn columns_fit(from: &[(String, ColumnType)], into: &[(String, ColumnType)]) -> bool {
    from.len() == into.len()
        && from.iter().zip(into).all(|((_, from), (_, into))| match (from, into) {
            (ColumnType::Int { low, high }, ColumnType::Int { low: least, high: most }) => {
                low >= least && high <= most
            }
            (ColumnType::Octets { max }, ColumnType::Octets { max: room }) => max <= room,
            _ => false,
        })
}

//! Lowers conditions and choices to branches.

use super::body::Body;
use super::guard::covered_pattern;
use super::scope::{Flow, Ty, Value};
use crate::codes;
use crate::ir::{BlockId, Operand, Pattern, Terminator, Test};
use crate::syntax::ast::{
    self, Arm, Comparison, Condition, ConditionKind, Expression, ExpressionKind, PatternKind,
};
use gatewright_diagnostic::{Diagnostic, Span};

impl Body<'_, '_> {
    /// Branches on a condition; afterwards neither block is the current one.
    pub(super) fn branch(&mut self, condition: &Condition, then: BlockId, otherwise: BlockId) {
        match &condition.kind {
            ConditionKind::Not(inner) => self.branch(inner, otherwise, then),
            ConditionKind::And(left, right) => {
                let middle = self.new_block(left.span);
                self.branch(left, middle, otherwise);
                self.go_on_in(middle);
                let (facts, _) = self.facts(left);
                self.flow.facts.extend(facts);
                self.branch(right, then, otherwise);
            }
            ConditionKind::Or(left, right) => {
                let middle = self.new_block(left.span);
                self.branch(left, then, middle);
                self.go_on_in(middle);
                self.branch(right, then, otherwise);
            }
            ConditionKind::Is { value, patterns, not } => {
                let (then, otherwise) = if *not { (otherwise, then) } else { (then, otherwise) };
                self.branch_is(value, patterns, then, otherwise, condition.span);
            }
            ConditionKind::Compare { operator, left, right } => {
                let test = self.comparison(*operator, left, right);
                let test = test.unwrap_or(Test::All(Vec::new()));
                self.end(Terminator::Branch { test, then, otherwise }, condition.span);
            }
        }
    }

    fn branch_is(
        &mut self,
        value: &Expression,
        patterns: &[ast::Pattern],
        then: BlockId,
        otherwise: BlockId,
        span: Span,
    ) {
        // What is absent on the way to the value is an absent value: not any pattern.
        self.open_edge();
        let lowered = self.value(value);
        let edge = self.take_edge();
        let test = lowered.and_then(|value| self.is(&value, patterns));
        let test = test.unwrap_or(Test::All(Vec::new()));
        self.end(Terminator::Branch { test, then, otherwise }, span);
        if let Some(edge) = edge {
            let absent = patterns.iter().any(|pattern| matches!(pattern.kind, PatternKind::Absent));
            self.go_on_in(edge);
            self.end(Terminator::Jump(if absent { then } else { otherwise }), span);
        }
    }

    /// Whether a value matches one of the patterns.
    fn is(&mut self, value: &Value, patterns: &[ast::Pattern]) -> Option<Test> {
        if matches!(value.ty, Ty::Peers { .. }) {
            return self.is_stored(value, patterns);
        }
        let mut plain = Vec::new();
        let mut any = Vec::new();
        for pattern in patterns {
            match pattern.kind {
                PatternKind::Present => any.push(Test::Present(value.operand)),
                PatternKind::Absent => {
                    any.push(Test::Not(Box::new(Test::Present(value.operand))));
                }
                _ => plain.push(self.lowered_pattern(pattern, value)?),
            }
        }
        if !plain.is_empty() {
            any.push(Test::Is { value: value.operand, patterns: plain });
        }
        if any.len() == 1 { any.pop() } else { Some(Test::Any(any)) }
    }

    /// Whether a variable stores any peer: `present`, `absent`, `empty`.
    fn is_stored(&mut self, value: &Value, patterns: &[ast::Pattern]) -> Option<Test> {
        let mut any = Vec::new();
        for pattern in patterns {
            let nobody = vec![Pattern::Int { low: 0, high: 0 }];
            let none = Test::Is { value: value.operand, patterns: nobody };
            any.push(match pattern.kind {
                PatternKind::Absent | PatternKind::Empty => none,
                PatternKind::Present => Test::Not(Box::new(none)),
                _ => {
                    let message = "stored peers are `present`, `absent` or `empty`";
                    self.context.error(&codes::WRONG_TYPE, pattern.span, message);
                    return None;
                }
            });
        }
        if any.len() == 1 { any.pop() } else { Some(Test::Any(any)) }
    }

    fn lowered_pattern(&mut self, pattern: &ast::Pattern, value: &Value) -> Option<Pattern> {
        let ty = &value.ty;
        if let PatternKind::Name(name) = &pattern.kind {
            // A constant of any module in reach.
            let path = ast::Path { module: None, name: name.clone() };
            let value = self.path_value(&path, pattern.span)?;
            return match value.operand {
                Operand::Int(number) => Some(Pattern::Int { low: number, high: number }),
                Operand::Literal(literal) => Some(Pattern::Octets(literal)),
                _ => {
                    let message = format!("`{}` is no constant", name.text);
                    self.context.error(&codes::NOT_CONSTANT, pattern.span, message);
                    None
                }
            };
        }
        let Some(slot_type) = ty.slot() else {
            let message = format!("{} matches no pattern", ty.name());
            self.wrong_type(ty, pattern.span, message);
            return None;
        };
        let module = *self.modules.first()?;
        let fold = self.fold_of(value.operand);
        self.context.pattern(module, pattern, &slot_type, fold)
    }

    fn comparison(
        &mut self,
        operator: Comparison,
        left: &Expression,
        right: &Expression,
    ) -> Option<Test> {
        let left_value = self.set_value(left)?;
        let right_value = self.set_value(right)?;
        let (one, other) = (left_value.operand, right_value.operand);
        match (&left_value.ty, &right_value.ty, operator) {
            (Ty::Int { .. }, Ty::Int { .. }, _)
            | (Ty::Octets { .. }, Ty::Octets { .. }, Comparison::Equal) => {}
            (Ty::Unknown, ..) | (_, Ty::Unknown, _) => return None,
            (left_type, right_type, _) => {
                let message =
                    format!("{} and {} cannot be compared so", left_type.name(), right_type.name());
                let span = left.span.to(right.span);
                let diagnostic = Diagnostic::error(&codes::WRONG_TYPE, span, message);
                // Numbers compare in every way, octets only for equality.
                let is_number = matches!(right_type, Ty::Int { .. });
                let (from, into) =
                    if is_number { (left_type, right_type) } else { (right_type, left_type) };
                self.context.report(match super::build::converted(from, into) {
                    Some(help) => diagnostic.help(help),
                    None => diagnostic,
                });
                return None;
            }
        }
        Some(match operator {
            Comparison::Equal => Test::Equal(one, other),
            Comparison::Less => Test::Less(one, other),
            Comparison::Greater => Test::Less(other, one),
            Comparison::AtMost => Test::Not(Box::new(Test::Less(other, one))),
            Comparison::AtLeast => Test::Not(Box::new(Test::Less(one, other))),
        })
    }

    /// The operands known to be set if the condition holds, and if it does not.
    pub(super) fn facts(&mut self, condition: &Condition) -> (Vec<Operand>, Vec<Operand>) {
        match &condition.kind {
            ConditionKind::Not(inner) => {
                let (holds, fails) = self.facts(inner);
                (fails, holds)
            }
            ConditionKind::And(left, right) => {
                let (mut holds, _) = self.facts(left);
                holds.extend(self.facts(right).0);
                (holds, Vec::new())
            }
            ConditionKind::Or(left, right) => {
                let (_, mut fails) = self.facts(left);
                fails.extend(self.facts(right).1);
                (Vec::new(), fails)
            }
            ConditionKind::Is { value, patterns, not } => {
                let Some(operand) = self.named_operand(value) else {
                    return (Vec::new(), Vec::new());
                };
                let absent = |pattern: &ast::Pattern| matches!(pattern.kind, PatternKind::Absent);
                let present = |pattern: &ast::Pattern| matches!(pattern.kind, PatternKind::Present);
                let mut holds = Vec::new();
                let mut fails = Vec::new();
                if !patterns.iter().any(absent) {
                    holds.push(operand);
                } else if !patterns.iter().any(present) {
                    fails.push(operand);
                }
                if *not { (fails, holds) } else { (holds, fails) }
            }
            ConditionKind::Compare { .. } => (Vec::new(), Vec::new()),
        }
    }

    /// The operand of a plain name, without any code.
    fn named_operand(&mut self, value: &Expression) -> Option<Operand> {
        let ExpressionKind::Path(path) = &value.kind else { return None };
        let Some(base) = &path.module else {
            return self.local(&path.name.text).map(|value| value.operand);
        };
        if base.text == "session" {
            let session = self.env.session.as_ref()?;
            let index = session.slots.iter().position(|slot| slot.name == path.name.text)?;
            return Some(Operand::Session(crate::ir::SlotId::new(index)));
        }
        let value = self.local(&base.text)?;
        let (Ty::View(message), Operand::Register(view)) = (value.ty, value.operand) else {
            return None;
        };
        let message = self.context.message(message)?;
        let index = message.slots.iter().position(|slot| slot.name == path.name.text)?;
        Some(Operand::Slot { view, slot: crate::ir::SlotId::new(index) })
    }

    /// Lowers the arms of a `when`, each to its own block; the caller ends each.
    pub(super) fn arms(
        &mut self,
        on: &Expression,
        arms: &[Arm],
        span: Span,
        mut each: impl FnMut(&mut Self, &Arm) -> Option<()>,
    ) -> Option<()> {
        let value = self.value(on)?;
        let before: Flow = self.flow.clone();
        let mut earlier: Vec<Pattern> = Vec::new();
        let mut closed = false;
        let mut fine = true;
        for arm in arms {
            if closed {
                let message = "everything is caught before";
                self.context.error(&codes::UNREACHABLE, arm.span, message);
                return None;
            }
            if arm.patterns.is_empty() {
                closed = true;
                fine &= each(self, arm).is_some();
                continue;
            }
            let test = self.is(&value, &arm.patterns)?;
            if let Test::Is { patterns, .. } = &test {
                if patterns.iter().all(|pattern| covered_pattern(&earlier, *pattern)) {
                    let message = "this is caught before";
                    self.context.error(&codes::UNREACHABLE, arm.span, message);
                }
                earlier.extend(patterns);
            }
            let (then, otherwise) = (self.new_block(arm.span), self.new_block(arm.span));
            self.end(Terminator::Branch { test, then, otherwise }, arm.span);
            self.go_on_in(then);
            fine &= each(self, arm).is_some();
            self.flow = before.clone();
            self.reachable = true;
            self.go_on_in(otherwise);
        }
        if !closed {
            let message = "this choice has no `otherwise`";
            self.context.error(&codes::NO_OTHERWISE, span, message);
            return None;
        }
        fine.then_some(())
    }
}

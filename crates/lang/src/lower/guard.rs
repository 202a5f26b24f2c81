//! Lowers guards: conditions over the fields of one view, where alone a bare name is a field.

use super::layout::Lowering;
use super::{Constant, Context};
use crate::codes;
use crate::ir::{Fold, Guard, Hole, Operand, Pattern, Slot, SlotId, SlotType};
use crate::syntax::ast::{
    self, Comparison, Condition, ConditionKind, Expression, ExpressionKind, Literal, MessageModule,
    PatternKind,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// Replacement for a wrong guard.
const NEVER: Guard = Guard::Any(Vec::new());

/// The fields that a guard may name.
#[derive(Clone, Copy)]
pub(super) struct Fields<'s, 'a> {
    pub(super) module: &'a MessageModule,
    pub(super) slots: &'s [Slot],
    pub(super) prefix: &'s str,
}

impl Lowering<'_, '_> {
    /// A guard over the fields so far.
    pub(super) fn guard(&mut self, prefix: &str, condition: &Condition) -> Guard {
        let fields = Fields { module: self.module, slots: &self.slots, prefix };
        self.context.guard(fields, condition)
    }
}

impl<'a> Context<'a> {
    /// A guard over fields; a wrong one is reported, and replaced by one that never holds.
    pub(super) fn guard(&mut self, fields: Fields<'_, 'a>, condition: &Condition) -> Guard {
        match &condition.kind {
            ConditionKind::And(left, right) => {
                Guard::All(vec![self.guard(fields, left), self.guard(fields, right)])
            }
            ConditionKind::Or(left, right) => {
                Guard::Any(vec![self.guard(fields, left), self.guard(fields, right)])
            }
            ConditionKind::Not(inner) => Guard::Not(Box::new(self.guard(fields, inner))),
            ConditionKind::Is { value, patterns, not } => {
                let guard = self.guard_is(fields, value, patterns).unwrap_or(NEVER);
                if *not { Guard::Not(Box::new(guard)) } else { guard }
            }
            ConditionKind::Compare { operator, left, right } => {
                self.guard_compare(fields, *operator, left, right).unwrap_or(NEVER)
            }
        }
    }

    fn guarded_slot(
        &mut self,
        fields: Fields<'_, 'a>,
        value: &Expression,
    ) -> Option<(SlotId, Slot)> {
        let ExpressionKind::Path(path) = &value.kind else {
            let message = "a guard looks at fields of the message, and at nothing else";
            self.error(&codes::WRONG_PLACE, value.span, message);
            return None;
        };
        if path.module.is_some() {
            let message = "in a guard a field is named without its message";
            self.error(&codes::WRONG_PLACE, value.span, message);
            return None;
        }
        let full = format!("{}{}", fields.prefix, path.name.text);
        let found = fields.slots.iter().position(|slot| slot.name == full);
        let Some(index) = found else {
            let known = (fields.slots.iter())
                .filter(|slot| !slot.scratch || !fields.prefix.is_empty())
                .filter_map(|slot| slot.name.strip_prefix(fields.prefix));
            self.unknown("field", &path.name, known);
            return None;
        };
        let slot = fields.slots.get(index)?;
        Some((SlotId::new(index), slot.clone()))
    }

    fn guard_is(
        &mut self,
        fields: Fields<'_, 'a>,
        value: &Expression,
        patterns: &[ast::Pattern],
    ) -> Option<Guard> {
        let (slot, of) = self.guarded_slot(fields, value)?;
        let mut plain = Vec::new();
        let mut any = Vec::new();
        for pattern in patterns {
            match &pattern.kind {
                PatternKind::Present => any.push(Guard::Present(slot)),
                PatternKind::Absent => any.push(Guard::Not(Box::new(Guard::Present(slot)))),
                // A list without an element was never filled.
                PatternKind::Empty if matches!(of.ty, SlotType::List { .. }) => {
                    any.push(Guard::Not(Box::new(Guard::Present(slot))));
                }
                _ => plain.push(self.pattern(fields.module, pattern, &of.ty, of.fold)?),
            }
        }
        if !plain.is_empty() {
            any.push(Guard::Is { slot, patterns: plain });
        }
        if any.len() == 1 { any.pop() } else { Some(Guard::Any(any)) }
    }

    /// A pattern for a value of the type with this case folding; `present` and `absent` are none.
    pub(super) fn pattern(
        &mut self,
        module: &'a MessageModule,
        pattern: &ast::Pattern,
        ty: &SlotType,
        fold: Fold,
    ) -> Option<Pattern> {
        let lowered = match &pattern.kind {
            PatternKind::Range(low, high) => Pattern::Int { low: *low, high: *high },
            PatternKind::Octets(octets) => Pattern::Octets(self.literal(octets)),
            PatternKind::Empty => Pattern::Empty,
            PatternKind::Name(name) => {
                match self.constant(module, &Literal::Name(name.clone()))? {
                    Constant::Int(value) => Pattern::Int { low: value, high: value },
                    Constant::Octets(literal) => Pattern::Octets(literal),
                }
            }
            PatternKind::Present | PatternKind::Absent => return None,
        };
        self.is_folded(lowered, fold, pattern);
        self.fits(lowered, ty, pattern.span).then_some(lowered)
    }

    /// Reports octets that a field with folded letters can never have.
    fn is_folded(&mut self, lowered: Pattern, fold: Fold, pattern: &ast::Pattern) {
        let Pattern::Octets(literal) = lowered else { return };
        let octets = self.octets(literal);
        let (folded, letters) = match fold {
            Fold::Keep => return,
            Fold::Upper => (octets.to_ascii_uppercase(), "capitals"),
            Fold::Lower => (octets.to_ascii_lowercase(), "small letters"),
        };
        if folded == octets {
            return;
        }
        let message = format!("the value is read in {letters} and never this");
        let mut diagnostic = Diagnostic::error(&codes::UNREACHABLE, pattern.span, message);
        let plain = |octet: &u8| matches!(octet, b' '..=b'~') && !b"\"\\{}".contains(octet);
        if matches!(pattern.kind, PatternKind::Octets(_)) && folded.iter().all(plain) {
            let text = format!("\"{}\"", String::from_utf8_lossy(&folded));
            diagnostic = diagnostic.fix(pattern.span, text.clone(), &format!("write `{text}`"));
        }
        self.report(diagnostic);
    }

    /// Whether a value of the type could match.
    fn fits(&mut self, pattern: Pattern, ty: &SlotType, span: Span) -> bool {
        let (wanted, help) = match (ty, pattern) {
            (SlotType::Int { low, high }, Pattern::Int { low: from, high: to }) => {
                if to < *low || from > *high {
                    let message = format!("the value is in {low}..{high} and never this");
                    self.error(&codes::UNREACHABLE, span, message);
                }
                return true;
            }
            (SlotType::Octets { max }, Pattern::Octets(literal)) => {
                let length = self.octets(literal).len();
                if length > usize::try_from(*max).unwrap_or(usize::MAX) {
                    let message = format!("the value has at most {max} octets, this has {length}");
                    self.error(&codes::UNREACHABLE, span, message);
                }
                return true;
            }
            (SlotType::Octets { .. } | SlotType::List { .. }, Pattern::Empty) => return true,
            (SlotType::Int { .. }, _) => {
                ("a number", "a number is held against numbers and ranges: `is 3 or 10..19`")
            }
            (SlotType::Octets { .. }, _) => {
                ("octets", "octets are held against texts: `is \"3\" or one of \"45\"`, `is empty`")
            }
            (SlotType::List { .. }, _) => ("a list", "a list is `empty`, `present` or `absent`"),
            (SlotType::Stream, _) => {
                ("a stream", "a stream is passed on as it comes, and nothing is known of it before")
            }
        };
        let message = format!("the value is {wanted}, and this pattern is not for it");
        self.report(Diagnostic::error(&codes::WRONG_TYPE, span, message).help(help));
        false
    }

    fn guard_compare(
        &mut self,
        fields: Fields<'_, 'a>,
        operator: Comparison,
        left: &Expression,
        right: &Expression,
    ) -> Option<Guard> {
        let (slot, Slot { ty, .. }) = self.guarded_slot(fields, left)?;
        let ExpressionKind::Number(number) = right.kind else {
            self.error(&codes::NOT_CONSTANT, right.span, "a guard compares with a number");
            return None;
        };
        let SlotType::Int { .. } = ty else {
            self.error(&codes::WRONG_TYPE, left.span, "only a number is compared");
            return None;
        };
        let bounds = match operator {
            Comparison::Equal => Some((number, number)),
            Comparison::Less => number.checked_sub(1).map(|below| (i64::MIN, below)),
            Comparison::AtMost => Some((i64::MIN, number)),
            Comparison::Greater => number.checked_add(1).map(|above| (above, i64::MAX)),
            Comparison::AtLeast => Some((number, i64::MAX)),
        };
        // Nothing is below the least number, or above the greatest.
        let Some((low, high)) = bounds else { return Some(NEVER) };
        Some(Guard::Is { slot, patterns: vec![Pattern::Int { low, high }] })
    }
}

/// The slots that a guard tests.
pub(super) fn looked_at(guard: &Guard, slots: &mut Vec<SlotId>) {
    match guard {
        Guard::Always => {}
        Guard::Is { slot, .. } | Guard::Present(slot) => {
            if !slots.contains(slot) {
                slots.push(*slot);
            }
        }
        Guard::All(guards) | Guard::Any(guards) => {
            for guard in guards {
                looked_at(guard, slots);
            }
        }
        Guard::Not(guard) => looked_at(guard, slots),
    }
}

/// Whether one of `before` matches everything that `later` matches; each is a guard over one slot.
pub(super) fn covered(before: &[Guard], later: &Guard) -> bool {
    if before.contains(&Guard::Always) || before.contains(later) {
        return true;
    }
    let Guard::Is { slot, patterns } = later else { return false };
    let earlier: Vec<Pattern> = (before.iter())
        .filter_map(|guard| match guard {
            Guard::Is { slot: of, patterns } if of == slot => Some(patterns.clone()),
            Guard::Present(of) if of == slot => Some(patterns.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    patterns.iter().all(|pattern| covered_pattern(&earlier, *pattern))
}

/// Whether one of the earlier patterns matches everything that this one matches.
pub(super) fn covered_pattern(before: &[Pattern], later: Pattern) -> bool {
    before.iter().any(|earlier| match (*earlier, later) {
        (Pattern::Int { low, high }, Pattern::Int { low: from, high: to }) => {
            low <= from && to <= high
        }
        (earlier, later) => earlier == later,
    })
}

/// Whether two guards certainly never hold together.
pub(super) fn disjoint(one: &Guard, other: &Guard) -> bool {
    match (one, other) {
        (Guard::All(guards), guard) | (guard, Guard::All(guards)) => {
            guards.iter().any(|of| disjoint(of, guard))
        }
        (Guard::Any(guards), guard) | (guard, Guard::Any(guards)) => {
            guards.iter().all(|of| disjoint(of, guard))
        }
        (Guard::Not(inner), guard) | (guard, Guard::Not(inner)) => excludes(inner, guard),
        (Guard::Is { slot, patterns }, Guard::Is { slot: of, patterns: others }) => {
            let apart = |one: &Pattern, other: &Pattern| match (*one, *other) {
                (Pattern::Int { low, high }, Pattern::Int { low: from, high: to }) => {
                    high < from || to < low
                }
                (Pattern::Octets(one), Pattern::Octets(other)) => one != other,
                _ => false,
            };
            slot == of && patterns.iter().all(|one| others.iter().all(|other| apart(one, other)))
        }
        _ => false,
    }
}

/// Whether `inner` certainly holds wherever `guard` does.
fn excludes(inner: &Guard, guard: &Guard) -> bool {
    let not = |guard: &Guard| Guard::Not(Box::new(guard.clone()));
    match (inner, guard) {
        (Guard::Always, _) => true,
        (Guard::Any(guards), guard) => guards.iter().any(|of| excludes(of, guard)),
        (Guard::All(guards), guard) => guards.iter().all(|of| excludes(of, guard)),
        (Guard::Not(inner), guard) => disjoint(inner, guard),
        (Guard::Present(slot), Guard::Is { slot: of, .. } | Guard::Present(of)) => slot == of,
        (Guard::Is { slot, patterns }, Guard::Is { slot: of, patterns: others }) => {
            slot == of && others.iter().all(|other| covered_pattern(patterns, *other))
        }
        (inner, Guard::Not(other)) => match &**other {
            Guard::Any(guards) => guards.iter().any(|of| excludes(inner, &not(of))),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a guard holds over constant holes; `None` if that is not known yet.
pub(super) fn known(guard: &Guard, holes: &[Hole]) -> Option<bool> {
    match guard {
        Guard::Always => Some(true),
        Guard::Present(slot) => Some(holes.iter().any(|hole| hole.slot == *slot)),
        Guard::Not(inner) => known(inner, holes).map(|holds| !holds),
        Guard::All(guards) => {
            let all: Vec<_> = guards.iter().map(|guard| known(guard, holes)).collect();
            if all.contains(&Some(false)) {
                return Some(false);
            }
            (!all.contains(&None)).then_some(true)
        }
        Guard::Any(guards) => {
            let all: Vec<_> = guards.iter().map(|guard| known(guard, holes)).collect();
            if all.contains(&Some(true)) {
                return Some(true);
            }
            (!all.contains(&None)).then_some(false)
        }
        Guard::Is { slot, patterns } => {
            let Some(hole) = holes.iter().find(|hole| hole.slot == *slot) else {
                return Some(false);
            };
            match hole.value {
                Operand::Int(value) => Some(patterns.iter().any(|pattern| {
                    matches!(pattern, Pattern::Int { low, high }
                        if (*low..=*high).contains(&value))
                })),
                Operand::Literal(literal) => Some(patterns.contains(&Pattern::Octets(literal))),
                _ => None,
            }
        }
    }
}

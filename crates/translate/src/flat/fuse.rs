//! Places attempts, and merges tests.

use super::compile::{Compiler, OpLabel};
use super::tables::{DeltaOptions, Lines};
use super::{Arm, Code, Op, OpIndex, SetId, SideRange, UNBOUNDED, index, joins};
use crate::view::SlotSet;
use gatewright_lang::ir::{BitField, Fold, Length, ParseOp, ParseStep, SlotType};

/// Maximum octets read as one number.
const WORDS_OCTETS_MAX: u8 = 8;

/// The attempt for the steps that begin here, if there is one.
pub(super) fn attempt(compiler: &mut Compiler<'_>, at: usize) -> Option<Op> {
    if let Some((_, one)) = compiler.entry.take_if(|(entry, _)| *entry == at) {
        return Some(one);
    }
    let steps = compiler.message.parser.get(at..)?;
    let next = OpLabel::of(at).place();
    if let Some((lines, entry)) = Lines::of(compiler, at) {
        let lines = super::appended(&mut compiler.code.lines, [lines]).from;
        compiler.entry = Some((entry, Op::OneLine { lines, next }));
        return Some(Op::Lines(lines));
    }
    if let Some((options, entry)) = DeltaOptions::of(compiler, at) {
        let options = super::appended(&mut compiler.code.options, [options]).from;
        compiler.entry = Some((entry, Op::OneOption { options, next }));
        return Some(Op::Options(options));
    }
    counted(compiler, steps, at).or_else(|| words(compiler, at))
}

/// An attempt for a length, a region of that length and one field in it: an MQTT string.
fn counted(compiler: &mut Compiler<'_>, steps: &[ParseStep], at: usize) -> Option<Op> {
    let [length, enter, take, leave, ..] = steps else { return None };
    let ParseOp::Word { octets, order, fields } = &length.op else { return None };
    let [BitField { shift: 0, width, signed: false, into: Some(counts), expect: None }] =
        fields.as_slice()
    else {
        return None;
    };
    let ParseOp::EnterCounted { length, less, max } = &enter.op else { return None };
    let ParseOp::Take {
        length: Length::Rest,
        into: Some(into),
        max: most,
        empty_is_absent: false,
        fold: Fold::Keep,
    } = &take.op
    else {
        return None;
    };
    let whole = u32::from(*width) == 8 * u32::from(*octets) && *octets <= 4;
    let scratch = compiler.message.slot(*counts)?.scratch;
    let SlotType::Octets { max: bound } = compiler.message.slot(*into)?.ty else { return None };
    if counts != length
        || !matches!(leave.op, ParseOp::Leave)
        || !whole
        || !scratch
        || !joins(*octets, *order)
    {
        return None;
    }
    let most_of = i64::try_from(u64::MAX.checked_shr(64 - u32::from(*width))?).ok();
    Some(Op::PostCounters {
        octets: *octets,
        less: *less,
        max: (*max).min(*most).min(bound),
        length: compiler.number(*counts, most_of.map(|most| (0, most))),
        into: *into,
        next: OpLabel::of(at.saturating_add(4)).place(),
    })
    .filter(|op| matches!(op, Op::PostCounters { length, .. } if length.bounds == UNBOUNDED))
}

/// An attempt for adjacent words, as many as fit one number.
fn words(compiler: &mut Compiler<'_>, at: usize) -> Option<Op> {
    let parser = &compiler.message.parser;
    // The row's beginning, then group by group up to here.
    let in_a_row = |step: &ParseStep| word(step).is_some();
    let mut from =
        parser.get(..at)?.iter().rposition(|step| !in_a_row(step)).map_or(0, |of| of + 1);
    let group = loop {
        let group = group(parser, from);
        if from >= at || group.is_empty() {
            break group;
        }
        from += group.len();
    };
    if from != at || group.len() < 2 {
        return None;
    }
    let octets = group.iter().map(|(octets, _)| octets).sum();
    let (_, before) = group.split_last()?;
    let (_, before) = compiler.word(before);
    let (fields, settles) = compiler.word(&group);
    let next = OpLabel::of(at.saturating_add(group.len())).place();
    Some(Op::Words { octets, fields, settles, before, next })
}

fn group(parser: &[ParseStep], from: usize) -> Vec<(u8, &[BitField])> {
    let (mut group, mut all) = (Vec::new(), 0_u8);
    for step in parser.get(from..).unwrap_or_default() {
        let Some((octets, fields)) = word(step) else { break };
        all = all.saturating_add(octets);
        if all > WORDS_OCTETS_MAX {
            break;
        }
        group.push((octets, fields));
    }
    group
}

fn word(step: &ParseStep) -> Option<(u8, &[BitField])> {
    match &step.op {
        ParseOp::Word { octets, order, fields } if joins(*octets, *order) => {
            Some((*octets, fields))
        }
        _ => None,
    }
}

/// Redirects jumps that lead to another jump to its target.
pub(super) fn jumps(code: &mut Code) {
    let end = |mut place: OpIndex| {
        for _turn in 0..code.ops.len() {
            let Some(Op::Jump(then)) = code.ops.get(index(place.0)) else { break };
            place = *then;
        }
        place
    };
    let ends: Vec<OpIndex> =
        (0..code.ops.len()).map(|at| end(OpIndex(super::narrow(at)))).collect();
    let lead = |place: &mut OpIndex| *place = ends.get(index(place.0)).copied().unwrap_or(*place);
    code.ops.iter_mut().for_each(|op| op.places(lead));
    code.arms.iter_mut().for_each(|arm| lead(&mut arm.then));
}

/// Merges each chain of tests over one slot into a single switch, so that the tenth kind of a
/// message is found as fast as the first. Slots settled between two tests are settled on the way
/// out.
pub(super) fn chains(code: &mut Code) {
    for at in 0..code.ops.len() {
        let Some(Op::Switch { slot, arms, settles, otherwise }) = code.ops.get(at).copied() else {
            continue;
        };
        let mut all: Vec<Arm> = arms.of(&code.arms).to_vec();
        let mut seen = set(code, settles);
        let (mut place, mut turns) = (otherwise, code.ops.len());
        while let Some(op) = code.ops.get(index(place.0)).filter(|_| turns > 0) {
            turns -= 1;
            match *op {
                Op::Jump(then) => place = then,
                Op::Settle(more) => {
                    seen.add(&set(code, more));
                    place = OpIndex(place.0.saturating_add(1));
                }
                Op::Switch { slot: other, arms, settles, otherwise } if other == slot => {
                    let settles = set(code, settles);
                    for arm in arms.of(&code.arms).to_vec() {
                        let mut settled = seen.clone();
                        settled.add(&settles);
                        settled.add(&set(code, arm.settles));
                        all.push(Arm { settles: kept(code, settled), ..arm });
                    }
                    seen.add(&settles);
                    place = otherwise;
                }
                _ => break,
            }
        }
        let settles = kept(code, seen);
        let arms: SideRange = super::appended(&mut code.arms, all);
        let switch = Op::Switch { slot, arms, settles, otherwise: place };
        code.ops.get_mut(at).into_iter().for_each(|op| *op = switch);
    }
}

fn set(code: &Code, id: SetId) -> SlotSet {
    code.sets.get(index(id.0)).cloned().unwrap_or_default()
}

fn kept(code: &mut Code, set: SlotSet) -> SetId {
    match code.sets.iter().position(|known| *known == set) {
        Some(known) => SetId(super::narrow(known)),
        None => SetId(super::appended(&mut code.sets, [set]).from),
    }
}

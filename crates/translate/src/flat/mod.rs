//! The flat form of a layout: what a parser runs.
//!
//! The typed program says what a layout means, in [`ParseOp`]s that own vectors, guards and tables.
//! When a program is loaded, each layout is laid out once more, flat, with everything resolved that
//! does not depend on octets: where an operation goes on, which check of bounds can never fail,
//! which octets a constant has.
//!
//! ```text
//!   ir::Message.parser                     Code
//!
//!   0 word  [type] [token_size]            ops             side tables
//!   1 word  [code]                        ┌────────────┐
//!   2 word  [id]                       0  │ Words ─────┼──▶ fields  type, token_size, code, id
//!   3 unless not code is 0 → 18        1  │ Word       │             (one load, one check)
//!   4 take token_size → token          2  │ Word       │
//!   5 peek 0xff → 16                   3  │ Word       │
//!   …                                  4  │ Switch ────┼──▶ arms    code is 0 → Settle
//!   9 word  [delta] [size]             5  │ Take       │
//!  10 extend delta                     6  │ Options ───┼──▶ options numbers, bounds
//!  11 extend size                      7  │ Peek ──────┼──▶ octets  0xff
//!  12 number += delta                  …  │ …          │
//!  13 take size → value               11  │ Word       │
//!  14 lookup value of number          12  │ Extend     │
//!  15 jump 5                           …  │ …          │
//!                                         └────────────┘
//! ```
//!
//! Each [`Op`] completes, or consumes nothing and waits, or fails: so a message can be cut anywhere,
//! and all that a parser keeps is the index of the op to go on with (see `run`).
//!
//! *Attempts* ([`Op::Words`], [`Op::Counted`], [`Op::Lines`], [`Op::Options`]) stand in front of
//! the ops that mean the same one by one. Where all the octets of them are there, and are as the
//! layout says, an attempt does it all at once and goes on behind them. Otherwise it has done
//! nothing, and the ops behind it find out what is wrong, or wait at the very octet where the input
//! ends; who waits right behind an attempt begins with it again. So an attempt has no failure and
//! no memory of its own, and a message is read alike however it was cut.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | the form |
//! | `compile.rs` | from the typed program, op by op; guards become jumps |
//! | `fuse.rs` | where attempts stand; chains of tests over one slot become one |
//! | `tables.rs` | tables of lines and of options, read in one go; where a key's value goes |
//! | `run.rs`, `ops.rs` | the loop, and what each op does |

mod compile;
mod fuse;
mod ops;
mod run;
mod tables;

use crate::view::SlotSet;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{
    Checksum, Convert, ExtendCase, Fold, Length, Order, Program, SlotId, StreamFraming,
};
use ops::Set;
pub(crate) use run::{Reader, Stop, length};
use std::sync::Arc;

/// A program's layouts in the form in which they are run; made once, when the program is loaded.
#[derive(Clone, Debug)]
pub struct Layouts {
    program: Arc<Program>,
    codes: Vec<Code>,
}

impl Layouts {
    /// Lays out every message of a program.
    pub fn of(program: &Arc<Program>) -> Self {
        let codes = program.messages.iter().map(|message| compile::code(program, message));
        Self { codes: codes.collect(), program: Arc::clone(program) }
    }

    /// Whose they are.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub(crate) fn code(&self, message: usize) -> Option<&Code> {
        self.codes.get(message)
    }
}

/// One layout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    /// The item of the layout that each op comes from.
    pub(crate) spans: Vec<Span>,
    /// All constant octets.
    octets: Vec<u8>,
    fields: Vec<Field>,
    arms: Vec<Arm>,
    /// Sets of slots; the first one is empty.
    sets: Vec<SlotSet>,
    slots: Vec<SlotId>,
    cases: Vec<ExtendCase>,
    bounds: Vec<(i64, i64)>,
    tables: Vec<tables::Table>,
    lines: Vec<tables::Lines>,
    options: Vec<tables::Options>,
    /// What a handler may wait for: every slot that is not scratch.
    pub(crate) open: SlotSet,
    pub(crate) all: SlotSet,
    pub(crate) datagram: bool,
}

/// One operation. What each means is said in [`ParseOp`], by the same names; the others have their
/// meaning here.
///
/// [`ParseOp`]: gatewright_lang::ir::ParseOp
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Literal {
        text: Part,
        fold: bool,
    },
    Until {
        text: Part,
        max: u32,
        store: Store,
    },
    Run {
        set: Set,
        min: u32,
        max: u32,
        store: Store,
    },
    Take {
        length: Length,
        max: u32,
        store: Store,
    },
    Digits {
        radix: u8,
        min: u32,
        max: u32,
        into: Number,
        empty: Empty,
    },
    OneOf {
        text: Part,
        store: Store,
        optional: bool,
    },
    Word {
        octets: u8,
        order: Order,
        fields: Part,
        settles: SetId,
    },
    /// An attempt: several words in network order, eight octets at most.
    Words {
        octets: u8,
        fields: Part,
        settles: SetId,
        /// What is settled before the last of them.
        before: SetId,
        next: Place,
    },
    Varint {
        octets_max: u8,
        into: Number,
    },
    Extend {
        into: Number,
        cases: Part,
    },
    Sum {
        into: Number,
        add: SlotId,
    },
    EnterLine {
        max: u32,
        folded: bool,
    },
    EnterCounted {
        length: SlotId,
        less: u32,
        max: u32,
    },
    /// An attempt: a length in network order, a region of so many octets, all of them a field.
    Counted {
        octets: u8,
        less: u32,
        max: u32,
        length: Number,
        into: SlotId,
        next: Place,
    },
    Leave,
    BeginCheck(Checksum),
    EndCheck(Checksum),
    AtEnd(Place),
    Peek {
        text: Part,
        then: Place,
    },
    /// Goes to the first arm that a number is within, or elsewhere if it is in none or absent.
    /// What ops on the way there would settle is settled.
    Switch {
        slot: SlotId,
        arms: Part,
        settles: SetId,
        otherwise: Place,
    },
    /// One way or the other, by what a slot holds.
    Decide {
        slot: SlotId,
        test: Test,
        then: Place,
        otherwise: Place,
    },
    Jump(Place),
    Count {
        counter: u8,
        max: u32,
    },
    Clear(Part),
    Lookup {
        key: SlotId,
        value: SlotId,
        table: u32,
    },
    Copy {
        from: SlotId,
        into: SlotId,
    },
    /// Takes the line's ends out of what a folded line gave to a slot. Nobody waits for that slot:
    /// it is a part's.
    Unfold(SlotId),
    Append {
        list: SlotId,
        columns: Part,
    },
    /// The slot is set, or the message is malformed.
    Require(SlotId),
    Settle(SetId),
    Stream {
        into: SlotId,
        framing: StreamFraming,
    },
    Accept,
    Refuse,
    /// An attempt: entries of a table that are lines, as many as are there.
    Lines(u32),
    /// An attempt: entries of a table that are numbered by differences, as many as are there.
    Options(u32),
    /// An attempt: one such line, for who waited for the rest of it; the others are next.
    OneLine {
        lines: u32,
        next: Place,
    },
    /// An attempt: one such number.
    OneOption {
        options: u32,
        next: Place,
    },
}

impl Op {
    /// Whether it stands for the ops behind it, and does nothing if it cannot do all.
    pub(crate) const fn is_attempt(&self) -> bool {
        matches!(
            self,
            Self::Words { .. }
                | Self::Counted { .. }
                | Self::Lines(_)
                | Self::Options(_)
                | Self::OneLine { .. }
                | Self::OneOption { .. }
        )
    }
}

/// Index into [`Code::ops`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(u32);

/// Index into [`Code::sets`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SetId(u32);

impl SetId {
    /// The set without a slot.
    const EMPTY: Self = Self(0);
}

/// A stretch of one of the side tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    from: u32,
    to: u32,
}

impl Part {
    fn of<T>(self, all: &[T]) -> &[T] {
        all.get(index(self.from)..index(self.to)).unwrap_or_default()
    }
}

/// Where octets go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    into: Option<SlotId>,
    /// The slot's bound.
    max: u32,
    fold: Fold,
    empty: Empty,
}

/// What no octets are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Empty {
    /// A value.
    Value,
    /// An absent field.
    Absent,
    /// The absence of a field that is mandatory.
    Missing,
}

/// Where a number goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    into: SlotId,
    /// Index into [`Code::bounds`]; [`UNBOUNDED`] if no number is beyond them.
    bounds: u32,
}

const UNBOUNDED: u32 = u32::MAX;

/// One bit field of a word.
#[derive(Clone, Copy, Debug)]
struct Field {
    mask: u64,
    shift: u32,
    then: Then,
}

/// What becomes of a bit field.
#[derive(Clone, Copy, Debug)]
enum Then {
    Store(SlotId),
    StoreWithin(SlotId, i64, i64),
    Expect(i64),
}

/// One way out of a [`Op::Switch`].
#[derive(Clone, Copy, Debug)]
struct Arm {
    low: i64,
    high: i64,
    then: Place,
    settles: SetId,
}

/// A question about a slot that is no number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    Present,
    Empty,
    Octets(Part),
}

/// Where a value of a table goes.
#[derive(Clone, Copy, Debug)]
struct Target {
    into: SlotId,
    convert: Convert,
    /// The least and the greatest number; the most octets.
    low: i64,
    high: i64,
    /// How many it takes, if it is a list.
    rows: Option<u32>,
}

fn index(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

fn narrow(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

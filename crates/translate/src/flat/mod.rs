//! The flat form of a layout, which a parser runs.
//!
//! The typed program describes a layout by [`ParseOp`]s that own vectors, guards and tables. When a
//! program is loaded, each layout is compiled to a flat form. Everything that does not depend on
//! octets is then resolved: jump targets, bounds checks that can never fail, and the octets of
//! constants.
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
//! Each [`Op`] completes, or consumes nothing and waits, or fails. So a message can be cut
//! anywhere, and a parser only keeps the index of the next op (see `run`).
//!
//! *Attempts* ([`Op::Words`], [`Op::PostCounters`], [`Op::Lines`], [`Op::Options`]) stand before the ops
//! that do the same one by one. If all their octets have arrived and match the layout, an attempt
//! does everything at once and continues after those ops. Otherwise it changes nothing, and the ops
//! after it find the error, or wait at the very octet where the input ends. A parser that waits
//! right after an attempt starts with the attempt again. So an attempt has no failure and no memory
//! of its own, and a message is read alike however it was cut.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod.rs` | the form |
//! | `compile.rs` | from the typed program, op by op; guards become jumps |
//! | `fuse.rs` | where attempts stand; chains of tests over one slot become one |
//! | `tables.rs` | tables of lines and of options, read in one go; where a key's value goes |
//! | `run.rs`, `ops.rs` | the loop, and what each op does |
//! | `straight.rs` | one pass over a message that has arrived whole |

mod compile;
mod fuse;
mod ops;
mod run;
pub(crate) mod state;
pub(crate) mod straight;
mod tables;

use crate::view::SlotSet;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{
    Checksum, Convert, ExtendCase, Fold, Length, Order, Program, SlotId, StreamFraming, TooLong,
};
use ops::Set;
pub(crate) use run::{Reader, Stop, length};
use std::sync::Arc;

/// The compiled layouts of a program, made once when the program is loaded.
#[derive(Clone, Debug)]
pub struct Layouts {
    program: Arc<Program>,
    codes: Vec<Code>,
}

impl Layouts {
    /// Compiles every layout of a program.
    pub fn of(program: &Arc<Program>) -> Self {
        let codes = program.messages.iter().map(|message| compile::code(program, message));
        Self { codes: codes.collect(), program: Arc::clone(program) }
    }

    /// The program of these layouts.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub(crate) fn code(&self, message: usize) -> Option<&Code> {
        self.codes.get(message)
    }
}

/// A compiled layout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    /// Source position of the layout's item for each op.
    pub(crate) spans: Vec<Span>,
    /// The item that is too long if an op exceeds its limit.
    pub(crate) too_long: Vec<Option<TooLong>>,
    /// All constant octets.
    octets: Vec<u8>,
    fields: Vec<BitTarget>,
    arms: Vec<Arm>,
    /// Sets of slots; the first one is empty.
    sets: Vec<SlotSet>,
    slots: Vec<SlotId>,
    cases: Vec<ExtendCase>,
    bounds: Vec<(i64, i64)>,
    tables: Vec<tables::NameTable>,
    lines: Vec<tables::Lines>,
    options: Vec<tables::DeltaOptions>,
    /// Slots that a handler may wait for: every slot that is not scratch.
    pub(crate) open: SlotSet,
    pub(crate) all: SlotSet,
    pub(crate) datagram: bool,
    /// The form for messages that have arrived whole.
    pub(crate) straight: Option<straight::Straight>,
}

/// One operation. [`ParseOp`] explains the ops of the same names; the others are explained here.
///
/// [`ParseOp`]: gatewright_lang::ir::ParseOp
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Literal {
        text: SideRange,
        fold: bool,
    },
    Until {
        text: SideRange,
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
        into: NumberTarget,
        empty: Empty,
    },
    OneOf {
        text: SideRange,
        store: Store,
        optional: bool,
    },
    Word {
        octets: u8,
        order: Order,
        fields: SideRange,
        settles: SetId,
    },
    /// An attempt: several words in network order, at most eight octets.
    Words {
        octets: u8,
        fields: SideRange,
        settles: SetId,
        /// Slots settled before the last of them.
        before: SetId,
        next: OpIndex,
    },
    Varint {
        octets_max: u8,
        into: NumberTarget,
    },
    Extend {
        into: NumberTarget,
        cases: SideRange,
    },
    Sum {
        into: NumberTarget,
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
    /// An attempt: a length in network order, and a region of that length that is one field.
    PostCounters {
        octets: u8,
        less: u32,
        max: u32,
        length: NumberTarget,
        into: SlotId,
        next: OpIndex,
    },
    Leave,
    BeginCheck(Checksum),
    EndCheck(Checksum),
    AtEnd(OpIndex),
    Peek {
        text: SideRange,
        then: OpIndex,
    },
    /// Goes to the first arm whose range contains a number; to `otherwise` if no arm does or the
    /// number is absent. It settles the slots that ops on the way there would settle.
    Switch {
        slot: SlotId,
        arms: SideRange,
        settles: SetId,
        otherwise: OpIndex,
    },
    /// Chooses between two places by a slot's value.
    Decide {
        slot: SlotId,
        test: SlotTest,
        then: OpIndex,
        otherwise: OpIndex,
    },
    Jump(OpIndex),
    Count {
        counter: u8,
        max: u32,
    },
    Clear(SideRange),
    Lookup {
        key: SlotId,
        value: SlotId,
        table: u32,
    },
    Copy {
        from: SlotId,
        into: SlotId,
    },
    /// Removes line ends from a slot's octets that came from a folded line. No handler waits for
    /// that slot: it holds a part.
    Unfold(SlotId),
    Append {
        list: SlotId,
        columns: SideRange,
    },
    /// Requires a slot to be set; otherwise the message is malformed.
    Require(SlotId),
    Settle(SetId),
    Stream {
        into: SlotId,
        framing: StreamFraming,
        max: Option<u32>,
    },
    Accept,
    Refuse,
    /// An attempt: table entries that are lines, as many as have arrived.
    Lines(u32),
    /// An attempt: table entries numbered by differences, as many as have arrived.
    Options(u32),
    /// An attempt: one such line, for a parser that waited for its rest; the next lines follow it.
    OneLine {
        lines: u32,
        next: OpIndex,
    },
    /// An attempt: one such numbered entry.
    OneOption {
        options: u32,
        next: OpIndex,
    },
}

impl Op {
    /// Whether it replaces the ops after it, and does nothing if it cannot do all.
    pub(crate) const fn is_attempt(&self) -> bool {
        matches!(
            self,
            Self::Words { .. }
                | Self::PostCounters { .. }
                | Self::Lines(_)
                | Self::Options(_)
                | Self::OneLine { .. }
                | Self::OneOption { .. }
        )
    }
}

/// Index into [`Code::ops`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OpIndex(u32);

/// Index into [`Code::sets`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SetId(u32);

impl SetId {
    /// The empty set.
    const EMPTY: Self = Self(0);
}

/// A range in one of the side tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SideRange {
    from: u32,
    to: u32,
}

impl SideRange {
    fn of<T>(self, all: &[T]) -> &[T] {
        all.get(index(self.from)..index(self.to)).unwrap_or_default()
    }
}

/// Target of octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    into: Option<SlotId>,
    /// The slot's bound.
    max: u32,
    fold: Fold,
    empty: Empty,
}

/// Meaning of empty octets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Empty {
    /// A value.
    Value,
    /// An absent field.
    Absent,
    /// The absence of a mandatory field.
    Missing,
}

/// Target of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberTarget {
    into: SlotId,
    /// Index into [`Code::bounds`]; [`UNBOUNDED`] if every number is within them.
    bounds: u32,
}

const UNBOUNDED: u32 = u32::MAX;

/// One bit field of a word.
#[derive(Clone, Copy, Debug)]
struct BitTarget {
    mask: u64,
    /// The bit of the sign in the mask, which counts negative; 0 without a sign.
    sign: u64,
    shift: u32,
    then: Then,
}

impl BitTarget {
    /// The number that the field has in a word.
    #[inline]
    fn number_in(&self, word: u64) -> i64 {
        let bits = word.checked_shr(self.shift).unwrap_or(0) & self.mask;
        (bits ^ self.sign).wrapping_sub(self.sign).cast_signed()
    }
}

/// Target of a bit field.
#[derive(Clone, Copy, Debug)]
enum Then {
    Store(SlotId),
    StoreWithin(SlotId, i64, i64),
    Expect(i64),
}

/// One branch of an [`Op::Switch`].
#[derive(Clone, Copy, Debug)]
struct Arm {
    low: i64,
    high: i64,
    then: OpIndex,
    settles: SetId,
}

/// A test of a slot that is no number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotTest {
    Present,
    Empty,
    Octets(SideRange),
}

/// Target of a table's value.
#[derive(Clone, Copy, Debug)]
struct ValueTarget {
    into: SlotId,
    convert: Convert,
    /// Minimum and maximum number; maximum octets.
    low: i64,
    high: i64,
    /// Maximum number of elements, if it is a list.
    rows: Option<u32>,
    /// Whether it is the number of octets of another part.
    is_length: bool,
}

fn index(of: u32) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

fn narrow(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Appends to a side table.
fn appended<T>(table: &mut Vec<T>, more: impl IntoIterator<Item = T>) -> SideRange {
    let from = table.len();
    table.extend(more);
    SideRange { from: narrow(from), to: narrow(table.len()) }
}

/// Whether words in this order can be read together with others as one number.
const fn joins(octets: u8, order: Order) -> bool {
    octets == 1 || matches!(order, Order::Big)
}

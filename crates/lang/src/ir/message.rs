//! Layouts: octets to slots and back.

use super::{LiteralId, LocalId, SlotId, StepId};
use gatewright_diagnostic::Span;

/// One layout: what it holds, how it is read, how it is written.
///
/// For every message with a parser, parsing what was emitted gives the slots back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// `module.name`.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// Its fields, in the order of the text; scratch slots behind them.
    pub slots: Vec<Slot>,
    /// The machine that reads it, from step 0; empty for a template of plain text.
    pub parser: Vec<ParseStep>,
    /// What writes it, in order.
    pub emit: Vec<Emit>,
    /// How many [`LocalId`]s `emit` uses.
    pub locals: u32,
    /// Whether one message is one datagram (the end of octets is the end of the message).
    pub datagram: bool,
    /// The longest stretch that the parser must see at once outside a stream: a line, a field, a
    /// number.
    pub window_max: u32,
    /// The most octets that the slots hold together; streams count nothing.
    pub octets_max: u64,
}

impl Message {
    /// A slot; `None` only for an id of another message.
    pub fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.index())
    }

    /// The longest stretch, in octets, that its reader must see at once, its stream's included.
    pub fn window(&self) -> u32 {
        let chunked = self.parser.iter().any(|step| match &step.op {
            ParseOp::Stream { select, .. } => {
                select.iter().any(|select| select.framing == StreamFraming::Chunked)
            }
            _ => false,
        });
        if chunked { self.window_max.max(CHUNK_WINDOW_OCTETS) } else { self.window_max }
    }

    /// Whether it is a line, or lines in a row: then the next message begins behind a line's end,
    /// whatever is wrong with this one.
    pub fn is_lines(&self) -> bool {
        let (mut depth, mut lines) = (0_u32, false);
        for step in &self.parser {
            match &step.op {
                ParseOp::EnterLine { .. } => {
                    depth += 1;
                    lines = true;
                }
                ParseOp::Leave => depth = depth.saturating_sub(1),
                ParseOp::Count { .. }
                | ParseOp::Clear { .. }
                | ParseOp::Branch { .. }
                | ParseOp::Jump(_)
                | ParseOp::Copy { .. }
                | ParseOp::Settle { .. }
                | ParseOp::Accept
                | ParseOp::Refuse => {}
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        lines
    }
}

/// A typed place for one recognised field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slot {
    /// The field's name.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// What it holds.
    pub ty: SlotType,
    /// What happens to the letters of its octets when they are read.
    pub fold: Fold,
    /// Whether a well-formed message may lack it.
    pub optional: bool,
    /// Whether the protocol fills it (`sending`) rather than the gateway.
    pub private: bool,
    /// Whether only the parser and the serializer use it.
    pub scratch: bool,
}

/// What a slot holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SlotType {
    /// A number in these bounds, both included.
    Int {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The bound.
        max: u32,
    },
    /// At most `max` elements, each of these columns (one, but for lists of parts).
    List {
        /// Name and type of each column; the name is empty when there is but one.
        columns: Vec<(String, ColumnType)>,
        /// The bound.
        max: u32,
    },
    /// Octets that pass through and are never held.
    Stream,
}

/// What one column of a list holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ColumnType {
    /// A number in these bounds.
    Int {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The bound.
        max: u32,
    },
}

/// One instruction of a parser, with the text it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseStep {
    /// What it does.
    pub op: ParseOp,
    /// The item of the layout.
    pub span: Span,
}

/// What a parser can do in one step.
///
/// A parser keeps a step, a stack of regions (datagram or stream, and what `EnterLine` and
/// `EnterCounted` opened), loop counters, and the slots. Every operation either completes, or
/// consumes nothing and waits for more octets (except `Stream`, which passes octets on), or fails.
/// An operation that completes settles the slots it names as `into`: set, or absent for good; a
/// mandatory one that would be absent is malformed. Scratch slots are never waited for.
/// "End" below means the end of the innermost region; the end of a stream connection inside a
/// message is a failure, but for [`StreamFraming::UntilClose`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ParseOp {
    /// These octets come next, or the message is malformed.
    Literal {
        /// The octets.
        literal: LiteralId,
        /// Whether ASCII case does not matter.
        fold: bool,
    },
    /// Octets up to a delimiter, which is consumed; malformed if it is not within `max` octets
    /// or the end comes first.
    Until {
        /// What ends the field.
        delimiter: LiteralId,
        /// Where the octets go.
        into: Option<SlotId>,
        /// How they are folded.
        fold: Fold,
        /// The field's bound, delimiter not counted.
        max: u32,
    },
    /// The longest run of octets of a class; malformed if shorter than `min` or longer than `max`.
    Run {
        /// Which octets.
        class: Class,
        /// Where they go.
        into: Option<SlotId>,
        /// Whether an empty run leaves the slot absent, rather than empty.
        empty_is_absent: bool,
        /// How they are folded.
        fold: Fold,
        /// The least length.
        min: u32,
        /// The greatest length.
        max: u32,
    },
    /// A number of octets; malformed if the end comes first or above `max`.
    Take {
        /// How many.
        length: Length,
        /// Where they go.
        into: Option<SlotId>,
        /// Whether no octets leave the slot absent, rather than empty.
        empty_is_absent: bool,
        /// How they are folded.
        fold: Fold,
        /// The bound.
        max: u32,
    },
    /// Digits, as a number; malformed outside the slot's bounds. Greedy up to `max`. Where `min`
    /// is 0, no digit leaves the slot absent.
    Digits {
        /// 10 or 16.
        radix: u32,
        /// The fewest digits.
        min: u32,
        /// The most digits.
        max: u32,
        /// Where the number goes.
        into: SlotId,
    },
    /// One octet of the set.
    OneOf {
        /// The set.
        set: LiteralId,
        /// Where it goes, as one octet.
        into: SlotId,
        /// Whether any other octet (which is not consumed) leaves the slot absent; else it is
        /// malformed.
        optional: bool,
    },
    /// A word of 1 to 8 octets, cut into bit fields.
    Word {
        /// Its octets.
        octets: u8,
        /// Their order.
        order: Order,
        /// The fields, highest bits first.
        fields: Vec<BitField>,
    },
    /// A number in groups of seven bits, least group first, the high bit set on all but the last
    /// octet (MQTT 3.1.1 §2.2.3).
    Varint {
        /// The most octets.
        octets_max: u8,
        /// Where it goes.
        into: SlotId,
    },
    /// If the slot has the value of a case, reads that many octets more as a big-endian number,
    /// adds the case's constant, and stores the sum instead. Malformed if the slot's value is
    /// above that of the last case (RFC 7252 §3.1: 15 is reserved).
    Extend {
        /// The slot.
        slot: SlotId,
        /// The escapes.
        cases: Vec<ExtendCase>,
    },
    /// Adds a slot to a running sum, which is 0 while it is absent.
    Sum {
        /// The running sum.
        into: SlotId,
        /// What is added.
        add: SlotId,
    },
    /// Opens a region: a line without its CRLF (a lone LF ends it as well). Waits for the whole
    /// line; malformed above `max` octets, CRLF counted.
    EnterLine {
        /// The bound.
        max: u32,
        /// Whether a line's end does not end it where a space or tab follows (RFC 3261 §7.3.1); it
        /// then waits for one octet behind it, unless it is empty or nothing can follow. In such a
        /// region [`Class::Blank`] has CR and LF, too, and octets that are stored have one space
        /// where a line's end is with the blanks around it; their bound counts what was sent.
        folded: bool,
    },
    /// Opens a region of as many octets as the slot says, less those that stand before it;
    /// malformed above `max`.
    EnterCounted {
        /// Its length.
        length: SlotId,
        /// How many octets before the region are counted, too.
        less: u32,
        /// The bound.
        max: u32,
    },
    /// Closes the innermost region: consumes a line's end; malformed if octets are left over.
    Leave,
    /// Octets from here on are summed up. Up to the `EndCheck`, the end of the region is as many
    /// octets earlier as the check takes.
    BeginCheck {
        /// How.
        by: Checksum,
    },
    /// The check over the octets since the last `BeginCheck` comes next, or the message is
    /// malformed. Checks do not nest.
    EndCheck {
        /// How.
        by: Checksum,
    },
    /// Goes elsewhere at the end of the region.
    AtEnd {
        /// Where to.
        then: StepId,
    },
    /// If these octets come next, consumes them and goes elsewhere. At the end they do not come.
    Peek {
        /// The octets.
        literal: LiteralId,
        /// Where to go then.
        then: StepId,
    },
    /// Goes elsewhere unless the guard holds.
    Branch {
        /// The guard.
        guard: Guard,
        /// Where to go if it does not hold.
        otherwise: StepId,
    },
    /// Goes elsewhere.
    Jump(StepId),
    /// Counts a turn of the loop that starts here; malformed above `max`.
    ///
    /// The counter starts at 0 when the message begins.
    Count {
        /// Which counter, from 0, at most seven in a message.
        counter: u8,
        /// The most turns.
        max: u32,
    },
    /// Makes scratch slots absent again: a new turn of a loop.
    Clear {
        /// Which.
        slots: Vec<SlotId>,
    },
    /// Files a value under its key: the entry whose key equals the slot's; none is no fault.
    /// A second value for an entry that is no list is malformed. Where the key is octets, spaces
    /// and tabs at both ends of the value are taken off first. Entries are not settled before a
    /// `Settle` says so.
    Lookup {
        /// The key, octets (ASCII case does not matter) or a number.
        key: SlotId,
        /// The value, octets.
        value: SlotId,
        /// The known keys.
        entries: Vec<Entry>,
    },
    /// Copies a slot; absent stays absent.
    Copy {
        /// From here.
        from: SlotId,
        /// To there.
        into: SlotId,
    },
    /// Appends one element; malformed if the list is full.
    Append {
        /// The list.
        list: SlotId,
        /// Where each column comes from.
        columns: Vec<SlotId>,
    },
    /// Those of the slots that are not set will not be set any more: handlers that wait may go on.
    /// Malformed if a mandatory one is among them.
    Settle {
        /// Which.
        slots: Vec<SlotId>,
    },
    /// The stream begins: the slot is settled, and octets pass under the first framing whose guard
    /// holds. The step completes with the stream's end; malformed if none holds.
    Stream {
        /// The slot.
        into: SlotId,
        /// The framings.
        select: Vec<Select>,
    },
    /// The message is complete; the next one begins with the next octet. In a datagram, octets
    /// that are left over are malformed.
    Accept,
    /// The message is malformed.
    Refuse,
}

/// A check over octets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// CRC-16 of Modbus over serial lines: polynomial 0x8005 reflected, initial 0xffff; two
    /// octets, least significant first (Modbus over Serial Line 1.02 §6.2.2).
    Crc16Modbus,
    /// CRC-16 with polynomial 0x1021, not reflected, initial 0xffff; two octets, most significant
    /// first (ITU-T X.25's polynomial, as in IBM's 3270).
    Crc16Ccitt,
    /// CRC-32 of IEEE 802.3: polynomial 0x04c11db7 reflected, initial and final 0xffff_ffff; four
    /// octets, least significant first.
    Crc32,
    /// One octet that makes the sum of all octets 0 modulo 256 (Modbus over Serial Line 1.02
    /// §6.2.1, before its ASCII coding).
    Lrc,
}

impl Checksum {
    /// How many octets the check takes.
    pub const fn octets(self) -> u8 {
        match self {
            Self::Crc16Modbus | Self::Crc16Ccitt => 2,
            Self::Crc32 => 4,
            Self::Lrc => 1,
        }
    }
}

/// How many octets a [`ParseOp::Take`] takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Length {
    /// Always as many.
    Fixed(u32),
    /// As many as a slot says.
    Slot(SlotId),
    /// All up to the end of the region.
    Rest,
}

/// What happens to letters on the way into a slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fold {
    /// Nothing.
    #[default]
    Keep,
    /// ASCII capitals.
    Upper,
    /// ASCII small letters.
    Lower,
}

/// A set of octets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The space, 0x20.
    Space,
    /// Space and horizontal tab.
    Blank,
    /// Anything but controls, space and DEL (0x21 to 0x7e, and 0x80 to 0xff).
    Token,
    /// What names are made of in HTTP and SIP: letters, digits and ``!#$%&'*+-.^_`|~``
    /// (RFC 9110 §5.6.2).
    Word,
    /// 0 to 9.
    Digit,
}

impl Class {
    /// Whether the octet is in the set.
    pub const fn contains(self, octet: u8) -> bool {
        match self {
            Self::Space => octet == b' ',
            Self::Blank => matches!(octet, b' ' | b'\t'),
            Self::Token => octet > 0x20 && octet != 0x7f,
            Self::Word => matches!(
                octet,
                b'0'..=b'9'
                    | b'A'..=b'Z'
                    | b'^'..=b'z'
                    | b'!'
                    | b'#'..=b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'|'
                    | b'~'
            ),
            Self::Digit => octet.is_ascii_digit(),
        }
    }
}

/// The order of a word's octets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Most significant first: network order.
    #[default]
    Big,
    /// Least significant first.
    Little,
}

/// One bit field of a [`ParseOp::Word`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BitField {
    /// How far its lowest bit is from the word's lowest.
    pub shift: u8,
    /// Its bits.
    pub width: u8,
    /// Where it goes.
    pub into: Option<SlotId>,
    /// The only value that is well-formed.
    pub expect: Option<i64>,
}

/// One escape of [`ParseOp::Extend`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExtendCase {
    /// The value that announces more.
    pub value: i64,
    /// How many octets more, 1 to 7.
    pub octets: u8,
    /// What is added to them.
    pub add: i64,
}

/// One known key of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The slot; one that is a list takes every value, another only one.
    pub into: SlotId,
    /// What becomes of the value.
    pub convert: Convert,
}

/// A table's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Key {
    /// Octets; ASCII case does not matter.
    Octets(LiteralId),
    /// A number.
    Int(i64),
}

/// How a value's octets become what the slot holds; malformed if they cannot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Convert {
    /// As they are.
    Keep,
    /// In small letters.
    Lower,
    /// In capitals.
    Upper,
    /// Decimal digits, as a number.
    Decimal,
    /// A big-endian number in as few octets as it needs; no octet is 0.
    Uint,
}

/// A condition over the slots of one message. An absent slot is not any pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Guard {
    /// Holds.
    Always,
    /// The slot's value matches one of the patterns.
    Is {
        /// The slot.
        slot: SlotId,
        /// The patterns.
        patterns: Vec<Pattern>,
    },
    /// The slot is set.
    Present(SlotId),
    /// Every one holds.
    All(Vec<Self>),
    /// At least one holds.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
}

/// What a value is compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// A number in these bounds, both included.
    Int {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// These octets.
    Octets(LiteralId),
    /// No octet, or no element.
    Empty,
}

/// A framing with the guard under which it is used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Select {
    /// When.
    pub guard: Guard,
    /// How.
    pub framing: StreamFraming,
}

/// The longest part of a chunked stream that is looked at as a whole: a size of 16 digits with
/// 8,192 octets of extensions and its line's end.
const CHUNK_WINDOW_OCTETS: u32 = 8_210;

/// How the end of a stream is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamFraming {
    /// Lines up to a line that is the terminator. On the way in one `stuffing` is taken off each
    /// line that begins with it; on the way out one is put before each, and an unfinished last
    /// line is finished (RFC 5321 §4.5.2). A line ends with LF, and stays as it is; the terminator
    /// stands behind CRLF and before CRLF only, so that no message can be smuggled in behind it.
    Lines {
        /// The last line, without CRLF.
        terminator: LiteralId,
        /// What is doubled at the beginning of a line.
        stuffing: LiteralId,
    },
    /// Chunks with their sizes in hexadecimal; extensions and trailers are skipped, at most
    /// 8,192 octets of them (RFC 9112 §7.1).
    Chunked,
    /// As many octets as the slot says.
    Counted(SlotId),
    /// Up to the end of the connection.
    UntilClose,
    /// No octet.
    Nothing,
}

/// One part of what a serializer writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Emit {
    /// Constant octets.
    Literal(LiteralId),
    /// Octets of the source, if they pass the check.
    Octets {
        /// What.
        from: Source,
        /// What they must be, so that they can be read again.
        check: Check,
    },
    /// A number in digits, filled with zeros to `width`.
    Digits {
        /// What.
        from: Source,
        /// 10 or 16.
        radix: u32,
        /// The fewest digits.
        width: u32,
        /// The most digits; more cannot be built.
        max: u32,
    },
    /// A word, put together of bit fields.
    Word {
        /// Its octets.
        octets: u8,
        /// Their order.
        order: Order,
        /// Its fields.
        fields: Vec<EmitField>,
    },
    /// A number in groups of seven bits; see [`ParseOp::Varint`].
    Varint {
        /// What.
        from: Source,
        /// The most octets; more cannot be built.
        octets_max: u8,
    },
    /// What follows an escape; nothing if the value needs none.
    Extension {
        /// The whole value.
        of: Source,
        /// The escapes.
        cases: Vec<ExtendCase>,
    },
    /// A length, then as many octets.
    Counted {
        /// The length's own octets, 1 to 4; 0 for a varint of at most four.
        octets: u8,
        /// Their order.
        order: Order,
        /// How many octets before the body are counted, too.
        more: u32,
        /// The most octets of the body; more cannot be built.
        max: u32,
        /// The body.
        body: Vec<Self>,
    },
    /// The parts, and behind them the check over their octets.
    Checked {
        /// How.
        by: Checksum,
        /// The parts.
        body: Vec<Self>,
    },
    /// The parts of a line or datagram.
    Bounded {
        /// The most octets that they write; more cannot be built.
        max: u32,
        /// The parts.
        body: Vec<Self>,
    },
    /// Keeps a value for later; a second one replaces it.
    Let {
        /// Where.
        local: LocalId,
        /// What.
        value: Source,
    },
    /// One thing or the other.
    IfPresent {
        /// The slot.
        slot: SlotId,
        /// If it is set.
        then: Vec<Self>,
        /// If it is absent.
        otherwise: Vec<Self>,
    },
    /// The parts, if the guard holds.
    When {
        /// The guard.
        guard: Guard,
        /// The parts.
        then: Vec<Self>,
    },
    /// The parts, once for each element; [`Source::Element`] is the element.
    ForEach {
        /// The list.
        list: SlotId,
        /// The parts.
        body: Vec<Self>,
    },
    /// Passes the stream on, under the first framing whose guard holds.
    Stream {
        /// The slot.
        slot: SlotId,
        /// The framings.
        select: Vec<Select>,
    },
}

/// One bit field of an [`Emit::Word`]; a value that does not fit cannot be built.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EmitField {
    /// How far its lowest bit is from the word's lowest.
    pub shift: u8,
    /// Its bits.
    pub width: u8,
    /// What.
    pub from: Source,
}

/// Where a serializer takes a value from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A slot; an absent one is no octets, or 0.
    Slot(SlotId),
    /// A slot of a number, or the default where it is absent.
    SlotOr(SlotId, i64),
    /// A column of the current element.
    Element(u32),
    /// What an [`Emit::Let`] kept; 0 before the first.
    Local(LocalId),
    /// A number.
    Int(i64),
    /// Constant octets.
    Literal(LiteralId),
    /// How many octets.
    Size(Box<Self>),
    /// How many elements.
    Count(SlotId),
    /// The first less the second; a negative difference cannot be built.
    Difference(Box<Self>, Box<Self>),
    /// The value itself below every escape, else the escape that announces it.
    Escape {
        /// The whole value.
        of: Box<Self>,
        /// The escapes.
        cases: Vec<ExtendCase>,
    },
    /// Decimal digits of a number, as octets.
    Decimal(Box<Self>),
    /// A number in as few big-endian octets as it needs; 0 is none.
    Uint(Box<Self>),
}

/// What octets must be so that the layout reads them back; otherwise the message cannot be built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Check {
    /// Every octet is of this class.
    pub class: Option<Class>,
    /// The value is one octet of these.
    pub one_of: Option<LiteralId>,
    /// These octets do not occur: a delimiter, or a line's end (no header can be smuggled in).
    pub without: Option<LiteralId>,
    /// Whether CR and LF are refused as well.
    pub one_line: bool,
    /// The first octet is not of this class: it would be skipped.
    pub not_first: Option<Class>,
    /// The least length.
    pub min: u32,
    /// The greatest length.
    pub max: u32,
}

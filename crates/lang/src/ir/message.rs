//! Message layouts: between octets and slots.

use super::{LiteralId, LocalId, SlotId, StepId};
use gatewright_diagnostic::Span;

/// One layout: its slots, its parser and its serializer.
///
/// For every message with a parser, parsing the emitted octets gives the slots back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// `module.name`.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// Its fields in the order of the text, followed by scratch slots.
    pub slots: Vec<Slot>,
    /// The parser's steps, from step 0; empty for a template of plain text.
    pub parser: Vec<ParseStep>,
    /// The serializer's parts, in order.
    pub emit: Vec<Emit>,
    /// Number of [`LocalId`]s that `emit` uses.
    pub locals: u32,
    /// Whether one message is one datagram (the end of octets is the end of the message).
    pub datagram: bool,
    /// Maximum stretch, in octets, that the parser must see at once outside a stream: a line, a
    /// field, a number.
    pub window_max: u32,
    /// Maximum octets that the slots hold together; streams do not count.
    pub octets_max: u64,
}

impl Message {
    /// A slot; `None` only for an id of another message.
    pub fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.index())
    }

    /// Maximum stretch, in octets, that its reader must see at once, also in its stream.
    pub fn window(&self) -> u32 {
        let chunked = self.parser.iter().any(|step| match &step.op {
            ParseOp::Stream { select, .. } => {
                select.iter().any(|select| select.framing == StreamFraming::Chunked)
            }
            _ => false,
        });
        if chunked { self.window_max.max(CHUNK_WINDOW_OCTETS) } else { self.window_max }
    }

    /// Whether it consists of lines only. Then the next message begins after a line's end, even if
    /// this one is malformed.
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

/// A typed place for one field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slot {
    /// The field's name.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// Its type.
    pub ty: SlotType,
    /// Case folding of its octets when they are read.
    pub fold: Fold,
    /// Whether a well-formed message may lack it.
    pub optional: bool,
    /// Whether the protocol fills it (`sending`) rather than the gateway.
    pub private: bool,
    /// Whether it is internal to the parser and the serializer.
    pub scratch: bool,
}

/// Type of a slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SlotType {
    /// A number in these bounds, both included.
    Int {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The maximum length.
        max: u32,
    },
    /// At most `max` elements with these columns (one, except for lists of parts).
    List {
        /// Name and type of each column; the name of a single column is empty.
        columns: Vec<(String, ColumnType)>,
        /// The maximum length.
        max: u32,
    },
    /// Octets that pass through and are never stored.
    Stream,
}

/// Type of a list's column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ColumnType {
    /// A number in these bounds.
    Int {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The maximum length.
        max: u32,
    },
}

/// One instruction of a parser, with its source position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseStep {
    /// The operation.
    pub op: ParseOp,
    /// Source position of the layout's item.
    pub span: Span,
}

/// Operation of a parser step.
///
/// A parser keeps a step, a stack of regions (the datagram or stream, and those opened by
/// `EnterLine` and `EnterCounted`), loop counters, and the slots. Every operation completes, fails,
/// or consumes nothing and waits for more octets; only `Stream` passes octets on while it waits. An
/// operation that completes settles its `into` slots: set, or absent for good. A mandatory slot
/// that would be absent makes the message malformed. Scratch slots are never waited for. "End"
/// below means the end of the innermost region. The end of a stream connection inside a message is
/// a failure, except for [`StreamFraming::UntilClose`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ParseOp {
    /// These octets must come next, or the message is malformed.
    Literal {
        /// The octets.
        literal: LiteralId,
        /// Whether ASCII case is ignored.
        fold: bool,
    },
    /// Octets up to a delimiter, which is consumed; malformed if it is not within `max` octets
    /// or the end comes first.
    Until {
        /// The delimiter that ends the field.
        delimiter: LiteralId,
        /// The slot for the octets.
        into: Option<SlotId>,
        /// Their case folding.
        fold: Fold,
        /// The field's maximum length without the delimiter.
        max: u32,
    },
    /// The longest run of octets of a class; malformed if shorter than `min` or longer than `max`.
    Run {
        /// The class of octets.
        class: Class,
        /// The slot for them.
        into: Option<SlotId>,
        /// Whether an empty run leaves the slot absent, rather than empty.
        empty_is_absent: bool,
        /// Their case folding.
        fold: Fold,
        /// The minimum length.
        min: u32,
        /// The maximum length.
        max: u32,
    },
    /// A number of octets; malformed if the end comes first or above `max`.
    Take {
        /// The number of octets.
        length: Length,
        /// The slot for them.
        into: Option<SlotId>,
        /// Whether no octets leave the slot absent, rather than empty.
        empty_is_absent: bool,
        /// Their case folding.
        fold: Fold,
        /// The maximum length.
        max: u32,
    },
    /// Digits, as a number; malformed outside the slot's bounds. It takes as many digits as
    /// possible, up to `max`. If `min` is 0, no digit leaves the slot absent.
    Digits {
        /// 10 or 16.
        radix: u32,
        /// The minimum number of digits.
        min: u32,
        /// The maximum number of digits.
        max: u32,
        /// The slot for the number.
        into: SlotId,
    },
    /// One octet of the set.
    OneOf {
        /// The set.
        set: LiteralId,
        /// The slot for it, as one octet.
        into: SlotId,
        /// Whether any other octet leaves the slot absent, unconsumed; otherwise the message is
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
        /// The maximum number of octets.
        octets_max: u8,
        /// The slot for the number.
        into: SlotId,
    },
    /// If the slot has the value of a case, reads that case's octets as a big-endian number, adds
    /// the case's constant, and stores the sum instead. A value above that of the last case is
    /// malformed (RFC 7252 §3.1: 15 is reserved).
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
        /// The slot to add.
        add: SlotId,
    },
    /// Opens a region: a line without its CRLF (a lone LF ends it as well). Waits for the whole
    /// line; malformed above `max` octets, with the CRLF.
    EnterLine {
        /// The maximum length.
        max: u32,
        /// Whether the line continues after a line's end followed by a space or tab (RFC 3261
        /// §7.3.1). It then waits for one octet after the line's end, unless the line is empty or
        /// nothing can follow. In such a region [`Class::Blank`] includes CR and LF. Stored octets
        /// have one space in place of a line's end and the blanks around it; their bound counts the
        /// octets as sent.
        folded: bool,
    },
    /// Opens a region of the length in the slot, less the octets before it that the length counts;
    /// malformed above `max`.
    EnterCounted {
        /// Its length.
        length: SlotId,
        /// Number of octets before the region that the length counts, too.
        less: u32,
        /// The maximum length.
        max: u32,
    },
    /// Closes the innermost region: consumes a line's end; malformed if octets are left over.
    Leave,
    /// Begins a check over the following octets. Up to the `EndCheck`, the region ends earlier by
    /// the length of the check.
    BeginCheck {
        /// The checksum.
        by: Checksum,
    },
    /// The check over the octets since the last `BeginCheck` must come next, or the message is
    /// malformed. Checks do not nest.
    EndCheck {
        /// The checksum.
        by: Checksum,
    },
    /// Continues at another step at the end of the region.
    AtEnd {
        /// The step to continue at.
        then: StepId,
    },
    /// If these octets come next, consumes them and continues at another step. At the end there is
    /// no match.
    Peek {
        /// The octets.
        literal: LiteralId,
        /// The step after a match.
        then: StepId,
    },
    /// Continues at another step unless the guard holds.
    Branch {
        /// The guard.
        guard: Guard,
        /// The step if the guard does not hold.
        otherwise: StepId,
    },
    /// Continues at another step.
    Jump(StepId),
    /// Counts an iteration of the loop that starts here; malformed above `max`.
    ///
    /// The counter starts at 0 when the message begins.
    Count {
        /// Which counter, from 0, at most seven in a message.
        counter: u8,
        /// The maximum number of iterations.
        max: u32,
    },
    /// Makes scratch slots absent again, for a new iteration of a loop.
    Clear {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// Stores a value in the entry whose key equals the key slot's value; an unknown key is
    /// ignored. A second value for an entry that is no list is malformed. If the key is octets,
    /// spaces and tabs at both ends of the value are removed first. Entries are only settled by a
    /// `Settle`.
    Lookup {
        /// The key: octets (ASCII case is ignored) or a number.
        key: SlotId,
        /// The value, octets.
        value: SlotId,
        /// The known keys.
        entries: Vec<TableRow>,
    },
    /// Copies a slot; an absent one stays absent.
    Copy {
        /// The source slot.
        from: SlotId,
        /// The destination slot.
        into: SlotId,
    },
    /// Appends one element; malformed if the list is full.
    Append {
        /// The list.
        list: SlotId,
        /// The slot for each column.
        columns: Vec<SlotId>,
    },
    /// Settles the slots that are not set as absent: handlers that wait may resume. Malformed if a
    /// mandatory one is among them.
    Settle {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// Begins the stream: the slot is settled, and octets pass under the first framing whose guard
    /// holds. The step completes at the stream's end; malformed if no guard holds.
    Stream {
        /// The slot.
        into: SlotId,
        /// The framings.
        select: Vec<Select>,
        /// Maximum octets of the stream; malformed if it has more.
        max: Option<u32>,
    },
    /// Completes the message; the next one begins with the next octet. In a datagram, remaining
    /// octets are malformed.
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
    /// Length of the check in octets.
    pub const fn octets(self) -> u8 {
        match self {
            Self::Crc16Modbus | Self::Crc16Ccitt => 2,
            Self::Crc32 => 4,
            Self::Lrc => 1,
        }
    }
}

/// Number of octets for a [`ParseOp::Take`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Length {
    /// A fixed number.
    Fixed(u32),
    /// The number in a slot.
    Slot(SlotId),
    /// All octets to the end of the region.
    Rest,
}

/// Case folding of letters stored in a slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fold {
    /// No folding.
    #[default]
    Keep,
    /// To ASCII upper case.
    Upper,
    /// To ASCII lower case.
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
    /// The characters of names in HTTP and SIP: letters, digits and ``!#$%&'*+-.^_`|~`` (RFC 9110
    /// §5.6.2).
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

/// Byte order of a word.
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
    /// Distance of its lowest bit from the word's lowest bit.
    pub shift: u8,
    /// Its width in bits.
    pub width: u8,
    /// Whether its highest bit is a sign (two's complement).
    pub signed: bool,
    /// The slot for its value.
    pub into: Option<SlotId>,
    /// The only well-formed value, if there is one.
    pub expect: Option<i64>,
}

/// One escape of [`ParseOp::Extend`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExtendCase {
    /// The value that announces further octets.
    pub value: i64,
    /// Number of further octets, 1 to 7.
    pub octets: u8,
    /// The constant added to them.
    pub add: i64,
}

/// One known key of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableRow {
    /// The key.
    pub key: TableKey,
    /// The slot; a list takes every value, any other slot only one.
    pub into: SlotId,
    /// Conversion of the value.
    pub convert: Convert,
}

/// A table's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableKey {
    /// Octets; ASCII case is ignored.
    Octets(LiteralId),
    /// A number.
    Int(i64),
}

/// Conversion of a value's octets to a slot's value; malformed if it fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Convert {
    /// No conversion.
    Keep,
    /// To lower case.
    Lower,
    /// To upper case.
    Upper,
    /// Decimal digits, as a number.
    Decimal,
    /// A big-endian number in as few octets as it needs; no octet is 0.
    Uint,
}

/// A condition over the slots of one message. An absent slot matches no pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Guard {
    /// Always holds.
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
    /// All hold.
    All(Vec<Self>),
    /// At least one holds.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
}

/// A pattern to compare a value with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// A number in these bounds, both included.
    Int {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// These octets.
    Octets(LiteralId),
    /// No octet, or no element.
    Empty,
}

/// A framing and the guard for its use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Select {
    /// The guard.
    pub guard: Guard,
    /// The framing.
    pub framing: StreamFraming,
}

/// The longest part of a chunked stream that must be seen whole: a size of 16 digits with 8,192
/// octets of extensions and its line's end.
const CHUNK_WINDOW_OCTETS: u32 = 8_210;

/// The framing that ends a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamFraming {
    /// Lines, up to a line that is the terminator. The reader removes one `stuffing` from each line
    /// that begins with it. The writer puts one before each such line, and finishes an unfinished
    /// last line (RFC 5321 §4.5.2). A line ends with LF and stays unchanged. The terminator is only
    /// recognised between CRLF and CRLF, so that no message can be smuggled in after it.
    Lines {
        /// The last line, without CRLF.
        terminator: LiteralId,
        /// The octets doubled at the beginning of a line.
        stuffing: LiteralId,
    },
    /// Chunks with their sizes in hexadecimal; extensions and trailers are skipped, at most
    /// 8,192 octets of them (RFC 9112 §7.1).
    Chunked,
    /// The number of octets in the slot.
    Counted(SlotId),
    /// Up to the end of the connection.
    UntilClose,
    /// No octet.
    Nothing,
}

/// One part of a serializer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Emit {
    /// Constant octets.
    Literal(LiteralId),
    /// Octets of the source, if they pass the check.
    Octets {
        /// The source of the value.
        from: Source,
        /// The check that they can be read again.
        check: Check,
    },
    /// A number in digits, filled with zeros to `width`.
    Digits {
        /// The source of the value.
        from: Source,
        /// 10 or 16.
        radix: u32,
        /// The minimum number of digits.
        width: u32,
        /// The maximum number of digits; a longer number cannot be built.
        max: u32,
    },
    /// A word composed of bit fields.
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
        /// The source of the value.
        from: Source,
        /// The maximum number of octets; a longer number cannot be built.
        octets_max: u8,
    },
    /// The octets after an escape; none if the value needs no escape.
    Extension {
        /// The value.
        of: Source,
        /// The escapes.
        cases: Vec<ExtendCase>,
    },
    /// A length, then as many octets.
    Counted {
        /// Octets of the length itself, 1 to 4; 0 for a varint of at most four.
        octets: u8,
        /// Their order.
        order: Order,
        /// Number of octets before the body that the length counts, too.
        more: u32,
        /// The maximum octets of the body; a longer body cannot be built.
        max: u32,
        /// The body.
        body: Vec<Self>,
    },
    /// The parts, followed by the check over their octets.
    Checked {
        /// The checksum.
        by: Checksum,
        /// The parts.
        body: Vec<Self>,
    },
    /// The parts of a line or datagram.
    Bounded {
        /// The maximum octets of the parts; a longer result cannot be built.
        max: u32,
        /// The parts.
        body: Vec<Self>,
    },
    /// Stores a value for later; a second one replaces it.
    Let {
        /// The local value.
        local: LocalId,
        /// The value.
        value: Source,
    },
    /// Chooses by whether a slot is set.
    IfPresent {
        /// The slot.
        slot: SlotId,
        /// The parts if it is set.
        then: Vec<Self>,
        /// The parts if it is absent.
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
    /// Distance of its lowest bit from the word's lowest bit.
    pub shift: u8,
    /// Its width in bits.
    pub width: u8,
    /// Whether its highest bit is a sign (two's complement).
    pub signed: bool,
    /// The source of the value.
    pub from: Source,
}

/// Source of a serializer's value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A slot; an absent one counts as no octets, or 0.
    Slot(SlotId),
    /// A number's slot, or the default if it is absent.
    SlotOr(SlotId, i64),
    /// A column of the current element.
    Element(u32),
    /// The value of an [`Emit::Let`]; 0 before the first.
    Local(LocalId),
    /// A number.
    Int(i64),
    /// Constant octets.
    Literal(LiteralId),
    /// Number of octets.
    Size(Box<Self>),
    /// Number of elements.
    Count(SlotId),
    /// The first minus the second; a negative difference cannot be built.
    Difference(Box<Self>, Box<Self>),
    /// The value itself if it is below every escape; otherwise the escape that announces it.
    Escape {
        /// The value.
        of: Box<Self>,
        /// The escapes.
        cases: Vec<ExtendCase>,
    },
    /// Decimal digits of a number, as octets.
    Decimal(Box<Self>),
    /// A number in as few big-endian octets as possible; 0 has none.
    Uint(Box<Self>),
}

/// Conditions under which the layout reads octets back; a message that fails them cannot be built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Check {
    /// Every octet is of this class.
    pub class: Option<Class>,
    /// The value is one of these octets.
    pub one_of: Option<LiteralId>,
    /// These octets do not occur: a delimiter, or a line's end (so that no header can be smuggled
    /// in).
    pub without: Option<LiteralId>,
    /// Whether CR and LF are refused as well.
    pub one_line: bool,
    /// The first octet is not of this class: a reader would skip it.
    pub not_first: Option<Class>,
    /// The minimum length.
    pub min: u32,
    /// The maximum length.
    pub max: u32,
}

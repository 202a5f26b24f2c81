//! Parses the items of a layout.

use super::super::ast::{
    Bits, Case, Convert, Extension, Field, FieldType, Framing, Item, ListOf, Literal, Measure,
    Presence, Table, TableEnd, TableEntry,
};
use super::super::token::TokenKind;
use super::Parser;
use crate::codes;
use crate::ir::Checksum;

/// Maximum octets before a counted block that its length counts, too: enough for any sensible
/// header.
const LESS_MAX: u32 = 255;

impl Parser<'_> {
    pub(super) fn item(&mut self) -> Option<Item> {
        let start = self.at;
        match self.peek().kind {
            TokenKind::Text | TokenKind::Hex => {
                return self.plain_text("octets").map(Item::Literal);
            }
            TokenKind::Word if self.peek_at(1).kind == TokenKind::Mark(':') => {
                return self.field().map(|field| Item::Field(Box::new(field)));
            }
            _ => {}
        }
        match self.word() {
            "skip" => {
                self.bump();
                let stray = self.eat_word("stray");
                let blanks = self.word() == "blanks";
                if !blanks && self.word() != "spaces" {
                    self.unexpected("`spaces` or `blanks`");
                    return None;
                }
                self.bump();
                Some(Item::Skip { blanks, stray, span: self.since(start) })
            }
            "line" => {
                let frame = self.line_frame()?;
                Some(Item::Line { frame, items: self.block(Self::item)? })
            }
            "repeated" => {
                self.bump();
                self.expect_word("while")?;
                let guard = self.condition()?;
                let times = self.comma_at_most(&["times"])?;
                let span = self.since(start);
                Some(Item::Repeated { guard, times, items: self.block(Self::item)?, span })
            }
            "counted" => self.counted(),
            "when" => {
                self.bump();
                let guard = self.condition()?;
                let span = self.since(start);
                Some(Item::When { guard, items: self.block(Self::item)?, span })
            }
            "table" => self.table().map(Item::Table),
            "diagram" if self.peek_at(1).kind == TokenKind::Art => {
                self.diagram().map(Item::Diagram)
            }
            "checked" => self.checked(),
            "extend" => {
                self.bump();
                let field = self.name("the field")?;
                let cases = self.block(Self::extension)?;
                Some(Item::Extend { field, cases, span: self.since(start) })
            }
            _ => {
                self.unexpected("a field (`name: type`), octets, `line`, `table`, `counted`, …");
                None
            }
        }
    }

    /// `checked by crc16_modbus { … }`
    fn checked(&mut self) -> Option<Item> {
        let start = self.at;
        self.bump();
        self.expect_word("by")?;
        let by = match self.word() {
            "crc16_modbus" => Checksum::Crc16Modbus,
            "crc16_ccitt" => Checksum::Crc16Ccitt,
            "crc32" => Checksum::Crc32,
            "lrc" => Checksum::Lrc,
            _ => {
                self.unexpected("`crc16_modbus`, `crc16_ccitt`, `crc32` or `lrc`");
                return None;
            }
        };
        self.bump();
        let span = self.since(start);
        Some(Item::Checked { by, items: self.block(Self::item)?, span })
    }

    /// `counted by u16, at most N octets { … }`, `counted by u24 - 5, at most N octets { … }`
    fn counted(&mut self) -> Option<Item> {
        let start = self.at;
        self.bump();
        self.expect_word("by")?;
        let by = if self.eat_word("varint") {
            Measure::Varint
        } else {
            let Bits { width, signed, little } = self.bits()?;
            if signed || !matches!(width, 8 | 16 | 24 | 32) {
                let message = "a length has 8, 16, 24 or 32 bits, and no sign";
                self.error(&codes::BAD_WIDTH, self.since(start), message);
                return None;
            }
            let mut less = 0;
            if self.eat_mark('-') {
                let number = self.number("how many octets before the block are counted, too")?;
                less = u32::try_from(number.value).unwrap_or(u32::MAX);
                if less > LESS_MAX {
                    let message = format!("more than {LESS_MAX} octets before the block");
                    self.error(&codes::LIMIT_TOO_BIG, number.span, &message);
                    return None;
                }
            }
            Measure::Word { octets: width / 8, little, less }
        };
        let max = self.comma_at_most(&["octets", "octet"])?;
        let span = self.since(start);
        Some(Item::Counted { by, max, items: self.block(Self::item)?, span })
    }

    /// `u12`, `i16` or `little u16`
    fn bits(&mut self) -> Option<Bits> {
        let little = self.eat_word("little");
        let token = self.peek();
        let signed = self.word().starts_with('i');
        let width = self.word().strip_prefix(['u', 'i']).map(str::parse::<u8>);
        let Some(width) = width else {
            self.unexpected("a width, as in `u16` or `i16`");
            return None;
        };
        self.bump();
        let bounds = if signed { 2..=64 } else { 1..=63 };
        let Some(width) = width.ok().filter(|width| bounds.contains(width)) else {
            let message = "a number has 1 to 63 bits without a sign, 2 to 64 with one";
            self.error(&codes::BAD_WIDTH, token.span, message);
            return None;
        };
        Some(Bits { width, signed, little })
    }

    fn is_bits(&self) -> bool {
        let word = if self.word() == "little" { self.word_at(1) } else { self.word() };
        word.strip_prefix(['u', 'i']).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit())
        })
    }

    /// `13 -> u8 + 13`
    fn extension(&mut self) -> Option<Extension> {
        let start = self.at;
        let value = self.number("the value that announces more")?;
        self.expect_arrow()?;
        let Bits { width, signed, .. } = self.bits()?;
        self.expect_mark('+')?;
        let add = self.number("what is added")?;
        let span = self.since(start);
        if signed || width % 8 != 0 {
            self.error(&codes::BAD_WIDTH, span, "an extension has whole octets, and no sign");
            return None;
        }
        Some(Extension { value, octets: width / 8, add })
    }

    fn field(&mut self) -> Option<Field> {
        let name = self.name("the field's name")?;
        self.bump();
        let private = self.eat_word("private");
        let optional = self.eat_word("optional");
        if !optional {
            self.eat_word("mandatory");
        }
        let start = self.at;
        let ty = self.field_type()?;
        let ty_span = self.since(start);
        let max = self.comma_at_most(&["octets", "octet", "elements", "entries"])?;
        let fixed = if self.eat_mark('=') { Some(self.literal("the only value")?) } else { None };
        let mut default = None;
        if self.is_mark(',') && self.word_at(1) == "default" {
            self.bump();
            self.bump();
            default = Some(self.literal("the value that is written if none is given")?);
        }
        let reserved = false;
        Some(Field { name, private, optional, ty, ty_span, max, reserved, fixed, default })
    }

    fn field_type(&mut self) -> Option<FieldType> {
        if self.is_bits() {
            return self.bits().map(FieldType::Bits);
        }
        if self.peek().kind == TokenKind::Number {
            return self.digits_or_octets();
        }
        if self.word_at(1) == "octets" && self.word() != "rest" {
            let length = self.name("the length")?;
            self.bump();
            return Some(FieldType::Taken(Literal::Name(length)));
        }
        let case = self.case();
        match self.word().to_owned().as_str() {
            "token" => Some(self.stepped(FieldType::Token(case))),
            "word" => Some(self.stepped(FieldType::Word(case))),
            "rest" => Some(self.stepped(FieldType::Rest(case))),
            "until" => {
                self.bump();
                Some(FieldType::Until(case, self.plain_text("the delimiter")?))
            }
            "varint" => Some(self.stepped(FieldType::Varint)),
            "decimal" => Some(self.stepped(FieldType::Digits { radix: 10, min: 1, max: 18 })),
            "hex" => Some(self.stepped(FieldType::Digits { radix: 16, min: 1, max: 15 })),
            "one" => {
                self.bump();
                self.expect_word("of")?;
                Some(FieldType::OneOf(self.plain_text("the octets, as in `one of \"- \"`")?))
            }
            "running" => {
                self.bump();
                self.expect_word("sum")?;
                self.expect_word("of")?;
                Some(FieldType::SumOf(self.name("the field that is added up")?))
            }
            "list" => {
                self.bump();
                self.expect_word("of")?;
                if self.is_bits() {
                    return Some(FieldType::List(ListOf::Bits(self.bits()?)));
                }
                Some(FieldType::List(ListOf::Part(self.name("a width or a part")?)))
            }
            "stream" => self.stream(),
            _ => {
                self.unexpected(
                    "a type: `u16`, `i16`, `token`, `word`, `until \"…\"`, `rest`, `3 digits`, `decimal`, \
                     `N octets`, `one of \"…\"`, `list of …`, `stream …`",
                );
                self.help_with_a_type();
                None
            }
        }
    }

    fn case(&mut self) -> Case {
        if self.eat_word("upper") {
            Case::Upper
        } else if self.eat_word("lower") {
            Case::Lower
        } else {
            Case::Keep
        }
    }

    fn stepped(&mut self, ty: FieldType) -> FieldType {
        self.bump();
        ty
    }

    /// `3 digits`, `1..5 digits` or `16 octets`
    fn digits_or_octets(&mut self) -> Option<FieldType> {
        let number = self.number("a number")?;
        let mut high = number;
        if self.peek().kind == TokenKind::Range {
            self.bump();
            high = self.number("the most digits")?;
        }
        if self.eat_word("digits") || self.eat_word("digit") {
            let (min, max) = (u32::try_from(number.value), u32::try_from(high.value));
            if let (Ok(min @ 1..=18), Ok(max @ 1..=18)) = (min, max) {
                return Some(FieldType::Digits { radix: 10, min, max });
            }
            let span = number.span.to(high.span);
            self.error(&codes::BAD_WIDTH, span, "a number has 1 to 18 digits");
            return None;
        }
        if self.eat_word("octets") || self.eat_word("octet") {
            return Some(FieldType::Taken(Literal::Number(number)));
        }
        self.unexpected("`digits` or `octets`");
        None
    }

    /// `stream of lines until "."`, `stream { when … -> chunked … }` or `stream CHUNKING`
    fn stream(&mut self) -> Option<FieldType> {
        self.bump();
        if self.is_mark('{') {
            let cases = self.block(|parser| {
                let guard = if parser.eat_word("otherwise") {
                    None
                } else {
                    parser.expect_word("when")?;
                    Some(parser.condition()?)
                };
                parser.expect_arrow()?;
                Some((guard, parser.framing()?))
            })?;
            return Some(FieldType::Stream(cases));
        }
        Some(FieldType::Stream(vec![(None, self.framing()?)]))
    }

    fn framing(&mut self) -> Option<Framing> {
        if self.eat_words(&["of", "lines"]) {
            self.expect_word("until")?;
            let until = self.plain_text("the last line")?;
            let mut stuffed = None;
            if self.is_mark(',') && self.word_at(1) == "stuffed" {
                self.bump();
                self.bump();
                stuffed = Some(self.plain_text("what is doubled at a line's beginning")?);
            }
            return Some(Framing::Lines { until, stuffed });
        }
        if self.eat_word("chunked") {
            return Some(Framing::Chunked);
        }
        if self.eat_words(&["until", "close"]) {
            return Some(Framing::UntilClose);
        }
        if self.eat_word("nothing") {
            return Some(Framing::Nothing);
        }
        if self.peek().kind == TokenKind::Word && self.word_at(1) == "octets" {
            let length = self.name("the length")?;
            self.bump();
            return Some(Framing::Counted(length));
        }
        self.unexpected(
            "a framing: `of lines until \"…\"`, `chunked`, `NAME octets`, `until close` or \
             `nothing`",
        );
        None
    }

    /// `table of PART by KEY, until END or END, at most N entries { … }`
    fn table(&mut self) -> Option<Table> {
        let start = self.at;
        self.bump();
        self.expect_word("of")?;
        let part = self.name("the part that repeats")?;
        self.expect_word("by")?;
        let key = self.name("the field that is the key")?;
        self.eat_mark(',');
        self.expect_word("until")?;
        let mut ends = Vec::new();
        loop {
            ends.push(if self.eat_words(&["empty", "line"]) {
                TableEnd::EmptyLine
            } else if self.eat_word("end") {
                TableEnd::End
            } else {
                TableEnd::Marker(self.plain_text("`empty line`, `end` or octets")?)
            });
            if !self.eat_word("or") {
                break;
            }
        }
        let max = self.comma_at_most(&["entries"])?;
        let span = self.since(start);
        let entries = self.block(Self::entry)?;
        Some(Table { span, part, key, ends, max, entries })
    }

    /// `"Host" -> host: optional lower, at most N octets`, `"Via" or "v" -> via: list …`
    fn entry(&mut self) -> Option<TableEntry> {
        let key = self.literal("a key")?;
        let mut others = Vec::new();
        while self.eat_word("or") {
            others.push(self.literal("another key")?);
        }
        self.expect_arrow()?;
        let name = self.name("the field's name")?;
        self.expect_mark(':')?;
        let private = self.eat_word("private");
        let presence = match self.word() {
            "optional" => Presence::Optional,
            "mandatory" => Presence::Mandatory,
            "list" => Presence::List,
            _ => {
                self.unexpected("`optional`, `mandatory` or `list`");
                return None;
            }
        };
        self.bump();
        let convert = match self.word() {
            "lower" => Convert::Lower,
            "upper" => Convert::Upper,
            "decimal" => Convert::Decimal,
            "uint" => Convert::Uint,
            _ => Convert::Keep,
        };
        if convert != Convert::Keep {
            self.bump();
        }
        let max = self.comma_at_most(&["octets", "octet", "elements", "entries"])?;
        let each = self.comma_each()?;
        Some(TableEntry { key, others, name, private, presence, convert, max, each })
    }
}

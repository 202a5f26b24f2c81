//! Generates C99 from a layout: `static inline` functions over octets, independent of alignment and
//! of the machine's byte order.

use crate::{
    expression::{Expression, Operator},
    layout::{Field, FieldKind, FieldRole, Layout},
    pieces::{OctetPart, constant, octets_of, pieces, snake},
    rust::place,
};
use std::fmt::Write;

/// Widest field in bits that is a number in C.
const NUMBER_BITS_MAX: u32 = 64;

/// The headers' getters, setters, plain values and builders as one C header file.
///
/// Numbers of more than 64 bits, addresses and octets are pointers into the header. Every function
/// except `…_split` requires that the header has all its octets.
pub fn c(layouts: &[Layout]) -> String {
    let mut out = String::from(HEAD);
    for layout in layouts {
        out.push_str(&Emitter { layout, prefix: snake(&layout.name) }.header());
    }
    out.push_str("#endif\n");
    out
}

const HEAD: &str = "/* Generated from packet diagrams. */
#ifndef GATEWRIGHT_HEADERS_H
#define GATEWRIGHT_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

";

struct Emitter<'a> {
    layout: &'a Layout,
    prefix: String,
}

/// Representation of a field in C.
enum Holds {
    Number(&'static str),
    /// This number of octets, unchanged in the header.
    Octets(u32),
    /// A number too wide for C that is not octet-aligned: its 16 octets, most significant first.
    Wide,
}

fn holds(field: &Field) -> Holds {
    let octets = field.offset.is_multiple_of(8) && field.width.is_multiple_of(8);
    let number = matches!(field.kind, FieldKind::Number | FieldKind::Newtype(_));
    match field.width {
        1 if number => Holds::Number("bool"),
        ..=8 if number => Holds::Number("uint8_t"),
        ..=16 if number => Holds::Number("uint16_t"),
        ..=32 if number => Holds::Number("uint32_t"),
        ..=NUMBER_BITS_MAX if number => Holds::Number("uint64_t"),
        width if octets => Holds::Octets(width / 8),
        _ => Holds::Wide,
    }
}

impl Emitter<'_> {
    fn readable(&self) -> impl Iterator<Item = &Field> {
        self.layout.fields.iter().filter(|field| field.role != FieldRole::Reserved)
    }

    fn writable(&self) -> impl Iterator<Item = &Field> {
        self.readable().filter(|field| !matches!(field.role, FieldRole::Constant(_)))
    }

    fn constants(&self) -> impl Iterator<Item = (&Field, u128)> {
        self.layout.fields.iter().filter_map(|field| match field.role {
            FieldRole::Constant(value) => Some((field, value)),
            _ => None,
        })
    }

    fn header(&self) -> String {
        let (prefix, len) = (&self.prefix, self.layout.octets());
        let upper = prefix.to_uppercase();
        let mut out = format!("/* {}: octets of the fixed part. */\n", self.layout.name);
        let _ = writeln!(out, "#define {upper}_LEN {len}u\n");
        for (field, value) in self.constants() {
            let name = constant(&field.name);
            let suffix = if field.width > 32 { "ull" } else { "u" };
            let _ = writeln!(out, "/* The only value of `{}`. */", field.name);
            let _ = writeln!(out, "#define {upper}_{name} {value:#x}{suffix}\n");
        }
        out.push_str(&self.split());
        for field in self.readable() {
            out.push_str(&self.getter(field));
        }
        for field in self.writable() {
            out.push_str(&self.setter(field));
        }
        out.push_str(&self.constants_functions());
        out.push_str(&self.plain());
        out.push_str(&self.variable());
        out
    }

    fn split(&self) -> String {
        let (prefix, upper) = (&self.prefix, self.prefix.to_uppercase());
        let (end, take) = if self.layout.trailer {
            ("end", format!("    *count -= {upper}_LEN;\n    return *octets + *count;\n"))
        } else {
            let take = format!(
                "    const uint8_t *header = *octets;\n    *octets += {upper}_LEN;\n    \
                 *count -= {upper}_LEN;\n    return header;\n"
            );
            ("front", take)
        };
        format!(
            "/* Takes the header off the {end} of the octets; NULL if they are too few. */\n\
             static inline const uint8_t *{prefix}_split(const uint8_t **octets, size_t *count)\n{{\n    \
             if (*count < {upper}_LEN)\n        return NULL;\n{take}}}\n\n"
        )
    }

    fn getter(&self, field: &Field) -> String {
        let (prefix, name) = (&self.prefix, function(&field.name));
        let (first, _) = octets_of(field);
        let doc = format!("/* {}. */\nstatic inline ", place(field));
        match holds(field) {
            Holds::Number(ty) => format!(
                "{doc}{ty} {prefix}_{name}(const uint8_t *header)\n{{\n    return ({ty})({});\n}}\n\n",
                number(field)
            ),
            Holds::Octets(_) => format!(
                "{doc}const uint8_t *{prefix}_{name}(const uint8_t *header)\n{{\n    \
                 return header + {first};\n}}\n\n"
            ),
            Holds::Wide => format!(
                "{doc}void {prefix}_{name}(const uint8_t *header, uint8_t value[16])\n{{\n    \
                 unsigned bit;\n    memset(value, 0, 16);\n    \
                 for (bit = 0; bit < {width}u; bit++) {{\n        \
                 unsigned from = {offset}u + bit, to = {skip}u + bit;\n        \
                 if (header[from / 8] & (0x80u >> from % 8))\n            \
                 value[to / 8] = (uint8_t)(value[to / 8] | (0x80u >> to % 8));\n    }}\n}}\n\n",
                width = field.width,
                offset = field.offset,
                skip = 128 - field.width
            ),
        }
    }

    fn setter(&self, field: &Field) -> String {
        let (prefix, name) = (&self.prefix, &field.name);
        let (first, count) = octets_of(field);
        let doc = format!("/* {}. */\nstatic inline void {prefix}_set_{name}", place(field));
        match holds(field) {
            Holds::Number(ty) => {
                format!("{doc}(uint8_t *header, {ty} value)\n{{\n{}}}\n\n", store(field, "value"))
            }
            Holds::Octets(_) => format!(
                "{doc}(uint8_t *header, const uint8_t value[{count}])\n{{\n    \
                 memcpy(header + {first}, value, {count});\n}}\n\n"
            ),
            Holds::Wide => format!(
                "{doc}(uint8_t *header, const uint8_t value[16])\n{{\n    unsigned bit;\n    \
                 for (bit = 0; bit < {width}u; bit++) {{\n        \
                 unsigned to = {offset}u + bit, from = {skip}u + bit;\n        \
                 uint8_t mask = (uint8_t)(0x80u >> to % 8);\n        \
                 if (value[from / 8] & (0x80u >> from % 8))\n            \
                 header[to / 8] = (uint8_t)(header[to / 8] | mask);\n        else\n            \
                 header[to / 8] = (uint8_t)(header[to / 8] & ~mask);\n    }}\n}}\n\n",
                width = field.width,
                offset = field.offset,
                skip = 128 - field.width
            ),
        }
    }

    fn constants_functions(&self) -> String {
        let (prefix, upper) = (&self.prefix, self.prefix.to_uppercase());
        let constants: Vec<(&Field, u128)> = self.constants().collect();
        if constants.is_empty() {
            return String::new();
        }
        let checks = constants.iter().map(|(field, _)| {
            let (name, value) = (function(&field.name), constant(&field.name));
            format!("{prefix}_{name}(header) == {upper}_{value}")
        });
        let stores: String =
            constants.iter().map(|(field, value)| store(field, &literal(field, *value))).collect();
        format!(
            "/* Whether every constant field has its only value. */\n\
             static inline bool {prefix}_has_constants(const uint8_t *header)\n{{\n    return {};\n}}\n\n\
             /* Writes the constant fields. */\n\
             static inline void {prefix}_set_constants(uint8_t *header)\n{{\n{stores}}}\n\n",
            checks.collect::<Vec<_>>().join("\n        && ")
        )
    }

    fn plain(&self) -> String {
        let (prefix, upper) = (&self.prefix, self.prefix.to_uppercase());
        let has_constants = self.constants().next().is_some();
        let constants = if has_constants {
            format!("    {prefix}_set_constants(header);\n")
        } else {
            String::new()
        };
        let begin = format!("    memset(header, 0, {upper}_LEN);\n{constants}");
        if self.writable().next().is_none() {
            return format!(
                "/* Writes the header. */\nstatic inline void {prefix}_emit(uint8_t *header)\n{{\n\
                 {begin}}}\n\n"
            );
        }
        let (mut members, mut reads, mut writes) = (String::new(), String::new(), String::new());
        for field in self.writable() {
            let (name, setter, getter) = (member(&field.name), &field.name, function(&field.name));
            let _ = writeln!(writes, "    {prefix}_set_{setter}(header, fields->{name});");
            let _ = match holds(field) {
                Holds::Number(ty) => {
                    let _ = writeln!(members, "    {ty} {name};");
                    writeln!(reads, "    fields->{name} = {prefix}_{getter}(header);")
                }
                Holds::Octets(count) => {
                    let _ = writeln!(members, "    uint8_t {name}[{count}];");
                    writeln!(
                        reads,
                        "    memcpy(fields->{name}, {prefix}_{getter}(header), {count});"
                    )
                }
                Holds::Wide => {
                    let _ = writeln!(members, "    uint8_t {name}[16];");
                    writeln!(reads, "    {prefix}_{getter}(header, fields->{name});")
                }
            };
        }
        format!(
            "/* The values of {name} as plain data. */\nstruct {prefix}_fields {{\n{members}}};\n\n\
             /* Reads all fields but the constant ones. */\n\
             static inline void {prefix}_read(struct {prefix}_fields *fields, const uint8_t *header)\n\
             {{\n{reads}}}\n\n\
             /* Writes the header: these values, constants, and zero in reserved bits. A value wider\n   \
             than its field is cut to the field's low bits. */\n\
             static inline void {prefix}_emit(uint8_t *header, const struct {prefix}_fields *fields)\n\
             {{\n{begin}{writes}}}\n\n",
            name = self.layout.name
        )
    }

    fn variable(&self) -> String {
        let mut out = String::new();
        let prefix = &self.prefix;
        for variable in &self.layout.variable {
            let Some(length) = &variable.length else { continue };
            let mut code = String::new();
            let mut temporaries = 0;
            let value = self.length(length, &mut code, &mut temporaries);
            let _ = write!(
                out,
                "/* Takes `{own}` (`{length}` octets) off the front of the rest, which follows the\n   \
                 fixed part; NULL if the header contradicts itself or the rest is shorter. */\n\
                 static inline const uint8_t *{prefix}_{name}(const uint8_t *header, \
                 const uint8_t **rest, size_t *count,\n    size_t *length)\n{{\n    \
                 const uint8_t *part = *rest;\n{code}    if ({value} > *count)\n        return NULL;\n    \
                 *length = (size_t)({value});\n    *rest += *length;\n    *count -= *length;\n    \
                 return part;\n}}\n\n",
                own = variable.name,
                name = function(&variable.name)
            );
        }
        out
    }

    /// The length as an expression over 64 bits; differences are checked by statements in `code`.
    fn length(&self, length: &Expression, code: &mut String, temporaries: &mut usize) -> String {
        match length {
            Expression::Number(number) => format!("(uint64_t){number}u"),
            Expression::Field(name) => {
                format!("(uint64_t){}_{}(header)", self.prefix, function(name))
            }
            Expression::Binary(left, operator, right) => {
                let left = self.length(left, code, temporaries);
                let right = self.length(right, code, temporaries);
                let (a, b, own) = (*temporaries, *temporaries + 1, *temporaries + 2);
                *temporaries += 3;
                let _ = writeln!(code, "    const uint64_t n{a} = {left}, n{b} = {right};");
                let (guard, value) = match operator {
                    Operator::Add => (format!("n{a} > UINT64_MAX - n{b}"), format!("n{a} + n{b}")),
                    Operator::Subtract => (format!("n{a} < n{b}"), format!("n{a} - n{b}")),
                    Operator::Multiply => {
                        (format!("n{b} != 0 && n{a} > UINT64_MAX / n{b}"), format!("n{a} * n{b}"))
                    }
                };
                let _ = writeln!(code, "    const bool bad{own} = {guard};");
                let _ = writeln!(code, "    const uint64_t n{own} = {value};");
                let _ = writeln!(code, "    if (bad{own})\n        return NULL;");
                format!("n{own}")
            }
        }
    }
}

/// The number in a field's octets.
fn number(field: &Field) -> String {
    let wide = if field.width > 32 { "uint64_t" } else { "uint32_t" };
    let part = |piece: &OctetPart| {
        let OctetPart { octet, below, up, mask } = *piece;
        let mut part = format!("header[{octet}]");
        if !piece.is_whole() {
            part = format!("({part} & {mask:#04x}u)");
        }
        if up > 0 {
            part = format!("({part} >> {up})");
        }
        if below > 0 { format!("({wide}){part} << {below}") } else { part }
    };
    let parts: Vec<String> = pieces(field).iter().map(part).collect();
    let value = parts.join(" | ");
    if field.width == 1 { format!("({value}) != 0") } else { value }
}

/// Statements that write `value` into the field.
fn store(field: &Field, value: &str) -> String {
    let mut out = String::new();
    for piece in pieces(field) {
        let OctetPart { octet, below, up, mask } = piece;
        let shifted = if below > 0 { format!("({value} >> {below})") } else { value.to_owned() };
        let placed = if up > 0 { format!("((unsigned){shifted} << {up})") } else { shifted };
        let _ = if piece.is_whole() {
            writeln!(out, "    header[{octet}] = (uint8_t){placed};")
        } else {
            writeln!(
                out,
                "    header[{octet}] = (uint8_t)((header[{octet}] & {:#04x}u) | ({placed} & {mask:#04x}u));",
                !mask
            )
        };
    }
    out
}

fn literal(field: &Field, value: u128) -> String {
    let suffix = if field.width > 32 { "ull" } else { "u" };
    format!("{value:#x}{suffix}")
}

/// The name of a member, followed by `_` if it is a keyword of C.
fn member(name: &str) -> String {
    const KEYWORDS: [&str; 39] = [
        "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double",
        "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long",
        "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
        "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "true", "false",
        "asm", "typeof",
    ];
    if KEYWORDS.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// The name of a getter, distinct from those that every header has.
fn function(name: &str) -> String {
    match name {
        "split" | "emit" | "read" | "has_constants" | "set_constants" => format!("{name}_"),
        _ => name.to_owned(),
    }
}

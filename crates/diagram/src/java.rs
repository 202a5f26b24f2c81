//! Generates Java 17 from a layout: a view over a `ByteBuffer` and a record of plain values.

use crate::{
    expression::{Expression, Operator},
    layout::{Field, FieldKind, FieldRole, Layout},
    pieces::{OctetPart, camel, constant, octets_of, pieces},
    rust::place,
};
use std::fmt::Write;

/// Widest field in bits that is a number in Java; one of 64 bits is to be read as unsigned.
const NUMBER_BITS_MAX: u32 = 64;

/// Widest field in bits that is an `int`, which has a sign.
const INT_BITS_MAX: u32 = 31;

/// The header's view and its record of values as one Java source file, `NAME.java`.
///
/// Addresses, octets and numbers of more than 64 bits are octet arrays. The view uses the buffer's
/// octets without a copy.
pub fn java(layout: &Layout) -> String {
    let emitter = Emitter { layout, name: &layout.name };
    let mut out = emitter.head();
    for field in emitter.readable() {
        out.push_str(&getter(field));
    }
    for field in emitter.writable() {
        out.push_str(&setter(field));
    }
    out.push_str(&emitter.constants_methods());
    out.push_str(&emitter.variable());
    out.push_str(&emitter.plain());
    out.push_str("}\n");
    out
}

struct Emitter<'a> {
    layout: &'a Layout,
    name: &'a str,
}

/// Representation of a field in Java.
enum Holds {
    Number(&'static str),
    /// This number of octets, unchanged in the header.
    Octets(u32),
    /// A number too wide for Java that is not octet-aligned: its 16 octets, most significant first.
    Wide,
}

fn holds(field: &Field) -> Holds {
    let octets = field.offset.is_multiple_of(8) && field.width.is_multiple_of(8);
    let number = matches!(field.kind, FieldKind::Number | FieldKind::Newtype(_));
    match field.width {
        1 if number => Holds::Number("boolean"),
        ..=INT_BITS_MAX if number => Holds::Number("int"),
        ..=NUMBER_BITS_MAX if number => Holds::Number("long"),
        width if octets => Holds::Octets(width / 8),
        _ => Holds::Wide,
    }
}

fn type_of(field: &Field) -> &'static str {
    match holds(field) {
        Holds::Number(ty) => ty,
        Holds::Octets(_) | Holds::Wide => "byte[]",
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

    fn head(&self) -> String {
        let (name, len) = (self.name, self.layout.octets());
        let (end, at) = if self.layout.trailer {
            ("end", "int at = octets.limit() - LEN;\n        octets.limit(at);")
        } else {
            ("front", "int at = octets.position();\n        octets.position(at + LEN);")
        };
        let mut out = format!(
            "// Generated from a packet diagram.\n\
             import java.nio.BufferUnderflowException;\nimport java.nio.ByteBuffer;\n\n\
             /** A view of {name} in a buffer. A value wider than its field is cut to the field's low bits. */\n\
             public final class {name} {{\n    /** Octets of the fixed part. */\n    \
             public static final int LEN = {len};\n\n"
        );
        for (field, value) in self.constants() {
            let _ = write!(
                out,
                "    /** The only value of {{@link #{}}}. */\n    public static final {} {} = {};\n\n",
                method(&field.name),
                type_of(field),
                constant(&field.name),
                literal(field, value)
            );
        }
        let _ = write!(
            out,
            "    private final ByteBuffer buffer;\n    private final int at;\n\n    \
             private {name}(ByteBuffer buffer, int at) {{\n        this.buffer = buffer;\n        \
             this.at = at;\n    }}\n\n    \
             /** Takes the header off the {end} of the buffer; throws if the octets are too few. */\n    \
             public static {name} split(ByteBuffer octets) {{\n        \
             if (octets.remaining() < LEN) {{\n            throw new BufferUnderflowException();\n        }}\n        \
             {at}\n        return new {name}(octets.duplicate().clear(), at);\n    }}\n\n"
        );
        out
    }

    fn constants_methods(&self) -> String {
        let checks: Vec<String> = (self.constants())
            .map(|(field, _)| format!("{}() == {}", method(&field.name), constant(&field.name)))
            .collect();
        if checks.is_empty() {
            return String::new();
        }
        let mut stores = String::new();
        for (field, value) in self.constants() {
            let literal = if field.width == 1 { value.to_string() } else { literal(field, value) };
            stores.push_str(&store(field, &literal));
        }
        format!(
            "    /** Whether every constant field has its only value. */\n    \
             public boolean hasConstants() {{\n        return {};\n    }}\n\n    \
             /** Writes the constant fields. */\n    public void setConstants() {{\n{stores}    }}\n\n",
            checks.join(" && ")
        )
    }

    fn variable(&self) -> String {
        let lengths =
            || self.layout.variable.iter().filter_map(|variable| variable.length.as_ref());
        let mut out = String::from(if lengths().any(subtracts) { DIFFERENCE } else { "" });
        for variable in &self.layout.variable {
            let Some(length) = &variable.length else { continue };
            let _ = write!(
                out,
                "    /**\n     * Takes `{name}` off the front of the rest, which follows the fixed part; throws if\n     \
                 * the header contradicts itself or the rest is shorter.\n     */\n    \
                 public ByteBuffer {method}(ByteBuffer rest) {{\n        long length = {length};\n        \
                 if (length > rest.remaining()) {{\n            \
                 throw new BufferUnderflowException();\n        }}\n        \
                 ByteBuffer part = rest.slice(rest.position(), (int) length);\n        \
                 rest.position(rest.position() + (int) length);\n        return part;\n    }}\n\n",
                name = variable.name,
                method = method(&variable.name),
                length = java_length(length)
            );
        }
        out
    }

    fn plain(&self) -> String {
        let name = self.name;
        let components: Vec<String> = (self.writable())
            .map(|field| format!("{} {}", type_of(field), method(&field.name)))
            .collect();
        let values: Vec<String> =
            self.writable().map(|field| format!("{}()", method(&field.name))).collect();
        let mut writes = String::new();
        if self.constants().next().is_some() {
            writes.push_str("            header.setConstants();\n");
        }
        for field in self.writable() {
            let setter = camel(&format!("set_{}", field.name));
            let _ = writeln!(writes, "            header.{setter}({});", method(&field.name));
        }
        format!(
            "    /** The values of all fields but the constant ones. */\n    \
             public Fields fields() {{\n        return new Fields({});\n    }}\n\n    \
             /** Plain values: what a builder needs. */\n    \
             public record Fields({}) {{\n        \
             /** Writes the header: these values, constants, and zero in reserved bits. */\n        \
             public byte[] emit() {{\n            byte[] octets = new byte[LEN];\n            \
             {name} header = new {name}(ByteBuffer.wrap(octets), 0);\n{writes}            \
             return octets;\n        }}\n    }}\n",
            values.join(", "),
            components.join(", ")
        )
    }
}

fn getter(field: &Field) -> String {
    let (ty, name) = (type_of(field), method(&field.name));
    let (first, _) = octets_of(field);
    let body = match holds(field) {
        Holds::Number(_) => format!("        return {};\n", number(field)),
        Holds::Octets(count) => format!(
            "        byte[] value = new byte[{count}];\n        buffer.get(at + {first}, value);\n        \
             return value;\n"
        ),
        Holds::Wide => format!(
            "        byte[] value = new byte[16];\n        for (int bit = 0; bit < {width}; bit++) {{\n            \
             int from = {offset} + bit;\n            int to = {skip} + bit;\n            \
             if ((buffer.get(at + from / 8) & 0x80 >> from % 8) != 0) {{\n                \
             value[to / 8] |= (byte) (0x80 >> to % 8);\n            }}\n        }}\n        return value;\n",
            width = field.width,
            offset = field.offset,
            skip = 128 - field.width
        ),
    };
    format!("    /** {}. */\n    public {ty} {name}() {{\n{body}    }}\n\n", place(field))
}

fn setter(field: &Field) -> String {
    let (ty, name) = (type_of(field), camel(&format!("set_{}", field.name)));
    let (first, _) = octets_of(field);
    let body = match holds(field) {
        Holds::Number("boolean") => store(field, "(value ? 1 : 0)"),
        Holds::Number(_) => store(field, "value"),
        Holds::Octets(count) => format!("        buffer.put(at + {first}, value, 0, {count});\n"),
        Holds::Wide => format!(
            "        for (int bit = 0; bit < {width}; bit++) {{\n            int to = {offset} + bit;\n            \
             int from = {skip} + bit;\n            int mask = 0x80 >> to % 8;\n            \
             boolean set = (value[from / 8] & 0x80 >> from % 8) != 0;\n            \
             int octet = buffer.get(at + to / 8);\n            \
             buffer.put(at + to / 8, (byte) (set ? octet | mask : octet & ~mask));\n        }}\n",
            width = field.width,
            offset = field.offset,
            skip = 128 - field.width
        ),
    };
    format!("    /** {}. */\n    public void {name}({ty} value) {{\n{body}    }}\n\n", place(field))
}

/// The number in a field's octets.
fn number(field: &Field) -> String {
    let wide = if field.width > INT_BITS_MAX { "(long) " } else { "" };
    let part = |piece: &OctetPart| {
        let OctetPart { octet, below, up, mask } = *piece;
        let mut part = format!("(buffer.get(at + {octet}) & {mask:#04x})");
        if up > 0 {
            part = format!("({part} >> {up})");
        }
        if below > 0 { format!("{wide}{part} << {below}") } else { part }
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
        let shifted = if below > 0 { format!("{value} >> {below}") } else { value.to_owned() };
        let placed = if up > 0 { format!("({shifted}) << {up}") } else { shifted };
        let _ = if piece.is_whole() {
            writeln!(out, "        buffer.put(at + {octet}, (byte) ({placed}));")
        } else {
            writeln!(
                out,
                "        buffer.put(at + {octet}, (byte) (buffer.get(at + {octet}) & {:#04x} | ({placed}) & {mask:#04x}));",
                !mask
            )
        };
    }
    out
}

fn literal(field: &Field, value: u128) -> String {
    if field.width == 1 {
        return (value != 0).to_string();
    }
    let suffix = if field.width > INT_BITS_MAX { "L" } else { "" };
    format!("{value:#x}{suffix}")
}

/// The length in exact arithmetic: a value beyond 64 bits throws an arithmetic exception.
fn java_length(length: &Expression) -> String {
    match length {
        Expression::Number(number) => format!("{number}L"),
        Expression::Field(name) => format!("{}()", method(name)),
        Expression::Binary(left, operator, right) => {
            let function = match operator {
                Operator::Add => "Math.addExact",
                Operator::Subtract => "difference",
                Operator::Multiply => "Math.multiplyExact",
            };
            format!("{function}({}, {})", java_length(left), java_length(right))
        }
    }
}

/// Whether it contains a difference.
fn subtracts(length: &Expression) -> bool {
    match length {
        Expression::Binary(left, operator, right) => {
            *operator == Operator::Subtract || subtracts(left) || subtracts(right)
        }
        _ => false,
    }
}

/// Checks a difference: a header with fewer octets than it subtracts contradicts itself.
const DIFFERENCE: &str = "    private static long difference(long from, long what) {
        if (from < what) {
            throw new BufferUnderflowException();
        }
        return from - what;
    }

";

/// The getter's name, followed by `_` if it is a keyword of Java.
fn method(name: &str) -> String {
    const KEYWORDS: [&str; 60] = [
        "abstract",
        "assert",
        "boolean",
        "break",
        "byte",
        "case",
        "catch",
        "char",
        "class",
        "clone",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "emit",
        "enum",
        "extends",
        "fields",
        "final",
        "finalize",
        "finally",
        "float",
        "for",
        "goto",
        "if",
        "implements",
        "import",
        "instanceof",
        "int",
        "interface",
        "long",
        "native",
        "new",
        "notify",
        "package",
        "private",
        "protected",
        "public",
        "return",
        "short",
        "split",
        "static",
        "strictfp",
        "super",
        "switch",
        "synchronized",
        "this",
        "throw",
        "throws",
        "transient",
        "try",
        "void",
        "volatile",
        "wait",
        "while",
        "true",
        "false",
        "null",
    ];
    let name = camel(name);
    if KEYWORDS.contains(&name.as_str()) { format!("{name}_") } else { name }
}

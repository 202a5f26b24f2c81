//! Generates Rust from a layout: views and builders over `&[u8; N]`, in which no panic is
//! reachable.

use crate::{
    draw::draw,
    expression::{Expression, Operator},
    layout::{Field, FieldKind, FieldRole, Layout, Variable},
    pieces::{OctetPart, constant, octets_of, ones, pieces},
};
use std::fmt::Write;

/// The header's view, mutable view, plain values and builder as Rust text.
///
/// `support` is the path of the crate or module that has `Truncated`, `Field` and `MacAddress`,
/// such as `::gatewright_wire`. The text needs Rust 1.91 and no `std`.
pub fn rust(layout: &Layout, support: &str) -> String {
    let emitter = Emitter { layout, support, name: &layout.name, len: layout.octets() };
    let mut out = String::new();
    for part in [
        emitter.view(),
        emitter.getters(),
        emitter.variable(),
        emitter.debug(),
        emitter.mutable(),
        emitter.setters(),
        emitter.plain(),
    ] {
        out.push_str(&part);
    }
    out
}

struct Emitter<'a> {
    layout: &'a Layout,
    support: &'a str,
    name: &'a str,
    len: u32,
}

/// Casts are exact here: each is between widths that the layout has fixed.
const ALLOW: &str = "#[allow(unused_parens, clippy::all, clippy::pedantic, clippy::restriction, reason = \"generated\")]";

impl Emitter<'_> {
    /// Fields with a getter.
    fn readable(&self) -> impl Iterator<Item = &Field> {
        self.layout.fields.iter().filter(|field| field.role != FieldRole::Reserved)
    }

    /// Fields with a setter.
    fn writable(&self) -> impl Iterator<Item = &Field> {
        self.readable().filter(|field| !matches!(field.role, FieldRole::Constant(_)))
    }

    fn constants(&self) -> impl Iterator<Item = (&Field, u128)> {
        self.layout.fields.iter().filter_map(|field| match field.role {
            FieldRole::Constant(value) => Some((field, value)),
            _ => None,
        })
    }

    fn view(&self) -> String {
        let Self { name, len, support, layout } = self;
        let mut out = String::from("/// The header's octets, read in place.\n///\n/// ```text\n");
        for line in draw(layout).lines() {
            let _ = writeln!(out, "/// {line}");
        }
        let _ = write!(
            out,
            "/// ```\n#[derive(Clone, Copy)]\npub struct {name}<'p>(&'p [u8; {len}]);\n\n\
             {ALLOW}\nimpl<'p> {name}<'p> {{\n\
             /// Octets of the fixed part.\npub const LEN: usize = {len};\n\n\
             /// Every field with its place, reserved ones included.\n\
             pub const FIELDS: &'static [{support}::Field] = &["
        );
        for field in &layout.fields {
            let _ = write!(
                out,
                "{support}::Field {{ name: \"{}\", offset: {}, width: {} }}, ",
                field.name, field.offset, field.width
            );
        }
        out.push_str("];\n\n");
        for (field, value) in self.constants() {
            let (name, ty) = (constant(&field.name), number_type(field.width));
            let value = if ty == "bool" { (value != 0).to_string() } else { format!("{value:#x}") };
            let _ = write!(
                out,
                "/// The only value of [`{}`](Self::{}).\npub const {name}: {ty} = {value};\n\n",
                field.name,
                method(&field.name)
            );
        }
        for field in layout.fields.iter().filter(|field| field.role == FieldRole::Checksum) {
            let at = field.offset / 8;
            let _ = write!(
                out,
                "/// Octets before [`{}`](Self::{}).\npub const CHECKSUM_AT: usize = {at};\n\n",
                field.name,
                method(&field.name)
            );
        }
        out.push_str(&self.split("&'p [u8]", "split_first_chunk", "split_last_chunk"));
        let _ = write!(
            out,
            "/// The header in `octets`.\n#[inline]\npub const fn of(octets: &'p [u8; {len}]) -> Self {{ Self(octets) }}\n\n\
             /// The octets as they are.\n#[inline]\npub const fn as_octets(self) -> &'p [u8; {len}] {{ self.0 }}\n\n\
             /// The values of all fields but the constant ones.\n#[inline]\npub const fn fields(self) -> {name}Fields {{ {name}Fields {{ "
        );
        for field in self.writable() {
            let method = method(&field.name);
            let _ = write!(out, "{}: self.{method}(), ", identifier(&field.name));
        }
        out.push_str("} }\n\n");
        out.push_str(&self.has_constants());
        out.push_str("}\n\n");
        out
    }

    /// Takes the header off one end of the octets, and `split_trailer` for trailers.
    fn split(&self, ty: &str, first: &str, last: &str) -> String {
        let Self { len, support, layout, .. } = self;
        let (name, chunk, end, pattern) = if layout.trailer {
            ("split_trailer", last, "end", "(rest, own)")
        } else {
            ("split", first, "front", "(own, rest)")
        };
        format!(
            "/// Takes it off the {end} of `octets`, and gives what is left.\n///\n/// # Errors\n///\n\
             /// [`Truncated`]({support}::Truncated) if `octets` are fewer than [`LEN`](Self::LEN).\n\
             #[inline]\npub const fn {name}(octets: {ty}) -> Result<(Self, {ty}), {support}::Truncated> {{\n\
             let found = octets.len();\n\
             match octets.{chunk}() {{\n\
             Some({pattern}) => Ok((Self(own), rest)),\n\
             None => Err({support}::Truncated {{ needed: {len}, found }}),\n}}\n}}\n\n"
        )
    }

    fn has_constants(&self) -> String {
        let checks: Vec<String> = (self.constants())
            .map(|(field, _)| {
                let (method, name) = (method(&field.name), constant(&field.name));
                if matches!(field.kind, FieldKind::Newtype(_)) {
                    format!("self.{method}().0 == Self::{name}")
                } else {
                    format!("self.{method}() == Self::{name}")
                }
            })
            .collect();
        if checks.is_empty() {
            return String::new();
        }
        format!(
            "/// Whether every constant field has its only value.\n\
             #[inline]\npub const fn has_constants(self) -> bool {{ {} }}\n\n",
            checks.join(" && ")
        )
    }

    fn getters(&self) -> String {
        let mut out = format!("{ALLOW}\nimpl {}<'_> {{\n", self.name);
        for field in self.readable() {
            let (method, ty) = (method(&field.name), self.value_type(field));
            let _ = write!(
                out,
                "/// {}.\n#[inline]\npub const fn {method}(self) -> {ty} {{ {} }}\n\n",
                place(field),
                self.load(field)
            );
        }
        out.push_str("}\n\n");
        out
    }

    /// The expression that reads the field from `self.0`.
    fn load(&self, field: &Field) -> String {
        let (first, count) = octets_of(field);
        let list = |pad: u32| {
            let zeros = (0..pad).map(|_| "0".to_owned());
            let octets = (first..first + count).map(|at| format!("self.0[{at}]"));
            format!("[{}]", zeros.chain(octets).collect::<Vec<_>>().join(", "))
        };
        match &field.kind {
            FieldKind::Ipv4 => format!("::core::net::Ipv4Addr::from_octets({})", list(0)),
            FieldKind::Ipv6 => format!("::core::net::Ipv6Addr::from_octets({})", list(0)),
            FieldKind::Mac => format!("{}::MacAddress({})", self.support, list(0)),
            FieldKind::Octets if count <= 16 => list(0),
            FieldKind::Octets => format!(
                "match self.0.split_at({first}).1.first_chunk::<{count}>() \
                 {{ Some(octets) => *octets, None => [0; {count}] }}"
            ),
            FieldKind::Number | FieldKind::Newtype(_) => {
                let bits = count.next_power_of_two() * 8;
                let loaded = if bits == 8 {
                    format!("self.0[{first}]")
                } else {
                    format!("u{bits}::from_be_bytes({})", list(bits / 8 - count))
                };
                let shift = (first + count) * 8 - (field.offset + field.width);
                let shifted = if shift == 0 { loaded } else { format!("({loaded} >> {shift})") };
                let masked = if field.width == bits {
                    shifted
                } else {
                    format!("({shifted} & {:#x})", ones(field.width))
                };
                let ty = number_type(field.width);
                let value = match ty.as_str() {
                    "bool" => format!("{masked} != 0"),
                    ty if ty == format!("u{bits}") => masked,
                    ty => format!("{masked} as {ty}"),
                };
                match &field.kind {
                    FieldKind::Newtype(name) => format!("{name}({value})"),
                    _ => value,
                }
            }
        }
    }

    fn variable(&self) -> String {
        let with_length: Vec<(&Variable, &Expression)> = (self.layout.variable.iter())
            .filter_map(|variable| Some((variable, variable.length.as_ref()?)))
            .collect();
        if with_length.is_empty() {
            return String::new();
        }
        let support = self.support;
        let mut out = format!("{ALLOW}\nimpl<'p> {}<'p> {{\n", self.name);
        for (variable, length) in with_length {
            let (method, code) = (method(&variable.name), self.length(length));
            let _ = write!(
                out,
                "/// Octets of `{name}`: `{length}`.\n///\n/// # Errors\n///\n\
                 /// [`Truncated`]({support}::Truncated) if the header contradicts itself: its length \
                 does not even cover the fixed part.\n\
                 #[inline]\npub const fn {name}_len(self) -> Result<usize, {support}::Truncated> {{\nOk({code})\n}}\n\n\
                 /// Takes `{name}` off the front of `rest`, which follows the fixed part.\n///\n\
                 /// # Errors\n///\n/// [`Truncated`]({support}::Truncated) if `rest` is shorter than the \
                 header says.\n\
                 #[inline]\npub const fn {method}(self, rest: &'p [u8]) -> \
                 Result<(&'p [u8], &'p [u8]), {support}::Truncated> {{\n\
                 let needed = match self.{name}_len() {{ Ok(needed) => needed, Err(error) => return Err(error) }};\n\
                 match rest.split_at_checked(needed) {{\n\
                 Some(parts) => Ok(parts),\n\
                 None => Err({support}::Truncated {{ needed, found: rest.len() }}),\n}}\n}}\n\n",
                name = variable.name
            );
        }
        out.push_str("}\n\n");
        out
    }

    fn length(&self, length: &Expression) -> String {
        match length {
            Expression::Number(number) => format!("{number}_usize"),
            Expression::Field(name) => {
                let newtype = (self.layout.fields.iter()).any(|field| {
                    field.name == *name && matches!(field.kind, FieldKind::Newtype(_))
                });
                format!("(self.{}(){} as usize)", method(name), if newtype { ".0" } else { "" })
            }
            Expression::Binary(left, operator, right) => {
                let (left, right) = (self.length(left), self.length(right));
                match operator {
                    Operator::Add => format!("usize::saturating_add({left}, {right})"),
                    Operator::Multiply => format!("usize::saturating_mul({left}, {right})"),
                    Operator::Subtract => format!(
                        "{{ let (found, needed) = ({left}, {right}); \
                         match usize::checked_sub(found, needed) {{ Some(length) => length, \
                         None => return Err({}::Truncated {{ needed, found }}) }} }}",
                        self.support
                    ),
                }
            }
        }
    }

    fn debug(&self) -> String {
        let name = self.name;
        let mut out = format!(
            "impl ::core::fmt::Debug for {name}<'_> {{\n\
             fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n\
             f.debug_struct(\"{name}\")"
        );
        for field in self.readable() {
            let _ = write!(out, ".field(\"{}\", &self.{}())", field.name, method(&field.name));
        }
        out.push_str(".finish()\n}\n}\n\n");
        out
    }

    fn mutable(&self) -> String {
        let Self { name, len, .. } = self;
        let split = self.split("&'p mut [u8]", "split_first_chunk_mut", "split_last_chunk_mut");
        format!(
            "/// [`{name}`] in octets that can be written. A value wider than its field is cut to the\n\
             /// field's low bits.\npub struct {name}Mut<'p>(&'p mut [u8; {len}]);\n\n\
             {ALLOW}\nimpl<'p> {name}Mut<'p> {{\n\
             /// Octets of the fixed part.\npub const LEN: usize = {len};\n\n{split}\
             /// The header in `octets`.\n#[inline]\npub const fn of(octets: &'p mut [u8; {len}]) -> Self {{ Self(octets) }}\n\n\
             /// The header to read.\n#[inline]\npub const fn view(&self) -> {name}<'_> {{ {name}(&*self.0) }}\n}}\n\n\
             impl ::core::fmt::Debug for {name}Mut<'_> {{\n\
             fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n\
             ::core::fmt::Debug::fmt(&self.view(), f)\n}}\n}}\n\n"
        )
    }

    fn setters(&self) -> String {
        let mut out = format!("{ALLOW}\nimpl {}Mut<'_> {{\n", self.name);
        for field in self.writable() {
            let ty = self.value_type(field);
            let unwrapped = match field.kind {
                FieldKind::Newtype(_) => "let value = value.0;\n",
                _ => "",
            };
            let _ = write!(
                out,
                "/// Sets `{0}`. {1}.\n#[inline]\npub const fn set_{0}(&mut self, value: {ty}) {{\n{unwrapped}{2}}}\n\n",
                field.name,
                place(field),
                store(field, "value")
            );
        }
        if self.constants().next().is_some() {
            out.push_str(
                "/// Writes the constant fields.\n#[inline]\npub const fn set_constants(&mut self) {\n",
            );
            for (field, _) in self.constants() {
                let constant = constant(&field.name);
                let _ = write!(
                    out,
                    "let constant = {}::{constant};\n{}",
                    self.name,
                    store(field, "constant")
                );
            }
            out.push_str("}\n");
        }
        out.push_str("}\n\n");
        out
    }

    fn plain(&self) -> String {
        let Self { name, len, .. } = self;
        let mut out = format!(
            "/// The values of [`{name}`] as plain data: what a builder needs.\n\
             #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]\npub struct {name}Fields {{\n"
        );
        for field in self.writable() {
            let ty = self.value_type(field);
            let _ = write!(out, "/// {}.\npub {}: {ty},\n", place(field), identifier(&field.name));
        }
        let _ = write!(
            out,
            "}}\n\n{ALLOW}\nimpl {name}Fields {{\n\
             /// The octets of the fixed part: these values, constants, and zero in reserved bits. A\n\
             /// value wider than its field is cut to the field's low bits.\n\
             #[inline]\npub const fn emit(self) -> [u8; {len}] {{\nlet mut octets = [0; {len}];\n"
        );
        let constant = self.constants().next().is_some();
        if constant || self.writable().next().is_some() {
            let _ = writeln!(out, "let mut header = {name}Mut::of(&mut octets);");
        }
        if constant {
            out.push_str("header.set_constants();\n");
        }
        for field in self.writable() {
            let _ = writeln!(out, "header.set_{}(self.{});", field.name, identifier(&field.name));
        }
        let _ = write!(
            out,
            "octets\n}}\n}}\n\nimpl Default for {name}Fields {{\n\
             /// Every field zero.\n\
             fn default() -> Self {{ {name}::of(&[0; {len}]).fields() }}\n}}\n"
        );
        out
    }

    fn value_type(&self, field: &Field) -> String {
        match &field.kind {
            FieldKind::Number => number_type(field.width),
            FieldKind::Octets => format!("[u8; {}]", field.width / 8),
            FieldKind::Ipv4 => "::core::net::Ipv4Addr".to_owned(),
            FieldKind::Ipv6 => "::core::net::Ipv6Addr".to_owned(),
            FieldKind::Mac => format!("{}::MacAddress", self.support),
            FieldKind::Newtype(name) => name.clone(),
        }
    }
}

/// The smallest type that holds a number of bits.
fn number_type(width: u32) -> String {
    if width == 1 { "bool".to_owned() } else { format!("u{}", width.next_power_of_two().max(8)) }
}

/// Statements that write the number `value` (or the octets) into `self.0`.
fn store(field: &Field, value: &str) -> String {
    let (first, count) = octets_of(field);
    let octets = match field.kind {
        FieldKind::Ipv4 | FieldKind::Ipv6 => Some(format!("{value}.octets()")),
        FieldKind::Mac => Some(format!("{value}.0")),
        FieldKind::Octets => Some(value.to_owned()),
        FieldKind::Number | FieldKind::Newtype(_) => None,
    };
    if let Some(octets) = octets {
        return format!(
            "if let Some(slot) = self.0.split_at_mut({first}).1.first_chunk_mut::<{count}>() \
             {{ *slot = {octets}; }}\n"
        );
    }
    let mut out = String::new();
    let pieces = pieces(field);
    let mut rest = pieces.as_slice();
    while let Some((&OctetPart { octet: at, below, up, mask }, others)) = rest.split_first() {
        let whole = rest.iter().take_while(|piece| piece.is_whole()).count();
        if whole >= 2 {
            // One store of two, four, … octets: the compiler does not always join single ones.
            let count = 1 << whole.ilog2();
            let (run, behind) = rest.split_at(count);
            let below = run.last().map_or(0, |piece| piece.below);
            let ty = format!("u{}", count * 8);
            let _ = writeln!(
                out,
                "if let Some(slot) = self.0.split_at_mut({at}).1.first_chunk_mut::<{count}>() \
                 {{ *slot = (({value} >> {below}) as {ty}).to_be_bytes(); }}"
            );
            rest = behind;
            continue;
        }
        rest = others;
        let shifted = if below == 0 { value.to_owned() } else { format!("({value} >> {below})") };
        let octet = format!("({shifted} as u8)");
        let placed = if up == 0 { octet.clone() } else { format!("({octet} << {up})") };
        let _ = if mask == u8::MAX {
            writeln!(out, "self.0[{at}] = {octet};")
        } else {
            writeln!(
                out,
                "self.0[{at}] = (self.0[{at}] & !{mask:#04x}) | ({placed} & {mask:#04x});"
            )
        };
    }
    out
}

/// `Bits 4 to 7 of the header`, for a doc comment.
pub(crate) fn place(field: &Field) -> String {
    let Field { offset, width, .. } = field;
    if *width == 1 {
        format!("Bit {offset} of the header")
    } else if offset % 8 == 0 && width % 8 == 0 {
        let (first, last) = (offset / 8, (offset + width) / 8 - 1);
        if first == last {
            format!("Octet {first} of the header")
        } else {
            format!("Octets {first} to {last} of the header")
        }
    } else {
        format!("Bits {offset} to {} of the header", offset + width - 1)
    }
}

/// The getter's name, away from those that every view has.
fn method(name: &str) -> String {
    match name {
        "split" | "split_trailer" | "of" | "as_octets" | "fields" | "has_constants" | "view"
        | "set_constants" => format!("{name}_"),
        _ => identifier(name),
    }
}

/// The name, with `_` behind it if Rust needs the word itself.
fn identifier(name: &str) -> String {
    const KEYWORDS: [&str; 53] = [
        "abstract",
        "as",
        "async",
        "await",
        "become",
        "box",
        "break",
        "const",
        "continue",
        "crate",
        "do",
        "dyn",
        "else",
        "enum",
        "extern",
        "false",
        "final",
        "fn",
        "for",
        "gen",
        "if",
        "impl",
        "in",
        "let",
        "loop",
        "macro",
        "match",
        "mod",
        "move",
        "mut",
        "override",
        "priv",
        "pub",
        "ref",
        "return",
        "self",
        "static",
        "struct",
        "super",
        "trait",
        "true",
        "try",
        "type",
        "typeof",
        "union",
        "unsafe",
        "unsized",
        "use",
        "virtual",
        "where",
        "while",
        "yield",
        "macro_rules",
    ];
    if KEYWORDS.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// A module with the types that code of [`rust`] uses, for projects without `gatewright-wire`.
pub const RUST_SUPPORT: &str = r"
/// Octets end before what they should hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Truncated {
    /// Octets that are needed.
    pub needed: usize,
    /// Octets that are there.
    pub found: usize,
}

/// The position of a field in its header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Field {
    /// Its name, as the getter's.
    pub name: &'static str,
    /// Bits before it.
    pub offset: u32,
    /// Bits of it.
    pub width: u32,
}

/// A 48-bit link-layer address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MacAddress(pub [u8; 6]);
";

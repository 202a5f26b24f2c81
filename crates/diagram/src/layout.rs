//! The field table of a header: read from a diagram, and the source of accessors.

use crate::expression::Expression;

/// Bits of one drawn row; RFC diagrams count them in network order from the left.
pub const ROW_BITS: u32 = 32;

/// Widest field in bits that becomes one unsigned number.
pub const NUMBER_BITS_MAX: u32 = 128;

/// A header or trailer: its fixed fields in order, then its variable parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout {
    /// The type's name, such as `Udp`.
    pub name: String,
    /// Whether it is at the end of a packet and is removed from there.
    pub trailer: bool,
    /// The fields at fixed positions, without gaps; together whole octets.
    pub fields: Vec<Field>,
    /// The parts after the fixed fields.
    pub variable: Vec<Variable>,
}

impl Layout {
    /// Bits of the fixed fields.
    pub fn bits(&self) -> u32 {
        self.fields.last().map_or(0, |field| field.offset + field.width)
    }

    /// Octets of the fixed fields.
    pub fn octets(&self) -> u32 {
        self.bits() / 8
    }
}

/// A field at a fixed position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Field {
    /// Its name in `snake_case`, such as `source_port`.
    pub name: String,
    /// Bits before it, from the start of the header.
    pub offset: u32,
    /// Its width in bits.
    pub width: u32,
    /// Its role.
    pub role: FieldRole,
    /// Type of its value.
    pub kind: FieldKind,
}

/// Role of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldRole {
    /// It carries a value.
    Value,
    /// It is sent as zero and ignored: no accessor.
    Reserved,
    /// It always carries this number.
    Constant(u128),
    /// It carries the Internet checksum (RFC 1071).
    Checksum,
}

/// Type of a field's value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldKind {
    /// A flag (one bit) or the smallest unsigned number that holds it.
    Number,
    /// Octets, unchanged.
    Octets,
    /// `core::net::Ipv4Addr`, 32 bits.
    Ipv4,
    /// `core::net::Ipv6Addr`, 128 bits.
    Ipv6,
    /// `MacAddress`, 48 bits.
    Mac,
    /// A tuple struct over the number, such as `EtherType(pub u16)`; Rust only.
    Newtype(String),
}

/// A part after the fixed fields whose length varies from packet to packet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Variable {
    /// Its name in `snake_case`, such as `options`.
    pub name: String,
    /// Its length in octets, computed from fixed fields; `None` if the header does not contain it.
    pub length: Option<Expression>,
}

//! Random layouts, such as `read_art` could have made.

use gatewright_diagram::{Expression, Field, FieldKind, FieldRole, Layout, Operator, Variable};
use proptest::{prelude::*, sample::select};
use std::collections::HashSet;

/// Name, width, role and kind.
type Part = (String, u32, FieldRole, FieldKind);

/// A field without its place: name, role, and a kind that may have to give way to the width.
fn part() -> impl Strategy<Value = Part> {
    let width = prop_oneof![
        4 => 1_u32..=32,
        2 => select(vec![8_u32, 16, 24, 32, 48, 64, 128]),
        1 => select(vec![160_u32, 512, 1024]),
    ];
    let name = "[a-z][a-z0-9]{0,8}(_[a-z][a-z0-9]{0,8}){0,3}";
    let role = select(vec![
        FieldRole::Value,
        FieldRole::Value,
        FieldRole::Value,
        FieldRole::Reserved,
        FieldRole::Constant(0),
    ]);
    let kind = select(vec![
        FieldKind::Number,
        FieldKind::Octets,
        FieldKind::Ipv4,
        FieldKind::Ipv6,
        FieldKind::Mac,
        FieldKind::Newtype("EtherType".to_owned()),
    ]);
    (name, width, role, kind)
}

fn fits(kind: &FieldKind, offset: u32, width: u32) -> bool {
    let octets = offset.is_multiple_of(8) && width.is_multiple_of(8);
    match kind {
        FieldKind::Number | FieldKind::Newtype(_) => offset % 8 + width <= 128,
        FieldKind::Octets => octets,
        FieldKind::Ipv4 => octets && width == 32,
        FieldKind::Ipv6 => octets && width == 128,
        FieldKind::Mac => octets && width == 48,
    }
}

/// A layout that `read_art` could have made: whole octets, names once, kinds that fit.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    (prop::collection::vec(part(), 1..24), any::<bool>(), 0_u8..4, any::<u128>()).prop_map(
        |(parts, trailer, tail, value)| {
            let mut fields: Vec<Field> = Vec::new();
            let mut seen = HashSet::new();
            let mut offset = 0;
            for part in parts {
                let field = field(part, offset, value);
                if let Some(field) = field.filter(|field| seen.insert(field.name.clone())) {
                    offset += field.width;
                    fields.push(field);
                }
            }
            if !offset.is_multiple_of(8) || fields.is_empty() {
                let (name, width) = ("reserved".to_owned(), 8 - offset % 8);
                let (role, kind) = (FieldRole::Reserved, FieldKind::Number);
                fields.push(Field { name, offset, width, role, kind });
            }
            let variable = variable(&fields, tail);
            Layout { name: "Random".to_owned(), trailer, fields, variable }
        },
    )
}

/// The part at its place, if it can stand there.
fn field((name, width, role, kind): Part, offset: u32, value: u128) -> Option<Field> {
    let number = fits(&FieldKind::Number, offset, width);
    let octets = offset.is_multiple_of(8) && width.is_multiple_of(8);
    let role = match role {
        FieldRole::Constant(_) if !number || width > 64 => FieldRole::Value,
        FieldRole::Constant(_) => FieldRole::Constant(value >> (128 - width)),
        role => role,
    };
    let natural = width <= 32 || width == 64 || width == 128 || !octets;
    let natural = if natural { FieldKind::Number } else { FieldKind::Octets };
    let kind = match role {
        FieldRole::Constant(_) => FieldKind::Number,
        FieldRole::Value if fits(&kind, offset, width) => kind,
        _ => natural,
    };
    let possible = role != FieldRole::Value || fits(&kind, offset, width);
    possible.then_some(Field { name, offset, width, role, kind })
}

/// None, one without a length, or two of which the first has one: `FIELD * 4 - 20`.
fn variable(fields: &[Field], tail: u8) -> Vec<Variable> {
    let number = fields.iter().find(|field| {
        let number = field.role == FieldRole::Value && field.kind == FieldKind::Number;
        number && (2..=32).contains(&field.width)
    });
    let length = number.map(|field| {
        let factor = Box::new(Expression::Field(field.name.clone()));
        let four = Box::new(Expression::Number(4));
        let product = Box::new(Expression::Binary(factor, Operator::Multiply, four));
        Expression::Binary(product, Operator::Subtract, Box::new(Expression::Number(20)))
    });
    let options = |length| Variable { name: "zz_options".to_owned(), length };
    let payload = Variable { name: "zz_payload".to_owned(), length: None };
    match tail {
        0 => Vec::new(),
        1 => vec![options(None)],
        _ => vec![options(length), payload],
    }
}

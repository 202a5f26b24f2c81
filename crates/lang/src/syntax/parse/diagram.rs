//! Parses `diagram """ … """`: a fixed layout as its RFC draws it.

use super::super::ast::{Bits, Field, FieldType, Item, Literal, Name, Number};
use super::Parser;
use crate::codes;
use gatewright_diagnostic::{Diagnostic, Label, Span};
use gatewright_diagram::{FieldKind, FieldRole, Layout};

/// Maximum bits of a field that is a number; wider ones are octets.
const NUMBER_BITS_MAX: u32 = 63;

impl Parser<'_> {
    /// The diagram's fields as items.
    pub(super) fn diagram(&mut self) -> Option<Vec<Item>> {
        self.bump();
        let token = self.bump();
        let (start, end) = (token.span.start + 3, token.span.end.saturating_sub(3));
        let art = self.text.get(start..end).unwrap_or_default();
        let layout = match gatewright_diagram::read_art("Diagram", art) {
            Ok(layout) => layout,
            Err(found) => {
                for diagnostic in found {
                    self.found.push(moved(diagnostic, token.span, start));
                }
                return None;
            }
        };
        if let Some(variable) = layout.variable.first() {
            let message = format!("`{}` has no fixed length", variable.name);
            self.error(&codes::BAD_FIELD, token.span, message);
            self.help("draw the fixed fields, and write the others as items behind the diagram");
            return None;
        }
        Some(items(&layout, token.span))
    }
}

/// Moves a finding about the diagram to its position in the surrounding text.
fn moved(mut diagnostic: Diagnostic, art: Span, start: usize) -> Diagnostic {
    let place = |span: Span| Span::new(art.source, start + span.start, start + span.end);
    let label = |label: &mut Label| label.span = place(label.span);
    label(&mut diagnostic.primary);
    diagnostic.secondary.iter_mut().for_each(label);
    if let Some(fix) = &mut diagnostic.fix {
        fix.span = place(fix.span);
    }
    diagnostic
}

fn items(layout: &Layout, span: Span) -> Vec<Item> {
    let item = |field: &gatewright_diagram::Field| {
        let octets = field.kind == FieldKind::Octets || field.width > NUMBER_BITS_MAX;
        let number = |value: i64| Literal::Number(Number { value, span });
        let ty = if octets {
            FieldType::Taken(number(i64::from(field.width / 8)))
        } else {
            let width = u8::try_from(field.width).unwrap_or(1);
            FieldType::Bits(Bits { width, signed: false, little: false })
        };
        let fixed = match field.role {
            FieldRole::Constant(value) => i64::try_from(value).ok().map(number),
            FieldRole::Reserved if !octets => Some(number(0)),
            _ => None,
        };
        Item::Field(Box::new(Field {
            name: Name { text: field.name.clone(), span },
            private: false,
            optional: false,
            ty,
            ty_span: span,
            max: None,
            reserved: field.role == FieldRole::Reserved,
            fixed,
            default: None,
        }))
    };
    layout.fields.iter().map(item).collect()
}

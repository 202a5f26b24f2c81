//! Variables of a handler: names whose value changes.

use super::body::Body;
use super::scope::{Ty, Value};
use crate::codes;
use crate::ir::{Operand, Operation};
use crate::syntax::ast::{Expression, Name, Parameter};
use gatewright_diagnostic::{Diagnostic, Span};

impl Body<'_, '_> {
    /// `variable NAME: TYPE = VALUE`
    pub(super) fn variable(&mut self, variable: &Parameter, value: &Expression) -> Option<()> {
        let name = &variable.name;
        let value = self.set_value(value)?;
        let ty = self.context.value_type(&variable.ty)?;
        if !matches!(ty, Ty::Int { .. } | Ty::Octets { .. }) {
            let message = "a variable holds a number or a fragment";
            self.context.error(&codes::WRONG_TYPE, name.span, message);
            return None;
        }
        let fits = self.fits(&value, &ty, &name.text);
        let into = self.register_for(&name.text, &ty, name.span)?;
        self.variables.push(into);
        self.push(Operation::Set { into, value: value.operand }, name.span);
        let operand = Operand::Register(into);
        self.bind(name, Value { operand, ty, optional: false, span: name.span });
        fits.then_some(())
    }

    /// `NAME = VALUE`
    pub(super) fn set_variable(
        &mut self,
        name: &Name,
        value: &Expression,
        span: Span,
    ) -> Option<()> {
        let local = self.scope.iter().rev().find(|local| local.name.text == name.text);
        let Some(local) = local.cloned() else {
            let known: Vec<String> =
                self.scope.iter().map(|local| local.name.text.clone()).collect();
            self.context.unknown("variable", name, known.iter().map(String::as_str));
            return None;
        };
        let into = match local.value.operand {
            Operand::Register(register) if self.variables.contains(&register) => register,
            _ => {
                let message = format!("`{}` keeps the value that it was given", name.text);
                let diagnostic = Diagnostic::error(&codes::WRONG_PLACE, name.span, message)
                    .also(local.name.span, "named here")
                    .help("write `variable NAME: TYPE = VALUE` for one that changes");
                self.context.report(diagnostic);
                return None;
            }
        };
        let value = self.set_value(value)?;
        if !self.fits(&value, &local.value.ty, &name.text) {
            return None;
        }
        self.push(Operation::Set { into, value: value.operand }, span);
        Some(())
    }
}

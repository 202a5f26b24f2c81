//! Lowers variables of a handler: names whose value changes.

use super::body::Body;
use super::scope::{Ty, Value};
use crate::codes;
use crate::ir::{Instruction, Operand, RegisterId};
use crate::syntax::ast::{Expression, Name, Parameter};
use gatewright_diagnostic::{Diagnostic, Span};

impl Body<'_, '_> {
    /// `variable NAME: TYPE = VALUE`, `variable NAME: list of …`
    pub(super) fn variable(
        &mut self,
        variable: &Parameter,
        value: Option<&Expression>,
    ) -> Option<()> {
        let name = &variable.name;
        let value = match value {
            Some(value) => Some(self.set_value(value)?),
            None => None,
        };
        let ty = self.context.value_type(&variable.ty)?;
        if !matches!(ty, Ty::Int { .. } | Ty::Octets { .. } | Ty::List { .. }) {
            let message = "a variable holds a number, a fragment or a list of them";
            self.context.error(&codes::WRONG_TYPE, name.span, message);
            return None;
        }
        let fits = value.as_ref().is_none_or(|value| self.fits(value, &ty, &name.text));
        let into = self.register_for(&name.text, &ty, name.span)?;
        self.variables.push(into);
        let operation = match value {
            Some(value) => Instruction::Set { into, value: value.operand },
            None => Instruction::Empty { into },
        };
        self.push(operation, name.span);
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
        let (into, ty) = self.variable_named(name)?;
        let value = self.set_value(value)?;
        if !self.fits(&value, &ty, &name.text) {
            return None;
        }
        self.push(Instruction::Set { into, value: value.operand }, span);
        Some(())
    }

    /// The variable that a statement changes.
    fn variable_named(&mut self, name: &Name) -> Option<(RegisterId, Ty)> {
        let local = self.scope.iter().rev().find(|local| local.name.text == name.text);
        let Some(local) = local.cloned() else {
            let known: Vec<String> =
                self.scope.iter().map(|local| local.name.text.clone()).collect();
            let near = gatewright_diagnostic::nearest(&name.text, known.iter().map(String::as_str));
            if near.is_some_and(|_| name.text.len() > 1) {
                self.context.unknown("variable", name, known.iter().map(String::as_str));
                return None;
            }
            let message = format!("there is no variable `{}`", name.text);
            self.context.report(Diagnostic::error(&codes::UNKNOWN_NAME, name.span, message).help(
                "`let NAME = VALUE` names a value; `variable NAME: TYPE = VALUE` declares one \
                     that changes",
            ));
            return None;
        };
        match local.value.operand {
            Operand::Register(register) if self.variables.contains(&register) => {
                Some((register, local.value.ty))
            }
            _ => {
                let message = format!("`{}` keeps the value that it was given", name.text);
                let diagnostic = Diagnostic::error(&codes::WRONG_PLACE, name.span, message)
                    .also(local.name.span, "named here")
                    .help("write `variable NAME: TYPE = VALUE` for one that changes");
                self.context.report(diagnostic);
                None
            }
        }
    }

    /// The variable that a statement appends to, or empties.
    pub(super) fn variable_list(&mut self, name: &Name) -> Option<(RegisterId, Ty)> {
        let (register, ty) = self.variable_named(name)?;
        if !matches!(ty, Ty::List { .. }) {
            let message = format!("`{}` is {}, not a list", name.text, ty.name());
            self.wrong_type(&ty, name.span, message);
            return None;
        }
        Some((register, ty))
    }
}

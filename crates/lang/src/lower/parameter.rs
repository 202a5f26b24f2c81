//! Parameters of a program: declared in the gateway, set when the program is started.

use super::Context;
use super::body::Body;
use super::env::Env;
use super::scope::{Ty, Value};
use crate::codes;
use crate::ir::{Operand, Parameter, ParameterBounds, ParameterId, ParameterValue};
use crate::syntax::ast::{Gateway, Literal, Name};
use gatewright_diagnostic::{Diagnostic, Span};

/// Maximum number of parameters of one program.
const PARAMETERS_MAX: usize = 64;

impl<'a> Context<'a> {
    /// The parameters of a gateway, with their defaults.
    pub(super) fn parameters(&mut self, gateway: &'a Gateway) -> Vec<Parameter> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for (declared, default) in &gateway.parameters {
            let (name, span) = (&declared.name, declared.name.span);
            if let Some(other) = parameters.iter().find(|other| other.name == name.text) {
                let diagnostic = super::twice(name, other.span);
                self.report(diagnostic);
                continue;
            }
            let bounds = match self.value_type(&declared.ty) {
                Some(Ty::Int { low, high }) => ParameterBounds::Int { low, high },
                Some(Ty::Octets { max }) => ParameterBounds::Octets { max },
                _ => {
                    let message = "a parameter is a number or a fragment";
                    self.error(&codes::WRONG_TYPE, span, message);
                    continue;
                }
            };
            if parameters.len() >= PARAMETERS_MAX {
                let message = format!("more than {PARAMETERS_MAX} parameters");
                self.error(&codes::LIMIT_TOO_BIG, span, message);
                return parameters;
            }
            let value =
                default.as_ref().and_then(|default| self.parameter_constant(bounds, default));
            parameters.push(Parameter { name: name.text.clone(), span, bounds, value });
        }
        parameters
    }

    /// A constant as a parameter's value.
    pub(super) fn parameter_constant(
        &mut self,
        bounds: ParameterBounds,
        default: &Literal,
    ) -> Option<ParameterValue> {
        let span = default.span();
        match (bounds, default) {
            (ParameterBounds::Int { low, high }, Literal::Number(number)) => {
                if !(low..=high).contains(&number.value) {
                    let message = format!("{} is not in {low}..{high}", number.value);
                    self.error(&codes::OUT_OF_RANGE, span, message);
                }
                Some(ParameterValue::Int(number.value))
            }
            (ParameterBounds::Octets { max }, Literal::Octets(octets)) => {
                let length = octets.value.len();
                if !u32::try_from(length).is_ok_and(|length| length <= max) {
                    let message = format!("{length} octets are more than {max}");
                    let help = format!("declare it with `at most {length} octets`");
                    self.report(Diagnostic::error(&codes::TOO_LONG, span, message).help(help));
                }
                Some(ParameterValue::Octets(octets.value.clone()))
            }
            (_, Literal::Name(_)) => {
                let message = "a parameter's value is a number or a text";
                self.error(&codes::NOT_CONSTANT, span, message);
                None
            }
            _ => {
                let message = "the value is not of the parameter's type";
                self.error(&codes::WRONG_TYPE, span, message);
                None
            }
        }
    }

    /// Reports unused parameters.
    pub(super) fn unused_parameters(&mut self, env: &Env<'a>) {
        for (at, parameter) in env.parameters.iter().enumerate() {
            if !env.is_named(ParameterId::new(at)) {
                let message = format!("`{}` is never used", parameter.name);
                let diagnostic = Diagnostic::warning(&codes::UNUSED, parameter.span, message);
                self.report(diagnostic);
            }
        }
    }
}

impl Body<'_, '_> {
    /// The parameter of this name.
    pub(super) fn parameter_value(&self, name: &Name, span: Span) -> Option<Value> {
        let at = self.env.parameters.iter().position(|of| of.name == name.text)?;
        let id = ParameterId::new(at);
        self.env.name_parameter(id);
        let ty = match self.env.parameters.get(at)?.bounds {
            ParameterBounds::Int { low, high } => Ty::Int { low, high },
            ParameterBounds::Octets { max } => Ty::Octets { max },
        };
        Some(Value { operand: Operand::Parameter(id), ty, optional: false, span })
    }
}

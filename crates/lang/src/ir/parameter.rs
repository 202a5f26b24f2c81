//! Parameters: values set when a program is started.

use super::Program;
use gatewright_diagnostic::Span;

/// A value that may be chosen when the program is started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parameter {
    /// Its name in the gateway.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// Its permitted values.
    pub bounds: ParameterBounds,
    /// Its value: the default, or the one set. A program runs only when all parameters have a
    /// value.
    pub value: Option<ParameterValue>,
}

/// Permitted values of a parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParameterBounds {
    /// A number in these bounds, both included.
    Int {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The maximum length.
        max: u32,
    },
}

/// Value of a parameter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ParameterValue {
    /// A number.
    Int(i64),
    /// Octets.
    Octets(Vec<u8>),
}

/// Why a parameter cannot be set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The program has no such parameter.
    #[error("the program has no parameter `{name}`; it has {known}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The existing parameters.
        known: String,
    },
    /// The value is no number within the parameter's bounds.
    #[error("`{name}` is a number in {low}..{high}, and this is none")]
    NotWithin {
        /// The parameter.
        name: String,
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// The value has more octets than the parameter holds.
    #[error("`{name}` has at most {max} octets, and this has {length}")]
    TooLong {
        /// The parameter.
        name: String,
        /// The maximum length.
        max: u32,
        /// Length of the given value in octets.
        length: usize,
    },
    /// A parameter without a default was not set.
    #[error("parameter `{name}` has no default and is not set")]
    Unset {
        /// The parameter.
        name: String,
    },
}

impl Program {
    /// Sets a parameter: a number in decimal digits, or octets as they are.
    ///
    /// # Errors
    ///
    /// The program has no such parameter, or the value is not within its bounds. The value is not
    /// repeated, as it may be a secret.
    pub fn set_parameter(&mut self, name: &str, value: &[u8]) -> Result<(), ParameterError> {
        let Some(parameter) = self.parameters.iter_mut().find(|of| of.name == name) else {
            let known: Vec<String> =
                self.parameters.iter().map(|of| format!("`{}`", of.name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ParameterError::Unknown { name: name.to_owned(), known });
        };
        parameter.value = Some(parameter.bounds.value(name, value)?);
        Ok(())
    }

    /// Checks that every parameter has a value.
    ///
    /// # Errors
    ///
    /// The first parameter without a value.
    pub fn parameters_are_set(&self) -> Result<(), ParameterError> {
        match self.parameters.iter().find(|of| of.value.is_none()) {
            Some(unset) => Err(ParameterError::Unset { name: unset.name.clone() }),
            None => Ok(()),
        }
    }

    /// The program as its tests run it: a parameter without a value gets its minimum number, or its
    /// own name.
    #[must_use]
    pub fn with_parameters_for_tests(&self) -> Self {
        let mut program = self.clone();
        for parameter in program.parameters.iter_mut().filter(|of| of.value.is_none()) {
            parameter.value = Some(match parameter.bounds {
                ParameterBounds::Int { low, .. } => ParameterValue::Int(low),
                ParameterBounds::Octets { max } => {
                    let mut name = parameter.name.clone().into_bytes();
                    name.truncate(usize::try_from(max).unwrap_or(usize::MAX));
                    ParameterValue::Octets(name)
                }
            });
        }
        program
    }
}

impl ParameterBounds {
    /// Converts a text to a value.
    fn value(self, name: &str, text: &[u8]) -> Result<ParameterValue, ParameterError> {
        let name = name.to_owned();
        match self {
            Self::Int { low, high } => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                let number = number.filter(|number| (low..=high).contains(number));
                number.map(ParameterValue::Int).ok_or(ParameterError::NotWithin { name, low, high })
            }
            Self::Octets { max } => {
                let length = text.len();
                if u32::try_from(length).is_ok_and(|length| length <= max) {
                    return Ok(ParameterValue::Octets(text.to_vec()));
                }
                Err(ParameterError::TooLong { name, max, length })
            }
        }
    }
}

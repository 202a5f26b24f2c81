//! A value with its position in the text.

use gatewright_diagnostic::Span;
use std::ops::Deref;

/// A value with its position in the text, for later findings: a missing device, or a program that
/// does not compile.
///
/// Two are equal if their values are, wherever they are in the text: an added line at the beginning
/// does not change a description.
#[derive(Clone, Debug, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its position in the text.
    pub span: Span,
}

impl Located<&str> {
    /// The same with a text of its own.
    pub(crate) fn owned(self) -> Located<String> {
        Located { value: self.value.to_owned(), span: self.span }
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

//! Lengths computed from fields, such as `ihl * 4 - 20`.

use std::fmt;

/// A length in octets: natural numbers, fields, sums, differences and products.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expression {
    /// A number as written.
    Number(u32),
    /// The value of the field with this name.
    Field(String),
    /// Two operands, the left one computed first.
    Binary(Box<Self>, Operator, Box<Self>),
}

/// An operator on two operands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// Sum.
    Add,
    /// Difference; a negative one means that the header contradicts itself.
    Subtract,
    /// Product.
    Multiply,
}

impl Operator {
    /// The sign between the operands.
    pub const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
        }
    }
}

impl Expression {
    /// The names of the fields in it, in order of appearance.
    pub fn fields(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Field(name) => vec![name],
            Self::Binary(left, _, right) => {
                let mut names = left.fields();
                names.extend(right.fields());
                names
            }
        }
    }

    fn is_sum(&self) -> bool {
        matches!(self, Self::Binary(_, Operator::Add | Operator::Subtract, _))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |f: &mut fmt::Formatter<'_>, of: &Self, brackets: bool| {
            if brackets { write!(f, "({of})") } else { write!(f, "{of}") }
        };
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Field(name) => f.write_str(name),
            Self::Binary(left, operator, right) => {
                let product = *operator == Operator::Multiply;
                operand(f, left, product && left.is_sum())?;
                write!(f, " {} ", operator.sign())?;
                // The left operand is computed first, so a right one of the same rank is bracketed.
                let nested = matches!(**right, Self::Binary(..));
                operand(f, right, nested && (product || right.is_sum()))
            }
        }
    }
}

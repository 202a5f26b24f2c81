//! Reads text into a tree: tokens that keep their trivia, and a parser that continues after an
//! error.

pub(crate) mod ast;
mod bits;
mod parse;
pub(crate) mod token;

pub(crate) use parse::parse;

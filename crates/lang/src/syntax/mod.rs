//! From text to a tree: tokens that keep their trivia, and a parser that goes on after an error.

pub(crate) mod ast;
mod parse;
pub(crate) mod token;

pub(crate) use parse::parse;

//! Runs the typed programs of the gateway language, sans-IO: octets in, octets out.
//!
//! [`Parser`] reads one message of a layout, in any number of pieces, into a [`View`]; a slot can
//! be used as soon as it is settled. [`emit()`] writes a view or a template. Both depend only on
//! [`gatewright_lang::ir`] and never see the program's text. [`machine`] runs the whole program:
//! connections, dispatch, handlers, sessions, timers.
//!
//! A peer cannot make memory grow: a slot holds at most what its type allows. A parser asks for
//! more octets only while the layout's own bound leaves room for them.
#![forbid(unsafe_code)]

mod checksum;
mod emit;
mod flat;
pub mod law;
pub mod machine;
mod malformed;
mod parser;
mod stream;
pub mod transcript;
mod view;

pub use emit::{Unbuildable, emit};
pub use flat::Layouts;
pub use malformed::MalformedReason;
pub use parser::{Malformed, Parser, Progress, Unreadable};
pub use stream::{StreamError, StreamLengthError, StreamWriter};
pub use view::{Value, View};

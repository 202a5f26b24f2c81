//! Event loops that run programs of the gateway language over the kernel's sockets.
//!
//! A [`Runner`] runs one program on some threads, each with one loop over `mio` and one
//! [`Machine`](gatewright_translate::machine::Machine) of its own. The loops share nothing: each has its own
//! listeners, which the kernel spreads connections over (`SO_REUSEPORT`), so that a session stays
//! where it began. The machine decides everything; a loop only carries octets, datagrams, time and
//! names to it and does what it says.
//!
//! - A connection is read only as far as the machine has room, and costs a loop a few words: no
//!   buffer of its own.
//! - A connection gets at most one write for all that one wake-up brought, and never waits for
//!   Nagle (`TCP_NODELAY`): a body that is passed on in pieces would otherwise wait 40 ms for the
//!   acknowledgement of each last piece. A piece behind which the next one is already here goes to
//!   the kernel with word of that (`MSG_MORE`), so that both leave together.
//! - Names are resolved by one thread, with a bounded queue.
//! - A changed program takes over between two wake-ups, with the sockets that it has in common with
//!   the old one; the old one's sessions end in their own time ([`Runner::replace`]).
//!
//! - What is attached to handlers of the program sees their messages in every loop
//!   ([`Runner::attach`]); where nothing is, no message costs anything more.
//!
//! With several loops each has the program's limits, and a session keyed by a field lives in the
//! loop that its first request reached. Groups are listened to by the first loop only.
#![forbid(unsafe_code)]

mod accept;
mod captured;
mod generation;
mod plan;
mod report;
mod resolver;
mod runner;
mod socket;
mod worker;

pub use captured::{Piece, Sink};
pub use gatewright_translate::machine::{Counted, Does, Matching, Pace, Post, PostError, Way};
pub use report::{Handled, Report};
pub use runner::{Listening, Options, Runner, RunnerError};

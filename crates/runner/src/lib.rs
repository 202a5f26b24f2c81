//! Event loops that run programs of the gateway language over a network.
//!
//! A [`Runner`] runs one program on several threads. Each thread has one loop and one
//! [`Machine`](gatewright_translate::machine::Machine) of its own. A loop is written once, over the
//! traits of `gatewright-edge`; [`KernelNetwork`] is the kernel's network, by `mio`. The loops
//! share nothing: each has its own listeners, over which the kernel spreads connections
//! (`SO_REUSEPORT`), so a session stays where it began. The machine decides everything; a loop only passes it octets, datagrams,
//! time and names, and carries out its outputs.
//!
//! - A connection is read only as far as the machine has room. It costs a loop a few words: it has
//!   no buffer of its own.
//! - A connection gets at most one write per wake-up, and never waits for Nagle (`TCP_NODELAY`).
//!   Otherwise a body passed on in pieces would wait 40 ms for the acknowledgement of each last
//!   piece. A piece whose successor is already here goes to the kernel with `MSG_MORE`, so that
//!   both leave together.
//! - One thread resolves names, with a bounded queue.
//! - A changed program takes over between two wake-ups, with the sockets that both programs have.
//!   Sessions of the old program end in their own time ([`Runner::replace`]).
//!
//! - A post attached to handlers of the program sees their messages in every loop
//!   ([`Runner::attach`]). Where none is attached, messages cost nothing more.
//! - One conversation at a time is recorded from its beginning ([`Runner::record`]): a trace of a
//!   message in service, and a test that repeats it.
//! - A server that cannot be reached is reported once, and again when it is back
//!   ([`RunnerOptions::peers`]).
//!
//! [`LocalLoop`] is one loop on the caller's thread: over a simulated network, a test of a program in
//! virtual time.
//!
//! With several loops, each has the program's limits. A session keyed by a field lives in the loop
//! that its first request reached. Only the first loop listens to groups.
#![forbid(unsafe_code)]

mod accept;
mod captured;
mod error;
mod generation;
mod kernel;
mod local;
mod mailbox;
mod peers;
mod plan;
mod recording;
mod report;
mod resolver;
mod runner;
mod socket;
mod source;
mod worker;

pub use captured::{Piece, PieceSink};
pub use error::RunnerError;
pub use gatewright_translate::machine::{
    Conversation, ConversationGap, ConversationStep, Direction, Does, Matching, PeerEvent, Post,
    PostCounters, PostError, RequestRate,
};
pub use kernel::{KernelDatagrams, KernelListener, KernelNetwork, KernelPoller, KernelStream};
pub use local::{LocalLoop, Stopper};
pub use peers::{LostPeer, PeerChange, PeerSink, PeerState};
pub use recording::{RecordError, Recording};
pub use report::{Handled, RunReport};
pub use runner::{Listening, Runner, RunnerOptions};

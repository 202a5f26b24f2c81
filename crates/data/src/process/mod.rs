//! The data plane in a process of its own.
//!
//! The control plane starts it ([`DataProcess::start`]) and passes the descriptors that both have:
//! the region of tables, and an eventfd for each who sleeps. From then on they meet in the region
//! only. The socket between them tells each that the other has ended, by its end.
//!
//! | file | what is in it |
//! |---|---|
//! | `server.rs` | the process itself: workers and requests |
//! | `adoption.rs` | the process beside its control planes: the one that is there, its end, the next |
//! | `names.rs` | the names at which a later control plane finds it |
//! | `sockets.rs`, `captured.rs` | the control plane's sockets there; captured packets on their way up |
//! | `port.rs`, `uplink.rs` | the control plane's ends of the rings: requests and answers; datagrams and packets |
//! | `supervisor.rs`, `arrived.rs` | starts the process, finds it, starts it again when it dies, and exchanges it; frames that arrive meanwhile |
//! | `connection.rs`, `held.rs`, `known.rs` | the connection to it; what control holds and knows so that the next one goes on with it |
//! | `handshake.rs`, `passing.rs` | what both say when they meet; descriptors over a socket |
//! | `orders.rs` | orders to the UDP layer, and what became of each |
//! | `message.rs` | messages in the rings |
//! | `confine.rs`, `files.rs` | capabilities that the process keeps; files that it may open |

mod adoption;
mod arrived;
mod captured;
mod confine;
mod connection;
mod files;
mod handshake;
mod held;
mod known;
mod message;
mod names;
mod orders;
mod passing;
mod port;
mod server;
mod sockets;
mod supervisor;
mod uplink;

pub use files::landlock_version;
pub use handshake::{OpenLinks, process_version};
pub use names::name_holders;
pub use port::ProcessPort;
pub use server::serve;
pub use supervisor::{
    DataProcess, Downtime, FoundPlane, ProcessCommand, ProcessEvent, ProcessStarted,
};

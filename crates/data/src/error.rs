//! Why the data plane cannot do what it is asked.

use gatewright_link::OpenError;
use gatewright_packet::PoolError;
use gatewright_stack::WiringError;
use std::io;

/// Why the data plane cannot be started or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A link cannot be opened.
    #[error("link {name}: {source}")]
    Link {
        /// The link's name.
        name: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The slab cannot be allocated.
    #[error(transparent)]
    Slab(#[from] PoolError),
    /// The layers cannot be joined.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The system gave no thread or descriptor.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A link could not be opened as another device.
    #[error("link {name}: {reason}")]
    Reopen {
        /// The link's name.
        name: String,
        /// Why, and the resulting state of the link.
        reason: String,
    },
    /// A worker has ended.
    #[error("the worker has ended")]
    Ended,
}

//! Why the data plane cannot do what it is asked.

use gatewright_link::OpenError;
use gatewright_packet::PoolError;
use gatewright_stack::{Attachment, WiringError};
use gatewright_tables::CountersFull;
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
    /// The table of counters has no room.
    #[error(transparent)]
    Counters(#[from] CountersFull),
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
    /// A handler that cannot duplicate itself was to be attached on several workers.
    #[error("the handler {0} supports a single worker, and the gateway has several")]
    OneOnly(Attachment),
    /// Another packet is being traced.
    #[error("another packet is being traced")]
    Busy,
    /// The answer has not come yet.
    #[error("the worker has not answered yet")]
    Late,
    /// The request, staged wiring or kept handler of this number is not known, or no longer.
    #[error("there is nothing with this number")]
    Unknown,
    /// A worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// A handler of own code was to be attached to workers in another process.
    #[error(
        "a handler of this kind needs the workers in this process: [planes] mode = \"threads\""
    )]
    OwnCode,
    /// The data plane in a process of its own cannot do it.
    #[error("{reason}")]
    Refused {
        /// Why, in words for the operator.
        reason: String,
        /// The exit code of a program that ends for this.
        exit_code: u8,
    },
}

impl DataError {
    /// The exit code of a program that ends for this (`sysexits.h`): 77 for a missing permission,
    /// 69 for a missing device or resource.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Link { source, .. } => source.exit_code(),
            Self::Refused { exit_code, .. } => *exit_code,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            _ => 69,
        }
    }
}

/// An action that the system refused.
pub(crate) fn failed(action: &'static str) -> impl FnOnce(io::Error) -> DataError {
    move |source| DataError::System { action, source }
}

/// A refusal in words.
pub(crate) const fn refused(reason: String) -> DataError {
    DataError::Refused { reason, exit_code: UNAVAILABLE }
}

/// `EX_UNAVAILABLE` of `sysexits.h`.
const UNAVAILABLE: u8 = 69;

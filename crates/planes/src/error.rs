//! Reasons why a gateway cannot be opened.

use gatewright_data::{DataError, WORKERS_MAX};
use gatewright_stack::HostError;
use std::io;

/// Why a gateway cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanesError {
    /// The data plane cannot do it.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Addresses or routes do not fit.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The kernel refuses to share its links.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// The attempted action.
        action: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A virtual link's lower link carries no tags, or is no link of this gateway.
    #[error("link {name}: the link below it carries no tags")]
    NoTags {
        /// The virtual link's name.
        name: String,
    },
    /// A data plane that runs is not that of this setup.
    #[error(
        "the data plane of before (process {process}) runs with {what}: end it first, by \
         `kill {process}`"
    )]
    OtherDataPlane {
        /// Its process.
        process: u32,
        /// The difference.
        what: String,
    },
    /// The control plane's core is not one of this process, or leaves none to the workers.
    #[error(
        "the control plane cannot have core {control}: it must be one of {all:?}, and leave another \
         to the workers"
    )]
    Cores {
        /// The core.
        control: usize,
        /// The cores that this process may use.
        all: Vec<usize>,
    },
    /// The number of workers is zero or above the maximum.
    #[error("a gateway has 1 to {WORKERS_MAX} workers, not {0}")]
    Workers(usize),
    /// The data plane is in this process.
    #[error("the data plane has no process of its own: [planes] mode = \"process\"")]
    NoProcess,
}

impl PlanesError {
    /// The exit code of a program that ends for this (`sysexits.h`): 77 for a missing permission,
    /// 69 for a missing device or resource.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Data(error) => error.exit_code(),
            Self::Kernel { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 77,
            Self::NoTags { .. } => 78,
            _ => 69,
        }
    }
}

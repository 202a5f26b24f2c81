//! Reasons why a description cannot run.

use gatewright_config::Link;
use gatewright_link::OpenError;
use gatewright_lsr::MeshError;
use gatewright_part::Unable;
use gatewright_planes::{DataError, PlanesError};
use std::io;

/// Why a description cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A part of the description is not in this version.
    #[error("{0} is not in this version")]
    NotInThisVersion(String),
    /// A component of the description is not in this program.
    #[error("{0}: {NOT_IN_THIS_PROGRAM}")]
    NotInThisProgram(&'static str),
    /// The data plane is to be a process, and there is no program for it.
    #[error(
        "[planes] mode = \"process\" needs a program for the data plane, as `gatewright run` has"
    )]
    NoDataPlane,
    /// The gateway cannot be opened.
    #[error(transparent)]
    Planes(Box<PlanesError>),
    /// A handler cannot be attached.
    #[error("handler {name}: {source}")]
    Attach {
        /// The handler.
        name: String,
        /// Why.
        source: Box<PlanesError>,
    },
    /// A handler cannot be attached at messages.
    #[error("{at}: {why}")]
    Messages {
        /// The position.
        at: String,
        /// Why, with the names that exist.
        why: String,
    },
    /// A UDP gateway cannot be started.
    #[error("udp_gateway.{name}: {source}")]
    UdpGateway {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The forwarder of devices' reports cannot be started.
    #[error("[cse.registrar] coap: the forwarder of reports does not start: {source}")]
    ReportForwarder {
        /// Why.
        source: io::Error,
    },
    /// The node of the mesh cannot be started.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A TCP proxy cannot be started.
    #[error("tcp_proxy.{name}: {source}")]
    TcpProxy {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel's interface beside a link does not get its addresses.
    #[error("link {name}: the kernel's interface beside it does not get its addresses: {source}")]
    Host {
        /// The link.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A static neighbour cannot be set.
    #[error("[[neighbour]]: {0}")]
    Neighbour(String),
    /// A file cannot be written.
    #[error("cannot write {file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// Why.
        source: io::Error,
    },
}

impl From<PlanesError> for RunError {
    fn from(source: PlanesError) -> Self {
        Self::Planes(Box::new(source))
    }
}

impl RunError {
    /// The error of a link that cannot be opened.
    pub(crate) fn of_link(link: &Link, source: OpenError) -> Self {
        let name = link.name.value.clone();
        Self::from(PlanesError::from(DataError::Link { name, source }))
    }

    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Planes(source) | Self::Attach { source, .. } => source.exit_code(),
            Self::NotInThisVersion(_)
            | Self::NotInThisProgram(_)
            | Self::Messages { .. }
            | Self::Neighbour(_)
            | Self::Mesh(MeshError::Keys { .. })
            | Self::NoDataPlane => 78,
            Self::Mesh(_) => UNAVAILABLE,
            Self::UdpGateway { source, .. }
            | Self::ReportForwarder { source }
            | Self::TcpProxy { source, .. }
            | Self::Host { source, .. }
            | Self::File { source, .. } => exit_code_of(source),
        }
    }
}

/// Why a table is refused that an assembly lacks.
pub const NOT_IN_THIS_PROGRAM: &str =
    "this program was assembled without it: the full `gatewright` runs it";

/// The exit code for something that the system does not give (`sysexits.h`, `EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// The exit code for something in use, which may be free later (`EX_TEMPFAIL`).
const IN_USE: u8 = 75;
/// The exit code for a missing right (`EX_NOPERM`).
const NO_PERMISSION: u8 = 77;

/// The exit code of a program that ends as the system refused an address or a file.
pub fn exit_code_of(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::AddrInUse => IN_USE,
        io::ErrorKind::PermissionDenied => NO_PERMISSION,
        _ => UNAVAILABLE,
    }
}

impl From<RunError> for Unable {
    fn from(error: RunError) -> Self {
        error.to_string().into()
    }
}

//! Label switching router (RFC 3031 §3.12): a node of the mesh on this machine.
//!
//! [`MeshRouter`] makes the mesh interface, which the host uses as one Ethernet interface, joins the
//! links, loads the label programs, and runs the machine of `gatewright-mesh` on a thread of its own.
//!
//! ```text
//! host ── mesh0 ═ mesh0p ─[push]─▶ links ─[switch: swap]─▶ links ─[switch: pop]─▶ mesh0 ── host
//!                   │ no path, broadcast, not IP     │ control, unknown label, not IP
//!                   └──────────▶ the thread ◀────────┘
//! ```
//!
//! The kernel forwards; the thread sees the first packet of a path, broadcasts, packets that are not
//! IP, and control messages. At a bridge port stations send as the host does at `mesh0`: the push
//! program takes what has a path, the thread the rest; the switch program pops to the port.
#![forbid(unsafe_code)]

mod bridge;
mod connections;
mod driver;
mod early;
mod forwarding;
mod frames;
mod lateness;
mod part;
mod port;
mod report;
mod router;
mod state;
mod tunnel;

pub use frames::{FramePayload, LabelledFrame};
pub use part::MeshPart;
pub use router::{MeshError, MeshRouter, MeshSetup};
pub use state::{
    MeshDestination, MeshEcho, MeshLinkState, MeshNeighbour, MeshPathState, MeshPortState,
    MeshState, MeshTunnelState, mac_text,
};
pub use tunnel::MeshTunnel;

//! Forwarding in a link's driver: the program in front of a link, and the interfaces that take what
//! it redirects.

use crate::Division;
use crate::bpf::{BpfProgram, Instruction, Tags, tag_taken};
use gatewright_packet::LinkIndex;
use gatewright_xdp::{ForwardingMaps, LinkProgram};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The kernel's tables that a gateway's links have in common.
///
/// Links decide by them which frames are only forwarded, in the driver or by the graph. A clone
/// has the same tables.
#[derive(Clone, Debug)]
pub struct KernelTables {
    /// The division of shared links' traffic between gateway and kernel.
    pub division: Option<Arc<Division>>,
    /// The maps of forwarding in the driver; otherwise why there are none.
    pub forwarding: Result<Arc<ForwardingMaps>, String>,
}

impl Default for KernelTables {
    fn default() -> Self {
        let forwarding = Err("this data plane has no tables of routes in the kernel".to_owned());
        Self { division: None, forwarding }
    }
}

/// Whether a link's driver forwards what is only forwarded, before the link has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DriverForwarding {
    /// The link's configuration does not ask for it.
    #[default]
    NotAsked,
    /// It forwards.
    Active,
    /// It does not, for this reason.
    Refused(String),
}

impl DriverForwarding {
    /// The refusal of a link of a kind that has no driver's program.
    pub(crate) fn refused(is_asked: bool, reason: &str) -> Self {
        if is_asked { Self::Refused(reason.to_owned()) } else { Self::NotAsked }
    }
}

impl fmt::Display for DriverForwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("by the graph"),
            Self::Active => f.write_str("in the driver (XDP)"),
            Self::Refused(reason) => write!(f, "by the graph, not in the driver: {reason}"),
        }
    }
}

/// Loads the forwarding program of a link with `up` behind it, which has all other frames.
pub(crate) fn forwarding_program(
    maps: &ForwardingMaps,
    link: LinkIndex,
    partial: bool,
    (tags, bound_to): (Tags, u32),
    up: &[Instruction],
) -> io::Result<BpfProgram> {
    let tag_taken = tag_taken(tags);
    let link = u32::from(link.0);
    let program = LinkProgram { link, partial, tag_taken: &tag_taken, up, bound_to };
    maps.program(&program).map_err(io::Error::other)
}

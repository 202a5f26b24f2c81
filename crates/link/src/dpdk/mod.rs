//! Ports of DPDK as links, in a build with the feature `dpdk`.
//!
//! | module | what |
//! |---|---|
//! | `binding.rs`, `shim.c` | DPDK's calls behind safe types |
//! | `link.rs` | opens a port, and is its [`Link`](crate::Link) |
//!
//! Without the feature a link of this kind is refused, and nothing of DPDK is compiled or linked.

#[cfg(feature = "dpdk")]
mod binding;
#[cfg(feature = "dpdk")]
mod link;

#[cfg(feature = "dpdk")]
pub(crate) use link::OpenPort;
#[cfg(feature = "dpdk")]
use link::open_port;

use crate::{OpenError, Preparer, UnboundLink};
use gatewright_packet::LinkIndex;

/// Why this build opens no ports of DPDK; `None` if it does.
pub const WITHOUT_DPDK: Option<&str> = if cfg!(feature = "dpdk") {
    None
} else {
    Some(
        "this program was built without DPDK: build it with `cargo build --release --features dpdk`",
    )
};

/// Configuration of a link over a port of DPDK.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DpdkConfig {
    /// The link's index in the gateway, stamped on received frames.
    pub index: LinkIndex,
    /// The device as DPDK's `-a` and `--vdev` name it: a driver with a number and its arguments
    /// (`net_af_packet0,iface=eth0`), or a PCI address.
    pub port: String,
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
    /// Whether frames for other hosts are received, too.
    pub promiscuous: bool,
}

impl Preparer {
    /// Opens a port of DPDK for a link.
    ///
    /// # Errors
    ///
    /// As [`Opener::open_dpdk`](crate::Opener::open_dpdk).
    pub fn prepare_dpdk(&self, config: &DpdkConfig) -> Result<UnboundLink, OpenError> {
        open_port(self, config)
    }
}

/// Refuses the port: there is no DPDK.
#[cfg(not(feature = "dpdk"))]
fn open_port(_: &Preparer, config: &DpdkConfig) -> Result<UnboundLink, OpenError> {
    let (name, reason) = (config.port.clone(), WITHOUT_DPDK.unwrap_or_default().to_owned());
    Err(OpenError::Unsupported { name, reason })
}

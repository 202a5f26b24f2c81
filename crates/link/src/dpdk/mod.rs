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

impl DpdkConfig {
    /// Why the port cannot be opened after `before` was closed in this process, if so: DPDK 22.11 never
    /// closes the socket of `net_af_xdp`, and the interface's queue stays taken.
    pub fn excluded_by(&self, before: &Self) -> Option<&'static str> {
        let taken = before.af_xdp_interface()?;
        (self.af_xdp_interface() == Some(taken)).then_some(
            "DPDK opens `net_af_xdp` once for an interface in a process: start the gateway anew",
        )
    }

    /// The interface of a port by DPDK's driver for AF_XDP.
    fn af_xdp_interface(&self) -> Option<&str> {
        let (driver, arguments) = self.port.split_once(',')?;
        let interface = || arguments.split(',').find_map(|it| it.strip_prefix("iface="));
        driver.starts_with("net_af_xdp").then(interface)?
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn af_xdp_is_opened_once_for_an_interface() {
        let port = |port: &str| DpdkConfig {
            index: LinkIndex(0),
            port: port.to_owned(),
            mtu: 1500,
            promiscuous: false,
        };
        let before = port("net_af_xdp0,iface=eth0");
        for (next, is_excluded) in [
            ("net_af_xdp0,iface=eth0", true),
            ("net_af_xdp1,queue_count=1,iface=eth0", true),
            ("net_af_xdp0,iface=eth1", false),
            ("net_af_packet0,iface=eth0", false),
        ] {
            assert_eq!(port(next).excluded_by(&before).is_some(), is_excluded, "{next}");
        }
        assert_eq!(before.excluded_by(&port("net_af_packet0,iface=eth0")), None);
    }
}

//! What a description needs of rights and of the kernel.

use gatewright_config::{Config, Device, Link, Mode, PlaneMode};
use std::net::SocketAddr;

/// The lowest port that everybody may listen at (ip(7), `ip_unprivileged_port_start`).
const PORT_FREE: u16 = 1024;

/// Needs of a description; none without one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one need")]
pub(crate) struct Needs {
    /// Interfaces of the kernel, as links.
    pub(super) interfaces: bool,
    /// AF_XDP, and nothing less, or forwarding in the driver.
    pub(super) xdp: bool,
    /// TAP and TUN devices.
    pub(super) tun: bool,
    /// Label programs of the mesh.
    pub(super) mesh: bool,
    /// A listener at a low port.
    pub(super) low_ports: bool,
    /// A data plane in a process of its own.
    pub(super) process: bool,
    /// A wall clock: readings and resources have times.
    pub(super) clock: bool,
}

impl Needs {
    /// The needs of `config`.
    pub(crate) fn of(config: Option<&Config>) -> Self {
        let Some(config) = config else { return Self::default() };
        let device = |is: fn(&Link) -> bool| config.links.iter().any(is);
        Self {
            interfaces: device(|link| matches!(link.device, Device::Interface { .. })),
            xdp: device(|link| {
                let only = |mode: &Mode| matches!(mode, Mode::Xdp | Mode::XdpGeneric);
                link.forwards_in_driver
                    || matches!(&link.device, Device::Interface { mode, .. } if only(mode))
            }),
            tun: device(|link| matches!(link.device, Device::Tap { .. } | Device::Tun { .. })),
            mesh: config.mesh.is_some(),
            low_ports: listeners(config).any(|address| (1..PORT_FREE).contains(&address.port())),
            process: config.plane_mode == PlaneMode::Process && !config.links.is_empty(),
            clock: config.cse.is_some() || config.devices.is_some(),
        }
    }

    /// Whether it opens links of its own.
    pub(super) const fn links(self) -> bool {
        self.interfaces || self.xdp || self.tun || self.mesh
    }
}

/// Addresses at which a description's service entity, devices and proxies are reached over the
/// kernel's sockets.
fn listeners(config: &Config) -> impl Iterator<Item = SocketAddr> + '_ {
    let cse = config.cse.iter().flat_map(|cse| [&cse.http, &cse.coap, &cse.ws]);
    let cse = cse.flatten().map(|at| at.value);
    let devices = config.devices.iter().flat_map(|devices| {
        let tls = devices.tls.as_ref().map(|tls| tls.listen.value);
        [Some(devices.listen.value), devices.udp.as_ref().map(|at| at.value), tls]
    });
    cse.chain(devices.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_diagnostic::SourceId;

    fn needs(text: &str) -> Needs {
        let parsed = gatewright_config::parse(SourceId::default(), text);
        let config = parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        Needs::of(Some(&config))
    }

    #[test]
    fn each_part_of_a_description_has_its_needs() {
        assert!(!Needs::of(None).links());
        let link = "[link.lan]\naddresses = [\"192.0.2.1/24\"]\n";
        let interface = Needs { interfaces: true, ..Needs::default() };
        assert_eq!(needs(link), interface);
        assert_eq!(needs(&format!("{link}mode = \"xdp\"\n")), Needs { xdp: true, ..interface });
        let tap = needs(&format!("{link}mode = \"tap\"\n"));
        assert_eq!(tap, Needs { tun: true, ..Needs::default() });
        let process = needs(&format!("[planes]\nmode = \"process\"\n{link}"));
        assert_eq!(process, Needs { process: true, ..interface });
        let cse = "[cse]\nbase = \"b\"\nid = \"/i\"\nhttp = \"127.0.0.1:80\"\n";
        assert_eq!(needs(cse), Needs { clock: true, low_ports: true, ..Needs::default() });
        let cse = needs(&cse.replace(":80\"", ":8080\""));
        assert_eq!(cse, Needs { clock: true, ..Needs::default() });
    }
}

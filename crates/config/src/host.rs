//! `[link.NAME] host`: the kernel's interface beside an exclusive link, as a link and handlers.
//!
//! The interface is a TAP link of the gateway, `NAME.host`: the kernel is a second host at the
//! link's own addresses. Handlers hand it what our stack has no use for. Beside links that are shared
//! with the kernel, they also hand it what it has routes for over interfaces outside the gateway.

use crate::model::{Attach, Config, Device, Handler, HostPart, Link, Located, Place, Side};
use gatewright_stack::{At, IcmpError};
use gatewright_wire::{EtherType, IpProtocol};

/// Adds the links and handlers that `host` stands for.
pub(crate) fn derive(config: &mut Config) {
    let mut derived = Vec::new();
    let shared: Vec<_> = (config.links.iter())
        .filter(|link| link.is_shared())
        .map(|link| (link.name.clone(), link.below().is_some()))
        .collect();
    for link in &config.links {
        // Elsewhere the key is refused.
        if let Some(host) = link.host.as_ref().filter(|_| link.may_have_host()) {
            let name = Located { value: format!("{}.host", link.name.value), span: host.span };
            let attachments = &mut config.attachments;
            attachments.push(attach(&name, &link.name, HostPart::Send, At::Frame));
            attachments.extend(received(&link.name, &name, false));
            if !shared.is_empty() {
                attachments.extend(left_to_kernel(&link.name, &name));
            }
            if derived.is_empty() {
                // Addresses of exclusive links are reached by shared links, too. Any interface does: the
                // kernel takes by each what is for its addresses.
                let of = |(link, is_vlan): &(_, bool)| received(link, &name, *is_vlan);
                attachments.extend(shared.iter().flat_map(of));
            }
            derived.push(Link {
                device: Device::Tap { name: host.clone() },
                exclusive: true,
                mtu: link.mtu,
                addresses: Vec::new(),
                dhcp: false,
                autoconfigure: false,
                mac: None,
                promiscuous: false,
                forwarding: false,
                forwards_in_driver: false,
                advertise: None,
                spin: link.spin,
                queues: None,
                host: None,
                name,
            });
        }
    }
    config.links.extend(derived);
}

fn attach(from: &Located<String>, to: &Located<String>, part: HostPart, at: At) -> Attach {
    let (place, host) = match part {
        HostPart::Deliver => (Place::Instead, to),
        HostPart::Copy => (Place::Tap, to),
        HostPart::Send => (Place::Before, from),
    };
    Attach {
        handler: Handler::Host { part, to: to.clone() },
        at: Located { value: at, span: host.span },
        side: Side::Receive,
        place,
        link: Some(from.clone()),
    }
}

/// Handlers of what a link receives for this host: our stack has no use for it, or not alone. Of a VLAN
/// whole frames are those of the link below.
fn received(
    link: &Located<String>,
    host: &Located<String>,
    is_vlan: bool,
) -> impl Iterator<Item = Attach> + use<> {
    let refused = |ether_type, error| At::Error(ether_type, error);
    let unclaimed = [
        At::IpProtocol(IpProtocol::TCP),
        refused(EtherType::IPV4, IcmpError::PortUnreachable),
        refused(EtherType::IPV6, IcmpError::PortUnreachable),
        refused(EtherType::IPV4, IcmpError::ProtocolUnreachable),
    ];
    let deliver = |at| attach(link, host, HostPart::Deliver, at);
    let copies = attach(link, host, HostPart::Copy, At::Frame);
    unclaimed.map(deliver).into_iter().chain((!is_vlan).then_some(copies))
}

/// Handlers of what a link receives for destinations to which the gateway has no route beside shared
/// links: the kernel may have one, over another interface.
fn left_to_kernel(link: &Located<String>, host: &Located<String>) -> [Attach; 2] {
    [EtherType::IPV4, EtherType::IPV6].map(|ether_type| {
        attach(link, host, HostPart::Deliver, At::Error(ether_type, IcmpError::NetworkUnreachable))
    })
}

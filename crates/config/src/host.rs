//! `[link.NAME] host`: the kernel's interface beside an exclusive link, as a link and handlers.
//!
//! The interface is a TAP link of the gateway, `NAME.host`: the kernel is a second host at the
//! link's own addresses. Handlers hand it what our stack has no use for.

use crate::model::{Attach, Config, Device, Handler, HostPart, Link, Located, Place, Side};
use gatewright_stack::{At, IcmpError};
use gatewright_wire::{EtherType, IpProtocol};

/// Adds the links and handlers that `host` stands for.
pub(crate) fn derive(config: &mut Config) {
    let mut derived = Vec::new();
    for link in &config.links {
        // Elsewhere the key is refused.
        if let Some(host) = link.host.as_ref().filter(|_| link.may_have_host()) {
            let name = Located { value: format!("{}.host", link.name.value), span: host.span };
            config.attachments.extend(handlers(link, &name));
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

/// Where the handlers between a link and the kernel stand.
fn handlers(link: &Link, host: &Located<String>) -> Vec<Attach> {
    let attach = |from: &Located<String>, to: &Located<String>, part, at, place| Attach {
        handler: Handler::Host { part, to: to.clone() },
        at: Located { value: at, span: host.span },
        side: Side::Receive,
        place,
        link: Some(from.clone()),
    };
    let refused = |ether_type, error| At::Error(ether_type, error);
    let unclaimed = [
        At::IpProtocol(IpProtocol::TCP),
        refused(EtherType::IPV4, IcmpError::PortUnreachable),
        refused(EtherType::IPV6, IcmpError::PortUnreachable),
        refused(EtherType::IPV4, IcmpError::ProtocolUnreachable),
    ];
    let deliver = |at| attach(&link.name, host, HostPart::Deliver, at, Place::Instead);
    let copies = attach(&link.name, host, HostPart::Copy, At::Frame, Place::Tap);
    let sends = attach(host, &link.name, HostPart::Send, At::Frame, Place::Before);
    unclaimed.into_iter().map(deliver).chain([copies, sends]).collect()
}

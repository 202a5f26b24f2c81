//! The control side of a gateway: its host, its plan, its attachments, what it learnt.

use crate::gateway::{Attached, GatewayError};
use gatewright_link::LinkInfo;
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    Address, AddressState, Attachment, AttachmentId, Counter, Drops, Event, Handler, Host, Lease,
    Plan, Route, Swap,
};
use gatewright_tables::Prefix;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Something learnt that ends by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Learnt {
    Router { link: LinkIndex, address: IpAddr },
    Address { link: LinkIndex, address: IpAddr },
    OnLink { link: LinkIndex, prefix: Prefix<Ipv6Addr> },
}

/// Things learnt that can expire, at the most: hosts must bound what routers make them keep.
const LEARNT_MAX: usize = 256;

/// What the control plane knows of a gateway.
pub(crate) struct Control {
    pub(crate) host: Host,
    pub(crate) plan: Plan,
    pub(crate) links: Vec<(String, LinkInfo)>,
    pub(crate) drops: Vec<Drops>,
    pub(crate) graph_drops: Drops,
    attached: Vec<Attached>,
    next_id: u32,
    learnt: Vec<(Learnt, Instant)>,
}

impl Control {
    pub(crate) fn new(
        host: Host,
        plan: Plan,
        links: Vec<(String, LinkInfo)>,
        drops: Vec<Drops>,
        graph_drops: Drops,
    ) -> Self {
        let (attached, learnt) = (Vec::new(), Vec::new());
        Self { host, plan, links, drops, graph_drops, attached, next_id: 1, learnt }
    }

    /// The swap that attaches a handler.
    pub(crate) fn attach(
        &mut self,
        attachment: Attachment,
        handler: Box<dyn Handler>,
    ) -> Result<(AttachmentId, Swap), GatewayError> {
        let (id, taken) = (AttachmentId(self.next_id), Counter::default());
        let mut records = self.records();
        records.push((id, attachment));
        let wiring = self.plan.wire(&records)?;
        self.next_id += 1;
        self.attached.push((id, attachment, taken.clone()));
        Ok((id, Swap { wiring, handlers: vec![(id, handler, taken)] }))
    }

    /// The swap that detaches a handler, if there is one.
    pub(crate) fn detach(&mut self, id: AttachmentId) -> Result<Option<Swap>, GatewayError> {
        let before = self.attached.len();
        self.attached.retain(|&(other, ..)| other != id);
        if self.attached.len() == before {
            return Ok(None);
        }
        let wiring = self.plan.wire(&self.records())?;
        Ok(Some(Swap { wiring, handlers: Vec::new() }))
    }

    fn records(&self) -> Vec<(AttachmentId, Attachment)> {
        self.attached.iter().map(|&(id, attachment, _)| (id, attachment)).collect()
    }

    /// The handlers with where they stand and what they took.
    pub(crate) fn handlers(&self) -> Vec<(AttachmentId, Attachment, u64)> {
        let status = |(id, at, taken): &Attached| (*id, *at, taken.get());
        self.attached.iter().map(status).collect()
    }

    /// Acts upon what a layer learnt. A table that is full leaves things as they are.
    pub(crate) fn learn(&mut self, event: Event) {
        match event {
            Event::Link { link, up } => {
                self.host.change_interface(link, |interface| interface.up = up);
            }
            Event::Duplicate { link, address, .. } => {
                self.set_state(link, address, AddressState::Duplicate);
            }
            Event::Unique { link, address } => {
                self.set_state(link, address, AddressState::Preferred);
            }
            Event::Router { link, address, lifetime } => self.router(link, address, lifetime),
            Event::Prefix { link, prefix, on_link: true, valid, .. } => {
                self.on_link(link, prefix, valid);
            }
            Event::Lease { link, lease } => self.lease(link, lease),
            // Redirects and path MTUs are kept by the layers that learnt them; prefixes that are
            // not on the link matter only for addresses, which come as `Unique`.
            _ => {}
        }
    }

    fn set_state(&mut self, link: LinkIndex, ip: IpAddr, state: AddressState) {
        let interface = self.host.interfaces().iter().find(|found| found.link == link);
        let known = interface
            .and_then(|interface| interface.addresses.iter().find(|address| address.ip == ip));
        let prefix_len = known.map_or(if ip.is_ipv4() { 32 } else { 64 }, |known| known.prefix_len);
        let _full = self.host.add_address(link, Address { ip, prefix_len, state });
    }

    fn router(&mut self, link: LinkIndex, address: IpAddr, lifetime: Duration) {
        let learnt = Learnt::Router { link, address };
        self.forget(learnt);
        if lifetime.is_zero() {
            return self.unlearn(learnt);
        }
        let via = Route::Via { link, gateway: address };
        let _full = match address {
            IpAddr::V4(_) => self.host.add_route(Prefix::all(), via),
            IpAddr::V6(_) => self.host.add_route6(Prefix::all(), via),
        };
        self.remember(learnt, lifetime);
    }

    fn on_link(&mut self, link: LinkIndex, prefix: Prefix<Ipv6Addr>, valid: Duration) {
        let learnt = Learnt::OnLink { link, prefix };
        self.forget(learnt);
        if valid.is_zero() {
            return self.unlearn(learnt);
        }
        let _full = self.host.add_route6(prefix, Route::Connected(link));
        self.remember(learnt, valid);
    }

    fn lease(&mut self, link: LinkIndex, lease: Option<Lease>) {
        let Some(lease) = lease else {
            let of_link = |learnt: &Learnt| match *learnt {
                Learnt::Address { link: other, .. } => other == link,
                Learnt::Router { link: other, address } => other == link && address.is_ipv4(),
                Learnt::OnLink { .. } => false,
            };
            let over: Vec<_> = self.learnt.extract_if(.., |(learnt, _)| of_link(learnt)).collect();
            for (learnt, _) in over {
                self.unlearn(learnt);
            }
            return;
        };
        let address: IpAddr = lease.address.into();
        let state = AddressState::Preferred;
        let _full = self
            .host
            .add_address(link, Address { ip: address, prefix_len: lease.prefix_len, state });
        let learnt = Learnt::Address { link, address };
        self.forget(learnt);
        self.remember(learnt, lease.duration);
        if let Some(&router) = lease.routers.first() {
            self.router(link, router.into(), lease.duration);
        }
    }

    fn remember(&mut self, learnt: Learnt, lifetime: Duration) {
        if self.learnt.len() < LEARNT_MAX
            && let Some(end) = Instant::now().checked_add(lifetime)
        {
            self.learnt.push((learnt, end));
        }
    }

    fn forget(&mut self, learnt: Learnt) {
        self.learnt.retain(|(other, _)| *other != learnt);
    }

    /// Takes back what has expired at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        let over: Vec<_> = self.learnt.extract_if(.., |(_, end)| *end <= now).collect();
        for (learnt, _) in over {
            self.unlearn(learnt);
        }
    }

    fn unlearn(&mut self, learnt: Learnt) {
        match learnt {
            Learnt::Router { address: IpAddr::V4(_), .. } => {
                self.host.remove_route(Prefix::<Ipv4Addr>::all());
            }
            Learnt::Router { address: IpAddr::V6(_), .. } => {
                self.host.remove_route6(Prefix::<Ipv6Addr>::all());
            }
            Learnt::Address { link, address } => self.host.remove_address(link, address),
            Learnt::OnLink { prefix, .. } => self.host.remove_route6(prefix),
        }
    }
}

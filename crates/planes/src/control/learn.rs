//! Reactions of the control side to events from layers.

use super::{
    Control,
    learnt::{Full, LearntItem},
};
use crate::setup::RouteTo;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{Address, AddressState, Event, Interface, Lease, RouterPreference};
use gatewright_tables::Prefix;
use std::{
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

/// Bits of a prefix that is one IPv6 address.
const HOST_BITS: u8 = 128;

impl Control {
    /// Acts upon an event that a layer learnt at `now`, and logs it if it is news. If a table is
    /// full, nothing changes.
    pub(crate) fn learn(&mut self, event: Event, now: Instant) {
        let told = event.clone();
        let is_news = match event {
            // Another worker may have found its share otherwise since this one told.
            Event::Link { link, .. } => {
                let up = self.host.tables_mut().downs.is_up(link.0) && !self.closed.contains(&link);
                // Each worker that has a share reports it.
                if up != self.is_up(link) {
                    self.report(&Event::Link { link, up });
                }
                self.set_up_with_virtual(link, up);
                false
            }
            Event::Device { link, link_address, mtu } => self.device(link, link_address, mtu),
            Event::Duplicate { link, address, .. } => {
                self.set_state(link, address, AddressState::Duplicate)
            }
            Event::Unique { link, address } => {
                self.set_state(link, address, AddressState::Preferred)
            }
            Event::Router { link, address, lifetime, preference } => {
                self.router(link, address, (lifetime, preference), now)
            }
            Event::Prefix { link, prefix, on_link, autonomous, valid, preferred } => {
                let mut is_news = on_link && self.on_link(link, prefix, valid, now);
                if autonomous {
                    is_news |= self.form(link, (prefix, on_link), (valid, preferred), now);
                }
                is_news
            }
            Event::LinkMtu { link, mtu } => self.link_mtu(link, mtu),
            Event::Redirect { link, destination, gateway } => {
                self.redirect((link, destination, gateway), now)
            }
            Event::Lease { link, lease } => self.lease(link, lease, now),
            Event::Wanted { link, address } => {
                if let Some(kernel) = &self.kernel {
                    kernel.want(link, address);
                }
                false
            }
            Event::Neighbour { link, address: Some(address) } => {
                self.follow_neighbour(link, address);
                false
            }
            Event::Neighbour { address: None, .. } => {
                self.follow_all_neighbours();
                false
            }
            // Path MTUs are kept by the layers that learnt them.
            Event::Conflict { .. } | Event::PathMtu { .. } => true,
            _ => false,
        };
        if is_news {
            self.report(&told);
        }
    }

    /// Sets the state of an interface's address; returns whether it changed.
    fn set_state(&mut self, link: LinkIndex, ip: IpAddr, state: AddressState) -> bool {
        let interface = self.host.interfaces().iter().find(|found| found.link == link);
        let known = interface
            .and_then(|interface| interface.addresses.iter().find(|address| address.ip == ip));
        // One that has gone meanwhile is not brought back; one that is deprecated is in use.
        let Some(&known) = known.filter(|known| match state {
            AddressState::Preferred => {
                matches!(known.state, AddressState::Tentative | AddressState::Duplicate)
            }
            _ => known.state != state,
        }) else {
            return false;
        };
        let _full = self.host.add_address(link, Address { state, ..known });
        true
    }

    fn router(
        &mut self,
        link: LinkIndex,
        address: IpAddr,
        (lifetime, preference): (Duration, RouterPreference),
        now: Instant,
    ) -> bool {
        let router = LearntItem::Router { link, address };
        if lifetime.is_zero() {
            let by = |thing: &LearntItem| match *thing {
                LearntItem::Redirect { link: on, gateway, .. } => on == link && gateway == address,
                thing => thing == router,
            };
            return self.forget(by);
        }
        self.remember(router, lifetime, preference, now)
    }

    fn on_link(
        &mut self,
        link: LinkIndex,
        prefix: Prefix<Ipv6Addr>,
        valid: Duration,
        now: Instant,
    ) -> bool {
        let thing = LearntItem::OnLink { link, prefix };
        if valid.is_zero() {
            return self.forget(|other| *other == thing);
        }
        self.remember(thing, valid, RouterPreference::default(), now)
    }

    /// Forms an address from an advertised prefix (RFC 4862 §5.5.3 (d)), or updates the lifetimes
    /// of the existing one.
    fn form(
        &mut self,
        link: LinkIndex,
        (prefix, on_link): (Prefix<Ipv6Addr>, bool),
        lifetimes: (Duration, Duration),
        now: Instant,
    ) -> bool {
        let configures = |own: &&Interface| own.link == link && own.autoconfigure && own.up;
        let Some(own) = self.host.interfaces().iter().find(configures) else { return false };
        let Some(identifier) = own.link_address.interface_identifier() else { return false };
        let identifier = u64::from_be_bytes(identifier);
        let bits = prefix.address().to_bits() | u128::from(identifier);
        let ip = IpAddr::V6(Ipv6Addr::from_bits(bits));
        let is_configured = own.state(ip).is_some() && !self.learnt.has(address(link, ip));
        if is_configured {
            return false;
        }
        match self.learnt.form((link, ip), lifetimes, now) {
            Ok(true) => {
                // RFC 5942 §3: an address says nothing of which others are on the link.
                let prefix_len = if on_link { prefix.len() } else { HOST_BITS };
                let state = AddressState::Tentative;
                let _full = self.host.add_address(link, Address { ip, prefix_len, state });
                true
            }
            Ok(false) => {
                self.deprecate(now);
                false
            }
            Err(full) => self.overfull(link, full),
        }
    }

    /// Sets whether each formed address begins exchanges, by its preferred lifetime (RFC 4862
    /// §5.5.4).
    fn deprecate(&mut self, now: Instant) {
        let formed: Vec<_> = self.learnt.formed(now).collect();
        for (link, ip, is_preferred) in formed {
            let own = self.host.interfaces().iter().find(|own| own.link == link);
            let known = own.and_then(|own| own.addresses.iter().find(|known| known.ip == ip));
            let state = match known.map(|known| known.state) {
                Some(AddressState::Preferred) if !is_preferred => AddressState::Deprecated,
                Some(AddressState::Deprecated) if is_preferred => AddressState::Preferred,
                _ => continue,
            };
            if let Some(&known) = known {
                let _full = self.host.add_address(link, Address { state, ..known });
            }
        }
    }

    /// Handles a link's device that was changed from outside or replaced. Packets are as large as
    /// it carries, up to the description's limit. Frames come from its address, unless the
    /// description has one. Returns whether anything follows from that.
    fn device(&mut self, link: LinkIndex, link_address: LinkAddress, mtu: u32) -> bool {
        let Some((_, info)) = self.links.get_mut(link.index()) else { return false };
        let old = (info.link_address, info.mtu);
        let new = (link_address.or(info.link_address), mtu);
        (info.link_address, info.mtu) = (new.0, usize::try_from(mtu).unwrap_or(usize::MAX));
        let differs = old != (info.link_address, info.mtu);
        let carried = self.plan.virtual_on(link).map(|own| own.link);
        let all: Vec<_> = [link].into_iter().chain(carried).collect();
        if self.host.interfaces().iter().any(|own| own.link == link && own.shared) {
            self.follow_shared(&all, mtu);
            // The kernel may have told it before.
            return differs;
        }
        let mut is_news = false;
        for link in all {
            is_news |= self.follow_device(link, old.0, new);
        }
        is_news
    }

    /// Updates the interface of `link` from the device `old` to `new`.
    fn follow_device(
        &mut self,
        link: LinkIndex,
        old_address: LinkAddress,
        (new_address, new_mtu): (LinkAddress, u32),
    ) -> bool {
        let known = self.host.interfaces().iter().find(|own| own.link == link && !own.shared);
        let Some((own_address, own_mtu)) = known.map(|own| (own.link_address, own.mtu)) else {
            return false;
        };
        let said = self.link_mtus.iter().position(|(on, _)| *on == link);
        let cap = self.mtu_caps.iter().find(|(on, _)| *on == link).map_or(new_mtu, |(_, cap)| *cap);
        let carries = new_mtu.min(cap);
        if let Some((_, device)) = said.and_then(|at| self.link_mtus.get_mut(at)) {
            *device = carries;
        }
        // What a router has said holds on.
        let mtu = if said.is_some() { carries.min(own_mtu) } else { carries };
        let address = if own_address == old_address { new_address } else { own_address };
        let is_news = (address, mtu) != (own_address, own_mtu);
        if is_news {
            self.host.change_interface(link, |own| {
                (own.link_address, own.mtu) = (address, mtu);
            });
        }
        is_news
    }

    /// Takes the MTU of the device of shared `links`, the first its own: the kernel's messages tell it
    /// sooner, but not how much of it our buffers hold. Its address is the kernel's to tell.
    fn follow_shared(&mut self, links: &[LinkIndex], mtu: u32) {
        let (Some(kernel), Some(&link)) = (&mut self.kernel, links.first()) else { return };
        kernel.carries(links, mtu, &mut self.host);
        let known = self.host.interfaces().iter().find(|own| own.link == link);
        if known.is_some_and(|own| own.mtu != mtu) {
            self.host.change_interface(link, |own| own.mtu = mtu);
        }
    }

    /// Takes the MTU that a router advertises for the link (RFC 4861 §6.3.4): never more than the
    /// device carries.
    fn link_mtu(&mut self, link: LinkIndex, mtu: u32) -> bool {
        let Some(own) = self.host.interfaces().iter().find(|own| own.link == link) else {
            return false;
        };
        let known = self.link_mtus.iter().find(|(on, _)| *on == link);
        let device = known.map_or(own.mtu, |(_, mtu)| *mtu);
        let mtu = mtu.min(device);
        if mtu == own.mtu || !own.autoconfigure {
            return false;
        }
        if known.is_none() {
            self.link_mtus.push((link, device));
        }
        self.host.change_interface(link, |own| own.mtu = mtu);
        true
    }

    fn redirect(&mut self, what: (LinkIndex, IpAddr, IpAddr), now: Instant) -> bool {
        let (link, destination, gateway) = what;
        if self.learnt.has(LearntItem::Redirect { link, destination, gateway }) {
            return false;
        }
        match self.learnt.redirect(what, now) {
            Ok(gone) => {
                let to = LearntItem::Redirect { link, destination, gateway }.to();
                for to in gone.map(LearntItem::to).into_iter().chain([to]) {
                    self.settle_or_report(to);
                }
                true
            }
            Err(full) => self.overfull(link, full),
        }
    }

    /// Takes a new, renewed or ended lease of a DHCP server; returns whether it differs from the
    /// one before.
    pub(super) fn lease(&mut self, link: LinkIndex, lease: Option<Lease>, now: Instant) -> bool {
        let mut given = Vec::new();
        if let Some(lease) = &lease {
            given.push(address(link, lease.address.into()));
            // The first is the preferred one (RFC 2132 §3.5); the others are not asked whether they
            // are there.
            let first =
                lease.routers.first().map(|&ip| LearntItem::Router { link, address: ip.into() });
            given.extend(first);
            let leased = |&(to, gateway)| LearntItem::Leased { link, to, gateway };
            given.extend(lease.routes.iter().map(leased));
        }
        let mut is_news = self
            .forget(|thing| thing.link() == link && thing.is_leased() && !given.contains(thing));
        let Some(lease) = lease else { return is_news };
        let ip: IpAddr = lease.address.into();
        let own = self.host.interfaces().iter().find(|own| own.link == link);
        let held = own.and_then(|own| own.addresses.iter().find(|held| held.ip == ip));
        let (prefix_len, state) = (lease.prefix_len, AddressState::Preferred);
        if held.is_none_or(|held| held.prefix_len != prefix_len) {
            let _full = self.host.add_address(link, Address { ip, prefix_len, state });
        }
        for thing in given {
            is_news |= self.remember(thing, lease.duration, RouterPreference::default(), now);
        }
        is_news
    }

    /// Installs the preferred route for `to`; where there is no room, that is logged.
    fn settle_or_report(&mut self, to: RouteTo) {
        if self.settle(to).is_err() {
            self.report_full(to);
        }
    }

    /// Keeps `thing` for `lifetime`; returns whether it is new.
    fn remember(
        &mut self,
        thing: LearntItem,
        lifetime: Duration,
        preference: RouterPreference,
        now: Instant,
    ) -> bool {
        match self.learnt.take(thing, lifetime, preference, now) {
            Ok(is_news) => {
                self.settle_or_report(thing.to());
                is_news
            }
            Err(full) => self.overfull(thing.link(), full),
        }
    }

    /// Reports that an item from a router or server of `link` is not kept; once until there is room
    /// again.
    fn overfull(&mut self, link: LinkIndex, Full { is_news }: Full) -> bool {
        if is_news {
            self.report(&Event::LearntFull { link });
        }
        false
    }

    /// Removes what has expired at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        let over = self.learnt.expire(now);
        self.take_back(over);
        self.deprecate(now);
    }

    /// Forgets the items that `which` selects; returns whether there were any.
    pub(super) fn forget(&mut self, which: impl Fn(&LearntItem) -> bool) -> bool {
        let gone = self.learnt.remove(which);
        let any = !gone.is_empty();
        self.take_back(gone);
        any
    }

    /// Forgets all items learnt on `link`.
    pub(super) fn forget_link(&mut self, link: LinkIndex) {
        self.forget(|thing| thing.link() == link);
        let device = self.link_mtus.extract_if(.., |(on, _)| *on == link).next();
        if let Some((_, mtu)) = device {
            self.host.change_interface(link, |own| own.mtu = mtu);
        }
    }

    fn take_back(&mut self, gone: Vec<LearntItem>) {
        for thing in gone {
            self.report_lost(&thing);
            match thing {
                LearntItem::Address { link, address } => self.host.remove_address(link, address),
                LearntItem::OnLink { link, prefix } => self.narrow(link, prefix),
                _ => {}
            }
            // Fewer routes always fit.
            let _fits = self.settle(thing.to());
        }
    }

    /// Removes a prefix from the link; addresses formed from it may outlive that.
    fn narrow(&mut self, link: LinkIndex, prefix: Prefix<Ipv6Addr>) {
        let own = self.host.interfaces().iter().find(|own| own.link == link);
        let made: Vec<Address> = (own.into_iter().flat_map(|own| &own.addresses))
            .filter(|own| {
                matches!(own.ip, IpAddr::V6(ip) if prefix.contains(ip))
                    && self.learnt.has(address(link, own.ip))
            })
            .copied()
            .collect();
        for own in made {
            self.host.remove_address(link, own.ip);
            let prefix_len = HOST_BITS;
            let _full = self.host.add_address(link, Address { prefix_len, ..own });
        }
    }
}

/// A learnt address.
const fn address(link: LinkIndex, address: IpAddr) -> LearntItem {
    LearntItem::Address { link, address }
}

//! Exchange of links and routes while the workers run.
//!
//! An address or setting of a link changes by one snapshot of the host. A route changes from one
//! next hop to the next. A destination in both descriptions is therefore never without a route.

use crate::{
    control::Origin,
    error::PlanesError,
    planes::Planes,
    setup::{LinkSetup, RouteTo, Setup, StaticRoute},
    start::interface,
};
use gatewright_data::{DataError, Port, PortRequest, Reopen};
use gatewright_link::LinkInfo;
use gatewright_packet::LinkIndex;
use gatewright_stack::{HostError, Interface, WeightedHop};
use std::{collections::BTreeMap, time::Duration};

/// Exchanged links and routes, with their previous state.
#[derive(Debug)]
pub struct Exchanged {
    reopened: Vec<ReopenedLink>,
    /// The opened links, in order.
    orders: Vec<Reopen>,
    before: Furnished,
    after: Furnished,
}

/// A link whose device was opened while the workers ran.
#[derive(Clone, Debug)]
pub struct ReopenedLink {
    /// Its name.
    pub name: String,
    /// Its properties now.
    pub info: LinkInfo,
    /// Whether there was no link at its place before.
    pub is_new: bool,
    /// The longest time during which none of its frames was received: another device was opened
    /// before the last one was closed.
    pub pause: Duration,
}

/// Interfaces, their MTU limits and routes of the host.
#[derive(Clone, Debug, Default)]
struct Furnished {
    /// Interfaces by place; `None` where there is no link.
    interfaces: Vec<Option<Interface>>,
    routes: Vec<StaticRoute>,
    mtu_caps: Vec<(LinkIndex, u32)>,
    /// Links that a command has taken down.
    closed: Vec<LinkIndex>,
}

impl Exchanged {
    /// The links that were opened, without those that were only removed.
    pub fn reopened(&self) -> &[ReopenedLink] {
        &self.reopened
    }
}

impl Planes {
    /// Exchanges the links and routes of `old`, which are in force, for those of `new`, whose links
    /// stand at the same places. A link whose device differs is opened anew; another interface is
    /// opened before the last one is closed.
    ///
    /// # Errors
    ///
    /// An error if a link cannot be opened or a setting does not fit; then nothing has changed.
    pub fn exchange(&self, old: &Setup, new: &Setup) -> Result<Exchanged, PlanesError> {
        let before = self.furnished(old);
        let (orders, reopened) = self.reopen_links(&old.links, &new.links)?;
        let after = self.furnished(new);
        let exchanged = Exchanged { reopened, orders, before, after };
        match self.furnish(&exchanged.before, &exchanged.after) {
            Ok(()) => Ok(exchanged),
            Err(error) => {
                self.undo(exchanged);
                Err(error)
            }
        }
    }

    /// Restores the links and routes from before an exchange.
    pub fn undo(&self, Exchanged { orders, before, after, .. }: Exchanged) {
        // What was there a moment ago fits.
        let _fits = self.furnish(&after, &before);
        let closed = self.change(|control| control.closed().to_vec());
        for link in before.closed.iter().filter(|link| !closed.contains(link)) {
            // The next data plane has it down, if there is none now.
            let _ended = self.set_link(*link, false);
        }
        self.reopen_back(orders);
    }

    /// Interfaces and routes of the host, with the links as they are open now.
    fn furnished(&self, setup: &Setup) -> Furnished {
        let wanted = |(link, info): (&LinkSetup, &LinkInfo)| {
            (!link.is_spare()).then(|| interface(link, info))
        };
        let (interfaces, closed) = self.change(|control| {
            let opened = control.links.iter().map(|(_, info)| info);
            let interfaces = setup.links.iter().zip(opened).map(wanted).collect();
            (interfaces, control.closed().to_vec())
        });
        let mtu_caps = LinkSetup::mtu_caps(&setup.links);
        Furnished { interfaces, routes: setup.routes.clone(), mtu_caps, closed }
    }

    /// Opens anew the links whose device differs; all of them or none. Of several, each device that
    /// can be open beside the last ones is opened before any of these is closed.
    fn reopen_links(
        &self,
        old: &[LinkSetup],
        new: &[LinkSetup],
    ) -> Result<(Vec<Reopen>, Vec<ReopenedLink>), PlanesError> {
        let (mut done, mut told) = (Vec::new(), Vec::new());
        let differ = |(old, new): &(&LinkSetup, &LinkSetup)| {
            old.device != new.device || old.queues != new.queues
        };
        let differing: Vec<_> = old.iter().zip(new).filter(differ).collect();
        for (old, new) in &differing {
            if old.device.framing() != new.device.framing() {
                let reason = "frames that begin with another header need another link layer, which \
                              is made at the start: stop the gateway and start it again";
                let (name, reason) = (new.name.clone(), reason.to_owned());
                return Err(DataError::Reopen { name, reason }.into());
            }
        }
        // Those with which a data plane that was given up was started again.
        let (open, differing): (Vec<_>, Vec<_>) = (differing.into_iter())
            .partition(|(_, new): &(_, &LinkSetup)| self.is_open_as(&new.worker_link()));
        told.extend(open.iter().filter_map(|(old, new)| self.told_open(old, new)));
        let order = |(old, new): &(&LinkSetup, &LinkSetup)| Reopen {
            device: new.worker_link(),
            before: old.worker_link(),
        };
        let orders: Vec<Reopen> = differing.iter().map(order).collect();
        self.prepare_devices(&orders)?;
        for ((old, new), order) in differing.into_iter().zip(orders) {
            match self.reopen(&order) {
                Ok(reopened) => {
                    told.extend((!new.is_spare()).then(|| ReopenedLink {
                        name: new.name.clone(),
                        info: reopened.info,
                        is_new: old.is_spare(),
                        pause: reopened.pause,
                    }));
                    done.push(order);
                }
                Err(error) => {
                    self.drop_prepared();
                    self.reopen_back(done);
                    return Err(error);
                }
            }
        }
        Ok((done, told))
    }

    /// A link that is open already; `None` for a place without a link.
    fn told_open(&self, old: &LinkSetup, new: &LinkSetup) -> Option<ReopenedLink> {
        let place = new.device.index().index();
        let info = self.change(|control| control.links.get(place).map(|(_, info)| info.clone()))?;
        let (name, is_new) = (new.name.clone(), old.is_spare());
        (!new.is_spare()).then_some(ReopenedLink { name, info, is_new, pause: Duration::ZERO })
    }

    /// Prepares the devices of several orders, all of them or none: a refused one is found before
    /// any link is closed. One that another order makes way for has to wait.
    fn prepare_devices(&self, orders: &[Reopen]) -> Result<(), PlanesError> {
        if orders.len() < 2 {
            return Ok(());
        }
        for (index, order) in orders.iter().enumerate() {
            let mut others = orders.iter().enumerate().filter(|(other, _)| *other != index);
            if others.any(|(_, other)| other.makes_way_for(order)) {
                continue;
            }
            if let Err(error) = self.prepare_device(order) {
                self.drop_prepared();
                return Err(error);
            }
        }
        Ok(())
    }

    fn reopen_back(&self, orders: Vec<Reopen>) {
        for Reopen { device, before } in orders {
            let back = Reopen { device: before, before: device };
            // What was open a moment ago can be opened, or the link says that it is closed.
            let _closed = self.reopen(&back);
        }
    }

    /// Adds to the host what is only in `after` and removes what is only in `before`.
    fn furnish(&self, before: &Furnished, after: &Furnished) -> Result<(), PlanesError> {
        let closed = self.change(|control| control.closed().to_vec());
        let furnished = self.change(|control| -> Result<(), HostError> {
            control.mtu_caps.clone_from(&after.mtu_caps);
            for (before, after) in before.interfaces.iter().zip(&after.interfaces) {
                match (before, after) {
                    (Some(before), Some(after)) if before == after => {}
                    (Some(before), Some(after)) if before.name == after.name => {
                        control.refurnish(before, after)?;
                    }
                    _ => control.exchange_link(before.as_ref(), after.as_ref())?,
                }
            }
            let of = |furnished: &Furnished| -> BTreeMap<RouteTo, Vec<WeightedHop>> {
                furnished.routes.iter().map(|route| (route.to, route.hops.clone())).collect()
            };
            let (before, after) = (of(before), of(after));
            for (to, hops) in after.iter().filter(|(to, hops)| before.get(to) != Some(hops)) {
                let route = StaticRoute { to: *to, hops: hops.clone() };
                control.add_static(route, Origin::Configured)?;
            }
            for gone in before.keys().filter(|to| !after.contains_key(to)) {
                control.remove_static(*gone, Origin::Configured);
            }
            Ok(())
        });
        furnished?;
        // What comes to the place of a link that is gone was not set down.
        let still = self.change(|control| control.closed().to_vec());
        for link in closed.into_iter().filter(|link| !still.contains(link)) {
            // The next data plane has it up, if there is none now.
            let _ended = self.port().submit(PortRequest::SetLink { link, up: true });
        }
        Ok(())
    }
}

//! Routers of groups of next hops: one that does not tell its link-layer address is left out.
//!
//! They are looked at now and then. One that is not known is asked for, again and again, without a
//! packet that waits for it. It is left out when it has been asked in vain, or was known and is no
//! longer; its flows go by the others until it answers.

use super::Control;
use gatewright_packet::LinkIndex;
use gatewright_tables::records::NeighbourKey;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Interval at which routers of groups are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a router that was never known is asked before it is left out: three solicitations, a
/// second apart (RFC 4861 §10), and a look.
const RESOLVED_WITHIN: Duration = Duration::from_millis(3500);

/// Maximum routers that are asked for at one look; the others are at one of the next.
const ASKED_MAX: usize = 256;

/// What is known of a router of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RouterNow {
    /// Its link-layer address is known.
    Known,
    /// It has been asked for since then.
    Asked(Instant),
    /// It is left out.
    LeftOut,
}

/// The routers of all groups.
#[derive(Debug, Default)]
pub(super) struct GroupRouters {
    routers: BTreeMap<(LinkIndex, IpAddr), RouterNow>,
    due: Option<Instant>,
}

impl Control {
    /// Looks at the routers of groups, if that is due; returns those to ask for.
    pub(crate) fn look_at_groups(&mut self, now: Instant) -> Vec<(LinkIndex, IpAddr)> {
        if self.group_routers.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        self.group_routers.due = Some(now + LOOK_EVERY);
        let routers: BTreeSet<_> = (self.host.group_hops().into_iter())
            .filter_map(|(link, gateway)| Some((link, gateway?)))
            .filter(|(link, _)| self.resolves(*link))
            .collect();
        let gone = |key: &&(LinkIndex, IpAddr)| !routers.contains(key);
        let gone: Vec<_> = self.group_routers.routers.keys().filter(gone).copied().collect();
        for (link, address) in gone {
            self.group_routers.routers.remove(&(link, address));
            self.host.leave_out(link, Some(address), false);
        }
        let mut asked = Vec::new();
        for (link, address) in routers {
            let Some(is_known) = self.is_known(link, address) else { continue };
            let before = self.group_routers.routers.get(&(link, address)).copied();
            let state = match before {
                _ if is_known => RouterNow::Known,
                None => RouterNow::Asked(now),
                Some(RouterNow::Asked(since)) if now < since + RESOLVED_WITHIN => {
                    RouterNow::Asked(since)
                }
                Some(_) => RouterNow::LeftOut,
            };
            if !is_known && asked.len() < ASKED_MAX {
                asked.push((link, address));
            }
            if before != Some(state) {
                self.group_routers.routers.insert((link, address), state);
                self.host.leave_out(link, Some(address), state == RouterNow::LeftOut);
            }
        }
        asked
    }

    /// Whether a link has neighbours that are to be resolved, and can be.
    fn resolves(&self, link: LinkIndex) -> bool {
        let own = self.host.interfaces().iter().find(|own| own.link == link);
        own.is_some_and(|own| own.up && !own.link_address.is_none())
    }

    /// Whether a neighbour's link-layer address is known; `None` while its record is being written.
    fn is_known(&self, link: LinkIndex, address: IpAddr) -> Option<bool> {
        let found = self.host.tables().neighbours.get(&NeighbourKey { link: link.0, address });
        found.ok().map(|record| record.is_some_and(|record| !record.address.is_none()))
    }
}

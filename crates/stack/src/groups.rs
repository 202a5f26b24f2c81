//! The multicast groups that this host has joined.

use gatewright_packet::LinkIndex;
use std::net::IpAddr;

/// Maximum groups of all links together.
pub const GROUPS_MAX: usize = 1024;

/// A group on a link, with its number of members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Membership {
    link: LinkIndex,
    group: IpAddr,
    members: u32,
}

/// The groups joined by sockets and layers of one graph. IGMP and MLD report them to routers.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    memberships: Vec<Membership>,
    generation: u64,
}

impl Groups {
    /// Adds a member of `group` on `link`; returns whether there was room.
    pub fn join(&mut self, link: LinkIndex, group: IpAddr) -> bool {
        if let Some(membership) = self.find(link, group) {
            membership.members += 1;
            return true;
        }
        if self.memberships.len() >= GROUPS_MAX {
            return false;
        }
        self.memberships.push(Membership { link, group, members: 1 });
        self.generation += 1;
        true
    }

    /// Removes a member of `group` on `link`.
    pub fn leave(&mut self, link: LinkIndex, group: IpAddr) {
        let Some(membership) = self.find(link, group) else { return };
        membership.members = membership.members.saturating_sub(1);
        if membership.members == 0 {
            self.memberships.retain(|membership| membership.members > 0);
            self.generation += 1;
        }
    }

    fn find(&mut self, link: LinkIndex, group: IpAddr) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|found| found.link == link && found.group == group)
    }

    /// Whether this host has joined `group` on `link`.
    pub fn has(&self, link: LinkIndex, group: IpAddr) -> bool {
        self.memberships.iter().any(|found| found.link == link && found.group == group)
    }

    /// The groups of `link`.
    pub fn of(&self, link: LinkIndex) -> impl Iterator<Item = IpAddr> + '_ {
        let here = move |membership: &&Membership| membership.link == link;
        self.memberships.iter().filter(here).map(|membership| membership.group)
    }

    /// A number that changes with the set of groups.
    pub const fn generation(&self) -> u64 {
        self.generation
    }
}

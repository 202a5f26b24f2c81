//! The state machine for group reports to the routers of each link, which IGMP and MLD share.
//!
//! MLD is IGMP for IPv6 (RFC 2710 §1, RFC 3810 §1): its version 1 behaves as IGMP's version 2, its
//! version 2 as IGMP's version 3, with the same times. Section numbers are those of IGMP; RFC 3810
//! has the same ones as §6, §8.2.1 and §9.

use crate::{Out, random::Random};
use gatewright_packet::LinkIndex;
use gatewright_wire::mld::RecordType;
use std::{net::IpAddr, time::Duration};

/// How often a change is reported (RFC 3376 §8.1: the robustness variable).
const ROBUSTNESS: u8 = 2;

/// Maximum pending reports: each group once, and as many that were just left.
const PENDING_MAX: usize = 2 * crate::GROUPS_MAX;

/// The longest wait before a change is reported again (RFC 3376 §8.11), and in version 2 (RFC 2236
/// §8.10).
const REPEAT_WITHIN: Duration = Duration::from_secs(1);
const REPEAT_WITHIN_V2: Duration = Duration::from_secs(10);

/// How long a querier of an older version stays in effect (RFC 3376 §8.12): twice the query
/// interval and a response interval.
const OLDER_QUERIER: Duration = Duration::from_secs(2 * 125 + 10);

/// The version of the link's querier, as IGMP counts them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    V1,
    V2,
    V3,
}

/// A report about a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MembershipReport {
    /// We are a member: the answer to a query.
    Current,
    /// We join it.
    Join,
    /// We leave it.
    Leave,
}

impl MembershipReport {
    /// The record type of the newest version: every group is received from all sources.
    pub(super) const fn record_type(self) -> RecordType {
        match self {
            Self::Current => RecordType::MODE_IS_EXCLUDE,
            Self::Join => RecordType::CHANGE_TO_EXCLUDE,
            Self::Leave => RecordType::CHANGE_TO_INCLUDE,
        }
    }
}

/// The reports to a link's routers that are due, and their version.
pub(super) type Due<A> = (LinkIndex, Version, Vec<(A, MembershipReport)>);

/// The groups of all links that are up, of one family.
#[derive(Debug)]
pub(super) struct Links<A> {
    links: Vec<(LinkIndex, Memberships<A>)>,
    random: Random,
}

impl<A: Copy + Eq> Links<A> {
    pub(super) const fn new(random: u64) -> Self {
        Self { links: Vec::new(), random: Random::new(random) }
    }

    /// Updates the links that are up and the joined groups; `told` selects the groups that are
    /// reported.
    pub(super) fn look_at(&mut self, told: impl Fn(IpAddr) -> Option<A>, out: &mut Out<'_>) {
        let up: Vec<LinkIndex> = (out.host().interfaces().iter())
            .filter(|interface| interface.up && !interface.shared)
            .map(|interface| interface.link)
            .collect();
        self.links.retain(|(link, _)| up.contains(link));
        for link in up {
            let groups: Vec<A> = out.groups().of(link).filter_map(&told).collect();
            if !self.links.iter().any(|(known, _)| *known == link) {
                self.links.push((link, Memberships::default()));
            }
            if let Some((known, _)) = self.of(link) {
                known.change(&groups, out.now());
            }
        }
    }

    /// The groups of a link that is up, and the random source for its answers.
    pub(super) fn of(&mut self, link: LinkIndex) -> Option<(&mut Memberships<A>, &mut Random)> {
        let found = self.links.iter_mut().find(|(known, _)| *known == link);
        found.map(|(_, memberships)| (memberships, &mut self.random))
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.links.iter().filter_map(|(_, link)| link.poll_timeout()).min()
    }

    /// The reports that are due.
    pub(super) fn due(&mut self, now: Duration) -> impl Iterator<Item = Due<A>> + '_ {
        let Self { links, random } = self;
        links.iter_mut().map(move |(link, memberships)| {
            (*link, memberships.version(now), memberships.handle_timeout(now, random))
        })
    }
}

/// A report that is due.
#[derive(Clone, Copy, Debug)]
struct DueReport<A> {
    group: A,
    report: MembershipReport,
    due: Duration,
    /// How many times it is still sent, this time included.
    left: u8,
}

/// One link's groups and their pending reports: at most one change and one answer each.
#[derive(Debug)]
pub(super) struct Memberships<A> {
    groups: Vec<A>,
    pending: Vec<DueReport<A>>,
    /// When all groups are reported.
    general: Option<Duration>,
    v1_until: Duration,
    v2_until: Duration,
}

impl<A> Default for Memberships<A> {
    fn default() -> Self {
        let (v1_until, v2_until) = (Duration::ZERO, Duration::ZERO);
        Self { groups: Vec::new(), pending: Vec::new(), general: None, v1_until, v2_until }
    }
}

impl<A: Copy + Eq> Memberships<A> {
    /// The version to use (RFC 3376 §7.2.1).
    pub(super) fn version(&self, now: Duration) -> Version {
        if now < self.v1_until {
            Version::V1
        } else if now < self.v2_until {
            Version::V2
        } else {
            Version::V3
        }
    }

    /// Takes the joined groups.
    pub(super) fn change(&mut self, groups: &[A], now: Duration) {
        let joined: Vec<_> = groups.iter().filter(|group| !self.groups.contains(group)).collect();
        let left: Vec<_> = self.groups.iter().filter(|group| !groups.contains(group)).collect();
        let changes = joined.into_iter().map(|&group| (group, MembershipReport::Join));
        let changes: Vec<_> = changes
            .chain(left.into_iter().map(|&group| (group, MembershipReport::Leave)))
            .collect();
        for (group, report) in changes {
            // What was still to be told of the group is no longer true.
            self.pending.retain(|pending| pending.group != group);
            if self.pending.len() < PENDING_MAX {
                self.pending.push(DueReport { group, report, due: now, left: ROBUSTNESS });
            }
        }
        self.groups.clear();
        self.groups.extend(groups);
    }

    /// Reports all groups as if they were joined now.
    pub(super) fn again(&mut self, now: Duration) {
        let groups = std::mem::take(&mut self.groups);
        self.change(&groups, now);
    }

    /// Handles a query of a router for one group or for all; the answer comes at a random time
    /// `within`.
    pub(super) fn asked(
        &mut self,
        version: Version,
        group: Option<A>,
        within: Duration,
        now: Duration,
        random: &mut Random,
    ) {
        match version {
            Version::V1 => self.v1_until = now + OLDER_QUERIER,
            Version::V2 => self.v2_until = now + OLDER_QUERIER,
            Version::V3 => {}
        }
        let due = now + random.between(Duration::ZERO, within);
        match group {
            None if self.version(now) == Version::V3 => {
                // RFC 3376 §5.2, rule 1: a general answer that comes sooner does.
                self.general = Some(self.general.map_or(due, |general| general.min(due)));
            }
            // Older versions answer for each group at its own time, so that one member's answer
            // spares the others'.
            None => {
                for group in self.groups.clone() {
                    let due = now + random.between(Duration::ZERO, within);
                    self.answer(group, due);
                }
            }
            Some(group) if self.groups.contains(&group) => self.answer(group, due),
            Some(_) => {}
        }
    }

    fn answer(&mut self, group: A, due: Duration) {
        let full = self.pending.len() >= PENDING_MAX;
        match self.pending.iter_mut().find(|pending| pending.group == group) {
            Some(pending) if pending.report != MembershipReport::Leave => {
                pending.due = pending.due.min(due);
            }
            None if !full => {
                self.pending.push(DueReport {
                    group,
                    report: MembershipReport::Current,
                    due,
                    left: 1,
                });
            }
            Some(_) | None => {}
        }
    }

    /// Another host has reported the group: ours need not (RFC 2236 §3). Version 3 has no such
    /// rule.
    pub(super) fn reported(&mut self, group: A, now: Duration) {
        if self.version(now) != Version::V3 {
            self.pending.retain(|pending| {
                pending.group != group || pending.report == MembershipReport::Leave
            });
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.pending.iter().map(|pending| pending.due).chain(self.general).min()
    }

    /// The reports that are due.
    pub(super) fn handle_timeout(
        &mut self,
        now: Duration,
        random: &mut Random,
    ) -> Vec<(A, MembershipReport)> {
        let within =
            if self.version(now) == Version::V3 { REPEAT_WITHIN } else { REPEAT_WITHIN_V2 };
        let mut reports = Vec::new();
        for pending in &mut self.pending {
            if pending.due <= now {
                reports.push((pending.group, pending.report));
                pending.left -= 1;
                pending.due = now + random.between(Duration::from_millis(1), within);
            }
        }
        self.pending.retain(|pending| pending.left > 0);
        if self.general.is_some_and(|due| due <= now) {
            self.general = None;
            reports.extend(self.groups.iter().map(|&group| (group, MembershipReport::Current)));
        }
        reports
    }
}

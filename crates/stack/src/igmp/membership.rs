//! What one link's routers are to be told, and when (RFC 3376 §5, RFC 2236 §3).

use crate::random::Random;
use std::{net::Ipv4Addr, time::Duration};

/// How often a change is told (RFC 3376 §8.1: the robustness variable).
const ROBUSTNESS: u8 = 2;

/// Reports that are pending at the most: each group once, and as many that were just left.
const PENDING_MAX: usize = 2 * crate::GROUPS_MAX;

/// The longest wait before a change is told again (RFC 3376 §8.11), and in version 2
/// (RFC 2236 §8.10).
const REPEAT_WITHIN: Duration = Duration::from_secs(1);
const REPEAT_WITHIN_V2: Duration = Duration::from_secs(10);

/// How long a querier of an older version counts (RFC 3376 §8.12): twice the query interval and a
/// response interval.
const OLDER_QUERIER: Duration = Duration::from_secs(2 * 125 + 10);

/// The version that the link's querier speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    V1,
    V2,
    V3,
}

/// What is told of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Report {
    /// We take part in it: the answer to a query.
    Current,
    /// We take part in it from now on.
    Join,
    /// We no longer do.
    Leave,
}

/// A report that is due.
#[derive(Clone, Copy, Debug)]
struct Pending {
    group: Ipv4Addr,
    report: Report,
    due: Duration,
    /// How often it is still told, this time included.
    left: u8,
}

/// One link's groups and what is pending about them: at most one change and one answer each.
#[derive(Debug, Default)]
pub(super) struct Memberships {
    groups: Vec<Ipv4Addr>,
    pending: Vec<Pending>,
    /// When all groups are told.
    general: Option<Duration>,
    v1_until: Duration,
    v2_until: Duration,
}

impl Memberships {
    /// The version to speak (RFC 3376 §7.2.1).
    pub(super) fn version(&self, now: Duration) -> Version {
        if now < self.v1_until {
            Version::V1
        } else if now < self.v2_until {
            Version::V2
        } else {
            Version::V3
        }
    }

    /// Takes the groups that are joined now.
    pub(super) fn change(&mut self, groups: &[Ipv4Addr], now: Duration) {
        let joined: Vec<_> = groups.iter().filter(|group| !self.groups.contains(group)).collect();
        let left: Vec<_> = self.groups.iter().filter(|group| !groups.contains(group)).collect();
        let changes = joined.into_iter().map(|&group| (group, Report::Join));
        let changes: Vec<_> =
            changes.chain(left.into_iter().map(|&group| (group, Report::Leave))).collect();
        for (group, report) in changes {
            // What was still to be told of the group is no longer true.
            self.pending.retain(|pending| pending.group != group);
            if self.pending.len() < PENDING_MAX {
                self.pending.push(Pending { group, report, due: now, left: ROBUSTNESS });
            }
        }
        self.groups.clear();
        self.groups.extend(groups);
    }

    /// A router asks for one group or for all; the answer comes at a random time `within`.
    pub(super) fn asked(
        &mut self,
        version: Version,
        group: Option<Ipv4Addr>,
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

    fn answer(&mut self, group: Ipv4Addr, due: Duration) {
        let full = self.pending.len() >= PENDING_MAX;
        match self.pending.iter_mut().find(|pending| pending.group == group) {
            Some(pending) if pending.report != Report::Leave => pending.due = pending.due.min(due),
            None if !full => {
                self.pending.push(Pending { group, report: Report::Current, due, left: 1 });
            }
            Some(_) | None => {}
        }
    }

    /// Another host has told the group: ours need not (RFC 2236 §3). Version 3 has no such rule.
    pub(super) fn reported(&mut self, group: Ipv4Addr, now: Duration) {
        if self.version(now) != Version::V3 {
            self.pending
                .retain(|pending| pending.group != group || pending.report == Report::Leave);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.pending.iter().map(|pending| pending.due).chain(self.general).min()
    }

    /// What is told now.
    pub(super) fn handle_timeout(
        &mut self,
        now: Duration,
        random: &mut Random,
    ) -> Vec<(Ipv4Addr, Report)> {
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
            reports.extend(self.groups.iter().map(|&group| (group, Report::Current)));
        }
        reports
    }
}

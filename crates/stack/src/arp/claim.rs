//! Claim of an address: probe, announce, defend (RFC 5227 §2).

use crate::random::Random;
use std::{net::Ipv4Addr, time::Duration};

/// PROBE_WAIT (RFC 5227 §1.1): the first probe comes at a random time up to this.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// PROBE_NUM.
const PROBES: u8 = 3;

/// PROBE_MIN and PROBE_MAX: time between two probes.
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);

/// ANNOUNCE_WAIT: how long a conflict may show itself after the last probe.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

/// ANNOUNCE_NUM and ANNOUNCE_INTERVAL.
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// DEFEND_INTERVAL: at most one conflict within it is answered.
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// RATE_LIMIT_INTERVAL: how often an address of another station is probed again.
const RATE_LIMIT_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// This many probes were sent.
    Probing(u8),
    /// No station objected; the control side has not put the address in use yet.
    Unique,
    /// In use already, and this many probes were sent: traffic does not wait for probing.
    Checking(u8),
    /// In use, and announced this often.
    Announcing(u8),
    /// Another station has it; it is probed again from time to time.
    Duplicate,
}

/// The consequence of a conflict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ClaimVerdict {
    /// The address stays ours and is announced once.
    Defend,
    /// Nothing changes and nothing is sent.
    Silent,
    /// The address belongs to the other station until that disappears.
    GiveUp,
}

/// An address of ours on one link.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) address: Ipv4Addr,
    phase: Phase,
    /// When the next step is due.
    pub(super) due: Option<Duration>,
    defended: Option<Duration>,
}

/// A due step of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Due {
    Probe,
    Announce,
    /// No other station has the address.
    Unique,
}

impl Claim {
    /// A tentative address, to be probed before it is used.
    pub(super) fn probing(address: Ipv4Addr, now: Duration, random: &mut Random) -> Self {
        let due = Some(now + random.between(Duration::ZERO, PROBE_WAIT));
        Self { address, phase: Phase::Probing(0), due, defended: None }
    }

    /// An address that is in use already: it is probed meanwhile, and announced if it is unique.
    pub(super) fn checking(address: Ipv4Addr, now: Duration) -> Self {
        Self { address, phase: Phase::Checking(0), due: Some(now), defended: None }
    }

    /// Puts the address in use.
    pub(super) fn take_up(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Probing(_) | Phase::Unique) {
            (self.phase, self.due) = (Phase::Announcing(0), Some(now));
        }
    }

    /// Announces the address again at once, because our link-layer address has changed.
    pub(super) fn announce_again(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Announcing(_)) {
            (self.phase, self.due) = (Phase::Announcing(0), Some(now));
        }
    }

    /// Whether the address is not ours yet.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing(_))
    }

    /// Whether another station is known to have the address.
    pub(super) fn is_duplicate(&self) -> bool {
        self.phase == Phase::Duplicate
    }

    /// Handles the use of the address by another station, or its claim.
    ///
    /// An address whose first check fails is the other station's. One in use is never given up: a
    /// single forged message would take it away (RFC 5227 §2.4 (c): "it MAY elect to defend
    /// its address indefinitely", as "a link's default router" does).
    pub(super) fn conflict(&mut self, now: Duration) -> ClaimVerdict {
        match self.phase {
            Phase::Announcing(_) => {
                // "the host MUST NOT send another defensive ARP Announcement" within the interval,
                // so that two such stations do not answer each other for ever.
                if self.defended.is_some_and(|then| now < then + DEFEND_INTERVAL) {
                    return ClaimVerdict::Silent;
                }
                self.defended = Some(now);
                ClaimVerdict::Defend
            }
            Phase::Probing(_) | Phase::Unique | Phase::Checking(_) | Phase::Duplicate => {
                (self.phase, self.due) = (Phase::Duplicate, Some(now + RATE_LIMIT_INTERVAL));
                ClaimVerdict::GiveUp
            }
        }
    }

    /// The steps that are due now.
    pub(super) fn handle_timeout(&mut self, now: Duration, random: &mut Random) -> Option<Due> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        let (phase, wait, due) = match self.phase {
            Phase::Probing(sent @ ..PROBES) => {
                (Phase::Probing(sent + 1), Some(probe_wait(sent + 1, random)), Due::Probe)
            }
            Phase::Duplicate => (Phase::Probing(1), Some(probe_wait(1, random)), Due::Probe),
            Phase::Checking(sent @ ..PROBES) => {
                (Phase::Checking(sent + 1), Some(probe_wait(sent + 1, random)), Due::Probe)
            }
            Phase::Checking(_) => (Phase::Announcing(1), Some(ANNOUNCE_INTERVAL), Due::Announce),
            Phase::Probing(_) => (Phase::Unique, None, Due::Unique),
            Phase::Unique | Phase::Announcing(ANNOUNCEMENTS..) => {
                self.due = None;
                return None;
            }
            Phase::Announcing(sent) => {
                let more = (sent + 1 < ANNOUNCEMENTS).then_some(ANNOUNCE_INTERVAL);
                (Phase::Announcing(sent + 1), more, Due::Announce)
            }
        };
        self.phase = phase;
        self.due = wait.map(|wait| now + wait);
        Some(due)
    }
}

/// The time after a probe: until the next, or until the address counts as unique.
fn probe_wait(sent: u8, random: &mut Random) -> Duration {
    match sent {
        PROBES => ANNOUNCE_WAIT,
        _ => random.between(PROBE_MIN, PROBE_MAX),
    }
}

//! Timers of router discovery: asking for routers, and advertising as one (RFC 4861 §6.2, §6.3.7).

use crate::{Advertise, Interface, random::Random};
use std::time::Duration;

/// MAX_RTR_SOLICITATIONS (RFC 4861 §10).
const SOLICITATIONS: u8 = 3;

/// RTR_SOLICITATION_INTERVAL (RFC 4861 §10).
pub(crate) const SOLICITATION_EVERY: Duration = Duration::from_secs(4);

/// MAX_RTR_SOLICITATION_DELAY (RFC 4861 §10).
const SOLICITATION_WITHIN: Duration = Duration::from_secs(1);

/// MAX_INITIAL_RTR_ADVERTISEMENTS (RFC 4861 §10).
const INITIAL_ADVERTISEMENTS: u8 = 3;

/// MAX_INITIAL_RTR_ADVERT_INTERVAL (RFC 4861 §10).
const INITIAL_EVERY: Duration = Duration::from_secs(16);

/// MIN_DELAY_BETWEEN_RAS (RFC 4861 §10).
const APART: Duration = Duration::from_secs(3);

/// MAX_RA_DELAY_TIME (RFC 4861 §10).
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Solicits routers on a link that configures itself.
#[derive(Debug, Default)]
pub(crate) struct Solicitor {
    sent: u8,
    at: Option<Duration>,
    started: bool,
}

impl Solicitor {
    /// Starts when the link is set to configure itself, and when such a link comes up.
    pub(crate) fn look_at(&mut self, interface: &Interface, now: Duration, random: &mut Random) {
        let asks = interface.autoconfigure && interface.up;
        if asks && !self.started {
            let at = now + random.between(Duration::ZERO, SOLICITATION_WITHIN);
            *self = Self { sent: 0, at: Some(at), started: true };
        } else if !asks {
            *self = Self::default();
        }
    }

    /// The router in use does not answer: routers are asked for again.
    pub(crate) fn again(&mut self, now: Duration) {
        if self.started {
            (self.sent, self.at) = (0, Some(now));
        }
    }

    /// A router has answered.
    pub(crate) const fn answered(&mut self) {
        self.at = None;
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Duration> {
        self.at
    }

    /// Whether to ask now; the next time is `every` later.
    pub(crate) fn due(&mut self, now: Duration, every: Duration) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.sent += 1;
            self.at = (self.sent < SOLICITATIONS).then(|| now + every);
        }
        due
    }
}

/// Advertises this host as a router on a link that says so.
#[derive(Debug, Default)]
pub(crate) struct Advertiser {
    sent: u8,
    last: Option<Duration>,
    at: Option<Duration>,
}

impl Advertiser {
    /// Starts or ends by the interface's settings; returns whether it has.
    pub(crate) fn look_at(
        &mut self,
        interface: &Interface,
        now: Duration,
        random: &mut Random,
    ) -> Option<bool> {
        match (interface.advertise.as_ref().filter(|_| interface.up), self.at) {
            (Some(_), None) => {
                self.at = Some(now + random.between(Duration::ZERO, ANSWER_WITHIN));
                Some(true)
            }
            (None, Some(_)) => {
                *self = Self::default();
                Some(false)
            }
            _ => None,
        }
    }

    /// Whether this host's last advertisement was one as a router.
    pub(crate) const fn has_advertised(&self) -> bool {
        self.last.is_some()
    }

    /// Handles a solicitation: the answer goes to all, soon, and not too often (RFC 4861 §6.2.6).
    pub(crate) fn asked(&mut self, now: Duration, random: &mut Random) {
        let soon = now + random.between(Duration::ZERO, ANSWER_WITHIN);
        let earliest = self.last.map_or(soon, |last| soon.max(last + APART));
        self.at = self.at.map(|at| at.min(earliest));
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Duration> {
        self.at
    }

    /// The advertisement that is due, if any.
    pub(crate) fn due(
        &mut self,
        interface: &Interface,
        now: Duration,
        random: &mut Random,
    ) -> Option<Advertise> {
        let advertise =
            interface.advertise.as_ref().filter(|_| self.at.is_some_and(|at| at <= now))?;
        // RFC 4861 §6.2.1: MinRtrAdvInterval is 0.33 of the longest.
        let next = random.between(advertise.interval / 3, advertise.interval);
        self.sent = self.sent.saturating_add(1);
        let initial = self.sent < INITIAL_ADVERTISEMENTS;
        self.at = Some(now + if initial { next.min(INITIAL_EVERY) } else { next });
        self.last = Some(now);
        Some(advertise.clone())
    }
}

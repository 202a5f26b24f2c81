//! Duplicate address detection (RFC 4862 §5.4), and the handling of later conflicts.

use crate::{Interface, Out, ipv6::solicited_node, random::Random};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// DupAddrDetectTransmits (RFC 4862 §5.1).
const TRANSMITS: u8 = 1;

/// MAX_RTR_SOLICITATION_DELAY (RFC 4861 §10): the first probe waits up to this, so that hosts
/// that start together do not speak together.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// At most one conflict within it is answered: DEFEND_INTERVAL of RFC 5227 §1.1, as RFC 4862 has
/// none.
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// How often an address of another station is probed again: RATE_LIMIT_INTERVAL of RFC 5227 §1.1,
/// as RFC 4862 has none.
const RATE_LIMIT_INTERVAL: Duration = Duration::from_mins(1);

/// An address of the interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct CheckedAddress {
    address: Ipv6Addr,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// `sent` probes are out; the next step is at `at`.
    Probing { sent: u8, at: Duration },
    /// Ours; a conflict was answered last at `defended`.
    Unique { defended: Option<Duration> },
    /// Another station has it; it is probed again at `again`.
    Duplicate { again: Duration },
}

/// The consequence of a conflict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DadVerdict {
    /// The address stays ours and is advertised once.
    Defend,
    /// Nothing changes and nothing is sent.
    Silent,
    /// The address belongs to the other station until that disappears.
    GiveUp,
}

/// A due step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Probe {
    /// Ask for the address.
    Ask(Ipv6Addr),
    /// No station answered: it is ours.
    Unique(Ipv6Addr),
}

/// The addresses of one link and the progress of their checks.
#[derive(Debug, Default)]
pub(super) struct Dad {
    known: Vec<CheckedAddress>,
}

impl Dad {
    /// Adds new addresses of the interface and removes old ones; all of them while the link is
    /// down, so that they are checked anew when it comes up.
    pub(super) fn look_at(
        &mut self,
        interface: &Interface,
        now: Duration,
        random: &mut Random,
        out: &mut Out<'_>,
    ) {
        let link = interface.link;
        let wanted: Vec<Ipv6Addr> = (interface.addresses.iter())
            .filter(|_| interface.up)
            .filter_map(|address| match address.ip {
                IpAddr::V6(ip) => Some(ip),
                IpAddr::V4(_) => None,
            })
            .collect();
        self.known.retain(|known| {
            let stays = wanted.contains(&known.address);
            if !stays {
                out.join(solicited_node(known.address).into(), link, false);
            }
            stays
        });
        for address in wanted {
            if self.state_mut(address).is_none() {
                let at = now + random.between(Duration::ZERO, FIRST_WITHIN);
                self.known.push(CheckedAddress { address, state: State::Probing { sent: 0, at } });
                out.join(solicited_node(address).into(), link, true);
            }
        }
    }

    /// The addresses that are ours alone.
    pub(super) fn unique(&self) -> Vec<Ipv6Addr> {
        let unique = |known: &&CheckedAddress| matches!(known.state, State::Unique { .. });
        self.known.iter().filter(unique).map(|known| known.address).collect()
    }

    /// Whether `address` is being checked.
    pub(super) fn is_probing(&self, address: Ipv6Addr) -> bool {
        let probing = |known: &CheckedAddress| {
            known.address == address && matches!(known.state, State::Probing { .. })
        };
        self.known.iter().any(probing)
    }

    /// Handles another station's claim to `address`.
    ///
    /// Detection ends once the address is ours (RFC 4862 §5.4.4, case 2: "How to handle such a case
    /// is beyond the scope of this document"): a single forged message would take it away. It is
    /// then defended like an IPv4 address (RFC 5227 §2.4 (c)).
    pub(super) fn conflict(&mut self, address: Ipv6Addr, now: Duration) -> DadVerdict {
        let Some(state) = self.state_mut(address) else { return DadVerdict::Silent };
        match *state {
            State::Probing { .. } => {
                *state = State::Duplicate { again: now + RATE_LIMIT_INTERVAL };
                DadVerdict::GiveUp
            }
            State::Unique { defended }
                if defended.is_none_or(|then| now >= then + DEFEND_INTERVAL) =>
            {
                *state = State::Unique { defended: Some(now) };
                DadVerdict::Defend
            }
            State::Unique { .. } | State::Duplicate { .. } => DadVerdict::Silent,
        }
    }

    fn state_mut(&mut self, address: Ipv6Addr) -> Option<&mut State> {
        let found = self.known.iter_mut().find(|known| known.address == address);
        found.map(|known| &mut known.state)
    }

    /// When the next step is due.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let at = |known: &CheckedAddress| match known.state {
            State::Probing { at, .. } | State::Duplicate { again: at } => Some(at),
            State::Unique { .. } => None,
        };
        self.known.iter().filter_map(at).min()
    }

    /// The steps that are due at `now`; answers are waited for as long as `retransmit`.
    pub(super) fn due(&mut self, now: Duration, retransmit: Duration) -> Vec<Probe> {
        let mut due = Vec::new();
        for known in &mut self.known {
            let sent = match known.state {
                State::Probing { sent, at } if at <= now => sent,
                State::Duplicate { again } if again <= now => 0,
                _ => continue,
            };
            if sent < TRANSMITS {
                known.state = State::Probing { sent: sent + 1, at: now + retransmit };
                due.push(Probe::Ask(known.address));
            } else {
                known.state = State::Unique { defended: None };
                due.push(Probe::Unique(known.address));
            }
        }
        due
    }
}

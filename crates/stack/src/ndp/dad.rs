//! Duplicate address detection and the forming of addresses (RFC 4862 §5.4, §5.5).

use crate::{Address, AddressState, Interface, Out, ipv6::solicited_node, random::Random};
use gatewright_packet::LinkIndex;
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// DupAddrDetectTransmits (RFC 4862 §5.1).
const TRANSMITS: u8 = 1;

/// MAX_RTR_SOLICITATION_DELAY (RFC 4861 §10): the first probe waits up to this, so that hosts
/// that start together do not speak together.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// Addresses of one link at the most: what routers can make a host form is bounded.
const ADDRESSES_MAX: usize = 64;

/// An address that was looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Known {
    address: Ipv6Addr,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// `sent` probes are out; the next step is at `at`.
    Probing {
        sent: u8,
        at: Duration,
    },
    Unique,
    Duplicate,
}

/// What is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Probe {
    /// Ask for the address.
    Ask(Ipv6Addr),
    /// Nobody answered: it is ours.
    Unique(Ipv6Addr),
}

/// The addresses of one link and how far each has been checked.
#[derive(Debug, Default)]
pub(super) struct Dad {
    known: Vec<Known>,
}

impl Dad {
    /// Takes up addresses that are new on the interface, lets go those that are gone.
    pub(super) fn look_at(
        &mut self,
        interface: &Interface,
        now: Duration,
        random: &mut Random,
        out: &mut Out<'_>,
    ) {
        let v6 = |address: &Address| match address.ip {
            IpAddr::V6(ip) if address.state != AddressState::Duplicate => Some(ip),
            _ => None,
        };
        let wanted: Vec<Ipv6Addr> = interface.addresses.iter().filter_map(v6).collect();
        let link = interface.link;
        self.known.retain(|known| {
            let stays = wanted.contains(&known.address)
                || matches!(known.state, State::Probing { .. } | State::Duplicate);
            if !stays {
                out.join(solicited_node(known.address).into(), link, false);
            }
            stays
        });
        for address in wanted {
            let at = now + random.between(Duration::ZERO, FIRST_WITHIN);
            self.take_up(address, link, at, out);
        }
    }

    /// Makes an address of an advertised prefix and checks it (RFC 4862 §5.5.3 (d)).
    pub(super) fn form(
        &mut self,
        prefix: Ipv6Addr,
        interface: &Interface,
        now: Duration,
        out: &mut Out<'_>,
    ) {
        let identifier = u64::from_be_bytes(interface.mac.interface_identifier());
        let address = Ipv6Addr::from_bits(prefix.to_bits() | u128::from(identifier));
        self.take_up(address, interface.link, now, out);
    }

    fn take_up(&mut self, address: Ipv6Addr, link: LinkIndex, at: Duration, out: &mut Out<'_>) {
        let known = self.known.iter().any(|known| known.address == address);
        if !known && self.known.len() < ADDRESSES_MAX {
            self.known.push(Known { address, state: State::Probing { sent: 0, at } });
            out.join(solicited_node(address).into(), link, true);
        }
    }

    /// Whether `address` is being checked.
    pub(super) fn is_probing(&self, address: Ipv6Addr) -> bool {
        let probing = |known: &Known| {
            known.address == address && matches!(known.state, State::Probing { .. })
        };
        self.known.iter().any(probing)
    }

    /// Another host has `address`.
    pub(super) fn give_up(&mut self, address: Ipv6Addr) {
        for known in self.known.iter_mut().filter(|known| known.address == address) {
            known.state = State::Duplicate;
        }
    }

    /// When the next step is due.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let at = |known: &Known| match known.state {
            State::Probing { at, .. } => Some(at),
            _ => None,
        };
        self.known.iter().filter_map(at).min()
    }

    /// The steps that are due at `now`; answers are waited for as long as `retransmit`.
    pub(super) fn due(&mut self, now: Duration, retransmit: Duration) -> Vec<Probe> {
        let mut due = Vec::new();
        for known in &mut self.known {
            let State::Probing { sent, at } = known.state else { continue };
            if at > now {
                continue;
            }
            if sent < TRANSMITS {
                known.state = State::Probing { sent: sent + 1, at: now + retransmit };
                due.push(Probe::Ask(known.address));
            } else {
                known.state = State::Unique;
                due.push(Probe::Unique(known.address));
            }
        }
        due
    }
}

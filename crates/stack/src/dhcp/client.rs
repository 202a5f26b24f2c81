//! One client: the states of RFC 2131 §4.4, figure 5.
//!
//! ```text
//!           DISCOVER               OFFER / REQUEST             ACK
//!   Init ──────────────▶ Selecting ───────────────▶ Requesting ─────▶ Bound ◀───────┐
//!    ▲                                              NAK │              │ T1         │ ACK
//!    │                                                  │              ▼            │
//!    ├──────────────────────────────────────────────────┘          Renewing ────────┤
//!    │                                                                 │ T2         │
//!    │                 NAK, lease over                                 ▼            │
//!    ├──────────────────────────────────────────────────────────── Rebinding ───────┤
//!    │ NAK, no answer                                                               │
//!    └─────────────── Rebooting ────────────────────────────────────────────────────┘
//!                         ▲ REQUEST
//!                     InitReboot ◀──── the link is up again, and the lease not over
//! ```
//!
//! A link that is down has a client in none of these states ([`State::Down`]); its lease runs on.

use super::offer::Offer;
use crate::{Lease, Reason, random::Random};
use gatewright_wire::{
    MacAddress,
    dhcpv4::{
        DhcpOption, DhcpType, Dhcpv4Fields, FLAG_BROADCAST, HARDWARE_ETHERNET, Operation, write,
    },
};
use std::{collections::VecDeque, net::Ipv4Addr, time::Duration};

/// A message that is unexpected in this state.
const UNEXPECTED: Reason = Reason("unexpected");

/// The first wait for an answer, and the longest (RFC 2131 §4.1).
const RETRANSMIT_FIRST: Duration = Duration::from_secs(4);
const RETRANSMIT_MAX: Duration = Duration::from_secs(64);

/// How much a wait may be shorter or longer (RFC 2131 §4.1).
const RETRANSMIT_JITTER: Duration = Duration::from_secs(1);

/// Requests for an offered address before it is given up.
const REQUESTS_MAX: u32 = 4;

/// Requests for a remembered address before a server is looked for. RFC 2131 §3.2 (5) leaves it to
/// the client whether it goes on with the address when nobody answers: on a link where nobody knows
/// it, it may be of another network.
const REBOOTS_MAX: u32 = 2;

/// The shortest wait between two requests of a lease that runs (RFC 2131 §4.4.5).
const RENEW_WAIT_MIN: Duration = Duration::from_mins(1);

/// How long nothing is asked after an address was declined (RFC 2131 §3.1, step 5).
const DECLINE_WAIT: Duration = Duration::from_secs(10);

/// Clients that start together ask within this time (RFC 2131 §4.4.1 has 1 to 10 seconds; nine
/// seconds without an address are more harm than a shared start of few stations).
const START_WAIT: Duration = Duration::from_secs(1);

/// Octets of the longest message we send.
const MESSAGE_LEN_MAX: usize = 576;

/// The requested parameters.
const WANTED: [u8; 5] = [
    DhcpOption::SUBNET_MASK,
    DhcpOption::CLASSLESS_ROUTES,
    DhcpOption::ROUTERS,
    DhcpOption::DOMAIN_NAME_SERVERS,
    DhcpOption::LEASE_TIME,
];

/// The next action.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Output {
    /// A message to port 67.
    Send { from: Ipv4Addr, to: Ipv4Addr, message: Vec<u8> },
    /// The lease has begun, was prolonged, or is over.
    Lease(Option<Lease>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The link is down: nothing is sent or expected.
    Down,
    /// The link is up again, and the lease of before has not ended.
    InitReboot,
    /// The lease of before is to be confirmed.
    Rebooting,
    Init,
    Selecting,
    Requesting,
    Bound,
    Renewing,
    Rebinding,
}

/// The client of one link.
#[derive(Debug)]
pub(super) struct DhcpClient {
    mac: MacAddress,
    random: Random,
    state: State,
    xid: u32,
    /// When the exchange began.
    began: Duration,
    sent: u32,
    due: Duration,
    /// The lease that is requested, held or remembered, with its server.
    offer: Option<Offer>,
    /// When what is held began.
    leased_at: Duration,
    outputs: VecDeque<Output>,
    /// Refusals since the last lease.
    refused: u32,
}

impl DhcpClient {
    pub(super) fn new(mac: MacAddress, now: Duration, random: u64) -> Self {
        let mut random = Random::new(random);
        let due = now + random.between(Duration::ZERO, START_WAIT);
        Self {
            mac,
            random,
            state: State::Init,
            xid: 0,
            began: now,
            sent: 0,
            due,
            offer: None,
            leased_at: now,
            outputs: VecDeque::new(),
            refused: 0,
        }
    }

    /// The station that it asks for.
    pub(super) const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The address that is held.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        let held = matches!(self.state, State::Bound | State::Renewing | State::Rebinding);
        self.offer.as_ref().filter(|_| held).map(|offer| offer.lease.address)
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        Some(self.due).filter(|_| self.state != State::Down)
    }

    /// Ends all exchanges, as the link is down; a lease is remembered for as long as it runs.
    pub(super) fn link_down(&mut self) {
        if self.state != State::Down && self.address().is_none() && !self.is_rebooting() {
            self.offer = None;
        }
        self.state = State::Down;
    }

    /// Begins anew when the link is up again: with the remembered lease, if there is one. RFC 2131
    /// §3.7: "A client SHOULD use DHCP to reacquire or verify its IP address and network parameters
    /// whenever the local network parameters may have changed; e.g., … after a disconnection from
    /// the local network".
    pub(super) fn link_up(&mut self, now: Duration) {
        if self.state != State::Down {
            return;
        }
        let wait = self.random.between(Duration::ZERO, START_WAIT);
        self.refused = 0;
        if self.offer.is_none() || now + wait >= self.over_at() {
            return self.restart(now, wait);
        }
        (self.state, self.due) = (State::InitReboot, now + wait);
    }

    fn is_rebooting(&self) -> bool {
        matches!(self.state, State::InitReboot | State::Rebooting)
    }

    /// When the lease that is held or remembered ends.
    fn over_at(&self) -> Duration {
        let duration = self.offer.as_ref().map_or(Duration::ZERO, |held| held.lease.duration);
        self.leased_at.saturating_add(duration)
    }

    /// Takes a server's message.
    pub(super) fn handle(&mut self, now: Duration, message: &[u8]) -> Result<(), Reason> {
        let offer = Offer::read(message, self.mac, self.xid)?;
        match (self.state, offer.kind) {
            // The first offer is taken: RFC 2131 §4.4.1 leaves the choice to the client.
            (State::Selecting, DhcpType::OFFER)
                if offer.server.is_some() && !offer.lease.address.is_unspecified() =>
            {
                self.offer = Some(offer);
                (self.state, self.sent) = (State::Requesting, 0);
                self.request(now);
                Ok(())
            }
            (
                State::Requesting | State::Rebooting | State::Renewing | State::Rebinding,
                DhcpType::ACK,
            ) if !offer.lease.duration.is_zero() && !offer.lease.address.is_unspecified() => {
                self.bind(now, offer);
                Ok(())
            }
            (
                State::Requesting | State::Rebooting | State::Renewing | State::Rebinding,
                DhcpType::NAK,
            ) => {
                self.lose();
                // A lease that ends is asked for anew at once. A server that refuses what it has
                // just offered would be asked as fast as it answers: the waits are those between
                // unanswered messages (RFC 2131 §4.1).
                let wait = match self.refused {
                    0 => Duration::ZERO,
                    refused => self.wait(refused - 1),
                };
                self.refused = self.refused.saturating_add(1);
                self.restart(now, wait);
                Ok(())
            }
            _ => Err(UNEXPECTED),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if now < self.due {
            return;
        }
        match self.state {
            State::Down => {}
            State::Init => {
                self.begin(now, State::Selecting);
                self.discover(now);
            }
            State::InitReboot => {
                self.begin(now, State::Rebooting);
                self.confirm(now);
            }
            State::Rebooting if self.sent >= REBOOTS_MAX => self.restart(now, Duration::ZERO),
            State::Rebooting => self.confirm(now),
            State::Selecting => self.discover(now),
            State::Requesting if self.sent >= REQUESTS_MAX => self.restart(now, Duration::ZERO),
            State::Requesting => self.request(now),
            State::Bound | State::Renewing | State::Rebinding => self.keep(now),
        }
    }

    /// Gives the address back as another host's, and asks anew after a while.
    pub(super) fn decline(&mut self, now: Duration) {
        let Some(Offer { server: Some(server), lease, .. }) = self.offer.clone() else { return };
        self.send(
            now,
            DhcpType::DECLINE,
            Ipv4Addr::BROADCAST,
            &[DhcpOption::RequestedAddress(lease.address), DhcpOption::ServerIdentifier(server)],
        );
        self.lose();
        self.restart(now, DECLINE_WAIT);
    }

    /// Releases the lease, as the address is no longer wanted (RFC 2131 §4.4.6).
    pub(super) fn release(&mut self, now: Duration) {
        let Some(Offer { server: Some(server), .. }) = self.offer else { return };
        if self.address().is_none() {
            return;
        }
        self.begin(now, self.state);
        self.send(now, DhcpType::RELEASE, server, &[DhcpOption::ServerIdentifier(server)]);
        self.lose();
        self.restart(now, Duration::ZERO);
    }

    /// Begins an exchange.
    fn begin(&mut self, now: Duration, state: State) {
        self.xid = u32::try_from(self.random.draw() >> 32).unwrap_or_default();
        (self.state, self.began, self.sent) = (state, now, 0);
    }

    fn restart(&mut self, now: Duration, wait: Duration) {
        self.state = State::Init;
        self.offer = None;
        self.due = now + wait;
    }

    /// Reports the end of the lease, if there was one.
    fn lose(&mut self) {
        if self.address().is_some() {
            self.outputs.push_back(Output::Lease(None));
        }
    }

    fn bind(&mut self, now: Duration, mut offer: Offer) {
        // A renewal may leave out who it is from.
        offer.server = offer.server.or(self.offer.as_ref().and_then(|held| held.server));
        self.state = State::Bound;
        self.refused = 0;
        self.leased_at = now;
        self.due = now.saturating_add(offer.renew);
        self.outputs.push_back(Output::Lease(Some(offer.lease.clone())));
        self.offer = Some(offer);
    }

    /// Requests an extension of the lease from the server, and later from any server; gives it up
    /// when it ends.
    fn keep(&mut self, now: Duration) {
        let Some(offer) = &self.offer else { return self.restart(now, Duration::ZERO) };
        let rebind_at = self.leased_at.saturating_add(offer.rebind);
        let over_at = self.over_at();
        let server = offer.server.unwrap_or(Ipv4Addr::BROADCAST);
        if now >= over_at {
            self.lose();
            return self.restart(now, Duration::ZERO);
        }
        if self.state == State::Bound {
            self.begin(now, State::Bound);
        }
        let (state, to, until) = if now >= rebind_at {
            (State::Rebinding, Ipv4Addr::BROADCAST, over_at)
        } else {
            (State::Renewing, server, rebind_at)
        };
        self.state = state;
        self.send(now, DhcpType::REQUEST, to, &[]);
        // RFC 2131 §4.4.5: "one-half of the remaining time", "down to a minimum of 60 seconds".
        let wait = (until.saturating_sub(now) / 2).max(RENEW_WAIT_MIN);
        self.due = now.saturating_add(wait).min(until);
    }

    fn discover(&mut self, now: Duration) {
        self.send(now, DhcpType::DISCOVER, Ipv4Addr::BROADCAST, &[]);
        self.back_off(now);
    }

    fn request(&mut self, now: Duration) {
        let Some(Offer { server: Some(server), lease, .. }) = self.offer.clone() else { return };
        self.send(
            now,
            DhcpType::REQUEST,
            Ipv4Addr::BROADCAST,
            &[DhcpOption::RequestedAddress(lease.address), DhcpOption::ServerIdentifier(server)],
        );
        self.back_off(now);
    }

    /// Requests the remembered address. RFC 2131 §4.3.2: "'server identifier' MUST NOT be filled in,
    /// 'requested IP address' option MUST be filled in with client's notion of its previously
    /// assigned address. 'ciaddr' MUST be zero."
    fn confirm(&mut self, now: Duration) {
        let Some(address) = self.offer.as_ref().map(|offer| offer.lease.address) else { return };
        let requested = [DhcpOption::RequestedAddress(address)];
        self.send(now, DhcpType::REQUEST, Ipv4Addr::BROADCAST, &requested);
        self.back_off(now);
    }

    /// Waits longer after each message: 4, 8, 16, 32, then 64 seconds.
    fn back_off(&mut self, now: Duration) {
        self.due = now + self.wait(self.sent);
        self.sent += 1;
    }

    /// The wait after a number of earlier ones.
    fn wait(&mut self, before: u32) -> Duration {
        let wait = (RETRANSMIT_FIRST * (1 << before.min(4))).min(RETRANSMIT_MAX);
        self.random.between(wait.saturating_sub(RETRANSMIT_JITTER), wait + RETRANSMIT_JITTER)
    }

    fn send(&mut self, now: Duration, kind: DhcpType, to: Ipv4Addr, more: &[DhcpOption<'_>]) {
        // RFC 2131 §4.3.6: ciaddr is filled in only while an address is held; a client without one
        // can be answered by broadcast only.
        let told = matches!(kind, DhcpType::REQUEST | DhcpType::RELEASE);
        let held = self.address().filter(|_| told);
        let from = held.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let secs = now.saturating_sub(self.began).as_secs().min(u64::from(u16::MAX));
        let mut chaddr = [0; 16];
        for (to, from) in chaddr.iter_mut().zip(self.mac.octets()) {
            *to = from;
        }
        let fields = Dhcpv4Fields {
            op: Operation::BOOT_REQUEST,
            htype: HARDWARE_ETHERNET,
            hlen: 6,
            hops: 0,
            xid: self.xid,
            secs: u16::try_from(secs).unwrap_or(u16::MAX),
            flags: if held.is_some() { 0 } else { FLAG_BROADCAST },
            ciaddr: from,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            chaddr,
            sname: [0; 64],
            file: [0; 128],
        };
        let mut identifier = [HARDWARE_ETHERNET; 7];
        for (to, from) in identifier.iter_mut().skip(1).zip(self.mac.octets()) {
            *to = from;
        }
        let mut options =
            vec![DhcpOption::MessageType(kind), DhcpOption::ClientIdentifier(&identifier)];
        options.extend(more);
        // Table 5 of RFC 2131 allows neither in DECLINE and RELEASE.
        if !matches!(kind, DhcpType::DECLINE | DhcpType::RELEASE) {
            options.push(DhcpOption::MaximumMessageSize(MAXIMUM_MESSAGE_SIZE));
            options.push(DhcpOption::ParameterRequestList(&WANTED));
        }
        let mut octets = [0; MESSAGE_LEN_MAX];
        if let Ok(message) = write(&mut octets, fields, &options) {
            self.outputs.push_back(Output::Send { from, to, message: message.to_vec() });
        }
    }
}

/// Octets of the longest message we take: one frame's worth.
const MAXIMUM_MESSAGE_SIZE: u16 = 1500;

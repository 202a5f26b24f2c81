//! Limits per peer: requests per second, and pending requests and octets, those of arriving bodies
//! included.
//!
//! A peer is an address, for IPv6 its whole /64. Requests from a broker have no address, so their
//! originator is the peer. A request beyond a limit is refused before anything is done, with the
//! time to retry.

use core::time::Duration;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status, network};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Peers remembered; beyond, those without anything open are forgotten.
const PEERS_MAX: usize = 65_536;
/// Micro-requests in a request: the unit in which rates are counted.
const MICRO: u64 = 1_000_000;
/// Retry time of a peer with too much open.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Limits of one peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    /// Requests per second, and as many at once after a second of silence; unlimited if `None`.
    pub rate: Option<u32>,
    /// Pending requests.
    pub waiting: u32,
    /// Octets of content in those and in arriving bodies.
    pub octets: u64,
    /// Octets of the same for all peers together.
    pub octets_of_all: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            rate: None,
            waiting: 4_096,
            octets: 64 * 1024 * 1024,
            octets_of_all: 256 * 1024 * 1024,
        }
    }
}

/// Counters of refusals.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counters {
    /// Requests refused because of the peer's rate.
    pub(crate) too_often: u64,
    /// Requests refused because of the peer's pending requests or octets.
    pub(crate) too_much: u64,
    /// Bodies not read to their end because of the octet limit of the peer or of all.
    pub(crate) arriving: u64,
}

/// Open requests and octets of all peers.
#[derive(Debug)]
pub(crate) struct Quotas {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    quota: Quota,
    peers: HashMap<QuotaPeer, PeerQuota>,
    /// Of all peers.
    octets: u64,
    counters: Counters,
}

/// The peer that a request is counted for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum QuotaPeer {
    Address(IpAddr),
    Originator(Arc<str>),
}

#[derive(Clone, Copy, Debug)]
struct PeerQuota {
    /// Requests it may send now, in millionths.
    micros: u64,
    /// When that was computed.
    at: Duration,
    waiting: u32,
    /// Bodies that are still arriving.
    arriving: u32,
    /// Octets of both.
    octets: u64,
}

/// Guard of an arriving body; its octets are counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Arriving {
    quotas: Arc<Quotas>,
    who: QuotaPeer,
    octets: u64,
}

/// Guard of an admitted request; it is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    quotas: Arc<Quotas>,
    pub(crate) who: QuotaPeer,
    pub(crate) octets: u64,
}

/// Why a request is refused, and when to retry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QuotaRefusal {
    why: &'static str,
    after: Duration,
}

impl QuotaRefusal {
    /// The response to the request with this identifier.
    pub(crate) fn response(&self, id: &str, release: Release) -> Response {
        // No oneM2M status says *busy*. The content is not judged: no status that is final will do,
        // as not every binding has words for the pause.
        let refusal = Refusal::new(Status::InternalServerError, self.why);
        let mut response = Response::refusing(&refusal, id, release);
        response.retry_after = Some(self.after);
        response
    }
}

impl Quotas {
    pub(crate) fn new(quota: Quota) -> Arc<Self> {
        let state = State { quota, ..State::default() };
        Arc::new(Self { started: Instant::now(), state: Mutex::new(state) })
    }

    /// Sets another quota; what is open stays open.
    pub(crate) fn set(&self, quota: Quota) {
        self.lock().quota = quota;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Admits a request or refuses it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        request: &Request,
        address: Option<IpAddr>,
    ) -> Result<Ticket, Response> {
        let who = match address {
            Some(address) => QuotaPeer::Address(network(address)),
            None => QuotaPeer::Originator(request.from.as_str().into()),
        };
        let octets = request.content.as_ref().map_or(0, |content| content.len());
        let octets = u64::try_from(octets).unwrap_or(u64::MAX);
        let taken = self.lock().take(self.started.elapsed(), &who, octets);
        match taken {
            Ok(()) => Ok(Ticket { quotas: Arc::clone(self), who, octets }),
            Err(refused) => Err(refused.response(&request.id, request.release)),
        }
    }

    /// Starts counting a body from this address.
    pub(crate) fn arriving(self: &Arc<Self>, address: IpAddr) -> Arriving {
        let who = QuotaPeer::Address(network(address));
        Arriving { quotas: Arc::clone(self), who, octets: 0 }
    }

    /// A poisoned lock is safe here: the counts stay consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, now: Duration, who: &QuotaPeer, octets: u64) -> Result<(), QuotaRefusal> {
        let (quota, of_all) = (self.quota, self.octets);
        let peer = self.peer(now, who);
        if let Some(rate) = quota.rate {
            peer.fill(now, rate);
            if peer.micros < MICRO {
                let missing = (MICRO - peer.micros).div_ceil(u64::from(rate.max(1)));
                self.counters.too_often += 1;
                let after = Duration::from_micros(missing);
                return Err(QuotaRefusal { why: "too many requests in a second", after });
            }
        }
        let sum = peer.octets.saturating_add(octets);
        let alone = peer.octets == 0;
        let full = octets > 0 && of_all.saturating_add(octets) > quota.octets_of_all;
        if peer.waiting >= quota.waiting || (sum > quota.octets && !alone) || (full && of_all > 0) {
            self.counters.too_much += 1;
            let why = "too many requests wait for their answers";
            return Err(QuotaRefusal { why, after: AGAIN_AFTER });
        }
        peer.micros = peer.micros.saturating_sub(if quota.rate.is_some() { MICRO } else { 0 });
        peer.waiting += 1;
        peer.octets = sum;
        self.octets = of_all.saturating_add(octets);
        Ok(())
    }

    /// Counts `more` octets of a body after `had`.
    fn grow(
        &mut self,
        now: Duration,
        who: &QuotaPeer,
        had: u64,
        more: u64,
    ) -> Result<(), QuotaRefusal> {
        let (quota, of_all) = (self.quota, self.octets);
        let peer = self.peer(now, who);
        // Like one large request, one large body goes alone.
        let full = |octets: u64, most| octets > had && octets.saturating_add(more) > most;
        if full(peer.octets, quota.octets) || full(of_all, quota.octets_of_all) {
            self.counters.arriving += 1;
            let why = "too many octets arrive or wait for their answers";
            return Err(QuotaRefusal { why, after: AGAIN_AFTER });
        }
        peer.arriving += u32::from(had == 0);
        peer.octets = peer.octets.saturating_add(more);
        self.octets = of_all.saturating_add(more);
        Ok(())
    }

    /// The counts of a peer.
    fn peer(&mut self, now: Duration, who: &QuotaPeer) -> &mut PeerQuota {
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(who) {
            self.forget(now);
        }
        let full = u64::from(self.quota.rate.unwrap_or_default()) * MICRO;
        let new = PeerQuota { micros: full, at: now, waiting: 0, arriving: 0, octets: 0 };
        self.peers.entry(who.clone()).or_insert(new)
    }

    /// Forgets peers that have nothing open and their full rate.
    fn forget(&mut self, now: Duration) {
        let rate = self.quota.rate;
        self.peers.retain(|_, peer| {
            rate.is_some_and(|rate| {
                peer.fill(now, rate);
                peer.micros < u64::from(rate) * MICRO
            }) || peer.is_busy()
        });
    }

    /// Ends a request.
    fn give_back(&mut self, who: &QuotaPeer, octets: u64) {
        self.let_go(who, octets, |peer| peer.waiting = peer.waiting.saturating_sub(1));
    }

    /// Ends a body, complete or not.
    fn arrived(&mut self, who: &QuotaPeer, octets: u64) {
        let ended = u32::from(octets > 0);
        self.let_go(who, octets, |peer| peer.arriving = peer.arriving.saturating_sub(ended));
    }

    fn give_octets_back(&mut self, who: &QuotaPeer, octets: u64) {
        self.let_go(who, octets, |_| {});
    }

    /// Subtracts a peer's octets and applies `how`.
    fn let_go(&mut self, who: &QuotaPeer, octets: u64, how: impl FnOnce(&mut PeerQuota)) {
        let is_free = self.quota.rate.is_none();
        self.octets = self.octets.saturating_sub(octets);
        let Some(peer) = self.peers.get_mut(who) else { return };
        how(peer);
        peer.octets = peer.octets.saturating_sub(octets);
        if is_free && !peer.is_busy() {
            self.peers.remove(who);
        }
    }
}

impl PeerQuota {
    /// Refills the rate with time, up to one second's worth.
    fn fill(&mut self, now: Duration, rate: u32) {
        let elapsed = u64::try_from(now.saturating_sub(self.at).as_micros()).unwrap_or(u64::MAX);
        let more = elapsed.saturating_mul(u64::from(rate));
        self.micros = self.micros.saturating_add(more).min(u64::from(rate) * MICRO);
        self.at = now;
    }

    const fn is_busy(&self) -> bool {
        self.waiting > 0 || self.arriving > 0
    }
}

impl Arriving {
    /// Counts arrived octets.
    pub(crate) fn grow(&mut self, octets: usize) -> Result<(), QuotaRefusal> {
        let more = u64::try_from(octets).unwrap_or(u64::MAX);
        if more == 0 {
            return Ok(());
        }
        let now = self.quotas.started.elapsed();
        self.quotas.lock().grow(now, &self.who, self.octets, more)?;
        self.octets = self.octets.saturating_add(more);
        Ok(())
    }

    /// Sets the octets of the incomplete message, more or fewer than before.
    pub(crate) fn hold(&mut self, octets: usize) -> Result<(), QuotaRefusal> {
        let octets = u64::try_from(octets).unwrap_or(u64::MAX);
        let more = octets.saturating_sub(self.octets);
        if more > 0 {
            return self.grow(usize::try_from(more).unwrap_or(usize::MAX));
        }
        self.shrink_to(octets);
        Ok(())
    }

    /// Reduces the counted octets.
    pub(crate) fn shrink_to(&mut self, octets: u64) {
        if octets == 0 {
            return self.clear();
        }
        if let Some(less @ 1..) = self.octets.checked_sub(octets) {
            self.octets = octets;
            self.quotas.lock().give_octets_back(&self.who, less);
        }
    }

    /// Stops counting: the message is complete, or another guard counts it.
    pub(crate) fn clear(&mut self) {
        if self.octets > 0 {
            let octets = core::mem::take(&mut self.octets);
            self.quotas.lock().arrived(&self.who, octets);
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.quotas.lock().give_back(&self.who, self.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: QuotaPeer = QuotaPeer::Address(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));

    fn state(quota: Quota) -> State {
        State { quota, ..State::default() }
    }

    #[test]
    fn a_peer_has_its_rate_and_no_more() {
        let mut state = state(Quota { rate: Some(10), ..Quota::default() });
        let other = QuotaPeer::Originator("CNurse".into());
        let mut taken = 0;
        for millis in 0..10_000_u64 {
            let now = Duration::from_millis(millis);
            if state.take(now, &HOSTILE, 0).is_ok() {
                taken += 1;
                state.give_back(&HOSTILE, 0);
            }
            // A living peer beside it is not refused once.
            if millis % 200 == 0 {
                state.take(now, &other, 0).unwrap();
                state.give_back(&other, 0);
            }
        }
        // A second's worth at once, and ten seconds' after it.
        assert!((108..=110).contains(&taken), "{taken}");
        assert_eq!(state.counters.too_often, 10_000 - taken);
        let refused = state.take(Duration::from_millis(9_999), &HOSTILE, 0).unwrap_err();
        assert!(refused.after <= Duration::from_millis(100), "{refused:?}");
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_octets() {
        let mut state = state(Quota { rate: None, waiting: 3, octets: 100, ..Quota::default() });
        let now = Duration::ZERO;
        for octets in [40, 40] {
            state.take(now, &HOSTILE, octets).unwrap();
        }
        assert!(state.take(now, &HOSTILE, 40).is_err());
        state.take(now, &HOSTILE, 20).unwrap();
        assert!(state.take(now, &HOSTILE, 0).is_err());
        assert_eq!(state.counters.too_much, 2);
        for octets in [40, 40, 20] {
            state.give_back(&HOSTILE, octets);
        }
        assert!(state.peers.is_empty(), "nothing is open: nothing is remembered");
        // One request that is larger than all of it goes alone: whoever bounds contents bounds it.
        state.take(now, &HOSTILE, 1_000).unwrap();
    }

    #[test]
    fn bodies_that_arrive_count_with_what_waits() {
        let quota = Quota { octets: 100, octets_of_all: 150, ..Quota::default() };
        let quotas = Quotas::new(quota);
        let [hostile, other] = ["127.0.0.2", "127.0.0.3"].map(|it| it.parse().unwrap());
        let mut first = quotas.arriving(hostile);
        let mut second = quotas.arriving(hostile);
        first.grow(60).unwrap();
        first.grow(0).unwrap();
        second.grow(40).unwrap();
        assert!(second.grow(1).is_err() && first.grow(1).is_err());
        // Requests of the same peer have no room either, those of others have what is left of all.
        let now = Duration::from_secs(1);
        let who = QuotaPeer::Address(hostile);
        assert!(quotas.lock().take(now, &who, 1).is_err());
        quotas.lock().take(now, &who, 0).unwrap();
        let mut third = quotas.arriving(other);
        third.grow(50).unwrap();
        assert!(third.grow(1).is_err(), "all together have no more");
        drop(first);
        third.grow(50).unwrap();
        second.shrink_to(1);
        second.grow(49).unwrap();
        drop((second, third));
        quotas.lock().give_back(&who, 0);
        let state = quotas.lock();
        assert_eq!((state.octets, state.counters.arriving), (0, 3));
        assert!(state.peers.is_empty(), "nothing is open: nothing is remembered");
        drop(state);
        // One that is larger than all of it goes alone: whoever bounds a body bounds it.
        let mut alone = quotas.arriving(hostile);
        alone.grow(90).unwrap();
        alone.grow(900).unwrap();
        assert!(quotas.arriving(other).grow(1).is_err());
    }

    #[test]
    fn peers_are_bounded_too() {
        let mut state = state(Quota { rate: Some(1), ..Quota::default() });
        for number in 0..u32::try_from(PEERS_MAX).unwrap() + 100 {
            let now = Duration::from_millis(number.into());
            let who = QuotaPeer::Address(std::net::Ipv4Addr::from_bits(number).into());
            state.take(now, &who, 0).unwrap();
            state.give_back(&who, 0);
        }
        assert!(state.peers.len() <= PEERS_MAX, "{}", state.peers.len());
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
    }
}

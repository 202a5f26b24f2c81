//! The neighbour cache: which link-layer address an on-link IP address has.
//!
//! One machine for both families (RFC 4861 §7.3.2): ARP and neighbour discovery bring each its own
//! messages and share states, bounds and times. It sends nothing by itself: what is to be done
//! comes out of [`Neighbours::poll_output`].
//!
//! ```text
//!              first packet                answered               30 s, jittered
//!   (no entry) ────────────▶ INCOMPLETE ─────────────▶ REACHABLE ────────────────▶ STALE
//!        ▲                        │ 3 × 1 s                ▲                         │ packet
//!        └────── no answer ───────┴────────── PROBE ◀─5 s─ DELAY ◀───────────────────┘
//! ```
//!
//! Only in INCOMPLETE do packets wait: in every other state they are sent to the address known.

use crate::{KeptNeighbours, Reason, random::Random};
use gatewright_packet::{LinkIndex, Packet};
use gatewright_wire::MacAddress;
use std::{
    cell::{RefCell, RefMut},
    collections::VecDeque,
    net::IpAddr,
    rc::Rc,
    time::Duration,
};

/// Neighbours of one link and family at the most.
pub const NEIGHBOURS_MAX: usize = 1024;

/// Packets that wait for one neighbour at the most (RFC 4861 §7.2.2 asks for one or more).
pub const WAITING_PER_NEIGHBOUR_MAX: u8 = 8;

/// Packets that wait for all neighbours of one link and family at the most.
pub const WAITING_MAX: usize = 256;

/// MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT (RFC 4861 §10).
const SOLICITATIONS_MAX: u8 = 3;

/// DELAY_FIRST_PROBE_TIME (RFC 4861 §10).
const DELAY_FIRST_PROBE: Duration = Duration::from_secs(5);

/// A packet was dropped because more than [`WAITING_PER_NEIGHBOUR_MAX`] or [`WAITING_MAX`] wait.
pub const WAITING_FULL: Reason = Reason("waiting-full");

/// A neighbour that was never confirmed, or long unused, gave way to a new one.
pub const NEIGHBOUR_EVICTED: Reason = Reason("neighbour-evicted");

/// A packet found no place for its neighbour: all [`NEIGHBOURS_MAX`] are living.
pub const NEIGHBOURS_FULL: Reason = Reason("neighbours-full");

/// What is known of a neighbour (RFC 4861 §7.3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// Its address is being asked for.
    Incomplete,
    /// It was heard to receive what we send, a short time ago.
    Reachable,
    /// Its address is known; whether it holds is asked with the next packet.
    Stale,
    /// A packet was sent to it; an answer above may still confirm it.
    Delay,
    /// It is being asked whether it is still there.
    Probe,
    /// Set by configuration; neither asked for nor forgotten.
    Permanent,
}

/// What a neighbour said about its own address (RFC 4861 §4.4; an ARP reply is one that is
/// solicited and overrides).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Advertised {
    /// Its link-layer address, if it was told.
    pub mac: Option<MacAddress>,
    /// Whether it answers what we asked.
    pub solicited: bool,
    /// Whether it replaces what is known.
    pub overrides: bool,
    /// Whether it says that it is a router.
    pub router: bool,
}

/// What is to be done for a neighbour.
#[derive(Debug)]
pub enum NeighbourOutput {
    /// Ask for the link-layer address of `address`: everyone, or the one station `to`.
    Solicit {
        /// Whose address is asked for.
        address: IpAddr,
        /// Whom to ask, if it is known.
        to: Option<MacAddress>,
    },
    /// Send the packet: its neighbour is known now.
    Send(Packet),
    /// The neighbour does not answer: the packet's source is told.
    Unreachable(Packet),
    /// Drop the packet under this reason.
    Drop(Reason, Packet),
    /// Count an occurrence.
    Count(Reason),
    /// A router no longer says that it is one, or is gone (RFC 4861 §7.2.5, §7.3.3).
    RouterGone(IpAddr),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Vacant,
    Incomplete,
    /// Reachable until `fresh_until`, stale from then on.
    Known,
    Delay,
    Probe,
    Permanent,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Until when a packet is sent without further thought; zero while the address is unknown.
    fresh_until: Duration,
    mac: MacAddress,
    state: State,
    /// It has answered us: it lives.
    confirmed: bool,
    router: bool,
    /// Somebody else asks for it, and says when it is gone.
    kept_elsewhere: bool,
    solicited: u8,
    waiting: u8,
    /// When the state asks for the next step; only INCOMPLETE, DELAY and PROBE do.
    due: Duration,
    /// The next entry of the same bucket.
    next: u16,
}

/// No entry: the end of a bucket.
const NONE: u16 = u16::MAX;

/// Buckets of the index, a power of two.
const BUCKETS_BITS: u32 = 11;

/// The time that never comes.
const NEVER: Duration = Duration::MAX;

/// The neighbours of one link and family.
#[derive(Debug)]
pub struct Neighbours {
    entries: Vec<Entry>,
    vacant: Vec<u16>,
    buckets: Vec<u16>,
    waiting: VecDeque<(u16, Packet)>,
    outputs: VecDeque<NeighbourOutput>,
    /// No state asks for a step before.
    next_due: Duration,
    /// Where the search for an entry that gives way goes on: so the oldest goes first.
    hand: usize,
    random: Random,
    /// Odd and secret, so that no sender can fill one bucket.
    key: u64,
    /// BaseReachableTime (RFC 4861 §6.3.2).
    reachable: Duration,
    /// RetransTimer (RFC 4861 §6.3.2).
    retransmit: Duration,
    /// See [`Self::changes`].
    changes: u32,
    /// Where they are looked up instead, if another worker keeps them.
    kept: Option<KeptNeighbours>,
}

impl Neighbours {
    /// An empty cache with the times of RFC 4861 §10, which are also good for ARP; `random` makes
    /// hash and jitter unpredictable.
    pub fn new(random: u64) -> Self {
        let mut random = Random::new(random);
        Self {
            key: random.draw() | 1,
            entries: Vec::new(),
            vacant: Vec::new(),
            buckets: vec![NONE; 1 << BUCKETS_BITS],
            waiting: VecDeque::new(),
            outputs: VecDeque::new(),
            next_due: NEVER,
            hand: 0,
            random,
            reachable: Duration::from_secs(30),
            retransmit: Duration::from_secs(1),
            changes: 0,
            kept: None,
        }
    }

    /// Takes the times that a router advertised (RFC 4861 §6.3.4); `None` leaves one as it is.
    pub fn set_times(&mut self, reachable: Option<Duration>, retransmit: Option<Duration>) {
        let bounded = |time: Duration| time.clamp(TIME_MIN, TIME_MAX);
        self.reachable = reachable.map_or(self.reachable, bounded);
        self.retransmit = retransmit.map_or(self.retransmit, bounded);
    }

    /// RetransTimer (RFC 4861 §6.3.2).
    pub fn retransmit(&self) -> Duration {
        self.retransmit
    }

    /// The link-layer address to send to, if it is known; `None` means that the packet has to
    /// [`wait`](Self::wait).
    pub fn resolve(&mut self, address: IpAddr, now: Duration) -> Option<MacAddress> {
        self.resolve_until(address, now).map(|(mac, _)| mac)
    }

    /// As [`Self::resolve`], with the time until which the answer holds while
    /// [`Self::changes`] stays.
    pub(crate) fn resolve_until(
        &mut self,
        address: IpAddr,
        now: Duration,
    ) -> Option<(MacAddress, Duration)> {
        if let Some(kept) = &self.kept {
            return kept.resolve_until(address, now);
        }
        let index = self.find(address)?;
        let entry = self.entries.get_mut(index)?;
        if now < entry.fresh_until {
            return Some((entry.mac, entry.fresh_until));
        }
        if entry.state == State::Known {
            // RFC 4861 §7.3.3: the first packet to a stale neighbour starts the delay.
            (entry.state, entry.fresh_until) = (State::Delay, NEVER);
            self.arm(index, now + DELAY_FIRST_PROBE);
        }
        let known = self.entries.get(index).filter(|entry| entry.fresh_until == NEVER);
        known.map(|entry| (entry.mac, NEVER))
    }

    /// A number that moves when a neighbour's address, or for how long it holds, does.
    pub fn changes(&self) -> u32 {
        self.kept.as_ref().map_or(self.changes, KeptNeighbours::changes)
    }

    /// Looks neighbours up in what another worker has written down, from now on.
    pub fn follow(&mut self, kept: KeptNeighbours) {
        self.kept = Some(kept);
    }

    /// Keeps `packet` until the neighbour has answered; asks for it if nobody has yet.
    pub fn wait(&mut self, address: IpAddr, packet: Packet, now: Duration) {
        let Some(index) = self.find_or_insert(address, now) else {
            self.outputs.push_back(NeighbourOutput::Drop(NEIGHBOURS_FULL, packet));
            return;
        };
        let Some(entry) = self.entries.get_mut(index) else { return };
        if entry.state != State::Incomplete {
            self.outputs.push_back(NeighbourOutput::Send(packet));
            return;
        }
        if entry.solicited == 0 {
            entry.solicited = 1;
            self.outputs.push_back(NeighbourOutput::Solicit { address, to: None });
            self.arm(index, now + self.retransmit);
        }
        self.enqueue(index, packet);
    }

    /// Takes what the neighbour at `address` said about itself (RFC 4861 §7.2.5).
    pub fn advertised(&mut self, address: IpAddr, said: Advertised, now: Duration) {
        let Some(index) = self.find(address) else { return };
        let reachable_until = now + self.jittered(self.reachable);
        let Some(entry) = self.entries.get_mut(index) else { return };
        let differs = said.mac.is_some_and(|mac| mac != entry.mac);
        match entry.state {
            State::Permanent | State::Vacant => return,
            State::Incomplete if said.mac.is_none() => return,
            State::Incomplete => {}
            _ if !said.overrides && differs => {
                if entry.state == State::Known {
                    entry.fresh_until = Duration::ZERO;
                    self.changed();
                }
                return;
            }
            _ => {}
        }
        let was_router = std::mem::replace(&mut entry.router, said.router);
        entry.mac = said.mac.unwrap_or(entry.mac);
        if said.solicited {
            entry.confirmed = true;
            entry.known(reachable_until);
        } else if differs || entry.state == State::Incomplete {
            entry.known(Duration::ZERO);
        }
        if was_router && !said.router {
            self.outputs.push_back(NeighbourOutput::RouterGone(address));
        }
        self.changed();
        self.release(index);
    }

    /// Takes the address of a neighbour that spoke to us about something else: asked for our
    /// address, or for a router (RFC 4861 §7.2.3). One not known yet is added if `add` says so.
    pub fn heard(&mut self, address: IpAddr, mac: MacAddress, add: bool, now: Duration) {
        let found = self.find(address);
        let found = if add { found.or_else(|| self.find_or_insert(address, now)) } else { found };
        let Some(index) = found else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let differs = entry.mac != mac || entry.state == State::Incomplete;
        if differs && entry.state != State::Permanent {
            entry.mac = mac;
            entry.confirmed = false;
            entry.known(Duration::ZERO);
            self.changed();
            self.release(index);
        }
    }

    /// Says that the neighbour receives what we send it, as an answer above has shown
    /// (RFC 4861 §7.3.1).
    pub fn confirm(&mut self, address: IpAddr, now: Duration) {
        let Some(index) = self.find(address) else { return };
        let reachable_until = now + self.jittered(self.reachable);
        let Some(entry) = self.entries.get_mut(index) else { return };
        if matches!(entry.state, State::Known | State::Delay | State::Probe) {
            entry.known(reachable_until);
            self.changed();
        }
    }

    /// Marks the neighbour as a router; one that goes away is told as
    /// [`NeighbourOutput::RouterGone`].
    pub fn set_router(&mut self, address: IpAddr, router: bool) {
        let index = self.find(address);
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.router = router;
        }
    }

    /// Sets a neighbour that is neither asked for nor forgotten; `false` if there is no place.
    pub fn set_permanent(&mut self, address: IpAddr, mac: MacAddress) -> bool {
        let Some(index) = self.find_or_insert(address, Duration::ZERO) else { return false };
        let Some(entry) = self.entries.get_mut(index) else { return false };
        entry.mac = mac;
        entry.confirmed = true;
        entry.known(NEVER);
        entry.state = State::Permanent;
        self.changed();
        self.release(index);
        true
    }

    /// Takes what the kernel, where it asks for neighbours in our place, says of one: that it is
    /// `fresh`, or known but not heard of for a while; `false` if there is no place for it.
    ///
    /// One that is used while it is not fresh is solicited for from time to time, and is good until
    /// the kernel says otherwise: it takes its own time to find out.
    pub fn kept_elsewhere(
        &mut self,
        address: IpAddr,
        mac: MacAddress,
        fresh: bool,
        now: Duration,
    ) -> bool {
        let Some(index) = self.find_or_insert(address, now) else { return false };
        let Some(entry) = self.entries.get_mut(index) else { return false };
        (entry.mac, entry.confirmed, entry.kept_elsewhere) = (mac, true, true);
        entry.known(if fresh { NEVER } else { Duration::ZERO });
        self.changed();
        self.release(index);
        self.settle_soon();
        true
    }

    /// Forgets a neighbour, and has what follows from it done soon.
    pub fn gone_elsewhere(&mut self, address: IpAddr) {
        self.remove(address);
        self.settle_soon();
    }

    /// Whoever keeps the cache looks at once for what is to be done.
    fn settle_soon(&mut self) {
        if !self.outputs.is_empty() {
            self.next_due = Duration::ZERO;
        }
    }

    /// Forgets a neighbour; what waits for it is unreachable.
    pub fn remove(&mut self, address: IpAddr) {
        if let Some(index) = self.find(address) {
            self.forget(index);
        }
    }

    /// Forgets all but the permanent ones, as when the link went down.
    pub fn clear(&mut self) {
        for index in 0..self.entries.len() {
            let known = self.entries.get(index).map(|entry| entry.state);
            if known.is_some_and(|state| !matches!(state, State::Vacant | State::Permanent)) {
                self.forget(index);
            }
        }
    }

    /// The neighbours as they are at `now`.
    pub fn iter(
        &self,
        now: Duration,
    ) -> impl Iterator<Item = (IpAddr, MacAddress, NeighbourState)> + '_ {
        self.entries.iter().filter_map(move |entry| {
            let state = match entry.state {
                State::Vacant => return None,
                State::Incomplete => NeighbourState::Incomplete,
                State::Known if now < entry.fresh_until => NeighbourState::Reachable,
                State::Known => NeighbourState::Stale,
                State::Delay => NeighbourState::Delay,
                State::Probe => NeighbourState::Probe,
                State::Permanent => NeighbourState::Permanent,
            };
            Some((entry.address, entry.mac, state))
        })
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<NeighbourOutput> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Duration> {
        (self.next_due != NEVER).then_some(self.next_due)
    }

    /// Takes the steps that are due (RFC 4861 §7.3.3).
    pub fn handle_timeout(&mut self, now: Duration) {
        if now < self.next_due {
            return;
        }
        self.next_due = NEVER;
        for index in 0..self.entries.len() {
            let due = self.entries.get(index).map_or(NEVER, |entry| entry.due);
            if due <= now {
                self.step(index, now);
            } else {
                self.next_due = self.next_due.min(due);
            }
        }
    }

    fn step(&mut self, index: usize, now: Duration) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if entry.solicited >= SOLICITATIONS_MAX {
            self.forget(index);
            return;
        }
        let to = match entry.state {
            State::Incomplete => None,
            State::Delay | State::Probe => Some(entry.mac),
            State::Vacant | State::Known | State::Permanent => return,
        };
        let address = entry.address;
        if to.is_some() && entry.kept_elsewhere {
            entry.known(Duration::ZERO);
            self.changed();
            self.outputs.push_back(NeighbourOutput::Solicit { address, to });
            return;
        }
        if to.is_some() {
            entry.state = State::Probe;
        }
        entry.solicited += 1;
        self.outputs.push_back(NeighbourOutput::Solicit { address, to });
        self.arm(index, now + self.retransmit);
    }

    fn arm(&mut self, index: usize, due: Duration) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.due = due;
            self.next_due = self.next_due.min(due);
        }
    }

    fn enqueue(&mut self, index: usize, packet: Packet) {
        let Ok(id) = u16::try_from(index) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let gone = if entry.waiting >= WAITING_PER_NEIGHBOUR_MAX {
            self.waiting.iter().position(|&(of, _)| of == id)
        } else {
            (self.waiting.len() >= WAITING_MAX).then_some(0)
        };
        entry.waiting += 1;
        if let Some((of, packet)) = gone.and_then(|position| self.waiting.remove(position)) {
            if let Some(entry) = self.entries.get_mut(usize::from(of)) {
                entry.waiting -= 1;
            }
            self.outputs.push_back(NeighbourOutput::Drop(WAITING_FULL, packet));
        }
        self.waiting.push_back((id, packet));
    }

    /// Lets go what waits for the neighbour.
    fn release(&mut self, index: usize) {
        self.let_go(index, NeighbourOutput::Send);
    }

    fn let_go(&mut self, index: usize, how: impl Fn(Packet) -> NeighbourOutput) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if std::mem::take(&mut entry.waiting) == 0 {
            return;
        }
        for _ in 0..self.waiting.len() {
            match self.waiting.pop_front() {
                Some((of, packet)) if usize::from(of) == index => {
                    self.outputs.push_back(how(packet));
                }
                Some(other) => self.waiting.push_back(other),
                None => return,
            }
        }
    }

    fn find(&self, address: IpAddr) -> Option<usize> {
        let mut index = *self.buckets.get(self.bucket(address))?;
        while let Some(entry) = self.entries.get(usize::from(index)) {
            if entry.address == address {
                return Some(usize::from(index));
            }
            index = entry.next;
        }
        None
    }

    fn find_or_insert(&mut self, address: IpAddr, now: Duration) -> Option<usize> {
        if let Some(index) = self.find(address) {
            return Some(index);
        }
        if self.vacant.is_empty() && self.entries.len() >= NEIGHBOURS_MAX {
            let victim = self.victim(now)?;
            self.let_go(victim, |packet| NeighbourOutput::Drop(NEIGHBOUR_EVICTED, packet));
            self.forget(victim);
            self.outputs.push_back(NeighbourOutput::Count(NEIGHBOUR_EVICTED));
        }
        let bucket = self.bucket(address);
        let head = self.buckets.get_mut(bucket)?;
        let entry = Entry {
            address,
            fresh_until: Duration::ZERO,
            mac: MacAddress([0; 6]),
            state: State::Incomplete,
            confirmed: false,
            router: false,
            kept_elsewhere: false,
            solicited: 0,
            waiting: 0,
            due: NEVER,
            next: *head,
        };
        let id = if let Some(id) = self.vacant.pop() {
            *self.entries.get_mut(usize::from(id))? = entry;
            id
        } else {
            self.entries.push(entry);
            u16::try_from(self.entries.len() - 1).ok()?
        };
        *head = id;
        Some(usize::from(id))
    }

    /// Who gives way to a new neighbour: one that never answered us, else one that is stale. Those
    /// in use never do, so no flood drives them out.
    fn victim(&mut self, now: Duration) -> Option<usize> {
        let unconfirmed = |entry: &Entry| !entry.confirmed;
        let stale = |entry: &Entry| entry.state == State::Known && entry.fresh_until <= now;
        let len = self.entries.len();
        let order = (self.hand..len).chain(0..self.hand);
        let found = |rule: &dyn Fn(&Entry) -> bool| {
            order.clone().find(|&index| self.entries.get(index).is_some_and(rule))
        };
        let victim = found(&unconfirmed).or_else(|| found(&stale))?;
        self.hand = (victim + 1) % len.max(1);
        Some(victim)
    }

    fn changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// Removes the entry; what waits for it is unreachable.
    fn forget(&mut self, index: usize) {
        self.changed();
        self.let_go(index, NeighbourOutput::Unreachable);
        let Ok(id) = u16::try_from(index) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let (address, router) = (entry.address, entry.router);
        let next = std::mem::replace(&mut entry.next, NONE);
        (entry.state, entry.due, entry.router) = (State::Vacant, NEVER, false);
        self.unlink(address, id, next);
        self.vacant.push(id);
        if router {
            self.outputs.push_back(NeighbourOutput::RouterGone(address));
        }
    }

    fn unlink(&mut self, address: IpAddr, id: u16, next: u16) {
        let bucket = self.bucket(address);
        let Some(head) = self.buckets.get_mut(bucket) else { return };
        if *head == id {
            *head = next;
            return;
        }
        let mut before = *head;
        while let Some(entry) = self.entries.get_mut(usize::from(before)) {
            if entry.next == id {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }

    fn bucket(&self, address: IpAddr) -> usize {
        let bits = match address {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                let folded = (bits ^ (bits >> 64)) & u128::from(u64::MAX);
                u64::try_from(folded).unwrap_or_default()
            }
        };
        let hash = bits.wrapping_mul(self.key) >> (u64::BITS - BUCKETS_BITS);
        usize::try_from(hash).unwrap_or_default()
    }

    /// Between half and one and a half of `time` (RFC 4861 §6.3.2).
    fn jittered(&mut self, time: Duration) -> Duration {
        self.random.between(time / 2, time + time / 2)
    }
}

/// Bounds on the times that a router may set, against one that would stop or flood us.
const TIME_MIN: Duration = Duration::from_millis(100);
const TIME_MAX: Duration = Duration::from_hours(1);

impl Entry {
    /// The address is known, and fresh until then.
    fn known(&mut self, fresh_until: Duration) {
        self.state = State::Known;
        self.fresh_until = fresh_until;
        self.solicited = 0;
        self.due = NEVER;
    }
}

/// A link's neighbours of one family, as the layers of one worker share them: the link layer looks
/// them up, ARP or neighbour discovery keeps them.
#[derive(Clone, Debug)]
pub struct SharedNeighbours(Rc<RefCell<Neighbours>>);

impl SharedNeighbours {
    /// An empty cache; `random` as for [`Neighbours::new`].
    pub fn new(random: u64) -> Self {
        Self(Rc::new(RefCell::new(Neighbours::new(random))))
    }

    /// The cache, for as long as one call of one layer: the graph never runs two at once.
    pub fn lock(&self) -> RefMut<'_, Neighbours> {
        self.0.borrow_mut()
    }
}

/// Both caches of a link.
#[derive(Clone, Debug)]
pub struct LinkNeighbours {
    /// The link.
    pub link: LinkIndex,
    /// Kept by ARP.
    pub v4: SharedNeighbours,
    /// Kept by neighbour discovery.
    pub v6: SharedNeighbours,
}

impl LinkNeighbours {
    /// Empty caches; `random` as for [`Neighbours::new`].
    pub fn new(link: LinkIndex, random: u64) -> Self {
        let (v4, v6) = (SharedNeighbours::new(random), SharedNeighbours::new(!random));
        Self { link, v4, v6 }
    }
}

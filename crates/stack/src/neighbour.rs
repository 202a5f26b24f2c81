//! The neighbour cache: link-layer addresses of on-link IP addresses.
//!
//! One state machine serves both families (RFC 4861 §7.3.2): ARP and neighbour discovery bring
//! their own messages and share states, limits and times. It sends nothing by itself: its outputs
//! come from [`Neighbours::poll_output`].
//!
//! ```text
//!              first packet                answered               30 s, jittered
//!   (no entry) ────────────▶ INCOMPLETE ─────────────▶ REACHABLE ────────────────▶ STALE
//!        ▲                        │ 3 × 1 s                ▲                         │ packet
//!        └────── no answer ───────┴────────── PROBE ◀─5 s─ DELAY ◀───────────────────┘
//! ```
//!
//! Packets wait only in INCOMPLETE: in every other state they are sent to the known address.
//!
//! Memory grows with use, and no step depends on the number of neighbours except the timers' heap.
//! In a full cache the oldest neighbour that was never confirmed gives way, else the one idle for
//! longest, else the one solicited in vain for longest. A neighbour in use never does.

mod entries;
mod origins;

use crate::{KeptNeighbours, Reason, random::Random};
use entries::{Entries, Entry, NEVER, Queue, State};
use gatewright_packet::{LinkAddress, LinkIndex, Packet};
use origins::Origins;
use std::{
    cell::{RefCell, RefMut},
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    net::IpAddr,
    rc::Rc,
    time::Duration,
};

/// Limits of the neighbours of one link and family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NeighbourLimits {
    /// Maximum neighbours. Each known neighbour takes about 150 octets.
    pub neighbours: u32,
    /// Maximum neighbours being resolved at once.
    pub pending: u32,
    /// Maximum unanswered resolutions per second; those that are answered do not count.
    pub resolutions_per_second: u32,
}

impl NeighbourLimits {
    /// The limits for a large site's link: 131,072 neighbours.
    pub const DEFAULT: Self =
        Self { neighbours: 131_072, pending: 4096, resolutions_per_second: 1000 };
}

impl Default for NeighbourLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Maximum packets that wait for one neighbour (RFC 4861 §7.2.2 asks for one or more).
pub const WAITING_PER_NEIGHBOUR_MAX: u8 = 8;

/// Maximum packets that wait for all neighbours of one link and family.
pub const WAITING_MAX: usize = 256;

/// MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT (RFC 4861 §10).
const SOLICITATIONS_MAX: u8 = 3;

/// DELAY_FIRST_PROBE_TIME (RFC 4861 §10).
const DELAY_FIRST_PROBE: Duration = Duration::from_secs(5);

/// A packet was dropped because more than [`WAITING_PER_NEIGHBOUR_MAX`] or [`WAITING_MAX`] wait.
pub const WAITING_FULL: Reason = Reason("waiting-full");

/// A neighbour that was never confirmed, or long unused, gave way to a new one.
pub const NEIGHBOUR_EVICTED: Reason = Reason("neighbour-evicted");

/// A packet found no place for its neighbour: all [`NeighbourLimits::neighbours`] are in use.
pub const NEIGHBOURS_FULL: Reason = Reason("neighbours-full");

/// A packet for an unknown neighbour was dropped, as too many resolutions are unanswered.
pub const RESOLUTION_LIMITED: Reason = Reason("resolution-limited");

/// The state of a neighbour (RFC 4861 §7.3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// Its address is being resolved.
    Incomplete,
    /// It was confirmed to receive our packets, a short time ago.
    Reachable,
    /// Its address is known; the next packet starts its verification.
    Stale,
    /// A packet was sent to it; an upper-layer answer may still confirm it.
    Delay,
    /// Its reachability is being probed.
    Probe,
    /// Set by configuration; neither solicited nor forgotten.
    Permanent,
}

/// A neighbour's message about its own address (RFC 4861 §4.4; an ARP reply counts as solicited and
/// overriding).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Advertised {
    /// Its link-layer address, if given.
    pub link_address: Option<LinkAddress>,
    /// Whether it answers a solicitation of ours.
    pub solicited: bool,
    /// Whether it replaces the known address.
    pub overrides: bool,
    /// Whether it is a router.
    pub router: bool,
}

/// An action for a neighbour.
#[derive(Debug)]
pub enum NeighbourOutput {
    /// Solicit the link-layer address of `address`: at everyone, or at the one station `to`.
    Solicit {
        /// The address to resolve.
        address: IpAddr,
        /// The station to ask, if it is known.
        to: Option<LinkAddress>,
    },
    /// Send the packet: its neighbour is known now.
    Send(Packet),
    /// The neighbour does not answer: inform the packet's source.
    Unreachable(Packet),
    /// Drop the packet under this reason.
    Drop(Reason, Packet),
    /// Count an occurrence.
    Count(Reason),
    /// A router has ceased to be one, or is unreachable (RFC 4861 §7.2.5, §7.3.3).
    RouterGone(IpAddr),
}

/// Maximum changes queued for [`Neighbours::take_changed`].
const JOURNAL_MAX: usize = 65_536;

/// The neighbours of one link and family.
#[derive(Debug)]
pub struct Neighbours {
    entries: Entries,
    limits: NeighbourLimits,
    origins: Origins,
    waiting: VecDeque<(u32, Packet)>,
    outputs: VecDeque<NeighbourOutput>,
    /// The next steps of entries, soonest first; an entry whose time has moved is put back when it
    /// comes up.
    alarms: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Whether there is output that no layer caused.
    urgent: bool,
    random: Random,
    /// BaseReachableTime (RFC 4861 §6.3.2).
    reachable: Duration,
    /// RetransTimer (RFC 4861 §6.3.2).
    retransmit: Duration,
    /// See [`Self::changes`].
    changes: u32,
    /// The addresses of changed entries, if a reader takes them.
    journal: Option<Vec<IpAddr>>,
    /// The table used instead, if another worker keeps the neighbours.
    kept: Option<KeptNeighbours>,
}

impl Neighbours {
    /// An empty cache with the times of RFC 4861 §10, which also suit ARP; `random` makes hash and
    /// jitter unpredictable.
    pub fn new(random: u64) -> Self {
        Self::with_limits(random, NeighbourLimits::default())
    }

    /// As [`Self::new`], with other limits.
    pub fn with_limits(random: u64, limits: NeighbourLimits) -> Self {
        let mut random = Random::new(random);
        Self {
            entries: Entries::new(random.draw()),
            limits,
            origins: Origins::new(&limits, random.draw()),
            waiting: VecDeque::new(),
            outputs: VecDeque::new(),
            alarms: BinaryHeap::new(),
            urgent: false,
            random,
            reachable: Duration::from_secs(30),
            retransmit: Duration::from_secs(1),
            changes: 0,
            journal: None,
            kept: None,
        }
    }

    /// Sets the times that a router advertised (RFC 4861 §6.3.4); `None` leaves one unchanged.
    pub fn set_times(&mut self, reachable: Option<Duration>, retransmit: Option<Duration>) {
        let reachable = reachable.map(|time| time.clamp(TIME_MIN, REACHABLE_MAX));
        let retransmit = retransmit.map(|time| time.clamp(TIME_MIN, RETRANSMIT_MAX));
        self.reachable = reachable.unwrap_or(self.reachable);
        self.retransmit = retransmit.unwrap_or(self.retransmit);
    }

    /// RetransTimer (RFC 4861 §6.3.2).
    pub fn retransmit(&self) -> Duration {
        self.retransmit
    }

    /// The link-layer address to send to, if it is known; `None` means that the packet has to
    /// [`wait`](Self::wait).
    pub fn resolve(&mut self, address: IpAddr, now: Duration) -> Option<LinkAddress> {
        self.resolve_until(address, now).map(|(link_address, _)| link_address)
    }

    /// As [`Self::resolve`], with the time until which the result holds while [`Self::changes`]
    /// stays the same.
    pub(crate) fn resolve_until(
        &mut self,
        address: IpAddr,
        now: Duration,
    ) -> Option<(LinkAddress, Duration)> {
        if let Some(kept) = &self.kept {
            return kept.resolve_until(address, now);
        }
        let index = self.entries.find(address)?;
        let entry = self.entries.get_mut(index)?;
        if now < entry.fresh_until {
            return Some((entry.link_address, entry.fresh_until));
        }
        if entry.state == State::Known {
            // RFC 4861 §7.3.3: the first packet to a stale neighbour starts the delay.
            (entry.state, entry.fresh_until) = (State::Delay, NEVER);
            self.entries.queue(index);
            self.arm(index, now + DELAY_FIRST_PROBE);
        }
        let known = self.entries.get(index).filter(|entry| entry.fresh_until == NEVER);
        known.map(|entry| (entry.link_address, NEVER))
    }

    /// A number that changes with a neighbour's address or its lifetime.
    pub fn changes(&self) -> u32 {
        self.kept.as_ref().map_or(self.changes, KeptNeighbours::changes)
    }

    /// Looks neighbours up in another worker's table from now on.
    pub fn follow(&mut self, kept: KeptNeighbours) {
        self.kept = Some(kept);
    }

    /// Keeps `packet` until the neighbour has answered; starts the resolution if needed.
    pub fn wait(&mut self, address: IpAddr, packet: Packet, now: Duration) {
        let index = match self.entries.find(address) {
            Some(index) => index,
            None => match self.ask_for(address, &packet, now) {
                Ok(index) => index,
                Err(reason) => {
                    return self.outputs.push_back(NeighbourOutput::Drop(reason, packet));
                }
            },
        };
        let Some(entry) = self.entries.get_mut(index) else { return };
        if entry.state == State::Incomplete {
            self.enqueue(index, packet);
        } else {
            self.outputs.push_back(NeighbourOutput::Send(packet));
        }
    }

    /// Starts to resolve an unknown neighbour for which no packet waits, and makes that due at once.
    /// Whoever asks limits how many.
    pub fn solicit(&mut self, address: IpAddr, now: Duration) {
        if self.kept.is_some() || self.entries.find(address).is_some() {
            return;
        }
        let index = self.insert(address, now);
        let Some((index, entry)) = index.and_then(|at| Some((at, self.entries.get_mut(at)?)))
        else {
            return;
        };
        (entry.solicited, entry.origin) = (1, Origins::OWN);
        self.outputs.push_back(NeighbourOutput::Solicit { address, to: None });
        self.arm(index, now + self.retransmit);
        self.settle_soon();
    }

    /// Starts to resolve an unknown neighbour, if the origin of `packet` may have one more.
    fn ask_for(&mut self, address: IpAddr, packet: &Packet, now: Duration) -> Result<u32, Reason> {
        let origin = self.origins.take(packet, address, now).ok_or(RESOLUTION_LIMITED)?;
        let index = self.insert(address, now);
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else {
            self.origins.give_back(origin, true);
            return Err(NEIGHBOURS_FULL);
        };
        (entry.solicited, entry.origin) = (1, origin);
        self.outputs.push_back(NeighbourOutput::Solicit { address, to: None });
        let index = index.ok_or(NEIGHBOURS_FULL)?;
        self.arm(index, now + self.retransmit);
        Ok(index)
    }

    /// Handles an advertisement of the neighbour at `address` about itself (RFC 4861 §7.2.5).
    pub fn advertised(&mut self, address: IpAddr, said: Advertised, now: Duration) {
        let Some(index) = self.entries.find(address) else { return };
        let reachable_until = now + self.jittered(self.reachable);
        let Some(entry) = self.entries.get_mut(index) else { return };
        let differs = said.link_address.is_some_and(|said| said != entry.link_address);
        let was_incomplete = entry.state == State::Incomplete;
        match entry.state {
            State::Permanent | State::Vacant => return,
            State::Incomplete if said.link_address.is_none() => return,
            State::Incomplete => {}
            _ if !said.overrides && differs => {
                if entry.state == State::Known {
                    entry.fresh_until = Duration::ZERO;
                    self.changed(index);
                }
                return;
            }
            _ => {}
        }
        let was_router = std::mem::replace(&mut entry.router, said.router);
        entry.link_address = said.link_address.unwrap_or(entry.link_address);
        if said.solicited {
            entry.confirmed = true;
            entry.known(reachable_until);
        } else if differs || was_incomplete {
            entry.known(Duration::ZERO);
        }
        if was_router && !said.router {
            self.outputs.push_back(NeighbourOutput::RouterGone(address));
        }
        self.settled(index, was_incomplete);
    }

    /// Whether a neighbour is being solicited, so that an answer of it is expected.
    pub fn is_solicited(&self, address: IpAddr) -> bool {
        let entry = self.entries.find(address).and_then(|index| self.entries.get(index));
        entry.is_some_and(|entry| matches!(entry.state, State::Incomplete | State::Probe))
    }

    /// Learns the address of a neighbour from another message: a request for our address, or for a
    /// router (RFC 4861 §7.2.3). An unknown one is added if `add` is set.
    pub fn heard(&mut self, address: IpAddr, link_address: LinkAddress, add: bool, now: Duration) {
        let found = self.entries.find(address);
        let is_new = found.is_none();
        let found = if add { found.or_else(|| self.insert(address, now)) } else { found };
        let Some(index) = found else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let was_incomplete = entry.state == State::Incomplete;
        if (entry.link_address != link_address || was_incomplete) && entry.state != State::Permanent
        {
            entry.link_address = link_address;
            entry.confirmed = false;
            entry.known(Duration::ZERO);
            self.settled(index, was_incomplete && !is_new);
        }
    }

    /// Confirms that the neighbour receives our packets, as an upper-layer answer has shown (RFC
    /// 4861 §7.3.1).
    pub fn confirm(&mut self, address: IpAddr, now: Duration) {
        let Some(index) = self.entries.find(address) else { return };
        let reachable_until = now + self.jittered(self.reachable);
        let Some(entry) = self.entries.get_mut(index) else { return };
        if matches!(entry.state, State::Known | State::Delay | State::Probe) {
            entry.known(reachable_until);
            self.settled(index, false);
        }
    }

    /// Marks the neighbour as a router; its loss is reported as [`NeighbourOutput::RouterGone`].
    pub fn set_router(&mut self, address: IpAddr, router: bool) {
        let index = self.entries.find(address);
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.router = router;
        }
    }

    /// Sets a neighbour that is neither solicited nor forgotten; `false` if there is no room.
    pub fn set_permanent(&mut self, address: IpAddr, link_address: LinkAddress) -> bool {
        let Some((index, was_asked)) = self.find_or_insert(address, Duration::ZERO) else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(index) else { return false };
        entry.link_address = link_address;
        entry.confirmed = true;
        entry.known(NEVER);
        entry.state = State::Permanent;
        self.settled(index, was_asked);
        true
    }

    /// Sets the kernel's state of a neighbour, on links where the kernel resolves: `fresh`, or
    /// known but not confirmed for a while. Returns `false` if there is no room.
    ///
    /// A neighbour used while not fresh is solicited from time to time, and stays valid until the
    /// kernel reports otherwise: the kernel takes its own time to find out.
    pub fn kept_elsewhere(
        &mut self,
        address: IpAddr,
        link_address: LinkAddress,
        fresh: bool,
        now: Duration,
    ) -> bool {
        let Some((index, was_asked)) = self.find_or_insert(address, now) else { return false };
        let Some(entry) = self.entries.get_mut(index) else { return false };
        (entry.link_address, entry.confirmed, entry.kept_elsewhere) = (link_address, true, true);
        entry.known(if fresh { NEVER } else { Duration::ZERO });
        self.settled(index, was_asked);
        self.settle_soon();
        true
    }

    /// Forgets a neighbour, and makes the consequences due soon.
    pub fn gone_elsewhere(&mut self, address: IpAddr) {
        self.remove(address);
        self.settle_soon();
    }

    /// Makes the owner of the cache look for outputs at once.
    fn settle_soon(&mut self) {
        self.urgent |= !self.outputs.is_empty();
    }

    /// Forgets a neighbour; packets that wait for it are unreachable.
    pub fn remove(&mut self, address: IpAddr) {
        if let Some(index) = self.entries.find(address) {
            self.forget(index);
        }
    }

    /// Forgets all but the permanent ones, as when the link went down.
    pub fn clear(&mut self) {
        for index in 0..self.entries.places() {
            let known = self.entries.get(index).map(|entry| entry.state);
            if known.is_some_and(|state| !matches!(state, State::Vacant | State::Permanent)) {
                self.forget(index);
            }
        }
    }

    /// The number of neighbours.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether packets wait for a neighbour's answer.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The neighbours as they are at `now`.
    pub fn iter(
        &self,
        now: Duration,
    ) -> impl Iterator<Item = (IpAddr, LinkAddress, NeighbourState)> + '_ {
        self.entries.iter().filter_map(move |entry| status(entry, now))
    }

    /// The neighbour at `address` as it is at `now`.
    pub fn get(&self, address: IpAddr, now: Duration) -> Option<(LinkAddress, NeighbourState)> {
        let entry = self.entries.get(self.entries.find(address)?)?;
        status(entry, now).map(|(_, link_address, state)| (link_address, state))
    }

    /// The neighbours at a number of places from `first` on, and the next place; `None` after the
    /// last. So all are read in pieces, while they change.
    pub fn part(
        &self,
        first: u32,
        places: u32,
        now: Duration,
    ) -> (Vec<(IpAddr, LinkAddress, NeighbourState)>, Option<u32>) {
        let end = first.saturating_add(places);
        let part = (first..end.min(self.entries.places()))
            .filter_map(|index| status(self.entries.get(index)?, now))
            .collect();
        (part, (end < self.entries.places()).then_some(end))
    }

    /// Keeps a journal of changed neighbours from now on, for [`Self::take_changed`].
    pub fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// Neighbours added, changed or removed since the last call; `None` if there are more than the
    /// journal holds, or there is no journal.
    pub fn take_changed(&mut self) -> Option<Vec<IpAddr>> {
        let changed = std::mem::take(self.journal.as_mut()?);
        for address in &changed {
            let index = self.entries.find(*address);
            if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
                entry.noted = false;
            }
        }
        (changed.len() < JOURNAL_MAX).then_some(changed)
    }

    /// The next action.
    pub fn poll_output(&mut self) -> Option<NeighbourOutput> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.urgent {
            return Some(Duration::ZERO);
        }
        self.alarms.peek().map(|Reverse((at, _))| *at)
    }

    /// Performs the steps that are due (RFC 4861 §7.3.3).
    pub fn handle_timeout(&mut self, now: Duration) {
        self.urgent = false;
        while let Some(&Reverse((at, index))) = self.alarms.peek()
            && at <= now
        {
            self.alarms.pop();
            let Some(entry) = self.entries.get_mut(index) else { continue };
            // One that was set before an earlier one.
            if entry.alarm != at {
                continue;
            }
            entry.alarm = NEVER;
            let due = entry.due;
            if due <= now {
                self.step(index, now);
            } else if due != NEVER {
                self.arm(index, due);
            }
        }
    }

    fn step(&mut self, index: u32, now: Duration) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if entry.solicited >= SOLICITATIONS_MAX {
            self.forget(index);
            return;
        }
        let to = match entry.state {
            State::Incomplete => None,
            State::Delay | State::Probe => Some(entry.link_address),
            State::Vacant | State::Known | State::Permanent => return,
        };
        let address = entry.address;
        if to.is_some() && entry.kept_elsewhere {
            entry.known(Duration::ZERO);
            self.settled(index, false);
            self.outputs.push_back(NeighbourOutput::Solicit { address, to });
            return;
        }
        if to.is_some() {
            entry.state = State::Probe;
        }
        entry.solicited += 1;
        self.entries.queue(index);
        self.outputs.push_back(NeighbourOutput::Solicit { address, to });
        self.arm(index, now + self.retransmit);
    }

    fn arm(&mut self, index: u32, due: Duration) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.due = due;
            if due < entry.alarm {
                entry.alarm = due;
                self.alarms.push(Reverse((due, index)));
            }
        }
    }

    /// Makes `packet` wait. If too many wait already, the neighbour's own oldest packet gives way
    /// (RFC 4861 §7.2.2), or the oldest of all to the first packet for its neighbour. So many
    /// packets for a few silent neighbours do not displace those of others.
    fn enqueue(&mut self, index: u32, packet: Packet) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        let gone = if entry.waiting >= WAITING_PER_NEIGHBOUR_MAX {
            self.waiting.iter().position(|&(of, _)| of == index)
        } else if self.waiting.len() < WAITING_MAX {
            None
        } else if entry.waiting == 0 {
            Some(0)
        } else {
            return self.outputs.push_back(NeighbourOutput::Drop(WAITING_FULL, packet));
        };
        entry.waiting += 1;
        if let Some((of, packet)) = gone.and_then(|position| self.waiting.remove(position)) {
            if let Some(entry) = self.entries.get_mut(of) {
                entry.waiting -= 1;
            }
            self.outputs.push_back(NeighbourOutput::Drop(WAITING_FULL, packet));
        }
        self.waiting.push_back((index, packet));
    }

    fn let_go(&mut self, index: u32, how: impl Fn(Packet) -> NeighbourOutput) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if std::mem::take(&mut entry.waiting) == 0 {
            return;
        }
        for _ in 0..self.waiting.len() {
            match self.waiting.pop_front() {
                Some((of, packet)) if of == index => self.outputs.push_back(how(packet)),
                Some(other) => self.waiting.push_back(other),
                None => return,
            }
        }
    }

    /// The entry of `address`, created if needed, and whether it is being resolved.
    fn find_or_insert(&mut self, address: IpAddr, now: Duration) -> Option<(u32, bool)> {
        if let Some(index) = self.entries.find(address) {
            let was_asked = self.entries.get(index)?.state == State::Incomplete;
            return Some((index, was_asked));
        }
        self.insert(address, now).map(|index| (index, false))
    }

    /// Creates an entry for an address that has none; an older one gives way if there are too many.
    fn insert(&mut self, address: IpAddr, now: Duration) -> Option<u32> {
        if u32::try_from(self.entries.len()).is_ok_and(|len| len >= self.limits.neighbours) {
            let victim = self.victim(now)?;
            self.let_go(victim, |packet| NeighbourOutput::Drop(NEIGHBOUR_EVICTED, packet));
            self.forget(victim);
            self.outputs.push_back(NeighbourOutput::Count(NEIGHBOUR_EVICTED));
        }
        self.entries.insert(address)
    }

    /// The entry that gives way to a new neighbour. Entries in use never do, so no flood displaces
    /// them.
    fn victim(&self, now: Duration) -> Option<u32> {
        let stale =
            |index: &u32| self.entries.get(*index).is_some_and(|entry| entry.fresh_until <= now);
        let idle = || self.entries.first(Queue::Idle).filter(stale);
        (self.entries.first(Queue::Unconfirmed))
            .or_else(idle)
            .or_else(|| self.entries.first(Queue::Incomplete))
    }

    /// Records a new address of an entry; it was being resolved until now if `was_asked`.
    fn settled(&mut self, index: u32, was_asked: bool) {
        if was_asked && let Some(entry) = self.entries.get(index) {
            self.origins.give_back(entry.origin, true);
        }
        self.entries.queue(index);
        self.changed(index);
        self.let_go(index, NeighbourOutput::Send);
    }

    fn changed(&mut self, index: u32) {
        self.changes = self.changes.wrapping_add(1);
        if let Some(journal) = &mut self.journal
            && let Some(entry) = self.entries.get_mut(index)
            && !std::mem::replace(&mut entry.noted, true)
            && journal.len() < JOURNAL_MAX
        {
            journal.push(entry.address);
        }
    }

    /// Removes the entry; packets that wait for it are unreachable.
    fn forget(&mut self, index: u32) {
        let Some(entry) = self.entries.get(index) else { return };
        let (address, router, origin) = (entry.address, entry.router, entry.origin);
        if entry.state == State::Incomplete {
            // Nobody has seen its address, and so nothing changes for anybody.
            self.origins.give_back(origin, false);
        } else {
            self.changed(index);
        }
        self.let_go(index, NeighbourOutput::Unreachable);
        self.entries.remove(index);
        if router {
            self.outputs.push_back(NeighbourOutput::RouterGone(address));
        }
    }

    /// Between half and one and a half of `time` (RFC 4861 §6.3.2).
    fn jittered(&mut self, time: Duration) -> Duration {
        self.random.between(time / 2, time + time / 2)
    }
}

/// The public state of an entry at `now`.
fn status(entry: &Entry, now: Duration) -> Option<(IpAddr, LinkAddress, NeighbourState)> {
    let state = match entry.state {
        State::Vacant => return None,
        State::Incomplete => NeighbourState::Incomplete,
        State::Known if now < entry.fresh_until => NeighbourState::Reachable,
        State::Known => NeighbourState::Stale,
        State::Delay => NeighbourState::Delay,
        State::Probe => NeighbourState::Probe,
        State::Permanent => NeighbourState::Permanent,
    };
    Some((entry.address, entry.link_address, state))
}

/// Limits on the times that a router may set, against one that would stop or flood us: an hour is
/// the longest reachable time of RFC 4861 §6.2.1, and three solicitations are to end before a user
/// gives up.
const TIME_MIN: Duration = Duration::from_millis(100);
const REACHABLE_MAX: Duration = Duration::from_hours(1);
const RETRANSMIT_MAX: Duration = Duration::from_secs(10);

/// A link's neighbours of one family, shared by the layers of one worker: the link layer looks them
/// up, ARP or neighbour discovery keeps them.
#[derive(Clone, Debug)]
pub struct SharedNeighbours(Rc<RefCell<Neighbours>>);

impl SharedNeighbours {
    /// An empty cache; `random` as for [`Neighbours::new`].
    pub fn new(random: u64, limits: NeighbourLimits) -> Self {
        Self(Rc::new(RefCell::new(Neighbours::with_limits(random, limits))))
    }

    /// The cache, for one call of one layer: the graph never runs two at once.
    pub fn borrow_mut(&self) -> RefMut<'_, Neighbours> {
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
    pub fn new(link: LinkIndex, random: u64, limits: NeighbourLimits) -> Self {
        let v4 = SharedNeighbours::new(random, limits);
        Self { link, v4, v6: SharedNeighbours::new(!random, limits) }
    }
}

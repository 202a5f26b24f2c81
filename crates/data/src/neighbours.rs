//! The neighbours of a worker, in its layers' caches and in tables.
//!
//! There are two tables with one writer each. The worker writes `neighbours`: the content of its
//! caches, some times a second and at each request. The control side writes `permanent`: neighbours
//! that were set, which the worker puts into its caches.

use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{Event, LinkNeighbours, NeighbourState};
use gatewright_tables::{
    Map, MapWriter,
    records::{self, Neighbour, NeighbourKey},
};
use std::{collections::HashSet, net::IpAddr, time::Duration};

/// The worker's side.
pub(crate) struct Neighbourhood {
    caches: Vec<LinkNeighbours>,
    learnt: Option<LearntTable>,
    permanent: Map<NeighbourKey, Neighbour>,
    /// The version of `permanent` when it was last read.
    seen: u32,
    /// The version of the caches when other workers were last told, and the time of that.
    told: (u32, Duration),
    /// The cache that is being looked through, and the next place in it.
    sweep: (usize, u32),
}

/// Cache places that are looked through at a time. Changes by time alone are written down so,
/// without a pause that packets would feel.
const SWEEP_PLACES: u32 = 4096;

/// Interval at which changed neighbours are written down for other workers. Their packets for an
/// unknown neighbour come by the first worker.
const TELL_EVERY: Duration = Duration::from_millis(5);

/// Selects the neighbours that a worker is to forget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forget {
    /// Only those of this link.
    pub link: Option<LinkIndex>,
    /// Only this address.
    pub address: Option<IpAddr>,
}

/// A neighbour update for a worker: its link-layer address and whether it is fresh; `None` if it is
/// gone.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourUpdate {
    /// The link.
    pub link: LinkIndex,
    /// The neighbour's address.
    pub address: IpAddr,
    /// Its link-layer address, and whether that is fresh.
    pub station: Option<(LinkAddress, bool)>,
}

impl Neighbourhood {
    /// Creates it for the caches that a worker's layers share.
    pub(crate) fn new(
        caches: Vec<LinkNeighbours>,
        learnt: Option<MapWriter<NeighbourKey, Neighbour>>,
        permanent: Map<NeighbourKey, Neighbour>,
        reports: bool,
    ) -> Self {
        let news = reports.then(Vec::new);
        let learnt = learnt.map(|writer| LearntTable { writer, news });
        for cache in caches.iter().filter(|_| learnt.is_some()) {
            cache.v4.borrow_mut().keep_journal();
            cache.v6.borrow_mut().keep_journal();
        }
        let (told, sweep) = ((0, Duration::ZERO), (0, 0));
        Self { caches, learnt, permanent, seen: 0, told, sweep }
    }

    /// Puts neighbours that an earlier data plane has written down into the caches. They are used, and
    /// asked whether they are still there (stale, RFC 4861 §7.3.2); those of links that are not `own`
    /// by the kernel, which resolves them.
    pub(crate) fn remember(&mut self, own: &[LinkIndex], now: Duration) {
        let found = self.learnt.as_mut().map(|learnt| learnt.writer.take_found());
        for (NeighbourKey { link, address }, record) in found.unwrap_or_default() {
            let is_learnt =
                !record.address.is_none() && record.state != records::NeighbourState::Permanent;
            let of = self.caches.iter().find(|of| of.link.0 == link).filter(|_| is_learnt);
            let Some(of) = of else { continue };
            let cache = if address.is_ipv4() { &of.v4 } else { &of.v6 };
            if own.contains(&LinkIndex(link)) {
                cache.borrow_mut().heard(address, record.address, true, now);
            } else {
                // Without room it is asked for like a new one.
                let _full = !cache.borrow_mut().kept_elsewhere(address, record.address, false, now);
            }
        }
    }

    /// Writes changes down at once, where others follow them.
    pub(crate) fn tell(&mut self, now: Duration) {
        if self.learnt.is_none() || now.saturating_sub(self.told.1) < TELL_EVERY {
            return;
        }
        let changes = self.changes();
        if changes != self.told.0 {
            self.told = (changes, now);
            self.write_changed(now);
        }
    }

    /// Takes the events of records that have changed, where programs in the kernel follow them.
    pub(crate) fn take_news(&mut self) -> Vec<Event> {
        let news = self.learnt.as_mut().and_then(|learnt| learnt.news.as_mut());
        let Some(news) = news.filter(|news| !news.is_empty()) else { return Vec::new() };
        if news.len() > NEWS_MAX {
            news.clear();
            return vec![Event::Neighbour { link: LinkIndex::NONE, address: None }];
        }
        let event = |NeighbourKey { link, address }| Event::Neighbour {
            link: LinkIndex(link),
            address: Some(address),
        };
        news.drain(..).map(event).collect()
    }

    /// When changes that are not written down yet are due, if there are any.
    pub(crate) fn tells_at(&self) -> Option<Duration> {
        let is_due = self.learnt.is_some() && self.changes() != self.told.0;
        is_due.then(|| self.told.1 + TELL_EVERY)
    }

    /// A number that changes when a cache does.
    fn changes(&self) -> u32 {
        let changes = |of: &LinkNeighbours| {
            of.v4.borrow_mut().changes().wrapping_add(of.v6.borrow_mut().changes())
        };
        self.caches.iter().map(changes).fold(0, u32::wrapping_add)
    }

    /// Whether packets wait for a neighbour's answer.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |of: &LinkNeighbours| {
            of.v4.borrow_mut().is_waiting() || of.v6.borrow_mut().is_waiting()
        };
        self.caches.iter().any(waits)
    }

    /// Takes newly set neighbours, writes down changes, and looks through a part of the caches.
    pub(crate) fn look(&mut self, now: Duration) {
        self.take_set();
        self.write_changed(now);
        let Some(learnt) = &mut self.learnt else { return };
        let caches: Vec<_> =
            (self.caches.iter()).flat_map(|of| [(of.link, &of.v4), (of.link, &of.v6)]).collect();
        let mut left = SWEEP_PLACES;
        // Each cache once at the most, the last one perhaps in part.
        for _ in 0..caches.len() {
            let (number, place) = self.sweep;
            let Some(&(link, cache)) = caches.get(number) else {
                self.sweep = (0, 0);
                continue;
            };
            let (part, next) = cache.borrow_mut().part(place, left, now);
            left = left.saturating_sub(u32::try_from(part.len()).unwrap_or(left));
            for (address, station, state) in part {
                // One that is asked for is no news for others.
                if state != NeighbourState::Incomplete {
                    learnt.write(link, address, Some((station, state)));
                }
            }
            if let Some(place) = next {
                self.sweep = (number, place);
                return;
            }
            self.sweep = ((number + 1) % caches.len(), 0);
        }
    }

    fn take_set(&mut self) {
        let changes = self.permanent.changes();
        if changes != self.seen && self.take_permanent() {
            self.seen = changes;
        }
    }

    /// Writes down the changes since the last time.
    fn write_changed(&mut self, now: Duration) {
        let Some(learnt) = &mut self.learnt else { return };
        let mut all_told = true;
        for of in &self.caches {
            for cache in [&of.v4, &of.v6] {
                let mut cache = cache.borrow_mut();
                let Some(changed) = cache.take_changed() else {
                    all_told = false;
                    continue;
                };
                for address in changed {
                    learnt.write(of.link, address, cache.get(address, now));
                }
            }
        }
        if !all_told {
            self.look_at_all(now);
        }
    }

    /// Asks whether a neighbour is still there, because another worker or a driver uses it and it is
    /// not fresh.
    pub(crate) fn used(&self, link: LinkIndex, address: IpAddr, now: Duration) {
        if let Some(of) = self.caches.iter().find(|known| known.link == link) {
            let cache = if address.is_ipv4() { &of.v4 } else { &of.v6 };
            let mut cache = cache.borrow_mut();
            // The answer is in the table, or comes there.
            if cache.resolve(address, now).is_none() {
                cache.solicit(address, now);
            }
        }
    }

    /// Takes newly set neighbours, and writes down all that is known.
    pub(crate) fn look_at_all(&mut self, now: Duration) {
        self.take_set();
        let Some(learnt) = &mut self.learnt else { return };
        let mut count = 0;
        for cache in &self.caches {
            for (address, record) in known(cache, now) {
                count += 1;
                let key = NeighbourKey { link: cache.link.0, address };
                learnt.set(key, record);
            }
        }
        if learnt.writer.len() > count {
            forget_others(&self.caches, learnt, now);
        }
    }

    /// Puts neighbours that were set into the caches and removes those no longer set; returns
    /// whether all could be read.
    fn take_permanent(&self) -> bool {
        let set: Result<Vec<_>, _> = self.permanent.iter().collect();
        let Ok(set) = set else { return false };
        for of in &self.caches {
            for cache in [&of.v4, &of.v6] {
                let mut cache = cache.borrow_mut();
                let wanted = |address| {
                    set.iter().any(|(key, _)| key.link == of.link.0 && key.address == address)
                };
                let gone: Vec<IpAddr> = (cache.iter(Duration::MAX))
                    .filter(|(address, _, state)| {
                        *state == NeighbourState::Permanent && !wanted(*address)
                    })
                    .map(|(address, ..)| address)
                    .collect();
                for address in gone {
                    cache.remove(address);
                }
            }
        }
        for (NeighbourKey { link, address }, record) in &set {
            let of = self.caches.iter().find(|of| of.link.0 == *link);
            if let Some(of) = of.filter(|_| !record.address.is_none()) {
                let mut cache =
                    if address.is_ipv4() { of.v4.borrow_mut() } else { of.v6.borrow_mut() };
                // A cache that is full of the living has no place; it is not listed then.
                let _full = cache.set_permanent(*address, record.address);
            }
        }
        true
    }

    /// Forgets the learnt neighbours that `which` selects.
    pub(crate) fn forget(&mut self, which: Forget, now: Duration) {
        for of in &self.caches {
            if which.link.is_some_and(|link| link != of.link) {
                continue;
            }
            for cache in [&of.v4, &of.v6] {
                let mut cache = cache.borrow_mut();
                let gone: Vec<IpAddr> = (cache.iter(now))
                    .filter(|(address, _, state)| {
                        *state != NeighbourState::Permanent
                            && which.address.is_none_or(|meant| meant == *address)
                    })
                    .map(|(address, ..)| address)
                    .collect();
                for address in gone {
                    cache.remove(address);
                }
            }
        }
    }

    /// Takes the kernel's report on a neighbour.
    pub(crate) fn learn(&self, update: &NeighbourUpdate, now: Duration) {
        let Some(of) = self.caches.iter().find(|known| known.link == update.link) else { return };
        let mut cache =
            if update.address.is_ipv4() { of.v4.borrow_mut() } else { of.v6.borrow_mut() };
        match update.station {
            // A cache that is full of the living leaves the neighbour unknown; packets for it say so.
            Some((station, fresh)) => {
                let _full = cache.kept_elsewhere(update.address, station, fresh, now);
            }
            None => cache.gone_elsewhere(update.address),
        }
    }
}

/// The table of learnt neighbours, and which of its records have changed.
struct LearntTable {
    writer: MapWriter<NeighbourKey, Neighbour>,
    /// Changed records, for whoever follows them; one more than [`NEWS_MAX`] stands for any.
    news: Option<Vec<NeighbourKey>>,
}

/// Maximum changed records that are reported one by one.
const NEWS_MAX: usize = 1024;

impl LearntTable {
    /// Writes down the state of a neighbour, or that it is gone.
    fn write(
        &mut self,
        link: LinkIndex,
        address: IpAddr,
        known: Option<(LinkAddress, NeighbourState)>,
    ) {
        let key = NeighbourKey { link: link.0, address };
        match known.map(|(station, state)| record(station, state)) {
            None => self.remove(key),
            Some(record) => self.set(key, record),
        }
    }

    fn set(&mut self, key: NeighbourKey, record: Neighbour) {
        if self.writer.get(&key) != Some(record) {
            // What does not fit is counted there, and cannot be listed.
            let _full = self.writer.set(&key, &record);
            self.note(key);
        }
    }

    fn remove(&mut self, key: NeighbourKey) {
        if self.writer.remove(&key) {
            self.note(key);
        }
    }

    fn note(&mut self, key: NeighbourKey) {
        if let Some(news) = self.news.as_mut().filter(|news| news.len() <= NEWS_MAX) {
            news.push(key);
        }
    }
}

/// A neighbour as a table record.
fn record(station: LinkAddress, state: NeighbourState) -> Neighbour {
    let is_known = state != NeighbourState::Incomplete;
    let address = if is_known { station } else { LinkAddress::NONE };
    let state = match state {
        NeighbourState::Incomplete => records::NeighbourState::Incomplete,
        NeighbourState::Reachable => records::NeighbourState::Reachable,
        NeighbourState::Stale => records::NeighbourState::Stale,
        NeighbourState::Delay => records::NeighbourState::Delay,
        NeighbourState::Probe => records::NeighbourState::Probe,
        NeighbourState::Permanent => records::NeighbourState::Permanent,
    };
    Neighbour { address, state, router: false }
}

/// The neighbours in both caches of a link.
fn known(of: &LinkNeighbours, now: Duration) -> Vec<(IpAddr, Neighbour)> {
    let of_both = [&of.v4, &of.v6];
    let known = |(address, station, state)| (address, record(station, state));
    of_both
        .into_iter()
        .flat_map(|cache| cache.borrow_mut().iter(now).map(known).collect::<Vec<_>>())
        .collect()
}

/// Removes from the table the neighbours that no cache has any more.
fn forget_others(caches: &[LinkNeighbours], learnt: &mut LearntTable, now: Duration) {
    let keys: HashSet<NeighbourKey> = (caches.iter())
        .flat_map(|of| {
            let key = |(address, _)| NeighbourKey { link: of.link.0, address };
            known(of, now).into_iter().map(key).collect::<Vec<_>>()
        })
        .collect();
    let gone: Vec<_> =
        learnt.writer.iter().map(|(key, _)| key).filter(|key| !keys.contains(key)).collect();
    for key in gone {
        learnt.remove(key);
    }
}

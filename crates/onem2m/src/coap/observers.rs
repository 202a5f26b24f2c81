//! Observers, and how many there may be.
//!
//! A registration is one datagram, whose sender may be forged. So an observer counts as real only
//! when it has acknowledged a notification, and until then it can lose its place to a newer one. The
//! first to lose it have been sent a notification again: a peer that is there would have answered.

use super::blocks::Key;
use super::{AskId, CoapMessage, Limits};
use crate::prefix::network;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

/// An observer.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) from: SocketAddr,
    pub(super) token: Vec<u8>,
    pub(super) key: Key,
    pub(super) size: usize,
    /// Number of the last notification, of which the low 24 bits are sent.
    pub(super) sequence: u64,
    /// Message identifier of the last notification, if it is unacknowledged.
    pub(super) flight: Option<u16>,
    /// The next notification.
    pub(super) next: Option<CoapMessage>,
}

/// As many observers as there may be.
#[derive(Debug)]
pub(super) struct Full;

/// The observers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Observers {
    by_id: HashMap<AskId, Observer>,
    /// Those of one address, or of one IPv6 network of 64 bits.
    by_network: HashMap<IpAddr, BTreeSet<AskId>>,
    /// Those that have acknowledged nothing yet; the oldest is first.
    unconfirmed: BTreeSet<AskId>,
    /// Of [`Self::unconfirmed`], those whose notification was retransmitted.
    silent: BTreeSet<AskId>,
}

impl Observers {
    pub(super) fn get_mut(&mut self, id: AskId) -> Option<&mut Observer> {
        self.by_id.get_mut(&id)
    }

    /// The observer at this address with this token, and its last number.
    pub(super) fn find(&self, from: SocketAddr, token: &[u8]) -> Option<(AskId, u64)> {
        let ids = self.by_network.get(&network(from.ip()))?;
        let known = ids.iter().filter_map(|id| Some((*id, self.by_id.get(id)?)));
        let mut same = known.filter(|(_, it)| it.from == from && it.token == token);
        same.next().map(|(id, it)| (id, it.sequence))
    }

    /// Whose place an observer at `from` takes: that of nobody, or of one that has acknowledged nothing;
    /// of those, the oldest whose notification was retransmitted, or else the oldest.
    ///
    /// # Errors
    ///
    /// [`Full`] if all of its address, or all, have acknowledged something.
    pub(super) fn room_for(
        &self,
        from: SocketAddr,
        limits: &Limits,
    ) -> Result<Option<AskId>, Full> {
        let of_network = self.by_network.get(&network(from.ip()));
        if let Some(ids) = of_network.filter(|ids| ids.len() >= limits.observers_per_peer) {
            let unconfirmed = ids.iter().filter(|id| self.unconfirmed.contains(id));
            let first = unconfirmed.min_by_key(|id| (!self.silent.contains(id), **id));
            return first.copied().map(Some).ok_or(Full);
        }
        let first = self.silent.first().or_else(|| self.unconfirmed.first()).copied();
        if self.unconfirmed.len() >= limits.observers_unconfirmed {
            return Ok(first);
        }
        if self.by_id.len() >= limits.observers {
            return first.map(Some).ok_or(Full);
        }
        Ok(None)
    }

    /// Records that the notification of an observer was retransmitted. One that has acknowledged an
    /// earlier notification keeps its place: a lost datagram must not give it to a forged address.
    pub(super) fn retransmitted(&mut self, id: AskId) {
        if self.unconfirmed.contains(&id) {
            self.silent.insert(id);
        }
    }

    pub(super) fn add(&mut self, id: AskId, observer: Observer) {
        self.by_network.entry(network(observer.from.ip())).or_default().insert(id);
        self.unconfirmed.insert(id);
        self.by_id.insert(id, observer);
    }

    pub(super) fn remove(&mut self, id: AskId) -> Option<Observer> {
        let observer = self.by_id.remove(&id)?;
        self.unconfirmed.remove(&id);
        self.silent.remove(&id);
        let address = network(observer.from.ip());
        if let Some(ids) = self.by_network.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_network.remove(&address);
            }
        }
        Some(observer)
    }

    /// Records that an observer has acknowledged its last notification, if it is there.
    pub(super) fn confirm(&mut self, id: AskId) -> Option<&mut Observer> {
        let observer = self.by_id.get_mut(&id)?;
        observer.flight = None;
        self.unconfirmed.remove(&id);
        self.silent.remove(&id);
        Some(observer)
    }
}

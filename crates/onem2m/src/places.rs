//! Places that resources take up: of the whole tree, of the branch in which they are, and of the peer
//! that made them; those of answers to non-blocking requests, of the node that has asked.

use std::collections::HashMap;
use std::sync::Arc;

/// What the places of a resource count toward, beside the whole tree.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Account {
    /// The child of the root that it is or lies below, by number; none is the root's.
    pub(crate) branch: Option<u64>,
    /// The peer that made it, or what it lies below; none is this process.
    pub(crate) peer: Option<Arc<str>>,
}

impl Account {
    /// The peer, if all that it makes has one bound: a CSE with a certificate, whose name begins with a
    /// slash, has none.
    fn bounded_peer(&self) -> Option<&Arc<str>> {
        self.peer.as_ref().filter(|peer| !peer.starts_with('/'))
    }
}

/// The most places of each kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PlacesMax {
    pub(crate) all: usize,
    pub(crate) branch: usize,
    pub(crate) peer: usize,
    /// Of all peers together: the rest is for what this process makes.
    pub(crate) peers: usize,
}

/// Which places are too few.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LackingPlaces {
    /// Of the whole tree.
    Tree,
    /// Of all peers.
    Peers,
    /// Of one peer.
    Peer,
    /// Of one branch.
    Branch,
}

/// Places taken up.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By slot.
    of_slots: Vec<u32>,
    of_branches: HashMap<u64, usize>,
    of_peers: HashMap<Arc<str>, usize>,
    peers: usize,
    all: usize,
}

impl Places {
    /// Places of the whole tree.
    pub(crate) const fn all(&self) -> usize {
        self.all
    }

    /// Which places are too few for so many further ones.
    pub(crate) fn lacking(
        &self,
        account: &Account,
        further: usize,
        most: &PlacesMax,
    ) -> Option<LackingPlaces> {
        let is_over = |taken: usize, most: usize| taken.saturating_add(further) > most;
        let of_branch = account.branch.and_then(|branch| self.of_branches.get(&branch));
        let of_peer = account.bounded_peer().map(|peer| self.of_peers.get(peer));
        if is_over(self.all, most.all) {
            Some(LackingPlaces::Tree)
        } else if is_over(of_branch.copied().unwrap_or(0), most.branch) {
            Some(LackingPlaces::Branch)
        } else if of_peer.is_some_and(|it| is_over(it.copied().unwrap_or(0), most.peer)) {
            Some(LackingPlaces::Peer)
        } else if account.peer.is_some() && is_over(self.peers, most.peers) {
            Some(LackingPlaces::Peers)
        } else {
            None
        }
    }

    /// Sets the places of the resource in the slot `at`: of none with 0. Returns those before.
    pub(crate) fn set(&mut self, at: usize, account: &Account, places: usize) -> usize {
        if self.of_slots.len() <= at {
            self.of_slots.resize(at + 1, 0);
        }
        let Some(of_slot) = self.of_slots.get_mut(at) else { return 0 };
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        let before = core::mem::replace(of_slot, places);
        let count = |places: u32| usize::try_from(places).unwrap_or(usize::MAX);
        self.give_up(account, count(before));
        self.take_up(account, count(places));
        count(before)
    }

    /// Empties a slot whose resource goes on without one; returns the places that it has, which stay
    /// counted.
    pub(crate) fn leave_slot(&mut self, at: usize) -> usize {
        let places = self.of_slots.get_mut(at).map_or(0, core::mem::take);
        usize::try_from(places).unwrap_or(usize::MAX)
    }

    /// Adds places of resources that are in no slot.
    pub(crate) fn take_up(&mut self, account: &Account, places: usize) {
        if places == 0 {
            return;
        }
        self.all += places;
        if let Some(branch) = account.branch {
            *self.of_branches.entry(branch).or_default() += places;
        }
        if let Some(peer) = &account.peer {
            self.peers += places;
            match self.of_peers.get_mut(peer) {
                Some(there) => *there += places,
                None => drop(self.of_peers.insert(Arc::clone(peer), places)),
            }
        }
    }

    /// Takes such places away.
    pub(crate) fn give_up(&mut self, account: &Account, places: usize) {
        if places == 0 {
            return;
        }
        self.all = self.all.saturating_sub(places);
        if let Some(branch) = account.branch
            && let Some(there) = self.of_branches.get_mut(&branch)
        {
            *there = there.saturating_sub(places);
            if *there == 0 {
                self.of_branches.remove(&branch);
            }
        }
        if let Some(peer) = &account.peer
            && let Some(there) = self.of_peers.get_mut(peer)
        {
            self.peers = self.peers.saturating_sub(places);
            *there = there.saturating_sub(places);
            if *there == 0 {
                self.of_peers.remove(peer);
            }
        }
    }
}

/// Places of request resources with their answers, by the node that has asked. Each is a branch of its
/// own, so no branch bounds them.
#[derive(Debug, Default)]
pub(crate) struct AnswerPlaces {
    of_nodes: HashMap<Box<str>, usize>,
    all: usize,
}

impl AnswerPlaces {
    /// Places of all.
    pub(crate) const fn all(&self) -> usize {
        self.all
    }

    /// Places of those of one node.
    pub(crate) fn of(&self, node: &str) -> usize {
        self.of_nodes.get(node).copied().unwrap_or(0)
    }

    /// A request resource of `node` takes up `after` places instead of `before`.
    pub(crate) fn exchange(&mut self, node: &str, before: usize, after: usize) {
        self.all = (self.all + after).saturating_sub(before);
        let places = (self.of(node) + after).saturating_sub(before);
        if places == 0 {
            self.of_nodes.remove(node);
        } else {
            self.of_nodes.insert(node.into(), places);
        }
    }
}

//! Places that resources take up: of the whole tree, and of the branch in which they are; those of
//! answers to non-blocking requests, of the node that has asked.

use std::collections::{BTreeMap, HashMap};

/// Places taken up. A branch is a child of the root with everything below it, by the number of that
/// child; the root is in none.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By slot.
    of_slots: Vec<u32>,
    of_branches: BTreeMap<u64, usize>,
    all: usize,
}

impl Places {
    /// Places of the whole tree.
    pub(crate) const fn all(&self) -> usize {
        self.all
    }

    /// Places of a branch.
    pub(crate) fn of_branch(&self, branch: u64) -> usize {
        self.of_branches.get(&branch).copied().unwrap_or(0)
    }

    /// Sets the places of the resource in the slot `at`: of none with 0. Returns those before.
    pub(crate) fn set(&mut self, at: usize, branch: Option<u64>, places: usize) -> usize {
        if self.of_slots.len() <= at {
            self.of_slots.resize(at + 1, 0);
        }
        let Some(of_slot) = self.of_slots.get_mut(at) else { return 0 };
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        let before = core::mem::replace(of_slot, places);
        let count = |places: u32| usize::try_from(places).unwrap_or(usize::MAX);
        self.give_up(branch, count(before));
        self.take_up(branch, count(places));
        count(before)
    }

    /// Adds places of resources that are in no slot.
    pub(crate) fn take_up(&mut self, branch: Option<u64>, places: usize) {
        self.all += places;
        if let Some(branch) = branch
            && places > 0
        {
            *self.of_branches.entry(branch).or_default() += places;
        }
    }

    /// Takes such places away.
    pub(crate) fn give_up(&mut self, branch: Option<u64>, places: usize) {
        self.all = self.all.saturating_sub(places);
        let Some(branch) = branch else { return };
        if let Some(there) = self.of_branches.get_mut(&branch) {
            *there = there.saturating_sub(places);
            if *there == 0 {
                self.of_branches.remove(&branch);
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

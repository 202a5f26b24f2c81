//! Tree walks for discoveries and for results with children: in slices, so that none delays other
//! requests for long, and within a budget of steps and octets.
//!
//! A walk that does not end within its first slice continues at later ticks, between other
//! requests. It keeps its position by resource numbers, which grow and are never reused. A resource
//! that exists from its beginning to its end is found once, with its attributes at the moment of
//! the visit; a resource created or deleted meanwhile may be found or not.
//!
//! Indices keep most walks short: resources with one of the wanted labels are looked up, and of the
//! instances of a container only those of the wanted type and time are visited. The results come in
//! the same order with and without them.

use super::access::{Originator, Right};
use super::{Cse, Done, Refusal, RequestContext};
use crate::filter::{Combine, Filter, Steps, Usage};
use crate::kind::Kind;
use crate::limits::share;
use crate::primitive::Request;
use crate::resource::Resource;
use crate::status::Status;
use crate::tree::Slot;
use core::cell::Cell;
use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

/// Steps for visiting a resource and checking its header.
const VISIT: u64 = 30;
/// Approximate additional steps for checking a right.
const ALLOWED: u64 = 20;
/// Resources with one of the wanted labels that are looked up; if there are more, the tree is
/// walked. They are sorted in one step: 2.4 µs for each in a tree of a million.
const LABELLED_MAX: usize = 1_024;
/// Octets of a resource in a result, beside those of an instance's text.
const RESOURCE_OCTETS: usize = 512;

/// Resources chosen for a result, and where the choice was cut.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) slots: Vec<Slot>,
    pub(super) cut_at: Option<usize>,
}

/// A walk and its position.
#[derive(Debug)]
pub(super) struct Search {
    filter: Filter,
    from: String,
    source: Option<IpAddr>,
    /// Whether a resource was found because of that address.
    by_place: Cell<bool>,
    right: Right,
    /// Whether the result is nested: then only children of chosen resources are chosen.
    nested: bool,
    /// Whether the result contains attributes.
    is_whole: bool,
    steps: Steps,
    most: usize,
    skip: usize,
    skipped: usize,
    octets_left: usize,
    /// What was chosen, and the level that is walked with the one below it, by number.
    chosen: Vec<u64>,
    level: VecDeque<u64>,
    next: VecDeque<u64>,
    depth: usize,
    /// The last child that was passed of the first of the level.
    passed: Option<(bool, u64)>,
    /// Resources with one of the wanted labels that are not yet visited, by number: only these are,
    /// and no levels.
    labelled: Option<VecDeque<u64>>,
    is_cut: bool,
}

/// A request whose walk is not finished.
#[derive(Debug)]
pub(super) struct UnfinishedSearch {
    asker: RequestContext,
    request: Request,
    top: u64,
    rcn: u8,
    search: Search,
    /// Number of its last slice.
    turn: u64,
}

/// Unfinished walks, in the order of their next slices.
#[derive(Debug, Default)]
pub(super) struct Searches {
    waiting: Vec<UnfinishedSearch>,
    /// Slices so far.
    turns: u64,
    /// Steps that all walks together may still take in this step of the machine.
    slice_left: u64,
}

impl Searches {
    /// Begins a step of the machine, in which walks may take so many steps.
    pub(super) const fn begin_step(&mut self, slice: u64) {
        self.slice_left = slice;
    }

    /// Takes the walk that continues next: of the originator whose last slice is the longest ago,
    /// the one of its walks for which that is so, too.
    fn next(&mut self) -> Option<UnfinishedSearch> {
        let mut last: HashMap<&str, u64> = HashMap::new();
        for UnfinishedSearch { asker, turn, .. } in &self.waiting {
            let last = last.entry(&asker.from).or_default();
            *last = (*last).max(*turn);
        }
        let turn_of = |it: &UnfinishedSearch| (last.get(&*it.asker.from).copied(), it.turn);
        let (at, _) = self.waiting.iter().enumerate().min_by_key(|(_, it)| turn_of(it))?;
        Some(self.waiting.swap_remove(at))
    }

    fn push(&mut self, mut waiting: UnfinishedSearch) {
        self.turns += 1;
        waiting.turn = self.turns;
        self.waiting.push(waiting);
    }
}

impl Cse {
    /// A walk below `top` for whom `filter` and `right` hold, in the variant `rcn`. Of what is to be
    /// nested (result contents 4 and 8) only children of others are found: "the originator of the
    /// request will not receive a descendant resource without having received its parents" (TS-0001
    /// §8.1.2).
    fn begin_search(
        &self,
        filter: Filter,
        from: &Originator<'_>,
        top: u64,
        right: Right,
        rcn: u8,
    ) -> Search {
        let limits = &self.config.limits;
        let most = filter.limit.unwrap_or(limits.results).min(limits.results);
        let skip = filter.offset.unwrap_or(1).saturating_sub(1);
        Search {
            filter,
            from: from.to_string(),
            source: from.source(),
            by_place: Cell::new(false),
            right,
            nested: matches!(rcn, 4 | 8),
            is_whole: matches!(rcn, 4 | 8),
            steps: self.steps(),
            most,
            skip,
            skipped: skip,
            octets_left: limits.answer_octets,
            chosen: Vec::new(),
            level: VecDeque::from([top]),
            next: VecDeque::new(),
            depth: 1,
            passed: None,
            labelled: None,
            is_cut: false,
        }
    }

    /// Has the walk visit only the resources with one of the wanted labels, if these are few and
    /// nothing else can match. They are visited in the order of the levels.
    fn narrow(&self, search: &mut Search, top: Slot) -> Result<(), Refusal> {
        let Filter { labels, operation, .. } = &search.filter;
        if search.nested || labels.is_empty() || *operation != Combine::And {
            return Ok(());
        }
        let Some(labelled) = self.tree.labelled(labels, LABELLED_MAX) else { return Ok(()) };
        let mut placed = Vec::new();
        for seq in labelled {
            search.steps.spend(VISIT)?;
            let place = self.tree.by_seq(seq).and_then(|slot| self.tree.place_below(top, slot));
            let is_within = |depth: usize| {
                depth > 0 && search.filter.level.is_none_or(|deepest| depth <= deepest)
            };
            placed.extend(place.filter(|(depth, _)| is_within(*depth)).map(|place| (place, seq)));
        }
        placed.sort_unstable();
        search.labelled = Some(placed.into_iter().map(|(_, seq)| seq).collect());
        Ok(())
    }

    /// Finds everything at once, without slices.
    ///
    /// # Errors
    ///
    /// 5207 if it takes more steps than one request may.
    pub(super) fn choose(
        &mut self,
        filter: &Filter,
        from: &Originator<'_>,
        top: Slot,
        right: Right,
        rcn: u8,
    ) -> Result<Chosen, Refusal> {
        let top_seq = self.resource(top)?.seq;
        let mut search = self.begin_search(filter.clone(), from, top_seq, right, rcn);
        self.narrow(&mut search, top)?;
        self.walk(&mut search, u64::MAX)?;
        if search.by_place.get() {
            from.set_by_place();
        }
        Ok(self.chosen_by(&search))
    }

    /// Answers a request with the resources found below `slot`: now, or later if the walk takes
    /// long.
    ///
    /// # Errors
    ///
    /// 5207 if it takes more than one request may, or too many other walks wait.
    pub(super) fn search(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        (slot, right): (Slot, Right),
        rcn: u8,
    ) -> Result<Option<Done>, Refusal> {
        let filter = request.filter.as_deref().cloned().unwrap_or_default();
        let top = self.resource(slot)?.seq;
        let mut search = self.begin_search(filter, from, top, right, rcn);
        self.narrow(&mut search, slot)?;
        // Whoever is told again and again is told in the step that changed something.
        let slice = if asker.is_repeated { u64::MAX } else { self.searches.slice_left };
        if self.walk(&mut search, slice)? {
            return self.answer_of(asker, request, (slot, rcn), &search).map(Some);
        }
        self.check_searches(asker)?;
        let (asker, request) = (asker.clone(), request.clone());
        self.counters.searches_sliced += 1;
        self.searches.push(UnfinishedSearch { asker, request, top, rcn, search, turn: 0 });
        Ok(None)
    }

    /// Whether one more walk may wait. Members of groups are limited by their groups.
    fn check_searches(&mut self, asker: &RequestContext) -> Result<(), Refusal> {
        let most = self.config.limits.searches;
        let is_member = |asker: &RequestContext| matches!(asker.whom, super::Recipient::Member(..));
        let mut others = self.searches.waiting.iter().filter(|it| !is_member(&it.asker));
        let of_one = others.clone().filter(|it| it.asker.from == asker.from).count();
        if is_member(asker) || (others.by_ref().count() < most && of_one < share(most)) {
            return Ok(());
        }
        self.counters.searches_full += 1;
        let words = "too many discoveries are under way: ask again, or for less of the tree";
        Err(Refusal::new(Status::NotAcceptable, words))
    }

    /// Whether a walk is unfinished.
    pub(super) fn is_searching(&self) -> bool {
        !self.searches.waiting.is_empty()
    }

    /// Continues the next walk by a slice.
    pub(super) fn pursue_searches(&mut self) {
        let Some(mut waiting) = self.searches.next() else { return };
        let walked = self.walk(&mut waiting.search, self.searches.slice_left);
        let outcome = match (walked, self.tree.by_seq(waiting.top)) {
            (Ok(false), Some(_)) => {
                self.searches.push(waiting);
                return;
            }
            (_, None) => Err(super::not_found("the resource is gone")),
            (Err(refusal), _) => Err(refusal),
            (Ok(true), Some(slot)) => {
                self.ledger.see_all();
                let UnfinishedSearch { asker, request, rcn, search, .. } = &waiting;
                self.answer_of(asker, request, (slot, *rcn), search)
            }
        };
        self.answer(&waiting.asker, outcome);
    }

    fn answer_of(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        (slot, rcn): (Slot, u8),
        search: &Search,
    ) -> Result<Done, Refusal> {
        let chosen = self.chosen_by(search);
        let appended = search.filter.appended_path.as_deref();
        let from = search.originator();
        let done = self.result_of(request, &from, (slot, rcn), &chosen, appended)?;
        if search.filter.usage != Some(Usage::Discovery) && matches!(rcn, 4 | 8) {
            self.tell_if_empty(asker, slot);
        }
        Ok(done)
    }

    fn chosen_by(&mut self, search: &Search) -> Chosen {
        let slots = search.chosen.iter().filter_map(|&seq| self.tree.by_seq(seq)).collect();
        self.counters.results_cut += u64::from(search.is_cut);
        let cut_at = search.is_cut.then(|| search.skipped + search.chosen.len());
        Chosen { slots, cut_at }
    }

    /// Continues for about so many steps; returns whether the walk is finished.
    fn walk(&mut self, search: &mut Search, slice: u64) -> Result<bool, Refusal> {
        let until = search.steps.left().saturating_sub(slice);
        let before = search.steps.left();
        let outcome = loop {
            if search.labelled.is_some() {
                break self.walk_labelled(search, until);
            }
            if search.is_cut || search.filter.level.is_some_and(|deepest| search.depth > deepest) {
                break Ok(true);
            }
            if search.is_spent(until) {
                break Ok(false);
            }
            let Some(&parent) = search.level.front() else {
                search.level = core::mem::take(&mut search.next);
                search.depth += 1;
                if search.level.is_empty() {
                    break Ok(true);
                }
                continue;
            };
            match self.walk_family(search, parent, until) {
                Ok(true) => {
                    search.level.pop_front();
                    search.passed = None;
                }
                Ok(false) => break Ok(search.is_cut),
                Err(refusal) => break Err(refusal),
            }
        };
        let spent = before.saturating_sub(search.steps.left());
        self.searches.slice_left = self.searches.slice_left.saturating_sub(spent);
        outcome
    }

    /// Visits the resources with a wanted label; returns whether the walk is finished.
    fn walk_labelled(&self, search: &mut Search, until: u64) -> Result<bool, Refusal> {
        let mut has_passed = false;
        while let Some(seq) = search.labelled.as_ref().and_then(|it| it.front().copied()) {
            if has_passed && search.is_spent(until) {
                return Ok(false);
            }
            has_passed = true;
            search.steps.spend(VISIT)?;
            let found = self.tree.by_seq(seq).and_then(|slot| Some((slot, self.tree.get(slot)?)));
            if let Some((slot, found)) = found
                && !self.judge(search, slot, found)?
            {
                break;
            }
            search.labelled.as_mut().map(VecDeque::pop_front);
        }
        Ok(true)
    }

    /// Takes a resource if it matches and may be seen; returns whether the result has room.
    fn judge(&self, search: &mut Search, slot: Slot, found: &Resource) -> Result<bool, Refusal> {
        let from = Originator::at(&search.from, search.source, &search.by_place);
        if !self.matches(&search.filter, &from, slot, &mut search.steps)? {
            return Ok(true);
        }
        search.steps.spend(ALLOWED)?;
        Ok(!self.allows(&search.originator(), search.right, slot, None)
            || search.take(found, || self.check_shown(slot).is_ok()))
    }

    /// Numbers of the instances below a resource that can match, by their type and the time of
    /// their creation: the first, and the one behind the last.
    fn instances_wanted(&self, filter: &Filter, parent: Slot) -> (u64, u64) {
        if filter.operation != Combine::And {
            return (0, u64::MAX);
        }
        let is_instance = |number: &u16| Kind::from_number(*number).is_none_or(Kind::is_instance);
        if !filter.kinds.is_empty() && !filter.kinds.iter().any(is_instance) {
            return (0, 0);
        }
        // What was never changed was last modified when it was created.
        let since = filter.created_after.max(filter.modified_since);
        let ends = [filter.created_before, filter.unmodified_since];
        let end = ends.into_iter().flatten().min();
        let at = |time| self.tree.first_instance_since(parent, time);
        (since.and_then(at).unwrap_or(0), end.and_then(at).unwrap_or(u64::MAX))
    }

    /// Visits the children of one resource; returns whether all were visited.
    fn walk_family(&self, search: &mut Search, parent: u64, until: u64) -> Result<bool, Refusal> {
        // A parent costs, too: many have no children.
        search.steps.spend(1)?;
        let Some(slot) = self.tree.by_seq(parent) else { return Ok(true) };
        let mut has_passed = false;
        let wanted = self.instances_wanted(&search.filter, slot);
        for (place, child) in self.tree.children_after(slot, search.passed, wanted) {
            // Each slice passes one child at least.
            if has_passed && search.is_spent(until) {
                return Ok(false);
            }
            has_passed = true;
            search.passed = Some(place);
            search.steps.spend(VISIT)?;
            let Some(found) = self.tree.get(child) else { continue };
            let has_children = found.family.is_some();
            if has_children && !search.nested {
                search.next.push_back(found.seq);
            }
            if !self.judge(search, child, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Search {
    /// The originator of its request.
    fn originator(&self) -> Originator<'_> {
        Originator::at(&self.from, self.source, &self.by_place)
    }

    /// Whether the slice is over. Where there are no steps behind it, the next one is refused.
    const fn is_spent(&self, until: u64) -> bool {
        until > 0 && self.steps.left() <= until
    }

    /// Takes what matches, unless the result is full.
    fn take(&mut self, found: &Resource, is_shown: impl FnOnce() -> bool) -> bool {
        let octets = match &found.representation {
            Some(text) if self.is_whole => text.len(),
            _ => RESOURCE_OCTETS,
        };
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.chosen.len() == self.most || self.octets_left < octets {
            self.is_cut = true;
            return false;
        } else if self.right == Right::Discover || is_shown() {
            self.octets_left -= octets;
            self.chosen.push(found.seq);
            if found.family.is_some() && self.nested {
                self.next.push_back(found.seq);
            }
        }
        true
    }
}

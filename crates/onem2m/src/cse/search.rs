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
use super::discover::is_of_own_text;
use super::paging::{NeededRow, READ_ROWS};
use super::{Cse, Done, Refusal, RequestContext, not_found};
use crate::answer_octets::ReservedOctets;
use crate::filter::{Combine, Filter, FilterJudgement, Steps, Usage};
use crate::limits::share;
use crate::paged::InstanceRecord;
use crate::primitive::{PartialContent, Request};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::{Instance, Slot};
use core::cell::Cell;
use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Steps for visiting a resource and checking its header.
const VISIT: u64 = 30;
/// Approximate additional steps for checking a right.
const ALLOWED: u64 = 20;
/// Resources with one of the wanted labels that are looked up; if there are more, the tree is
/// walked. They are sorted in one step: 2.4 µs for each in a tree of a million.
const LABELLED_MAX: usize = 1_024;
/// Instances whose text is read at a time, as a criterion is about it.
const READ_AT_ONCE: usize = 256;
/// Octets of a resource in a result, beside those of an instance's text.
const RESOURCE_OCTETS: usize = 512;

/// Resources chosen for a result, and whether others are missing.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) slots: Vec<Slot>,
    pub(super) partial: Option<PartialContent>,
}

/// What a result is without.
#[derive(Clone, Copy, Debug, Default)]
struct PartialResult {
    /// What the answer has no room for.
    is_cut: bool,
    /// A resource that the originator may see, and on which a criterion costs too much.
    lacks_costly: bool,
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
    /// Whether the result is nested: then it contains attributes, and only children of chosen
    /// resources are chosen.
    nested: bool,
    steps: Steps,
    most: usize,
    skip: usize,
    skipped: usize,
    octets_left: usize,
    chosen: Vec<ChosenResource>,
    /// The level that is walked, and the one below it, by number.
    level: VecDeque<u64>,
    next: VecDeque<u64>,
    depth: usize,
    /// The last child that was passed of the first of the level.
    passed: Option<(bool, u64)>,
    /// Resources with one of the wanted labels that are not yet visited, by number: only these are,
    /// and no levels.
    labelled: Option<VecDeque<u64>>,
    partial: PartialResult,
    /// Instances whose text is needed before the walk continues.
    missing: Vec<NeededRow>,
    /// The texts of instances that are paged out, which the walk judges next, by number.
    texts: Vec<(u64, Arc<str>)>,
    /// Whether the walk passes those by, because it cannot wait: it is made again.
    is_at_once: bool,
    /// The octets of the answer, once the walk is over.
    reserved: Option<ReservedOctets>,
}

/// A chosen resource by number, with its parent: an instance may leave memory before the answer.
#[derive(Clone, Copy, Debug)]
struct ChosenResource {
    seq: u64,
    parent: Option<Slot>,
    is_instance: bool,
    /// Octets that it takes up in the result.
    octets: usize,
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
    /// Whether the walk is over: the text of what was chosen is still to be read.
    is_over: bool,
    /// Whether what was chosen is kept in memory.
    is_pinned: bool,
}

impl UnfinishedSearch {
    /// The originator.
    pub(super) const fn asker(&self) -> &RequestContext {
        &self.asker
    }

    /// Whether it waits for texts to judge, and the instances need not come into memory for it.
    pub(super) fn wants_texts(&self) -> bool {
        !self.is_over && is_of_own_text(&self.search.filter)
    }

    /// Takes the texts of the instances that the walk judges next, in the order of their numbers.
    pub(super) fn take_texts(&mut self, texts: Vec<(u64, Arc<str>)>) {
        self.search.texts = texts;
    }
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
    /// Begins a step of the machine, with a number of steps that walks may take.
    pub(super) const fn begin_step(&mut self, slice: u64) {
        self.slice_left = slice;
    }

    /// Whether the slice of this step of the machine is over after so many steps more, of a walk or
    /// of other work.
    pub(super) const fn is_spent_by(&mut self, steps: u64) -> bool {
        self.slice_left = self.slice_left.saturating_sub(steps);
        self.slice_left == 0
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
            partial: PartialResult::default(),
            missing: Vec::new(),
            texts: Vec::new(),
            is_at_once: false,
            reserved: None,
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
        search.is_at_once = true;
        self.walk(&mut search, u64::MAX)?;
        if search.by_place.get() {
            from.set_by_place();
        }
        self.demand_resident(&search)?;
        Ok(self.chosen_by(&mut search))
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
        search.is_at_once = asker.is_repeated;
        let is_over = self.walk(&mut search, slice)?;
        if asker.is_repeated {
            self.demand_resident(&search)?;
        }
        if is_over {
            search.reserved = self.reserve(asker, search.octets())?;
        }
        if is_over && self.paged_out_of(&search).is_empty() {
            return self.answer_of(asker, request, (slot, rcn), &mut search).map(Some);
        }
        self.check_searches(asker)?;
        let waits_for_rows = is_over || !search.missing.is_empty();
        if waits_for_rows {
            self.check_reads(asker)?;
        }
        let (asker, request) = (asker.clone(), request.clone());
        let unfinished = UnfinishedSearch {
            asker,
            request,
            top,
            rcn,
            search,
            turn: 0,
            is_over,
            is_pinned: false,
        };
        if waits_for_rows {
            self.suspend_search(unfinished);
        } else {
            self.counters.searches_sliced += 1;
            self.searches.push(unfinished);
        }
        Ok(None)
    }

    /// Has a search wait for the text of what it has chosen, if its walk is over, or of what it has
    /// met: a part at a time, so that no step takes long. What is chosen stays in memory meanwhile.
    fn suspend_search(&mut self, mut unfinished: UnfinishedSearch) {
        let mut rows = core::mem::take(&mut unfinished.search.missing);
        if unfinished.is_over {
            rows = self.paged_out_of(&unfinished.search);
            rows.truncate(READ_ROWS);
            if !unfinished.is_pinned {
                self.paging.pin(&unfinished.search.instances());
                unfinished.is_pinned = true;
            }
        }
        self.read_for_search(rows, unfinished);
    }

    fn unpin_search(&mut self, unfinished: &UnfinishedSearch) {
        if unfinished.is_pinned {
            self.paging.unpin(&unfinished.search.instances());
        }
    }

    /// Numbers of the chosen instances that are paged out.
    fn paged_out_of(&self, search: &Search) -> Vec<NeededRow> {
        if self.tree.paged() == 0 {
            return Vec::new();
        }
        let paged_out = |it: &ChosenResource| {
            let container = it.parent.filter(|_| it.is_instance)?;
            let record = self.tree.paged_of(container)?.get(it.seq)?;
            self.rows_of(container, core::iter::once(record.seq)).next()
        };
        search.chosen.iter().filter_map(paged_out).collect()
    }

    /// Refuses what cannot wait and needs instances that are paged out; the request is made again
    /// when they are resident.
    fn demand_resident(&self, search: &Search) -> Result<(), Refusal> {
        let mut rows = self.paged_out_of(search);
        rows.extend(&search.missing);
        if rows.is_empty() { Ok(()) } else { Err(self.lacks(rows)) }
    }

    /// Whether one more walk may wait. Members of groups are limited by their groups.
    fn check_searches(&mut self, asker: &RequestContext) -> Result<(), Refusal> {
        let most = self.config.limits.searches;
        let is_member = |asker: &RequestContext| matches!(asker.whom, super::Recipient::Member(..));
        let sliced = self.searches.waiting.iter().map(|it| &it.asker);
        let mut others = sliced.chain(self.paging.searches()).filter(|it| !is_member(it));
        let of_one = others.clone().filter(|it| it.from == asker.from).count();
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
        if let Some(unfinished) = self.searches.next() {
            self.continue_search(unfinished);
        }
    }

    /// Continues a walk, or answers if it is over.
    pub(super) fn continue_search(&mut self, mut unfinished: UnfinishedSearch) {
        if !unfinished.is_over {
            let walked = self.walk(&mut unfinished.search, self.searches.slice_left);
            let missing = self.missing();
            match walked {
                Ok(true) => match self.reserve(&unfinished.asker, unfinished.search.octets()) {
                    Ok(reserved) => {
                        (unfinished.is_over, unfinished.search.reserved) = (true, reserved);
                    }
                    Err(refusal) => return self.answer(&unfinished.asker, Err(refusal)),
                },
                Ok(false) => {}
                // A criterion that needs the text of many.
                Err(_) if !missing.is_empty() => unfinished.search.missing = missing,
                Err(refusal) => return self.answer(&unfinished.asker, Err(refusal)),
            }
        }
        let Some(slot) = self.tree.by_seq(unfinished.top) else {
            let gone = not_found("the resource is gone");
            return self.fail_search(&unfinished, gone);
        };
        let is_paged_out = unfinished.is_over && !self.paged_out_of(&unfinished.search).is_empty();
        if is_paged_out || !unfinished.search.missing.is_empty() {
            return self.suspend_search(unfinished);
        }
        if !unfinished.is_over {
            return self.searches.push(unfinished);
        }
        self.unpin_search(&unfinished);
        self.ledger.see_all();
        let UnfinishedSearch { asker, request, rcn, mut search, .. } = unfinished;
        let outcome = self.answer_of(&asker, &request, (slot, rcn), &mut search);
        self.answer(&asker, outcome);
    }

    /// Refuses a request whose walk or rows ended without a result.
    pub(super) fn fail_search(&mut self, unfinished: &UnfinishedSearch, refusal: Refusal) {
        self.unpin_search(unfinished);
        self.answer(&unfinished.asker, Err(refusal));
    }

    fn answer_of(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        (slot, rcn): (Slot, u8),
        search: &mut Search,
    ) -> Result<Done, Refusal> {
        let chosen = self.chosen_by(search);
        let appended = search.filter.appended_path.as_deref();
        let from = search.originator();
        let mut done = self.result_of(request, &from, (slot, rcn), &chosen, appended)?;
        if let Some(mut reserved) = search.reserved.take() {
            reserved.settle(done.content.as_ref().map_or(0, |content| content.len()));
            done.reservation = reserved.into();
        }
        if search.filter.usage != Some(Usage::Discovery) && matches!(rcn, 4 | 8) {
            self.tell_if_empty(asker, slot);
        }
        Ok(done)
    }

    fn chosen_by(&mut self, search: &mut Search) -> Chosen {
        self.keep_to_octets(search);
        let slots = search.chosen.iter().filter_map(|it| self.tree.by_seq(it.seq)).collect();
        self.counters.results_cut += u64::from(search.partial.is_cut);
        let offset = search.partial.is_cut.then(|| search.skipped + search.chosen.len());
        let is_partial = search.partial.is_cut || search.partial.lacks_costly;
        Chosen { slots, partial: is_partial.then_some(PartialContent { offset }) }
    }

    /// Cuts a result that turns out to be too large: of an instance that was paged out, only the
    /// octets of its content were known.
    fn keep_to_octets(&self, search: &mut Search) {
        let mut left = self.config.limits.answer_octets;
        let fits = |it: &&ChosenResource| {
            let found = self.tree.by_seq(it.seq).and_then(|slot| self.tree.get(slot));
            let octets = found.map_or(0, |found| octets_of(found, search.nested));
            let rest = left.checked_sub(octets);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        let count = search.chosen.iter().take_while(fits).count();
        search.partial.is_cut |= count < search.chosen.len();
        search.chosen.truncate(count);
    }

    /// Continues for about a number of steps; returns whether the walk is finished.
    fn walk(&mut self, search: &mut Search, slice: u64) -> Result<bool, Refusal> {
        let until = search.steps.left().saturating_sub(slice);
        let before = search.steps.left();
        let outcome = loop {
            if search.labelled.is_some() {
                break self.walk_labelled(search, until);
            }
            if search.partial.is_cut
                || search.filter.level.is_some_and(|deepest| search.depth > deepest)
            {
                break Ok(true);
            }
            if search.is_spent(until) || search.waits() {
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
                Ok(false) => break Ok(search.partial.is_cut && !search.waits()),
                Err(refusal) => break Err(refusal),
            }
        };
        let spent = before.saturating_sub(search.steps.left());
        self.searches.slice_left = self.searches.slice_left.saturating_sub(spent);
        self.counters.filters_cut += search.steps.take_cut();
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
        let matches = |steps: &mut Steps| self.matches(&search.filter, &from, slot, steps);
        let judgement = search.steps.judge_one(matches)?;
        if judgement == FilterJudgement::Differs {
            return Ok(true);
        }
        search.steps.spend(ALLOWED)?;
        if !self.allows(&search.originator(), search.right, slot, None) {
            return Ok(true);
        }
        let is_shown = || self.check_shown(slot).is_ok();
        Ok(search.take_judged(judgement, (found, found.parent), is_shown))
    }

    /// Numbers of the instances below a resource that can match, by their type and the time of
    /// their creation: the first, and the one behind the last.
    fn instances_wanted(&self, filter: &Filter, parent: Slot) -> (u64, u64) {
        if filter.operation != Combine::And {
            return (0, u64::MAX);
        }
        let is_instance =
            |number: &u16| ResourceType::from_number(*number).is_none_or(ResourceType::is_instance);
        if !filter.resource_types.is_empty() && !filter.resource_types.iter().any(is_instance) {
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
            search.steps.spend(VISIT)?;
            let has_room = match child {
                Instance::Resident(child) => self.visit(search, child)?,
                Instance::PagedOut(record) => {
                    let Some(has_room) = self.visit_paged(search, slot, &record)? else {
                        // It is visited again with its text.
                        self.miss_family(search, slot, record.seq);
                        return Ok(false);
                    };
                    has_room
                }
            };
            search.passed = Some(place);
            if !has_room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Visits a child; returns whether the result has room.
    fn visit(&self, search: &mut Search, child: Slot) -> Result<bool, Refusal> {
        let Some(found) = self.tree.get(child) else { return Ok(true) };
        let has_room = self.judge(search, child, found)?;
        if found.family.is_some() && !search.nested {
            search.next.push_back(found.seq);
        }
        Ok(has_room)
    }

    /// Visits an instance that is paged out; returns whether the result has room, or `None` if its
    /// text is needed.
    fn visit_paged(
        &self,
        search: &mut Search,
        container: Slot,
        record: &InstanceRecord,
    ) -> Result<Option<bool>, Refusal> {
        let judgement = match Self::matches_paged(&search.filter, record, &mut search.steps)? {
            Some(matches) => FilterJudgement::from(matches),
            None => match search.text_of(record.seq) {
                Some(text) => {
                    let from = Originator::at(&search.from, search.source, &search.by_place);
                    let instance = (container, record, text);
                    let matches = |steps: &mut Steps| {
                        self.matches_text(&search.filter, &from, instance, steps)
                    };
                    search.steps.judge_one(matches)?
                }
                None if search.is_at_once => {
                    let row = core::iter::once(record.seq);
                    search.missing.extend(self.rows_of(container, row));
                    return Ok(Some(true));
                }
                None => return Ok(None),
            },
        };
        if judgement == FilterJudgement::Differs {
            return Ok(Some(true));
        }
        search.steps.spend(ALLOWED)?;
        // Its rights are its container's.
        if !self.allows(&search.originator(), search.right, container, None) {
            return Ok(Some(true));
        }
        let is_shown = || !self.hides_instances(container);
        let found = (&record.to_header(), Some(container));
        Ok(Some(search.take_judged(judgement, found, is_shown)))
    }

    /// Notes the instances of a family, from the number `first` on, whose text the walk needs next.
    fn miss_family(&self, search: &mut Search, container: Slot, first: u64) {
        let Some(paged) = self.tree.paged_of(container) else { return };
        let mut steps = self.steps();
        let needs_text = |record: &InstanceRecord| {
            matches!(Self::matches_paged(&search.filter, record, &mut steps), Ok(None))
        };
        let wanted = paged.since(first).take(READ_AT_ONCE).filter(needs_text);
        search.missing = self.rows_of(container, wanted.map(|record| record.seq)).collect();
    }
}

impl Search {
    /// The originator of its request.
    fn originator(&self) -> Originator<'_> {
        Originator::at(&self.from, self.source, &self.by_place)
    }

    /// The text of an instance that the walk has asked for.
    fn text_of(&self, seq: u64) -> Option<Arc<str>> {
        let at = self.texts.binary_search_by_key(&seq, |(number, _)| *number).ok()?;
        self.texts.get(at).map(|(_, text)| Arc::clone(text))
    }

    /// Octets of the answer that is to be rendered.
    fn octets(&self) -> usize {
        self.chosen.iter().fold(RESOURCE_OCTETS, |sum, it| sum.saturating_add(it.octets))
    }

    /// Whether the slice is over. Where there are no steps behind it, the next one is refused.
    const fn is_spent(&self, until: u64) -> bool {
        until > 0 && self.steps.left() <= until
    }

    /// Whether the walk cannot continue without the text of an instance.
    const fn waits(&self) -> bool {
        !self.is_at_once && !self.missing.is_empty()
    }

    /// Numbers of the chosen instances.
    fn instances(&self) -> Vec<u64> {
        self.chosen.iter().filter(|it| it.is_instance).map(|it| it.seq).collect()
    }

    /// Takes what matches, and notes that the answer lacks a resource that could not be judged;
    /// returns whether the result has room.
    fn take_judged(
        &mut self,
        judgement: FilterJudgement,
        found: (&Resource, Option<Slot>),
        is_shown: impl FnOnce() -> bool,
    ) -> bool {
        if judgement == FilterJudgement::TooCostly {
            self.partial.lacks_costly |= self.right == Right::Discover || is_shown();
            return true;
        }
        self.take(found, is_shown)
    }

    /// Takes what matches, unless the result is full.
    fn take(
        &mut self,
        (found, parent): (&Resource, Option<Slot>),
        is_shown: impl FnOnce() -> bool,
    ) -> bool {
        let octets = octets_of(found, self.nested);
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.chosen.len() == self.most || self.octets_left < octets {
            self.partial.is_cut = true;
            return false;
        } else if self.right == Right::Discover || is_shown() {
            self.octets_left -= octets;
            let is_instance = found.resource_type == ResourceType::ContentInstance;
            self.chosen.push(ChosenResource { seq: found.seq, parent, is_instance, octets });
            if found.family.is_some() && self.nested {
                self.next.push_back(found.seq);
            }
        }
        true
    }
}

/// Octets of a resource in a result; for an instance that is paged out, the minimum.
fn octets_of(found: &Resource, is_whole: bool) -> usize {
    match &found.representation {
        Some(text) if is_whole => text.len(),
        None if is_whole && found.resource_type == ResourceType::ContentInstance => {
            usize::try_from(found.size).unwrap_or(usize::MAX)
        }
        _ if is_whole => RESOURCE_OCTETS.saturating_add(found.text_octets()),
        _ => RESOURCE_OCTETS,
    }
}

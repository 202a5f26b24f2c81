//! Linearisability of a history (Herlihy and Wing, 1990), decided by the search of Wing and Gong
//! with Lowe's memory of configurations, for one object at a time: a history is linearisable if
//! that of each object is.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Instances that the container of the tests keeps.
pub const KEPT: usize = 3;

/// A request to one container.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Request {
    /// Creates the container.
    Make,
    /// Sets its label.
    Label(u32),
    /// Retrieves it: its label, and the number of its instances.
    Read,
    /// Deletes it with all its instances.
    Remove,
    /// Creates an instance with this content; beyond [`KEPT`] the oldest goes.
    Push(u32),
    Latest,
    Oldest,
    /// Deletes the oldest instance, which the answer shows.
    TakeOldest,
    /// Retrieves the container with all its instances.
    Whole,
}

/// What an originator was told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Told {
    Done,
    NotFound,
    Conflict,
    Container { label: Option<u32>, count: usize },
    Instance(u32),
    Whole { label: Option<u32>, contents: Vec<u32> },
}

/// A request with the times between which it took effect.
#[derive(Clone, Debug)]
pub struct Event {
    #[expect(dead_code, reason = "it is shown with a history that is not linearisable")]
    pub client: usize,
    pub request: Request,
    pub called: Duration,
    /// The time of the answer; without an answer, the time after which it has no effect any more.
    pub ended: Duration,
    /// The answer; without one it may have had its effect or none.
    pub told: Option<Told>,
}

/// The container, if it is there: its label and its instances, oldest first.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Container {
    label: Option<u32>,
    contents: VecDeque<u32>,
}

type State = Option<Container>;

/// The effect of a request on a container, and the answer that goes with it.
fn apply(state: &State, request: Request) -> (State, Told) {
    let mut state = state.clone();
    let Some(container) = &mut state else {
        return match request {
            Request::Make => (Some(Container::default()), Told::Done),
            _ => (None, Told::NotFound),
        };
    };
    let instance = |content: Option<&u32>| content.map_or(Told::NotFound, |it| Told::Instance(*it));
    let told = match request {
        Request::Make => Told::Conflict,
        Request::Label(label) => {
            container.label = Some(label);
            Told::Done
        }
        Request::Read => {
            Told::Container { label: container.label, count: container.contents.len() }
        }
        Request::Remove => return (None, Told::Done),
        Request::Push(content) => {
            container.contents.push_back(content);
            if container.contents.len() > KEPT {
                container.contents.pop_front();
            }
            Told::Done
        }
        Request::Latest => instance(container.contents.back()),
        Request::Oldest => instance(container.contents.front()),
        Request::TakeOldest => instance(container.contents.pop_front().as_ref()),
        Request::Whole => {
            let contents = container.contents.iter().copied().collect();
            Told::Whole { label: container.label, contents }
        }
    };
    (state, told)
}

/// Whether some order of the requests, each within its times, gives every answer; a request without
/// an answer may have a place in it or none.
///
/// Histories have at most 128 events.
pub fn is_linearisable(events: &[Event]) -> bool {
    assert!(events.len() <= 128, "{} events", events.len());
    let mut known = HashSet::new();
    let mut open: Vec<(u128, State)> = vec![(0, None)];
    while let Some((done, state)) = open.pop() {
        let is_done = |at: usize| done & (1 << at) != 0;
        let left = || events.iter().enumerate().filter(|(at, _)| !is_done(*at));
        // What was called after the end of another one that is left comes after that one.
        let ends = left().filter(|(_, event)| event.told.is_some()).map(|(_, event)| event.ended);
        let Some(first_end) = ends.min() else { return true };
        let before = events.iter().enumerate().filter(|(at, _)| is_done(*at));
        let last_call = before.map(|(_, event)| event.called).max().unwrap_or_default();
        for (at, event) in left() {
            if event.called > first_end || last_call > event.ended {
                continue;
            }
            let (next, told) = apply(&state, event.request);
            if event.told.as_ref().is_none_or(|expected| *expected == told) {
                let next = (done | 1 << at, next);
                if known.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}

/// Histories whose verdict is known: of one line each request, its client, its times, its answer.
pub fn verdicts() {
    let at = |client, request, called, ended, told| {
        let (called, ended) = (Duration::from_secs(called), Duration::from_secs(ended));
        Event { client, request, called, ended, told }
    };
    let done = || Some(Told::Done);
    let count = |label, count| Some(Told::Container { label, count });
    let made = || vec![at(0, Request::Make, 0, 1, done())];
    let with = |more: Vec<Event>| [made(), more].concat();
    let label = |number, called, ended| at(0, Request::Label(number), called, ended, done());
    let read = |called, ended, label| at(1, Request::Read, called, ended, count(label, 0));
    let push = |content, called, ended| at(0, Request::Push(content), called, ended, done());
    let take = |client, called, ended, content| {
        at(client, Request::TakeOldest, called, ended, Some(Told::Instance(content)))
    };
    let lost = |content, called, ended| at(2, Request::Push(content), called, ended, None);
    let latest = |called, ended, content| {
        at(1, Request::Latest, called, ended, Some(Told::Instance(content)))
    };
    let nothing = |called, ended| at(1, Request::Latest, called, ended, Some(Told::NotFound));
    for (what, events, expected) in [
        ("a read beside a write sees either", with(vec![label(7, 2, 6), read(3, 4, None)]), true),
        (
            "two reads beside a write see it in turn",
            with(vec![label(7, 2, 9), read(3, 4, None), read(5, 6, Some(7))]),
            true,
        ),
        (
            "what was read is not unread",
            with(vec![label(7, 2, 9), read(3, 4, Some(7)), read(5, 6, None)]),
            false,
        ),
        ("a read behind a write sees it", with(vec![label(7, 2, 3), read(4, 5, None)]), false),
        (
            "of two writes beside each other the last may be either",
            with(vec![label(7, 2, 9), label(8, 2, 9), read(10, 11, Some(7))]),
            true,
        ),
        (
            "nothing is taken twice",
            with(vec![push(1, 2, 3), take(1, 4, 9, 1), take(2, 4, 9, 1)]),
            false,
        ),
        (
            "two take what two have pushed, oldest first",
            with(vec![push(1, 2, 3), push(2, 4, 5), take(1, 6, 9, 2), take(2, 6, 9, 1)]),
            true,
        ),
        (
            "and not the other way round, one after the other",
            with(vec![push(1, 2, 3), push(2, 4, 5), take(1, 6, 7, 2), take(2, 8, 9, 1)]),
            false,
        ),
        ("what was not answered may be", with(vec![lost(1, 2, 3), latest(4, 5, 1)]), true),
        ("or may not be", with(vec![lost(1, 2, 3), nothing(4, 5)]), true),
        (
            "but not come later than it can",
            with(vec![lost(1, 2, 3), nothing(4, 5), latest(6, 7, 1)]),
            false,
        ),
        ("nor go again", with(vec![lost(1, 2, 3), latest(4, 5, 1), nothing(6, 7)]), false),
    ] {
        assert_eq!(is_linearisable(&events), expected, "{what}: {events:#?}");
    }
}

//! The association tables, checked: total, and free of deadlock over a transport that loses,
//! repeats and delays.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_health::association::*;
use std::collections::{HashSet, VecDeque};

/// Every state of a role has exactly one rule for every event of that role.
#[test]
fn the_tables_are_total() {
    for (role, table, states, events) in [
        ("manager", MANAGER, MANAGER_STATES.as_slice(), MANAGER_EVENTS.as_slice()),
        ("agent", AGENT, &AGENT_STATES, &AGENT_EVENTS),
    ] {
        for &state in states {
            for &event in events {
                let rules =
                    table.iter().filter(|rule| rule.from == state && rule.on.contains(&event));
                assert_eq!(rules.count(), 1, "{role} {state:?} {event:?}");
            }
        }
        for rule in table {
            assert!(states.contains(&rule.from) && states.contains(&rule.to), "{role} {rule:?}");
            // A manager knows one way to be rejected; the agent's three answers stand in one list.
            let known = |event: &AssociationEvent| {
                events.contains(event) || *event == AssociationEvent::AarqUnknown
            };
            assert!(rule.on.iter().all(known), "{role} {rule:?}");
        }
    }
}

/// Whoever waits has a time after which he does so no more.
#[test]
fn every_wait_ends() {
    for (table, states) in [(MANAGER, MANAGER_STATES.as_slice()), (AGENT, &AGENT_STATES)] {
        for &state in states {
            if patience(state).is_some() {
                let rule = step(table, state, AssociationEvent::Timeout).unwrap();
                assert_eq!(rule.to, AssociationState::Unassociated, "{state:?}");
                assert_ne!(rule.action, Action::None, "{state:?} ends in silence");
            }
        }
    }
}

/// A message on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Word {
    Aarq,
    AareKnown,
    AareUnknown,
    AareRejected,
    Rlrq,
    Rlre,
    Abrt,
    Config,
    ConfigAccepted,
    ConfigRefused,
    Report,
    ReportAnswer,
    Get,
    GetAnswer,
    Refusal,
}

/// Messages that a channel holds; more are lost.
const CHANNEL: usize = 2;

/// Both machines and what is on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct World {
    manager: AssociationState,
    agent: AssociationState,
    /// Whether the manager knows the configuration.
    known: bool,
    /// Whether the agent waits for the answer to a report.
    reported: bool,
    to_manager: [Option<Word>; CHANNEL],
    to_agent: [Option<Word>; CHANNEL],
}

fn push(channel: &mut [Option<Word>; CHANNEL], word: Word) {
    if let Some(place) = channel.iter_mut().find(|place| place.is_none()) {
        *place = Some(word);
    }
}

fn take(channel: &mut [Option<Word>; CHANNEL], place: usize) -> Option<Word> {
    let word = channel[place].take();
    if place == 0 {
        channel[0] = channel[1].take();
    }
    word
}

impl World {
    fn manager_turns(&mut self, event: AssociationEvent) {
        let rule = step(MANAGER, self.manager, event).unwrap();
        self.manager = rule.to;
        let word = match rule.action {
            Action::Accept => Word::AareKnown,
            Action::AcceptUnknown => Word::AareUnknown,
            Action::Reject => Word::AareRejected,
            Action::Abort | Action::AbortResponse | Action::AbortConfig => Word::Abrt,
            Action::SendRlrq => Word::Rlrq,
            Action::SendRlre => Word::Rlre,
            Action::ApproveConfig | Action::LateConfig => Word::ConfigAccepted,
            Action::RefuseConfig => Word::ConfigRefused,
            Action::TakeReport => Word::ReportAnswer,
            Action::Refuse => Word::Refusal,
            _ => return,
        };
        push(&mut self.to_agent, word);
    }

    fn agent_turns(&mut self, event: AssociationEvent) {
        let rule = step(AGENT, self.agent, event).unwrap();
        let before = self.agent;
        self.agent = rule.to;
        self.reported &= rule.to == AssociationState::Operating && rule.action != Action::Match;
        let word = match rule.action {
            Action::SendAarq => Some(Word::Aarq),
            Action::Reject => Some(Word::AareRejected),
            Action::Abort | Action::AbortResponse | Action::AbortConfig => Some(Word::Abrt),
            Action::SendRlrq => Some(Word::Rlrq),
            Action::SendRlre => Some(Word::Rlre),
            Action::SendConfig => Some(Word::Config),
            Action::Serve => Some(Word::GetAnswer),
            Action::Refuse => Some(Word::Refusal),
            _ => None,
        };
        if let Some(word) = word {
            push(&mut self.to_manager, word);
        }
        match rule.action {
            // This agent has one configuration: refused, it takes leave.
            Action::OfferNext => self.agent_turns(AssociationEvent::AskRelease),
            _ if before == AssociationState::Associating
                && rule.to == AssociationState::ConfigSending =>
            {
                self.agent_turns(AssociationEvent::SendConfig);
            }
            _ => {}
        }
    }

    /// The manager takes `word`; `usable` says whether it likes a configuration.
    fn manager_hears(&mut self, word: Word, usable: bool) {
        match word {
            Word::Aarq if self.known => self.manager_turns(AssociationEvent::AarqKnown),
            Word::Aarq => self.manager_turns(AssociationEvent::AarqUnknown),
            Word::Config => {
                self.manager_turns(AssociationEvent::ConfigReport);
                if self.manager == AssociationState::CheckingConfig {
                    self.known |= usable;
                    let verdict = if usable {
                        AssociationEvent::ConfigTaken
                    } else {
                        AssociationEvent::ConfigUnusable
                    };
                    self.manager_turns(verdict);
                }
            }
            Word::Report => self.manager_turns(AssociationEvent::Report),
            Word::Rlrq => self.manager_turns(AssociationEvent::Rlrq),
            Word::Rlre => self.manager_turns(AssociationEvent::Rlre),
            Word::Abrt => self.manager_turns(AssociationEvent::Abrt),
            Word::AareRejected => self.manager_turns(AssociationEvent::AareKnown),
            _ => self.manager_turns(AssociationEvent::Response),
        }
    }

    fn agent_hears(&mut self, word: Word) {
        self.agent_turns(match word {
            Word::AareKnown => AssociationEvent::AareKnown,
            Word::AareUnknown => AssociationEvent::AareUnknown,
            Word::AareRejected => AssociationEvent::AareRejected,
            Word::Rlrq => AssociationEvent::Rlrq,
            Word::Rlre => AssociationEvent::Rlre,
            Word::Abrt => AssociationEvent::Abrt,
            Word::ConfigAccepted => AssociationEvent::ConfigAccepted,
            Word::ConfigRefused => AssociationEvent::ConfigRefused,
            Word::Get => AssociationEvent::Get,
            _ => AssociationEvent::Response,
        });
    }

    /// Everything that may happen next: deliver, overtake, lose, repeat, time out, and what
    /// either side may want.
    fn successors(self) -> Vec<Self> {
        let mut next = Vec::new();
        for place in 0..CHANNEL {
            let mut lost = self;
            if let Some(word) = take(&mut lost.to_manager, place) {
                next.push(lost);
                for source in [lost, self] {
                    for usable in [true, false] {
                        let mut heard = source;
                        heard.manager_hears(word, usable);
                        next.push(heard);
                    }
                }
            }
            let mut lost = self;
            if let Some(word) = take(&mut lost.to_agent, place) {
                next.push(lost);
                for mut heard in [lost, self] {
                    heard.agent_hears(word);
                    next.push(heard);
                }
            }
        }
        for event in
            [AssociationEvent::Timeout, AssociationEvent::AskRelease, AssociationEvent::AskAbort]
        {
            let mut world = self;
            world.manager_turns(event);
            next.push(world);
        }
        for event in [
            AssociationEvent::Timeout,
            AssociationEvent::AskRelease,
            AssociationEvent::AskAbort,
            AssociationEvent::AskAssociate,
        ] {
            let mut world = self;
            world.agent_turns(event);
            next.push(world);
        }
        if self.agent == AssociationState::Associating {
            let mut world = self;
            world.agent_turns(AssociationEvent::TimeoutRetry);
            next.push(world);
        }
        if self.agent == AssociationState::Operating && !self.reported {
            next.push(self.report());
        }
        if matches!(self.manager, AssociationState::Operating | AssociationState::WaitingForConfig)
        {
            let mut world = self;
            push(&mut world.to_agent, Word::Get);
            next.push(world);
        }
        next
    }

    fn report(mut self) -> Self {
        self.reported = true;
        push(&mut self.to_manager, Word::Report);
        self
    }

    /// The next step where nothing is lost, repeated or overtaken, nobody wants the end, the
    /// agent wants to report, and time passes only when nothing else happens; `manager_first`
    /// says whose time is up first.
    fn calm(mut self, manager_first: bool) -> Self {
        let agent_waits = self.reported || patience(self.agent).is_some();
        let manager_waits = patience(self.manager).is_some();
        if let Some(word) = take(&mut self.to_manager, 0) {
            self.manager_hears(word, true);
        } else if let Some(word) = take(&mut self.to_agent, 0) {
            self.agent_hears(word);
        } else if self.agent == AssociationState::Unassociated {
            self.agent_turns(AssociationEvent::AskAssociate);
        } else if self.agent == AssociationState::Operating && !self.reported {
            return self.report();
        } else if manager_waits && (manager_first || !agent_waits) {
            self.manager_turns(AssociationEvent::Timeout);
        } else if agent_waits {
            self.agent_turns(AssociationEvent::Timeout);
        }
        self
    }

    /// Whether both operate and a report has just been taken and its answer is on its way.
    fn is_at_work(self) -> bool {
        (self.manager, self.agent) == (AssociationState::Operating, AssociationState::Operating)
            && self.to_agent == [Some(Word::ReportAnswer), None]
            && self.to_manager == [None; CHANNEL]
    }
}

fn reachable() -> Vec<World> {
    let start = World {
        manager: AssociationState::Unassociated,
        agent: AssociationState::Unassociated,
        known: false,
        reported: false,
        to_manager: [None; CHANNEL],
        to_agent: [None; CHANNEL],
    };
    let mut seen = HashSet::from([start]);
    let mut worlds = vec![start];
    let mut open = VecDeque::from([start]);
    while let Some(world) = open.pop_front() {
        for next in world.successors() {
            if seen.insert(next) {
                worlds.push(next);
                open.push_back(next);
            }
        }
    }
    worlds
}

/// From wherever loss, repetition, overtaking, releases and aborts have led, a calm transport
/// brings manager and agent back to work within 40 steps.
///
/// This is stronger than "no deadlock": no livelock either, once the transport is calm.
#[test]
fn from_everywhere_back_to_work() {
    const STEPS_MAX: usize = 40;
    let worlds = reachable();
    assert!(worlds.len() > 10_000, "only {} worlds: the model has shrunk", worlds.len());
    let mut longest = 0;
    for (world, manager_first) in worlds.iter().flat_map(|world| [(world, true), (world, false)]) {
        let mut now = *world;
        let mut steps = 0;
        while !now.is_at_work() {
            let next = now.calm(manager_first);
            steps += 1;
            assert!(next != now && steps <= STEPS_MAX, "stuck: {world:?} came to {now:?}");
            now = next;
        }
        longest = longest.max(steps);
    }
    println!("{} worlds, at most {longest} calm steps back to work", worlds.len());
}

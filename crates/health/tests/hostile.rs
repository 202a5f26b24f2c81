//! Both machines under whatever a peer may send, in every state: no panic, nothing unbounded, and
//! afterwards an honest peer is served.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::agent::{self, Agent, OutgoingReport, ReportId};
use gatewright_health::association::AssociationState;
use gatewright_health::code::*;
use gatewright_health::configuration::Library;
use gatewright_health::manager::{
    self, Manager, ManagerSettings, RecordId, RequestId, WAITING_MAX,
};
use gatewright_health::operation::Operation;
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::store::Selection;
use proptest::collection::vec;
use proptest::prelude::*;

fn agent(specialisation: &Specialisation) -> Agent {
    Agent::new(agent::AgentSettings {
        system_id: SystemId(*b"DEVICE01"),
        configurations: vec![(specialisation.config, specialisation.octets().unwrap())],
        attributes: Vec::new(),
        segments: vec![agent::PmSegment {
            store: Handle(256),
            instance: 1,
            attributes: Vec::new(),
            entry_len: 8,
            entries: vec![7; 64],
        }],
        scanners: vec![Handle(30)],
        clock: None,
    })
}

/// Every APDU that an honest association exchanges, both ways.
fn conversation() -> Vec<Vec<u8>> {
    let now = Duration::ZERO;
    let mut library = Library::empty();
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let mut agent = agent(&specialisation::SCALE);
    let mut said = Vec::new();
    manager.handle(now, manager::Input::Connected, &mut library);
    agent.handle(now, agent::Input::Connected);
    agent.handle(now, agent::Input::Associate);
    let report = |id| {
        let fixed = FixedObservation { handle: Handle(1), octets: &[0; 12] };
        let info = encode_scan(DataRequestId::AGENT_INITIATED, 1, &[fixed]).unwrap();
        let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
        agent::Input::Report(OutgoingReport {
            id: ReportId(id),
            handle,
            event,
            info,
            confirmed: id == 1,
        })
    };
    for turn in 0..12 {
        match turn {
            4 => agent.handle(now, report(1)),
            5 => agent.handle(now, report(2)),
            6 => {
                let clear = Operation::clear_segments(Handle(256), &Selection::All).unwrap();
                let asked = [
                    Operation::read_device(),
                    Operation::enable_scanner(Handle(30), true),
                    Operation::describe_segments(Handle(256), &Selection::All).unwrap(),
                    Operation::transfer_segment(Handle(256), 1),
                    clear,
                ];
                for (number, operation) in (0..).zip(asked) {
                    let ask = manager::Input::Ask(RequestId(number), operation);
                    manager.handle(now, ask, &mut library);
                }
            }
            10 => manager.handle(now, manager::Input::Release, &mut library),
            _ => {}
        }
        for _ in 0..20 {
            while let Some(output) = agent.poll_output() {
                if let agent::Output::Send(octets) = output {
                    manager.handle(now, manager::Input::Apdu(&octets), &mut library);
                    said.push(octets);
                }
            }
            while let Some(output) = manager.poll_output() {
                match output {
                    manager::Output::Send(octets) => {
                        agent.handle(now, agent::Input::Apdu(&octets));
                        said.push(octets);
                    }
                    manager::Output::Report(record) => {
                        manager.handle(now, manager::Input::Committed(record.id), &mut library);
                    }
                    _ => {}
                }
            }
        }
    }
    said
}

/// One thing that a hostile peer, time or the caller does.
#[derive(Clone, Debug)]
enum Step {
    /// An honest APDU, some octets of it changed.
    Mutated(usize, Vec<(usize, u8)>),
    /// Octets without meaning.
    Noise(Vec<u8>),
    Up,
    Down,
    Wait(u16),
    Commit(u8),
    Ask,
    Release,
    Unreadable,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<usize>(), vec((any::<usize>(), any::<u8>()), 0..3))
            .prop_map(|(which, changes)| Step::Mutated(which, changes)),
        1 => vec(any::<u8>(), 0..40).prop_map(Step::Noise),
        2 => Just(Step::Up),
        1 => Just(Step::Down),
        1 => any::<u16>().prop_map(Step::Wait),
        1 => any::<u8>().prop_map(Step::Commit),
        1 => Just(Step::Ask),
        1 => Just(Step::Release),
        1 => Just(Step::Unreadable),
    ];
    vec(step, 0..60)
}

fn octets(conversation: &[Vec<u8>], which: usize, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut octets = conversation[which % conversation.len()].clone();
    for (place, octet) in changes {
        let place = place % octets.len();
        octets[place] = *octet;
    }
    octets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_manager_survives(steps in steps()) {
        let conversation = conversation();
        let mut library = Library::standard();
        let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
        let mut now = Duration::ZERO;
        let mut reports = 0;
        for step in steps {
            let held;
            let input = match step {
                Step::Mutated(which, changes) => {
                    held = octets(&conversation, which, &changes);
                    manager::Input::Apdu(&held)
                }
                Step::Noise(noise) => { held = noise; manager::Input::Apdu(&held) }
                Step::Up => manager::Input::Connected,
                Step::Down => manager::Input::Disconnected,
                Step::Wait(ms) => {
                    now += Duration::from_millis(ms.into());
                    manager::Input::Tick
                }
                Step::Commit(record) => manager::Input::Committed(RecordId(record.into())),
                Step::Ask => manager::Input::Ask(RequestId(1), Operation::read_device()),
                Step::Release => manager::Input::Release,
                Step::Unreadable => manager::Input::Unreadable,
            };
            manager.handle(now, input, &mut library);
            // One input, few outputs: nothing is amplified beyond what waited.
            let outputs = std::iter::from_fn(|| manager.poll_output()).count();
            prop_assert!(outputs <= WAITING_MAX + 20, "{outputs} outputs");
            reports += outputs;
        }
        prop_assert!(reports < 10_000);
        // An honest device is served, whatever was before.
        manager.handle(now, manager::Input::Disconnected, &mut library);
        manager.handle(now, manager::Input::Connected, &mut library);
        manager.handle(now, manager::Input::Apdu(&conversation[0]), &mut library);
        prop_assert!(matches!(manager.state(), AssociationState::Operating | AssociationState::WaitingForConfig));
    }

    #[test]
    fn an_agent_survives(steps in steps()) {
        let conversation = conversation();
        let mut agent = agent(&specialisation::SCALE);
        let mut now = Duration::ZERO;
        for step in steps {
            let held;
            let input = match step {
                Step::Mutated(which, changes) => {
                    held = octets(&conversation, which, &changes);
                    agent::Input::Apdu(&held)
                }
                Step::Noise(noise) => { held = noise; agent::Input::Apdu(&held) }
                Step::Up => {
                    agent.handle(now, agent::Input::Connected);
                    agent::Input::Associate
                }
                Step::Down => agent::Input::Disconnected,
                Step::Wait(ms) => {
                    now += Duration::from_millis(ms.into());
                    agent::Input::Tick
                }
                Step::Commit(id) => agent::Input::Report(OutgoingReport {
                    id: ReportId(id.into()),
                    handle: Handle::MDS,
                    event: event::SCAN_FIXED,
                    info: vec![0; id.into()],
                    confirmed: id % 2 == 0,
                }),
                Step::Ask | Step::Release => agent::Input::Release,
                Step::Unreadable => agent::Input::Unreadable,
            };
            agent.handle(now, input);
            let outputs = std::iter::from_fn(|| agent.poll_output()).count();
            prop_assert!(outputs <= agent::REPORTS_MAX * 2 + 20, "{outputs} outputs");
        }
    }
}

/// The conversation is worth mutating: every kind of APDU is in it.
#[test]
fn the_conversation_is_complete() {
    let conversation = conversation();
    for choice in [0xE2, 0xE3, 0xE4, 0xE5, 0xE7] {
        assert!(conversation.iter().any(|apdu| apdu[0] == choice), "{choice:#x}");
    }
    let data = conversation.iter().filter(|apdu| apdu[0] == 0xE7).map(|apdu| [apdu[8], apdu[9]]);
    let choices: std::collections::BTreeSet<_> = data.collect();
    for choice in [[1, 0], [1, 1], [1, 3], [1, 5], [1, 7], [2, 1], [2, 3], [2, 5], [2, 7]] {
        assert!(choices.contains(&choice), "{choice:?} is missing: {choices:?}");
    }
}

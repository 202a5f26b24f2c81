//! Manager and agent together, over a transport that is good or bad.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::agent::{self, Agent, OutgoingReport, ReportId};
use gatewright_health::apdu::{AbortReason, AssociateResult};
use gatewright_health::association::{AssociationState, TO_OPERATION, TO_REPORT};
use gatewright_health::code::*;
use gatewright_health::configuration::{ConfigurationBuilder, Library, Remembered};
use gatewright_health::convert::{Value, observe};
use gatewright_health::data::ErrorCode;
use gatewright_health::manager::{self, Manager, RecordId, ReportRecord, RequestId};
use gatewright_health::operation::{DataScope, Operation, OperationFailure, OperationResult};
use gatewright_health::report::{FixedObservation, Report, encode_scan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::store::{Selection, observe_segment, segments};
use gatewright_health::time::AbsoluteTime;
use std::collections::VecDeque;

const AGENT_ID: SystemId = SystemId(*b"OXIMETER");
const MANAGER_ID: SystemId = SystemId(*b"GATEWAY1");
const MS: Duration = Duration::from_millis(1);

fn agent_settings(specialisation: &Specialisation) -> agent::AgentSettings {
    agent::AgentSettings {
        system_id: AGENT_ID,
        configurations: vec![(specialisation.config, specialisation.octets().unwrap())],
        attributes: vec![(attribute::MODEL, vec![0, 2, b'G', b'W', 0, 0])],
        segments: Vec::new(),
        scanners: vec![Handle(30)],
        clock: None,
    }
}

/// Both machines, the octets on their way, and one clock.
struct Pair {
    now: Duration,
    library: Library,
    manager: Manager,
    agent: Agent,
    to_manager: VecDeque<Vec<u8>>,
    to_agent: VecDeque<Vec<u8>>,
    /// What the manager said beside octets.
    said: Vec<manager::Output>,
    /// What the agent said beside octets.
    told: Vec<agent::Output>,
    /// Whether records are committed as they come.
    commits: bool,
}

impl Pair {
    fn new(library: Library, settings: agent::AgentSettings) -> Self {
        let mut pair = Self {
            now: Duration::ZERO,
            library,
            manager: Manager::new(manager::ManagerSettings::new(MANAGER_ID)),
            agent: Agent::new(settings),
            to_manager: VecDeque::new(),
            to_agent: VecDeque::new(),
            said: Vec::new(),
            told: Vec::new(),
            commits: true,
        };
        pair.manage(manager::Input::Connected);
        pair.act(agent::Input::Connected);
        pair
    }

    fn associated(library: Library, specialisation: &Specialisation) -> Self {
        let mut pair = Self::new(library, agent_settings(specialisation));
        pair.act(agent::Input::Associate);
        pair.settle();
        assert_eq!(
            (pair.manager.state(), pair.agent.state()),
            (AssociationState::Operating, AssociationState::Operating)
        );
        pair
    }

    fn manage(&mut self, input: manager::Input<'_>) {
        self.manager.handle(self.now, input, &mut self.library);
        while let Some(output) = self.manager.poll_output() {
            if let manager::Output::Report(record) = &output
                && self.commits
            {
                let committed = manager::Input::Committed(record.id);
                self.manager.handle(self.now, committed, &mut self.library);
            }
            match output {
                manager::Output::Send(octets) => self.to_agent.push_back(octets),
                other => self.said.push(other),
            }
        }
    }

    fn act(&mut self, input: agent::Input<'_>) {
        self.agent.handle(self.now, input);
        while let Some(output) = self.agent.poll_output() {
            match output {
                agent::Output::Send(octets) => self.to_manager.push_back(octets),
                other => self.told.push(other),
            }
        }
    }

    /// Delivers everything that is on its way.
    fn settle(&mut self) {
        while let Some(octets) = self.to_manager.pop_front() {
            self.manage(manager::Input::Apdu(&octets));
            while let Some(octets) = self.to_agent.pop_front() {
                self.act(agent::Input::Apdu(&octets));
            }
        }
        while let Some(octets) = self.to_agent.pop_front() {
            self.act(agent::Input::Apdu(&octets));
            if !self.to_manager.is_empty() {
                return self.settle();
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.manage(manager::Input::Tick);
        self.act(agent::Input::Tick);
    }

    fn report(&mut self, id: u64, confirmed: bool, observations: &[(u16, &[u8])]) {
        let observations: Vec<_> = observations
            .iter()
            .map(|(handle, octets)| FixedObservation { handle: Handle(*handle), octets })
            .collect();
        let number = u16::try_from(id).unwrap();
        let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &observations).unwrap();
        let (id, handle, event) = (ReportId(id), Handle::MDS, event::SCAN_FIXED);
        self.act(agent::Input::Report(OutgoingReport { id, handle, event, info, confirmed }));
    }

    fn records(&self) -> Vec<&ReportRecord> {
        let mut records = Vec::new();
        for output in &self.said {
            if let manager::Output::Report(record) = output {
                records.push(record);
            }
        }
        records
    }

    /// Every number that was recorded, as text.
    fn readings(&self) -> Vec<String> {
        let configuration = self.manager.configuration().unwrap();
        let mut readings = Vec::new();
        for record in self.records() {
            let Some((handle, _, Report::Scan(scan))) = record.report() else { panic!() };
            observe(configuration, handle, &scan, |observation| {
                if let Value::Number(number) = observation.value {
                    readings.push(format!("{} {number}", observation.kind));
                }
            });
        }
        readings
    }

    fn answer(&self, request: u64) -> Result<OperationResult, OperationFailure> {
        let wanted = |output: &manager::Output| match output {
            manager::Output::Answer(id, answer) if *id == RequestId(request) => {
                Some(answer.clone())
            }
            _ => None,
        };
        self.said.iter().find_map(wanted).unwrap()
    }
}

#[test]
fn an_oximeter_with_a_known_configuration() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    assert!(matches!(
        pair.said[..],
        [
            manager::Output::Associated {
                system_id: AGENT_ID,
                config_id: ConfigId(0x0190),
                is_test: false
            },
            manager::Output::Configured { remembered: Remembered::Same, .. },
        ]
    ));
    pair.report(1, true, &[(1, &[0xF3, 0xC5]), (10, &[0, 72])]);
    pair.report(2, false, &[(1, &[0, 97]), (10, &[0, 71])]);
    pair.settle();
    let expected = ["2:19384 96.5", "2:18458 72", "2:19384 97", "2:18458 71"];
    assert_eq!(pair.readings(), expected);
    assert_eq!(
        pair.told,
        [
            agent::Output::Operating,
            agent::Output::Reported(ReportId(1)),
            agent::Output::Reported(ReportId(2)),
        ]
    );
    pair.act(agent::Input::Release);
    pair.settle();
    let released =
        manager::Output::Disassociated { system_id: AGENT_ID, ending: manager::Ending::Released };
    assert_eq!(pair.said.last(), Some(&released));
    assert_eq!(pair.agent.state(), AssociationState::Unassociated);
}

/// The same scale twice: first it must report its configuration, then it need not.
#[test]
fn a_scale_whose_configuration_is_asked_for_once() {
    let mut pair = Pair::associated(Library::empty(), &specialisation::SCALE);
    assert!(matches!(
        pair.said[1],
        manager::Output::Configured { remembered: Remembered::New, .. }
    ));
    pair.report(1, true, &[(1, &[0xFF, 0, 0x02, 0xFA, 0x20, 0x26, 0x11, 0x21, 0x12, 0, 0, 0])]);
    pair.settle();
    assert_eq!(pair.readings(), ["2:57664 76.2"]);
    pair.act(agent::Input::Release);
    pair.settle();
    let before = pair.manager.counters().apdus;
    pair.act(agent::Input::Associate);
    pair.settle();
    assert_eq!(pair.manager.state(), AssociationState::Operating);
    assert_eq!(pair.manager.counters().apdus, before + 1, "no second configuration report");
}

#[test]
fn no_answer_leaves_before_its_commit() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    pair.settle();
    assert_eq!(pair.records().len(), 1);
    assert_eq!(pair.told, [agent::Output::Operating]);
    pair.manage(manager::Input::Committed(RecordId(0)));
    pair.settle();
    assert_eq!(pair.told.len(), 1, "an older number answers nothing");
    pair.manage(manager::Input::Committed(RecordId(1)));
    pair.settle();
    assert_eq!(pair.told.last(), Some(&agent::Output::Reported(ReportId(1))));
}

#[test]
fn what_cannot_be_kept_stays_with_the_agent() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    pair.settle();
    pair.manage(manager::Input::NotCommitted(RecordId(1)));
    pair.settle();
    assert_eq!(pair.told.last(), Some(&agent::Output::NotReported(ReportId(1))));
    assert_eq!(
        pair.manager.state(),
        AssociationState::Operating,
        "a full disk ends no association"
    );
}

#[test]
fn a_commit_after_the_end_answers_nothing() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    pair.settle();
    pair.pass(TO_REPORT);
    pair.settle();
    assert_eq!(pair.agent.state(), AssociationState::Unassociated);
    assert_eq!(
        pair.told[1..],
        [
            agent::Output::NotReported(ReportId(1)),
            agent::Output::Unassociated(agent::Ending::Aborted),
        ]
    );
    let aborted = manager::Ending::AbortedByAgent(AbortReason::RESPONSE_TIMEOUT);
    assert!(matches!(pair.said.last(), Some(manager::Output::Disassociated { ending, .. })
        if *ending == aborted));
    pair.act(agent::Input::Associate);
    pair.settle();
    let sent = pair.to_agent.len();
    pair.manage(manager::Input::Committed(RecordId(1)));
    assert_eq!(pair.to_agent.len(), sent, "the number belongs to the association that has ended");
}

#[test]
fn a_manager_reads_the_device_and_sets_its_clock() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    let time = AbsoluteTime::new(2026, [11, 21, 12, 30, 0, 0]).unwrap();
    let missing = Operation::Get { handle: Handle(77), attributes: Vec::new() };
    let data = Operation::request_data(DataRequestId(1), &DataScope::All).unwrap();
    let asked = [
        Operation::read_device(),
        Operation::set_clock(time),
        Operation::enable_scanner(Handle(30), true),
        data,
        missing,
    ];
    for (number, operation) in (1..).zip(asked) {
        pair.manage(manager::Input::Ask(RequestId(number), operation));
    }
    pair.settle();
    let Ok(OperationResult::Attributes { handle: Handle::MDS, values }) = pair.answer(1) else {
        panic!()
    };
    let ids: Vec<_> = values.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [attribute::SYSTEM_ID, attribute::CONFIG_ID, attribute::MODEL]);
    assert!(matches!(pair.answer(2), Ok(OperationResult::Action { action: action::SET_TIME, .. })));
    assert!(matches!(pair.answer(3), Ok(OperationResult::Attributes { handle: Handle(30), .. })));
    assert!(matches!(
        pair.answer(4),
        Ok(OperationResult::Action { action: action::DATA_REQUEST, .. })
    ));
    assert_eq!(pair.answer(5), Err(OperationFailure::Failed(ErrorCode::NO_SUCH_OBJECT)));
    assert_eq!(
        pair.told[1..],
        [
            agent::Output::ClockSet(time),
            agent::Output::ScannerSet(Handle(30), true),
            agent::Output::DataRequested(DataRequestId(1)),
        ]
    );
}

#[test]
fn a_device_that_does_not_answer_is_aborted() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    for request in 1..=20 {
        pair.manage(manager::Input::Ask(RequestId(request), Operation::read_device()));
    }
    assert_eq!(pair.answer(20), Err(OperationFailure::Busy(manager::ASKED_MAX)));
    pair.to_agent.clear();
    pair.now += TO_OPERATION.checked_sub(MS).unwrap();
    pair.manage(manager::Input::Tick);
    assert_eq!(pair.manager.state(), AssociationState::Operating);
    pair.now += MS;
    pair.manage(manager::Input::Tick);
    assert_eq!(pair.manager.state(), AssociationState::Unassociated);
    assert_eq!(pair.answer(1), Err(OperationFailure::TimedOut));
    assert_eq!(pair.answer(16), Err(OperationFailure::TimedOut));
    pair.manage(manager::Input::Ask(RequestId(30), Operation::read_device()));
    assert_eq!(pair.answer(30), Err(OperationFailure::Away));
}

/// A manager in the field reads the device before it answers the configuration: the agent serves
/// it and goes on waiting.
#[test]
fn a_device_is_read_before_its_configuration_is_answered() {
    let mut pair = Pair::new(Library::empty(), agent_settings(&specialisation::OXIMETER));
    pair.act(agent::Input::Associate);
    let request = pair.to_manager.pop_front().unwrap();
    pair.manage(manager::Input::Apdu(&request));
    let accepted = pair.to_agent.pop_front().unwrap();
    pair.act(agent::Input::Apdu(&accepted));
    assert_eq!(pair.agent.state(), AssociationState::WaitingApproval);
    let get = Operation::read_device().encode(InvokeId(0x8002)).unwrap();
    pair.act(agent::Input::Apdu(&get));
    assert_eq!(pair.agent.state(), AssociationState::WaitingApproval);
    let answer = pair.to_manager.pop_back().unwrap();
    assert_eq!(answer[6..10], [0x80, 0x02, 0x02, 0x03], "the result of a GET");
    let set = Operation::set_clock(AbsoluteTime::default()).encode(InvokeId(3)).unwrap();
    pair.act(agent::Input::Apdu(&set));
    let refused = pair.to_manager.pop_back().unwrap();
    assert_eq!(refused[8..], [0x03, 0, 0, 4, 0, 24, 0, 0], "not allowed, not now");
    pair.settle();
    assert_eq!(
        (pair.manager.state(), pair.agent.state()),
        (AssociationState::Operating, AssociationState::Operating)
    );
}

/// Two objects with one handle: the manager cannot use it, and the agent offers its next one.
fn unusable() -> (ConfigId, Vec<u8>) {
    let builder = ConfigurationBuilder::new();
    let builder = builder.object(class::NUMERIC, Handle(1), &[]).unwrap();
    let builder = builder.object(class::NUMERIC, Handle(1), &[]).unwrap();
    (ConfigId(0x4000), builder.finish(ConfigId(0x4000)).unwrap())
}

#[test]
fn an_agent_offers_its_next_configuration() {
    let mut settings = agent_settings(&specialisation::OXIMETER);
    settings.configurations.insert(0, unusable());
    let mut pair = Pair::new(Library::empty(), settings);
    pair.act(agent::Input::Associate);
    pair.settle();
    assert_eq!(
        (pair.manager.state(), pair.agent.state()),
        (AssociationState::Operating, AssociationState::Operating)
    );
    assert_eq!(pair.manager.configuration().unwrap().id(), ConfigId(0x0190));
    assert_eq!(pair.manager.counters().unusable_configurations, 1);
}

#[test]
fn an_agent_without_a_usable_configuration_takes_leave() {
    let mut settings = agent_settings(&specialisation::OXIMETER);
    settings.configurations = vec![unusable()];
    let mut pair = Pair::new(Library::empty(), settings);
    pair.act(agent::Input::Associate);
    let mut last = Vec::new();
    while let Some(octets) = pair.to_manager.pop_front() {
        pair.manage(manager::Input::Apdu(&octets));
        last = octets;
        while let Some(octets) = pair.to_agent.pop_front() {
            pair.act(agent::Input::Apdu(&octets));
        }
    }
    assert_eq!(last, [0xE4, 0, 0, 2, 0, 1], "no more configurations");
    assert_eq!(pair.told, [agent::Output::Unassociated(agent::Ending::Released)]);
    assert_eq!(pair.manager.state(), AssociationState::Unassociated);
}

/// An agent that reports its configuration although the manager knows it.
#[test]
fn a_late_configuration_is_taken() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    let mut report = |octets: Vec<u8>| {
        let (id, handle, event) = (ReportId(7), Handle::MDS, event::CONFIG);
        let late = OutgoingReport { id, handle, event, info: octets, confirmed: true };
        pair.act(agent::Input::Report(late));
        pair.settle();
        assert_eq!(pair.told.last(), Some(&agent::Output::Reported(ReportId(7))));
        assert_eq!(pair.manager.state(), AssociationState::Operating);
        let configured =
            |output: &&manager::Output| matches!(output, manager::Output::Configured { .. });
        pair.said.iter().filter(configured).count()
    };
    assert_eq!(report(specialisation::OXIMETER.octets().unwrap()), 1, "nothing new");
    let mut changed = specialisation::SPOT_OXIMETER.octets().unwrap();
    changed[1] = 0x90;
    assert_eq!(report(changed), 2, "the same number with other content");
}

/// The store of a pen: describe, fetch, clear.
#[test]
fn a_store_is_described_fetched_and_cleared() {
    let hex = |text: &str| -> Vec<u8> {
        text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let map = hex("40 00 00 01 00 10 00 06 00 82 34 01 00 02 00 01 00 04 0A 56 00 04");
    let mut settings = agent_settings(&specialisation::DISPENSER);
    let entries: Vec<u8> = (0..200_u32)
        .flat_map(|entry| [(entry * 8_000).to_be_bytes(), (0xFF00_0000 + entry).to_be_bytes()])
        .flatten()
        .collect();
    settings.segments.push(agent::PmSegment {
        store: Handle(0x0100),
        instance: 16,
        attributes: vec![(attribute::SEGMENT_MAP, map)],
        entry_len: 8,
        entries,
    });
    let mut pair = Pair::new(Library::standard(), settings);
    pair.act(agent::Input::Associate);
    pair.settle();
    let store = Handle(0x0100);
    let describe = Operation::describe_segments(store, &Selection::All).unwrap();
    pair.manage(manager::Input::Ask(RequestId(1), describe.clone()));
    pair.settle();
    let Ok(OperationResult::Action { info, .. }) = pair.answer(1) else { panic!() };
    let segment = segments(&info).unwrap().iter().next().unwrap();
    let map = segment.map().unwrap();
    pair.manage(manager::Input::Ask(
        RequestId(2),
        Operation::transfer_segment(store, segment.instance),
    ));
    pair.settle();
    let configuration = pair.manager.configuration().unwrap();
    let mut seen = 0;
    for record in pair.records() {
        let Some((Handle(0x0100), _, Report::Segment(data))) = record.report() else { panic!() };
        observe_segment(configuration, &map, &data, |index, observation| {
            assert_eq!(index, seen);
            assert_eq!(observation.time.relative, Some(index * 8_000));
            seen += 1;
        });
    }
    assert_eq!((seen, pair.records().len()), (200, 2));
    let clear = Operation::clear_segments(store, &Selection::Instances(vec![16])).unwrap();
    pair.manage(manager::Input::Ask(RequestId(3), clear));
    pair.settle();
    assert!(pair.answer(3).is_ok());
    assert_eq!(pair.told.last(), Some(&agent::Output::Cleared(store)));
}

/// An agent whose report numbers stand still, start again or wrap: within an association no two
/// reports get the same number.
#[test]
fn report_numbers_grow() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    for id in [5, 6, 6, 0, 65_535, 0, 1] {
        pair.report(id, false, &[(1, &[0, 97])]);
        pair.settle();
    }
    let numbers: Vec<_> = pair.records().iter().map(|record| record.number).collect();
    let turn = 65_536;
    assert_eq!(numbers, [5, 6, turn + 6, 2 * turn, 3 * turn - 1, 3 * turn, 3 * turn + 1]);
    assert_eq!(pair.manager.counters().numbers_not_growing, 2);
}

#[test]
fn reports_without_association_abort() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.report(1, true, &[(1, &[0, 97])]);
    let report = pair.to_manager.pop_front().unwrap();
    pair.manage(manager::Input::Disconnected);
    pair.manage(manager::Input::Connected);
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!(pair.to_agent.pop_back().unwrap(), [0xE6, 0, 0, 2, 0, 0]);
}

/// Whoever can send a datagram could otherwise end associations that are being made.
#[test]
fn datagrams_without_association_are_dropped() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.report(1, true, &[(1, &[0, 97])]);
    let report = pair.to_manager.pop_front().unwrap();
    let mut settings = manager::ManagerSettings::new(MANAGER_ID);
    settings.datagrams = true;
    pair.manager = Manager::new(settings);
    pair.manage(manager::Input::Connected);
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!((pair.to_agent.len(), pair.manager.counters().strangers), (0, 1));
}

#[test]
fn a_device_that_is_not_admitted_is_rejected() {
    let mut library = Library::standard();
    library.admit(Some([SystemId(*b"ANOTHER1")].into()));
    let mut pair = Pair::new(library, agent_settings(&specialisation::OXIMETER));
    pair.act(agent::Input::Associate);
    pair.settle();
    let rejected = agent::Ending::Rejected(AssociateResult::REJECTED_UNAUTHORIZED);
    assert_eq!(pair.told, [agent::Output::Unassociated(rejected)]);
    assert_eq!(
        (pair.manager.state(), pair.manager.counters().refused),
        (AssociationState::Unassociated, 1)
    );
}

#[test]
fn too_many_reports_that_wait_are_rejected() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    let mut report = pair.to_manager.pop_front().unwrap();
    for invoke_id in 0..=manager::WAITING_MAX {
        // Choice and length of the APDU, length of the DATA-APDU, invoke-id.
        report[6..8].copy_from_slice(&u16::try_from(invoke_id).unwrap().to_be_bytes());
        pair.manage(manager::Input::Apdu(&report));
    }
    assert_eq!(pair.manager.counters().waiting_full, 1);
    let rejected = pair.to_agent.pop_back().unwrap();
    assert_eq!(rejected[8..], [0x04, 0, 0, 2, 0, 103]);
}

/// A datagram that comes twice is one report, and its answer is repeated.
#[test]
fn a_repeated_datagram_is_one_report() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    let mut settings = manager::ManagerSettings::new(MANAGER_ID);
    settings.datagrams = true;
    pair.manager = Manager::new(settings);
    pair.manage(manager::Input::Connected);
    pair.act(agent::Input::Abort);
    pair.settle();
    pair.act(agent::Input::Associate);
    pair.settle();
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    let report = pair.to_manager.pop_front().unwrap();
    for _ in 0..3 {
        pair.manage(manager::Input::Apdu(&report));
    }
    assert_eq!((pair.records().len(), pair.to_agent.len()), (1, 0));
    pair.manage(manager::Input::Committed(RecordId(1)));
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!((pair.records().len(), pair.to_agent.len()), (1, 2));
    assert_eq!(pair.manager.counters().repeated, 3);
}

/// An agent that takes leave while its report is under way, and the answer meets the request: the
/// report has arrived. Without the answer it is the agent's again.
#[test]
fn an_answer_that_crosses_the_release_is_one() {
    for (answered, outcome) in [
        (true, agent::Output::Reported(ReportId(1))),
        (false, agent::Output::NotReported(ReportId(1))),
    ] {
        let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
        pair.report(1, true, &[(1, &[0, 97])]);
        pair.act(agent::Input::Release);
        pair.told.clear();
        if !answered {
            pair.to_manager.pop_front();
        }
        pair.settle();
        assert_eq!(pair.told, [outcome, agent::Output::Unassociated(agent::Ending::Released)]);
    }
}

/// On a stream, too: an agent that repeats its report before it would give up has sent one, whether
/// the first still waits or was answered. One that later says the same does not count its reports.
#[test]
fn a_report_repeated_on_a_stream_is_one_report() {
    let mut pair = Pair::associated(Library::standard(), &specialisation::OXIMETER);
    pair.commits = false;
    pair.report(1, true, &[(1, &[0, 97])]);
    let report = pair.to_manager.pop_front().unwrap();
    pair.manage(manager::Input::Apdu(&report));
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!((pair.records().len(), pair.to_agent.len()), (1, 0));
    pair.manage(manager::Input::Committed(RecordId(1)));
    pair.now += TO_REPORT.saturating_sub(MS);
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!((pair.records().len(), pair.to_agent.len()), (1, 2));
    assert_eq!(pair.to_agent[0], pair.to_agent[1]);
    assert_eq!(pair.manager.counters().repeated, 2);
    pair.now += MS;
    pair.manage(manager::Input::Apdu(&report));
    assert_eq!((pair.records().len(), pair.manager.counters().repeated), (2, 2));
}

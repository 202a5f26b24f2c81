//! What a manager answers to an agent that does not say what it should: the octets both ways.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::apdu::{
    Aare, Aarq, Apdu, AssociateResult, AssociationInformation, PROTOCOL_20601, Protocol,
    UNIT_TEST_ASSOCIATION,
};
use gatewright_health::association::AssociationState;
use gatewright_health::code::*;
use gatewright_health::configuration::Library;
use gatewright_health::data::{DataApdu, DataMessage, EventReport, RejectProblem};
use gatewright_health::manager::{self, Manager, ManagerSettings};
use gatewright_health::mder::{MderWriter, Reader};
use gatewright_health::report::{ConfigAnswer, ConfigResult};

const AGENT: SystemId = SystemId(*b"AGENT001");

/// A manager, and what it says.
struct Side(Manager, Library);

impl Side {
    fn new() -> Self {
        let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
        let mut library = Library::standard();
        manager.handle(Duration::ZERO, manager::Input::Connected, &mut library);
        Self(manager, library)
    }

    /// With an agent that has associated.
    fn associated(config: u16) -> Self {
        let mut side = Self::new();
        side.hear(&request(config, 0));
        side
    }

    /// What is sent for these octets, and everything else that is done.
    fn hear(&mut self, octets: &[u8]) -> (Vec<Vec<u8>>, Vec<manager::Output>) {
        self.0.handle(Duration::ZERO, manager::Input::Apdu(octets), &mut self.1);
        let (mut sent, mut done) = (Vec::new(), Vec::new());
        while let Some(output) = self.0.poll_output() {
            match output {
                manager::Output::Send(octets) => sent.push(octets),
                other => done.push(other),
            }
        }
        (sent, done)
    }
}

/// An association request.
fn request(config: u16, functional_units: u32) -> Vec<u8> {
    let information = AssociationInformation::agent(AGENT, ConfigId(config));
    let info = AssociationInformation { functional_units, ..information }.encode().unwrap();
    let mut writer = MderWriter::new();
    writer.list(&[Protocol { id: PROTOCOL_20601, info: &info }]);
    let octets = writer.finish().unwrap();
    let protocols = Reader::new(&octets).list().unwrap();
    Apdu::Aarq(Aarq { version: 0x8000_0000, protocols }).encode().unwrap()
}

/// The report of `event` with this information.
fn report(event: EventType, info: &[u8], confirmed: bool) -> Vec<u8> {
    let report = EventReport { handle: Handle::MDS, time: 0, event, info };
    let message = if confirmed {
        DataMessage::ConfirmedEventReport(report)
    } else {
        DataMessage::EventReport(report)
    };
    Apdu::Prst(DataApdu { invoke_id: InvokeId(7), message }).encode().unwrap()
}

fn message(octets: &[u8]) -> DataMessage<'_> {
    let Apdu::Prst(data) = Apdu::decode(octets).unwrap() else { panic!("{octets:?}") };
    assert_eq!(data.invoke_id, InvokeId(7));
    data.message
}

/// An association request that ends before its time is answered: the agent need not wait.
#[test]
fn a_malformed_association_request_is_rejected() {
    let whole = request(0x0190, 0);
    for (cut, length) in [(whole.len() - 2, whole.len() - 6), (4, 0)] {
        let mut octets = whole[..cut].to_vec();
        octets[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        let mut side = Side::new();
        let (sent, done) = side.hear(&octets);
        let Apdu::Aare(Aare { result, .. }) = Apdu::decode(&sent[0]).unwrap() else { panic!() };
        assert_eq!(result, AssociateResult::REJECTED_PERMANENT);
        assert_eq!((sent.len(), done.len()), (1, 0));
        let counters = side.0.counters();
        assert_eq!((counters.malformed, counters.refused), (1, 1));
        assert_eq!(side.0.state(), AssociationState::Unassociated);
    }
}

/// MDC_NOTI with a number that 20601 does not name: who wants no answer gets none.
#[test]
fn an_unknown_event_is_rejected_if_it_is_confirmed() {
    let mut side = Side::associated(0x0190);
    let (sent, done) = side.hear(&report(EventType(0x0D7F), &[1, 2], false));
    assert!(sent.is_empty() && done.is_empty(), "{sent:?} {done:?}");
    let (sent, _) = side.hear(&report(EventType(0x0D7F), &[1, 2], true));
    assert_eq!(message(&sent[0]), DataMessage::Reject(RejectProblem::UNRECOGNIZED_OPERATION));
    assert_eq!(side.0.counters().unknown_events, 2);
    assert_eq!(side.0.state(), AssociationState::Operating);
}

/// RorjProblem: unrecognized-apdu (0) for a choice that there is not, badly-structured-apdu (2) for
/// one that is cut.
#[test]
fn what_cannot_be_read_is_rejected_with_the_reason() {
    let mut side = Side::associated(0x0190);
    let unknown = [0xE7, 0, 0, 10, 0, 8, 0, 7, 0x01, 0x7F, 0, 2, 0, 0];
    let (sent, _) = side.hear(&unknown);
    assert_eq!(message(&sent[0]), DataMessage::Reject(RejectProblem(0)));
    let cut = [0xE7, 0, 0, 10, 0, 8, 0, 7, 0x01, 0x01, 0, 2, 0, 0];
    let (sent, _) = side.hear(&cut);
    assert_eq!(message(&sent[0]), DataMessage::Reject(RejectProblem(2)));
    assert_eq!(side.0.counters().malformed, 2);
}

/// The answer names the configuration that is not supported, so that the agent may offer the next.
#[test]
fn a_malformed_configuration_is_not_supported_by_its_number() {
    for (info, id) in [(&[0x40, 0x07, 0, 1, 0, 9][..], 0x4007), (&[0x40], 0x4001)] {
        let mut side = Side::associated(0x4001);
        let (sent, _) = side.hear(&report(event::CONFIG, info, true));
        let DataMessage::EventReportResult(result) = message(&sent[0]) else { panic!("{sent:?}") };
        let answer = ConfigAnswer::decode(result.info).unwrap();
        assert_eq!(answer, ConfigAnswer { id: ConfigId(id), result: ConfigResult::UNSUPPORTED });
        assert_eq!(side.0.state(), AssociationState::WaitingForConfig);
    }
}

#[test]
fn a_test_association_is_told() {
    for (units, expected) in [(0, false), (UNIT_TEST_ASSOCIATION, true)] {
        let mut side = Side::new();
        let (_, done) = side.hear(&request(0x0190, units));
        let manager::Output::Associated { is_test, .. } = done[0] else { panic!("{done:?}") };
        assert_eq!(is_test, expected);
        assert_eq!(side.0.counters().test_associations, u64::from(expected));
    }
}

//! What holds for all APDUs: decoding takes back what encoding made, and octets never panic.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_health::apdu::*;
use gatewright_health::code::*;
use gatewright_health::data::*;
use gatewright_health::mder::{Element, List, MderWriter, Reader};
use gatewright_health::report::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A list of `elements`, in octets.
fn listed<'a, E: Element<'a>>(elements: &[E]) -> Vec<u8> {
    let mut writer = MderWriter::new();
    writer.list(elements);
    writer.finish().unwrap()
}

fn list<'a, E: Element<'a>>(octets: &'a [u8]) -> List<'a, E> {
    Reader::new(octets).list().unwrap()
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn comes_back(apdu: &Apdu<'_>) -> Result<(), TestCaseError> {
    let octets = apdu.encode().unwrap();
    prop_assert_eq!(Apdu::decode(&octets), Ok(*apdu));
    Ok(())
}

proptest! {
    #[test]
    fn association(version: u32, id: u16, info in octets(), result: u16) {
        let protocols = listed(&[Protocol { id, info: &info }, Protocol { id: 1, info: &[] }]);
        comes_back(&Apdu::Aarq(Aarq { version, protocols: list(&protocols) }))?;
        let protocol = Protocol { id, info: &info };
        comes_back(&Apdu::Aare(Aare { result: AssociateResult(result), protocol }))?;
        comes_back(&Apdu::Rlrq(ReleaseReason(result)))?;
        comes_back(&Apdu::Rlre(ReleaseReason(result)))?;
        comes_back(&Apdu::Abrt(AbortReason(result)))?;
    }

    #[test]
    fn association_information(words: [u32; 4], shorts: [u16; 3], id: [u8; 8], counts: [u8; 2],
            value in octets()) {
        let options = listed(&[Attribute { id: AttributeId(shorts[0]), value: &value }]);
        let information = AssociationInformation {
            protocol_version: words[0],
            encoding_rules: shorts[1],
            nomenclature_version: words[1],
            functional_units: words[2],
            system_type: words[3],
            system_id: SystemId(id),
            config_id: ConfigId(shorts[2]),
            data_request: DataRequestModes {
                flags: shorts[0], agent_count: counts[0], manager_count: counts[1],
            },
            options: list(&options),
        };
        let encoded = information.encode().unwrap();
        prop_assert_eq!(AssociationInformation::decode(&encoded), Ok(information));
    }

    #[test]
    fn operations(invoke: u16, handle: u16, time: u32, code: u16, info in octets()) {
        let handle = Handle(handle);
        let report = EventReport { handle, time, event: EventType(code), info: &info };
        let action = Action { handle, action: ActionType(code), info: &info };
        let attribute = Attribute { id: AttributeId(code), value: &info };
        let attribute_list = listed(&[attribute, attribute]);
        let attributes = Attributes { handle, attributes: list(&attribute_list) };
        let ids = listed(&[AttributeId(code)]);
        let get = Get { handle, attributes: list(&ids) };
        let changes = listed(&[AttributeChange { operator: code, attribute }]);
        let set = Set { handle, changes: list(&changes) };
        let error = OperationError { code: ErrorCode(code), parameter: &info };
        for message in [
            DataMessage::EventReport(report), DataMessage::ConfirmedEventReport(report), DataMessage::Get(get),
            DataMessage::Set(set), DataMessage::ConfirmedSet(set), DataMessage::Action(action),
            DataMessage::ConfirmedAction(action), DataMessage::EventReportResult(report),
            DataMessage::GetResult(attributes), DataMessage::SetResult(attributes),
            DataMessage::ActionResult(action), DataMessage::Error(error),
            DataMessage::Reject(RejectProblem(code)),
        ] {
            comes_back(&Apdu::Prst(DataApdu { invoke_id: InvokeId(invoke), message }))?;
        }
    }

    /// Each event type of the family, with the list that belongs to it.
    #[test]
    fn scan_reports(number: u16, handle: u16, person: u16, value in octets(), more in octets()) {
        let handle = Handle(handle);
        let person = PersonId(person);
        let fixed = [FixedObservation { handle, octets: &value }, FixedObservation { handle, octets: &more }];
        let attribute_list = listed(&[Attribute { id: AttributeId(1), value: &value }]);
        let variable = [VariableObservation { handle, attributes: list(&attribute_list) }; 2];
        let grouped: [&[u8]; 2] = [&value, &more];
        let fixed_list = listed(&fixed);
        let variable_list = listed(&variable);
        let request = DataRequestId::AGENT_INITIATED;
        let by_fixed = [ByPerson { person, observations: list::<FixedObservation<'_>>(&fixed_list) }];
        let by_variable = [ByPerson { person, observations: list::<VariableObservation<'_>>(&variable_list) }];
        let by_grouped = [GroupedByPerson { person, octets: &value }, GroupedByPerson { person, octets: &more }];
        let cases = [
            (vec![event::SCAN_FIXED, event::UNBUFFERED_FIXED, event::BUFFERED_FIXED],
                encode_scan(request, number, &fixed), fixed.map(RawValues::Fixed), None),
            (vec![event::SCAN_VAR, event::UNBUFFERED_VAR, event::BUFFERED_VAR],
                encode_scan(request, number, &variable), variable.map(RawValues::Variable), None),
            (vec![event::UNBUFFERED_GROUPED, event::BUFFERED_GROUPED],
                encode_scan(request, number, &grouped), grouped.map(RawValues::Grouped), None),
            (vec![event::SCAN_MP_FIXED, event::UNBUFFERED_MP_FIXED, event::BUFFERED_MP_FIXED],
                encode_scan(request, number, &by_fixed), fixed.map(RawValues::Fixed), Some(person)),
            (vec![event::SCAN_MP_VAR, event::UNBUFFERED_MP_VAR, event::BUFFERED_MP_VAR],
                encode_scan(request, number, &by_variable), variable.map(RawValues::Variable), Some(person)),
            (vec![event::UNBUFFERED_MP_GROUPED, event::BUFFERED_MP_GROUPED],
                encode_scan(request, number, &by_grouped), grouped.map(RawValues::Grouped), Some(person)),
        ];
        for (events, info, values, person) in cases {
            let info = info.unwrap();
            for event in events {
                let report = EventReport { handle, time: 0, event, info: &info };
                let Ok(Report::Scan(scan)) = report.report() else { panic!("{event:?}") };
                prop_assert_eq!((scan.request, scan.number), (request, number));
                let expected = values.map(|values| RawObservation { person, values });
                prop_assert_eq!(scan.observations().collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn random_octets_never_panic(choice in 0_usize..6, rest in vec(any::<u8>(), 0..200)) {
        let choices = [0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7];
        let _ = Apdu::decode(&rest);
        let _ = AssociationInformation::decode(&rest);
        let _ = ConfigReport::decode(&rest);
        let _ = DataApdu::decode(&rest);
        let mut framed = vec![choices[choice], 0];
        framed.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        framed.extend(&rest);
        let _ = Apdu::decode(&framed);
        for code in 0x0D1C..0x0D30 {
            let report = EventReport { handle: Handle(0), time: 0, event: EventType(code), info: &rest };
            if let Ok(Report::Scan(scan)) = report.report() {
                scan.observations().for_each(drop);
            }
        }
    }
}

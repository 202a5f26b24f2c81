//! The epoch rule: a report that a device sends once more, in another association, is known by the
//! device's own time; one without such a time, or by a clock that stands still, is not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_health::apdu::Apdu;
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::manager::{RecordId, ReportRecord};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::{OXIMETER, SPOT_OXIMETER, Specialisation};
use gatewright_health::time::AbsoluteTime;
use gatewright_interwork::{Device, DeviceAssociation, Mapping};
use gatewright_onem2m::Timestamp;
use proptest::prelude::*;
use std::sync::Arc;

/// An association of the device, the `epoch`-th.
fn session(kind: &Specialisation, epoch: u64) -> DeviceAssociation {
    let configuration = Arc::new(kind.configuration().unwrap());
    let system_id = SystemId(*b"OXIMETER");
    let device = Device::new(&Mapping::default(), "cse-mn", system_id, epoch, &configuration);
    DeviceAssociation::new(device, configuration)
}

/// The `number`-th report of an association: oxygen saturation of `percent`, measured at `time`.
fn record(number: u16, percent: u8, time: Option<AbsoluteTime>) -> ReportRecord {
    // Basic-Nu-Observed-Value: an SFLOAT with exponent 0.
    let mut octets = vec![0, percent];
    octets.extend(time.iter().flat_map(|time| time.0));
    let observation = FixedObservation { handle: Handle(1), octets: &octets };
    let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &[observation]).unwrap();
    let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
    let report = EventReport { handle, time: u32::from(number) * 8_000, event, info: &info };
    let message = DataMessage::ConfirmedEventReport(report);
    let apdu = Apdu::Prst(DataApdu { invoke_id: InvokeId(number), message }).encode().unwrap();
    ReportRecord { id: RecordId(number.into()), number: number.into(), confirmed: true, apdu }
}

fn names(session: &mut DeviceAssociation, record: &ReportRecord) -> Vec<String> {
    let mut names = Vec::new();
    let received = Timestamp::from_micros(1_795_266_000_000_000);
    let read = session.read(&Mapping::default(), record, received, |instance| {
        let content = format!("\"rn\":\"{}\"", instance.name);
        assert!(instance.content.contains(&content), "{}", instance.content);
        names.push(instance.name.to_string());
    });
    assert_eq!(read.unwrap().observations, 1);
    names
}

fn at(seconds: u64) -> AbsoluteTime {
    AbsoluteTime::from_unix((1_795_266_000 + seconds) * 100)
}

#[test]
fn a_report_sent_again_in_another_association_has_the_same_name() {
    let (mut first, mut second) = (session(&SPOT_OXIMETER, 7), session(&SPOT_OXIMETER, 8));
    let before = names(&mut first, &record(51, 97, Some(at(0))));
    assert_eq!(before, names(&mut first, &record(51, 97, Some(at(0)))), "read again");
    // Another invoke-id, another number, another event time: the same measurement.
    assert_eq!(names(&mut second, &record(1, 97, Some(at(0)))), before);
    assert_ne!(names(&mut second, &record(2, 97, Some(at(1)))), before, "measured later");
    let mut third = session(&SPOT_OXIMETER, 9);
    assert_ne!(names(&mut third, &record(1, 98, Some(at(0)))), before, "another value");
}

#[test]
fn without_a_time_or_with_a_clock_that_stands_each_report_is_another() {
    let (mut first, mut second) = (session(&OXIMETER, 7), session(&OXIMETER, 8));
    let before = names(&mut first, &record(1, 97, None));
    assert_eq!(before, ["4f58494d45544552-7-1-1"]);
    assert_ne!(names(&mut second, &record(1, 97, None)), before);
    let mut standing = session(&SPOT_OXIMETER, 9);
    let known = names(&mut standing, &record(1, 97, Some(at(0))));
    assert_eq!(names(&mut standing, &record(2, 97, Some(at(0)))), ["4f58494d45544552-9-2-1"]);
    assert_eq!(names(&mut standing, &record(3, 97, Some(at(0)))), ["4f58494d45544552-9-3-1"]);
    assert_ne!(known, ["4f58494d45544552-9-1-1"]);
    // Octets that are no date are no time.
    let mut unset = session(&SPOT_OXIMETER, 10);
    let no_date = Some(AbsoluteTime([0; 8]));
    assert_eq!(names(&mut unset, &record(1, 97, no_date)), ["4f58494d45544552-10-1-1"]);
}

proptest! {
    /// Whatever was reported before, and wherever the association broke: what is sent again gets
    /// the name that it had, and nothing else gets it.
    #[test]
    fn names_are_one_to_one_with_measurements(
        steps in proptest::collection::vec((1_u64..4, 90_u8..100), 1..20),
        cut in 0_usize..20,
    ) {
        let cut = cut.min(steps.len() - 1);
        let mut time = 0;
        let measured: Vec<_> = steps
            .iter()
            .map(|(step, percent)| {
                time += step;
                (*percent, Some(at(time)))
            })
            .collect();
        let (mut first, mut second) = (session(&SPOT_OXIMETER, 1), session(&SPOT_OXIMETER, 2));
        let mut all = Vec::new();
        for (number, (percent, time)) in (1..).zip(&measured[..=cut]) {
            all.extend(names(&mut first, &record(number, *percent, *time)));
        }
        // The last one's answer was lost.
        for (number, (percent, time)) in (1..).zip(&measured[cut..]) {
            all.extend(names(&mut second, &record(number, *percent, *time)));
        }
        prop_assert_eq!(&all[cut], &all[cut + 1]);
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len(), measured.len());
    }
}

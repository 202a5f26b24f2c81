//! APDUs that devices and managers sent, byte for byte, decoded and encoded again.
//!
//! Where they come from: the association request, the configuration and the reports of the
//! scale and the thermometer stand in demonstration firmware of USB device makers; the
//! medication pen's store was recorded from a device in the field.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_health::apdu::{Aarq, Apdu, AssociateResult, AssociationInformation, find};
use gatewright_health::code::{ConfigId, Handle, InvokeId, SystemId, attribute, event};
use gatewright_health::data::{DataApdu, DataMessage};
use gatewright_health::report::{RawValues, Report, SegmentStatus};

/// Hexadecimal digits, blanks ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

const AARQ: &str = "E200 0032 80000000 0001 002A 5079 0026 80000000 8000 80000000 00000000 00800000
    0008 4C4E494147454E54 4000 0001 0100 0000 0000";
const AARE: &str = "E300 002C 0003 5079 0026 80000000 8000 80000000 00000000 80000000
    0008 4C4E494147454E54 0000 0000 0000 0000 0000";
const SCALE_REPORT: &str =
    "E700 005A 0058 1236 0101 0052 0000 00000000 0D1D 0048 F000 0000 0004 0040
    0001 000C FF0002FA 2007120612100000 0003 000C FF0000F3 2007120612100000
    0001 000C FF0002F8 2007120620050000 0003 000C FF0000F2 2007120620050000";
const SCALE_CONFIG: &str = "E700 00A2 00A0 0005 0101 009A 0000 FFFFFFFF 0D1C 0090 05DC 0003 008A
    0006 0001 0004 0024 092F 0004 0002E140 0A46 0002 F040 0996 0002 06C3
                        0A55 000C 0002 0008 0A56 0004 0990 0008
    0006 0002 0004 0024 092F 0004 0002E144 0A46 0002 F048 0996 0002 0511
                        0A55 000C 0002 0008 0A56 0004 0990 0008
    0006 0003 0005 002A 092F 0004 0002E150 0A46 0002 F042 0996 0002 07A0 0A47 0002 0001
                        0A55 000C 0002 0008 0A56 0004 0990 0008";
const SCALE_MDS: &str = "E700 006E 006C 0002 0203 0066 0000 0006 0060 0A5A 0008 0001 0004 100F 0001
    0928 001A 000A 467265657363616C6520 000C 4D65646963616C2043465631
    0984 000A 0008 1122334455667788 0A44 0002 4000
    092D 0012 0001 000E 0001 0000 0008 4445313234353637 0987 0008 2009061212050000";
const PEN_CONFIG: &str = "E700 00C4 00C2 0000 0101 00BC 0000 00000000 0D1C 00B2 400A 0004 00AC
    003D 0100 0008 0038 0A4D 0002 0800 0943 0002 0000 0941 0004 00000320 0953 0002 0000
                        0A57 0004 0002 504D 0951 0002 0001 0A63 0004 00000000 0944 0004 00000017
    0006 0002 0004 0020 092F 0004 00823401 0A46 0002 F040 0996 0002 1560
                        0A55 0008 0001 0004 0A56 0004
    0005 0003 0003 001A 092F 0004 00823402 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002
    0006 0004 0003 001A 092F 0004 0082F000 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002";
const PEN_SEGMENT: &str = "E700 00B0 00AE 8001 0101 00A8 0100 00590A36 0D21 009E
    0010 00000000 0000000C 8000 0090
    0053030BFF00001408000000 004FC696FF00001908000000 004E83D1FF00000F08000000
    004D9D3AFF00003C08000000 004D9AB9FF00003C08000000 00454FD0FF00001E08000000
    00454F78FF00000A08000000 00445DEBFF00003208000000 003BFCD0FF00003C08000000
    003345BBFF00000A08000000 0031CF39FF00002808000000 0031CE4FFF00004108000000";
const PEN_CONFIG_ANSWER: &str = "E700 0016 0014 0000 0201 000E 0000 00000000 0D1C 0004 400A 0000";

fn data(octets: &[u8]) -> DataApdu<'_> {
    match Apdu::decode(octets).unwrap() {
        Apdu::Prst(data) => data,
        other => panic!("{other:?}"),
    }
}

/// Decodes a whole report.
fn report(octets: &[u8]) -> Report<'_> {
    match data(octets).message {
        DataMessage::ConfirmedEventReport(event) => event.report().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_come_back_byte_for_byte() {
    let all = [
        AARQ,
        AARE,
        SCALE_REPORT,
        SCALE_CONFIG,
        SCALE_MDS,
        PEN_CONFIG,
        PEN_SEGMENT,
        PEN_CONFIG_ANSWER,
        "E400 0002 0000",
        "E500 0002 0000",
        "E600 0002 0003",
        "E700 000E 000C 0002 0103 0006 0000 0000 0000",
    ];
    for text in all {
        let octets = hex(text);
        assert_eq!(Apdu::decode(&octets).unwrap().encode().unwrap(), octets, "{text}");
    }
}

#[test]
fn association_request() {
    let octets = hex(AARQ);
    let Apdu::Aarq(aarq) = Apdu::decode(&octets).unwrap() else { panic!() };
    let information = AssociationInformation::decode(aarq.offer().unwrap()).unwrap();
    assert_eq!(information.system_id, SystemId(*b"LNIAGENT"));
    assert_eq!(information.config_id, ConfigId(0x4000));
    let ours = AssociationInformation::agent(SystemId(*b"LNIAGENT"), ConfigId(0x4000));
    assert_eq!(information, ours);
    assert_eq!(Some(ours.encode().unwrap().as_slice()), Aarq::offer(&aarq));
}

#[test]
fn association_answer() {
    let octets = hex(AARE);
    let Apdu::Aare(aare) = Apdu::decode(&octets).unwrap() else { panic!() };
    assert_eq!(aare.result, AssociateResult::ACCEPTED_UNKNOWN_CONFIG);
    let ours = AssociationInformation::manager(SystemId(*b"LNIAGENT"));
    assert_eq!(aare.protocol.info, ours.encode().unwrap());
}

#[test]
fn configuration_of_a_scale() {
    let octets = hex(SCALE_CONFIG);
    let Report::Configuration(config) = report(&octets) else { panic!() };
    assert_eq!(config.id, ConfigId(0x05DC));
    let handles: Vec<_> = config.objects.iter().map(|object| object.handle.0).collect();
    assert_eq!(handles, [1, 2, 3]);
    let index = config.objects.iter().nth(2).unwrap();
    assert_eq!(find(index.attributes, attribute::SOURCE_HANDLE), Some([0, 1].as_slice()));
}

#[test]
fn report_of_a_scale() {
    let octets = hex(SCALE_REPORT);
    let Report::Scan(scan) = report(&octets) else { panic!() };
    assert_eq!((scan.request.0, scan.number), (0xF000, 0));
    let seen: Vec<_> = scan
        .observations()
        .map(|observation| match observation.values {
            RawValues::Fixed(fixed) => (fixed.handle, fixed.octets[..4].to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[0], (Handle(1), vec![0xFF, 0, 0x02, 0xFA]));
    assert_eq!(seen[3], (Handle(3), vec![0xFF, 0, 0x00, 0xF2]));
}

#[test]
fn attributes_of_a_scale() {
    let octets = hex(SCALE_MDS);
    let DataMessage::GetResult(mds) = data(&octets).message else { panic!() };
    assert_eq!(mds.handle, Handle::MDS);
    let id = find(mds.attributes, attribute::SYSTEM_ID).unwrap();
    assert_eq!(id, [0, 8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
}

#[test]
fn store_of_a_pen() {
    let octets = hex(PEN_SEGMENT);
    assert_eq!(data(&octets).invoke_id, InvokeId(0x8001));
    let Report::Segment(segment) = report(&octets) else { panic!() };
    assert_eq!((segment.instance, segment.first, segment.count), (0x10, 0, 12));
    assert!(segment.status.has(SegmentStatus::FIRST) && !segment.status.has(SegmentStatus::LAST));
    assert_eq!(segment.entries.len(), 12 * 12);
    let answer = segment.encode_answer(SegmentStatus::MANAGER_CONFIRM).unwrap();
    assert_eq!(answer, hex("0010 00000000 0000000C 0080"));
}

#[test]
fn answer_to_a_pens_configuration() {
    let octets = hex(PEN_CONFIG_ANSWER);
    let DataMessage::EventReportResult(result) = data(&octets).message else { panic!() };
    assert_eq!((result.event, result.info), (event::CONFIG, [0x40, 0x0A, 0, 0].as_slice()));
}

/// Every cut and every flipped bit of every vector is decoded or refused, never a panic.
#[test]
fn no_mutation_panics() {
    for text in [AARQ, AARE, SCALE_REPORT, SCALE_CONFIG, SCALE_MDS, PEN_CONFIG, PEN_SEGMENT] {
        let octets = hex(text);
        for end in 0..octets.len() {
            assert!(Apdu::decode(&octets[..end]).is_err(), "cut at {end}: {text}");
        }
        for bit in 0..octets.len() * 8 {
            let mut flipped = octets.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(Apdu::Prst(DataApdu {
                message: DataMessage::ConfirmedEventReport(event),
                ..
            })) = Apdu::decode(&flipped)
                && let Ok(Report::Scan(scan)) = event.report()
            {
                scan.observations().for_each(drop);
            }
        }
    }
}

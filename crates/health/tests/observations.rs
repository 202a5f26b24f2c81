//! From octets of the field to observations: every layout, and the sloppiness of real devices.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_health::apdu::{Apdu, Attribute};
use gatewright_health::code::*;
use gatewright_health::configuration::{
    Configuration, ConfigurationBuilder, MapEntry, SampleForm, Scale, Waveform, value_map,
};
use gatewright_health::convert::{Observation, Tally, Value, observe};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::mder::{Element, List, MderWriter, Reader};
use gatewright_health::report::*;
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::store::{observe_segment, segments};
use gatewright_health::time::AbsoluteTime;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn scan(event: EventType, info: &[u8]) -> ScanReport<'_> {
    let report = EventReport { handle: Handle::MDS, time: 0, event, info };
    let Ok(Report::Scan(scan)) = report.report() else { panic!("{event:?}") };
    scan
}

/// One line an observation: handle.component type value unit time.
fn line(observation: &Observation<'_>) -> String {
    let value = match observation.value {
        Value::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let unit = observation.unit.and_then(UnitCode::ucum).unwrap_or("-");
    let time = observation.time.absolute.and_then(AbsoluteTime::iso);
    let time = time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let Observation { handle, component, kind, .. } = observation;
    format!("{handle}.{component} {kind} {value} {unit} {time}")
}

fn lines(
    configuration: &Configuration,
    reporter: u16,
    scan: &ScanReport<'_>,
) -> (Vec<String>, Tally) {
    let mut lines = Vec::new();
    let tally = observe(configuration, Handle(reporter), scan, |observation| {
        lines.push(line(observation));
    });
    (lines, tally)
}

fn standard(specialisation: &Specialisation) -> Configuration {
    specialisation.configuration().unwrap()
}

/// The report of a scale whose configuration 05DC knows no handle 3: the body mass index is
/// skipped, the weights are kept.
#[test]
fn a_scale_reports_a_handle_that_was_never_configured() {
    let info = hex("F000 0000 0004 0040
        0001 000C FF0002FA 2007120612100000 0003 000C FF0000F3 2007120612100000
        0001 000C FF0002F8 2007120620050000 0003 000C FF0000F2 2007120620050000");
    let (lines, tally) =
        lines(&standard(&specialisation::SCALE), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(
        lines,
        [
            "1.0 2:57664 76.2 kg 2007-12-06T12:10:00.00",
            "1.0 2:57664 76.0 kg 2007-12-06T20:05:00.00",
        ]
    );
    assert_eq!(tally, Tally { observations: 2, unknown_handles: 2, ..Tally::default() });
}

/// The report of an oximeter that appends a timestamp which configuration 0190 does not map.
#[test]
fn an_oximeter_appends_octets_that_are_not_mapped() {
    let info = hex("F000 0000 0002 001C
        0001 000A 0061 2011041510150000 000A 000A F3C5 2011041510150000");
    let (lines, tally) =
        lines(&standard(&specialisation::OXIMETER), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(lines, ["1.0 2:19384 97 % -", "10.0 2:18458 96.5 {beat}/min -"]);
    assert_eq!(tally, Tally { observations: 2, trailing: 2, ..Tally::default() });
}

#[test]
fn a_compound_is_one_observation_a_component() {
    let info = hex("F000 0001 0002 0024
        0001 0012 0003 0006 0078 0050 005D 2026112112000000
        0002 000A 0048 2026112112000000");
    let (lines, _) =
        lines(&standard(&specialisation::BLOOD_PRESSURE), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(
        lines,
        [
            "1.0 2:18949 120 mm[Hg] 2026-11-21T12:00:00.00",
            "1.1 2:18950 80 mm[Hg] 2026-11-21T12:00:00.00",
            "1.2 2:18951 93 mm[Hg] 2026-11-21T12:00:00.00",
            "2.0 2:18474 72 {beat}/min 2026-11-21T12:00:00.00",
        ]
    );
}

/// A value without the time that its map announces is delivered, and counted as cut.
#[test]
fn what_is_whole_of_a_short_observation_is_delivered() {
    let info = hex("F000 0001 0002 0011 0001 0004 FF0002FA 0001 0005 FF0002FB 20");
    let (lines, tally) =
        lines(&standard(&specialisation::SCALE), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(lines, ["1.0 2:57664 76.2 kg -", "1.0 2:57664 76.3 kg -"]);
    assert_eq!(tally, Tally { observations: 2, cut: 2, ..Tally::default() });
    assert!(!tally.is_unreadable());
    let info = hex("F000 0001 0001 0006 0001 0002 FF00");
    let mut delivered = 0;
    let scale = standard(&specialisation::SCALE);
    let tally = observe(&scale, Handle(0), &scan(event::SCAN_FIXED, &info), |_| delivered += 1);
    assert_eq!((delivered, tally.cut), (0, 1));
    assert!(tally.is_unreadable());
}

/// An agent in the field appends two octets to the list of its report.
#[test]
fn octets_behind_the_list_of_a_report_are_passed_over() {
    let info = hex("F000 0001 0001 0006 0001 0002 0061 0000");
    let report =
        EventReport { handle: Handle::MDS, time: 0, event: event::SCAN_FIXED, info: &info };
    assert_eq!(report.padding(), 2);
    let (lines, tally) =
        lines(&standard(&specialisation::OXIMETER), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(lines, ["1.0 2:19384 97 % -"]);
    assert_eq!(tally, Tally { observations: 1, ..Tally::default() });
}

#[test]
fn an_observation_that_is_cut_is_no_observation() {
    let info = hex("F000 0001 0002 000F 0001 0001 FF 000A 0006 F3C5 00000000");
    let (lines, tally) =
        lines(&standard(&specialisation::OXIMETER), 0, &scan(event::SCAN_FIXED, &info));
    assert_eq!(lines, ["10.0 2:18458 96.5 {beat}/min -"]);
    assert_eq!((tally.cut, tally.trailing, tally.observations), (1, 1, 1));
}

/// Attributes with their ids: value with status, another unit than configured, text, flags.
#[test]
fn a_variable_report_brings_its_own_attributes() {
    let configuration = standard(&specialisation::SCALE);
    let info = hex("F000 0007 0002 0032
        0001 0003 0016 0950 000A E140 4000 06E0 FF0005DC 0990 0004 20261121
        0001 0002 0010 0A56 0004 FF000300 0947 0004 40000000");
    let report = EventReport { handle: Handle(0), time: 0, event: event::SCAN_VAR, info: &info };
    assert!(report.report().is_err(), "three attributes announced, two there");
    let info = hex("F000 0007 0002 0034
        0001 0002 001A 0950 000A E140 4000 06E0 FF0005DC 0990 0008 2026112112000000
        0001 0002 000E 0A56 0004 FF000300 0947 0002 8400");
    let report = scan(event::SCAN_VAR, &info);
    let mut seen = Vec::new();
    observe(&configuration, Handle(0), &report, |observation| {
        seen.push((line(observation), observation.status.names().collect::<Vec<_>>()));
    });
    assert_eq!(
        seen,
        [
            ("1.0 2:57664 150.0 [lb_av] 2026-11-21T12:00:00.00".to_owned(), vec!["questionable"]),
            ("1.0 2:57664 76.8 kg -".to_owned(), vec!["invalid", "demo-data"]),
        ]
    );
}

/// A scanner (handle 30) that groups the two objects of an oximeter.
fn with_scanner() -> Configuration {
    let oximeter = specialisation::OXIMETER.octets().unwrap();
    let report = ConfigReport::decode(&oximeter).unwrap();
    let basic = value_map(&[MapEntry { attribute: attribute::NUMERIC_BASIC, length: 2 }]).unwrap();
    let mut map = MderWriter::new();
    map.u16(2);
    map.sized(|map| {
        for handle in [1, 10] {
            map.u16(handle);
            map.octets(&basic);
        }
    });
    let map = map.finish().unwrap();
    let mut builder = ConfigurationBuilder::new();
    for object in report.objects {
        let attributes: Vec<_> = object.attributes.iter().collect();
        builder = builder.object(object.class, object.handle, &attributes).unwrap();
    }
    let groups = Attribute { id: attribute::HANDLE_VALUE_MAP, value: &map };
    let builder = builder.object(class::PERIODIC_SCANNER, Handle(30), &[groups]).unwrap();
    Configuration::from_octets(&builder.finish(ConfigId(0x4010)).unwrap()).unwrap()
}

#[test]
fn a_scanner_groups_what_its_map_says() {
    let configuration = with_scanner();
    let grouped: [&[u8]; 2] = [&[0, 97, 0, 72], &[0, 96, 0, 73, 0xAA]];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 3, &grouped).unwrap();
    let report = scan(event::BUFFERED_GROUPED, &info);
    let (seen, tally) = lines(&configuration, 30, &report);
    assert_eq!(
        seen,
        [
            "1.0 2:19384 97 % -",
            "10.0 2:18458 72 {beat}/min -",
            "1.0 2:19384 96 % -",
            "10.0 2:18458 73 {beat}/min -",
        ]
    );
    assert_eq!(tally, Tally { observations: 4, trailing: 1, ..Tally::default() });
    let (seen, tally) = lines(&configuration, 31, &report);
    assert_eq!((seen.len(), tally.unknown_handles), (0, 2), "no scanner has handle 31");
}

#[test]
fn measurements_of_several_persons_are_told_apart() {
    let configuration = standard(&specialisation::OXIMETER);
    let one = hex("0001 0006 0001 0002 0061");
    let two = hex("0001 0006 000A 0002 0048");
    let list = |octets| -> List<'_, FixedObservation<'_>> { Reader::new(octets).list().unwrap() };
    let people = [
        ByPerson { person: PersonId(1), observations: list(&one) },
        ByPerson { person: PersonId(2), observations: list(&two) },
    ];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 0, &people).unwrap();
    let mut seen = Vec::new();
    observe(&configuration, Handle(0), &scan(event::SCAN_MP_FIXED, &info), |observation| {
        seen.push((observation.person.unwrap().0, observation.handle.0));
    });
    assert_eq!(seen, [(1, 1), (2, 10)]);
}

/// The activity monitor's session lasted: its value is the period.
#[test]
fn what_lasts_is_an_observation_too() {
    let configuration = standard(&specialisation::ACTIVITY);
    let info = hex("F000 0000 0002 0024 0003 000E 007B 02000024 2026112112000000
        0003 000E 007B FE000096 2026112112000000");
    let mut seen = Vec::new();
    observe(&configuration, Handle(0), &scan(event::SCAN_FIXED, &info), |observation| {
        seen.push((observation.value, observation.active_period, observation.source));
    });
    let code = Value::Code(Type::new(129, 123));
    // Measure-Active-Period is a FLOAT-Type in seconds: managers of several makers read it so.
    let [hour, second] = [Decimal::new(36, 2), Decimal::new(150, -2)];
    let source = Some(Handle(1));
    assert_eq!(seen, [(code, Some(hour), source), (code, Some(second), source)]);
}

/// A thermometer that says where it measures (Metric-Id) besides what (Type), once in another
/// partition; and a calendar that is none: the octets stay, and are counted.
#[test]
fn a_metric_id_is_more_than_a_type_and_a_wrong_time_is_noted() {
    let configuration = hex("4020 0002 0054
        0006 0001 0005 002A 092F 0004 00024B5C 092B 0002 E008
            0A46 0002 F040 0996 0002 17A0 0A55 000C 0002 0008 0A56 0004 0990 0008
        0006 0002 0004 001A 092F 0004 00024B5C 092B 0002 F001 0A5F 0002 0400 0996 0002 17A0");
    let configuration = Configuration::from_octets(&configuration).unwrap();
    let [oral, private] = configuration.objects() else { panic!() };
    assert_eq!((oral.kind, oral.metric), (Type::new(2, 19_292), Some(Type::new(2, 57_352))));
    assert_eq!(private.metric, Some(Type::new(1_024, 61_441)));
    let info = hex("F000 0000 0001 0010 0001 000C FF000170 FFFFFFFFFFFFFFFF");
    let mut times = Vec::new();
    let tally = observe(&configuration, Handle(0), &scan(event::SCAN_FIXED, &info), |it| {
        assert_eq!((it.kind, it.kind.name()), (Type::new(2, 57_352), Some("MDC_TEMP_ORAL")));
        times.push(it.time.absolute);
    });
    assert_eq!(times, [Some(AbsoluteTime([0xFF; 8]))]);
    assert_eq!(tally, Tally { observations: 1, invalid_times: 1, ..Tally::default() });
}

/// Period, coding and scale of an electrocardiogram's samples, as an agent of another maker
/// configures them: 0.2 s, 16 bits signed, -2 to 2 mV in 800 steps.
#[test]
fn a_waveform_keeps_its_period_and_its_scale() {
    let configuration = hex("4000 0001 0044 0009 0001 0006 003C 092F 0004 00020101
        0996 0002 10B2 098D 0004 00000640 0A55 0008 0001 0004 0A48 0006
        096F 000C 00FFFFFE 00000002 0000 0320 096D 0006 0014 10FF 0123");
    let configuration = Configuration::from_octets(&configuration).unwrap();
    let waveform = configuration.objects()[0].waveform.unwrap();
    let samples = SampleForm { count: 20, bits: 16, significant: 255, flags: 0x0123 };
    let scale = Scale { values: [Number::finite(-2, 0), Number::finite(2, 0)], samples: [0, 800] };
    assert_eq!(
        waveform,
        Waveform { period: Some(1_600), samples: Some(samples), scale: Some(scale) }
    );
    let info = hex("F000 0000 0001 000A 0001 0006 0004 0190 0320");
    observe(&configuration, Handle(0), &scan(event::SCAN_FIXED, &info), |observation| {
        assert_eq!(observation.waveform, Some(waveform));
        assert_eq!(observation.unit.and_then(UnitCode::ucum), Some("mV"));
        assert_eq!(observation.value, Value::Samples(&[0x01, 0x90, 0x03, 0x20]));
    });
}

/// Units of ISO/IEEE 11073-10101 in UCUM.
#[test]
fn units_and_names_have_a_text() {
    let units = [
        (3_843, "kPa"),
        (4_416, "[degF]"),
        (2_176, "s"),
        (3_072, "L/min"),
        (2_368, "a"),
        (4_274, "mV"),
    ];
    for (code, ucum) in units {
        assert_eq!(UnitCode(code).ucum(), Some(ucum));
    }
    assert_eq!(Type::new(2, 57_676).name(), Some("MDC_BODY_FAT"));
    assert_eq!(Type::new(2, 16_770).name(), Some("MDC_ECG_HEART_RATE"));
}

/// The store of a medication pen in the field: its configuration, the description of its
/// segment, and the doses that its application showed for these octets.
#[test]
fn doses_of_a_pen() {
    let configuration = hex("400A 0004 00AC
        003D 0100 0008 0038 0A4D 0002 0800 0943 0002 0000 0941 0004 00000320 0953 0002 0000
                            0A57 0004 0002 504D 0951 0002 0001 0A63 0004 00000000 0944 0004 00000017
        0006 0002 0004 0020 092F 0004 00823401 0A46 0002 F040 0996 0002 1560
                            0A55 0008 0001 0004 0A56 0004
        0005 0003 0003 001A 092F 0004 00823402 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002
        0006 0004 0003 001A 092F 0004 0082F000 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002");
    let configuration = Configuration::from_octets(&configuration).unwrap();
    let description = hex("0001 006A 0010 0006 0064 0922 0002 0010
        0A4E 0036 4000 0003 0030
            0006 0082 3401 0002 0001 0004 0A56 0004
            0005 0082 3402 0003 0001 0004 0A66 0002
            0006 0082 F000 0004 0001 0004 0A66 0002
        0953 0002 0000 0A58 000A 0008 446F7365204C6F67 097B 0004 00000019 0A64 0004 00027100");
    let map = segments(&description).unwrap().iter().next().unwrap().map().unwrap();
    let octets = hex("E700 00B0 00AE 8001 0101 00A8 0100 00590A36 0D21 009E
        0010 00000000 0000000C 8000 0090
        0053030BFF00001408000000 004FC696FF00001908000000 004E83D1FF00000F08000000
        004D9D3AFF00003C08000000 004D9AB9FF00003C08000000 00454FD0FF00001E08000000
        00454F78FF00000A08000000 00445DEBFF00003208000000 003BFCD0FF00003C08000000
        003345BBFF00000A08000000 0031CF39FF00002808000000 0031CE4FFF00004108000000");
    let Ok(Apdu::Prst(DataApdu { message: DataMessage::ConfirmedEventReport(event), .. })) =
        Apdu::decode(&octets)
    else {
        panic!()
    };
    let Ok(Report::Segment(segment)) = event.report() else { panic!() };
    let mut doses = Vec::new();
    let tally = observe_segment(&configuration, &map, &segment, |entry, observation| {
        if let Value::Number(number) = observation.value {
            assert_eq!(observation.handle, Handle(2));
            assert!(observation.time.relative.is_some());
            assert_eq!(usize::try_from(entry).unwrap(), doses.len());
            doses.push(number.to_string());
        }
    });
    let shown =
        ["2.0", "2.5", "1.5", "6.0", "6.0", "3.0", "1.0", "5.0", "6.0", "1.0", "4.0", "6.5"];
    assert_eq!(doses, shown);
    assert_eq!(tally, Tally { observations: 36, ..Tally::default() });
}

/// A compound of a thousand values is long, but no fault.
#[test]
fn a_compound_may_be_long() {
    let mut compound = MderWriter::new();
    compound.u16(1_000);
    compound.sized(|list| (0..1_000).for_each(|value| list.u16(value % 2_000)));
    let compound = compound.finish().unwrap();
    let mut named = MderWriter::new();
    named.list(&[Attribute { id: attribute::COMPOUND_BASIC, value: &compound }]);
    let named = named.finish().unwrap();
    let attributes = Reader::new(&named).list().unwrap();
    let variable = VariableObservation { handle: Handle(1), attributes };
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 0, &[variable]).unwrap();
    let configuration = standard(&specialisation::BLOOD_PRESSURE);
    let (seen, tally) = lines(&configuration, 0, &scan(event::SCAN_VAR, &info));
    assert_eq!((seen.len(), tally.observations), (1_000, 1_000));
    assert!(seen[999].starts_with("1.999 "), "{}", seen[999]);
}

/// Maps without octets, and counts beyond all octets, cost nothing.
#[test]
fn empty_maps_cost_nothing() {
    let started = std::time::Instant::now();
    let configuration = standard(&specialisation::OXIMETER);
    let empty = hex("0000 0001 0010 0006 0002 0001 0001 0001 0004 0A4C 0000");
    let map = gatewright_health::store::SegmentMap::decode(&empty).unwrap();
    let data = SegmentData {
        instance: 0,
        first: 0,
        count: u32::MAX,
        status: SegmentStatus::LAST,
        entries: &[7],
    };
    let tally = observe_segment(&configuration, &map, &data, |_, _| panic!());
    assert_eq!(tally, Tally { trailing: 1, ..Tally::default() });
    assert!(started.elapsed().as_secs() < 5, "four thousand million rounds");
}

/// Random octets as reports of every layout, read by every known configuration.
#[test]
fn no_octets_panic() {
    let mut state = 7_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    let configurations = specialisation::ALL.map(standard);
    for _ in 0..2_000 {
        let octets: Vec<u8> = (0..random() % 24).map(|_| random()).collect();
        let fixed = FixedObservation { handle: Handle(u16::from(random() % 12)), octets: &octets };
        let info = encode_scan(DataRequestId::AGENT_INITIATED, 0, &[fixed]).unwrap();
        let mut named = MderWriter::new();
        let id = AttributeId(0x0940 + u16::from(random()) * 2);
        named.list(&[Attribute { id, value: &octets }]);
        let named = named.finish().unwrap();
        let attributes = Reader::new(&named).list().unwrap();
        let variable = VariableObservation { handle: Handle(1), attributes };
        let other = encode_scan(DataRequestId::AGENT_INITIATED, 0, &[variable]).unwrap();
        for configuration in &configurations {
            observe(configuration, Handle(0), &scan(event::SCAN_FIXED, &info), |_| {});
            observe(configuration, Handle(0), &scan(event::SCAN_VAR, &other), |_| {});
        }
        let _ = Configuration::from_octets(&octets);
        let _ = segments(&octets);
        let _ = u16::take(&mut Reader::new(&octets));
    }
}

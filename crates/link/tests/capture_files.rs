//! Capture files against Wireshark's programs: they read what we write, and we what they write.
//!
//! A test that lacks its programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail loudly"
)]

use gatewright_link::pcapng::{
    CaptureLink, CaptureReader, CapturedFrame, Direction, InterfaceId, PcapngWriter, ReadError,
    Speed,
};
use gatewright_link::{Framing, Link, LinkState};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Pool};
use gatewright_testbed::Needs;
use gatewright_wire::MacAddress;
use libtest_mimic::{Arguments, Failed, Trial};
use proptest::prelude::*;
use std::cell::RefCell;
use std::io::Write;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::Duration;

fn main() -> ExitCode {
    let trials = vec![
        trial("what_is_written_is_read_again", &[], round_trip),
        trial("every_cut_of_a_file_ends_in_an_error_or_at_a_record", &[], every_cut),
        trial("the_fuzz_corpus_is_read_or_told", &[], corpus),
        trial("no_octets_make_it_panic", &[], no_panic),
        trial("tshark_reads_names_times_and_comments", &["tshark"], tshark_reads),
        trial("capinfos_finds_nothing_wrong", &["capinfos"], capinfos_agrees),
        trial("formats_of_editcap_are_read", &["editcap"], editcap_formats),
        trial("rare_blocks_and_options_are_read_as_tshark_reads_them", &["tshark"], rare_blocks),
        trial("a_frame_check_sequence_is_no_payload", &[], check_sequences),
        trial("files_of_other_versions_are_refused", &[], other_versions),
        trial("a_link_says_why_a_file_is_not_read_on", &[], reason),
        trial("a_link_replays_at_the_recorded_speed", &[], replays),
        trial("a_link_records_what_is_sent", &[], records),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, programs: &[&str], test: fn() -> Result<(), Failed>) -> Trial {
    let needs = programs.iter().fold(Needs::new(), |needs, program| needs.program(program));
    match needs.missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), test).with_ignored_flag(true)
        }
    }
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(len, number);
    frame
}

const FIRST: Duration = Duration::new(1_700_000_000, 123_456_789);

/// Two interfaces, three frames; the second has a comment and was cut off at 20 octets.
fn written() -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    let lan = writer.add_interface("lan", Framing::Ethernet).unwrap();
    let wan = writer.add_interface("wan", Framing::Ip).unwrap();
    let (first, cut) = (frame(1, 61), frame(2, 20));
    let record = CapturedFrame {
        interface: lan,
        at: FIRST,
        octets: &first,
        len: 61,
        direction: Some(Direction::Inbound),
        comment: "",
    };
    writer.write(&record).unwrap();
    let at = FIRST + Duration::from_millis(10);
    let comment = "dropped: time to live spent – ü";
    writer.write(&CapturedFrame { at, octets: &cut, len: 90, comment, ..record }).unwrap();
    let at = FIRST + Duration::from_millis(30);
    let packet =
        [&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0][..], &[192, 0, 2, 1, 192, 0, 2, 2]].concat();
    let direction = Some(Direction::Outbound);
    let ip = CapturedFrame { interface: wan, at, octets: &packet, len: 20, direction, comment: "" };
    writer.write(&ip).unwrap();
    let unknown = writer.write(&CapturedFrame { interface: InterfaceId(2), ..ip });
    assert!(unknown.is_err());
    writer.into_inner()
}

type Read = (u32, Duration, Vec<u8>, usize, Option<Direction>, String);

fn read_all(file: &[u8]) -> Result<Vec<Read>, ReadError> {
    let mut reader = CaptureReader::new(file);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        let CapturedFrame { interface, at, octets, len, direction, comment } = record;
        records.push((interface.0, at, octets.to_vec(), len, direction, comment.to_owned()));
    }
    Ok(records)
}

fn round_trip() -> Result<(), Failed> {
    let file = written();
    let records = read_all(&file)?;
    assert_eq!(records.len(), 3);
    assert_eq!(records[0], (0, FIRST, frame(1, 61), 61, Some(Direction::Inbound), String::new()));
    assert_eq!(records[1].3, 90);
    assert_eq!(records[1].5, "dropped: time to live spent – ü");
    assert_eq!((records[2].0, records[2].4), (1, Some(Direction::Outbound)));
    let mut reader = CaptureReader::new(&file[..]);
    while reader.next_record()?.is_some() {}
    let interfaces: Vec<_> =
        reader.interfaces().iter().map(|i| (i.name.as_str(), i.framing)).collect();
    assert_eq!(interfaces, [("lan", Some(Framing::Ethernet)), ("wan", Some(Framing::Ip))]);
    // A second section follows the first as it is; its interfaces are its own.
    let twice = read_all(&[&file[..], &file[..]].concat())?;
    let interfaces: Vec<_> = twice.iter().map(|record| record.0).collect();
    assert_eq!(interfaces, [0, 0, 1, 2, 2, 3]);
    Ok(())
}

fn every_cut() -> Result<(), Failed> {
    let file = written();
    let whole = read_all(&file)?;
    for len in 0..file.len() {
        match read_all(&file[..len]) {
            Ok(records) => assert!(whole.starts_with(&records) && records.len() < 3, "{len}"),
            Err(ReadError::Truncated { .. }) => {}
            Err(error) => return Err(format!("{len} octets: {error}").into()),
        }
    }
    let unknown = read_all(b"GIF89a..").unwrap_err();
    assert_eq!(unknown.to_string(), "neither pcapng nor pcap: the file begins with 0x38464947");
    let mut wrong = file.clone();
    wrong[4] += 1;
    let said = read_all(&wrong).unwrap_err().to_string();
    assert_eq!(said, "malformed capture file: a block of impossible length at octet 0");
    Ok(())
}

fn corpus() -> Result<(), Failed> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/pcapng");
    let mut read = 0;
    for entry in std::fs::read_dir(corpus)? {
        let path = entry?.path();
        let frames = read_all(&std::fs::read(&path)?);
        if path.ends_with("pcapng_cut") {
            assert!(matches!(frames, Err(ReadError::Truncated { .. })));
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pcap")) {
            assert!(!frames?.is_empty(), "{}", path.display());
        }
        read += 1;
    }
    assert!(read >= 8, "{read} files");
    Ok(())
}

fn no_panic() -> Result<(), Failed> {
    let file = written();
    let mut runner = proptest::test_runner::TestRunner::default();
    let changes = prop::collection::vec((0..file.len(), any::<u8>()), 1..8);
    runner.run(&changes, |changes| {
        let mut changed = file.clone();
        for (at, octet) in changes {
            changed[at] = octet;
        }
        let _ = read_all(&changed);
        Ok(())
    })?;
    for magic in [0xa1b2_c3d4_u32, 0x0a0d_0d0a] {
        let random = prop::collection::vec(any::<u8>(), 0..200);
        runner.run(&random, |octets| {
            let _ = read_all(&[&magic.to_le_bytes()[..], &octets].concat());
            let _ = read_all(&octets);
            Ok(())
        })?;
    }
    Ok(())
}

/// Runs a program that reads `input`; what it prints.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| "the writer failed")??;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(output.stdout)
}

fn tshark_reads() -> Result<(), Failed> {
    let fields = ["frame.interface_name", "frame.time_epoch", "frame.len", "frame.cap_len"];
    let fields = [&fields[..], &["frame.comment", "frame.packet_flags_direction"]].concat();
    let mut arguments = vec!["-r", "-", "-T", "fields", "-E", "separator=|"];
    for field in &fields {
        arguments.extend(["-e", field]);
    }
    let said = String::from_utf8(run("tshark", &arguments, &written())?)?;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "lan|1700000000.123456789|61|61||0x00000001",
            "lan|1700000000.133456789|90|20|dropped: time to live spent – ü|0x00000001",
            "wan|1700000000.153456789|20|20||0x00000002",
        ]
    );
    Ok(())
}

fn capinfos_agrees() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("gatewright-{}.pcapng", std::process::id()));
    std::fs::write(&path, written())?;
    let output = Command::new("capinfos").arg("-M").arg(&path).output();
    std::fs::remove_file(&path)?;
    let said = String::from_utf8(output?.stdout)?;
    for expected in [
        "pcapng\nFile encapsulation",
        "Number of packets:   3",
        "File timestamp precision:  nanoseconds",
        "Capture application: gatewright",
        "Number of interfaces in file: 2",
        "Name = wan",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    Ok(())
}

fn editcap_formats() -> Result<(), Failed> {
    let mut writer = PcapngWriter::new(Vec::new())?;
    let lan = writer.add_interface("lan", Framing::Ethernet)?;
    for number in 0..3_u8 {
        let octets = frame(number, 60 + usize::from(number));
        let at = FIRST + Duration::from_millis(u64::from(number));
        let (len, direction) = (octets.len(), None);
        writer.write(&CapturedFrame {
            interface: lan,
            at,
            octets: &octets,
            len,
            direction,
            comment: "",
        })?;
    }
    let file = writer.into_inner();
    let expected: Vec<_> = read_all(&file)?.into_iter().map(|r| (r.1, r.2, r.3)).collect();
    for (format, unit) in [("pcapng", 1), ("nsecpcap", 1), ("pcap", 1000)] {
        let converted = run("editcap", &["-F", format, "-", "-"], &file)?;
        let records: Vec<_> = read_all(&converted)?.into_iter().map(|r| (r.1, r.2, r.3)).collect();
        let coarse = |at: Duration| Duration::new(at.as_secs(), at.subsec_nanos() / unit * unit);
        let expected: Vec<_> =
            expected.iter().map(|(at, octets, len)| (coarse(*at), octets.clone(), *len)).collect();
        assert_eq!(records, expected, "{format}");
    }
    Ok(())
}

/// A block of a little-endian file: type, body padded to 32 bits, length on both sides.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut block = [&kind.to_le_bytes(), &[0; 4][..], body].concat();
    block.resize(block.len().next_multiple_of(4), 0);
    let len = u32::try_from(block.len() + 4).unwrap().to_le_bytes();
    block[4..8].copy_from_slice(&len);
    block.extend(len);
    block
}

/// A section of this version, without its length or options.
fn section(major: u16) -> Vec<u8> {
    let version = [major.to_le_bytes(), 0_u16.to_le_bytes()].concat();
    block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes(), &version[..], &[0xff; 8]].concat())
}

/// An interface of this link type, with one option.
fn described(link_type: u16, snap_len: u32, option: (u16, &[u8])) -> Vec<u8> {
    let (code, value) = option;
    let len = u16::try_from(value.len()).unwrap();
    let mut body = [link_type.to_le_bytes(), [0; 2]].concat();
    body.extend(snap_len.to_le_bytes());
    body.extend([code.to_le_bytes(), len.to_le_bytes()].concat());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    block(1, &[&body[..], &[0; 4]].concat())
}

/// An enhanced packet block of the first interface (6), or a packet block (2), with options.
fn packet(kind: u32, stamp: u64, octets: &[u8], len: u32, options: &[u8]) -> Vec<u8> {
    let words = [0, (stamp >> 32) as u32, stamp as u32, octets.len() as u32, len];
    let mut body = words.map(u32::to_le_bytes).concat();
    body.extend(octets);
    body.resize(body.len().next_multiple_of(4), 0);
    block(kind, &[&body[..], options].concat())
}

fn rare_blocks() -> Result<(), Failed> {
    const OFFSET: u16 = 14;
    const SNAP_LEN: u32 = 20;
    let octets = frame(7, 60);
    let ip = [&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0][..], &[192, 0, 2, 1, 192, 0, 2, 2]];
    let stamp = 1_700_000_000_000_000;
    let ethernet = |option| described(1, 0, option);
    let short = block(3, &[&60_u32.to_le_bytes(), &octets[..20]].concat());
    let files = [
        ("an obsolete packet block", ethernet((0, &[])), packet(2, stamp, &octets, 60, &[])),
        (
            "an offset of minus an hour",
            ethernet((OFFSET, &(-3600_i64).to_le_bytes())),
            packet(6, stamp, &octets, 60, &[]),
        ),
        ("a simple block, cut at the snap length", described(1, SNAP_LEN, (0, &[])), short),
        ("raw IPv4", described(228, 0, (0, &[])), packet(6, stamp, &ip.concat(), 20, &[])),
    ];
    for (what, interface, packet) in files {
        let file = [section(1), interface, packet].concat();
        let fields = ["frame.time_epoch", "frame.len", "frame.cap_len"];
        let mut arguments = vec!["-r", "-", "-T", "fields", "-E", "separator=|"];
        for field in &fields {
            arguments.extend(["-e", field]);
        }
        let said = String::from_utf8(run("tshark", &arguments, &file)?)?;
        let ours: Vec<_> = read_all(&file)?
            .iter()
            .map(|(_, at, octets, len, ..)| {
                let at = (*at != Duration::ZERO)
                    .then(|| format!("{}.{:09}", at.as_secs(), at.subsec_nanos()));
                format!("{}|{len}|{}", at.unwrap_or_default(), octets.len())
            })
            .collect();
        assert_eq!(ours, said.lines().collect::<Vec<_>>(), "{what}");
    }
    let file = [section(1), described(229, 0, (0, &[])), packet(6, stamp, &[0x60; 40], 40, &[])];
    let file = file.concat();
    let mut reader = CaptureReader::new(&file[..]);
    assert!(reader.next_record()?.is_some());
    assert_eq!(reader.interfaces()[0].framing, Some(Framing::Ip), "raw IPv6");
    Ok(())
}

/// draft-ietf-opsawg-pcap §4 for the classic file, draft-ietf-opsawg-pcapng §4.2 and §4.3.1 for the
/// other: the length is the interface's, in bits, or the packet's own, in octets.
fn check_sequences() -> Result<(), Failed> {
    const FCS_LEN: u16 = 13;
    let octets = frame(7, 64);
    let flags = [&[2, 0, 4, 0][..], &(4_u32 << 5).to_le_bytes(), &[0; 4]].concat();
    let of_interface =
        [section(1), described(1, 0, (FCS_LEN, &[32])), packet(6, 0, &octets, 64, &[])];
    let of_packet = [section(1), described(1, 0, (0, &[])), packet(6, 0, &octets, 64, &flags)];
    // Two units of two octets, the bit P, Ethernet.
    let classic = |link_type: u32, captured: u32| {
        let head = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link_type, 1, 0, captured, 64];
        let octets = &octets[..usize::try_from(captured).unwrap()];
        [&head.map(u32::to_le_bytes).concat()[..], octets].concat()
    };
    for (what, file, captured, len) in [
        ("of the interface", of_interface.concat(), 60, 60),
        ("of the packet", of_packet.concat(), 60, 60),
        ("of a classic file", classic(2 << 28 | 1 << 26 | 1, 64), 60, 60),
        ("of which a part was captured", classic(2 << 28 | 1 << 26 | 1, 62), 60, 60),
        ("of which nothing was captured", classic(2 << 28 | 1 << 26 | 1, 40), 40, 60),
        ("of unknown length", classic(2 << 28 | 1, 64), 64, 64),
    ] {
        let records = read_all(&file)?;
        assert_eq!((records[0].2.len(), records[0].3), (captured, len), "{what}");
        assert_eq!(records[0].2, octets[..captured], "{what}");
    }
    Ok(())
}

fn other_versions() -> Result<(), Failed> {
    assert!(read_all(&section(1))?.is_empty());
    let said = read_all(&section(2)).unwrap_err().to_string();
    assert_eq!(said, "malformed capture file: a section of a version that is not 1 at octet 0");
    // Up to version 2.3 the two lengths of a record stood the other way round.
    for (major, minor) in [(2_u32, 3_u32), (2, 5), (3, 4)] {
        let head = [0xa1b2_c3d4, minor << 16 | major, 0, 0, 65_535, 1];
        let said = read_all(&head.map(u32::to_le_bytes).concat()).unwrap_err().to_string();
        assert_eq!(said, "malformed capture file: a version that is not 2.4 at octet 0");
    }
    Ok(())
}

fn reason() -> Result<(), Failed> {
    let pool = Rc::new(Pool::new(8, CHUNK_SIZE)?);
    let mut file = three_frames();
    file.truncate(file.len() - 4);
    let file = Box::new(std::io::Cursor::new(file));
    let mut link = link(&pool).replay(file, Speed::Unlimited);
    let mut batch = Batch::default();
    link.receive(Duration::ZERO, &mut batch);
    assert_eq!((batch.len(), link.state()), (2, LinkState::Ended));
    let why = &link.info().why;
    assert!(why.contains("ends inside of a block that begins at octet"), "{why}");
    Ok(())
}

fn link(pool: &Rc<Pool>) -> CaptureLink {
    CaptureLink::new(LinkIndex(5), "file", MacAddress([2, 0, 0, 0, 0, 1]), 1500, Rc::clone(pool))
}

/// Three Ethernet frames, 0, 10 and 30 ms after the first; between them one that was cut off.
fn three_frames() -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    let lan = writer.add_interface("lan", Framing::Ethernet).unwrap();
    for (number, millis, len) in [(1, 0, 60), (2, 5, 61), (3, 10, 60), (4, 30, 60)] {
        let (octets, at) = (frame(number, 60), FIRST + Duration::from_millis(millis));
        let record = CapturedFrame {
            interface: lan,
            at,
            octets: &octets,
            len,
            direction: None,
            comment: "",
        };
        writer.write(&record).unwrap();
    }
    writer.into_inner()
}

fn replays() -> Result<(), Failed> {
    let rate = |value| NonZeroU32::new(value).unwrap();
    for (speed, due) in [
        (Speed::Percent(rate(100)), [0, 10, 30]),
        (Speed::Percent(rate(1000)), [0, 1, 3]),
        (Speed::FramesPerSecond(rate(50)), [0, 20, 40]),
        (Speed::Unlimited, [0, 0, 0]),
    ] {
        let pool = Rc::new(Pool::new(8, CHUNK_SIZE)?);
        let mut link = link(&pool).replay(Box::new(std::io::Cursor::new(three_frames())), speed);
        let start = Duration::from_secs(77);
        let (mut batch, mut seen, mut now) = (Batch::default(), Vec::new(), start);
        assert_eq!(link.state(), LinkState::Up);
        while link.state() == LinkState::Up {
            link.receive(now, &mut batch);
            seen.extend(
                batch.drain().map(|packet| (now.saturating_sub(start), packet.octets()[14])),
            );
            now = link.poll_timeout().unwrap_or(now).max(now);
        }
        let due = due.map(Duration::from_millis);
        assert_eq!(seen, [(due[0], 1), (due[1], 3), (due[2], 4)], "{speed:?}");
        assert_eq!((link.counters().received, link.counters().receive_malformed), (3, 1));
    }
    Ok(())
}

/// A file that can be looked at afterwards.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn records() -> Result<(), Failed> {
    let (pool, file) = (Rc::new(Pool::new(8, CHUNK_SIZE)?), Shared::default());
    let mut link = link(&pool).record(Box::new(file.clone()), FIRST)?;
    let mut batch = Batch::default();
    batch.push(pool.packet_of(&frame(9, 60)).unwrap()).unwrap();
    link.transmit(Duration::from_millis(4), &mut batch);
    assert_eq!(link.counters().sent, 1);
    let records = read_all(&file.0.borrow())?;
    let at = FIRST + Duration::from_millis(4);
    let outbound = Some(Direction::Outbound);
    assert_eq!(records, [(0, at, frame(9, 60), 60, outbound, String::new())]);
    assert_eq!(pool.available(), 8);
    Ok(())
}

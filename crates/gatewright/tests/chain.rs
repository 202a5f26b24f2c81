//! Links without an interface that was there before: capture files, segments in memory, TUN devices.
//! One description joins them, and the kernel counts what arrives at the far end.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod running;

use gatewright_link::{
    Framing,
    pcapng::{CaptureReader, CapturedFrame, InterfaceId, PcapngWriter},
};
use gatewright_testbed::{Namespace, Needs, wait_until};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields, udp::UdpFields,
};
use libtest_mimic::{Arguments, Failed, Trial};
use running::{Daemon, Said, WITHIN, ping};
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Frames of each capture.
const FRAMES: u16 = 500;

/// The station that the frames are for: the second port of the segment.
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

/// The host behind the TUN device, which the kernel is.
const FAR: &str = "10.2.0.2";

/// A UDP datagram to the far host.
fn datagram(number: u16) -> Vec<u8> {
    let ends = (Ipv4Addr::new(10, 1, 0, 2), FAR.parse().unwrap());
    // RFC 768: a checksum of zero is none.
    let udp = UdpFields { source_port: 1000 + number, destination_port: 9, length: 8, checksum: 0 };
    let ip = Ipv4Fields::new(IpProtocol::UDP, ends.0, ends.1, 28);
    [&ip.emit_with_checksum()[..], &udp.emit()].concat()
}

/// Writes a capture of [`FRAMES`] datagrams, a millisecond apart.
fn capture(file: &Path, framing: Framing) {
    let mut writer = PcapngWriter::new(fs::File::create(file).unwrap()).unwrap();
    let interface = writer.add_interface("in", framing).unwrap();
    for number in 0..FRAMES {
        let header = EthernetFields {
            destination: STATION,
            source: MacAddress([2, 0, 0, 0, 0, 0xa]),
            ether_type: EtherType::IPV4,
        };
        let octets = match framing {
            Framing::Ethernet => [&header.emit()[..], &datagram(number)].concat(),
            Framing::Ip => datagram(number),
        };
        let at = Duration::from_millis(number.into());
        let len = octets.len();
        let record =
            CapturedFrame { interface, at, octets: &octets, len, direction: None, comment: "" };
        writer.write(&record).unwrap();
    }
}

fn folder(name: &str) -> PathBuf {
    // A daemon makes its own folder anew; what it reads is beside it.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-files"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a link of the gateway has counted.
fn counted(daemon: &Daemon, link: &str, name: &str) -> u64 {
    let told = daemon.ask(&["link", link, "--json"]).json();
    let counters = told["links"][0]["counters"].as_array().unwrap();
    counters.iter().find(|pair| pair[0] == name).unwrap()[1].as_u64().unwrap()
}

/// The packets that the kernel has received by its end of a TUN device: the second number of its
/// line.
fn arrived(host: &Namespace, device: &str) -> u64 {
    let told = host.command("cat").arg("/proc/net/dev").output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = told.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    packets.map_or(0, |packets| packets.parse().unwrap())
}

/// Waits until the kernel has received so many packets, and no more.
fn await_arrived(daemon: &Daemon, host: &Namespace, frames: u64) {
    let told = || daemon.said() + &daemon.ask(&["link"]).out;
    assert!(wait_until(WITHIN, || arrived(host, "gw-tun") >= frames), "{}", told());
    assert_eq!(arrived(host, "gw-tun"), frames, "{}", told());
}

/// What `in` replays is mirrored into the segment, arrives at its other port, and is forwarded to
/// the kernel.
fn chain(workers: u16) -> String {
    let in_file = folder("chain").join("in.pcapng");
    format!(
        "[gateway]\nworkers = {workers}\n\
         [link.in]\nmode = \"pcapng\"\nread = \"{}\"\npace = \"fastest\"\n\
         [link.a]\nmode = \"segment\"\nsegment = \"lab\"\ndelay_us = 2000\n\
         [link.b]\nmode = \"segment\"\nsegment = \"lab\"\nmac = \"{STATION}\"\n\
         addresses = [\"10.1.0.1/24\"]\n\
         [link.far]\nmode = \"tun\"\ndevice = \"gw-tun\"\n\
         addresses = [\"10.2.0.1/24\", \"fd00:2::1/64\"]\n\
         [[attach]]\nhandler = \"mirror\"\nat = \"frame\"\nlink = \"in\"\nto = \"a\"\n",
        in_file.display()
    )
}

fn a_capture_passes_a_segment_and_a_tun_device(workers: u16) -> Result<(), Failed> {
    let name = format!("chain-{workers}");
    capture(&folder("chain").join("in.pcapng"), Framing::Ethernet);
    let host = Namespace::new()?;
    let daemon = Daemon::start(&name, &host, &chain(workers));
    await_arrived(&daemon, &host, FRAMES.into());
    for (link, name) in [("in", "received"), ("far", "sent")] {
        assert_eq!(counted(&daemon, link, name), u64::from(FRAMES), "{link} {name}");
    }
    // The two ports also speak for themselves: they check their addresses.
    for (link, name) in [("a", "sent"), ("b", "received")] {
        assert!(counted(&daemon, link, name) >= u64::from(FRAMES), "{link} {name}");
    }
    let told = daemon.ask(&["link"]).text();
    for (mode, why) in [("capture file", "replays"), ("memory", "of segment lab"), ("TUN", "")] {
        assert!(told.contains(mode) && told.contains(why), "{told}");
    }
    // The kernel is a host at the other end, without ARP or neighbour discovery.
    host.ip(&["address", "add", "10.2.0.2/24", "dev", "gw-tun"])?;
    host.ip(&["address", "add", "fd00:2::2/64", "dev", "gw-tun", "nodad"])?;
    for own in ["10.2.0.1", "fd00:2::1"] {
        assert!(
            wait_until(WITHIN, || ping(&host, &["-c1", "-W1", own])),
            "{own}: {}",
            daemon.said()
        );
    }
    // A replay that has ended is a link that has ended; another file is another replay.
    let state = |link: &str| {
        daemon.ask(&["link", link, "--json"]).json()["links"][0]["state"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(wait_until(WITHIN, || state("in") == "ended"), "{}", daemon.said());
    assert_eq!([state("a"), state("far")], ["up", "up"]);
    let told = daemon.ask(&["link", "in"]).text();
    assert!(told.starts_with("in: ended"), "{told}");
    assert!(daemon.ask(&["status"]).text().contains("link in       ended"), "status says so, too");
    let ended =
        || daemon.ask(&["events"]).text().contains(" info    link-ended: link in has ended");
    assert!(wait_until(WITHIN, ended), "{}", daemon.ask(&["events"]).out);
    assert!(!daemon.ask(&["events"]).text().contains("link-down"), "{}", daemon.said());
    let before = arrived(&host, "gw-tun");
    let again = folder("chain").join(format!("again-{workers}.pcapng"));
    capture(&again, Framing::Ethernet);
    let lossy = chain(workers)
        .replace("in.pcapng", again.file_name().unwrap().to_str().unwrap())
        .replace("delay_us = 2000", "loss_per_million = 500000\nseed = 7");
    daemon.describe(&lossy);
    daemon.ask(&["reload"]).text();
    let replayed = || counted(&daemon, "in", "received") == u64::from(FRAMES);
    assert!(wait_until(WITHIN, replayed), "{}", daemon.ask(&["link"]).text());
    let lost = counted(&daemon, "a", "transmit_lost");
    assert!((100..400).contains(&lost), "half of {FRAMES}, by chance: {lost}");
    let arrived = || arrived(&host, "gw-tun") - before;
    assert!(wait_until(WITHIN, || arrived() + lost >= u64::from(FRAMES)), "{} {lost}", arrived());
    // Some of the port's own frames are among those that were lost.
    assert!(arrived() + lost < u64::from(FRAMES) + 20, "{} {lost}", arrived());
    Ok(())
}

/// IP packets of a capture go to the kernel, and what the kernel sends is written to a file.
fn raw_packets_are_replayed_and_frames_are_written() -> Result<(), Failed> {
    let files = folder("raw");
    let (read, write) = (files.join("raw.pcapng"), files.join("out.pcapng"));
    capture(&read, Framing::Ip);
    let host = Namespace::new()?;
    let description = format!(
        "[link.in]\nmode = \"pcapng\"\nread = \"{}\"\naddresses = [\"10.1.0.1/24\"]\n\
         [link.out]\nmode = \"pcapng\"\nwrite = \"{}\"\naddresses = [\"10.3.0.1/24\"]\n\
         [link.far]\nmode = \"tun\"\ndevice = \"gw-tun\"\naddresses = [\"10.2.0.1/24\"]\n",
        read.display(),
        write.display()
    );
    let daemon = Daemon::start("raw", &host, &description);
    // As captured: half a second.
    await_arrived(&daemon, &host, FRAMES.into());
    host.ip(&["address", "add", "10.2.0.2/24", "dev", "gw-tun"])?;
    host.ip(&["route", "add", "10.3.0.0/24", "via", "10.2.0.1"])?;
    assert!(!ping(&host, &["-c1", "-W1", "10.3.0.9"]), "nobody answers from a file");
    // RFC 826: the gateway asks for the neighbour: type 0x0806, operation 1, target 10.3.0.9.
    let asks = |octets: &[u8]| {
        octets[12..14] == [8, 6] && octets[20..22] == [0, 1] && octets[38..42] == [10, 3, 0, 9]
    };
    let found = || {
        let mut reader = CaptureReader::new(fs::File::open(&write).unwrap());
        let mut found = false;
        while let Ok(Some(record)) = reader.next_record() {
            found |= asks(record.octets);
        }
        assert_eq!(reader.interface(InterfaceId(0)).unwrap().framing, Some(Framing::Ethernet));
        found
    };
    assert!(wait_until(WITHIN, found), "{}", daemon.said());
    // A packet of the capture is traced from its IP header on; a link of Ethernet takes none.
    let trace =
        |link: &str| daemon.ask(&["trace", "--link", link, "--from", read.to_str().unwrap()]);
    let traced = trace("far").text();
    assert!(traced.contains("raw-ip") && traced.contains("ipv4"), "{traced}");
    assert!(!traced.contains("of header removed"), "{traced}");
    let refused = trace("out");
    assert!(refused.err.contains("begin with an Ethernet header"), "{}", refused.err);
    // A link layer is made at the start: a second TUN device is refused, and nothing changes.
    daemon.describe(&format!("{description}[link.more]\nmode = \"tun\"\ndevice = \"gw-more\"\n"));
    let refused = daemon.ask(&["reload"]);
    assert!(refused.code == Some(78) || refused.code == Some(1), "{}", refused.err);
    assert!(refused.err.contains("restart"), "{}", refused.err);
    assert!(ping(&host, &["-c1", "-W30", "10.2.0.1"]), "{}", daemon.said());
    Ok(())
}

/// What is wrong with a file is told at its key, before anything is opened.
fn unreadable_captures_are_told_at_their_key() -> Result<(), Failed> {
    let files = folder("unreadable");
    fs::write(files.join("text"), "no capture at all")?;
    // Classic pcap, little-endian: magic, version 2.4, zone, accuracy, length, link type 105 (IEEE
    // 802.11).
    let mut header = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    header.extend([105, 0, 0, 0]);
    fs::write(files.join("wireless"), header)?;
    for (file, why) in [
        ("none", "No such file"),
        ("text", "neither pcapng nor pcap"),
        ("wireless", "neither with an Ethernet header nor with an IP header"),
    ] {
        let description = format!("[link.in]\nmode = \"pcapng\"\nread = \"{file}\"\n");
        let path = files.join("gateway.toml");
        fs::write(&path, description)?;
        for verb in ["check", "run"] {
            let said: Said = Command::new(env!("CARGO_BIN_EXE_gatewright"))
                .arg(verb)
                .arg(&path)
                .output()?
                .into();
            assert_eq!(said.code, Some(78), "{verb} {file}: {}", said.err);
            for part in ["GW0183", why, "gateway.toml:3:8"] {
                assert!(said.err.contains(part), "{verb} {file} {part}: {}", said.err);
            }
        }
    }
    Ok(())
}

/// A port of DPDK is refused at its key by a program without it, which says how to build one with it.
fn ports_of_dpdk_are_refused_without_it() -> Result<(), Failed> {
    let path = folder("without-dpdk").join("gateway.toml");
    fs::write(&path, "[link.lan]\nmode = \"dpdk\"\nport = \"net_af_packet0,iface=eth0\"\n")?;
    for verb in ["check", "run"] {
        let command = Command::new(env!("CARGO_BIN_EXE_gatewright")).arg(verb).arg(&path).output();
        let said: Said = command?.into();
        assert_eq!(said.code, Some(78), "{verb}: {}", said.err);
        for part in ["GW0198", "gateway.toml:3:8", "cargo build --release --features dpdk"] {
            assert!(said.err.contains(part), "{verb} {part}: {}", said.err);
        }
    }
    Ok(())
}

fn main() {
    let needs = || Needs::new().namespaces().program("ping");
    let missing = || match needs().missing() {
        Some(missing) => Some(missing.to_string()),
        None => (!Path::new("/dev/net/tun").exists()).then(|| "/dev/net/tun".to_owned()),
    };
    let trial = |name: &str, run: fn() -> Result<(), Failed>| match missing() {
        None => Trial::test(name, run),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), run).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("one_worker::a_capture_passes_a_segment_and_a_tun_device", || {
            a_capture_passes_a_segment_and_a_tun_device(1)
        }),
        trial("two_workers::a_capture_passes_a_segment_and_a_tun_device", || {
            a_capture_passes_a_segment_and_a_tun_device(2)
        }),
        trial("raw_packets_are_replayed_and_frames_are_written", || {
            raw_packets_are_replayed_and_frames_are_written()
        }),
        Trial::test(
            "unreadable_captures_are_told_at_their_key",
            unreadable_captures_are_told_at_their_key,
        ),
        Trial::test("ports_of_dpdk_are_refused_without_it", ports_of_dpdk_are_refused_without_it)
            .with_ignored_flag(cfg!(feature = "dpdk")),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

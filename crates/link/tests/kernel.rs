//! Links against real kernels: two hosts that talk through a forwarder made of two links.
//!
//! Nothing is set on the hosts but addresses: what their devices promise them (checksums, cutting)
//! is ours to keep. A test that lacks its rights or programs is shown as ignored, with what is
//! missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod bridge;

use bridge::{Bridge, Hosts};
use gatewright_link::Backend;
use gatewright_testbed::{Needs, Transport};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const ADDRESSES: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

const SILENT: &str = "the_kernel_between_stays_silent";

type Test = fn(Backend) -> Result<(), Failed>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The tests measure, and the machine is small: one after the other.
    arguments.test_threads = Some(1);
    let tests: [(&str, &[&str], Test); 10] = [
        ("ping", &["ping"], ping),
        ("tcp_reaches_the_peer_with_right_checksums", &["iperf3"], tcp),
        ("a_device_without_segmentation_gets_segments", &["iperf3", "ethtool"], no_segmentation),
        ("udp_reaches_the_peer_with_right_checksums", &["iperf3"], udp),
        ("a_flipped_bit_is_forwarded_and_fails_at_the_receiver", &[], flipped_bit),
        ("a_frame_leaves_as_it_came", &[], untouched),
        ("a_burst_of_udp_arrives_as_its_datagrams", &[], udp_burst),
        ("frames_of_9000_octets_pass", &["ping", "iperf3"], jumbo),
        ("every_receive_queue_is_served", &["ethtool"], several_queues),
        (SILENT, &["ping"], kernel_is_silent),
    ];
    let backends = [("packet_socket", Backend::PacketSocket), ("xdp_native", Backend::Xdp)];
    let trials = backends.iter().flat_map(|&(backend_name, backend)| {
        tests.iter().map(move |&(name, programs, test)| {
            let needs = programs
                .iter()
                .fold(Needs::new().namespaces(), |needs, program| needs.program(program));
            let silences = backend == Backend::PacketSocket && name == SILENT;
            let needs = if silences { needs.silence() } else { needs };
            let name = format!("{backend_name}::{name}");
            match needs.missing() {
                None => Trial::test(name, move || test(backend)),
                Some(missing) => {
                    let name = format!("{name} (needs {missing})");
                    Trial::test(name, || Ok(())).with_ignored_flag(true)
                }
            }
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn ping(backend: Backend) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    for address in ADDRESSES {
        for size in ["0", "56", "1452", "4000"] {
            let arguments = ["-c", "3", "-i", "0.01", "-W", "10", "-s", size, address];
            let said = hosts.left.command("ping").args(arguments).run()?;
            if size == "56" {
                eprintln!("{backend:?}: {}", said.trim().lines().last().unwrap_or_default());
            }
        }
    }
    let counters = bridge.stop();
    // One of three has come back at the least, of each family and size.
    assert!(counters.iter().all(|link| link.received >= 8 && link.sent >= 8), "{counters:?}");
    Ok(())
}

fn tcp(backend: Backend) -> Result<(), Failed> {
    /// Octets of a segment's payload at the most: an MTU of 1500, IPv6, and no options.
    const SEGMENT: u64 = 1440;
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    for address in ADDRESSES {
        for direction in [&[][..], &["-R"][..]] {
            let said = iperf(&hosts, &[&["-c", address, "-n", "8M"], direction].concat())?;
            let rate = number(&said, "/end/sum_received/bits_per_second")?;
            eprintln!("{backend:?}: TCP {address} {direction:?}: {:.2} Gbit/s", rate / 1e9);
            // How fast is the machine's leisure. Where frames are lost by rule, those of which the
            // kernel makes several segments say, nearly each segment is sent again.
            let again = count(&said, "/end/sum_sent/retransmits")?;
            let segments = count(&said, "/end/sum_sent/bytes")? / SEGMENT;
            assert!(again < segments / 2, "{again} of {segments} segments were sent again");
        }
    }
    hosts.assert_no_checksum_errors()?;
    let counters = bridge.stop();
    assert!(counters.iter().all(|link| link.partial > 0), "the peers send partial: {counters:?}");
    // A packet socket gets whole super-frames; an attached program has the peer cut them itself.
    let has_super_frames =
        counters.iter().all(|link| link.super_frames > 0 && link.super_frames_sent > 0);
    assert_eq!(has_super_frames, backend == Backend::PacketSocket, "{counters:?}");
    Ok(())
}

/// Past the queueing discipline the kernel cuts nothing for a device that cannot: it refuses
/// super-frames, and their segments go one by one, with their checksums. None is lost by that.
fn no_segmentation(backend: Backend) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    for near in ["m0", "m1"] {
        let off = ["-K", near, "tso", "off", "tx-checksum-ip-generic", "off"];
        hosts.middle.command("ethtool").args(off).run()?;
    }
    let bridge = Bridge::start(&hosts, backend)?;
    for address in ADDRESSES {
        iperf(&hosts, &["-c", address, "-n", "8M"])?;
    }
    hosts.assert_no_checksum_errors()?;
    let counters = bridge.stop();
    for link in counters {
        assert_eq!((link.super_frames_sent, link.transmit_length), (0, 0), "{link:?}");
    }
    Ok(())
}

fn udp(backend: Backend) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    let mut lost = 0;
    for address in ADDRESSES {
        let arguments = ["-c", address, "-u", "-b", "100M", "-l", "1400", "-n", "5M"];
        let said = iperf(&hosts, &arguments)?;
        let rate = number(&said, "/end/sum/bits_per_second")?;
        let (lost_now, sent) =
            (count(&said, "/end/sum/lost_packets")?, count(&said, "/end/sum/packets")?);
        eprintln!(
            "{backend:?}: UDP {address}: {:.0} Mbit/s, {lost_now} of {sent} lost",
            rate / 1e6
        );
        lost += lost_now;
    }
    hosts.assert_no_checksum_errors()?;
    // What does not arrive was dropped by a queue that says so: a cable's, a link's, the socket's.
    let mut dropped = hosts.dropped_by_cables()? + hosts.right.counter("UdpRcvbufErrors")?;
    dropped += hosts.right.counter("Udp6RcvbufErrors")?;
    let counters = bridge.stop();
    dropped += counters
        .iter()
        .map(|link| link.receive_overrun + link.receive_no_packet + link.transmit_full)
        .sum::<u64>();
    assert!(lost <= dropped, "{lost} were lost, {dropped} dropped: {counters:?}");
    assert!(counters[0].partial > 0, "{counters:?}");
    Ok(())
}

/// Runs one test from the left to a server on the right that serves only it.
fn iperf(hosts: &Hosts, arguments: &[&str]) -> Result<String, Failed> {
    let server = hosts.right.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    assert!(hosts.right.wait_listening(Transport::Tcp, 5201, LIMIT)?);
    let said = hosts.left.command("iperf3").args(arguments).arg("-J").run();
    // It may wait on a client that has its result, or has failed.
    server.kill();
    Ok(said?)
}

fn number(json: &str, pointer: &str) -> Result<f64, Failed> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    value.pointer(pointer).and_then(serde_json::Value::as_f64).ok_or(Failed::from(json))
}

fn count(json: &str, pointer: &str) -> Result<u64, Failed> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    let found = value.pointer(pointer).and_then(serde_json::Value::as_i64);
    // What comes late makes fewer than none.
    found.map(|found| u64::try_from(found).unwrap_or(0)).ok_or(Failed::from(json))
}

/// A datagram whose payload was changed on its way must not be made valid by us.
fn flipped_bit(backend: Backend) -> Result<(), Failed> {
    const PORT: u16 = 4000;
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    let sockets = hosts.right.run(|| {
        let sockets = [("0.0.0.0", PORT), ("::", PORT + 1)].map(std::net::UdpSocket::bind);
        sockets.into_iter().collect::<Result<Vec<_>, _>>()
    })??;
    let before = [hosts.right.counter("UdpInDatagrams")?, hosts.right.counter("Udp6InDatagrams")?];
    // Frames as another host would send them: complete checksums, then one bit of the payload
    // flipped in every second one.
    hosts.send_raw_datagrams(PORT, 10)?;
    let sum = |name: &str| hosts.right.counter(name);
    let arrived = || -> Result<bool, Failed> {
        let good = [sum("UdpInDatagrams")? - before[0], sum("Udp6InDatagrams")? - before[1]];
        Ok(good == [5, 5] && sum("UdpInCsumErrors")? == 5 && sum("Udp6InCsumErrors")? == 5)
    };
    let all = gatewright_testbed::wait_until(LIMIT, || {
        let mut buffer = [0; 100];
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            while socket.recv(&mut buffer).is_ok() {}
        }
        arrived().unwrap_or(false)
    });
    let counters = bridge.stop();
    assert!(
        all,
        "5 good and 5 corrupt of each family: UDP {} and {}, checksum errors {} and {}; {counters:?}",
        sum("UdpInDatagrams")?,
        sum("Udp6InDatagrams")?,
        sum("UdpInCsumErrors")?,
        sum("Udp6InCsumErrors")?,
    );
    Ok(())
}

/// Frames of every kind leave as they came, but for the padding of short ones: tagged once and
/// twice, of an unknown kind, long.
fn untouched(backend: Backend) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    let frame = |kind: &[u8], len: usize| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(kind);
        frame.extend((frame.len()..len).map(|at| u8::try_from(at % 251).unwrap()));
        frame
    };
    let sent = vec![
        frame(&[0x88, 0xb5], 14),
        frame(&[0x88, 0xb5], 60),
        frame(&[0x88, 0xb5], 1514),
        frame(&[0x81, 0x00, 0x60, 42, 0x88, 0xb5], 64),
        frame(&[0x81, 0x00, 0x60, 42, 0x88, 0xb5], 1518),
        frame(&[0x88, 0xa8, 0, 7, 0x81, 0x00, 0x60, 42, 0x88, 0xb5], 68),
        frame(&[0, 38, 0xaa, 0xaa, 3], 52),
    ];
    let received = hosts.pass_raw(&sent)?;
    let counters = bridge.stop();
    // Short ones are padded (IEEE 802.3 §3.2.8), for devices that do not do so themselves.
    let mut expected = sent;
    for frame in expected.iter_mut().filter(|frame| frame.len() < 60) {
        frame.resize(60, 0);
    }
    assert_eq!(received, expected, "{counters:?}");
    Ok(())
}

/// The sender hands 20 datagrams to its kernel as one (UDP_SEGMENT), and the kernel to its device.
fn udp_burst(backend: Backend) -> Result<(), Failed> {
    const SEGMENT: u16 = 1000;
    let hosts = Hosts::new()?;
    let bridge = Bridge::start(&hosts, backend)?;
    let pairs = [("192.0.2.1:0", "192.0.2.2:4000"), ("[2001:db8::1]:0", "[2001:db8::2]:4000")];
    for (from, to) in pairs {
        let receiver = hosts.right.run(|| std::net::UdpSocket::bind(to))??;
        receiver.set_read_timeout(Some(LIMIT))?;
        let sent: Vec<u8> = (0..20_u8).flat_map(|number| [number; SEGMENT as usize]).collect();
        hosts.left.run(|| -> Result<(), Failed> {
            let sender = std::net::UdpSocket::bind(from)?;
            setsockopt(&sender, sockopt::UdpGsoSegment, &i32::from(SEGMENT))?;
            assert_eq!(sender.send_to(&sent, to)?, sent.len());
            Ok(())
        })??;
        let (mut received, mut buffer) = (Vec::new(), [0; 2000]);
        while received.len() < sent.len() {
            let len = receiver
                .recv(&mut buffer)
                .map_err(|error| format!("{error} after {} octets", received.len()))?;
            assert_eq!(len, usize::from(SEGMENT));
            received.extend_from_slice(&buffer[..len]);
        }
        assert_eq!(received, sent, "{to}");
    }
    hosts.assert_no_checksum_errors()?;
    let counters = bridge.stop();
    assert_eq!(counters[0].super_frames, if backend == Backend::PacketSocket { 2 } else { 0 });
    Ok(())
}

/// Frames above a page: a packet socket takes them as they are, AF_XDP in several buffers.
fn jumbo(backend: Backend) -> Result<(), Failed> {
    const CHUNK_SIZE: usize = 10_240;
    let hosts = Hosts::with_mtu(9000)?;
    let bridge = Bridge::start_with(&hosts, backend, CHUNK_SIZE)?;
    for address in ADDRESSES {
        // In one piece: 9000 octets of IP.
        let size = if address.contains(':') { "8952" } else { "8972" };
        let arguments = ["-M", "do", "-c", "3", "-i", "0.01", "-W", "10", "-s", size, address];
        hosts.left.command("ping").args(arguments).run()?;
        // Sizes around what fits one buffer and two.
        for size in ["3750", "3800", "3850", "7600", "8000"] {
            hosts
                .left
                .command("ping")
                .args(["-c", "2", "-i", "0.01", "-s", size, address])
                .run()?;
        }
        let said = iperf(&hosts, &["-c", address, "-n", "20M"])?;
        let rate = number(&said, "/end/sum_received/bits_per_second")?;
        eprintln!("{backend:?}: TCP {address} with an MTU of 9000: {:.2} Gbit/s", rate / 1e9);
    }
    hosts.assert_no_checksum_errors()?;
    let counters = bridge.stop();
    assert!(counters.iter().all(|link| link.receive_malformed + link.receive_oversized == 0));
    Ok(())
}

/// The hosts spread their flows over two queues, and the middle receives by both.
fn several_queues(backend: Backend) -> Result<(), Failed> {
    // That all of one side take the same queue has a chance of one in 32,768.
    const FLOWS: usize = 16;
    const OCTETS: usize = 50_000;
    let hosts = Hosts::new()?;
    for (host, far, near) in [(&hosts.left, "l0", "m0"), (&hosts.right, "r0", "m1")] {
        hosts.middle.command("ethtool").args(["-L", near, "rx", "2"]).run()?;
        host.command("ethtool").args(["-L", far, "tx", "2"]).run()?;
    }
    let bridge = Bridge::start(&hosts, backend)?;
    for address in ["192.0.2.2:4000", "[2001:db8::2]:4000"] {
        let listener = hosts.right.run(|| TcpListener::bind(address))??;
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(FLOWS) {
                let (mut stream, mut heard) = (stream.unwrap(), Vec::new());
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                stream.read_to_end(&mut heard).unwrap();
                stream.write_all(&heard.len().to_be_bytes()).unwrap();
            }
        });
        for _ in 0..FLOWS {
            // A queue that is not served stalls its flows for good.
            let mut stream = hosts.left.run(|| TcpStream::connect(address))??;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.write_all(&vec![7; OCTETS])?;
            stream.shutdown(Shutdown::Write)?;
            let mut heard = [0; size_of::<usize>()];
            stream.read_exact(&mut heard)?;
            assert_eq!(usize::from_be_bytes(heard), OCTETS);
        }
        server.join().map_err(|_| "the server failed")?;
    }
    bridge.stop();
    Ok(())
}

/// The kernel in the middle forwards, and has the addresses that are asked for: only the link
/// keeps it from answering.
fn kernel_is_silent(backend: Backend) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    hosts.middle.sysctl("net.ipv4.ip_forward", "1")?;
    hosts.middle.ip(&["address", "add", "192.0.2.77/24", "dev", "m0"])?;
    let ask = || -> Result<bool, Failed> {
        let arguments = ["-c", "1", "-W", "1", "192.0.2.77"];
        Ok(hosts.left.command("ping").args(arguments).output()?.status.success())
    };
    let answers = || gatewright_testbed::wait_until(LIMIT, || ask().unwrap_or(false));
    assert!(answers(), "without a link the kernel answers");
    let bridge = Bridge::start(&hosts, backend)?;
    assert!(!ask()?, "with an exclusive link it does not");
    bridge.stop();
    assert!(answers(), "and it does again when the link is closed");
    Ok(())
}

//! VLAN tags that a driver takes out of the frame and carries beside it, as network cards do and
//! as veth does for a peer with a VLAN interface.
//!
//! A test that lacks its rights or programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_link::{Backend, Division, LinkConfig, Opener};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Pool};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use gatewright_xdp::program::{AttachedProgram, BpfProgram, Hook, Instruction, ProgramType};
use libtest_mimic::{Arguments, Failed, Trial};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Check = fn(Backend) -> Result<(), Failed>;

fn main() -> ExitCode {
    let backends = [("xdp_native", Backend::Xdp), ("packet_socket", Backend::PacketSocket)];
    let checks: [(&str, Check); 2] = [
        ("a_tag_beside_the_frame_comes_back_into_it", tag_comes_back),
        ("frames_of_vlans_on_a_shared_link_are_divided", shared_vlans_are_divided),
    ];
    let trials = backends.into_iter().flat_map(|(name, backend)| {
        checks.into_iter().map(move |(check, run)| {
            let name = format!("{name}::{check}");
            match Needs::new().namespaces().program("ping").linux(6, 8).missing() {
                None => Trial::test(name, move || run(backend)),
                Some(missing) => {
                    let name = format!("{name} (needs {missing})");
                    Trial::test(name, || Ok(())).with_ignored_flag(true)
                }
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Has the kernel tag what leaves by the interface with `index`: `bpf_skb_vlan_push`, which does
/// what a VLAN interface does.
fn tag_all(index: u32, vlan: i32) -> std::io::Result<AttachedProgram> {
    const VLAN_PUSH: i32 = 18;
    let program = [
        Instruction(0xb7, 2, 0, i32::from(0x8100_u16.to_be())),
        Instruction(0xb7, 3, 0, vlan),
        Instruction(0x85, 0, 0, VLAN_PUSH),
        Instruction(0xb7, 0, 0, 0),
        Instruction(0x95, 0, 0, 0),
    ];
    let program = BpfProgram::load(ProgramType::Egress, "tag_all", &program, 0)?;
    program.attach(index, Hook::Egress)
}

fn tag_comes_back(backend: Backend) -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    let cable = Veth::pair(&namespace, "g0", &namespace, "h0")?;
    cable.a.disable_ipv6()?;
    cable.b.disable_ipv6()?;
    cable.b.add_address("192.0.2.1/24")?;
    cable.up()?;
    let index = cable.b.index()?;
    namespace.run(|| -> Result<(), Failed> {
        let _tagger = tag_all(index, 42)?;
        let opener = Opener::new(Rc::new(Pool::new(2048, CHUNK_SIZE)?));
        let config = LinkConfig { backend, ..LinkConfig::new(LinkIndex(0), "g0") };
        let mut link = opener.open(&config)?;
        // It has nobody to answer: what counts is the question.
        namespace.command("ping").args(["-c", "1", "-W", "0.1", "192.0.2.2"]).output()?;
        let mut batch = Batch::default();
        wait_until(Duration::from_secs(30), || link.receive(Duration::ZERO, &mut batch) > 0);
        let packet = batch.pop().ok_or("nothing arrived")?;
        let (addresses, rest) = packet.octets().split_at(12);
        assert_eq!(addresses[..6], [0xff; 6], "an ARP request");
        assert_eq!(rest[..6], [0x81, 0x00, 0, 42, 0x08, 0x06], "{}", link.info());
        assert_eq!(packet.len(), 14 + 4 + 28);
        Ok(())
    })?
}

/// The VLAN of a shared link whose frames are divided, and destinations that are ours.
const VLAN: u16 = 42;
const OURS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 0)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 0)),
];

/// A frame to a station with these tags, for this destination; its last octet is its number.
fn frame(to: [u8; 6], tags: &[u16], destination: &str, number: u8) -> Vec<u8> {
    let mut frame = [to, [2, 0, 0, 0, 0, 9]].concat();
    for tag in tags {
        frame.extend([0x81, 0x00]);
        // With a priority, which is no part of the VLAN.
        frame.extend((tag | 0x6000).to_be_bytes());
    }
    match destination.parse() {
        Ok(IpAddr::V4(ip)) => {
            frame.extend([0x08, 0x00, 0x45]);
            frame.extend([0; 15]);
            frame.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            frame.extend([0x86, 0xdd, 0x60]);
            frame.extend([0; 23]);
            frame.extend(ip.octets());
        }
        Err(_) => frame.extend([0x08, 0x06]),
    }
    frame.resize(LEN, 0);
    frame.push(number);
    frame
}

/// Octets of a frame without its last, and without what is not known by whom it was sent.
const LEN: usize = 89;

/// Has the kernel pass on what arrives at the interface with `index` and is not taken before, by
/// another interface: `bpf_redirect`.
fn pass_all(index: u32, to: u32) -> std::io::Result<AttachedProgram> {
    const REDIRECT: i32 = 23;
    let program = [
        Instruction(0xb7, 1, 0, to.cast_signed()),
        Instruction(0xb7, 2, 0, 0),
        Instruction(0x85, 0, 0, REDIRECT),
        Instruction(0x95, 0, 0, 0),
    ];
    let program = BpfProgram::load(ProgramType::Ingress, "pass_all", &program, 0)?;
    program.attach(index, Hook::Ingress)
}

/// A cable whose one end is shared with the kernel. What is left to the kernel arrives at the end of
/// another cable; what is sent into a third one leaves by the kernel's other end.
struct Shared {
    namespace: Namespace,
    cable: Veth,
    kernels: Veth,
    senders: Veth,
}

impl Shared {
    fn new() -> Result<Self, Failed> {
        let namespace = Namespace::new()?;
        let cable = Veth::pair(&namespace, "g0", &namespace, "h0")?;
        let kernels = Veth::pair(&namespace, "k0", &namespace, "k1")?;
        let senders = Veth::pair(&namespace, "x0", &namespace, "x1")?;
        for Veth { a, b } in [&cable, &kernels, &senders] {
            a.disable_ipv6()?;
            b.disable_ipv6()?;
        }
        for cable in [&cable, &kernels, &senders] {
            cable.up()?;
        }
        Ok(Self { namespace, cable, kernels, senders })
    }

    /// Sends these frames; returns those that came to the gateway and those that the kernel has, without
    /// the numbers of their senders.
    fn divide(
        &self,
        backend: Backend,
        pushes_tag: bool,
        frames: &[Vec<u8>],
    ) -> Result<[Vec<Vec<u8>>; 2], Failed> {
        let [near, far, kernels] =
            [self.cable.a.index()?, self.cable.b.index()?, self.kernels.a.index()?];
        let senders = self.senders.b.index()?;
        let wanted = |index, name, backend| LinkConfig {
            backend,
            ..LinkConfig::new(LinkIndex(index), name)
        };
        let shared =
            LinkConfig { exclusive: false, vlans: vec![7, VLAN], ..wanted(0, "g0", backend) };
        self.namespace.run(|| -> Result<_, Failed> {
            let division = Arc::new(Division::new(16)?);
            for (prefix, len) in OURS.into_iter().zip([16, 32]) {
                division.set(prefix, len, true)?;
            }
            let pool = Rc::new(Pool::new(16_384, CHUNK_SIZE)?);
            let opener = Opener::new(Rc::clone(&pool)).divided(division);
            let mut ours = opener.open(&shared)?;
            let _passes = pass_all(near, kernels)?;
            let mut kernels = opener.open(&wanted(1, "k1", Backend::PacketSocket))?;
            // A packet socket sends past the hook at which the tag is pushed.
            let _passes_on = pass_all(senders, far)?;
            let mut sender = opener.open(&wanted(2, "x0", Backend::PacketSocket))?;
            let _tagger = pushes_tag.then(|| tag_all(far, VLAN.into())).transpose()?;
            let mut sent = Batch::default();
            for frame in frames {
                let packet = pool.packet_of(frame).ok_or("no packet")?;
                sent.push(packet).map_err(|_| "no room")?;
            }
            sender.transmit(Duration::ZERO, &mut sent);
            let mut came = [Vec::new(), Vec::new()];
            let mut batch = Batch::default();
            wait_until(Duration::from_secs(30), || {
                for (link, came) in [&mut ours, &mut kernels].into_iter().zip(&mut came) {
                    link.receive(Duration::ZERO, &mut batch);
                    let own = batch.drain().map(|packet| packet.octets().to_vec());
                    came.extend(own.filter(|frame| frame[6..12] == [2, 0, 0, 0, 0, 9]));
                }
                came.iter().map(Vec::len).sum::<usize>() >= frames.len()
            });
            Ok(came)
        })?
    }
}

/// Of a VLAN that is a link of ours the frames with our destinations are ours, with their tag; all
/// others go to the kernel as they came.
fn shared_vlans_are_divided(backend: Backend) -> Result<(), Failed> {
    let shared = Shared::new()?;
    let mac: Vec<u8> = (shared.cable.a.mac()?.split(':'))
        .map(|octet| u8::from_str_radix(octet, 16).unwrap())
        .collect();
    let mac: [u8; 6] = mac.try_into().unwrap();
    let other = [2, 0, 0, 0, 0, 8];
    let cases: [(&[u16], [u8; 6], &str, bool); 15] = [
        (&[VLAN], mac, "10.9.1.1", true),
        (&[VLAN], mac, "10.8.1.1", false),
        (&[VLAN], mac, "fd09::1", true),
        (&[VLAN], mac, "fd08::1", false),
        (&[VLAN], mac, "ARP", false),
        (&[VLAN], other, "10.9.1.1", false),
        (&[7], mac, "10.9.1.1", true),
        (&[43], mac, "10.9.1.1", false),
        (&[0], mac, "10.9.1.1", false),
        (&[VLAN, VLAN], mac, "10.9.1.1", false),
        (&[VLAN, VLAN], mac, "fd09::1", false),
        (&[], mac, "10.9.1.1", true),
        (&[], mac, "10.8.1.1", false),
        (&[], mac, "fd09::1", true),
        (&[], mac, "ARP", false),
    ];
    let made = |cases: &[(&[u16], [u8; 6], &str, bool)], ours: bool| -> Vec<Vec<u8>> {
        let numbered = (0..).zip(cases).filter(|(_, case)| case.3 == ours);
        numbered.map(|(number, (tags, to, at, _))| frame(*to, tags, at, number)).collect()
    };
    let all: Vec<_> =
        (0..).zip(&cases).map(|(n, (tags, to, at, _))| frame(*to, tags, at, n)).collect();
    let [ours, kernels] = shared.divide(backend, false, &all)?;
    assert_eq!(ours, made(&cases, true), "in the frame");
    assert_eq!(kernels, made(&cases, false), "in the frame");

    // The kernel pushes a tag, which the virtual cable carries beside the frame.
    let untagged: Vec<_> = cases.iter().filter(|case| case.0.is_empty()).copied().collect();
    let all: Vec<_> =
        (0..).zip(&untagged).map(|(n, (_, to, at, _))| frame(*to, &[], at, n)).collect();
    let [ours, kernels] = shared.divide(backend, true, &all)?;
    let tagged = |frames: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        let tag = [0x81, 0x00, 0, 42];
        frames.iter().map(|frame| [&frame[..12], &tag, &frame[12..]].concat()).collect()
    };
    assert_eq!(ours, tagged(made(&untagged, true)), "beside the frame");
    assert_eq!(kernels, tagged(made(&untagged, false)), "beside the frame");
    Ok(())
}

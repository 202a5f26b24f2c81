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

use gatewright_link::{Backend, LinkConfig, Opener};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Pool};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use gatewright_xdp::program::{AttachedProgram, BpfProgram, Hook, Instruction, ProgramType};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

fn main() -> ExitCode {
    let backends = [("xdp_native", Backend::Xdp), ("packet_socket", Backend::PacketSocket)];
    let trials = backends.map(|(name, backend)| {
        let name = format!("{name}::a_tag_beside_the_frame_comes_back_into_it");
        match Needs::new().namespaces().program("ping").linux(6, 8).missing() {
            None => Trial::test(name, move || tag_comes_back(backend)),
            Some(missing) => {
                Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
            }
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
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

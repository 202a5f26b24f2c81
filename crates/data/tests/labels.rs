//! The programs in the kernel and the layer of the graph switch labels alike: both read the same
//! tables, and the same random frames leave both with the same octets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_packet::{Batch, CHUNK_SIZE, LinkAddress, LinkIndex, NextHop, Pool};
use gatewright_stack::{
    At, Attachment, AttachmentId, Counter, Graph, Handler, Host, Interface, LabelCounts,
    LabelledLink, NeighbourLimits, NodeIndex, Place, Side, Suite, SuiteLink, Swap, Wake,
    assemble_labelled, tap,
};
use gatewright_tables::{LabelHop, LabelHops, LabelLink, PathKey};
use gatewright_wire::EtherType;
use gatewright_xdp::LabelSwitching;
use libtest_mimic::{Arguments, Failed, Trial};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const IN: LinkIndex = LinkIndex(0);
const OUT: LinkIndex = LinkIndex(1);
const MESH: LinkIndex = LinkIndex(2);
const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
const NEXT: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0xf];
const REDIRECT: u32 = 7;
const XDP_REDIRECT: u32 = 4;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let name = "programs_and_graph_switch_labels_alike";
    let trial = match LabelSwitching::new() {
        Ok(_) => Trial::test(name, alike),
        Err(missing) => {
            let name = format!("{name} (needs BPF: {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

/// A label's or path's next hops of a random kind: which links are up, and which hop there is.
#[derive(Clone, Debug)]
struct Case {
    up: [bool; 2],
    backup: bool,
    pops: bool,
    entry: u32,
    to: bool,
    packet: Vec<u8>,
}

fn cases() -> impl Strategy<Value = Case> {
    // Labels 198 to 201, of which 200 is known, with any class, bottom of stack and TTL.
    let entry = (198_u32..202, any::<u32>()).prop_map(|(label, low)| {
        let low = if low & 0x8000_0000 == 0 { low & 0xf7f | 0x100 } else { low & 0xe03 };
        label << 12 | low
    });
    let first = prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()];
    let packet = (first, prop::collection::vec(any::<u8>(), 40..100))
        .prop_map(|(first, rest)| [&[first][..], &rest].concat());
    (any::<[bool; 2]>(), any::<bool>(), any::<bool>(), entry, prop::bool::weighted(0.9), packet)
        .prop_map(|(up, backup, pops, entry, to, packet)| Case {
            up,
            backup,
            pops,
            entry,
            to,
            packet,
        })
}

struct Both {
    programs: LabelSwitching,
    graph: Graph,
    layer: NodeIndex,
    delivered: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Both {
    fn new() -> Result<Self, Failed> {
        let mut programs = LabelSwitching::new()?;
        for (link, address) in (0..).zip(MACS) {
            // Nothing is sent: the loopback stands for any interface.
            let what = LabelLink { interface: 1, address, takes_super_frames: true };
            programs.tables().set_link(link, Some(&what))?;
            programs.tables().set_link_up(link, true)?;
            programs.set_port(link, 1)?;
        }
        let own =
            LabelledLink { link: MESH, table: programs.table(), counts: LabelCounts::default() };
        let links = [SuiteLink::Ethernet(IN), SuiteLink::Ethernet(OUT)];
        let limits = NeighbourLimits::default();
        let suite = assemble_labelled(&links, Arc::new(Asleep), 1, limits, Some(own));
        let Suite { plan, layers, bottoms, .. } = suite;
        let mut host = Host::new(16)?;
        for (link, mac) in (0..).map(LinkIndex).zip(MACS) {
            let name = format!("link{link}");
            let link_address = LinkAddress::ethernet(mac);
            let up = true;
            host.add_interface(Interface { link, name, link_address, up, ..Interface::default() })?;
        }
        let pools = [CHUNK_SIZE; 2].map(|size| Rc::new(Pool::new(256, size).unwrap()));
        let [frames, datagrams] = pools;
        let mut graph = Graph::new(layers, plan.wire(&[])?, host.view(), frames, datagrams);
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let stands = [EtherType::IPV4, EtherType::IPV6].map(|family| {
            let at = At::EtherType(family);
            let id = AttachmentId(family.0.into());
            (id, Attachment { at, side: Side::Receive, place: Place::Instead, link: Some(MESH) })
        });
        let handler = |(id, _): &(AttachmentId, Attachment)| {
            let (kind, kept) = (u16::try_from(id.0).unwrap(), delivered.clone());
            let look = tap(move |batch: &Batch| {
                for packet in batch {
                    let packet = [&kind.to_be_bytes(), packet.octets()].concat();
                    kept.lock().unwrap().push(packet);
                }
            });
            (*id, look, Counter::default())
        };
        let handlers: Vec<(_, Box<dyn Handler>, _)> = stands.iter().map(handler).collect();
        graph.swap(Swap { wiring: plan.wire(&stands)?, handlers });
        let layer = bottoms.iter().find(|(link, _)| *link == MESH).unwrap().1;
        Ok(Self { programs, graph, layer, delivered })
    }

    /// Sets the tables for a case.
    fn set(&mut self, case: &Case) -> Result<(), Failed> {
        let swap = |link: LinkIndex, label| LabelHop {
            link: link.0.into(),
            address: NEXT,
            label: Some(label),
        };
        let pop = LabelHop { link: MESH.0.into(), address: FAR, label: None };
        let primary = if case.pops { pop } else { swap(OUT, 300) };
        let backup = case.backup.then(|| swap(IN, 301));
        let tables = self.programs.tables();
        for (link, up) in (0..).zip(case.up) {
            tables.set_link_up(link, up)?;
        }
        tables.set_label(200, Some(&LabelHops { primary, backup }))?;
        for class in 0..4 {
            let primary = swap(OUT, 400 + u32::from(class));
            let key = PathKey { destination: FAR, class };
            tables.set_path(key, Some(&LabelHops { primary, backup }))?;
        }
        Ok(())
    }

    /// The frames that leave the graph, and those that it delivers to the host.
    fn graph(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut batch = Batch::default();
        batch.push(self.graph.frames().packet_of(frame).unwrap()).unwrap();
        self.graph.receive(
            IN,
            &mut batch,
            Duration::ZERO,
            &mut |_: LinkIndex, batch: &mut Batch| {
                sent.extend(batch.drain().map(|packet| packet.octets().to_vec()));
            },
        );
        sent
    }

    /// The frames that leave when the host sends `packet` to FAR.
    fn pushed(&mut self, kind: u16, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut packet = self.graph.frames().packet_of(packet).unwrap();
        let meta = packet.meta_mut();
        meta.egress = MESH;
        meta.ether_type = kind;
        meta.next_hop = NextHop::Station(LinkAddress::ethernet(FAR));
        let mut batch = Batch::default();
        batch.push(packet).unwrap();
        let at = At::EtherType(EtherType(kind));
        let exit = &mut |_: LinkIndex, batch: &mut Batch| {
            sent.extend(batch.drain().map(|packet| packet.octets().to_vec()));
        };
        self.graph.transmit(self.layer, at, &mut batch, Duration::ZERO, exit);
        sent
    }
}

fn alike() -> Result<(), Failed> {
    let mut both = Both::new()?;
    let programs = &both.programs;
    let (push, switch, swap) = (programs.push(0)?, programs.switch(0)?, programs.swap(0)?);
    let (mut swapped, mut popped, mut pushed) = (0, 0, 0);
    // The same cases in every run.
    let mut runner = TestRunner::deterministic();
    let strategy = cases();
    for _ in 0..2_000 {
        let case = strategy.new_tree(&mut runner)?.current();
        both.set(&case)?;
        let to = if case.to { MACS[0] } else { FAR };
        let head = [&to[..], &NEXT, &0x8847_u16.to_be_bytes(), &case.entry.to_be_bytes()].concat();
        let come = [&head[..], &case.packet].concat();
        let (sent, ran) = (both.graph(&come), switch.run(&come, 1)?);
        let delivered = std::mem::take(&mut *both.delivered.lock().unwrap());
        let leaves = ran.frame.get(12..14) == Some(&[0x88, 0x47]);
        match (ran.verdict, leaves) {
            (REDIRECT, true) => {
                assert_eq!(sent, [ran.frame], "{case:?}");
                let driver = swap.run(&come, 1)?;
                assert_eq!((driver.verdict, vec![driver.frame]), (XDP_REDIRECT, sent), "{case:?}");
                swapped += 1;
            }
            (REDIRECT, false) => {
                // Addresses, and a tag of VLAN 0 in front of the type.
                assert_eq!(ran.frame[..12], [FAR, MACS[2]].concat(), "{case:?}");
                assert_eq!(delivered, [&ran.frame[16..]], "{case:?}");
                popped += 1;
            }
            _ => assert!(sent.is_empty() && delivered.is_empty(), "{case:?}"),
        }
        let kind = if case.packet[0] >> 4 == 6 { 0x86dd_u16 } else { 0x0800 };
        let come = [&FAR[..], &MACS[2], &kind.to_be_bytes(), &case.packet].concat();
        let (sent, ran) = (both.pushed(kind, &case.packet), push.run(&come, 1)?);
        let expected = (ran.verdict == REDIRECT).then_some(ran.frame);
        pushed += usize::from(expected.is_some());
        assert_eq!(sent, expected.into_iter().collect::<Vec<_>>(), "{case:?}");
    }
    // Each kind has occurred often enough for its octets to be random.
    assert!(swapped > 50 && popped > 50 && pushed > 50, "{swapped} {popped} {pushed}");
    Ok(())
}

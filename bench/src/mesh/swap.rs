//! What a swap costs in memory: in the graph, and in programs that the kernel runs on one frame.

use bench::{Bench, Contestant, Yardstick};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkAddress, LinkIndex, Pool};
use gatewright_stack::{
    Graph, Host, Interface, LabelCounts, LabelledLink, NeighbourLimits, Suite, SuiteLink, Wake,
    assemble_labelled,
};
use gatewright_tables::{
    LABELS_MAX, LabelAreas, LabelHop, LabelHops, LabelLink, LabelTable, LabelTableWriter,
};
use gatewright_xdp::LabelSwitching;
use gatewright_xdp::map::{BpfMap, MapType};
use gatewright_xdp::program::{BpfProgram, Instruction, ProgramType};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IN: LinkIndex = LinkIndex(0);
const OUT: LinkIndex = LinkIndex(1);
const MESH: LinkIndex = LinkIndex(2);
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]];
const NEXT: [u8; 6] = [2, 0, 0, 0, 2, 9];
const FIRST: u32 = 1000;
/// Labels in use: of each as many packets.
const LABELS: u32 = 256;
const PACKETS: u32 = 1 << 18;
const BATCH: usize = 64;
const NAMES: [&str; 3] = ["in", "out", "mesh"];
/// Runs of a program for one call: its frame's TTL lasts so long.
const RUNS: u32 = 250;
const CALLS: u32 = 400;

struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Labels that leave by the second link to `next`; each keeps its number, so that a program that
/// runs on its own result finds it again.
fn fill(tables: &mut LabelTableWriter, next: [u8; 6]) -> Result<(), String> {
    for (link, address) in (0..).zip(MACS) {
        let what = LabelLink { interface: 1, address, takes_super_frames: true };
        tables.set_link(link, Some(&what)).map_err(text)?;
        tables.set_link_up(link, true).map_err(text)?;
    }
    for label in FIRST..FIRST + LABELS {
        let hop =
            |link: LinkIndex| LabelHop { link: link.0.into(), address: next, label: Some(label) };
        let hops = LabelHops { primary: hop(OUT), backup: Some(hop(IN)) };
        tables.set_label(label, Some(&hops)).map_err(text)?;
    }
    Ok(())
}

/// A frame of 64 octets with its check sequence, of an IPv4 packet with a label.
fn frame(label: u32, time_to_live: u8) -> Vec<u8> {
    let entry = (label << 12 | 1 << 8 | u32::from(time_to_live)).to_be_bytes();
    let mut frame = [&MACS[0][..], &NEXT, &[0x88, 0x47], &entry, &[0x45, 0, 0, 42]].concat();
    frame.resize(60, 0);
    frame
}

struct Switch {
    graph: Graph,
    frames: Vec<Vec<u8>>,
    counts: LabelCounts,
    table: LabelTable,
    _host: Host,
}

impl Switch {
    fn new() -> Result<Self, String> {
        let mut tables = LabelTableWriter::new(LabelAreas::private());
        fill(&mut tables, NEXT)?;
        let counts = LabelCounts::default();
        let own = LabelledLink { link: MESH, table: tables.table(), counts: counts.clone() };
        let links = [SuiteLink::Ethernet(IN), SuiteLink::Ethernet(OUT)];
        let limits = NeighbourLimits::default();
        let suite = assemble_labelled(&links, Arc::new(Asleep), 42, limits, Some(own));
        let Suite { plan, layers, .. } = suite;
        let mut host = Host::new(64).map_err(text)?;
        for (link, mac) in (0..).map(LinkIndex).zip(MACS) {
            let name = NAMES.get(link.index()).copied().unwrap_or_default().to_owned();
            let link_address = LinkAddress::ethernet(mac);
            let interface =
                Interface { link, name, link_address, up: true, ..Interface::default() };
            host.add_interface(interface).map_err(text)?;
        }
        let pool = |chunks| Pool::new(chunks, CHUNK_SIZE).map(Rc::new).map_err(text);
        let wiring = plan.wire(&[]).map_err(text)?;
        let graph = Graph::new(layers, wiring, host.view(), pool(1024)?, pool(16)?);
        let frames = (FIRST..FIRST + LABELS).map(|label| frame(label, 64)).collect();
        let mut this = Self { graph, frames, counts, table: tables.table(), _host: host };
        this.check()?;
        Ok(this)
    }

    fn batch(&self, frames: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::default();
        for frame in frames {
            if let Some(packet) = self.graph.frames().packet_of(frame) {
                drop(batch.push(packet));
            }
        }
        batch
    }

    /// Every frame leaves by the second link to the next hop with a TTL of 63: otherwise nothing
    /// was measured.
    fn check(&mut self) -> Result<(), String> {
        let (mut right, frames) = (0, std::mem::take(&mut self.frames));
        for frames in frames.chunks(BATCH) {
            let mut batch = self.batch(frames);
            self.graph.receive(IN, &mut batch, Duration::ZERO, &mut |link, batch: &mut Batch| {
                let is_right = |octets: &[u8]| {
                    link == OUT && octets.starts_with(&NEXT) && octets.get(17) == Some(&63)
                };
                right += batch.drain().filter(|packet| is_right(packet.octets())).count();
            });
        }
        let place = self.table.place_of_label(FIRST);
        let counted = place.map_or(0, |place| self.counts.label(place).0);
        if right == frames.len() && counted == 1 {
            self.frames = frames;
            return Ok(());
        }
        Err(format!("{right} of {} frames were swapped rightly; {counted} counted", frames.len()))
    }

    /// Nanoseconds a packet, its frame written anew before.
    fn swap(&mut self) -> f64 {
        let frames = std::mem::take(&mut self.frames);
        let each = each(|| {
            for frames in frames.chunks(BATCH) {
                let mut batch = self.batch(frames);
                self.graph.receive(IN, &mut batch, Duration::ZERO, &mut |_, _: &mut Batch| {});
            }
        });
        self.frames = frames;
        each
    }

    /// Nanoseconds to write the frame and give its chunk back, and nothing else.
    fn floor(&self) -> f64 {
        each(|| {
            for frames in self.frames.chunks(BATCH) {
                drop(std::hint::black_box(self.batch(frames)));
            }
        })
    }
}

/// Nanoseconds for each of the packets that passes over all labels have.
fn each(mut pass: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..PACKETS / LABELS {
        pass();
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS)
}

/// `swap_ns`: Ethernet in, label, Ethernet out, over 256 labels with counters and backups.
pub(super) fn in_the_graph(bench: &mut Bench) -> Result<(), String> {
    let switch = std::cell::RefCell::new(Switch::new()?);
    bench.interleave(vec![
        Contestant::new("swap_floor_ns", "ns", || switch.borrow().floor()),
        Contestant::new("swap_all_ns", "ns", || switch.borrow_mut().swap()),
    ]);
    bench.difference("swap_ns", "swap_all_ns", "swap_floor_ns");
    bench.normalise("swap_ns", Yardstick::Core);
    bench.note("swap_ns: a frame in, out of the graph with another label; the frame is written before (the floor)");
    Ok(())
}

/// A program that redirects every frame and does nothing else.
fn redirect() -> Result<(BpfProgram, BpfMap), String> {
    let ports = BpfMap::new(MapType::Interfaces, "ports", 4, 4, LABELS_MAX).map_err(text)?;
    ports.set(&1_u32.to_ne_bytes(), &1_u32.to_ne_bytes()).map_err(text)?;
    let program = [
        // r1 = the map, r2 = 1, r3 = XDP_PASS; r0 = bpf_redirect_map(r1, r2, r3).
        Instruction(0x18, 0x11, 0, ports.as_fd().as_raw_fd()),
        Instruction(0, 0, 0, 0),
        Instruction(0xb7, 2, 0, 1),
        Instruction(0xb7, 3, 0, 2),
        Instruction(0x85, 0, 0, 51),
        Instruction(0x95, 0, 0, 0),
    ];
    let program = BpfProgram::load(ProgramType::Xdp, "redirect", &program, 0).map_err(text)?;
    Ok((program, ports))
}

/// Mean nanoseconds of a run; its last run still redirects.
fn run(program: &BpfProgram, verdict: u32) -> Result<f64, String> {
    let frame = frame(FIRST, 255);
    let mut sum = 0.0;
    for _ in 0..CALLS {
        let ran = program.run(&frame, RUNS).map_err(text)?;
        if ran.verdict != verdict {
            return Err(format!("a program of `bench mesh` returned {}", ran.verdict));
        }
        sum += f64::from(ran.nanoseconds);
    }
    Ok(sum / f64::from(CALLS))
}

/// `swap_xdp_ns` and `swap_tc_ns`: the programs alone, beside a bare redirect.
pub(super) fn in_the_kernel(bench: &mut Bench) -> Result<(), String> {
    const XDP_REDIRECT: u32 = 4;
    const TC_REDIRECT: u32 = 7;
    let mut switching = LabelSwitching::new().map_err(text)?;
    fill(switching.tables(), MACS[0])?;
    switching.set_port(1, 1).map_err(text)?;
    let (swap, switch) = (switching.swap(0).map_err(text)?, switching.switch(0).map_err(text)?);
    let (bare, _ports) = redirect()?;
    for _ in 0..bench.options().rounds() {
        bench.sample("redirect_xdp_ns", "ns", run(&bare, XDP_REDIRECT)?);
        bench.sample("swap_xdp_ns", "ns", run(&swap, XDP_REDIRECT)?);
        bench.sample("swap_tc_ns", "ns", run(&switch, TC_REDIRECT)?);
    }
    bench.difference("swap_xdp_over_redirect_ns", "swap_xdp_ns", "redirect_xdp_ns");
    bench.note("swap_xdp_ns, swap_tc_ns: the kernel runs the program on one frame 250 times (BPF_PROG_TEST_RUN) and sends nothing");
    Ok(())
}

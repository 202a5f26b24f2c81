//! Frames out of an interface as fast as the kernel can make them, or at a pace, and what counts
//! them at the other end: XDP programs. The generator's is run on *live frames*
//! (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`) and redirects each.
//!
//! Pages of earlier frames come back as the gateway left them, so the program writes the headers
//! anew every time. A run has a fixed cost of about 20 ms, so it makes a million frames.

use super::bpf::code::{
    ADD, ADD_IMMEDIATE, AND_IMMEDIATE, CALL, EXIT, JUMP_ALWAYS, JUMP_IF_ABOVE,
    JUMP_IF_ABOVE_IMMEDIATE, JUMP_IF_EQUAL, LOAD_DOUBLE, LOAD_HALF, LOAD_IMMEDIATE_64, LOAD_WORD,
    MOVE, MOVE_IMMEDIATE, SHIFT_LEFT_IMMEDIATE, STORE_DOUBLE, STORE_HALF, SUBTRACT,
    SUBTRACT_IMMEDIATE, TO_BIG_ENDIAN,
};
use super::bpf::{AttachedProgram, BpfProgram, BpfValues, Instruction, attach, load};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames that one run makes.
const FRAMES_PER_RUN: u32 = 1_000_000;
/// Frames that the kernel sends on at once.
const FRAMES_AT_ONCE: u32 = 64;
/// Octets of each frame that are written anew at the most: Ethernet, IPv4, UDP, and of the payload what
/// a gateway reads.
const REWRITTEN: usize = 96;
/// Where the UDP source port is: Ethernet and an IPv4 header without options lie before.
const SOURCE_PORT_AT: i16 = 34;
/// Octets before the payload.
const PAYLOAD_AT: i32 = 42;
/// Octets of payload at the most.
const PAYLOAD_MAX: i32 = 1472;
/// Datagrams that are found in a merged one at the most.
const PARTS_MAX: usize = 32;

const RANDOM: i32 = 7;
const KTIME: i32 = 5;
const REDIRECT: i32 = 23;
const PROCESSOR: i32 = 8;
const ADJUST_META: i32 = 54;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

const EXIT_NOW: Instruction = Instruction(EXIT, 0, 0, 0);

/// Attaches a program that hands every frame to the kernel's stack.
///
/// It is what makes a virtual cable take frames from [`Generator`] at this end.
pub(super) fn pass(interface: u32) -> io::Result<AttachedProgram> {
    attach(interface, &[Instruction(MOVE_IMMEDIATE, 0, 0, XDP_PASS), EXIT_NOW])
}

/// Counts IPv4 frames that reach an interface, and drops them; the rest goes on to the kernel's
/// stack, which answers ARP.
#[derive(Debug)]
pub(crate) struct Sink {
    counts: BpfValues<SINK_COUNTS>,
    _attached: AttachedProgram,
}

/// What a sink does with a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Payload {
    /// It is one datagram.
    Whole,
    /// It is datagrams, each behind its length in two octets; they are taken apart.
    Prefixed,
}

/// Processors whose counts are apart, a power of two; the counts of each lie in a cache line of their own.
const SINK_PROCESSORS: i32 = 8;
/// Octets of a line, as the exponent of two, and the numbers in it.
const SINK_LINE: i32 = 6;
const LINE_NUMBERS: usize = (1 << SINK_LINE) / size_of::<u64>();
const SINK_COUNTS: usize = SINK_PROCESSORS as usize * LINE_NUMBERS;
/// Where the program keeps its processor's offset, on its stack.
const SINK_OFFSET: i16 = -8;

/// The EtherType as this machine reads it from the frame.
const ETHER_TYPE_IPV4: i32 = 0x0800_u16.to_be() as i32;

impl Sink {
    /// On the interface with this index, in its driver.
    pub(super) fn attach(interface: u32, payload: Payload) -> io::Result<Self> {
        let counts = BpfValues::new()?;
        let program = sink_program(&counts, payload)?;
        Ok(Self { _attached: attach(interface, &program)?, counts })
    }

    /// Frames, datagrams that were in them, and octets of payload.
    pub(super) fn counts(&self) -> [u64; 3] {
        let (lines, _) = self.counts.numbers().as_chunks::<LINE_NUMBERS>();
        let add = |mut sum: [u64; 3], line: &[AtomicU64; LINE_NUMBERS]| {
            let each = sum.iter_mut().zip(line);
            each.for_each(|(sum, number)| *sum += number.load(Ordering::Relaxed));
            sum
        };
        lines.iter().fold([0; 3], add)
    }
}

/// Registers: 2 and 3 the frame's ends, 5 the offset into the payload, 6 datagrams, 8 the counts.
fn sink_program(counts: &BpfValues<SINK_COUNTS>, payload: Payload) -> io::Result<Vec<Instruction>> {
    let mut code = vec![
        Instruction(MOVE, 6 | 1 << 4, 0, 0),
        Instruction(CALL, 0, 0, PROCESSOR),
        Instruction(AND_IMMEDIATE, 0, 0, SINK_PROCESSORS - 1),
        Instruction(SHIFT_LEFT_IMMEDIATE, 0, 0, SINK_LINE),
        Instruction(STORE_DOUBLE, 10, SINK_OFFSET, 0),
        Instruction(MOVE, 1 | 6 << 4, 0, 0),
        Instruction(LOAD_WORD, 2 | 1 << 4, 0, 0),
        Instruction(LOAD_WORD, 3 | 1 << 4, 4, 0),
        Instruction(MOVE, 4 | 2 << 4, 0, 0),
        Instruction(ADD_IMMEDIATE, 4, 0, PAYLOAD_AT),
        Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, 2, 0),
        Instruction(LOAD_HALF, 5 | 2 << 4, 12, 0),
        Instruction(JUMP_IF_EQUAL, 5, 2, ETHER_TYPE_IPV4),
        Instruction(MOVE_IMMEDIATE, 0, 0, XDP_PASS),
        EXIT_NOW,
        Instruction(MOVE_IMMEDIATE, 5, 0, 0),
        Instruction(MOVE_IMMEDIATE, 6, 0, 0),
    ];
    match payload {
        Payload::Whole => code.push(Instruction(MOVE_IMMEDIATE, 6, 0, 1)),
        Payload::Prefixed => {
            for left in (0..PARTS_MAX).rev() {
                // Each of the part's ways out leads behind the last part.
                let behind = i16::try_from(left * PART_LEN).map_err(io::Error::other)?;
                code.extend(part(behind));
            }
        }
    }
    code.extend(counts.address_into(8));
    code.extend([
        Instruction(LOAD_DOUBLE, 4 | 10 << 4, SINK_OFFSET, 0),
        Instruction(ADD, 8 | 4 << 4, 0, 0),
        Instruction(SUBTRACT, 3 | 2 << 4, 0, 0),
        Instruction(SUBTRACT_IMMEDIATE, 3, 0, PAYLOAD_AT),
        Instruction(MOVE_IMMEDIATE, 2, 0, 1),
    ]);
    for (offset, by) in [(0, 2), (8, 6), (16, 3)] {
        code.push(Instruction(LOAD_DOUBLE, 4 | 8 << 4, offset, 0));
        code.push(Instruction(ADD, 4 | by << 4, 0, 0));
        code.push(Instruction(STORE_DOUBLE, 8 | 4 << 4, offset, 0));
    }
    code.extend([Instruction(MOVE_IMMEDIATE, 0, 0, XDP_DROP), EXIT_NOW]);
    Ok(code)
}

/// Instructions of [`part`].
const PART_LEN: usize = 14;

/// Reads a length at the offset and counts the datagram behind it, if both are there; `behind` are
/// the instructions of the parts that follow.
fn part(behind: i16) -> [Instruction; PART_LEN] {
    [
        Instruction(MOVE, 7 | 2 << 4, 0, 0),
        Instruction(ADD, 7 | 5 << 4, 0, 0),
        Instruction(MOVE, 4 | 7 << 4, 0, 0),
        Instruction(ADD_IMMEDIATE, 4, 0, PAYLOAD_AT + 2),
        Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, 9 + behind, 0),
        Instruction(LOAD_HALF, 9 | 7 << 4, 42, 0),
        Instruction(TO_BIG_ENDIAN, 9, 0, 16),
        Instruction(JUMP_IF_ABOVE_IMMEDIATE, 9, 6 + behind, PAYLOAD_MAX),
        Instruction(ADD, 4 | 9 << 4, 0, 0),
        Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, 4 + behind, 0),
        Instruction(ADD_IMMEDIATE, 6, 0, 1),
        Instruction(ADD_IMMEDIATE, 5, 0, 2),
        Instruction(ADD, 5 | 9 << 4, 0, 0),
        Instruction(JUMP_IF_ABOVE_IMMEDIATE, 5, behind, PAYLOAD_MAX),
    ]
}

/// How fast a generator goes, and how many frames it has made.
#[derive(Debug)]
pub(crate) struct Pace(BpfValues<4>);

/// How late a paced frame may be and still be made up for: what the generator's processor does in
/// between for others.
const LATE_NS: i32 = 500_000;

impl Pace {
    pub(super) fn new() -> io::Result<Self> {
        BpfValues::new().map(Self)
    }

    /// Nanoseconds from frame to frame; none at all with zero.
    pub(super) fn set_gap(&self, nanoseconds: u64) {
        let [gap, ..] = self.0.numbers();
        gap.store(nanoseconds, Ordering::SeqCst);
    }

    /// Frames made since the beginning.
    pub(super) fn made(&self) -> u64 {
        let [_, _, made, _] = self.0.numbers();
        made.load(Ordering::SeqCst)
    }

    /// Registers: 1 the context, kept in 6; 8 the pace, 1 to 4 what is computed with. Lets the next
    /// frame through when its time has come.
    fn gate(&self) -> Vec<Instruction> {
        let mut code = vec![Instruction(MOVE, 6 | 1 << 4, 0, 0)];
        code.extend(self.0.address_into(8));
        code.extend([
            Instruction(CALL, 0, 0, KTIME),
            Instruction(LOAD_DOUBLE, 2 | 8 << 4, 0, 0),
            // No gap is no frame.
            Instruction(JUMP_IF_EQUAL, 2, 13, 0),
            Instruction(LOAD_DOUBLE, 1 | 8 << 4, 8, 0),
            // Too early.
            Instruction(JUMP_IF_ABOVE, 1, 11, 0),
            Instruction(ADD, 1 | 2 << 4, 0, 0),
            // Too late to be made up for: begun anew.
            Instruction(MOVE, 3, 0, 0),
            Instruction(SUBTRACT_IMMEDIATE, 3, 0, LATE_NS),
            Instruction(JUMP_IF_ABOVE, 1 | 3 << 4, 1, 0),
            Instruction(MOVE, 1 | 3 << 4, 0, 0),
            Instruction(STORE_DOUBLE, 8 | 1 << 4, 8, 0),
            Instruction(LOAD_DOUBLE, 2 | 8 << 4, 16, 0),
            Instruction(ADD_IMMEDIATE, 2, 0, 1),
            Instruction(STORE_DOUBLE, 8 | 2 << 4, 16, 0),
            Instruction(MOVE, 1 | 6 << 4, 0, 0),
            // Over what drops the frame.
            Instruction(JUMP_ALWAYS, 0, 2, 0),
            Instruction(MOVE_IMMEDIATE, 0, 0, XDP_DROP),
            EXIT_NOW,
        ]);
        code
    }
}

/// Sends copies of one frame out of an interface.
#[derive(Debug)]
pub(crate) struct Generator {
    program: BpfProgram,
    frame: Vec<u8>,
}

impl Generator {
    /// `frame` out of the interface with this index, its UDP source port one of `ports` by turns,
    /// a power of two; as fast as can be without a pace. Frames that come back with another length
    /// get their own again only if it `restores_length`.
    pub(crate) fn new(
        interface: u32,
        frame: &[u8],
        ports: u16,
        pace: Option<&Pace>,
        restores_length: bool,
    ) -> io::Result<Self> {
        let mut code = pace.map(Pace::gate).unwrap_or_default();
        if restores_length {
            code.extend(RESTORE_LENGTH);
        }
        code.extend(program(interface, frame, ports)?);
        Ok(Self { program: load(&code)?, frame: frame.to_vec() })
    }

    /// Sends a million frames, or as many as the pace lets through meanwhile. Called in the
    /// interface's namespace.
    pub(crate) fn run(&self) -> io::Result<()> {
        self.program.send(&self.frame, FRAMES_PER_RUN, FRAMES_AT_ONCE)
    }
}

/// Has the kernel write a frame's length anew, which it does for what a program has changed, by a little
/// metadata. It does not see that a gateway's program has cut or extended the frame of an earlier lap.
const RESTORE_LENGTH: [Instruction; 4] = [
    Instruction(MOVE, 6 | 1 << 4, 0, 0),
    Instruction(MOVE_IMMEDIATE, 2, 0, -4),
    Instruction(CALL, 0, 0, ADJUST_META),
    Instruction(MOVE, 1 | 6 << 4, 0, 0),
];

/// The source port of the generator's flow of this number, as the program below writes it.
pub(crate) const fn source_port(nth: u16) -> u16 {
    u16::from_be_bytes((FIRST_PORT + nth).to_ne_bytes())
}

/// What the number of a flow is added to.
const FIRST_PORT: u16 = 0x1000;

/// The program: checks the length, writes the first octets, draws a source port, redirects.
fn program(interface: u32, frame: &[u8], ports: u16) -> io::Result<Vec<Instruction>> {
    let head = frame.get(..REWRITTEN.min(frame.len()) & !7).unwrap_or_default();
    let interface = i32::try_from(interface).map_err(io::Error::other)?;
    let rewrite = i32::try_from(head.len()).map_err(io::Error::other)?;
    let mut code = vec![
        Instruction(LOAD_WORD, 7 | 1 << 4, 0, 0),
        Instruction(LOAD_WORD, 3 | 1 << 4, 4, 0),
        Instruction(MOVE, 4 | 7 << 4, 0, 0),
        Instruction(ADD_IMMEDIATE, 4, 0, rewrite),
    ];
    let mut body = Vec::new();
    let (halves, _) = head.as_chunks::<4>();
    for (pair, offset) in halves.chunks(2).zip((0_i16..).step_by(8)) {
        let &[low, high] = pair else { break };
        let (low, high) = (i32::from_ne_bytes(low), i32::from_ne_bytes(high));
        body.push(Instruction(LOAD_IMMEDIATE_64, 5, 0, low));
        body.push(Instruction(0, 0, 0, high));
        body.push(Instruction(STORE_DOUBLE, 7 | 5 << 4, offset, 0));
    }
    body.extend([
        Instruction(CALL, 0, 0, RANDOM),
        Instruction(AND_IMMEDIATE, 0, 0, i32::from(ports.saturating_sub(1))),
        Instruction(ADD_IMMEDIATE, 0, 0, i32::from(FIRST_PORT)),
        Instruction(STORE_HALF, 7, SOURCE_PORT_AT, 0),
        Instruction(MOVE_IMMEDIATE, 1, 0, interface),
        Instruction(MOVE_IMMEDIATE, 2, 0, 0),
        Instruction(CALL, 0, 0, REDIRECT),
        EXIT_NOW,
    ]);
    let past = i16::try_from(body.len()).map_err(io::Error::other)?;
    code.push(Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, past, 0));
    code.extend(body);
    code.extend([Instruction(MOVE_IMMEDIATE, 0, 0, XDP_DROP), EXIT_NOW]);
    Ok(code)
}

//! Frames out of an interface as fast as the kernel can make them: an XDP program that is run on
//! *live frames* (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`) and redirects each.
//!
//! Pages of earlier frames come back as the gateway left them, so the program writes the headers
//! anew every time. A run has a fixed cost of about 20 ms, so it makes a million frames.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper; the product itself never comes here")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const LIVE_FRAMES: u32 = 1 << 1;

/// Frames that one run makes.
const FRAMES_PER_RUN: u32 = 1_000_000;
/// Frames that the kernel sends on at once.
const FRAMES_AT_ONCE: u32 = 64;
/// Octets of each frame that are written anew: Ethernet, IPv4, UDP and a little payload.
const REWRITTEN: usize = 64;
/// Where the UDP source port is: Ethernet and an IPv4 header without options lie before.
const SOURCE_PORT_AT: i16 = 34;

/// One instruction: code, registers (destination in the low half), offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction(u8, u8, i16, i32);

const LOAD_WORD: u8 = 0x61;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const STORE_DOUBLE: u8 = 0x7b;
const STORE_HALF: u8 = 0x6b;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const LOAD_HALF: u8 = 0x69;
const JUMP_IF_ABOVE: u8 = 0x2d;
const JUMP_IF_NOT: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const RANDOM: i32 = 7;
const REDIRECT: i32 = 23;

/// What an XDP program does with every frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// IPv4 is counted by the interface, and gone; the rest goes on to the kernel's stack, which
    /// answers ARP.
    Sink,
    /// On to the kernel's stack.
    Pass,
}

/// An XDP program that is detached when this is dropped, or when this process dies.
#[derive(Debug)]
pub(crate) struct Attached(#[expect(dead_code, reason = "kept for its drop")] OwnedFd);

/// Attaches a program to the interface with this index, in its driver.
///
/// It is what makes a virtual cable take frames from [`Generator`] at this end.
pub(crate) fn attach(interface: u32, verdict: Verdict) -> io::Result<Attached> {
    let program = match verdict {
        Verdict::Sink => load(&SINK)?,
        Verdict::Pass => load(&PASS)?,
    };
    let mut attributes = LinkCreate {
        program: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        interface,
        attach_type: BPF_XDP,
        flags: XDP_FLAGS_DRV_MODE,
    };
    descriptor(call(BPF_LINK_CREATE, &mut attributes)?).map(Attached)
}

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

const PASS: [Instruction; 2] =
    [Instruction(MOVE_IMMEDIATE, 0, 0, XDP_PASS), Instruction(EXIT, 0, 0, 0)];

/// The EtherType as this machine reads it from the frame.
const ETHER_TYPE_IPV4: i32 = 0x0800_u16.to_be() as i32;

const SINK: [Instruction; 11] = [
    Instruction(MOVE_IMMEDIATE, 0, 0, XDP_DROP),
    Instruction(LOAD_WORD, 2 | 1 << 4, 0, 0),
    Instruction(LOAD_WORD, 3 | 1 << 4, 4, 0),
    Instruction(MOVE, 4 | 2 << 4, 0, 0),
    Instruction(ADD_IMMEDIATE, 4, 0, 14),
    Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, 2, 0),
    Instruction(LOAD_HALF, 5 | 2 << 4, 12, 0),
    Instruction(JUMP_IF_NOT, 5, 1, ETHER_TYPE_IPV4),
    Instruction(EXIT, 0, 0, 0),
    Instruction(MOVE_IMMEDIATE, 0, 0, XDP_PASS),
    Instruction(EXIT, 0, 0, 0),
];

/// Sends copies of one frame out of an interface.
#[derive(Debug)]
pub(crate) struct Generator {
    program: OwnedFd,
    frame: Vec<u8>,
}

impl Generator {
    /// `frame` out of the interface with this index, its UDP source port one of `ports` by turns,
    /// a power of two.
    pub(crate) fn new(interface: u32, frame: &[u8], ports: u16) -> io::Result<Self> {
        let program = load(&program(interface, frame, ports)?)?;
        Ok(Self { program, frame: frame.to_vec() })
    }

    /// Sends a million frames; how many were made. Called in the interface's namespace.
    pub(crate) fn run(&self) -> io::Result<u32> {
        let frame = u64::try_from(self.frame.as_ptr().addr()).unwrap_or(0);
        let mut attributes = TestRun {
            program: u32::try_from(self.program.as_raw_fd()).unwrap_or(u32::MAX),
            data_size_in: u32::try_from(self.frame.len()).unwrap_or(0),
            data_in: frame,
            repeat: FRAMES_PER_RUN,
            flags: LIVE_FRAMES,
            batch_size: FRAMES_AT_ONCE,
            ..TestRun::default()
        };
        call(BPF_PROG_TEST_RUN, &mut attributes)?;
        Ok(FRAMES_PER_RUN)
    }
}

/// The program: checks the length, writes the first octets, draws a source port, redirects.
fn program(interface: u32, frame: &[u8], ports: u16) -> io::Result<Vec<Instruction>> {
    let short = || io::Error::other("a frame of fewer octets than are written anew");
    let head = frame.get(..REWRITTEN).ok_or_else(short)?;
    let interface = i32::try_from(interface).map_err(io::Error::other)?;
    let rewrite = i32::try_from(REWRITTEN).map_err(io::Error::other)?;
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
        Instruction(ADD_IMMEDIATE, 0, 0, 0x1000),
        Instruction(STORE_HALF, 7, SOURCE_PORT_AT, 0),
        Instruction(MOVE_IMMEDIATE, 1, 0, interface),
        Instruction(MOVE_IMMEDIATE, 2, 0, 0),
        Instruction(CALL, 0, 0, REDIRECT),
        Instruction(EXIT, 0, 0, 0),
    ]);
    let past = i16::try_from(body.len()).map_err(io::Error::other)?;
    code.push(Instruction(JUMP_IF_ABOVE, 4 | 3 << 4, past, 0));
    code.extend(body);
    code.extend([Instruction(MOVE_IMMEDIATE, 0, 0, 1), Instruction(EXIT, 0, 0, 0)]);
    Ok(code)
}

/// The front of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions_len: u32,
    instructions: u64,
    license: u64,
}

/// The front of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// The front of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    returned: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _end: u32,
}

fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let mut attributes = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        instructions_len: u32::try_from(code.len()).unwrap_or(0),
        instructions: u64::try_from(code.as_ptr().addr()).unwrap_or(0),
        license: u64::try_from(license.as_ptr().addr()).unwrap_or(0),
    };
    descriptor(call(BPF_PROG_LOAD, &mut attributes)?)
}

fn descriptor(number: libc::c_long) -> io::Result<OwnedFd> {
    let number = libc::c_int::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// `bpf(2)`; every pointer in `attributes` is to memory that outlasts the call.
fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let pointer: *mut T = attributes;
    // SAFETY: the attributes are the front of `union bpf_attr` for this command, as long as said,
    // and what they point to is borrowed by the callers for the time of the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

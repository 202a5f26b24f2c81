//! Programs: instructions that the kernel has checked and compiled.

use crate::calls::{self, LinkCreate, ProgLoad};
use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets for what the kernel says of a program that it refuses.
const LOG_OCTETS: u32 = 1 << 18;
/// Characters of it that an error repeats: the last ones, which say why.
const LOG_SHOWN: usize = 600;

/// Instructions that the kernel's checker may add to a program bound to an interface. It puts the
/// code of functions on maps in the place of calls, up to some ten instructions each.
const ROOM: i16 = 512;

/// One instruction: code, registers (destination in the low half), offset, immediate value
/// (RFC 9669 §3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instruction(
    /// The operation.
    pub u8,
    /// The registers: destination in the low four bits, source in the high four.
    pub u8,
    /// The offset.
    pub i16,
    /// The immediate value.
    pub i32,
);

/// The type of a program (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProgramType {
    /// `BPF_PROG_TYPE_SCHED_CLS`, at an interface's ingress.
    Ingress,
    /// `BPF_PROG_TYPE_SCHED_CLS`, at an interface's egress.
    Egress,
    /// `BPF_PROG_TYPE_XDP`, in an interface's driver.
    Xdp,
    /// The same, for frames that may be in several buffers (`BPF_F_XDP_HAS_FRAGS`).
    XdpInPieces,
    /// `BPF_PROG_TYPE_SOCKET_FILTER`, on a packet socket.
    Filter,
}

impl ProgramType {
    /// `BPF_PROG_TYPE_…`, the expected hook, and `BPF_F_…`.
    const fn codes(self) -> (u32, u32, u32) {
        const HAS_FRAGS: u32 = 1 << 5;
        match self {
            Self::Ingress => (3, Hook::Ingress.attach_type(), 0),
            Self::Egress => (3, Hook::Egress.attach_type(), 0),
            Self::Xdp => (6, Hook::XdpNative.attach_type(), 0),
            Self::XdpInPieces => (6, Hook::XdpNative.attach_type(), HAS_FRAGS),
            Self::Filter => (1, 0, 0),
        }
    }
}

/// The hook of an interface to which a program is attached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hook {
    /// `BPF_TCX_INGRESS`: after packet sockets, before the kernel's stack.
    Ingress,
    /// `BPF_TCX_EGRESS`.
    Egress,
    /// `BPF_XDP` in the driver's own receive function (`XDP_FLAGS_DRV_MODE`).
    XdpNative,
    /// `BPF_XDP` after the driver, for any driver (`XDP_FLAGS_SKB_MODE`).
    XdpGeneric,
}

impl Hook {
    /// `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`, `BPF_XDP`.
    const fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => 46,
            Self::Egress => 47,
            Self::XdpNative | Self::XdpGeneric => 37,
        }
    }

    const fn flags(self) -> u32 {
        match self {
            Self::Ingress | Self::Egress => 0,
            Self::XdpGeneric => 1 << 1,
            Self::XdpNative => 1 << 2,
        }
    }
}

/// Why a program cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses the program {name}: {source}{log}")]
pub struct LoadError {
    /// The program's name.
    pub name: String,
    /// The system's error.
    #[source]
    pub source: io::Error,
    /// The end of what the kernel's checker says, after a colon; empty if it says nothing.
    pub log: String,
}

impl LoadError {
    fn new(name: &str, source: io::Error) -> Self {
        Self { name: name.to_owned(), source, log: String::new() }
    }
}

impl From<LoadError> for io::Error {
    fn from(error: LoadError) -> Self {
        Self::new(error.source.kind(), error.to_string())
    }
}

/// A loaded program. The kernel keeps it as long as a descriptor, a link or a map refers to it.
#[derive(Debug)]
pub struct BpfProgram(OwnedFd);

/// A program at a hook. When all descriptors of it are closed, the kernel takes the program away.
#[derive(Debug)]
pub struct AttachedProgram(OwnedFd);

/// The result of a program that ran on octets instead of a received frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestRun {
    /// What the program returned: `XDP_DROP` is 1, `XDP_PASS` 2, `XDP_TX` 3, `XDP_REDIRECT` 4.
    pub verdict: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Mean time of a run, in nanoseconds.
    pub nanoseconds: u32,
}

impl BpfProgram {
    /// Loads a program. One that calls kernel functions is bound to the interface with index
    /// `bound_to`, 0 for none. A bound program is loaded [with room](with_room).
    ///
    /// # Errors
    ///
    /// [`LoadError`] with the end of the kernel's reasons, or if a bound program has outgrown its
    /// memory.
    pub fn load(
        kind: ProgramType,
        name: &str,
        instructions: &[Instruction],
        bound_to: u32,
    ) -> Result<Self, LoadError> {
        let instructions = if bound_to == 0 {
            Cow::Borrowed(instructions)
        } else {
            with_room(instructions).into()
        };
        let load = |log: &mut [u8]| {
            calls::load(attributes(kind, name, &instructions, bound_to, log)).map(Self)
        };
        let has_moved = |program: &Self| Ok(program.instructions()? > instructions.len());
        let loaded = load(&mut []);
        if let Ok(program) = &loaded
            && bound_to != 0
            && has_moved(program).map_err(|source| LoadError::new(name, source))?
        {
            let source = io::Error::other("its room is too small");
            return Err(LoadError::new(name, source));
        }
        loaded.map_err(|source| {
            let mut log = vec![0; usize::try_from(LOG_OCTETS).unwrap_or(0)];
            // Asked a second time, so that a program that is taken pays for no text.
            drop(load(&mut log));
            LoadError { log: shown(&log), ..LoadError::new(name, source) }
        })
    }

    /// Attaches the program to the interface with `index`.
    ///
    /// # Errors
    ///
    /// The system's error: `EBUSY` if another program is there, `EOPNOTSUPP` if the driver has no
    /// such hook.
    pub fn attach(&self, index: u32, hook: Hook) -> io::Result<AttachedProgram> {
        self.attach_with(index, hook, hook.flags())
    }

    /// The same in front of the programs that are there, at a hook that has several (tcx).
    ///
    /// # Errors
    ///
    /// As [`Self::attach`].
    pub fn attach_first(&self, index: u32, hook: Hook) -> io::Result<AttachedProgram> {
        /// `BPF_F_BEFORE`.
        const BEFORE: u32 = 1 << 3;
        self.attach_with(index, hook, hook.flags() | BEFORE)
    }

    fn attach_with(&self, index: u32, hook: Hook, flags: u32) -> io::Result<AttachedProgram> {
        calls::attach(LinkCreate {
            prog_fd: std::os::fd::AsRawFd::as_raw_fd(&self.0).cast_unsigned(),
            target_ifindex: index,
            attach_type: hook.attach_type(),
            flags,
            ..LinkCreate::default()
        })
        .map(AttachedProgram)
    }

    /// The number of its instructions as the kernel's checker has left them.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn instructions(&self) -> io::Result<usize> {
        let octets = calls::checked_octets(self.as_fd())?;
        Ok(usize::try_from(octets).unwrap_or(usize::MAX) / size_of::<Instruction>())
    }

    /// Runs the program `repeat` times on `frame` without an interface (`BPF_PROG_TEST_RUN`);
    /// a frame to be redirected stays here.
    ///
    /// # Errors
    ///
    /// The system's error: `EINVAL` for a frame of less than 14 octets.
    pub fn run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        // A program may make a frame longer by less than this.
        let mut out = vec![0; frame.len() + 1500];
        let ran = calls::run(self.as_fd(), frame, &mut out, repeat)?;
        out.truncate(ran.len);
        Ok(TestRun { verdict: ran.verdict, frame: out, nanoseconds: ran.nanoseconds })
    }

    /// Runs the program on `frames` copies of `frame`, which leave as it says (`XDP_TX`, a
    /// redirection), `at_once` together; needs Linux 5.18.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn send(&self, frame: &[u8], frames: u32, at_once: u32) -> io::Result<()> {
        calls::send(self.as_fd(), frame, frames, at_once)
    }
}

impl AttachedProgram {
    /// A program that another process has attached, by a descriptor of it.
    pub const fn received(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Replaces the program; each frame meets the old one or the new one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn exchange(&self, program: &BpfProgram) -> io::Result<()> {
        calls::exchange(self.0.as_fd(), program.as_fd())
    }
}

impl AsFd for BpfProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for AttachedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<AttachedProgram> for OwnedFd {
    fn from(attached: AttachedProgram) -> Self {
        attached.0
    }
}

/// The program of `instructions`, with unused instructions in front that enlarge its memory in the
/// kernel.
///
/// Linux up to 6.18 at least keeps two references to a program that is bound to an interface, and
/// follows with one of them only when the program moves to larger memory. The other one is used
/// when the interface goes before the program, and the kernel crashes. A program moves when its
/// checker makes it longer than its memory, which is as large as the program was when it was loaded
/// (`bpf_prog_realloc`). The checker removes what no path reaches before it adds anything. So a
/// program that is no longer than it was when loaded has never moved.
pub fn with_room(instructions: &[Instruction]) -> Vec<Instruction> {
    const SET_ZERO: Instruction = Instruction(0xb7, 0, 0, 0);
    const JUMP_IF_ZERO: u8 = 0x15;
    // The checker knows that the jump is always taken, but not from the graph of jumps alone, in
    // which it allows no instruction without a path to it.
    let mut all = vec![SET_ZERO, Instruction(JUMP_IF_ZERO, 0, ROOM, 0)];
    all.extend((0..ROOM).map(|_| SET_ZERO));
    all.extend(instructions);
    all
}

fn attributes(
    kind: ProgramType,
    name: &str,
    instructions: &[Instruction],
    bound_to: u32,
    log: &mut [u8],
) -> ProgLoad {
    const DEVICE_BOUND_ONLY: u32 = 1 << 6;
    let (prog_type, expected_attach_type, flags) = kind.codes();
    let log_size = u32::try_from(log.len()).unwrap_or(0);
    ProgLoad {
        prog_type,
        expected_attach_type,
        insn_cnt: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        insns: instructions.as_ptr() as u64,
        // Functions of the kernel are for programs under its licence only; ours are under either.
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(log_size > 0),
        log_size,
        log_buf: if log_size > 0 { log.as_mut_ptr() as u64 } else { 0 },
        prog_flags: flags | if bound_to == 0 { 0 } else { DEVICE_BOUND_ONLY },
        prog_ifindex: bound_to,
        prog_name: crate::kernel_name(name),
        ..ProgLoad::default()
    }
}

/// The end of the checker's text, behind a colon.
fn shown(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|&octet| octet == 0).next().unwrap_or(&[]));
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(LOG_SHOWN);
    let end: String = text.chars().skip(skipped).collect();
    if end.is_empty() { end } else { format!(": {end}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_room_begins_behind_it() {
        let program = [Instruction(0xb7, 0, 0, 2), Instruction(0x95, 0, 0, 0)];
        let all = with_room(&program);
        let Instruction(code, registers, offset, value) = all[1];
        assert_eq!((code, registers, value), (0x15, 0, 0), "jump if register 0 is 0");
        assert_eq!(all[0], Instruction(0xb7, 0, 0, 0));
        // Offsets are from the instruction behind the jump (RFC 9669 §4.3).
        assert_eq!(all[2 + usize::try_from(offset).unwrap()..], program);
        assert_eq!(offset, ROOM);
    }
}

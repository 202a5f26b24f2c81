//! Programs: instructions that the kernel has checked and compiled.

use crate::calls::{self, LinkCreate, ProgLoad};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets for what the kernel says of a program that it refuses.
const LOG_OCTETS: u32 = 1 << 18;
/// Characters of it that an error repeats: the last ones, which say why.
const LOG_SHOWN: usize = 600;

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
    /// `bound_to`, 0 for none.
    ///
    /// # Errors
    ///
    /// [`LoadError`] with the end of the kernel's reasons.
    pub fn load(
        kind: ProgramType,
        name: &str,
        instructions: &[Instruction],
        bound_to: u32,
    ) -> Result<Self, LoadError> {
        let load = |log: &mut [u8]| {
            calls::load(attributes(kind, name, instructions, bound_to, log)).map(Self)
        };
        load(&mut []).map_err(|source| {
            let mut log = vec![0; usize::try_from(LOG_OCTETS).unwrap_or(0)];
            // Asked a second time, so that a program that is taken pays for no text.
            drop(load(&mut log));
            LoadError { name: name.to_owned(), source, log: shown(&log) }
        })
    }

    /// Attaches the program to the interface with `index`.
    ///
    /// # Errors
    ///
    /// The system's error: `EBUSY` if another program is there, `EOPNOTSUPP` if the driver has no
    /// such hook.
    pub fn attach(&self, index: u32, hook: Hook) -> io::Result<AttachedProgram> {
        calls::attach(LinkCreate {
            prog_fd: std::os::fd::AsRawFd::as_raw_fd(&self.0).cast_unsigned(),
            target_ifindex: index,
            attach_type: hook.attach_type(),
            flags: hook.flags(),
            ..LinkCreate::default()
        })
        .map(AttachedProgram)
    }

    /// Runs the program `repeat` times on `frame` without an interface (`BPF_PROG_TEST_RUN`);
    /// a frame to be redirected stays here.
    ///
    /// # Errors
    ///
    /// The system's error: `EINVAL` for a frame of less than 14 octets.
    pub fn run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        // A program may make a frame longer by less than this.
        let mut out = vec![0; frame.len() + 512];
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

//! The few programs that a link needs in the kernel, assembled here and loaded by `bpf(2)`.
//!
//! A program is attached by a *link*: a descriptor. When it is closed, by us or by our death, the
//! kernel detaches the program.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;

/// One instruction: code, registers (destination in the low half), offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction(pub(crate) u8, pub(crate) u8, pub(crate) i16, pub(crate) i32);

const MOVE_IMMEDIATE: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// What a program is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `BPF_PROG_TYPE_SCHED_CLS`, at an interface's ingress.
    Ingress,
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// `BPF_TCX_INGRESS`: behind packet sockets, in front of the kernel's stack.
    Ingress,
}

/// A program that drops everything (`TCX_DROP`, 2).
pub(crate) const DROP_ALL: [Instruction; 2] =
    [Instruction(MOVE_IMMEDIATE, 0, 0, 2), Instruction(EXIT, 0, 0, 0)];

/// The front of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The front of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    /// The place among other programs, for tcx: none is asked for.
    relative: [u64; 2],
}

/// Loads a program.
pub(crate) fn load(kind: Kind, name: &str, program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut prog_name = [0; 16];
    // The last octet stays zero.
    for (to, from) in prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let mut attributes = ProgLoad {
        prog_type: match kind {
            Kind::Ingress => 3,
        },
        insn_cnt: u32::try_from(program.len()).unwrap_or(u32::MAX),
        insns: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        prog_name,
        ..ProgLoad::default()
    };
    call(BPF_PROG_LOAD, &mut attributes)
}

/// Attaches a program to the interface with `index` for as long as the descriptor is open.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    index: u32,
    hook: Hook,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: index,
        attach_type: match hook {
            Hook::Ingress => 46,
        },
        flags,
        ..LinkCreate::default()
    };
    call(BPF_LINK_CREATE, &mut attributes)
}

/// Calls `bpf(2)` with a command that makes a descriptor.
fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: `T` is one of the structs above: plain, as large as said, and what its fields point
    // to is borrowed by the caller during the call; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, command, (&raw mut *attributes).cast::<u8>(), size_of::<T>())
    };
    match libc::c_int::try_from(fd) {
        // SAFETY: the descriptor is new and nobody else's.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

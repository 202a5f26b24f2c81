//! XDP programs as instructions, and what the kernel does with them: load, attach, run, share
//! memory with.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper; the product itself never comes here")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

// linux/bpf.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAPPABLE: u32 = 1 << 10;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const LIVE_FRAMES: u32 = 1 << 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// One instruction: code, registers (destination in the low half), offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Instruction(pub(super) u8, pub(super) u8, pub(super) i16, pub(super) i32);

/// Instruction codes (RFC 9669).
pub(super) mod code {
    pub(crate) const LOAD_WORD: u8 = 0x61;
    pub(crate) const LOAD_HALF: u8 = 0x69;
    pub(crate) const LOAD_DOUBLE: u8 = 0x79;
    pub(crate) const LOAD_IMMEDIATE_64: u8 = 0x18;
    pub(crate) const STORE_DOUBLE: u8 = 0x7b;
    pub(crate) const STORE_HALF: u8 = 0x6b;
    pub(crate) const MOVE: u8 = 0xbf;
    pub(crate) const MOVE_IMMEDIATE: u8 = 0xb7;
    pub(crate) const ADD: u8 = 0x0f;
    pub(crate) const ADD_IMMEDIATE: u8 = 0x07;
    pub(crate) const SUBTRACT: u8 = 0x1f;
    pub(crate) const SUBTRACT_IMMEDIATE: u8 = 0x17;
    pub(crate) const AND_IMMEDIATE: u8 = 0x57;
    pub(crate) const TO_BIG_ENDIAN: u8 = 0xdc;
    pub(crate) const JUMP_IF_ABOVE: u8 = 0x2d;
    pub(crate) const JUMP_IF_ABOVE_IMMEDIATE: u8 = 0x25;
    pub(crate) const JUMP_IF_EQUAL: u8 = 0x15;
    pub(crate) const JUMP_ALWAYS: u8 = 0x05;
    pub(crate) const CALL: u8 = 0x85;
    pub(crate) const EXIT: u8 = 0x95;
}

/// Numbers that a program and this process both read and write.
#[derive(Debug)]
pub(super) struct BpfValues<const N: usize> {
    map: OwnedFd,
    numbers: NonNull<[AtomicU64; N]>,
}

// SAFETY: the mapping is this value's alone and belongs to no thread; what is in it is atomic.
unsafe impl<const N: usize> Send for BpfValues<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for BpfValues<N> {}

impl<const N: usize> BpfValues<N> {
    pub(super) fn new() -> io::Result<Self> {
        let mut attributes = MapCreate {
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: u32::try_from(size_of::<[AtomicU64; N]>()).map_err(io::Error::other)?,
            entries_max: 1,
            flags: BPF_MAPPABLE,
        };
        let map = descriptor(call(BPF_MAP_CREATE, &mut attributes)?)?;
        // SAFETY: a new mapping of the map touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<[AtomicU64; N]>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let numbers = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { map, numbers })
    }

    pub(super) fn numbers(&self) -> &[AtomicU64; N] {
        // SAFETY: the mapping is as long as this, aligned to a page, and lives as long as `self`.
        unsafe { self.numbers.as_ref() }
    }

    /// Instructions that put the address of the numbers into a register.
    pub(super) fn address_into(&self, register: u8) -> [Instruction; 2] {
        let registers = register | PSEUDO_MAP_VALUE << 4;
        [
            Instruction(code::LOAD_IMMEDIATE_64, registers, 0, self.map.as_raw_fd()),
            Instruction(0, 0, 0, 0),
        ]
    }
}

impl<const N: usize> Drop for BpfValues<N> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped only here.
        unsafe { libc::munmap(self.numbers.as_ptr().cast(), size_of::<[AtomicU64; N]>()) };
    }
}

/// An XDP program that is detached when this is dropped, or when this process dies.
#[derive(Debug)]
pub(crate) struct Attached(#[expect(dead_code, reason = "kept for its drop")] OwnedFd);

/// Attaches a program to the interface with this index, in its driver.
pub(super) fn attach(interface: u32, program: &[Instruction]) -> io::Result<Attached> {
    let program = load(program)?;
    let mut attributes = LinkCreate {
        program: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        interface,
        attach_type: BPF_XDP,
        flags: XDP_FLAGS_DRV_MODE,
    };
    descriptor(call(BPF_LINK_CREATE, &mut attributes)?).map(Attached)
}

/// Runs a program on `frames` copies of a frame, which leave as it says; `at_once` go together.
pub(super) fn run_live(
    program: &OwnedFd,
    frame: &[u8],
    frames: u32,
    at_once: u32,
) -> io::Result<()> {
    let mut attributes = TestRun {
        program: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        data_size_in: u32::try_from(frame.len()).unwrap_or(0),
        data_in: u64::try_from(frame.as_ptr().addr()).unwrap_or(0),
        repeat: frames,
        flags: LIVE_FRAMES,
        batch_size: at_once,
        ..TestRun::default()
    };
    call(BPF_PROG_TEST_RUN, &mut attributes).map(drop)
}

/// The front of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
    flags: u32,
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

pub(super) fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
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

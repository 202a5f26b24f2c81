//! XDP programs as instructions, and numbers that they share with this process.
#![expect(unsafe_code, reason = "mmap has no wrapper; the product itself never comes here")]

use gatewright_xdp::map::{BpfMap, MapType};
pub(super) use gatewright_xdp::program::Instruction;
pub(crate) use gatewright_xdp::program::{AttachedProgram, BpfProgram};
use gatewright_xdp::program::{Hook, ProgramType};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const PSEUDO_MAP_VALUE: u8 = 2;

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
    pub(crate) const SHIFT_LEFT_IMMEDIATE: u8 = 0x67;
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
    map: BpfMap,
    numbers: NonNull<[AtomicU64; N]>,
}

// SAFETY: the mapping is this value's alone and belongs to no thread; what is in it is atomic.
unsafe impl<const N: usize> Send for BpfValues<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for BpfValues<N> {}

impl<const N: usize> BpfValues<N> {
    pub(super) fn new() -> io::Result<Self> {
        let octets = u32::try_from(size_of::<[AtomicU64; N]>()).map_err(io::Error::other)?;
        let map = BpfMap::new(MapType::SharedArray, "values", 4, octets, 1)?;
        // SAFETY: a new mapping of the map touches no memory that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<[AtomicU64; N]>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
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
            Instruction(code::LOAD_IMMEDIATE_64, registers, 0, self.map.as_fd().as_raw_fd()),
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

/// Attaches a program to the interface with this index, in its driver.
pub(super) fn attach(interface: u32, program: &[Instruction]) -> io::Result<AttachedProgram> {
    load(program)?.attach(interface, Hook::XdpNative)
}

pub(super) fn load(code: &[Instruction]) -> io::Result<BpfProgram> {
    BpfProgram::load(ProgramType::Xdp, "bench", code, 0).map_err(io::Error::from)
}

//! The few kernel programs that a link needs, assembled here and loaded by `bpf(2)`.
//!
//! A program is attached by a *link*, which is a descriptor. When we close it or die, the kernel
//! detaches the program.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// linux/bpf.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;

/// One instruction: code, registers (destination in the low half), offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction(pub(crate) u8, pub(crate) u8, pub(crate) i16, pub(crate) i32);

const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const STORE_WORD: u8 = 0x63;
const STORE_HALF: u8 = 0x6b;
const STORE_IMMEDIATE_64: u8 = 0x7a;
const MOVE: u8 = 0xbf;
const ADD_IMMEDIATE: u8 = 0x07;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_NOT_IMMEDIATE: u8 = 0x55;
const JUMP_IF_GREATER: u8 = 0x2d;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE_IMMEDIATE: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

const XDP_DROP: i32 = 1;

/// The type of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramType {
    /// `BPF_PROG_TYPE_SCHED_CLS`, at an interface's ingress.
    Ingress,
    /// `BPF_PROG_TYPE_SCHED_CLS`, at an interface's egress; tests only.
    #[allow(dead_code, reason = "a test makes a driver carry tags with it")]
    Egress,
    /// `BPF_PROG_TYPE_XDP`, in an interface's driver.
    Xdp,
    /// The same, for frames that may be in several buffers (`BPF_F_XDP_HAS_FRAGS`).
    XdpInPieces,
    /// `BPF_PROG_TYPE_SOCKET_FILTER`, on a packet socket.
    Filter,
}

/// The hook to which a program is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// `BPF_TCX_INGRESS`: after packet sockets, before the kernel's stack.
    Ingress,
    /// `BPF_TCX_EGRESS`; tests only.
    #[allow(dead_code, reason = "a test makes a driver carry tags with it")]
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

/// A program that drops everything (`TCX_DROP`, 2).
pub(crate) const DROP_ALL: [Instruction; 2] =
    [Instruction(MOVE_IMMEDIATE, 0, 0, 2), Instruction(EXIT, 0, 0, 0)];

/// Changes that a driver may make to a frame before a program sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tags {
    /// None that we could undo.
    InFrame,
    /// It may remove the VLAN tag, and reports it by the kernel's function with this number
    /// (`bpf_xdp_metadata_rx_vlan_tag`).
    TakenOut(u32),
}

/// The name of the function that reports a tag.
pub(crate) const TAG_FUNCTION: &str = "bpf_xdp_metadata_rx_vlan_tag";

/// A program that hands every frame to the AF_XDP socket of its receive queue in `sockets`, and
/// drops it if there is none. The kernel's stack never gets frames of an exclusive link.
///
/// A tag that the driver has removed is put back first.
pub(crate) fn redirect_all(sockets: BorrowedFd<'_>, tags: Tags) -> Vec<Instruction> {
    // struct xdp_md: data, its end, metadata, interface, receive queue.
    const RECEIVE_QUEUE: i16 = 16;
    const MAP_BY_DESCRIPTOR: u8 = 1;
    const REDIRECT_MAP: i32 = 51;
    let mut program = vec![Instruction(MOVE, registers(6, 1), 0, 0)];
    if let Tags::TakenOut(function) = tags {
        program.extend(put_tag_back(function));
    }
    program.extend([
        Instruction(LOAD_WORD, registers(2, 6), RECEIVE_QUEUE, 0),
        Instruction(LOAD_IMMEDIATE_64, registers(1, MAP_BY_DESCRIPTOR), 0, sockets.as_raw_fd()),
        Instruction(0, 0, 0, 0),
        Instruction(MOVE_IMMEDIATE, 3, 0, XDP_DROP),
        Instruction(CALL, 0, 0, REDIRECT_MAP),
        Instruction(EXIT, 0, 0, 0),
    ]);
    program
}

/// Puts a tag removed by the driver back into the frame whose context is in register 6. A frame
/// without room for it is dropped.
fn put_tag_back(function: u32) -> [Instruction; 31] {
    const KERNEL_FUNCTION: u8 = 2;
    const ADJUST_HEAD: i32 = 44;
    const DATA: i16 = 0;
    const DATA_END: i16 = 4;
    // Where the kernel's function writes to: on the stack, below register 10.
    const PROTOCOL: i16 = -8;
    const TAG: i16 = -6;
    const TAG_LEN: i16 = 4;
    const KIND_AT: i16 = 12;
    let offset = i32::from;
    [
        Instruction(STORE_IMMEDIATE_64, 10, PROTOCOL, 0),
        Instruction(MOVE, registers(1, 6), 0, 0),
        Instruction(MOVE, registers(2, 10), 0, 0),
        Instruction(ADD_IMMEDIATE, 2, 0, offset(PROTOCOL)),
        Instruction(MOVE, registers(3, 10), 0, 0),
        Instruction(ADD_IMMEDIATE, 3, 0, offset(TAG)),
        Instruction(CALL, registers(0, KERNEL_FUNCTION), 0, function.cast_signed()),
        // No tag: on to the redirection, past everything below.
        Instruction(JUMP_IF_NOT_IMMEDIATE, 0, 23, 0),
        Instruction(MOVE, registers(1, 6), 0, 0),
        Instruction(MOVE_IMMEDIATE, 2, 0, -offset(TAG_LEN)),
        Instruction(CALL, 0, 0, ADJUST_HEAD),
        Instruction(JUMP_IF_NOT_IMMEDIATE, 0, 17, 0),
        Instruction(LOAD_WORD, registers(2, 6), DATA, 0),
        Instruction(LOAD_WORD, registers(3, 6), DATA_END, 0),
        Instruction(MOVE, registers(4, 2), 0, 0),
        Instruction(ADD_IMMEDIATE, 4, 0, offset(KIND_AT + TAG_LEN)),
        Instruction(JUMP_IF_GREATER, registers(4, 3), 12, 0),
        // Both addresses move to the front, and the tag comes behind them.
        Instruction(LOAD_WORD, registers(5, 2), 4, 0),
        Instruction(STORE_WORD, registers(2, 5), 0, 0),
        Instruction(LOAD_WORD, registers(5, 2), 8, 0),
        Instruction(STORE_WORD, registers(2, 5), 4, 0),
        Instruction(LOAD_WORD, registers(5, 2), 12, 0),
        Instruction(STORE_WORD, registers(2, 5), 8, 0),
        Instruction(LOAD_HALF, registers(5, 10), PROTOCOL, 0),
        Instruction(STORE_HALF, registers(2, 5), KIND_AT, 0),
        Instruction(LOAD_HALF, registers(5, 10), TAG, 0),
        Instruction(TO_BIG_ENDIAN, 5, 0, 16),
        Instruction(STORE_HALF, registers(2, 5), KIND_AT + 2, 0),
        Instruction(JUMP, 0, 2, 0),
        Instruction(MOVE_IMMEDIATE, 0, 0, XDP_DROP),
        Instruction(EXIT, 0, 0, 0),
    ]
}

/// The registers byte: the written register and the read one.
const fn registers(destination: u8, source: u8) -> u8 {
    destination | (source << 4)
}

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The beginning of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map_fd: u32,
    _alignment: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Creates a map from receive queues to AF_XDP sockets (`BPF_MAP_TYPE_XSKMAP`).
pub(crate) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_XSKMAP: u32 = 17;
    let mut attributes = MapCreate {
        map_type: BPF_MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queues,
        map_flags: 0,
    };
    call(BPF_MAP_CREATE, &mut attributes)
}

/// Creates a map from prefixes to a word each (`BPF_MAP_TYPE_LPM_TRIE`); keys begin with the length
/// of their prefix in bits.
pub(crate) fn prefix_map(key_size: u32, entries: u32) -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_LPM_TRIE: u32 = 11;
    const BPF_F_NO_PREALLOC: u32 = 1;
    let mut attributes = MapCreate {
        map_type: BPF_MAP_TYPE_LPM_TRIE,
        key_size,
        value_size: 4,
        max_entries: entries,
        map_flags: BPF_F_NO_PREALLOC,
    };
    call(BPF_MAP_CREATE, &mut attributes)
}

/// Sets the socket of a receive queue.
pub(crate) fn set_socket(
    sockets: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    update(sockets, &queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
}

/// Sets the value of a key. Both have the map's lengths, and values have four octets.
pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8; 4]) -> io::Result<()> {
    let mut attributes = MapUpdate {
        map_fd: map.as_raw_fd().cast_unsigned(),
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        ..MapUpdate::default()
    };
    command(BPF_MAP_UPDATE_ELEM, &mut attributes).map(drop)
}

/// Removes a key, which has the map's key length.
pub(crate) fn delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let mut attributes = MapUpdate {
        map_fd: map.as_raw_fd().cast_unsigned(),
        key: key.as_ptr() as u64,
        ..MapUpdate::default()
    };
    command(BPF_MAP_DELETE_ELEM, &mut attributes).map(drop)
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
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

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    /// The place among other programs, for tcx: none is requested.
    relative: [u64; 2],
}

/// Loads a program. One that calls kernel functions is bound to the interface with index
/// `bound_to`, 0 for none.
pub(crate) fn load(
    kind: ProgramType,
    name: &str,
    program: &[Instruction],
    bound_to: u32,
) -> io::Result<OwnedFd> {
    const HAS_FRAGS: u32 = 1 << 5;
    const DEVICE_BOUND_ONLY: u32 = 1 << 6;
    let mut prog_name = [0; 16];
    // The last octet stays zero.
    for (to, from) in prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let mut attributes = ProgLoad {
        prog_type: match kind {
            ProgramType::Ingress | ProgramType::Egress => 3,
            ProgramType::Xdp | ProgramType::XdpInPieces => 6,
            ProgramType::Filter => 1,
        },
        expected_attach_type: match kind {
            ProgramType::Ingress => Hook::Ingress.attach_type(),
            ProgramType::Egress => Hook::Egress.attach_type(),
            ProgramType::Xdp | ProgramType::XdpInPieces => Hook::XdpNative.attach_type(),
            ProgramType::Filter => 0,
        },
        insn_cnt: u32::try_from(program.len()).unwrap_or(u32::MAX),
        insns: program.as_ptr() as u64,
        // Functions of the kernel are for programs under its licence only; ours are under either.
        license: c"Dual MIT/GPL".as_ptr() as u64,
        prog_flags: if matches!(kind, ProgramType::XdpInPieces) { HAS_FRAGS } else { 0 }
            | if bound_to == 0 { 0 } else { DEVICE_BOUND_ONLY },
        prog_ifindex: bound_to,
        prog_name,
        ..ProgLoad::default()
    };
    call(BPF_PROG_LOAD, &mut attributes)
}

/// Attaches a program to the interface with `index` until the descriptor is closed.
pub(crate) fn attach(program: BorrowedFd<'_>, index: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: index,
        attach_type: hook.attach_type(),
        flags: hook.flags(),
        ..LinkCreate::default()
    };
    call(BPF_LINK_CREATE, &mut attributes)
}

/// Calls `bpf(2)` with a command that returns a descriptor.
fn call<T>(name: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = command(name, attributes)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `bpf(2)`; its result is not negative.
fn command<T>(name: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `T` is one of the structs above: plain, as large as said, and what its fields point
    // to is borrowed by the caller during the call; the kernel only reads it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, name, (&raw mut *attributes).cast::<u8>(), size_of::<T>())
    };
    match libc::c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

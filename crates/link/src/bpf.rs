//! The small kernel programs that a link needs, assembled here and loaded by `gatewright-xdp`.
//!
//! A program is attached by a *link*, which is a descriptor. When we close it or die, the kernel
//! detaches the program.

pub(crate) use gatewright_xdp::map::{BpfMap, MapType};
pub(crate) use gatewright_xdp::program::{
    AttachedProgram, BpfProgram, Hook, Instruction, ProgramType,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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

/// A function that returns 1 if the driver has removed a frame's tag, 0 if not.
pub(crate) fn tag_taken(tags: Tags) -> Vec<Instruction> {
    const KERNEL_FUNCTION: u8 = 2;
    let returned = |value| [Instruction(MOVE_IMMEDIATE, 0, 0, value), Instruction(EXIT, 0, 0, 0)];
    let Tags::TakenOut(function) = tags else { return returned(0).to_vec() };
    let mut program = vec![
        // Protocol and tag are written onto the stack, where nobody reads them.
        Instruction(STORE_IMMEDIATE_64, 10, -8, 0),
        Instruction(MOVE, registers(2, 10), 0, 0),
        Instruction(ADD_IMMEDIATE, 2, 0, -8),
        Instruction(MOVE, registers(3, 10), 0, 0),
        Instruction(ADD_IMMEDIATE, 3, 0, -6),
        Instruction(CALL, registers(0, KERNEL_FUNCTION), 0, function.cast_signed()),
        Instruction(JUMP_IF_NOT_IMMEDIATE, 0, 2, 0),
    ];
    program.extend([returned(1), returned(0)].concat());
    program
}

/// The registers byte: the written register and the read one.
const fn registers(destination: u8, source: u8) -> u8 {
    destination | (source << 4)
}

/// Loads a program. One that calls kernel functions is bound to the interface with index
/// `bound_to`, 0 for none.
pub(crate) fn load(
    kind: ProgramType,
    name: &str,
    program: &[Instruction],
    bound_to: u32,
) -> io::Result<BpfProgram> {
    // The error stays the system's own, which callers compare.
    BpfProgram::load(kind, name, program, bound_to).map_err(|error| error.source)
}

//! Label stacks (RFC 3032; traffic class RFC 5462).

use crate::{Truncated, header, numbers::numbers};

header! {
    /// One entry of a label stack (RFC 3032 §2.1; unverified text).
    LabelEntry = r"
    0                   1                   2                   3
    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ Label
   |                Label                  | Exp |S|       TTL     | Stack
   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ Entry
    " where label: Label, exp as traffic_class, s as bottom_of_stack, ttl as time_to_live
}

numbers! {
    /// A label: 20 bits. Those up to 15 are reserved (RFC 3032 §2.1, RFC 7274).
    Label(u32) {
        IPV4_EXPLICIT_NULL = 0, "IPv4 explicit null";
        ROUTER_ALERT = 1, "router alert";
        IPV6_EXPLICIT_NULL = 2, "IPv6 explicit null";
        IMPLICIT_NULL = 3, "implicit null";
        ENTROPY_INDICATOR = 7, "entropy label indicator";
        GENERIC_ASSOCIATED_CHANNEL = 13, "generic associated channel";
        OAM_ALERT = 14, "OAM alert";
        EXTENSION = 15, "extension";
    }
}

impl Label {
    /// The smallest label that is free to use.
    pub const FIRST_FREE: Self = Self(16);

    /// The largest label.
    pub const MAX: Self = Self(0xf_ffff);

    /// Whether the label has a meaning of its own.
    pub const fn is_reserved(self) -> bool {
        self.0 < Self::FIRST_FREE.0
    }
}

/// Entries of one stack that are read; a deeper stack is malformed or hostile.
pub const STACK_DEPTH_MAX: usize = 16;

/// The entries of a stack from the top to the bottom one; then [`payload`](Self::payload) begins.
#[derive(Clone, Debug)]
pub struct LabelStack<'p> {
    rest: &'p [u8],
    left: usize,
}

impl<'p> LabelStack<'p> {
    /// Reads a packet that begins with a label stack.
    pub const fn new(packet: &'p [u8]) -> Self {
        Self { rest: packet, left: STACK_DEPTH_MAX }
    }

    /// The octets after the entries read so far.
    pub const fn payload(&self) -> &'p [u8] {
        self.rest
    }
}

impl<'p> Iterator for LabelStack<'p> {
    type Item = Result<LabelEntry<'p>, Truncated>;

    /// The next entry; `Err` if the packet or the depth ends before the bottom of the stack.
    fn next(&mut self) -> Option<Self::Item> {
        let depth = self.left.checked_sub(1)?;
        let read = LabelEntry::split(self.rest);
        self.left = 0;
        if let Ok((entry, rest)) = read {
            self.rest = rest;
            if !entry.bottom_of_stack() {
                if depth == 0 {
                    let found = STACK_DEPTH_MAX * LabelEntry::LEN;
                    return Some(Err(Truncated { needed: found + LabelEntry::LEN, found }));
                }
                self.left = depth;
            }
        }
        Some(read.map(|(entry, _)| entry))
    }
}

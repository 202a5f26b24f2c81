//! The kernel's BPF programs behind typed maps: XDP forwarding from tables shared with user space.
//!
//! [`Forwarding`] holds tables and counters that all links share. [`Forwarding::program`] makes the
//! program of one link, which forwards in the driver what is plainly to be forwarded, and passes
//! everything else up as it came. [`LabelSwitching`] has programs that push, swap and pop labels,
//! with their tables. [`map`] and [`program`] are the calls below, for any program.
//!
//! The programs are C (`programs/`), compiled by `cargo xtask bpf` for little-endian machines; the
//! result lies beside the source, and a test compares it. So nobody who installs the command needs
//! a compiler.

mod calls;
mod clock;
mod compiled;
mod direct;
mod forward;
mod generate;
mod label;
mod layout;
pub mod map;
pub mod program;
mod silence;
mod stamp;

pub use clock::program_clock;
pub use compiled::{CompiledError, CompiledProgram, Symbol};
pub use direct::{Direct, GROUPS_MAX, Undecided};
pub use forward::{
    DriverReason, Forwarding, ForwardingError, ForwardingMaps, ForwardingRule, Hop, HopNeighbour,
    LimitIndex, LinkPort, LinkProgram, PacketCount, RuleAction, RuleMatch, TableSizes,
};
pub use generate::{Generator, ReceivedFrames, Receiver};
pub use label::{LabelReason, LabelSwitching};
pub use layout::{ForwardingReason, LINKS_MAX, RULE_COUNTS_MAX, RULE_LIMITS_MAX, RULES_MAX};
pub use silence::SilentInterface;
pub use stamp::{STAMPS_MAX, Stamper};

/// A name as the kernel keeps it: at most fifteen octets and a zero.
fn kernel_name(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    for (to, from) in padded.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    padded
}

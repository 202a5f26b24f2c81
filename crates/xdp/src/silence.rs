//! Drops what an interface sends while its carrier stays: for measurements of failover.

use crate::program::{AttachedProgram, BpfProgram, Hook, Instruction, ProgramType};
use std::io;

/// `r0 = TC_ACT_SHOT`, and the end.
const DROP: [Instruction; 2] = [Instruction(0xb7, 0, 0, 2), Instruction(0x95, 0, 0, 0)];

/// An interface that sends nothing, until this value is dropped.
#[derive(Debug)]
pub struct SilentInterface {
    _attached: AttachedProgram,
}

impl SilentInterface {
    /// Silences the interface with `index`, in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn new(index: u32) -> io::Result<Self> {
        let program = BpfProgram::load(ProgramType::Egress, "gw_silence", &DROP, 0)?;
        Ok(Self { _attached: program.attach(index, Hook::Egress)? })
    }
}

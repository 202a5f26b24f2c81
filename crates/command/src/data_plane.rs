//! The process that moves the packets of a gateway: `gatewright run` starts it, as `gatewright
//! data-plane`. It is no verb: it reads no command line, which keeps its start short and its memory
//! small, and does nothing without its control plane.

use crate::{exit::Exit, face::Face, program::CommandLine};
use gatewright_planes::serve_data_plane;
use std::ffi::OsStr;

/// The only argument of the process.
pub(crate) const WORD: &str = "data-plane";

/// The name of the process, in `ps` and in messages about who has a link.
const NAME: &str = "gatewright";

/// Whether this process is a data plane, by its arguments.
pub(crate) fn is_meant() -> bool {
    std::env::args_os().nth(1).as_deref() == Some(OsStr::new(WORD))
}

/// Moves packets until the control plane or a signal ends it.
pub(crate) fn run(program: &'static CommandLine) -> Exit {
    // It was started as /proc/self/exe; without a name of its own it goes on as `exe`.
    let _unnamed = std::fs::write("/proc/self/comm", NAME);
    match serve_data_plane() {
        Ok(()) => Exit::Success,
        Err(error) => {
            let exit = Exit::of(error.exit_code());
            Face::of_process(false, program).failure(exit, &format!("the data plane: {error}"));
            exit
        }
    }
}

//! Permissions that the data plane keeps; it gives the others up before its first thread starts. And
//! its end with its control plane, as long as it starts.
#![expect(unsafe_code, reason = "capabilities, and calls before a program, have no safe wrapper")]

use nix::{
    sys::{prctl, signal::Signal},
    unistd::{getpid, getppid},
};
use std::{io, os::unix::process::CommandExt, process::Command};

/// Capabilities that links need, by their number (`linux/capability.h`).
const KEPT: [u32; 5] = [
    12, // CAP_NET_ADMIN: queues, promiscuous mode, XDP programs and tables of an exclusive link
    13, // CAP_NET_RAW: packet sockets and AF_XDP
    14, // CAP_IPC_LOCK: the slab and the rings of AF_XDP, which are locked memory
    38, // CAP_PERFMON: pointers in BPF programs
    39, // CAP_BPF: programs and maps
];

/// The highest capability that is known, CAP_CHECKPOINT_RESTORE.
const LAST: u32 = 40;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// The header of `capget` and `capset`.
#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

/// 32 capabilities of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Has the kernel end the process of a command with the thread that starts it, until that process
/// calls [`outlive_starter`]. While it starts it has devices of its control plane, or some on their
/// way to it, which the next control plane's data plane would find busy.
pub(super) fn end_with_starter(command: &mut Command) {
    let starter = getpid();
    let ask = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != starter {
            // It has ended before that: nobody would read an error.
            // SAFETY: it ends this process, and runs nothing of it.
            unsafe { libc::_exit(1) }
        }
        Ok(())
    };
    // SAFETY: three system calls, which allocate nothing and take no lock, and so do their errors.
    unsafe { command.pre_exec(ask) };
}

/// This process goes on without the thread that has started it.
pub(super) fn outlive_starter() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(None)?)
}

/// Gives up all capabilities but those of [`KEPT`], for this thread and all that it starts, and for
/// ever: no program that it could run gets them back.
pub(super) fn confine() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    for capability in (0..=LAST).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: it takes numbers only. Without CAP_SETPCAP it is refused, and then there is
        // little to give up.
        let _refused = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let mut header = Header { version: VERSION, process: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 reads a header and writes two sets, which is what is there.
    let read = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    for (half, set) in (0..).zip(&mut sets) {
        let kept = KEPT.iter().filter(|capability| **capability / u32::BITS == half);
        let mask = kept.fold(0, |mask, capability| mask | 1 << (capability % u32::BITS));
        set.permitted &= mask;
        set.effective = set.permitted;
        set.inheritable = 0;
    }
    // SAFETY: as above; it reads both.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

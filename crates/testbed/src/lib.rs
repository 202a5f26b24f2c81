//! Networks made of namespaces and veth pairs, for tests, benchmarks, demos and the lab.
//!
//! A [`Namespace`] has no name on disk. Descriptors of this process hold it, and the kernel removes
//! it, with its interfaces, when the last one closes. Programs started inside live in a process
//! namespace whose first process ends when this process ends. Both happen also after `kill -9`, so
//! nothing is ever left behind and no clean-up step exists.
//!
//! ```no_run
//! use gatewright_testbed::{Namespace, Veth};
//!
//! let (left, right) = (Namespace::new()?, Namespace::new()?);
//! let veth = Veth::pair(&left, "l0", &right, "r0")?;
//! veth.a.add_address("192.0.2.1/24")?;
//! veth.b.add_address("192.0.2.2/24")?;
//! veth.up()?;
//! assert!(left.command("ping").args(["-c1", "192.0.2.2"]).output()?.status.success());
//! # Ok::<(), gatewright_testbed::TestbedError>(())
//! ```
//!
//! All of it needs root and the `ip` program; [`Needs`] names missing requirements, so that a test
//! can be skipped by name. [`python_program`] installs a peer from PyPI.
#![forbid(unsafe_code)]

mod error;
mod interface;
mod line;
mod namespace;
mod needs;
mod port;
mod process;
mod python;
mod time_namespace;
mod two_subnets;
mod vlan;

pub use error::TestbedError;
pub use interface::{TestInterface, Veth};
pub use line::NodeLine;
pub use namespace::{Namespace, Transport};
pub use needs::{Missing, Needs};
pub use port::free_port;
pub use process::{Command, Process};
pub use python::{python_program, python_with};
pub use time_namespace::in_time_namespace;
pub use two_subnets::TwoSubnets;

use std::time::{Duration, Instant};

/// Checks every few milliseconds whether `condition` holds, for at most `limit`.
///
/// Returns whether it held in the end. It is for daemons and links that need a moment to come up.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    const PAUSE: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

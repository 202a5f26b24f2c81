//! `bench mesh`: label switching beside the kernel's forwarding of IP.
//!
//! What a swap costs is measured in memory (`swap.rs`); throughput and round trips are those of
//! four hosts in a line (`line.rs`), by labels and by the kernel's own IP forwarding in turn. Outages
//! are those of the paper's Figure 6 (`failover.rs`), by nodes of the mesh. `trust.rs` times what
//! authentication adds to a message.

mod failover;
mod line;
pub(crate) mod paper;
pub(crate) mod peers;
mod swap;
mod trust;

use bench::{Bench, Options, Relation};
use gatewright_testbed::Needs;

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("mesh", options);
    let promised = [
        ("swap_ns", Relation::AtMost, 20.0),
        ("swap_xdp_over_redirect_ns", Relation::AtMost, 20.0),
        ("throughput_vs_ip", Relation::AtLeast, 0.95),
        ("throughput_vs_ip_mtu", Relation::AtLeast, 0.95),
        ("rtt_vs_ip", Relation::AtMost, 1.1),
        ("failover_near_down_ms", Relation::AtMost, 20.0),
        ("failover_far_down_ms", Relation::AtMost, 50.0),
        ("failover_silent_ms", Relation::AtMost, 200.0),
    ];
    swap::in_the_graph(&mut bench)?;
    trust::measure(&mut bench)?;
    let missing = Needs::new().namespaces().program("ethtool").linux(6, 6).missing();
    if missing.is_none() {
        swap::in_the_kernel(&mut bench)?;
        line::measure(&mut bench)?;
        failover::measure(&mut bench)?;
    }
    for (key, relation, bound) in promised {
        match &missing {
            Some(missing) if key != "swap_ns" => {
                bench.skip(key, relation, bound, &missing.to_string());
            }
            _ => bench.promise(key, relation, bound),
        }
    }
    Ok(bench)
}

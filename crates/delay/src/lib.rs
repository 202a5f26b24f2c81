//! Delay models of nodes, and the flows that they carry under a bound.
//!
//! - [`LinearFit`] is the service time of a packet by its size, S(b) = a + c·b; [`QueueModel`] the
//!   wait in front of it, [`choose_model`] picks the one that predicts better.
//! - [`NodeModel`] predicts delays of a node under a [`NodeLoad`].
//! - [`LiveModel`] is fitted again and again from the sojourn histogram of a relay that runs.
//! - [`FlowAdmission`] places flows on paths of such nodes as long as every flow keeps its bound.
//! - [`ServiceFactor`] is by how much a relay's service takes longer than described, from the times
//!   to its answers; [`ClientFlows`] bounds the flows of one client.
//! - [`Reachability`] leaves out a relay that does not answer, and has one flow try it again.
//!
//! All of it is pure: no clock, no device, no randomness. Times are in seconds unless a name says
//! otherwise.
#![forbid(unsafe_code)]

mod admission;
mod clients;
mod factor;
mod linear;
mod live;
mod node;
mod queue;
mod reachability;

pub use admission::{FlowAdmission, FlowId, FlowRefusal, PathPolicy, PlacedFlow, relay_paths};
pub use clients::{ClientFlows, client_network};
pub use factor::{FACTOR_MAX, FACTOR_SAMPLES_MIN, FactorChange, ServiceFactor};
pub use linear::{LinearFit, least_squares};
pub use live::{DelayReading, LiveModel, ServerCount};
pub use node::{FlowKind, NodeLoad, NodeModel};
pub use queue::{LoadPoint, ModelChoice, QueueModel, SetupTime, choose_model, held_out_errors};
pub use reachability::{LEFT_OUT_MAX, LEFT_OUT_MIN, Reachability, reachable_paths};

/// The mean; `None` without values.
fn mean(values: &[f64]) -> Option<f64> {
    let count = u32::try_from(values.len()).ok().filter(|count| *count > 0)?;
    Some(values.iter().sum::<f64>() / f64::from(count))
}

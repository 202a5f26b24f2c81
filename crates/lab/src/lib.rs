//! Delay experiments: relays under conditions, stamps on packets, statistics and models, a report.
//!
//! - [`analysis`] is pure: statistics of delays, the linear service model, sojourn times.
//! - [`plan`](plan()) tells what a run will do, [`run`](run()) does it and gives a [`LabRun`].
//! - [`failover`] cuts cables of a mesh while datagrams pass, and tells how long nothing arrived.
//! - [`stamp`] measures to any host that reflects test packets (RFC 8762), and reflects them.
//! - [`DelayLine`] is a cable of given capacity, latency, jitter and loss between two namespaces.
//! - [`agent`] runs experiments between machines: an agent on each, and a coordinator.
//! - [`report`] shows a run as one HTML file and as CSV; [`compare`](compare()) sets two beside each
//!   other; [`promise`](promise()) says how many flows the node carries under a bound, or why its model
//!   cannot tell.
#![forbid(unsafe_code)]

pub mod agent;
pub mod analysis;
pub mod balance;
mod bed;
mod clock;
mod compare;
mod computation;
mod covariates;
mod ends;
pub mod failover;
mod last_probes;
mod line;
mod loaded;
mod plan;
mod probe;
mod processor;
mod promise;
mod quota;
mod relay;
pub mod report;
mod result;
mod round_trips;
mod routing;
mod run;
pub mod stamp;
mod summarise;

pub use compare::{ComparedCondition, DifferentSetting, LabComparison, compare};
pub use covariates::{Covariates, RadioCovariates};
pub use gatewright_delay::FlowKind;
pub use line::DelayLine;
pub use loaded::{FlentRoundTrips, LoadedRoundTrips, round_trips_under_load};
pub use plan::{LabPlan, fit, plan};
pub use processor::machine;
pub use promise::{BalanceKeys, FlowPromise, MeasuredDelay, UnusableModel, promise};
pub use result::{ConditionResult, HeldOutError, LabRun, LeftOut, ObserverCost, RelayModel};
pub use round_trips::{RoundTripMedians, round_trips_beside_irtt};
pub use run::{LabError, LabProgress, RunListener, run, run_with};

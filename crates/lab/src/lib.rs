//! Delay experiments: relays under conditions, stamps on packets, statistics and models, a report.
//!
//! - [`analysis`] is pure: statistics of delays, the linear service model, sojourn times.
#![forbid(unsafe_code)]

pub mod analysis;

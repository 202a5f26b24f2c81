//! The machine as its callers see it: requests in, answers out after their commit.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod access;
mod aggregate;
mod announce;
mod attributes;
mod audit;
mod bench;
mod clocks;
mod commit;
mod consent;
mod criteria;
mod device;
mod fan;
mod flex;
mod group;
mod identity;
mod kept;
mod later;
mod missing;
mod model;
mod monitor;
mod notify;
mod observe;
mod outbox;
mod policies;
mod postponed;
mod registration;
mod repeats;
mod results;
mod room;
mod search;
mod sponsor;
mod statuses;
mod unread;

/// Every instance stays in memory.
const RESIDENT_OCTETS: Option<usize> = None;

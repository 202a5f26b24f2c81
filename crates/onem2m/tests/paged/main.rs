//! All tests of the machine once more, with every instance paged out that may leave memory, and what
//! only then can go wrong.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

#[path = "../cse/access.rs"]
mod access;
#[path = "../cse/announce.rs"]
mod announce;
#[path = "../cse/attributes.rs"]
mod attributes;
#[path = "../cse/audit.rs"]
mod audit;
#[path = "../cse/bench.rs"]
mod bench;
#[path = "../cse/clocks.rs"]
mod clocks;
#[path = "../cse/commit.rs"]
mod commit;
#[path = "../cse/consent.rs"]
mod consent;
#[path = "../cse/criteria.rs"]
mod criteria;
#[path = "../cse/device.rs"]
mod device;
#[path = "../cse/fan.rs"]
mod fan;
#[path = "../cse/flex.rs"]
mod flex;
#[path = "../cse/group.rs"]
mod group;
#[path = "../cse/identity.rs"]
mod identity;
#[path = "../cse/kept.rs"]
mod kept;
#[path = "../cse/later.rs"]
mod later;
#[path = "../cse/missing.rs"]
mod missing;
#[path = "../cse/model.rs"]
mod model;
#[path = "../cse/monitor.rs"]
mod monitor;
#[path = "../cse/notify.rs"]
mod notify;
#[path = "../cse/outbox.rs"]
mod outbox;
#[path = "../cse/policies.rs"]
mod policies;
#[path = "../cse/postponed.rs"]
mod postponed;
#[path = "../cse/repeats.rs"]
mod repeats;
#[path = "../cse/results.rs"]
mod results;
#[path = "../cse/search.rs"]
mod search;
#[path = "../cse/sponsor.rs"]
mod sponsor;
#[path = "../cse/statuses.rs"]
mod statuses;
#[path = "../cse/unread.rs"]
mod unread;

mod paging;

/// No instance stays in memory that may leave it.
const RESIDENT_OCTETS: Option<usize> = Some(0);

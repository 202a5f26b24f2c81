//! The common interface of everything that runs in a gateway.
//!
//! Links, handlers, proxies, programs, devices, the service entity and the control socket are each
//! a [`Part`]. A part compares two descriptions in its own area, takes a new description in two
//! steps, reports its state and counters, and stops. [`exchange`] is the one reload: every part
//! stages the new description, then all commit it. If one cannot stage it, the earlier parts undo
//! theirs, the last first.

#![forbid(unsafe_code)]

mod change;
mod component;
mod event;
mod exchange;
mod named_file;
mod status;

pub use change::{Change, Unable};
pub use component::{ComponentError, ServiceParts};
pub use event::{EventSink, LogEvent, Watched, When};
pub use exchange::{Unchanged, exchange};
pub use named_file::open_file;
pub use status::{
    AlarmStatus, AlarmSubject, ENDED, HandledRequests, NamedStatus, PartHistogram, PartStatus,
    Sojourn,
};

use gatewright_config::Config;
pub use gatewright_config::LogLevel;

/// A part of a running gateway, set up from its description.
pub trait Part: Send + Sync {
    /// Its name: a word of lower-case letters, used in status and metrics.
    fn name(&self) -> &'static str;

    /// Differences between two descriptions in this part's area, by key. It is called at each
    /// reload, as a part may depend on more than a description's own text.
    fn differences(&self, old: &Config, new: &Config) -> Vec<Change>;

    /// Does everything for `new` that can fail, in place of the state for `old`. Nothing on which
    /// other parts rely is given up before the commit.
    ///
    /// # Errors
    ///
    /// The item that it cannot take; then it is unchanged.
    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable>;

    /// Its state and counters. It waits for nothing, not even for a stage in progress.
    fn tell(&self) -> PartStatus {
        PartStatus::default()
    }

    /// Values of its report whose changes are events. The gateway looks at them each second.
    fn watched(&self) -> &'static [Watched] {
        &[]
    }

    /// Its own events since the last call, in order. The gateway asks each second if the part has
    /// values to watch.
    fn new_events(&self) -> Vec<LogEvent> {
        Vec::new()
    }

    /// Events of its start, in order; asked for once, when it runs. The log takes only some twenty
    /// of one kind at once.
    fn start_events(&self) -> Vec<LogEvent> {
        Vec::new()
    }

    /// Ends it. No method is called afterwards.
    fn stop(&self) {}
}

/// A description that a part has staged.
pub trait Staged: Send {
    /// Makes it final; returns changes to report beside the differences.
    ///
    /// # Errors
    ///
    /// A component that has ended meanwhile: a commit needs nothing that could be refused.
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable>;

    /// Restores the part's earlier state.
    fn undo(self: Box<Self>);
}

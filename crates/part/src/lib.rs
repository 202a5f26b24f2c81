//! One protocol for everything that runs in a gateway.
//!
//! Links, handlers, proxies, programs, devices, the service entity and the control socket are each a
//! [`Part`]. A part says what differs between two descriptions in what is its own, takes another
//! description in two steps, tells what it is and has counted, and stops. [`exchange`] is the one
//! reload: every part stages the new description, then all commit it; if one cannot, those before it
//! undo what they staged, the last first.

#![forbid(unsafe_code)]

mod change;
mod exchange;
mod told;

pub use change::{Change, Unable};
pub use exchange::{Unchanged, exchange};
pub use told::{HandledRequests, PartAnswer, PartHistogram, Told};

use gatewright_config::Config;

/// Something that runs in a gateway by its description.
pub trait Part: Send + Sync {
    /// Its name: a word of lower-case letters, by which status and metrics show it.
    fn name(&self) -> &'static str;

    /// Differences between two descriptions in what is this part's, key by key. It is asked at each
    /// reload, as a part may stand on more than a description's own text.
    fn differences(&self, old: &Config, new: &Config) -> Vec<Change>;

    /// Does what of `new` can fail, in place of what stands by `old`; nothing that others rely on is
    /// given up before the commit.
    ///
    /// # Errors
    ///
    /// What it cannot have; then it is as it was.
    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable>;

    /// What it is and has counted. It waits for nothing: not for a stage that is under way either.
    fn tell(&self) -> Told {
        Told::default()
    }

    /// Ends it. Nothing is asked of it afterwards.
    fn stop(&self) {}
}

/// A description that a part has staged.
pub trait Staged: Send {
    /// Takes it for good; what is told of it beside the differences.
    ///
    /// # Errors
    ///
    /// What has ended meanwhile: a commit needs nothing that could be refused.
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable>;

    /// Makes the part what it was before.
    fn undo(self: Box<Self>);
}

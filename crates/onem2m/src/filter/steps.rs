//! Step budget of a request: expensive conditions are counted as they are evaluated, and before.

use crate::status::{Refusal, Status};

/// The remaining computation budget of a request, in steps of some ten nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steps(u64);

impl Steps {
    /// A budget of a number of steps.
    pub const fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// The number of remaining steps.
    pub const fn left(&self) -> u64 {
        self.0
    }

    /// Spends the cost of one condition on one resource.
    ///
    /// # Errors
    ///
    /// 5207 if the condition costs more than one resource may, or than is left.
    pub fn spend(&mut self, steps: u64) -> Result<(), Refusal> {
        if steps > RESOURCE_MAX {
            return Err(Refusal::new(
                Status::NotAcceptable,
                "a filter criterion costs more than it may on one resource",
            ));
        }
        self.0 = self.0.checked_sub(steps).ok_or_else(|| {
            Refusal::new(
                Status::NotAcceptable,
                "the filter criteria cost more than one request may: ask for less of the tree",
            )
        })?;
        Ok(())
    }
}

/// Steps of one condition on one resource at most; as many entries may what is selected have.
const RESOURCE_MAX: u64 = 1_000_000;

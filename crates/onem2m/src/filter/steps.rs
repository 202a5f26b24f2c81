//! Step budget of a request: expensive conditions are counted as they are evaluated, and before.

use crate::status::{Refusal, Status};

/// The remaining computation budget of a request, in steps of some ten nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steps {
    left: u64,
    /// Resources on which a condition costs more than it may.
    cut: u64,
}

/// Whether a resource matches conditions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FilterJudgement {
    /// It does.
    Matches,
    /// It does not.
    Differs,
    /// A condition costs more on it than it may.
    TooCostly,
}

impl From<bool> for FilterJudgement {
    fn from(matches: bool) -> Self {
        if matches { Self::Matches } else { Self::Differs }
    }
}

impl Steps {
    /// A budget of a number of steps.
    pub const fn new(steps: u64) -> Self {
        Self { left: steps, cut: 0 }
    }

    /// The number of remaining steps.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// The number of resources that did not match as a condition costs too much on them, since this
    /// was last asked.
    pub const fn take_cut(&mut self) -> u64 {
        core::mem::replace(&mut self.cut, 0)
    }

    /// Judges one resource of several: a condition that costs more than it may is no refusal. Who stores
    /// such a resource spoils no search of others.
    ///
    /// # Errors
    ///
    /// Those of `judge`: 5207 if it costs more than is left.
    pub fn judge_one(
        &mut self,
        judge: impl FnOnce(&mut Self) -> Result<bool, Refusal>,
    ) -> Result<FilterJudgement, Refusal> {
        let before = self.cut;
        match judge(self) {
            Err(_) if self.cut > before => Ok(FilterJudgement::TooCostly),
            judged => judged.map(FilterJudgement::from),
        }
    }

    /// Spends the cost of one condition on one resource.
    ///
    /// # Errors
    ///
    /// 5207 if the condition costs more than one resource may, or than is left.
    pub fn spend(&mut self, steps: u64) -> Result<(), Refusal> {
        if steps > RESOURCE_MAX {
            self.cut += 1;
            return Err(Refusal::new(
                Status::NotAcceptable,
                "a filter criterion costs more than it may on one resource",
            ));
        }
        self.left = self.left.checked_sub(steps).ok_or_else(|| {
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

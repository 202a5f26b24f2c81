//! Delays of hops beside their budgets, as somebody outside of the gateway measures them.
//!
//! A gateway knows how long what it receives stays in it. How long a message travels to it, and on from
//! it, knows who measures at both ends; that one shows the numbers here, and status and page have
//! them.

use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

/// Maximum hops.
const HOPS_MAX: usize = 32;
/// Maximum characters of a hop's name.
const NAME_MAX: usize = 64;

/// The delay of a hop, and how much it may be.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HopDelay {
    /// The hop, in words.
    pub name: String,
    /// The median of what was measured; none if nothing was yet.
    pub median_ms: Option<f64>,
    /// How much it may be.
    pub budget_ms: f64,
}

impl HopDelay {
    /// Whether the delay is above its budget.
    pub fn is_late(&self) -> bool {
        self.median_ms.is_some_and(|median| median > self.budget_ms)
    }

    fn is_sound(&self) -> bool {
        let is_time = |ms: f64| ms.is_finite() && ms >= 0.0;
        (1..=NAME_MAX).contains(&self.name.chars().count())
            && self.median_ms.is_none_or(is_time)
            && is_time(self.budget_ms)
    }
}

/// The hops that are shown; the last ones replace those before.
#[derive(Debug, Default)]
pub(crate) struct ShownHops(Mutex<Vec<HopDelay>>);

impl ShownHops {
    /// The hops that are shown.
    pub(crate) fn now(&self) -> Vec<HopDelay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows these from now on, until others come or the gateway ends.
    pub(crate) fn show(&self, hops: Vec<HopDelay>) -> Result<(), String> {
        if hops.len() > HOPS_MAX {
            return Err(format!("{} hops are too many: at most {HOPS_MAX} are shown", hops.len()));
        }
        if let Some(hop) = hops.iter().find(|hop| !hop.is_sound()) {
            let name: String = hop.name.chars().take(NAME_MAX).collect();
            return Err(format!(
                "{name:?} is no hop: it has a name of 1 to {NAME_MAX} characters, and times in ms"
            ));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hops;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(name: &str, median_ms: Option<f64>, budget_ms: f64) -> HopDelay {
        HopDelay { name: name.to_owned(), median_ms, budget_ms }
    }

    #[test]
    fn the_last_hops_are_shown_and_what_is_none_changes_nothing() {
        let shown = ShownHops::default();
        let hops = vec![hop("mesh", Some(0.4), 20.0), hop("plane", None, 5.0)];
        shown.show(hops.clone()).unwrap();
        let long = "x".repeat(NAME_MAX + 1);
        for wrong in [
            hop("", None, 1.0),
            hop(&long, None, 1.0),
            hop("a", Some(-1.0), 1.0),
            hop("a", Some(f64::NAN), 1.0),
            hop("a", None, f64::INFINITY),
        ] {
            assert!(shown.show(vec![wrong.clone()]).is_err(), "{wrong:?}");
        }
        assert!(shown.show(vec![hop("a", None, 1.0); HOPS_MAX + 1]).is_err());
        assert_eq!(shown.now(), hops);
        shown.show(Vec::new()).unwrap();
        assert_eq!(shown.now(), []);
    }

    #[test]
    fn a_hop_is_late_above_its_budget() {
        assert!(hop("a", Some(5.1), 5.0).is_late());
        assert!(!hop("a", Some(5.0), 5.0).is_late());
        assert!(!hop("a", None, 0.0).is_late());
    }
}

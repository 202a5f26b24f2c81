//! Processor cores: one of the control plane, the others for the workers.

use crate::{error::PlanesError, setup::Setup};
use gatewright_data::DataError;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// Binds the calling thread, and those that it starts from now on, to the core of the control plane;
/// returns the core of each worker. Without a core of the control plane nothing is bound.
pub(crate) fn bind(setup: &Setup) -> Result<Vec<usize>, PlanesError> {
    let Some(control) = setup.control_core else { return Ok(Vec::new()) };
    let failed = |action| {
        move |errno: nix::Error| {
            PlanesError::Data(DataError::System { action, source: errno.into() })
        }
    };
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(failed("ask for the processor cores"))?;
    let is_allowed = |core: &usize| allowed.is_set(*core).unwrap_or(false);
    let all: Vec<usize> = (0..CpuSet::count()).filter(is_allowed).collect();
    let cores = deal(&all, control, setup.workers)
        .ok_or_else(|| PlanesError::Cores { control, all: all.clone() })?;
    let mut own = CpuSet::new();
    own.set(control)
        .and_then(|()| sched_setaffinity(this, &own))
        .map_err(failed("bind the control plane to its core"))?;
    Ok(cores)
}

/// The core of each of so many workers, in turn those of `all` but `control`; `None` if that is not
/// one of them, or the only one.
fn deal(all: &[usize], control: usize, workers: usize) -> Option<Vec<usize>> {
    let others: Vec<usize> = all.iter().copied().filter(|core| *core != control).collect();
    let fits = !others.is_empty() && others.len() < all.len();
    fits.then(|| others.iter().copied().cycle().take(workers).collect())
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn workers_share_the_cores_that_control_leaves() {
        assert_eq!(deal(&[0, 1, 2, 3], 0, 2), Some(vec![1, 2]));
        assert_eq!(deal(&[0, 1, 2, 3], 2, 5), Some(vec![0, 1, 3, 0, 1]));
        assert_eq!(deal(&[4, 6], 6, 2), Some(vec![4, 4]));
        assert_eq!(deal(&[0], 0, 1), None, "no core is left");
        assert_eq!(deal(&[0, 1], 7, 1), None, "there is no such core");
    }
}

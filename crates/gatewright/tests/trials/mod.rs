//! Runs the tests of a file, or shows them as ignored where this system lacks what they need.

use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Trial};

/// Runs these tests, each by its name, and ends the process.
pub(crate) fn run<const N: usize>(needs: &Needs, tests: [(&str, fn()); N]) -> ! {
    let missing = needs.clone().missing().is_some();
    let trials = tests.map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit()
}

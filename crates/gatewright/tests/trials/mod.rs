//! Runs the tests of a file, or shows them as ignored where this system lacks what they need.

use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Trial};

/// Runs these tests, each by its name, and ends the process.
#[allow(dead_code, reason = "some files run in both modes")]
pub(crate) fn run<const N: usize>(needs: &Needs, tests: [(&str, fn()); N]) -> ! {
    let trials = tests.map(|(name, test)| (name.to_owned(), move || test()));
    exit(needs, trials)
}

/// As [`run`], each twice: with the data plane on threads, and in a process of its own, which
/// `set_process_mode` chooses for the thread that runs the test.
#[allow(dead_code, reason = "some files run in one mode")]
pub(crate) fn run_in_both<const N: usize>(
    needs: &Needs,
    set_process_mode: fn(bool),
    tests: [(&str, fn()); N],
) -> ! {
    let modes = [("threads", false), ("process", true)];
    let trials = modes.into_iter().flat_map(|(mode, process)| {
        tests.map(|(name, test)| {
            let run = move || {
                set_process_mode(process);
                test();
            };
            (format!("{mode}::{name}"), run)
        })
    });
    exit(needs, trials)
}

fn exit<F: Fn() + Send + 'static>(
    needs: &Needs,
    trials: impl IntoIterator<Item = (String, F)>,
) -> ! {
    let missing = needs.clone().missing().is_some();
    let trials = trials.into_iter().map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit()
}

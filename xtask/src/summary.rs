//! What `cargo xtask test` says at its end: every skipped and failed test by its name.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Results of tests, collected from the lines that test programs print.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Summary {
    passed: usize,
    failed: BTreeSet<String>,
    /// Tests that failed once, and passed when they were run again.
    second: BTreeSet<String>,
    skipped: BTreeSet<String>,
    time: Duration,
}

impl Summary {
    /// Takes in one line of a test program: `test NAME ... ok`, `FAILED`, or `ignored` with or
    /// without a reason. Any other line is no result.
    pub fn note(&mut self, line: &str) {
        let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return;
        };
        let name = name.trim_end().to_owned();
        match result.trim_end().split_once([',', ' ']) {
            None if result.trim_end() == "ok" => self.passed += 1,
            None if result.trim_end() == "FAILED" => _ = self.failed.insert(name),
            None if result.trim_end() == "ignored" => _ = self.skipped.insert(name),
            Some(("ignored", reason)) => {
                self.skipped.insert(format!("{name}: {}", reason.trim()));
            }
            _ => {}
        }
    }

    /// Notes a whole step that could not run, with what it lacks.
    pub fn skip(&mut self, step: &str, reason: &str) {
        self.skipped.insert(format!("{step}: {reason}"));
    }

    /// Notes a failure that no test program tells.
    pub fn fail(&mut self, what: String) {
        self.failed.insert(what);
    }

    /// How many tests failed.
    pub fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Notes that all that failed has passed at a second attempt.
    pub fn passed_again(&mut self) {
        self.passed += self.failed.len();
        self.second.append(&mut self.failed);
    }

    /// Sets the time that everything took.
    pub fn took(&mut self, time: Duration) {
        self.time = time;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = "passed at the second attempt only";
        let lists = [("skipped", &self.skipped), (second, &self.second), ("FAILED", &self.failed)];
        for (title, names) in lists {
            for name in names {
                writeln!(f, "{title}: {name}")?;
            }
        }
        let seconds = self.time.as_secs();
        let (passed, failed, skipped) = (self.passed, self.failed.len(), self.skipped.len());
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped, in {minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as libtest and libtest-mimic print them.
    #[test]
    fn results_are_read_from_the_lines_of_test_programs() {
        let mut summary = Summary::default();
        for line in [
            "running 5 tests",
            "test tests::a ... ok",
            "test pings (needs root)      ... ignored",
            "test tests::b ... FAILED",
            "test slow ... ignored, takes an hour",
            "test crates/x/src/lib.rs - y (line 3) ... ok",
            "test crates/x/src/lib.rs - z (line 3) - should panic ... ok",
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured",
            "some other line ... ok",
        ] {
            summary.note(line);
        }
        summary.skip("cargo-deny", "not installed");
        summary.took(Duration::from_secs(61));
        assert_eq!(
            summary.to_string(),
            "skipped: cargo-deny: not installed\n\
             skipped: pings (needs root)\n\
             skipped: slow: takes an hour\n\
             FAILED: tests::b\n\
             3 passed, 1 failed, 3 skipped, in 1:01"
        );
        summary.passed_again();
        let words = summary.to_string();
        assert!(words.contains("passed at the second attempt only: tests::b\n"), "{words}");
        assert!(words.ends_with("4 passed, 0 failed, 3 skipped, in 1:01"), "{words}");
    }
}

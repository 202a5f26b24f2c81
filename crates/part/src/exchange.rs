//! Reload: all parts take a description, or none does.

use crate::{Change, Part, Staged, Unable};
use gatewright_config::Config;

/// Makes every part stage `new` in the given order and then commit it in the same order; returns
/// their reports. If one cannot stage it, the earlier parts undo theirs, the last first.
///
/// # Errors
///
/// The error of the part that cannot take `new`; then all parts are unchanged. Or the error of a
/// part that ended before its commit; the others have committed then.
pub fn exchange(parts: &[&dyn Part], old: &Config, new: &Config) -> Result<Vec<Change>, Unable> {
    let mut staged: Vec<Box<dyn Staged>> = Vec::with_capacity(parts.len());
    for part in parts {
        match part.stage(old, new) {
            Ok(one) => staged.push(one),
            Err(unable) => {
                staged.into_iter().rev().for_each(Staged::undo);
                return Err(unable);
            }
        }
    }
    let (mut told, mut ended) = (Vec::new(), None);
    for one in staged {
        match one.commit() {
            Ok(changes) => told.extend(changes),
            Err(unable) => ended = ended.or(Some(unable)),
        }
    }
    ended.map_or(Ok(told), Err)
}

/// The staged state of a part that takes nothing from a description.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged;

impl Staged for Unchanged {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Log = Arc<Mutex<Vec<String>>>;

    struct One {
        name: &'static str,
        is_able: bool,
        ends: bool,
        log: Log,
    }

    struct StagedPart(&'static str, bool, Log);

    impl Staged for StagedPart {
        fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
            self.2.lock().unwrap().push(format!("{} commits", self.0));
            if self.1 {
                Err("it has ended".to_owned().into())
            } else {
                Ok(vec![Change::new(self.0, "new")])
            }
        }

        fn undo(self: Box<Self>) {
            self.2.lock().unwrap().push(format!("{} undoes", self.0));
        }
    }

    impl Part for One {
        fn name(&self) -> &'static str {
            self.name
        }

        fn differences(&self, _: &Config, _: &Config) -> Vec<Change> {
            Vec::new()
        }

        fn stage(&self, _: &Config, _: &Config) -> Result<Box<dyn Staged>, Unable> {
            self.log.lock().unwrap().push(format!("{} stages", self.name));
            let able = self
                .is_able
                .then(|| Box::new(StagedPart(self.name, self.ends, Arc::clone(&self.log))));
            able.map(|step| step as Box<dyn Staged>).ok_or_else(|| "no".to_owned().into())
        }
    }

    /// What happens where the part `unable` cannot stage, and the part `ends` has ended.
    fn run(unable: &str, ends: &str) -> (Result<Vec<Change>, Unable>, Vec<String>) {
        let log = Log::default();
        let parts = ["a", "b", "c"].map(|name| One {
            name,
            is_able: name != unable,
            ends: name == ends,
            log: Arc::clone(&log),
        });
        let parts = parts.each_ref().map(|part| part as &dyn Part);
        let config = Config::default();
        let done = exchange(&parts, &config, &config);
        let log = log.lock().unwrap().clone();
        (done, log)
    }

    #[test]
    fn all_stage_before_any_commits() {
        let (done, log) = run("", "");
        assert_eq!(done.unwrap().len(), 3);
        let all = ["a stages", "b stages", "c stages", "a commits", "b commits", "c commits"];
        assert_eq!(log, all);
    }

    #[test]
    fn where_one_cannot_those_before_undo_in_reverse() {
        let (done, log) = run("c", "");
        assert_eq!(done.unwrap_err().why, "no");
        assert_eq!(log, ["a stages", "b stages", "c stages", "b undoes", "a undoes"]);
    }

    #[test]
    fn one_that_has_ended_keeps_none_from_its_commit() {
        let (done, log) = run("", "a");
        assert_eq!(done.unwrap_err().why, "it has ended");
        assert_eq!(log[3..], ["a commits", "b commits", "c commits"]);
    }
}

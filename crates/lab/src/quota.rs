//! A share of a processor by a quota of the kernel (cgroup, version 1 or 2).
//!
//! It is no slower processor: a thread works at full speed until its share of a tenth of a second is
//! used up, and then stands still until the next one begins.

use crate::clock;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Microseconds of the period in which a share may be used (Linux, sched-bwc: the default).
const PERIOD_US: u64 = 100_000;

/// Groups in whose `cgroup.subtree_control` this process has enabled the controller (version 2).
static ENABLED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A group of threads that share a part of a processor; it is removed when dropped, and its threads must
/// have ended before. The last one disables the controller if the first one has enabled it.
#[derive(Debug)]
pub(crate) struct Quota {
    folder: PathBuf,
    /// The file that takes a thread's number.
    threads: PathBuf,
}

/// Where this process is among the groups of the controller of processors.
#[derive(Clone, Debug, Eq, PartialEq)]
enum ControllerPlace {
    /// Version 1: a hierarchy of its own.
    First(PathBuf),
    /// Version 2.
    Unified(PathBuf),
}

impl Quota {
    /// Why there can be no quota here; none if there can.
    pub(crate) fn unavailable() -> Option<String> {
        Self::of(100).err()
    }

    /// A group whose threads may take so many percent of a processor together.
    pub(crate) fn of(percent: u8) -> Result<Self, String> {
        let [mounts, groups] = ["/proc/self/mountinfo", "/proc/self/cgroup"]
            .map(|path| fs::read_to_string(path).unwrap_or_default());
        let place = ControllerPlace::find(&mounts, &groups)
            .ok_or("this system has no groups with quotas (cgroup)")?;
        Self::at(&place, percent)
    }

    fn at(place: &ControllerPlace, percent: u8) -> Result<Self, String> {
        let name = format!("gatewright-lab-{}-{:x}", std::process::id(), clock::now());
        let share_us = PERIOD_US * u64::from(percent) / 100;
        match place {
            ControllerPlace::First(parent) => {
                let folder = made(parent.join(name))?;
                let quota = Self { threads: folder.join("tasks"), folder };
                quota.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                quota.write("cpu.cfs_quota_us", &share_us.to_string())?;
                Ok(quota)
            }
            ControllerPlace::Unified(parent) => {
                let has = fs::read_to_string(parent.join("cgroup.controllers"));
                if !has.unwrap_or_default().split_whitespace().any(|it| it == "cpu") {
                    return Err("the group of this process has no controller of processors".into());
                }
                let folder = made(parent.join(name))?;
                let quota = Self { threads: folder.join("cgroup.threads"), folder };
                // Threads of a process in different groups (cgroup-v2, threads).
                quota.write("cgroup.type", "threaded")?;
                enable(parent)?;
                quota.write("cpu.max", &format!("{share_us} {PERIOD_US}"))?;
                Ok(quota)
            }
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| at(&path, &error))
    }

    /// Takes a thread into the group, with all that it starts from now on.
    pub(crate) fn hold(&self, thread: i32) -> Result<(), String> {
        fs::write(&self.threads, thread.to_string()).map_err(|error| at(&self.threads, &error))
    }

    /// How often a period ended before its threads were done.
    pub(crate) fn throttled(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        let value = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        value.trim().parse().ok()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // With threads in it, it stays until the system ends, empty of meaning.
        if fs::remove_dir(&self.folder).is_ok()
            && let Some(parent) = self.folder.parent()
        {
            disable(parent);
        }
    }
}

fn enabled() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // The set is as it was before the call that panicked, or has one more.
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the groups in `parent` the controller of processors (version 2).
fn enable(parent: &Path) -> Result<(), String> {
    let mut enabled = enabled();
    let path = parent.join("cgroup.subtree_control");
    let before = fs::read_to_string(&path).unwrap_or_default();
    if before.split_whitespace().all(|it| it != "cpu") {
        fs::write(&path, "+cpu").map_err(|error| at(&path, &error))?;
        enabled.insert(parent.to_owned());
    }
    Ok(())
}

/// Takes the controller back if this process has given it, and no group is left that may need it: its
/// quota would end with it.
fn disable(parent: &Path) {
    let mut enabled = enabled();
    if !enabled.contains(parent) {
        return;
    }
    let mut entries = fs::read_dir(parent).into_iter().flatten().flatten();
    if entries.all(|entry| !entry.path().is_dir()) {
        // It stays enabled if the system refuses, which changes no group's share.
        let _ = fs::write(parent.join("cgroup.subtree_control"), "-cpu");
        enabled.remove(parent);
    }
}

fn made(folder: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir(&folder).map_err(|error| at(&folder, &error))?;
    Ok(folder)
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

impl ControllerPlace {
    /// From the mounts (proc(5), `mountinfo`) and the groups of this process (cgroups(7)); version 1
    /// where it has the controller, as it is then not in version 2.
    fn find(mounts: &str, groups: &str) -> Option<Self> {
        let first = mounts.lines().find_map(|line| mount_point(line, "cgroup", Some("cpu")));
        let unified = || mounts.lines().find_map(|line| mount_point(line, "cgroup2", None));
        let group = |is_it: fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                is_it(controllers).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let has_cpu = |controllers: &str| controllers.split(',').any(|it| it == "cpu");
        if let Some(point) = first {
            return Some(Self::First(point.join(group(has_cpu)?)));
        }
        Some(Self::Unified(unified()?.join(group(str::is_empty)?)))
    }
}

/// Where a file system of this type, with this option, is mounted.
fn mount_point(line: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let (before, behind) = line.split_once(" - ")?;
    let mut behind = behind.split_whitespace();
    let (found, _source, options) = (behind.next()?, behind.next()?, behind.next()?);
    let has = |wanted: &str| options.split(',').any(|it| it == wanted);
    (found == kind && option.is_none_or(has))
        .then(|| before.split_whitespace().nth(4).map(PathBuf::from))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
34 30 0:30 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset
35 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
";
    const UNIFIED: &str =
        "31 30 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_controller_is_found_in_both_versions() {
        let groups = "9:cpuset:/\n4:cpu,cpuacct:/user.slice\n0::/user.slice/s1.scope\n";
        let found = ControllerPlace::find(HYBRID, groups).unwrap();
        let first = "/sys/fs/cgroup/cpu,cpuacct/user.slice";
        assert_eq!(found, ControllerPlace::First(first.into()));
        let found = ControllerPlace::find(UNIFIED, "0::/user.slice/s1.scope\n").unwrap();
        let unified = "/sys/fs/cgroup/user.slice/s1.scope";
        assert_eq!(found, ControllerPlace::Unified(unified.into()));
        assert_eq!(ControllerPlace::find("", groups), None);
        assert_eq!(ControllerPlace::find(UNIFIED, ""), None);
    }

    /// Version 2 with an ordinary folder in its place: what is written where (cgroup-v2).
    #[test]
    fn a_group_of_version_2_has_a_share_of_the_period() {
        let parent = std::env::temp_dir().join(format!("lab-quota-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let place = ControllerPlace::Unified(parent.clone());
        let why = Quota::at(&place, 30).unwrap_err();
        assert!(why.contains("no controller of processors"), "{why}");
        fs::write(parent.join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        let quota = Quota::at(&place, 30).unwrap();
        quota.hold(4711).unwrap();
        let read = |name: &str| fs::read_to_string(quota.folder.join(name)).unwrap();
        assert_eq!(
            (read("cpu.max"), read("cgroup.type")),
            ("30000 100000".into(), "threaded".into())
        );
        assert_eq!(read("cgroup.threads"), "4711");
        assert_eq!(fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap(), "+cpu");
        fs::write(quota.folder.join("cpu.stat"), "nr_periods 9\nnr_throttled 7\n").unwrap();
        assert_eq!(quota.throttled(), Some(7));
        fs::remove_dir_all(&parent).unwrap();
    }

    /// A group of version 2 in an ordinary folder, where the kernel's files are ordinary ones, which
    /// would keep it from being removed.
    fn drop_ordinary(quota: Quota) {
        for entry in fs::read_dir(&quota.folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        drop(quota);
    }

    #[test]
    fn the_last_group_disables_the_controller_that_the_first_enabled() {
        let parent = std::env::temp_dir().join(format!("lab-quota-last-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let control = parent.join("cgroup.subtree_control");
        fs::write(parent.join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        fs::write(&control, "io\n").unwrap();
        let place = ControllerPlace::Unified(parent.clone());
        let read = || fs::read_to_string(&control).unwrap();
        let first = Quota::at(&place, 30).unwrap();
        assert_eq!(read(), "+cpu");
        // What the kernel shows then.
        fs::write(&control, "cpu io\n").unwrap();
        let second = Quota::at(&place, 30).unwrap();
        drop_ordinary(first);
        assert_eq!(read(), "cpu io\n", "the other group would lose its quota");
        drop_ordinary(second);
        assert_eq!(read(), "-cpu");
        // What somebody else has enabled stays.
        fs::write(&control, "cpu io\n").unwrap();
        drop_ordinary(Quota::at(&place, 30).unwrap());
        assert_eq!(read(), "cpu io\n");
        fs::remove_dir_all(&parent).unwrap();
    }
}

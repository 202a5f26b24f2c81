//! Disks: where the store of a description is, or this machine's state.

use super::SystemCheck;
use gatewright_config::Config;
use nix::sys::statvfs::{FsFlags, statvfs};
use std::{
    fs,
    path::{Path, PathBuf},
};

const MIB: u64 = 1 << 20;
/// Free octets below which a store without a maximum is short, in MiB.
const FREE_MIB: u64 = 256;
/// Where the service stores.
const STATE: &str = "/var/lib";
/// File systems that are in memory: what is stored there is gone at the next boot.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// What a store of the description may take beside its maximum, in MiB: the log of its changes.
const BESIDE_MIB: u64 = 64;
/// Default maximum of the audit log, in MiB.
const AUDIT_MIB: u64 = 256;

/// The state of the disks.
pub(super) fn checks(config: Option<&Config>) -> Vec<SystemCheck> {
    let cse = config.and_then(|config| config.cse.as_ref());
    let Some(cse) = cse else { return vec![check(Path::new(STATE), false, None)] };
    let Some(store) = &cse.store else {
        let found = "the service entity is in memory";
        let advice = "readings are gone at the next start: give `[cse] store`";
        return vec![SystemCheck::good("disk", "store", found).lacking(false, advice)];
    };
    let audit = if cse.audit { cse.audit_mib.map_or(AUDIT_MIB, u64::from) } else { 0 };
    let wanted = cse.store_mib.map(|mib| u64::from(mib) + audit + BESIDE_MIB);
    let path = Path::new(store);
    let has = fs::metadata(path).map_or(0, |file| file.len() / MIB);
    vec![check(path.parent().unwrap_or(path), true, wanted.map(|mib| mib.saturating_sub(has)))]
}

/// The disk of `folder`, on which a store is if it `has_store`, and where `wanted` MiB are to fit.
fn check(folder: &Path, has_store: bool, wanted: Option<u64>) -> SystemCheck {
    let name = folder.display().to_string();
    let there = existing(folder);
    let Ok(disk) = statvfs(&there) else {
        let check = SystemCheck::good("disk", name, "cannot be looked at");
        return check.lacking(false, "give this user the right to read the folder");
    };
    #[allow(clippy::useless_conversion, reason = "they are narrower on machines of 32 bits")]
    let (blocks, size) = (u64::from(disk.blocks_available()), u64::from(disk.fragment_size()));
    let free = blocks.saturating_mul(size) / MIB;
    let kind = kind_of(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), &there);
    if disk.flags().contains(FsFlags::ST_RDONLY) {
        let check = SystemCheck::good("disk", name, format!("read-only, {kind}"));
        let advice = "mount it for writing, or store elsewhere; a service needs the folder among its \
                      `ReadWritePaths=`";
        return check.lacking(has_store, advice);
    }
    let check = SystemCheck::good("disk", name, format!("{free} MiB free, {kind}"));
    if IN_MEMORY.contains(&kind.as_str()) {
        return check.lacking(
            wanted.is_some(),
            "it is in memory and gone at the next boot: store elsewhere",
        );
    }
    match wanted {
        Some(wanted) if free < wanted => {
            let advice =
                format!("the store may take {wanted} MiB more: make room, or lower `store_mib`");
            check.lacking(true, advice)
        }
        None if free < FREE_MIB => {
            check.lacking(false, "make room, or bound a store by `store_mib`")
        }
        _ => check,
    }
}

/// The folder, or the nearest above it that exists.
fn existing(folder: &Path) -> PathBuf {
    let mut above = folder.ancestors().filter(|folder| folder.is_dir());
    above.next().unwrap_or(Path::new("/")).to_owned()
}

/// The type of the file system that has `path`, by the longest mount point above it (proc(5),
/// mountinfo).
fn kind_of(mounts: &str, path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mount = |line: &str| {
        let point = PathBuf::from(line.split(' ').nth(4)?);
        let kind = line.split(" - ").nth(1)?.split(' ').next()?.to_owned();
        path.starts_with(&point).then(|| (point.components().count(), kind))
    };
    let found = mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth);
    found.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState;

    /// The example of proc(5), with a file system in memory below it.
    #[test]
    fn the_nearest_mount_point_says_what_a_path_is_on() {
        let mounts = "36 35 98:0 / / rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                      37 36 0:31 / /nowhere rw - tmpfs tmpfs rw\n";
        assert_eq!(kind_of(mounts, Path::new("/nowhere/else")), "tmpfs");
        assert_eq!(kind_of(mounts, Path::new("/elsewhere")), "ext3");
        assert_eq!(kind_of("", Path::new("/")), "unknown");
    }

    #[test]
    fn a_store_larger_than_the_disk_is_told() {
        let here = std::env::temp_dir().join("gw-no-such-folder/deeper");
        let short = check(&here, true, Some(u64::MAX / MIB));
        assert_eq!(short.state, CheckState::Missing, "{short:?}");
        assert!(short.advice.is_some());
    }
}

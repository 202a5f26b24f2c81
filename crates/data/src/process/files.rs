//! Files that the data plane may open: it gives up all others before its first thread starts
//! (Landlock, Linux 5.13).
#![expect(unsafe_code, reason = "Landlock has no safe wrapper")]

use crate::setup::{DataSetup, DeviceSetup};
use gatewright_link::CaptureConfig;
use nix::sys::prctl;
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

/// Rights to files (`LANDLOCK_ACCESS_FS_…` of `linux/landlock.h`).
mod right {
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const REMOVE_FILE: u64 = 1 << 5;
    pub(super) const MAKE_REG: u64 = 1 << 8;
    /// All rights of the first version.
    pub(super) const FIRST: u64 = (1 << 13) - 1;
    /// Move between folders, since version 2.
    pub(super) const REFER: u64 = 1 << 13;
    /// Since version 3.
    pub(super) const TRUNCATE: u64 = 1 << 14;
    /// Control a device, since version 5.
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
}

/// What links ask the kernel for: interfaces, queues, whether its stack is silent.
const ASKED: [&str; 2] = ["/proc", "/sys"];

/// The device of TAP and TUN links.
const TUN: &str = "/dev/net/tun";

/// `struct landlock_ruleset_attr`, as the first version has it: later ones read zeros behind it.
#[repr(C)]
struct Ruleset {
    handled: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: u32 = 1;

/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: u32 = 1;

/// The files that this process may open.
#[derive(Debug)]
pub(super) enum FileAccess {
    /// Those of the kernel's that links need, and those in the folders of capture files.
    Limited(BTreeSet<PathBuf>),
    /// Those that its user may open, for this reason.
    All(String),
}

impl FileAccess {
    /// Gives up all files but those that `setup` needs, for this thread and all that it starts, and
    /// for ever.
    ///
    /// # Errors
    ///
    /// If the kernel has Landlock and refuses it.
    pub(super) fn limit(setup: &DataSetup) -> io::Result<Self> {
        let Some(version) = landlock_version() else {
            return Ok(Self::All("the kernel has no Landlock, or it is off".to_owned()));
        };
        prctl::set_no_new_privs()?;
        let handled = known(version);
        let rules = create(&Ruleset { handled })?;
        let allow = |path: &Path, rights: u64| add(&rules, path, rights & handled);
        for path in ASKED {
            allow(Path::new(path), right::READ_FILE | right::READ_DIR)?;
        }
        allow(Path::new(TUN), right::READ_FILE | right::WRITE_FILE | right::IOCTL_DEV)?;
        let mut folders = BTreeSet::new();
        for (folder, rights) in setup.links.iter().flat_map(|link| capture_folders(&link.device)) {
            allow(&folder, rights)?;
            folders.insert(folder);
        }
        // SAFETY: it takes a descriptor and a number.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self::Limited(folders)) }
    }

    /// Why all files may be opened, if they may.
    pub(super) fn unlimited(&self) -> Option<String> {
        match self {
            Self::Limited(_) => None,
            Self::All(why) => Some(why.clone()),
        }
    }

    /// Why a link's device cannot be opened, if one of its files may not.
    pub(super) fn refuses(&self, device: &DeviceSetup) -> Option<String> {
        if matches!(device, DeviceSetup::Dpdk(_)) {
            return Some("the data plane's process opens no ports of DPDK".to_owned());
        }
        let Self::Limited(folders) = self else { return None };
        let other = capture_folders(device).find(|(folder, _)| !folders.contains(folder))?;
        let folder = other.0.display();
        Some(format!(
            "the data plane's process opens no files in {folder}, as no link had a capture file \
             there when it started; start the gateway anew"
        ))
    }
}

/// The folders of a link's capture files, with the rights that the link needs there.
fn capture_folders(device: &DeviceSetup) -> impl Iterator<Item = (PathBuf, u64)> {
    let files = match device {
        DeviceSetup::Capture(CaptureConfig { read, write, .. }) => [read.clone(), write.clone()],
        _ => [None, None],
    };
    let written = right::READ_FILE
        | right::WRITE_FILE
        | right::REMOVE_FILE
        | right::MAKE_REG
        | right::TRUNCATE;
    files.into_iter().zip([right::READ_FILE, written]).filter_map(|(file, rights)| {
        let file = file?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some((folder.unwrap_or(Path::new(".")).to_owned(), rights))
    })
}

/// The kernel's version of Landlock, if it has one.
pub fn landlock_version() -> Option<u64> {
    // SAFETY: with this flag it reads no memory and returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0, VERSION)
    };
    u64::try_from(version).ok().filter(|version| *version > 0)
}

/// The rights that a version knows, all of which are given up.
const fn known(version: u64) -> u64 {
    let mut rights = right::FIRST;
    if version >= 2 {
        rights |= right::REFER;
    }
    if version >= 3 {
        rights |= right::TRUNCATE;
    }
    if version >= 5 {
        rights |= right::IOCTL_DEV;
    }
    rights
}

fn create(ruleset: &Ruleset) -> io::Result<OwnedFd> {
    // SAFETY: it reads as many octets as it is told, which are there.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(ruleset),
            size_of::<Ruleset>(),
            0,
        )
    };
    let Some(descriptor) = RawFd::try_from(descriptor).ok().filter(|number| *number >= 0) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Allows rights beneath a path. One that is not there has nothing that could be opened.
fn add(rules: &OwnedFd, path: &Path, allowed: u64) -> io::Result<()> {
    let opened = File::options().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path);
    let Ok(parent) = opened else { return Ok(()) };
    let rule = PathBeneath { allowed, parent: parent.as_raw_fd() };
    // SAFETY: it reads a rule of this type, which is there, and keeps nothing of our memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            PATH_BENEATH,
            std::ptr::from_ref(&rule),
            0,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

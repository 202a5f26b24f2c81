//! Room kept on the disk for deletions and the audit log.
//!
//! A file beside the database holds blocks. When the disk is full, the file is deleted: what only
//! deletes is stored in its room, and everything else is refused before it is written. The file is
//! allocated again as soon as there is two and a half times its size on the disk and inside the database
//! together.

use crate::error::StoreError;
use crate::lock::open_own;
use crate::sqlite::beside;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::fsblkcnt_t;
use nix::sys::statvfs::{Statvfs, statvfs};
use rusqlite::ErrorCode;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Part of a file system below which its room is short, unless the reserve needs more.
const SHORT_PART: u64 = 20;
/// Reserves that a file system holds at least; a smaller one has none.
const RESERVES_MIN: u64 = 5;
/// Octets below which the room of a large file system is short.
const SHORT_OCTETS: u64 = 1024 * 1024 * 1024;
/// Octets below which a disk is full: what a short write-ahead log needs.
const FULL_OCTETS: u64 = 1024 * 1024;
/// Octets of a block in the numbers of stat(2), whatever the file system's blocks.
const BLOCK_OCTETS: u64 = 512;
/// Interval of looking at the disk while there is room.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Interval of looking at the disk while there is none.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// Free space of the disk, and the reserve.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DiskSpace {
    /// Octets of the file system that may be written, if known.
    pub free: Option<u64>,
    /// Octets of the reserve, while it is held.
    pub reserve: u64,
    /// Octets below which the room will soon be used up: a twentieth of the file system or 1 GiB,
    /// and at least twice the reserve.
    pub low: u64,
    /// Whether less than that is free.
    pub is_low: bool,
    /// Whether only deletions and the audit log are stored.
    pub is_short: bool,
    /// Octets that the rows may still take up, if they have a limit.
    pub rows_free: Option<u64>,
    /// Octets below which the rows' limit will soon be reached: a twentieth of it, and at least
    /// 128 KiB.
    pub rows_low: u64,
}

/// The reserve of a database.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    octets: u64,
    looked: Instant,
    disk_space: DiskSpace,
}

impl Reserve {
    /// Reserves room beside the database at `path`, which has `unused` octets free inside; without
    /// room for it, and on a file system smaller than five of it, there is none.
    pub(crate) fn new(path: &Path, octets: u64, unused: u64) -> Self {
        let path = beside(path, ".reserve");
        let octets = fitting(&path, octets);
        let mut reserve =
            Self { path, octets, looked: Instant::now(), disk_space: DiskSpace::default() };
        // What a killed process has let go is taken again if there is room for it.
        reserve.take();
        reserve.look();
        let is_full = reserve.disk_space.free.is_some_and(|free| free < FULL_OCTETS);
        // A write that needs room would use what deletions need.
        reserve.disk_space.is_short =
            octets > 0 && reserve.disk_space.reserve == 0 && is_full && !reserve.is_enough(unused);
        reserve
    }

    pub(crate) const fn disk_space(&self) -> DiskSpace {
        self.disk_space
    }

    /// Time until the next look at the disk.
    pub(crate) fn due(&self) -> Duration {
        let every = if self.disk_space.is_short { LOOK_SOON } else { LOOK_EVERY };
        every.saturating_sub(self.looked.elapsed())
    }

    /// Looks at the disk if that is due; `unused` are octets of the database that are free inside it.
    pub(crate) fn pursue(&mut self, unused: u64) {
        if !self.due().is_zero() {
            return;
        }
        self.look();
        let free = self.disk_space.free.unwrap_or(u64::MAX);
        let beside = free >= self.octets.saturating_add(FULL_OCTETS);
        if self.disk_space.reserve == 0 && beside && self.is_enough(unused) {
            self.take();
            self.look();
        }
        if self.disk_space.is_short && free >= FULL_OCTETS {
            // Deletions leave their room within the database.
            self.disk_space.is_short =
                self.disk_space.reserve < self.octets && !self.is_enough(unused);
        }
    }

    /// Whether creations may go on, with `unused` octets free inside the database: two and a
    /// half times the reserve is free on the disk and inside together, or the reserve inside alone.
    fn is_enough(&self, unused: u64) -> bool {
        let free = self.disk_space.free.unwrap_or(u64::MAX);
        free.saturating_add(unused) >= self.octets.saturating_mul(5) / 2 || unused >= self.octets
    }

    /// Whether a write has failed because of the disk and not because of a limit of ours.
    pub(crate) fn is_disk_full(&mut self) -> bool {
        self.look();
        let needed = self.octets.saturating_add(self.octets.max(FULL_OCTETS));
        self.disk_space.free.is_none_or(|free| free < needed.saturating_add(FULL_OCTETS))
    }

    /// Lets the room go: from now on only what deletes is to be written.
    pub(crate) fn let_go(&mut self) {
        // Whether it is gone tells the next write.
        let _ = std::fs::remove_file(&self.path);
        self.disk_space.reserve = 0;
        self.disk_space.is_short = true;
    }

    fn take(&mut self) {
        if self.octets == 0 {
            return;
        }
        let is_held = allocate(&self.path, self.octets).is_ok();
        if !is_held {
            // Half a reserve takes room from all others.
            let _ = std::fs::remove_file(&self.path);
        }
        self.disk_space.reserve = if is_held { self.octets } else { 0 };
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        let seen = seen(&self.path);
        self.disk_space.free = seen.as_ref().map(|seen| octets(seen, seen.blocks_available()));
        let total = seen.as_ref().map(|seen| octets(seen, seen.blocks()));
        let short = (total.unwrap_or_default() / SHORT_PART).min(SHORT_OCTETS);
        let short = short.max(self.octets.saturating_mul(2));
        self.disk_space.low = short;
        self.disk_space.is_low = self.disk_space.free.is_some_and(|free| free < short);
    }
}

/// Octets of the reserve that the file system of `path` may have: on a disk as small as a few reserves,
/// there would never be room for anything else again.
fn fitting(path: &Path, octets: u64) -> u64 {
    let total = seen(path).map_or(u64::MAX, |seen| self::octets(&seen, seen.blocks()));
    if total / RESERVES_MIN < octets { 0 } else { octets }
}

/// Checks that a database that is to be created at `path` has room for itself and its reserve: without
/// that it would take deletions only, and there is nothing to delete.
///
/// # Errors
///
/// [`StoreError::NoRoom`] if it has not.
pub(crate) fn check_room_for_new(path: &Path, reserve_octets: u64) -> Result<(), StoreError> {
    let octets = fitting(path, reserve_octets);
    if octets == 0 {
        return Ok(());
    }
    // A reserve of an earlier database is taken over.
    let reserved = beside(path, ".reserve").metadata().map_or(0, |file| file.blocks());
    let needed = octets.saturating_add(FULL_OCTETS);
    let needed = needed.saturating_sub(reserved.saturating_mul(BLOCK_OCTETS));
    refuse_without(path, needed)
}

/// Names the cause of a failure to open the database at `path` where it is a full disk; for its index
/// of the write-ahead log SQLite says only that a write failed.
pub(crate) fn or_no_room(path: &Path, error: StoreError) -> StoreError {
    let is_of_disk = match &error {
        StoreError::Database(source) => matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        ),
        StoreError::File { source, .. } | StoreError::Lock { source, .. } => {
            source.kind() == io::ErrorKind::StorageFull
        }
        _ => false,
    };
    let found = is_of_disk.then(|| refuse_without(path, FULL_OCTETS));
    found.and_then(Result::err).unwrap_or(error)
}

fn refuse_without(path: &Path, needed: u64) -> Result<(), StoreError> {
    let free = seen(path).map(|seen| octets(&seen, seen.blocks_available()));
    match free {
        Some(free) if free < needed => {
            Err(StoreError::NoRoom { path: path.to_owned(), needed, free })
        }
        _ => Ok(()),
    }
}

/// The file system that a file is on.
fn seen(path: &Path) -> Option<Statvfs> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    statvfs(folder.unwrap_or_else(|| Path::new("."))).ok()
}

/// The octets of a number of blocks.
#[allow(clippy::useless_conversion, reason = "the numbers are narrower on 32-bit systems")]
fn octets(seen: &Statvfs, blocks: fsblkcnt_t) -> u64 {
    u64::from(blocks).saturating_mul(u64::from(seen.fragment_size()))
}

/// Allocates blocks beyond the end of a database file whose commits need `needed` octets of it once
/// they are moved there from the write-ahead log, and `lead` more.
///
/// # Errors
///
/// If there is no room. A file system that cannot allocate is let be.
pub(crate) fn allocate_beyond(file: &File, needed: u64, lead: u64) -> io::Result<()> {
    let seen = file.metadata()?;
    let end = seen.len();
    if seen.blocks().saturating_mul(BLOCK_OCTETS) >= needed || needed <= end {
        return Ok(());
    }
    let to_length = |octets: u64| i64::try_from(octets).unwrap_or(i64::MAX);
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let octets = (needed - end).saturating_add(lead);
    match fallocate(file, keep, to_length(end), to_length(octets)) {
        Err(Errno::ENOSPC | Errno::EDQUOT) => Err(io::Error::from(io::ErrorKind::StorageFull)),
        _ => Ok(()),
    }
}

/// Allocates the blocks of a file.
fn allocate(path: &Path, octets: u64) -> io::Result<()> {
    let file = open_own(path)?;
    file.set_len(octets)?;
    let length = i64::try_from(octets).unwrap_or(i64::MAX);
    fallocate(&file, FallocateFlags::empty(), 0, length)?;
    file.sync_all()
}

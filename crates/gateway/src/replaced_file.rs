//! Files that take the place of an earlier one only when they are whole.

use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Permissions of a file that only its owner reads.
const OWNER_ONLY: u32 = 0o600;

/// How often the file beside is opened if other writers move it away meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// A file that is written beside its place, as `NAME.part`, and takes the place when it is whole.
///
/// After a loss of power there is either the earlier file or this one, wholly. It is removed if it is
/// dropped before [`place`](Self::place). What a killed writer left is written over.
#[derive(Debug)]
pub struct ReplacedFile {
    path: PathBuf,
    /// Where it is written; the path itself if that is no regular file, as `/dev/stdout`.
    part: PathBuf,
    file: File,
}

impl ReplacedFile {
    /// Begins a file whose permissions are those of any new file.
    ///
    /// # Errors
    ///
    /// The system's error; [`ErrorKind::ResourceBusy`] while another process writes it.
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(Self { path: path.to_owned(), part: path.to_owned(), file });
        }
        Self::begin(path, path.with_added_extension("part"), None)
    }

    /// Replaces `path` by a file of `text` that only its owner reads.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); the earlier file is as it was then.
    pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
        Self::write_private_by(path, path.with_added_extension("part"), text)
    }

    /// The same, written in the file `part` of the same folder.
    pub(crate) fn write_private_by(path: &Path, part: PathBuf, text: &str) -> io::Result<()> {
        let replaced = Self::begin(path, part, Some(OWNER_ONLY))?;
        (&replaced.file).write_all(text.as_bytes())?;
        replaced.place()
    }

    fn begin(path: &Path, part: PathBuf, mode: Option<u32>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.mode(mode.unwrap_or(0o666));
        // Who can write to the folder could otherwise have another file written over.
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
        for _ in 0..ATTEMPTS_MAX {
            let file = options.open(&part)?;
            // Released when the file is closed, however the process ends.
            file.try_lock().map_err(|_| {
                io::Error::new(ErrorKind::ResourceBusy, "another process writes this file")
            })?;
            if !is_still(&file, &part)? {
                continue;
            }
            file.set_len(0)?;
            if let Some(mode) = mode {
                file.set_permissions(Permissions::from_mode(mode))?;
            }
            return Ok(Self { path: path.to_owned(), part, file });
        }
        Err(io::Error::new(ErrorKind::ResourceBusy, "other processes write this file"))
    }

    /// The file, to write to.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Writes the file to the disk and puts it into its place.
    ///
    /// # Errors
    ///
    /// The system's error; unless it is that of the folder, the earlier file is as it was.
    pub fn place(self) -> io::Result<()> {
        if self.part == self.path {
            return Ok(());
        }
        self.file.sync_all()?;
        fs::rename(&self.part, &self.path)?;
        sync_folder(&self.path)
    }
}

impl Drop for ReplacedFile {
    fn drop(&mut self) {
        // Once it is in its place, the name may be another writer's.
        if self.part != self.path && is_still(&self.file, &self.part).unwrap_or(false) {
            let _gone = fs::remove_file(&self.part);
        }
    }
}

/// Whether `path` is the name of `file`: another writer may have moved it between open and lock.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(named) => {
            let opened = file.metadata()?;
            Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Synchronises the folder of `path`, so that its new name survives a loss of power.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match File::open(folder.unwrap_or_else(|| Path::new("."))).and_then(|it| it.sync_all()) {
        // Folders in which one may write but not list, and file systems that synchronise no folder.
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                || error.raw_os_error() == Some(Errno::EINVAL as i32) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("gw-replaced-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_earlier_file_stays_until_the_new_one_is_whole() {
        let folder = folder("whole");
        let path = folder.join("a");
        fs::write(&path, "earlier").unwrap();
        let dropped = ReplacedFile::create(&path).unwrap();
        dropped.file().write_all(b"ha").unwrap();
        assert_eq!(fs::read_to_string(folder.join("a.part")).unwrap(), "ha");
        drop(dropped);
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the part is removed");

        let placed = ReplacedFile::create(&path).unwrap();
        placed.file().write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        placed.place().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_written_over_and_becomes_private() {
        let folder = folder("left");
        let (path, part) = (folder.join("a"), folder.join("a.part"));
        fs::write(&part, "longer than the next").unwrap();
        fs::set_permissions(&part, Permissions::from_mode(0o644)).unwrap();
        ReplacedFile::write_private(&path, "next").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "next");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert!(!part.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_writers_do_not_mix() {
        let folder = folder("two");
        let path = folder.join("a");
        let first = ReplacedFile::create(&path).unwrap();
        let second = ReplacedFile::write_private(&path, "second").unwrap_err();
        assert_eq!(second.kind(), ErrorKind::ResourceBusy);
        first.file().write_all(b"first").unwrap();
        first.place().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_beside_is_not_followed_and_a_device_is_written_in_place() {
        let folder = folder("link");
        let (path, victim) = (folder.join("a"), folder.join("victim"));
        fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("a.part")).unwrap();
        assert!(ReplacedFile::create(&path).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        let device = ReplacedFile::create(Path::new("/dev/null")).unwrap();
        device.file().write_all(b"gone").unwrap();
        device.place().unwrap();
        assert!(!Path::new("/dev/null.part").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}

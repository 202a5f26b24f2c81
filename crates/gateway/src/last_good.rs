//! The last good description: a copy of the text in force, which a start takes whose own description
//! is refused; and the descriptions that were taken before.

mod history;

pub use history::DescriptionCause;
pub(crate) use history::{DescriptionHistory, HistoryEntry};

use crate::replaced_file::ReplacedFile;
use gatewright_part::open_file;
use std::{
    fs, io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// The copy of a gateway's description, and whether it runs from it.
#[derive(Debug, Default)]
pub(crate) struct LastGood {
    /// The copy's file, if one is kept.
    path: Option<PathBuf>,
    /// Why the gateway runs from it.
    fallback: Mutex<Option<String>>,
    /// The number of the kept description in force.
    in_force: Mutex<Option<u64>>,
}

impl LastGood {
    /// The copy at `path`; with `fallback`, the gateway runs from it for this reason.
    pub(crate) const fn new(path: Option<PathBuf>, fallback: Option<String>) -> Self {
        Self { path, fallback: Mutex::new(fallback), in_force: Mutex::new(None) }
    }

    /// Why the gateway runs from the copy, if it does.
    pub(crate) fn fallback(&self) -> Option<String> {
        lock(&self.fallback).clone()
    }

    /// Notes that the gateway runs from another description now; with `of_file` it is that of its
    /// own file, and until then the file's counts as refused.
    pub(crate) fn replaced(&self, of_file: bool) {
        *lock(&self.in_force) = None;
        if of_file {
            *lock(&self.fallback) = None;
        }
    }

    /// The kept descriptions, if any are kept.
    pub(crate) fn history(&self) -> Option<DescriptionHistory> {
        self.path.as_deref().map(DescriptionHistory::beside)
    }

    /// The number of the kept description in force, if it is known.
    pub(crate) fn in_force(&self) -> Option<u64> {
        *lock(&self.in_force)
    }

    /// Replaces the copy by `text`, at once and wholly, and keeps it with its time and cause.
    ///
    /// # Errors
    ///
    /// The system's error; what could not be written is as before then.
    pub(crate) fn keep(
        &self,
        text: &str,
        cause: DescriptionCause,
        now: SystemTime,
    ) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // A pipe would hold the gateway until somebody reads it.
        if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
            return Err(io::Error::other("it is not a regular file"));
        }
        if !open_file(path).and_then(io::read_to_string).is_ok_and(|kept| kept == text) {
            ReplacedFile::write_private(path, text)?;
        }
        let number = DescriptionHistory::beside(path).keep(text, cause, now)?;
        *lock(&self.in_force) = Some(number);
        Ok(())
    }
}

/// A poisoned lock is safe here: the value is always whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_copy_is_replaced_wholly_and_is_its_owners() {
        let folder = std::env::temp_dir().join(format!("gw-last-good-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("last-good.toml");
        let kept = LastGood::new(Some(path.clone()), Some("why".to_owned()));
        let keep =
            |kept: &LastGood, text| kept.keep(text, DescriptionCause::Reload, SystemTime::now());
        keep(&kept, "first").unwrap();
        keep(&kept, "second").unwrap();
        assert_eq!(kept.in_force(), Some(2));
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the copy and the history");
        assert_eq!(kept.fallback().as_deref(), Some("why"));
        kept.replaced(false);
        assert_eq!((kept.fallback().as_deref(), kept.in_force()), (Some("why"), None));
        kept.replaced(true);
        assert_eq!((kept.fallback(), kept.in_force()), (None, None));
        // What cannot be replaced leaves nothing beside it.
        let place = LastGood::new(Some(folder.join("a folder")), None);
        fs::create_dir_all(folder.join("a folder")).unwrap();
        assert_eq!(keep(&place, "text").unwrap_err().to_string(), "it is not a regular file");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(&folder).unwrap();
        assert!(keep(&kept, "third").is_err(), "the folder is gone");
        assert!(keep(&LastGood::default(), "none is kept").is_ok());
    }
}

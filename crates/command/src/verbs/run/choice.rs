//! Which description `run` takes: the file's, or the last good one if that is refused.

use crate::{
    description::{Description, read},
    exit::Failure,
    face::Face,
};
use gatewright_diagnostic::{SourceId, Sources};
use std::path::Path;

/// A description to run.
pub(super) struct Choice {
    pub(super) read: Description,
    /// Why it is the last good one, and not the file's.
    pub(super) fallback: Option<String>,
}

impl Choice {
    /// The description at `file`, or the last good one if it is refused; its findings are shown. `None`
    /// if neither can be run.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the file cannot be read and there is no last good description.
    pub(super) fn of(
        file: &str,
        last_good: Option<&Path>,
        face: Face,
    ) -> Result<Option<Self>, Failure> {
        let (why, failure) = match Description::load(face.program(), file) {
            Ok(read) => {
                face.findings(&read.findings, &read.sources);
                if read.config.is_some() {
                    return Ok(Some(Self { read, fallback: None }));
                }
                (read.first_error(), None)
            }
            Err(failure) => (failure.message.clone(), Some(failure)),
        };
        match (Self::last_good(file, last_good, why, face), failure) {
            (None, Some(failure)) => Err(failure),
            (choice, _) => Ok(choice),
        }
    }

    /// The last good description, in place of one of `file` that does not start because of `why`.
    pub(super) fn last_good(
        file: &str,
        last_good: Option<&Path>,
        why: String,
        face: Face,
    ) -> Option<Self> {
        let path = last_good?.to_string_lossy();
        // Without one there is none, as at the first start.
        let text = read(&path).ok()?;
        let read = Description::of(face.program(), file, Sources::of(path.as_ref(), text)).ok()?;
        if read.config.is_none() {
            face.findings(&read.findings, &read.sources);
            return None;
        }
        face.note(&format!("{file} is refused: the last good description runs, {path}"));
        Some(Self { read, fallback: Some(why) })
    }

    /// The text of the description.
    pub(super) fn text(&self) -> &str {
        self.read.sources.get(SourceId::default()).text()
    }
}

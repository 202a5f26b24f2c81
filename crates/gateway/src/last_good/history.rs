//! The descriptions that a gateway has taken: a file each, whose name has number, time and cause.

use crate::replaced_file::ReplacedFile;
use gatewright_part::open_file;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Maximum descriptions that are kept.
const KEPT_MAX: usize = 20;

/// Maximum octets of all of them; the newest is kept in any case.
const OCTETS_MAX: u64 = 64 * 1024 * 1024;

/// Maximum files of the folder that are looked at.
const FILES_MAX: usize = 4096;

/// Why a description was taken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DescriptionCause {
    /// The gateway started with it.
    Start,
    /// A reload.
    Reload,
    /// A return to a kept one.
    RollBack,
}

impl DescriptionCause {
    const ALL: [Self; 3] = [Self::Start, Self::Reload, Self::RollBack];

    /// Its name: `start`, `reload`, `roll-back`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::RollBack => "roll-back",
        }
    }
}

/// A kept description.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HistoryEntry {
    /// Its number; later ones have larger numbers.
    pub(crate) number: u64,
    /// Seconds since 1970 at which it was taken.
    seconds: u64,
    /// Why it was taken.
    pub(crate) cause: DescriptionCause,
    /// Octets of its text.
    pub(crate) octets: u64,
}

impl HistoryEntry {
    fn file(&self) -> String {
        format!("{:06}-{}-{}.toml", self.number, self.seconds, self.cause.name())
    }

    /// The entry of a file; `None` if the name is none of ours.
    fn of(name: &str, octets: u64) -> Option<Self> {
        let (number, rest) = name.strip_suffix(".toml")?.split_once('-')?;
        let (seconds, cause) = rest.split_once('-')?;
        let cause = DescriptionCause::ALL.into_iter().find(|known| known.name() == cause)?;
        let entry =
            Self { number: number.parse().ok()?, seconds: seconds.parse().ok()?, cause, octets };
        (entry.file() == name).then_some(entry)
    }

    /// When it was taken, to the second.
    pub(crate) fn taken(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.seconds)).unwrap_or(UNIX_EPOCH)
    }
}

/// The folder of kept descriptions.
#[derive(Debug)]
pub(crate) struct DescriptionHistory(PathBuf);

impl DescriptionHistory {
    /// The folder beside the copy `last_good`.
    pub(crate) fn beside(last_good: &Path) -> Self {
        Self(last_good.with_extension("history"))
    }

    /// The kept descriptions, the oldest first.
    ///
    /// # Errors
    ///
    /// The system's error; without the folder there is none.
    pub(crate) fn entries(&self) -> io::Result<Vec<HistoryEntry>> {
        let files = match fs::read_dir(&self.0) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let entry = |file: io::Result<fs::DirEntry>| {
            let file = file.ok()?;
            HistoryEntry::of(file.file_name().to_str()?, file.metadata().ok()?.len())
        };
        let mut entries: Vec<HistoryEntry> = files.take(FILES_MAX).filter_map(entry).collect();
        entries.sort_by_key(|entry| entry.number);
        Ok(entries)
    }

    /// The text of a kept description; `None` if there is none of this number.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn text(&self, number: u64) -> io::Result<Option<String>> {
        let found = self.entries()?.into_iter().find(|entry| entry.number == number);
        let read = |path: PathBuf| open_file(&path).and_then(io::read_to_string);
        found.map(|entry| read(self.0.join(entry.file()))).transpose()
    }

    /// Keeps `text`, taken at `now`; returns its number. If the newest has the same text, it is that.
    ///
    /// # Errors
    ///
    /// The system's error; earlier ones are kept then.
    pub(crate) fn keep(
        &self,
        text: &str,
        cause: DescriptionCause,
        now: SystemTime,
    ) -> io::Result<u64> {
        let mut entries = self.entries()?;
        let newest = entries.last().copied();
        if let Some(newest) = newest
            && self.text(newest.number)?.is_some_and(|kept| kept == text)
        {
            return Ok(newest.number);
        }
        let number = newest.map_or(1, |newest| newest.number.saturating_add(1));
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let octets = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let entry = HistoryEntry { number, seconds, cause, octets };
        fs::create_dir_all(&self.0)?;
        // Always the same name beside them: what killed writers leave does not add up.
        ReplacedFile::write_private_by(&self.0.join(entry.file()), self.0.join("part"), text)?;
        entries.push(entry);
        for old in superfluous(&entries) {
            fs::remove_file(self.0.join(old.file()))?;
        }
        Ok(number)
    }
}

/// The oldest of `entries`, which are beyond the limits.
fn superfluous(entries: &[HistoryEntry]) -> &[HistoryEntry] {
    let mut octets = 0_u64;
    let is_kept = |(place, entry): &(usize, &HistoryEntry)| {
        octets = octets.saturating_add(entry.octets);
        *place == 0 || (*place < KEPT_MAX && octets <= OCTETS_MAX)
    };
    let kept = entries.iter().rev().enumerate().take_while(is_kept).count();
    entries.get(..entries.len().saturating_sub(kept)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn history(name: &str) -> DescriptionHistory {
        let name = format!("gw-history-{name}-{}", std::process::id());
        DescriptionHistory::beside(&std::env::temp_dir().join(name))
    }

    #[test]
    fn descriptions_are_kept_with_time_and_cause_and_are_their_owners() {
        let history = history("kept");
        assert_eq!(history.entries().unwrap(), []);
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(history.keep("one", DescriptionCause::Start, at(10)).unwrap(), 1);
        assert_eq!(history.keep("two", DescriptionCause::Reload, at(20)).unwrap(), 2);
        assert_eq!(history.keep("two", DescriptionCause::Start, at(30)).unwrap(), 2);
        assert_eq!(history.keep("one", DescriptionCause::RollBack, at(40)).unwrap(), 3);
        fs::write(history.0.join("0000004-1-start.toml"), "not ours").unwrap();
        fs::write(history.0.join("000004-1-crash.toml"), "not ours").unwrap();
        let entries = history.entries().unwrap();
        let told = entries.iter().map(|it| (it.number, it.taken(), it.cause.name(), it.octets));
        let expected =
            [(1, at(10), "start", 3), (2, at(20), "reload", 3), (3, at(40), "roll-back", 3)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_eq!(history.text(2).unwrap().as_deref(), Some("two"));
        assert_eq!(history.text(4).unwrap(), None);
        let mode = fs::metadata(history.0.join("000003-40-roll-back.toml")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::remove_dir_all(&history.0).unwrap();
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let history = history("many");
        for number in 1..=25 {
            let text = format!("text {number}");
            history.keep(&text, DescriptionCause::Reload, UNIX_EPOCH).unwrap();
        }
        let numbers: Vec<u64> = history.entries().unwrap().iter().map(|it| it.number).collect();
        assert_eq!(numbers, (6..=25).collect::<Vec<u64>>());
        fs::remove_dir_all(&history.0).unwrap();
    }

    #[test]
    fn the_newest_is_kept_however_long_it_is() {
        let entry = |number, octets| HistoryEntry {
            number,
            seconds: 0,
            cause: DescriptionCause::Reload,
            octets,
        };
        let entries = [entry(1, 10), entry(2, OCTETS_MAX), entry(3, 1)];
        assert_eq!(superfluous(&entries), &entries[..2]);
        let entries = [entry(1, 10), entry(2, OCTETS_MAX + 1)];
        assert_eq!(superfluous(&entries), &entries[..1]);
        assert_eq!(superfluous(&[]), &[]);
    }
}

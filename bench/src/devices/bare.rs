//! What the disk gives anybody: as many octets as the gateway has written for as many reports, at
//! its pace, appended to a file that is synchronised before anything counts as answered.

use crate::process::text;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between the beginnings of two synchronisations: the gateway's (`gatewright_store::PACE`).
const PACE: Duration = Duration::from_millis(4);

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Reports a second.
    pub(super) rate: u64,
    /// Octets that a report comes to on the disk.
    pub(super) octets: usize,
}

impl Load {
    /// How long each of the reports has waited that are made within `span`, evenly, and that are
    /// written to a file in `folder`.
    pub(super) fn run(self, folder: &Path, span: Duration) -> Result<Waits, String> {
        let path = folder.join("bare");
        let mut file = File::create(&path).map_err(text)?;
        let mut octets = Vec::new();
        let mut waited = Vec::new();
        let all = self.made_within(span)?;
        let (began, mut written) = (Instant::now(), 0);
        while written < all {
            let turn = Instant::now();
            let made = self.made_within(began.elapsed().min(span))?;
            let count = usize::try_from(made - written).map_err(text)?;
            octets.resize(count.saturating_mul(self.octets).max(1), 0x5a);
            file.write_all(&octets).map_err(text)?;
            file.sync_data().map_err(text)?;
            let now = began.elapsed();
            waited.extend((written..made).map(|at| now.saturating_sub(self.made_at(at))));
            written = made;
            sleep(PACE.saturating_sub(turn.elapsed()));
        }
        drop(file);
        fs::remove_file(path).map_err(text)?;
        waited.sort_unstable();
        Ok(Waits(waited))
    }

    /// Reports that have been made after so long.
    fn made_within(self, span: Duration) -> Result<u64, String> {
        let micros = u64::try_from(span.as_micros()).map_err(text)?;
        Ok(micros.saturating_mul(self.rate) / 1_000_000)
    }

    /// When a report is made.
    const fn made_at(self, at: u64) -> Duration {
        Duration::from_micros(at.saturating_mul(1_000_000) / self.rate)
    }
}

/// How long reports have waited, in ascending order.
#[derive(Debug)]
pub(super) struct Waits(Vec<Duration>);

impl Waits {
    /// Milliseconds within which so many of a hundred were on the disk.
    pub(super) fn percentile_ms(&self, percent: usize) -> Option<f64> {
        let at = (self.0.len() * percent).div_ceil(100).checked_sub(1)?;
        self.0.get(at).map(|waited| waited.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every report that was made has waited, and none for less than nothing.
    #[test]
    fn all_that_is_made_is_written() {
        let folder = std::env::temp_dir().join(format!("gatewright-bare-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let load = Load { rate: 1_000, octets: 100 };
        let waits = load.run(&folder, Duration::from_millis(50)).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(waits.0.len() == 50 && waits.0.is_sorted(), "{waits:?}");
        assert!(waits.percentile_ms(50) <= waits.percentile_ms(100));
        assert_eq!(Waits(Vec::new()).percentile_ms(99), None);
        assert_eq!(
            (load.made_within(load.made_at(7)), load.made_at(7)),
            (Ok(7), Duration::from_millis(7))
        );
    }
}

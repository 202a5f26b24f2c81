//! A histogram for each worker in the region, with one writer and readers in any process.

use crate::memory::Words;
use crate::routes::index;
use gatewright_histogram::{Histogram, Sample, SharedHistogram};

/// Words of a cache line: each worker has whole lines.
const LINE: usize = 16;

/// Words of the histogram of one worker.
const HISTOGRAM_WORDS: usize =
    (size_of::<SharedHistogram>() / size_of::<u32>()).next_multiple_of(LINE);

/// Words of the histograms of a number of workers.
pub(crate) fn histogram_words(workers: u32) -> Option<usize> {
    index(workers).checked_mul(HISTOGRAM_WORDS)
}

/// The histograms of all workers, to read.
#[derive(Clone, Debug)]
pub struct WorkerHistograms(Words);

impl WorkerHistograms {
    pub(crate) fn new(words: Words) -> Self {
        Self(words)
    }

    /// The histogram of a worker; `None` if the region has no such worker.
    pub(crate) fn of(&self, worker: usize) -> Option<WorkerHistogram> {
        let start = worker.checked_mul(HISTOGRAM_WORDS)?;
        self.0.part(start, HISTOGRAM_WORDS).map(WorkerHistogram)
    }

    /// The values of the first `workers` workers together.
    pub fn read(&self, workers: usize) -> Histogram {
        let mut all = Histogram::default();
        for own in (0..workers).filter_map(|worker| self.of(worker)) {
            all.merge(&own.read());
        }
        all
    }
}

/// The histogram of a worker in the region; clones are the same.
#[derive(Clone, Debug)]
pub struct WorkerHistogram(Words);

impl Default for WorkerHistogram {
    /// A histogram in this process's own memory.
    fn default() -> Self {
        Self(Words::zeroed(HISTOGRAM_WORDS))
    }
}

impl WorkerHistogram {
    /// Adds values; only the one writer may call this.
    #[inline]
    pub fn add(&self, sample: impl Into<Sample>) {
        if let Some(shared) = self.0.histogram() {
            shared.add(sample);
        }
    }

    /// The values so far.
    pub fn read(&self) -> Histogram {
        self.0.histogram().map_or_else(Histogram::default, SharedHistogram::read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn workers_write_apart_and_are_read_together() {
        let words = Words::reserved(histogram_words(3).unwrap()).unwrap();
        let all = WorkerHistograms::new(words);
        let own: Vec<_> = (0..3).map(|worker| all.of(worker).unwrap()).collect();
        assert!(all.of(3).is_none());
        own[0].add(5_u64);
        own[2].add(Sample { times: 2, ..Sample::from(1000) });
        assert_eq!((own[0].read().count(), own[1].read().count()), (1, 0));
        let read = all.read(3);
        assert_eq!((read.count(), read.sum(), read.largest()), (3, 2005, 1000));
        let alone = WorkerHistogram::default();
        alone.add(7_u64);
        assert_eq!(alone.clone().read().sum(), 7);
    }
}

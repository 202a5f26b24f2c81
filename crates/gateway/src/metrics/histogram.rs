//! Histograms as OpenMetrics text.

use super::{Label, sample, written};
use gatewright_histogram::Histogram;

/// Bounds of times: in nanoseconds, and in seconds as OpenMetrics writes them.
const TIMES: [(u64, &str); 22] = [
    (1_000, "1e-06"),
    (2_500, "2.5e-06"),
    (5_000, "5e-06"),
    (10_000, "1e-05"),
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
];

/// Bounds of sizes: each is the last value of a bucket, so the counts are exact.
const SIZES: [(u64, &str); 12] = [
    (1, "1.0"),
    (3, "3.0"),
    (7, "7.0"),
    (15, "15.0"),
    (31, "31.0"),
    (63, "63.0"),
    (127, "127.0"),
    (255, "255.0"),
    (511, "511.0"),
    (1_023, "1023.0"),
    (2_047, "2047.0"),
    (4_095, "4095.0"),
];

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Writes the samples of a histogram of nanoseconds, in seconds.
pub(super) fn times(out: &mut String, family: &str, labels: &[Label<'_>], of: &Histogram) {
    let sum = format!("{}.{:09}", of.sum() / SECOND, of.sum() % SECOND);
    samples(out, family, labels, of, &TIMES);
    sample(out, family, "_sum", &written(labels), sum);
}

/// Writes the samples of a histogram of numbers.
pub(super) fn sizes(out: &mut String, family: &str, labels: &[Label<'_>], of: &Histogram) {
    samples(out, family, labels, of, &SIZES);
    sample(out, family, "_sum", &written(labels), format!("{}.0", of.sum()));
}

fn samples(
    out: &mut String,
    family: &str,
    labels: &[Label<'_>],
    of: &Histogram,
    bounds: &[(u64, &str)],
) {
    let mut bucket = |bound, within| {
        let labels = [labels, &[("le", bound)]].concat();
        sample(out, family, "_bucket", &written(&labels), within);
    };
    for (bound, text) in bounds {
        bucket(text, of.within(*bound));
    }
    bucket("+Inf", of.count());
    sample(out, family, "_count", &written(labels), of.count());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_the_bounds() {
        for (nanoseconds, seconds) in TIMES {
            let seconds: f64 = seconds.parse().unwrap();
            assert_eq!(format!("{:.0}", seconds * 1e9), nanoseconds.to_string());
        }
        for (size, text) in SIZES {
            assert_eq!(format!("{size}.0"), text);
        }
        for bounds in [TIMES.as_slice(), &SIZES] {
            assert!(bounds.is_sorted());
        }
    }
}

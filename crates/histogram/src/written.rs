//! The histogram in status answers: its sums, its buckets that are not empty, and two quantiles.

use crate::{
    FIRST_BUCKET, Histogram, LARGEST, OCTET_SQUARES, OCTETS, PRODUCTS, SQUARES, SUM, bucket_of,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The shape of a histogram in JSON.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Written {
    count: u64,
    sum: u64,
    largest: u64,
    /// For people and their scripts; the buckets tell more.
    p50: Option<u64>,
    p99: Option<u64>,
    value_squares: f64,
    octets: u64,
    octet_squares: f64,
    products: f64,
    /// The largest value that a bucket has room for, and its count.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            count: self.count(),
            sum: self.sum(),
            largest: self.largest(),
            p50: self.quantile(1, 2),
            p99: self.quantile(99, 100),
            value_squares: self.real(SQUARES),
            octets: self.octets(),
            octet_squares: self.real(OCTET_SQUARES),
            products: self.real(PRODUCTS),
            buckets: self.buckets().collect(),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut read = Self::default();
        for (at, word) in [
            (SUM, written.sum),
            (SQUARES, written.value_squares.to_bits()),
            (LARGEST, written.largest),
            (OCTETS, written.octets),
            (OCTET_SQUARES, written.octet_squares.to_bits()),
            (PRODUCTS, written.products.to_bits()),
        ] {
            read.set(at, word);
        }
        for (end, count) in written.buckets {
            let at = FIRST_BUCKET + bucket_of(end);
            read.set(at, read.word(at).wrapping_add(count));
        }
        Ok(read)
    }
}

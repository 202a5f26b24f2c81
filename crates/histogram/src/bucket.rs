//! The buckets: 16 for each power of two.

/// Buckets of each power of two, as a number of bits.
const SUB_BITS: u32 = 4;

/// Values from 2⁴² on share the last bucket; as nanoseconds, that is 73 minutes.
const VALUE_BITS: u32 = 42;

/// The number of buckets: values below 16 have one each, the other powers of two 16 each.
pub const BUCKETS: usize = ((VALUE_BITS - SUB_BITS + 1) << SUB_BITS) as usize;

/// The bucket of a value.
pub(crate) fn bucket_of(value: u64) -> usize {
    let power = u64::BITS - value.leading_zeros();
    let bucket = match power.checked_sub(SUB_BITS + 1) {
        None => value,
        // The leading one selects the power, the four bits behind it the bucket.
        Some(shift) => (u64::from(shift) << SUB_BITS) + (value >> shift),
    };
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The largest value of a bucket; the last one has no end.
pub(crate) fn bucket_end(bucket: usize) -> u64 {
    if bucket >= BUCKETS - 1 {
        return u64::MAX;
    }
    let bucket = bucket as u64;
    let sub = 1 << SUB_BITS;
    match (bucket >> SUB_BITS).checked_sub(1) {
        None | Some(0) => bucket,
        Some(shift) => {
            let first = (sub + (bucket & (sub - 1))) << shift;
            first + ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_ends_within_a_sixteenth() {
        let powers = (0..VALUE_BITS).flat_map(|power| {
            let value = 1_u64 << power;
            [value - 1, value, value + value / 3, value + (value - 1)]
        });
        let first_of_last = (1 << VALUE_BITS) - (1 << (VALUE_BITS - SUB_BITS - 1));
        for value in powers.filter(|value| *value < first_of_last) {
            let end = bucket_end(bucket_of(value));
            assert!(end >= value && end - value <= value / 16, "{value} in a bucket to {end}");
        }
        for value in [first_of_last, 1 << VALUE_BITS, u64::MAX] {
            assert_eq!((bucket_of(value), bucket_end(bucket_of(value))), (BUCKETS - 1, u64::MAX));
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        let mut last = 0;
        for bucket in 1..BUCKETS {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(last + 1), bucket);
            assert!(end > last);
            last = end;
        }
        assert_eq!(last, u64::MAX);
    }
}

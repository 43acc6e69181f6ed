//! Reads that say nothing new.

use std::collections::BTreeMap;

use crate::sample::{BucketId, Poll, Sample};

/// The share of capacity, in percent, from which on a level says only that the bucket is nearly full.
const NEARLY_FULL_PCT: i128 = 90;

/// A bucket must have been nearly full for this long before its reads are held back. By then its alerts
/// are resolved, which takes samples.
const FULL_FOR_US: u64 = 900_000_000;

/// Holds back single reads of buckets that have been nearly full for some time, so that they are not
/// stored one by one. The newest is kept, and stored just before the first that differs: the burn
/// that follows is then known to have begun between the two.
#[derive(Debug, Default)]
pub struct UnchangedReads {
    buckets: BTreeMap<BucketId, Full>,
}

#[derive(Debug)]
struct Full {
    /// Since when every sample has been nearly full.
    since: Sample,
    /// The newest sample that was held back.
    held: Option<Sample>,
}

impl UnchangedReads {
    /// Returns the polls to store now: none if this one says nothing new, two if one was held back
    /// before it.
    pub fn to_store(&mut self, poll: Poll) -> Vec<Poll> {
        let mut earlier = Vec::new();
        let mut says_nothing = !poll.is_list();
        for sample in poll.samples() {
            let nearly_full = i128::from(sample.limit().capacity()) * NEARLY_FULL_PCT;
            let is_full = i128::from(sample.level()) * 100 >= nearly_full;
            let known = self.buckets.get_mut(sample.bucket());
            match known {
                Some(full) if is_full && is_alike(&full.since, sample) => {
                    let full_us = sample.taken_us().saturating_sub(full.since.taken_us());
                    if says_nothing && full_us >= FULL_FOR_US {
                        full.held = Some(sample.clone());
                    } else {
                        says_nothing = false;
                        full.held = None;
                    }
                }
                _ => {
                    says_nothing = false;
                    let held = self.buckets.remove(sample.bucket());
                    earlier.extend(held.and_then(|full| full.held));
                    if is_full {
                        let since = sample.clone();
                        let full = Full { since, held: None };
                        self.buckets.insert(sample.bucket().clone(), full);
                    }
                }
            }
        }
        if says_nothing {
            return Vec::new();
        }
        // Held samples are of different times, so each is a poll of its own.
        let earlier = earlier.into_iter().map(|sample| Poll::new(vec![sample]));
        earlier.flatten().chain([poll]).collect()
    }
}

/// Returns true if capacity, refill and category are the same.
fn is_alike(one: &Sample, other: &Sample) -> bool {
    one.limit() == other.limit() && one.category() == other.category()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ReportedLimit;

    const MINUTE_US: u64 = 60_000_000;

    fn read(level: i64, at_us: u64) -> Poll {
        let bucket = BucketId::new("12345678", "KEYS_CHECK").unwrap();
        let limit = ReportedLimit::per_seconds(70, 70, 60).unwrap();
        let sample = Sample::new(bucket, limit, level, at_us).unwrap();
        Poll::new(vec![sample.read_singly()]).unwrap()
    }

    #[test]
    fn only_the_ends_of_a_long_full_time_are_stored() {
        let mut reads = UnchangedReads::default();
        let mut stored = Vec::new();
        for minute in 0..60 {
            let level = if minute % 2 == 0 { 70 } else { 63 };
            stored.extend(reads.to_store(read(level, minute * MINUTE_US)));
        }
        assert_eq!(stored.len(), 15, "the first quarter of an hour");
        let after = reads.to_store(read(40, 60 * MINUTE_US));
        let times: Vec<u64> = after
            .iter()
            .map(|poll| poll.taken_us() / MINUTE_US)
            .collect();
        assert_eq!(
            times,
            [59, 60],
            "the last full one, and the first that is not"
        );
        // Low levels are stored one by one, however alike.
        for minute in 61..70 {
            assert_eq!(reads.to_store(read(0, minute * MINUTE_US)).len(), 1);
        }
    }
}

//! Differences between two polls of a participant, and whether the newest poll is recent enough.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::{Poll, Sample};

/// A change of a participant's limits, detected between two polls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// The participant's category changed.
    Category {
        /// The previous category.
        from: String,
        /// The new category.
        to: String,
    },
    /// The capacity of a bucket changed.
    Capacity {
        /// The policy.
        policy: String,
        /// The previous capacity, in tokens.
        from: u64,
        /// The new capacity, in tokens.
        to: u64,
    },
    /// The refill of a bucket changed: its tokens, its period, or both.
    Refill {
        /// The policy.
        policy: String,
        /// The previous tokens and period in microseconds.
        from: (u64, u64),
        /// The new tokens and period in microseconds.
        to: (u64, u64),
    },
    /// A policy was added.
    PolicyAdded {
        /// The policy.
        policy: String,
    },
    /// A policy is no longer listed.
    PolicyRemoved {
        /// The policy.
        policy: String,
    },
}

impl Change {
    /// A short name for the change and its new value, used in event keys. Detecting the same change
    /// twice gives the same label.
    pub fn label(&self) -> String {
        match self {
            Self::Category { to, .. } => format!("category-{to}"),
            Self::Capacity { policy, to, .. } => format!("capacity-{policy}-{to}"),
            Self::Refill { policy, to, .. } => format!("refill-{policy}-{}-{}", to.0, to.1),
            Self::PolicyAdded { policy } => format!("policy-added-{policy}"),
            Self::PolicyRemoved { policy } => format!("policy-removed-{policy}"),
        }
    }
}

/// Returns the differences between two polls of the same participant. A category that is missing
/// from either poll does not count as a change.
pub fn changes(before: &Poll, after: &Poll) -> Vec<Change> {
    let old = by_policy(before);
    let new = by_policy(after);
    let mut changes = Vec::new();
    let category = |poll: &Poll| {
        let mut categories = poll.samples().iter().filter_map(Sample::category);
        categories.next().map(str::to_owned)
    };
    if let (Some(from), Some(to)) = (category(before), category(after))
        && from != to
    {
        changes.push(Change::Category { from, to });
    }
    for (&policy, was) in &old {
        let policy = policy.to_owned();
        let Some(is) = new.get(policy.as_str()) else {
            changes.push(Change::PolicyRemoved { policy });
            continue;
        };
        let (was, is) = (was.limit(), is.limit());
        if was.capacity() != is.capacity() {
            changes.push(Change::Capacity {
                policy: policy.clone(),
                from: was.capacity(),
                to: is.capacity(),
            });
        }
        let refill =
            |limit: crate::sample::ReportedLimit| (limit.refill_tokens(), limit.period_us());
        if refill(was) != refill(is) {
            changes.push(Change::Refill {
                policy,
                from: refill(was),
                to: refill(is),
            });
        }
    }
    let added = new.keys().filter(|policy| !old.contains_key(*policy));
    changes.extend(added.map(|&policy| Change::PolicyAdded {
        policy: policy.to_owned(),
    }));
    changes
}

/// Whether the newest poll of a participant is recent enough to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The newest poll is recent enough.
    Fresh,
    /// The newest poll is too old.
    Stale {
        /// By how much the age exceeds the maximum.
        overdue_us: u64,
    },
}

impl Freshness {
    /// The freshness at `now_us` of data polled at `newest_us`, which may be up to `stale_after_us`
    /// old. A clock that stepped backwards makes nothing stale.
    pub const fn of(newest_us: u64, now_us: u64, stale_after_us: u64) -> Self {
        let age_us = now_us.saturating_sub(newest_us);
        if age_us > stale_after_us {
            Self::Stale {
                overdue_us: age_us - stale_after_us,
            }
        } else {
            Self::Fresh
        }
    }
}

fn by_policy(poll: &Poll) -> BTreeMap<&str, &Sample> {
    let named = |sample| (Sample::bucket(sample).policy(), sample);
    poll.samples().iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{BucketId, ReportedLimit};

    fn poll(category: Option<&str>, buckets: &[(&str, i64, i64, i64)]) -> Poll {
        let samples = buckets.iter().map(|&(policy, capacity, refill, period)| {
            let limit = ReportedLimit::per_seconds(capacity, refill, period).unwrap();
            let bucket = BucketId::new("12345678", policy).unwrap();
            let sample = Sample::new(bucket, limit, 1, 0).unwrap();
            match category {
                Some(category) => sample.with_category(category).unwrap(),
                None => sample,
            }
        });
        Poll::new(samples.collect()).unwrap()
    }

    #[test]
    fn every_kind_of_change_is_found_and_nothing_else() {
        let before = poll(
            Some("A"),
            &[
                ("SAME", 1, 1, 60),
                ("GONE", 1, 1, 60),
                ("X", 50_000, 25_000, 60),
            ],
        );
        let after = poll(
            Some("H"),
            &[("X", 50, 2, 60), ("NEW", 1, 1, 60), ("SAME", 1, 1, 60)],
        );
        let labels: Vec<String> = changes(&before, &after).iter().map(Change::label).collect();
        assert_eq!(
            labels,
            [
                "category-H",
                "policy-removed-GONE",
                "capacity-X-50",
                "refill-X-2-60000000",
                "policy-added-NEW"
            ]
        );
        assert_eq!(changes(&before, &before), []);
        let without = poll(None, &[("SAME", 1, 1, 60)]);
        let with = poll(Some("B"), &[("SAME", 1, 1, 60)]);
        assert_eq!(changes(&without, &with), []);
    }

    #[test]
    fn a_refill_of_the_same_rate_in_other_steps_is_a_change() {
        let before = poll(None, &[("X", 50, 10, 60)]);
        let after = poll(None, &[("X", 50, 1, 6)]);
        assert!(matches!(
            changes(&before, &after)[..],
            [Change::Refill { .. }]
        ));
    }

    #[test]
    fn data_is_stale_one_microsecond_past_the_maximum_age() {
        assert_eq!(Freshness::of(100, 150, 50), Freshness::Fresh);
        assert_eq!(
            Freshness::of(100, 151, 50),
            Freshness::Stale { overdue_us: 1 }
        );
        assert_eq!(Freshness::of(100, 0, 50), Freshness::Fresh);
    }
}

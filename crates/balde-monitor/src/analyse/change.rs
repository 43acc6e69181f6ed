//! What changed between two answers, and whether there was an answer lately.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::{Poll, Sample};

/// Something that the other side changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// The participant was put into another category.
    Category {
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
    /// A bucket holds more or less.
    Capacity {
        /// Which.
        policy: String,
        /// Before, in tokens.
        from: u64,
        /// Now, in tokens.
        to: u64,
    },
    /// A bucket refills otherwise: another count or another period.
    Refill {
        /// Which.
        policy: String,
        /// Tokens and period before.
        from: (u64, u64),
        /// Tokens and period in microseconds now.
        to: (u64, u64),
    },
    /// A policy that was not there before.
    PolicyAdded {
        /// Which.
        policy: String,
    },
    /// A policy that is no longer listed.
    PolicyRemoved {
        /// Which.
        policy: String,
    },
}

impl Change {
    /// A short name of the change and of what it is now, for keys: the same change found again has
    /// the same.
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

/// What is different in `after`, another answer about the same participant. A category that one of
/// them does not tell is no change.
pub fn changes(before: &Poll, after: &Poll) -> Vec<Change> {
    let old = by_policy(before);
    let new = by_policy(after);
    let mut changes = Vec::new();
    let category = |poll: &Poll| {
        let mut told = poll.samples().iter().filter_map(Sample::category);
        told.next().map(str::to_owned)
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
    let appeared = new.keys().filter(|policy| !old.contains_key(*policy));
    changes.extend(appeared.map(|&policy| Change::PolicyAdded {
        policy: policy.to_owned(),
    }));
    changes
}

/// Whether what is known is recent enough to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is.
    Fresh,
    /// It is older than it may be.
    Stale {
        /// By how much it is older than it may be.
        overdue_us: u64,
    },
}

impl Freshness {
    /// Of knowledge from `newest_us` (or of a monitor that has known nothing since then), when it
    /// may be `stale_after_us` old. A clock that went back makes nothing stale.
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
        let untold = poll(None, &[("SAME", 1, 1, 60)]);
        let told = poll(Some("B"), &[("SAME", 1, 1, 60)]);
        assert_eq!(changes(&untold, &told), []);
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
    fn knowledge_is_stale_one_microsecond_after_it_may_be() {
        assert_eq!(Freshness::of(100, 150, 50), Freshness::Fresh);
        assert_eq!(
            Freshness::of(100, 151, 50),
            Freshness::Stale { overdue_us: 1 }
        );
        assert_eq!(Freshness::of(100, 0, 50), Freshness::Fresh);
    }
}

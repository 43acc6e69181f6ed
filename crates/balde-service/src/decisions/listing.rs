//! The fullest and the emptiest buckets of a limit, read out of Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use balde::{RateLimiter, RedisStore, StoredBucket};

use super::command::Order;
use super::error::CommandError;

/// The most buckets in an answer.
const LISTED_MAX: usize = 1_000;

/// The most keys that are looked at for one answer. Of a limit with more keys this is a sample.
const SCANNED_MAX: u64 = 200_000;

/// A bucket of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBucket {
    /// The key as the caller gave it.
    pub key: Vec<u8>,
    /// Whole tokens; negative is debt.
    pub level: i64,
    /// The most tokens that it holds.
    pub capacity: u64,
    /// How long until it is full.
    pub full_after: Duration,
}

impl ListedBucket {
    fn new(bucket: StoredBucket) -> Self {
        Self {
            level: bucket.level(),
            capacity: bucket.limit().capacity(),
            full_after: bucket.full_after(),
            key: bucket.key,
        }
    }
}

/// Reads the buckets of a limiter, and returns at most `most` of them in this order. Buckets that are
/// full are not stored, so they are not among them.
pub(super) async fn list(
    limiter: &RateLimiter,
    store: Option<RedisStore>,
    order: Order,
    most: usize,
) -> Result<Vec<ListedBucket>, CommandError> {
    let invalid = |message: &str| CommandError::Invalid(message.to_owned());
    if most == 0 || most > LISTED_MAX {
        return Err(invalid("a list has 1 to 1000 buckets"));
    }
    let store = store.filter(|_| !limiter.is_in_memory());
    let store = store.ok_or(CommandError::NotListed)?;
    // By level, and by key so that equal levels are all kept.
    let mut kept: BTreeMap<(i64, Vec<u8>), ListedBucket> = BTreeMap::new();
    let mut scan = store.scan_buckets(Some(limiter.name()));
    while let Some(page) = scan.next_page().await.map_err(CommandError::Store)? {
        for bucket in page.into_iter().map(ListedBucket::new) {
            kept.insert((bucket.level, bucket.key.clone()), bucket);
            if kept.len() > most {
                let _one_too_many = match order {
                    Order::Emptiest => kept.pop_last(),
                    Order::Fullest => kept.pop_first(),
                };
            }
        }
        if scan.keys_seen() > SCANNED_MAX {
            break;
        }
    }
    let kept = kept.into_values();
    Ok(match order {
        Order::Emptiest => kept.collect(),
        Order::Fullest => kept.rev().collect(),
    })
}

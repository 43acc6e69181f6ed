//! Renews what this process holds of buckets in Redis.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::request::HolderId;
use crate::store::redis::RedisBuckets;

/// Renewals in one time to live.
const RENEWALS_PER_TTL: u32 = 3;

/// The holds of one limiter that are not settled yet, by bucket and holder.
pub(crate) struct Renewals {
    buckets: Arc<RedisBuckets>,
    held: Mutex<Unsettled>,
}

#[derive(Default)]
struct Unsettled {
    /// How many holds there are.
    counts: HashMap<(Box<[u8]>, HolderId), usize>,
    /// Whether the task that renews them runs.
    is_renewed: bool,
}

/// One hold, which is renewed until this is dropped.
pub(crate) struct Renewed {
    renewals: Arc<Renewals>,
    bucket: (Box<[u8]>, HolderId),
}

impl Renewals {
    pub(super) fn new(buckets: &Arc<RedisBuckets>) -> Self {
        Self {
            buckets: Arc::clone(buckets),
            held: Mutex::default(),
        }
    }

    /// Renews what `holder` holds of a bucket until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, key: &[u8], holder: HolderId) -> Renewed {
        let bucket = (Box::from(key), holder);
        let mut held = self.held.lock();
        *held.counts.entry(bucket.clone()).or_default() += 1;
        if !std::mem::replace(&mut held.is_renewed, true) {
            let renewals = Arc::clone(self);
            let runtime = self.buckets.store().handle();
            runtime.spawn(async move { renewals.renew_until_settled().await });
        }
        drop(held);
        Renewed {
            renewals: Arc::clone(self),
            bucket,
        }
    }

    async fn renew_until_settled(self: Arc<Self>) {
        let Some(holds) = self.buckets.holds() else {
            return;
        };
        loop {
            tokio::time::sleep(holds.ttl / RENEWALS_PER_TTL).await;
            let unsettled: Vec<_> = {
                let mut held = self.held.lock();
                held.is_renewed = !held.counts.is_empty();
                held.counts.keys().cloned().collect()
            };
            if unsettled.is_empty() {
                return;
            }
            for (key, holder) in unsettled {
                // If it fails, there are two more attempts before the hold expires.
                self.buckets.renew(&key, holder).await.ok();
            }
        }
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        let mut held = self.renewals.held.lock();
        if let Some(count) = held.counts.get_mut(&self.bucket) {
            *count -= 1;
            if *count == 0 {
                held.counts.remove(&self.bucket);
            }
        }
    }
}

impl fmt::Debug for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").finish_non_exhaustive()
    }
}

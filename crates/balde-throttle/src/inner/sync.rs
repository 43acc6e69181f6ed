//! The background tasks of a throttler that shares its rates through Redis: fetching tokens,
//! publishing health events, and reading what other processes have published.
//!
//! A partition whose queue needs tokens has one fetching task. It takes what the first waiters lack, at
//! most a quarter of the burst at a time, from both buckets in one call. So Redis gets some tens of
//! calls a second for a partition, however many requests wait; the queues keep their order; and a large
//! request is not starved by small ones, because tokens are set aside for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use balde::Clock;

use crate::inner::{Deferred, Inner};
use crate::remote::{FetchRequest, Remote, RemoteHealth};
use crate::scheduler::{Need, Scheduler, TokenSource};
use crate::settings::Settings;

/// The divisor of the burst that gives the most tokens to fetch at once.
const FETCH_ONE_IN: u64 = 4;

/// How often the health that other processes have published is read.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// A healthy partition that has not been used for this long is not read.
const USED_WITHIN_US: u64 = 10_000_000;

impl Inner {
    /// A throttler whose buckets are in Redis. It starts the task that reads published health.
    pub(crate) fn with_remote(settings: Settings, clock: Clock, remote: Remote) -> Arc<Self> {
        let mut inner = Self::new(settings, clock, TokenSource::Remote);
        let store = remote.store.clone();
        inner.remote = Some(remote);
        let inner = Arc::new(inner);
        store.spawn(read_health(Arc::downgrade(&inner)));
        inner
    }

    pub(super) fn start_tasks(self: &Arc<Self>, deferred: Deferred) {
        let Some(remote) = &self.remote else { return };
        for index in deferred.needs_tokens {
            remote
                .store
                .spawn(fetch_tokens(Arc::downgrade(self), index));
        }
        for name in deferred.to_publish {
            remote.store.spawn(publish_health(Arc::clone(self), name));
        }
    }

    /// What to fetch for the queue of partition `index`. If no waiter needs tokens, the fetching task
    /// ends, and gives back what is left over.
    fn next_fetch(self: &Arc<Self>, index: u32) -> Result<FetchRequest, Option<FetchRequest>> {
        self.update(|scheduler, now_us| {
            let partition = scheduler.partition(index);
            let (name, pace) = (Arc::clone(&partition.name), partition.pace);
            let burst = scheduler.burst_of(index);
            let request = |n| FetchRequest {
                partition: name,
                pace,
                n,
            };
            let Some(first) = scheduler.partition(index).queue.first() else {
                let partition = scheduler.partition_mut(index);
                partition.is_fetching = false;
                let n = std::mem::take(&mut partition.prefetched);
                return Err((n > 0).then(|| request(n)));
            };
            let missing = scheduler.waiters.get(first).missing();
            if scheduler.need(index, missing, now_us) != Need::RemoteTokens {
                scheduler.partition_mut(index).is_fetching = false;
                scheduler.reschedule(index, now_us);
                return Err(None);
            }
            let most = (burst / FETCH_ONE_IN).max(1);
            let needed = scheduler
                .waiters
                .missing(&scheduler.partition(index).queue, most);
            Ok(request(needed.min(most.max(missing)).min(burst)))
        })
    }

    fn add_prefetched(self: &Arc<Self>, index: u32, n: u64) {
        self.update(|scheduler, now_us| {
            scheduler.partition_mut(index).prefetched += n;
            scheduler.reschedule(index, now_us);
        });
    }
}

/// Fetches tokens for a queue while a request in it needs them.
async fn fetch_tokens(inner: Weak<Inner>, index: u32) {
    loop {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let Some(remote) = &inner.remote else { return };
        let request = match inner.next_fetch(index) {
            Ok(request) => request,
            Err(None) => return,
            Err(Some(left_over)) => return remote.tokens.give_back(&left_over).await,
        };
        match remote.tokens.fetch(&request).await {
            Ok(n) => inner.add_prefetched(index, n),
            Err(wait) => {
                drop(inner);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Publishes the health events of a partition until there are no more. Events that cannot be published
/// are dropped: this process has applied them, and the others receive the next ones.
async fn publish_health(inner: Arc<Inner>, name: Arc<str>) {
    let Some(remote) = &inner.remote else { return };
    let mut published = None;
    loop {
        let events = inner.update(|scheduler, now_us| {
            let index = scheduler.by_name.get(&name).copied()?;
            let partition = scheduler.partition_mut(index);
            if !partition.unpublished.is_empty() {
                return Some(std::mem::take(&mut partition.unpublished));
            }
            partition.is_publishing = false;
            // Other processes may have changed the register further.
            if let Some(health) = published {
                scheduler.merge_health(index, health, now_us);
            }
            None
        });
        let Some(events) = events else { return };
        let health = &remote.health;
        published = health.publish(&inner.settings, &name, &events).await.ok();
    }
}

/// Reads the published health at intervals, until the throttler is dropped.
async fn read_health(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let Some(remote) = &inner.remote else { return };
        let names = inner.update(Scheduler::partitions_to_read);
        let read = remote.health.read(&inner.settings, &names, |healths| {
            inner.update(|scheduler, now_us| {
                for (name, health) in healths {
                    if let Some(index) = scheduler.by_name.get(name).copied()
                        && !scheduler.partition(index).is_publishing
                    {
                        scheduler.merge_health(index, *health, now_us);
                    }
                }
            });
        });
        // While Redis is unavailable, each process keeps the health it knows.
        let _unavailable = read.await;
    }
}

impl Scheduler {
    /// The partitions in use, and those that are degraded.
    fn partitions_to_read(&mut self, now_us: u64) -> Vec<Arc<str>> {
        let is_read = |index: &&u32| {
            let partition = self.partition(**index);
            partition.used_at_us.saturating_add(USED_WITHIN_US) > now_us
                || !partition.health.is_healthy()
        };
        let indices = self.by_name.values().filter(is_read);
        indices
            .map(|index| Arc::clone(&self.partition(*index).name))
            .collect()
    }

    fn merge_health(&mut self, index: u32, remote: RemoteHealth, now_us: u64) {
        let partition = self.partition_mut(index);
        let (merged, change) = partition.health.merge(remote.at(now_us), now_us);
        if merged != partition.health {
            partition.health = merged;
            self.apply(index, change, now_us);
            self.reschedule(index, now_us);
        }
    }
}

//! Tokens from buckets that processes share.
//!
//! A line that needs tokens has one task that brings them: it asks for what the first few want, at most
//! a quarter of the burst at a time, from both buckets in one call; where that is refused, for what
//! is there; where nothing is, it sleeps as long as it was told. So the store is asked some tens of
//! times a second however many wait, the lines stay in order, and somebody who wants much is not
//! starved by those who want little: what has come is put aside for it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::common_health::{Rumours, listen, spread};
use super::core::{Need, Source};
use super::error::SettingsError;
use super::rate::Pace;
use super::settings::Settings;
use super::shared::{Errands, Shared};
use super::throttler::Throttler;
use crate::clock::Clock;
use crate::error::BuildError;
use crate::failure::OnFailure;
use crate::joint::check_all;
use crate::limiter::RateLimiter;
use crate::store::redis::RedisStore;

/// The part of a burst that is asked for at a time.
const BLOCK_ONE_IN: u64 = 4;

/// However long the store says, it is asked again after this; and not before the other.
const SLEEP_MAX: Duration = Duration::from_secs(1);
const SLEEP_MIN: Duration = Duration::from_millis(1);

pub(super) struct Feed {
    store: RedisStore,
    on_failure: OnFailure,
    global: RateLimiter,
    /// By partition. As many as there are partitions, and at most twice as many.
    limiters: Mutex<HashMap<Arc<str>, RateLimiter>>,
    pub(super) rumours: Rumours,
}

/// What a line wants brought.
struct Order {
    name: Arc<str>,
    pace: Pace,
    n: u64,
}

pub(super) fn build(
    settings: Settings,
    clock: Clock,
    store: RedisStore,
    on_failure: OnFailure,
) -> Result<Throttler, SettingsError> {
    let pace = settings.pace(settings.global);
    let feed = Feed {
        global: limiter(&settings.name, &pace, &clock, &store, on_failure)
            .map_err(SettingsError::Shared)?,
        rumours: Rumours::new(&store, &settings.name),
        store,
        on_failure,
        limiters: Mutex::default(),
    };
    let mut shared = Shared::new(settings, clock, Source::Elsewhere);
    shared.feed = Some(feed);
    let shared = Arc::new(shared);
    if let Some(feed) = &shared.feed {
        listen(&shared, feed.store.handle());
    }
    Ok(Throttler::of(shared))
}

impl Feed {
    pub(super) fn set_rate(&self, shared: &Shared) {
        let limit = shared.read(|core| *core.global_pace.limit());
        // A limit of a pace is one that can be kept.
        let _always = self.global.set_limit(limit);
    }

    fn limiter(&self, shared: &Shared, order: &Order) -> Result<RateLimiter, BuildError> {
        let mut limiters = self.limiters.lock();
        if let Some(limiter) = limiters.get(&order.name) {
            if limiter.limit() != *order.pace.limit() {
                limiter.set_limit(*order.pace.limit())?;
            }
            return Ok(limiter.clone());
        }
        if limiters.len() >= 2 * shared.settings.partitions_max {
            limiters.clear();
        }
        let name = &shared.settings.name;
        let made = limiter(
            name,
            &order.pace,
            &shared.clock,
            &self.store,
            self.on_failure,
        )?;
        limiters.insert(Arc::clone(&order.name), made.clone());
        Ok(made)
    }

    /// Tokens for an order, or how long to wait.
    async fn fetch(&self, shared: &Shared, order: &Order) -> Result<u64, Duration> {
        let Ok(limiter) = self.limiter(shared, order) else {
            return Err(SLEEP_MAX);
        };
        let key = format!("partition {}", order.name);
        let asked = order.n;
        let first = self.request(&limiter, &key, asked).await;
        let (there, wait) = match first {
            Ok(()) => return Ok(asked),
            Err(refused) => refused,
        };
        if (1..asked).contains(&there) && self.request(&limiter, &key, there).await.is_ok() {
            return Ok(there);
        }
        Err(wait.clamp(SLEEP_MIN, SLEEP_MAX))
    }

    /// Takes `n` from both buckets; or says what is there, and when `n` could be.
    async fn request(
        &self,
        limiter: &RateLimiter,
        key: &str,
        n: u64,
    ) -> Result<(), (u64, Duration)> {
        let asks = [
            limiter.request_n(key, n),
            self.global.request_n("global", n),
        ];
        let joint = check_all(&asks).await;
        if joint.is_allowed() {
            return Ok(());
        }
        let there = joint.parts().iter().map(|part| {
            if part.is_fallback() {
                0
            } else {
                part.remaining()
            }
        });
        let wait = joint.retry_after().unwrap_or(SLEEP_MAX);
        Err((there.min().unwrap_or(0), wait))
    }

    async fn give_back(&self, shared: &Shared, order: &Order) {
        let Ok(limiter) = self.limiter(shared, order) else {
            return;
        };
        let key = format!("partition {}", order.name);
        // What cannot be given back comes back with time.
        let _lost = limiter.credit(&key, order.n).await;
        let _lost = self.global.credit("global", order.n).await;
    }
}

impl Shared {
    /// Does what has to be done elsewhere.
    pub(super) fn run(self: &Arc<Self>, errands: Errands) {
        let Some(feed) = &self.feed else { return };
        let handle = feed.store.handle();
        for index in errands.hungry {
            handle.spawn(bring(Arc::downgrade(self), index));
        }
        for name in errands.news {
            handle.spawn(spread(Arc::clone(self), name));
        }
    }

    /// What the line of `index` wants now. Nothing when nobody there waits for tokens: whoever brings
    /// them then goes, with what is left over.
    fn order(self: &Arc<Self>, index: u32) -> Result<Order, Option<Order>> {
        self.step(|core, now_us| {
            let part = core.part(index);
            let (name, pace) = (Arc::clone(&part.name), part.pace);
            let burst = core.burst_of(index);
            let order = |n| Order { name, pace, n };
            let Some(first) = core.part(index).line.first() else {
                let part = core.part_mut(index);
                part.is_fed = false;
                let n = std::mem::take(&mut part.purse);
                return Err((n > 0).then(|| order(n)));
            };
            let waiter = core.waiters.get(first);
            let left = waiter.n - waiter.taken;
            if core.need(index, left, now_us) != Need::Feeding {
                core.part_mut(index).is_fed = false;
                core.place(index, now_us);
                return Err(None);
            }
            let block = (burst / BLOCK_ONE_IN).max(1);
            let needed = core.waiters.needed(&core.part(index).line, block);
            Ok(order(needed.min(block.max(left)).min(burst)))
        })
    }

    fn deliver(self: &Arc<Self>, index: u32, n: u64) {
        self.step(|core, now_us| {
            core.part_mut(index).purse += n;
            core.place(index, now_us);
        });
    }
}

/// Brings tokens to a line for as long as somebody there waits for them.
async fn bring(shared: Weak<Shared>, index: u32) {
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(feed) = &shared.feed else { return };
        let order = match shared.order(index) {
            Ok(order) => order,
            Err(None) => return,
            Err(Some(left_over)) => return feed.give_back(&shared, &left_over).await,
        };
        match feed.fetch(&shared, &order).await {
            Ok(n) => shared.deliver(index, n),
            Err(wait) => {
                drop(shared);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

fn limiter(
    name: &str,
    pace: &Pace,
    clock: &Clock,
    store: &RedisStore,
    on_failure: OnFailure,
) -> Result<RateLimiter, BuildError> {
    RateLimiter::builder()
        .name(format!("throttle {name}"))
        .limit(*pace.limit())
        .hash_tag(name)
        .keys_max(1)
        .clock(clock.clone())
        .redis(store, on_failure)
        .build()
}

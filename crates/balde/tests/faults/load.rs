//! Callers of every policy who keep asking, and what they saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use balde::{Decision, OnFailure, RateLimiter, RedisStore, Share, StoreFailure};
use tokio::task::JoinHandle;

use super::{
    BACK_WITHIN, CALL_WITHIN, CAPACITY, LOCAL_ONE_IN, LOCAL_TOKENS, Mode, OPEN_P99_WITHIN,
    for_a_while, limiter, until,
};

const CALLERS_PER_POLICY: usize = 4;
/// Between two calls of one caller, who would otherwise take the processor from the server.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a take that was answered too late may take to come back.
const LATE_WITHIN: Duration = Duration::from_secs(1);

/// A key of its own for each policy.
pub(crate) const POLICIES: [(&str, OnFailure); 3] = [
    ("deny", OnFailure::Deny),
    ("allow", OnFailure::Allow),
    (
        "local",
        OnFailure::Local {
            share: Share::one_in(LOCAL_ONE_IN),
        },
    ),
];

pub(crate) struct Load {
    store: RedisStore,
    mode: Mode,
    limiters: Vec<(&'static str, RateLimiter)>,
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Vec<Call>>>,
}

/// One call and its answer.
pub(crate) struct Call {
    key: &'static str,
    began: Instant,
    took: Duration,
    decision: Decision,
}

impl Load {
    /// Callers on one key for each policy, who begin when the store has answered all of them.
    pub(crate) async fn start(store: &RedisStore, mode: Mode) -> Self {
        let limiters: Vec<_> = POLICIES
            .iter()
            .map(|&(key, on_failure)| (key, limiter(store, mode, on_failure)))
            .collect();
        for (key, limiter) in &limiters {
            until_served(limiter, key, Duration::from_secs(20)).await;
            until("the bucket is full", Duration::from_secs(20), async || {
                limiter.set_level(key, CAPACITY).await.is_ok()
            })
            .await;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let callers = limiters
            .iter()
            .flat_map(|one| std::iter::repeat_n(one, CALLERS_PER_POLICY))
            .map(|(key, limiter)| tokio::spawn(call(key, limiter.clone(), Arc::clone(&is_over))))
            .collect();
        Self {
            store: store.clone(),
            mode,
            limiters,
            is_over,
            callers,
        }
    }

    /// Waits until the store answers under every policy again, and says how long that took.
    pub(crate) async fn until_back(&self, within: Duration) -> Duration {
        let started = Instant::now();
        for (_, limiter) in &self.limiters {
            until_served(limiter, "until back", within).await;
        }
        started.elapsed()
    }

    pub(crate) async fn stop(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        for caller in self.callers {
            calls.extend(caller.await.expect("no caller panics"));
        }
        Seen {
            store: self.store,
            mode: self.mode,
            calls,
            limiters: self.limiters,
        }
    }
}

async fn call(key: &'static str, limiter: RateLimiter, is_over: Arc<AtomicBool>) -> Vec<Call> {
    let mut calls = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let decision = limiter.check(key).await;
        calls.push(Call {
            key,
            began,
            took: began.elapsed(),
            decision,
        });
        tokio::time::sleep(PAUSE).await;
    }
    calls
}

async fn until_served(limiter: &RateLimiter, key: &str, within: Duration) {
    let started = Instant::now();
    loop {
        let decision = limiter.check(key).await;
        // A check may be granted on lease; a look never is.
        if !decision.is_fallback() && limiter.peek(key).await.is_ok() {
            return;
        }
        let waited = started.elapsed();
        assert!(waited < within, "not back after {waited:?}: {decision:?}");
        for_a_while(2).await;
    }
}

/// All that the callers saw.
pub(crate) struct Seen {
    store: RedisStore,
    mode: Mode,
    calls: Vec<Call>,
    limiters: Vec<(&'static str, RateLimiter)>,
}

impl Seen {
    /// What holds in every story, given the failures that are right in it.
    pub(crate) fn holds(&self, story: &str, failures: &[StoreFailure]) {
        let mut kinds = BTreeMap::<_, usize>::new();
        for call in &self.calls {
            if let Some(failure) = call.decision.failure() {
                *kinds.entry(failure.as_str()).or_default() += 1;
                // A machine that stalls looks like a store that does.
                let is_right = failures.contains(&failure) || failure == StoreFailure::Timeout;
                assert!(is_right, "{story}: {:?}", call.decision);
            }
        }
        let slowest = self.calls.iter().map(|call| call.took).max();
        let slowest = slowest.unwrap_or_default();
        let mut open = self.times(Some(StoreFailure::BreakerOpen));
        let mut served = self.times(None);
        println!(
            "{story}: {} calls, {} of them served (p99 {:?}), failures {kinds:?}; slowest call \
             {slowest:?}, p99 while open {:?}",
            self.calls.len(),
            served.len(),
            p99(&mut served),
            p99(&mut open),
        );
        assert!(slowest < CALL_WITHIN, "{story}: a call took {slowest:?}");
        assert!(p99(&mut open) < OPEN_P99_WITHIN, "{story}: slow while open");
        self.policies_answered(story);
    }

    /// Calls to the store that failed so, whether anybody waited for them or not.
    pub(crate) fn met(&self, failure: StoreFailure) -> u64 {
        self.store.stats().failures(failure)
    }

    /// Decisions that say so.
    pub(crate) fn failed(&self, failure: StoreFailure) -> usize {
        self.times(Some(failure)).len()
    }

    /// Of the calls that began between two moments, how many in a hundred the store did not answer.
    pub(crate) fn fallback_percent(&self, from: Instant, to: Instant) -> usize {
        let is_meant = |call: &&Call| from <= call.began && call.began < to;
        let during: Vec<_> = self.calls.iter().filter(is_meant).collect();
        let fallbacks = during.iter().filter(|call| call.decision.is_fallback());
        fallbacks.count() * 100 / during.len().max(1)
    }

    /// That the store has given what its callers were told it gave, and at most as much more as
    /// calls failed so: those may have been decided, and nobody can know.
    pub(crate) async fn nothing_was_consumed_but_grants(&self, story: &str, lost: &[StoreFailure]) {
        for (key, limiter) in &self.limiters {
            let told = self.count(key, |decision| !decision.is_fallback());
            let unknown = self.in_doubt(key, limiter, lost);
            limiter.release_leases().await;
            let started = Instant::now();
            let gone = loop {
                let look = super::look(limiter, key).await;
                let gone = usize::try_from(CAPACITY - look.level()).expect("not above full");
                assert!(gone >= told, "{story}, {key}: {gone} gone, {told} granted");
                // Late takes may still be on their way back.
                let waited = started.elapsed();
                let is_explained = gone <= told + unknown && waited > LATE_WITHIN;
                if gone == told || is_explained || waited > BACK_WITHIN {
                    break gone;
                }
                for_a_while(5).await;
            };
            println!("{story}, {key}: {told} granted, {gone} gone, at most {unknown} in doubt");
            assert!(gone <= told + unknown, "{story}, {key}: too much is gone");
        }
    }

    /// Tokens that calls which failed so may have taken.
    fn in_doubt(&self, key: &str, limiter: &RateLimiter, lost: &[StoreFailure]) -> usize {
        match self.mode {
            Mode::Plain => self.count(key, |decision| {
                decision.failure().is_some_and(|one| lost.contains(&one))
            }),
            // Many callers wait for one block, and some blocks are waited for by nobody.
            Mode::Leased => {
                let stats = self.store.stats();
                let calls: u64 = lost.iter().map(|failure| stats.failures(*failure)).sum();
                let tokens = calls * limiter.lease_stats().block_max;
                usize::try_from(tokens).expect("not that many")
            }
        }
    }

    fn policies_answered(&self, story: &str) {
        let fallbacks =
            |key, is_allowed| self.count(key, |d| d.is_fallback() && d.is_allowed() == is_allowed);
        assert_eq!(fallbacks("deny", true), 0, "{story}: denied is denied");
        assert_eq!(fallbacks("allow", false), 0, "{story}: allowed is allowed");
        let local = fallbacks("local", true);
        assert!(local <= LOCAL_TOKENS, "{story}: {local} of a local share");
        // Nothing here is ever over its limit.
        let refused = self.calls.iter().map(|call| &call.decision);
        assert_eq!(
            refused
                .filter(|d| !d.is_fallback() && !d.is_allowed())
                .count(),
            0
        );
    }

    fn count(&self, key: &str, is_meant: impl Fn(&Decision) -> bool) -> usize {
        let of_key = self.calls.iter().filter(|call| call.key == key);
        of_key.filter(|call| is_meant(&call.decision)).count()
    }

    fn times(&self, failure: Option<StoreFailure>) -> Vec<Duration> {
        let is_meant = |call: &&Call| call.decision.failure() == failure;
        self.calls
            .iter()
            .filter(is_meant)
            .map(|call| call.took)
            .collect()
    }
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default()
}

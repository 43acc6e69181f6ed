//! Waiting for tokens: [`RateLimiter::acquire`] and its queues.
//!
//! A request that has to wait joins the queue of its key. One task per key with a queue, the
//! [driver](driver), sleeps until the time that the store promised to the first in line, takes its
//! tokens, and wakes it. The task ends with the queue.
//!
//! | File | Holds |
//! |--|--|
//! | `queue` | the queues: who waits, and what became of each. Pure: it calls no store |
//! | `driver` | the task that takes tokens for a queue |
//! | `acquire` | the future of one request; what happens when it is dropped |
//! | `outcome` | counts of how requests ended |

mod acquire;
mod driver;
mod outcome;
mod queue;

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use balde_core::{Command, Wait};
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;

use self::acquire::Acquire;
use self::outcome::Outcome;
#[cfg(feature = "redis")]
use super::Target;
use super::{RateLimiter, Store};
use crate::decision::Decision;
use crate::error::AcquireError;
use crate::key::BadKey;
use crate::store::memory;

pub(crate) use queue::Waiters;

/// The default of [`RateLimiterBuilder::waiters_max`](crate::RateLimiterBuilder::waiters_max).
pub(crate) const WAITERS_MAX_DEFAULT: usize = 100_000;

/// Whose timer wakes the driver of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// That of the caller's runtime.
    Runtime,
    /// That of a thread of the process, for callers that block their own.
    Thread,
}

impl RateLimiter {
    pub(super) async fn wait_for_tokens(
        &self,
        key: &[u8],
        n: u64,
        within: Option<Duration>,
        timer: Timer,
    ) -> Result<Decision, AcquireError> {
        if let Err(bad) = BadKey::check(key) {
            let denied = Decision::of_bad_key(&self.limit(), bad, self.now_us());
            self.report_acquire(key, &denied);
            return Err(bad.into());
        }
        let deadline = within.and_then(|within| Instant::now().checked_add(within));
        let result = match self.take_at_once(key, n, within) {
            Some(result) => result,
            None => self.wait_in_queue(key, n, deadline, timer).await,
        };
        match result {
            Ok(decision) => {
                self.report_acquire(key, &decision);
                Ok(decision)
            }
            Err(refused) => {
                self.waiters().count(Outcome::from(&refused.error));
                if let Some(decision) = &refused.decision {
                    self.report_acquire(key, decision);
                }
                Err(refused.error)
            }
        }
    }

    async fn wait_in_queue(
        &self,
        key: &[u8],
        n: u64,
        deadline: Option<Instant>,
        timer: Timer,
    ) -> WaitResult {
        let joined = Acquire::join(self, key, n, deadline, timer);
        let granted = joined.map_err(Refused::undecided)?.await?;
        self.waiters().count(Outcome::Granted);
        Ok(granted)
    }

    /// [`wait_for_tokens`](RateLimiter::wait_for_tokens) on a thread that may block.
    pub(super) fn wait_for_tokens_blocking(
        &self,
        key: &[u8],
        n: u64,
        within: Option<Duration>,
    ) -> Result<Decision, AcquireError> {
        block_on(self.wait_for_tokens(key, n, within, Timer::Thread))
    }

    /// Decides without waiting, if nobody waits for this key and no call to Redis is needed.
    fn take_at_once(&self, key: &[u8], n: u64, within: Option<Duration>) -> Option<WaitResult> {
        if self.waiters().has_queue(key) {
            return None;
        }
        match self.store() {
            Store::Memory(table, _) => {
                let take = Command::Take { n };
                let decision = memory::run(&self.memory_step(table, key, take, self.now_us()));
                match decision.wait() {
                    Wait::None => Some(Ok(Decision::of(decision))),
                    Wait::Never => Some(Err(Refused::over_capacity(&decision))),
                    Wait::Us(us) if within.is_some_and(|within| within.as_micros() < us.into()) => {
                        Some(Err(Refused::timed_out(Some(&decision))))
                    }
                    Wait::Us(_) => None,
                }
            }
            #[cfg(feature = "redis")]
            Store::Redis(redis) => {
                let leased = redis.try_take(&Target::new(key), Command::Take { n })?;
                leased.is_allowed().then_some(Ok(leased))
            }
        }
    }

    /// The runtime in which the driver of a queue runs.
    fn driver_runtime(&self, timer: Timer) -> Handle {
        #[cfg(feature = "redis")]
        if let Some(redis) = self.redis() {
            return redis.store().handle().clone();
        }
        match (timer, Handle::try_current()) {
            (Timer::Runtime, Ok(handle)) => {
                // Panics here, in the caller, where the runtime has no timers.
                drop(tokio::time::sleep(Duration::ZERO));
                handle
            }
            _ => own_runtime().clone(),
        }
    }

    fn report_acquire(&self, key: &[u8], decision: &Decision) {
        let observer = self.observer();
        observer.count(decision, None);
        if !decision.is_allowed() || decision.is_fallback() {
            observer.log(key, decision, || Duration::ZERO, || self.now_us());
        }
    }
}

/// What became of a request that waited.
pub(super) type WaitResult = Result<Decision, Refused>;

/// A request that did not get its tokens, with the decision that is counted and logged.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    error: AcquireError,
    decision: Option<Decision>,
}

impl Refused {
    fn over_capacity(decision: &balde_core::Decision) -> Self {
        Self {
            error: AcquireError::OverCapacity {
                capacity: decision.limit().capacity(),
            },
            decision: Some(Decision::of(*decision)),
        }
    }

    fn timed_out(decision: Option<&balde_core::Decision>) -> Self {
        Self {
            error: AcquireError::TimedOut,
            decision: decision.copied().map(Decision::of),
        }
    }

    fn undecided(error: AcquireError) -> Self {
        Self {
            error,
            decision: None,
        }
    }

    #[cfg(feature = "redis")]
    fn unavailable(failure: crate::failure::StoreFailure, decision: Decision) -> Self {
        Self {
            error: AcquireError::Store(failure),
            decision: Some(decision),
        }
    }
}

/// A runtime with one thread, for queues whose callers have none. It is started when it is first
/// needed, and there is one per process.
fn own_runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("balde-wait")
            .enable_time()
            .build()
            .expect("the system gives one more thread for timers")
    });
    runtime.handle()
}

/// Runs a future on this thread, which sleeps while the future waits.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

//! Settlements: at once in memory, and until they are done where the buckets are in Redis.

use std::time::Duration;

use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::error::Error;
use crate::limiter::{Place, RateLimiter};

#[cfg(feature = "redis")]
pub use shared::settled;

/// How long a settlement is tried again while the shared store is away. After that it is given up
/// with a line in the log: a bucket has been without it so long that most of it has refilled.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// The most settlements that wait for the shared store at any time; what is more is given up with a
/// line in the log.
pub const SETTLING_MAX: usize = 100_000;

/// Waits until every settlement of this process is done or given up: for the end of a process.
#[cfg(not(feature = "redis"))]
pub async fn settled() {}

/// What is still owed, or was taken too much.
#[derive(Clone, Copy, Debug)]
pub(super) enum Difference {
    Owed(u64),
    Over(u64),
}

impl Difference {
    pub(super) fn between(taken: u64, cost: u64) -> Option<Self> {
        match cost.checked_sub(taken) {
            Some(0) => None,
            Some(owed) => Some(Self::Owed(owed)),
            None => Some(Self::Over(taken - cost)),
        }
    }
}

/// A settlement under way. Dropping it does not stop it.
pub(super) struct Settling(State);

enum State {
    Done(Option<Decision>),
    #[cfg(feature = "redis")]
    Trying(tokio::sync::oneshot::Receiver<Decision>),
}

impl Settling {
    pub(super) const fn nothing() -> Self {
        Self(State::Done(None))
    }

    /// The bucket after the settlement, if that is done already.
    pub(super) fn done(self) -> Option<Decision> {
        match self.0 {
            State::Done(decision) => decision,
            #[cfg(feature = "redis")]
            State::Trying(_) => None,
        }
    }

    /// How the bucket stands after the first attempt, if that succeeded.
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            clippy::unused_async,
            reason = "there is nothing to wait for in memory"
        )
    )]
    pub(super) async fn first_try(self) -> Option<Decision> {
        match self.0 {
            State::Done(decision) => decision,
            #[cfg(feature = "redis")]
            State::Trying(answer) => answer.await.ok(),
        }
    }
}

#[cfg_attr(
    not(feature = "redis"),
    expect(
        clippy::needless_pass_by_value,
        reason = "a settlement that waits for a store keeps them"
    )
)]
pub(super) fn settle(limiter: RateLimiter, key: Box<[u8]>, difference: Difference) -> Settling {
    match limiter.place() {
        Place::Memory(..) => {
            let limiter = limiter.blocking();
            let settled = match difference {
                Difference::Owed(n) => limiter.charge(&key, n),
                Difference::Over(n) => limiter.credit(&key, n),
            };
            // The key was good enough to be taken from.
            Settling(State::Done(settled.ok()))
        }
        #[cfg(feature = "redis")]
        Place::Redis(_) => shared::settle(limiter, key, difference),
    }
}

#[cfg(feature = "redis")]
mod shared {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::Handle;
    use tokio::sync::{Notify, oneshot};

    use super::{
        Decision, Difference, Duration, Error, RateLimiter, SETTLE_WITHIN, SETTLING_MAX, Settling,
        State,
    };
    use crate::log::Storm;
    use crate::once::OpId;

    const PAUSE_MIN: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_secs(1);

    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    static ENDED: Notify = Notify::const_new();

    /// Waits until every settlement of this process is done or given up: for the end of a process,
    /// after its last request. At most [`SETTLE_WITHIN`] from the last of them.
    pub async fn settled() {
        loop {
            let ended = ENDED.notified();
            if UNDER_WAY.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Counts a settlement, also when its runtime is shut down under it.
    struct UnderWay;

    impl UnderWay {
        fn begin() -> Option<Self> {
            let before = UNDER_WAY.fetch_add(1, Ordering::AcqRel);
            // The guard takes it off again.
            let this = Self;
            (before < SETTLING_MAX).then_some(this)
        }
    }

    impl Drop for UnderWay {
        fn drop(&mut self) {
            if UNDER_WAY.fetch_sub(1, Ordering::AcqRel) == 1 {
                ENDED.notify_waiters();
            }
        }
    }

    pub(super) fn settle(limiter: RateLimiter, key: Box<[u8]>, difference: Difference) -> Settling {
        let Some(under_way) = UnderWay::begin() else {
            lost(&limiter, "too many wait for the store");
            return Settling::nothing();
        };
        let owed = Owed {
            limiter,
            key,
            difference,
            id: OpId::random(),
            is_open: true,
            _under_way: under_way,
        };
        let Ok(runtime) = Handle::try_current() else {
            // A thread without a runtime may wait.
            return Settling(State::Done(owed.settle_blocking()));
        };
        let (answer, receiver) = oneshot::channel();
        runtime.spawn(owed.until_done(answer));
        Settling(State::Trying(receiver))
    }

    /// One settlement, with one id for all attempts, so that it happens once.
    struct Owed {
        limiter: RateLimiter,
        key: Box<[u8]>,
        difference: Difference,
        id: OpId,
        is_open: bool,
        _under_way: UnderWay,
    }

    impl Owed {
        async fn until_done(mut self, answer: oneshot::Sender<Decision>) {
            let mut error = match self.attempt().await {
                Ok(decision) => {
                    self.is_open = false;
                    // Nobody may be waiting.
                    let _ = answer.send(decision);
                    return;
                }
                Err(error) => error,
            };
            drop(answer);
            let mut pause = PAUSE_MIN;
            let mut waited = Duration::ZERO;
            while is_worth_repeating(&error) && waited < SETTLE_WITHIN {
                tokio::time::sleep(pause).await;
                waited += pause;
                pause = (pause * 2).min(PAUSE_MAX);
                match self.attempt().await {
                    Ok(_) => {
                        self.is_open = false;
                        return;
                    }
                    Err(again) => error = again,
                }
            }
            self.is_open = false;
            lost(&self.limiter, &error.to_string());
        }

        async fn attempt(&self) -> Result<Decision, Error> {
            let Self {
                limiter, key, id, ..
            } = self;
            match self.difference {
                Difference::Owed(n) => limiter.charge_once(key, n, id).await,
                Difference::Over(n) => limiter.credit_once(key, n, id).await,
            }
        }

        fn settle_blocking(mut self) -> Option<Decision> {
            self.last_attempt()
        }

        fn last_attempt(&mut self) -> Option<Decision> {
            self.is_open = false;
            let limiter = self.limiter.blocking();
            let settled = match self.difference {
                Difference::Owed(n) => limiter.charge_once(&self.key, n, &self.id),
                Difference::Over(n) => limiter.credit_once(&self.key, n, &self.id),
            };
            if let Err(error) = &settled {
                lost(&self.limiter, &error.to_string());
            }
            settled.ok()
        }
    }

    impl Drop for Owed {
        fn drop(&mut self) {
            // The runtime is going down under it: there is this moment left.
            if self.is_open {
                self.last_attempt();
            }
        }
    }

    /// A settlement that could not be made: the bucket holds more, or less, than it should until it
    /// has refilled.
    fn lost(limiter: &RateLimiter, why: &str) {
        static STORM: Storm = Storm::new();
        if let Some(held_back) = STORM.passes(limiter.now_us()) {
            tracing::error!(
                event_type = "settlement_lost",
                storage_mode = "redis",
                policy = limiter.name(),
                held_back,
                "gave up settling what was taken: {why}"
            );
        }
    }

    fn is_worth_repeating(error: &Error) -> bool {
        matches!(error, Error::Store(failure) if failure.is_transient())
    }
}

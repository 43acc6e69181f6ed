//! Settlements: immediate in memory, retried in the background in Redis.

use std::fmt;
use std::pin::Pin;
#[cfg(feature = "redis")]
use std::task::ready;
use std::task::{Context, Poll};
use std::time::Duration;

use balde_core::Command;

use super::HeldTokens;
use crate::decision::Decision;
use crate::limiter::{RateLimiter, Store, Target, Tier};

/// How long a settlement is retried while Redis is unavailable. After that it is given up and
/// logged: most of the bucket has refilled by then.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// The most settlements of one limiter that wait for Redis at a time. Further ones are given up and
/// logged.
#[cfg(feature = "redis")]
const SETTLING_MAX: usize = 100_000;

/// The settlement of one bucket, which has begun. Dropping this does not stop it.
pub(super) struct Settlement {
    /// The bucket after the settlement or, before the first attempt has succeeded, when its tokens were
    /// taken.
    decision: Decision,
    /// The first attempt, until it has ended.
    #[cfg(feature = "redis")]
    attempt: Option<tokio::sync::oneshot::Receiver<Decision>>,
}

impl Settlement {
    /// Nothing is left to do.
    pub(super) const fn done(decision: Decision) -> Self {
        Self {
            decision,
            #[cfg(feature = "redis")]
            attempt: None,
        }
    }
}

/// A settlement that has begun, returned by [`Hold::settle`](super::Hold::settle). It happens even if
/// this is dropped, and with buckets in memory it is done already.
///
/// As a future it waits for the first attempt to settle buckets in Redis, and returns the buckets after
/// the settlement: where Redis is unavailable, the decisions that took the tokens.
pub struct Settling(Vec<Settlement>);

impl Settling {
    pub(super) fn new(parts: Vec<Settlement>) -> Self {
        Self(parts)
    }

    /// Each bucket after its settlement, in the order of the requests. Until the first attempt has
    /// succeeded, the decision that took the tokens.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.0.iter().map(|part| &part.decision)
    }

    /// Waits for the first attempt.
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            clippy::unused_self,
            clippy::needless_pass_by_ref_mut,
            reason = "nothing waits in memory"
        )
    )]
    pub fn poll_attempt(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "redis")]
        for part in &mut self.0 {
            if let Some(attempt) = &mut part.attempt {
                if let Ok(decision) = ready!(Pin::new(attempt).poll(cx)) {
                    part.decision = decision;
                }
                part.attempt = None;
            }
        }
        #[cfg(not(feature = "redis"))]
        let _ = cx;
        Poll::Ready(())
    }
}

impl Future for Settling {
    type Output = Vec<Decision>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_attempt(cx)
            .map(|()| self.decisions().copied().collect())
    }
}

impl fmt::Debug for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decisions: Vec<_> = self.decisions().collect();
        f.debug_tuple("Settling").field(&decisions).finish()
    }
}

pub(super) fn settle(tokens: HeldTokens, command: Command) -> Settlement {
    match tokens.limiter.store() {
        Store::Memory(..) => {
            let settled = apply(&tokens.limiter, &tokens.key, tokens.tier, command);
            Settlement::done(settled.unwrap_or(tokens.decision))
        }
        #[cfg(feature = "redis")]
        Store::Redis(_) => redis::settle(tokens, command),
    }
}

/// Settles tokens that were taken from a bucket in memory. Returns the bucket after the settlement,
/// or `None` if there was nothing to settle.
#[cfg(feature = "tower")]
pub(crate) fn settle_in_memory(
    limiter: &RateLimiter,
    key: &[u8],
    taken: u64,
    cost: u64,
) -> Option<Decision> {
    let settle = Command::Settle {
        held: taken,
        price: cost,
    };
    (taken != cost)
        .then(|| apply(limiter, key, None, settle.without_holds()))
        .flatten()
}

fn apply(
    limiter: &RateLimiter,
    key: &[u8],
    tier: Option<Tier>,
    command: Command,
) -> Option<Decision> {
    let target = Target {
        tier: tier.map(Tier::id),
        ..Target::new(key)
    };
    // The key is valid: tokens were taken from its bucket.
    limiter.run_blocking(&target, command).ok()
}

#[cfg(feature = "redis")]
mod redis {
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    use super::{
        Command, Decision, Duration, HeldTokens, RateLimiter, SETTLE_WITHIN, SETTLING_MAX,
        Settlement, Target, Tier,
    };
    use crate::backoff::Backoff;
    use crate::error::Error;
    use crate::hold::Holder;
    use crate::idempotency::OpId;
    use crate::limiter::SettlementGuard;
    use crate::log_throttle::LogThrottle;
    use crate::store::TierId;

    const BACKOFF: Backoff =
        Backoff::new(Duration::from_millis(50), Duration::from_secs(1)).expect("in range");

    pub(super) fn settle(tokens: HeldTokens, command: Command) -> Settlement {
        let HeldTokens {
            limiter,
            key,
            decision,
            tier,
            holder,
            ..
        } = tokens;
        let Some(guard) = limiter.settlements().begin(SETTLING_MAX) else {
            give_up(&limiter, "too many settlements wait for Redis");
            return Settlement::done(decision);
        };
        let mut pending = PendingSettlement {
            limiter,
            key,
            tier: tier.map(Tier::id),
            command,
            holder,
            id: OpId::random(),
            is_open: true,
            _guard: guard,
        };
        let Ok(runtime) = Handle::try_current() else {
            // A thread without a runtime may block.
            let settled = pending.attempt_blocking();
            return Settlement::done(settled.unwrap_or(decision));
        };
        let (sender, receiver) = oneshot::channel();
        runtime.spawn(pending.run(sender));
        Settlement {
            decision,
            attempt: Some(receiver),
        }
    }

    /// One settlement. All attempts use the same operation id, so that it happens once.
    struct PendingSettlement {
        limiter: RateLimiter,
        key: Box<[u8]>,
        tier: Option<TierId>,
        command: Command,
        holder: Option<Holder>,
        id: OpId,
        is_open: bool,
        _guard: SettlementGuard,
    }

    impl PendingSettlement {
        async fn run(mut self, first: oneshot::Sender<Decision>) {
            let mut error = match self.attempt().await {
                Ok(decision) => {
                    self.is_open = false;
                    // The receiver may be gone.
                    let _ = first.send(decision);
                    return;
                }
                Err(error) => error,
            };
            drop(first);
            let mut delays = BACKOFF.delays();
            let mut waited = Duration::ZERO;
            while is_transient(&error) && waited < SETTLE_WITHIN {
                let wait = delays.next().unwrap_or(SETTLE_WITHIN);
                tokio::time::sleep(wait).await;
                waited += wait;
                match self.attempt().await {
                    Ok(_) => {
                        self.is_open = false;
                        return;
                    }
                    Err(again) => error = again,
                }
            }
            self.is_open = false;
            give_up(&self.limiter, &error.to_string());
        }

        async fn attempt(&self) -> Result<Decision, Error> {
            self.limiter.run(&self.target(), self.command).await
        }

        fn attempt_blocking(&mut self) -> Option<Decision> {
            self.is_open = false;
            let settled = self.limiter.run_blocking(&self.target(), self.command);
            if let Err(error) = &settled {
                give_up(&self.limiter, &error.to_string());
            }
            settled.ok()
        }

        fn target(&self) -> Target<'_> {
            Target {
                key: &self.key,
                tier: self.tier,
                id: Some(&self.id),
                holder: self.holder.as_ref().map(|holder| holder.id),
            }
        }
    }

    impl Drop for PendingSettlement {
        fn drop(&mut self) {
            // The runtime is shutting down: this is the last chance.
            if self.is_open {
                self.attempt_blocking();
            }
        }
    }

    /// Gives a settlement up: the bucket has more, or less, than it should until it has refilled. What
    /// is held of it expires, because other holds of this process no longer renew it.
    fn give_up(limiter: &RateLimiter, reason: &str) {
        static THROTTLE: LogThrottle = LogThrottle::new();
        if let Some(redis) = limiter.redis() {
            redis.buckets().replace_holder_id();
        }
        if let Some(suppressed) = THROTTLE.allow(limiter.now_us()) {
            tracing::error!(
                target: "balde",
                event_type = "settlement_lost",
                storage_mode = "redis",
                policy = limiter.name(),
                suppressed,
                "a hold could not be settled and was given up: {reason}"
            );
        }
    }

    fn is_transient(error: &Error) -> bool {
        matches!(error, Error::Store(failure) if failure.is_transient())
    }
}

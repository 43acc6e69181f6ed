//! Sending a request again until it succeeds, within the throttler's rates and a budget of retries.

mod budget;

use std::time::Duration;

use balde::{Backoff, Share};
use thiserror::Error;
use tokio::time::Instant;

pub use budget::RetryBudget;

use crate::error::{Refusal, SettingsError};
use crate::health::INTERVAL_MAX;
use crate::outcome::Report;
use crate::throttler::Throttler;

/// How often and for how long a request is sent again. [`Throttler::retry_policy`] returns one with
/// defaults.
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing until it is passed to send_with_retry"]
pub struct RetryPolicy {
    attempts_max: u32,
    give_up_after: Duration,
    backoff: Backoff,
    budget: RetryBudget,
}

impl RetryPolicy {
    /// A policy with this budget: at most 50 attempts for each request, within ten minutes, with 50 ms
    /// between the first two, doubled up to 400 ms.
    ///
    /// The delays are short and have no jitter because every attempt also waits for the throttler's
    /// tokens, which keep retries apart.
    pub fn new(budget: RetryBudget) -> Self {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
        Self {
            attempts_max: 50,
            give_up_after: Duration::from_secs(600),
            backoff: backoff.expect("these delays are in range"),
            budget,
        }
    }

    /// Sets how often a request is sent at most, the first time included.
    pub fn attempts_max(self, attempts_max: u32) -> Result<Self, SettingsError> {
        if attempts_max == 0 {
            return Err(SettingsError::Number {
                which: "attempts_max",
                number: 0,
                max: u32::MAX as usize,
            });
        }
        Ok(Self {
            attempts_max,
            ..self
        })
    }

    /// Sets how long after its first attempt a request is not sent again, from 1 ms to 24 hours.
    pub fn give_up_after(self, interval: Duration) -> Result<Self, SettingsError> {
        if !(Duration::from_millis(1)..=INTERVAL_MAX).contains(&interval) {
            let which = "give_up_after";
            return Err(SettingsError::Interval { which, interval });
        }
        Ok(Self {
            give_up_after: interval,
            ..self
        })
    }

    /// Sets the delays between attempts.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// The budget, which clones of this policy share.
    pub fn budget(&self) -> &RetryBudget {
        &self.budget
    }
}

/// Why [`Throttler::send_with_retry`] returned no result.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryError<E> {
    /// The throttler refused the tokens, and waiting would not have helped.
    #[error("{0}")]
    Refused(Refusal),
    /// The request failed in a way that a retry does not cure: the report's outcome was no failure of
    /// the server.
    #[error("{0}")]
    Failed(#[source] E),
    /// The request failed again and again. This is the error of the last attempt.
    #[error("{error}; gave up after {attempts} attempts: {reason}")]
    GaveUp {
        /// The error of the last attempt.
        #[source]
        error: E,
        /// How often the request was sent.
        attempts: u32,
        /// Which limit ended the attempts.
        reason: GaveUp,
    },
}

/// Which limit ended the attempts to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GaveUp {
    /// `attempts_max` of the policy.
    #[error("attempts_max is reached")]
    Attempts,
    /// `give_up_after` of the policy.
    #[error("give_up_after is over")]
    Time,
    /// The budget of retries is spent.
    #[error("the budget of retries is spent")]
    Budget,
}

impl Throttler {
    /// A policy for [`send_with_retry`](Throttler::send_with_retry). Its budget is what the global rate
    /// allows in ten seconds, and each success gives a fifth of a retry back.
    pub fn retry_policy(&self) -> RetryPolicy {
        let rate = self.pace().rate();
        let ten_seconds = u128::from(rate.tokens()) * 10_000 / rate.period().as_millis().max(1);
        let reserve = u64::try_from(ten_seconds).unwrap_or(u64::MAX).max(10);
        RetryPolicy::new(RetryBudget::new(reserve, Share::percent(20)))
    }

    /// Sends a request, and sends it again while the server fails, until it succeeds or the policy's
    /// limits are reached.
    ///
    /// `send` makes one attempt; it gets the attempt's number, from 1. `report` says how the attempt
    /// ended: an `Err` whose outcome is `Error`, `Timeout` or `Pushback` is sent again; any other `Err`
    /// is returned at once. Every attempt waits for its tokens, so retries never exceed the rates. After
    /// a [`Report::retry_after`] the whole partition pauses; while the circuit is open, the request waits
    /// without counting an attempt.
    ///
    /// A request whose outcome is unknown, such as after a timeout, may be executed twice. Send the same
    /// idempotency key with every attempt, so that the server can tell.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use balde_throttle::{Outcome, Throttler};
    ///
    /// let throttler = Throttler::new(1_000, 100)?;
    /// let retry = throttler.retry_policy();
    /// let sent = throttler
    ///     .send_with_retry("orders", 1, &retry, |attempt| async move {
    ///         if attempt == 1 { Err("503") } else { Ok("created") }
    ///     }, |result| match result {
    ///         Ok(_) => Outcome::Success.into(),
    ///         Err(_) => Outcome::Pushback.into(),
    ///     })
    ///     .await;
    /// assert_eq!(sent, Ok("created"));
    /// # Ok(()) }) }
    /// ```
    pub async fn send_with_retry<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        partition: &str,
        n: u64,
        policy: &RetryPolicy,
        mut send: impl FnMut(u32) -> F,
        report: impl Fn(&Result<T, E>) -> Report,
    ) -> Result<T, RetryError<E>> {
        let deadline = Instant::now() + policy.give_up_after;
        let mut attempts: u32 = 0;
        let mut last: Option<E> = None;
        loop {
            let permit = match self.permit(partition, n).await {
                Ok(permit) => permit,
                Err(Refusal::CircuitOpen { retry_after }) => {
                    if Instant::now() + retry_after > deadline {
                        let refused = Refusal::CircuitOpen { retry_after };
                        return Err(gave_up(last, attempts, GaveUp::Time, refused));
                    }
                    tokio::time::sleep(retry_after).await;
                    continue;
                }
                Err(refusal) => return Err(RetryError::Refused(refusal)),
            };
            attempts += 1;
            let result = send(attempts).await;
            let reported = report(&result);
            let is_failure = reported.outcome.is_failure();
            let is_pausing = reported.retry_after.is_some();
            permit.report(reported);
            let error = match result {
                Ok(sent) => {
                    policy.budget.earn();
                    return Ok(sent);
                }
                Err(error) if !is_failure => return Err(RetryError::Failed(error)),
                Err(error) => error,
            };
            // A server that has said when to come back is asked then, not by the backoff.
            let delay = if is_pausing {
                Duration::ZERO
            } else {
                policy.backoff.delay(attempts - 1)
            };
            let reason = if attempts >= policy.attempts_max {
                Some(GaveUp::Attempts)
            } else if Instant::now() + delay > deadline {
                Some(GaveUp::Time)
            } else if !policy.budget.spend() {
                Some(GaveUp::Budget)
            } else {
                None
            };
            if let Some(reason) = reason {
                return Err(RetryError::GaveUp {
                    error,
                    attempts,
                    reason,
                });
            }
            last = Some(error);
            tokio::time::sleep(delay).await;
        }
    }
}

/// The error of a request that ends while it waits: that of its last attempt, or the refusal if there
/// was none.
fn gave_up<E>(last: Option<E>, attempts: u32, reason: GaveUp, refused: Refusal) -> RetryError<E> {
    match last {
        Some(error) => RetryError::GaveUp {
            error,
            attempts,
            reason,
        },
        None => RetryError::Refused(refused),
    }
}

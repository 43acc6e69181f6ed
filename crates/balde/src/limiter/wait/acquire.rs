//! The future of one request that waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::driver;
use super::outcome::Outcome;
use super::queue::Place;
use super::{Timer, WaitResult};
use crate::error::AcquireError;
use crate::limiter::RateLimiter;

/// Resolves when the request has its tokens, or will not get them. If it is dropped before, it
/// leaves the queue; tokens that it was granted and has not seen are given back.
pub(super) struct Acquire<'l> {
    limiter: &'l RateLimiter,
    key: &'l [u8],
    place: Place,
    timer: Timer,
    is_done: bool,
}

impl<'l> Acquire<'l> {
    pub(super) fn join(
        limiter: &'l RateLimiter,
        key: &'l [u8],
        n: u64,
        deadline: Option<Instant>,
        timer: Timer,
    ) -> Result<Self, AcquireError> {
        let joined = limiter.waiters().join(key, n, deadline);
        let (place, must_drive) =
            joined.map_err(|waiters_max| AcquireError::TooManyWaiters { waiters_max })?;
        let acquire = Self {
            limiter,
            key,
            place,
            timer,
            is_done: false,
        };
        if must_drive {
            acquire.start_driver();
        }
        Ok(acquire)
    }

    fn start_driver(&self) {
        let runtime = self.limiter.driver_runtime(self.timer);
        driver::start(&runtime, self.limiter.clone(), self.key.into());
    }
}

impl Future for Acquire<'_> {
    type Output = WaitResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WaitResult> {
        if let Some(result) = self.place.ticket.poll(context.waker()) {
            self.is_done = true;
            return Poll::Ready(result);
        }
        if self.limiter.waiters().must_drive(self.key) {
            self.start_driver();
        }
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.limiter.waiters().count(Outcome::Dropped);
        let unseen = self.limiter.waiters().cancel(self.key, &self.place);
        if let Some(decision) = unseen {
            driver::give_back(self.limiter, self.key, &decision);
        }
    }
}

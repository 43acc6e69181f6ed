//! The monitor's clock, and how to wait for a moment of that clock.

use std::fmt;
use std::time::Duration;

use balde::{Clock, ManualClock};

/// The longest sleep before the clock is read again, because the clock may be corrected meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// The shortest sleep, so that waiting for a stopped clock does not spin.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The monitor's source of time: the system clock, or a manual clock in tests and simulations.
#[derive(Clone)]
pub struct TimeSource {
    clock: Clock,
    monotonic: Clock,
    speed: u32,
}

impl TimeSource {
    /// The system clock.
    pub fn system() -> Self {
        Self {
            clock: Clock::wall(),
            monotonic: Clock::precise(),
            speed: 1,
        }
    }

    /// A manual clock that the caller advances at about `speed` times real time. Waits are shortened
    /// by that factor.
    pub fn manual(clock: &ManualClock, speed: u32) -> Self {
        Self {
            clock: Clock::manual(clock),
            monotonic: Clock::manual(clock),
            speed: speed.max(1),
        }
    }

    /// The current time in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// The wall clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A monotonic clock, for rate limits: with the wall clock, a bucket would not refill after
    /// that clock was set back, until it has caught up.
    pub fn monotonic(&self) -> &Clock {
        &self.monotonic
    }

    /// Waits until the clock shows `us`. Returns early if the clock is set back, so that the caller
    /// can compute its deadlines again.
    pub async fn sleep_until(&self, us: u64) {
        let mut latest_us = self.now_us();
        loop {
            let now_us = self.now_us();
            let left_us = us.saturating_sub(now_us);
            if left_us == 0 || now_us < latest_us {
                return;
            }
            latest_us = now_us;
            let wait = Duration::from_micros(left_us) / self.speed;
            tokio::time::sleep(wait.clamp(SLEEP_MIN, SLEEP_MAX)).await;
        }
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeSource")
            .field("now_us", &self.now_us())
            .field("speed", &self.speed)
            .finish_non_exhaustive()
    }
}

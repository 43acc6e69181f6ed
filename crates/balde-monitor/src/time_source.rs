//! The monitor's time: a clock, and how to wait by it.

use std::fmt;
use std::time::Duration;

use balde::{Clock, ManualClock};

/// The longest that a wait goes without looking at the clock again: it may have been corrected.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The shortest wait, so that a clock that stands still keeps no processor busy.
const SHORTEST: Duration = Duration::from_millis(1);

/// What time it is, and how fast it goes.
#[derive(Clone)]
pub struct TimeSource {
    clock: Clock,
    steady: Clock,
    speed: u32,
}

impl TimeSource {
    /// The world's.
    pub fn real() -> Self {
        Self {
            clock: Clock::wall(),
            steady: Clock::precise(),
            speed: 1,
        }
    }

    /// A clock that somebody else moves, at about `speed` times the world's pace. Waits go by that.
    pub fn moved(clock: &ManualClock, speed: u32) -> Self {
        Self {
            clock: Clock::manual(clock),
            steady: Clock::manual(clock),
            speed: speed.max(1),
        }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// The clock itself.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A clock that is never put back, for limits: what was spent by a clock that was ahead would be
    /// missing until the time is made up for.
    pub fn steady(&self) -> &Clock {
        &self.steady
    }

    /// Waits until it is `us`, or until the clock was put back: then what was to happen at `us` has
    /// to be thought about anew.
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
            tokio::time::sleep(wait.clamp(SHORTEST, LOOK_AGAIN)).await;
        }
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Time")
            .field("now_us", &self.now_us())
            .field("speed", &self.speed)
            .finish_non_exhaustive()
    }
}

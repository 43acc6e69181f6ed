//! The only module that reads time.
//!
//! A limiter's clock counts microseconds of Unix time and never goes back. The precise clock reads
//! the processor's counter and follows the system's clock: once a second it compares the two and
//! corrects its rate. So a stepwise limit refills at the same time in every process, and a step of
//! the system's clock mints no tokens.

mod anchor;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::anchor::AnchoredClock;

/// The clock of a limiter. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Precise(Arc<AnchoredClock>),
    Cached(Arc<Cached>),
    Wall,
    Shifted(Box<Clock>, i64),
    Manual(ManualClock),
    #[cfg(feature = "tokio")]
    Tokio(OfTokio),
}

impl Clock {
    /// A clock that reads the processor's counter with every check, in whole microseconds. The
    /// default.
    ///
    /// It follows the system's clock: once a second a reading compares the two and corrects the rate
    /// for the next second, so that a counter whose rate is off by some tens of millionths does not
    /// lead away from the time of day. A correction is at most one part in 2,000: where the system's
    /// clock is stepped, this clock neither jumps nor goes back, but approaches it slowly.
    pub fn precise() -> Self {
        Self(Kind::Precise(Arc::new(AnchoredClock::start())))
    }

    /// A clock that a background thread updates every `interval`, so that a check reads a number
    /// instead of a clock. The thread follows the system's monotonic clock.
    ///
    /// Readings are late by up to the interval, plus the delay with which the system wakes the thread
    /// ([`worst_lag`](Clock::worst_lag) is the largest so far). Late readings never add tokens: a
    /// refill is seen late, a promised wait may be too short by the delay, and in any interval T the
    /// tokens granted are at most capacity + refill(T + delay). The interval is clamped to between
    /// 50 µs and 100 ms; the thread ends with the last clone of the clock.
    pub fn cached(interval: Duration) -> Self {
        Self(Kind::Cached(Cached::start(interval)))
    }

    /// A clock that reads the system's wall clock each time, corrections and steps included: for
    /// long-running programs that follow the calendar. It is safe for limiters: after a step back,
    /// buckets do not refill until the clock has caught up.
    pub fn wall() -> Self {
        Self(Kind::Wall)
    }

    /// This clock, ahead by `by_us` microseconds, or behind if it is negative. The periods of a
    /// stepwise limit begin when a clock shows a multiple of the period, so a clock that is shifted by
    /// the offset of a time zone makes days begin at midnight there.
    #[must_use]
    pub fn shifted(&self, by_us: i64) -> Self {
        if by_us == 0 {
            return self.clone();
        }
        Self(Kind::Shifted(Box::new(self.clone()), by_us))
    }

    /// A clock that is set by hand, for tests. See [`ManualClock`].
    pub fn manual(clock: &ManualClock) -> Self {
        Self(Kind::Manual(clock.clone()))
    }

    /// A clock that follows tokio's. This is real time, except in a runtime whose time is paused
    /// (`start_paused`): there a test runs in virtual time, as fast as its work allows.
    #[cfg(feature = "tokio")]
    pub fn tokio() -> Self {
        Self(Kind::Tokio(OfTokio {
            started: tokio::time::Instant::now(),
            started_us: wall_us(),
        }))
    }

    /// Microseconds since the Unix epoch; never less than before, except for [`wall`](Clock::wall).
    #[inline]
    pub fn now_us(&self) -> u64 {
        match &self.0 {
            Kind::Precise(anchored) => anchored.now_us(),
            Kind::Cached(cached) => cached.now_us.load(Ordering::Relaxed),
            Kind::Wall => wall_us(),
            Kind::Shifted(clock, by_us) => clock.now_us().saturating_add_signed(*by_us),
            Kind::Manual(manual) => manual.now_us(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(of_tokio) => of_tokio.now_us(),
        }
    }

    /// Returns true for a manual clock.
    #[cfg(feature = "redis")]
    pub(crate) fn is_manual(&self) -> bool {
        match &self.0 {
            Kind::Shifted(clock, _) => clock.is_manual(),
            kind => matches!(kind, Kind::Manual(_)),
        }
    }

    /// Returns true if a test can move or pause this clock: a manual clock, and one that follows
    /// tokio's.
    pub fn is_virtual(&self) -> bool {
        match &self.0 {
            Kind::Manual(_) => true,
            Kind::Shifted(clock, _) => clock.is_virtual(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => true,
            _ => false,
        }
    }

    /// The longest time between two updates of a [`cached`](Clock::cached) clock so far. Zero for
    /// other clocks.
    pub fn worst_lag(&self) -> Duration {
        match &self.0 {
            Kind::Cached(cached) => {
                Duration::from_micros(cached.worst_lag_us.load(Ordering::Relaxed))
            }
            Kind::Shifted(clock, _) => clock.worst_lag(),
            _ => Duration::ZERO,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::precise()
    }
}

/// A clock for tests and simulations that is set by hand. It never goes back: setting an earlier time
/// has no effect.
///
/// ```
/// use balde::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_millis(100));
/// assert_eq!(clock.now_us(), 100_000);
/// clock.set_us(5);
/// assert_eq!(clock.now_us(), 100_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock at `now_us` microseconds.
    pub fn at_us(now_us: u64) -> Self {
        let clock = Self::new();
        clock.set_us(now_us);
        clock
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let step = |now_us: u64| Some(now_us.saturating_add(whole_us(by)));
        let _always_moves = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Sets the clock. An earlier time than the current one has no effect.
    pub fn set_us(&self, now_us: u64) {
        self.0.fetch_max(now_us, Ordering::AcqRel);
    }

    /// The current time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Unix time at the start, and tokio's clock since.
#[cfg(feature = "tokio")]
#[derive(Clone, Debug)]
struct OfTokio {
    started: tokio::time::Instant,
    started_us: u64,
}

#[cfg(feature = "tokio")]
impl OfTokio {
    fn now_us(&self) -> u64 {
        let elapsed = self.started.elapsed();
        self.started_us.saturating_add(whole_us(elapsed))
    }
}

/// Measures durations with the processor's counter, for metrics and logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(quanta::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(quanta::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[derive(Debug)]
struct Cached {
    now_us: AtomicU64,
    worst_lag_us: AtomicU64,
}

impl Cached {
    fn start(interval: Duration) -> Arc<Self> {
        let interval = interval.clamp(Duration::from_micros(50), Duration::from_millis(100));
        let started = Instant::now();
        let started_us = wall_us();
        let now_us = move || started_us.saturating_add(whole_us(started.elapsed()));
        let cached = Arc::new(Self {
            now_us: AtomicU64::new(started_us),
            worst_lag_us: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&cached);
        let updates = move || {
            loop {
                thread::sleep(interval);
                let Some(cached) = weak.upgrade() else { return };
                let now_us = now_us();
                let before_us = cached.now_us.swap(now_us, Ordering::Relaxed);
                cached
                    .worst_lag_us
                    .fetch_max(now_us.saturating_sub(before_us), Ordering::Relaxed);
            }
        };
        thread::Builder::new()
            .name("balde-clock".to_owned())
            .spawn(updates)
            .expect("the system gives one more thread for the cached clock");
        cached
    }
}

/// The time of day, for header fields and log lines.
#[cfg(any(feature = "logs", feature = "tower"))]
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// Unix time; zero if the wall clock is before 1970.
fn wall_us() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.map_or(0, whole_us)
}

/// Whole microseconds, saturating.
fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precise_clock_follows_the_wall_clock() {
        let clock = Clock::precise();
        let start_us = clock.now_us();
        assert!(
            wall_us().abs_diff(start_us) < 5_000_000,
            "the same time of day"
        );
        let before_us = wall_us();
        let mut last_us = start_us;
        while wall_us() < before_us + 50_000 {
            let now_us = clock.now_us();
            assert!(now_us >= last_us);
            last_us = now_us;
        }
        let last_us = clock.now_us();
        // Both have seen at least the same fifty milliseconds, give or take a wall clock that is
        // being corrected.
        assert!(last_us - start_us > 45_000, "{} µs", last_us - start_us);
    }

    #[test]
    fn a_cached_clock_advances_and_measures_its_lag() {
        let clock = Clock::cached(Duration::from_micros(100));
        let start_us = clock.now_us();
        let deadline = Instant::now() + Duration::from_secs(10);
        // The thread stores the time first, and its lag a moment later.
        let is_measured = || clock.worst_lag() >= Duration::from_micros(100);
        while clock.now_us() == start_us || !is_measured() {
            assert!(Instant::now() < deadline, "the clock does not advance");
            thread::yield_now();
        }
    }

    #[test]
    fn setting_a_manual_clock_to_an_earlier_time_has_no_effect() {
        let manual = ManualClock::at_us(1_000);
        let clock = Clock::manual(&manual);
        manual.set_us(10);
        assert_eq!(clock.now_us(), 1_000);
        manual.advance(Duration::MAX);
        assert_eq!(clock.now_us(), u64::MAX);
    }
}

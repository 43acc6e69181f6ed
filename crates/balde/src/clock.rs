//! The one place that reads time.
//!
//! A limiter's clock counts microseconds of Unix time and never runs backwards: it takes the wall
//! clock once, when it is made, and goes on from there by a steady one. So a stepwise limit refills
//! at about the same moments in every process, and a corrected wall clock changes no bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a limiter tells the time. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Precise(Steady),
    Cached(Arc<Cached>),
    Wall,
    Manual(ManualClock),
    #[cfg(feature = "tokio")]
    Tokio(OfTokio),
}

impl Clock {
    /// Reads the processor's counter with every check, in whole microseconds.
    ///
    /// The counter's rate is measured once, when the clock is made, and may be off by some tens of
    /// millionths: one to three seconds a day. Waits that are promised are exact by this clock. Where
    /// a process runs for months and stepwise limits must land on the minute, use
    /// [`cached`](Clock::cached), which goes by the system's steady clock, or a store that has its own.
    pub fn precise() -> Self {
        Self(Kind::Precise(Steady::start()))
    }

    /// Reads a number that a thread of its own brings up to date every `interval`.
    ///
    /// The thread goes by the system's steady clock, and a check costs no clock read. What it costs is age: a reading is late by up to the
    /// interval, plus however late the system wakes the thread
    /// ([`worst_lag`](Clock::worst_lag) tells the worst that happened). Late readings mint nothing:
    /// tokens show up late by that age, a promised wait can be that much too short, and in any
    /// stretch of true time T the tokens granted are at most capacity + refill(T + age). The
    /// interval is kept between 50 µs and 100 ms; the thread ends with the last clone of the clock.
    pub fn cached(interval: Duration) -> Self {
        Self(Kind::Cached(Cached::start(interval)))
    }

    /// Reads the system's wall clock each time, corrections and steps included: for what goes by
    /// the calendar and runs for months. A limiter on it is safe, too: a step back mints nothing,
    /// and stands still until the time is made up for.
    pub fn wall() -> Self {
        Self(Kind::Wall)
    }

    /// Shows what it is told. See [`ManualClock`].
    pub fn manual(clock: &ManualClock) -> Self {
        Self(Kind::Manual(clock.clone()))
    }

    /// Follows tokio's clock. This is real time, except in a runtime whose time is paused
    /// (`start_paused`): there a test runs in virtual time, as fast as its work allows.
    #[cfg(feature = "tokio")]
    pub fn tokio() -> Self {
        Self(Kind::Tokio(OfTokio {
            started: tokio::time::Instant::now(),
            started_us: wall_us(),
        }))
    }

    /// Microseconds since the Unix epoch; never less than before, but for [`wall`](Clock::wall).
    #[inline]
    pub fn now_us(&self) -> u64 {
        match &self.0 {
            Kind::Precise(steady) => steady.now_us(),
            Kind::Cached(cached) => cached.now_us.load(Ordering::Relaxed),
            Kind::Wall => wall_us(),
            Kind::Manual(manual) => manual.now_us(),
            #[cfg(feature = "tokio")]
            Kind::Tokio(of_tokio) => of_tokio.now_us(),
        }
    }

    /// Whether the time is not the world's.
    #[cfg(feature = "redis")]
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, Kind::Manual(_))
    }

    /// Returns true if a test can move or pause this clock: a manual clock, and one that follows
    /// tokio's.
    pub fn is_virtual(&self) -> bool {
        match self.0 {
            Kind::Manual(_) => true,
            #[cfg(feature = "tokio")]
            Kind::Tokio(_) => true,
            _ => false,
        }
    }

    /// The longest that a cached clock has gone without being brought up to date. Zero for the
    /// others.
    pub fn worst_lag(&self) -> Duration {
        match &self.0 {
            Kind::Cached(cached) => {
                Duration::from_micros(cached.worst_lag_us.load(Ordering::Relaxed))
            }
            _ => Duration::ZERO,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::precise()
    }
}

/// A clock for tests and simulations, moved by hand. It can be told an earlier time, and then goes
/// on showing the latest one it has shown: time that has passed stays passed.
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
    /// A clock that shows zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that shows `now_us` microseconds.
    pub fn at_us(now_us: u64) -> Self {
        let clock = Self::new();
        clock.set_us(now_us);
        clock
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let step = |now_us: u64| Some(now_us.saturating_add(whole_us(by)));
        let _always_moves = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Tells the clock the time. An earlier time than it shows has no effect.
    pub fn set_us(&self, now_us: u64) {
        self.0.fetch_max(now_us, Ordering::AcqRel);
    }

    /// What the clock shows.
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

/// How long something took, by the processor's counter: for what is told, not for what is decided.
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

/// Unix time at the start, and the processor's counter since.
#[derive(Clone, Debug)]
struct Steady {
    counter: quanta::Clock,
    started: u64,
    started_us: u64,
    /// Microseconds per count, in units of 2^-64: so that telling the time is one multiplication.
    us_per_count: u64,
}

impl Steady {
    fn start() -> Self {
        let counter = quanta::Clock::new();
        Self {
            started: counter.raw(),
            started_us: wall_us(),
            us_per_count: us_per_count(&counter),
            counter,
        }
    }

    #[inline]
    fn now_us(&self) -> u64 {
        // Counters of two processors may differ by a little; time does not run backwards for it.
        let count = self.counter.raw().saturating_sub(self.started);
        let scaled = u128::from(count) * u128::from(self.us_per_count);
        self.started_us + u64::try_from(scaled >> 64).unwrap_or(u64::MAX)
    }
}

/// Over 2^40 counts the nanoseconds are exact to some parts in 10^12, far better than the rate they
/// come from.
fn us_per_count(counter: &quanta::Clock) -> u64 {
    let nanos = counter.delta_as_nanos(0, 1 << 40);
    let scaled = (u128::from(nanos) << 24) / 1_000;
    u64::try_from(scaled).expect("a count is less than a microsecond")
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

/// The time of day, for header fields that tell one.
#[cfg(feature = "tower")]
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// A wall clock before 1970 is wrong; starting from zero is as good as any other time.
fn wall_us() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.map_or(0, whole_us)
}

/// Whole microseconds; a duration of over half a million years counts as that long.
fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precise_clock_shows_the_worlds_time() {
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
    fn a_cached_clock_moves_by_itself_and_tells_how_late_it_was() {
        let clock = Clock::cached(Duration::from_micros(100));
        let start_us = clock.now_us();
        let deadline = Instant::now() + Duration::from_secs(10);
        // The thread writes the time first and how late it was a moment after.
        let is_told = || clock.worst_lag() >= Duration::from_micros(100);
        while clock.now_us() == start_us || !is_told() {
            assert!(Instant::now() < deadline, "the clock stands still");
            thread::yield_now();
        }
    }

    #[test]
    fn a_manual_clock_that_is_told_an_earlier_time_stays_where_it_is() {
        let manual = ManualClock::at_us(1_000);
        let clock = Clock::manual(&manual);
        manual.set_us(10);
        assert_eq!(clock.now_us(), 1_000);
        manual.advance(Duration::MAX);
        assert_eq!(clock.now_us(), u64::MAX);
    }
}

//! The processor's counter, anchored to the system's clock.
//!
//! Readings lie on a straight line from an anchor: a count and the time at that count. The line ends
//! after a second; the first reading after its end compares it with the system's clock and draws the
//! next one. Each line begins where the one before it was and is a little steeper or flatter, to come
//! closer to the system's clock. Only after a pause in the readings it may begin somewhat earlier or later
//! than that, but never before the last reading. So readings never go back.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use super::wall_us;

/// How long a line is used.
const LINE_US: u64 = 1_000_000;

/// The largest correction: one part in so many of the time since the last one. Counters are off by
/// less than a tenth of that, and NTP corrects the system's clock at this rate at most.
const CORRECTION_ONE_IN: u64 = 2_000;

/// After so long without a reading the correction is applied at once, not over the next line: no reading
/// came between. It has the same maximum, so a clock that was set by hours is followed slowly.
const QUIET_US: u64 = 2 * LINE_US;

/// Readings of the system's clock that take longer than this, in microseconds, are repeated.
const SAMPLE_WITHIN_US: u64 = 5;
const SAMPLES_MAX: u32 = 4;

/// The clock that limiters read. A reading is a read of the counter, a few loads and a multiplication.
pub(super) struct AnchoredClock {
    counter: quanta::Clock,
    rate: Rate,
    /// Odd while the line is being replaced.
    version: AtomicU64,
    count: AtomicU64,
    time_us: AtomicU64,
    us_per_count: AtomicU64,
    end_count: AtomicU64,
    replacing: Mutex<()>,
}

impl AnchoredClock {
    pub(super) fn start() -> Self {
        let counter = quanta::Clock::new();
        let rate = Rate::of(&counter);
        let (count, time_us) = sample(&counter, rate);
        let line = rate.line(count, time_us);
        Self {
            counter,
            rate,
            version: AtomicU64::new(0),
            count: AtomicU64::new(line.count),
            time_us: AtomicU64::new(line.time_us),
            us_per_count: AtomicU64::new(line.us_per_count),
            end_count: AtomicU64::new(line.end_count),
            replacing: Mutex::new(()),
        }
    }

    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        if let Some(line) = self.line() {
            let count = self.counter.raw();
            // A line that was replaced after this check would have given a later time, never an
            // earlier one.
            if count < line.end_count {
                return line.at(count);
            }
        }
        self.replace_line()
    }

    /// The current line; `None` while it is being replaced.
    #[inline]
    fn line(&self) -> Option<Line> {
        let version = self.version.load(Ordering::Acquire);
        let line = Line {
            count: self.count.load(Ordering::Relaxed),
            time_us: self.time_us.load(Ordering::Relaxed),
            us_per_count: self.us_per_count.load(Ordering::Relaxed),
            end_count: self.end_count.load(Ordering::Relaxed),
        };
        // Orders the loads above before the one below.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(line)
    }

    /// Reads the time and draws the next line, unless another thread has just done that.
    #[cold]
    #[inline(never)]
    fn replace_line(&self) -> u64 {
        let _replacing = self.replacing.lock();
        let line = self
            .line()
            .expect("only the holder of the lock replaces the line");
        let count = self.counter.raw();
        if count < line.end_count {
            return line.at(count);
        }
        let (count, system_us) = sample(&self.counter, self.rate);
        let next = line.next(self.rate, count, system_us);
        self.version.fetch_add(1, Ordering::Relaxed);
        // Orders the store above before those below.
        fence(Ordering::Release);
        self.count.store(next.count, Ordering::Relaxed);
        self.time_us.store(next.time_us, Ordering::Relaxed);
        self.us_per_count
            .store(next.us_per_count, Ordering::Relaxed);
        self.end_count.store(next.end_count, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        next.time_us
    }
}

impl fmt::Debug for AnchoredClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnchoredClock").finish_non_exhaustive()
    }
}

/// A count, and the system's time at that count.
fn sample(counter: &quanta::Clock, rate: Rate) -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..SAMPLES_MAX {
        let before = counter.raw();
        let system_us = wall_us();
        let took = counter.raw().saturating_sub(before);
        // A thread that was interrupted in between does not know when the clock was read.
        best = best.min((took, before + took / 2, system_us));
        if scale(took, rate.us_per_count) <= SAMPLE_WITHIN_US {
            break;
        }
    }
    (best.1, best.2)
}

/// The rate of the counter as it was measured once, in the process's first moments: off by some tens
/// of millionths.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Microseconds per count, in units of 2^-64, so that reading the time is one multiplication.
    us_per_count: u64,
    counts_per_line: u64,
}

impl Rate {
    fn of(counter: &quanta::Clock) -> Self {
        // Over 2^40 counts the nanoseconds are exact to some parts in 10^12, far more exact than the
        // measured rate.
        let nanos = counter.delta_as_nanos(0, 1 << 40);
        Self::new((u128::from(nanos) << 24) / 1_000)
    }

    fn new(us_per_count: u128) -> Self {
        let us_per_count = u64::try_from(us_per_count).expect("a count is less than a microsecond");
        let counts_per_line = (u128::from(LINE_US) << 64) / u128::from(us_per_count.max(1));
        Self {
            us_per_count,
            counts_per_line: u64::try_from(counts_per_line).unwrap_or(u64::MAX),
        }
    }

    /// A line at this rate.
    fn line(self, count: u64, time_us: u64) -> Line {
        Line {
            count,
            time_us,
            us_per_count: self.us_per_count,
            end_count: count.saturating_add(self.counts_per_line),
        }
    }
}

/// Times from an anchor on, until its end.
#[derive(Clone, Copy, Debug)]
struct Line {
    count: u64,
    time_us: u64,
    us_per_count: u64,
    end_count: u64,
}

impl Line {
    #[inline]
    fn at(&self, count: u64) -> u64 {
        // A counter that was read early may be before the anchor; time must not go back.
        let counts = count.saturating_sub(self.count);
        self.time_us
            .saturating_add(scale(counts, self.us_per_count))
    }

    /// The line that follows this one at `count`, when the system's clock shows `system_us`.
    fn next(&self, rate: Rate, count: u64, system_us: u64) -> Self {
        let here_us = self.at(count);
        let elapsed_us = here_us - self.time_us;
        let most_us = (elapsed_us / CORRECTION_ONE_IN).cast_signed();
        let ahead_us = system_us.cast_signed() - here_us.cast_signed();
        let correction_us = ahead_us.clamp(-most_us, most_us);
        if elapsed_us > QUIET_US {
            // The last reading was before the end of this line, which is earlier than this.
            return rate.line(count, here_us.saturating_add_signed(correction_us));
        }
        let mut line = rate.line(count, here_us);
        let scaled =
            i128::from(rate.us_per_count) * i128::from(correction_us) / i128::from(LINE_US);
        let scaled = i64::try_from(scaled).unwrap_or(0);
        line.us_per_count = rate.us_per_count.saturating_add_signed(scaled);
        line
    }
}

#[inline]
fn scale(counts: u64, us_per_count: u64) -> u64 {
    let scaled = u128::from(counts) * u128::from(us_per_count);
    u64::try_from(scaled >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const DAY_US: u64 = 86_400_000_000;
    const START_US: u64 = 1_800_000_000_000_000;
    /// What the clock believes its counter to count.
    const COUNTS_PER_US: u64 = 2_400;
    /// How long before its turn a processor may read its counter; 5 µs were seen.
    const EARLY_US: u64 = 100;

    /// A clock over a counter that counts too fast by so many millionths.
    struct Simulated {
        rate: Rate,
        line: Line,
        millionths: i64,
        last_us: u64,
    }

    impl Simulated {
        fn new(millionths: i64) -> Self {
            let rate = Rate::new((1_u128 << 64) / u128::from(COUNTS_PER_US));
            Self {
                rate,
                line: rate.line(0, START_US),
                millionths,
                last_us: START_US,
            }
        }

        /// Reads the clock when it runs for `elapsed_us` and the system's clock shows `system_us`.
        fn read(&mut self, elapsed_us: u64, system_us: u64) -> u64 {
            let counts = elapsed_us * COUNTS_PER_US;
            let skew = i128::from(counts) * i128::from(self.millionths) / 1_000_000;
            let count = counts.saturating_add_signed(i64::try_from(skew).unwrap());
            if count >= self.line.end_count {
                self.line = self.line.next(self.rate, count, system_us);
            }
            let now_us = self.line.at(count);
            assert!(now_us >= self.last_us, "{now_us} after {}", self.last_us);
            self.last_us = now_us;
            now_us
        }
    }

    #[test]
    fn over_a_day_with_a_skewed_counter_it_is_within_a_millisecond_of_the_systems() {
        for millionths in [-50, -36, -1, 0, 1, 12, 50] {
            let mut random = fastrand::Rng::with_seed(5);
            let mut clock = Simulated::new(millionths);
            let (mut elapsed_us, mut worst_us) = (0, 0);
            while elapsed_us < DAY_US {
                // Busy, mostly; now and then nobody reads it for up to an hour.
                elapsed_us += match random.u32(..) {
                    0..100_000 => random.u64(..3_600_000_000),
                    _ => random.u64(..300_000),
                };
                let system_us = START_US + elapsed_us;
                worst_us = worst_us.max(clock.read(elapsed_us, system_us).abs_diff(system_us));
            }
            println!("{millionths} millionths: at most {worst_us} µs from the system's clock");
            assert!(worst_us < 1_000, "{millionths} millionths: {worst_us} µs");
        }
    }

    #[test]
    fn it_follows_a_system_clock_that_is_corrected() {
        // NTP slews by up to 500 millionths; a tenth of that for an hour, and back.
        let mut clock = Simulated::new(50);
        let (mut system_us, mut worst_us) = (START_US, 0);
        for second in 1..7_200_u64 {
            system_us += if second < 3_600 { 1_000_050 } else { 999_950 };
            let now_us = clock.read(second * 1_000_000, system_us);
            worst_us = worst_us.max(now_us.abs_diff(system_us));
        }
        assert!(worst_us < 1_000, "{worst_us} µs");
    }

    #[test]
    fn a_step_of_the_systems_clock_is_followed_slowly_and_never_back() {
        for step_us in [-3_600_000_000_i64, -500_000, 500_000, 3_600_000_000] {
            let mut clock = Simulated::new(12);
            let mut before_us = START_US;
            for tenth in 1..20_000 {
                let elapsed_us = tenth * 100_000;
                let system_us = START_US + elapsed_us;
                let now_us = clock.read(elapsed_us, system_us.saturating_add_signed(step_us));
                let passed_us = now_us - before_us;
                // A tenth of a second, give or take one part in 2,000 and the counter's skew.
                assert!((99_900..=100_100).contains(&passed_us), "{passed_us} µs");
                before_us = now_us;
            }
            let is_small = step_us.abs() < 1_000_000;
            let system_us = START_US + 19_999 * 100_000;
            let system_us = system_us.saturating_add_signed(step_us);
            assert_eq!(before_us.abs_diff(system_us) < 1_000, is_small, "{step_us}");
        }
    }

    /// The latest reading of any thread is loaded before each reading, which must not be earlier.
    /// Returns by how much the worst one was.
    fn worst_step_back_us(finish_loads: impl Fn() + Sync) -> u64 {
        let clock = AnchoredClock::start();
        // As if every reading were the first of a new second.
        let hurried = AnchoredClock {
            rate: Rate {
                counts_per_line: clock.rate.counts_per_line / 1_000_000,
                ..clock.rate
            },
            ..clock
        };
        let (latest_us, worst_us) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let before_us = latest_us.load(Ordering::SeqCst);
                        finish_loads();
                        let now_us = hurried.now_us();
                        worst_us.fetch_max(before_us.saturating_sub(now_us), Ordering::SeqCst);
                        latest_us.fetch_max(now_us, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(wall_us().abs_diff(hurried.now_us()) < 5_000_000);
        worst_us.into_inner()
    }

    /// The system's own clock makes the processor finish its loads before it goes on, so what other
    /// threads wrote is loaded before the counter is read. Then time never goes back: the counters of
    /// all processors agree, and so do the lines.
    #[test]
    fn readings_in_order_never_go_back() {
        let finish_loads = || {
            black_box(Instant::now());
        };
        assert_eq!(worst_step_back_us(finish_loads), 0);
    }

    /// Without the fence, which would cost more than the reading, the processor may read its counter
    /// some microseconds earlier than the program says. Buckets do not mind: time never goes back
    /// for them.
    #[test]
    fn readings_go_back_by_no_more_than_a_processor_reads_early() {
        let worst_us = worst_step_back_us(|| ());
        println!("at most {worst_us} µs back");
        assert!(worst_us <= EARLY_US, "{worst_us} µs");
    }
}

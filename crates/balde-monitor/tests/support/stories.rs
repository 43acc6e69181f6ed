//! Random traffic stories: what happens to one bucket, second by second, and what a monitor can
//! see of it. A story is a function of its seed.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rates and seconds of a story are small"
)]

use std::collections::VecDeque;
use std::time::Duration;

use balde_core::{Command, Limit, State};
use fastrand::Rng;

/// Seconds since the start of a story.
pub(crate) type Second = usize;

/// The policies of DICT's table that differ in their numbers: capacity, refill and period.
const LIMITS: [(&str, u64, u64, u64); 13] = [
    ("ENTRIES_WRITE", 36_000, 1_200, 60),
    ("ENTRIES_UPDATE", 600, 600, 60),
    ("CLAIMS_READ", 18_000, 600, 60),
    ("CLAIMS_LIST_WITH_ROLE", 200, 40, 60),
    ("CLAIMS_LIST_WITHOUT_ROLE", 50, 10, 60),
    ("CIDS_EVENTS_LIST", 100, 20, 60),
    ("KEYS_CHECK", 70, 70, 60),
    ("REFUNDS_WRITE", 72_000, 2_400, 60),
    ("PERSONS_STATISTICS_READ", 36_000, 12_000, 60),
    ("ENTRIES_STATISTICS_READ", 50_000, 25_000, 60),
    ("ENTRIES_STATISTICS_READ", 500, 250, 60),
    ("ENTRIES_STATISTICS_READ", 250, 25, 60),
    ("ENTRIES_STATISTICS_READ", 50, 2, 60),
];

/// The participant buckets that payment orders credit, by category.
const CREDITED: [(&str, u64, u64, u64); 4] = [
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 50_000, 25_000, 60),
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 5_000, 2_500, 60),
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 500, 250, 60),
    ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 50, 2, 60),
];

/// What kind of traffic a story has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A constant rate below the refill.
    Steady,
    /// A quiet time, a step up that lasts a while, and quiet again.
    Step,
    /// One rate after another.
    Steps,
    /// A rate that rises and falls slowly.
    Ramp,
    /// Bursts of a few seconds over a base.
    Bursts,
    /// One large burst, then hardly anything.
    Drop,
    /// A day with a peak.
    Daily,
    /// Lookups of which payments give most back.
    Credits,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Steady,
        Self::Step,
        Self::Steps,
        Self::Ramp,
        Self::Bursts,
        Self::Drop,
        Self::Daily,
        Self::Credits,
    ];
}

/// How requests arrive within their rate.
#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Even,
    Poisson,
    /// Groups of this many requests at once.
    Groups(u64),
}

/// A stretch of time: from its start on, the rate goes from `from` to `to` tokens per second.
#[derive(Clone, Copy, Debug)]
struct Piece {
    seconds: Second,
    from: f64,
    to: f64,
}

/// What happened to one bucket.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) kind: Kind,
    pub(crate) policy: &'static str,
    pub(crate) limit: Limit,
    /// The level at the end of each second.
    pub(crate) levels: Vec<i64>,
    /// The second of each episode's first refusal: none was refused in the half hour before.
    pub(crate) first_refusals: Vec<Second>,
    /// Whether a poll at this second fails.
    pub(crate) is_poll_failing: Vec<bool>,
    /// The part in which the monitor watches. The rest shows how its last forecasts end.
    pub(crate) watched: Second,
    next_empty: Vec<u32>,
}

impl Story {
    /// Makes the story of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
        let table: &[_] = if kind == Kind::Credits {
            &CREDITED
        } else {
            &LIMITS
        };
        let (policy, capacity, refill, period_s) = table[rng.usize(..table.len())];
        let limit = Limit::bucket_of(capacity, refill, Duration::from_secs(period_s));
        let limit = limit.expect("DICT's limits are valid");
        let limit = limit.with_debt_max(capacity).expect("a small debt");
        let limit = if rng.bool() { limit.stepwise() } else { limit };
        let watched = if kind == Kind::Daily {
            86_400
        } else {
            3 * 3_600
        };
        let seconds = watched + 2 * 3_600;
        let pieces = pieces(kind, &limit, seconds, &mut rng);
        let arrivals = match rng.u8(..3) {
            0 => Arrivals::Even,
            1 => Arrivals::Poisson,
            _ => Arrivals::Groups(rng.u64(2..=(capacity / 50).max(2))),
        };
        let demand = demand(kind, &limit, &pieces, seconds, arrivals, &mut rng);
        let credit = (kind == Kind::Credits).then(|| Credit {
            share: 0.5 + rng.f64() * 0.48,
            // Payments begin to fail at some time.
            failing_from: rng.usize(1_800..seconds),
            delay: rng.usize(1..60),
            not_found: rng.f64() * 0.1,
        });
        let mut story = Self {
            kind,
            policy,
            limit,
            levels: Vec::with_capacity(seconds),
            first_refusals: Vec::new(),
            is_poll_failing: failing(seconds, &mut rng),
            watched,
            next_empty: Vec::new(),
        };
        // Stepwise refills happen at any phase of the poll calendar.
        let offset_us = rng.u64(..60) * 1_000_000;
        story.play(&demand, credit, offset_us, &mut rng);
        story
    }

    /// The first second from `at` on at which the bucket is empty; `None` if it never is.
    pub(crate) fn empty_at(&self, at: Second) -> Option<Second> {
        let next = *self.next_empty.get(at)?;
        usize::try_from(next).ok().filter(|_| next != u32::MAX)
    }

    fn play(&mut self, demand: &[u64], credit: Option<Credit>, offset_us: u64, rng: &mut Rng) {
        let mut state: Option<State> = None;
        let mut credits: VecDeque<u64> = VecDeque::new();
        let mut last_refused: Option<Second> = None;
        for (second, &wanted) in demand.iter().enumerate() {
            let now_us = u64::try_from(second).expect("small") * 1_000_000 + offset_us;
            if let Some(credit) = credit {
                let due = (credits.len() >= credit.delay).then(|| credits.pop_front());
                if let Some(n) = due.flatten().filter(|n| *n > 0) {
                    state = self
                        .limit
                        .apply(state, Command::Credit { n }, now_us)
                        .state();
                }
            }
            let taken = self
                .limit
                .apply(state, Command::TakeUpTo { n: wanted }, now_us);
            state = taken.state();
            let served = if taken.is_allowed() { taken.moved() } else { 0 };
            if served < wanted {
                let is_first = last_refused.is_none_or(|last| second - last > 1_800);
                if is_first {
                    self.first_refusals.push(second);
                }
                last_refused = Some(second);
            }
            if let Some(credit) = credit {
                let share = |count: u64, share: f64, rng: &mut Rng| {
                    (0..count.min(200)).filter(|_| rng.f64() < share).count() as u64
                        * count.div_ceil(200).max(1)
                };
                let not_found = share(served, credit.not_found, rng).min(served);
                if not_found > 0 {
                    // A 404 costs three.
                    let charge = Command::Charge { n: 2 * not_found };
                    state = self.limit.apply(state, charge, now_us).state();
                }
                let paid = if second < credit.failing_from {
                    share(served - not_found, credit.share, rng).min(served - not_found)
                } else {
                    0
                };
                credits.push_back(paid);
            }
            let level = self.limit.apply(state, Command::Peek, now_us).level();
            self.levels.push(level);
        }
        let mut next = u32::MAX;
        self.next_empty = vec![u32::MAX; self.levels.len()];
        for second in (0..self.levels.len()).rev() {
            if self.levels[second] <= 0 {
                next = u32::try_from(second).expect("small");
            }
            self.next_empty[second] = next;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    share: f64,
    failing_from: Second,
    delay: Second,
    not_found: f64,
}

/// A number between `from` and `to`, each order of magnitude equally likely.
fn log_uniform(rng: &mut Rng, from: f64, to: f64) -> f64 {
    (from.ln() + rng.f64() * (to.ln() - from.ln())).exp()
}

fn pieces(kind: Kind, limit: &Limit, seconds: Second, rng: &mut Rng) -> Vec<Piece> {
    let per_second =
        |limit: &Limit| limit.refill_tokens() as f64 / (limit.period_us() as f64 / 1_000_000.0);
    let refill = per_second(limit);
    let flat = |minutes: f64, rate: f64| Piece {
        seconds: (minutes * 60.0) as Second,
        from: rate,
        to: rate,
    };
    let base = rng.f64() * 0.8 * refill;
    match kind {
        Kind::Steady => {
            let rate = (0.05 + rng.f64() * 0.9) * refill;
            vec![flat(seconds as f64 / 60.0, rate)]
        }
        Kind::Drop | Kind::Bursts => {
            let rate = rng.f64() * 0.5 * refill;
            vec![flat(seconds as f64 / 60.0, rate)]
        }
        Kind::Step => {
            let quiet = 20.0 + rng.f64() * 70.0;
            let long = log_uniform(rng, 1.0, 180.0);
            let peak = log_uniform(rng, 0.5, 20.0) * refill;
            let after = rng.f64() * 0.8 * refill;
            vec![
                flat(quiet, base),
                flat(long, peak),
                flat(seconds as f64 / 60.0, after),
            ]
        }
        Kind::Steps => {
            let mut pieces = vec![flat(20.0, base)];
            let mut left = seconds as f64 / 60.0;
            while left > 0.0 {
                let long = log_uniform(rng, 2.0, 120.0);
                pieces.push(flat(long, log_uniform(rng, 0.05, 6.0) * refill));
                left -= long;
            }
            pieces
        }
        Kind::Ramp => {
            let quiet = 20.0 + rng.f64() * 40.0;
            let peak = (1.2 + rng.f64() * 8.0) * refill;
            let slope = |minutes: f64, from, to| Piece {
                seconds: (minutes * 60.0) as Second,
                from,
                to,
            };
            vec![
                flat(quiet, base),
                slope(5.0 + rng.f64() * 55.0, base, peak),
                flat(rng.f64() * 60.0, peak),
                slope(5.0 + rng.f64() * 55.0, peak, base),
                flat(seconds as f64 / 60.0, base),
            ]
        }
        Kind::Daily => {
            // Twenty-four hours in quarters of an hour, the peak at noon.
            let peak = (0.5 + rng.f64() * 1.2) * refill;
            let at = |quarter: f64| {
                let sine = (quarter / 96.0 * std::f64::consts::PI).sin();
                (0.05 + 0.95 * sine * sine) * peak
            };
            (0..128)
                .map(|quarter| Piece {
                    seconds: 900,
                    from: at(f64::from(quarter)),
                    to: at(f64::from(quarter + 1)),
                })
                .collect()
        }
        Kind::Credits => {
            let quiet = 20.0 + rng.f64() * 40.0;
            let peak = log_uniform(rng, 0.8, 10.0) * refill;
            let long = log_uniform(rng, 5.0, 180.0);
            vec![
                flat(quiet, base),
                flat(long, peak),
                flat(seconds as f64 / 60.0, base),
            ]
        }
    }
}

/// The tokens wanted in each second.
fn demand(
    kind: Kind,
    limit: &Limit,
    pieces: &[Piece],
    seconds: Second,
    arrivals: Arrivals,
    rng: &mut Rng,
) -> Vec<u64> {
    let mut demand = Vec::with_capacity(seconds);
    let mut carry = 0.0;
    for piece in pieces {
        for second in 0..piece.seconds {
            let part = second as f64 / piece.seconds.max(1) as f64;
            let rate = piece.from + (piece.to - piece.from) * part;
            demand.push(arrived(rate, arrivals, &mut carry, rng));
        }
    }
    let last = pieces.last().map_or(0.0, |piece| piece.to);
    while demand.len() < seconds {
        demand.push(arrived(last, arrivals, &mut carry, rng));
    }
    demand.truncate(seconds);
    let mut add = |from: Second, tokens: f64, spread: Second| {
        for tokens_of_second in &mut demand[from..(from + spread).min(seconds)] {
            *tokens_of_second += (tokens / spread as f64).round() as u64;
        }
    };
    let capacity = limit.capacity() as f64;
    match kind {
        Kind::Bursts => {
            let mean = 300.0 + rng.f64() * 2_100.0;
            let mut at = 1_200.0;
            while at < seconds as f64 {
                let size = (0.05 + rng.f64() * 0.9) * capacity;
                add(at as Second, size, rng.usize(1..30));
                at += 1.0 - mean * rng.f64().max(1e-9).ln();
            }
        }
        Kind::Drop => {
            let size = (0.6 + rng.f64() * 0.39) * capacity;
            add(rng.usize(1_200..7_200), size, rng.usize(1..20));
        }
        _ => {}
    }
    demand
}

fn arrived(rate: f64, arrivals: Arrivals, carry: &mut f64, rng: &mut Rng) -> u64 {
    match arrivals {
        Arrivals::Even => {
            *carry += rate;
            let whole = carry.floor();
            *carry -= whole;
            whole as u64
        }
        Arrivals::Poisson => poisson(rate, rng),
        Arrivals::Groups(size) => poisson(rate / size as f64, rng) * size,
    }
}

fn poisson(mean: f64, rng: &mut Rng) -> u64 {
    if mean > 30.0 {
        // The sum of twelve uniform numbers is nearly normal.
        let normal: f64 = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
    }
    let (mut count, mut product) = (0, rng.f64());
    let least = (-mean).exp();
    while product > least {
        count += 1;
        product *= rng.f64();
    }
    count
}

/// Which polls fail: none in most stories, a tenth in some, and outages of minutes in some.
fn failing(seconds: Second, rng: &mut Rng) -> Vec<bool> {
    match rng.u8(..10) {
        0..7 => vec![false; seconds],
        7..9 => (0..seconds).map(|_| rng.u8(..10) == 0).collect(),
        _ => {
            let mut failing = vec![false; seconds];
            let mut at = rng.usize(..3_600);
            while at < seconds {
                let until = (at + rng.usize(120..720)).min(seconds);
                failing[at..until].fill(true);
                at = until + rng.usize(1_200..7_200);
            }
            failing
        }
    }
}

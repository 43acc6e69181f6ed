//! Random limits, commands and moments, with a liking for the edges.

use std::time::Duration;

use balde::store::redis::script::{Holder, NOW_MAX_US};
use balde_core::{Command, Decision, EXACT_MAX, Limit, OnExpiry, State, Strategy};
use fastrand::Rng;

/// A number from 1 to `most`, with every order of magnitude equally likely.
fn magnitude(random: &mut Rng, most: u64) -> u64 {
    let least = 1 << random.u32(0..=most.ilog2());
    random.u64(least..=least + (least - 1)).min(most)
}

pub(crate) fn limit(random: &mut Rng) -> Limit {
    loop {
        // Most dice fall within bounds; those that do not are thrown again.
        if let Some(limit) = try_limit(random) {
            return limit;
        }
    }
}

fn try_limit(random: &mut Rng) -> Option<Limit> {
    let (tokens, period_us) = match random.u8(..6) {
        0 => (random.u64(1..=1_000), 1_000_000),
        1 => (random.u64(1..=5_000), 60_000_000),
        2 => (random.u64(1..=20), random.u64(1..=20)),
        3 => (magnitude(random, 1 << 32), magnitude(random, 1 << 30)),
        4 => (random.u64(1..=3), magnitude(random, EXACT_MAX)),
        _ => (magnitude(random, 1 << 40), magnitude(random, EXACT_MAX)),
    };
    let period = Duration::from_micros(period_us);
    if random.u8(..4) == 0 {
        // Limiters refuse shorter windows.
        let limit = Limit::window(tokens, period.max(Duration::from_secs(1))).ok()?;
        return debt(random, limit, 1 << 20);
    }
    let limit = Limit::bucket(tokens, period).ok()?;
    let room = EXACT_MAX / limit.token_units();
    let capacity = match random.u8(..6) {
        0 => tokens,
        1 => 1,
        2 => room,
        3 => magnitude(random, room),
        4 => random.u64(1..=room),
        _ => random.u64(1..=50),
    };
    let mut limit = limit.with_capacity(capacity).ok()?;
    if random.bool() {
        limit = debt(random, limit, room - capacity)?;
    }
    if random.u8(..3) == 0 {
        limit = limit.stepwise();
    }
    if random.u8(..4) == 0 {
        limit = limit.starting_empty().ok()?;
    }
    Some(limit)
}

fn debt(random: &mut Rng, limit: Limit, room: u64) -> Option<Limit> {
    let debt_max = match random.u8(..4) {
        0 => 0,
        1 => room,
        2 => random.u64(0..=room),
        _ => random.u64(0..=20),
    };
    limit.with_debt_max(debt_max).ok()
}

/// Another limit for a bucket: often the old one with one thing different, as operators do.
pub(crate) fn another_limit(random: &mut Rng, old: &Limit) -> Limit {
    let capacity = magnitude(random, old.capacity().saturating_mul(2));
    let other = match random.u8(..4) {
        0 => old.with_capacity(capacity).ok(),
        1 => old.with_debt_max(random.u64(0..=old.debt_max())).ok(),
        2 => Some(old.stepwise()),
        _ => None,
    };
    other.unwrap_or_else(|| limit(random))
}

pub(crate) fn command(random: &mut Rng, limit: &Limit) -> Command {
    let n = tokens(random, limit);
    match random.u8(..20) {
        12..=15 => Command::Hold {
            n: small(random, limit),
            needed: small(random, limit),
        },
        16..=18 => Command::Settle {
            held: small(random, limit),
            price: small(random, limit),
        },
        19 => Command::TakeIf {
            n,
            needed: tokens(random, limit),
        },
        0 => Command::Peek,
        1..=5 => Command::Take { n },
        6 | 7 => Command::TakeUpTo { n },
        8 | 9 => Command::Charge { n },
        10 => Command::Credit { n },
        _ => Command::SetLevel {
            level: match random.u8(..6) {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => 0,
                3 => limit.capacity().cast_signed(),
                4 => -(tokens(random, limit).min(EXACT_MAX).cast_signed()),
                _ => tokens(random, limit).min(EXACT_MAX).cast_signed(),
            },
        },
    }
}

/// Mostly a small part of the capacity, as a request costs.
fn small(random: &mut Rng, limit: &Limit) -> u64 {
    match random.u8(..4) {
        0 => tokens(random, limit),
        1 => magnitude(random, limit.capacity()),
        _ => random.u64(0..=limit.capacity().min(3)),
    }
}

/// One of three processes. Their tokens may expire within the time that a test jumps ahead.
pub(crate) fn holder(random: &mut Rng) -> Holder {
    Holder {
        id: [random.u8(1..=3); 8],
        ttl_us: [1, 1_000, 1_000_000, 30_000_000][random.usize(..4)],
        on_expiry: match random.u8(..3) {
            0 => OnExpiry::GiveBack,
            _ => OnExpiry::Charge,
        },
    }
}

fn tokens(random: &mut Rng, limit: &Limit) -> u64 {
    let capacity = limit.capacity();
    match random.u8(..14) {
        0 => 0,
        1 => capacity,
        2 => capacity - 1,
        3 => capacity + 1,
        4 => capacity + limit.debt_max(),
        5 => capacity + limit.debt_max() + 1,
        6 => u64::MAX,
        7 => magnitude(random, u64::MAX),
        8 => capacity / 2 + 1,
        9 | 10 => random.u64(0..=capacity),
        11 => magnitude(random, capacity),
        _ => 1,
    }
}

/// Any state, around the present and within what the arithmetic has room for.
pub(crate) fn state(random: &mut Rng, limit: &Limit, now_us: u64) -> State {
    let owed = match random.u8(..4) {
        0 => random.u64(0..=limit.capacity_units()),
        1 => limit.owed_max(),
        2 => (limit.owed_max() + 1).min(EXACT_MAX),
        _ => magnitude(random, EXACT_MAX),
    };
    let away_us = random.u64(0..=limit.period_us());
    let at_us = match random.u8(..4) {
        0 => now_us,
        1 => now_us.saturating_sub(away_us),
        2 => now_us + away_us,
        _ => magnitude(random, 1 << 53),
    };
    State::new(owed, at_us)
}

/// The next moment, given what was decided at the last one.
pub(crate) fn moment(random: &mut Rng, now_us: u64, last: Option<&Decision>) -> u64 {
    let promised = last.map_or(0, |last| {
        last.retry_after_us()
            .unwrap_or_else(|| last.full_after_us())
    });
    let period_us = last.map_or(1_000_000, |last| last.limit().period_us());
    let next = match random.u8(..16) {
        0..=2 => now_us,
        3 => now_us + 1,
        4 => now_us.saturating_sub(1),
        5 => now_us.saturating_add(promised),
        6 => now_us.saturating_add(promised).saturating_sub(1),
        7 => now_us.saturating_add(promised).saturating_add(1),
        8 => now_us + random.u64(0..=period_us),
        9 => now_us - now_us % period_us + period_us,
        10 => now_us.saturating_sub(random.u64(0..=period_us)),
        11 => now_us.saturating_sub(magnitude(random, EXACT_MAX)),
        12 => now_us + magnitude(random, EXACT_MAX),
        13 => last
            .filter(|last| last.limit().strategy() == Strategy::FixedWindow)
            .map_or(now_us, Decision::at_us),
        _ => now_us + magnitude(random, 10_000_000),
    };
    if next <= NOW_MAX_US {
        next
    } else {
        // Time has run out: begin again somewhere, which is also a clock that steps backwards.
        random.u64(0..=NOW_MAX_US)
    }
}

//! Whatever happens to a bucket, the bounds on its consumption hold.

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{
    AnalysisSettings, Assessment, BurnRate, Confidence, Consumption, Credits,
};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::Thresholds;
use proptest::prelude::*;
use std::time::Duration;

/// A random sequence of operations on a bucket, with the time before each.
#[derive(Clone, Debug)]
struct Scenario {
    limit: Limit,
    start_us: u64,
    steps: Vec<(u64, Operation)>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Apply(Command),
    /// Takes a sample whose timestamp is late by this much.
    Sample(u64),
}

/// A sample, and the units consumed before it.
type TakenSample = (Sample, i128);

const ERROR_US: u64 = 400_000;

fn scenario(credits: Credits) -> impl Strategy<Value = Scenario> {
    let numbers = (
        1..2_000_u64,
        1..3_000_u64,
        prop::sample::select(vec![1_u64, 7, 60]),
    );
    let operation = prop_oneof![
        3 => (1..60_u64).prop_map(|n| Operation::Apply(Command::TakeUpTo { n })),
        2 => (1..400_u64).prop_map(|n| Operation::Apply(Command::Take { n })),
        1 => (1..400_u64).prop_map(|n| Operation::Apply(Command::Charge { n })),
        1 => (1..400_u64).prop_map(move |n| Operation::Apply(match credits {
            Credits::Never => Command::Peek,
            Credits::Possible => Command::Credit { n },
        })),
        4 => (0..ERROR_US).prop_map(Operation::Sample),
    ];
    let gap_us = prop_oneof![
        Just(0_u64),
        0..2_000_000_u64,
        0..90_000_000_u64,
        Just(60_000_000)
    ];
    let steps = prop::collection::vec((gap_us, operation), 2..60);
    (numbers, any::<bool>(), 0..200_000_000_u64, steps).prop_map(
        |((capacity, refill, period_s), is_stepwise, start_us, steps)| {
            let period = Duration::from_secs(period_s);
            let limit = Limit::bucket_of(capacity, refill, period).unwrap();
            Scenario {
                limit: if is_stepwise { limit.stepwise() } else { limit },
                start_us,
                steps,
            }
        },
    )
}

impl Scenario {
    /// Runs the operations. The timestamps of the samples are late by up to `error_us`.
    fn run(&self, error_us: u64) -> Vec<TakenSample> {
        let limit = &self.limit;
        let bucket = BucketId::new("12345678", "ANY").unwrap();
        let reported =
            ReportedLimit::new(limit.capacity(), limit.refill_tokens(), limit.period_us()).unwrap();
        let mut state: Option<State> = None;
        let mut now_us = self.start_us;
        let mut left_units = 0_i128;
        let mut seen: Vec<TakenSample> = Vec::new();
        for &(gap_us, operation) in &self.steps {
            now_us += gap_us;
            match operation {
                Operation::Apply(command) => {
                    let decision = limit.apply(state, command, now_us);
                    left_units += i128::from(decision.owed()) - i128::from(decision.owed_before());
                    state = decision.state();
                }
                Operation::Sample(late_us) => {
                    let level = limit.apply(state, Command::Peek, now_us).level();
                    // Responses arrive in order, however late.
                    let stated_us = now_us + late_us.min(error_us);
                    let newest_us = seen.last().map_or(0, |(sample, _)| sample.taken_us());
                    let stated_us = stated_us.max(newest_us);
                    let sample = Sample::new(bucket.clone(), reported, level, stated_us).unwrap();
                    seen.push((sample, left_units));
                }
            }
        }
        seen
    }

    fn holds(&self, consumption: (i64, i64), truth_units: i128, what: &str) {
        let token = i128::from(self.limit.token_units());
        let (at_least, at_most) = consumption;
        assert!(
            i128::from(at_least) * token <= truth_units
                && truth_units <= i128::from(at_most) * token,
            "{what}: {at_least} to {at_most}, in truth {truth_units} / {token}"
        );
    }
}

fn check_pairs(scenario: &Scenario, credits: Credits, error_us: u64) {
    let seen = scenario.run(error_us);
    for (from, (earlier, before)) in seen.iter().enumerate() {
        for (later, after) in &seen[from..] {
            let bounds = Consumption::between(earlier, later, credits, error_us).unwrap();
            let pair = (bounds.at_least, bounds.at_most);
            scenario.holds(pair, after - before, "between two samples");
        }
    }
}

fn check_burn_rates(scenario: &Scenario, credits: Credits, error_us: u64) {
    let seen = scenario.run(error_us);
    let settings = AnalysisSettings::default()
        .with_timestamp_error_us(error_us)
        .with_gap_max_us(u64::MAX)
        .with_credits(credits);
    let history: Vec<Sample> = seen.iter().map(|(sample, _)| sample.clone()).collect();
    for end in 1..=history.len() {
        let all = Assessment::of(&history[..end], Thresholds::default(), &settings).unwrap();
        for burn in all.burn_rates() {
            let first = end - burn.samples();
            let truth = seen[end - 1].1 - seen[first].1;
            scenario.holds((burn.at_least(), burn.at_most()), truth, "a burn");
            assert!((burn.at_least()..=burn.at_most()).contains(&burn.expected()));
            assert!(burn.span_us() <= burn.window_us() + burn.window_us() / 10);
            // Over samples in between it is known no worse than from the ends alone.
            let ends = Consumption::between(&history[first], &history[end - 1], credits, error_us);
            let ends = ends.unwrap();
            assert!(burn.at_least() >= ends.at_least && burn.at_most() <= ends.at_most);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_bounds_contain_what_was_consumed(scenario in scenario(Credits::Never)) {
        check_pairs(&scenario, Credits::Never, 0);
        check_burn_rates(&scenario, Credits::Never, 0);
    }

    #[test]
    fn the_bounds_contain_what_was_consumed_when_timestamps_are_inexact(
        scenario in scenario(Credits::Never)
    ) {
        check_pairs(&scenario, Credits::Never, ERROR_US);
        check_burn_rates(&scenario, Credits::Never, ERROR_US);
    }

    #[test]
    fn with_credits_the_bounds_contain_the_net_consumption(
        scenario in scenario(Credits::Possible)
    ) {
        check_pairs(&scenario, Credits::Possible, 0);
        check_burn_rates(&scenario, Credits::Possible, ERROR_US);
    }

    /// The bounds are tight: for a bucket that is never full they are at most one refill apart.
    #[test]
    fn the_bounds_of_a_bucket_that_is_never_full_are_one_refill_apart(scenario in scenario(Credits::Never)) {
        let seen = scenario.run(0);
        let refill = i128::from(scenario.limit.refill_tokens());
        for pair in seen.windows(2) {
            let [(earlier, _), (later, _)] = pair else { unreachable!() };
            let bounds = Consumption::between(earlier, later, Credits::Never, 0).unwrap();
            let periods = bounds.span_us.div_ceil(scenario.limit.period_us());
            let could_be_full = i128::from(earlier.level()) + i128::from(periods) * refill
                >= i128::from(scenario.limit.capacity());
            if !could_be_full {
                let width = i128::from(bounds.at_most) - i128::from(bounds.at_least);
                prop_assert!(width <= refill, "{bounds:?}");
            }
        }
    }
}

fn sample(level: i64, at_s: u64) -> Sample {
    let bucket = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
    Sample::new(bucket, limit, level, at_s * 1_000_000).unwrap()
}

fn assess(history: &[Sample]) -> Assessment<'_> {
    let settings = AnalysisSettings::default().with_timestamp_error_us(0);
    Assessment::of(history, Thresholds::default(), &settings).unwrap()
}

#[test]
fn consumption_below_the_refill_rate_is_detected() {
    // 600 a minute are used, the level rises by 600 a minute all the same.
    let history: Vec<Sample> = (0..=15)
        .map(|i| sample(10_000 + 600 * i, i.unsigned_abs() * 60))
        .collect();
    let seen = assess(&history);
    for (burn, minutes) in seen.burn_rates().iter().zip([1, 5, 15]) {
        assert_eq!(
            (burn.at_least(), burn.at_most()),
            (600 * minutes, 600 * minutes)
        );
        assert_eq!(burn.expected_milli_per_minute(), 600_000);
        assert!(!burn.is_upper_bound());
    }
    assert_eq!(seen.time_to_empty(), None);
    // 17,000 are missing and 600 a minute come back.
    assert_eq!(
        seen.time_to_full_at_rate_us(),
        Some(17_000 * 60_000_000 / 600)
    );
    // Untouched, 17,000 need fifteen refills of 1,200, the last at any moment of its minute.
    let idle = seen.time_to_full().unwrap();
    assert_eq!(
        (idle.at_least_us, idle.at_most_us),
        (14 * 60_000_000, 15 * 60_000_000)
    );
}

#[test]
fn no_burn_rate_spans_a_gap() {
    let history = [
        sample(30_000, 0),
        sample(20_000, 3_600),
        sample(19_000, 3_660),
    ];
    let seen = assess(&history);
    assert!(seen.burn_rates().iter().all(|burn| burn.samples() == 2));
    assert!(
        seen.burn_rates()
            .iter()
            .all(|burn| burn.span_us() == 60_000_000)
    );
    assert_eq!(assess(&history[..2]).burn_rates(), []);
    assert_eq!(assess(&history[..2]).time_to_empty(), None);
}

#[test]
fn changed_terms_and_a_clock_that_stepped_back_end_the_windows() {
    let limit = ReportedLimit::per_seconds(36_000, 600, 60).unwrap();
    let bucket = BucketId::new("12345678", "ENTRIES_WRITE").unwrap();
    let other = Sample::new(bucket, limit, 20_000, 60_000_000).unwrap();
    assert_eq!(assess(&[sample(30_000, 0), other]).burn_rates(), []);
    assert_eq!(
        assess(&[sample(30_000, 120), sample(20_000, 60)]).burn_rates(),
        []
    );
}

#[test]
fn a_forecast_has_bounds_and_a_confidence() {
    // 4,200 a minute are used: the level falls by 3,000 a minute.
    let history: Vec<Sample> = (0..=5)
        .map(|i| sample(30_000 - 3_000 * i, i.unsigned_abs() * 60))
        .collect();
    let seen = assess(&history);
    let minutes = |us| us / 60_000_000;
    let empty = seen.time_to_empty().unwrap();
    assert_eq!(empty.expected_us().map(minutes), Some(5));
    assert!(empty.earliest_us() < 5 * 60_000_000);
    assert_eq!(
        seen.time_to_warning().unwrap().expected_us().map(minutes),
        Some(2)
    );
    assert_eq!(
        seen.time_to_critical().unwrap().expected_us(),
        Some(228_000_000)
    );
    // The longer the rate has lasted, compared to the time that is left, the more certain it is.
    let confidence = |samples: i64| {
        let history: Vec<Sample> = (0..samples)
            .map(|i| sample(33_000 - 1_500 * i, i.unsigned_abs() * 30))
            .collect();
        let forecast = assess(&history).time_to_empty().unwrap();
        assert_eq!(
            forecast.latest_us().is_none(),
            forecast.confidence() == Confidence::Low
        );
        forecast.confidence()
    };
    assert_eq!(confidence(2), Confidence::Low);
    assert_eq!(confidence(11), Confidence::Low);
    assert_eq!(confidence(20), Confidence::Medium);
    assert_eq!(confidence(21), Confidence::High);
    // Two polls of which nobody knows whether a refill lies between them: it may be less than what
    // comes back.
    let history = [sample(30_000, 0), sample(29_000, 59)];
    let doubtful = Assessment::of(
        &history,
        Thresholds::default(),
        &AnalysisSettings::default(),
    )
    .unwrap();
    let empty = doubtful.time_to_empty().unwrap();
    assert_eq!(empty.confidence(), Confidence::Low);
    assert_eq!(empty.latest_us(), None);
    assert!(empty.earliest_us() < empty.expected_us().unwrap());
}

#[test]
fn an_idle_full_bucket_has_no_confident_forecast() {
    let history: Vec<Sample> = (0..=5).map(|i| sample(36_000, i * 61)).collect();
    let seen = Assessment::of(
        &history,
        Thresholds::default(),
        &AnalysisSettings::default(),
    )
    .unwrap();
    let empty = seen.time_to_empty();
    assert!(empty.is_none_or(|empty| empty.expected_us().is_none()));
    // What is known is only how much it can have been at most.
    assert!(seen.burn_rates().iter().all(BurnRate::is_upper_bound));
    let (first, rest) = history.split_first().unwrap();
    let touched = [&[sample(35_999, 0)], rest].concat();
    assert_ne!(first, &touched[0]);
    let seen = Assessment::of(
        &touched,
        Thresholds::default(),
        &AnalysisSettings::default(),
    )
    .unwrap();
    assert!(!seen.burn_rates().last().unwrap().is_upper_bound());
}

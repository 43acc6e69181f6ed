//! Whatever happened to a bucket, what the samples say about it is true.

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{
    AnalysisSettings, Assessment, BurnRate, Confidence, Consumption, Credits,
};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::Thresholds;
use proptest::prelude::*;
use std::time::Duration;

/// A bucket's story: how it refills, when it begins, and what happens after how long.
#[derive(Clone, Debug)]
struct Story {
    limit: Limit,
    start_us: u64,
    steps: Vec<(u64, Deed)>,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Do(Command),
    /// A sample, stated to be this much later than it was.
    Look(u64),
}

/// A sample, and the units that had left the bucket by then.
type Seen = (Sample, i128);

const ERROR_US: u64 = 400_000;

fn story(credits: Credits) -> impl Strategy<Value = Story> {
    let numbers = (
        1..2_000_u64,
        1..3_000_u64,
        prop::sample::select(vec![1_u64, 7, 60]),
    );
    let deed = prop_oneof![
        3 => (1..60_u64).prop_map(|n| Deed::Do(Command::TakeUpTo { n })),
        2 => (1..400_u64).prop_map(|n| Deed::Do(Command::Take { n })),
        1 => (1..400_u64).prop_map(|n| Deed::Do(Command::Charge { n })),
        1 => (1..400_u64).prop_map(move |n| Deed::Do(match credits {
            Credits::Never => Command::Peek,
            Credits::Possible => Command::Credit { n },
        })),
        4 => (0..ERROR_US).prop_map(Deed::Look),
    ];
    let gap_us = prop_oneof![
        Just(0_u64),
        0..2_000_000_u64,
        0..90_000_000_u64,
        Just(60_000_000)
    ];
    let steps = prop::collection::vec((gap_us, deed), 2..60);
    (numbers, any::<bool>(), 0..200_000_000_u64, steps).prop_map(
        |((capacity, refill, period_s), is_stepwise, start_us, steps)| {
            let period = Duration::from_secs(period_s);
            let limit = Limit::bucket_of(capacity, refill, period).unwrap();
            Story {
                limit: if is_stepwise { limit.stepwise() } else { limit },
                start_us,
                steps,
            }
        },
    )
}

impl Story {
    /// The samples, with stated moments off by up to `error_us`.
    fn tell(&self, error_us: u64) -> Vec<Seen> {
        let limit = &self.limit;
        let bucket = BucketId::new("12345678", "ANY").unwrap();
        let limit =
            ReportedLimit::new(limit.capacity(), limit.refill_tokens(), limit.period_us()).unwrap();
        let mut state: Option<State> = None;
        let mut now_us = self.start_us;
        let mut left_units = 0_i128;
        let mut seen: Vec<Seen> = Vec::new();
        for &(gap_us, deed) in &self.steps {
            now_us += gap_us;
            match deed {
                Deed::Do(command) => {
                    let decision = limit.apply(state, command, now_us);
                    left_units += i128::from(decision.owed()) - i128::from(decision.owed_before());
                    state = decision.state();
                }
                Deed::Look(late_us) => {
                    let level = limit.apply(state, Command::Peek, now_us).level();
                    // Answers come in order, however late.
                    let stated_us = now_us + late_us.min(error_us);
                    let newest_us = seen.last().map_or(0, |(sample, _)| sample.taken_us());
                    let stated_us = stated_us.max(newest_us);
                    let sample = Sample::new(bucket.clone(), limit, level, stated_us).unwrap();
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

fn check_pairs(story: &Story, credits: Credits, error_us: u64) {
    let seen = story.tell(error_us);
    for (from, (earlier, before)) in seen.iter().enumerate() {
        for (later, after) in &seen[from..] {
            let bounds = Consumption::between(earlier, later, credits, error_us).unwrap();
            let pair = (bounds.at_least, bounds.at_most);
            story.holds(pair, after - before, "between two samples");
        }
    }
}

fn check_burns(story: &Story, credits: Credits, error_us: u64) {
    let seen = story.tell(error_us);
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
            story.holds((burn.at_least(), burn.at_most()), truth, "a burn");
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
    fn the_bounds_contain_what_was_consumed(story in story(Credits::Never)) {
        check_pairs(&story, Credits::Never, 0);
        check_burns(&story, Credits::Never, 0);
    }

    #[test]
    fn the_bounds_contain_what_was_consumed_when_moments_are_known_roughly(
        story in story(Credits::Never)
    ) {
        check_pairs(&story, Credits::Never, ERROR_US);
        check_burns(&story, Credits::Never, ERROR_US);
    }

    #[test]
    fn with_credits_the_bounds_contain_what_left_less_what_was_given_back(
        story in story(Credits::Possible)
    ) {
        check_pairs(&story, Credits::Possible, 0);
        check_burns(&story, Credits::Possible, ERROR_US);
    }

    /// Bounds so wide that they hold for anything would be no use: away from full they are no
    /// further apart than one refill.
    #[test]
    fn away_from_full_the_bounds_are_one_refill_apart(story in story(Credits::Never)) {
        let seen = story.tell(0);
        let refill = i128::from(story.limit.refill_tokens());
        for pair in seen.windows(2) {
            let [(earlier, _), (later, _)] = pair else { unreachable!() };
            let bounds = Consumption::between(earlier, later, Credits::Never, 0).unwrap();
            let periods = bounds.span_us.div_ceil(story.limit.period_us());
            let could_be_full = i128::from(earlier.level()) + i128::from(periods) * refill
                >= i128::from(story.limit.capacity());
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
fn use_below_the_refill_rate_is_not_hidden() {
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
fn a_gap_is_a_gap_and_no_rate_bridges_it() {
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
fn a_change_of_terms_and_a_clock_that_went_back_break_the_history() {
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
fn a_forecast_says_when_and_how_sure_it_is() {
    // 4,200 a minute are used: the level falls by 3,000 a minute.
    let history: Vec<Sample> = (0..=5)
        .map(|i| sample(30_000 - 3_000 * i, i.unsigned_abs() * 60))
        .collect();
    let seen = assess(&history);
    let minutes = |us| us / 60_000_000;
    let empty = seen.time_to_empty().unwrap();
    assert_eq!(empty.expected_us().map(minutes), Some(5));
    assert_eq!(empty.latest_us().map(minutes), Some(5));
    assert_eq!(
        seen.time_to_warning().unwrap().expected_us().map(minutes),
        Some(2)
    );
    assert_eq!(
        seen.time_to_critical().unwrap().expected_us(),
        Some(228_000_000)
    );
    assert_eq!(empty.confidence(), Confidence::High);
    // By two samples only, less so.
    let two = assess(&history[4..]);
    assert_eq!(
        two.time_to_empty().unwrap().confidence(),
        Confidence::Medium
    );
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
fn an_idle_full_bucket_runs_dry_in_no_forecast_worth_an_alert() {
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

//! Forecasts of a few known stories, with their true times, and of many random ones.

use std::time::Duration;

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{
    AnalysisSettings, Assessment, Confidence, Forecast, SettingsByPolicy,
};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::Thresholds;

use crate::stories::Story;

const SECOND_US: u64 = 1_000_000;

/// A bucket, the tokens taken from it in each second, and a sample every few seconds.
struct Play {
    limit: Limit,
    policy: &'static str,
    state: Option<State>,
    second: u64,
    history: Vec<Sample>,
}

impl Play {
    fn new(policy: &'static str, capacity: u64, refill: u64, is_stepwise: bool) -> Self {
        let limit = Limit::bucket_of(capacity, refill, Duration::from_secs(60)).unwrap();
        Self {
            limit: if is_stepwise { limit.stepwise() } else { limit },
            policy,
            state: None,
            second: 0,
            history: Vec::new(),
        }
    }

    fn level(&self) -> i64 {
        let peek = self
            .limit
            .apply(self.state, Command::Peek, self.second * SECOND_US);
        peek.level()
    }

    /// Lets `seconds` pass, in each of which `per_minute` / 60 tokens are taken, with a sample every
    /// `every` seconds.
    fn run(&mut self, seconds: u64, per_minute: u64, every: u64) {
        for _ in 0..seconds {
            self.second += 1;
            let due = |second: u64| second * per_minute / 60;
            let n = due(self.second) - due(self.second - 1);
            let take = Command::TakeUpTo { n };
            self.state = self
                .limit
                .apply(self.state, take, self.second * SECOND_US)
                .state();
            if self.second.is_multiple_of(every) {
                self.sample();
            }
        }
    }

    fn sample(&mut self) {
        let bucket = BucketId::new("12345678", self.policy).unwrap();
        let (capacity, refill) = (self.limit.capacity(), self.limit.refill_tokens());
        let limit = ReportedLimit::new(capacity, refill, self.limit.period_us()).unwrap();
        let sample = Sample::new(bucket, limit, self.level(), self.second * SECOND_US);
        self.history.push(sample.unwrap());
    }

    fn forecast(&self) -> Option<Forecast> {
        let settings = AnalysisSettings::default();
        let seen = Assessment::of(&self.history, Thresholds::default(), &settings);
        seen.unwrap().time_to_empty()
    }

    /// How many seconds the bucket has left if the same rate goes on.
    fn truth(&self, per_minute: u64) -> u64 {
        let mut future = Self {
            history: Vec::new(),
            ..*self
        };
        while future.level() > 0 {
            future.run(1, per_minute, u64::MAX);
            assert!(future.second < self.second + 36_000, "it is never empty");
        }
        future.second - self.second
    }
}

fn seconds(us: u64) -> u64 {
    us / SECOND_US
}

/// The bounds hold, and the expected time is within a fifth of the truth and one polling interval.
fn check(play: &Play, per_minute: u64, every: u64, truth: u64) -> Forecast {
    assert_eq!(play.truth(per_minute), truth);
    let forecast = play.forecast().expect("a forecast");
    let story = format!("{} left, truth {truth} s: {forecast:?}", play.level());
    assert!(seconds(forecast.earliest_us()) <= truth, "{story}");
    let latest_us = forecast.latest_us().unwrap_or(u64::MAX);
    assert!(seconds(latest_us) + 1 >= truth, "{story}");
    let expected = seconds(forecast.expected_us().expect("an expected time"));
    assert!(expected.abs_diff(truth) <= truth / 5 + every, "{story}");
    forecast
}

/// `KEYS_CHECK` is full and unused for an hour, and then 120 a minute are used. With 40 of 70 left, 48
/// seconds remain; the hour of quiet does not dilute that.
#[test]
fn keys_check_after_a_quiet_hour_has_48_seconds_left() {
    let mut play = Play::new("KEYS_CHECK", 70, 70, false);
    play.run(3_600, 0, 15);
    while play.level() > 40 {
        play.run(1, 120, 5);
    }
    play.sample();
    check(&play, 120, 5, 48);
    // At 100 a minute, and read every 15 seconds.
    let mut play = Play::new("KEYS_CHECK", 70, 70, false);
    play.run(3_600, 0, 15);
    while play.level() > 40 {
        play.run(1, 100, 5);
    }
    play.sample();
    check(&play, 100, 5, 80);
}

/// `ENTRIES_WRITE` burns 5,400 a minute after an hour of quiet: 425 seconds remain with 29,750 left.
#[test]
fn entries_write_at_a_known_burn_has_425_seconds_left() {
    for is_stepwise in [false, true] {
        let mut play = Play::new("ENTRIES_WRITE", 36_000, 1_200, is_stepwise);
        play.run(3_600, 0, 300);
        while play.level() > 29_750 {
            play.run(1, 5_400, 20);
        }
        play.sample();
        let truth = play.truth(5_400);
        assert!((410..=430).contains(&truth), "{truth}");
        check(&play, 5_400, 20, truth);
        // Every later sample holds, too, and the rate is soon known well.
        let mut confidence = Confidence::Low;
        while play.truth(5_400) > 20 {
            play.run(20, 5_400, u64::MAX);
            play.sample();
            let truth = play.truth(5_400);
            confidence = confidence.max(check(&play, 5_400, 20, truth).confidence());
        }
        // A falling bucket does not show its steps, so nobody knows how it refills.
        let known = if is_stepwise {
            Confidence::Low
        } else {
            Confidence::High
        };
        assert_eq!(confidence, known);
    }
}

/// One step down from full to nearly empty, and then nothing more is used. The first sample
/// afterwards ends the forecast.
#[test]
fn a_drop_that_is_followed_by_a_rise_leads_nowhere() {
    for (is_stepwise, every) in [(false, 5), (false, 15), (false, 20), (true, 15), (true, 20)] {
        let mut play = Play::new("KEYS_CHECK", 70, 70, is_stepwise);
        play.run(3_600, 0, 15);
        play.run(1, 60 * 67, u64::MAX);
        play.sample();
        let forecast = play.forecast().expect("three left, and 67 went at once");
        assert_eq!(forecast.confidence(), Confidence::Low);
        // Until the bucket is full again, every sample shows a rise, or nothing.
        let mut levels = vec![play.level()];
        while play.level() < 60 {
            play.run(every, 0, every);
            levels.push(play.level());
            let expected_us = play.forecast().and_then(|forecast| forecast.expected_us());
            assert_eq!(expected_us, None, "{levels:?}");
        }
    }
}

/// The bounds of every forecast over some hundred random stories, read every quarter of a minute.
/// `cargo bench -p balde-monitor --bench forecast` does it over thousands, with the real schedule.
#[test]
fn the_bounds_hold_over_random_stories() {
    let settings = SettingsByPolicy::default();
    let mut counts = [(0_u32, 0_u32); 3];
    for seed in 0..120 {
        let story = Story::of(seed);
        let bucket = BucketId::new("12345678", story.policy).unwrap();
        let (capacity, refill) = (story.limit.capacity(), story.limit.refill_tokens());
        let limit = ReportedLimit::new(capacity, refill, story.limit.period_us()).unwrap();
        let mut history: Vec<Sample> = Vec::new();
        for at in (0..story.watched.min(10_800)).step_by(15) {
            if story.is_poll_failing[at] {
                continue;
            }
            let now_us = at as u64 * SECOND_US;
            history.push(Sample::new(bucket.clone(), limit, story.levels[at], now_us).unwrap());
            if story.levels[at] <= 0 || !at.is_multiple_of(45) {
                continue;
            }
            let recent = &history[history.len().saturating_sub(256)..];
            let seen = Assessment::of(
                recent,
                Thresholds::default(),
                settings.settings(story.policy),
            );
            let Some(forecast) = seen.unwrap().time_to_empty() else {
                continue;
            };
            let truth_us = story
                .empty_at(at)
                .map(|empty| (empty - at) as u64 * SECOND_US);
            let end_us = (story.levels.len() - at) as u64 * SECOND_US;
            let is_early = truth_us.is_some_and(|us| us + SECOND_US < forecast.earliest_us());
            let is_late = forecast
                .latest_us()
                .is_some_and(|latest_us| match truth_us {
                    Some(us) => us > latest_us + SECOND_US,
                    None => latest_us < end_us,
                });
            let (all, held) = &mut counts[forecast.confidence() as usize];
            *all += 1;
            *held += u32::from(!is_early && !is_late);
        }
    }
    for (confidence, (all, held)) in counts.into_iter().enumerate() {
        assert!(all > 0, "some of each: {counts:?}");
        let least = if confidence == Confidence::High as usize {
            99
        } else {
            95
        };
        // One exception more, because there are few of the rarest.
        assert!((held + 1) * 100 >= all * least, "{counts:?}");
    }
}

//! The planner: which participant is polled next, within the budget.

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{AnalysisSettings, Assessment};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::schedule::{
    NextAction, POLICIES_LIST, POLL_INTERVAL_MIN_US, PeakDetection, Planner, PollBudget,
    PollSchedule,
};
use balde_monitor::severity::Thresholds;
use proptest::prelude::*;

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

fn schedule(peaks: PeakDetection) -> PollSchedule {
    PollSchedule::new("*/5 * * * *".parse().unwrap(), peaks)
}

fn sample(participant: &str, policy: &str, level: i64, at_us: u64) -> Sample {
    let (capacity, refill) = match policy {
        POLICIES_LIST => (20, 6),
        "KEYS_CHECK" => (70, 70),
        _ => (36_000, 1_200),
    };
    let limit = ReportedLimit::per_seconds(capacity, refill, 60).unwrap();
    Sample::new(
        BucketId::new(participant, policy).unwrap(),
        limit,
        level,
        at_us,
    )
    .unwrap()
}

fn assess(history: &[Sample]) -> Assessment<'_> {
    Assessment::of(history, Thresholds::default(), &AnalysisSettings::default()).unwrap()
}

/// The time until the next poll, after polls with these levels.
fn next_after(peaks: PeakDetection, policy: &str, levels: &[(i64, u64)]) -> u64 {
    let history: Vec<Sample> = levels
        .iter()
        .map(|&(level, at_us)| sample("1", policy, level, at_us))
        .collect();
    let now_us = history.last().unwrap().taken_us();
    schedule(peaks).next_us(now_us, &[assess(&history)]) - now_us
}

#[test]
fn low_and_falling_buckets_shorten_the_interval() {
    let calm = |level| next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &[(level, 0)]);
    assert_eq!(calm(36_000), 5 * MINUTE_US);
    assert_eq!(calm(9_001), 5 * MINUTE_US);
    assert_eq!(calm(9_000), 20 * SECOND_US);
    assert_eq!(calm(-5), 20 * SECOND_US);
    // Falling by 6,000 a minute from 24,000: WARNING in 2 ½ minutes, so a poll after half of that.
    let falling = [(30_000, 0), (24_000, MINUTE_US)];
    assert_eq!(
        next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &falling),
        75 * SECOND_US
    );
    // Falling so slowly that the next cron time comes first.
    let slowly = [(30_000, 0), (29_990, MINUTE_US)];
    assert_eq!(
        next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &slowly),
        4 * MINUTE_US
    );
    // A bucket that refills completely within a minute.
    assert_eq!(
        next_after(PeakDetection::Disabled, "KEYS_CHECK", &[(70, 0)]),
        5 * MINUTE_US
    );
    let swift = next_after(PeakDetection::Enabled, "KEYS_CHECK", &[(70, 0)]);
    assert!((POLL_INTERVAL_MIN_US..15 * SECOND_US).contains(&swift));
}

#[test]
fn a_low_budget_does_not_shorten_the_interval() {
    for peaks in [PeakDetection::Enabled, PeakDetection::Disabled] {
        assert_eq!(next_after(peaks, POLICIES_LIST, &[(1, 0)]), 5 * MINUTE_US);
    }
}

#[test]
fn a_stored_sample_lowers_the_budget() {
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 2).unwrap();
    // A monitor that restarts reads from its database that the budget is used up.
    let known = sample("1", POLICIES_LIST, 0, 0);
    planner.add("1", 0, Some(&known)).unwrap();
    // One for the poll and two in reserve: three tokens at 6 a minute.
    let until_us = 30 * SECOND_US;
    assert_eq!(planner.next(0), NextAction::Wait { until_us });
    assert_eq!(planner.next(until_us - 1), NextAction::Wait { until_us });
    let participant = "1".to_owned();
    assert_eq!(planner.next(until_us), NextAction::Poll { participant });
}

#[test]
fn failures_back_off_and_a_retry_after_is_respected_within_reason() {
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 0).unwrap();
    planner.add("1", 0, None).unwrap();
    let mut now_us = 0;
    let mut waits = Vec::new();
    for retry_after_us in [
        None,
        None,
        None,
        Some(100 * SECOND_US),
        Some(u64::MAX),
        None,
    ] {
        assert!(matches!(planner.next(now_us), NextAction::Poll { .. }));
        planner.failed("1", now_us, retry_after_us);
        let NextAction::Wait { until_us } = planner.next(now_us) else {
            panic!("a failed poll is not repeated at once");
        };
        waits.push((until_us - now_us) / SECOND_US);
        now_us = until_us;
    }
    assert_eq!(waits, [12, 24, 48, 100, 3_600, 300]);
}

#[test]
fn a_poll_whose_result_is_never_reported_is_due_at_the_next_cron_time() {
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 0).unwrap();
    assert_eq!(planner.next(0), NextAction::Idle);
    planner.add("1", 10 * SECOND_US, None).unwrap();
    assert!(matches!(
        planner.next(10 * SECOND_US),
        NextAction::Poll { .. }
    ));
    let until_us = 5 * MINUTE_US;
    assert_eq!(planner.next(12 * SECOND_US), NextAction::Wait { until_us });
    // A small correction of the clock changes nothing,
    assert_eq!(planner.next(9 * SECOND_US), NextAction::Wait { until_us });
    // but a step back to before the last poll makes it due.
    assert!(matches!(planner.next(0), NextAction::Poll { .. }));
}

/// Even if the clock was a day ahead and the budget was used up by it.
#[test]
fn a_clock_that_is_set_back_resets_the_budget() {
    let day_us = 24 * 60 * MINUTE_US;
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 0).unwrap();
    planner.add("1", day_us, None).unwrap();
    for n in 0..20 {
        planner.failed("1", day_us, None);
        let now_us = day_us + n * 301 * SECOND_US;
        while !matches!(planner.next(now_us), NextAction::Wait { .. }) {}
    }
    assert!(matches!(planner.next(MINUTE_US), NextAction::Poll { .. }));
}

#[test]
fn a_reserve_of_the_whole_budget_is_an_error() {
    let error = Planner::new(PollSchedule::default(), PollBudget::default(), 20).unwrap_err();
    assert!(error.to_string().contains("lower it"));
}

#[test]
fn participants_that_share_a_budget_are_polled_equally_often() {
    let limit: Limit = "6/min burst 20".parse().unwrap();
    let mut planner = Planner::new(
        schedule(PeakDetection::Disabled),
        PollBudget::Shared(limit),
        2,
    )
    .unwrap();
    let names = ["1", "2", "3", "4", "5"];
    for name in names {
        planner.add(name, 0, None).unwrap();
    }
    let mut polls = [0_u32; 5];
    let mut tick_us = 0;
    while tick_us < 120 * MINUTE_US {
        while let NextAction::Poll { participant } = planner.next(tick_us) {
            let index = names.iter().position(|name| *name == participant).unwrap();
            polls[index] += 1;
            // Four are empty all the time; the fifth is full and due every five minutes.
            let level = if index == 4 { 36_000 } else { 0 };
            let history = [sample(&participant, "ENTRIES_WRITE", level, tick_us)];
            planner.polled(&participant, tick_us, &[assess(&history)]);
        }
        tick_us += SECOND_US;
    }
    // 24 at cron times, and the rest of 6 × 120 + 18 in equal parts.
    assert!((23..=25).contains(&polls[4]), "{polls:?}");
    let hot = &polls[..4];
    let (least, most) = (hot.iter().min().unwrap(), hot.iter().max().unwrap());
    assert!(most - least <= 1, "{polls:?}");
    assert!(
        (700..=738).contains(&polls.iter().sum::<u32>()),
        "{polls:?}"
    );
}

#[test]
fn participants_with_their_own_timers_share_a_budget_equally() {
    let limit: Limit = "6/min burst 20".parse().unwrap();
    let mut planner = Planner::new(
        schedule(PeakDetection::Disabled),
        PollBudget::Shared(limit),
        2,
    )
    .unwrap();
    assert_eq!(planner.next_for("1", 0), NextAction::Idle);
    // Each has its own timer; some timers always fire first.
    let names = ["1", "2", "3", "4", "5"];
    let mut wake_us = [0; 5];
    for name in names {
        planner.add(name, 0, None).unwrap();
    }
    let (mut polls, mut waits) = ([0_u32; 5], 0_u32);
    let mut tick_us = 0;
    while tick_us < 120 * MINUTE_US {
        for (index, name) in names.iter().enumerate() {
            if wake_us[index] > tick_us {
                continue;
            }
            wake_us[index] = match planner.next_for(name, tick_us) {
                NextAction::Idle => unreachable!(),
                NextAction::Wait { until_us } => {
                    assert!(until_us > tick_us);
                    waits += 1;
                    until_us
                }
                NextAction::Poll { .. } => {
                    polls[index] += 1;
                    let history = [sample(name, "ENTRIES_WRITE", 0, tick_us)];
                    planner.polled(name, tick_us, &[assess(&history)]);
                    planner.due_us(name).unwrap()
                }
            };
        }
        tick_us += SECOND_US;
    }
    let (least, most) = (polls.iter().min().unwrap(), polls.iter().max().unwrap());
    assert!(most - least <= 2, "{polls:?}");
    let all = polls.iter().sum::<u32>();
    assert!((700..=738).contains(&all), "{polls:?}");
    assert!(waits < 2 * all, "{waits} polls in vain for {all} turns");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the results of the polls, the bucket that they are charged to never denies one, with
    /// continuous and with stepwise refill.
    #[test]
    fn polls_stay_within_the_budget(
        outcomes in prop::collection::vec((0..4_u8, 0..3_000_u64), 1..200),
        start_us in 0..10 * MINUTE_US,
        is_stepwise in any::<bool>(),
    ) {
        let limit: Limit = "6/min burst 20".parse().unwrap();
        let limit = if is_stepwise { limit.stepwise() } else { limit };
        let mut paid: [Option<State>; 2] = [None, None];
        let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 2).unwrap();
        let names = ["1", "2"];
        for name in names {
            planner.add(name, start_us, None).unwrap();
        }
        let mut now_us = start_us;
        for (outcome, took_ms) in outcomes {
            match planner.next(now_us) {
                NextAction::Wait { until_us } => {
                    prop_assert!(until_us > now_us);
                    now_us = until_us;
                }
                NextAction::Idle => unreachable!(),
                NextAction::Poll { participant } => {
                    let index = names.iter().position(|name| *name == participant).unwrap();
                    let decision = limit.apply(paid[index], Command::Take { n: 1 }, now_us);
                    prop_assert!(decision.is_allowed());
                    paid[index] = decision.state();
                    now_us += took_ms * 1_000;
                    match outcome {
                        0 => planner.failed(&participant, now_us, None),
                        1 => {}
                        _ => {
                            let level = if outcome == 2 { 0 } else { 70 };
                            let history = [
                                sample(&participant, "KEYS_CHECK", level, now_us),
                                sample(&participant, POLICIES_LIST, decision.level(), now_us),
                            ];
                            let seen = [assess(&history[..1]), assess(&history[1..])];
                            planner.polled(&participant, now_us, &seen);
                        }
                    }
                }
            }
        }
    }

    /// However often `next_for` is called, polls stay within the budget, and no participant is polled
    /// twice within the shortest interval.
    #[test]
    fn polls_by_name_stay_within_the_budget(
        calls in prop::collection::vec((0..3_usize, 0..15_000_u64, 0..3_u8), 1..300),
        is_shared in any::<bool>(),
    ) {
        let limit: Limit = "6/min burst 20".parse().unwrap();
        let budget = if is_shared { PollBudget::Shared(limit) } else { PollBudget::default() };
        let mut planner = Planner::new(PollSchedule::default(), budget, 2).unwrap();
        let names = ["1", "2", "3"];
        for name in names {
            planner.add(name, 0, None).unwrap();
        }
        let mut paid: [Option<State>; 3] = [None; 3];
        let mut asked_us: [Option<u64>; 3] = [None; 3];
        let mut now_us = 0;
        for (index, wait_ms, outcome) in calls {
            now_us += wait_ms * 1_000;
            match planner.next_for(names[index], now_us) {
                NextAction::Idle => unreachable!(),
                NextAction::Wait { until_us } => prop_assert!(until_us > now_us),
                NextAction::Poll { participant } => {
                    prop_assert_eq!(&participant, names[index]);
                    let payer = if is_shared { 0 } else { index };
                    let decision = limit.apply(paid[payer], Command::Take { n: 1 }, now_us);
                    prop_assert!(decision.is_allowed());
                    paid[payer] = decision.state();
                    // Without a report the next poll is at the next cron time.
                    let before_us = asked_us[index].take();
                    prop_assert!(before_us.is_none_or(|us| now_us >= us + POLL_INTERVAL_MIN_US));
                    asked_us[index] = (outcome < 2).then_some(now_us);
                    match outcome {
                        0 => planner.failed(&participant, now_us, None),
                        1 => {
                            let history = [sample(&participant, "KEYS_CHECK", 0, now_us)];
                            planner.polled(&participant, now_us, &[assess(&history)]);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

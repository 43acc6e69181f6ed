//! Whose turn it is, within the budget.

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

fn see(history: &[Sample]) -> Assessment<'_> {
    Assessment::of(history, Thresholds::default(), &AnalysisSettings::default()).unwrap()
}

/// The next poll after one at `now_us` that saw these levels.
fn next_after(peaks: PeakDetection, policy: &str, levels: &[(i64, u64)]) -> u64 {
    let history: Vec<Sample> = levels
        .iter()
        .map(|&(level, at_us)| sample("1", policy, level, at_us))
        .collect();
    let now_us = history.last().unwrap().taken_us();
    schedule(peaks).next_us(now_us, &[see(&history)]) - now_us
}

#[test]
fn the_pace_follows_need() {
    let calm = |level| next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &[(level, 0)]);
    assert_eq!(calm(36_000), 5 * MINUTE_US);
    assert_eq!(calm(9_001), 5 * MINUTE_US);
    assert_eq!(calm(9_000), 20 * SECOND_US);
    assert_eq!(calm(-5), 20 * SECOND_US);
    // Falling by 6,000 a minute from 24,000: WARNING in 2 ½ minutes, so a look before that.
    let falling = [(30_000, 0), (24_000, MINUTE_US)];
    assert_eq!(
        next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &falling),
        75 * SECOND_US
    );
    // Falling so slowly that the calendar comes first.
    let slowly = [(30_000, 0), (29_990, MINUTE_US)];
    assert_eq!(
        next_after(PeakDetection::Disabled, "ENTRIES_WRITE", &slowly),
        4 * MINUTE_US
    );
    // A bucket that refills wholly within a minute.
    assert_eq!(
        next_after(PeakDetection::Disabled, "KEYS_CHECK", &[(70, 0)]),
        5 * MINUTE_US
    );
    let swift = next_after(PeakDetection::Enabled, "KEYS_CHECK", &[(70, 0)]);
    assert!((POLL_INTERVAL_MIN_US..15 * SECOND_US).contains(&swift));
}

#[test]
fn a_low_budget_is_no_reason_to_ask_more_often() {
    for peaks in [PeakDetection::Enabled, PeakDetection::Disabled] {
        assert_eq!(next_after(peaks, POLICIES_LIST, &[(1, 0)]), 5 * MINUTE_US);
    }
}

#[test]
fn what_others_spent_of_the_budget_is_learnt_from_the_answer() {
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 2).unwrap();
    // A monitor that restarts knows from its history that hardly anything is left.
    let known = sample("1", POLICIES_LIST, 0, 0);
    planner.add("1", 0, Some(&known)).unwrap();
    // One to ask with and two in reserve: three at 6 a minute.
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
            panic!("a failure is no reason to ask at once");
        };
        waits.push((until_us - now_us) / SECOND_US);
        now_us = until_us;
    }
    assert_eq!(waits, [12, 24, 48, 100, 3_600, 300]);
}

#[test]
fn a_turn_whose_outcome_nobody_told_comes_back_with_the_calendar() {
    let mut planner = Planner::new(PollSchedule::default(), PollBudget::default(), 0).unwrap();
    assert_eq!(planner.next(0), NextAction::Idle);
    planner.add("1", 10 * SECOND_US, None).unwrap();
    assert!(matches!(
        planner.next(10 * SECOND_US),
        NextAction::Poll { .. }
    ));
    let until_us = 5 * MINUTE_US;
    assert_eq!(planner.next(12 * SECOND_US), NextAction::Wait { until_us });
    // A clock that is put right by a little changes nothing,
    assert_eq!(planner.next(9 * SECOND_US), NextAction::Wait { until_us });
    // but one that went back behind it.
    assert!(matches!(planner.next(0), NextAction::Poll { .. }));
}

/// However far ahead the clock was, and however much was spent by it.
#[test]
fn after_a_step_back_the_budget_is_not_missing_for_a_day() {
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
fn a_planner_without_a_budget_of_its_own_is_refused() {
    let error = Planner::new(PollSchedule::default(), PollBudget::default(), 20).unwrap_err();
    assert!(error.to_string().contains("lower it"));
}

#[test]
fn over_a_shared_budget_all_in_need_are_asked_about_equally_often() {
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
    let mut asked = [0_u32; 5];
    let mut tick_us = 0;
    while tick_us < 120 * MINUTE_US {
        while let NextAction::Poll { participant } = planner.next(tick_us) {
            let index = names.iter().position(|name| *name == participant).unwrap();
            asked[index] += 1;
            // Four are empty all the time; the fifth is well and due every five minutes.
            let level = if index == 4 { 36_000 } else { 0 };
            let history = [sample(&participant, "ENTRIES_WRITE", level, tick_us)];
            planner.polled(&participant, tick_us, &[see(&history)]);
        }
        tick_us += SECOND_US;
    }
    // The calendar's 24, and the rest of 6 × 120 + 18 in equal parts.
    assert!((23..=25).contains(&asked[4]), "{asked:?}");
    let hot = &asked[..4];
    let (least, most) = (hot.iter().min().unwrap(), hot.iter().max().unwrap());
    assert!(most - least <= 1, "{asked:?}");
    assert!(
        (700..=738).contains(&asked.iter().sum::<u32>()),
        "{asked:?}"
    );
}

#[test]
fn asked_for_by_name_those_in_need_get_equally_many_turns_of_a_shared_budget() {
    let limit: Limit = "6/min burst 20".parse().unwrap();
    let mut planner = Planner::new(
        schedule(PeakDetection::Disabled),
        PollBudget::Shared(limit),
        2,
    )
    .unwrap();
    assert_eq!(planner.next_for("1", 0), NextAction::Idle);
    // Each asks for itself, and again when it was told to; some are always the first to ask.
    let names = ["1", "2", "3", "4", "5"];
    let mut wake_us = [0; 5];
    for name in names {
        planner.add(name, 0, None).unwrap();
    }
    let (mut asked, mut in_vain) = ([0_u32; 5], 0_u32);
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
                    in_vain += 1;
                    until_us
                }
                NextAction::Poll { .. } => {
                    asked[index] += 1;
                    let history = [sample(name, "ENTRIES_WRITE", 0, tick_us)];
                    planner.polled(name, tick_us, &[see(&history)]);
                    planner.due_us(name).unwrap()
                }
            };
        }
        tick_us += SECOND_US;
    }
    let (least, most) = (asked.iter().min().unwrap(), asked.iter().max().unwrap());
    assert!(most - least <= 2, "{asked:?}");
    let all = asked.iter().sum::<u32>();
    assert!((700..=738).contains(&all), "{asked:?}");
    assert!(in_vain < 2 * all, "{in_vain} asked in vain for {all} turns");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever comes of the polls, the bucket that they are paid from never refuses one, refill it
    /// evenly or in steps.
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
                            let seen = [see(&history[..1]), see(&history[1..])];
                            planner.polled(&participant, now_us, &seen);
                        }
                    }
                }
            }
        }
    }

    /// Whoever asks for a turn by name, and however often, gets no more than the budget has, and
    /// nobody twice within the shortest time.
    #[test]
    fn turns_by_name_stay_within_the_budget(
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
                    // An outcome that nobody told leaves the next turn to the calendar.
                    let before_us = asked_us[index].take();
                    prop_assert!(before_us.is_none_or(|us| now_us >= us + POLL_INTERVAL_MIN_US));
                    asked_us[index] = (outcome < 2).then_some(now_us);
                    match outcome {
                        0 => planner.failed(&participant, now_us, None),
                        1 => {
                            let history = [sample(&participant, "KEYS_CHECK", 0, now_us)];
                            planner.polled(&participant, now_us, &[see(&history)]);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

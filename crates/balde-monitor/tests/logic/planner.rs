//! The planner: whom to poll next and which bucket to read, within the budget.

use balde_core::{Command, Limit, State};
use balde_monitor::analyse::{AnalysisSettings, Assessment};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::schedule::{
    NextAction, POLICIES_LIST, POLICIES_READ, POLL_INTERVAL_MIN_US, PeakDetection, Planner,
    PollBudget, PollSchedule, READ_INTERVAL_MIN_US,
};
use balde_monitor::severity::Thresholds;
use proptest::prelude::*;

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

fn schedule(peaks: PeakDetection) -> PollSchedule {
    PollSchedule::new("*/5 * * * *".parse().unwrap(), peaks)
}

fn planner(peaks: PeakDetection, names: &[&str]) -> Planner {
    let mut planner = Planner::new(schedule(peaks), PollBudget::default()).unwrap();
    for name in names {
        planner.add(name, 0, &[]).unwrap();
    }
    planner
}

fn poll(participant: &str) -> NextAction {
    let participant = participant.to_owned();
    NextAction::Poll { participant }
}

fn read(participant: &str, policy: &str) -> NextAction {
    NextAction::Read {
        participant: participant.to_owned(),
        policy: policy.to_owned(),
    }
}

fn sample(participant: &str, policy: &str, level: i64, at_us: u64) -> Sample {
    let (capacity, refill) = match policy {
        POLICIES_LIST => (20, 6),
        POLICIES_READ => (200, 60),
        "KEYS_CHECK" => (70, 70),
        "CLAIMS_LIST_WITHOUT_ROLE" => (50, 10),
        _ => (36_000, 1_200),
    };
    let limit = ReportedLimit::per_seconds(capacity, refill, 60).unwrap();
    let bucket = BucketId::new(participant, policy).unwrap();
    Sample::new(bucket, limit, level, at_us).unwrap()
}

fn assess(history: &[Sample]) -> Assessment<'_> {
    Assessment::of(history, Thresholds::default(), &AnalysisSettings::default()).unwrap()
}

/// How long after its newest sample a bucket with these levels is read by itself.
fn read_after(peaks: PeakDetection, policy: &str, levels: &[(i64, u64)]) -> Option<u64> {
    let history: Vec<Sample> = levels
        .iter()
        .map(|&(level, at_us)| sample("1", policy, level, at_us))
        .collect();
    schedule(peaks).read_interval_us(&assess(&history))
}

#[test]
fn low_falling_and_fast_buckets_are_read_between_two_lists() {
    let calm = |level| read_after(PeakDetection::Disabled, "ENTRIES_WRITE", &[(level, 0)]);
    assert_eq!(calm(36_000), None);
    assert_eq!(calm(9_001), None);
    assert_eq!(calm(9_000), Some(20 * SECOND_US));
    assert_eq!(calm(-5), Some(20 * SECOND_US));
    // Falling by 6,000 a minute from 24,000: WARNING in 2 ½ minutes, so a read after half of that.
    let falling = [(30_000, 0), (24_000, MINUTE_US)];
    assert_eq!(
        read_after(PeakDetection::Disabled, "ENTRIES_WRITE", &falling),
        Some(75 * SECOND_US)
    );
    // A bucket that refills completely within a minute would be missed by the calendar.
    let full = [(70, 0)];
    assert_eq!(
        read_after(PeakDetection::Disabled, "KEYS_CHECK", &full),
        None
    );
    let often = read_after(PeakDetection::Enabled, "KEYS_CHECK", &full).unwrap();
    assert!((14 * SECOND_US..15 * SECOND_US).contains(&often));
    // One that is about to be empty, but not more often than this.
    let soon = [(60, 0), (10, 10 * SECOND_US)];
    let often = read_after(PeakDetection::Enabled, "KEYS_CHECK", &soon);
    assert_eq!(often, Some(READ_INTERVAL_MIN_US));
}

#[test]
fn the_buckets_of_polling_itself_are_never_read_because_they_are_low() {
    for peaks in [PeakDetection::Enabled, PeakDetection::Disabled] {
        for policy in [POLICIES_LIST, POLICIES_READ] {
            assert_eq!(read_after(peaks, policy, &[(1, 0)]), None);
        }
    }
}

#[test]
fn lists_follow_the_calendar_and_reads_come_between() {
    let mut planner = planner(PeakDetection::Disabled, &["1"]);
    assert_eq!(planner.next(0), poll("1"));
    // One call at a time.
    assert!(matches!(planner.next(SECOND_US), NextAction::Wait { .. }));
    let low = [sample("1", "ENTRIES_WRITE", 9_000, SECOND_US)];
    let full = [sample("1", "CLAIMS_WRITE", 36_000, SECOND_US)];
    planner.polled("1", SECOND_US, &[assess(&low), assess(&full)]);
    let until_us = 21 * SECOND_US;
    assert_eq!(planner.next(SECOND_US), NextAction::Wait { until_us });
    assert_eq!(planner.due_us("1"), Some(until_us));
    assert_eq!(planner.next(until_us), read("1", "ENTRIES_WRITE"));
    let better = [sample("1", "ENTRIES_WRITE", 9_001, until_us)];
    planner.polled("1", until_us, &[assess(&better), assess(&full)]);
    // Nothing is low any more, so the next call is the calendar's.
    let until_us = 5 * MINUTE_US;
    assert_eq!(planner.next(22 * SECOND_US), NextAction::Wait { until_us });
    assert_eq!(planner.next(until_us), poll("1"));
}

#[test]
fn stored_samples_lower_the_budget_of_a_monitor_that_restarts() {
    // Six lists were made a moment ago: the monitor's third is used up.
    let known = [sample("1", POLICIES_LIST, 14, 0)];
    let mut restarted = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
    restarted.add("1", 0, &known).unwrap();
    let NextAction::Wait { until_us } = restarted.next(0) else {
        panic!("the budget is used up");
    };
    // A third of six a minute is one in half a minute.
    assert!((30 * SECOND_US..31 * SECOND_US).contains(&until_us));
    assert_eq!(restarted.next(until_us), poll("1"));
    // If others use the bucket, too, the monitor goes on at its own rate.
    let known = [sample("1", POLICIES_LIST, 0, 0)];
    let mut shared = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
    shared.add("1", 0, &known).unwrap();
    assert_eq!(shared.next(0), NextAction::Wait { until_us });
}

/// Restarted every second, with the levels of DICT's buckets stored at each poll.
#[test]
fn quick_restarts_leave_two_thirds_of_both_budgets() {
    let limits: [Limit; 2] =
        ["6/min burst 20", "60/min burst 200"].map(|text| text.parse().unwrap());
    let mut dict: [Option<State>; 2] = [None, None];
    let mut known: Vec<Sample> = Vec::new();
    let mut lowest = [i64::MAX; 2];
    for second in 0..600_u64 {
        let now_us = second * SECOND_US;
        let mut planner = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
        planner.add("1", now_us, &known).unwrap();
        for tick in 0..10 {
            let now_us = now_us + tick * SECOND_US / 10;
            let index = match planner.next(now_us) {
                NextAction::Poll { .. } => 0,
                NextAction::Read { .. } => 1,
                NextAction::Wait { .. } | NextAction::Idle => continue,
            };
            let taken = limits[index].apply(dict[index], Command::Take { n: 1 }, now_us);
            assert!(taken.is_allowed());
            dict[index] = taken.state();
            let level = |index: usize| {
                limits[index]
                    .apply(dict[index], Command::Peek, now_us)
                    .level()
            };
            lowest = [lowest[0].min(level(0)), lowest[1].min(level(1))];
            known = vec![
                sample("1", POLICIES_LIST, level(0), now_us),
                sample("1", POLICIES_READ, level(1), now_us),
            ];
            let keys = [sample("1", "KEYS_CHECK", 0, now_us)];
            let budgets = [assess(&known[..1]), assess(&known[1..]), assess(&keys)];
            planner.polled("1", now_us, &budgets);
        }
    }
    assert!(lowest[0] >= 14 && lowest[1] >= 134, "{lowest:?}");
}

#[test]
fn failures_back_off_and_a_retry_after_is_respected_within_reason() {
    let mut planner = planner(PeakDetection::Disabled, &["1"]);
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
        assert_eq!(planner.next(now_us), poll("1"));
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
fn a_call_whose_result_is_never_reported_counts_as_lost() {
    let mut planner = planner(PeakDetection::Disabled, &[]);
    assert_eq!(planner.next(0), NextAction::Idle);
    planner.add("1", 10 * SECOND_US, &[]).unwrap();
    assert_eq!(planner.next(10 * SECOND_US), poll("1"));
    let until_us = 5 * MINUTE_US;
    assert_eq!(planner.next(140 * SECOND_US), NextAction::Wait { until_us });
    // A small correction of the clock changes nothing,
    assert!(matches!(
        planner.next(9 * SECOND_US),
        NextAction::Wait { .. }
    ));
    // but a step back to before the last poll makes it due.
    assert_eq!(planner.next(0), poll("1"));
}

#[test]
fn a_clock_that_is_set_back_resets_the_budget() {
    let day_us = 24 * 60 * MINUTE_US;
    let mut planner = planner(PeakDetection::Disabled, &[]);
    let known = [sample("1", POLICIES_LIST, 0, day_us)];
    planner.add("1", day_us, &known).unwrap();
    while !matches!(planner.next(day_us + MINUTE_US), NextAction::Wait { .. }) {}
    assert_eq!(planner.next(MINUTE_US), poll("1"));
}

#[test]
fn a_share_of_nothing_or_more_than_all_is_an_error() {
    for read_share_pct in [0, 101] {
        let budget = PollBudget {
            read_share_pct,
            ..PollBudget::default()
        };
        let error = Planner::new(PollSchedule::default(), budget).unwrap_err();
        assert!(error.to_string().contains("1 to 100 percent"));
    }
}

#[test]
fn when_reads_exceed_the_budget_all_come_later_and_the_coverage_says_so() {
    let mut planner = planner(PeakDetection::Enabled, &["1"]);
    assert_eq!(planner.next(0), poll("1"));
    // Ten buckets that each want to be read four times a minute, and twenty reads a minute.
    let names: Vec<String> = (0..10).map(|n| format!("KEYS_{n}")).collect();
    let limit = ReportedLimit::per_seconds(70, 70, 60).unwrap();
    let mut newest: Vec<Vec<Sample>> = names
        .iter()
        .map(|name| {
            let bucket = BucketId::new("1", name.as_str()).unwrap();
            vec![Sample::new(bucket, limit, 70, 0).unwrap()]
        })
        .collect();
    let mut longest_us = 0;
    let mut reads = 0_u32;
    let assessments: Vec<Assessment<'_>> = newest.iter().map(|own| assess(own)).collect();
    planner.polled("1", 0, &assessments);
    drop(assessments);
    for tick in 0..6_000 {
        let now_us = tick * SECOND_US / 10;
        match planner.next(now_us) {
            NextAction::Poll { .. } => {}
            NextAction::Read { policy, .. } => {
                reads += 1;
                let index = names.iter().position(|name| *name == policy).unwrap();
                let before = &newest[index][0];
                if now_us > 2 * MINUTE_US {
                    longest_us = longest_us.max(now_us - before.taken_us());
                }
                newest[index] =
                    vec![Sample::new(before.bucket().clone(), limit, 70, now_us).unwrap()];
            }
            NextAction::Wait { .. } | NextAction::Idle => continue,
        }
        let assessments: Vec<Assessment<'_>> = newest.iter().map(|own| assess(own)).collect();
        planner.polled("1", now_us, &assessments);
    }
    // A third of 60 a minute, for ten minutes.
    assert!((190..=200).contains(&reads), "{reads}");
    for coverage in planner.coverage("1") {
        assert!(!coverage.is_complete(), "{coverage:?}");
        assert!(
            longest_us <= coverage.interval_us,
            "{longest_us} {coverage:?}"
        );
        assert!(coverage.interval_us < MINUTE_US);
    }
}

#[test]
fn participants_that_share_a_budget_are_polled_equally_often() {
    let budget = PollBudget {
        is_shared: true,
        ..PollBudget::default()
    };
    let schedule = PollSchedule::new("* * * * *".parse().unwrap(), PeakDetection::Disabled);
    let mut planner = Planner::new(schedule, budget).unwrap();
    // Five want to be listed once a minute, and there are two lists a minute for all.
    let names = ["1", "2", "3", "4", "5"];
    for name in names {
        planner.add(name, 0, &[]).unwrap();
    }
    let mut polls = [0_u32; 5];
    for second in 0..7_200 {
        let now_us = second * SECOND_US;
        while let NextAction::Poll { participant } = planner.next(now_us) {
            let index = names.iter().position(|name| *name == participant).unwrap();
            polls[index] += 1;
            let history = [sample(&participant, "ENTRIES_WRITE", 36_000, now_us)];
            planner.polled(&participant, now_us, &[assess(&history)]);
        }
    }
    let (least, most) = (polls.iter().min().unwrap(), polls.iter().max().unwrap());
    assert!(most - least <= 1, "{polls:?}");
    let all = polls.iter().sum::<u32>();
    assert!((235..=246).contains(&all), "{polls:?}");
}

#[test]
fn participants_with_their_own_timers_share_a_budget_equally() {
    let budget = PollBudget {
        is_shared: true,
        ..PollBudget::default()
    };
    let schedule = PollSchedule::new("* * * * *".parse().unwrap(), PeakDetection::Disabled);
    let mut planner = Planner::new(schedule, budget).unwrap();
    assert_eq!(planner.next_for("1", 0), NextAction::Idle);
    // Each has its own timer; some timers always fire first.
    let names = ["1", "2", "3", "4", "5"];
    let mut wake_us = [0; 5];
    for name in names {
        planner.add(name, 0, &[]).unwrap();
    }
    let (mut polls, mut waits) = ([0_u32; 5], 0_u32);
    for second in 0..7_200 {
        let now_us = second * SECOND_US;
        for (index, name) in names.iter().enumerate() {
            if wake_us[index] > now_us {
                continue;
            }
            wake_us[index] = match planner.next_for(name, now_us) {
                NextAction::Idle | NextAction::Read { .. } => unreachable!(),
                NextAction::Wait { until_us } => {
                    assert!(until_us > now_us);
                    waits += 1;
                    until_us
                }
                NextAction::Poll { .. } => {
                    polls[index] += 1;
                    let history = [sample(name, "ENTRIES_WRITE", 36_000, now_us)];
                    planner.polled(name, now_us, &[assess(&history)]);
                    planner.due_us(name).unwrap()
                }
            };
        }
    }
    let (least, most) = (polls.iter().min().unwrap(), polls.iter().max().unwrap());
    assert!(most - least <= 3, "{polls:?}");
    let all = polls.iter().sum::<u32>();
    assert!((225..=246).contains(&all), "{polls:?}");
    assert!(waits < 6 * all, "{waits} waits for {all} turns");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the results of the calls, DICT's buckets never fall below two thirds, with continuous
    /// and with stepwise refill, by either entry point.
    #[test]
    fn calls_leave_two_thirds_of_both_budgets(
        outcomes in prop::collection::vec((0..4_u8, 0..3_000_u64), 1..300),
        start_us in 0..10 * MINUTE_US,
        is_stepwise in any::<bool>(),
        is_by_name in any::<bool>(),
    ) {
        let limit = |text: &str| {
            let limit: Limit = text.parse().unwrap();
            if is_stepwise { limit.stepwise() } else { limit }
        };
        let limits = [limit("6/min burst 20"), limit("60/min burst 200")];
        let mut dict: [Option<State>; 2] = [None; 2];
        let mut planner = Planner::new(PollSchedule::default(), PollBudget::default()).unwrap();
        planner.add("1", start_us, &[]).unwrap();
        let mut now_us = start_us;
        let mut listed_us = None;
        for (outcome, took_ms) in outcomes {
            let next = if is_by_name { planner.next_for("1", now_us) } else { planner.next(now_us) };
            let index = match next {
                NextAction::Wait { until_us } => {
                    prop_assert!(until_us > now_us);
                    now_us = until_us;
                    continue;
                }
                NextAction::Idle => unreachable!(),
                NextAction::Poll { .. } => 0,
                NextAction::Read { policy, .. } => {
                    prop_assert_eq!(policy, "KEYS_CHECK");
                    1
                }
            };
            let taken = limits[index].apply(dict[index], Command::Take { n: 1 }, now_us);
            prop_assert!(taken.is_allowed());
            dict[index] = taken.state();
            let rest = [14, 134][index];
            // A stepwise bucket refills up to a whole period later.
            let late = if is_stepwise { [2, 20][index] } else { 0 };
            prop_assert!(taken.level() >= rest - late, "{} {}", index, taken.level());
            if index == 0 {
                prop_assert!(listed_us.is_none_or(|us| now_us >= us + POLL_INTERVAL_MIN_US));
                listed_us = Some(now_us);
            }
            now_us += took_ms * 1_000;
            match outcome {
                0 => planner.failed("1", now_us, None),
                1 => now_us += 2 * MINUTE_US,
                _ => {
                    let level = if outcome == 2 { 0 } else { 70 };
                    let history = [sample("1", "KEYS_CHECK", level, now_us)];
                    planner.polled("1", now_us, &[assess(&history)]);
                }
            }
        }
    }
}

//! Alerts as an on-call engineer lives them.

use balde_monitor::alert::{
    AlertRule, AlertState, Event, EventKind, ForecastResult, ResolveReason, Routes, Silence,
    SinkClass, SourceAnswer, StalenessCheck, StalenessRule, Via,
    acknowledged as acknowledged_event, check_staleness, close, close_stale, evaluate,
    resolve_vanished,
};
use balde_monitor::analyse::{AnalysisSettings, Assessment, Change};
use balde_monitor::sample::{BucketId, ReportedLimit, Sample};
use balde_monitor::severity::{Severity, Thresholds};

const MINUTE_US: u64 = 60_000_000;

/// An on-call engineer's evening: samples minute by minute, and what came of them.
struct Evening {
    alert: AlertState,
    history: Vec<Sample>,
    rule: AlertRule,
    silences: Vec<Silence>,
}

impl Evening {
    fn new() -> Self {
        Self {
            alert: AlertState::new(bucket(), 0),
            history: Vec::new(),
            rule: AlertRule::default(),
            silences: Vec::new(),
        }
    }

    fn sees(&mut self, level: i64, minute: u64) -> Vec<Event> {
        let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
        let sample = Sample::new(bucket(), limit, level, minute * MINUTE_US).unwrap();
        self.history.push(sample);
        let seen = Assessment::of(
            &self.history,
            Thresholds::default(),
            &AnalysisSettings::default(),
        );
        let now_us = minute * MINUTE_US;
        let (alert, events) = evaluate(
            &self.alert,
            seen.as_ref(),
            now_us,
            &self.rule,
            &self.silences,
        );
        self.alert = alert;
        events
    }

    fn waits(&mut self, minute: u64) -> Vec<Event> {
        let now_us = minute * MINUTE_US;
        let (alert, events) = evaluate(&self.alert, None, now_us, &self.rule, &self.silences);
        self.alert = alert;
        events
    }
}

fn bucket() -> BucketId {
    BucketId::new("12345678", "ENTRIES_WRITE").unwrap()
}

fn labels(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.kind.label()).collect()
}

#[test]
fn a_burst_is_predicted_raised_and_resolved_once_each() {
    let mut evening = Evening::new();
    assert_eq!(labels(&evening.sees(36_000, 0)), [""; 0]);
    // 15,600 a minute are consumed: at 60 % left, empty in a minute and a half. One interval may be
    // a burst, so it waits for the next sample, which says the same.
    assert_eq!(labels(&evening.sees(21_600, 1)), [""; 0]);
    let predicted = evening.sees(7_200, 2);
    assert_eq!(labels(&predicted), ["raised-WARNING", "predicted"]);
    let EventKind::Predicted { empty_at_us, .. } = predicted[1].kind else {
        panic!("{predicted:?}");
    };
    assert_eq!(empty_at_us, 150_000_000);
    // Half a minute is left, so it pages, although the level is at WARNING only.
    assert_eq!(predicted[1].severity, Severity::Critical);
    let sinks = Routes::default().sinks(&predicted[1]);
    assert!(sinks.contains(&SinkClass::Page) && sinks.contains(&SinkClass::Chat));
    let empty = evening.sees(-20, 3);
    assert_eq!(labels(&empty), ["raised-EXHAUSTED", "forecast-over"]);
    let result = ForecastResult::CameTrue;
    assert_eq!(empty[1].kind, EventKind::ForecastOver { result });

    // It fills up again. The first better sample waits for the calm.
    assert_eq!(labels(&evening.sees(4_000, 6)), [""; 0]);
    assert_eq!(labels(&evening.sees(5_200, 7)), [""; 0]);
    assert_eq!(labels(&evening.sees(6_400, 8)), ["lowered-CRITICAL"]);
    assert_eq!(labels(&evening.sees(16_000, 16)), [""; 0]);
    let over = evening.sees(19_000, 18);
    assert_eq!(labels(&over), ["resolved"]);
    // The resolution is routed by the worst severity.
    assert_eq!(over[0].severity, Severity::Exhausted);
    assert!(
        Routes::default()
            .sinks(&over[0])
            .contains(&SinkClass::Incident)
    );
    assert_eq!(over[0].episode, empty[0].episode);
    assert_ne!(over[0].key, empty[0].key);
}

#[test]
fn the_keys_are_stable_names() {
    let mut evening = Evening::new();
    let events = evening.sees(9_000, 5);
    assert_eq!(events[0].key, "12345678/ENTRIES_WRITE/0/0/raised-WARNING");
    assert_eq!(events[0].episode, "12345678/ENTRIES_WRITE/0/level-0");
}

#[test]
fn an_open_alert_reminds_by_its_severity_and_not_with_every_poll() {
    let mut evening = Evening::new();
    assert_eq!(labels(&evening.sees(0, 1)), ["raised-EXHAUSTED"]);
    assert_eq!(labels(&evening.sees(0, 5)), [""; 0]);
    assert_eq!(labels(&evening.waits(15)), [""; 0]);
    // Even without a new sample.
    assert_eq!(labels(&evening.waits(16)), ["reminder"]);
    assert_eq!(labels(&evening.waits(16)), [""; 0]);
    assert_eq!(labels(&evening.waits(31)), ["reminder"]);
}

#[test]
fn a_silence_records_without_waking_and_its_end_tells_what_is_still_so() {
    let mut evening = Evening::new();
    let silence = Silence::new("change 4711", Severity::Critical, 0, 10 * MINUTE_US).unwrap();
    evening.silences = vec![silence.of_policy("ENTRIES_WRITE")];
    let quiet = evening.sees(3_000, 1);
    assert_eq!(quiet[0].silenced_by.as_deref(), Some("change 4711"));
    let sinks = Routes::default().sinks(&quiet[0]);
    assert_eq!(sinks, [SinkClass::Log, SinkClass::Gauge].into());
    assert_eq!(labels(&evening.waits(9)), [""; 0]);
    let after = evening.waits(10);
    assert_eq!(labels(&after), ["reminder"]);
    assert_eq!(after[0].silenced_by, None);

    // What is worse than the silence covers is heard at once.
    let mut evening = Evening::new();
    let silence = Silence::new("change 4712", Severity::Critical, 0, 10 * MINUTE_US).unwrap();
    evening.silences = vec![silence.of_participant("12345678")];
    assert_eq!(evening.sees(0, 1)[0].silenced_by, None);
}

#[test]
fn a_page_is_taken_back_even_in_a_silence() {
    let mut evening = Evening::new();
    assert_eq!(evening.sees(3_000, 1)[0].silenced_by, None);
    let silence = Silence::new("night", Severity::Exhausted, 2 * MINUTE_US, 90 * MINUTE_US);
    evening.silences = vec![silence.unwrap()];
    evening.sees(36_000, 40);
    let over = evening.sees(36_000, 43);
    assert_eq!(labels(&over), ["resolved"]);
    assert_eq!(over[0].silenced_by, None);
}

#[test]
fn a_prediction_that_is_averted_is_taken_back_after_the_calm() {
    let mut evening = Evening::new();
    evening.rule = evening.rule.with_confirmation(1, 5_000);
    evening.sees(36_000, 0);
    assert_eq!(labels(&evening.sees(21_600, 1)), [""; 0]);
    assert_eq!(labels(&evening.sees(14_000, 2)), ["predicted"]);
    assert_eq!(labels(&evening.sees(15_200, 3)), [""; 0]);
    assert_eq!(labels(&evening.sees(16_400, 4)), [""; 0]);
    let over = evening.sees(17_600, 5);
    let result = ForecastResult::Averted;
    assert_eq!(over[0].kind, EventKind::ForecastOver { result });
}

/// A forecast of low confidence is sent when it has lasted, and when much of the bucket is gone: by
/// default half a minute, and a quarter of the capacity.
#[test]
fn a_forecast_of_low_confidence_waits_for_time_and_for_the_level() {
    let predicted_at = |after_s: u64, below_bp: u32| {
        let mut evening = Evening::new();
        let rule = evening.rule;
        evening.rule = rule.with_confirmation(after_s * 1_000_000, below_bp);
        let levels = [20_000, 17_000, 14_000, 11_000, 8_900];
        let seen = levels.iter().zip(0..).map(|(level, minute)| {
            let events = evening.sees(*level, minute);
            events
                .iter()
                .any(|event| matches!(event.kind, EventKind::Predicted { .. }))
        });
        seen.collect::<Vec<_>>().iter().position(|is_told| *is_told)
    };
    // The first forecast is made at minute one.
    assert_eq!(predicted_at(0, 10_000), Some(1));
    assert_eq!(
        predicted_at(30, 10_000),
        Some(2),
        "a minute has confirmed it"
    );
    assert_eq!(predicted_at(61, 10_000), Some(3), "it needs two minutes");
    assert_eq!(predicted_at(0, 4_000), Some(2), "at 14,000 of 36,000");
    let rule = AlertRule::default();
    assert_eq!(rule.confirm_after_us(), 30_000_000);
    assert_eq!(
        predicted_at(30, rule.confirm_below_bp()),
        Some(4),
        "at 8,900"
    );
}

#[test]
fn a_policy_that_vanishes_leaves_no_alert_behind() {
    let mut evening = Evening::new();
    evening.sees(100, 1);
    let (alert, events) = resolve_vanished(&evening.alert, 2 * MINUTE_US);
    let reason = ResolveReason::Vanished;
    let from = Severity::Critical;
    assert_eq!(events[0].kind, EventKind::Resolved { from, reason });
    assert_eq!(resolve_vanished(&alert, 3 * MINUTE_US).1, []);
}

#[test]
fn after_the_clock_went_back_samples_still_count() {
    let mut evening = Evening::new();
    evening.sees(36_000, 600);
    assert_eq!(labels(&evening.sees(0, 10)), ["raised-EXHAUSTED"]);
}

#[test]
fn a_sample_of_another_bucket_says_nothing() {
    let mut evening = Evening::new();
    evening.alert = AlertState::new(BucketId::new("12345678", "OTHER").unwrap(), 0);
    assert_eq!(evening.sees(0, 1), []);
}

#[test]
fn silence_from_the_other_side_is_an_alert() {
    let rule = StalenessRule::default();
    let at = |check: &StalenessCheck, polled: Option<u64>, minute: u64| {
        let answer = polled.map_or(SourceAnswer::None, |minute| SourceAnswer::Poll {
            taken_us: minute * MINUTE_US,
        });
        check_staleness(check, answer, &[], minute * MINUTE_US, &rule, &[])
    };
    let check = StalenessCheck::new("12345678", 0);
    // Nothing was ever heard: that counts from the beginning.
    assert_eq!(at(&check, None, 11).1, []);
    let (stale, events) = at(&check, None, 12);
    assert_eq!(labels(&events), ["stale"]);
    assert!(
        Routes::default()
            .sinks(&events[0])
            .contains(&SinkClass::Page)
    );
    assert_eq!(at(&stale, None, 30).1, []);
    let (still, events) = at(&stale, None, 72);
    assert_eq!(labels(&events), ["still-stale"]);
    let (fresh, events) = at(&still, Some(73), 73);
    assert_eq!(labels(&events), ["fresh"]);
    assert_eq!(events[0].episode, "12345678/0/stale-0");
    // The same answer again is no news, and an old answer makes nothing fresh.
    assert_eq!(at(&fresh, Some(73), 73), (fresh.clone(), Vec::new()));
    let (stale, events) = at(&fresh, None, 90);
    assert_eq!(labels(&events), ["stale"]);
    assert_eq!(at(&stale, Some(73), 91).1, []);
}

#[test]
fn stale_data_is_acknowledged_until_it_is_over_and_closed_from_elsewhere() {
    let rule = StalenessRule::default();
    let at = |check: &StalenessCheck, silences: &[Silence], minute: u64| {
        let now_us = minute * MINUTE_US;
        check_staleness(check, SourceAnswer::None, &[], now_us, &rule, silences)
    };
    let (stale, events) = at(&StalenessCheck::new("12345678", 0), &[], 12);
    let open = stale.open_alert(&rule).unwrap();
    assert_eq!(
        (&open.episode, &open.policy),
        (&events[0].episode, &None::<String>)
    );
    let acknowledged = [Silence::acknowledgement(&open, "Ana", 13 * MINUTE_US)];
    let event = acknowledged_event(&open, "Ana", None, 13 * MINUTE_US);
    assert_eq!(event.episode, open.episode);
    assert!(Routes::default().sinks(&event).contains(&SinkClass::Page));
    // No reminder while it is acknowledged; it is due as soon as that is taken back.
    assert_eq!(at(&stale, &acknowledged, 72).1, []);
    assert_eq!(labels(&at(&stale, &[], 72).1), ["still-stale"]);
    // The end is sent in spite of it.
    let answer = SourceAnswer::Poll {
        taken_us: 80 * MINUTE_US,
    };
    let (_, over) = check_staleness(&stale, answer, &[], 80 * MINUTE_US, &rule, &acknowledged);
    assert_eq!(labels(&over), ["fresh"]);
    assert_eq!(over[0].silenced_by, None);
    // Closed by a person elsewhere: the next check raises a new alert, which is not acknowledged.
    let via = Via::PagerDuty;
    let (closed, events) =
        close_stale(&stale, &open.episode, "Rui", via, 90 * MINUTE_US, &rule).unwrap();
    assert_eq!(labels(&events), ["closed"]);
    assert_eq!(closed.open_alert(&rule), None);
    let (_, events) = at(&closed, &acknowledged, 91);
    assert_eq!(labels(&events), ["stale"]);
    assert_eq!(events[0].silenced_by, None);
    assert_ne!(events[0].episode, open.episode);
    assert_eq!(
        close_stale(&closed, &open.episode, "Rui", via, 92 * MINUTE_US, &rule),
        None
    );
}

#[test]
fn a_forecast_is_acknowledged_apart_from_the_level() {
    let mut evening = Evening::new();
    evening.rule = evening.rule.with_confirmation(1, 5_000);
    evening.sees(36_000, 0);
    evening.sees(21_600, 1);
    assert_eq!(labels(&evening.sees(14_000, 2)), ["predicted"]);
    let open: Vec<_> = evening.alert.open_alerts().collect();
    let [forecast] = open.as_slice() else {
        panic!("{open:?}");
    };
    assert_eq!(
        Some(&forecast.episode),
        evening.alert.forecast_episode().as_ref()
    );
    // Acknowledged: that it gets more urgent is news, and so is the level.
    evening.silences = vec![Silence::acknowledgement(forecast, "Ana", 3 * MINUTE_US)];
    let worse = evening.sees(7_000, 3);
    assert_eq!(worse[0].kind.label(), "raised-WARNING");
    assert!(
        worse.iter().all(|event| event.silenced_by.is_none()),
        "{worse:?}"
    );
    // Both are open now; closing the forecast leaves the alert about the level.
    assert_eq!(evening.alert.open_alerts().count(), 2);
    let episode = forecast.episode.as_str();
    let (closed, events) = close(
        &evening.alert,
        episode,
        "Rui",
        Via::PagerDuty,
        4 * MINUTE_US,
    )
    .unwrap();
    assert_eq!(labels(&events), ["closed"]);
    assert_eq!(events[0].episode, episode);
    let left: Vec<_> = closed.open_alerts().map(|alert| alert.episode).collect();
    assert_eq!(left, [evening.alert.open_episode().unwrap()]);
}

/// A swapped digit in an ISPB: the source answers, and says that there is no such participant.
#[test]
fn a_participant_that_its_source_refuses_from_the_start_is_an_alert_at_once() {
    let rule = StalenessRule::default();
    let at = |check: &StalenessCheck, answer: SourceAnswer, second: u64| {
        check_staleness(check, answer, &[], second * 1_000_000, &rule, &[])
    };
    let check = StalenessCheck::new("12345687", 0);
    assert_eq!(at(&check, SourceAnswer::None, 1).1, []);
    let (refused, events) = at(&check, SourceAnswer::Refused, 1);
    assert_eq!(labels(&events), ["stale"]);
    // It stays open until the first poll: an error of the network does not end it.
    assert_eq!(at(&refused, SourceAnswer::Refused, 2).1, []);
    assert_eq!(at(&refused, SourceAnswer::None, 3).1, []);
    let poll = |second: u64| SourceAnswer::Poll {
        taken_us: second * 1_000_000,
    };
    let (known, events) = at(&refused, poll(4), 4);
    assert_eq!(labels(&events), ["fresh"]);
    // Afterwards a refusal may be a mistake of a moment, and has the time that all errors have.
    assert_eq!(at(&known, SourceAnswer::Refused, 64).1, []);
    let (_, events) = at(&known, SourceAnswer::Refused, 4 + 12 * 60);
    assert_eq!(labels(&events), ["stale"]);
}

#[test]
fn a_change_is_sent_once() {
    let change = Change::Category {
        from: "A".to_owned(),
        to: "H".to_owned(),
    };
    let check = StalenessCheck::new("12345678", 0);
    let tell = |check: &StalenessCheck| {
        let changes = std::slice::from_ref(&change);
        let rule = StalenessRule::default();
        let answer = SourceAnswer::Poll {
            taken_us: MINUTE_US,
        };
        check_staleness(check, answer, changes, MINUTE_US, &rule, &[])
    };
    let (after, events) = tell(&check);
    assert_eq!(events[0].key, "12345678/0/0/changed-category-H");
    assert_eq!(tell(&check).1, events);
    assert_eq!(tell(&after).1, []);
}

#[test]
fn silences_have_an_order_and_an_end() {
    let error = Silence::new("x", Severity::Warning, 5, 5).unwrap_err();
    assert!(error.to_string().contains("ends before it begins"));
    let error = Silence::new("x", Severity::Warning, 0, u64::MAX).unwrap_err();
    assert!(error.to_string().contains("30 days"));
}

/// 4,200 a minute go, 1,200 come back: it is empty in a few minutes.
#[test]
fn a_forecast_made_in_a_silence_is_sent_when_the_silence_ends() {
    for ends in [true, false] {
        let mut evening = Evening::new();
        let silence = Silence::new("works", Severity::Critical, 0, 60 * MINUTE_US).unwrap();
        evening.rule = evening.rule.with_confirmation(1, 5_000);
        evening.silences = vec![silence];
        evening.sees(20_000, 0);
        let mut quiet = evening.sees(17_000, 1);
        quiet.extend(evening.sees(14_000, 2));
        assert_eq!(labels(&quiet), ["predicted"]);
        assert_eq!(quiet[0].silenced_by.as_deref(), Some("works"));
        if ends {
            evening.silences.clear();
            let told = evening.sees(11_000, 3);
            assert_eq!(labels(&told), ["predicted"]);
            assert_eq!(told[0].silenced_by, None);
            assert_eq!(told[0].episode, quiet[0].episode);
        }
        // The end of a forecast that was never sent is not sent either.
        let mut over = evening.sees(36_000, 4);
        evening.silences.clear();
        over.extend((5..20).flat_map(|minute| evening.sees(36_000, minute)));
        assert_eq!(labels(&over), ["forecast-over"]);
        assert_eq!(over[0].silenced_by.is_none(), ends);
    }
}

/// A bucket was emptied at once and is left alone since. Polls fail for longer than the shortest
/// window: what is seen then is a bucket that fills.
#[test]
fn a_pause_of_polls_makes_no_prediction_of_what_was_long_before() {
    let mut evening = Evening::new();
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).unwrap();
    let mut told = Vec::new();
    let levels = (0..16).map(|i| (10 + 240 * i, 12 * i));
    for (level, s) in std::iter::once((36_000, -12_i64))
        .chain(levels)
        .chain([(5_630, 281)])
    {
        let at_us = (s + 1_000).unsigned_abs() * 1_000_000;
        evening
            .history
            .push(Sample::new(bucket(), limit, level, at_us).unwrap());
        let seen = Assessment::of(
            &evening.history,
            Thresholds::default(),
            &AnalysisSettings::default(),
        );
        let (alert, events) = evaluate(&evening.alert, seen.as_ref(), at_us, &evening.rule, &[]);
        evening.alert = alert;
        if s > 0 {
            told.extend(events);
        }
    }
    let is_prediction = |event: &&Event| matches!(event.kind, EventKind::Predicted { .. });
    assert_eq!(told.iter().find(is_prediction), None);
}

//! Retention and thinning.

use balde_monitor::alert::SinkClass;
use balde_monitor::history::{EventFilter, History, Maintenance, Retention};
use balde_monitor::sample::Sample;
use balde_monitor::severity::Severity::{Exhausted, Warning};
use fastrand::Rng;

use crate::fixture::{
    DAY_US, HOUR_US, MINUTE_US, NOVEMBER_US, PARTICIPANT, bucket, commit_events, poll, raised,
    resolved, routed, to_hook,
};
use crate::test_database::TestDatabase;

const NEVER_THINNED: Retention = Retention {
    months: 13,
    thin_after_days: 0,
};

/// All rounds that there are, added up.
async fn maintain(history: &History, now_us: u64, retention: &Retention) -> Maintenance {
    const ROUNDS_MAX: usize = 500;
    let mut sum = Maintenance::default();
    for _ in 0..ROUNDS_MAX {
        let round = history.maintain(now_us, retention).await.unwrap();
        sum.deleted += round.deleted;
        sum.thinned += round.thinned;
        sum.partitions += round.partitions;
        if !round.has_more {
            return sum;
        }
    }
    panic!("upkeep never ends: {sum:?}");
}

pub(crate) async fn what_is_too_old_goes_and_what_is_open_stays(database: TestDatabase) {
    let history = database.open().await;
    let now_us = NOVEMBER_US + 14 * DAY_US;
    // Fourteen and a half months ago, so that the whole month is over for PostgreSQL too.
    let old_us = now_us - 440 * DAY_US;
    let young_us = now_us - 360 * DAY_US;
    for at_us in [old_us, young_us, now_us] {
        history
            .store(&poll(at_us, &[("A", 1), ("B", 2)]))
            .await
            .unwrap();
    }
    let incident = |event| routed(event, &[SinkClass::Incident], &[]);
    let open = raised(0, "level-0", Exhausted, old_us);
    let closed = raised(1, "level-1", Exhausted, old_us);
    let end = resolved(2, "level-1", Exhausted, old_us + 1);
    let waiting = raised(3, "level-3", Warning, old_us);
    let arrived = resolved(4, "level-4", Warning, old_us);
    let young = raised(5, "level-5", Warning, young_us);
    let mut all = vec![incident(open.clone()), incident(closed), incident(end)];
    all.extend([waiting.clone(), arrived.clone(), young.clone()].map(to_hook));
    commit_events(&history, all).await;
    for message in history.due_messages("hook", now_us, 10).await.unwrap() {
        if message.event.key != waiting.key {
            history.mark_delivered(message.id, now_us).await.unwrap();
        }
    }
    let upkeep = maintain(&history, now_us, &NEVER_THINNED).await;
    // Two samples with an hour and a day each, a closed incident and its two events, and what has
    // arrived.
    assert_eq!(upkeep.deleted, 2 + 4 + 1 + 2 + 1);
    assert!(
        history
            .poll_at(PARTICIPANT, old_us)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        history
            .poll_at(PARTICIPANT, young_us)
            .await
            .unwrap()
            .is_some()
    );
    let days = history.series(&bucket("A"), 0, u64::MAX, 2).await.unwrap();
    assert_eq!(
        days.points.iter().map(|point| point.samples).sum::<u64>(),
        2
    );
    let events = history.events(&EventFilter::default(), 10).await.unwrap();
    let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
    assert_eq!(keys, [&young.key, &waiting.key, &open.key]);
    let incidents = history.incidents(10).await.unwrap();
    let timelines: Vec<&Vec<_>> = incidents.iter().map(|one| &one.timeline).collect();
    assert_eq!(timelines.len(), 3, "every alert that is open");
    assert!(timelines.contains(&&vec![open]), "{timelines:?}");
    let due = history.due_messages("hook", now_us, 10).await.unwrap();
    assert_eq!((due.len(), &due[0].event), (1, &waiting));
    // And there is nothing left to do.
    assert_eq!(
        history.maintain(now_us, &NEVER_THINNED).await.unwrap(),
        Maintenance::default()
    );
}

pub(crate) async fn old_samples_are_thinned_to_the_lowest(database: TestDatabase) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let history = database.open().await;
    let retention = Retention {
        thin_after_days: 31,
        ..Retention::default()
    };
    let now_us = NOVEMBER_US + 31 * DAY_US + 7 * HOUR_US + 12 * MINUTE_US;
    // Thinned are the five minutes that are wholly older than 31 days.
    let thinned_us = NOVEMBER_US + 7 * HOUR_US + 10 * MINUTE_US;
    let mut stored: Vec<Sample> = Vec::new();
    let mut at_us = NOVEMBER_US;
    while at_us < thinned_us + HOUR_US {
        let answer = poll(at_us, &[("A", random.i64(-5..5)), ("B", 3)]);
        history.store(&answer).await.unwrap();
        stored.push(answer.samples()[0].clone());
        at_us += random.u64(1..3 * MINUTE_US);
    }
    let slot = |sample: &Sample| sample.taken_us() / (5 * MINUTE_US);
    let (old, young): (Vec<Sample>, Vec<Sample>) = stored
        .iter()
        .cloned()
        .partition(|sample| sample.taken_us() < thinned_us);
    let lowest = old
        .chunk_by(|one, next| slot(one) == slot(next))
        .map(|slot| {
            let lowest = slot
                .iter()
                .min_by_key(|sample| (sample.level(), sample.taken_us()));
            lowest.unwrap().clone()
        });
    let expected: Vec<Sample> = lowest.chain(young).collect();
    let of_a = async || {
        let series = history
            .series(&bucket("A"), 0, u64::MAX, usize::MAX)
            .await
            .unwrap();
        let points = series.points.iter().map(|point| (point.at_us, point.level));
        points.collect::<Vec<_>>()
    };
    let hours = history.series(&bucket("A"), 0, u64::MAX, 9).await.unwrap();
    let upkeep = maintain(&history, now_us, &retention).await;
    assert_eq!(upkeep.thinned, 2 * (stored.len() - expected.len()) as u64);
    let moments = expected
        .iter()
        .map(|sample| (sample.taken_us(), sample.level()));
    assert_eq!(of_a().await, moments.collect::<Vec<_>>());
    // The roll-ups still know of all of them.
    assert_eq!(
        history.series(&bucket("A"), 0, u64::MAX, 9).await.unwrap(),
        hours
    );
    assert_eq!(maintain(&history, now_us, &retention).await.thinned, 0);
    // An hour later there is more to thin out, unless thinning is disabled.
    assert_eq!(
        maintain(&history, now_us + HOUR_US, &NEVER_THINNED)
            .await
            .thinned,
        0
    );
    assert!(
        maintain(&history, now_us + HOUR_US, &retention)
            .await
            .thinned
            > 0
    );
}

pub(crate) async fn a_round_is_short_and_the_next_goes_on(database: TestDatabase) {
    const POLICIES: usize = 1_000;
    const POLLS: u64 = 11;
    let history = database.open().await;
    let names: Vec<String> = (0..POLICIES).map(|i| format!("P{i}")).collect();
    let levels: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 7)).collect();
    for day in 0..POLLS {
        history
            .store(&poll(NOVEMBER_US + day * DAY_US, &levels))
            .await
            .unwrap();
    }
    let now_us = NOVEMBER_US + 500 * DAY_US;
    let first = history.maintain(now_us, &NEVER_THINNED).await.unwrap();
    assert!(first.has_more);
    let rows = POLICIES as u64 * POLLS;
    assert!((10_000..=13_000).contains(&first.deleted), "{first:?}");
    let rest = maintain(&history, now_us, &NEVER_THINNED).await;
    assert_eq!(first.deleted + rest.deleted, rows * 3);
    // The present is known however old it is.
    assert_eq!(history.latest_samples().await.unwrap().len(), POLICIES);
}

pub(crate) async fn counters_outlive_their_events(database: TestDatabase) {
    let history = database.open().await;
    let events = [
        raised(0, "level-0", Warning, 1),
        raised(1, "level-0", Exhausted, 2),
        resolved(2, "level-0", Exhausted, 3),
        raised(3, "level-3", Warning, 4),
        resolved(4, "level-3", Warning, 5),
    ];
    let unsent = |event| routed(event, &[SinkClass::Log], &[]);
    commit_events(&history, events.into_iter().map(unsent).collect()).await;
    maintain(&history, NOVEMBER_US, &NEVER_THINNED).await;
    assert!(
        history
            .events(&EventFilter::default(), 10)
            .await
            .unwrap()
            .is_empty()
    );
    let counts = history.alert_counts().await.unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|count| (count.severity, count.alerts))
        .collect();
    assert_eq!(counts, [(Warning, 2), (Exhausted, 1)]);
}

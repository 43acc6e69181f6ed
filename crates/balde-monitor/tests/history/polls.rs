//! Answers in and out.

use balde_monitor::analyse::LOOKBACK_SAMPLES_MAX;
use balde_monitor::sample::{BucketId, POLICIES_MAX, Poll, ReportedLimit, Sample};

use crate::fixture::{DAY_US, HOUR_US, MINUTE_US, NOVEMBER_US, PARTICIPANT, bucket, poll, sample};
use crate::test_database::TestDatabase;

pub(crate) async fn a_stored_poll_is_read_back_unchanged(database: TestDatabase) {
    let history = database.open().await;
    let full = sample("ZEBRA", -12, NOVEMBER_US)
        .with_category("H")
        .unwrap();
    let full = full.answered_at(NOVEMBER_US - 5_000).unwrap();
    // In the order of the answer, not of names.
    let stored = Poll::new(vec![full, sample("ALPHA", 40_000, NOVEMBER_US)]).unwrap();
    assert!(history.newest_poll(PARTICIPANT).await.unwrap().is_none());
    assert!(history.store(&stored).await.unwrap());
    assert_eq!(
        history.newest_poll(PARTICIPANT).await.unwrap(),
        Some(stored.clone())
    );
    assert_eq!(
        history.poll_at(PARTICIPANT, NOVEMBER_US).await.unwrap(),
        Some(stored)
    );
    assert!(
        history
            .poll_at(PARTICIPANT, NOVEMBER_US + 1)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        history
            .poll_at("87654321", NOVEMBER_US)
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn an_answer_stored_twice_counts_once(database: TestDatabase) {
    let history = database.open().await;
    let first = poll(NOVEMBER_US, &[("A", 10), ("B", 20)]);
    assert!(history.store(&first).await.unwrap());
    assert!(!history.store(&first).await.unwrap());
    // Other numbers for the same moment: what was there first stays.
    assert!(
        !history
            .store(&poll(NOVEMBER_US, &[("A", 11)]))
            .await
            .unwrap()
    );
    // A policy that was not among them is new, and only that.
    assert!(
        history
            .store(&poll(NOVEMBER_US, &[("A", 12), ("C", 30)]))
            .await
            .unwrap()
    );
    assert!(
        history
            .store(&poll(NOVEMBER_US + 1, &[("A", 5)]))
            .await
            .unwrap()
    );
    for (policy, samples, level) in [("A", 2, 5), ("B", 1, 20), ("C", 1, 30)] {
        let until_us = NOVEMBER_US + HOUR_US;
        let series = history
            .series(&bucket(policy), NOVEMBER_US, until_us, 1)
            .await
            .unwrap();
        let counted: u64 = series.points.iter().map(|point| point.samples).sum();
        assert_eq!(
            (counted, series.points[0].level),
            (samples, level),
            "{policy}"
        );
    }
}

pub(crate) async fn an_answer_of_a_thousand_policies_is_kept(database: TestDatabase) {
    let history = database.open().await;
    let names: Vec<String> = (0..POLICIES_MAX).map(|i| format!("P{i:04}")).collect();
    let levels: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 7)).collect();
    let big = poll(NOVEMBER_US, &levels);
    assert!(history.store(&big).await.unwrap());
    assert!(!history.store(&big).await.unwrap());
    assert_eq!(history.newest_poll(PARTICIPANT).await.unwrap(), Some(big));
}

pub(crate) async fn a_late_answer_is_kept_and_changes_nothing_newer(database: TestDatabase) {
    let history = database.open().await;
    let newest = poll(NOVEMBER_US + HOUR_US, &[("A", 100)]);
    history.store(&newest).await.unwrap();
    // Of the same hour, of the day before, and of long before any partition was made.
    for (late_us, level) in [(59 * MINUTE_US, 1), (DAY_US, 2), (900 * DAY_US, 3)] {
        let late = poll(NOVEMBER_US + HOUR_US - late_us, &[("A", level)]);
        assert!(history.store(&late).await.unwrap());
        assert_eq!(
            history.newest_poll(PARTICIPANT).await.unwrap().as_ref(),
            Some(&newest)
        );
        assert_eq!(history.latest_samples().await.unwrap(), newest.samples());
        let kept = history.poll_at(PARTICIPANT, late.taken_us()).await.unwrap();
        assert_eq!(kept, Some(late));
    }
    let within = history
        .series(&bucket("A"), NOVEMBER_US, NOVEMBER_US + DAY_US, 1)
        .await
        .unwrap();
    let day = within.points[0];
    assert_eq!(
        (day.samples, day.level_min, day.level_max, day.level),
        (2, 1, 100, 100)
    );
}

pub(crate) async fn states_are_what_the_newest_answer_lists(database: TestDatabase) {
    let history = database.open().await;
    assert!(history.latest_samples().await.unwrap().is_empty());
    history
        .store(&poll(1_000, &[("A", 1), ("GONE", 2)]))
        .await
        .unwrap();
    history
        .store(&poll(2_000, &[("B", 4), ("A", 3)]))
        .await
        .unwrap();
    let other = BucketId::new("00000000", "A").unwrap();
    let other = Sample::new(
        other,
        ReportedLimit::per_seconds(1, 1, 1).unwrap(),
        1,
        1_500,
    )
    .unwrap();
    history
        .store(&Poll::new(vec![other.clone()]).unwrap())
        .await
        .unwrap();
    // Another participant's answer is older, and still its newest.
    let expected = [other, sample("A", 3, 2_000), sample("B", 4, 2_000)];
    assert_eq!(history.latest_samples().await.unwrap(), expected);
}

pub(crate) async fn looking_back_gives_the_newest_of_each_policy(database: TestDatabase) {
    let history = database.open().await;
    let polls = LOOKBACK_SAMPLES_MAX as u64 + 3;
    for i in 0..polls {
        let mut levels = vec![("B", i.cast_signed())];
        if i < 10 {
            levels.push(("A", 5));
        }
        history
            .store(&poll(NOVEMBER_US + i, &levels))
            .await
            .unwrap();
    }
    let recent = history
        .recent_samples(PARTICIPANT, NOVEMBER_US)
        .await
        .unwrap();
    assert_eq!(recent.len(), 2);
    assert_eq!((recent[0][0].bucket(), recent[0].len()), (&bucket("A"), 10));
    assert_eq!(
        (recent[1][0].bucket(), recent[1].len()),
        (&bucket("B"), LOOKBACK_SAMPLES_MAX)
    );
    assert_eq!(recent[1][0].taken_us(), NOVEMBER_US + 3);
    assert!(recent[1].is_sorted_by_key(Sample::taken_us));
    // What has nothing since then is not there.
    let recent = history
        .recent_samples(PARTICIPANT, NOVEMBER_US + polls - 2)
        .await
        .unwrap();
    assert_eq!(recent.len(), 1);
    assert_eq!(recent[0].len(), 2);
    assert_eq!(recent[0][1].level(), polls.cast_signed() - 1);
    assert!(
        history
            .recent_samples(PARTICIPANT, NOVEMBER_US + polls)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        history
            .recent_samples("87654321", 0)
            .await
            .unwrap()
            .is_empty()
    );
}

pub(crate) async fn several_store_at_once(database: TestDatabase) {
    const MONITORS: usize = 4;
    const POLLS: u64 = 20;
    let history = database.open().await;
    let mut storing = tokio::task::JoinSet::new();
    for monitor in 0..MONITORS {
        let history = database.another(&history).await;
        storing.spawn(async move {
            let mut new = 0;
            for i in 0..POLLS {
                // The same answers, listed in another order by each.
                let mut levels = [("A", 1), ("B", 2), ("C", 3), ("D", 4)];
                levels.rotate_left(monitor);
                let answer = poll(NOVEMBER_US + i * MINUTE_US, &levels);
                new += u64::from(history.store(&answer).await.unwrap());
            }
            new
        });
    }
    let new: u64 = storing.join_all().await.into_iter().sum();
    assert_eq!(new, POLLS, "each answer is new for one of them");
    for policy in ["A", "B", "C", "D"] {
        let until_us = NOVEMBER_US + HOUR_US;
        let series = history
            .series(&bucket(policy), NOVEMBER_US, until_us, 1)
            .await
            .unwrap();
        assert_eq!(series.points[0].samples, POLLS);
    }
}

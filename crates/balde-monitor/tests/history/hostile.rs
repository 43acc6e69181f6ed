//! Texts and numbers that somebody else chose.

use std::slice;

use balde_monitor::alert::{Silence, SinkClass};
use balde_monitor::history::{ERROR_CHARS_MAX, EventFilter};
use balde_monitor::sample::{BucketId, Poll, ReportedLimit, Sample, TOKENS_MAX};
use balde_monitor::severity::Severity;

use crate::fixture::{NOVEMBER_US, commit_events, raised, routed, to_hook};
use crate::test_database::TestDatabase;

const NASTY: [&str; 6] = [
    "'; DROP TABLE sample; --",
    "\"quoted\" \\ $1 ?1 %s {0}",
    "ação 🪣 \u{202e}",
    "NULL",
    " ",
    "1e999",
];

pub(crate) async fn texts_are_texts(database: TestDatabase) {
    let history = database.open().await;
    for (moment, name) in (1..).zip(NASTY) {
        let bucket = BucketId::new(name, name).unwrap();
        let limit = ReportedLimit::per_seconds(1, 1, 1).unwrap();
        let sample = Sample::new(bucket.clone(), limit, 1, moment).unwrap();
        let sample = sample.with_category(name).unwrap();
        let answer = Poll::new(vec![sample]).unwrap();
        history.store(&answer).await.unwrap();
        assert_eq!(
            history.newest_poll(name).await.unwrap(),
            Some(answer.clone())
        );
        assert_eq!(
            history.recent_samples(name, 0).await.unwrap(),
            [answer.samples()]
        );
        let series = history.series(&bucket, 0, 100, 10).await.unwrap();
        assert_eq!(series.points.len(), 1);
        let state = history.participant_state(name, moment).await.unwrap();
        assert_eq!(state.staleness.participant, name);
        let mut event = raised(moment, name, Severity::Warning, moment);
        event.silenced_by = Some(format!("{name}\0"));
        let sent = routed(
            event.clone(),
            &[SinkClass::Event],
            &[(name, SinkClass::Event)],
        );
        commit_events(&history, vec![sent]).await;
        assert_eq!(
            history.due_messages(name, 100, 10).await.unwrap()[0].event,
            event
        );
        let silence = Silence::new(name, Severity::Critical, 0, 50).unwrap();
        history.add_silence(&silence.of_policy(name)).await.unwrap();
        assert!(history.end_silence(name, 20).await.unwrap());
    }
    assert_eq!(history.latest_samples().await.unwrap().len(), NASTY.len());
    let events = history.events(&EventFilter::default(), 100).await.unwrap();
    assert_eq!(events.len(), NASTY.len());
}

pub(crate) async fn errors_are_cut_and_lose_their_nul(database: TestDatabase) {
    let history = database.open().await;
    commit_events(
        &history,
        vec![to_hook(raised(0, "level-0", Severity::Warning, 1))],
    )
    .await;
    let message = history.due_messages("hook", 1, 1).await.unwrap().remove(0);
    let kept = async |error: &str| {
        history.mark_failed(message.id, 5, error).await.unwrap();
        history
            .backlog()
            .await
            .unwrap()
            .remove(0)
            .last_error
            .unwrap()
    };
    assert_eq!(kept("bad\0 gateway").await, "bad gateway");
    let long = "ç".repeat(100_000);
    assert_eq!(kept(&long).await, "ç".repeat(ERROR_CHARS_MAX));
    for text in NASTY {
        assert_eq!(kept(text).await, text);
    }
}

pub(crate) async fn silences_come_and_go(database: TestDatabase) {
    let history = database.open().await;
    let silence = |id: &str, from_us, until_us| {
        let silence = Silence::new(id, Severity::Critical, from_us, until_us).unwrap();
        silence.of_participant("12345678")
    };
    let (now, later, past) = (
        silence("b", 0, 100),
        silence("a", 50, 200),
        silence("c", 0, 10),
    );
    for silence in [&now, &later, &past] {
        history.add_silence(silence).await.unwrap();
    }
    // Silences that have not begun are returned; ended ones are not.
    assert_eq!(
        history.silences(20).await.unwrap(),
        [later.clone(), now.clone()]
    );
    assert_eq!(
        history.silences(100).await.unwrap(),
        slice::from_ref(&later)
    );
    assert!(history.end_silence("b", 30).await.unwrap());
    assert!(
        !history.end_silence("b", 31).await.unwrap(),
        "it is over already"
    );
    assert!(
        !history.end_silence("c", 31).await.unwrap(),
        "it was over by itself"
    );
    assert!(!history.end_silence("nobody", 31).await.unwrap());
    assert_eq!(history.silences(31).await.unwrap(), slice::from_ref(&later));
    // The same id again is a new one in its database.
    let longer = silence("b", 40, 400);
    history.add_silence(&longer).await.unwrap();
    assert_eq!(history.silences(45).await.unwrap(), [later, longer]);
}

pub(crate) async fn numbers_at_the_edge_come_back(database: TestDatabase) {
    let history = database.open().await;
    let most = TOKENS_MAX.cast_signed();
    let edge = |policy: &str, level, taken_us| {
        let bucket = BucketId::new("1", policy).unwrap();
        let limit = ReportedLimit::new(TOKENS_MAX, TOKENS_MAX, 1).unwrap();
        Sample::new(bucket, limit, level, taken_us).unwrap()
    };
    let last_us = i64::MAX.unsigned_abs();
    // From the first microsecond to one that no calendar knows.
    for taken_us in [
        0,
        NOVEMBER_US,
        253_370_764_799_999_999,
        253_370_764_800_000_000,
        last_us,
    ] {
        let debt = edge("DEBT", -most, taken_us).answered_at(last_us).unwrap();
        let answer = Poll::new(vec![debt, edge("FULL", most, taken_us)]).unwrap();
        assert!(history.store(&answer).await.unwrap());
        assert!(!history.store(&answer).await.unwrap());
        assert_eq!(
            history.poll_at("1", taken_us).await.unwrap(),
            Some(answer.clone())
        );
        assert_eq!(history.newest_poll("1").await.unwrap(), Some(answer));
    }
    let bucket = BucketId::new("1", "DEBT").unwrap();
    let series = history.series(&bucket, 0, u64::MAX, 3).await.unwrap();
    assert_eq!(series.points[0].level_min, -most);
    assert_eq!(history.recent_samples("1", 0).await.unwrap()[0].len(), 5);
}

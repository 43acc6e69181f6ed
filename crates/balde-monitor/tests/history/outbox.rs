//! The outbox.

use balde_monitor::alert::SinkClass;
use balde_monitor::history::Backlog;
use balde_monitor::severity::Severity::{Critical, Warning};

use crate::fixture::{commit_events, raised, reminder, resolved, routed, to_hook};
use crate::test_database::TestDatabase;

pub(crate) async fn a_resolution_never_overtakes_its_alert(database: TestDatabase) {
    let history = database.open().await;
    let events = [
        raised(0, "level-0", Warning, 1),
        raised(1, "forecast-1", Warning, 2),
        resolved(2, "level-0", Warning, 3),
        raised(3, "level-3", Warning, 4),
    ];
    commit_events(&history, events.iter().cloned().map(to_hook).collect()).await;
    let due = async |now_us| {
        let messages = history.due_messages("hook", now_us, 10).await.unwrap();
        let numbers = messages
            .iter()
            .map(|message| (message.event.at_us, message.id));
        numbers.collect::<Vec<_>>()
    };
    let first = due(10).await;
    assert_eq!(
        first.iter().map(|(at_us, _)| *at_us).collect::<Vec<_>>(),
        [1, 2, 4]
    );
    assert!(first.is_sorted_by_key(|(_, id)| *id));
    // The alert is tried and fails: neither it nor its resolution is due, and the others are.
    history.mark_failed(first[0].1, 100, "away").await.unwrap();
    let rest = due(10).await;
    assert_eq!(
        rest.iter().map(|(at_us, _)| *at_us).collect::<Vec<_>>(),
        [2, 4]
    );
    assert_eq!(due(100).await.len(), 3);
    // It arrives, and only then is the resolution offered.
    history.mark_delivered(first[0].1, 101).await.unwrap();
    let after = due(101).await;
    assert_eq!(
        after.iter().map(|(at_us, _)| *at_us).collect::<Vec<_>>(),
        [2, 3, 4]
    );
    // As few as somebody can carry, the oldest of them.
    assert_eq!(
        history.due_messages("hook", 101, 1).await.unwrap()[0]
            .event
            .at_us,
        2
    );
}

pub(crate) async fn a_dead_sink_delays_no_other(database: TestDatabase) {
    let history = database.open().await;
    let sinks = [("chat", SinkClass::Chat), ("pager", SinkClass::Page)];
    let classes = [SinkClass::Chat, SinkClass::Page];
    let raise = routed(raised(0, "level-0", Critical, 1), &classes, &sinks);
    let resolve = routed(resolved(1, "level-0", Critical, 2), &classes, &sinks);
    commit_events(&history, vec![raise, resolve]).await;
    for moment in 1..=2 {
        let messages = history.due_messages("pager", 10, 10).await.unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].event.at_us, moment);
        history.mark_delivered(messages[0].id, 10).await.unwrap();
    }
    assert!(
        history
            .due_messages("pager", 10, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let waiting = history.due_messages("chat", 10, 10).await.unwrap();
    history
        .mark_failed(waiting[0].id, 20, "no route to host")
        .await
        .unwrap();
    let expected = Backlog {
        sink: "chat".to_owned(),
        waiting: 2,
        oldest_us: Some(1),
        last_error: Some("no route to host".to_owned()),
    };
    assert_eq!(history.backlog().await.unwrap(), [expected]);
}

pub(crate) async fn a_message_scheduled_by_a_clock_that_was_ahead_is_due(database: TestDatabase) {
    const HOUR_US: u64 = 3_600_000_000;
    let history = database.open().await;
    let event = raised(0, "level-0", Critical, 50);
    commit_events(&history, vec![to_hook(event)]).await;
    let message = history
        .due_messages("hook", 100, 10)
        .await
        .unwrap()
        .remove(0);
    // An hour is what a receiver may ask for; a day is no wait that anybody meant.
    for (next_us, due) in [(100 + HOUR_US, 0), (100 + 24 * HOUR_US, 1)] {
        history
            .mark_failed(message.id, next_us, "503")
            .await
            .unwrap();
        assert_eq!(
            history.due_messages("hook", 100, 10).await.unwrap().len(),
            due
        );
    }
}

pub(crate) async fn a_failed_message_is_due_at_its_next_attempt(database: TestDatabase) {
    let history = database.open().await;
    assert_eq!(history.next_due_us("hook").await.unwrap(), None);
    let events = [
        raised(0, "level-0", Warning, 50),
        reminder(1, "level-0", Warning, 60),
    ];
    commit_events(&history, events.into_iter().map(to_hook).collect()).await;
    // What was never tried is due, whatever the clock says now.
    assert!(history.next_due_us("hook").await.unwrap().unwrap() <= 50);
    let message = history.due_messages("hook", 0, 10).await.unwrap().remove(0);
    for attempt in 1..=3 {
        let next_us = 100 * u64::from(attempt);
        history
            .mark_failed(message.id, next_us, "503")
            .await
            .unwrap();
        assert_eq!(history.next_due_us("hook").await.unwrap(), Some(next_us));
        assert!(
            history
                .due_messages("hook", next_us - 1, 10)
                .await
                .unwrap()
                .is_empty()
        );
        let due = history.due_messages("hook", next_us, 10).await.unwrap();
        assert_eq!(
            (due.len(), due[0].id, due[0].attempts),
            (1, message.id, attempt)
        );
    }
    history.mark_delivered(message.id, 400).await.unwrap();
    // Twice is as good as once, and no failure takes it back.
    history.mark_delivered(message.id, 500).await.unwrap();
    history
        .mark_failed(message.id, 600, "too late")
        .await
        .unwrap();
    let left = history.due_messages("hook", 1_000, 10).await.unwrap();
    assert_eq!((left.len(), left[0].event.at_us), (1, 60));
    let backlog = history.backlog().await.unwrap().remove(0);
    assert_eq!((backlog.waiting, backlog.last_error), (1, None));
    history.mark_delivered(left[0].id, 400).await.unwrap();
    assert!(history.backlog().await.unwrap().is_empty());
    assert_eq!(history.next_due_us("hook").await.unwrap(), None);
    // A message that never was.
    history.mark_delivered(987_654, 1).await.unwrap();
}

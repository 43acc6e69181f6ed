//! When a message is tried again, by the clock that the test moves.

use std::time::Duration;

use balde_monitor::delivery::{DeliverySettings, Dispatcher};
use balde_monitor::history::History;

use crate::log::Lines;
use crate::messages::{SECOND_US, TEN_US, commit_events, episode, history, keys};
use crate::receiver::{Answer, Receiver, Request};
use crate::stories::{dispatcher, webhook};

const WITHIN: Duration = Duration::from_secs(60);

async fn pass(dispatcher: &Dispatcher, now_us: u64) -> (u64, u64) {
    let round = dispatcher
        .deliver_once(now_us, WITHIN)
        .await
        .expect("a database");
    (round.delivered, round.failed)
}

async fn next_us(history: &History) -> Option<u64> {
    history.next_due_us("hook").await.expect("a database")
}

#[tokio::test]
async fn a_retry_after_applies_to_all_messages_of_the_sink() {
    for line in [
        "retry-after: 90\r\n",
        "retry-after: Sun, 15 Nov 2026 10:01:30 GMT\r\n",
    ] {
        for status in [429, 503] {
            let busy = Answer::Status(status, line.to_owned(), String::new());
            let receiver = Receiver::start(move |_| busy.clone()).await;
            let (_folder, history) = history().await;
            let settings = DeliverySettings::default().concurrent(1);
            let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
            commit_events(&history, &episode("A"), &["hook"]).await;
            commit_events(&history, &episode("B"), &["hook"]).await;
            assert_eq!(pass(&dispatcher, TEN_US).await, (0, 1));
            receiver.plan(|_| Answer::Accept);
            assert_eq!(pass(&dispatcher, TEN_US + 90 * SECOND_US - 1).await, (0, 0));
            assert_eq!(receiver.requests().len(), 1, "not even the other episode");
            assert_eq!(pass(&dispatcher, TEN_US + 90 * SECOND_US).await, (6, 0));
            let found = receiver.accepted_keys();
            assert_eq!(found, [keys(&episode("A")), keys(&episode("B"))].concat());
        }
    }
}

#[tokio::test]
async fn an_unavailable_sink_is_retried_with_growing_delays_without_end() {
    let receiver = Receiver::start(|_| Answer::Close).await;
    let (_folder, history) = history().await;
    let settings = DeliverySettings::default();
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episode("A"), &["hook"]).await;
    let mut now_us = TEN_US;
    for attempt in 0..40 {
        assert_eq!(pass(&dispatcher, now_us).await, (0, 1));
        let due_us = next_us(&history).await.expect("it is not given up");
        let longest_us = (SECOND_US << attempt.min(20)).min(300 * SECOND_US);
        let wait_us = due_us - now_us;
        assert!(
            (longest_us / 2..=longest_us).contains(&wait_us),
            "{wait_us} µs after attempt {attempt}"
        );
        assert_eq!(pass(&dispatcher, due_us - 1).await, (0, 0));
        now_us = due_us;
    }
    assert_eq!(receiver.requests().len(), 40);
    receiver.plan(|_| Answer::Accept);
    assert_eq!(pass(&dispatcher, now_us).await, (3, 0));
    assert_eq!(receiver.accepted_keys(), keys(&episode("A")));
}

#[tokio::test]
async fn a_rejected_message_is_logged_as_an_error_and_blocks_only_its_episode() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.subscriber());
    let is_bad = |key: &str| key.contains("/BAD/");
    let picky = move |request: &Request| {
        if is_bad(request.key()) {
            Answer::Status(400, String::new(), "invalid_payload".to_owned())
        } else {
            Answer::Accept
        }
    };
    let receiver = Receiver::start(picky).await;
    let (_folder, history) = history().await;
    let settings = DeliverySettings::default();
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episode("BAD"), &["hook"]).await;
    commit_events(&history, &episode("GOOD"), &["hook"]).await;
    assert_eq!(pass(&dispatcher, TEN_US).await, (3, 1));
    assert_eq!(receiver.accepted_keys(), keys(&episode("GOOD")));
    let (_, counters) = dispatcher.counters().next().unwrap();
    assert_eq!(
        (
            counters.delivered(),
            counters.failed(),
            counters.rejected(),
            counters.waiting()
        ),
        (3, 1, 1, 3)
    );
    let text = lines.text();
    assert!(text.contains(r#""level":"ERROR""#), "{text}");
    assert!(
        text.contains(r#""event_type":"delivery_rejected""#),
        "{text}"
    );
    assert!(text.contains("invalid_payload"), "{text}");

    let due_us = next_us(&history).await;
    assert_eq!(due_us, Some(TEN_US + 300 * SECOND_US));
    assert_eq!(pass(&dispatcher, TEN_US + 300 * SECOND_US).await, (0, 1));
    let backlog = history.backlog().await.unwrap();
    assert_eq!(backlog[0].waiting, 3);
    let error = "the receiver responded with status 400: invalid_payload";
    assert_eq!(backlog[0].last_error.as_deref(), Some(error));

    // Somebody has looked.
    receiver.plan(|_| Answer::Accept);
    assert_eq!(pass(&dispatcher, TEN_US + 600 * SECOND_US).await, (3, 0));
}

/// Messages of a sink that was down wait for their next attempt, here for an hour. The first delivery
/// that succeeds makes all of them due.
#[tokio::test]
async fn a_sink_that_is_back_gets_its_messages_at_once() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let receiver = Receiver::start(|_| Answer::Close).await;
    let (_folder, history) = history().await;
    let backoff = balde_monitor::delivery::Backoff::new(HOUR, HOUR).unwrap();
    let settings = DeliverySettings::default().backoff(backoff);
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    for name in ["A", "B"] {
        commit_events(&history, &episode(name), &["hook"]).await;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = dispatcher.run(async { stopped.await.unwrap_or_default() });
    let story = async {
        receiver.wait_for(|requests| requests.len() == 2).await;
        receiver.plan(|_| Answer::Accept);
        commit_events(&history, &episode("C"), &["hook"]).await;
        dispatcher.wake();
        receiver.wait_for(|requests| requests.len() == 2 + 9).await;
        stop.send(()).unwrap();
    };
    tokio::join!(running, story);
    let mut found = receiver.accepted_keys();
    found.sort();
    let mut expected = [
        keys(&episode("A")),
        keys(&episode("B")),
        keys(&episode("C")),
    ]
    .concat();
    expected.sort();
    assert_eq!(found, expected);
}

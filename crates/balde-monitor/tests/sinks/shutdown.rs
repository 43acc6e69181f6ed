//! The end of a process, in the middle of its work.

use std::time::Duration;

use balde_monitor::delivery::DeliverySettings;
use tokio::sync::oneshot;

use crate::messages::{TEN_US, commit_events, episode, history, keys};
use crate::receiver::{Answer, Receiver};
use crate::stories::{dispatcher, impatient, webhook};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_shutdown_finishes_what_is_on_its_way_and_begins_nothing() {
    let receiver = Receiver::start(|_| Answer::Hang).await;
    let (_folder, history) = history().await;
    let settings = impatient().concurrent(1).shutdown_timeout(WITHIN);
    let dispatcher_now = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episode("A"), &["hook"]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = dispatcher_now.run(async {
        stopped.await.unwrap_or_default();
        // The worker sees the stop before it sees the answer: it waits for both.
        receiver.release();
    });
    let stopping = async {
        receiver.wait_for(|requests| requests.len() == 1).await;
        stop.send(()).unwrap();
    };
    tokio::join!(running, stopping);
    let sent = receiver.requests().len();
    let waiting = history
        .backlog()
        .await
        .unwrap()
        .first()
        .map_or(0, |one| one.waiting);
    assert_eq!(
        sent as u64 + waiting,
        3,
        "what was sent is known to have arrived"
    );
    assert!(waiting >= 1, "the rest was not begun");

    // The next process goes on where this one ended.
    let dispatcher_then = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    dispatcher_then
        .deliver_once(TEN_US, WITHIN)
        .await
        .expect("a database");
    assert_eq!(receiver.accepted_keys(), keys(&episode("A")));
    assert_eq!(receiver.requests().len(), 3, "each once");
}

#[tokio::test]
async fn a_shutdown_that_times_out_leaves_the_message_in_the_outbox() {
    let receiver = Receiver::start(|_| Answer::Hang).await;
    let (_folder, history) = history().await;
    let settings = DeliverySettings::default().shutdown_timeout(Duration::from_millis(1));
    let dispatcher = dispatcher(&history, &settings, vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episode("A"), &["hook"]).await;
    let shutdown = receiver.wait_for(|requests| requests.len() == 1);
    dispatcher.run(shutdown).await;
    assert_eq!(history.backlog().await.unwrap()[0].waiting, 3);

    receiver.release();
    dispatcher
        .deliver_once(TEN_US, WITHIN)
        .await
        .expect("a database");
    assert_eq!(history.backlog().await.unwrap(), []);
    assert_eq!(receiver.accepted_keys(), keys(&episode("A")));
}

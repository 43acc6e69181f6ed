//! What is left when the monitor comes back.

use std::slice;

use balde_monitor::history::{EventFilter, HistoryError};
use balde_monitor::severity::Severity;

use crate::fixture::{PARTICIPANT, commit_events, poll, raised, to_hook};
use crate::test_database::TestDatabase;

pub(crate) async fn everything_is_there_after_a_restart(database: TestDatabase) {
    let history = database.open().await;
    let answer = poll(1_000, &[("A", 1)]);
    history.store(&answer).await.unwrap();
    let event = raised(0, "level-0", Severity::Warning, 1);
    commit_events(&history, vec![to_hook(event.clone())]).await;
    let state = history.participant_state(PARTICIPANT, 9).await.unwrap();
    // Dropped without closing, as in a crash.
    drop(history);
    let history = reopened(&database).await;
    assert_eq!(
        history.newest_poll(PARTICIPANT).await.unwrap(),
        Some(answer)
    );
    assert_eq!(
        history.participant_state(PARTICIPANT, 99).await.unwrap(),
        state
    );
    assert_eq!(
        history.events(&EventFilter::default(), 10).await.unwrap(),
        slice::from_ref(&event)
    );
    assert_eq!(
        history.due_messages("hook", 9, 10).await.unwrap()[0].event,
        event
    );
}

/// Connections of a handle that was dropped end in the background, and the file is owned till then.
async fn reopened(database: &TestDatabase) -> balde_monitor::history::History {
    let opening = async {
        loop {
            match balde_monitor::history::History::open(database.address()).await {
                Err(HistoryError::InUse { .. }) => tokio::task::yield_now().await,
                opened => return opened.unwrap(),
            }
        }
    };
    let within = std::time::Duration::from_secs(30);
    tokio::time::timeout(within, opening)
        .await
        .expect("the file is free again")
}

pub(crate) async fn a_closed_history_rejects_calls(database: TestDatabase) {
    let history = database.open().await;
    history.ping().await.unwrap();
    let another = history.clone();
    history.close().await;
    let error = another.store(&poll(1, &[("A", 1)])).await.unwrap_err();
    assert!(matches!(error, HistoryError::Rejected { .. }), "{error}");
    assert!(matches!(
        another.ping().await,
        Err(HistoryError::Rejected { .. })
    ));
    // And the database is free for the next one.
    let history = database.open().await;
    assert!(history.newest_poll(PARTICIPANT).await.unwrap().is_none());
}

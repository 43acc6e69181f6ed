//! What is left when the monitor comes back.

use std::slice;

use balde_monitor::history::{EventFilter, HistoryError};
use balde_monitor::severity::Severity;

use crate::fixture::{PARTICIPANT, poll, raised, tell, to_hook};
use crate::place::Place;

pub(crate) async fn everything_is_there_after_a_restart(place: Place) {
    let history = place.open().await;
    let answer = poll(1_000, &[("A", 1)]);
    history.store(&answer).await.unwrap();
    let event = raised(0, "level-0", Severity::Warning, 1);
    tell(&history, vec![to_hook(event.clone())]).await;
    let machines = history.machines(PARTICIPANT, 9).await.unwrap();
    // Dropped, as in a crash: nobody says goodbye.
    drop(history);
    let history = reopened(&place).await;
    assert_eq!(
        history.newest_poll(PARTICIPANT).await.unwrap(),
        Some(answer)
    );
    assert_eq!(history.machines(PARTICIPANT, 99).await.unwrap(), machines);
    assert_eq!(
        history.events(&EventFilter::default(), 10).await.unwrap(),
        slice::from_ref(&event)
    );
    assert_eq!(history.due("hook", 9, 10).await.unwrap()[0].event, event);
}

/// Connections of a handle that was dropped end in the background, and the file is owned till then.
async fn reopened(place: &Place) -> balde_monitor::history::History {
    let opening = async {
        loop {
            match balde_monitor::history::History::open(place.address()).await {
                Err(HistoryError::Owned { .. }) => tokio::task::yield_now().await,
                opened => return opened.unwrap(),
            }
        }
    };
    let within = std::time::Duration::from_secs(30);
    tokio::time::timeout(within, opening)
        .await
        .expect("the file is free again")
}

pub(crate) async fn a_closed_history_refuses(place: Place) {
    let history = place.open().await;
    history.ping().await.unwrap();
    let another = history.clone();
    history.close().await;
    let error = another.store(&poll(1, &[("A", 1)])).await.unwrap_err();
    assert!(matches!(error, HistoryError::Refused { .. }), "{error}");
    assert!(matches!(
        another.ping().await,
        Err(HistoryError::Refused { .. })
    ));
    // And the database is free for the next one.
    let history = place.open().await;
    assert!(history.newest_poll(PARTICIPANT).await.unwrap().is_none());
}

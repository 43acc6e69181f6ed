//! A database that is unavailable for a while.

use std::path::Path;
use std::time::{Duration, Instant};

use balde_monitor::history::History;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::log::Lines;
use crate::messages::{commit_events, episode, history, keys};
use crate::postgres::Postgres;
use crate::receiver::{Answer, Receiver};
use crate::stories::{dispatcher, impatient, webhook};

const WITHIN: Duration = Duration::from_secs(60);

/// Nothing can be read from the outbox or written to it, until its name is put back.
async fn rename(folder: &TempDir, from: &str, to: &str) {
    let file: &Path = &folder.path().join("monitor.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut connection = options.connect().await.expect("the file");
    let sql = format!("ALTER TABLE {from} RENAME TO {to}");
    let renamed = sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(&mut connection)
        .await;
    renamed.expect("another name");
    connection.close().await.expect("the file is closed");
}

/// Looks again and again, with a deadline that only a fault reaches.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < WITHIN, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A message is in flight when the database becomes unavailable: it is delivered, but cannot be
/// marked.
async fn loses_the_database(
    history: &History,
    go: impl AsyncFnOnce(),
    come_back: impl AsyncFnOnce(),
) {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.subscriber());
    let receiver = Receiver::start(|_| Answer::Hang).await;
    let dispatcher = dispatcher(history, &impatient(), vec![("hook", webhook(&receiver))]);
    commit_events(history, &episode("A"), &["hook"]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = dispatcher.run(async { stopped.await.unwrap_or_default() });
    let story = async {
        receiver.wait_for(|requests| requests.len() == 1).await;
        go().await;
        receiver.release();
        until(async || lines.text().contains("outbox_unavailable")).await;
        assert_eq!(receiver.requests().len(), 1, "what is due is not known");
        dispatcher.wake();
        come_back().await;
        until(async || {
            history
                .backlog()
                .await
                .is_ok_and(|backlog| backlog.is_empty())
        })
        .await;
        stop.send(()).unwrap();
    };
    tokio::join!(running, story);
    assert_eq!(receiver.accepted_keys(), keys(&episode("A")));
    assert_eq!(receiver.requests().len(), 3, "each once");
}

#[tokio::test]
async fn messages_are_delivered_once_while_a_file_is_unavailable() {
    let (folder, history) = history().await;
    let go = async || rename(&folder, "outbox", "elsewhere").await;
    let come_back = async || rename(&folder, "elsewhere", "outbox").await;
    loses_the_database(&history, go, come_back).await;
}

#[tokio::test]
async fn messages_are_delivered_once_while_the_server_is_stopped() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let history = History::open(&server.database()).await.expect("a history");
    loses_the_database(&history, async || server.stop(), async || server.restart()).await;
}

#[tokio::test]
async fn a_pass_without_a_database_says_so() {
    let receiver = Receiver::start(|_| Answer::Accept).await;
    let (folder, history) = history().await;
    let dispatcher = dispatcher(&history, &impatient(), vec![("hook", webhook(&receiver))]);
    commit_events(&history, &episode("A"), &["hook"]).await;
    rename(&folder, "outbox", "elsewhere").await;
    let error = dispatcher
        .deliver_once(u64::MAX / 4, WITHIN)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("outbox"), "{error}");
    assert_eq!(receiver.requests().len(), 0);
    rename(&folder, "elsewhere", "outbox").await;
    let round = dispatcher.deliver_once(u64::MAX / 4, WITHIN).await.unwrap();
    assert_eq!(round.delivered, 3);
}

//! What is so only with a file.

use std::fs;

use balde_monitor::history::{History, HistoryError};
use sqlx::{Connection, Executor, SqliteConnection};

use crate::fixture::{PARTICIPANT, poll};
use crate::test_database::TestDatabase;

#[tokio::test]
async fn a_file_has_one_owner() {
    let database = TestDatabase::sqlite();
    let owner = database.open().await;
    let error = History::open(database.address()).await.unwrap_err();
    assert!(matches!(&error, HistoryError::InUse { path } if path == database.address()));
    assert!(error.to_string().contains("in use by another monitor"));
    // The attempt does not affect the owner.
    assert!(owner.store(&poll(1, &[("A", 1)])).await.unwrap());
    assert!(matches!(
        History::open(database.address()).await,
        Err(HistoryError::InUse { .. })
    ));
    owner.close().await;
    let next = database.open().await;
    assert!(next.newest_poll(PARTICIPANT).await.unwrap().is_some());
    // The process that has opened the file leads.
    let mut leadership = next.lead().await.unwrap().expect("the owner leads");
    assert!(leadership.is_held().await);
}

#[tokio::test]
async fn a_wrong_address_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name).display().to_string();
    let text = |error: HistoryError| error.to_string();
    let error = History::open(&in_folder("missing/monitor.db"))
        .await
        .unwrap_err();
    assert!(matches!(error, HistoryError::Address { .. }));
    assert!(text(error).contains("does not exist; create it"));
    let error = History::open(&in_folder("")).await.unwrap_err();
    assert!(text(error).contains("is a folder, not a file"));
    fs::write(
        folder.path().join("letter.txt"),
        "Dear all,\n".repeat(1_000),
    )
    .unwrap();
    let error = History::open(&in_folder("letter.txt")).await.unwrap_err();
    assert!(matches!(error, HistoryError::Corrupt { .. }), "{error:?}");
    assert!(text(error).contains("not a database"));
    let error = History::open("mysql://root:hunter2@localhost/db")
        .await
        .unwrap_err();
    assert!(matches!(error, HistoryError::Address { .. }));
    assert!(!text(error).contains("hunter2"));
}

#[tokio::test]
async fn readers_do_not_wait_for_writers() {
    let database = TestDatabase::sqlite();
    let history = database.open().await;
    history.store(&poll(1, &[("A", 1)])).await.unwrap();
    // Somebody else's tool holds the file in the middle of a write.
    let mut tool = SqliteConnection::connect(database.address()).await.unwrap();
    tool.execute("BEGIN IMMEDIATE").await.unwrap();
    tool.execute("DELETE FROM latest_sample").await.unwrap();
    assert_eq!(history.latest_samples().await.unwrap().len(), 1);
    tool.execute("ROLLBACK").await.unwrap();
    assert!(history.store(&poll(2, &[("A", 1)])).await.unwrap());
    assert!(format!("{history:?}").contains("monitor.db"));
}

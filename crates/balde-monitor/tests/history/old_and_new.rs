//! Databases of other versions.

use std::path::{Path, PathBuf};

use balde_monitor::history::{EventFilter, History, HistoryError};
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor, PgConnection, SqliteConnection};

use crate::fixture::{NOVEMBER_US, PARTICIPANT, poll};
use crate::test_database::TestDatabase;

/// What the first version left behind: a poll of one policy.
const FIRST_VERSION: [&str; 3] = [
    "INSERT INTO bucket (id, participant, policy) VALUES (7, '12345678', 'A')",
    "INSERT INTO latest_sample (bucket_id, taken_us, position, level, capacity, refill, period_us)
     VALUES (7, 1000, 0, 5, 36000, 1200, 60000000)",
    "INSERT INTO roll_up (bucket_id, width_s, at_us, samples, level_min, level_max, level,
     capacity, first_us, last_us) VALUES (7, 3600, 0, 1, 5, 5, 5, 36000, 1000, 1000)",
];

const FROM_THE_FUTURE: &str = "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 2";

fn migrations(database: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("migrations")
        .join(database)
}

async fn is_brought_up_to_date(database: &TestDatabase) {
    let history = database.open().await;
    assert_eq!(
        history.newest_poll(PARTICIPANT).await.unwrap(),
        Some(poll(1_000, &[("A", 5)]))
    );
    assert!(
        history
            .store(&poll(NOVEMBER_US, &[("A", 6)]))
            .await
            .unwrap()
    );
    assert!(
        history
            .events(&EventFilter::default(), 1)
            .await
            .unwrap()
            .is_empty()
    );
    history.participant_state(PARTICIPANT, 1).await.unwrap();
    history.close().await;
    // Once more, and there is nothing to do.
    database.open().await.close().await;
}

async fn is_refused(database: &TestDatabase) {
    let error = History::open(database.address()).await.unwrap_err();
    assert!(matches!(error, HistoryError::Rejected { .. }) && !error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("newer version of balde") && text.contains("9999"),
        "{text}"
    );
}

#[tokio::test]
async fn an_old_file_is_brought_up_to_date_and_a_newer_one_refused() {
    let database = TestDatabase::sqlite();
    let url = format!("sqlite:{}?mode=rwc", database.address());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let migrator = Migrator::new(migrations("sqlite")).await.unwrap();
    migrator.run_to(1, &mut connection).await.unwrap();
    for sql in FIRST_VERSION {
        connection.execute(sql).await.unwrap();
    }
    is_brought_up_to_date(&database).await;
    connection.execute(FROM_THE_FUTURE).await.unwrap();
    is_refused(&database).await;
}

#[tokio::test]
async fn an_old_database_is_brought_up_to_date_and_a_newer_one_refused() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let mut connection = PgConnection::connect(database.address()).await.unwrap();
    let migrator = Migrator::new(migrations("postgres")).await.unwrap();
    migrator.run_to(1, &mut connection).await.unwrap();
    for sql in FIRST_VERSION {
        connection.execute(sql).await.unwrap();
    }
    is_brought_up_to_date(&database).await;
    connection.execute(FROM_THE_FUTURE).await.unwrap();
    is_refused(&database).await;
}

#[tokio::test]
async fn two_monitors_that_start_at_once_make_the_tables_once() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let (one, two, three) = tokio::join!(database.open(), database.open(), database.open());
    for history in [one, two, three] {
        history.ping().await.unwrap();
    }
}

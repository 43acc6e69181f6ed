//! What is so only with a server.

use balde_monitor::history::{History, HistoryError, Retention};
use sqlx::{Connection, Executor, PgConnection, Row};

use crate::fixture::{DAY_US, NOVEMBER_US, PARTICIPANT, poll};
use crate::postgres::Postgres;
use crate::test_database::TestDatabase;

async fn partitions(connection: &mut PgConnection) -> Vec<String> {
    let sql = "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'sample'::regclass ORDER BY 1";
    let rows = connection.fetch_all(sql).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Two monitors on a new database, each with several tasks: whoever comes second finds the partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_partition_is_created_by_many_at_once_without_an_error() {
    const TASKS: u64 = 4;
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let monitors = [database.open().await, database.open().await];
    for month in 0..24 {
        let mut tasks = tokio::task::JoinSet::new();
        for (number, history) in monitors.iter().enumerate() {
            for task in 0..TASKS {
                let history = history.clone();
                let at_us = NOVEMBER_US + month * 31 * DAY_US + number as u64 * TASKS + task;
                tasks.spawn(async move { history.store(&poll(at_us, &[("A", 1)])).await });
            }
        }
        for stored in tasks.join_all().await {
            assert!(stored.unwrap(), "month {month}");
        }
    }
}

#[tokio::test]
async fn partitions_are_made_ahead_on_demand_and_dropped_whole() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let history = database.open().await;
    let mut connection = PgConnection::connect(database.address()).await.unwrap();
    assert_eq!(partitions(&mut connection).await, ["sample_far"]);
    let now_us = NOVEMBER_US + 14 * DAY_US;
    let upkeep = history
        .maintain(now_us, &Retention::default())
        .await
        .unwrap();
    assert_eq!((upkeep.partitions, upkeep.deleted), (4, 0));
    let ahead = [
        "sample_202611",
        "sample_202612",
        "sample_202701",
        "sample_202702",
        "sample_far",
    ];
    assert_eq!(partitions(&mut connection).await, ahead);
    // Nobody maintained anything for a while, or a clock is wrong: no sample is refused.
    for at_us in [
        NOVEMBER_US - 1,
        NOVEMBER_US + 200 * DAY_US,
        NOVEMBER_US - 600 * DAY_US,
    ] {
        assert!(history.store(&poll(at_us, &[("A", 1)])).await.unwrap());
    }
    let made = [
        "sample_202503",
        "sample_202610",
        "sample_202611",
        "sample_202612",
        "sample_202701",
        "sample_202702",
        "sample_202705",
        "sample_far",
    ];
    assert_eq!(partitions(&mut connection).await, made);
    // Of the months that are wholly over, one goes in each round.
    let upkeep = history
        .maintain(now_us, &Retention::default())
        .await
        .unwrap();
    assert!(
        upkeep.has_more && upkeep.deleted >= 1 && upkeep.partitions == 0,
        "{upkeep:?}"
    );
    assert_eq!(partitions(&mut connection).await, made[1..]);
    assert!(
        !history
            .maintain(now_us, &Retention::default())
            .await
            .unwrap()
            .has_more
    );
    // Rows are in the partitions of their months, and not in `sample_far`.
    let row = connection
        .fetch_one("SELECT count(*) FROM sample_202610")
        .await
        .unwrap();
    assert_eq!(row.get::<i64, _>(0), 1);
    // A month that was dropped comes back for a sample that comes very late.
    assert!(
        history
            .store(&poll(NOVEMBER_US - 600 * DAY_US, &[("A", 1)]))
            .await
            .unwrap()
    );
    assert_eq!(partitions(&mut connection).await, made);
}

#[tokio::test]
async fn a_month_is_made_once_by_many_at_once() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let mut storing = tokio::task::JoinSet::new();
    for second in 0..6_u64 {
        let history = database.open().await;
        storing.spawn(async move {
            for month in 0..4 {
                let at_us = NOVEMBER_US + month * 31 * DAY_US + second;
                history.store(&poll(at_us, &[("A", 1)])).await.unwrap();
            }
        });
    }
    storing.join_all().await;
    let history = database.open().await;
    assert_eq!(
        history.recent_samples(PARTICIPANT, 0).await.unwrap()[0].len(),
        24
    );
}

#[tokio::test]
async fn one_leads_and_the_next_takes_over_when_its_session_is_killed() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let (one, two) = (database.open().await, database.open().await);
    let mut leader = one.lead().await.unwrap().expect("nobody else leads");
    assert!(two.lead().await.unwrap().is_none());
    assert!(
        one.lead().await.unwrap().is_none(),
        "not even by the same handle"
    );
    assert!(leader.is_held().await);
    // The backend that holds the lock is gone, as after a failover or an operator's hand.
    let mut operator = PgConnection::connect(database.address()).await.unwrap();
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
         WHERE locktype = 'advisory' AND granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let killed = operator.fetch_one(sql).await.unwrap();
    assert_eq!(killed.get::<i64, _>(0), 1);
    let mut next = takes_over(&two).await;
    assert!(!leader.is_held().await);
    assert!(next.is_held().await);
    assert!(!leader.is_held().await, "what is lost stays lost");
    assert!(one.lead().await.unwrap().is_none());
    // Dropping the leadership releases it.
    drop(next);
    let mut again = takes_over(&one).await;
    assert!(again.is_held().await);
}

/// The server notices a moment later that a session is over.
async fn takes_over(history: &History) -> balde_monitor::history::Leadership {
    let leading = async {
        loop {
            match history.lead().await.unwrap() {
                Some(leadership) => return leadership,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let within = std::time::Duration::from_secs(30);
    tokio::time::timeout(within, leading)
        .await
        .expect("somebody leads")
}

#[tokio::test]
async fn the_history_survives_a_restart_of_the_server() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let history = History::open(&server.database()).await.unwrap();
    let mut leadership = history.lead().await.unwrap().expect("nobody else leads");
    history.store(&poll(1, &[("A", 1)])).await.unwrap();
    server.stop();
    let answer = poll(2, &[("A", 2)]);
    let error = history.store(&answer).await.unwrap_err();
    assert!(
        matches!(error, HistoryError::Unavailable { .. }) && error.is_transient(),
        "{error:?}"
    );
    let error = history.participant_state(PARTICIPANT, 1).await.unwrap_err();
    assert!(
        matches!(error, HistoryError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(!leadership.is_held().await);
    assert!(matches!(
        history.lead().await,
        Err(HistoryError::Unavailable { .. })
    ));
    server.restart();
    // The same handle, without anybody doing anything.
    assert!(history.store(&answer).await.unwrap());
    assert_eq!(
        history.recent_samples(PARTICIPANT, 0).await.unwrap()[0].len(),
        2
    );
    assert!(history.lead().await.unwrap().is_some());
}

#[tokio::test]
async fn errors_about_an_address_do_not_show_its_password() {
    let Some(database) = TestDatabase::postgres() else {
        return;
    };
    let nobody = "postgres://monitor:hunter2@127.0.0.1:1/none";
    let error = History::open(nobody).await.unwrap_err();
    assert!(
        matches!(error, HistoryError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(!format!("{error:?} {error}").contains("hunter2"));
    let missing = database.address().replace("/story_", "/no_story_");
    let error = History::open(&missing).await.unwrap_err();
    assert!(matches!(error, HistoryError::Rejected { .. }), "{error:?}");
    let with_password = database.address().replace("postgres@", "postgres:hunter2@");
    let history = History::open(&with_password).await.unwrap();
    let shown = format!("{history:?}");
    assert!(
        shown.contains("127.0.0.1") && !shown.contains("hunter2"),
        "{shown}"
    );
}

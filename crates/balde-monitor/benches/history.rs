//! How long a year of history takes to draw: 30 policies, a poll every five minutes, 3.15 million
//! samples, in a `SQLite` file and in a `PostgreSQL` of its own.
//!
//! `cargo bench -p balde-monitor --bench history` makes the year, measures, and puts the results
//! into docs/benchmarks.md.

#[path = "../tests/support/postgres.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests, which also stop and restart it"
)]
mod postgres;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use balde_monitor::history::{History, Resolution, Retention};
use balde_monitor::sample::{BucketId, Poll, ReportedLimit, Sample};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};

use balde_bench::{self as report, Table, median};

const PARTICIPANT: &str = "12345678";
const POLICIES: u64 = 30;
const POLLS: u64 = 365 * 24 * 12;
const MINUTE_US: u64 = 60 * 1_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;
/// 1 November 2025, 00:00.
const BEGIN_US: u64 = 1_761_955_200_000_000;
const END_US: u64 = BEGIN_US + POLLS * 5 * MINUTE_US;
const ROUNDS: usize = 15;
const SYNC: &str = "The SQLite file syncs with every commit; this PostgreSQL, which the benchmark \
    starts, does not (`fsync=off`), so its `store a poll` is without the disk.";
/// What a year must draw in.
const YEAR_MAX_MS: f64 = 100.0;

#[tokio::main]
async fn main() {
    let mut table = Table::new(&[
        "what",
        "rows",
        "SQLite ms",
        "× bare",
        "PostgreSQL ms",
        "× bare",
    ]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("monitor.db").display().to_string();
    let (on_sqlite, made_in_sqlite) = measure(&file, DatabaseKind::Sqlite).await;
    let server = postgres::Postgres::start();
    let on_postgres = match &server {
        Some(server) => Some(measure(&server.database(), DatabaseKind::Postgres).await),
        None => None,
    };
    for (position, figure) in on_sqlite.iter().enumerate() {
        let mut cells = vec![figure.what.to_owned(), figure.rows.to_string()];
        cells.extend(figure.cells());
        let other = on_postgres
            .as_ref()
            .map(|(figures, _)| figures[position].cells());
        cells.extend(other.unwrap_or_else(|| ["not installed".to_owned(), String::new()]));
        table.row(&cells);
        eprintln!("{}", table.last_line());
    }
    let mut text = format!(
        "Milliseconds, median of {ROUNDS} rounds, over {} samples: {POLICIES} policies, a poll \
         every five minutes, a year. `× bare`: as many times as long as a bare `SELECT` of as many \
         rows by primary key, on one connection, without making anything of them. A year must \
         draw in {YEAR_MAX_MS} ms.\n\n{table}\n",
        POLICIES * POLLS
    );
    let made = on_postgres.as_ref().map(|(_, made)| made.as_secs());
    let made = made.map_or(String::new(), |s| format!(", in PostgreSQL in {s} s"));
    let _ = writeln!(
        text,
        "{SYNC}\n\nMade in SQLite in {} s{made}.",
        made_in_sqlite.as_secs()
    );
    println!("{text}");
    report::write(
        "history",
        "cargo bench -p balde-monitor --bench history",
        &text,
    );
    let all = on_sqlite
        .iter()
        .chain(on_postgres.iter().flat_map(|(figures, _)| figures));
    for figure in all.filter(|figure| figure.what.starts_with("year")) {
        assert!(
            figure.ms <= YEAR_MAX_MS,
            "{}: {} ms",
            figure.what,
            figure.ms
        );
    }
}

#[derive(Clone, Copy)]
enum DatabaseKind {
    Sqlite,
    Postgres,
}

struct Figure {
    what: &'static str,
    rows: usize,
    ms: f64,
    bare_ms: Option<f64>,
}

impl Figure {
    fn cells(&self) -> [String; 2] {
        let ratio = self
            .bare_ms
            .map(|bare_ms| format!("{:.1}", self.ms / bare_ms));
        [format!("{:.2}", self.ms), ratio.unwrap_or_default()]
    }
}

async fn measure(address: &str, kind: DatabaseKind) -> (Vec<Figure>, Duration) {
    let start = Instant::now();
    fill(address, kind).await;
    let made = start.elapsed();
    eprintln!("made a year in {} s", made.as_secs());
    let history = History::open(address).await.expect("a history");
    let mut bare = Bare::connect(address, kind).await;
    let mut figures = series(&history, &mut bare).await;
    let mut rows = 0;
    let ms = timed(async || rows = history.latest_samples().await.expect("states").len()).await;
    figures.push(Figure {
        what: "states",
        rows,
        ms,
        bare_ms: Some(bare.newest(rows).await),
    });
    let ms = timed(async || {
        let recent = history
            .recent_samples(PARTICIPANT, END_US - 2 * HOUR_US)
            .await
            .expect("samples");
        rows = recent.iter().map(Vec::len).sum();
    });
    let ms = ms.await;
    let bare_ms = bare.recent(END_US - 2 * HOUR_US, rows).await;
    figures.push(Figure {
        what: "look back two hours",
        rows,
        ms,
        bare_ms: Some(bare_ms),
    });
    let mut next_us = END_US;
    let ms = timed(async || {
        assert!(history.store(&poll(next_us)).await.expect("stored"));
        next_us += 5 * MINUTE_US;
    });
    let what = "store a poll";
    let rows = usize::try_from(POLICIES).expect("few");
    figures.push(Figure {
        what,
        rows,
        ms: ms.await,
        bare_ms: None,
    });
    // Nothing is old enough to go, which is what most rounds find.
    let ms = timed(async || {
        let retention = Retention {
            months: 13,
            thin_after_days: 0,
        };
        history.maintain(END_US, &retention).await.expect("upkeep");
    });
    figures.push(Figure {
        what: "upkeep, nothing to do",
        rows: 0,
        ms: ms.await,
        bare_ms: None,
    });
    history.close().await;
    (figures, made)
}

async fn series(history: &History, bare: &mut Bare) -> Vec<Figure> {
    let bucket = BucketId::new(PARTICIPANT, "P13").expect("a bucket");
    let mut figures = Vec::new();
    for (what, span_us, points_max, resolution, table) in [
        (
            "year in days",
            365 * DAY_US,
            1_000,
            Resolution::Day,
            Some(86_400),
        ),
        (
            "year in hours",
            365 * DAY_US,
            10_000,
            Resolution::Hour,
            Some(3_600),
        ),
        (
            "month in hours",
            30 * DAY_US,
            1_000,
            Resolution::Hour,
            Some(3_600),
        ),
        (
            "month in samples",
            30 * DAY_US,
            10_000,
            Resolution::Samples,
            None,
        ),
        ("day in samples", DAY_US, 1_000, Resolution::Samples, None),
    ] {
        let from_us = END_US - span_us;
        let mut rows = 0;
        let ms = timed(async || {
            let series = history.series(&bucket, from_us, END_US, points_max).await;
            let series = series.expect("a series");
            assert_eq!(series.resolution, resolution);
            assert!(series.gaps.is_empty(), "the generator leaves none");
            rows = series.points.len();
        });
        let ms = ms.await;
        let bare_ms = bare.series(table, from_us, rows).await;
        figures.push(Figure {
            what,
            rows,
            ms,
            bare_ms: Some(bare_ms),
        });
    }
    figures
}

async fn timed(mut run: impl AsyncFnMut()) -> f64 {
    run().await;
    let mut ms = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run().await;
        ms.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    median(ms)
}

fn poll(taken_us: u64) -> Poll {
    let limit = ReportedLimit::per_seconds(36_000, 1_200, 60).expect("limit");
    let sample = |policy: u64| {
        let bucket = BucketId::new(PARTICIPANT, format!("P{policy:02}")).expect("a bucket");
        let level = (taken_us / 1_000_000 * (policy + 7) % 36_000).cast_signed();
        let sample = Sample::new(bucket, limit, level, taken_us).expect("a sample");
        let sample = sample.with_category("H").expect("a category");
        sample.answered_at(taken_us).expect("a time")
    };
    Poll::new((0..POLICIES).map(sample).collect()).expect("a poll")
}

/// The same statements that the history sends, without it.
enum Bare {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Bare {
    async fn connect(address: &str, kind: DatabaseKind) -> Self {
        match kind {
            DatabaseKind::Sqlite => {
                Self::Sqlite(SqliteConnection::connect(address).await.expect("a file"))
            }
            DatabaseKind::Postgres => {
                Self::Postgres(PgConnection::connect(address).await.expect("a server"))
            }
        }
    }

    async fn series(&mut self, width_s: Option<u32>, from_us: u64, rows: usize) -> f64 {
        let id = "(SELECT id FROM bucket WHERE policy = 'P13')";
        let sql = match width_s {
            Some(width_s) => format!(
                "SELECT at_us, samples, level_min, level_max, level, capacity FROM roll_up
                 WHERE bucket_id = {id} AND width_s = {width_s} AND at_us >= {from_us}
                 AND at_us < {END_US} ORDER BY at_us"
            ),
            None => format!(
                "SELECT taken_us, level, capacity FROM sample WHERE bucket_id = {id}
                 AND taken_us >= {from_us} AND taken_us < {END_US} ORDER BY taken_us"
            ),
        };
        self.timed(sql, rows).await
    }

    async fn newest(&mut self, rows: usize) -> f64 {
        self.timed("SELECT * FROM latest_sample".to_owned(), rows)
            .await
    }

    async fn recent(&mut self, since_us: u64, rows: usize) -> f64 {
        let select =
            |id| format!("SELECT * FROM sample WHERE bucket_id = {id} AND taken_us >= {since_us}");
        let all: Vec<String> = (1..=POLICIES).map(select).collect();
        self.timed(all.join(" UNION ALL "), rows).await
    }

    async fn timed(&mut self, sql: String, rows: usize) -> f64 {
        timed(async || {
            let sql = AssertSqlSafe(sql.clone());
            let got = match self {
                Self::Sqlite(it) => sqlx::query(sql).fetch_all(it).await.expect("rows").len(),
                Self::Postgres(it) => sqlx::query(sql).fetch_all(it).await.expect("rows").len(),
            };
            assert_eq!(got, rows);
        })
        .await
    }
}

/// A year, made by the database itself and rolled up as `store` would have done it poll by poll.
async fn fill(address: &str, kind: DatabaseKind) {
    let history = History::open(address).await.expect("a history");
    // One poll the usual way makes the buckets and, a month at a time, the partitions.
    for day in (0..366).step_by(28).chain([365]) {
        let at_us = BEGIN_US + day * DAY_US;
        history.store(&poll(at_us)).await.expect("stored");
    }
    history.close().await;
    let polls = match kind {
        DatabaseKind::Sqlite => format!(
            "WITH RECURSIVE poll (n) AS
                 (SELECT 0 UNION ALL SELECT n + 1 FROM poll WHERE n < {POLLS} - 1)"
        ),
        DatabaseKind::Postgres => {
            format!("WITH poll AS (SELECT generate_series(0, {POLLS} - 1)::bigint AS n)")
        }
    };
    let mut statements = vec![
        "DELETE FROM sample".to_owned(),
        "DELETE FROM latest_sample".to_owned(),
        "DELETE FROM roll_up".to_owned(),
        // In the order in which polls come.
        format!(
            "{polls} INSERT INTO sample SELECT b.id, {BEGIN_US} + poll.n * 300000000, b.id - 1,
                 (poll.n * 7919 + b.id * 104729) % 37000 - 1000, 36000, 1200, 60000000, 'H',
                 {BEGIN_US} + poll.n * 300000000
             FROM poll CROSS JOIN bucket b ORDER BY poll.n, b.id"
        ),
        "INSERT INTO latest_sample SELECT s.* FROM sample s
         WHERE s.taken_us = (SELECT max(taken_us) FROM sample WHERE bucket_id = 1)"
            .to_owned(),
    ];
    for width_s in [3_600, 86_400] {
        statements.push(format!(
            "INSERT INTO roll_up
             SELECT s.bucket_id, {width_s}, s.start_us, s.samples, s.level_min, s.level_max,
                 last.level, last.capacity, s.first_us, s.last_us
             FROM (SELECT bucket_id, taken_us / {width_s}000000 * {width_s}000000 AS start_us,
                       count(*) AS samples, min(level) AS level_min, max(level) AS level_max,
                       min(taken_us) AS first_us, max(taken_us) AS last_us
                   FROM sample GROUP BY bucket_id, start_us) s
             JOIN sample last ON last.bucket_id = s.bucket_id AND last.taken_us = s.last_us
             ORDER BY s.start_us, s.bucket_id"
        ));
    }
    statements.push("ANALYZE".to_owned());
    match Bare::connect(address, kind).await {
        Bare::Sqlite(mut connection) => run(&mut connection, statements).await,
        Bare::Postgres(mut connection) => run(&mut connection, statements).await,
    }
}

async fn run<C>(connection: &mut C, statements: Vec<String>)
where
    for<'c> &'c mut C: Executor<'c>,
{
    for sql in statements {
        let done = (&mut *connection).execute(AssertSqlSafe(sql)).await;
        done.expect("a part of the year");
    }
}

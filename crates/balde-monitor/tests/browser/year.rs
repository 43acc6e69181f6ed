//! A year of history, drawn.

use balde_monitor::history::History;
use balde_monitor::sample::{BucketId, Poll, ReportedLimit, Sample};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqliteConnection};

use crate::driver::{Browser, Options};
use crate::live::{Live, NOW_US, PARTICIPANT};

const POLLS: u64 = 365 * 24 * 12;
const BEGIN_US: u64 = NOW_US - POLLS * 300_000_000;

/// Generous: how long it takes is measured and printed, and is no reason to fail on a busy machine.
const DRAWN_WITHIN_MS: i64 = 10_000;

/// A sample every five minutes, higher at night, with a bad day now and then.
pub(crate) async fn seed(file: &str) {
    let history = History::open(file).await.unwrap();
    let limit = ReportedLimit::per_seconds(70, 70, 60).unwrap();
    let bucket = BucketId::new(PARTICIPANT, "KEYS_CHECK").unwrap();
    let sample = Sample::new(bucket, limit, 70, BEGIN_US - 1).unwrap();
    history
        .store(&Poll::new(vec![sample]).unwrap())
        .await
        .unwrap();
    history.close().await;
    let mut connection = SqliteConnection::connect(file).await.unwrap();
    let mut statements = vec![format!(
        "WITH RECURSIVE poll (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM poll WHERE n < {POLLS} - 1)
         INSERT INTO sample SELECT 1, {BEGIN_US} + n * 300000000, 0,
             max(-3, 70 - (n * 7919 % 23) - CASE WHEN n / 12 % 24 BETWEEN 8 AND 19 THEN n * 104729 % 31 ELSE 0 END
             - CASE WHEN n / 288 % 37 = 5 AND n / 12 % 24 BETWEEN 10 AND 15 THEN 50 ELSE 0 END),
             70, 70, 60000000, 'F', {BEGIN_US} + n * 300000000 FROM poll"
    )];
    for width_s in [3_600, 86_400] {
        statements.push(format!(
            "INSERT OR REPLACE INTO roll_up
             SELECT s.bucket_id, {width_s}, s.start_us, s.samples, s.level_min, s.level_max,
                 last.level, last.capacity, s.first_us, s.last_us
             FROM (SELECT bucket_id, taken_us / {width_s}000000 * {width_s}000000 AS start_us,
                       count(*) AS samples, min(level) AS level_min, max(level) AS level_max,
                       min(taken_us) AS first_us, max(taken_us) AS last_us
                   FROM sample GROUP BY bucket_id, start_us) s
             JOIN sample last ON last.bucket_id = s.bucket_id AND last.taken_us = s.last_us"
        ));
    }
    for statement in statements {
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    connection.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_of_a_policy_is_drawn() {
    let options = Options {
        language: "en-US",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("monitor.db");
    seed(&file.display().to_string()).await;
    let live = Live::in_folder(folder, "", "").await;
    browser.prefer("light").await;
    browser
        .open(&live.url("#/policy/12345678/KEYS_CHECK"))
        .await;
    for (range, points_min) in [
        ("range1h", 1),
        ("range24h", 100),
        ("range7d", 160),
        ("range30d", 700),
        ("range1y", 360),
    ] {
        browser
            .wait_until("!!document.querySelector('.ranges button')")
            .await;
        browser.click(&format!("button[data-range={range}]")).await;
        browser
            .wait_until(&format!(
                "document.querySelector('.chart').dataset.range === '{range}'"
            ))
            .await;
        let drawn = browser
            .evaluate("({...document.querySelector('.chart').dataset, canvas: !!document.querySelector('.chart canvas')})")
            .await;
        assert_eq!(drawn["canvas"], true, "{range}: {drawn}");
        let number = |key: &str| drawn[key].as_str().unwrap().parse::<i64>().unwrap();
        println!(
            "{range}: {} points, requested and drawn in {} ms",
            number("points"),
            number("ms")
        );
        assert!(number("points") >= points_min, "{range}: {drawn}");
        assert!(number("ms") < DRAWN_WITHIN_MS, "{range}: {drawn}");
        if range != "range1h" {
            continue;
        }
        // Something was drawn, not only an empty canvas: the level's colour is on it.
        let ink = "(() => { const canvas = document.querySelector('.chart canvas');
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            let ink = 0; for (let i = 3; i < data.length; i += 4) if (data[i]) ink += 1; return ink; })()";
        let ink = browser.evaluate(ink).await;
        assert!(ink.as_i64().unwrap() > 1_000, "{ink}");
    }
    let label = browser
        .evaluate("document.querySelector('.chart').getAttribute('aria-label')")
        .await;
    assert!(
        label
            .as_str()
            .unwrap()
            .starts_with("Level of KEYS_CHECK over 1 year"),
        "{label}"
    );
    assert!(live.now_us() > NOW_US && live.folder.path().exists());
    browser
        .run(
            "document.querySelector('.chart').closest('section').scrollIntoView();",
            &[json!(0)],
        )
        .await;
    browser.screenshot("policy").await;
    assert_eq!(browser.console_errors().await, [""; 0]);
}

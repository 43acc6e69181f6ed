//! The first page as a newcomer sees it, and pictures of every page for scripts/screenshots.sh.

use serde_json::json;

use crate::driver::{Browser, Options};
use crate::live::{BROKEN, HOSTILE, Live};
use crate::{PAGES, year};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_page_has_the_most_urgent_first_and_is_filtered_by_state() {
    let options = Options {
        language: "en-US",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    if Browser::takes_screenshots() {
        let file = folder.path().join("monitor.db");
        year::seed(&file.display().to_string()).await;
    }
    let live = Live::in_folder(folder, "", "").await;
    // The other participants have answers, too, that are in order.
    for (participant, category) in [(HOSTILE, "H"), (BROKEN, "A")] {
        let bucket = |name: &str, level: i64, capacity: u64| {
            json!({"policy": name, "level": level, "capacity": capacity, "refill_tokens": 60,
                "period_us": 60_000_000, "refusals": 0, "refusals_minutes": 5})
        };
        let policies = [
            bucket("ENTRIES_WRITE", 34_100, 36_000),
            bucket("CLAIMS_READ", 4_100, 18_000),
        ];
        live.set(
            participant,
            json!({"category": category, "policies": policies}),
        );
    }
    live.set_levels(&[
        ("KEYS_CHECK", 0),
        ("ENTRIES_UPDATE", 47),
        ("CLAIMS_WRITE", 21_000),
    ]);
    browser.open(&live.url("")).await;
    let states = "[...document.querySelectorAll('.attention li')].map(line => line.className)";
    let expected = "['EXHAUSTED', 'CRITICAL', 'WARNING', 'WARNING']";
    browser
        .wait_until(&format!(
            "JSON.stringify({states}) === JSON.stringify({expected})"
        ))
        .await;
    let count =
        |severity: &str| format!("document.querySelector('.tile.{severity} .count').textContent");
    assert_eq!(browser.evaluate(&count("EXHAUSTED")).await, "1");
    assert_eq!(browser.evaluate(&count("WARNING")).await, "2");
    // A tile shows only the buckets of its state.
    browser.click(".tile.WARNING").await;
    let rows = "[...document.querySelectorAll('section:not([hidden]) tr[data-policy]')].map(row => row.className)";
    assert_eq!(browser.evaluate(rows).await, json!(["WARNING", "WARNING"]));
    browser.click(".tile.WARNING").await;
    if Browser::takes_screenshots() {
        take(&browser, &live).await;
    }
}

/// The file names of the pages' pictures, in the order of `PAGES`.
const NAMES: [&str; 6] = [
    "overview",
    "policy",
    "alerts",
    "incidents",
    "gateway",
    "operations",
];

/// Pictures of every page, as long as it is, in both themes and widths, and the first page as the
/// README shows it.
async fn take(browser: &Browser, live: &Live) {
    browser
        .run("document.querySelector('.intro summary').click();", &[])
        .await;
    for theme in ["light", "dark"] {
        browser.choose("#theme", theme).await;
        browser.resize(1280, 860).await;
        browser
            .wait_until("!!document.querySelector('.attention li')")
            .await;
        browser.screenshot(&format!("overview-{theme}")).await;
        for (name, page) in NAMES.into_iter().zip(PAGES) {
            browser.open(&live.url(page)).await;
            browser
                .wait_until("!!document.querySelector('main .bar, main table, main .events li')")
                .await;
            for width in [1_280, 390] {
                browser.resize(width, 800).await;
                if name == "policy" {
                    browser
                        .wait_until("!!document.querySelector('button[data-range=range1y]')")
                        .await;
                    browser.click("button[data-range=range1y]").await;
                    browser
                        .wait_until("document.querySelector('.chart').dataset.range === 'range1y'")
                        .await;
                }
                let height = browser
                    .evaluate("document.documentElement.scrollHeight")
                    .await;
                let height = u32::try_from(height.as_u64().unwrap()).unwrap();
                browser.resize(width, height.clamp(800, 6_000)).await;
                browser.screenshot(&format!("{name}-{theme}-{width}")).await;
            }
        }
        browser.open(&live.url("#/")).await;
        browser
            .wait_until("!!document.querySelector('.attention li')")
            .await;
    }
}

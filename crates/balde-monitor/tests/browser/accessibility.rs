//! Contrast, labels and roles by axe-core, and narrow screens.

use serde_json::{Value, json};

use crate::PAGES;
use crate::driver::{Browser, Options};
use crate::live::{BROKEN, HOSTILE, Live};

/// axe-core 4, unmodified: <https://github.com/dequelabs/axe-core>, MPL-2.0.
const AXE: &str = include_str!("axe.min.js");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_serious_issue_and_no_sideways_scrolling_in_both_themes_and_languages() {
    let options = Options {
        language: "en-US",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::start().await;
    live.set_levels(&[
        ("KEYS_CHECK", 0),
        ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 4),
        ("ENTRIES_UPDATE", 140),
    ]);
    browser.open(&live.url("")).await;
    browser
        .wait_until("document.querySelectorAll('.attention li').length >= 4")
        .await;
    let mut found = Vec::new();
    for (theme, language) in [("light", "en"), ("dark", "pt-BR")] {
        browser.choose("#theme", theme).await;
        browser.choose("#language", language).await;
        for page in PAGES {
            browser.resize(1280, 800).await;
            browser.open(&live.url(page)).await;
            let is_loaded = "!!document.querySelector('main h1') && !!document.querySelector('main .bar, main table, main .events li')";
            browser.wait_until(is_loaded).await;
            browser
                .run(&format!("if (!window.axe) {{ {AXE} }}"), &[])
                .await;
            let results = browser.run("return axe.run();", &[]).await;
            assert!(
                !results["passes"].as_array().unwrap().is_empty(),
                "axe has run"
            );
            for violation in results["violations"].as_array().unwrap() {
                let impact = violation["impact"].as_str().unwrap_or_default();
                let line = format!("{theme} {page} {impact}: {}", summary(violation));
                println!("{line}");
                if matches!(impact, "serious" | "critical") {
                    found.push(line);
                }
            }
            browser.resize(390, 844).await;
            let is_narrow = "document.documentElement.scrollWidth <= document.documentElement.clientWidth && window.innerWidth === 390";
            let is_narrow = browser.evaluate(is_narrow).await;
            assert_eq!(is_narrow, true, "{theme} {page}: scrolls sideways");
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn summary(violation: &Value) -> String {
    let node = &violation["nodes"][0];
    format!(
        "{} {} {}",
        violation["id"], node["html"], node["failureSummary"]
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_page_in_both_themes_and_widths() {
    let options = Options {
        language: "en-US",
        rebound_host: None,
    };
    let Some(browser) = Browser::start(options).await else {
        return;
    };
    let live = Live::start().await;
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
    browser
        .run("document.querySelector('.intro summary').click();", &[])
        .await;
    for theme in ["light", "dark"] {
        browser.choose("#theme", theme).await;
        browser
            .wait_until("!!document.querySelector('.attention li')")
            .await;
        browser.resize(1280, 860).await;
        browser.screenshot(&format!("overview-{theme}")).await;
        browser.resize(390, 844).await;
        browser.screenshot(&format!("narrow-{theme}")).await;
    }
    // A tile shows only the buckets of its state.
    browser.resize(1280, 860).await;
    browser.click(".tile.WARNING").await;
    let rows = "[...document.querySelectorAll('section:not([hidden]) tr[data-policy]')].map(row => row.className)";
    assert_eq!(browser.evaluate(rows).await, json!(["WARNING", "WARNING"]));
}

//! Contrast, labels and roles by axe-core, and narrow screens.

use serde_json::Value;

use crate::PAGES;
use crate::driver::{Browser, Options};
use crate::live::Live;

/// axe-core 4, unmodified: <https://github.com/dequelabs/axe-core>, MPL-2.0.
const AXE: &str = include_str!("axe.min.js");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_serious_issue_and_no_sideways_scrolling_in_every_theme_and_language() {
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
    for language in ["en", "pt-BR"] {
        browser.choose("#language", language).await;
        for page in PAGES {
            browser.open(&live.url(page)).await;
            for theme in ["light", "dark"] {
                browser.choose("#theme", theme).await;
                let is_loaded = "!!document.querySelector('main h1') && !!document.querySelector('main .bar, main table, main .events li')";
                browser.wait_until(is_loaded).await;
                let case = format!("{language} {theme} {page}");
                found.extend(serious_issues(&browser, &case).await);
                browser.resize(390, 844).await;
                let is_narrow = "document.documentElement.scrollWidth <= document.documentElement.clientWidth && window.innerWidth === 390";
                let is_narrow = browser.evaluate(is_narrow).await;
                assert_eq!(is_narrow, true, "{case}: scrolls sideways");
                browser.resize(1280, 800).await;
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What axe-core finds on the page, of which nothing may be serious or critical.
async fn serious_issues(browser: &Browser, case: &str) -> Vec<String> {
    // The pages are one document, in which it stays.
    if browser.evaluate("!window.axe").await == true {
        browser.run(AXE, &[]).await;
    }
    let results = browser
        .run("return axe.run({ resultTypes: ['violations'] });", &[])
        .await;
    assert!(
        !results["passes"].as_array().unwrap().is_empty(),
        "axe has run"
    );
    let mut serious = Vec::new();
    for violation in results["violations"].as_array().unwrap() {
        let impact = violation["impact"].as_str().unwrap_or_default();
        let line = format!("{case} {impact}: {}", summary(violation));
        println!("{line}");
        if matches!(impact, "serious" | "critical") {
            serious.push(line);
        }
    }
    serious
}

fn summary(violation: &Value) -> String {
    let node = &violation["nodes"][0];
    format!(
        "{} {} {}",
        violation["id"], node["html"], node["failureSummary"]
    )
}

//! Contrast, labels and roles by axe-core, and narrow screens.

use crate::PAGES;
use crate::axe::serious_issues;
use crate::driver::{Browser, Options};
use crate::live::Live;

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

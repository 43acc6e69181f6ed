//! What the pages show and do.

use serde_json::{Value, json};

use crate::PAGES;
use crate::driver::{Browser, Options};
use crate::live::{HOSTILE, Live};

const ENGLISH: Options = Options {
    language: "en-US",
    rebound_host: None,
};

/// Keys as `WebDriver` names them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

const ROW: &str = "[...document.querySelectorAll('tr[data-policy]')].find(row => row.dataset.policy === 'KEYS_CHECK')";

/// The width of the bar of `KEYS_CHECK`, in percent.
async fn width(browser: &Browser) -> f64 {
    let width = format!("parseFloat({ROW}.querySelector('.fill').style.width)");
    browser.evaluate(&width).await.as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_falls_an_alert_is_acknowledged_and_resolved_without_a_reload() {
    let Some(browser) = Browser::start(ENGLISH).await else {
        return;
    };
    let live = Live::start().await;
    browser.open(&live.url("")).await;
    browser.wait_until(&format!("!!({ROW})")).await;
    browser.run("window.notReloaded = true;", &[]).await;
    assert!(width(&browser).await > 99.0);
    // A bucket that was full every time: nobody knows what is consumed.
    let burn = format!("{ROW}.querySelector('td[data-label=\"Burn rate\"]').textContent");
    assert_eq!(browser.evaluate(&burn).await, "unknown");

    live.set_levels(&[("KEYS_CHECK", 21)]);
    browser
        .wait_until(&format!(
            "parseFloat({ROW}.querySelector('.fill').style.width) === 30"
        ))
        .await;
    live.set_levels(&[("KEYS_CHECK", 0)]);
    let alert = "document.querySelector('.attention li[data-policy=\"KEYS_CHECK\"]')";
    browser
        .wait_until(&format!("!!{alert}?.classList.contains('EXHAUSTED')"))
        .await;
    let first = "document.querySelector('.buckets tbody tr').dataset.policy";
    let first_bar = format!("{alert}.querySelector('.bar').innerText.toLowerCase()");
    assert_eq!(browser.evaluate(&first_bar).await, "empty");
    assert_eq!(
        browser
            .evaluate(&format!(
                "{first} === 'KEYS_CHECK' || {first}.startsWith('<img')"
            ))
            .await,
        true,
        "the most urgent bucket is the first"
    );

    browser
        .click(".attention li[data-policy='KEYS_CHECK'] .acknowledge")
        .await;
    // The page asks who it is, once.
    browser
        .wait_until("document.activeElement?.id === 'your-name'")
        .await;
    browser.type_keys(&format!("Ana Silva{ENTER}")).await;
    browser
        .wait_until(&format!(
            "{alert}.innerText.includes('acknowledged by Ana Silva')"
        ))
        .await;

    live.set_levels(&[("KEYS_CHECK", 70)]);
    browser.wait_until(&format!("{alert} === null")).await;
    browser
        .wait_until(&format!("{ROW}.className === 'NORMAL'"))
        .await;
    assert_eq!(browser.evaluate("window.notReloaded").await, true);

    // The timeline has the whole story.
    browser.open(&live.url("#/alerts")).await;
    let timeline = "document.querySelector('ol.events').innerText";
    browser
        .wait_until(&format!(
            "{timeline}.includes('KEYS_CHECK: normal again, 70 of 70 tokens left')"
        ))
        .await;
    let timeline = browser.evaluate(timeline).await;
    let timeline = timeline.as_str().unwrap();
    assert!(
        timeline.contains("KEYS_CHECK: exhausted, 0 of 70 tokens left"),
        "{timeline}"
    );
    assert!(
        timeline.contains("Nov 16, 2026") && timeline.contains("12345678"),
        "{timeline}"
    );
    assert_eq!(browser.console_errors().await, [""; 0]);
}

/// What each page must show once everything was polled.
const EVERY_PAGE: [(&str, &[&str]); 6] = [
    (
        "#/",
        &[
            "Needs attention",
            "a note",
            "newest answer",
            "full again in 60 sec without requests",
            "DEBT 5",
            "Last poll failed",
        ],
    ),
    (
        "#/policy/12345678/KEYS_CHECK",
        &[
            "refill of 70 every 60 sec",
            "Full again in",
            "17 by the gateway",
            "1 year",
            "capacity",
            "refused",
        ],
    ),
    (
        "#/alerts",
        &["KEYS_CHECK: exhausted", "No silences", "Acknowledge"],
    ),
    (
        "#/incidents",
        &["KEYS_CHECK", "opened Nov 16, 2026", "Timeline"],
    ),
    (
        "#/gateway",
        &[
            "Refused in the last 5 minutes",
            "ENTRIES_READ_USER_ANTISCAN\t75\tsingle payers or users",
            "KEYS_CHECK\t17\tthe participant",
            "listed from 20 lookups on",
            "295",
            "1.07",
            "1.2 %",
            "8336797217346ed47b470e3e67b2d7fe",
            "unknown",
        ],
    ),
    (
        "#/operations",
        &[
            "leader: it polls and sends alerts",
            "accepts writes",
            "hook",
            "invalid_response",
            "needs no token",
        ],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_shows_its_parts_without_a_console_error() {
    let Some(browser) = Browser::start(ENGLISH).await else {
        return;
    };
    let live = Live::with("", "a note").await;
    live.set_levels(&[("KEYS_CHECK", 0), ("ENTRIES_UPDATE", 100)]);
    let text = "document.body.innerText";
    browser.open(&live.url("")).await;
    browser
        .wait_until(&format!("{text}.includes('KEYS_CHECK')"))
        .await;
    for (page, parts) in EVERY_PAGE {
        browser.open(&live.url(page)).await;
        for part in parts {
            let part = json!(part).to_string();
            let needs = part.replace("needs no token", "need no token");
            browser
                .wait_until(&format!("{text}.includes({needs})"))
                .await;
        }
    }
    // Silenced from the page, and the silence ended.
    browser.open(&live.url("#/alerts")).await;
    browser
        .wait_until("!!document.querySelector('li[data-policy=\"KEYS_CHECK\"] .silence')")
        .await;
    browser
        .run("localStorage.setItem('balde-name', 'Rui');", &[])
        .await;
    browser.click("li[data-policy='KEYS_CHECK'] .silence").await;
    browser
        .wait_until(&format!(
            "{text}.includes('12345678 KEYS_CHECK: silenced until')"
        ))
        .await;
    browser.click("button.end").await;
    browser
        .wait_until(&format!("{text}.includes('No silences')"))
        .await;
    // The timeline says what changed in a participant's limits.
    let bucket = json!({"policy": "ENTRIES_WRITE", "level": 20, "capacity": 20,
        "refill_tokens": 1, "period_us": 60_000_000});
    live.set(HOSTILE, json!({"category": "G", "policies": [bucket]}));
    for part in ["the category changed from H to G", "ENTRIES_WRITE is new"] {
        browser
            .wait_until(&format!("{text}.includes('{part}')"))
            .await;
    }
    assert_eq!(browser.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn language_theme_and_keyboard() {
    let portuguese = Options {
        language: "pt-BR",
        ..ENGLISH
    };
    let Some(browser) = Browser::start(portuguese).await else {
        return;
    };
    let live = Live::start().await;
    browser.prefer("light").await;
    browser.open(&live.url("")).await;
    let has = |text: &str| format!("document.body.innerText.includes({})", json!(text));
    // The browser's language and the system's theme, without a choice.
    browser.wait_until(&has("Precisa de atenção")).await;
    browser
        .wait_until("document.documentElement.lang === 'pt-BR'")
        .await;
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.evaluate(background).await;
    browser.prefer("dark").await;
    let dark = browser.evaluate(background).await;
    assert_ne!(light, dark);

    browser.choose("#language", "en").await;
    browser.wait_until(&has("Needs attention")).await;
    browser.choose("#theme", "light").await;
    assert_eq!(browser.evaluate(background).await, light);
    // Both choices last.
    for page in PAGES {
        browser.open(&live.url(page)).await;
        browser.wait_until("!!document.querySelector('h1')").await;
        assert_eq!(
            browser.evaluate("document.documentElement.lang").await,
            "en"
        );
        assert_eq!(browser.evaluate(background).await, light, "{page}");
    }
    // A new page, in which nothing has the focus.
    browser.open("about:blank").await;
    browser.open(&live.url("#/")).await;
    browser
        .wait_until("!!document.querySelector('tr[data-policy]')")
        .await;
    // The first stop of the tab key is the link to the content, which moves the focus there.
    browser.type_keys(TAB).await;
    assert_eq!(
        browser.evaluate("document.activeElement.className").await,
        "skip"
    );
    browser.type_keys(ENTER).await;
    assert_eq!(browser.evaluate("document.activeElement.id").await, "main");
    browser.type_keys("/").await;
    assert_eq!(
        browser.evaluate("document.activeElement.id").await,
        "filter"
    );
    browser.type_keys("claims_w").await;
    let rows = "[...document.querySelectorAll('section:not([hidden]) tr[data-policy]')].map(row => row.dataset.policy)";
    assert_eq!(browser.evaluate(rows).await, json!(["CLAIMS_WRITE"]));
    // No text is missing in either language.
    let missing = browser
        .run(
            "return import('/dashboard/texts.js').then(texts => texts.missingTexts());",
            &[],
        )
        .await;
    assert_eq!(missing, Value::Array(Vec::new()));
    assert_eq!(browser.console_errors().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_need_the_token_where_one_is_configured() {
    let Some(browser) = Browser::start(ENGLISH).await else {
        return;
    };
    let live = Live::with("token_env = \"TOKEN\"", "").await;
    live.set_levels(&[("KEYS_CHECK", 0)]);
    browser.open(&live.url("")).await;
    let button = ".attention li[data-policy='KEYS_CHECK'] .acknowledge";
    let shown = format!("!!document.querySelector({})", json!(button));
    let said = |text: &str| {
        format!(
            "document.getElementById('message').textContent.includes({})",
            json!(text)
        )
    };
    browser.wait_until(&shown).await;
    browser.click(button).await;
    browser.wait_until(&said("Enter the token")).await;
    browser
        .run("localStorage.setItem('balde-name', 'Rui');", &[])
        .await;
    for (token, answer) in [
        ("a-wrong-token", "not one of this monitor's"),
        ("a-token-for-tests", "Acknowledged"),
    ] {
        browser.open(&live.url("#/operations")).await;
        browser
            .wait_until("!!document.querySelector('#token')?.offsetParent")
            .await;
        browser
            .run(
                "document.getElementById('token').value = arguments[0];",
                &[json!(token)],
            )
            .await;
        browser.click("form.token button").await;
        browser.open(&live.url("#/")).await;
        browser.wait_until(&shown).await;
        browser.click(button).await;
        browser.wait_until(&said(answer)).await;
    }
}

//! The page "Limits" in a real Chromium.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::axe::serious_issues;
use crate::driver::{Browser, Options};
use crate::running::{Running, STATE_TOKEN};

const FILE: &str = "[limits.users]\nlimit = \"10/day\"\n[limits.exports]\nlimit = \"5/min burst 20\"\n\
                    [state]\naddress = \"127.0.0.1:0\"\ntoken_env = \"STATE\"\n";

const OPTIONS: Options = Options {
    language: "en-US",
    rebound_host: None,
};

/// The key of a caller that wants to be HTML.
const HOSTILE: &str = "<img src=x onerror=document.title=1>";

/// Checks one key again and again until the flag says stop.
async fn ask(service: &Running, is_over: &AtomicBool) {
    let body = json!({"limit": "users", "key": HOSTILE});
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(service.post("/v1/check", &body).await.0, 200);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn give_token(browser: &Browser, token: &str) {
    browser
        .wait_until("document.activeElement?.id === 'token'")
        .await;
    // The last one is the key Enter.
    browser.type_keys(&format!("{token}\u{e007}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_limits_keys_and_protocols_live_to_those_who_have_the_token() {
    let Some(browser) = Browser::start(OPTIONS).await else {
        return;
    };
    let service = Arc::new(Running::start(FILE).await);
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let (service, is_over) = (Arc::clone(&service), Arc::clone(&is_over));
        async move { ask(&service, &is_over).await }
    });
    let url = format!("http://{}/", service.state.unwrap());
    browser.open(&url).await;
    give_token(&browser, "wrong").await;
    browser
        .wait_until("document.body.innerText.includes('This token is wrong')")
        .await;
    give_token(&browser, STATE_TOKEN).await;
    // The refused requests for data are errors on the console.
    browser
        .wait_until("document.querySelector('#connection').textContent === 'live'")
        .await;
    assert_eq!(browser.console_errors().await.len(), 4);
    let count = "Number(document.querySelector('[data-tile=\"refusals / s\"] .count').textContent)";
    browser.wait_until(&format!("{count} > 1")).await;
    let row = "[...document.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))";
    let rows: Vec<Vec<String>> = serde_json::from_value(browser.evaluate(row).await).unwrap();
    let of = |name: &str| rows.iter().find(|row| row[0] == name).unwrap();
    let users = of("users");
    assert_eq!((users[1].as_str(), users[2].as_str()), ("10/day", "memory"));
    assert_eq!(of("exports")[3..6], ["0", "0", "–"]);
    assert_eq!(of("http")[1], "1", "connections");
    let hash = balde::telemetry::process_key_hash(HOSTILE.as_bytes());
    let top = of(&hash[..16]);
    let numbers: Vec<u64> = top[2..]
        .iter()
        .map(|text| text.replace(',', "").parse().unwrap())
        .collect();
    assert_eq!(top[1], "users");
    assert!(numbers[0] > 10 && numbers[0] - numbers[1] == 10, "{top:?}");
    let mut found = Vec::new();
    for theme in ["light", "dark"] {
        browser.prefer(theme).await;
        for width in [1_280, 390] {
            browser.resize(width, 1_500).await;
            let is_narrow =
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
            assert_eq!(
                browser.evaluate(is_narrow).await,
                true,
                "{width}: scrolls sideways"
            );
            found.extend(serious_issues(&browser, &format!("{theme} {width}")).await);
            browser.screenshot(&format!("limits-{theme}-{width}")).await;
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    is_over.store(true, Ordering::Relaxed);
    asking.await.unwrap();
    // It says so when the service is gone, and goes on when it is back.
    Arc::into_inner(service).unwrap().stop().await;
    browser
        .wait_until("document.querySelector('#connection').className === 'connection down'")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_plain_only_if_the_file_says_so_and_are_never_html() {
    let Some(browser) = Browser::start(OPTIONS).await else {
        return;
    };
    let service = Running::start(&format!("{FILE}plain_keys = true\n")).await;
    let body = json!({"limit": "users", "key": HOSTILE});
    assert_eq!(service.post("/v1/check", &body).await.0, 200);
    let block = service
        .admin("/v1/admin/block", &json!({"limit": "users", "key": ""}))
        .await;
    assert_eq!((block.0, &block.1["code"]), (400, &json!("bad_key")));
    let state = format!("http://{}", service.state.unwrap());
    let get = |path: &str, token: &str| {
        let request = service.client.get(format!("{state}{path}"));
        request.bearer_auth(token).send()
    };
    assert_eq!(get("/limits", "wrong").await.unwrap().status(), 401);
    let shown: Value = get("/limits", STATE_TOKEN)
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let expected = json!([{"limit": "users", "key": HOSTILE, "asked": 1, "refused": 0}]);
    assert_eq!(shown["top_keys"], expected);
    assert_eq!(shown["redis"]["state"], "unused");
    let page = get("/", "").await.unwrap();
    assert_eq!(
        (page.status().as_u16(), &page.headers()["x-frame-options"]),
        (200, &"DENY".parse().unwrap())
    );
    assert_eq!(
        get("/console/../Cargo.toml", "").await.unwrap().status(),
        404
    );
    browser.open(&state).await;
    give_token(&browser, STATE_TOKEN).await;
    browser
        .wait_until("document.body.innerText.includes('<img src=x')")
        .await;
    assert_eq!(
        browser.evaluate("document.title").await,
        "Limits · balde serve"
    );
    service.stop().await;
}

//! Hostile texts, and pages of other sites.

use std::net::Ipv4Addr;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::driver::{Browser, Options, client};
use crate::live::{HOSTILE, Live, PAYLOAD};

const OPTIONS: Options = Options {
    language: "en-US",
    rebound_host: Some("evil.example"),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_texts_are_shown_as_texts() {
    let Some(browser) = Browser::start(OPTIONS).await else {
        return;
    };
    let live = Live::with("", PAYLOAD).await;
    browser.open(&live.url("")).await;
    let hostile = json!(PAYLOAD);
    let text = "document.body.innerText";
    browser
        .wait_until("document.querySelectorAll('.attention li.EXHAUSTED').length === 1")
        .await;
    // Acknowledged by somebody with a hostile name.
    let http = client();
    // The stream, which the page follows, may be half a second ahead of the cached states.
    let episode = loop {
        let states = http.get(live.url("api/v1/states")).send().await.unwrap();
        let states: Value = states.json().await.unwrap();
        let participants = states["participants"].as_array().unwrap();
        let state = participants
            .iter()
            .find(|state| state["participant"] == HOSTILE)
            .unwrap();
        match &state["buckets"][0]["episode"] {
            Value::Null => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            episode => break episode.clone(),
        }
    };
    let body = json!({"episode": episode, "by": PAYLOAD});
    let response = http
        .post(live.url("api/v1/acknowledgements"))
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 201);
    browser
        .wait_until(&format!("{text}.includes('acknowledged by ' + {hostile})"))
        .await;
    let policy =
        "#/policy/87654321/".to_owned() + "%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E";
    for (page, shown) in [
        ("#/", PAYLOAD),
        (policy.as_str(), PAYLOAD),
        ("#/alerts", PAYLOAD),
        ("#/incidents", PAYLOAD),
        ("#/gateway", PAYLOAD),
        // As serde quotes it in the error of the participant whose level is no number.
        ("#/operations", "<img src=x onerror="),
        // Names that are nowhere but in the address.
        (
            "#/policy/%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E/x",
            "<img src=x onerror=window.hacked=1>",
        ),
    ] {
        browser.open(&live.url(page)).await;
        browser
            .wait_until(&format!(
                "document.querySelector('main').innerText.includes({})",
                json!(shown)
            ))
            .await;
        let foreign =
            "document.querySelectorAll('main img, main script, .note img, .note script').length";
        assert_eq!(browser.evaluate(foreign).await, 0, "{page}");
        assert_eq!(
            browser.evaluate("window.hacked === undefined").await,
            true,
            "{page}"
        );
    }
    // Even a script that were in the page would not run.
    let script = "const script = document.createElement('script');
        script.textContent = 'window.hacked = 1'; document.body.append(script);
        const image = document.createElement('img');
        image.setAttribute('onerror', 'window.hacked = 1'); image.src = 'data:,'; document.body.append(image);
        return window.hacked === undefined;";
    assert_eq!(browser.run(script, &[]).await, true);
}

/// A page of another site, which tries everything that a page can.
async fn evil_site(target: String) -> u16 {
    let page = format!(
        "<!doctype html><title>evil</title><iframe id=frame src='{target}/'></iframe><script>
        window.results = {{}};
        const silence = JSON.stringify({{ up_to: 'EXHAUSTED', minutes: 60 }});
        const attempt = (name, promise) => promise.then((r) => r.text ? r.text() : r).then(
            (text) => {{ window.results[name] = 'read: ' + text; }}, () => {{ window.results[name] = 'blocked'; }});
        attempt('read', fetch('{target}/api/v1/states'));
        attempt('simple', fetch('{target}/api/v1/silences', {{ method: 'POST', mode: 'no-cors', headers: {{ 'content-type': 'text/plain' }}, body: silence }}));
        attempt('json', fetch('{target}/api/v1/silences', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: silence }}));
        attempt('delete', fetch('{target}/api/v1/silences/x', {{ method: 'DELETE' }}));
        const stream = new EventSource('{target}/api/v1/stream');
        stream.onerror = () => {{ window.results.stream ??= 'blocked'; }};
        stream.addEventListener('states', () => {{ window.results.stream = 'read'; }});
        </script>"
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = Router::new().route("/", get(move || async move { Html(page.clone()) }));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_sites_can_neither_read_write_nor_frame() {
    let Some(browser) = Browser::start(OPTIONS).await else {
        return;
    };
    let live = Live::start().await;
    let own = format!("http://{}", live.address);
    let rebound = format!("http://evil.example:{}", live.address.port());
    // By its address from another site, and under a name of the attacker's that resolves to it, from a
    // page of the same site: what DNS rebinding achieves.
    for target in [own.clone(), rebound.clone()] {
        let port = evil_site(target.clone()).await;
        browser.open(&format!("http://evil.example:{port}/")).await;
        browser
            .wait_until("['read', 'simple', 'json', 'delete', 'stream'].every((name) => window.results[name])")
            .await;
        let results = browser.evaluate("window.results").await;
        for name in ["read", "json", "delete", "stream"] {
            assert_eq!(results[name], "blocked", "{target} {name}: {results}");
        }
        // The browser sends such a request and hides the response, or says that it did. It must
        // have done nothing: the silences below.
        let simple = results["simple"].as_str().unwrap();
        assert!(
            matches!(simple, "blocked" | "read: "),
            "{target}: {results}"
        );
        browser
            .wait_until("!!document.getElementById('frame')")
            .await;
        let framed = "(() => { try { return document.getElementById('frame').contentDocument?.querySelector('nav') != null; } catch { return 'another origin'; } })()";
        assert_ne!(browser.evaluate(framed).await, true, "{target}");
    }
    let http = client();
    let silences: Value = http
        .get(live.url("api/v1/silences"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(silences, json!([]), "no attempt had an effect");
    // A page that was rebound is refused by name, in the browser itself.
    browser.open(&format!("{rebound}/")).await;
    let refused = browser.evaluate("document.body.innerText").await;
    assert!(
        refused
            .as_str()
            .unwrap()
            .contains("does not answer under the name"),
        "{refused}"
    );

    // The headers that forbid frames, for every kind of file.
    for path in [
        "",
        "dashboard/dashboard.js",
        "dashboard/icon.svg",
        "api/v1/states",
    ] {
        let response = http.get(live.url(path)).send().await.unwrap();
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
        assert!(
            header("content-security-policy").contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
    }
}

//! A Chromium of its own for a test, over `WebDriver`. The protocol is JSON over HTTP, and the few
//! commands here also read the console, which general clients do not offer.

use std::env;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest wait for something to appear. Nothing depends on it but how long a failure takes.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The longest that one command may take.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An HTTP client for the tests.
pub(crate) fn client() -> reqwest::Client {
    let ring = rustls::crypto::ring::default_provider();
    let _installed_by_another_test = ring.install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Ends with the test, however that ends.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _either_way = self.0.kill();
        let _either_way = self.0.wait();
    }
}

pub(crate) struct Browser {
    _driver: Driver,
    http: reqwest::Client,
    session: String,
    _profile: TempDir,
}

/// What a browser is started with.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) language: &'static str,
    /// A name that resolves to this machine, as DNS rebinding does it.
    pub(crate) rebound_host: Option<&'static str>,
}

impl Browser {
    /// Starts a Chromium. Nothing, and loudly so, where there is none; a panic where
    /// `BALDE_REQUIRE_SERVICES=1` says there must be one.
    pub(crate) async fn start(options: Options) -> Option<Self> {
        let spawned = Command::new("chromedriver")
            .args(["--port=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match spawned {
            Ok(driver) => Driver(driver),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                missing();
                return None;
            }
            Err(error) => panic!("chromedriver does not start: {error}"),
        };
        let output = BufReader::new(driver.0.stdout.take().expect("piped"));
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            })
            .expect("chromedriver says its port");
        let profile = tempfile::tempdir().expect("a temporary folder");
        let http = client();
        let mut arguments = vec![
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--no-proxy-server".to_owned(),
            format!("--lang={}", options.language),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        if let Some(host) = options.rebound_host {
            arguments.push(format!("--host-resolver-rules=MAP {host} 127.0.0.1"));
        }
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {
                "args": arguments,
                "prefs": {"intl.accept_languages": options.language},
            },
        }}});
        let base = format!("http://127.0.0.1:{port}/session");
        let request = http.post(&base).timeout(ANSWER_MAX).json(&wanted);
        let response = request.send().await.unwrap();
        let response: Value = response.json().await.unwrap();
        let id = response["value"]["sessionId"].as_str();
        let id = id.unwrap_or_else(|| panic!("no browser: {response}"));
        let browser = Self {
            _driver: driver,
            http,
            session: format!("{base}/{id}"),
            _profile: profile,
        };
        browser.resize(1280, 800).await;
        Some(browser)
    }

    async fn command(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/{path}", self.session);
        let request = self.http.post(url).timeout(ANSWER_MAX).json(body);
        let response = request.send().await.unwrap();
        let mut response: Value = response.json().await.unwrap();
        let value = response["value"].take();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    pub(crate) async fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url })).await;
    }

    /// The size of the page itself. A headless window has no frame, but is never narrower than 500
    /// pixels, so the size is emulated.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        }});
        self.command("goog/cdp/execute", &metrics).await;
    }

    /// The theme that the system prefers.
    pub(crate) async fn prefer(&self, theme: &str) {
        let media = json!({"cmd": "Emulation.setEmulatedMedia", "params": {
            "features": [{"name": "prefers-color-scheme", "value": theme}],
        }});
        self.command("goog/cdp/execute", &media).await;
    }

    /// Runs the body of a function in the page and returns its result.
    pub(crate) async fn run(&self, script: &str, arguments: &[Value]) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.command("execute/sync", &body).await
    }

    pub(crate) async fn evaluate(&self, expression: &str) -> Value {
        self.run(&format!("return {expression};"), &[]).await
    }

    /// Waits until an expression is true in the page.
    pub(crate) async fn wait_until(&self, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(expression).await != Value::Bool(true) {
            if begin.elapsed() > WAIT_MAX {
                let text = self.evaluate("document.body.innerText").await;
                panic!("never true: {expression}\nthe page: {text}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Clicks the first element that a selector finds, as a user does: it must be visible.
    pub(crate) async fn click(&self, selector: &str) {
        let find = json!({"using": "css selector", "value": selector});
        // The page may redraw an element between finding and clicking it.
        for _ in 0..50 {
            let element = self.command("element", &find).await;
            let id = element.as_object().and_then(|map| map.values().next());
            let id = id.and_then(Value::as_str).expect("an element's id");
            let url = format!("{}/element/{id}/click", self.session);
            let response = self.http.post(url).json(&json!({})).send().await.unwrap();
            let response: Value = response.json().await.unwrap();
            match response["value"]["error"].as_str() {
                None => return,
                Some("stale element reference") => {}
                Some(_) => panic!("{selector}: {response}"),
            }
        }
        panic!("{selector} is redrawn all the time");
    }

    /// Types keys into whatever has the focus.
    pub(crate) async fn type_keys(&self, keys: &str) {
        let key = |key: char| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        };
        let keys: Vec<Value> = keys.chars().flat_map(key).collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": keys}]});
        self.command("actions", &actions).await;
    }

    /// Chooses an option of a select, as a user does.
    pub(crate) async fn choose(&self, selector: &str, value: &str) {
        let script = "const select = document.querySelector(arguments[0]);
            select.value = arguments[1];
            select.dispatchEvent(new Event('change', { bubbles: true }));";
        self.run(script, &[json!(selector), json!(value)]).await;
    }

    /// The errors on the console since the last call.
    pub(crate) async fn console_errors(&self) -> Vec<String> {
        let entries = self.command("se/log", &json!({"type": "browser"})).await;
        let entries = entries.as_array().cloned().unwrap_or_default();
        let errors = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        errors.map(|entry| entry["message"].to_string()).collect()
    }

    pub(crate) fn takes_screenshots() -> bool {
        env::var_os("BALDE_SCREENSHOTS").is_some()
    }

    /// Writes a screenshot into the folder that `BALDE_SCREENSHOTS` names, if it names one.
    pub(crate) async fn screenshot(&self, name: &str) {
        let Some(folder) = env::var_os("BALDE_SCREENSHOTS") else {
            return;
        };
        let url = format!("{}/screenshot", self.session);
        let response: Value = self
            .http
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let text = response["value"].as_str().expect("a screenshot");
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, from_base64(text)).expect("the folder exists");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver is killed after that. In a thread, because nothing can be
        // awaited here.
        let session = self.session.clone();
        let quit = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let request = async move {
                let request = client().delete(session);
                request.timeout(Duration::from_secs(10)).send().await
            };
            let _gone_either_way = runtime.block_on(request);
        });
        let _either_way = quit.join();
    }
}

fn missing() {
    let what = "chromedriver is not installed";
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes() {
        let Some(digit) = DIGITS.iter().position(|digit| *digit == byte) else {
            continue;
        };
        bits = (bits << 6) | u32::try_from(digit).unwrap_or(0);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).unwrap_or(0));
        }
    }
    bytes
}

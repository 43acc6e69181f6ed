//! The HTTP server: every path, the errors of invalid requests, and who may write.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fake_dict::{Answer, FakeDict};
use balde::ManualClock;
use balde_monitor::http::{Access, App, Role, serve};
use balde_monitor::{Config, Monitor, TimeSource};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PARTICIPANT: &str = "12345678";
const START_US: u64 = 1_767_225_600_000_000;
const MINUTE: Duration = Duration::from_secs(60);

fn buckets(level: i64) -> Answer {
    Answer::Buckets(vec![
        ("<img src=x onerror=alert(1)>", 10, 20, 1),
        ("ENTRIES_WRITE", level, 36_000, 1_200),
    ])
}

struct TestMonitor {
    clock: ManualClock,
    dict: FakeDict,
    monitor: Monitor,
    address: SocketAddr,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl TestMonitor {
    async fn new(access: Access) -> Self {
        let clock = ManualClock::at_us(START_US);
        let dict = FakeDict::start(buckets(36_000)).await;
        let folder = tempfile::tempdir().unwrap();
        let monitor = monitor(&dict, folder.path(), &clock).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::clone(monitor.status());
        let app = App::new(monitor.cycle().clone(), status, access, "a note");
        tokio::spawn(serve(listener, app, std::future::pending()));
        Self {
            clock,
            dict,
            monitor,
            address,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            _folder: folder,
        }
    }

    async fn cycle(&self, level: i64) {
        self.clock.advance(MINUTE);
        self.dict.answer(buckets(level));
        let cycle = self.monitor.cycle();
        let poll = cycle.fetch(PARTICIPANT).await.unwrap();
        cycle.store(poll).await.unwrap();
        cycle.analyse(PARTICIPANT).await.unwrap();
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let answer = self.http.get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn post(&self, body: &Value, token: Option<&str>) -> (u16, Value) {
        let url = format!("http://{}/api/v1/silences", self.address);
        let mut request = self.http.post(url).json(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap())
    }
}

async fn monitor(dict: &FakeDict, folder: &Path, clock: &ManualClock) -> Monitor {
    let text = format!(
        "[history]\naddress = \"monitor.db\"\n\
         [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{}\"\n",
        dict.url()
    );
    let config = Config::parse(&text, "story", folder, |_| None).unwrap();
    Monitor::build(&config, TimeSource::manual(clock, 1))
        .await
        .unwrap()
}

#[tokio::test]
async fn states_history_alerts_incidents_and_metrics_agree() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    for level in [36_000, 20_000, 8_000, 0] {
        monitor.cycle(level).await;
    }
    let states = monitor.json("/api/v1/states").await;
    assert_eq!(states["note"], "a note");
    let participant = &states["participants"][0];
    assert_eq!(participant["participant"], PARTICIPANT);
    assert_eq!(participant["category"], "A");
    assert_eq!(participant["is_stale"], false);
    let bucket = &participant["buckets"][1];
    assert_eq!(bucket["policy"], "ENTRIES_WRITE");
    assert_eq!(bucket["level"], 0);
    assert_eq!(bucket["severity"], "EXHAUSTED");
    assert_eq!(bucket["utilisation_bp"], 10_000);
    assert_eq!(bucket["recovery_us"], 1_800_000_000_u64);
    assert_eq!(bucket["fill_us"], 1_800_000_000_u64);
    assert_eq!(participant["buckets"][0]["recovery_us"], 600_000_000_u64);
    let burn = &bucket["burn_rates"][0];
    assert_eq!(burn["window_us"], 60_000_000);
    assert_eq!(burn["expected_milli_per_minute"], 9_200_000);

    let series = monitor
        .json(&format!(
            "/api/v1/history?participant={PARTICIPANT}&policy=ENTRIES_WRITE"
        ))
        .await;
    let levels: Vec<i64> = series["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["level"].as_i64().unwrap())
        .collect();
    assert_eq!(levels, [36_000, 20_000, 8_000, 0]);
    let alerts = monitor.json("/api/v1/alerts?severity=exhausted").await;
    assert_eq!(alerts[0]["kind"]["type"], "raised");
    assert_eq!(alerts[0]["kind"]["to"], "EXHAUSTED");
    assert_eq!(alerts[0]["recovery_us"], 1_800_000_000_u64);
    let incidents = monitor.json("/api/v1/incidents").await;
    // Every alert is one; that of the forecast may be the newest.
    let mut incidents = incidents.as_array().unwrap().iter();
    let exhausted = incidents.find(|incident| incident["severity"] == "EXHAUSTED");
    assert_eq!(exhausted.unwrap()["closed_us"], Value::Null);

    let (_, metrics) = monitor.get("/metrics").await;
    let labels = format!("{{participant=\"{PARTICIPANT}\",policy=\"ENTRIES_WRITE\"}}");
    for line in [
        format!("dict_rate_limit_available_tokens{labels} 0"),
        format!("dict_rate_limit_capacity{labels} 36000"),
        format!("dict_rate_limit_utilization_pct{labels} 100.0"),
        format!("dict_rate_limit_severity{labels} 3"),
        format!("dict_rate_limit_recovery_seconds{labels} 1800.0"),
    ] {
        assert!(
            metrics.lines().any(|actual| actual == line),
            "{line}\n{metrics}"
        );
    }

    // Stale buckets are left out of the metrics.
    monitor.clock.advance(20 * MINUTE);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let states = monitor.json("/api/v1/states").await;
    assert_eq!(states["participants"][0]["is_stale"], true);
    let (_, metrics) = monitor.get("/metrics").await;
    assert!(!metrics.contains("dict_rate_limit_available_tokens{"));
    assert!(metrics.contains(&format!(
        "balde_monitor_stale{{participant=\"{PARTICIPANT}\"}} 1"
    )));
}

#[tokio::test]
async fn the_page_has_a_content_policy_and_escapes_names() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    monitor.cycle(36_000).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/dashboard.js", "text/javascript; charset=utf-8"),
        ("/dashboard/console.css", "text/css; charset=utf-8"),
    ] {
        let url = format!("http://{}{path}", monitor.address);
        let answer = monitor.http.get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], kind);
        let policy = answer.headers()["content-security-policy"]
            .to_str()
            .unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"));
    }
    let (_, script) = monitor.get("/dashboard/dashboard.js").await;
    assert!(!script.contains("innerHTML"));
    // A policy name that looks like HTML is data.
    let states = monitor.json("/api/v1/states").await;
    let bucket = &states["participants"][0]["buckets"][0];
    assert_eq!(bucket["policy"], "<img src=x onerror=alert(1)>");
}

#[tokio::test]
async fn invalid_requests_get_a_reason() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    for (path, status, expected) in [
        ("/nope", 404, "/api/v1/"),
        ("/api/v1/history", 400, "participant"),
        ("/api/v1/history?participant=1&policy=", 400, "policy"),
        (
            "/api/v1/history?participant=1&policy=A&from_us=9&until_us=3",
            400,
            "exchange",
        ),
        (
            "/api/v1/history?participant=1&policy=A&points=0",
            400,
            "points",
        ),
        (
            "/api/v1/history?participant=1&policy=A&from_us=-1",
            400,
            "from_us",
        ),
        ("/api/v1/alerts?severity=BAD", 400, "NORMAL, WARNING"),
        ("/api/v1/alerts?who=1", 400, "who"),
    ] {
        let (actual, body) = monitor.get(path).await;
        assert_eq!(actual, status, "{path}: {body}");
        assert!(body.contains(expected), "{path}: {body}");
    }
    let nothing = monitor.json("/api/v1/history?participant=1&policy=A").await;
    assert_eq!(nothing["points"], json!([]));
}

#[tokio::test]
async fn silences_are_created_listed_and_ended() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    let body =
        json!({"id": "works", "up_to": "CRITICAL", "minutes": 60, "policy": "ENTRIES_WRITE"});
    assert_eq!(monitor.post(&body, None).await.0, 201);
    for (body, expected) in [
        (json!({"up_to": "CRITICAL"}), "until_us or minutes"),
        (json!({"up_to": "LOUD", "minutes": 1}), "NORMAL, WARNING"),
        (json!({"up_to": "WARNING", "minutes": 100_000}), "30 days"),
        (
            json!({"up_to": "WARNING", "minutes": 1, "id": "a/b"}),
            "an id is",
        ),
        (json!({"up_to": "WARNING", "minutes": 1, "oops": 1}), "oops"),
    ] {
        let (status, problem) = monitor.post(&body, None).await;
        assert_eq!(status, 400, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{detail}");
    }
    monitor.cycle(36_000).await;
    monitor.cycle(1_000).await;
    let alerts = monitor.json("/api/v1/alerts?severity=CRITICAL").await;
    assert_eq!(alerts[0]["silenced_by"], "works");
    assert_eq!(monitor.json("/api/v1/silences").await[0]["id"], "works");
    let url = format!("http://{}/api/v1/silences/works", monitor.address);
    assert_eq!(
        monitor.http.delete(&url).send().await.unwrap().status(),
        204
    );
    assert_eq!(
        monitor.http.delete(&url).send().await.unwrap().status(),
        404
    );
    assert_eq!(monitor.json("/api/v1/silences").await, json!([]));
}

#[tokio::test]
async fn clients_without_write_access_may_read() {
    let body = json!({"up_to": "CRITICAL", "minutes": 60});
    let monitor =
        TestMonitor::new(Access::read_only().with_token(None, Role::Admin, "a long secret")).await;
    for token in [
        None,
        Some(""),
        Some("a long secreT"),
        Some("a long secret too"),
    ] {
        assert_eq!(monitor.post(&body, token).await.0, 403, "{token:?}");
    }
    assert_eq!(monitor.post(&body, Some("a long secret")).await.0, 201);
    let monitor = TestMonitor::new(Access::read_only()).await;
    assert_eq!(monitor.post(&body, Some("a long secret")).await.0, 403);
    assert_eq!(monitor.json("/api/v1/silences").await, json!([]));
    assert_eq!(
        monitor.get("/readyz").await,
        (200, "ok, standby\n".to_owned())
    );
}

#[tokio::test]
async fn foreign_names_and_foreign_pages_are_refused() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    monitor.cycle(36_000).await;
    let url = |path: &str| format!("http://{}{path}", monitor.address);
    for (path, status) in [
        ("/", 421),
        ("/api/v1/states", 421),
        ("/api/v1/silences", 421),
        ("/metrics", 200),
        ("/healthz", 503),
    ] {
        let request = monitor
            .http
            .get(url(path))
            .header("host", "evil.example:9180");
        assert_eq!(request.send().await.unwrap().status(), status, "{path}");
    }
    let silence = json!({ "up_to": "CRITICAL", "minutes": 10 });
    let post = || monitor.http.post(url("/api/v1/silences")).json(&silence);
    let own = format!("http://{}", monitor.address);
    for (origin, status) in [
        (own.as_str(), 201),
        ("http://evil.example", 403),
        ("null", 403),
    ] {
        let answer = post().header("origin", origin).send().await.unwrap();
        assert_eq!(answer.status(), status, "{origin}");
    }
    // A rebound name: Host and Origin agree, and are foreign.
    let rebound = post()
        .header("host", "evil.example")
        .header("origin", "http://evil.example");
    assert_eq!(rebound.send().await.unwrap().status(), 421);
}

/// Sends bytes, closes this half of the connection, and returns everything that comes back.
async fn half_closing(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
    // A reset after the answer is as good as a close: the rest of a request is not read.
    let _closed_or_reset = read.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn raw_requests_of_a_client_that_closes_its_half() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    monitor.cycle(36_000).await;
    let own = monitor.address;
    for (request, status) in [
        (format!("GET /metrics HTTP/1.1\r\nHost: {own}\r\n\r\n"), 200),
        (
            format!("GET /api/v1/states HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            200,
        ),
        // The host of a target comes before that of the header.
        (
            format!("GET http://evil.example/api/v1/states HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            421,
        ),
        (
            format!("GET http://{own}/api/v1/states HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            200,
        ),
        (
            format!("GET /api/v1/states HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n"),
            421,
        ),
        // Other spellings of a path that any name may ask for are other paths.
        (
            "GET //metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            421,
        ),
        (
            "GET /%6detrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            421,
        ),
        (
            "GET /metrics/../api/v1/states HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            421,
        ),
        (
            format!("TRACE /metrics HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            405,
        ),
        (
            format!(
                "POST /api/v1/silences HTTP/1.1\r\nHost: {own}\r\n\
                 Content-Type: application/json\r\nContent-Length: 20000\r\n\r\n{}",
                " ".repeat(20_000)
            ),
            413,
        ),
    ] {
        let answer = half_closing(own, &request).await;
        let found = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(found, status.to_string(), "{request}\n---\n{answer}");
    }
    let many = "X: 1\r\n".repeat(200);
    let answer = half_closing(own, &format!("GET / HTTP/1.1\r\nHost: {own}\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn silences_in_the_past_and_of_unknown_buckets_are_rejected() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    monitor.cycle(36_000).await;
    for (body, expected_status, expected) in [
        (
            json!({ "up_to": "CRITICAL", "from_us": 1, "until_us": 2 }),
            409,
            "in the past",
        ),
        (
            json!({ "up_to": "CRITICAL", "minutes": 0 }),
            409,
            "in the past",
        ),
        (
            json!({ "up_to": "CRITICAL", "minutes": 5, "policy": "ENTRIES_WRIT" }),
            404,
            "did you mean ENTRIES_WRITE?",
        ),
        (
            json!({ "up_to": "CRITICAL", "minutes": 5, "participant": "12345679" }),
            404,
            "did you mean 12345678?",
        ),
    ] {
        let (status, problem) = monitor.post(&body, None).await;
        assert_eq!(status, expected_status, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{detail}");
    }
}

#[tokio::test]
async fn the_name_of_the_scheme_is_case_insensitive() {
    let monitor =
        TestMonitor::new(Access::read_only().with_token(None, Role::Admin, "a token")).await;
    let url = format!("http://{}/api/v1/silences", monitor.address);
    let silence = json!({ "up_to": "CRITICAL", "minutes": 10 });
    for (value, status) in [
        ("bearer a token", 201),
        ("BEARER a token", 201),
        ("bearer a tokeN", 403),
        ("basic a token", 403),
        ("bearer", 403),
    ] {
        let request = monitor.http.post(&url).json(&silence);
        let answer = request.header("authorization", value).send().await.unwrap();
        assert_eq!(answer.status(), status, "{value}");
    }
}

/// Connections that send half a request take all places, and lose them when their time is up. By a
/// paused clock: what is awaited is the timeout, not ten seconds.
#[tokio::test]
async fn half_open_connections_are_closed_and_others_are_served_then() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    tokio::time::pause();
    let mut half_open = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(monitor.address).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: loc")
            .await
            .unwrap();
        half_open.push(stream);
    }
    let mut stream = TcpStream::connect(monitor.address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The first of the others was closed without an answer to a request that it never made.
    let mut rest = Vec::new();
    let _reset_or_closed = half_open[0].read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200"));
}

/// Sixty-four readers of the most expensive list, each of them again and again: the states do not wait
/// until all of them have been served.
#[tokio::test]
async fn readers_of_long_lists_do_not_delay_the_states() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const READERS: usize = 64;
    const LISTS_OF_EACH: usize = 4;
    const STATES: usize = 10;
    let monitor = TestMonitor::new(Access::anyone()).await;
    for _ in 0..12 {
        for level in [0, 36_000, 36_000, 36_000] {
            monitor.cycle(level).await;
        }
    }
    let incidents = monitor.json("/api/v1/incidents?limit=1000").await;
    assert!(incidents.to_string().len() > 5_000, "{incidents}");
    let read = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (http, read) = (monitor.http.clone(), Arc::clone(&read));
            let url = format!("http://{}/api/v1/incidents?limit=1000", monitor.address);
            tokio::spawn(async move {
                for _ in 0..LISTS_OF_EACH {
                    let answer = http.get(&url).send().await.unwrap();
                    assert!(matches!(answer.status().as_u16(), 200 | 503));
                    answer.text().await.unwrap();
                    read.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while read.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let start = std::time::Instant::now();
    let before = read.load(Ordering::Relaxed);
    for _ in 0..STATES {
        assert_eq!(monitor.get("/api/v1/states").await.0, 200);
    }
    let meanwhile = read.load(Ordering::Relaxed) - before;
    println!(
        "{STATES} states in {:?}, and {meanwhile} lists meanwhile",
        start.elapsed()
    );
    assert!(
        read.load(Ordering::Relaxed) < READERS * LISTS_OF_EACH,
        "the states waited for all lists"
    );
    for reader in readers {
        reader.await.unwrap();
    }
}

/// The alerts of a participant that is taken out of the file are resolved, with that reason.
#[tokio::test]
async fn a_participant_that_is_no_longer_configured_has_its_alerts_resolved() {
    use balde_monitor::alert::{EventKind, ResolveReason};
    use balde_monitor::history::{EventFilter, History};
    let clock = ManualClock::at_us(START_US);
    let dict = FakeDict::start(buckets(0)).await;
    let folder = tempfile::tempdir().unwrap();
    let first = monitor(&dict, folder.path(), &clock).await;
    let poll = first.cycle().fetch(PARTICIPANT).await.unwrap();
    first.cycle().store(poll).await.unwrap();
    let findings = first.cycle().analyse(PARTICIPANT).await.unwrap();
    assert!(!findings.events().is_empty());
    first.cycle().components().history.close().await;
    drop(first);

    let text = format!(
        "[history]\naddress = \"monitor.db\"\n[[participant]]\nispb = \"87654321\"\ndict = \"{}\"\n",
        dict.url()
    );
    let config = Config::parse(&text, "story", folder.path(), |_| None).unwrap();
    let second = Monitor::build(&config, TimeSource::manual(&clock, 1))
        .await
        .unwrap();
    let history: History = second.cycle().components().history.clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or_default() };
        second.run(listener, "", stopped).await.unwrap();
    });
    let filter = EventFilter {
        participant: Some(PARTICIPANT.to_owned()),
        ..EventFilter::default()
    };
    let begin = std::time::Instant::now();
    loop {
        let events = history.events(&filter, 100).await.unwrap();
        let is_resolved = |kind: &EventKind| {
            let reason = ResolveReason::NotConfigured;
            matches!(kind, EventKind::Resolved { reason: why, .. } if *why == reason)
        };
        if events.iter().any(|event| is_resolved(&event.kind)) {
            break;
        }
        assert!(begin.elapsed() < MINUTE, "{events:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.send(()).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn with_a_certificate_the_pages_are_served_over_tls_only() {
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    std::fs::write(folder.path().join("own.pem"), &certificate).unwrap();
    std::fs::write(folder.path().join("own.key"), &key).unwrap();
    let dict = FakeDict::start(buckets(36_000)).await;
    let text = |http: &str| {
        format!(
            "[http]\n{http}\n[history]\naddress = \"monitor.db\"\n\
             [[participant]]\nispb = \"{PARTICIPANT}\"\ndict = \"{}\"\n",
            dict.url()
        )
    };
    let parse = |http: &str| Config::parse(&text(http), "tls", folder.path(), |_| None);
    assert!(parse("certificate = \"own.pem\"").is_err());
    assert!(parse("certificate = \"own.key\"\nkey = \"own.key\"").is_err());
    let config = parse("certificate = \"own.pem\"\nkey = \"own.key\"").unwrap();
    let clock = ManualClock::at_us(START_US);
    let monitor = Monitor::build(&config, TimeSource::manual(&clock, 1))
        .await
        .unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(monitor.run(listener, "", async {
        let _stopped_or_dropped = stopped.await;
    }));
    let authority = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .build()
        .unwrap();
    let url = format!("https://{address}/api/v1/states");
    let response = trusting.get(&url).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["x-frame-options"], "DENY");
    let plain = url.replace("https:", "http:");
    assert!(trusting.get(plain).send().await.is_err());
    drop(stop);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_stream_sends_all_states_once_and_then_what_changes() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    monitor.cycle(36_000).await;
    let url = format!("http://{}/api/v1/stream", monitor.address);
    let mut stream = monitor.http.get(url).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut read_until = async |wanted: &str| -> String {
        while !text.contains(wanted) {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        std::mem::take(&mut text)
    };
    let first = read_until("event: status").await;
    assert!(first.contains("event: states"), "{first}");
    assert!(first.contains("\"note\":\"a note\""), "{first}");
    assert!(
        first.contains("ENTRIES_WRITE") && first.contains("<img src=x"),
        "{first}"
    );
    // This monitor leads nothing, so it looks into the database every few seconds.
    monitor.cycle(8_000).await;
    let next = read_until("\"level\":8000").await;
    assert!(
        next.contains("event: changes") && !next.contains("event: states"),
        "{next}"
    );
}

#[tokio::test]
async fn event_streams_do_not_keep_health_checks_out() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const STREAMS: usize = 200;
    let monitor = TestMonitor::new(Access::read_only()).await;
    monitor.cycle(36_000).await;
    let mut refused = 0;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let stream = TcpStream::connect(monitor.address).await;
        let mut stream = stream.unwrap();
        let request = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        refused += usize::from(&head == b"HTTP/1.1 503");
        // From here on nothing is read.
        open.push(stream);
    }
    // Some connections are left for requests that end.
    assert_eq!(STREAMS - refused, 64);
    for _ in 0..20 {
        // Over a new connection each time, as probes do.
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}/healthz", monitor.address);
        let asked = tokio::time::timeout(Duration::from_secs(60), http.get(url).send());
        let answer = asked.await.expect("an answer").unwrap();
        assert!(!answer.text().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn the_published_description_is_served_and_has_every_route() {
    let monitor = TestMonitor::new(Access::anyone()).await;
    let published = include_str!("../../../../docs/monitor-openapi.json");
    let published: Value = serde_json::from_str(published).unwrap();
    assert_eq!(monitor.json("/openapi.json").await, published);
    let source = include_str!("../../src/http/mod.rs");
    let router = source.split("Router::new()").nth(1).unwrap();
    let router = router.split(".fallback(").next().unwrap();
    let mut routes = Vec::new();
    for route in router.split(".route(").skip(1) {
        let (path, handlers) = route.split_once(',').unwrap();
        let path = match path.trim().trim_matches('"') {
            "pager_duty::PATH" => "/api/v1/pagerduty",
            "/" | "/dashboard/{*path}" => continue,
            path => path,
        };
        for method in ["get", "post", "delete"] {
            if handlers.contains(&format!("{method}(")) {
                routes.push(format!("{method} {path}"));
            }
        }
    }
    let mut described = Vec::new();
    for (path, operations) in published["paths"].as_object().unwrap() {
        let methods = operations.as_object().unwrap().keys();
        described.extend(methods.map(|method| format!("{method} {path}")));
    }
    routes.sort_unstable();
    described.sort_unstable();
    assert_eq!(described, routes);
    assert!(routes.len() > 15, "{routes:?}");
}

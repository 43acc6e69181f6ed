//! A service in this process, on free ports.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use balde_service::{Config, Service};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a busy machine may take for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A token with every right.
pub(crate) const ADMIN: &str = "admin-0123456789abcdef";

/// A token that may only check.
pub(crate) const CHECKER: &str = "check-0123456789abcdef";

/// The token of the state endpoint.
pub(crate) const STATE_TOKEN: &str = "state-0123456789abcdef";

/// Tokens for a file.
pub(crate) const TOKENS: &str = r#"
[access]
anonymous = ["check", "settle"]

[[token]]
name = "ops"
token_env = "ADMIN"
rights = ["check", "settle", "admin"]

[[token]]
name = "checker"
token_env = "CHECKER"
rights = ["check"]
"#;

pub(crate) fn variable(name: &str) -> Option<String> {
    let value = match name {
        "ADMIN" => ADMIN,
        "CHECKER" => CHECKER,
        "STATE" => STATE_TOKEN,
        _ => return None,
    };
    Some(value.to_owned())
}

pub(crate) fn config(text: &str) -> Config {
    match Config::parse(text, "service.toml", Path::new(""), variable) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) struct Running {
    pub(crate) service: Service,
    pub(crate) state: Option<SocketAddr>,
    addresses: HashMap<&'static str, SocketAddr>,
    end: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    pub(crate) client: reqwest::Client,
}

impl Running {
    /// A service with JSON and the Redis protocol, beside what the text says.
    pub(crate) async fn start(text: &str) -> Self {
        let listeners = "[http]\naddress = \"127.0.0.1:0\"\n[resp]\naddress = \"127.0.0.1:0\"\n";
        Self::start_only(&format!("{text}\n{TOKENS}\n{listeners}")).await
    }

    /// A service with this file and nothing else.
    pub(crate) async fn start_only(text: &str) -> Self {
        // Of the tests that run at the same time, one installs it.
        let _by_another = rustls::crypto::ring::default_provider().install_default();
        let service = Service::build(&config(text)).expect("a service");
        let bound = service.bind().await.expect("free ports");
        let addresses = bound.addresses().into_iter().collect();
        let state = bound.state_address();
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(bound.run(async {
            let _either_way = ended.await;
        }));
        Self {
            service,
            state,
            addresses,
            end: Some(end),
            task: Some(task),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    pub(crate) fn address(&self, protocol: &str) -> SocketAddr {
        self.addresses[protocol]
    }

    /// Shuts the service down, and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        let task = self.task.take().expect("it runs");
        tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap();
    }

    pub(crate) fn request(&self, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.address("http"));
        self.client.post(url)
    }

    /// Posts a body, and returns status and body of the answer.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.request(path).json(body)).await
    }

    /// Posts as an administrator.
    pub(crate) async fn admin(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.request(path).bearer_auth(ADMIN).json(body)).await
    }

    /// The level of a bucket.
    pub(crate) async fn level(&self, limit: &str, key: &str) -> i64 {
        let body = serde_json::json!({"limit": limit, "key": key});
        let (status, peeked) = self.post("/v1/peek", &body).await;
        assert_eq!(status, 200, "{peeked}");
        peeked["level"].as_i64().unwrap()
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> Option<u64> {
        let text = self.service.metrics().encode();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    }

    pub(crate) async fn resp(&self) -> Resp {
        Resp(TcpStream::connect(self.address("resp")).await.unwrap())
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    let expected = if status < 400 {
        "application/json"
    } else {
        "application/problem+json"
    };
    assert_eq!(kind, expected, "{status}");
    (status, response.json().await.unwrap())
}

/// A connection that speaks the Redis protocol byte by byte.
pub(crate) struct Resp(pub(crate) TcpStream);

impl Resp {
    /// Sends bytes, and reads as many as the expected answer has.
    pub(crate) async fn expect(&mut self, sent: &str, expected: &str) {
        self.0.write_all(sent.as_bytes()).await.unwrap();
        let mut bytes = vec![0; expected.len()];
        let read = tokio::time::timeout(DEADLINE, self.0.read_exact(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            matches!(read, Ok(Ok(_))),
            "after {sent:?}: {text:?}, not {expected:?}"
        );
        assert_eq!(text, expected, "after {sent:?}");
    }

    /// Reads until the connection is closed.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(DEADLINE, self.0.read_to_end(&mut bytes)).await;
        read.expect("the connection is closed in time").ok();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Repeats a question until the answer is yes.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! A gateway for one test, on free ports, and clients for it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use balde::Clock;
use balde_gateway::{Config, Gateway};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The token of the state endpoint.
pub(crate) const TOKEN: &str = "secret-of-the-test";

/// Longer than anything takes on a busy machine; only a broken gateway reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    pub(crate) state: Option<SocketAddr>,
    pub(crate) client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

pub(crate) fn parse(text: &str) -> Config {
    let variable = |name: &str| (name == "TOKEN").then(|| TOKEN.to_owned());
    match Config::parse(text, "gateway.toml", Path::new(""), variable) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// A listener, an upstream and a route to it; `more` follows.
pub(crate) fn simple(upstream: SocketAddr, more: &str) -> String {
    format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"backend\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"backend\"\n{more}"
    )
}

impl Running {
    pub(crate) async fn start(text: &str) -> Self {
        Self::start_with(&parse(text), Clock::precise()).await
    }

    pub(crate) async fn start_with(config: &Config, clock: Clock) -> Self {
        let gateway = Gateway::build_with(config, clock).expect("a valid configuration");
        let bound = gateway.bind().await.expect("free ports");
        let addresses = bound.addresses();
        let state = bound.state_address();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(bound.run(async {
            let _a_dropped_sender_stops_it_too = stopped.await;
        }));
        Self {
            gateway,
            address: addresses[0],
            state,
            client: client(),
            stop: Some(stop),
            task: Some(task),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.client.get(self.url(path)).send().await.unwrap()
    }

    pub(crate) async fn status(&self, path: &str) -> u16 {
        self.get(path).await.status().as_u16()
    }

    pub(crate) async fn states(&self, query: &str) -> serde_json::Value {
        let url = format!("http://{}/balde/states?{query}", self.state.unwrap());
        let response = self
            .client
            .get(url)
            .bearer_auth(TOKEN)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        response.json().await.unwrap()
    }

    pub(crate) fn metrics(&self) -> String {
        self.gateway.metrics().encode()
    }

    /// Shuts down and waits until all requests are answered and settled.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        let task = self.task.take().unwrap();
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap()
}

/// Sends bytes over a new connection, and returns everything that comes back until the other side
/// closes it.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    // A reset after the answer is as good as a close.
    let _ = tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of the first response in a raw answer.
pub(crate) fn status_of(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status.parse().unwrap_or(0)
}

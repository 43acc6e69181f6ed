//! Processes of balde, which end with the test, and requests to them.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest wait for something to happen. Nothing depends on it but how long a failure takes.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Service {
    child: Child,
    /// What follows `http://` in the address that it logged.
    pub(crate) address: String,
    /// The lines of its log so far.
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command, and waits for the line of its log that is so.
pub(crate) fn start(
    folder: &Path,
    arguments: &[&str],
    is_ready: impl Fn(&Value) -> bool,
) -> Service {
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(arguments)
        .current_dir(folder)
        .env("TOKEN", "secret")
        .env("READ_TOKEN", "a-token-that-may-read")
        .env("ANA_TOKEN", "the-token-of-ana-silva")
        .env("ADMIN_TOKEN", "a-token-that-may-do-all")
        .env("ROUTING_KEY", "0123456789abcdef0123456789abcdef")
        .env("WEBHOOK_SECRET", "a-secret-of-a-subscription")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let log = Arc::<Mutex<Vec<String>>>::default();
    let mut service = Service {
        child,
        address: String::new(),
        log: Arc::clone(&log),
    };
    let mut lines = output.lines().map_while(Result::ok);
    for line in lines.by_ref() {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if is_ready(&event) {
            let url = event["url"].as_str().unwrap_or_default();
            let url = url.trim_start_matches("http://").trim_end_matches('/');
            url.clone_into(&mut service.address);
            std::thread::spawn(move || {
                for line in lines {
                    log.lock().unwrap().push(line);
                }
            });
            return service;
        }
    }
    panic!("{arguments:?} ended");
}

/// Starts a monitor with the file `monitor.toml`, and waits for the address of its page.
pub(crate) fn start_monitor(folder: &Path) -> Service {
    let arguments = ["monitor", "-c", "monitor.toml"];
    start(folder, &arguments, |event| event["endpoint"] == "page")
}

pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A client that connects from an address of this machine.
pub(crate) fn client_from(address: &str) -> reqwest::Client {
    let ring = rustls::crypto::ring::default_provider();
    let _installed_by_another_test = ring.install_default();
    let address: IpAddr = address.parse().unwrap();
    let builder = reqwest::Client::builder().no_proxy();
    builder.local_address(address).build().unwrap()
}

/// Asks until something is so.
pub(crate) async fn wait_for<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn get_json(client: &reqwest::Client, url: &str) -> Value {
    let response = client.get(url).send().await.unwrap();
    let status = response.status();
    let body = response.text().await.unwrap();
    assert_eq!(status, 200, "{url}: {body}");
    serde_json::from_str(&body).unwrap()
}

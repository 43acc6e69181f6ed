//! Real proxies in front of a small upstream, with the example files of `deploy/proxies`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use crate::running::{Running, eventually};

/// An upstream that answers everything, and counts.
struct Upstream {
    port: u16,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&served);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    let mut bytes = [0; 4_096];
                    loop {
                        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                            match stream.read(&mut bytes).await {
                                Ok(read) if read > 0 => head.extend_from_slice(&bytes[..read]),
                                _ => return,
                            }
                        }
                        head.clear();
                        counter.fetch_add(1, Ordering::SeqCst);
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, served, task }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A proxy as a process, with its files in a folder of its own.
struct Proxy {
    child: Child,
    folder: TempDir,
    port: u16,
    client: reqwest::Client,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/proxies")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A program of the tests' Python environment, or of the system; `None`, loudly, if there is none.
fn program(name: &str) -> Option<PathBuf> {
    let tools = std::env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut folders = tools
        .map(|tools| tools.join("bin"))
        .into_iter()
        .chain(folders);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()));
    if found.is_none() {
        let is_required = std::env::var("BALDE_REQUIRE_SERVICES").as_deref() == Ok("1");
        assert!(
            !is_required,
            "{name} is missing, and BALDE_REQUIRE_SERVICES=1"
        );
        eprintln!("\n*** SKIPPED: {name} is missing, so this test tested NOTHING ***\n");
    }
    found
}

/// The example service on free ports.
async fn service() -> Running {
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text.replace(":8081\"", ":0\"").replace(":8082\"", ":0\"");
    Running::start_only(&text).await
}

impl Proxy {
    /// Starts a proxy whose files have other ports than the examples.
    async fn start(
        files: &[&str],
        ports: &[(u16, u16)],
        command: impl Fn(&Path) -> Command,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        for file in files {
            let mut text = std::fs::read_to_string(examples().join(file)).unwrap();
            for (example, own) in ports.iter().chain(&[(8_080, port)]) {
                assert!(*own > 0);
                text = text.replace(&format!("127.0.0.1:{example}"), &format!("127.0.0.1:{own}"));
                text = text.replace(
                    &format!("port_value: {example}"),
                    &format!("port_value: {own}"),
                );
            }
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let mut command = command(folder.path());
        let log = std::fs::File::create(folder.path().join("output.log")).unwrap();
        let child = command
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let proxy = Self {
            child,
            folder,
            port,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("the proxy listens", async || {
            let is_up = tokio::net::TcpStream::connect(address).await.is_ok();
            if !is_up {
                proxy.check_alive();
            }
            is_up
        })
        .await;
        proxy
    }

    fn check_alive(&self) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let is_dead = stat.is_ok_and(|stat| stat.contains(") Z "));
        let log = || std::fs::read_to_string(self.folder.path().join("output.log"));
        assert!(
            !is_dead,
            "the proxy has ended: {}",
            log().unwrap_or_default()
        );
    }

    async fn get(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        let mut request = self
            .client
            .get(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    async fn status(&self, path: &str, fields: &[(&str, &str)]) -> u16 {
        self.get(path, fields).await.status().as_u16()
    }
}

fn header(response: &reqwest::Response, name: &str) -> String {
    let value = response
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// Three searches are forwarded, the fourth is refused with its fields, and others are not limited.
async fn limits_searches(proxy: &Proxy, upstream: &Upstream) {
    // Traefik answers 404 until it has read its routes.
    eventually("the proxy forwards", async || {
        proxy.status("/ready", &[]).await == 200
    })
    .await;
    let before = upstream.served();
    // A client cannot choose the address, path or method that it is counted under.
    let forged = [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-original-uri", "/other"),
        ("x-original-method", "POST"),
        ("x-forwarded-uri", "/other"),
        ("x-forwarded-method", "POST"),
    ];
    for index in 0..3 {
        let fields = if index == 1 { &forged[..] } else { &[] };
        let response = proxy.get("/search?q=shoes", fields).await;
        assert_eq!(response.status(), 200, "request {index}");
    }
    let refused = proxy.get("/search?q=shoes", &forged).await;
    assert_eq!(refused.status(), 429);
    let retry_after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=20).contains(&retry_after), "{retry_after}");
    assert_eq!(upstream.served() - before, 3);
    assert_eq!(proxy.status("/other", &[]).await, 200);
    assert_eq!(
        proxy.status("/%73earch", &[]).await,
        429,
        "another spelling of the same path"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_asks_before_it_forwards() {
    let Some(nginx) = program("nginx") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let proxy = Proxy::start(&["nginx.conf"], &ports, |folder| {
        let mut command = Command::new(&nginx);
        let pid = folder.join("nginx.pid");
        command
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"));
        command.arg("-e").arg(folder.join("error.log")).arg("-g");
        let temp = folder.display();
        command.arg(format!(
            "daemon off; master_process off; pid {};",
            pid.display()
        ));
        let _ = temp;
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    let response = proxy.get("/other", &[]).await;
    assert_eq!(response.status(), 200);
    // Without balde the example forwards requests.
    service.stop().await;
    assert_eq!(proxy.status("/search", &[]).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_asks_before_it_forwards() {
    let Some(caddy) = program("caddy") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let proxy = Proxy::start(&["Caddyfile"], &ports, |folder| {
        let mut command = Command::new(&caddy);
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(folder.join("Caddyfile"));
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        502,
        "without balde Caddy refuses"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn traefik_asks_before_it_forwards() {
    let Some(traefik) = program("traefik") else {
        return;
    };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let files = ["traefik.yaml", "traefik-routes.yaml"];
    let proxy = Proxy::start(&files, &ports, |folder| {
        let mut command = Command::new(&traefik);
        command.arg(format!(
            "--configfile={}",
            folder.join("traefik.yaml").display()
        ));
        command
    })
    .await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        500,
        "without balde Traefik refuses"
    );
}

fn envoy(envoy: &Path, folder: &Path, file: &str) -> Command {
    let mut command = Command::new(envoy);
    command.args([
        "--disable-hot-restart",
        "--log-level",
        "warn",
        "--concurrency",
        "1",
        "-c",
    ]);
    command.arg(folder.join(file));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_asks_before_it_forwards() {
    let Some(path) = program("envoy") else { return };
    let (service, upstream) = (service().await, Upstream::start().await);
    let ports = [
        (8_082, service.address("proxy").port()),
        (9_000, upstream.port),
    ];
    let file = "envoy-ext-authz.yaml";
    let proxy = Proxy::start(&[file], &ports, |folder| envoy(&path, folder, file)).await;
    limits_searches(&proxy, &upstream).await;
    service.stop().await;
    assert_eq!(
        proxy.status("/search", &[]).await,
        200,
        "failure_mode_allow is true"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_limits_by_address_and_by_header_through_the_rate_limit_service() {
    let Some(path) = program("envoy") else { return };
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    // The same port for the service that is started again.
    let port = free_port();
    let text = text
        .replace(":8081\"", &format!(":{port}\""))
        .replace(":8082\"", ":0\"");
    let service = Running::start_only(&text).await;
    let upstream = Upstream::start().await;
    let ports = [(8_081, port), (9_000, upstream.port)];
    let file = "envoy-rate-limit.yaml";
    let proxy = Proxy::start(&[file], &ports, |folder| envoy(&path, folder, file)).await;
    let alice = [("x-user", "alice")];
    for remaining in ["2", "1", "0"] {
        let response = proxy.get("/", &alice).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit-remaining"), remaining);
        assert_eq!(header(&response, "x-ratelimit-remaining"), remaining);
    }
    let refused = proxy.get("/", &alice).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "ratelimit-limit"), "3");
    assert_eq!(header(&refused, "x-envoy-ratelimited"), "true");
    let retry_after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=20).contains(&retry_after), "{retry_after}");
    // The refused request took nothing from the address: two of five are left.
    assert_eq!(proxy.status("/", &[]).await, 200);
    assert_eq!(proxy.status("/", &[]).await, 200);
    let refused = proxy.get("/", &[]).await;
    assert_eq!(
        (
            refused.status().as_u16(),
            header(&refused, "ratelimit-limit").as_str()
        ),
        (429, "5")
    );
    assert_eq!(upstream.served(), 5);
    service.stop().await;
    assert_eq!(
        proxy.status("/", &alice).await,
        200,
        "failure_mode_deny is false"
    );
    let service = Running::start_only(&text).await;
    eventually("Envoy asks the new service", async || {
        let response = proxy.get("/", &[("x-user", "bob")]).await;
        !header(&response, "ratelimit-remaining").is_empty()
    })
    .await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_refuses_without_the_service_where_its_file_says_so() {
    let Some(path) = program("envoy") else { return };
    let upstream = Upstream::start().await;
    let port = free_port();
    let file = "envoy-rate-limit.yaml";
    let ports = [(8_081, port), (9_000, upstream.port)];
    let proxy = Proxy::start(&[file], &ports, |folder| {
        let config = folder.join(file);
        let text = std::fs::read_to_string(&config).unwrap();
        let denying = text.replace("failure_mode_deny: false", "failure_mode_deny: true");
        assert_ne!(denying, text);
        std::fs::write(&config, denying).unwrap();
        envoy(&path, folder, file)
    })
    .await;
    assert_eq!(proxy.status("/", &[]).await, 500);
    assert_eq!(upstream.served(), 0);
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text
        .replace(":8081\"", &format!(":{port}\""))
        .replace(":8082\"", ":0\"");
    let service = Running::start_only(&text).await;
    eventually("it recovers", async || proxy.status("/", &[]).await == 200).await;
    service.stop().await;
}

#[tokio::test]
async fn an_address_that_is_not_trusted_gets_no_answer() {
    let text = std::fs::read_to_string(examples().join("service.toml")).unwrap();
    let text = text.replace(":8081\"", ":0\"").replace(":8082\"", ":0\"");
    let text = text.replace("[\"127.0.0.1\"]", "[\"192.0.2.1\"]");
    let service = Running::start_only(&text).await;
    let url = format!("http://{}/ext-authz/search", service.address("proxy"));
    let response = service.client.get(url).send().await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(response.text().await.unwrap().contains("trusted_proxies"));
    service.stop().await;
}

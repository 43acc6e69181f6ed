//! Real proxies as processes in front of a small upstream, with the example files of `deploy/proxies`.
//! Whoever includes this file has a function `eventually` in its root.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use crate::eventually;

/// An upstream that answers everything, and counts.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
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

    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A proxy as a process, with its files in a folder of its own.
pub(crate) struct Proxy {
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

pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/proxies")
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A program of the tests' Python environment, or of the system; `None`, loudly, if there is none.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
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

impl Proxy {
    /// Starts a proxy whose files have other ports than the examples.
    pub(crate) async fn start(
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

    pub(crate) async fn get(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        let mut request = self
            .client
            .get(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub(crate) async fn status(&self, path: &str, fields: &[(&str, &str)]) -> u16 {
        self.get(path, fields).await.status().as_u16()
    }
}

pub(crate) fn header(response: &reqwest::Response, name: &str) -> String {
    let value = response
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

pub(crate) fn envoy(envoy: &Path, folder: &Path, file: &str) -> Command {
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

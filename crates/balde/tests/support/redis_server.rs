//! A real redis-server for a test: its own port, its own folder, gone when dropped. It can be killed,
//! brought back on the same port and frozen, so that a test can be the fault it wants to see.
//!
//! `BALDE_REDIS_SERVER` names another program than `redis-server`, such as that of another version;
//! `scripts/test-redis.sh` runs the suites with three.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(20);
/// Another process may take the port between our finding it free and the server's binding it.
const PORTS_TRIED_MAX: usize = 5;

pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    args: Vec<String>,
    dir: TempDir,
}

impl RedisServer {
    /// A server without persistence. Nothing, and loudly so, where there is no redis-server; a panic
    /// where `BALDE_REQUIRE_SERVICES=1` says there must be one.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with further arguments, such as `["--maxmemory", "1mb"]`. They come last, so they win.
    pub(crate) fn start_with(args: &[&str]) -> Option<Self> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        for _ in 0..PORTS_TRIED_MAX {
            let dir = TempDir::new().expect("a temporary folder");
            let port = free_port();
            let child = match spawn(port, &dir, &args) {
                Ok(child) => child,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing();
                    return None;
                }
                Err(error) => panic!("redis-server does not start: {error}"),
            };
            let mut server = Self {
                child,
                port,
                args: args.clone(),
                dir,
            };
            if server.is_ready() {
                return Some(server);
            }
        }
        panic!("redis-server did not answer on any of {PORTS_TRIED_MAX} ports");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr())
    }

    /// SIGKILL: no goodbye to anybody, and what was not persisted is gone.
    pub(crate) fn kill(&mut self) {
        // An error means that it is dead already, which is what was asked for.
        let _ = self.child.kill();
        self.child.wait().expect("a child to wait for");
    }

    /// Starts again on the same port and folder, after [`kill`](Self::kill) or instead of it.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            self.child = spawn(self.port, &self.dir, &self.args).expect("redis-server");
            if self.is_ready() {
                return;
            }
        }
        panic!("redis-server did not come back on port {}", self.port);
    }

    /// SIGSTOP: connections stay open and are accepted, and nobody answers.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT: what was asked in the meantime is answered now.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .expect("kill");
        assert!(status.success(), "kill {signal}: {status}");
    }

    /// Whether it answers in time; false as soon as the process has ended.
    fn is_ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if pings(self.addr()).unwrap_or(false) {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, dir: &TempDir, args: &[String]) -> io::Result<Child> {
    Command::new(program())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(dir.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn program() -> OsString {
    env::var_os("BALDE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A server that asks for a password or is loading its data is up, too: any line will do but silence
/// and `-LOADING`.
fn pings(addr: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 8];
    let read = stream.read(&mut answer)?;
    Ok(read > 0 && !answer[..read].starts_with(b"-LOADING"))
}

fn missing() {
    let what = format!("{} is not installed", program().display());
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}

//! A real `PostgreSQL` for tests: its own port, its own folder, gone when dropped. It can be stopped
//! and brought back on the same port, so that a test can be the fault it wants to see.

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Another process may take the port between our finding it free and the server's binding it.
const PORTS_TRIED_MAX: usize = 5;
const CONNECTIONS_MAX: u32 = 200;

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Postgres {
    child: Mutex<Child>,
    port: u16,
    dir: TempDir,
    programs: PathBuf,
    user: Option<User>,
}

/// Whom the server runs as where the tests run as root, which `PostgreSQL` refuses to.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// The server that the tests of this process share, for as long as one of them holds it.
    /// Nothing, and loudly so, where `PostgreSQL` is not installed; a panic where
    /// `BALDE_REQUIRE_SERVICES=1` says that it must be.
    pub(crate) fn shared() -> Option<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// A server of the test's own, to do harm to.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            missing();
            return None;
        };
        let dir = TempDir::new().expect("a temporary folder");
        let user = unprivileged(&dir);
        if let Some(User { uid, gid }) = user {
            chown(dir.path(), Some(uid), Some(gid)).expect("a folder to give away");
        }
        let data = dir.path().join("data");
        let mut initdb = command(programs.join("initdb"), user, &dir);
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        ]);
        initdb.args(["--no-locale", "-D"]).arg(&data);
        let made = initdb.output().expect("initdb");
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let port = free_port();
        let mut server = Self {
            child: Mutex::new(spawn(&programs, user, &dir, port)),
            port,
            dir,
            programs,
            user,
        };
        for _ in 0..PORTS_TRIED_MAX {
            if server.is_ready() {
                return Some(server);
            }
            server.port = free_port();
            let child = spawn(&server.programs, user, &server.dir, server.port);
            server.child = Mutex::new(child);
        }
        panic!("postgres did not answer on any port: {}", server.log());
    }

    /// The address of a new, empty database.
    pub(crate) fn database(&self) -> String {
        let name = format!("story_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let mut createdb = command(self.programs.join("createdb"), self.user, &self.dir);
        let port = self.port.to_string();
        createdb.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", &name]);
        let made = createdb.output().expect("createdb");
        assert!(
            made.status.success(),
            "createdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        format!("postgres://postgres@127.0.0.1:{port}/{name}")
    }

    /// The address of a database of this server, whether it exists or not.
    pub(crate) fn address_of(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The folder of `pg_dump` and the others, of the server's version.
    pub(crate) fn programs(&self) -> &std::path::Path {
        &self.programs
    }

    /// SIGINT: all connections are ended, and nothing is lost.
    pub(crate) fn stop(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        let status = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(status.expect("kill").success());
        child.wait().expect("a child to wait for");
    }

    /// Again, on the same port and with the same data.
    pub(crate) fn restart(&self) {
        self.stop();
        let child = spawn(&self.programs, self.user, &self.dir, self.port);
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = child;
        assert!(
            self.is_ready(),
            "postgres did not come back: {}",
            self.log()
        );
    }

    /// SIGSTOP to all of its processes: connections stay open, and nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal_all("-STOP");
    }

    /// SIGCONT to all of its processes.
    pub(crate) fn thaw(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, signal: &str) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let id = child.id();
        let kill = |id: &str| {
            // A backend may have ended meanwhile.
            let _ = Command::new("kill").args([signal, id]).status();
        };
        kill(&id.to_string());
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children
            .expect("the list of processes")
            .split_whitespace()
            .for_each(kill);
    }

    /// Whether it answers in time; false as soon as the process has ended.
    fn is_ready(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(child.try_wait(), Ok(Some(_))) {
                return false;
            }
            drop(child);
            let mut pg_isready = command(self.programs.join("pg_isready"), self.user, &self.dir);
            pg_isready.args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-U",
                "postgres",
            ]);
            pg_isready.stdout(Stdio::null());
            if pg_isready.status().is_ok_and(|status| status.success()) {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // All of its processes end with it, at once: what is in the folder is no longer needed.
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = Command::new("kill")
            .args(["-QUIT", &child.id().to_string()])
            .status();
        let _ = child.wait();
    }
}

fn spawn(programs: &std::path::Path, user: Option<User>, dir: &TempDir, port: u16) -> Child {
    let log = fs::File::create(dir.path().join("log")).expect("a log");
    let mut postgres = command(programs.join("postgres"), user, dir);
    postgres.arg("-D").arg(dir.path().join("data"));
    postgres.arg("-k").arg(dir.path());
    postgres.args(["-p", &port.to_string(), "-N", &CONNECTIONS_MAX.to_string()]);
    // What is lost in a power cut is no loss here.
    for setting in [
        "listen_addresses=127.0.0.1",
        "fsync=off",
        "full_page_writes=off",
    ] {
        postgres.args(["-c", setting]);
    }
    postgres.stdout(Stdio::null()).stderr(log);
    postgres.spawn().expect("postgres")
}

fn command(program: PathBuf, user: Option<User>, dir: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir.path()).stdin(Stdio::null());
    // Settings of whoever runs the tests are none of the server's business.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Where `postgres` and the rest are: on the path, or where Debian puts them, the newest first.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().find(|folder| {
        let has = |name: &str| folder.join(name).is_file();
        has("postgres") && has("initdb") && has("createdb") && has("pg_isready")
    })
}

fn unprivileged(dir: &TempDir) -> Option<User> {
    let owner = fs::metadata(dir.path()).expect("the folder").uid();
    if owner != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the list of users");
    let user = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { uid, gid })
    };
    let found = user("postgres").or_else(|| user("nobody"));
    Some(found.expect("a user that is not root, to run PostgreSQL as"))
}

fn free_port() -> u16 {
    let listener: io::Result<TcpListener> = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn missing() {
    let what = "PostgreSQL is not installed";
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}

//! Gateway and monitor under a supervisor that speaks systemd's protocol: when they are ready, reloads
//! that fail when they were refused, and keys that only systemd can read.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Only there to end a test that would otherwise never end.
const WITHIN: Duration = Duration::from_secs(60);

/// A service in a folder with its file, a runtime folder, and the socket of its supervisor.
struct Unit {
    folder: TempDir,
    socket: UnixDatagram,
    child: Option<Child>,
}

impl Unit {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["run", "credentials"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        Self {
            folder,
            socket,
            child: None,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn balde(&self) -> Command {
        let mut balde = Command::new(env!("CARGO_BIN_EXE_balde"));
        balde
            .current_dir(self.path())
            .env("RUNTIME_DIRECTORY", self.path().join("run"))
            .env("CREDENTIALS_DIRECTORY", self.path().join("credentials"))
            .env("TOKEN", "secret");
        balde
    }

    fn start(&mut self, service: &str) {
        let mut balde = self.balde();
        balde
            .args([service, "--config", "service.toml"])
            .env("NOTIFY_SOCKET", self.path().join("notify"))
            .stdout(Stdio::null());
        self.child = Some(balde.spawn().unwrap());
    }

    /// The next message of the service.
    fn message(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a message in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// What `ExecReload=` of the units does.
    fn reload(&self) -> Output {
        let pid = self.child.as_ref().unwrap().id().to_string();
        self.balde()
            .args(["reload", "--pid", &pid])
            .output()
            .unwrap()
    }

    fn terminate(&mut self) {
        let child = self.child.as_mut().unwrap();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_reloading(message: &str) -> bool {
    let mut lines = message.lines();
    lines.next() == Some("RELOADING=1")
        && lines.next().is_some_and(|line| {
            let time = line.strip_prefix("MONOTONIC_USEC=");
            time.is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time > 0))
        })
}

#[track_caller]
fn reloads_and_refusals(unit: &mut Unit, good: &str, bad: &str, expected: &str) {
    let message = unit.message();
    assert!(message.lines().any(|line| line == "READY=1"), "{message}");

    unit.write("service.toml", good);
    let reload = unit.reload();
    assert!(reload.status.success(), "{}", text(&reload.stderr));
    assert_eq!(text(&reload.stdout), "reloaded\n");
    let (first, second) = (unit.message(), unit.message());
    assert!(is_reloading(&first), "{first}");
    assert!(
        second.contains("READY=1") && second.contains("STATUS=reloaded"),
        "{second}"
    );

    unit.write("service.toml", bad);
    let reload = unit.reload();
    assert_eq!(reload.status.code(), Some(1));
    let said = text(&reload.stderr);
    assert!(
        said.contains("refused, and the old configuration stays"),
        "{said}"
    );
    assert!(said.contains(expected), "{said}");
    let (first, second) = (unit.message(), unit.message());
    assert!(is_reloading(&first), "{first}");
    assert!(second.contains("READY=1"), "{second}");
    assert!(
        second.contains("STATUS=the last reload was refused: "),
        "{second}"
    );

    // The service runs on, and a good file is applied again.
    unit.write("service.toml", good);
    assert!(unit.reload().status.success());
    let (_, _) = (unit.message(), unit.message());
    unit.terminate();
    let message = unit.message();
    assert!(
        message.lines().any(|line| line == "STOPPING=1"),
        "{message}"
    );
    assert!(unit.child.as_mut().unwrap().wait().unwrap().success());
}

#[test]
fn a_gateway_is_ready_reads_credentials_and_its_reload_fails_when_it_is_refused() {
    let mut unit = Unit::new();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    // The folder of systemd's credentials, which only this service can read.
    unit.write("credentials/tls_server.pem", &certified.cert.pem());
    unit.write(
        "credentials/tls_server.key",
        &certified.signing_key.serialize_pem(),
    );
    let file = |timeout_ms: u64, address: &str| {
        format!(
            "[[listener]]\naddress = \"{address}\"\ncertificate = \"tls_server.pem\"\n\
             key = \"tls_server.key\"\n\
             [[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n\
             body_timeout = '{timeout_ms} ms'\n\
             [[route]]\npath = \"/\"\nupstream = \"a\"\n\
             [server]\ndrain_delay = \"0 s\"\n"
        )
    };
    let good = file(1_000, "127.0.0.1:0");
    unit.write("service.toml", &good);
    unit.start("gateway");
    // A valid file that needs a restart is refused, too.
    let bad = file(2_000, "127.0.0.1:1");
    reloads_and_refusals(&mut unit, &good, &bad, "restart it");
}

#[test]
fn a_monitor_is_ready_and_its_reload_fails_when_it_is_refused() {
    let mut unit = Unit::new();
    let file = |ispb: &str| {
        format!(
            "[http]\naddress = \"127.0.0.1:0\"\n[history]\naddress = \"monitor.db\"\n\
             [[participant]]\nispb = \"{ispb}\"\ndict = \"http://127.0.0.1:1/\"\n"
        )
    };
    let good = file("12345678");
    unit.write("service.toml", &good);
    unit.start("monitor");
    reloads_and_refusals(&mut unit, &good, &file("1"), "service.toml:6:8");
}

#[test]
fn a_reload_without_a_service_says_what_is_missing() {
    let unit = Unit::new();
    let output = unit
        .balde()
        .args(["reload", "--pid", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("does the service run?"),
        "{}",
        text(&output.stderr)
    );
    // A report of another process is not believed.
    unit.write(
        "run/reload.json",
        r#"{"pid":2,"reloads":0,"result":"started","reason":""}"#,
    );
    let output = unit
        .balde()
        .args(["reload", "--pid", "1"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("was written by process 2"));
    let mut balde = unit.balde();
    let output = balde
        .env_remove("RUNTIME_DIRECTORY")
        .args(["reload", "--pid", "1"])
        .output();
    assert!(text(&output.unwrap().stderr).contains("RuntimeDirectory="));
}

//! Servers written in Python that a test starts, with what scripts/test.sh installs from `PyPI`. They print
//! lines of JSON, and end with their standard input.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tempfile::TempDir;

/// Only there to end a test that would otherwise never end.
const WITHIN: Duration = Duration::from_secs(90);

/// A server, and the lines that it has printed since they were last asked for.
pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    port: u16,
}

impl Server {
    /// Runs a script that needs a Python module. Nothing, and loudly so, where the module is missing; a
    /// panic where `BALDE_REQUIRE_SERVICES=1` says that it must be there.
    pub(crate) fn start(module: &str, script: &str, arguments: &[&str]) -> Option<Self> {
        let python = tools().join("bin/python");
        let probe = Command::new(&python)
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        if !probe.is_ok_and(|status| status.success()) {
            missing(module);
            return None;
        }
        let mut child = Command::new(&python)
            .args(["-c", script])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let mut server = Self {
            child,
            input,
            lines: lines_of(output),
            port: 0,
        };
        let ready = server.next();
        server.port = ready["port"].as_u64().expect("a port").try_into().unwrap();
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The next line.
    pub(crate) fn next(&self) -> Value {
        match self.lines.recv_timeout(WITHIN) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the server printed nothing more"),
            Err(RecvTimeoutError::Disconnected) => panic!("the server ended"),
        }
    }

    /// Gives a command, and returns what was printed until it was carried out.
    pub(crate) fn tell(&mut self, command: &str) -> Vec<Value> {
        writeln!(self.input, "{command}").expect("a server that listens");
        let mut printed = Vec::new();
        loop {
            let line = self.next();
            if line["event"] == "done" {
                return printed;
            }
            printed.push(line);
        }
    }

    /// What was printed so far.
    pub(crate) fn printed(&mut self) -> Vec<Value> {
        self.tell("nothing")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate authority of its own, with a certificate for this machine, in files.
pub(crate) struct Authority {
    folder: TempDir,
    pub(crate) ca_pem: String,
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
        ca.distinguished_name.push(DnType::CommonName, "authority");
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let own = own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let (cert_pem, key_pem) = (own.pem(), key.serialize_pem());
        let folder = TempDir::new().unwrap();
        for (name, pem) in [("ca", &ca_pem), ("cert", &cert_pem), ("key", &key_pem)] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
        Self {
            folder,
            ca_pem,
            cert_pem,
            key_pem,
        }
    }

    /// The path of one of the files `ca`, `cert` and `key`.
    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }
}

fn lines_of(output: ChildStdout) -> Receiver<Value> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Ok(line) = serde_json::from_str(&line)
                && sender.send(line).is_err()
            {
                return;
            }
        }
    });
    lines
}

/// Where `scripts/test.sh` puts what tests need from Python's index.
fn tools() -> PathBuf {
    if let Some(folder) = env::var_os("BALDE_TEST_TOOLS") {
        return folder.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    target.expect("the folder that it is in").join("test-tools")
}

fn missing(module: &str) {
    let what = format!("the Python module {module} is not in {}", tools().display());
    assert!(
        env::var("BALDE_REQUIRE_SERVICES").as_deref() != Ok("1"),
        "{what}, and BALDE_REQUIRE_SERVICES=1; scripts/test.sh installs it"
    );
    eprintln!("\n*** SKIPPED: {what}, so this test tested NOTHING ***\n");
}

//! `balde health`, run as a container runtime runs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn health(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.arg("health").args(arguments).env("TOKEN", "secret");
    // A proxy of the machine must not be asked.
    command.env("http_proxy", "http://127.0.0.1:1");
    command.output().unwrap()
}

const WAIT_MAX: Duration = Duration::from_secs(10);

/// A server with one answer. It sends the head of its request.
fn server(answer: &'static str) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, heads) = mpsc::channel();
    // Not joined: a command that never connects must not leave the test waiting.
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        sender.send(String::from_utf8(head).unwrap()).unwrap();
    });
    (address, heads)
}

#[test]
fn success_is_exit_code_0_and_silent() {
    let (address, heads) = server("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let url = format!("http://{address}/healthz");
    let output = health(&["--token-env", "TOKEN", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
    let head = heads.recv_timeout(WAIT_MAX).unwrap().to_lowercase();
    assert!(head.starts_with("get /healthz "), "{head}");
    assert!(head.contains("authorization: bearer secret"), "{head}");
}

#[test]
fn a_refusal_and_its_cause_are_exit_code_1() {
    let (address, heads) = server(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 12\r\nConnection: close\r\n\r\ndisk is full",
    );
    let output = health(&[&format!("http://{address}/readyz")]);
    heads.recv_timeout(WAIT_MAX).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("503") && text.contains("disk is full"),
        "{text}"
    );
}

#[test]
fn a_closed_port_is_exit_code_1_and_an_open_one_0() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    assert_eq!(health(&[&url]).status.code(), Some(0));
    drop(listener);
    assert_eq!(health(&[&url]).status.code(), Some(1));
    // A server that never answers: the backlog accepts the connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let output = health(&["--timeout", "50 ms", &url]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no answer within 50 ms"), "{text}");
    assert_eq!(health(&["ftp://127.0.0.1/"]).status.code(), Some(1));
    assert_eq!(health(&[]).status.code(), Some(2));
}

/// A simulator that serves TLS with a certificate for 127.0.0.1, and its authority.
struct TlsServer {
    child: Child,
    url: String,
    folder: tempfile::TempDir,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TlsServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        write("ca.pem", &authority.self_signed(&key).unwrap().pem());
        let issuer = rcgen::Issuer::new(authority, key);
        let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        write(
            "server.pem",
            &server.signed_by(&key, &issuer).unwrap().pem(),
        );
        write("server.key", &key.serialize_pem());
        let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
            .args([
                "simulate",
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
            ])
            .args(["--tls-cert", "server.pem", "--tls-key", "server.key"])
            .current_dir(folder.path())
            .env_remove("RL_STORAGE_MODE")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let url = lines.find_map(|line| {
            let event: serde_json::Value = serde_json::from_str(&line).ok()?;
            let (_, rest) = event["url"].as_str()?.split_once("https://")?;
            Some(format!("https://{}", rest.split('/').next()?))
        });
        let url = url.expect("its address");
        // Further lines must not fill the pipe.
        thread::spawn(move || lines.for_each(drop));
        Self { child, url, folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[test]
fn https_is_verified_by_the_named_authorities_or_not_at_all_if_that_is_asked_for() {
    let server = TlsServer::start();
    let (authority, other) = (server.file("ca.pem"), server.file("server.key"));
    let url = format!("{}/sim/clock", server.url);
    let output = health(&["--ca-file", &authority, &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(health(&["--insecure", &url]).status.code(), Some(0));
    let failing = |arguments: &[&str], expected: &str| {
        let output = health(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{expected} is not in {text}");
        assert!(text.starts_with("balde health: "), "{text}");
        for debug in ["Error", "Some(", "{", "kind:"] {
            assert!(!text.contains(debug), "no Debug output: {text}");
        }
    };
    // The system does not know this authority, or has none at all.
    failing(&[&url], "");
    failing(&["--ca-file", &other, &url], "no certificate in PEM");
    failing(&["--ca-file", "missing.pem", &url], "--ca-file missing.pem");
    let missing = format!("{}/nothing", server.url);
    failing(&["--ca-file", &authority, &missing], "status 404");
    // The certificate is for another host.
    let host = url.replace("127.0.0.1", "localhost");
    failing(&["--ca-file", &authority, &host], "not valid for name");
    let plain = url.replace("https://", "http://");
    failing(&[&plain], "");
    let both = ["--insecure", "--ca-file", &authority, &url];
    assert_eq!(health(&both).status.code(), Some(2));
}

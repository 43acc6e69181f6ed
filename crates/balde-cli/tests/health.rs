//! `balde health`, run as a container runtime runs it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};
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
    let output = health(&["--timeout-ms", "50", &url]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no answer within 50 ms"), "{text}");
    assert_eq!(health(&["https://127.0.0.1/"]).status.code(), Some(1));
    assert_eq!(health(&[]).status.code(), Some(2));
}

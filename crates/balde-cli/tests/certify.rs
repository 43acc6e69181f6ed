//! `balde certify`, as it is started from a shell.

use std::process::{Command, Output, Stdio};

use balde_simulator::{self as simulator, Simulator};
use tokio::net::TcpListener;

fn certify(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_balde"))
        .arg("certify")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

#[test]
fn an_address_that_is_not_on_this_machine_needs_a_yes() {
    let output = certify(&["--url", "http://192.0.2.1/api/v2/"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("not on this machine") && error.contains("--yes"),
        "{error}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn more_than_two_addresses_are_refused() {
    let url = "http://127.0.0.1:1/api/v2/";
    let output = certify(&["--url", url, "--url", url, "--url", url]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn two_simulators_are_compared_and_reported() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut urls = Vec::new();
    for _ in 0..2 {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        urls.push(format!("http://{}/api/v2/", listener.local_addr().unwrap()));
        let simulated = Simulator::builder().build().unwrap();
        runtime.spawn(simulator::run(listener, simulated, std::future::pending()));
    }
    let folder = tempfile::tempdir().unwrap();
    let (junit, html) = (folder.path().join("a.xml"), folder.path().join("a.html"));
    let output = certify(&[
        "--url",
        &urls[0],
        "--url",
        &urls[1],
        "--junit",
        junit.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(" 0 different, 0 not run"), "{text}");
    assert!(text.contains("0 steps are answered differently"), "{text}");
    let junit = std::fs::read_to_string(junit).unwrap();
    assert_eq!(junit.matches("failures=\"0\"").count(), 2, "{junit}");
    assert!(
        std::fs::read_to_string(html)
            .unwrap()
            .contains("as published")
    );
}

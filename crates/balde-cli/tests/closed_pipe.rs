//! Every command that prints, into a pipe that nobody reads: `balde … | head -0`. None of them panics.
#![cfg(unix)]

use std::io::pipe;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

/// The two ends of a command's output.
#[derive(Clone, Copy, Debug)]
enum Closed {
    Output,
    /// `balde … 2>&1 | head -0`
    Both,
}

/// A command whose output is a pipe without a reader.
fn command(folder: &Path, arguments: &[&str], closed: Closed) -> Command {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("TOKEN", "secret")
        .env_remove("RL_STORAGE_MODE")
        .stdin(Stdio::null());
    match closed {
        Closed::Output => command.stdout(writer).stderr(Stdio::piped()),
        Closed::Both => {
            let other = writer.try_clone().unwrap();
            command.stdout(writer).stderr(other)
        }
    };
    command
}

fn assert_no_panic(arguments: &[&str], output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    // A panic is exit code 101.
    assert!(
        matches!(code, Some(0..=2)),
        "{arguments:?}: {:?} {text}",
        output.status
    );
    assert!(!text.contains("panicked"), "{arguments:?}: {text}");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "profile.toml",
            "profile = 'p'\n[[policy]]\nname = 'a'\nlimit = '1/s'\nmatch = ['GET /a%2Fb']\n",
        ),
        (
            "bad.toml",
            "profile = 'p'\n[[policy]]\nname = 'a'\nlimit = '1/fortnight'\n",
        ),
        (
            "gateway.toml",
            "[[listener]]\naddress = '127.0.0.1:0'\n[[upstream]]\nname = 'a'\n\
             url = 'http://127.0.0.1:1'\n[[route]]\npath = '/'\nupstream = 'a'\n",
        ),
        (
            "monitor.toml",
            "[http]\naddress = 'localhost:0'\n[[participant]]\nispb = '12345678'\n\
             dict = 'http://127.0.0.1:1/api/v2/'\n",
        ),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn commands_that_end_by_themselves_do_not_panic() {
    let folder = folder();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &[],
        &["nonsense"],
        &["policies"],
        &["policies", "--json"],
        &["policies", "nothing"],
        &[
            "check",
            "profile.toml",
            "profile.toml",
            "gateway.toml",
            "monitor.toml",
        ],
        &["check", "bad.toml", "missing.toml"],
        &["check", "--json", "profile.toml", "bad.toml"],
        &["completions", "bash"],
        &["man"],
        &["man", "gateway"],
        &["man", "nothing"],
        &["health", "tcp://127.0.0.1:1"],
        &["inspect", "--redis", "redis://127.0.0.1:1", "a"],
        &["certify", "--url", "http://127.0.0.1:1/api/v2/"],
        &["certify", "--url", "http://192.0.2.1/api/v2/"],
        &["monitor", "-c", "monitor.toml", "--check-sources"],
        &["monitor", "-c", "bad.toml"],
        &["gateway", "-c", "bad.toml"],
        &["simulate", "--profile", "nothing"],
        &["simulate", "--seed", "missing.jsonl"],
        &["gateway", "--help"],
    ] {
        for closed in [Closed::Output, Closed::Both] {
            let output = command(folder.path(), arguments, closed).output().unwrap();
            assert_no_panic(arguments, &output);
        }
    }
}

/// Ends a service with SIGTERM once it has written to its pipe, and waits for it.
fn end(arguments: &[&str], mut child: Child) {
    // It must still run after its first lines were lost.
    let begun = Instant::now();
    let is_listening = || {
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", child.id())).ok();
        let links = sockets.into_iter().flatten().filter_map(Result::ok);
        let is_socket = |path: std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
        links
            .filter_map(|link| std::fs::read_link(link.path()).ok())
            .any(is_socket)
    };
    while cfg!(target_os = "linux") && !is_listening() && begun.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    let begun = Instant::now();
    let status = loop {
        // The handler of the signal may not be there yet: then the process ends by the signal.
        let sent = Command::new("kill")
            .args(["-TERM", &id])
            .stderr(Stdio::null())
            .status();
        assert!(sent.is_ok());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < DEADLINE, "{arguments:?} does not end");
        std::thread::sleep(Duration::from_millis(200));
    };
    // 0 after a signal, 130 after the second one, none if there was no handler yet. A panic is 101, or
    // SIGABRT.
    let is_fine = matches!(status.code(), Some(0 | 130)) || status.signal() == Some(15);
    assert!(is_fine, "{arguments:?}: {status:?}");
}

#[test]
fn services_go_on_without_a_reader() {
    let folder = folder();
    for arguments in [
        &["simulate", "--listen", "127.0.0.1:0", "--entries", "1000"][..],
        &["gateway", "-c", "gateway.toml"],
        &["gateway", "-c", "gateway.toml", "--log-format", "text"],
        &["monitor", "-c", "monitor.toml"],
    ] {
        for closed in [Closed::Output, Closed::Both] {
            let child = command(folder.path(), arguments, closed).spawn().unwrap();
            end(arguments, child);
        }
    }
}

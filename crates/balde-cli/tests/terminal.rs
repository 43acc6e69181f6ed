//! What services write to standard output: JSON and nothing else, or text with colours on a terminal.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const ANY: &str = "127.0.0.1:0";

/// A service whose output is read.
struct Service {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    lines: Vec<String>,
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self {
            child,
            output,
            lines: Vec::new(),
        }
    }

    /// Reads until a line has the text, and returns that line.
    fn until(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "no {text} in {:?}", self.lines);
            self.lines.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends SIGTERM to the process, and reads the rest.
    fn end(mut self) -> Vec<String> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.expect("kill").success());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its output");
        self.lines.extend(rest.lines().map(str::to_owned));
        assert_eq!(self.child.wait().expect("its end").code(), Some(0));
        std::mem::take(&mut self.lines)
    }
}

fn balde(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command.args(arguments).env_remove("RL_STORAGE_MODE");
    command
}

fn assert_json(lines: &[String]) {
    assert!(!lines.is_empty());
    for line in lines {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let fields = event.as_object().unwrap_or_else(|| panic!("{line}"));
        for name in ["timestamp", "level", "target", "message"] {
            assert!(fields.contains_key(name), "{name}: {line}");
        }
        assert!(!fields.values().any(Value::is_null), "{line}");
    }
}

/// The address in a line of JSON.
fn url(line: &str) -> String {
    let event: Value = serde_json::from_str(line).expect("JSON");
    event["url"].as_str().expect("an address").to_owned()
}

fn get(url: &str) -> String {
    let rest = url.strip_prefix("http://").expect("an address");
    let (address, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a timeout");
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: localhost\r\nPI-RequestingParticipant: 12345678\r\n\
         PI-PayerId: 11122233300\r\nPI-EndToEndId: E1234567820260101000000000000001\r\n\
         Connection: close\r\n\r\n"
    )
    .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    file.display().to_string()
}

#[test]
fn a_json_stream_has_nothing_but_json_without_nulls() {
    let folder = tempfile::tempdir().expect("a folder");
    // At `warn`, the addresses are told all the same.
    let seed = "{\"key\": \"ana@example.com\", \"participant\": \"87654321\"}\n";
    let seed = write(folder.path(), "seed.jsonl", seed);
    let mut simulate = Service::start(
        balde(&[
            "simulate",
            "--listen",
            ANY,
            "--log-format",
            "json",
            "--seed",
        ])
        .args([&seed, "--log-level", "warn"]),
    );
    let dict = url(&simulate.until("\"endpoint\":\"DICT\""));
    simulate.until("\"endpoint\":\"inspection\"");

    let upstream = dict.trim_end_matches("/api/v2/");
    let file = format!(
        "[[listener]]\naddress = \"{ANY}\"\n[[upstream]]\nname = \"dict\"\nurl = \"{upstream}\"\n\
         [[route]]\npath = \"/\"\nupstream = \"dict\"\n\
         [state]\naddress = \"{ANY}\"\ntoken_env = \"TOKEN\"\n"
    );
    let file = write(folder.path(), "gateway.toml", &file);
    let mut gateway = Service::start(
        balde(&["gateway", "-c", &file, "--log-level", "debug"]).env("TOKEN", "secret"),
    );
    let proxy = url(&gateway.until("\"endpoint\":\"gateway\""));
    gateway.until("\"endpoint\":\"metrics\"");
    assert!(get(&format!("{proxy}api/v2/policies/")).starts_with("HTTP/1.1 200"));
    let sent = Command::new("kill")
        .args(["-HUP", &gateway.child.id().to_string()])
        .status();
    assert!(sent.expect("kill").success());
    gateway.until("\"event_type\":\"reloaded\"");

    let file = format!(
        "[http]\naddress = \"{ANY}\"\n[[participant]]\nispb = \"12345678\"\ndict = \"{dict}\"\n\
         [[participant]]\nispb = \"87654321\"\ndict = \"http://127.0.0.1:1/api/v2/\"\n"
    );
    let file = write(folder.path(), "monitor.toml", &file);
    let mut monitor = Service::start(
        balde(&[
            "monitor",
            "-c",
            &file,
            "--log-format",
            "json",
            "--log-level",
            "debug",
        ])
        .current_dir(folder.path()),
    );
    let page = url(&monitor.until("\"endpoint\":\"page\""));
    monitor.until("\"event_type\":\"poll_failed\"");
    assert!(get(&page).starts_with("HTTP/1.1 200"));

    for service in [monitor, gateway, simulate] {
        assert_json(&service.end());
    }
}

#[test]
fn up_writes_json_if_asked() {
    let mut up = Service::start(
        balde(&[
            "up",
            "--quiet",
            "--log-format",
            "json",
            "--log-level",
            "info",
        ])
        .args([
            "--dict",
            ANY,
            "--gateway",
            ANY,
            "--state",
            ANY,
            "--monitor",
            ANY,
        ]),
    );
    let page = url(&up.until("\"endpoint\":\"page\""));
    up.until("\"endpoint\":\"state\"");
    assert!(get(&page).starts_with("HTTP/1.1 200"));
    let lines = up.end();
    assert_json(&lines);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("\"event_type\":\"stopped\""))
    );
}

/// A line of the log of `balde monitor` on a terminal that `script` of util-linux makes.
fn line_on_a_terminal(arguments: &str, variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!(
        "[http]\naddress = \"{ANY}\"\n\
         [[participant]]\nispb = \"12345678\"\ndict = \"http://127.0.0.1:1/api/v2/\"\n"
    );
    write(folder.path(), "monitor.toml", &file);
    let binary = env!("CARGO_BIN_EXE_balde");
    let program = format!("echo pid=$$; exec '{binary}' monitor -c monitor.toml {arguments}");
    let mut command = Command::new("script");
    command
        .args(["-qec", &program, "/dev/null"])
        .current_dir(folder.path())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied());
    let mut service = Service::start(&mut command);
    let id = service.until("pid=").trim_end().replace("pid=", "");
    service.lines.clear();
    let line = service.until("DICT cannot be reached");
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("kill").success());
    let mut rest = String::new();
    service.output.read_to_string(&mut rest).expect("its end");
    let all = service.lines.concat();
    let is_colored = all.contains('\x1b');
    assert_eq!(is_colored, line.contains('\x1b'), "{all}");
    if line.starts_with('{') {
        assert_json(&service.lines);
    } else {
        assert!(all.starts_with("page       http://127.0.0.1:"), "{all}");
    }
    line
}

#[test]
fn a_terminal_gets_text_with_colors_unless_the_user_forbids_them() {
    let line = line_on_a_terminal("", &[]);
    assert!(line.contains("\x1b[33m WARN\x1b[0m"), "{line:?}");
    // An empty NO_COLOR forbids nothing.
    let line = line_on_a_terminal("", &[("NO_COLOR", "")]);
    assert!(line.contains("\x1b[33m WARN\x1b[0m"), "{line:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let line = line_on_a_terminal("", &[variable]);
        assert!(
            line.contains("  WARN ") && !line.contains('\x1b'),
            "{line:?}"
        );
    }
    let line = line_on_a_terminal("--log-format json", &[]);
    assert!(line.starts_with('{') && !line.contains('\x1b'), "{line:?}");
}

#[test]
fn text_in_a_pipe_has_no_colors() {
    let mut simulate = Service::start(
        balde(&[
            "simulate",
            "--listen",
            ANY,
            "--log-format",
            "text",
            "--log-level",
            "debug",
        ])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR"),
    );
    let dict = simulate.until("DICT       http://127.0.0.1:");
    simulate.until("inspection http://127.0.0.1:");
    let dict = dict.trim_end().trim_start_matches("DICT       ");
    assert!(get(&format!("{dict}policies/")).starts_with("HTTP/1.1 200"));
    simulate.until(" DEBUG ");
    let lines = simulate.end();
    assert!(!lines.concat().contains('\x1b'), "{lines:?}");
}

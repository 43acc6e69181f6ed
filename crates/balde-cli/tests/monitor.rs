//! `balde monitor` as a process.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Monitor {
    child: Child,
    address: String,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_config(folder: &Path, participants: &[&str]) {
    let mut text = "[http]\naddress = \"localhost:0\"\n".to_owned();
    for ispb in participants {
        // Nobody listens there.
        text += "[[participant]]\ndict = \"http://127.0.0.1:1/api/v2/\"\nispb = \"";
        text += ispb;
        text += "\"\n";
    }
    std::fs::write(folder.join("monitor.toml"), text).expect("written");
}

#[expect(clippy::zombie_processes, reason = "it is waited for when dropped")]
fn start(folder: &Path) -> Monitor {
    let mut child = Command::new(env!("CARGO_BIN_EXE_balde"))
        .args(["monitor", "-c", "monitor.toml"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("balde starts");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    loop {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "it ended");
        let event: serde_json::Value =
            serde_json::from_str(&line).expect("JSON, as it is no terminal");
        if event["endpoint"] == "page" {
            let url = event["url"].as_str().expect("its address");
            let address = url
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .to_owned();
            std::thread::spawn(move || for _ in output.lines().map_while(Result::ok) {});
            return Monitor { child, address };
        }
    }
}

impl Monitor {
    fn states(&self) -> String {
        let Ok(mut stream) = TcpStream::connect(&self.address) else {
            return String::new();
        };
        let request = "GET /api/v1/states HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        loop {
            let states = self.states();
            if is_so(&states) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: {states}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn hang_up(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status();
        assert!(sent.expect("kill").success());
    }
}

#[test]
fn sighup_reads_the_file_again_and_an_invalid_file_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    write_config(folder.path(), &["11111111"]);
    let mut monitor = start(folder.path());
    monitor.until("it runs", |states| states.contains("11111111"));

    std::fs::write(folder.path().join("monitor.toml"), "nonsense = ").expect("written");
    monitor.hang_up();
    write_config(folder.path(), &["11111111", "22222222"]);
    monitor.until("it runs on", |states| states.contains("11111111"));
    // Signals of one kind that arrive together are one signal, so the second one may be lost in the first.
    monitor.until("it has the new file", |states| {
        let has_new_file = states.contains("22222222");
        if !has_new_file {
            monitor.hang_up();
        }
        has_new_file
    });
    assert!(monitor.child.try_wait().expect("its state").is_none());
}

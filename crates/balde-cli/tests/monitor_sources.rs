//! `balde monitor` that is pointed at a participant which nobody knows: real processes of a simulated
//! DICT, a gateway and a monitor.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

/// The participant, and the same with two digits swapped.
const KNOWN: &str = "12345678";
const SWAPPED: &str = "12345687";
/// In the gateway's file, but unknown to DICT.
const STRANGER: &str = "87654321";

struct Service {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_balde"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("TOKEN", "secret")
        .env("WRONG", "other");
    command
}

fn start(folder: &Path, arguments: &[&str]) -> Service {
    let mut child = command(folder, arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Service {
        child,
        lines: Box::new(lines.map_while(Result::ok)),
    }
}

impl Service {
    /// The next event of the log that is so.
    fn event(&mut self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> String {
        let begun = Instant::now();
        for line in self.lines.by_ref() {
            if serde_json::from_str(&line).is_ok_and(|event| is_so(&event)) {
                return line;
            }
            assert!(begun.elapsed() < DEADLINE, "no line with {what}");
        }
        panic!("it ended before {what}");
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A simulated DICT that knows one participant, and a gateway in front of it that claims two.
struct World {
    folder: tempfile::TempDir,
    dict: SocketAddr,
    state: SocketAddr,
    _services: [Service; 2],
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [dict, listen, state] = [free_address(), free_address(), free_address()];
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        let participant = format!("[[participant]]\nispb = \"{KNOWN}\"\n");
        write("participants.toml", participant).unwrap();
        let gateway = format!(
            "[[listener]]\naddress = \"{listen}\"\n\
             [[upstream]]\nname = \"dict\"\nurl = \"http://{dict}\"\n\
             [[route]]\npath = \"/\"\nupstream = \"dict\"\n\
             [state]\naddress = \"{state}\"\ntoken_env = \"TOKEN\"\n\
             [dict]\nupstream = \"dict\"\nparticipants = [\"{KNOWN}\", \"{STRANGER}\"]\n\
             check_keys_as = \"{KNOWN}\"\n"
        );
        write("gateway.toml", gateway).unwrap();
        let dict_address = dict.to_string();
        let mut simulated = start(
            folder.path(),
            &[
                "simulate",
                "--listen",
                &dict_address,
                "--category",
                "F",
                "--participants",
                "participants.toml",
            ],
        );
        simulated.event("its address", |event| event["event_type"] == "listening");
        let mut gateway = start(folder.path(), &["gateway", "-c", "gateway.toml"]);
        gateway.event("DICT's refusal", |event| {
            event["event_type"] == "reconciliation_failed" && event["participant"] == STRANGER
        });
        Self {
            folder,
            dict,
            state,
            _services: [simulated, gateway],
        }
    }

    /// Writes a monitor's file.
    fn monitor(&self, participants: &[(&str, &str)]) {
        let mut text = "[http]\naddress = \"localhost:0\"\n".to_owned();
        for (ispb, source) in participants {
            text += "[[participant]]\nispb = \"";
            text += ispb;
            text += "\"\n";
            text += source;
            text += "\n";
        }
        std::fs::write(self.folder.path().join("monitor.toml"), text).unwrap();
    }

    fn at_dict(&self) -> String {
        format!("dict = \"http://{}/api/v2/\"", self.dict)
    }

    fn at_gateway(&self, token: &str) -> String {
        let state = self.state;
        format!("gateway = \"http://{state}/balde/states\"\ntoken_env = \"{token}\"")
    }

    fn check_sources(&self) -> Output {
        let arguments = ["monitor", "-c", "monitor.toml", "--check-sources"];
        command(self.folder.path(), &arguments).output().unwrap()
    }
}

#[test]
fn check_sources_says_which_participants_answer_and_fails_if_one_does_not() {
    let world = World::start();
    world.monitor(&[(KNOWN, &world.at_dict())]);
    let output = world.check_sources();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text, "12345678  DICT     answers: category F, 29 buckets\n");
    assert!(output.stderr.is_empty());

    world.monitor(&[(KNOWN, &world.at_gateway("TOKEN"))]);
    let output = world.check_sources();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "12345678  gateway  answers: category F, 29 buckets\n");
    assert_eq!(output.status.code(), Some(0));

    let nobody = "dict = \"http://127.0.0.1:1/api/v2/\"".to_owned();
    for (ispb, source, reason) in [
        (SWAPPED, world.at_dict(), "403"),
        (
            SWAPPED,
            world.at_gateway("TOKEN"),
            "participant 12345687 is none of this gateway's",
        ),
        (
            STRANGER,
            world.at_gateway("TOKEN"),
            "DICT does not accept participant 87654321",
        ),
        (SWAPPED, world.at_gateway("WRONG"), "check the token"),
        (SWAPPED, nobody, "refused"),
    ] {
        world.monitor(&[(KNOWN, &world.at_dict()), (ispb, &source)]);
        let output = world.check_sources();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let [good, bad] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        assert!(good.contains("29 buckets"), "{good}");
        assert!(bad.starts_with(ispb), "{bad}");
        assert!(
            bad.contains("does not answer: ") && bad.contains(reason),
            "{bad}"
        );
        let errors = String::from_utf8(output.stderr).unwrap();
        let expected = "balde monitor: 1 of 2 participants cannot be monitored\n";
        assert_eq!(errors, expected);
    }
    assert!(
        !world.folder.path().join("monitor.db").exists(),
        "nothing is stored"
    );
}

#[test]
fn a_monitor_of_an_unknown_participant_alerts_in_its_first_cycle() {
    let world = World::start();
    let source = world.at_gateway("TOKEN");
    world.monitor(&[(KNOWN, &source), (SWAPPED, &source)]);
    let mut monitor = start(world.folder.path(), &["monitor", "-c", "monitor.toml"]);
    // Three lines, in any order: one that answers, one that does not, and the alert about it.
    let (mut answers, mut fails, mut alerts) = (None, None, None);
    while answers.is_none() || fails.is_none() || alerts.is_none() {
        let line = monitor.event("answer, error and alert", |event| {
            event["participant"] == KNOWN || event["participant"] == SWAPPED
        });
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        match event["event_type"].as_str() {
            Some("source_answers") => {
                assert_eq!(event["participant"], KNOWN);
                assert_eq!(
                    (&event["category"], &event["buckets"]),
                    (&"F".into(), &29.into())
                );
                answers = Some(line);
            }
            Some("poll_failed") => {
                assert_eq!(event["participant"], SWAPPED);
                assert!(line.contains("is none of this gateway's"), "{line}");
                fails = Some(line);
            }
            _ if line.contains("NO DATA") || line.contains("no data") => {
                assert_eq!(event["participant"], SWAPPED);
                assert!(line.contains("is none of this gateway's"), "{line}");
                alerts = Some(line);
            }
            _ => {}
        }
    }
}

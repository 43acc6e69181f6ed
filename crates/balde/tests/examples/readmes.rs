//! Each program of the READMEs, pasted into a package outside of this workspace, compiles, and answers
//! as the README prints.
//!
//! A README shows a program in a `rust` block and what it answers in the `text` block after it, as a
//! terminal would: `$ cargo run` and its output, or curl commands and their responses. A printed line
//! that ends in `…` may go on in any way. The only change to a program is its address, because port
//! 3000 may be in use.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

const READMES: [(&str, &str); 3] = [
    ("readme", "../../README.md"),
    ("readme_pt_br", "../../README.pt-BR.md"),
    ("balde_readme", "README.md"),
];

const ADDRESS: &str = "127.0.0.1:3000";

/// What the READMEs add to a new package.
const MANIFEST: &str = r#"
[package]
name = "readme-programs"
edition = "2024"

[dependencies]
axum = "0.8"
balde = { path = "BALDE", features = ["axum"] }
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
"#;

struct Program {
    name: String,
    source: String,
    /// Commands, each with the lines that it prints.
    session: Vec<(String, Vec<String>)>,
}

#[test]
fn each_program_of_the_readmes_compiles_and_answers_as_printed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut programs = Vec::new();
    for (name, path) in READMES {
        let text = fs::read_to_string(here.join(path)).unwrap();
        let found = programs_of(name, &text);
        assert!(!found.is_empty(), "{path} has no program");
        programs.extend(found);
    }
    let binaries = compile(here, &programs);
    for program in &programs {
        program.run(&binaries.join(&program.name));
    }
}

/// The programs of a README. Every block of Rust must be a whole program.
fn programs_of(readme: &str, text: &str) -> Vec<Program> {
    let mut programs: Vec<Program> = Vec::new();
    for (kind, block) in blocks(text) {
        if kind.starts_with("rust") {
            assert!(block.contains("fn main()"), "not a whole program:\n{block}");
            programs.push(Program {
                name: format!("{readme}_{}", programs.len() + 1),
                source: block,
                session: Vec::new(),
            });
        } else if kind == "text"
            && let Some(program) = programs.last_mut()
        {
            assert!(block.starts_with("$ "), "not a session:\n{block}");
            for line in block.lines() {
                match (line.strip_prefix("$ "), program.session.last_mut()) {
                    (Some(command), _) => program.session.push((command.to_owned(), Vec::new())),
                    (None, Some((_, printed))) => printed.push(line.to_owned()),
                    (None, None) => unreachable!("a session begins with a command"),
                }
            }
        }
    }
    programs
}

/// The fenced blocks of a page, with what stands after their opening fence.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let mut block = String::new();
            for line in lines.by_ref().take_while(|line| *line != "```") {
                let _ = writeln!(block, "{line}");
            }
            blocks.push((kind.to_owned(), block));
        }
    }
    blocks
}

/// Compiles all programs in one package, offline and with the dependencies that are locked here, and
/// returns the folder of the binaries. What it builds is kept below the project's target folder.
fn compile(balde: &Path, programs: &[Program]) -> PathBuf {
    let folder = tempfile::tempdir().unwrap();
    let bins = folder.path().join("src/bin");
    fs::create_dir_all(&bins).unwrap();
    let manifest = MANIFEST.replace("BALDE", balde.to_str().unwrap());
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    let lock = balde.join("../../Cargo.lock");
    fs::copy(lock, folder.path().join("Cargo.lock")).unwrap();
    for program in programs {
        let address = "std::env::args().nth(1).unwrap()";
        let source = program.source.replace(&format!("\"{ADDRESS}\""), address);
        fs::write(bins.join(format!("{}.rs", program.name)), source).unwrap();
    }
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap().join("readme-programs");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--offline", "--quiet"])
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the programs of the READMEs do not compile"
    );
    target.join("debug")
}

impl Program {
    fn run(&self, binary: &Path) {
        let is_server = self.source.contains(ADDRESS);
        if !is_server {
            let output = Command::new(binary).output().unwrap();
            assert!(output.status.success(), "{}: {output:?}", self.name);
            for (command, printed) in &self.session {
                assert_eq!(command, "cargo run", "{}", self.name);
                self.compare(printed, &output);
            }
            return;
        }
        assert!(!self.session.is_empty(), "{} shows no answer", self.name);
        let server = Server::start(binary);
        for (command, printed) in &self.session {
            assert!(command.starts_with("curl "), "{}: {command}", self.name);
            let command = command.replace(ADDRESS, &server.address.to_string());
            let shell = Command::new("sh").args(["-c", &command]).output();
            self.compare(printed, &shell.unwrap());
        }
    }

    fn compare(&self, printed: &[String], output: &Output) {
        let answered = String::from_utf8(output.stdout.clone()).unwrap();
        let lines: Vec<&str> = answered.lines().collect();
        let is_same = lines.len() == printed.len()
            && printed
                .iter()
                .zip(&lines)
                .all(|(one, other)| matches(one, other));
        let printed = printed.join("\n");
        let name = &self.name;
        assert!(
            is_same,
            "{name} answers\n{answered}\nbut the README has\n{printed}"
        );
    }
}

/// Compares a printed line with a real one. Times to wait may be shorter: some of it has passed.
fn matches(printed: &str, real: &str) -> bool {
    const WAITS: [&str; 5] = [
        "reset: ",
        "retry-after: ",
        ";t=",
        "pass in ",
        "retry-after\":",
    ];
    if let Some(start) = printed.strip_suffix('…') {
        return real.starts_with(start);
    }
    let (mut printed, mut real) = (printed, real);
    let mut is_wait = false;
    while !printed.is_empty() {
        let is_digit = printed.starts_with(|c: char| c.is_ascii_digit());
        let run = |text: &str| {
            let end = text.find(|c: char| c.is_ascii_digit() != is_digit);
            end.unwrap_or(text.len())
        };
        let (one, rest) = printed.split_at(run(printed));
        let (other, other_rest) = real.split_at(run(real));
        let in_time = || {
            let [one, other] = [one, other].map(|number| number.parse::<u64>().unwrap_or(0));
            is_wait && (1..=one).contains(&other)
        };
        if one != other && !(is_digit && in_time()) {
            return false;
        }
        is_wait = !is_digit && WAITS.iter().any(|wait| one.ends_with(wait));
        (printed, real) = (rest, other_rest);
    }
    real.is_empty()
}

/// A program that serves, stopped when it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(binary: &Path) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new(binary).arg(address.to_string()).spawn();
        let mut server = Self {
            child: child.unwrap(),
            address,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "it has ended");
            assert!(Instant::now() < deadline, "it does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_printed_line_is_compared_exactly_but_for_times_to_wait() {
    for (printed, real, is_same) in [
        ("hello", "hello", true),
        ("hello", "hello!", false),
        ("hello 2", "hello 1", false),
        ("date: …", "date: Sun, 15 Nov 2026 21:00:00 GMT", true),
        ("retry-after: 30", "retry-after: 29", true),
        ("retry-after: 30", "retry-after: 31", false),
        ("retry-after: 30", "retry-after: 0", false),
        (
            "x-ratelimit-remaining: 2",
            "x-ratelimit-remaining: 1",
            false,
        ),
        (
            "ratelimit: \"a\";r=1;t=30",
            "ratelimit: \"a\";r=1;t=7",
            true,
        ),
        (
            "ratelimit: \"a\";r=1;t=30",
            "ratelimit: \"a\";r=0;t=30",
            false,
        ),
    ] {
        assert_eq!(matches(printed, real), is_same, "{printed} / {real}");
    }
}

//! A page's shell commands, run one after the other in a folder of their own, as a reader would.
//!
//! What differs from a reader's terminal: documented ports are replaced by free ones; a server in the
//! background is waited for, and its output goes to a file; `balde up`, which runs until Ctrl-C, goes to
//! the background.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::blocks::{Block, repository};

/// Ports that pages name.
const PORTS: [u16; 7] = [6379, 8080, 8085, 8086, 8090, 9000, 9180];

/// Before the output of each block.
const MARK: char = '\u{1e}';

const FUNCTIONS: &str = r#"
set -euo pipefail
# The clone, for packages beside it.
ln -s "$REPOSITORY" balde
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
# Waits until a process listens.
started() {
  local try
  for try in $(seq 1200); do
    kill -0 "$1" 2>/dev/null || { cat "$SESSION"/*.log >&2; return 1; }
    if listens "$1"; then return; fi
    sleep 0.05
  done
  echo "process $1 never listened" >&2
  return 1
}
listens() {
  local sockets
  sockets=$(ls -l "/proc/$1/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p' | xargs)
  awk -v sockets="$sockets" 'BEGIN { n = split(sockets, list, " "); for (i = 1; i <= n; i++) own[list[i]] }
    $4 == "0A" && ($10 in own) { found = 1 } END { exit !found }' <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
}
# Waits for a line in a file.
has_line() {
  local try
  for try in $(seq 1200); do
    if grep -q "$2" "$1" 2>/dev/null; then return; fi
    sleep 0.05
  done
  cat "$1" >&2
  return 1
}
# A server may listen on its second address a moment after the first.
curl() {
  local try code
  for try in $(seq 600); do
    code=0
    command curl -m 60 "$@" || code=$?
    [ "$code" = 7 ] || return "$code"
    sleep 0.1
  done
  return 7
}
# The crates are not published: balde is that of this repository. Others are those of its lock file.
cargo() {
  case "$1 $2" in
    "add balde") shift 2; command cargo add --quiet --offline --path "$REPOSITORY/crates/balde" "$@" ;;
    "add "*) command cargo "$@" --quiet --offline ;;
    "new "*) command cargo "$@" --quiet ;;
    *) echo "cargo $* is not known here" >&2; return 97 ;;
  esac
}
"#;

pub(crate) struct Session {
    folder: TempDir,
    script: String,
    ports: Vec<(u16, u16)>,
    is_up: bool,
    blocks: usize,
}

impl Session {
    pub(crate) fn new() -> Self {
        // All are bound before any is released, so that all differ.
        let free = PORTS.map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let free = free.map(|listener| listener.local_addr().unwrap().port());
        Self {
            folder: tempfile::tempdir().unwrap(),
            script: FUNCTIONS.to_owned(),
            ports: PORTS.into_iter().zip(free).collect(),
            is_up: false,
            blocks: 0,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Uses a port that a server of the test listens on.
    pub(crate) fn set_port(&mut self, documented: u16, real: u16) {
        let entry = self.ports.iter_mut().find(|(port, _)| *port == documented);
        entry.expect("a documented port").1 = real;
    }

    /// Replaces documented ports.
    pub(crate) fn with_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (documented, real) in &self.ports {
            for before in ["127.0.0.1:", "http.server "] {
                let (old, new) = (format!("{before}{documented}"), format!("{before}{real}"));
                text = text.replace(&old, &new);
            }
        }
        text
    }

    /// A file of the repository, with its ports replaced, in the same place below the session's folder.
    pub(crate) fn copy(&self, file: &str) {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        let target = self.folder().join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, self.with_ports(&text)).unwrap();
    }

    /// Adds the commands of a block.
    pub(crate) fn block(&mut self, block: &Block) {
        self.blocks += 1;
        writeln!(self.script, "printf '\\n{MARK}\\n'").unwrap();
        self.commands(&block.code);
    }

    /// Adds commands that the page does not have.
    pub(crate) fn commands(&mut self, code: &str) {
        let code = self.with_ports(code);
        for line in code.lines() {
            let line = self.command(line);
            self.script.push_str(&line);
            self.script.push('\n');
        }
    }

    fn command(&mut self, line: &str) -> String {
        let bare = line.split(" #").next().unwrap().trim();
        let up = ["balde up", "cargo run --release -- up"];
        if up.contains(&bare) {
            return self.up();
        }
        if let Some(command) = bare.strip_suffix(" &") {
            let needs_port = command.starts_with("balde simulate") && !command.contains("--listen");
            let listen = self.with_ports(" --listen 127.0.0.1:8085");
            let listen = if needs_port { &listen } else { "" };
            return format!("{command}{listen} >>\"$SESSION/servers.log\" 2>&1 & started $!");
        }
        if bare.starts_with("temporal ") {
            // Without a server of Temporal: the command and its options exist.
            return format!("{bare} --help >/dev/null");
        }
        line.to_owned()
    }

    /// In real time, so that how fast the test runs does not decide how many tokens there are.
    fn up(&mut self) -> String {
        if self.is_up {
            return "true # it runs already".to_owned();
        }
        self.is_up = true;
        let [dict, gateway, state, monitor] = [8085, 8080, 8090, 9180]
            .map(|documented| self.with_ports(&format!("127.0.0.1:{documented}")));
        format!(
            "balde up --speed 1 --dict {dict} --gateway {gateway} --state {state} --monitor {monitor} \
             >\"$SESSION/up.log\" 2>&1 & UP=$!; has_line \"$SESSION/up.log\" '^Ctrl-C'"
        )
    }

    /// Ends `balde up`, as a reader does before something else listens there.
    pub(crate) fn end_up(&mut self) {
        self.script.push_str("kill -TERM $UP; wait $UP\n");
        self.is_up = false;
    }

    /// Runs everything, and returns what each block printed.
    pub(crate) fn run(self, page: &str) -> Vec<String> {
        let script = self.folder().join("session.sh");
        fs::write(&script, &self.script).unwrap();
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_balde"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![binary.parent().unwrap().to_owned()];
        folders.extend(std::env::split_paths(&path));
        let tools = std::env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
        let tools = tools.unwrap_or_else(|| repository().join("target/test-tools"));
        folders.push(tools.join("bin"));
        let mut bash = Command::new("timeout");
        bash.args(["--kill-after=10", "300", "bash"])
            .arg(&script)
            .current_dir(self.folder())
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("SESSION", self.folder())
            .env("HOME", self.folder())
            .env("REPOSITORY", repository())
            .env("BALDE_MONITOR_TOKEN", "a-token-for-tests")
            .env_remove("CARGO_TARGET_DIR");
        // The home of a reader is a folder of the session, but cargo and rustup have theirs.
        if let Some(home) = std::env::var_os("HOME") {
            for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                if std::env::var_os(variable).is_none() {
                    bash.env(variable, Path::new(&home).join(folder));
                }
            }
        }
        let output = bash.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let error = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(
            status.success(),
            "{page}: {status}\n{printed}\n{error}\n{}",
            self.script
        );
        let parts = printed
            .split(MARK)
            .skip(1)
            .map(|part| part.trim().to_owned());
        let parts: Vec<_> = parts.collect();
        assert_eq!(parts.len(), self.blocks, "{page}: {printed}");
        parts
    }
}

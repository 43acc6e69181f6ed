//! What the supervisor of a service is told: systemd's notifications, and how reloads ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The variable in which systemd passes the folders of `RuntimeDirectory=`.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// The file in that folder with the result of the last reload.
const REPORT: &str = "reload.json";

/// The most characters of a refusal in systemd's status line.
const STATUS_CHARS_MAX: usize = 200;

/// Tells systemd when the service is ready, reloads and stops (`Type=notify`), and writes the result of
/// each reload where `balde reload` reads it. Does nothing without systemd.
#[derive(Debug)]
pub(crate) struct Supervisor {
    report: Option<PathBuf>,
    reloads: u64,
}

impl Supervisor {
    /// For a service that starts.
    pub(crate) fn new() -> Self {
        Self {
            report: report_path(),
            reloads: 0,
        }
    }

    /// The service listens.
    pub(crate) fn ready(&self) {
        self.write_report("started", "");
        notify(&[sd_notify::NotifyState::Ready]);
    }

    /// A reload begins.
    pub(crate) fn reloading() {
        // Without the time, newer versions of systemd end the service.
        if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
            notify(&[sd_notify::NotifyState::Reloading, now]);
        }
    }

    /// A reload ended: the service runs with the new file, or with the old one for this reason.
    pub(crate) fn reloaded(&mut self, result: Result<(), &str>) {
        self.reloads += 1;
        let (word, reason) = match result {
            Ok(()) => ("applied", ""),
            Err(reason) => ("refused", reason),
        };
        self.write_report(word, reason);
        let line: String = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: String = line.chars().take(STATUS_CHARS_MAX).collect();
        let status = match result {
            Ok(()) => "reloaded".to_owned(),
            Err(_) => format!("the last reload was refused: {line}"),
        };
        notify(&[
            sd_notify::NotifyState::Ready,
            sd_notify::NotifyState::Status(&status),
        ]);
    }

    /// The service begins to end.
    pub(crate) fn stopping() {
        notify(&[sd_notify::NotifyState::Stopping]);
    }

    fn write_report(&self, result: &str, reason: &str) {
        let Some(path) = &self.report else {
            return;
        };
        let report = json!({
            "pid": std::process::id(),
            "reloads": self.reloads,
            "result": result,
            "reason": reason,
        });
        let written = replace(path, &report.to_string());
        if let Err(error) = written {
            tracing::warn!(
                event_type = "reload_report_failed",
                "{} cannot be written, so `balde reload` cannot tell how a reload ended: {error}",
                path.display()
            );
        }
    }
}

/// The result of the last reload of a service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReloadReport {
    pub(crate) reloads: u64,
    /// Why it was refused.
    pub(crate) refusal: Option<String>,
}

impl ReloadReport {
    /// Reads what the service with this process id wrote.
    pub(crate) fn read(path: &Path, pid: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {}; does the service run?", path.display()))?;
        let report: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a report of balde", path.display()))?;
        anyhow::ensure!(
            report["pid"] == pid,
            "{} was written by process {}, not by {pid}",
            path.display(),
            report["pid"]
        );
        let refusal = (report["result"] == "refused")
            .then(|| report["reason"].as_str().unwrap_or_default().to_owned());
        Ok(Self {
            reloads: report["reloads"].as_u64().unwrap_or_default(),
            refusal,
        })
    }
}

/// Where the services of this unit report reloads; `None` without `RuntimeDirectory=`.
pub(crate) fn report_path() -> Option<PathBuf> {
    let folders = std::env::var(RUNTIME_DIRECTORY).ok()?;
    let folder = folders
        .split(':')
        .next()
        .filter(|folder| !folder.is_empty())?;
    Some(Path::new(folder).join(REPORT))
}

/// A reader sees the old file or the new one, never a part.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd could not be notified");
    }
}

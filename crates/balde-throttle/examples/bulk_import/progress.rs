//! The progress display: records written, rate, time left, and degraded partitions.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use super::import::Import;
use balde_throttle::Circuit;

/// How often the bar is drawn on a terminal, and how often a line is written otherwise.
const DRAWN_EVERY: Duration = Duration::from_millis(200);
const WRITTEN_EVERY: Duration = Duration::from_secs(5);

const NAMED_MAX: usize = 4;

/// Shows an import until the task is aborted.
pub(crate) async fn show(import: Import) {
    let is_terminal = stderr().is_terminal();
    let every = if is_terminal {
        DRAWN_EVERY
    } else {
        WRITTEN_EVERY
    };
    loop {
        tokio::time::sleep(every).await;
        let line = line(&import);
        // The import goes on if its display fails.
        let _unseen = if is_terminal {
            write!(stderr(), "\r\x1b[2K{line}").and_then(|()| stderr().flush())
        } else {
            writeln!(stderr(), "{line}")
        };
    }
}

pub(crate) fn line(import: &Import) -> String {
    format!("{}{}", import.progress(), degraded(import))
}

fn degraded(import: &Import) -> String {
    let stats = import.throttler().stats();
    let degraded: Vec<_> = stats
        .iter()
        .filter(|partition| partition.is_degraded())
        .collect();
    if degraded.is_empty() {
        return String::new();
    }
    let named: Vec<String> = degraded
        .iter()
        .take(NAMED_MAX)
        .map(|partition| match partition.circuit() {
            Circuit::Closed => format!("{} {}", partition.name(), partition.pace().rate()),
            Circuit::Open => format!("{} open", partition.name()),
            Circuit::HalfOpen => format!("{} half open", partition.name()),
        })
        .collect();
    let more = degraded.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("  degraded: {}{more}", named.join(", "))
}

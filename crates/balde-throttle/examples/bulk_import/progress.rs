//! The progress display: records written, rate, time left, and degraded partitions.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use balde_throttle::Circuit;
use tokio::time::Instant;

use super::import::Import;

/// How often the bar is drawn on a terminal, and how often a line is written otherwise.
const DRAWN_EVERY: Duration = Duration::from_millis(200);
const WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// The rate is the mean over this many updates.
const WINDOW: usize = 10;
const WIDTH: u64 = 30;
const NAMED_MAX: usize = 4;

/// Shows an import until the task is aborted.
pub(crate) async fn show(import: Import) {
    let is_terminal = stderr().is_terminal();
    let every = if is_terminal {
        DRAWN_EVERY
    } else {
        WRITTEN_EVERY
    };
    let mut seen = VecDeque::from([(Instant::now(), 0)]);
    loop {
        tokio::time::sleep(every).await;
        let now = (Instant::now(), import.written());
        seen.push_back(now);
        if seen.len() > WINDOW {
            seen.pop_front();
        }
        let (then, before) = seen[0];
        let elapsed_ms = u64::try_from(then.elapsed().as_millis()).unwrap_or(1);
        let rate = (now.1 - before) * 1_000 / elapsed_ms.max(1);
        let line = line(&import, now.1, rate);
        // The import goes on if its display fails.
        let _unseen = if is_terminal {
            write!(stderr(), "\r\x1b[2K{line}").and_then(|()| stderr().flush())
        } else {
            writeln!(stderr(), "{line}")
        };
    }
}

pub(crate) fn line(import: &Import, written: u64, rate: u64) -> String {
    let records = import.records().max(1);
    let done = WIDTH * written / records;
    let bar: String = (0..WIDTH)
        .map(|at| if at < done { '█' } else { '·' })
        .collect();
    let eta = match (records - written.min(records)).checked_div(rate) {
        Some(seconds) => format!("{}:{:02} left", seconds / 60, seconds % 60),
        None => "time left unknown".to_owned(),
    };
    let percent = written * 100 / records;
    format!("{bar} {percent:3} %  {rate}/s  {eta}{}", degraded(import))
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

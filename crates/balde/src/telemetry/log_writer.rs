//! The writer of log lines: bounded, and nobody waits for it.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::log_thread::{self, LogSource, Urgency};
use crate::clock::Stopwatch;

/// The most bytes of lines that wait to be written. Lines that do not fit are dropped and counted.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The log thread writes so many bytes at once: as many as a pipe holds by default.
const WRITE_BYTES: usize = 64 << 10;

/// How long a flush waits for the last lines, and how long for the next part of them.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);
const PROGRESS_WITHIN: Duration = Duration::from_millis(500);

/// While lines are dropped, their number is logged at most this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

static STDOUT: OnceLock<Arc<LineQueue>> = OnceLock::new();

/// A writer to standard output that never waits for it. Clones, and all other values of this type,
/// share one queue.
///
/// A thread takes lines out of the queue and writes them. Up to 4 MiB of lines wait; while nobody
/// reads standard output, further lines are dropped and counted ([`dropped_log_lines`](super::dropped_log_lines)), and their
/// number is logged once it is read again, at most once a second. Each call of
/// [`write`](Write::write) must contain whole lines.
#[derive(Clone)]
pub struct LogWriter(Arc<LineQueue>);

impl LogWriter {
    /// Returns the writer, and starts its thread at the first call.
    pub fn stdout() -> Self {
        let queue = STDOUT.get_or_init(|| {
            let queue = Arc::new(LineQueue::default());
            log_thread::add(Arc::clone(&queue) as Arc<dyn LogSource>);
            queue
        });
        Self(Arc::clone(queue))
    }

    /// Waits until all lines so far are written: for up to five seconds, and no longer than half a
    /// second after the reader has stopped reading. Returns whether they are written. Call it before
    /// the program ends.
    pub fn flush_all(&self) -> bool {
        let stopwatch = Stopwatch::start();
        loop {
            let before = self.0.written.load(Ordering::Relaxed);
            if log_thread::flush(PROGRESS_WITHIN) {
                return true;
            }
            let is_stuck = self.0.written.load(Ordering::Relaxed) == before;
            if is_stuck || stopwatch.elapsed() >= FLUSH_WITHIN {
                return false;
            }
        }
    }
}

/// Lines that wait to be written to standard output.
#[derive(Default)]
struct LineQueue {
    waiting: Mutex<Vec<u8>>,
    /// Bytes that were written.
    written: AtomicU64,
    /// Only the log thread locks it.
    reports: Mutex<DropReports>,
}

#[derive(Default)]
struct DropReports {
    /// How many dropped lines were logged.
    reported: u64,
    reported_at: Option<Stopwatch>,
}

impl LineQueue {
    /// Writes the lines that wait. Only the log thread calls this: it may wait for the writer.
    fn write_waiting(&self) -> usize {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let lines = waiting.split(|byte| *byte == b'\n').count() - 1;
        for part in waiting.chunks(WRITE_BYTES) {
            // A failure to log cannot be logged.
            let _lost = write_out(part);
            let bytes = u64::try_from(part.len()).unwrap_or(u64::MAX);
            self.written.fetch_add(bytes, Ordering::Relaxed);
        }
        lines
    }

    fn report_dropped(&self, urgency: Urgency) {
        let mut reports = self.reports.lock();
        let dropped = log_thread::dropped_lines();
        let is_due = urgency == Urgency::Flush
            || reports
                .reported_at
                .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if dropped == reports.reported || !is_due {
            return;
        }
        let since = dropped - reports.reported;
        reports.reported = dropped;
        reports.reported_at = Some(Stopwatch::start());
        drop(reports);
        tracing::warn!(
            target: "balde",
            event_type = "lines_dropped",
            dropped = since,
            "{since} log lines were dropped: standard output does not keep up"
        );
    }
}

impl LogSource for LineQueue {
    fn drain(&self, urgency: Urgency) -> usize {
        let lines = self.write_waiting();
        self.report_dropped(urgency);
        lines
    }

    fn finish(&self) {
        self.write_waiting();
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for LogWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting.lock();
        if log_thread::is_current() {
            waiting.extend_from_slice(lines);
            let is_enough = waiting.len() >= WRITE_BYTES;
            drop(waiting);
            if is_enough {
                self.0.write_waiting();
            }
            return Ok(lines.len());
        }
        if waiting.len() + lines.len() <= QUEUE_BYTES_MAX {
            waiting.extend_from_slice(lines);
        } else {
            log_thread::count_dropped_line();
        }
        drop(waiting);
        log_thread::wake_if_asleep();
        Ok(lines.len())
    }

    /// Does nothing: nobody waits for the thread that writes. [`LogWriter::flush_all`] does.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter").finish_non_exhaustive()
    }
}

fn write_out(lines: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines)?;
    stdout.flush()
}

//! Lines on standard output and standard error. A service never waits for a reader of either.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use balde::telemetry::LogWriter;

/// The longest wait for standard error.
const ERROR_WITHIN: Duration = Duration::from_millis(500);

/// Prints a line to standard output, in order with the log. A closed output is not an error.
pub(crate) fn print_line(line: impl Display) {
    let _queued = LogWriter::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Prints a line to standard error. If nobody reads that, the line is lost.
pub(crate) fn print_error(line: impl Display) {
    let line = format!("{line}\n");
    let (done, is_done) = mpsc::channel();
    let writing = std::thread::Builder::new().spawn(move || {
        let _closed = io::stderr().write_all(line.as_bytes());
        let _gave_up = done.send(());
    });
    if writing.is_ok() {
        let _or_not_in_time = is_done.recv_timeout(ERROR_WITHIN);
    }
}

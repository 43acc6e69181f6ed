//! Lines on standard output and standard error.
//!
//! A service never waits for a reader of either, and drops what nobody reads. A command that ends by
//! itself waits for its reader, as a pager may take its time. For both, a closed output is not an error:
//! `balde policies | head`.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use balde::telemetry::LogWriter;

/// The longest wait of a service for standard error.
const ERROR_WITHIN: Duration = Duration::from_millis(500);

/// Prints a line of a service to standard output, in order with the log.
pub(crate) fn print_line(line: impl Display) {
    let _queued = LogWriter::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Waits until the lines of a service are written, as far as somebody reads them.
pub(crate) fn flush_lines() {
    LogWriter::stdout().flush_all();
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

/// Writes the output of a command that ends by itself. Fails if the output cannot be written, as on a
/// full disk.
pub(crate) fn write_output(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("cannot write the output: {error}");
            Err(io::Error::new(error.kind(), message))
        }
        _ => Ok(()),
    }
}

/// Writes a message of a command that ends by itself to standard error. There is nobody to tell if that
/// fails.
pub(crate) fn write_error(text: &str) {
    let _closed = io::stderr().lock().write_all(text.as_bytes());
}

//! Lines on standard output.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Prints a line to standard output. A closed output is not an error.
pub(crate) fn print_line(line: impl Display) {
    let _closed = writeln!(io::stdout(), "{line}");
}

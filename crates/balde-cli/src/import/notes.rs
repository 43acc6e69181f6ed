//! What could not be imported.

use std::fmt;

/// A place in a file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
}

impl Place {
    pub(super) fn new(file: &str, line: usize) -> Self {
        Self {
            file: file.to_owned(),
            line,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A list for standard error, one line for each thing that could not be imported.
#[derive(Debug, Default)]
pub(super) struct Notes {
    lines: Vec<String>,
}

impl Notes {
    pub(super) fn add(&mut self, place: &Place, reason: impl fmt::Display) {
        self.lines.push(format!("{place}: not imported: {reason}"));
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

//! What is wrong, where, and how it is shown.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::mask::masked;

/// The most that are told at once. Whoever has made more will not read more.
const FAULTS_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    place: Place,
    message: String,
    shown: String,
}

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file.
    File {
        /// What it is called.
        name: String,
        /// The line, from one.
        line: usize,
        /// The column in characters, from one.
        column: usize,
    },
    /// The file as a whole.
    WholeFile {
        /// What it is called.
        name: String,
    },
    /// In the environment.
    Environment {
        /// Which variable.
        variable: &'static str,
    },
}

impl Fault {
    /// Where it is.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// What it is, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Fault {
    /// In one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { name, line, column } => write!(f, "{name}:{line}:{column}: ")?,
            Place::WholeFile { name } => write!(f, "{name}: ")?,
            Place::Environment { variable } => write!(f, "environment variable {variable}: ")?,
        }
        f.write_str(&self.message)
    }
}

/// All that is wrong with options. It is shown with the lines it is about; passwords are masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError {
    faults: Vec<Fault>,
}

impl OptionsError {
    /// Something is wrong with a file as a whole.
    pub fn of_file(name: &str, why: String) -> Self {
        let mut faults = Faults::new(name, "");
        faults.whole_file(why);
        faults.into_error()
    }

    /// One by one.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&fault.shown)?;
        }
        Ok(())
    }
}

impl std::error::Error for OptionsError {}

/// Collects what is wrong.
pub struct Faults<'a> {
    name: String,
    text: &'a str,
    masked: String,
    found: Vec<Fault>,
}

impl<'a> Faults<'a> {
    /// Nothing wrong yet with this text; `name` is what messages call it.
    pub fn new(name: &str, text: &'a str) -> Self {
        Self {
            name: name.escape_debug().to_string(),
            text,
            masked: masked(text),
            found: Vec::new(),
        }
    }

    /// Whether no more will be told.
    pub fn is_full(&self) -> bool {
        self.found.len() >= FAULTS_MAX
    }

    /// The text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// At a place in the file, or of the file as a whole.
    pub fn at(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        // Showing a line costs the whole file.
        if self.is_full() {
            return;
        }
        let message = message.into();
        let Some(span) = span.and_then(|span| self.within(span)) else {
            return self.whole_file(message);
        };
        let before = &self.text[..span.start];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[span.start..].find('\n');
        let end = end.map_or(self.text.len(), |newline| span.start + newline);
        let line = before.matches('\n').count() + 1;
        let place = Place::File {
            name: self.name.clone(),
            line,
            column: before[start..].chars().count() + 1,
        };
        // Only the line where it begins: the whole file would be searched for it every time.
        let marked = span.start - start..span.end.min(end) - start;
        let snippet = Snippet::source(&self.masked[start..end])
            .line_start(line)
            .path(&*self.name)
            .annotation(AnnotationKind::Primary.span(marked));
        let report = [Level::ERROR.primary_title(&*message).element(snippet)];
        let shown = Renderer::plain().render(&report);
        self.push(place, message, shown);
    }

    /// Of the file as a whole.
    pub fn whole_file(&mut self, message: impl Into<String>) {
        let message = message.into();
        let name = self.name.clone();
        let shown = format!("error: {name}: {message}");
        self.push(Place::WholeFile { name }, message, shown);
    }

    /// In a variable of the environment.
    pub fn in_environment(&mut self, variable: &'static str, message: impl Into<String>) {
        let message = message.into();
        let shown = format!("error: environment variable {variable}: {message}");
        self.push(Place::Environment { variable }, message, shown);
    }

    /// The value, if nothing is wrong.
    pub fn into_result<T>(self, value: T) -> Result<T, OptionsError> {
        if self.found.is_empty() {
            return Ok(value);
        }
        Err(self.into_error())
    }

    /// All that is wrong, in the order of the file.
    pub fn into_error(mut self) -> OptionsError {
        // In the order of the file, and the environment last.
        self.found.sort_by_key(|fault| match &fault.place {
            Place::WholeFile { .. } => (0, 0, 0),
            Place::File { line, column, .. } => (1, *line, *column),
            Place::Environment { .. } => (2, 0, 0),
        });
        OptionsError { faults: self.found }
    }

    fn push(&mut self, place: Place, message: String, shown: String) {
        let fault = Fault {
            place,
            message,
            shown,
        };
        if !self.is_full() && !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    /// The part of a span that is in the text, on whole characters.
    fn within(&self, span: Range<usize>) -> Option<Range<usize>> {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.ceil_char_boundary(span.end.min(self.text.len()));
        (!self.text.is_empty()).then_some(start..end.max(start))
    }
}

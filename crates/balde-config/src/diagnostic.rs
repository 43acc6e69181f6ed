//! Diagnostics: one problem, all problems, and their collector.

use std::collections::HashSet;
use std::fmt;

use crate::position::Position;
use crate::source::{Source, Span};

/// The most problems that a [`ConfigError`] reports; the rest are counted.
pub const DIAGNOSTICS_MAX: usize = 100;

/// The most problems that are kept before they are sorted. A file of 1 MiB can have half a million.
const COLLECTED_MAX: usize = 10_000;

/// One problem and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    position: Position,
    message: String,
}

impl Diagnostic {
    /// A problem at a position.
    pub fn new(position: Position, message: impl Into<String>) -> Self {
        Self {
            position,
            message: message.into(),
        }
    }

    /// Where the problem is.
    pub const fn position(&self) -> &Position {
        &self.position
    }

    /// What is wrong, and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The problem with the line that it is about, on several lines. Secrets are masked.
    pub fn render(&self) -> String {
        self.position.annotate(&self.message)
    }
}

impl fmt::Display for Diagnostic {
    /// On one line: `file:line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.position.prefix(), self.message)
    }
}

/// All problems of a file and its environment, in the order of the file.
///
/// `Display` shows each with its line; secrets are masked.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    diagnostics: Vec<Diagnostic>,
    omitted: usize,
}

impl ConfigError {
    /// The problems, at most [`DIAGNOSTICS_MAX`].
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// How many more problems there are.
    pub const fn omitted(&self) -> usize {
        self.omitted
    }
}

impl From<Diagnostic> for ConfigError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self {
            diagnostics: vec![diagnostic],
            omitted: 0,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str(&diagnostic.render())?;
        }
        match self.omitted {
            0 => Ok(()),
            1 => f.write_str("\n\nerror: 1 more problem is not shown"),
            more => write!(f, "\n\nerror: {more} more problems are not shown"),
        }
    }
}

impl fmt::Debug for ConfigError {
    /// The same text: a `main` that returns the error prints it like this, after `Error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for ConfigError {}

/// Collects the problems of one source and of the environment.
#[derive(Debug)]
pub struct Diagnostics {
    source: Source,
    found: Vec<Found>,
    omitted: usize,
    /// Definitions that could not be read, by kind and name; `None` for one whose name is not known.
    failed: Vec<(&'static str, Option<Box<str>>)>,
    /// Keys that were probably meant by unknown ones, with the section that has them.
    misspelled: Vec<(Option<Span>, &'static str)>,
}

/// A problem whose line and column are not computed yet: that costs a pass over the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Found {
    at: At,
    message: String,
}

/// In the order in which problems are reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum At {
    File,
    Span(Span),
    Variable(Box<str>),
}

impl Diagnostics {
    /// An empty collection for a source.
    pub fn new(source: &Source) -> Self {
        Self {
            source: source.clone(),
            found: Vec::new(),
            omitted: 0,
            failed: Vec::new(),
            misspelled: Vec::new(),
        }
    }

    /// The source that spans refer to.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Whether no problem has been reported.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Reports a problem at a span of the source; `None` stands for the file as a whole.
    pub fn at(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) {
        let at = span.into().map_or(At::File, At::Span);
        self.push(at, message.into());
    }

    /// The number of problems so far.
    pub fn len(&self) -> usize {
        self.found.len() + self.omitted
    }

    /// Notes that the definition of a name, such as an upstream's, could not be read, so that references
    /// to it are no further problems. `None` stands for a definition without a readable name.
    pub fn failed(&mut self, kind: &'static str, name: Option<&str>) {
        self.failed.push((kind, name.map(Into::into)));
    }

    /// Reports a reference to a name that nothing defines, unless a definition that could not be read
    /// may be the one.
    pub fn unknown(
        &mut self,
        kind: &'static str,
        name: &str,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) {
        let may_define = |(other, defined): &(&'static str, Option<Box<str>>)| {
            *other == kind && defined.as_deref().is_none_or(|defined| defined == name)
        };
        if !self.failed.iter().any(may_define) {
            self.at(span, message);
        }
    }

    /// Notes that an unknown key of a section probably is another one, which is then not missing.
    pub(crate) fn misspelled(&mut self, section: Option<Span>, key: &'static str) {
        self.misspelled.push((section, key));
    }

    /// Reports a problem with an environment variable.
    pub fn in_variable(&mut self, variable: &str, message: impl Into<String>) {
        self.push(At::Variable(variable.into()), message.into());
    }

    /// Adds the problems of an error about the same source.
    pub fn extend(&mut self, error: ConfigError) {
        self.omitted += error.omitted;
        for diagnostic in error.diagnostics {
            let position = &diagnostic.position;
            let at = match (position.variable(), position.span()) {
                (Some(variable), _) => At::Variable(variable.into()),
                (None, Some(span)) => At::Span(span),
                (None, None) => At::File,
            };
            self.push(at, diagnostic.message);
        }
    }

    /// Returns the value if no problem was reported.
    pub fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.is_empty() {
            return Ok(value);
        }
        Err(self.into_error())
    }

    /// Returns the problems: of the file as a whole, then in the order of the file, then of the
    /// environment.
    pub fn into_error(mut self) -> ConfigError {
        self.found.sort_by_key(|found| match &found.at {
            At::File => (0, 0),
            At::Span(span) => (1, span.start()),
            At::Variable(_) => (2, 0),
        });
        // The same mistake is reported once, as the unknown key.
        let misspelled = std::mem::take(&mut self.misspelled);
        self.found.retain(|found| {
            !misspelled.iter().any(|(section, key)| {
                let at = section.map_or(At::File, At::Span);
                found.at == at && found.message.starts_with(&format!("missing key `{key}`"))
            })
        });
        // A default that is read for several policies is reported once.
        let mut seen = HashSet::new();
        self.found.retain(|found| seen.insert(found.clone()));
        let omitted = self.omitted + self.found.len().saturating_sub(DIAGNOSTICS_MAX);
        self.found.truncate(DIAGNOSTICS_MAX);
        let source = &self.source;
        let diagnostics = self.found.into_iter().map(|found| {
            let position = match found.at {
                At::File => Position::whole_file(source),
                At::Span(span) => Position::in_source(source, span),
                At::Variable(name) => Position::in_variable(&name),
            };
            Diagnostic::new(position, found.message)
        });
        ConfigError {
            diagnostics: diagnostics.collect(),
            omitted,
        }
    }

    fn push(&mut self, at: At, message: String) {
        if self.found.len() < COLLECTED_MAX {
            self.found.push(Found { at, message });
        } else {
            self.omitted += 1;
        }
    }
}

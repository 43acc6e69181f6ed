//! Where a problem is: in a file, in a file as a whole, or in an environment variable.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::source::{Source, Span};

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Span {
        source: Source,
        span: Span,
        line: usize,
        column: usize,
    },
    File {
        source: Source,
    },
    Variable {
        name: Box<str>,
    },
}

impl Position {
    /// The position of some bytes of a source.
    pub fn in_source(source: &Source, span: Span) -> Self {
        let span = source.clamp(span);
        let before = &source.text()[..span.start()];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            kind: Kind::Span {
                source: source.clone(),
                span,
                line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
            },
        }
    }

    /// A source as a whole.
    pub fn whole_file(source: &Source) -> Self {
        Self {
            kind: Kind::File {
                source: source.clone(),
            },
        }
    }

    /// An environment variable.
    pub fn in_variable(name: &str) -> Self {
        Self {
            kind: Kind::Variable { name: name.into() },
        }
    }

    /// The name of the file, unless the position is an environment variable.
    pub fn file(&self) -> Option<&str> {
        match &self.kind {
            Kind::Span { source, .. } | Kind::File { source } => Some(source.name()),
            Kind::Variable { .. } => None,
        }
    }

    /// The line, counted from one.
    pub fn line(&self) -> Option<usize> {
        match &self.kind {
            Kind::Span { line, .. } => Some(*line),
            _ => None,
        }
    }

    /// The column, counted in characters from one.
    pub fn column(&self) -> Option<usize> {
        match &self.kind {
            Kind::Span { column, .. } => Some(*column),
            _ => None,
        }
    }

    /// The bytes in the file.
    pub fn span(&self) -> Option<Span> {
        match &self.kind {
            Kind::Span { span, .. } => Some(*span),
            _ => None,
        }
    }

    /// The name of the environment variable.
    pub fn variable(&self) -> Option<&str> {
        match &self.kind {
            Kind::Variable { name } => Some(name),
            _ => None,
        }
    }

    /// The message with the line it is about, as compilers show it.
    pub(crate) fn annotate(&self, message: &str) -> String {
        let Kind::Span {
            source, span, line, ..
        } = &self.kind
        else {
            let prefix = self.prefix();
            return format!("error: {prefix}{message}");
        };
        let text = source.text();
        let line_start = text[..span.start()]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let line_end = text[span.start()..].find('\n');
        let line_end = line_end.map_or(text.len(), |newline| span.start() + newline);
        // Only the line where the span begins: rendering costs the length of what it is given.
        let marked = span.start() - line_start..span.end().min(line_end) - line_start;
        let path = match source.name() {
            "" => None,
            name => Some(name),
        };
        let snippet = Snippet::source(&source.masked()[line_start..line_end])
            .line_start(*line)
            .path(path)
            .annotation(AnnotationKind::Primary.span(marked));
        let report = [Level::ERROR.primary_title(message).element(snippet)];
        Renderer::plain().render(&report)
    }

    /// What comes before a message on one line.
    pub(crate) fn prefix(&self) -> String {
        match self.to_string() {
            position if position.is_empty() => position,
            position => format!("{position}: "),
        }
    }
}

impl fmt::Display for Position {
    /// `file:line:column`, `file`, or `environment variable NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Span {
                source,
                line,
                column,
                ..
            } => match source.name() {
                "" => write!(f, "{line}:{column}"),
                name => write!(f, "{name}:{line}:{column}"),
            },
            Kind::File { source } => f.write_str(source.name()),
            Kind::Variable { name } => write!(f, "environment variable {name}"),
        }
    }
}

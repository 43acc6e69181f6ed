//! The text of a file and the ranges of bytes in it.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::mask::masked;

/// The largest file that is parsed, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A range of bytes in the text of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The offset of the first byte.
    pub const fn start(self) -> usize {
        self.start
    }

    /// The offset after the last byte.
    pub const fn end(self) -> usize {
        self.end
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self {
            start: range.start,
            end: range.end,
        }
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start..span.end
    }
}

/// The name and text of a file. Clones share the text.
#[derive(Clone)]
pub struct Source {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    text: String,
    /// Only needed once something is wrong.
    masked: OnceLock<String>,
}

impl Source {
    /// A text that is in memory; `name` is the file name in messages.
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                // A file name may contain control characters, and messages go to terminals.
                name: name.escape_debug().to_string(),
                text: text.into(),
                masked: OnceLock::new(),
            }),
        }
    }

    /// A text without a file: positions are shown as line and column only.
    pub fn unnamed(text: impl Into<String>) -> Self {
        Self::new("", text)
    }

    /// The file name; empty for an unnamed source.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The text, secrets included.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// The text with secrets replaced by asterisks, byte for byte.
    pub(crate) fn masked(&self) -> &str {
        self.inner.masked.get_or_init(|| masked(self.text()))
    }

    /// The part of a span that is inside the text, widened to whole characters.
    pub(crate) fn clamp(&self, span: Span) -> Span {
        let text = self.text();
        let start = text.floor_char_boundary(span.start);
        let end = text.ceil_char_boundary(span.end.min(text.len()));
        Span {
            start,
            end: end.max(start),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain secrets.
        f.debug_struct("Source")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || (self.name() == other.name() && self.text() == other.text())
    }
}

impl Eq for Source {}

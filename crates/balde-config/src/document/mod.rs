//! A parsed TOML file whose tables and values carry their positions.

mod duration;
mod limit;
mod renamed;
mod section;
mod units;
mod value;

pub use duration::parse_duration;
pub use section::Section;
pub use value::{Located, Value};

use std::fmt;

use toml::Spanned;
use toml::de::DeTable;

use crate::diagnostic::{ConfigError, Diagnostics};
use crate::read::too_large;
use crate::source::{FILE_BYTES_MAX, Source, Span};

/// A parsed TOML file.
pub struct Document<'s> {
    table: Spanned<DeTable<'s>>,
}

impl<'s> Document<'s> {
    /// Parses a source. Returns `None` if it is not valid TOML; every syntax error is reported to
    /// `diagnostics`.
    pub fn parse(source: &'s Source, diagnostics: &mut Diagnostics) -> Option<Self> {
        let text = source.text();
        if text.len() > FILE_BYTES_MAX {
            diagnostics.at(None, too_large());
            return None;
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            diagnostics.at(error.span().map(Span::from), error.message());
        }
        errors.is_empty().then_some(Self { table })
    }

    /// Parses a source and passes its root table to `read`. Returns the result of `read`, or every
    /// problem that was reported. If the source is not valid TOML, `read` is not called: its
    /// messages about a broken file would mislead.
    pub fn read<T>(
        source: &'s Source,
        mut diagnostics: Diagnostics,
        read: impl FnOnce(Section<'_>, &mut Diagnostics) -> T,
    ) -> Result<T, ConfigError> {
        let Some(document) = Self::parse(source, &mut diagnostics) else {
            return Err(diagnostics.into_error());
        };
        let value = read(document.root(), &mut diagnostics);
        diagnostics.into_result(value)
    }

    /// The root table.
    pub fn root(&self) -> Section<'_> {
        Section::root(self.table.get_ref())
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be secrets.
        f.debug_struct("Document").finish_non_exhaustive()
    }
}

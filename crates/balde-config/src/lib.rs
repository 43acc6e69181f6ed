//! Configuration files in TOML, with every problem reported at once.
//!
//! A [`Document`] is parsed from a [`Source`]; its keys are taken out of [`Section`]s one by one.
//! Whatever is wrong goes into [`Diagnostics`] with the position of the offending value, and keys
//! that were never taken are reported with a suggestion. The resulting [`ConfigError`] shows each
//! problem with its line; secrets in those lines are masked.
//!
//! ```
//! use balde_config::{Diagnostics, Document, Source};
//!
//! let source = Source::new("example.toml", "listen = 8080\nworkes = 2\n");
//! let error = Document::read(&source, Diagnostics::new(&source), |mut root, diagnostics| {
//!     let listen = root.string("listen", diagnostics);
//!     let workers = root.integer("workers", 1..=8, diagnostics);
//!     root.finish(diagnostics);
//!     Some((listen?.value.to_owned(), workers?.value))
//! })
//! .unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "\
//! error: `listen` must be a string, not an integer
//!  --> example.toml:1:10
//!   |
//! 1 | listen = 8080
//!   |          ^^^^
//!
//! error: unknown key `workes`; did you mean `workers`?
//!  --> example.toml:2:1
//!   |
//! 2 | workes = 2
//!   | ^^^^^^",
//! );
//! ```
//!
//! | Name | What it is |
//! |--|--|
//! | [`Source`] | the name and text of a file |
//! | [`Document`], [`Section`], [`Value`] | the parsed file, one of its tables, one of its values |
//! | [`Located`], [`Span`] | a value with the bytes it was read from |
//! | [`Environment`] | environment variables, with the same limits and messages |
//! | [`Resolver`] | files and environment variables that values refer to |
//! | [`Diagnostics`] | collects problems while a document is read |
//! | [`ConfigError`], [`Diagnostic`], [`Position`] | all problems; one problem; where it is |

mod diagnostic;
mod document;
mod environment;
mod mask;
mod position;
mod read;
mod resolver;
mod source;
mod suggest;

pub use diagnostic::{ConfigError, DIAGNOSTICS_MAX, Diagnostic, Diagnostics};
pub use document::{Document, Located, Section, Value, parse_duration};
pub use environment::{Environment, VARIABLE_BYTES_MAX, VariableError};
pub use position::Position;
pub use resolver::Resolver;
pub use source::{FILE_BYTES_MAX, Source, Span};
pub use suggest::nearest;

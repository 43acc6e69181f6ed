//! One spelling for each path, so that no other spelling of a path escapes a rule.
//!
//! Two servers that disagree about the spelling of a path disagree about which rule counts it. A path
//! is therefore compared in one normal form (RFC 3986, section 6.2.2), and a path that servers are
//! known to read in different ways is refused.

mod error;
mod rules;
mod spelling;

pub use error::PathError;
pub use rules::{DotSegments, PathRules, Permission};
pub(crate) use spelling::spelled_literal;

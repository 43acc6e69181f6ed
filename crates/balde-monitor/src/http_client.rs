//! Shared by all HTTP clients of the monitor: the causes of errors.

use std::error::Error;

/// Returns the root cause of an error: the most specific message, and one without the URL, which may
/// hold a secret.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

//! How values are encoded in columns: structures as JSON text, severities as numbers.

use super::error::HistoryError;
use crate::severity::Severity;

pub(super) fn to_json(value: &impl serde::Serialize) -> Result<String, HistoryError> {
    serde_json::to_string(value).map_err(|error| HistoryError::Rejected {
        reason: error.to_string(),
    })
}

/// Decodes JSON; `what` names the value in the error.
pub(super) fn from_json<T: serde::de::DeserializeOwned>(
    what: &str,
    text: &str,
) -> Result<T, HistoryError> {
    serde_json::from_str(text).map_err(|error| HistoryError::Corrupt {
        reason: format!("{what}: {error}"),
    })
}

/// Decodes a severity from its number.
pub(super) fn severity(number: i64) -> Result<Severity, HistoryError> {
    let mut all = Severity::ALL.into_iter();
    let found = all.find(|severity| *severity as i64 == number);
    found.ok_or_else(|| HistoryError::Corrupt {
        reason: format!("{number} is not a severity"),
    })
}

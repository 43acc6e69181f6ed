//! Why the directory does not carry out an operation.

use thiserror::Error;

use super::store::RecordStoreError;
use crate::wire::Problem;

/// Why the directory does not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum DirectoryError {
    /// DICT's rules do not allow it.
    #[error("{0}")]
    Rejected(Problem),
    /// The store failed or is unavailable.
    #[error(transparent)]
    Store(#[from] RecordStoreError),
}

impl DirectoryError {
    /// A rejection with status 400, one of DICT's error types and an explanation.
    pub(super) fn rejected(error_type: &str, detail: &str) -> Self {
        Self::Rejected(Problem::new(400, error_type).with_detail(detail))
    }

    /// The problem document to answer with.
    pub(crate) fn into_problem(self) -> Problem {
        match self {
            Self::Rejected(problem) => problem,
            Self::Store(error) => Problem::unavailable(error.to_string()),
        }
    }
}

impl From<Problem> for DirectoryError {
    fn from(problem: Problem) -> Self {
        Self::Rejected(problem)
    }
}

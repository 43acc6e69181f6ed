//! Errors of the history, and how errors of the two databases map to them.

use std::future::Future;
use std::time::Duration;

use sqlx::Error;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

/// The longest that a statement may take before the connection counts as lost. The server's own
/// `statement_timeout` is shorter, so this applies only when the server does not respond at all.
const RESPONSE_MAX: Duration = Duration::from_secs(40);

/// Why a call to the history failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The address of the database is neither a file nor a `postgres://` URL.
    #[error("invalid address of the history: {reason}")]
    Address {
        /// What is wrong with it, without its password.
        reason: String,
    },
    /// The database cannot be reached, or the connection was lost. A later call may succeed.
    #[error("the history's database is unavailable: {reason}")]
    Unavailable {
        /// The error of the database or the network.
        reason: String,
    },
    /// The database rejected the request. The same call will be rejected again.
    #[error("the history's database rejected the request: {reason}")]
    Rejected {
        /// The error message of the database.
        reason: String,
    },
    /// Another monitor committed in between, so the update was computed from an old version.
    #[error("another monitor committed first; compute the update again from the current state")]
    Conflict,
    /// Another process has opened the file.
    #[error("{path} is in use by another monitor; stop that one, or name another file")]
    InUse {
        /// The path of the file.
        path: String,
    },
    /// The file is damaged, or a row in the database cannot be decoded.
    #[error("the history's database is damaged: {reason}")]
    Corrupt {
        /// Which value, and what is wrong with it.
        reason: String,
    },
}

impl HistoryError {
    /// Returns true if the same call may succeed later without any change by an operator.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Conflict)
    }

    pub(super) fn from_sql(error: Error) -> Self {
        match error {
            Error::Database(error) => from_database(&*error),
            Error::PoolTimedOut => Self::Unavailable {
                reason: "no connection became free in time".to_owned(),
            },
            Error::PoolClosed => Self::Rejected {
                reason: "the history was closed".to_owned(),
            },
            Error::Configuration(error) => Self::Address {
                reason: error.to_string(),
            },
            Error::Migrate(error) => Self::from_migration(*error),
            error @ (Error::ColumnDecode { .. }
            | Error::Decode(_)
            | Error::ColumnNotFound(_)
            | Error::ColumnIndexOutOfBounds { .. }
            | Error::TypeNotFound { .. }
            | Error::RowNotFound) => Self::Corrupt {
                reason: error.to_string(),
            },
            error @ (Error::Encode(_) | Error::InvalidArgument(_)) => Self::Rejected {
                reason: error.to_string(),
            },
            // Everything else is some form of a broken connection.
            error => Self::Unavailable {
                reason: error.to_string(),
            },
        }
    }

    pub(super) fn from_migration(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) => Self::from_sql(error),
            MigrateError::ExecuteMigration(error, number) => match Self::from_sql(error) {
                Self::Rejected { reason } => Self::Rejected {
                    reason: format!("migration {number}: {reason}"),
                },
                other => other,
            },
            MigrateError::VersionMissing(number) => Self::Rejected {
                reason: format!(
                    "it was made by a newer version of balde (this one does not know its \
                     migration {number}); run that version, or use another database"
                ),
            },
            MigrateError::VersionMismatch(number) => Self::Corrupt {
                reason: format!(
                    "its migration {number} differs from the one of this version of balde; run \
                     the version that made it, or use another database"
                ),
            },
            error => Self::Rejected {
                reason: error.to_string(),
            },
        }
    }
}

/// Waits for a database call, and gives up after [`RESPONSE_MAX`].
pub(super) async fn with_timeout<T>(
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, HistoryError> {
    match tokio::time::timeout(RESPONSE_MAX, call).await {
        Ok(result) => result.map_err(HistoryError::from_sql),
        Err(_) => Err(HistoryError::Unavailable {
            reason: format!("no response within {} s", RESPONSE_MAX.as_secs()),
        }),
    }
}

fn from_database(error: &dyn DatabaseError) -> HistoryError {
    let code = error.code().unwrap_or_default().into_owned();
    let reason = error.message().to_owned();
    if is_corruption(&code) {
        HistoryError::Corrupt { reason }
    } else if is_transient_code(&code) {
        HistoryError::Unavailable { reason }
    } else {
        HistoryError::Rejected { reason }
    }
}

/// Returns true if the same statement may be accepted later. `PostgreSQL` has codes of five
/// characters, `SQLite` numbers whose low byte is the primary result code.
fn is_transient_code(code: &str) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const READ_ONLY: u32 = 8;
    const IO: u32 = 10;
    const FULL: u32 = 13;
    const CANNOT_OPEN: u32 = 14;
    const PROTOCOL: u32 = 15;
    if code.len() == 5 {
        // Connection exceptions; the server stops, starts or is short of resources; a read-only
        // standby after a failover; serialization failures, deadlocks and lock timeouts.
        ["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class))
            || ["25006", "40001", "40P01", "55P03"].contains(&code)
    } else {
        let transient = [BUSY, LOCKED, READ_ONLY, IO, FULL, CANNOT_OPEN, PROTOCOL];
        primary(code).is_some_and(|code| transient.contains(&code))
    }
}

/// Returns true if the file is damaged, or is no `SQLite` file.
fn is_corruption(code: &str) -> bool {
    const CORRUPT: u32 = 11;
    const NOT_A_DATABASE: u32 = 26;
    // XX001 and XX002: a damaged table or index of PostgreSQL.
    code == "XX001"
        || code == "XX002"
        || code.len() < 5
            && primary(code).is_some_and(|code| [CORRUPT, NOT_A_DATABASE].contains(&code))
}

/// The primary result code of `SQLite`.
fn primary(code: &str) -> Option<u32> {
    code.parse::<u32>().ok().map(|code| code & 0xff)
}

#[cfg(test)]
mod tests {
    use super::is_transient_code;

    #[test]
    fn transient_error_codes_are_recognised() {
        for code in [
            "57P01", "08006", "53300", "40P01", "55P03", "25006", "5", "517", "13", "8", "1032",
        ] {
            assert!(is_transient_code(code), "{code}");
        }
        // A wrong password, no such database, a constraint, no such table, not a database.
        for code in ["28P01", "3D000", "23505", "42P01", "26", "1", "1555", ""] {
            assert!(!is_transient_code(code), "{code}");
        }
    }
}

//! What went wrong in a database, in the limit of history.

use sqlx::Error;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use super::records::HistoryError;

impl HistoryError {
    pub(super) fn from_sql(error: Error) -> Self {
        match error {
            Error::Database(said) => from_said(&*said),
            Error::PoolTimedOut => Self::Unavailable {
                why: "no connection within the time".to_owned(),
            },
            Error::PoolClosed => Self::Rejected {
                why: "it was closed".to_owned(),
            },
            Error::Configuration(why) => Self::Address {
                why: why.to_string(),
            },
            Error::Migrate(error) => Self::from_migration(*error),
            error @ (Error::ColumnDecode { .. }
            | Error::Decode(_)
            | Error::ColumnNotFound(_)
            | Error::ColumnIndexOutOfBounds { .. }
            | Error::TypeNotFound { .. }
            | Error::RowNotFound) => Self::Corrupt {
                why: error.to_string(),
            },
            error @ (Error::Encode(_) | Error::InvalidArgument(_)) => Self::Rejected {
                why: error.to_string(),
            },
            // A broken connection, in whichever words.
            error => Self::Unavailable {
                why: error.to_string(),
            },
        }
    }

    pub(super) fn from_migration(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) => Self::from_sql(error),
            MigrateError::ExecuteMigration(error, number) => match Self::from_sql(error) {
                Self::Rejected { why } => Self::Rejected {
                    why: format!("migration {number}: {why}"),
                },
                other => other,
            },
            MigrateError::VersionMissing(number) => Self::Rejected {
                why: format!(
                    "it was made by a newer version of balde (its migration {number} is unknown \
                     here); run that version, or another database"
                ),
            },
            MigrateError::VersionMismatch(number) => Self::Corrupt {
                why: format!(
                    "migration {number} was applied in another form than this version of balde \
                     has; run the version that made it, or another database"
                ),
            },
            error => Self::Rejected {
                why: error.to_string(),
            },
        }
    }
}

fn from_said(said: &dyn DatabaseError) -> HistoryError {
    let code = said.code().unwrap_or_default().into_owned();
    let why = said.message().to_owned();
    if may_pass(&code) {
        HistoryError::Unavailable { why }
    } else {
        HistoryError::Rejected { why }
    }
}

/// Whether the same statement may be accepted later. `PostgreSQL` has five characters for everything
/// that can happen, `SQLite` a number whose low byte is the kind.
fn may_pass(code: &str) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const IO: u32 = 10;
    const FULL: u32 = 13;
    const CANNOT_OPEN: u32 = 14;
    if code.len() == 5 {
        // No connection; the server stops, starts, is short of something; a standby after a
        // failover; a deadlock; a lock or an answer that took too long.
        ["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class))
            || ["25006", "40001", "40P01", "55P03"].contains(&code)
    } else {
        let kind = code.parse::<u32>().map(|code| code & 0xff);
        kind.is_ok_and(|kind| [BUSY, LOCKED, IO, FULL, CANNOT_OPEN].contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::may_pass;

    #[test]
    fn what_may_pass_by_itself_is_told_from_what_will_not() {
        for code in [
            "57P01", "08006", "53300", "40P01", "55P03", "25006", "5", "517", "13",
        ] {
            assert!(may_pass(code), "{code}");
        }
        // A wrong password, no such database, a constraint, no such table, not a database.
        for code in ["28P01", "3D000", "23505", "42P01", "26", "1", "1555", ""] {
            assert!(!may_pass(code), "{code}");
        }
    }
}

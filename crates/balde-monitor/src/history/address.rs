//! The address of a history's database: a file or a `PostgreSQL` URL.

use super::error::HistoryError;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address<'a> {
    File(&'a str),
    Postgres(&'a str),
}

impl<'a> Address<'a> {
    pub(super) fn parse(address: &'a str) -> Result<Self, HistoryError> {
        let invalid = |reason: &str| {
            Err(HistoryError::Address {
                reason: reason.to_owned(),
            })
        };
        if address.starts_with("postgres://") || address.starts_with("postgresql://") {
            return Ok(Self::Postgres(address));
        }
        let path = match address.strip_prefix("sqlite:") {
            Some(path) => path.strip_prefix("//").unwrap_or(path),
            None if address.contains("://") => {
                return invalid(
                    "it is neither a file, such as monitor.db, nor a URL that begins with \
                     postgres://",
                );
            }
            None => address,
        };
        if path.is_empty() {
            return invalid("it is empty; name a file, such as monitor.db");
        }
        if path == ":memory:" {
            return invalid("a database in memory is lost when the monitor stops; name a file");
        }
        if path.contains('\0') {
            return invalid("it contains a NUL character");
        }
        Ok(Self::File(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_postgres_urls_are_addresses_and_nothing_else_is() {
        use Address::{File, Postgres};
        for (text, expected) in [
            ("monitor.db", File("monitor.db")),
            ("sqlite:monitor.db", File("monitor.db")),
            ("sqlite:///var/lib/monitor.db", File("/var/lib/monitor.db")),
            ("postgres://u:p@h/d", Postgres("postgres://u:p@h/d")),
            ("postgresql://h/d", Postgres("postgresql://h/d")),
        ] {
            assert_eq!(Address::parse(text).unwrap(), expected);
        }
        for text in [
            "",
            "sqlite:",
            ":memory:",
            "sqlite::memory:",
            "mysql://u:secret@h/d",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(matches!(error, HistoryError::Address { .. }));
            assert!(!error.to_string().contains("secret"));
        }
    }
}

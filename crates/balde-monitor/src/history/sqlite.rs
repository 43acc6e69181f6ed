//! A history in a file, owned by one process.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::migrations;
use super::records::HistoryError;

const READERS_MAX: u32 = 4;
const BUSY_MAX: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// One connection that writes and some that read: a reader never waits for the writer, and writers
/// wait for their turn instead of being refused.
#[derive(Clone)]
pub(super) struct Pools {
    writer: SqlitePool,
    readers: SqlitePool,
    path: Arc<Path>,
    lock: Arc<File>,
}

impl Pools {
    pub(super) async fn open(path: &str) -> Result<Self, HistoryError> {
        let path = PathBuf::from(path);
        check(&path)?;
        let lock = own(&path)?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // In full: a commit that a power cut takes back would be an alert that was delivered
            // and is raised again, or a message that is lost. There is a commit every few seconds
            // at most, so that what it costs does not matter.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_MAX)
            .foreign_keys(true)
            .disable_statement_logging();
        let pool = || {
            SqlitePoolOptions::new()
                .acquire_timeout(WAIT_MAX)
                .idle_timeout(None)
                .max_lifetime(None)
        };
        let writer = pool().max_connections(1).connect_with(options.clone());
        let writer = writer.await.map_err(HistoryError::from_sql)?;
        let migrated = migrations::sqlite().run(&writer).await;
        migrated.map_err(HistoryError::from_migration)?;
        let readers = pool()
            .max_connections(READERS_MAX)
            .connect_with(options.pragma("query_only", "ON"));
        Ok(Self {
            writer,
            readers: readers.await.map_err(HistoryError::from_sql)?,
            path: path.into(),
            lock: Arc::new(lock),
        })
    }

    pub(super) const fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    pub(super) const fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Somebody else may have the file from now on.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        // Closing the last handle would do it too. An error leaves it to that.
        let _ = self.lock.unlock();
    }
}

fn check(path: &Path) -> Result<(), HistoryError> {
    let refused = |why| Err(HistoryError::Address { why });
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return refused(format!(
            "there is no folder {}; make it first, or name another file",
            parent.display()
        ));
    }
    if path.is_dir() {
        return refused(format!("{} is a folder, not a file", path.display()));
    }
    Ok(())
}

/// A lock beside the file, for as long as the handle lives. The file itself cannot be locked that
/// way: closing any handle of it would take away the locks of `SQLite`.
fn own(path: &Path) -> Result<File, HistoryError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let beside = PathBuf::from(name);
    let refused = |error: std::io::Error| HistoryError::Rejected {
        why: format!("{}: {error}", beside.display()),
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&beside);
    let file = file.map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HistoryError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

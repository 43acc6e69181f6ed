//! The connections to a `SQLite` file, which only one process opens at a time.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::error::HistoryError;
use super::migrations;

const READERS_MAX: u32 = 4;
const BUSY_MAX: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// One writing connection and a few that read. Readers never wait for the writer (WAL mode), and
/// writers queue for the connection instead of failing with `SQLITE_BUSY`.
#[derive(Clone)]
pub(super) struct Pools {
    writer: SqlitePool,
    readers: SqlitePool,
    path: Arc<Path>,
    lock: Arc<File>,
}

impl Pools {
    /// Opens the file. `held` are the connections of this process to be replaced, if there are any,
    /// whose lock is kept.
    pub(super) async fn open(path: &str, held: Option<&Self>) -> Result<Self, HistoryError> {
        let path = PathBuf::from(path);
        check(&path)?;
        let lock = match held {
            Some(held) if is_same_file(&held.lock, &lock_path(&path)) => Arc::clone(&held.lock),
            _ => Arc::new(lock(&path)?),
        };
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // FULL, because a commit that is lost in a power failure could lose an alert or send it
            // twice. There is at most one commit every few seconds, so the cost does not matter.
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
        let migrated = migrations::with_progress(migrations::sqlite().run(&writer)).await;
        migrated.map_err(HistoryError::from_migration)?;
        let readers = pool()
            .max_connections(READERS_MAX)
            .connect_with(options.pragma("query_only", "ON"));
        Ok(Self {
            writer,
            readers: readers.await.map_err(HistoryError::from_sql)?,
            path: path.into(),
            lock,
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

    /// Closes all connections, but keeps the file locked.
    pub(super) async fn close_connections(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Closes all connections and releases the file.
    pub(super) async fn close(&self) {
        self.close_connections().await;
        // If this fails, the lock is released when the last handle is dropped.
        let _ = self.lock.unlock();
    }
}

fn check(path: &Path) -> Result<(), HistoryError> {
    let invalid = |reason| Err(HistoryError::Address { reason });
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return invalid(format!(
            "the folder {} does not exist; create it, or name another file",
            parent.display()
        ));
    }
    if path.is_dir() {
        return invalid(format!("{} is a folder, not a file", path.display()));
    }
    Ok(())
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Returns true if `path` still names the open file, and not a file that has replaced it.
#[cfg(unix)]
fn is_same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |data: std::fs::Metadata| (data.dev(), data.ino());
    let open = open.metadata().map(id).ok();
    open.is_some() && open == path.metadata().map(id).ok()
}

#[cfg(not(unix))]
fn is_same_file(_open: &File, path: &Path) -> bool {
    path.exists()
}

/// Locks a file beside the database for as long as the returned handle lives. The database itself
/// cannot be locked this way: closing any handle of it would release the locks of `SQLite`.
fn lock(path: &Path) -> Result<File, HistoryError> {
    let lock_path = lock_path(path);
    let failed = |error: std::io::Error| {
        let reason = format!("{}: {error}", lock_path.display());
        if is_lasting(&error) {
            HistoryError::Rejected { reason }
        } else {
            HistoryError::Unavailable { reason }
        }
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HistoryError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Returns true for errors that only a change of the path or its permissions ends. Others, such as a
/// full disk, a read-only file system or an I/O error, may end by themselves.
fn is_lasting(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, PermissionDenied};
    matches!(
        error.kind(),
        InvalidFilename | IsADirectory | NotADirectory | PermissionDenied
    )
}

//! Where a story takes database.

use std::sync::Arc;

use balde_monitor::history::History;
use tempfile::TempDir;

use crate::postgres::Postgres;

/// An empty database, gone when dropped.
pub(crate) struct TestDatabase {
    address: String,
    kept: Kept,
}

enum Kept {
    Folder(#[expect(dead_code, reason = "kept until the story is over")] TempDir),
    Server(#[expect(dead_code, reason = "kept until the story is over")] Arc<Postgres>),
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("monitor.db");
        Self {
            address: file.to_str().expect("a path in UTF-8").to_owned(),
            kept: Kept::Folder(folder),
        }
    }

    /// Nothing where there is no `PostgreSQL`.
    pub(crate) fn postgres() -> Option<Self> {
        let server = Postgres::shared()?;
        Some(Self {
            address: server.database(),
            kept: Kept::Server(server),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn open(&self) -> History {
        History::open(&self.address).await.expect("a history")
    }

    /// What another monitor would have: a handle of its own where the database allows it.
    pub(crate) async fn another(&self, history: &History) -> History {
        match self.kept {
            Kept::Folder(_) => history.clone(),
            Kept::Server(_) => self.open().await,
        }
    }
}

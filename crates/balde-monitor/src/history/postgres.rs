//! The connections to a `PostgreSQL` database.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use super::error::{HistoryError, with_timeout};
use super::migrations;

const CONNECTIONS_MAX: u32 = 8;
/// Short, so that an unavailable server is noticed within one cycle.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Long, because a monitor may have to wait while another one migrates.
const MIGRATE_MAX: Duration = Duration::from_secs(600);
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Settings of every session. The timeouts end statements that take too long. The keepalives make
/// the server notice a lost monitor soon, because its locks last as long as its connection.
const SESSION: [(&str, &str); 7] = [
    ("application_name", "balde-monitor"),
    ("statement_timeout", "30s"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
];

pub(super) struct Server {
    pool: PgPool,
    options: PgConnectOptions,
    /// Without the timeouts of `SESSION`.
    plain: PgConnectOptions,
}

impl Server {
    pub(super) async fn open(url: &str) -> Result<Self, HistoryError> {
        let options = PgConnectOptions::from_str(url).map_err(HistoryError::from_sql)?;
        let options = options.disable_statement_logging();
        migrate(&options, &migrations::postgres()).await?;
        let plain = options.clone();
        let options = options.options(SESSION);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECT_MAX)
            .idle_timeout(IDLE_MAX)
            .connect_with(options.clone());
        Ok(Self {
            pool: with_timeout(pool).await?,
            options,
            plain,
        })
    }

    /// Migrates the schema, which may have been restored from an older backup.
    pub(super) async fn migrate(&self, migrator: &Migrator) -> Result<(), HistoryError> {
        migrate(&self.plain, migrator).await
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Opens a connection outside of the pool.
    pub(super) async fn connect(&self) -> Result<PgConnection, HistoryError> {
        connect(&self.options).await
    }

    /// Returns host, port and database, without user and password.
    pub(super) fn address(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        format!(
            "{}:{}/{database}",
            self.options.get_host(),
            self.options.get_port()
        )
    }
}

/// Runs without the timeouts of `SESSION`: migrations are rare and may take long.
async fn migrate(options: &PgConnectOptions, migrator: &Migrator) -> Result<(), HistoryError> {
    let mut connection = connect(options).await?;
    let migrating = migrations::with_progress(migrator.run(&mut connection));
    match tokio::time::timeout(MIGRATE_MAX, migrating).await {
        Ok(migrated) => migrated.map_err(HistoryError::from_migration)?,
        Err(_) => {
            return Err(HistoryError::Unavailable {
                reason: "another monitor has been migrating the schema for too long".to_owned(),
            });
        }
    }
    // An error does not matter: this connection is no longer needed.
    let _ = connection.close().await;
    Ok(())
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, HistoryError> {
    match tokio::time::timeout(CONNECT_MAX, options.connect()).await {
        Ok(connection) => connection.map_err(HistoryError::from_sql),
        Err(_) => Err(HistoryError::Unavailable {
            reason: format!("no connection within {} s", CONNECT_MAX.as_secs()),
        }),
    }
}

//! A history in a `PostgreSQL` database, which several monitors may share.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use super::database::answered;
use super::migrations;
use super::records::HistoryError;

const CONNECTIONS_MAX: u32 = 8;
/// A server that is away shall be noticed within a cycle.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Whoever migrates first makes the others wait.
const MIGRATE_MAX: Duration = Duration::from_secs(600);
const IDLE_MAX: Duration = Duration::from_secs(300);

/// What every session asks of the server: to give up on what takes too long, and to notice soon
/// that a monitor is gone, because its locks last as long as its connection.
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
}

impl Server {
    pub(super) async fn open(url: &str) -> Result<Self, HistoryError> {
        let options = PgConnectOptions::from_str(url).map_err(HistoryError::from_sql)?;
        let options = options.disable_statement_logging();
        // Without the limits below: what a migration does, it does once.
        let mut connection = connect(&options).await?;
        let migrator = migrations::postgres();
        match tokio::time::timeout(MIGRATE_MAX, migrator.run(&mut connection)).await {
            Ok(migrated) => migrated.map_err(HistoryError::from_migration)?,
            Err(_) => {
                return Err(HistoryError::Unavailable {
                    why: "its tables are being changed by somebody else for too long".to_owned(),
                });
            }
        }
        // An error here is that of a connection that is no longer needed.
        let _ = connection.close().await;
        let options = options.options(SESSION);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECT_MAX)
            .idle_timeout(IDLE_MAX)
            .connect_with(options.clone());
        Ok(Self {
            pool: answered(pool).await?,
            options,
        })
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// A connection of its own, outside of the pool.
    pub(super) async fn connect(&self) -> Result<PgConnection, HistoryError> {
        connect(&self.options).await
    }

    /// Where it is, without user and password.
    pub(super) fn place(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        format!(
            "{}:{}/{database}",
            self.options.get_host(),
            self.options.get_port()
        )
    }
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, HistoryError> {
    match tokio::time::timeout(CONNECT_MAX, options.connect()).await {
        Ok(connection) => connection.map_err(HistoryError::from_sql),
        Err(_) => Err(HistoryError::Unavailable {
            why: format!("no connection within {} s", CONNECT_MAX.as_secs()),
        }),
    }
}

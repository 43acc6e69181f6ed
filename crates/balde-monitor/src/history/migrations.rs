//! The database schema, as numbered migrations. Once released, a migration is never changed.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

macro_rules! migrations {
    ($($number:literal $name:literal $path:literal),* $(,)?) => {
        Migrator::with_migrations(vec![$(Migration::new(
            $number,
            $name.into(),
            MigrationType::Simple,
            include_str!(concat!("../../migrations/", $path)).into_sql_str(),
            false,
        )),*])
    };
}

pub(super) fn sqlite() -> Migrator {
    migrations![
        1 "samples" "sqlite/0001_samples.sql",
        2 "alerts" "sqlite/0002_alerts.sql",
        3 "write probe" "sqlite/0003_write_probe.sql",
    ]
}

pub(super) fn postgres() -> Migrator {
    migrations![
        1 "samples" "postgres/0001_samples.sql",
        2 "alerts" "postgres/0002_alerts.sql",
        3 "write probe" "postgres/0003_write_probe.sql",
    ]
}

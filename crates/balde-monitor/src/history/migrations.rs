//! The database schema, as numbered migrations. Once released, a migration is never changed.

use std::pin::pin;
use std::time::Duration;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use tokio::time::{Instant, timeout};

/// How often a migration that takes long is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

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

/// Runs migrations, and logs that they run if they take longer than a moment: until they are done, the
/// monitor neither polls nor answers.
pub(super) async fn with_progress<T>(migrating: impl Future<Output = T>) -> T {
    let begin = Instant::now();
    let mut migrating = pin!(migrating);
    loop {
        if let Ok(result) = timeout(PROGRESS_EVERY, migrating.as_mut()).await {
            return result;
        }
        tracing::info!(
            event_type = "migrating",
            "the database is being migrated, or another monitor migrates it: {} s so far",
            begin.elapsed().as_secs()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_migration_that_takes_long_is_logged_every_two_seconds() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = balde::telemetry::json_logs_to(move || writer.clone());
        let log = tracing_subscriber::registry().with(log);
        let _listening = tracing::subscriber::set_default(log);
        let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
        with_progress(sleep(1_900)).await;
        assert!(lines.0.lock().unwrap().is_empty());
        with_progress(sleep(5_000)).await;
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("2 s so far"), "{text}");
        assert!(lines[1].contains("4 s so far"), "{text}");
    }
}

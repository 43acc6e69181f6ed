//! Events on their way to the sinks.

use super::History;
use super::database::{Row, Tx, values};
use super::states::{from_json, json};
use super::records::{Backlog, HistoryError, OutboxMessage, RoutedEvent};

/// The longest error that is kept, in characters.
pub const ERROR_MAX: usize = 500;

/// The most messages that are offered at once.
pub const MESSAGES_MAX: usize = 1_000;

/// That no message of the same episode, to the same sink, waits before it.
macro_rules! first_of_its_episode {
    () => {
        "o.sink = $1 AND o.delivered_us IS NULL AND NOT EXISTS (
             SELECT 1 FROM outbox p WHERE p.sink = o.sink AND p.episode = o.episode
             AND p.delivered_us IS NULL AND p.id < o.id)"
    };
}

/// The longest that a message may be put off.
const PUT_OFF_MAX_US: u64 = 2 * 3_600_000_000;

impl History {
    /// Letters that a sink has to deliver now, the oldest first. Of an episode only the oldest that
    /// is not delivered is ever among them, so that no resolution overtakes its alert.
    pub async fn due_messages(
        &self,
        sink: &str,
        now_us: u64,
        max: usize,
    ) -> Result<Vec<OutboxMessage>, HistoryError> {
        let sql = concat!(
            "SELECT o.id, o.sink, o.class, e.body, o.attempts
             FROM outbox o JOIN event e ON e.id = o.event_id WHERE ",
            first_of_its_episode!(),
            " AND (o.due_us <= $2 OR o.due_us > $4) ORDER BY o.id LIMIT $3"
        );
        // Nothing is put off for so long: it was by a clock that has been put back since.
        let absurd_us = now_us.saturating_add(PUT_OFF_MAX_US);
        let values = values![sink, now_us, max.min(MESSAGES_MAX), absurd_us];
        let rows = self.database.fetch(sql, values).await?;
        rows.iter().map(message).collect()
    }

    /// When a sink has something to deliver next, if nothing else is told before; a moment long
    /// past for what was never tried.
    pub async fn next_due_us(&self, sink: &str) -> Result<Option<u64>, HistoryError> {
        let sql = concat!(
            "SELECT min(o.due_us) FROM outbox o WHERE ",
            first_of_its_episode!()
        );
        let rows = self.database.fetch(sql, values![sink]).await?;
        rows.first().map_or(Ok(None), |row| row.count_if_any(0))
    }

    /// A message has arrived.
    pub async fn mark_delivered(&self, message: i64, now_us: u64) -> Result<(), HistoryError> {
        let mut tx = self.database.begin().await?;
        let sql = "UPDATE outbox SET delivered_us = $2, attempts = attempts + 1
             WHERE id = $1 AND delivered_us IS NULL";
        if tx.execute(sql, values![message, now_us]).await? > 0 {
            remember(&mut tx, message, None).await?;
        }
        tx.commit().await
    }

    /// A message did not arrive, and is to be tried again later.
    pub async fn mark_failed(
        &self,
        message: i64,
        next_us: u64,
        error: &str,
    ) -> Result<(), HistoryError> {
        let error: String = error
            .chars()
            .filter(|c| *c != '\0')
            .take(ERROR_MAX)
            .collect();
        let mut tx = self.database.begin().await?;
        let sql = "UPDATE outbox SET due_us = $2, last_error = $3, attempts = attempts + 1
             WHERE id = $1 AND delivered_us IS NULL";
        let values = values![message, next_us, error.as_str()];
        if tx.execute(sql, values).await? > 0 {
            remember(&mut tx, message, Some(&error)).await?;
        }
        tx.commit().await
    }

    /// What waits, for each sink that something waits for, by name.
    pub async fn backlog(&self) -> Result<Vec<Backlog>, HistoryError> {
        let sql = "SELECT o.sink, count(*), min(o.told_us),
                 (SELECT s.last_error FROM sink s WHERE s.name = o.sink)
             FROM outbox o WHERE o.delivered_us IS NULL GROUP BY o.sink";
        let rows = self.database.fetch(sql, values![]).await?;
        let backlog = |row: &Row| {
            Ok(Backlog {
                sink: row.text(0)?,
                waiting: row.count(1)?,
                oldest_us: row.count_if_any(2)?,
                last_error: row.text_if_any(3)?,
            })
        };
        let mut backlogs = rows.iter().map(backlog).collect::<Result<Vec<_>, _>>()?;
        backlogs.sort_by(|one, other| one.sink.cmp(&other.sink));
        Ok(backlogs)
    }
}

/// A message to each sink that has to deliver an event.
pub(super) async fn send(tx: &mut Tx, event_id: i64, told: &RoutedEvent) -> Result<(), HistoryError> {
    let rows = told.sinks.iter().map(|(sink, class)| {
        let (class, episode) = (json(class)?, told.event.episode.as_str());
        Ok(values![
            event_id,
            sink.as_str(),
            class.as_str(),
            episode,
            told.event.at_us
        ])
    });
    let rows = rows.collect::<Result<Vec<_>, HistoryError>>()?;
    let into = "outbox (event_id, sink, class, episode, told_us)";
    tx.insert(into, rows, "").await.map(drop)
}

/// How the last attempt of a message's sink ended.
async fn remember(tx: &mut Tx, message: i64, error: Option<&str>) -> Result<(), HistoryError> {
    let sql = "INSERT INTO sink (name, last_error) SELECT sink, $2 FROM outbox WHERE id = $1
         ON CONFLICT (name) DO UPDATE SET last_error = excluded.last_error";
    tx.execute(sql, values![message, error]).await.map(drop)
}

fn message(row: &Row) -> Result<OutboxMessage, HistoryError> {
    Ok(OutboxMessage {
        id: row.int(0)?,
        sink: row.text(1)?,
        class: from_json("the class of a sink", &row.text(2)?)?,
        event: from_json("an event", &row.text(3)?)?,
        attempts: u32::try_from(row.count(4)?).unwrap_or(u32::MAX),
    })
}

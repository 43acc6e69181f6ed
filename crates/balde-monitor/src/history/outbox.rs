//! The outbox: messages that sinks have to deliver.

use super::database::{Row, Tx, values};
use super::encoding::{from_json, to_json};
use super::error::HistoryError;
use super::handle::History;
use super::records::{Backlog, RoutedEvent};
use crate::alert::OutboxMessage;

/// The longest error message that is stored, in characters.
pub const ERROR_CHARS_MAX: usize = 500;

/// The most messages that one query returns.
pub const MESSAGES_MAX: usize = 1_000;

/// Selects the oldest undelivered message of each episode of one sink.
macro_rules! first_of_its_episode {
    () => {
        "o.sink = $1 AND o.delivered_us IS NULL AND NOT EXISTS (
             SELECT 1 FROM outbox p WHERE p.sink = o.sink AND p.episode = o.episode
             AND p.delivered_us IS NULL AND p.id < o.id)"
    };
}

/// The longest delay that any retry gets.
const DELAY_MAX_US: u64 = 2 * 3_600_000_000;

impl History {
    /// Returns the messages that a sink has to deliver now, the oldest first. Of each episode only
    /// the oldest undelivered message is returned, so that a resolution never overtakes its alert.
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
        // A message that is due later than any delay allows was scheduled by a clock that has been
        // set back since. It is due now.
        let implausible_us = now_us.saturating_add(DELAY_MAX_US);
        let values = values![sink, now_us, max.min(MESSAGES_MAX), implausible_us];
        let rows = self.database()?.fetch(sql, values).await?;
        rows.iter().map(message).collect()
    }

    /// Returns the time at which the next message of a sink is due. It lies far in the past for a
    /// message that has never been tried.
    pub async fn next_due_us(&self, sink: &str) -> Result<Option<u64>, HistoryError> {
        let sql = concat!(
            "SELECT min(o.due_us) FROM outbox o WHERE ",
            first_of_its_episode!()
        );
        let rows = self.database()?.fetch(sql, values![sink]).await?;
        rows.first().map_or(Ok(None), |row| row.optional_count(0))
    }

    /// Marks a message as delivered.
    pub async fn mark_delivered(&self, message_id: i64, now_us: u64) -> Result<(), HistoryError> {
        let mut tx = self.database()?.begin().await?;
        let sql = "UPDATE outbox SET delivered_us = $2, attempts = attempts + 1
             WHERE id = $1 AND delivered_us IS NULL";
        if tx.execute(sql, values![message_id, now_us]).await? > 0 {
            set_sink_status(&mut tx, message_id, None).await?;
        }
        tx.commit().await
    }

    /// Records a failed attempt. The message is due again at `next_us`.
    pub async fn mark_failed(
        &self,
        message_id: i64,
        next_us: u64,
        error: &str,
    ) -> Result<(), HistoryError> {
        let error: String = error
            .chars()
            .filter(|c| *c != '\0')
            .take(ERROR_CHARS_MAX)
            .collect();
        let mut tx = self.database()?.begin().await?;
        let sql = "UPDATE outbox SET due_us = $2, last_error = $3, attempts = attempts + 1
             WHERE id = $1 AND delivered_us IS NULL";
        let values = values![message_id, next_us, error.as_str()];
        if tx.execute(sql, values).await? > 0 {
            set_sink_status(&mut tx, message_id, Some(&error)).await?;
        }
        tx.commit().await
    }

    /// Makes all undelivered messages of a sink due now: it was unavailable and works again.
    pub async fn make_due(&self, sink: &str, now_us: u64) -> Result<(), HistoryError> {
        let sql = "UPDATE outbox SET due_us = $2
             WHERE sink = $1 AND delivered_us IS NULL AND due_us > $2";
        let database = self.database()?;
        database.execute(sql, values![sink, now_us]).await.map(drop)
    }

    /// Returns the backlog of each sink that has undelivered messages, by name.
    pub async fn backlog(&self) -> Result<Vec<Backlog>, HistoryError> {
        let sql = "SELECT o.sink, count(*), min(o.created_us),
                 (SELECT s.last_error FROM sink_status s WHERE s.name = o.sink)
             FROM outbox o WHERE o.delivered_us IS NULL GROUP BY o.sink";
        let rows = self.database()?.fetch(sql, values![]).await?;
        let backlog = |row: &Row| {
            Ok(Backlog {
                sink: row.text(0)?,
                waiting: row.count(1)?,
                oldest_us: row.optional_count(2)?,
                last_error: row.optional_text(3)?,
            })
        };
        let mut backlogs = rows.iter().map(backlog).collect::<Result<Vec<_>, _>>()?;
        backlogs.sort_by(|one, other| one.sink.cmp(&other.sink));
        Ok(backlogs)
    }
}

/// Queues a message for each sink of an event.
pub(super) async fn insert(
    tx: &mut Tx,
    event_id: i64,
    routed: &RoutedEvent,
) -> Result<(), HistoryError> {
    let rows = routed.sinks.iter().map(|(sink, class)| {
        let (class, episode) = (to_json(class)?, routed.event.episode.as_str());
        Ok(values![
            event_id,
            sink.as_str(),
            class.as_str(),
            episode,
            routed.event.at_us
        ])
    });
    let rows = rows.collect::<Result<Vec<_>, HistoryError>>()?;
    let into = "outbox (event_id, sink, class, episode, created_us)";
    tx.insert(into, rows, "").await.map(drop)
}

/// Stores how the last attempt of a message's sink ended.
async fn set_sink_status(
    tx: &mut Tx,
    message_id: i64,
    error: Option<&str>,
) -> Result<(), HistoryError> {
    let sql = "INSERT INTO sink_status (name, last_error)
         SELECT sink, $2 FROM outbox WHERE id = $1
         ON CONFLICT (name) DO UPDATE SET last_error = excluded.last_error";
    tx.execute(sql, values![message_id, error]).await.map(drop)
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

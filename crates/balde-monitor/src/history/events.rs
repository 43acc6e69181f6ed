//! Alert events: recorded once, queued for delivery, and counted.

use sqlx::AssertSqlSafe;

use super::database::{Row, Tx, Value, values};
use super::encoding::{from_json, severity, to_json};
use super::error::HistoryError;
use super::handle::History;
use super::records::{AlertCount, EventFilter, RoutedEvent};
use super::{incidents, outbox};
use crate::alert::{Event, EventKind};

/// The most events that one query returns.
pub const EVENTS_MAX: usize = 10_000;

impl History {
    /// Returns the events that match `filter`, the newest first, at most `max` and [`EVENTS_MAX`].
    pub async fn events(
        &self,
        filter: &EventFilter,
        max: usize,
    ) -> Result<Vec<Event>, HistoryError> {
        let conditions: [(&str, Option<Value>); 5] = [
            (
                "participant =",
                filter.participant.as_deref().map(Value::from),
            ),
            ("policy =", filter.policy.as_deref().map(Value::from)),
            (
                "severity >=",
                filter.severity.map(|severity| Value::from(severity as i64)),
            ),
            ("at_us >=", filter.from_us.map(Value::from)),
            ("at_us <", filter.before_us.map(Value::from)),
        ];
        let mut values = values![max.min(EVENTS_MAX)];
        let mut sql = "SELECT body FROM event WHERE TRUE".to_owned();
        for (condition, value) in conditions {
            if let Some(value) = value {
                values.push(value);
                sql = format!("{sql} AND {condition} ${}", values.len());
            }
        }
        sql.push_str(" ORDER BY at_us DESC, id DESC LIMIT $1");
        let rows = self.database()?.fetch(AssertSqlSafe(sql), values).await?;
        rows.iter()
            .map(|row| from_json("an event", &row.text(0)?))
            .collect()
    }

    /// Returns how many alerts were raised, predicted, or sent because of stale data since the
    /// database was created. Alerts whose events have been deleted still count.
    pub async fn alert_counts(&self) -> Result<Vec<AlertCount>, HistoryError> {
        let sql = "SELECT participant, policy, severity, alerts FROM alert_count";
        let rows = self.database()?.fetch(sql, values![]).await?;
        let count = |row: &Row| {
            Ok(AlertCount {
                participant: row.text(0)?,
                policy: Some(row.text(1)?).filter(|policy| !policy.is_empty()),
                severity: severity(row.int(2)?)?,
                alerts: row.count(3)?,
            })
        };
        let counts = rows.iter().map(count);
        let mut counts = counts.collect::<Result<Vec<AlertCount>, _>>()?;
        counts.sort_by(|one, other| {
            let key = |count: &AlertCount| (count.participant.clone(), count.policy.clone());
            (key(one), one.severity).cmp(&(key(other), other.severity))
        });
        Ok(counts)
    }
}

impl History {
    /// Records events that belong to no participant's state, and queues their messages. An event
    /// whose key is already recorded is not changed and not sent again.
    pub async fn record(&self, events: &[RoutedEvent]) -> Result<(), HistoryError> {
        let mut tx = self.database()?.begin().await?;
        for routed in events {
            insert(&mut tx, routed).await?;
        }
        tx.commit().await
    }
}

/// Records an event, queues a message for each of its sinks, and updates its incident. Does nothing
/// if an event of the same key is already there.
pub(super) async fn insert(tx: &mut Tx, routed: &RoutedEvent) -> Result<(), HistoryError> {
    let event = &routed.event;
    let sql = "INSERT INTO event (key, episode, participant, policy, severity, at_us, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (key) DO NOTHING RETURNING id";
    let values = values![
        event.key.as_str(),
        event.episode.as_str(),
        event.participant.as_str(),
        event.policy.as_deref(),
        event.severity as i64,
        event.at_us,
        to_json(event)?.as_str(),
    ];
    let rows = tx.fetch(sql, values).await?;
    let Some(row) = rows.first() else {
        return Ok(());
    };
    let id = row.int(0)?;
    outbox::insert(tx, id, routed).await?;
    incidents::update(tx, id, routed).await?;
    if is_new_alert(&event.kind) {
        count(tx, event).await?;
    }
    Ok(())
}

const fn is_new_alert(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Raised { .. }
            | EventKind::Predicted { .. }
            | EventKind::Stale { .. }
            | EventKind::StorageFailed { .. }
    )
}

async fn count(tx: &mut Tx, event: &Event) -> Result<(), HistoryError> {
    let sql = "INSERT INTO alert_count (participant, policy, severity, alerts)
         VALUES ($1, $2, $3, 1) ON CONFLICT (participant, policy, severity)
         DO UPDATE SET alerts = alert_count.alerts + 1";
    let policy = event.policy.as_deref().unwrap_or_default();
    let values = values![event.participant.as_str(), policy, event.severity as i64];
    tx.execute(sql, values).await.map(drop)
}

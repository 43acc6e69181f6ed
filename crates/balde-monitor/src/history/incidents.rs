//! Incidents: what was bad enough to have a history of its own.

use super::History;
use super::database::{Row, Tx, values};
use super::events::severity;
use super::states::from_json;
use super::records::{HistoryError, Incident, RoutedEvent};
use crate::alert::{EventKind, SinkClass};

/// The most incidents that are given back at once.
pub const INCIDENTS_MAX: usize = 1_000;

/// The most events of an incident that are given back: the newest.
pub const TIMELINE_MAX: usize = 1_000;

impl History {
    /// Incidents with their timelines, the newest first.
    pub async fn incidents(&self, max: usize) -> Result<Vec<Incident>, HistoryError> {
        let sql = "SELECT episode, participant, policy, severity, opened_us, closed_us, body FROM (
                 SELECT i.episode, i.participant, i.policy, i.severity, i.opened_us, i.closed_us,
                     e.body, e.id,
                     row_number() OVER (PARTITION BY i.episode ORDER BY e.id DESC) AS newer
                 FROM (SELECT * FROM incident ORDER BY opened_us DESC, first_event DESC
                       LIMIT $1) AS i
                 JOIN event e ON e.episode = i.episode AND e.id >= i.first_event) AS told
             WHERE newer <= $2 ORDER BY opened_us DESC, episode, id";
        let values = values![max.min(INCIDENTS_MAX), TIMELINE_MAX];
        let rows = self.database.fetch(sql, values).await?;
        let mut incidents: Vec<Incident> = Vec::new();
        for row in &rows {
            let event = from_json("an event", &row.text(6)?)?;
            let episode = row.text(0)?;
            match incidents.last_mut() {
                Some(open) if open.episode == episode => open.timeline.push(event),
                _ => {
                    let mut incident = incident(episode, row)?;
                    incident.timeline.push(event);
                    incidents.push(incident);
                }
            }
        }
        Ok(incidents)
    }
}

/// Opens, extends or closes the incident of an event's episode.
pub(super) async fn record(tx: &mut Tx, event_id: i64, told: &RoutedEvent) -> Result<(), HistoryError> {
    let event = &told.event;
    let worst = event.severity as i64;
    let is_end = matches!(
        event.kind,
        EventKind::Resolved { .. } | EventKind::Fresh { .. } | EventKind::ForecastOver { .. }
    );
    // A change is a moment: there is no end of it to wait for.
    let is_moment = matches!(event.kind, EventKind::Changed(_));
    let closed_us = (is_end || is_moment).then_some(event.at_us);
    let sql = "UPDATE incident SET closed_us = coalesce(closed_us, $3),
             severity = CASE WHEN severity < $2 THEN $2 ELSE severity END
         WHERE episode = $1";
    let values = values![event.episode.as_str(), worst, closed_us];
    let is_known = tx.execute(sql, values).await? > 0;
    if is_known || is_end || !told.classes.contains(&SinkClass::Incident) {
        return Ok(());
    }
    let sql = "INSERT INTO incident
             (episode, participant, policy, severity, first_event, opened_us, closed_us)
         VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let values = values![
        event.episode.as_str(),
        event.participant.as_str(),
        event.policy.as_deref(),
        worst,
        event_id,
        event.at_us,
        closed_us,
    ];
    tx.execute(sql, values).await.map(drop)
}

fn incident(episode: String, row: &Row) -> Result<Incident, HistoryError> {
    Ok(Incident {
        episode,
        participant: row.text(1)?,
        policy: row.text_if_any(2)?,
        severity: severity(row.int(3)?)?,
        opened_us: row.count(4)?,
        closed_us: row.count_if_any(5)?,
        timeline: Vec::new(),
    })
}

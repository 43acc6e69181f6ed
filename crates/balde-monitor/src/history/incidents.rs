//! Incidents and their timelines.

use super::database::{Row, Tx, values};
use super::encoding::{from_json, severity};
use super::error::HistoryError;
use super::handle::History;
use super::records::{Incident, RoutedEvent};
use crate::alert::EventKind;

/// The most incidents that one query returns.
pub const INCIDENTS_MAX: usize = 1_000;

/// The most events that a timeline holds; the newest are kept.
pub const TIMELINE_MAX: usize = 1_000;

impl History {
    /// Returns incidents with their timelines, the newest first, at most `max` and
    /// [`INCIDENTS_MAX`].
    pub async fn incidents(&self, max: usize) -> Result<Vec<Incident>, HistoryError> {
        let sql = "SELECT episode, participant, policy, severity, opened_us, closed_us, body FROM (
                 SELECT i.episode, i.participant, i.policy, i.severity, i.opened_us, i.closed_us,
                     e.body, e.id,
                     row_number() OVER (PARTITION BY i.episode ORDER BY e.id DESC) AS newer
                 FROM (SELECT * FROM incident ORDER BY opened_us DESC, first_event_id DESC
                       LIMIT $1) AS i
                 JOIN event e ON e.episode = i.episode AND e.id >= i.first_event_id) AS timeline
             WHERE newer <= $2 ORDER BY opened_us DESC, episode, id";
        let values = values![max.min(INCIDENTS_MAX), TIMELINE_MAX];
        let rows = self.database()?.fetch(sql, values).await?;
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

/// Opens, updates or closes the incident of an event's episode.
pub(super) async fn update(
    tx: &mut Tx,
    event_id: i64,
    routed: &RoutedEvent,
) -> Result<(), HistoryError> {
    let event = &routed.event;
    let severity = event.severity as i64;
    let is_end = event.kind.is_end();
    // A change has no end to wait for, so its incident is closed as soon as it is opened.
    let is_momentary = matches!(event.kind, EventKind::Changed(_));
    let closed_us = (is_end || is_momentary).then_some(event.at_us);
    let sql = "UPDATE incident SET closed_us = coalesce(closed_us, $3),
             severity = CASE WHEN severity < $2 THEN $2 ELSE severity END
         WHERE episode = $1";
    let values = values![event.episode.as_str(), severity, closed_us];
    let is_known = tx.execute(sql, values).await? > 0;
    if is_known || is_end || event.kind.is_by_operator() {
        return Ok(());
    }
    let sql = "INSERT INTO incident
             (episode, participant, policy, severity, first_event_id, opened_us, closed_us)
         VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let values = values![
        event.episode.as_str(),
        event.participant.as_str(),
        event.policy.as_deref(),
        severity,
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
        policy: row.optional_text(2)?,
        severity: severity(row.int(3)?)?,
        opened_us: row.count(4)?,
        closed_us: row.optional_count(5)?,
        timeline: Vec::new(),
    })
}

//! The state machines and what they tell, committed together.

use std::collections::BTreeSet;

use super::History;
use super::database::{Tx, values};
use super::incidents;
use super::outbox;
use super::records::{HistoryError, ParticipantState, StateUpdate, RoutedEvent};
use crate::alert::{AlertState, Event, EventKind, StalenessCheck};

const ALERT_STATE: &str = "alert_state (participant, policy, body)";

impl History {
    /// A participant's machines as they were committed last. If there are none, a new watch is
    /// committed first, so that whoever asks again, after whatever, finds the same one.
    pub async fn participant_state(&self, participant: &str, now_us: u64) -> Result<ParticipantState, HistoryError> {
        if let Some(state) = self.committed(participant).await? {
            return Ok(state);
        }
        let watch = json(&StalenessCheck::new(participant, now_us))?;
        let sql = "INSERT INTO participant_state (participant, version, staleness) VALUES ($1, 1, $2)
             ON CONFLICT (participant) DO NOTHING";
        let values = values![participant, watch.as_str()];
        self.database.execute(sql, values).await?;
        let state = self.committed(participant).await?;
        state.ok_or_else(|| HistoryError::Corrupt {
            why: "a watch that was just committed is not there".to_owned(),
        })
    }

    /// Commits alerts that are not there yet, which has to come before their first step, and gives
    /// back those of the same buckets that are there now, in the same order.
    pub async fn add_alert_states(&self, alerts: &[AlertState]) -> Result<Vec<AlertState>, HistoryError> {
        let mut tx = self.database.begin().await?;
        // Two that add the same at once must not wait for each other.
        let mut ordered: Vec<&AlertState> = alerts.iter().collect();
        ordered.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        ordered.dedup_by(|one, other| one.bucket == other.bucket);
        let rows = ordered.iter().map(|alert| {
            let (participant, policy) = (alert.bucket.participant(), alert.bucket.policy());
            Ok(values![participant, policy, json(alert)?.as_str()])
        });
        let rows = rows.collect::<Result<Vec<_>, HistoryError>>()?;
        let after = "ON CONFLICT (participant, policy) DO NOTHING";
        tx.insert(ALERT_STATE, rows, after).await?;
        let participants: BTreeSet<&str> = ordered
            .iter()
            .map(|alert| alert.bucket.participant())
            .collect();
        let mut kept: Vec<AlertState> = Vec::new();
        for participant in participants {
            let sql = "SELECT body FROM alert_state WHERE participant = $1";
            for row in tx.fetch(sql, values![participant]).await? {
                kept.push(from_json("an alert state", &row.text(0)?)?);
            }
        }
        tx.commit().await?;
        let found = |wanted: &AlertState| kept.iter().find(|alert| alert.bucket == wanted.bucket);
        Ok(alerts.iter().filter_map(found).cloned().collect())
    }

    /// Commits a step as a whole: the machines, the events and a message for each sink that has to
    /// deliver one. [`Conflict`](HistoryError::Conflict), and nothing happens, if the machines
    /// are no longer those that the step began with.
    ///
    /// An event that is there already, by its key, stays as it is and is not sent again.
    pub async fn commit(&self, update: &StateUpdate) -> Result<(), HistoryError> {
        let participant = update.staleness.participant.as_str();
        let mut tx = self.database.begin().await?;
        let sql = "UPDATE participant_state SET version = version + 1, staleness = $3
             WHERE participant = $1 AND version = $2";
        let watch = json(&update.staleness)?;
        let values = values![participant, update.version, watch.as_str()];
        if tx.execute(sql, values).await? == 0 {
            return Err(HistoryError::Conflict);
        }
        keep_alert_states(&mut tx, participant, &update.alerts).await?;
        for told in &update.events {
            tell(&mut tx, told).await?;
        }
        tx.commit().await
    }

    async fn committed(&self, participant: &str) -> Result<Option<ParticipantState>, HistoryError> {
        // In one statement, so that nobody commits between the watch and the alerts.
        let sql = "SELECT p.version, p.staleness, a.body FROM participant_state p
             LEFT JOIN alert_state a ON a.participant = p.participant WHERE p.participant = $1";
        let rows = self.database.fetch(sql, values![participant]).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let bodies = rows.iter().filter_map(|row| row.text_if_any(2).transpose());
        let alerts = bodies.map(|body| from_json("an alert state", &body?));
        let mut alerts = alerts.collect::<Result<Vec<AlertState>, _>>()?;
        alerts.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        Ok(Some(ParticipantState {
            version: first.count(0)?,
            staleness: from_json("a watch", &first.text(1)?)?,
            alerts,
        }))
    }
}

async fn keep_alert_states(tx: &mut Tx, participant: &str, alerts: &[AlertState]) -> Result<(), HistoryError> {
    let mut rows = Vec::with_capacity(alerts.len());
    for alert in alerts {
        if alert.bucket.participant() != participant {
            return Err(HistoryError::Rejected {
                why: "a step of one participant with an alert of another".to_owned(),
            });
        }
        rows.push(values![
            participant,
            alert.bucket.policy(),
            json(alert)?.as_str()
        ]);
    }
    let after = "ON CONFLICT (participant, policy) DO UPDATE SET body = excluded.body";
    tx.insert(ALERT_STATE, rows, after).await.map(drop)
}

async fn tell(tx: &mut Tx, told: &RoutedEvent) -> Result<(), HistoryError> {
    let event = &told.event;
    let sql = "INSERT INTO event (key, episode, participant, policy, severity, at_us, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (key) DO NOTHING RETURNING id";
    let values = values![
        event.key.as_str(),
        event.episode.as_str(),
        event.participant.as_str(),
        event.policy.as_deref(),
        event.severity as i64,
        event.at_us,
        json(event)?.as_str(),
    ];
    let rows = tx.fetch(sql, values).await?;
    let Some(row) = rows.first() else {
        return Ok(());
    };
    let id = row.int(0)?;
    outbox::send(tx, id, told).await?;
    incidents::record(tx, id, told).await?;
    if is_alert(&event.kind) {
        count(tx, event).await?;
    }
    Ok(())
}

const fn is_alert(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Raised { .. } | EventKind::Predicted { .. } | EventKind::Stale { .. }
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

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, HistoryError> {
    serde_json::to_string(value).map_err(|error| HistoryError::Rejected {
        why: error.to_string(),
    })
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(
    what: &str,
    text: &str,
) -> Result<T, HistoryError> {
    serde_json::from_str(text).map_err(|error| HistoryError::Corrupt {
        why: format!("{what}: {error}"),
    })
}

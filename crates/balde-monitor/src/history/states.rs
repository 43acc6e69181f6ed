//! The alert states of participants, committed together with the events of a step.

use std::collections::BTreeSet;

use super::database::{Tx, values};
use super::encoding::{from_json, to_json};
use super::error::HistoryError;
use super::events;
use super::handle::History;
use super::records::{ParticipantState, StateUpdate};
use crate::alert::{AlertState, StalenessCheck};

const ALERT_STATE: &str = "alert_state (participant, policy, body)";

impl History {
    /// Returns the alert states of a participant as last committed.
    ///
    /// A participant without any gets a new staleness check, which is committed first, so that
    /// every later call, also after a crash, returns the same one.
    pub async fn participant_state(
        &self,
        participant: &str,
        now_us: u64,
    ) -> Result<ParticipantState, HistoryError> {
        if let Some(state) = self.committed_state(participant).await? {
            return Ok(state);
        }
        let staleness = to_json(&StalenessCheck::new(participant, now_us))?;
        let sql = "INSERT INTO participant_state (participant, version, staleness)
             VALUES ($1, 1, $2) ON CONFLICT (participant) DO NOTHING";
        let values = values![participant, staleness.as_str()];
        self.database()?.execute(sql, values).await?;
        let state = self.committed_state(participant).await?;
        state.ok_or_else(|| HistoryError::Corrupt {
            reason: "a participant's state is missing right after it was committed".to_owned(),
        })
    }

    /// Commits the alert states of new buckets, and returns the committed states of these buckets
    /// in the same order. States that exist already are not changed.
    ///
    /// A state must be committed before its first step: only then does a step that is repeated
    /// after a crash produce events with the same keys.
    pub async fn add_alert_states(
        &self,
        alerts: &[AlertState],
    ) -> Result<Vec<AlertState>, HistoryError> {
        let mut tx = self.database()?.begin().await?;
        // Sorted, so that two monitors that insert the same rows cannot deadlock.
        let mut ordered: Vec<&AlertState> = alerts.iter().collect();
        ordered.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        ordered.dedup_by(|one, other| one.bucket == other.bucket);
        let rows = ordered.iter().map(|alert| {
            let (participant, policy) = (alert.bucket.participant(), alert.bucket.policy());
            Ok(values![participant, policy, to_json(alert)?.as_str()])
        });
        let rows = rows.collect::<Result<Vec<_>, HistoryError>>()?;
        let after = "ON CONFLICT (participant, policy) DO NOTHING";
        tx.insert(ALERT_STATE, rows, after).await?;
        let participants: BTreeSet<&str> = ordered
            .iter()
            .map(|alert| alert.bucket.participant())
            .collect();
        let mut committed: Vec<AlertState> = Vec::new();
        for participant in participants {
            let sql = "SELECT body FROM alert_state WHERE participant = $1";
            for row in tx.fetch(sql, values![participant]).await? {
                committed.push(from_json("an alert state", &row.text(0)?)?);
            }
        }
        tx.commit().await?;
        let find = |wanted: &AlertState| {
            let mut committed = committed.iter();
            committed.find(|alert| alert.bucket == wanted.bucket)
        };
        Ok(alerts.iter().filter_map(find).cloned().collect())
    }

    /// Commits an update in one transaction: the states, the events, and an outbox message for each
    /// sink of an event.
    ///
    /// Returns [`Conflict`](HistoryError::Conflict) and changes nothing if the committed version is
    /// no longer the one that the update names. Version 0 stands for a participant without any
    /// state. An event whose key is already recorded is not changed and not sent again.
    pub async fn commit(&self, update: &StateUpdate) -> Result<(), HistoryError> {
        let participant = update.staleness.participant.as_str();
        let mut tx = self.database()?.begin().await?;
        let sql = match update.version {
            0 => {
                "INSERT INTO participant_state (participant, version, staleness)
                 VALUES ($1, $2 + 1, $3) ON CONFLICT (participant) DO NOTHING"
            }
            _ => {
                "UPDATE participant_state SET version = version + 1, staleness = $3
                 WHERE participant = $1 AND version = $2"
            }
        };
        let staleness = to_json(&update.staleness)?;
        let values = values![participant, update.version, staleness.as_str()];
        if tx.execute(sql, values).await? == 0 {
            tx.rollback().await?;
            return Err(HistoryError::Conflict);
        }
        put_alert_states(&mut tx, participant, &update.alerts).await?;
        for routed in &update.events {
            events::insert(&mut tx, routed).await?;
        }
        tx.commit().await
    }

    async fn committed_state(
        &self,
        participant: &str,
    ) -> Result<Option<ParticipantState>, HistoryError> {
        // One statement, so that version and alert states come from the same commit.
        let sql = "SELECT p.version, p.staleness, a.body FROM participant_state p
             LEFT JOIN alert_state a ON a.participant = p.participant WHERE p.participant = $1";
        let rows = self.database()?.fetch(sql, values![participant]).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let bodies = rows
            .iter()
            .filter_map(|row| row.optional_text(2).transpose());
        let alerts = bodies.map(|body| from_json("an alert state", &body?));
        let mut alerts = alerts.collect::<Result<Vec<AlertState>, _>>()?;
        alerts.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        Ok(Some(ParticipantState {
            version: first.count(0)?,
            staleness: from_json("a staleness check", &first.text(1)?)?,
            alerts,
        }))
    }
}

async fn put_alert_states(
    tx: &mut Tx,
    participant: &str,
    alerts: &[AlertState],
) -> Result<(), HistoryError> {
    let mut rows = Vec::with_capacity(alerts.len());
    for alert in alerts {
        if alert.bucket.participant() != participant {
            return Err(HistoryError::Rejected {
                reason: "the update of one participant has an alert state of another".to_owned(),
            });
        }
        rows.push(values![
            participant,
            alert.bucket.policy(),
            to_json(alert)?.as_str()
        ]);
    }
    let after = "ON CONFLICT (participant, policy) DO UPDATE SET body = excluded.body";
    tx.insert(ALERT_STATE, rows, after).await.map(drop)
}

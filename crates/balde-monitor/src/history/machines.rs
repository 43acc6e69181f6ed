//! The state machines and what they tell, committed together.

use std::collections::BTreeSet;

use super::History;
use super::database::{Tx, values};
use super::incidents;
use super::outbox;
use super::records::{HistoryError, Machines, Step, Told};
use crate::alert::{Alarm, Event, Kind, Watch};

const KEEP_ALARM: &str = "alarm (participant, policy, body)";

impl History {
    /// A participant's machines as they were committed last. If there are none, a new watch is
    /// committed first, so that whoever asks again, after whatever, finds the same one.
    pub async fn machines(&self, participant: &str, now_us: u64) -> Result<Machines, HistoryError> {
        if let Some(machines) = self.committed(participant).await? {
            return Ok(machines);
        }
        let watch = json(&Watch::new(participant, now_us))?;
        let sql = "INSERT INTO machine (participant, version, watch) VALUES ($1, 1, $2)
             ON CONFLICT (participant) DO NOTHING";
        let values = values![participant, watch.as_str()];
        self.database.execute(sql, values).await?;
        let machines = self.committed(participant).await?;
        machines.ok_or_else(|| HistoryError::Strange {
            why: "a watch that was just committed is not there".to_owned(),
        })
    }

    /// Commits alarms that are not there yet, which has to come before their first step, and gives
    /// back those of the same buckets that are there now, in the same order.
    pub async fn add_alarms(&self, alarms: &[Alarm]) -> Result<Vec<Alarm>, HistoryError> {
        let mut tx = self.database.begin().await?;
        // Two that add the same at once must not wait for each other.
        let mut ordered: Vec<&Alarm> = alarms.iter().collect();
        ordered.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        ordered.dedup_by(|one, other| one.bucket == other.bucket);
        let rows = ordered.iter().map(|alarm| {
            let (participant, policy) = (alarm.bucket.participant(), alarm.bucket.policy());
            Ok(values![participant, policy, json(alarm)?.as_str()])
        });
        let rows = rows.collect::<Result<Vec<_>, HistoryError>>()?;
        let after = "ON CONFLICT (participant, policy) DO NOTHING";
        tx.insert(KEEP_ALARM, rows, after).await?;
        let participants: BTreeSet<&str> = ordered
            .iter()
            .map(|alarm| alarm.bucket.participant())
            .collect();
        let mut kept: Vec<Alarm> = Vec::new();
        for participant in participants {
            let sql = "SELECT body FROM alarm WHERE participant = $1";
            for row in tx.fetch(sql, values![participant]).await? {
                kept.push(from_json("an alarm", &row.text(0)?)?);
            }
        }
        tx.commit().await?;
        let found = |wanted: &Alarm| kept.iter().find(|alarm| alarm.bucket == wanted.bucket);
        Ok(alarms.iter().filter_map(found).cloned().collect())
    }

    /// Commits a step as a whole: the machines, the events and a letter for each sink that has to
    /// deliver one. [`Overtaken`](HistoryError::Overtaken), and nothing happens, if the machines
    /// are no longer those that the step began with.
    ///
    /// An event that is there already, by its key, stays as it is and is not sent again.
    pub async fn commit(&self, step: &Step) -> Result<(), HistoryError> {
        let participant = step.watch.participant.as_str();
        let mut tx = self.database.begin().await?;
        let sql = "UPDATE machine SET version = version + 1, watch = $3
             WHERE participant = $1 AND version = $2";
        let watch = json(&step.watch)?;
        let values = values![participant, step.version, watch.as_str()];
        if tx.execute(sql, values).await? == 0 {
            return Err(HistoryError::Overtaken);
        }
        keep_alarms(&mut tx, participant, &step.alarms).await?;
        for told in &step.told {
            tell(&mut tx, told).await?;
        }
        tx.commit().await
    }

    async fn committed(&self, participant: &str) -> Result<Option<Machines>, HistoryError> {
        // In one statement, so that nobody commits between the watch and the alarms.
        let sql = "SELECT m.version, m.watch, a.body FROM machine m
             LEFT JOIN alarm a ON a.participant = m.participant WHERE m.participant = $1";
        let rows = self.database.fetch(sql, values![participant]).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let bodies = rows.iter().filter_map(|row| row.text_if_any(2).transpose());
        let alarms = bodies.map(|body| from_json("an alarm", &body?));
        let mut alarms = alarms.collect::<Result<Vec<Alarm>, _>>()?;
        alarms.sort_by(|one, other| one.bucket.cmp(&other.bucket));
        Ok(Some(Machines {
            version: first.count(0)?,
            watch: from_json("a watch", &first.text(1)?)?,
            alarms,
        }))
    }
}

async fn keep_alarms(tx: &mut Tx, participant: &str, alarms: &[Alarm]) -> Result<(), HistoryError> {
    let mut rows = Vec::with_capacity(alarms.len());
    for alarm in alarms {
        if alarm.bucket.participant() != participant {
            return Err(HistoryError::Refused {
                why: "a step of one participant with an alarm of another".to_owned(),
            });
        }
        rows.push(values![
            participant,
            alarm.bucket.policy(),
            json(alarm)?.as_str()
        ]);
    }
    let after = "ON CONFLICT (participant, policy) DO UPDATE SET body = excluded.body";
    tx.insert(KEEP_ALARM, rows, after).await.map(drop)
}

async fn tell(tx: &mut Tx, told: &Told) -> Result<(), HistoryError> {
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

const fn is_alert(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Raised { .. } | Kind::Predicted { .. } | Kind::Stale { .. }
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
    serde_json::to_string(value).map_err(|error| HistoryError::Refused {
        why: error.to_string(),
    })
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(
    what: &str,
    text: &str,
) -> Result<T, HistoryError> {
    serde_json::from_str(text).map_err(|error| HistoryError::Strange {
        why: format!("{what}: {error}"),
    })
}

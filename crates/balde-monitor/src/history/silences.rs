//! Silences: added by operators, and ended by time or by operators.

use super::database::{Tx, values};
use super::encoding::{from_json, to_json};
use super::error::HistoryError;
use super::events;
use super::handle::History;
use super::records::RoutedEvent;
use crate::alert::Silence;

/// The most silences that may exist at the same time, not counting those that have ended.
pub const SILENCES_MAX: usize = 1_000;

/// A change of the silences. Acknowledgements are silences, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SilenceChange {
    /// Adds a silence. It replaces a silence of the same id.
    Add(Silence),
    /// Ends a silence at a time.
    End {
        /// The id of the silence.
        id: String,
        /// When.
        at_us: u64,
    },
}

impl SilenceChange {
    /// Makes the change in a list of silences.
    pub fn apply(&self, silences: &mut Vec<Silence>) {
        match self {
            Self::Add(silence) => {
                silences.retain(|other| other.id() != silence.id());
                silences.push(silence.clone());
                silences.sort_by(|one, other| one.id().cmp(other.id()));
            }
            Self::End { id, .. } => silences.retain(|silence| silence.id() != id),
        }
    }
}

impl History {
    /// Changes the silences and records what the operator did, in one transaction. A change that is
    /// made again changes nothing.
    pub async fn change_silences(
        &self,
        change: &SilenceChange,
        event: &RoutedEvent,
    ) -> Result<(), HistoryError> {
        let mut tx = self.database()?.begin().await?;
        match change {
            SilenceChange::Add(silence) => add(&mut tx, silence).await?,
            SilenceChange::End { id, at_us } => {
                tx.execute(END, values![id.as_str(), *at_us]).await?;
            }
        }
        events::insert(&mut tx, event).await?;
        tx.commit().await
    }

    /// Stores a silence. It replaces a silence of the same id.
    pub async fn add_silence(&self, silence: &Silence) -> Result<(), HistoryError> {
        let mut tx = self.database()?.begin().await?;
        add(&mut tx, silence).await?;
        tx.commit().await
    }

    /// Returns the silences that have not ended, by id. Those that have not begun are included.
    pub async fn silences(&self, now_us: u64) -> Result<Vec<Silence>, HistoryError> {
        let sql = "SELECT body FROM silence WHERE until_us > $1 AND ended_us IS NULL";
        let rows = self.database()?.fetch(sql, values![now_us]).await?;
        let silences = rows.iter().map(|row| from_json("a silence", &row.text(0)?));
        let mut silences = silences.collect::<Result<Vec<Silence>, _>>()?;
        silences.sort_by(|one, other| one.id().cmp(other.id()));
        Ok(silences)
    }

    /// Ends a silence now. Returns false if no silence of this id was active or planned.
    pub async fn end_silence(&self, id: &str, now_us: u64) -> Result<bool, HistoryError> {
        Ok(self.database()?.execute(END, values![id, now_us]).await? > 0)
    }
}

const END: &str = "UPDATE silence SET ended_us = $2
     WHERE id = $1 AND until_us > $2 AND ended_us IS NULL";

async fn add(tx: &mut Tx, silence: &Silence) -> Result<(), HistoryError> {
    let sql = "SELECT count(*) FROM silence
         WHERE until_us > $1 AND ended_us IS NULL AND id <> $2";
    let rows = tx
        .fetch(sql, values![silence.from_us(), silence.id()])
        .await?;
    let others = rows.first().map_or(Ok(0), |row| row.count(0))?;
    if others >= SILENCES_MAX as u64 {
        return Err(HistoryError::Rejected {
            reason: format!("there are {SILENCES_MAX} silences already; end some first"),
        });
    }
    let sql = "INSERT INTO silence (id, until_us, body) VALUES ($1, $2, $3)
         ON CONFLICT (id) DO UPDATE SET
         until_us = excluded.until_us, ended_us = NULL, body = excluded.body";
    let body = to_json(silence)?;
    let values = values![silence.id(), silence.until_us(), body.as_str()];
    tx.execute(sql, values).await.map(drop)
}

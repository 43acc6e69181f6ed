//! Stores polls, and updates the latest samples and the roll-ups.

use std::collections::{BTreeMap, BTreeSet};

use super::database::{Database, Tx, Value, values};
use super::error::HistoryError;
use super::handle::History;
use super::partitions;
use super::roll_up::Width;
use crate::sample::{POLICIES_MAX, Poll, Sample};

const SAMPLE: &str = "sample (bucket_id, taken_us, position, level, capacity, refill, period_us, \
     category, answered_us)";

const LATEST_SAMPLE: &str = "latest_sample (bucket_id, taken_us, position, level, capacity, refill, period_us, \
     category, answered_us)";

/// A sample that arrives late does not replace a newer one.
const IF_NEWER: &str = "ON CONFLICT (bucket_id) DO UPDATE SET
     taken_us = excluded.taken_us, position = excluded.position, level = excluded.level,
     capacity = excluded.capacity, refill = excluded.refill, period_us = excluded.period_us,
     category = excluded.category, answered_us = excluded.answered_us
     WHERE excluded.taken_us > latest_sample.taken_us";

const ROLL_UP: &str = "roll_up (bucket_id, width_s, at_us, samples, level_min, level_max, level, \
     capacity, first_us, last_us)";

const MERGE: &str = "ON CONFLICT (bucket_id, width_s, at_us) DO UPDATE SET
     samples = roll_up.samples + excluded.samples,
     level_min = CASE WHEN excluded.level_min < roll_up.level_min
         THEN excluded.level_min ELSE roll_up.level_min END,
     level_max = CASE WHEN excluded.level_max > roll_up.level_max
         THEN excluded.level_max ELSE roll_up.level_max END,
     level = CASE WHEN excluded.last_us > roll_up.last_us
         THEN excluded.level ELSE roll_up.level END,
     capacity = CASE WHEN excluded.last_us > roll_up.last_us
         THEN excluded.capacity ELSE roll_up.capacity END,
     first_us = CASE WHEN excluded.first_us < roll_up.first_us
         THEN excluded.first_us ELSE roll_up.first_us END,
     last_us = CASE WHEN excluded.last_us > roll_up.last_us
         THEN excluded.last_us ELSE roll_up.last_us END";

impl History {
    /// Stores a poll and updates the roll-ups. Returns true if any of its samples is new.
    ///
    /// A sample of a bucket and time that is already stored is not changed and not counted again.
    pub async fn store(&self, poll: &Poll) -> Result<bool, HistoryError> {
        if let Database::Postgres(server) = &self.database()? {
            partitions::create(server, poll.taken_us()).await?;
        }
        let mut tx = self.database()?.begin().await?;
        let buckets = buckets(&mut tx, poll).await?;
        // In the order of ids, so that two monitors that store at once cannot deadlock.
        let samples: BTreeMap<i64, (usize, &Sample)> = poll
            .samples()
            .iter()
            .enumerate()
            .filter_map(|(position, sample)| {
                let id = buckets.get(sample.bucket().policy())?;
                Some((*id, (position, sample)))
            })
            .collect();
        let rows = samples
            .iter()
            .map(|(id, (position, sample))| row(*id, *position, sample));
        let after = "ON CONFLICT (bucket_id, taken_us) DO NOTHING RETURNING bucket_id";
        let new = tx.insert(SAMPLE, rows.collect(), after).await?;
        let new = new.iter().map(|row| row.int(0));
        let new = new.collect::<Result<BTreeSet<i64>, _>>()?;
        if new.is_empty() {
            tx.rollback().await?;
            return Ok(false);
        }
        let new = samples.into_iter().filter(|(id, _)| new.contains(id));
        let new: Vec<(i64, (usize, &Sample))> = new.collect();
        let rows = new
            .iter()
            .map(|(id, (position, sample))| row(*id, *position, sample));
        tx.insert(LATEST_SAMPLE, rows.collect(), IF_NEWER).await?;
        let rows = new
            .iter()
            .flat_map(|(id, (_, sample))| Width::ALL.map(|width| roll_up_row(*id, width, sample)));
        tx.insert(ROLL_UP, rows.collect(), MERGE).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Returns the ids of a poll's buckets by policy, and creates the buckets that are new.
async fn buckets(tx: &mut Tx, poll: &Poll) -> Result<BTreeMap<String, i64>, HistoryError> {
    let known = known_buckets(tx, poll.participant()).await?;
    let policies = poll.samples().iter().map(|sample| sample.bucket().policy());
    let unknown: BTreeSet<&str> = policies
        .filter(|policy| !known.contains_key(*policy))
        .collect();
    if unknown.is_empty() {
        return Ok(known);
    }
    let rows = unknown
        .iter()
        .map(|policy| values![poll.participant(), *policy]);
    let after = "ON CONFLICT (participant, policy) DO NOTHING";
    tx.insert("bucket (participant, policy)", rows.collect(), after)
        .await?;
    known_buckets(tx, poll.participant()).await
}

async fn known_buckets(
    tx: &mut Tx,
    participant: &str,
) -> Result<BTreeMap<String, i64>, HistoryError> {
    let sql = "SELECT policy, id FROM bucket WHERE participant = $1";
    let rows = tx.fetch(sql, values![participant]).await?;
    rows.iter()
        .map(|row| Ok((row.text(0)?, row.int(1)?)))
        .collect()
}

fn row(bucket_id: i64, position: usize, sample: &Sample) -> Vec<Value> {
    let limit = sample.limit();
    // A sample that was read by itself has no position in a list.
    let position = if sample.is_single() {
        POLICIES_MAX
    } else {
        position
    };
    values![
        bucket_id,
        sample.taken_us(),
        position,
        sample.level(),
        limit.capacity(),
        limit.refill_tokens(),
        limit.period_us(),
        sample.category(),
        sample.answered_us(),
    ]
}

fn roll_up_row(bucket_id: i64, width: Width, sample: &Sample) -> Vec<Value> {
    let (level, taken_us) = (sample.level(), sample.taken_us());
    values![
        bucket_id,
        width.s(),
        width.start_us(taken_us),
        1_u64,
        level,
        level,
        level,
        sample.limit().capacity(),
        taken_us,
        taken_us,
    ]
}

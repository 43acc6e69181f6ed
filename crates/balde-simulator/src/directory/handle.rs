//! The directory as its operations see it: a store of records, the rules, and transactions.

use std::sync::Arc;

use super::error::DirectoryError;
use super::store::{
    CommitResult, MemoryRecords, Record, RecordStore, RecordStoreError, RecordTransaction,
    RedisRecords,
};
use crate::wire::Problem;
use balde_dict::Settings;

/// How many times a transaction that conflicts with others is tried.
const ATTEMPTS_MAX: usize = 32;

/// The most records of each kind, except entries.
pub(super) const RECORDS_MAX: u64 = 100_000;

/// A simulated DICT directory: entries, claims, infraction reports, refunds and fraud markers.
#[derive(Debug)]
pub struct Directory {
    pub(super) records: RecordStore,
    pub(super) rules: DirectoryRules,
    pub(super) settings: Settings,
}

/// Rules of the simulated directory that are not DICT's. All are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRules {
    /// Accepts reports, refunds and funds recoveries only for transactions that a payment order has announced. By
    /// default, the first participant to answer for the other side becomes the other side.
    pub transactions_must_be_known: bool,
}

impl Directory {
    /// Creates an empty directory in this process.
    pub(crate) fn in_memory(rules: DirectoryRules, settings: Settings) -> Self {
        Self {
            records: RecordStore::Memory(MemoryRecords::default()),
            rules,
            settings,
        }
    }

    /// Opens the directory in Redis that all simulators with the same namespace share.
    pub(crate) fn in_redis(
        client: redis::Client,
        namespace: &str,
        rules: DirectoryRules,
        settings: Settings,
    ) -> Result<Self, RecordStoreError> {
        Ok(Self {
            records: RecordStore::Redis(RedisRecords::new(client, namespace)?),
            rules,
            settings,
        })
    }

    /// Checks that the store responds. Records in memory always do.
    pub async fn ping(&self) -> Result<(), impl std::error::Error + Send + Sync + use<>> {
        match self.redis_records() {
            Some(records) => records.ping().await,
            None => Ok(()),
        }
    }

    /// Returns the Redis connection, for what simulators share besides records. `None` in memory.
    pub(crate) fn redis_records(&self) -> Option<RedisRecords> {
        match &self.records {
            RecordStore::Memory(_) => None,
            RecordStore::Redis(redis) => Some(redis.clone()),
        }
    }

    /// Changes a record that has a default value, and returns the new value.
    pub(crate) async fn update<T: Record + Default + Clone>(
        &self,
        name: &str,
        update: impl Fn(&mut T),
    ) -> Result<T, DirectoryError> {
        let update = &update;
        self.transact(|mut transaction| async move {
            let found: Option<Arc<T>> = transaction.read(name).await?;
            let mut value = found.map_or_else(T::default, |found| (*found).clone());
            update(&mut value);
            transaction.put(name.to_owned(), Arc::new(value.clone()))?;
            Ok(transaction.commit(value).await?)
        })
        .await
    }

    /// Runs a transaction, which ends with its commit. On a conflict it is run again from the start.
    pub(super) async fn transact<'d, T, F>(
        &'d self,
        run: impl Fn(RecordTransaction<'d>) -> F,
    ) -> Result<T, DirectoryError>
    where
        F: Future<Output = Result<CommitResult<T>, DirectoryError>>,
    {
        for _ in 0..ATTEMPTS_MAX {
            match run(self.records.begin()).await? {
                CommitResult::Committed(value) => return Ok(value),
                CommitResult::Conflict => {}
                CommitResult::LimitReached(counter) => return Err(limit_reached(&counter)),
            }
        }
        let detail = "Other requests keep changing the same records; try again";
        Err(Problem::new(409, "ResourceConflict")
            .with_detail(detail)
            .into())
    }
}

fn limit_reached(counter: &str) -> DirectoryError {
    if counter.starts_with("account:") {
        DirectoryError::rejected(
            "EntryLimitExceeded",
            "The account already has the maximum number of keys",
        )
    } else {
        Problem::unavailable("The simulated directory is full").into()
    }
}

//! Statistics of a key or a person, counted for each request.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::entries::{EntryRecord, account_name, entry_name, owner_name};
use super::handle::Directory;
use super::store::{EVENTS_MAX, RecordStoreError};
use crate::wire::{
    AnalysisResult, CounterWindows, Counters, Counts, Entry, EntryCounters, FraudMarker,
    FraudMarkerStatus, FraudType, InfractionReport, InfractionStatus, KeyStatistics,
    PersonStatistics, SETTLEMENTS_FROM, Statistics, Timestamp, Windows, canonical_key,
};

/// The most records of each kind that are counted.
const COUNTED_MAX: usize = 10_000;

impl Directory {
    /// Returns the statistics of a key.
    pub(crate) async fn key_statistics(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<KeyStatistics, RecordStoreError> {
        let windows = Windows::at(now);
        let mut distinct_accounts = Counts::default();
        let accounts = format!("accounts-key:{}", canonical_key(key));
        for (ms, _) in self.members_of(&accounts).await? {
            distinct_accounts.add(Timestamp::from_ms(ms), &windows);
        }
        Ok(KeyStatistics {
            common: self.statistics("key", key, now).await?,
            distinct_accounts,
        })
    }

    /// Returns the statistics of a person or company.
    pub(crate) async fn person_statistics(
        &self,
        tax_id: &str,
        now: Timestamp,
    ) -> Result<PersonStatistics, RecordStoreError> {
        let keys = self.members_of(&owner_name(tax_id)).await?;
        let names: Vec<_> = keys.iter().map(|(_, key)| entry_name(key)).collect();
        let entries: Vec<Arc<EntryRecord>> = self.records.get_all(&names).await?;
        let accounts: HashSet<_> = entries
            .iter()
            .map(|record| account_name(&record.entry))
            .collect();
        Ok(PersonStatistics {
            common: self.statistics("owner", tax_id, now).await?,
            registered_accounts: accounts.len() as u64,
        })
    }

    async fn statistics(
        &self,
        index: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<Statistics, RecordStoreError> {
        let windows = Windows::at(now);
        let mut statistics = Statistics::none(now);
        let settlements = format!("settlements-{index}:{subject}");
        let limit = usize::try_from(EVENTS_MAX).unwrap_or(usize::MAX);
        for (ms, _) in self
            .records
            .members(&settlements, SETTLEMENTS_FROM.ms()..=now.ms(), 0, limit)
            .await?
        {
            let at = Timestamp::from_ms(ms);
            statistics.settlements.add(at, &windows);
        }
        let markers = self.markers_of(index, subject).await?;
        let markers = markers
            .iter()
            .filter(|marker| marker.status == FraudMarkerStatus::Registered);
        // In each period, a participant counts once, however many markers it made.
        let mut reporters: BTreeMap<&str, Counts> = BTreeMap::new();
        for marker in markers {
            let counts = match marker.fraud_type {
                FraudType::ApplicationFraud => &mut statistics.application_frauds,
                FraudType::MuleAccount => &mut statistics.mule_accounts,
                FraudType::ScammerAccount => &mut statistics.scammer_accounts,
                FraudType::Other => &mut statistics.other_frauds,
                FraudType::Unknown => &mut statistics.unknown_frauds,
            };
            counts.add(marker.creation_time, &windows);
            let is_left_out = match marker.fraud_type {
                FraudType::Unknown => true,
                FraudType::ApplicationFraud => index == "owner",
                _ => false,
            };
            if let Some(cents) = marker.amount_cents.filter(|_| !is_left_out) {
                let at = marker.creation_time;
                statistics.fraud_amount.add_many(cents, at, &windows);
            }
            if marker.fraud_type != FraudType::Unknown {
                let counts = reporters.entry(&marker.participant).or_default();
                counts.add(marker.creation_time, &windows);
            }
        }
        // Amounts are whole reais.
        let amount = &mut statistics.fraud_amount;
        for cents in [&mut amount.d90, &mut amount.m12, &mut amount.m60] {
            *cents /= 100;
        }
        for counts in reporters.values() {
            let distinct = &mut statistics.distinct_reporters;
            distinct.d90 += counts.d90.min(1);
            distinct.m12 += counts.m12.min(1);
            distinct.m60 += counts.m60.min(1);
        }
        let mut open_reporters = HashSet::new();
        for report in self.infractions_of(index, subject).await? {
            match (report.status, report.analysis_result) {
                (InfractionStatus::Open | InfractionStatus::Acknowledged, _) => {
                    statistics.open_reports += 1;
                    open_reporters.insert(report.reporter.clone());
                }
                (InfractionStatus::Closed, Some(AnalysisResult::Disagreed)) => {
                    let at = report.last_modified;
                    statistics.rejected_reports.add(at, &windows);
                }
                _ => {}
            }
        }
        statistics.open_reports_reporters = open_reporters.len() as u64;
        Ok(statistics)
    }

    /// The counters of version 1.8.0 of a person or company, and the time as of which they hold.
    pub(crate) async fn owner_counters(
        &self,
        tax_id: &str,
        now: Timestamp,
    ) -> Result<(Timestamp, Counters), RecordStoreError> {
        Ok((now, self.counters("owner", tax_id, now).await?))
    }

    /// The counters of version 1.8.0 of an entry. Those of its account are the sum of those of the
    /// keys that its owner has registered for the account.
    pub(crate) async fn entry_counters(
        &self,
        entry: &Entry,
        now: Timestamp,
    ) -> Result<EntryCounters, RecordStoreError> {
        let tax_id = &entry.owner.tax_id_number;
        let keys = self.members_of(&owner_name(tax_id)).await?;
        let names: Vec<_> = keys.iter().map(|(_, key)| entry_name(key)).collect();
        let entries: Vec<Arc<EntryRecord>> = self.records.get_all(&names).await?;
        let mut account = Counters::default();
        for other in entries.iter().map(|record| &record.entry) {
            if account_name(other) == account_name(entry) {
                account = account.plus(self.counters("key", &other.key, now).await?);
            }
        }
        Ok(EntryCounters {
            updated: now,
            key: self.counters("key", &entry.key, now).await?,
            owner: self.counters("owner", tax_id, now).await?,
            account,
        })
    }

    async fn counters(
        &self,
        index: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<Counters, RecordStoreError> {
        let windows = CounterWindows::at(now);
        let mut counters = Counters::default();
        let settlements = format!("settlements-{index}:{subject}");
        let limit = usize::try_from(EVENTS_MAX).unwrap_or(usize::MAX);
        let since = windows.start().ms();
        for (ms, _) in self
            .records
            .members(&settlements, since..=now.ms(), 0, limit)
            .await?
        {
            counters.settlements.add(Timestamp::from_ms(ms), &windows);
        }
        for report in self.infractions_of(index, subject).await? {
            if report.status != InfractionStatus::Cancelled {
                counters.reported.add(report.creation_time, &windows);
            }
            let closed = match report.analysis_result {
                Some(AnalysisResult::Agreed) => &mut counters.confirmed,
                Some(AnalysisResult::Disagreed) => &mut counters.rejected,
                None => continue,
            };
            if report.status == InfractionStatus::Closed {
                closed.add(report.last_modified, &windows);
            }
        }
        Ok(counters)
    }

    async fn markers_of(
        &self,
        index: &str,
        subject: &str,
    ) -> Result<Vec<Arc<FraudMarker>>, RecordStoreError> {
        let set = format!("markers-{index}:{subject}");
        let names = self.names("marker", &set).await?;
        self.records.get_all(&names).await
    }

    async fn infractions_of(
        &self,
        index: &str,
        subject: &str,
    ) -> Result<Vec<Arc<InfractionReport>>, RecordStoreError> {
        let set = format!("infractions-{index}:{subject}");
        let names = self.names("infraction", &set).await?;
        self.records.get_all(&names).await
    }

    async fn names(&self, kind: &str, set: &str) -> Result<Vec<String>, RecordStoreError> {
        let ids = self.members_of(set).await?;
        Ok(ids
            .into_iter()
            .map(|(_, id)| format!("{kind}:{id}"))
            .collect())
    }

    async fn members_of(&self, set: &str) -> Result<Vec<(u64, String)>, RecordStoreError> {
        self.records
            .members(set, 0..=u64::MAX >> 11, 0, COUNTED_MAX)
            .await
    }
}

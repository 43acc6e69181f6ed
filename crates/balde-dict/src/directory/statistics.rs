//! Statistics of a key or a person, counted for each request.

use std::collections::HashSet;
use std::sync::Arc;

use super::entries::owner_name;
use super::handle::Directory;
use super::store::{EVENTS_MAX, RecordStoreError};
use crate::wire::{
    AnalysisResult, FraudMarker, FraudMarkerStatus, FraudType, InfractionReport, InfractionStatus,
    Statistics, Timestamp,
};

/// The most fraud markers and infraction reports that are counted.
const COUNTED_MAX: usize = 10_000;

impl Directory {
    /// Returns the statistics of a key.
    pub(crate) async fn key_statistics(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<Statistics, RecordStoreError> {
        let mut statistics = self.statistics("key", key, now).await?;
        statistics.registered_entries = u64::from(self.entry(key).await?.is_some());
        Ok(statistics)
    }

    /// Returns the statistics of a person or company.
    pub(crate) async fn person_statistics(
        &self,
        tax_id: &str,
        now: Timestamp,
    ) -> Result<Statistics, RecordStoreError> {
        let mut statistics = self.statistics("owner", tax_id, now).await?;
        statistics.registered_entries = self.records.len(&owner_name(tax_id)).await?;
        Ok(statistics)
    }

    async fn statistics(
        &self,
        index: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<Statistics, RecordStoreError> {
        let mut statistics = Statistics::default();
        let settlements = format!("settlements-{index}:{subject}");
        let limit = usize::try_from(EVENTS_MAX).unwrap_or(usize::MAX);
        for (ms, _) in self
            .records
            .members(&settlements, 0..=now.ms(), 0, limit)
            .await?
        {
            statistics.settlements.add(Timestamp::from_ms(ms), now);
        }
        let mut reporters = HashSet::new();
        for marker in self.markers_of(index, subject).await? {
            if marker.status != FraudMarkerStatus::Registered {
                continue;
            }
            let counts = match marker.fraud_type {
                FraudType::ApplicationFraud => &mut statistics.application_frauds,
                FraudType::MuleAccount => &mut statistics.mule_accounts,
                FraudType::ScammerAccount => &mut statistics.scammer_accounts,
                FraudType::Other | FraudType::Unknown => &mut statistics.other_frauds,
            };
            counts.add(marker.creation_time, now);
            reporters.insert(marker.participant.clone());
        }
        statistics.distinct_reporters = reporters.len() as u64;
        for report in self.infractions_of(index, subject).await? {
            match (report.status, report.analysis_result) {
                (InfractionStatus::Open | InfractionStatus::Acknowledged, _) => {
                    statistics.open_reports += 1;
                }
                (InfractionStatus::Closed, Some(AnalysisResult::Disagreed)) => {
                    statistics.rejected_reports.add(report.last_modified, now);
                }
                _ => {}
            }
        }
        Ok(statistics)
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
        let ids = self
            .records
            .members(set, 0..=u64::MAX >> 11, 0, COUNTED_MAX)
            .await?;
        Ok(ids
            .into_iter()
            .map(|(_, id)| format!("{kind}:{id}"))
            .collect())
    }
}

//! What is known of a key or a person: counted when it is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use super::Directory;
use super::entries::owner_name;
use super::world::{EVENTS_MAX, WorldError};
use crate::wire::{
    AnalysisResult, FraudMarker, FraudMarkerStatus, FraudType, InfractionReport, InfractionStatus,
    Moment, Statistics,
};

/// The most markers and reports that are counted.
const COUNTED_MAX: usize = 10_000;

impl Directory {
    /// The statistics of a key.
    pub(crate) async fn key_statistics(
        &self,
        key: &str,
        now: Moment,
    ) -> Result<Statistics, WorldError> {
        let mut statistics = self.statistics("key", key, now).await?;
        statistics.registered_entries = u64::from(self.entry(key).await?.is_some());
        Ok(statistics)
    }

    /// The statistics of a person or company.
    pub(crate) async fn person_statistics(
        &self,
        tax_id: &str,
        now: Moment,
    ) -> Result<Statistics, WorldError> {
        let mut statistics = self.statistics("owner", tax_id, now).await?;
        statistics.registered_entries = self.world.len(&owner_name(tax_id)).await?;
        Ok(statistics)
    }

    async fn statistics(
        &self,
        what: &str,
        whose: &str,
        now: Moment,
    ) -> Result<Statistics, WorldError> {
        let mut statistics = Statistics::default();
        let settlements = format!("settlements-{what}:{whose}");
        let most = usize::try_from(EVENTS_MAX).unwrap_or(usize::MAX);
        for (ms, _) in self
            .world
            .members(&settlements, 0..=now.ms(), 0, most)
            .await?
        {
            statistics.settlements.add(Moment::from_ms(ms), now);
        }
        let mut reporters = HashSet::new();
        for marker in self.markers_of(what, whose).await? {
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
        for report in self.infractions_of(what, whose).await? {
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
        what: &str,
        whose: &str,
    ) -> Result<Vec<Arc<FraudMarker>>, WorldError> {
        let index = format!("markers-{what}:{whose}");
        let names = self.names("marker", &index).await?;
        self.world.get_all(&names).await
    }

    async fn infractions_of(
        &self,
        what: &str,
        whose: &str,
    ) -> Result<Vec<Arc<InfractionReport>>, WorldError> {
        let index = format!("infractions-{what}:{whose}");
        let names = self.names("infraction", &index).await?;
        self.world.get_all(&names).await
    }

    async fn names(&self, kind: &str, index: &str) -> Result<Vec<String>, WorldError> {
        let ids = self
            .world
            .members(index, 0..=u64::MAX >> 11, 0, COUNTED_MAX)
            .await?;
        Ok(ids
            .into_iter()
            .map(|(_, id)| format!("{kind}:{id}"))
            .collect())
    }
}

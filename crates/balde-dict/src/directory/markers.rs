//! Fraud markers: created and cancelled by the same participant, visible to all.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{ListFilter, Side};
use super::store::RecordTransaction;
use crate::wire::{
    CancelFraudMarker, CreateFraudMarker, FraudMarker, FraudMarkerStatus, FraudType, Problem,
    Timestamp,
};

impl Directory {
    /// Carries out createFraudMarker. Repeating a request id returns the marker that it created.
    pub(crate) async fn create_marker(
        &self,
        request: &CreateFraudMarker,
        now: Timestamp,
    ) -> Result<Arc<FraudMarker>, DirectoryError> {
        if request.fraud_type == FraudType::Unknown {
            return Err(DirectoryError::rejected(
                "FraudMarkerInvalid",
                "The FraudType UNKNOWN is only for markers of version 1",
            ));
        }
        self.transact(|mut transaction| async move {
            let request_name = request.request_id.as_ref().map(|id| {
                format!(
                    "markerrequest:{}:{}",
                    request.participant,
                    id.to_lowercase()
                )
            });
            if let Some(request_name) = &request_name {
                let existing: Option<Arc<String>> = transaction.read(request_name).await?;
                if let Some(id) = existing {
                    let marker = self.marker(&id).await?;
                    return Ok(transaction.commit(marker).await?);
                }
            }
            let marker = Arc::new(FraudMarker {
                id: new_id(),
                tax_id_number: request.tax_id_number.clone(),
                key: request.key.clone(),
                fraud_type: request.fraud_type,
                status: FraudMarkerStatus::Registered,
                participant: request.participant.clone(),
                creation_time: now,
                last_modified: now,
            });
            if let Some(request_name) = request_name {
                transaction.put(request_name, Arc::new(marker.id.clone()))?;
            }
            transaction.count("markers".to_owned(), 1, RECORDS_MAX);
            put_marker(&mut transaction, &marker)?;
            Ok(transaction.commit(marker).await?)
        })
        .await
    }

    /// Carries out getFraudMarker.
    pub(crate) async fn marker(&self, id: &str) -> Result<Arc<FraudMarker>, DirectoryError> {
        let marker = self.records.get(&marker_name(id)).await?;
        marker.ok_or_else(|| not_found().into())
    }

    /// Carries out listFraudMarkers, for a person or company.
    pub(crate) async fn markers(
        &self,
        tax_id: &str,
        limit: usize,
    ) -> Result<(Vec<FraudMarker>, bool), DirectoryError> {
        let filter = ListFilter {
            participant: String::new(),
            sides: vec![Side::Initiator],
            modified_after: None,
            modified_before: None,
            limit,
        };
        let index = format!("markers-owner:{tax_id}");
        Ok(self
            .list(&index, "marker", &filter, |_: &FraudMarker| true)
            .await?)
    }

    /// Carries out cancelFraudMarker.
    pub(crate) async fn cancel_marker(
        &self,
        request: &CancelFraudMarker,
        now: Timestamp,
    ) -> Result<Arc<FraudMarker>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let name = marker_name(&request.id);
            let found: Option<Arc<FraudMarker>> = transaction.read(&name).await?;
            let found = found.ok_or_else(not_found)?;
            if found.participant != request.participant {
                return Err(Problem::forbidden("Another participant created this marker").into());
            }
            if found.status != FraudMarkerStatus::Registered {
                return Err(DirectoryError::rejected(
                    "FraudMarkerInvalid",
                    "The marker is cancelled already",
                ));
            }
            let marker = Arc::new(FraudMarker {
                status: FraudMarkerStatus::Cancelled,
                last_modified: now,
                ..(*found).clone()
            });
            put_marker(&mut transaction, &marker)?;
            Ok(transaction.commit(marker).await?)
        })
        .await
    }
}

pub(super) fn put_marker(
    transaction: &mut RecordTransaction<'_>,
    marker: &Arc<FraudMarker>,
) -> Result<(), DirectoryError> {
    transaction.put(marker_name(&marker.id), Arc::clone(marker))?;
    let at = marker.last_modified.ms();
    transaction.add_member(
        format!("markers-owner:{}", marker.tax_id_number),
        at,
        &marker.id,
    );
    if let Some(key) = &marker.key {
        transaction.add_member(format!("markers-key:{key}"), at, &marker.id);
    }
    Ok(())
}

fn marker_name(id: &str) -> String {
    format!("marker:{}", id.to_lowercase())
}

fn not_found() -> Problem {
    Problem::not_found("No fraud marker has the given id")
}

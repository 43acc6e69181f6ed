//! Fraud markers: created by a participant, or by closing a report, and cancelled by the same
//! participant.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{Cursor, ListFilter, Listed};
use super::store::RecordTransaction;
use crate::wire::{
    CancelFraudMarker, CreateFraudMarker, FraudMarker, FraudMarkerStatus, Problem, Timestamp,
};

/// Which fraud markers of a person a list contains.
#[derive(Clone, Debug)]
pub(crate) struct MarkerFilter {
    pub(crate) tax_id: String,
    pub(crate) key: Option<String>,
    pub(crate) status: Option<FraudMarkerStatus>,
}

impl Directory {
    /// Carries out createFraudMarker. Repeating a request id returns the marker that it created.
    pub(crate) async fn create_marker(
        &self,
        request: &CreateFraudMarker,
        now: Timestamp,
    ) -> Result<Arc<FraudMarker>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let request_name = format!(
                "markerrequest:{}:{}",
                request.participant, request.request_id
            );
            let existing: Option<Arc<String>> = transaction.read(&request_name).await?;
            if let Some(id) = existing {
                let marker = self.marker(&id).await?;
                if !is_same(&marker, request) {
                    let detail = "The RequestId was used for another marker";
                    return Err(DirectoryError::rejected("RequestIdAlreadyUsed", detail));
                }
                return Ok(transaction.commit(marker).await?);
            }
            let marker = Arc::new(FraudMarker {
                id: new_id(),
                tax_id_number: request.tax_id_number.clone(),
                key: request.key.clone(),
                fraud_type: request.fraud_type,
                status: FraudMarkerStatus::Registered,
                participant: request.participant.clone(),
                report: None,
                amount_cents: None,
                creation_time: now,
                last_modified: now,
            });
            transaction.put(request_name, Arc::new(marker.id.clone()))?;
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

    /// Carries out listFraudMarkers: those of a person or company that the participants made.
    pub(crate) async fn markers(
        &self,
        filter: &ListFilter,
        markers: &MarkerFilter,
    ) -> Result<Vec<FraudMarker>, DirectoryError> {
        let matches = |marker: &FraudMarker| {
            filter.participants.contains(&marker.participant)
                && markers.status.is_none_or(|status| marker.status == status)
                && (markers.key.is_none() || marker.key == markers.key)
        };
        let indexes = [format!("markers-owner:{}", markers.tax_id)];
        let (found, _) = self.list(&indexes, "marker", filter, matches).await?;
        Ok(found)
    }

    /// Carries out cancelFraudMarker. A repetition returns the marker unchanged.
    pub(crate) async fn cancel_marker(
        &self,
        request: &CancelFraudMarker,
        now: Timestamp,
    ) -> Result<Arc<FraudMarker>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let found: Option<Arc<FraudMarker>> =
                transaction.read(&marker_name(&request.id)).await?;
            let found = found.ok_or_else(not_found)?;
            if found.participant != request.participant {
                return Err(Problem::forbidden("Another participant created this marker").into());
            }
            if found.status == FraudMarkerStatus::Cancelled {
                return Ok(transaction.commit(found).await?);
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

impl Listed for FraudMarker {
    fn cursor(&self) -> Cursor {
        (self.last_modified.ms(), self.id.clone())
    }
}

/// Cancels the marker of a report that is cancelled.
pub(super) async fn set_marker_cancelled(
    transaction: &mut RecordTransaction<'_>,
    id: &str,
    now: Timestamp,
) -> Result<(), DirectoryError> {
    let found: Option<Arc<FraudMarker>> = transaction.read(&marker_name(id)).await?;
    if let Some(found) = found
        && found.status == FraudMarkerStatus::Registered
    {
        let marker = Arc::new(FraudMarker {
            status: FraudMarkerStatus::Cancelled,
            last_modified: now,
            ..(*found).clone()
        });
        put_marker(transaction, &marker)?;
    }
    Ok(())
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

fn is_same(marker: &FraudMarker, request: &CreateFraudMarker) -> bool {
    marker.tax_id_number == request.tax_id_number
        && marker.key == request.key
        && marker.fraud_type == request.fraud_type
}

fn marker_name(id: &str) -> String {
    format!("marker:{}", id.to_lowercase())
}

fn not_found() -> Problem {
    Problem::not_found("No fraud marker has the given id")
}

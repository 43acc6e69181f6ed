//! Fraud markers: made and called off by the same participant, seen by all.

use std::sync::Arc;

use super::lists::{ListFilter, Side};
use super::world::Change;
use super::{Directory, RECORDS_MAX, Refusal, Tries, Try, new_id};
use crate::wire::{
    CancelFraudMarker, CreateFraudMarker, FraudMarker, FraudMarkerStatus, FraudType, Moment,
    Problem,
};

impl Directory {
    /// createFraudMarker. Asked twice under one id, it happens once.
    pub(crate) async fn create_marker(
        &self,
        request: &CreateFraudMarker,
        now: Moment,
    ) -> Result<Arc<FraudMarker>, Refusal> {
        if request.fraud_type == FraudType::Unknown {
            return Err(Refusal::new(
                "FraudMarkerInvalid",
                "The FraudType UNKNOWN is only for markers of version 1",
            ));
        }
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let asked = request.request_id.as_ref().map(|id| {
                format!(
                    "markerrequest:{}:{}",
                    request.participant,
                    id.to_lowercase()
                )
            });
            if let Some(asked) = &asked {
                let before: Option<Arc<String>> = self.world.read(&mut change, asked).await?;
                if let Some(id) = before {
                    return self.marker(&id).await;
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
            if let Some(asked) = asked {
                self.world
                    .put(&mut change, asked, Arc::new(marker.id.clone()))?;
            }
            change.count("markers".to_owned(), 1, RECORDS_MAX);
            self.keep_marker(&mut change, &marker)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(marker);
            }
        }
    }

    /// getFraudMarker.
    pub(crate) async fn marker(&self, id: &str) -> Result<Arc<FraudMarker>, Refusal> {
        let marker = self.world.get(&marker_name(id)).await?;
        marker.ok_or_else(|| none_has_the_id().into())
    }

    /// listFraudMarkers, of a person or company.
    pub(crate) async fn markers(
        &self,
        tax_id: &str,
        limit: usize,
    ) -> Result<(Vec<FraudMarker>, bool), Refusal> {
        let filter = ListFilter {
            participant: String::new(),
            sides: vec![Side::Beginner],
            modified_after: None,
            modified_before: None,
            limit,
        };
        let index = format!("markers-owner:{tax_id}");
        Ok(self
            .list(&index, "marker", &filter, |_: &FraudMarker| true)
            .await?)
    }

    /// cancelFraudMarker.
    pub(crate) async fn cancel_marker(
        &self,
        request: &CancelFraudMarker,
        now: Moment,
    ) -> Result<Arc<FraudMarker>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let name = marker_name(&request.id);
            let found: Option<Arc<FraudMarker>> = self.world.read(&mut change, &name).await?;
            let found = found.ok_or_else(none_has_the_id)?;
            if found.participant != request.participant {
                return Err(Problem::forbidden("Another participant made this marker").into());
            }
            if found.status != FraudMarkerStatus::Registered {
                return Err(Refusal::new(
                    "FraudMarkerInvalid",
                    "The marker was called off already",
                ));
            }
            let marker = Arc::new(FraudMarker {
                status: FraudMarkerStatus::Cancelled,
                last_modified: now,
                ..(*found).clone()
            });
            self.keep_marker(&mut change, &marker)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(marker);
            }
        }
    }

    pub(super) fn keep_marker(
        &self,
        change: &mut Change,
        marker: &Arc<FraudMarker>,
    ) -> Result<(), Refusal> {
        self.world
            .put(change, marker_name(&marker.id), Arc::clone(marker))?;
        let at = marker.last_modified.ms();
        change.add(
            format!("markers-owner:{}", marker.tax_id_number),
            at,
            &marker.id,
        );
        if let Some(key) = &marker.key {
            change.add(format!("markers-key:{key}"), at, &marker.id);
        }
        Ok(())
    }
}

fn marker_name(id: &str) -> String {
    format!("marker:{}", id.to_lowercase())
}

fn none_has_the_id() -> Problem {
    Problem::not_found("No fraud marker has the given id")
}

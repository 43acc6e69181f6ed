//! Handlers of fraud markers.

use super::{RequestContext, invalid, problem};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    CancelFraudMarker, CreateFraudMarker, Problem, fraud_marker_response, list_fraud_markers,
};

impl Simulator {
    pub(super) async fn create_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateFraudMarker::read(context.document()?);
        let request = read.map_err(invalid("FraudMarkerInvalid"))?;
        let created = self.0.directory.create_marker(&request, context.now).await;
        let marker = created.map_err(problem)?;
        let body = fraud_marker_response("CreateFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let marker = self
            .0
            .directory
            .marker(context.uuid()?)
            .await
            .map_err(problem)?;
        let body = fraud_marker_response("GetFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_fraud_markers(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let tax_id = query.text("TaxIdNumber").unwrap_or_default();
        let found = self.0.directory.markers(&tax_id, query.limit()?).await;
        let (markers, has_more) = found.map_err(problem)?;
        let body = list_fraud_markers(&context.head, &markers, has_more);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn cancel_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CancelFraudMarker::read(context.document()?);
        let request = read.map_err(invalid("FraudMarkerInvalid"))?;
        context.require_path_id(&request.id)?;
        let cancelled = self.0.directory.cancel_marker(&request, context.now).await;
        let marker = cancelled.map_err(problem)?;
        let body = fraud_marker_response("CancelFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(200, body))
    }
}

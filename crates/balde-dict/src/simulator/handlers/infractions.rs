//! Handlers of infraction reports.

use super::{RequestContext, invalid, problem};
use crate::Operation;
use crate::directory::InfractionAction;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    CreateInfractionReport, InfractionActionRequest, InfractionStatus, Problem, WireEnum,
    infraction_response, list_infractions,
};

impl Simulator {
    pub(super) async fn create_infraction_report(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateInfractionReport::read(context.document()?);
        let request = read.map_err(invalid("InfractionReportInvalid"))?;
        let created = self
            .0
            .directory
            .create_infraction(&request, context.now)
            .await;
        let report = created.map_err(problem)?;
        let body = infraction_response("CreateInfractionReportResponse", &context.head, &report);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_infraction_report(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let found = self
            .0
            .directory
            .infraction(context.participant, context.uuid()?)
            .await;
        let report = found.map_err(problem)?;
        let body = infraction_response("GetInfractionReportResponse", &context.head, &report);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_infraction_reports(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let sides = query.sides("IsReporter", "IsCounterparty")?;
        let filter = query.filter(context.participant, sides)?;
        let status = query.value("Status", InfractionStatus::parse)?;
        let found = self.0.directory.infractions(&filter, status).await;
        let (reports, has_more) = found.map_err(problem)?;
        let body = list_infractions(&context.head, &reports, has_more);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn apply_infraction_action(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let (step, request, response) = match context.operation {
            Operation::UpdateInfractionReport => (
                InfractionAction::Update,
                "UpdateInfractionReportRequest",
                "UpdateInfractionReportResponse",
            ),
            Operation::AcknowledgeInfractionReport => (
                InfractionAction::Acknowledge,
                "AcknowledgeInfractionReportRequest",
                "AcknowledgeInfractionReportResponse",
            ),
            Operation::CloseInfractionReport => (
                InfractionAction::Close,
                "CloseInfractionReportRequest",
                "CloseInfractionReportResponse",
            ),
            _ => (
                InfractionAction::Cancel,
                "CancelInfractionReportRequest",
                "CancelInfractionReportResponse",
            ),
        };
        let read = InfractionActionRequest::read(context.document()?, request);
        let request = read.map_err(invalid("InfractionReportInvalid"))?;
        context.require_path_id(&request.id)?;
        let moved = self
            .0
            .directory
            .apply_infraction_action(step, &request, context.now)
            .await;
        let moved = moved.map_err(problem)?;
        let body = infraction_response(response, &context.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

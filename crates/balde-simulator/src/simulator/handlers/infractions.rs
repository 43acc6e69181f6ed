//! Handlers of infraction reports.

use super::{RequestContext, invalid, problem};
use crate::directory::InfractionAction;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    CreateInfractionReport, InfractionActionRequest, InfractionStatus, Problem, ReportForm,
    WireEnum, infraction_response, list_infractions,
};
use balde_dict::Operation;

impl Simulator {
    pub(super) async fn create_infraction_report(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateInfractionReport::read(context.document()?, self.0.version);
        let request = read.map_err(invalid("InfractionReportInvalid"))?;
        let created = self
            .0
            .directory
            .create_infraction(&request, context.now)
            .await;
        let report = created.map_err(problem)?;
        let name = "CreateInfractionReportResponse";
        let body = infraction_response(name, &context.head, &report, self.0.version);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_infraction_report(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let found = self
            .0
            .directory
            .infraction(&self.represented_by(context.participant), context.uuid()?)
            .await;
        let report = found.map_err(problem)?;
        let name = "GetInfractionReportResponse";
        let body = infraction_response(name, &context.head, &report, self.0.version);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_infraction_reports(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let sides = query.sides("IsReporter", "IsCounterparty")?;
        let participants = self.listed_participants(context, &query)?;
        let filter = query.filter(participants, sides)?;
        let statuses = query.values("Status", InfractionStatus::parse)?;
        let form = ReportForm {
            version: self.0.version,
            has_details: query.flag("IncludeDetails")? == Some(true),
        };
        let found = self.0.directory.infractions(&filter, &statuses).await;
        let (reports, has_more) = found.map_err(problem)?;
        let body = list_infractions(&context.head, &reports, has_more, form);
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
        let error_type = match step {
            InfractionAction::Update | InfractionAction::Close => "InfractionReportInvalid",
            InfractionAction::Acknowledge | InfractionAction::Cancel => "BadRequest",
        };
        let read = InfractionActionRequest::read(context.document()?, request, self.0.version);
        let request = read.map_err(invalid(error_type))?;
        context.require_path_id(&request.id)?;
        let moved = self
            .0
            .directory
            .apply_infraction_action(step, &request, context.now)
            .await;
        let moved = moved.map_err(problem)?;
        let body = infraction_response(response, &context.head, &moved, self.0.version);
        Ok(Answer::xml(200, body))
    }
}

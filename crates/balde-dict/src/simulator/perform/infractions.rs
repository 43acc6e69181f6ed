//! Infraction reports.

use super::query::Query;
use super::{Task, invalid, refused};
use crate::Operation;
use crate::directory::InfractionStep;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    CreateInfractionReport, InfractionStatus, MoveInfractionReport, Problem, infraction_response,
    list_infractions,
};

impl Simulator {
    pub(super) async fn create_infraction_report(
        &self,
        task: &Task<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateInfractionReport::read(task.document()?);
        let request = read.map_err(invalid("InfractionReportInvalid"))?;
        let created = self.0.directory.create_infraction(&request, task.now).await;
        let report = created.map_err(refused)?;
        let body = infraction_response("CreateInfractionReportResponse", &task.head, &report);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_infraction_report(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let found = self
            .0
            .directory
            .infraction(task.participant, task.uuid()?)
            .await;
        let report = found.map_err(refused)?;
        let body = infraction_response("GetInfractionReportResponse", &task.head, &report);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_infraction_reports(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let query = Query::new(task.query);
        let sides = query.sides("IsReporter", "IsCounterparty")?;
        let filter = query.filter(task.participant, sides)?;
        let status = query.word("Status", InfractionStatus::read)?;
        let found = self.0.directory.infractions(&filter, status).await;
        let (reports, has_more) = found.map_err(refused)?;
        let body = list_infractions(&task.head, &reports, has_more);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn move_infraction_report(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let (step, request, response) = match task.operation {
            Operation::UpdateInfractionReport => (
                InfractionStep::Update,
                "UpdateInfractionReportRequest",
                "UpdateInfractionReportResponse",
            ),
            Operation::AcknowledgeInfractionReport => (
                InfractionStep::Acknowledge,
                "AcknowledgeInfractionReportRequest",
                "AcknowledgeInfractionReportResponse",
            ),
            Operation::CloseInfractionReport => (
                InfractionStep::Close,
                "CloseInfractionReportRequest",
                "CloseInfractionReportResponse",
            ),
            _ => (
                InfractionStep::Cancel,
                "CancelInfractionReportRequest",
                "CancelInfractionReportResponse",
            ),
        };
        let read = MoveInfractionReport::read(task.document()?, request);
        let request = read.map_err(invalid("InfractionReportInvalid"))?;
        task.must_be_the_id(&request.id)?;
        let moved = self
            .0
            .directory
            .move_infraction(step, &request, task.now)
            .await;
        let moved = moved.map_err(refused)?;
        let body = infraction_response(response, &task.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

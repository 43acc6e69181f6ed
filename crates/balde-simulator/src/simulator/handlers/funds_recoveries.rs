//! Handlers of funds recoveries.

use super::{RequestContext, invalid, problem};
use crate::directory::FundsRecoveryAction;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    CreateFundsRecovery, FundsRecoveryActionRequest, GraphParameters, Problem,
    funds_recovery_response, recovery_refunds_response, recovery_reports_response,
    tracking_graph_response,
};
use balde_dict::Operation;

impl Simulator {
    pub(super) async fn create_funds_recovery(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateFundsRecovery::read(context.document()?);
        let request = read.map_err(invalid("FundsRecoveryInvalid"))?;
        let parameters = graph_parameters(context)?;
        let created = self
            .0
            .directory
            .create_funds_recovery(&request, parameters, context.now)
            .await;
        let recovery = created.map_err(problem)?;
        let name = "CreateFundsRecoveryResponse";
        let body = funds_recovery_response(name, &context.head, &recovery);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_funds_recovery(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let found = directory
            .funds_recovery(context.participant, context.uuid()?)
            .await;
        let recovery = found.map_err(problem)?;
        let name = "GetFundsRecoveryResponse";
        let body = funds_recovery_response(name, &context.head, &recovery);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_tracking_graph(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let found = directory
            .tracking_graph(context.participant, context.uuid()?)
            .await;
        let (recovery, graph) = found.map_err(problem)?;
        let name = "GetTrackingGraphResponse";
        let body = tracking_graph_response(name, &context.head, &recovery, &graph);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_recovery_reports(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let found = directory
            .recovery_reports(context.participant, context.uuid()?)
            .await;
        let body = recovery_reports_response(&context.head, &found.map_err(problem)?);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_recovery_refunds(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let found = directory
            .recovery_refunds(context.participant, context.uuid()?)
            .await;
        let body = recovery_refunds_response(&context.head, &found.map_err(problem)?);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn apply_recovery_action(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        use FundsRecoveryAction as A;
        let (action, request, response) = match context.operation {
            Operation::UpdateFundsRecovery => (
                A::Update,
                "UpdateFundsRecoveryRequest",
                "UpdateFundsRecoveryResponse",
            ),
            Operation::CreateTrackingGraph => (
                A::Track(graph_parameters(context)?),
                "CreateTrackingGraphRequest",
                "CreateTrackingGraphResponse",
            ),
            Operation::BlockFundsRecovery => (
                A::Block,
                "BlockFundsRecoveryRequest",
                "BlockFundsRecoveryResponse",
            ),
            Operation::RefundFundsRecovery => (
                A::Refund,
                "RefundFundsRecoveryRequest",
                "RefundFundsRecoveryResponse",
            ),
            _ => (
                A::Cancel,
                "CancelFundsRecoveryRequest",
                "CancelFundsRecoveryResponse",
            ),
        };
        let error_type = match action {
            A::Update => "FundsRecoveryInvalid",
            A::Block => "FundsRecoveryPrioritizationInvalid",
            _ => "BadRequest",
        };
        let read = FundsRecoveryActionRequest::read(context.document()?, request);
        let request = read.map_err(invalid(error_type))?;
        context.require_path_id(&request.id)?;
        let moved = self
            .0
            .directory
            .apply_recovery_action(action, &request, context.now)
            .await;
        let unknown_status = self.0.table.settings().unknown_recovery_status;
        let recovery = moved.map_err(problem).map_err(|problem| {
            // Unlike its siblings, cancelFundsRecovery declares no 404.
            if action == A::Cancel && problem.status() == 404 && unknown_status == 400 {
                return Problem::bad_request(problem.detail().unwrap_or_default());
            }
            problem
        })?;
        let body = match (&recovery.graph, action) {
            (Some(graph), A::Track(_)) => {
                tracking_graph_response(response, &context.head, &recovery, graph)
            }
            _ => funds_recovery_response(response, &context.head, &recovery),
        };
        Ok(Answer::xml(200, body))
    }
}

fn graph_parameters(context: &RequestContext<'_>) -> Result<GraphParameters, Problem> {
    let read = GraphParameters::read(context.document()?);
    read.map_err(invalid("FundsRecoveryTrackingGraphParameterInvalid"))
}

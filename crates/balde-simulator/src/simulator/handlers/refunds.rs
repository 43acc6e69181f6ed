//! Handlers of refunds.

use super::{RequestContext, invalid, problem};
use crate::directory::{RefundAction, Side};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    CreateRefund, Problem, RefundActionRequest, RefundRole, RefundStatus, WireEnum, list_refunds,
    refund_response,
};
use balde_dict::Operation;

impl Simulator {
    pub(super) async fn create_refund(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = CreateRefund::read(context.document()?).map_err(invalid("RefundInvalid"))?;
        let created = self.0.directory.create_refund(&request, context.now).await;
        let refund = created.map_err(problem)?;
        let body = refund_response("CreateRefundResponse", &context.head, &refund);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_refund(&self, context: &RequestContext<'_>) -> Result<Answer, Problem> {
        let refund = self
            .0
            .directory
            .refund(&self.represented_by(context.participant), context.uuid()?)
            .await;
        let refund = refund.map_err(problem)?;
        let body = refund_response("GetRefundResponse", &context.head, &refund);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_refunds(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let role = query.value("ParticipantRole", RefundRole::parse)?;
        let sides = match role {
            Some(RefundRole::Requesting) => vec![Side::Initiator],
            Some(RefundRole::Contested) => vec![Side::Counterparty],
            None => {
                let detail = "Missing request parameter 'ParticipantRole'";
                return Err(Problem::bad_request(detail));
            }
        };
        let participants = self.listed_participants(context, &query)?;
        let mut filter = query.filter(participants, sides)?;
        filter.after = query.cursor()?;
        let statuses = query.values("Status", RefundStatus::parse)?;
        let has_details = query.flag("IncludeDetails")? == Some(true);
        let found = self.0.directory.refunds(&filter, &statuses).await;
        let (refunds, next) = found.map_err(problem)?;
        let next = next.map(|(ms, id)| format!("{ms}.{id}"));
        let body = list_refunds(&context.head, &refunds, next.as_deref(), has_details);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn apply_refund_action(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let (step, request, response) = match context.operation {
            Operation::CloseRefund => (
                RefundAction::Close,
                "CloseRefundRequest",
                "CloseRefundResponse",
            ),
            _ => (
                RefundAction::Cancel,
                "CancelRefundRequest",
                "CancelRefundResponse",
            ),
        };
        let error_type = match step {
            RefundAction::Close => "RefundInvalid",
            RefundAction::Cancel => "BadRequest",
        };
        let read = RefundActionRequest::read(context.document()?, request);
        let request = read.map_err(invalid(error_type))?;
        context.require_path_id(&request.id)?;
        let moved = self
            .0
            .directory
            .apply_refund_action(step, &request, context.now)
            .await;
        let moved = moved.map_err(problem)?;
        let body = refund_response(response, &context.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

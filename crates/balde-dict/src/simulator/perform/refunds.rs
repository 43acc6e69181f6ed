//! Refunds.

use super::query::Query;
use super::{Task, invalid, refused};
use crate::Operation;
use crate::directory::{RefundStep, Side};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    CreateRefund, MoveRefund, Problem, RefundRole, RefundStatus, list_refunds, refund_response,
};

impl Simulator {
    pub(super) async fn create_refund(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let request = CreateRefund::read(task.document()?).map_err(invalid("RefundInvalid"))?;
        let created = self.0.directory.create_refund(&request, task.now).await;
        let refund = created.map_err(refused)?;
        let body = refund_response("CreateRefundResponse", &task.head, &refund);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_refund(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let refund = self
            .0
            .directory
            .refund(task.participant, task.uuid()?)
            .await;
        let refund = refund.map_err(refused)?;
        let body = refund_response("GetRefundResponse", &task.head, &refund);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_refunds(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let query = Query::new(task.query);
        let role = query.word("ParticipantRole", RefundRole::read)?;
        let sides = match role {
            Some(RefundRole::Requesting) => vec![Side::Beginner],
            Some(RefundRole::Contested) => vec![Side::Other],
            None => Vec::new(),
        };
        let filter = query.filter(task.participant, sides)?;
        let status = query.word("Status", RefundStatus::read)?;
        let found = self.0.directory.refunds(&filter, status).await;
        let (refunds, has_more) = found.map_err(refused)?;
        Ok(Answer::xml(
            200,
            list_refunds(&task.head, &refunds, has_more),
        ))
    }

    pub(super) async fn move_refund(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let (step, request, response) = match task.operation {
            Operation::CloseRefund => (
                RefundStep::Close,
                "CloseRefundRequest",
                "CloseRefundResponse",
            ),
            _ => (
                RefundStep::Cancel,
                "CancelRefundRequest",
                "CancelRefundResponse",
            ),
        };
        let read = MoveRefund::read(task.document()?, request);
        let request = read.map_err(invalid("RefundInvalid"))?;
        task.must_be_the_id(&request.id)?;
        let moved = self.0.directory.move_refund(step, &request, task.now).await;
        let moved = moved.map_err(refused)?;
        let body = refund_response(response, &task.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

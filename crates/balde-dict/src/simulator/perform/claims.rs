//! Claims.

use super::query::Query;
use super::{Task, invalid, refused};
use crate::Operation;
use crate::directory::ClaimStep;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    ClaimStatus, ClaimType, CreateClaim, MoveClaim, Problem, claim_response, list_claims,
};

impl Simulator {
    pub(super) async fn create_claim(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let request = CreateClaim::read(task.document()?).map_err(invalid("ClaimInvalid"))?;
        let created = self.0.directory.create_claim(&request, task.now).await;
        let claim = created.map_err(refused)?;
        let body = claim_response("CreateClaimResponse", &task.head, &claim);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_claim(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let claim = self.0.directory.claim(task.participant, task.uuid()?).await;
        let claim = claim.map_err(refused)?;
        let body = claim_response("GetClaimResponse", &task.head, &claim);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_claims(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let query = Query::new(task.query);
        let filter = query.filter(task.participant, query.sides("IsClaimer", "IsDonor")?)?;
        let status = query.word("Status", ClaimStatus::read)?;
        let claim_type = query.word("Type", ClaimType::read)?;
        let found = self.0.directory.claims(&filter, status, claim_type).await;
        let (claims, has_more) = found.map_err(refused)?;
        Ok(Answer::xml(200, list_claims(&task.head, &claims, has_more)))
    }

    pub(super) async fn move_claim(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let (step, request, response) = match task.operation {
            Operation::AcknowledgeClaim => (
                ClaimStep::Acknowledge,
                "AcknowledgeClaimRequest",
                "AcknowledgeClaimResponse",
            ),
            Operation::ConfirmClaim => (
                ClaimStep::Confirm,
                "ConfirmClaimRequest",
                "ConfirmClaimResponse",
            ),
            Operation::CompleteClaim => (
                ClaimStep::Complete,
                "CompleteClaimRequest",
                "CompleteClaimResponse",
            ),
            _ => (
                ClaimStep::Cancel,
                "CancelClaimRequest",
                "CancelClaimResponse",
            ),
        };
        let read = MoveClaim::read(task.document()?, request);
        let request = read.map_err(invalid("ClaimInvalid"))?;
        task.must_be_the_id(&request.claim_id)?;
        let moved = self.0.directory.move_claim(step, &request, task.now).await;
        let moved = moved.map_err(refused)?;
        let body = claim_response(response, &task.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

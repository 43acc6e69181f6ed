//! Handlers of claims.

use super::{RequestContext, invalid, problem};
use crate::directory::ClaimAction;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    ClaimActionRequest, ClaimStatus, ClaimType, CreateClaim, Problem, WireEnum, claim_response,
    list_claims,
};
use balde_dict::Operation;

impl Simulator {
    pub(super) async fn create_claim(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = CreateClaim::read(context.document()?).map_err(invalid("ClaimInvalid"))?;
        self.check_restrictions(
            Some(&request.key),
            Some(&request.claimer.tax_id_number),
            [
                Some("EntryBlocked"),
                None,
                Some("TaxIdNumberBlocked"),
                Some("UserOrAccountWithFraudRelatedRestriction"),
            ],
        )?;
        let created = self.0.directory.create_claim(&request, context.now).await;
        let claim = created.map_err(problem)?;
        let body = claim_response("CreateClaimResponse", &context.head, &claim);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_claim(&self, context: &RequestContext<'_>) -> Result<Answer, Problem> {
        let claim = self
            .0
            .directory
            .claim(&self.represented_by(context.participant), context.uuid()?)
            .await;
        let claim = claim.map_err(problem)?;
        let body = claim_response("GetClaimResponse", &context.head, &claim);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_claims(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let participants = self.listed_participants(context, &query)?;
        let filter = query.filter(participants, query.sides("IsClaimer", "IsDonor")?)?;
        let statuses = query.values("Status", ClaimStatus::parse)?;
        let claim_type = query.value("Type", ClaimType::parse)?;
        let found = self
            .0
            .directory
            .claims(&filter, &statuses, claim_type)
            .await;
        let (claims, has_more) = found.map_err(problem)?;
        Ok(Answer::xml(
            200,
            list_claims(&context.head, &claims, has_more),
        ))
    }

    pub(super) async fn apply_claim_action(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let (step, request, response) = match context.operation {
            Operation::AcknowledgeClaim => (
                ClaimAction::Acknowledge,
                "AcknowledgeClaimRequest",
                "AcknowledgeClaimResponse",
            ),
            Operation::ConfirmClaim => (
                ClaimAction::Confirm,
                "ConfirmClaimRequest",
                "ConfirmClaimResponse",
            ),
            Operation::CompleteClaim => (
                ClaimAction::Complete,
                "CompleteClaimRequest",
                "CompleteClaimResponse",
            ),
            _ => (
                ClaimAction::Cancel,
                "CancelClaimRequest",
                "CancelClaimResponse",
            ),
        };
        let read = ClaimActionRequest::read(context.document()?, request);
        let request = read.map_err(invalid("BadRequest"))?;
        context.require_path_id(&request.claim_id)?;
        let moved = self
            .0
            .directory
            .apply_claim_action(step, &request, context.now)
            .await;
        let moved = moved.map_err(problem)?;
        let body = claim_response(response, &context.head, &moved);
        Ok(Answer::xml(200, body))
    }
}

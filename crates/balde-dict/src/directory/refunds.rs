//! Refunds: asked for and called off by one side, answered by the other.

use std::sync::Arc;

use super::infractions::infraction_name;
use super::lists::{ListFilter, Side};
use super::world::Change;
use super::{Directory, RECORDS_MAX, Refusal, Tries, Try, new_id};
use crate::wire::{
    AnalysisResult, CreateRefund, InfractionReport, Moment, MoveRefund, Problem, Refund,
    RefundReason, RefundStatus,
};

/// How a refund can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefundStep {
    Cancel,
    Close,
}

impl Directory {
    /// createRefund.
    pub(crate) async fn create_refund(
        &self,
        request: &CreateRefund,
        now: Moment,
    ) -> Result<Arc<Refund>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let (debited, credited) = self
                .sides(&request.participant, &request.transaction_id, "Refund")
                .await?;
            self.report_must_be_agreed(request).await?;
            let active = format!("refundof:{}", request.transaction_id);
            let other: Option<Arc<String>> = self.world.read(&mut change, &active).await?;
            if let Some(other) = other {
                return Err(self.already_asked(&other).await?);
            }
            let contested = if debited.as_deref() == Some(&*request.participant) {
                credited
            } else {
                debited
            };
            let refund = Arc::new(Refund {
                id: new_id(),
                transaction_id: request.transaction_id.clone(),
                reason: request.reason,
                amount: request.amount.clone(),
                details: request.details.clone(),
                status: RefundStatus::Open,
                requesting_participant: request.participant.clone(),
                contested_participant: contested,
                creation_time: now,
                last_modified: now,
                analysis_result: None,
                analysis_details: None,
                rejection_reason: None,
                refund_transaction_id: None,
            });
            self.world
                .put(&mut change, active, Arc::new(refund.id.clone()))?;
            change.count("refunds".to_owned(), 1, RECORDS_MAX);
            self.keep_refund(&mut change, &refund, "REFUND_OPENED")?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(refund);
            }
        }
    }

    /// getRefund, by either side.
    pub(crate) async fn refund(&self, participant: &str, id: &str) -> Result<Arc<Refund>, Refusal> {
        let refund: Option<Arc<Refund>> = self.world.get(&refund_name(id)).await?;
        let refund = refund.ok_or_else(none_has_the_id)?;
        side_of(&refund, participant)?;
        Ok(refund)
    }

    /// listRefunds.
    pub(crate) async fn refunds(
        &self,
        filter: &ListFilter,
        status: Option<RefundStatus>,
    ) -> Result<(Vec<Refund>, bool), Refusal> {
        let index = format!("refunds:{}", filter.participant);
        let fits = |refund: &Refund| {
            let on_side = |side: &Side| match side {
                Side::Beginner => refund.requesting_participant == filter.participant,
                Side::Other => refund.contested_participant.as_ref() == Some(&filter.participant),
            };
            filter.sides.iter().any(on_side) && status.is_none_or(|status| refund.status == status)
        };
        Ok(self.list(&index, "refund", filter, fits).await?)
    }

    /// cancel- and closeRefund.
    pub(crate) async fn move_refund(
        &self,
        step: RefundStep,
        request: &MoveRefund,
        now: Moment,
    ) -> Result<Arc<Refund>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let name = refund_name(&request.id);
            let found: Option<Arc<Refund>> = self.world.read(&mut change, &name).await?;
            let found = found.ok_or_else(none_has_the_id)?;
            let side = side_of(&found, &request.participant)?;
            let needed = match step {
                RefundStep::Cancel => Side::Beginner,
                RefundStep::Close => Side::Other,
            };
            if side != needed {
                return Err(Problem::forbidden("The other side of the refund does this").into());
            }
            if found.status != RefundStatus::Open {
                return Err(Refusal::new(
                    "RefundOperationInvalid",
                    "The refund's status does not allow this",
                ));
            }
            let mut refund = (*found).clone();
            refund.last_modified = now;
            let event = match step {
                RefundStep::Cancel => {
                    refund.status = RefundStatus::Cancelled;
                    change.delete(format!("refundof:{}", refund.transaction_id));
                    "REFUND_CANCELLED"
                }
                RefundStep::Close => {
                    refund.status = RefundStatus::Closed;
                    refund.contested_participant = Some(request.participant.clone());
                    refund.analysis_result = request.result;
                    refund.analysis_details.clone_from(&request.details);
                    refund.rejection_reason = request.rejection;
                    refund
                        .refund_transaction_id
                        .clone_from(&request.refund_transaction_id);
                    "REFUND_CLOSED"
                }
            };
            let refund = Arc::new(refund);
            self.keep_refund(&mut change, &refund, event)?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(refund);
            }
        }
    }

    fn keep_refund(
        &self,
        change: &mut Change,
        refund: &Arc<Refund>,
        event: &str,
    ) -> Result<(), Refusal> {
        self.world
            .put(change, refund_name(&refund.id), Arc::clone(refund))?;
        let at = refund.last_modified.ms();
        let other = refund.contested_participant.as_ref();
        for participant in [Some(&refund.requesting_participant), other]
            .into_iter()
            .flatten()
        {
            change.add(format!("refunds:{participant}"), at, &refund.id);
            change.event(
                format!("events:{participant}"),
                at,
                format!("{event}:{}", refund.id),
            );
        }
        Ok(())
    }

    async fn report_must_be_agreed(&self, request: &CreateRefund) -> Result<(), Refusal> {
        if !self.rules.refunds_need_a_report || request.reason != RefundReason::Fraud {
            return Ok(());
        }
        let active = format!("infractionof:{}", request.transaction_id);
        let id: Option<Arc<String>> = self.world.get(&active).await?;
        let report: Option<Arc<InfractionReport>> = match id {
            Some(id) => self.world.get(&infraction_name(&id)).await?,
            None => None,
        };
        let is_agreed =
            report.is_some_and(|report| report.analysis_result == Some(AnalysisResult::Agreed));
        if is_agreed {
            Ok(())
        } else {
            Err(Refusal::new(
                "RefundInfractionReportNotFound",
                "No infraction report on the transaction was agreed to",
            ))
        }
    }

    async fn already_asked(&self, id: &str) -> Result<Refusal, Refusal> {
        let other: Option<Arc<Refund>> = self.world.get(&refund_name(id)).await?;
        let is_closed = other.is_some_and(|other| other.status == RefundStatus::Closed);
        Ok(if is_closed {
            Refusal::new(
                "RefundAlreadyProcessedForTransaction",
                "A refund of the transaction has been closed",
            )
        } else {
            Refusal::new(
                "RefundAlreadyBeingProcessedForTransaction",
                "A refund of the transaction is open",
            )
        })
    }
}

fn refund_name(id: &str) -> String {
    format!("refund:{}", id.to_lowercase())
}

fn none_has_the_id() -> Problem {
    Problem::not_found("No refund has the given id")
}

/// Where the other side of a transaction is not known, anybody but who asked may be it.
fn side_of(refund: &Refund, participant: &str) -> Result<Side, Refusal> {
    let other = refund.contested_participant.as_deref();
    if refund.requesting_participant == participant {
        Ok(Side::Beginner)
    } else if other.is_none_or(|other| other == participant) {
        Ok(Side::Other)
    } else {
        Err(Problem::forbidden("The participant has no part in this refund").into())
    }
}

//! Refunds: requested and cancelled by one side, closed by the other.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::infractions::infraction_name;
use super::lists::{ListFilter, Side};
use super::store::RecordTransaction;
use crate::wire::{
    AnalysisResult, CreateRefund, InfractionReport, Problem, Refund, RefundActionRequest,
    RefundReason, RefundStatus, Timestamp,
};

/// An action that changes a refund's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefundAction {
    Cancel,
    Close,
}

impl Directory {
    /// Carries out createRefund.
    pub(crate) async fn create_refund(
        &self,
        request: &CreateRefund,
        now: Timestamp,
    ) -> Result<Arc<Refund>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let (debited, credited) = self
                .sides(&request.participant, &request.transaction_id, "Refund")
                .await?;
            self.require_agreed_report(request).await?;
            let active = format!("refundof:{}", request.transaction_id);
            let other: Option<Arc<String>> = transaction.read(&active).await?;
            if let Some(other) = other {
                return Err(self.already_requested(&other).await?);
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
            transaction.put(active, Arc::new(refund.id.clone()))?;
            transaction.count("refunds".to_owned(), 1, RECORDS_MAX);
            put_refund(&mut transaction, &refund, "REFUND_OPENED")?;
            Ok(transaction.commit(refund).await?)
        })
        .await
    }

    /// Carries out getRefund, for either side.
    pub(crate) async fn refund(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<Refund>, DirectoryError> {
        let refund: Option<Arc<Refund>> = self.records.get(&refund_name(id)).await?;
        let refund = refund.ok_or_else(not_found)?;
        side_of(&refund, participant)?;
        Ok(refund)
    }

    /// Carries out listRefunds.
    pub(crate) async fn refunds(
        &self,
        filter: &ListFilter,
        status: Option<RefundStatus>,
    ) -> Result<(Vec<Refund>, bool), DirectoryError> {
        let index = format!("refunds:{}", filter.participant);
        let matches = |refund: &Refund| {
            let on_side = |side: &Side| match side {
                Side::Initiator => refund.requesting_participant == filter.participant,
                Side::Counterparty => {
                    refund.contested_participant.as_ref() == Some(&filter.participant)
                }
            };
            filter.sides.iter().any(on_side) && status.is_none_or(|status| refund.status == status)
        };
        Ok(self.list(&index, "refund", filter, matches).await?)
    }

    /// Carries out cancelRefund or closeRefund.
    pub(crate) async fn apply_refund_action(
        &self,
        action: RefundAction,
        request: &RefundActionRequest,
        now: Timestamp,
    ) -> Result<Arc<Refund>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let name = refund_name(&request.id);
            let found: Option<Arc<Refund>> = transaction.read(&name).await?;
            let found = found.ok_or_else(not_found)?;
            let side = side_of(&found, &request.participant)?;
            let required_side = match action {
                RefundAction::Cancel => Side::Initiator,
                RefundAction::Close => Side::Counterparty,
            };
            if side != required_side {
                return Err(
                    Problem::forbidden("Only the other side of the refund may do this").into(),
                );
            }
            if found.status != RefundStatus::Open {
                return Err(DirectoryError::rejected(
                    "RefundOperationInvalid",
                    "The refund's status does not allow this",
                ));
            }
            let mut refund = (*found).clone();
            refund.last_modified = now;
            let event = match action {
                RefundAction::Cancel => {
                    refund.status = RefundStatus::Cancelled;
                    transaction.delete(format!("refundof:{}", refund.transaction_id));
                    "REFUND_CANCELLED"
                }
                RefundAction::Close => {
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
            put_refund(&mut transaction, &refund, event)?;
            Ok(transaction.commit(refund).await?)
        })
        .await
    }

    async fn require_agreed_report(&self, request: &CreateRefund) -> Result<(), DirectoryError> {
        if !self.rules.refunds_need_report || request.reason != RefundReason::Fraud {
            return Ok(());
        }
        let active = format!("infractionof:{}", request.transaction_id);
        let id: Option<Arc<String>> = self.records.get(&active).await?;
        let report: Option<Arc<InfractionReport>> = match id {
            Some(id) => self.records.get(&infraction_name(&id)).await?,
            None => None,
        };
        let is_agreed =
            report.is_some_and(|report| report.analysis_result == Some(AnalysisResult::Agreed));
        if is_agreed {
            Ok(())
        } else {
            Err(DirectoryError::rejected(
                "RefundInfractionReportNotFound",
                "No infraction report of the transaction was closed as agreed",
            ))
        }
    }

    async fn already_requested(&self, id: &str) -> Result<DirectoryError, DirectoryError> {
        let other: Option<Arc<Refund>> = self.records.get(&refund_name(id)).await?;
        let is_closed = other.is_some_and(|other| other.status == RefundStatus::Closed);
        Ok(if is_closed {
            DirectoryError::rejected(
                "RefundAlreadyProcessedForTransaction",
                "A refund of the transaction has been closed",
            )
        } else {
            DirectoryError::rejected(
                "RefundAlreadyBeingProcessedForTransaction",
                "A refund of the transaction is open",
            )
        })
    }
}

fn put_refund(
    transaction: &mut RecordTransaction<'_>,
    refund: &Arc<Refund>,
    event: &str,
) -> Result<(), DirectoryError> {
    transaction.put(refund_name(&refund.id), Arc::clone(refund))?;
    let at = refund.last_modified.ms();
    let other = refund.contested_participant.as_ref();
    for participant in [Some(&refund.requesting_participant), other]
        .into_iter()
        .flatten()
    {
        transaction.add_member(format!("refunds:{participant}"), at, &refund.id);
        transaction.append_event(
            format!("events:{participant}"),
            at,
            format!("{event}:{}", refund.id),
        );
    }
    Ok(())
}

fn refund_name(id: &str) -> String {
    format!("refund:{}", id.to_lowercase())
}

fn not_found() -> Problem {
    Problem::not_found("No refund has the given id")
}

/// If the other side of the transaction is not known, any participant but the requesting one may
/// take it.
fn side_of(refund: &Refund, participant: &str) -> Result<Side, DirectoryError> {
    let other = refund.contested_participant.as_deref();
    if refund.requesting_participant == participant {
        Ok(Side::Initiator)
    } else if other.is_none_or(|other| other == participant) {
        Ok(Side::Counterparty)
    } else {
        Err(Problem::forbidden("The participant is on neither side of this refund").into())
    }
}

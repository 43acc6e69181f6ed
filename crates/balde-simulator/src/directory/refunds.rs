//! Refunds: requested and cancelled by one side, closed by the other.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{Cursor, ListFilter, Listed, Side, require_any};
use super::store::RecordTransaction;
use super::transactions::{RETURN_PURPOSE, TransactionKind};
use crate::wire::{
    AnalysisResult, CreateRefund, FundsRecovery, InfractionReport, InfractionStatus, Problem,
    Refund, RefundActionRequest, RefundReason, RefundRejection, RefundStatus, Timestamp,
};

/// How long after the closing of its report a refund for fraud may be requested: 72 hours.
const FRAUD_PERIOD_MS: u64 = 72 * 3_600_000;

/// How long after its transaction a refund for an operational flaw may be requested: ninety days.
const FLAW_PERIOD_MS: u64 = 90 * 24 * 3_600_000;

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
            let id = &request.transaction_id;
            let participant = &request.participant;
            let payment = self
                .payment(participant, id, "RefundTransactionNotFound")
                .await?;
            let is_payer = payment.debited.as_ref() == Some(participant);
            let is_cancelling = request.reason == RefundReason::RefundCancelled;
            // Who received the payment cancels its refund: the payer of the return, if the id is that
            // of the return.
            let is_right_side = is_payer == (!is_cancelling || payment.is_return(id));
            if (payment.is_known || payment.is_return(id)) && !is_right_side {
                let detail = "The other side of the transaction may request this refund";
                return Err(Problem::forbidden(detail).into());
            }
            if !payment.is_settled {
                let detail = "The transaction is not settled";
                return Err(DirectoryError::rejected(
                    "RefundTransactionNotSettled",
                    detail,
                ));
            }
            let is_too_much = payment
                .amount_cents
                .is_some_and(|amount| request.amount_cents > amount);
            let is_refund = payment.kind == Some(TransactionKind::Refund);
            if is_too_much || is_refund && !is_cancelling {
                let detail = "The amount is more than the transaction's, or it is a refund itself";
                return Err(DirectoryError::rejected("TransactionNotRefundable", detail));
            }
            let is_flaw = request.reason == RefundReason::OperationalFlaw;
            if is_flaw && payment.is_older_than(FLAW_PERIOD_MS, now) {
                return Err(DirectoryError::rejected(
                    "RefundPeriodExpired",
                    "The transaction is more than ninety days old",
                ));
            }
            let report = self.agreed_report(request, now).await?;
            let active = active_name(id);
            let other: Option<Arc<String>> = transaction.read(&active).await?;
            if let Some(other) = other {
                return Err(self.already_requested(&other).await?);
            }
            let refund = Arc::new(Refund {
                amount_cents: request.amount_cents,
                details: request.details.clone(),
                reason: request.reason,
                infraction_report_id: report.map(|report| report.id.clone()),
                contested_participant: payment.other_side(participant),
                ..new_refund(id, participant, now)
            });
            open_refund(&mut transaction, &refund)?;
            Ok(transaction.commit(refund).await?)
        })
        .await
    }

    /// Carries out getRefund, for either side.
    pub(crate) async fn refund(
        &self,
        participants: &[String],
        id: &str,
    ) -> Result<Arc<Refund>, DirectoryError> {
        let refund: Option<Arc<Refund>> = self.records.get(&refund_name(id)).await?;
        let refund = refund.ok_or_else(not_found)?;
        require_any(participants, |own| side_of(&refund, own).map(|_| ()))?;
        Ok(refund)
    }

    /// Carries out listRefunds.
    pub(crate) async fn refunds(
        &self,
        filter: &ListFilter,
        statuses: &[RefundStatus],
    ) -> Result<(Vec<Refund>, Option<Cursor>), DirectoryError> {
        let matches = |refund: &Refund| {
            let contested = refund.contested_participant.as_deref();
            filter.is_on_side(&refund.requesting_participant, contested)
                && (statuses.is_empty() || statuses.contains(&refund.status))
        };
        let indexes = filter.indexes("refunds");
        Ok(self.list(&indexes, "refund", filter, matches).await?)
    }

    /// Carries out cancelRefund or closeRefund. A repetition returns the refund unchanged.
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
            require_side(&found, action, side)?;
            if action == RefundAction::Cancel && found.funds_recovery_id.is_some() {
                let detail = "A refund of a funds recovery is cancelled with the funds recovery";
                return Err(DirectoryError::rejected("RefundOperationInvalid", detail));
            }
            if is_repetition(&found, action, request) {
                return Ok(transaction.commit(found).await?);
            }
            if found.status != RefundStatus::Open {
                return Err(DirectoryError::rejected(
                    "RefundOperationInvalid",
                    "The refund's status does not allow this",
                ));
            }
            let mut refund = (*found).clone();
            match action {
                RefundAction::Cancel => set_refund_cancelled(&mut transaction, &mut refund, now),
                RefundAction::Close => {
                    self.check_closing(&found, request).await?;
                    refund.last_modified = now;
                    refund.status = RefundStatus::Closed;
                    refund.contested_participant = Some(request.participant.clone());
                    refund.analysis_result = request.result;
                    refund.analysis_details.clone_from(&request.details);
                    refund.rejection_reason = request.rejection;
                    refund
                        .refund_transaction_id
                        .clone_from(&request.refund_transaction_id);
                    refund.effective_cents = request.effective_cents;
                    if let Some(id) = &request.refund_transaction_id {
                        let closed = Arc::new(refund.id.clone());
                        transaction.put(refunding_name(id), closed)?;
                    }
                    self.refund_was_closed(&mut transaction, &refund, now)
                        .await?;
                }
            }
            let refund = Arc::new(refund);
            put_refund(&mut transaction, &refund)?;
            Ok(transaction.commit(refund).await?)
        })
        .await
    }

    /// Checks what closing a refund says about it.
    async fn check_closing(
        &self,
        refund: &Refund,
        request: &RefundActionRequest,
    ) -> Result<(), DirectoryError> {
        let invalid = |detail: &str| Err(DirectoryError::rejected("RefundInvalid", detail));
        if request.rejection == Some(RefundRejection::InvalidRequest)
            && refund.reason != RefundReason::OperationalFlaw
        {
            return invalid("INVALID_REQUEST is only for refunds for OPERATIONAL_FLAW");
        }
        if refund.funds_recovery_id.is_some() && request.effective_cents.is_none() {
            return invalid("A refund of a funds recovery needs EffectiveRefundedAmount");
        }
        let Some(id) = &request.refund_transaction_id else {
            return Ok(());
        };
        if *id == refund.transaction_id {
            return Err(DirectoryError::rejected(
                "RefundTransactionInvalid",
                "The refunding transaction is the refunded one",
            ));
        }
        let is_following = self.is_following(refund).await?;
        let expected = match refund.reason {
            _ if is_following => TransactionKind::Payment,
            RefundReason::Fraud | RefundReason::OperationalFlaw => TransactionKind::Refund,
            RefundReason::PixAutomatico | RefundReason::RefundCancelled => TransactionKind::Payment,
        };
        let Some(known) = self.transaction(id).await? else {
            return Ok(());
        };
        if known.kind != expected {
            return Err(DirectoryError::rejected(
                "TransactionTypeInvalid",
                "The refunding transaction has the wrong type for this reason",
            ));
        }
        let is_other_purpose = known
            .purpose
            .as_deref()
            .is_some_and(|own| own != RETURN_PURPOSE);
        if is_following && is_other_purpose {
            return Err(DirectoryError::rejected(
                "RefundTransactionInvalid",
                "The refunding transaction does not have the purpose IPRT",
            ));
        }
        Ok(())
    }

    /// Whether a refund is of a transaction that follows the root of a funds recovery. Such a
    /// transaction is refunded by a payment to the root's payer, because its own payer is another.
    pub(super) async fn is_following(&self, refund: &Refund) -> Result<bool, DirectoryError> {
        let Some(id) = &refund.funds_recovery_id else {
            return Ok(false);
        };
        let recovery: Option<Arc<FundsRecovery>> = self.records.get(&recovery_name(id)).await?;
        Ok(recovery.is_some_and(|own| own.root_transaction_id != refund.transaction_id))
    }

    /// The refund that a transaction closed, if it closed one.
    pub(super) async fn refund_closed_by(
        &self,
        transaction_id: &str,
    ) -> Result<Option<Arc<Refund>>, DirectoryError> {
        let id: Option<Arc<String>> = self.records.get(&refunding_name(transaction_id)).await?;
        match id {
            Some(id) => Ok(self.records.get(&refund_name(&id)).await?),
            None => Ok(None),
        }
    }

    /// The report that a refund for fraud follows from, closed as agreed not too long ago.
    async fn agreed_report(
        &self,
        request: &CreateRefund,
        now: Timestamp,
    ) -> Result<Option<Arc<InfractionReport>>, DirectoryError> {
        if request.reason != RefundReason::Fraud {
            return Ok(None);
        }
        let report = self.active_report(&request.transaction_id).await?;
        let report = report.filter(|report| {
            report.status == InfractionStatus::Closed
                && report.analysis_result == Some(AnalysisResult::Agreed)
        });
        let Some(report) = report else {
            return Err(DirectoryError::rejected(
                "RefundInfractionReportNotFound",
                "No infraction report of the transaction was closed as agreed",
            ));
        };
        if now > report.last_modified.plus_ms(FRAUD_PERIOD_MS) {
            return Err(DirectoryError::rejected(
                "RefundPeriodExpired",
                "The infraction report was closed more than 72 hours ago",
            ));
        }
        Ok(Some(report))
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

impl Listed for Refund {
    fn cursor(&self) -> Cursor {
        (self.last_modified.ms(), self.id.clone())
    }
}

/// A refund as it is opened.
pub(super) fn new_refund(transaction_id: &str, requesting: &str, now: Timestamp) -> Refund {
    Refund {
        id: new_id(),
        transaction_id: transaction_id.to_owned(),
        reason: RefundReason::Fraud,
        amount_cents: 0,
        details: None,
        status: RefundStatus::Open,
        requesting_participant: requesting.to_owned(),
        contested_participant: None,
        creation_time: now,
        last_modified: now,
        infraction_report_id: None,
        funds_recovery_id: None,
        analysis_result: None,
        analysis_details: None,
        rejection_reason: None,
        refund_transaction_id: None,
        refund_account: None,
        is_account_monitored: false,
        effective_cents: None,
    }
}

/// Writes a new refund, as the only active one of its transaction.
pub(super) fn open_refund(
    transaction: &mut RecordTransaction<'_>,
    refund: &Arc<Refund>,
) -> Result<(), DirectoryError> {
    let id = Arc::new(refund.id.clone());
    transaction.put(active_name(&refund.transaction_id), id)?;
    transaction.count("refunds".to_owned(), 1, RECORDS_MAX);
    put_refund(transaction, refund)
}

/// Cancels a refund. The transaction can be refunded again.
pub(super) fn set_refund_cancelled(
    transaction: &mut RecordTransaction<'_>,
    refund: &mut Refund,
    now: Timestamp,
) {
    refund.status = RefundStatus::Cancelled;
    refund.last_modified = now;
    transaction.delete(active_name(&refund.transaction_id));
}

pub(super) fn put_refund(
    transaction: &mut RecordTransaction<'_>,
    refund: &Arc<Refund>,
) -> Result<(), DirectoryError> {
    transaction.put(refund_name(&refund.id), Arc::clone(refund))?;
    let at = refund.last_modified.ms();
    let other = refund.contested_participant.as_ref();
    for participant in [Some(&refund.requesting_participant), other]
        .into_iter()
        .flatten()
    {
        transaction.add_member(format!("refunds:{participant}"), at, &refund.id);
    }
    Ok(())
}

/// The name of the record with the id of the refund that a transaction closed.
fn refunding_name(transaction_id: &str) -> String {
    format!("refundedby:{transaction_id}")
}

/// The name of a funds recovery's record.
pub(super) fn recovery_name(id: &str) -> String {
    format!("recovery:{}", id.to_lowercase())
}

pub(super) fn refund_name(id: &str) -> String {
    format!("refund:{}", id.to_lowercase())
}

/// The name of the record with the id of a transaction's active refund.
pub(super) fn active_name(transaction_id: &str) -> String {
    format!("refundof:{transaction_id}")
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

fn require_side(refund: &Refund, action: RefundAction, side: Side) -> Result<(), DirectoryError> {
    let is_both = refund.contested_participant.as_ref() == Some(&refund.requesting_participant);
    let required = match action {
        RefundAction::Cancel => Side::Initiator,
        RefundAction::Close => Side::Counterparty,
    };
    if side == required || is_both {
        return Ok(());
    }
    Err(Problem::forbidden("Only the other side of the refund may do this").into())
}

/// Whether the refund is already what the request asks for, so that it is answered as the first time.
fn is_repetition(refund: &Refund, action: RefundAction, request: &RefundActionRequest) -> bool {
    match action {
        RefundAction::Cancel => refund.status == RefundStatus::Cancelled,
        RefundAction::Close => {
            refund.status == RefundStatus::Closed
                && refund.analysis_result == request.result
                && refund.analysis_details == request.details
                && refund.rejection_reason == request.rejection
                && refund.refund_transaction_id == request.refund_transaction_id
                && refund.effective_cents == request.effective_cents
        }
    }
}

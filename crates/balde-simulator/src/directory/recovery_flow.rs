//! What DICT does itself in a funds recovery: it opens the reports of the transactions that it
//! followed, ends the analysis with the last report, and requests one refund after another.

use std::sync::Arc;

use super::error::DirectoryError;
use super::funds_recoveries::put_recovery;
use super::handle::Directory;
use super::infractions::{active_name, infraction_name, new_report, set_report_cancelled};
use super::refunds::{
    active_name as active_refund_name, new_refund, open_refund, put_refund, recovery_name,
    refund_name, set_refund_cancelled,
};
use super::store::{Record, RecordTransaction};
use super::transactions::Payment;
use crate::wire::{
    AnalysisResult, CreateInfractionReport, FundsRecovery, FundsRecoveryStatus, InfractionReason,
    InfractionReport, InfractionStatus, Refund, RefundAccount, RefundStatus, Timestamp,
};

impl Directory {
    /// Opens the report of one of a funds recovery's transactions.
    pub(super) async fn report_transaction(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        payment: &Payment,
        transaction_id: &str,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let request = CreateInfractionReport {
            participant: recovery.reporter.clone(),
            transaction_id: transaction_id.to_owned(),
            reason: InfractionReason::RefundRequest,
            situation_type: recovery.situation_type,
            report_details: recovery.report_details.clone(),
            contact: Some(recovery.contact.clone())
                .filter(|_| self.settings.recovery_report_contact),
        };
        let report = Arc::new(InfractionReport {
            funds_recovery_id: Some(recovery.id.clone()),
            counterparty: payment.credited.clone(),
            amount_cents: payment.amount_cents,
            ..new_report(transaction_id, &recovery.reporter, &request, now)
        });
        recovery.reports.push(report.id.clone());
        self.open_report(transaction, &report).await
    }

    /// Opens the reports of the graph's transactions after the root: all, or those that are chosen.
    pub(super) async fn report_graph(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        chosen: Option<&[String]>,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let graph = recovery.graph.clone();
        let ids = graph.iter().flat_map(|graph| &graph.transactions);
        let ids: Vec<_> = ids.map(|own| own.id.clone()).collect();
        if let Some(chosen) = chosen {
            let invalid = |detail| {
                let error_type = "FundsRecoveryPrioritizationInvalid";
                Err(DirectoryError::rejected(error_type, detail))
            };
            if chosen.iter().any(|id| !ids.contains(id)) {
                return invalid("A listed transaction is not in the tracking graph");
            }
            if chosen.first() != ids.first() {
                return invalid("The list does not begin with the root transaction");
            }
        }
        for id in ids.iter().skip(1) {
            let is_chosen = chosen.is_none_or(|chosen| chosen.contains(id));
            let active: Option<Arc<String>> = transaction.read(&active_name(id)).await?;
            let Some(known) = self.transaction(id).await? else {
                continue;
            };
            if !is_chosen || active.is_some() {
                continue;
            }
            let payment = Payment {
                is_known: true,
                debited: Some(known.debited.clone()),
                credited: known.credited.clone(),
                amount_cents: known.amount_cents,
                kind: Some(known.kind),
                purpose: known.purpose.clone(),
                is_settled: known.is_settled,
                at: Some(known.at),
            };
            self.report_transaction(transaction, recovery, &payment, id, now)
                .await?;
        }
        Ok(())
    }

    /// Ends the analysis of the funds recovery that a report belongs to, if this was its last report.
    pub(super) async fn report_was_closed(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &InfractionReport,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let id = report.funds_recovery_id.as_deref();
        let awaiting = FundsRecoveryStatus::AwaitingAnalysis;
        let Some(mut recovery) = recovery_in(transaction, id, awaiting).await? else {
            return Ok(());
        };
        if self
            .end_analysis(transaction, &mut recovery, Some(report), now)
            .await?
        {
            put_recovery(transaction, &recovery)?;
        }
        Ok(())
    }

    /// Ends the analysis if all reports are closed. `closed` is one that is being closed.
    pub(super) async fn end_analysis(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        closed: Option<&InfractionReport>,
        now: Timestamp,
    ) -> Result<bool, DirectoryError> {
        let mut root_result = None;
        for (at, id) in recovery.reports.iter().enumerate() {
            let closing = closed.filter(|closed| closed.id == *id);
            let report = closing_or_read(transaction, closing, &infraction_name(id)).await?;
            // A report that this change opens cannot be read yet.
            let Some(report) = report else {
                return Ok(false);
            };
            if report.status != InfractionStatus::Closed {
                return Ok(false);
            }
            if at == 0 {
                root_result = report.analysis_result;
            }
        }
        recovery.last_modified = now;
        let event = if root_result == Some(AnalysisResult::Disagreed) {
            recovery.status = FundsRecoveryStatus::Completed;
            "FUNDS_RECOVERY_COMPLETED"
        } else {
            recovery.status = FundsRecoveryStatus::Analysed;
            recovery.analysed_at = Some(now);
            "FUNDS_RECOVERY_ANALYSED"
        };
        self.notify(transaction, recovery, event, now).await?;
        Ok(true)
    }

    /// Continues or completes the funds recovery that a refund belongs to.
    pub(super) async fn refund_was_closed(
        &self,
        transaction: &mut RecordTransaction<'_>,
        refund: &Refund,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let id = refund.funds_recovery_id.as_deref();
        let refunding = FundsRecoveryStatus::Refunding;
        let Some(mut recovery) = recovery_in(transaction, id, refunding).await? else {
            return Ok(());
        };
        self.next_refund(transaction, &mut recovery, Some(refund), now)
            .await?;
        put_recovery(transaction, &recovery)
    }

    /// Requests the refund of the next transaction that a path of transactions whose reports were all
    /// agreed to connects with the root. Without one, or once the whole amount is refunded, the funds
    /// recovery is completed.
    pub(super) async fn next_refund(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        closed: Option<&Refund>,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let mut refunded = 0;
        let mut done = Vec::new();
        for id in &recovery.refunds {
            let closing = closed.filter(|closed| closed.id == *id);
            let refund = closing_or_read(transaction, closing, &refund_name(id)).await?;
            if let Some(refund) = refund {
                refunded += refund.effective_cents.unwrap_or(0);
                done.push(refund.transaction_id.clone());
            }
        }
        let graph = recovery.graph.clone();
        let amounts = graph.map(|graph| graph.transactions).unwrap_or_default();
        let amount_of = |id: &str| {
            let found = amounts.iter().find(|own| own.id == id);
            found.map_or(0, |own| own.cents)
        };
        let whole = amount_of(&recovery.root_transaction_id);
        let mut reports: Vec<Arc<InfractionReport>> = Vec::new();
        for id in &recovery.reports {
            reports.extend(transaction.read(&infraction_name(id)).await?);
        }
        let is_agreed = |id: &str| {
            let result = Some(AnalysisResult::Agreed);
            let mut reports = reports.iter();
            reports.any(|report| report.transaction_id == id && report.analysis_result == result)
        };
        let refundable = recovery
            .graph
            .as_ref()
            .map(|graph| graph.connected(is_agreed))
            .unwrap_or_default();
        // The account that received the money is watched if no other participant was notified.
        let receiver = reports.first().and_then(|root| root.counterparty.clone());
        let is_account_monitored = reports.iter().all(|report| report.counterparty == receiver);
        for report in &reports {
            let is_refundable = refundable.contains(&report.transaction_id);
            let is_done = done.contains(&report.transaction_id);
            if !is_refundable || is_done || refunded >= whole.max(1) {
                continue;
            }
            let active = active_refund_name(&report.transaction_id);
            let other: Option<Arc<String>> = transaction.read(&active).await?;
            if other.is_some() {
                continue;
            }
            let payer = self.transaction(&recovery.root_transaction_id).await?;
            let payer = payer.and_then(|payment| payment.payer_tax_id.clone());
            let refund = Arc::new(Refund {
                amount_cents: amount_of(&report.transaction_id).min(whole - refunded.min(whole)),
                infraction_report_id: Some(report.id.clone()),
                funds_recovery_id: Some(recovery.id.clone()),
                contested_participant: report.counterparty.clone(),
                is_account_monitored,
                refund_account: Some(RefundAccount {
                    tax_id_number: payer.unwrap_or_else(|| "00000000000".to_owned()),
                    participant: recovery.reporter.clone(),
                    account_number: "1".to_owned(),
                }),
                ..new_refund(&report.transaction_id, &recovery.reporter, now)
            });
            recovery.refunds.push(refund.id.clone());
            return open_refund(transaction, &refund);
        }
        recovery.status = FundsRecoveryStatus::Completed;
        recovery.last_modified = now;
        let event = "FUNDS_RECOVERY_COMPLETED";
        self.notify(transaction, recovery, event, now).await
    }

    /// Cancels a funds recovery with its reports and with its refunds that are not closed.
    pub(super) async fn cancel_recovery(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        for id in &recovery.reports {
            let found: Option<Arc<InfractionReport>> =
                transaction.read(&infraction_name(id)).await?;
            if let Some(found) = found {
                let mut report = (*found).clone();
                set_report_cancelled(transaction, &mut report, now).await?;
                self.put_infraction(transaction, &Arc::new(report)).await?;
            }
        }
        for id in &recovery.refunds {
            let found: Option<Arc<Refund>> = transaction.read(&refund_name(id)).await?;
            if let Some(found) = found
                && found.status == RefundStatus::Open
            {
                let mut refund = (*found).clone();
                set_refund_cancelled(transaction, &mut refund, now);
                put_refund(transaction, &Arc::new(refund))?;
            }
        }
        recovery.status = FundsRecoveryStatus::Cancelled;
        let event = "FUNDS_RECOVERY_CANCELLED";
        self.notify(transaction, recovery, event, now).await
    }
}

/// Reads a funds recovery, if it exists and has this status.
async fn recovery_in(
    transaction: &mut RecordTransaction<'_>,
    id: Option<&str>,
    status: FundsRecoveryStatus,
) -> Result<Option<FundsRecovery>, DirectoryError> {
    let Some(id) = id else {
        return Ok(None);
    };
    let found: Option<Arc<FundsRecovery>> = transaction.read(&recovery_name(id)).await?;
    let found = found.filter(|found| found.status == status);
    Ok(found.map(|found| (*found).clone()))
}

/// The record that this transaction is closing, which cannot be read yet, or the one of this name.
async fn closing_or_read<T: Record + Clone>(
    transaction: &mut RecordTransaction<'_>,
    closing: Option<&T>,
    name: &str,
) -> Result<Option<Arc<T>>, DirectoryError> {
    match closing {
        Some(closing) => Ok(Some(Arc::new(closing.clone()))),
        None => Ok(transaction.read(name).await?),
    }
}

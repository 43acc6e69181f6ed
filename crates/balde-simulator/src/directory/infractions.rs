//! Infraction reports: opened and cancelled by the reporter, acknowledged and closed by the
//! counterparty.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{Cursor, ListFilter, Listed, Side, require_any};
use super::markers::{put_marker, set_marker_cancelled};
use super::store::RecordTransaction;
use crate::wire::{
    AnalysisResult, CreateInfractionReport, FraudMarker, FraudMarkerStatus,
    InfractionActionRequest, InfractionReason, InfractionReport, InfractionStatus, Problem,
    ReportedBy, Timestamp,
};

const DAY_MS: u64 = 86_400_000;

/// The tax number of a payee that no payment order has named.
const UNKNOWN_TAX_ID: &str = "00000000000";

/// An action that changes an infraction report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InfractionAction {
    Update,
    Acknowledge,
    Cancel,
    Close,
}

impl Directory {
    /// Carries out createInfractionReport.
    pub(crate) async fn create_infraction(
        &self,
        request: &CreateInfractionReport,
        now: Timestamp,
    ) -> Result<Arc<InfractionReport>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let id = &request.transaction_id;
            let participant = &request.participant;
            let payment = self
                .payment(participant, id, "InfractionReportTransactionNotFound")
                .await?;
            let is_payer = payment.debited.as_ref() == Some(participant);
            let is_right_side = match request.reason {
                InfractionReason::RefundRequest => is_payer,
                // Who received the payment cancels its refund.
                InfractionReason::RefundCancelled => is_payer == payment.is_return(id),
                InfractionReason::Fraud => true,
            };
            let is_return = payment.is_return(id);
            if (payment.is_known || is_return) && !is_right_side {
                let detail = "The other side of the transaction may report for this reason";
                return Err(Problem::forbidden(detail).into());
            }
            if !payment.is_settled {
                let detail = "The transaction is not settled";
                let error_type = "InfractionReportTransactionNotSettled";
                return Err(DirectoryError::rejected(error_type, detail));
            }
            let days_max = match request.reason {
                InfractionReason::RefundCancelled => 30,
                _ => 80,
            };
            if payment.is_older_than(days_max * DAY_MS, now) {
                let detail = "The transaction is too old to be reported";
                let error_type = "InfractionReportPeriodExpired";
                return Err(DirectoryError::rejected(error_type, detail));
            }
            let active = active_name(id);
            let other: Option<Arc<String>> = transaction.read(&active).await?;
            if let Some(other) = other {
                return Err(self.already_reported(&other).await?);
            }
            let report = Arc::new(InfractionReport {
                reason: request.reason,
                situation_type: request.situation_type,
                report_details: request.report_details.clone(),
                contact: request.contact.clone(),
                reported_by: if is_payer {
                    ReportedBy::Debited
                } else {
                    ReportedBy::Credited
                },
                counterparty: payment.other_side(participant),
                amount_cents: payment.amount_cents,
                ..new_report(id, participant, request, now)
            });
            self.open_report(&mut transaction, &report).await?;
            Ok(transaction.commit(report).await?)
        })
        .await
    }

    /// Writes a new report, as the only active one of its transaction.
    pub(super) async fn open_report(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &Arc<InfractionReport>,
    ) -> Result<(), DirectoryError> {
        let id = Arc::new(report.id.clone());
        transaction.put(active_name(&report.transaction_id), id)?;
        transaction.count("infractions".to_owned(), 1, RECORDS_MAX);
        self.put_infraction(transaction, report).await
    }

    /// Carries out getInfractionReport, for either side.
    pub(crate) async fn infraction(
        &self,
        participants: &[String],
        id: &str,
    ) -> Result<Arc<InfractionReport>, DirectoryError> {
        let report: Option<Arc<InfractionReport>> = self.records.get(&infraction_name(id)).await?;
        let report = report.ok_or_else(not_found)?;
        require_any(participants, |own| side_of(&report, own).map(|_| ()))?;
        Ok(report)
    }

    /// Carries out listInfractionReports.
    pub(crate) async fn infractions(
        &self,
        filter: &ListFilter,
        statuses: &[InfractionStatus],
    ) -> Result<(Vec<InfractionReport>, bool), DirectoryError> {
        let matches = |report: &InfractionReport| {
            filter.is_on_side(&report.reporter, report.counterparty.as_deref())
                && (statuses.is_empty() || statuses.contains(&report.status))
        };
        let indexes = filter.indexes("infractions");
        let (reports, next) = self.list(&indexes, "infraction", filter, matches).await?;
        Ok((reports, next.is_some()))
    }

    /// Carries out update-, acknowledge-, cancel- or closeInfractionReport. A repetition returns the
    /// report unchanged.
    pub(crate) async fn apply_infraction_action(
        &self,
        action: InfractionAction,
        request: &InfractionActionRequest,
        now: Timestamp,
    ) -> Result<Arc<InfractionReport>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let name = infraction_name(&request.id);
            let found: Option<Arc<InfractionReport>> = transaction.read(&name).await?;
            let found = found.ok_or_else(not_found)?;
            let side = side_of(&found, &request.participant)?;
            require_side(&found, action, side)?;
            let is_recovery = found.funds_recovery_id.is_some();
            if action == InfractionAction::Cancel && is_recovery {
                let detail = "A report of a funds recovery is cancelled with the funds recovery";
                return Err(operation_invalid(detail));
            }
            if is_repetition(&found, action, request) {
                return Ok(transaction.commit(found).await?);
            }
            check_status(&found, action)?;
            let mut report = (*found).clone();
            report.last_modified = now;
            if side == Side::Counterparty && report.counterparty.is_none() {
                report.counterparty = Some(request.participant.clone());
            }
            match action {
                InfractionAction::Update => {
                    report.situation_type = request.situation_type.unwrap_or(report.situation_type);
                    if request.report_details.is_some() {
                        report.report_details.clone_from(&request.report_details);
                    }
                    if request.contact.is_some() {
                        report.contact.clone_from(&request.contact);
                    }
                }
                InfractionAction::Acknowledge => report.status = InfractionStatus::Acknowledged,
                InfractionAction::Cancel => {
                    set_report_cancelled(&mut transaction, &mut report, now).await?;
                }
                InfractionAction::Close => {
                    report.status = InfractionStatus::Closed;
                    report.analysis_result = request.analysis_result;
                    report
                        .analysis_details
                        .clone_from(&request.analysis_details);
                    report.fraud_type = request.fraud_type;
                    self.mark_payee_if_agreed(&mut transaction, &mut report, request, now)
                        .await?;
                    self.report_was_closed(&mut transaction, &report, now)
                        .await?;
                }
            }
            let report = Arc::new(report);
            self.put_infraction(&mut transaction, &report).await?;
            Ok(transaction.commit(report).await?)
        })
        .await
    }

    /// Creates a fraud marker of the payee if the report was agreed to.
    async fn mark_payee_if_agreed(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &mut InfractionReport,
        request: &InfractionActionRequest,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let (Some(AnalysisResult::Agreed), Some(fraud_type)) =
            (request.analysis_result, request.fraud_type)
        else {
            return Ok(());
        };
        let payment = self.transaction(&report.transaction_id).await?;
        let payee = payment.as_ref().and_then(|own| own.payee_tax_id.clone());
        let marker = Arc::new(FraudMarker {
            id: new_id(),
            tax_id_number: payee.unwrap_or_else(|| UNKNOWN_TAX_ID.to_owned()),
            key: payment.as_ref().and_then(|payment| payment.key.clone()),
            fraud_type,
            status: FraudMarkerStatus::Registered,
            participant: request.participant.clone(),
            report: Some((report.id.clone(), report.reporter.clone())),
            amount_cents: report.amount_cents,
            creation_time: now,
            last_modified: now,
        });
        report.fraud_marker_id = Some(marker.id.clone());
        put_marker(transaction, &marker)?;
        transaction.count("markers".to_owned(), 1, RECORDS_MAX);
        Ok(())
    }

    pub(super) async fn put_infraction(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &Arc<InfractionReport>,
    ) -> Result<(), DirectoryError> {
        let name = infraction_name(&report.id);
        transaction.put(name, Arc::clone(report))?;
        let at = report.last_modified.ms();
        let sides = [Some(&report.reporter), report.counterparty.as_ref()];
        for participant in sides.into_iter().flatten() {
            transaction.add_member(format!("infractions:{participant}"), at, &report.id);
        }
        if let Some(payment) = self.transaction(&report.transaction_id).await? {
            for (index, subject) in [("owner", &payment.payee_tax_id), ("key", &payment.key)] {
                if let Some(subject) = subject {
                    transaction.add_member(
                        format!("infractions-{index}:{subject}"),
                        at,
                        &report.id,
                    );
                }
            }
        }
        Ok(())
    }

    async fn already_reported(&self, id: &str) -> Result<DirectoryError, DirectoryError> {
        let other: Option<Arc<InfractionReport>> = self.records.get(&infraction_name(id)).await?;
        let is_closed = other.is_some_and(|other| other.status == InfractionStatus::Closed);
        Ok(if is_closed {
            DirectoryError::rejected(
                "InfractionReportAlreadyProcessedForTransaction",
                "A report of the transaction has been closed",
            )
        } else {
            DirectoryError::rejected(
                "InfractionReportAlreadyBeingProcessedForTransaction",
                "A report of the transaction is open",
            )
        })
    }

    /// Returns the active report of a transaction, if there is one.
    pub(super) async fn active_report(
        &self,
        transaction_id: &str,
    ) -> Result<Option<Arc<InfractionReport>>, DirectoryError> {
        let id: Option<Arc<String>> = self.records.get(&active_name(transaction_id)).await?;
        Ok(match id {
            Some(id) => self.records.get(&infraction_name(&id)).await?,
            None => None,
        })
    }
}

impl Listed for InfractionReport {
    fn cursor(&self) -> Cursor {
        (self.last_modified.ms(), self.id.clone())
    }
}

/// A report as it is opened.
pub(super) fn new_report(
    transaction_id: &str,
    reporter: &str,
    request: &CreateInfractionReport,
    now: Timestamp,
) -> InfractionReport {
    InfractionReport {
        id: new_id(),
        transaction_id: transaction_id.to_owned(),
        reason: request.reason,
        situation_type: request.situation_type,
        report_details: request.report_details.clone(),
        contact: request.contact.clone(),
        funds_recovery_id: None,
        status: InfractionStatus::Open,
        reporter: reporter.to_owned(),
        counterparty: None,
        reported_by: ReportedBy::Debited,
        fraud_marker_id: None,
        analysis_result: None,
        analysis_details: None,
        fraud_type: None,
        amount_cents: None,
        creation_time: now,
        last_modified: now,
    }
}

/// Cancels a report and the fraud marker that it created. The transaction can be reported again.
pub(super) async fn set_report_cancelled(
    transaction: &mut RecordTransaction<'_>,
    report: &mut InfractionReport,
    now: Timestamp,
) -> Result<(), DirectoryError> {
    report.status = InfractionStatus::Cancelled;
    report.last_modified = now;
    transaction.delete(active_name(&report.transaction_id));
    if let Some(marker) = &report.fraud_marker_id {
        set_marker_cancelled(transaction, marker, now).await?;
    }
    Ok(())
}

pub(super) fn infraction_name(id: &str) -> String {
    format!("infraction:{}", id.to_lowercase())
}

/// The name of the record with the id of a transaction's active report.
pub(super) fn active_name(transaction_id: &str) -> String {
    format!("infractionof:{transaction_id}")
}

fn not_found() -> Problem {
    Problem::not_found("No infraction report has the given id")
}

fn operation_invalid(detail: &str) -> DirectoryError {
    DirectoryError::rejected("InfractionReportOperationInvalid", detail)
}

/// If the other side of the transaction is not known, any participant but the reporter may take it.
fn side_of(report: &InfractionReport, participant: &str) -> Result<Side, DirectoryError> {
    let other = report.counterparty.as_deref();
    if report.reporter == participant {
        Ok(Side::Initiator)
    } else if other.is_none_or(|other| other == participant) {
        Ok(Side::Counterparty)
    } else {
        Err(Problem::forbidden("The participant is on neither side of this report").into())
    }
}

fn require_side(
    report: &InfractionReport,
    action: InfractionAction,
    side: Side,
) -> Result<(), DirectoryError> {
    let is_both = report.counterparty.as_ref() == Some(&report.reporter);
    let required = match action {
        InfractionAction::Update | InfractionAction::Cancel => Side::Initiator,
        InfractionAction::Acknowledge | InfractionAction::Close => Side::Counterparty,
    };
    if side == required || is_both {
        return Ok(());
    }
    Err(Problem::forbidden("Only the other side of the report may do this").into())
}

/// Whether the report is already what the request asks for, so that it is answered as the first time.
fn is_repetition(
    report: &InfractionReport,
    action: InfractionAction,
    request: &InfractionActionRequest,
) -> bool {
    match action {
        InfractionAction::Update => false,
        InfractionAction::Acknowledge => report.status == InfractionStatus::Acknowledged,
        InfractionAction::Cancel => report.status == InfractionStatus::Cancelled,
        InfractionAction::Close => {
            report.status == InfractionStatus::Closed
                && report.analysis_result == request.analysis_result
                && report.analysis_details == request.analysis_details
                && report.fraud_type == request.fraud_type
        }
    }
}

fn check_status(report: &InfractionReport, action: InfractionAction) -> Result<(), DirectoryError> {
    use InfractionStatus::{Acknowledged, Closed, Open};
    let allowed: &[InfractionStatus] = match action {
        InfractionAction::Acknowledge => &[Open],
        InfractionAction::Close => &[Acknowledged],
        InfractionAction::Update => &[Open, Acknowledged],
        InfractionAction::Cancel => &[Open, Acknowledged, Closed],
    };
    if allowed.contains(&report.status) {
        return Ok(());
    }
    Err(operation_invalid("The report's status does not allow this"))
}

//! Infraction reports: opened and cancelled by the reporter, acknowledged and closed by the
//! counterparty.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::lists::{ListFilter, Side};
use super::markers::put_marker;
use super::store::RecordTransaction;
use crate::wire::{
    AnalysisResult, CreateInfractionReport, FraudMarker, FraudMarkerStatus,
    InfractionActionRequest, InfractionReport, InfractionStatus, Problem, ReportedBy, Timestamp,
};

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
            let (debited, credited) = self
                .sides(
                    &request.participant,
                    &request.transaction_id,
                    "InfractionReport",
                )
                .await?;
            let active = format!("infractionof:{}", request.transaction_id);
            let other: Option<Arc<String>> = transaction.read(&active).await?;
            if let Some(other) = other {
                return Err(self.already_reported(&other).await?);
            }
            let reported_by = if debited.as_deref() == Some(&*request.participant) {
                ReportedBy::Debited
            } else {
                ReportedBy::Credited
            };
            let report = Arc::new(InfractionReport {
                id: new_id(),
                transaction_id: request.transaction_id.clone(),
                reason: request.reason,
                situation_type: request.situation_type,
                report_details: request.report_details.clone(),
                reported_by,
                status: InfractionStatus::Open,
                debited_participant: debited,
                credited_participant: credited,
                creation_time: now,
                last_modified: now,
                analysis_result: None,
                analysis_details: None,
                fraud_type: None,
            });
            let id = Arc::new(report.id.clone());
            transaction.put(active, id)?;
            transaction.count("infractions".to_owned(), 1, RECORDS_MAX);
            self.put_infraction(&mut transaction, &report, "INFRACTION_REPORT_OPENED")
                .await?;
            Ok(transaction.commit(report).await?)
        })
        .await
    }

    /// Carries out getInfractionReport, for either side.
    pub(crate) async fn infraction(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<InfractionReport>, DirectoryError> {
        let report: Option<Arc<InfractionReport>> = self.records.get(&infraction_name(id)).await?;
        let report = report.ok_or_else(not_found)?;
        side_of(&report, participant)?;
        Ok(report)
    }

    /// Carries out listInfractionReports.
    pub(crate) async fn infractions(
        &self,
        filter: &ListFilter,
        status: Option<InfractionStatus>,
    ) -> Result<(Vec<InfractionReport>, bool), DirectoryError> {
        let index = format!("infractions:{}", filter.participant);
        let matches = |report: &InfractionReport| {
            let on_side = |side: &Side| match side {
                Side::Initiator => report.reporter() == Some(&*filter.participant),
                Side::Counterparty => report.counterparty() == Some(&*filter.participant),
            };
            filter.sides.iter().any(on_side) && status.is_none_or(|status| report.status == status)
        };
        Ok(self.list(&index, "infraction", filter, matches).await?)
    }

    /// Carries out update-, acknowledge-, cancel- or closeInfractionReport.
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
            check_action(&found, action, side, request)?;
            let mut report = (*found).clone();
            report.last_modified = now;
            if side == Side::Counterparty && report.counterparty().is_none() {
                report.set_counterparty(&request.participant);
            }
            let event = match action {
                InfractionAction::Update => {
                    report.situation_type = request.situation_type.unwrap_or(report.situation_type);
                    if request.report_details.is_some() {
                        report.report_details.clone_from(&request.report_details);
                    }
                    "INFRACTION_REPORT_UPDATED"
                }
                InfractionAction::Acknowledge => {
                    report.status = InfractionStatus::Acknowledged;
                    "INFRACTION_REPORT_ACKNOWLEDGED"
                }
                InfractionAction::Cancel => {
                    report.status = InfractionStatus::Cancelled;
                    transaction.delete(format!("infractionof:{}", report.transaction_id));
                    "INFRACTION_REPORT_CANCELLED"
                }
                InfractionAction::Close => {
                    report.status = InfractionStatus::Closed;
                    report.analysis_result = request.analysis_result;
                    report
                        .analysis_details
                        .clone_from(&request.analysis_details);
                    report.fraud_type = request.fraud_type;
                    self.mark_payee_if_agreed(&mut transaction, &report, request, now)
                        .await?;
                    "INFRACTION_REPORT_CLOSED"
                }
            };
            let report = Arc::new(report);
            self.put_infraction(&mut transaction, &report, event)
                .await?;
            Ok(transaction.commit(report).await?)
        })
        .await
    }

    /// Creates a fraud marker of the payee if the report was agreed to and the payee is known.
    async fn mark_payee_if_agreed(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &InfractionReport,
        request: &InfractionActionRequest,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        let is_agreed = request.analysis_result == Some(AnalysisResult::Agreed);
        let payment = self.transaction(&report.transaction_id).await?;
        if let (true, Some(fraud_type), Some(payment)) = (is_agreed, request.fraud_type, payment)
            && let Some(tax_id_number) = payment.payee_tax_id.clone()
        {
            let marker = Arc::new(FraudMarker {
                id: new_id(),
                tax_id_number,
                key: payment.key.clone(),
                fraud_type,
                status: FraudMarkerStatus::Registered,
                participant: request.participant.clone(),
                creation_time: now,
                last_modified: now,
            });
            put_marker(transaction, &marker)?;
            transaction.count("markers".to_owned(), 1, RECORDS_MAX);
        }
        Ok(())
    }

    async fn put_infraction(
        &self,
        transaction: &mut RecordTransaction<'_>,
        report: &Arc<InfractionReport>,
        event: &str,
    ) -> Result<(), DirectoryError> {
        let name = infraction_name(&report.id);
        transaction.put(name, Arc::clone(report))?;
        let at = report.last_modified.ms();
        for participant in [report.reporter(), report.counterparty()]
            .into_iter()
            .flatten()
        {
            transaction.add_member(format!("infractions:{participant}"), at, &report.id);
            transaction.append_event(
                format!("events:{participant}"),
                at,
                format!("{event}:{}", report.id),
            );
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
}

pub(super) fn infraction_name(id: &str) -> String {
    format!("infraction:{}", id.to_lowercase())
}

fn not_found() -> Problem {
    Problem::not_found("No infraction report has the given id")
}

/// If the other side of the transaction is not known, any participant but the reporter may take it.
fn side_of(report: &InfractionReport, participant: &str) -> Result<Side, DirectoryError> {
    if report.reporter() == Some(participant) {
        Ok(Side::Initiator)
    } else if report
        .counterparty()
        .is_none_or(|other| other == participant)
    {
        Ok(Side::Counterparty)
    } else {
        Err(Problem::forbidden("The participant is on neither side of this report").into())
    }
}

fn check_action(
    report: &InfractionReport,
    action: InfractionAction,
    side: Side,
    request: &InfractionActionRequest,
) -> Result<(), DirectoryError> {
    let required_side = match action {
        InfractionAction::Update | InfractionAction::Cancel => Side::Initiator,
        InfractionAction::Acknowledge | InfractionAction::Close => Side::Counterparty,
    };
    if side != required_side {
        return Err(Problem::forbidden("Only the other side of the report may do this").into());
    }
    let is_allowed = match action {
        InfractionAction::Acknowledge => report.status == InfractionStatus::Open,
        InfractionAction::Close => report.status == InfractionStatus::Acknowledged,
        InfractionAction::Update | InfractionAction::Cancel => matches!(
            report.status,
            InfractionStatus::Open | InfractionStatus::Acknowledged
        ),
    };
    if !is_allowed {
        return Err(DirectoryError::rejected(
            "InfractionReportOperationInvalid",
            "The report's status does not allow this",
        ));
    }
    let is_agreed = request.analysis_result == Some(AnalysisResult::Agreed);
    if action == InfractionAction::Close && !is_agreed && request.fraud_type.is_some() {
        return Err(DirectoryError::rejected(
            "InfractionReportInvalid",
            "FraudType is only for reports that are agreed to",
        ));
    }
    Ok(())
}

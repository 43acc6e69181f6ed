//! Infraction reports: opened and called off by the reporter, received and closed by the other side.

use std::sync::Arc;

use super::lists::{ListFilter, Side};
use super::world::Change;
use super::{Directory, RECORDS_MAX, Refusal, Tries, Try, new_id};
use crate::wire::{
    AnalysisResult, CreateInfractionReport, FraudMarker, FraudMarkerStatus, InfractionReport,
    InfractionStatus, Moment, MoveInfractionReport, Problem, ReportedBy,
};

/// How a report can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InfractionStep {
    Update,
    Acknowledge,
    Cancel,
    Close,
}

impl Directory {
    /// createInfractionReport.
    pub(crate) async fn create_infraction(
        &self,
        request: &CreateInfractionReport,
        now: Moment,
    ) -> Result<Arc<InfractionReport>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let (debited, credited) = self
                .sides(
                    &request.participant,
                    &request.transaction_id,
                    "InfractionReport",
                )
                .await?;
            let active = format!("infractionof:{}", request.transaction_id);
            let other: Option<Arc<String>> = self.world.read(&mut change, &active).await?;
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
            self.world.put(&mut change, active, id)?;
            change.count("infractions".to_owned(), 1, RECORDS_MAX);
            self.keep_infraction(&mut change, &report, "INFRACTION_REPORT_OPENED")
                .await?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(report);
            }
        }
    }

    /// getInfractionReport, by either side.
    pub(crate) async fn infraction(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<InfractionReport>, Refusal> {
        let report: Option<Arc<InfractionReport>> = self.world.get(&infraction_name(id)).await?;
        let report = report.ok_or_else(none_has_the_id)?;
        side_of(&report, participant)?;
        Ok(report)
    }

    /// listInfractionReports.
    pub(crate) async fn infractions(
        &self,
        filter: &ListFilter,
        status: Option<InfractionStatus>,
    ) -> Result<(Vec<InfractionReport>, bool), Refusal> {
        let index = format!("infractions:{}", filter.participant);
        let fits = |report: &InfractionReport| {
            let on_side = |side: &Side| match side {
                Side::Beginner => report.reporter() == Some(&*filter.participant),
                Side::Other => report.counterparty() == Some(&*filter.participant),
            };
            filter.sides.iter().any(on_side) && status.is_none_or(|status| report.status == status)
        };
        Ok(self.list(&index, "infraction", filter, fits).await?)
    }

    /// update-, acknowledge-, cancel- and closeInfractionReport.
    pub(crate) async fn move_infraction(
        &self,
        step: InfractionStep,
        request: &MoveInfractionReport,
        now: Moment,
    ) -> Result<Arc<InfractionReport>, Refusal> {
        let mut tries = Tries::default();
        loop {
            let mut change = Change::default();
            let name = infraction_name(&request.id);
            let found: Option<Arc<InfractionReport>> = self.world.read(&mut change, &name).await?;
            let found = found.ok_or_else(none_has_the_id)?;
            let side = side_of(&found, &request.participant)?;
            may_move(&found, step, side, request)?;
            let mut report = (*found).clone();
            report.last_modified = now;
            if side == Side::Other && report.counterparty().is_none() {
                report.set_counterparty(&request.participant);
            }
            let event = match step {
                InfractionStep::Update => {
                    report.situation_type = request.situation_type.unwrap_or(report.situation_type);
                    if request.report_details.is_some() {
                        report.report_details.clone_from(&request.report_details);
                    }
                    "INFRACTION_REPORT_UPDATED"
                }
                InfractionStep::Acknowledge => {
                    report.status = InfractionStatus::Acknowledged;
                    "INFRACTION_REPORT_ACKNOWLEDGED"
                }
                InfractionStep::Cancel => {
                    report.status = InfractionStatus::Cancelled;
                    change.delete(format!("infractionof:{}", report.transaction_id));
                    "INFRACTION_REPORT_CANCELLED"
                }
                InfractionStep::Close => {
                    report.status = InfractionStatus::Closed;
                    report.analysis_result = request.analysis_result;
                    report
                        .analysis_details
                        .clone_from(&request.analysis_details);
                    report.fraud_type = request.fraud_type;
                    self.mark_if_agreed(&mut change, &report, request, now)
                        .await?;
                    "INFRACTION_REPORT_CLOSED"
                }
            };
            let report = Arc::new(report);
            self.keep_infraction(&mut change, &report, event).await?;
            if tries.commit(&self.world, change).await? == Try::Done {
                return Ok(report);
            }
        }
    }

    /// A report that was agreed to marks the payee, where the transaction tells who that is.
    async fn mark_if_agreed(
        &self,
        change: &mut Change,
        report: &InfractionReport,
        request: &MoveInfractionReport,
        now: Moment,
    ) -> Result<(), Refusal> {
        let is_agreed = request.analysis_result == Some(AnalysisResult::Agreed);
        let transaction = self.transaction(&report.transaction_id).await?;
        if let (true, Some(fraud_type), Some(transaction)) =
            (is_agreed, request.fraud_type, transaction)
            && let Some(tax_id_number) = transaction.payee_tax_id.clone()
        {
            let marker = Arc::new(FraudMarker {
                id: new_id(),
                tax_id_number,
                key: transaction.key.clone(),
                fraud_type,
                status: FraudMarkerStatus::Registered,
                participant: request.participant.clone(),
                creation_time: now,
                last_modified: now,
            });
            self.keep_marker(change, &marker)?;
            change.count("markers".to_owned(), 1, RECORDS_MAX);
        }
        Ok(())
    }

    async fn keep_infraction(
        &self,
        change: &mut Change,
        report: &Arc<InfractionReport>,
        event: &str,
    ) -> Result<(), Refusal> {
        let name = infraction_name(&report.id);
        self.world.put(change, name, Arc::clone(report))?;
        let at = report.last_modified.ms();
        for participant in [report.reporter(), report.counterparty()]
            .into_iter()
            .flatten()
        {
            change.add(format!("infractions:{participant}"), at, &report.id);
            change.event(
                format!("events:{participant}"),
                at,
                format!("{event}:{}", report.id),
            );
        }
        if let Some(transaction) = self.transaction(&report.transaction_id).await? {
            for (what, whose) in [
                ("owner", &transaction.payee_tax_id),
                ("key", &transaction.key),
            ] {
                if let Some(whose) = whose {
                    change.add(format!("infractions-{what}:{whose}"), at, &report.id);
                }
            }
        }
        Ok(())
    }

    async fn already_reported(&self, id: &str) -> Result<Refusal, Refusal> {
        let other: Option<Arc<InfractionReport>> = self.world.get(&infraction_name(id)).await?;
        let is_closed = other.is_some_and(|other| other.status == InfractionStatus::Closed);
        Ok(if is_closed {
            Refusal::new(
                "InfractionReportAlreadyProcessedForTransaction",
                "A report on the transaction has been closed",
            )
        } else {
            Refusal::new(
                "InfractionReportAlreadyBeingProcessedForTransaction",
                "A report on the transaction is open",
            )
        })
    }
}

pub(super) fn infraction_name(id: &str) -> String {
    format!("infraction:{}", id.to_lowercase())
}

fn none_has_the_id() -> Problem {
    Problem::not_found("No infraction report has the given id")
}

/// Where the other side of a transaction is not known, anybody but the reporter may be it.
fn side_of(report: &InfractionReport, participant: &str) -> Result<Side, Refusal> {
    if report.reporter() == Some(participant) {
        Ok(Side::Beginner)
    } else if report
        .counterparty()
        .is_none_or(|other| other == participant)
    {
        Ok(Side::Other)
    } else {
        Err(Problem::forbidden("The participant has no part in this report").into())
    }
}

fn may_move(
    report: &InfractionReport,
    step: InfractionStep,
    side: Side,
    request: &MoveInfractionReport,
) -> Result<(), Refusal> {
    let needed = match step {
        InfractionStep::Update | InfractionStep::Cancel => Side::Beginner,
        InfractionStep::Acknowledge | InfractionStep::Close => Side::Other,
    };
    if side != needed {
        return Err(Problem::forbidden("The other side of the report does this").into());
    }
    let is_lawful = match step {
        InfractionStep::Acknowledge => report.status == InfractionStatus::Open,
        InfractionStep::Close => report.status == InfractionStatus::Acknowledged,
        InfractionStep::Update | InfractionStep::Cancel => matches!(
            report.status,
            InfractionStatus::Open | InfractionStatus::Acknowledged
        ),
    };
    if !is_lawful {
        return Err(Refusal::new(
            "InfractionReportOperationInvalid",
            "The report's status does not allow this",
        ));
    }
    let is_agreed = request.analysis_result == Some(AnalysisResult::Agreed);
    if step == InfractionStep::Close && !is_agreed && request.fraud_type.is_some() {
        return Err(Refusal::new(
            "InfractionReportInvalid",
            "A FraudType is for reports that are agreed to",
        ));
    }
    Ok(())
}

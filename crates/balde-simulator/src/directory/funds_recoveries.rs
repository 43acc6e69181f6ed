//! Funds recoveries: created by the payer's participant, followed by DICT, analysed through infraction
//! reports, and refunded one transaction after another.
//!
//! ```text
//! CREATED ─▶ TRACKED ─▶ AWAITING_ANALYSIS ── last report closed ─▶ ANALYSED ── refund ─▶ REFUNDING ─▶ COMPLETED
//! ```
//! DICT does the first two steps itself. With the setting `deprecated_operations = "served"` they wait
//! for createTrackingGraph and blockFundsRecovery. A root transaction that was no fraud completes the
//! funds recovery without refunds, and its creator may cancel it before refunds are requested.

use std::sync::Arc;

use super::error::DirectoryError;
use super::handle::{Directory, RECORDS_MAX};
use super::ids::new_id;
use super::infractions::{active_name, infraction_name};
use super::refunds::{recovery_name, refund_name};
use super::store::RecordTransaction;
use super::transactions::{Payment, RETURN_PURPOSE};
use crate::wire::{
    CreateFundsRecovery, FundsRecovery, FundsRecoveryActionRequest, FundsRecoveryStatus,
    GraphParameters, InfractionReport, InfractionStatus, Problem, Refund, RefundReason, Timestamp,
    TrackingGraph,
};

const DAY_MS: u64 = 86_400_000;
/// How old a root transaction may be.
const ROOT_AGE_MAX_MS: u64 = 80 * DAY_MS;
/// How long after the analysis refunds may be requested.
const REFUND_PERIOD_MS: u64 = 3 * DAY_MS;

/// An action that changes a funds recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FundsRecoveryAction {
    Update,
    Track(GraphParameters),
    Block,
    Refund,
    Cancel,
}

impl Directory {
    /// Carries out createFundsRecovery. What is returned is the funds recovery as it was created,
    /// before DICT's own steps.
    pub(crate) async fn create_funds_recovery(
        &self,
        request: &CreateFundsRecovery,
        parameters: GraphParameters,
        now: Timestamp,
    ) -> Result<FundsRecovery, DirectoryError> {
        self.transact(|mut transaction| async move {
            let root_id = &request.root_transaction_id;
            let once = format!("recoveryof:{root_id}");
            let before: Option<Arc<String>> = transaction.read(&once).await?;
            if before.is_some() {
                return Err(DirectoryError::rejected(
                    "FundsRecoveryForTransactionAlreadyExists",
                    "The transaction has or had a funds recovery",
                ));
            }
            let payment = self.root_payment(request, parameters, now).await?;
            let active: Option<Arc<String>> = transaction.read(&active_name(root_id)).await?;
            if active.is_some() {
                return Err(not_eligible(
                    "The transaction has an infraction report already",
                ));
            }
            let graph = self.track(root_id, &payment, parameters, now).await?;
            let mut recovery = new_recovery(request, parameters, now);
            let created = FundsRecovery {
                graph: Some(graph.clone()),
                ..recovery.clone()
            };
            self.report_transaction(&mut transaction, &mut recovery, &payment, root_id, now)
                .await?;
            if !self.settings.serve_deprecated {
                recovery.graph = Some(graph);
                recovery.status = FundsRecoveryStatus::AwaitingAnalysis;
                self.report_graph(&mut transaction, &mut recovery, None, now)
                    .await?;
            }
            let once_id = Arc::new(recovery.id.clone());
            transaction.put(once, once_id)?;
            transaction.count("recoveries".to_owned(), 1, RECORDS_MAX);
            put_recovery(&mut transaction, &recovery)?;
            let created = FundsRecovery {
                graph: created.graph.filter(|_| !self.settings.serve_deprecated),
                ..created
            };
            Ok(transaction.commit(created).await?)
        })
        .await
    }

    /// The root transaction, if a funds recovery of it may be created.
    async fn root_payment(
        &self,
        request: &CreateFundsRecovery,
        parameters: GraphParameters,
        now: Timestamp,
    ) -> Result<Payment, DirectoryError> {
        let participant = &request.participant;
        let not_indexed = "FundsRecoveryTransactionNotIndexed";
        let mut payment = self
            .payment(participant, &request.root_transaction_id, not_indexed)
            .await?;
        if !payment.is_known {
            // Who creates it says that it is the payer's participant.
            payment.debited = Some(participant.clone());
            payment.credited = None;
        }
        if payment.debited.as_ref() != Some(participant) {
            let detail = "Only the payer's participant may create a funds recovery";
            return Err(Problem::forbidden(detail).into());
        }
        if !payment.is_settled {
            return Err(DirectoryError::rejected(
                "FundsRecoveryTransactionNotSettled",
                "The transaction is not settled",
            ));
        }
        if payment.is_older_than(ROOT_AGE_MAX_MS, now) {
            return Err(not_eligible("The transaction is too old"));
        }
        let id = &request.root_transaction_id;
        let refund = self.refund_closed_by(id).await?;
        let is_flaw = |refund: &Refund| refund.reason == RefundReason::OperationalFlaw;
        if refund.as_deref().is_some_and(is_flaw) {
            return Err(not_eligible("The transaction returned an operational flaw"));
        }
        let has_purpose = payment.purpose.as_deref() == Some(RETURN_PURPOSE);
        let is_following = match &refund {
            Some(refund) => self.is_following(refund).await?,
            None => false,
        };
        if has_purpose || is_following {
            let detail = "The transaction refunds a following transaction (purpose IPRT)";
            return Err(not_eligible(detail));
        }
        let is_small = |cents: u64| cents < parameters.min_cents;
        if payment.amount_cents.is_some_and(is_small) {
            return Err(DirectoryError::rejected(
                not_indexed,
                "The transaction is below MinTransactionAmount",
            ));
        }
        Ok(payment)
    }

    /// Returns a funds recovery for its creator and the counterparties of its reports.
    pub(crate) async fn funds_recovery(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<FundsRecovery>, DirectoryError> {
        let recovery: Option<Arc<FundsRecovery>> = self.records.get(&recovery_name(id)).await?;
        let recovery = recovery.ok_or_else(not_found)?;
        let mut may_read = recovery.reporter == participant;
        for report in self.reports_of(&recovery).await? {
            may_read |= report.counterparty.as_deref() == Some(participant);
        }
        if !may_read {
            let detail = "The participant takes no part in this funds recovery";
            return Err(Problem::forbidden(detail).into());
        }
        Ok(recovery)
    }

    /// Returns the graph of a funds recovery. It does not exist before the money was followed.
    pub(crate) async fn tracking_graph(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<(Arc<FundsRecovery>, TrackingGraph), DirectoryError> {
        let recovery = self.funds_recovery(participant, id).await?;
        let graph = recovery.graph.clone();
        let graph =
            graph.ok_or_else(|| Problem::not_found("The funds recovery has no graph yet"))?;
        Ok((recovery, graph))
    }

    /// Carries out listFundsRecoveryInfractionReports, for the creator.
    pub(crate) async fn recovery_reports(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Vec<InfractionReport>, DirectoryError> {
        let recovery = self.own_recovery(participant, id).await?;
        if matches!(
            recovery.status,
            FundsRecoveryStatus::Created | FundsRecoveryStatus::Tracked
        ) {
            let detail = "The blocking of the funds recovery was not ordered yet";
            return Err(Problem::bad_request(detail).into());
        }
        let reports = self.reports_of(&recovery).await?;
        Ok(reports.iter().map(|report| (**report).clone()).collect())
    }

    /// Carries out listFundsRecoveryRefunds, for the creator.
    pub(crate) async fn recovery_refunds(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Vec<Refund>, DirectoryError> {
        let recovery = self.own_recovery(participant, id).await?;
        if recovery.refunds.is_empty() {
            let detail = "The refunding of the funds recovery has not begun";
            return Err(Problem::bad_request(detail).into());
        }
        let names: Vec<_> = recovery.refunds.iter().map(|id| refund_name(id)).collect();
        let refunds: Vec<Arc<Refund>> = self.records.get_all(&names).await?;
        Ok(refunds.iter().map(|refund| (**refund).clone()).collect())
    }

    async fn own_recovery(
        &self,
        participant: &str,
        id: &str,
    ) -> Result<Arc<FundsRecovery>, DirectoryError> {
        let recovery: Option<Arc<FundsRecovery>> = self.records.get(&recovery_name(id)).await?;
        let recovery = recovery.ok_or_else(not_found)?;
        require_creator(&recovery, participant)?;
        Ok(recovery)
    }

    pub(super) async fn reports_of(
        &self,
        recovery: &FundsRecovery,
    ) -> Result<Vec<Arc<InfractionReport>>, DirectoryError> {
        let names: Vec<_> = recovery
            .reports
            .iter()
            .map(|id| infraction_name(id))
            .collect();
        Ok(self.records.get_all(&names).await?)
    }

    /// Carries out update-, block-, refund- or cancelFundsRecovery or createTrackingGraph.
    pub(crate) async fn apply_recovery_action(
        &self,
        action: FundsRecoveryAction,
        request: &FundsRecoveryActionRequest,
        now: Timestamp,
    ) -> Result<Arc<FundsRecovery>, DirectoryError> {
        self.transact(|mut transaction| async move {
            let name = recovery_name(&request.id);
            let found: Option<Arc<FundsRecovery>> = transaction.read(&name).await?;
            let found = found.ok_or_else(not_found)?;
            require_creator(&found, &request.participant)?;
            if self.settings.repeat_funds_recoveries && is_repetition(&found, action) {
                return Ok(transaction.commit(found).await?);
            }
            self.check_recovery_status(&found, action, now)?;
            let mut recovery = (*found).clone();
            recovery.last_modified = now;
            match action {
                FundsRecoveryAction::Update => {
                    self.update_recovery(&mut transaction, &mut recovery, request, now)
                        .await?;
                }
                FundsRecoveryAction::Track(parameters) => {
                    let root = &recovery.root_transaction_id;
                    let payment = self.payment(&recovery.reporter, root, "").await?;
                    recovery.graph = Some(self.track(root, &payment, parameters, now).await?);
                    recovery.parameters = parameters;
                    recovery.status = FundsRecoveryStatus::Tracked;
                }
                FundsRecoveryAction::Block => {
                    recovery.status = FundsRecoveryStatus::AwaitingAnalysis;
                    let chosen = request.transactions.as_deref();
                    self.report_graph(&mut transaction, &mut recovery, chosen, now)
                        .await?;
                    self.end_analysis(&mut transaction, &mut recovery, None, now)
                        .await?;
                }
                FundsRecoveryAction::Refund => {
                    recovery.status = FundsRecoveryStatus::Refunding;
                    self.next_refund(&mut transaction, &mut recovery, None, now)
                        .await?;
                }
                FundsRecoveryAction::Cancel => {
                    self.cancel_recovery(&mut transaction, &mut recovery, now)
                        .await?;
                }
            }
            put_recovery(&mut transaction, &recovery)?;
            Ok(transaction.commit(Arc::new(recovery)).await?)
        })
        .await
    }

    fn check_recovery_status(
        &self,
        recovery: &FundsRecovery,
        action: FundsRecoveryAction,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        use FundsRecoveryStatus::{Analysed, AwaitingAnalysis, Created, Refunding, Tracked};
        let allowed: &[FundsRecoveryStatus] = match action {
            FundsRecoveryAction::Update => &[Created, Tracked, AwaitingAnalysis],
            FundsRecoveryAction::Track(_) => &[Created, Tracked],
            FundsRecoveryAction::Block => &[Tracked],
            FundsRecoveryAction::Refund => &[Analysed],
            FundsRecoveryAction::Cancel if self.settings.cancel_while_refunding => {
                &[Created, Tracked, AwaitingAnalysis, Analysed, Refunding]
            }
            FundsRecoveryAction::Cancel => &[Created, Tracked, AwaitingAnalysis, Analysed],
        };
        let invalid = |detail: &str| {
            Err(DirectoryError::rejected(
                "FundsRecoveryOperationInvalid",
                detail,
            ))
        };
        if !allowed.contains(&recovery.status) {
            return invalid("The funds recovery's status does not allow this");
        }
        let deadline = recovery.analysed_at.map(|at| at.plus_ms(REFUND_PERIOD_MS));
        let is_late = deadline.is_some_and(|deadline| now > deadline);
        if action == FundsRecoveryAction::Refund && is_late {
            return invalid("The analysis ended more than 72 hours ago");
        }
        Ok(())
    }

    /// Changes what the creator says, in the funds recovery and in its open reports.
    async fn update_recovery(
        &self,
        transaction: &mut RecordTransaction<'_>,
        recovery: &mut FundsRecovery,
        request: &FundsRecoveryActionRequest,
        now: Timestamp,
    ) -> Result<(), DirectoryError> {
        recovery.situation_type = request.situation_type.unwrap_or(recovery.situation_type);
        if let Some(contact) = &request.contact {
            recovery.contact = contact.clone();
        }
        if request.report_details.is_some() {
            recovery.report_details.clone_from(&request.report_details);
        }
        for id in &recovery.reports {
            let found: Option<Arc<InfractionReport>> =
                transaction.read(&infraction_name(id)).await?;
            let Some(found) = found else {
                continue;
            };
            if matches!(
                found.status,
                InfractionStatus::Open | InfractionStatus::Acknowledged
            ) {
                let report = InfractionReport {
                    situation_type: recovery.situation_type,
                    report_details: recovery.report_details.clone(),
                    contact: Some(recovery.contact.clone())
                        .filter(|_| self.settings.recovery_report_contact),
                    last_modified: now,
                    ..(*found).clone()
                };
                self.put_infraction(transaction, &Arc::new(report)).await?;
            }
        }
        let event = "FUNDS_RECOVERY_INFORMATION_UPDATED";
        self.notify(transaction, recovery, event, now).await
    }
}

fn new_recovery(
    request: &CreateFundsRecovery,
    parameters: GraphParameters,
    now: Timestamp,
) -> FundsRecovery {
    FundsRecovery {
        id: new_id(),
        has_flow_type: request.has_flow_type,
        root_transaction_id: request.root_transaction_id.clone(),
        situation_type: request.situation_type,
        report_details: request.report_details.clone(),
        contact: request.contact.clone(),
        status: FundsRecoveryStatus::Created,
        reporter: request.participant.clone(),
        creation_time: now,
        last_modified: now,
        analysed_at: None,
        parameters,
        graph: None,
        reports: Vec::new(),
        refunds: Vec::new(),
    }
}

pub(super) fn put_recovery(
    transaction: &mut RecordTransaction<'_>,
    recovery: &FundsRecovery,
) -> Result<(), DirectoryError> {
    let name = recovery_name(&recovery.id);
    Ok(transaction.put(name, Arc::new(recovery.clone()))?)
}

/// Whether the funds recovery is already what the request asks for.
fn is_repetition(recovery: &FundsRecovery, action: FundsRecoveryAction) -> bool {
    match action {
        FundsRecoveryAction::Refund => recovery.status == FundsRecoveryStatus::Refunding,
        FundsRecoveryAction::Cancel => recovery.status == FundsRecoveryStatus::Cancelled,
        _ => false,
    }
}

fn require_creator(recovery: &FundsRecovery, participant: &str) -> Result<(), DirectoryError> {
    if recovery.reporter == participant {
        return Ok(());
    }
    Err(Problem::forbidden("Only the creator of the funds recovery may do this").into())
}

fn not_found() -> Problem {
    Problem::not_found("No funds recovery has the given id")
}

fn not_eligible(detail: &str) -> DirectoryError {
    DirectoryError::rejected("FundsRecoveryTransactionNotEligible", detail)
}

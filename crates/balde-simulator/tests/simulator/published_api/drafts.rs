//! For every operation of the published API, a request that is accepted, and for its errors requests
//! that provoke them.

use serde_json::json;

use super::world::{Draft, OTHER, OWNER, World};
use crate::test_server::{CALLER, KEY, KEY_HOLDER, PERSON};

pub(super) const NOBODY: &str = "91d65e98-97c0-4b0f-b577-73625da1f9fc";

/// A request of an operation that is accepted. Deprecated operations need a simulator that serves them.
#[expect(clippy::too_many_lines, reason = "an arm to each operation")]
pub(super) async fn accepted(world: &World<'_>, id: &str) -> Option<Draft> {
    let list = format!("Participant={CALLER}");
    let pages = "ModifiedAfter=2020-01-01T00:00:00Z&ModifiedBefore=2099-01-01T00:00:00Z&Limit=200";
    Some(match id {
        "createEntry" => world.entry_draft(),
        "getEntry" => Draft::at(KEY).query("IncludeStatistics=true"),
        "getEntryStatistics" => Draft::at(KEY),
        "updateEntry" => {
            let key = world.entry().await;
            Draft::at(&*key)
                .with("Key", key)
                .with("Account/Participant", KEY_HOLDER)
                .with("Account/AccountNumber", world.number().to_string())
                .with("Owner/TaxIdNumber", OWNER)
        }
        "deleteEntry" => {
            let key = world.entry().await;
            Draft::at(&*key)
                .with("Key", key)
                .with("Participant", KEY_HOLDER)
        }
        "checkKeys" => Draft::default().with("Keys/Key", KEY),
        "getPersonStatistics" => Draft::at(OWNER),
        "createClaim" => {
            let key = world.entry().await;
            world.claim_draft("OWNERSHIP", &key)
        }
        "listClaims" => {
            world.claim_cancelled().await;
            let statuses = "Status=CANCELLED&Status=OPEN&Type=PORTABILITY&IsClaimer=true";
            Draft::default().query(format!("{list}&{statuses}&IsDonor=false&{pages}"))
        }
        "getClaim" => Draft::at(world.claim("OWNERSHIP").await.0),
        "acknowledgeClaim" => {
            let (claim, _) = world.claim("OWNERSHIP").await;
            world.claim_step(&claim, KEY_HOLDER, "")
        }
        "confirmClaim" => {
            let (claim, _) = world.claim_waiting("OWNERSHIP").await;
            world.claim_step(&claim, KEY_HOLDER, "USER_REQUESTED")
        }
        "cancelClaim" => {
            let (claim, _) = world.claim("OWNERSHIP").await;
            world.claim_step(&claim, CALLER, "USER_REQUESTED")
        }
        "completeClaim" => {
            let (claim, _) = world.claim_confirmed("OWNERSHIP").await;
            world.claim_step(&claim, CALLER, "")
        }
        "createSyncVerification" => {
            Draft::default().with("SyncVerification/ParticipantSyncVerifier", "0".repeat(64))
        }
        "createCidSetFile" => Draft::default(),
        "getCidSetFile" => {
            let made = world.ok("createCidSetFile", &Draft::default()).await;
            Draft::at(made.at("CidSetFile/Id").unwrap())
        }
        "listCidSetEvents" => {
            world.entry().await;
            let query = format!("Participant={KEY_HOLDER}&KeyType=PHONE&Limit=5");
            Draft::default().query(format!("{query}&StartTime=2020-01-01T00:00:00Z"))
        }
        "getEntryByCid" => {
            world.entry().await;
            let query = format!("Participant={KEY_HOLDER}&KeyType=PHONE&Limit=200");
            let events = Draft::default().query(query);
            let events = world.ok("listCidSetEvents", &events).await;
            let events = &events.child("CidSetEvents").unwrap().children;
            // The newest event is that of the new entry.
            let last = events.last().unwrap().at("Cid").unwrap();
            Draft::at(last).by(KEY_HOLDER)
        }
        "createInfractionReport" => {
            let transaction = world.payment(json!({})).await;
            world.report_draft(&transaction)
        }
        "listInfractionReport" => {
            world.recovery().await;
            let flags = "IsReporter=true&IsCounterparty=false&IncludeDetails=true&Status=OPEN";
            Draft::default().query(format!("{list}&{flags}&{pages}"))
        }
        "getInfractionReport" => {
            let recovery = world.recovery_analysed().await;
            let reports = Draft::at(recovery);
            let reports = world
                .ok("listFundsRecoveryInfractionReports", &reports)
                .await;
            let report = &reports.child("InfractionReports").unwrap().children[0];
            Draft::at(report.at("Id").unwrap())
        }
        "updateInfractionReport" => {
            let (report, _) = world.report().await;
            world.report_step(&report, CALLER)
        }
        "acknowledgeInfractionReport" => world.report_step(&first_report(world).await, KEY_HOLDER),
        "cancelInfractionReport" => {
            // Only a report that belongs to no funds recovery can be cancelled.
            let (report, _) = world.report().await;
            world.report_step(&report, CALLER)
        }
        "closeInfractionReport" => {
            let report = first_report(world).await;
            let step = world.report_step(&report, KEY_HOLDER);
            world.ok("acknowledgeInfractionReport", &step).await;
            world.close_step(&report, "AGREED")
        }
        "createFundsRecovery" => {
            let transaction = world.payment(json!({})).await;
            world.recovery_draft(&transaction)
        }
        "getFundsRecovery" | "getTrackingGraph" | "listFundsRecoveryInfractionReports" => {
            Draft::at(world.recovery().await)
        }
        "updateFundsRecovery" | "cancelFundsRecovery" => {
            let recovery = world.recovery().await;
            world.recovery_step(&recovery)
        }
        "createTrackingGraph" => {
            let recovery = world.recovery_created().await;
            world.recovery_step(&recovery)
        }
        "blockFundsRecovery" => {
            let recovery = world.recovery_created().await;
            let step = world.recovery_step(&recovery);
            let made = world.ok("createTrackingGraph", &step).await;
            let graph = made.child("TrackingGraph").unwrap();
            let root = graph.at("RootTransactionId").unwrap();
            step.with("PrioritizationStrategy", "TRANSACTION_LIST")
                .with("Transactions/TransactionId", root)
        }
        "refundFundsRecovery" => {
            let recovery = world.recovery_analysed().await;
            world.recovery_step(&recovery)
        }
        "listFundsRecoveryRefunds" => Draft::at(world.recovery_refunding().await),
        "createFraudMarker" => world.marker_draft(),
        "listFraudMarkers" => {
            // Closing its reports made markers.
            world.recovery_analysed().await;
            let query = format!("Participant={KEY_HOLDER}&TaxIdNumber={OWNER}&Status=REGISTERED");
            Draft::default().query(format!("{query}&{pages}"))
        }
        "getFraudMarker" => {
            let recovery = world.recovery_analysed().await;
            let reports = Draft::at(recovery);
            let reports = world
                .ok("listFundsRecoveryInfractionReports", &reports)
                .await;
            let report = &reports.child("InfractionReports").unwrap().children[0];
            Draft::at(report.at("FraudMarkerId").unwrap())
        }
        "cancelFraudMarker" => {
            let marker = world.marker().await;
            Draft::at(&*marker).with("FraudMarkerId", marker)
        }
        "createRefund" => {
            let transaction = world.payment(json!({})).await;
            world.refund_draft(&transaction)
        }
        "listRefund" => {
            world.recovery_refunding().await;
            let flags = "ParticipantRole=REQUESTING&IncludeDetails=true&Status=OPEN&Status=CLOSED";
            Draft::default().query(format!("{list}&{flags}&{pages}"))
        }
        "getRefund" => Draft::at(world.refund().await.0),
        "cancelRefund" => {
            let (refund, _) = world.refund().await;
            world.refund_step(&refund, CALLER)
        }
        "closeRefund" => {
            let (refund, _) = world.refund().await;
            world.refund_close_step(&refund)
        }
        "listEventNotifications" => {
            world.recovery_cancelled().await;
            Draft::default().query(format!("{list}&IncludeIndirectParticipants=true"))
        }
        "bucketStates" => Draft::default(),
        "getPolicy" => Draft::at("ENTRIES_WRITE"),
        _ => return None,
    })
}

async fn first_report(world: &World<'_>) -> String {
    let recovery = world.recovery().await;
    let reports = Draft::at(recovery);
    let reports = world
        .ok("listFundsRecoveryInfractionReports", &reports)
        .await;
    let report = &reports.child("InfractionReports").unwrap().children[0];
    report.at("Id").unwrap().to_owned()
}

/// A request of an operation that provokes an error, by what is wrong with the request or with the
/// records that it is about. `None` if this test knows no way.
#[expect(clippy::too_many_lines, reason = "an arm to each error")]
pub(super) async fn refused(
    world: &World<'_>,
    strict: &World<'_>,
    id: &str,
    error: &str,
) -> Option<(Draft, bool)> {
    // Whether the request goes to the simulator that knows announced transactions only.
    let mut is_strict = false;
    let valid = |draft: Option<Draft>| draft.expect("an accepted request");
    let draft = match (id, error) {
        ("createEntry", "EntryInvalid") => world
            .entry_draft()
            .with("Entry/Account/AccountNumber", "x-"),
        ("updateEntry", "EntryInvalid") => {
            valid(accepted(world, id).await).with("Account/AccountNumber", "x-")
        }
        ("createEntry", "RequestIdAlreadyUsed") => {
            let draft = world.entry_draft();
            world.ok(id, &draft).await;
            draft.with("Entry/Key", world.phone())
        }
        ("createEntry", "EntryLimitExceeded") => {
            let account = world.number().to_string();
            let at = "Entry/Account/AccountNumber";
            for _ in 0..5 {
                world.ok(id, &world.entry_draft().with(at, &*account)).await;
            }
            world.entry_draft().with(at, account)
        }
        ("createEntry", "EntryAlreadyExists") => {
            world.entry_draft().with("Entry/Key", world.entry().await)
        }
        ("createEntry", "EntryKeyOwnedByDifferentPerson") => world
            .entry_draft()
            .with("Entry/Key", world.entry().await)
            .with("Entry/Owner/TaxIdNumber", OTHER),
        ("createEntry", "EntryKeyInCustodyOfDifferentParticipant") => world
            .entry_draft()
            .with("Entry/Key", world.entry().await)
            .with("Entry/Account/Participant", CALLER),
        ("createEntry", "EntryTaxIdNumberByDifferentOwner") => world
            .entry_draft()
            .with("Entry/KeyType", "CPF")
            .with("Entry/Key", PERSON),
        ("createEntry", "TaxIdNumberBlocked" | "UserOrAccountWithFraudRelatedRestriction") => {
            let tax_id = format!("{:011}", world.number());
            world
                .restrict(json!({"tax_id": tax_id, "restriction": kind(error)}))
                .await;
            world.entry_draft().with("Entry/Owner/TaxIdNumber", tax_id)
        }
        ("createClaim", "TaxIdNumberBlocked" | "UserOrAccountWithFraudRelatedRestriction") => {
            let tax_id = format!("{:011}", world.number());
            world
                .restrict(json!({"tax_id": tax_id, "restriction": kind(error)}))
                .await;
            valid(accepted(world, id).await).with("Claim/Claimer/TaxIdNumber", tax_id)
        }
        ("updateEntry", "TaxIdNumberBlocked") => {
            let tax_id = format!("{:011}", world.number());
            let draft = world
                .entry_draft()
                .with("Entry/Owner/TaxIdNumber", &*tax_id);
            let made = world.ok("createEntry", &draft).await;
            world
                .restrict(json!({"tax_id": tax_id, "restriction": "BLOCKED"}))
                .await;
            let key = made.at("Entry/Key").unwrap();
            Draft::at(key)
                .with("Key", key)
                .with("Account/Participant", KEY_HOLDER)
        }
        ("createEntry", "InvalidReason") => world.entry_draft().with("Reason", "FRAUD"),
        ("updateEntry", "InvalidReason") => {
            valid(accepted(world, id).await).with("Reason", "ACCOUNT_CLOSURE")
        }
        ("deleteEntry", "InvalidReason") => {
            valid(accepted(world, id).await).with("Reason", "BRANCH_TRANSFER")
        }
        ("getEntry", "EntryCannotBeQueriedForBookTransfer") => Draft::at(KEY).by(KEY_HOLDER),
        ("getEntry", "EntryBlocked" | "EntryWithFraudRelatedRestriction") => {
            let key = world.entry().await;
            world
                .restrict(json!({"key": key, "restriction": kind(error)}))
                .await;
            Draft::at(key)
        }
        ("updateEntry" | "deleteEntry" | "createClaim", "EntryBlocked") => {
            let draft = valid(accepted(world, id).await);
            let of = if id == "createClaim" {
                "Claim/Key"
            } else {
                "Key"
            };
            let (_, key) = draft.values.iter().find(|(own, _)| *own == of).unwrap();
            world
                .restrict(json!({"key": key, "restriction": "BLOCKED"}))
                .await;
            draft
        }
        ("deleteEntry", "EntryLockedByClaim") => {
            let (_, key) = world.claim("OWNERSHIP").await;
            Draft::at(&*key)
                .with("Key", key)
                .with("Participant", KEY_HOLDER)
        }
        ("createClaim", "ClaimInvalid") => {
            valid(accepted(world, id).await).with("Claim/ClaimerAccount/AccountNumber", "x-")
        }
        ("createClaim", "ClaimTypeInconsistent") => {
            let key = world.entry().await;
            let draft = world.claim_draft("PORTABILITY", &key);
            draft.with("Claim/Claimer/TaxIdNumber", OTHER)
        }
        ("createClaim", "ClaimAlreadyExistsForKey") => {
            let (_, key) = world.claim("OWNERSHIP").await;
            world.claim_draft("OWNERSHIP", &key)
        }
        ("createClaim", "ClaimResultingEntryAlreadyExists") => {
            let key = world.entry().await;
            let draft = world.claim_draft("PORTABILITY", &key);
            draft.with("Claim/ClaimerAccount/Participant", KEY_HOLDER)
        }
        ("createClaim", "ClaimKeyNotFound") => world.claim_draft("OWNERSHIP", &world.phone()),
        ("acknowledgeClaim" | "confirmClaim", "ClaimOperationInvalid") => {
            let claim = world.claim_cancelled().await;
            let reason = if id == "confirmClaim" {
                "USER_REQUESTED"
            } else {
                ""
            };
            world.claim_step(&claim, KEY_HOLDER, reason)
        }
        ("cancelClaim", "ClaimOperationInvalid") => {
            let claim = world.claim_cancelled().await;
            world.claim_step(&claim, CALLER, "FRAUD")
        }
        ("completeClaim", "ClaimOperationInvalid") => {
            let claim = world.claim_cancelled().await;
            world.claim_step(&claim, CALLER, "")
        }
        ("confirmClaim", "ClaimResolutionPeriodNotEnded") => {
            let (claim, _) = world.claim_waiting("OWNERSHIP").await;
            world.claim_step(&claim, KEY_HOLDER, "DEFAULT_OPERATION")
        }
        ("cancelClaim", "ClaimResolutionPeriodNotEnded") => {
            let (claim, _) = world.claim("PORTABILITY").await;
            world.claim_step(&claim, KEY_HOLDER, "DEFAULT_OPERATION")
        }
        ("confirmClaim", "InvalidReason") => {
            let (claim, _) = world.claim_waiting("PORTABILITY").await;
            world.claim_step(&claim, KEY_HOLDER, "FRAUD")
        }
        ("cancelClaim", "InvalidReason") => {
            let (claim, _) = world.claim("OWNERSHIP").await;
            world.claim_step(&claim, KEY_HOLDER, "USER_REQUESTED")
        }
        ("completeClaim", "ClaimCompletionPeriodNotEnded") => {
            let (claim, _) = world.claim_waiting("OWNERSHIP").await;
            world.days(7).await;
            let step = world.claim_step(&claim, KEY_HOLDER, "DEFAULT_OPERATION");
            world.ok("confirmClaim", &step).await;
            world.claim_step(&claim, CALLER, "")
        }
        ("completeClaim", "RequestIdAlreadyUsed") => {
            let (claim, _) = world.claim_confirmed("OWNERSHIP").await;
            let used = world.request_id();
            let draft = world.entry_draft().with("RequestId", &*used);
            let draft = draft.with("Entry/Account/Participant", CALLER);
            world.ok("createEntry", &draft).await;
            world.claim_step(&claim, CALLER, "").with("RequestId", used)
        }
        ("createInfractionReport", "InfractionReportInvalid") => {
            valid(accepted(world, id).await).with("InfractionReport/SituationType", "WHIM")
        }
        ("updateInfractionReport", "InfractionReportInvalid") => {
            valid(accepted(world, id).await).with("SituationType", "WHIM")
        }
        ("closeInfractionReport", "InfractionReportInvalid") => {
            valid(accepted(world, id).await).with("FraudType", "")
        }
        ("createInfractionReport", "InfractionReportTransactionNotFound") => {
            is_strict = true;
            strict.report_draft(&strict.transaction_id())
        }
        ("createInfractionReport", "InfractionReportTransactionNotSettled") => {
            let transaction = world.payment(json!({"settled": false})).await;
            world.report_draft(&transaction)
        }
        ("createInfractionReport", "InfractionReportAlreadyBeingProcessedForTransaction") => {
            let (_, transaction) = world.report().await;
            world.report_draft(&transaction)
        }
        ("createInfractionReport", "InfractionReportAlreadyProcessedForTransaction") => {
            let (report, transaction) = world.report().await;
            world.close(&report, "DISAGREED").await;
            world.report_draft(&transaction)
        }
        ("createInfractionReport", "InfractionReportPeriodExpired") => {
            let transaction = world.payment(json!({})).await;
            world.days(81).await;
            world.report_draft(&transaction)
        }
        ("cancelInfractionReport", "InfractionReportOperationInvalid") => {
            world.report_step(&first_report(world).await, CALLER)
        }
        ("updateInfractionReport", "InfractionReportOperationInvalid") => {
            world.report_step(&world.report_cancelled().await, CALLER)
        }
        ("acknowledgeInfractionReport", "InfractionReportOperationInvalid") => {
            world.report_step(&world.report_cancelled().await, KEY_HOLDER)
        }
        ("closeInfractionReport", "InfractionReportOperationInvalid") => {
            world.close_step(&world.report_cancelled().await, "AGREED")
        }
        ("createFraudMarker", "FraudMarkerInvalid") => world
            .marker_draft()
            .with("FraudMarker/FraudType", "UNKNOWN"),
        ("createFraudMarker", "RequestIdAlreadyUsed") => {
            let draft = world.marker_draft();
            world.ok(id, &draft).await;
            draft.with("FraudMarker/TaxIdNumber", OTHER)
        }
        ("createRefund", "RefundInvalid") => {
            valid(accepted(world, id).await).with("Refund/RefundDetails", "")
        }
        ("closeRefund", "RefundInvalid") => {
            valid(accepted(world, id).await).with("RefundTransactionId", "")
        }
        ("createRefund", "RefundTransactionNotFound") => {
            is_strict = true;
            strict.refund_draft(&strict.transaction_id())
        }
        ("createRefund", "RefundTransactionNotSettled") => {
            let transaction = world.payment(json!({"settled": false})).await;
            world.refund_draft(&transaction)
        }
        ("createRefund", "RefundAlreadyBeingProcessedForTransaction") => {
            let (_, transaction) = world.refund().await;
            world.refund_draft(&transaction)
        }
        ("createRefund", "RefundAlreadyProcessedForTransaction") => {
            let (refund, transaction) = world.refund().await;
            let close = world.refund_close_step(&refund);
            world.ok("closeRefund", &close).await;
            world.refund_draft(&transaction)
        }
        ("createRefund", "RefundPeriodExpired") => {
            let (report, transaction) = world.report().await;
            world.close(&report, "AGREED").await;
            world.days(4).await;
            let draft = world.refund_draft(&transaction);
            draft.with("Refund/RefundReason", "FRAUD")
        }
        ("createRefund", "TransactionNotRefundable") => {
            valid(accepted(world, id).await).with("Refund/RefundAmount", "300.01")
        }
        ("createRefund", "RefundInfractionReportNotFound") => {
            valid(accepted(world, id).await).with("Refund/RefundReason", "FRAUD")
        }
        ("cancelRefund", "RefundOperationInvalid") => {
            let (refund, _) = world.refund().await;
            let close = world.refund_close_step(&refund);
            world.ok("closeRefund", &close).await;
            world.refund_step(&refund, CALLER)
        }
        ("closeRefund", "RefundOperationInvalid") => {
            world.refund_close_step(&world.refund_cancelled().await)
        }
        ("closeRefund", "RefundTransactionInvalid") => {
            let (refund, transaction) = world.refund().await;
            let close = world.refund_close_step(&refund);
            close.with("RefundTransactionId", transaction)
        }
        ("closeRefund", "TransactionTypeInvalid") => {
            let (refund, _) = world.refund().await;
            let payment = world.payment(json!({})).await;
            let close = world.refund_close_step(&refund);
            close.with("RefundTransactionId", payment)
        }
        ("createFundsRecovery", "FundsRecoveryInvalid") => {
            valid(accepted(world, id).await).with("FundsRecovery/SituationType", "WHIM")
        }
        ("updateFundsRecovery", "FundsRecoveryInvalid") => {
            valid(accepted(world, id).await).with("SituationType", "WHIM")
        }
        ("createFundsRecovery", "FundsRecoveryForTransactionAlreadyExists") => {
            let draft = valid(accepted(world, id).await);
            let made = world.ok(id, &draft).await;
            // Not even after a cancellation.
            let recovery = made.at("FundsRecovery/Id").unwrap();
            let cancel = world.recovery_step(recovery);
            world.ok("cancelFundsRecovery", &cancel).await;
            draft
        }
        ("createFundsRecovery", "FundsRecoveryTransactionNotEligible") => {
            let draft = valid(accepted(world, id).await);
            world.days(81).await;
            draft
        }
        ("createFundsRecovery", "FundsRecoveryTransactionNotIndexed") => {
            is_strict = true;
            strict.recovery_draft(&strict.transaction_id())
        }
        ("createFundsRecovery", "FundsRecoveryTransactionNotSettled") => {
            let transaction = world.payment(json!({"settled": false})).await;
            world.recovery_draft(&transaction)
        }
        (
            "createFundsRecovery" | "createTrackingGraph",
            "FundsRecoveryTrackingGraphParameterInvalid",
        ) => valid(accepted(world, id).await).with("TrackingGraphParameters/MaxHops", "9"),
        (
            "updateFundsRecovery"
            | "refundFundsRecovery"
            | "cancelFundsRecovery"
            | "createTrackingGraph",
            "FundsRecoveryOperationInvalid",
        ) => world.recovery_step(&world.recovery_cancelled().await),
        ("blockFundsRecovery", "FundsRecoveryOperationInvalid") => {
            // Before the money was followed.
            let recovery = world.recovery_created().await;
            let step = world.recovery_step(&recovery);
            step.with("PrioritizationStrategy", "STANDARD_ALGORITHM")
        }
        ("blockFundsRecovery", "FundsRecoveryPrioritizationInvalid") => {
            let draft = valid(accepted(world, id).await);
            draft.with("Transactions/TransactionId", world.transaction_id())
        }
        ("listFundsRecoveryRefunds", "BadRequest") => Draft::at(world.recovery().await),
        ("listFundsRecoveryInfractionReports", "BadRequest") => Draft::at("1"),
        ("getEntry", "BadRequest") => Draft::at("none"),
        (_, "BadRequest") if world.api.operation(id)["method"] == "GET" => {
            let draft = valid(accepted(world, id).await);
            let query = format!(
                "{}&Limit=0&Cursor=x&IncludeIndirectParticipants=x",
                draft.query
            );
            draft.query(query.replace("Limit=200", "").replace("Limit=5", ""))
        }
        ("updateEntry", "BadRequest") => {
            // The path names another key.
            let mut draft = valid(accepted(world, id).await);
            draft.id = world.phone();
            draft
        }
        ("createSyncVerification", "BadRequest") => {
            let draft = valid(accepted(world, id).await);
            draft.with("SyncVerification/Participant", "1")
        }
        (_, "BadRequest") => valid(accepted(world, id).await).with("Participant", "1"),
        ("getCidSetFile", "NotFound") => Draft::at("999999"),
        ("getEntryByCid", "NotFound") => Draft::at("0".repeat(64)),
        ("getEntry", "NotFound") => Draft::at("ninguem@example.com"),
        ("updateEntry", "NotFound") => {
            let key = world.phone();
            Draft::at(&*key)
                .with("Key", key)
                .with("Account/Participant", KEY_HOLDER)
        }
        ("deleteEntry", "NotFound") => {
            let key = world.phone();
            Draft::at(&*key).with("Key", key)
        }
        (_, "NotFound") => {
            let mut draft = match world.api.operation(id)["method"].as_str() {
                Some("GET") => Draft::default(),
                _ => valid(accepted(world, id).await),
            };
            for (path, value) in &mut draft.values {
                if matches!(
                    *path,
                    "ClaimId"
                        | "InfractionReportId"
                        | "RefundId"
                        | "FraudMarkerId"
                        | "FundsRecoveryId"
                ) {
                    NOBODY.clone_into(value);
                }
            }
            NOBODY.clone_into(&mut draft.id);
            draft
        }
        _ => return None,
    };
    Some((draft, is_strict))
}

fn kind(error: &str) -> &'static str {
    if error.contains("Fraud") {
        "FRAUD"
    } else {
        "BLOCKED"
    }
}

/// A request that names a participant and is about nothing in particular.
pub(super) fn blank(world: &World<'_>, id: &str) -> Draft {
    let operation = world.api.operation(id);
    let parameter = operation["pathParams"][0]["name"].as_str();
    let draft = match parameter {
        Some("Key") => Draft::at(KEY).with("Key", KEY),
        Some("TaxIdNumber") => Draft::at(PERSON),
        Some("Cid") => Draft::at("0".repeat(64)),
        Some("Policy") => Draft::at("ENTRIES_WRITE"),
        Some("Id") => Draft::at("1"),
        _ => Draft::at(NOBODY),
    };
    let mut query = Vec::new();
    for parameter in operation["query"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        let value = match name {
            "Participant" => CALLER,
            "KeyType" => "PHONE",
            "TaxIdNumber" => PERSON,
            "ParticipantRole" => "REQUESTING",
            _ => continue,
        };
        query.push(format!("{name}={value}"));
    }
    let draft = draft.query(query.join("&"));
    match id {
        "updateEntry" => draft.with("Account/Participant", CALLER),
        _ => draft,
    }
}

//! Every operation over HTTP: the buckets that it is counted in, and the cost of each status.

use balde_dict::{Operation, ParticipantFrom};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{CALLER, PERSON, TestServer, account, end_to_end_id};

/// The policies of an operation, and the cost of a 404 in each.
fn policies(operation: Operation) -> Vec<(&'static str, i64)> {
    use Operation as O;
    let one = match operation {
        O::GetEntry => {
            return vec![
                ("ENTRIES_READ_USER_ANTISCAN", 20),
                ("ENTRIES_READ_PARTICIPANT_ANTISCAN", 3),
            ];
        }
        O::GetEntryStatistics => "ENTRIES_STATISTICS_READ",
        O::GetPersonStatistics => "PERSONS_STATISTICS_READ",
        O::CreateEntry | O::DeleteEntry => "ENTRIES_WRITE",
        O::UpdateEntry => "ENTRIES_UPDATE",
        O::CheckKeys => "KEYS_CHECK",
        O::GetClaim => "CLAIMS_READ",
        O::ListClaims => "CLAIMS_LIST_WITHOUT_ROLE",
        O::CreateClaim
        | O::AcknowledgeClaim
        | O::ConfirmClaim
        | O::CancelClaim
        | O::CompleteClaim => "CLAIMS_WRITE",
        O::CreateSyncVerification => "SYNC_VERIFICATIONS_WRITE",
        O::CreateCidSetFile => "CIDS_FILES_WRITE",
        O::GetCidSetFile => "CIDS_FILES_READ",
        O::ListCidSetEvents => "CIDS_EVENTS_LIST",
        O::GetEntryByCid => "CIDS_ENTRIES_READ",
        O::GetInfractionReport => "INFRACTION_REPORTS_READ",
        O::ListInfractionReports => "INFRACTION_REPORTS_LIST_WITHOUT_ROLE",
        O::CreateInfractionReport
        | O::UpdateInfractionReport
        | O::AcknowledgeInfractionReport
        | O::CancelInfractionReport
        | O::CloseInfractionReport => "INFRACTION_REPORTS_WRITE",
        O::GetFraudMarker => "FRAUD_MARKERS_READ",
        O::ListFraudMarkers => "FRAUD_MARKERS_LIST",
        O::CreateFraudMarker | O::CancelFraudMarker => "FRAUD_MARKERS_WRITE",
        O::GetRefund => "REFUNDS_READ",
        O::ListRefunds => "REFUND_LIST_WITHOUT_ROLE",
        O::CreateRefund | O::CancelRefund | O::CloseRefund => "REFUNDS_WRITE",
        O::CreateFundsRecovery
        | O::GetFundsRecovery
        | O::UpdateFundsRecovery
        | O::CreateTrackingGraph
        | O::GetTrackingGraph
        | O::BlockFundsRecovery
        | O::ListFundsRecoveryInfractionReports
        | O::RefundFundsRecovery
        | O::ListFundsRecoveryRefunds
        | O::CancelFundsRecovery
        // Not in this version.
        | O::GetEntryInitiator
        | O::GetOwnerStatistics => return Vec::new(),
        O::ListEventNotifications => "EVENT_LIST",
        O::ListBucketStates => "POLICIES_LIST",
        O::GetBucketState => "POLICIES_READ",
    };
    vec![(one, 1)]
}

/// A minimal request of an operation that is counted.
async fn ask(server: &TestServer, operation: Operation) -> u16 {
    let path = operation
        .path()
        .replace("{Key}", "ana@example.com")
        .replace("{TaxIdNumber}", PERSON)
        .replace("{policy}", "ENTRIES_WRITE");
    // Remaining placeholders are ids.
    let path = match (path.find('{'), path.find('}')) {
        (Some(start), Some(end)) => {
            format!(
                "{}91d65e98-97c0-4b0f-b577-73625da1f9fc{}",
                &path[..start],
                &path[end + 1..]
            )
        }
        _ => path,
    };
    let query = match operation {
        Operation::ListCidSetEvents => "?Participant=12345678&KeyType=CPF",
        Operation::ListFraudMarkers => "?TaxIdNumber=11122233300",
        _ if operation.participant() == ParticipantFrom::Query => "?Participant=12345678",
        _ => "",
    };
    let id = end_to_end_id(0);
    let headers = [
        ("PI-RequestingParticipant", CALLER),
        ("PI-PayerId", PERSON),
        ("PI-EndToEndId", id.as_str()),
    ];
    let body = (operation.method() != "GET").then(|| {
        // The participant, everywhere an operation may read it from.
        let account = |name| account(name, CALLER);
        format!(
            "<R><Participant>{CALLER}</Participant>{}<Entry>{}</Entry><Claim>{}</Claim>\
             <SyncVerification><Participant>{CALLER}</Participant></SyncVerification></R>",
            account("Account"),
            account("Account"),
            account("ClaimerAccount"),
        )
    });
    let method = Method::from_bytes(operation.method().as_bytes()).unwrap();
    let path = format!("/api/v2{path}{query}");
    server
        .send(method, &path, &headers, body)
        .await
        .status()
        .as_u16()
}

async fn levels(server: &TestServer) -> Value {
    let path = format!("/sim/buckets?participant={CALLER}&payer={PERSON}");
    server.sim(Method::GET, &path, None).await.1["buckets"].clone()
}

/// The tokens that each policy's bucket lost.
fn taken(before: &Value, after: &Value) -> Vec<(String, i64)> {
    let pairs = before
        .as_array()
        .unwrap()
        .iter()
        .zip(after.as_array().unwrap());
    pairs
        .map(|(before, after)| {
            let taken = before["level"].as_i64().unwrap() - after["level"].as_i64().unwrap();
            (before["policy"].as_str().unwrap().to_owned(), taken)
        })
        .filter(|(_, taken)| *taken != 0)
        .collect()
}

#[tokio::test]
async fn every_operation_is_counted_by_its_policies_with_the_price_of_its_status() {
    let server = TestServer::new().await;
    let current = Operation::ALL.iter().filter(|one| one.is_in_version_2());
    for operation in current {
        for status in [400, 403, 404, 500, 503] {
            let fault = json!({"operation": operation.as_str(), "status": status});
            assert_eq!(
                server.sim(Method::PUT, "/sim/faults", Some(fault)).await.0,
                200
            );
            let before = levels(&server).await;
            let answered = ask(&server, *operation).await;
            assert_eq!(answered, status, "{}", operation.as_str());
            let mut expected: Vec<(String, i64)> = policies(*operation)
                .into_iter()
                .map(|(policy, miss)| {
                    let is_lookup = *operation == Operation::GetEntry;
                    let cost = match status {
                        404 => miss,
                        500 => 0,
                        _ => i64::from(!is_lookup),
                    };
                    (policy.to_owned(), cost)
                })
                .filter(|(_, cost)| *cost != 0)
                .collect();
            let mut costs = taken(&before, &levels(&server).await);
            expected.sort();
            costs.sort();
            assert_eq!(costs, expected, "{} {status}", operation.as_str());
        }
        let path = format!("/sim/faults?operation={}", operation.as_str());
        assert_eq!(server.sim(Method::DELETE, &path, None).await.0, 200);
        // An empty bucket is a 429, which changes no bucket.
        let Some((policy, _)) = policies(*operation).first().copied() else {
            continue;
        };
        let payer = policy.contains("USER").then_some(PERSON);
        server.set_level(policy, CALLER, payer, 0).await;
        let before = levels(&server).await;
        assert_eq!(
            ask(&server, *operation).await,
            429,
            "{}",
            operation.as_str()
        );
        assert_eq!(
            taken(&before, &levels(&server).await),
            [],
            "{}",
            operation.as_str()
        );
        server.set_level(policy, CALLER, payer, 20).await;
    }
}

//! What a profile's settings change: the version of the API, time zones, and who is credited.

use std::time::Duration;

use balde_dict::profiles;
use balde_simulator::Simulator;
use reqwest::Method;
use serde_json::json;

use crate::test_server::{
    CALLER, KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer, end_to_end_id, error_type,
    text_of,
};

async fn server_with(profile: &str, settings: &[(&str, &str)]) -> TestServer {
    let profile = profiles::named_with(profile, settings).unwrap().unwrap();
    TestServer::with(|builder| builder.profile(profile)).await
}

#[tokio::test]
async fn version_1_has_its_own_errors_operations_and_fields() {
    let server = server_with("dict-1.8.0", &[]).await;
    let headers = [("PI-RequestingParticipant", CALLER)];
    let get = async |path: &str| {
        let response = server.send(Method::GET, path, &headers, None).await;
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    let (status, problem) = get("/api/v1/claims/91d65e98-97c0-4b0f-b577-73625da1f9fc").await;
    assert_eq!(status, 404);
    let expected = "https://dict.pi.rsfn.net.br/api/v1/error/NotFound";
    assert_eq!(text_of(&problem, "type"), expected);
    for path in [
        "/api/v1/funds-recoveries/91d65e98-97c0-4b0f-b577-73625da1f9fc",
        "/api/v1/fraud-markers/?TaxIdNumber=11122233300",
        "/api/v1/event-notifications?Participant=12345678",
        "/api/v2/policies/",
    ] {
        assert_eq!(get(path).await.0, 404, "{path}");
    }
    let report = format!(
        "<CreateInfractionReportRequest><Participant>{CALLER}</Participant><InfractionReport>\
         <TransactionId>{}</TransactionId><InfractionType>FRAUD</InfractionType>\
         </InfractionReport></CreateInfractionReportRequest>",
        end_to_end_id(1)
    );
    let path = "/api/v1/infraction-reports/";
    let response = server.send(Method::POST, path, &[], Some(report)).await;
    assert_eq!(response.status(), 201);
    let report = response.text().await.unwrap();
    assert_eq!(text_of(&report, "ReportedBy"), "DEBITED_PARTICIPANT");
    assert_eq!(text_of(&report, "DebitedParticipant"), CALLER);
    assert!(!report.contains("ReporterParticipant"), "{report}");
}

/// Makes three payments and reports each as fraud: one report is agreed with by the participant that
/// holds the key, one is not, one is cancelled.
async fn pay_and_report(server: &TestServer, holder: &str) {
    for number in 1..=3 {
        let id = end_to_end_id(number);
        let lookup = [
            ("PI-RequestingParticipant", CALLER),
            ("PI-PayerId", PERSON),
            ("PI-EndToEndId", id.as_str()),
        ];
        let path = format!("/api/v1/entries/{KEY}");
        let found = server.send(Method::GET, &path, &lookup, None).await;
        assert_eq!(found.status(), 200);
        let order = json!({"end_to_end_id": id, "payer": PERSON, "participant": CALLER});
        let path = "/sim/payment-orders";
        let (status, shown) = server.sim(Method::POST, path, Some(order)).await;
        assert_eq!(status, 200, "{shown}");
        let report = format!(
            "<CreateInfractionReportRequest><Participant>{CALLER}</Participant><InfractionReport>\
             <TransactionId>{}</TransactionId><InfractionType>FRAUD</InfractionType>\
             </InfractionReport></CreateInfractionReportRequest>",
            end_to_end_id(number)
        );
        let path = "/api/v1/infraction-reports/";
        let response = server.send(Method::POST, path, &[], Some(report)).await;
        assert_eq!(response.status(), 201);
        let id = text_of(&response.text().await.unwrap(), "Id").to_owned();
        let act = async |action: &str, name: &str, participant: &str, more: &str| {
            let body = format!(
                "<{name}Request><InfractionReportId>{id}</InfractionReportId>\
                 <Participant>{participant}</Participant>{more}</{name}Request>"
            );
            let path = format!("/api/v1/infraction-reports/{id}/{action}");
            let response = server.send(Method::POST, &path, &[], Some(body)).await;
            assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        };
        if number == 3 {
            act("cancel", "CancelInfractionReport", CALLER, "").await;
            continue;
        }
        let result = if number == 1 { "AGREED" } else { "DISAGREED" };
        act("acknowledge", "AcknowledgeInfractionReport", holder, "").await;
        let more = format!("<AnalysisResult>{result}</AnalysisResult>");
        act("close", "CloseInfractionReport", holder, &more).await;
    }
}

/// Version 1.8.0 has two operations that later versions do not have, and counters with each entry.
#[tokio::test]
async fn version_1_looks_up_for_initiators_and_counts_by_owner() {
    let server = server_with("dict-1.8.0", &[]).await;
    let headers = [("PI-RequestingParticipant", CALLER), ("PI-PayerId", PERSON)];
    let get = async |path: &str| {
        let response = server.send(Method::GET, path, &headers, None).await;
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    // No EndToEndId is needed; the user's bucket counts it, the participant's does not.
    let path = format!("/api/v1/entries/{KEY}/initiator");
    let (status, entry) = get(&path).await;
    assert_eq!(status, 200, "{entry}");
    assert!(entry.contains("<GetEntryResponse>"), "{entry}");
    assert_eq!(text_of(&entry, "Key"), KEY);
    let counters: Vec<(&str, &str)> = entry
        .split("<Counter ")
        .skip(1)
        .map(|counter| {
            let mut words = counter.split('"');
            (words.nth(1).unwrap(), words.nth(1).unwrap())
        })
        .collect();
    let kinds = ["SETTLEMENTS", "REPORTED_FRAUDS", "CONFIRMED_FRAUDS"];
    let subjects = ["KEY", "OWNER", "ACCOUNT"];
    let expected: Vec<_> = kinds
        .iter()
        .flat_map(|kind| subjects.map(|subject| (*kind, subject)))
        .collect();
    assert_eq!(counters, expected);
    let levels = async || {
        let user = server.level(READ_USER, CALLER, Some(PERSON)).await;
        (user, server.level(READ_PARTICIPANT, CALLER, None).await)
    };
    assert_eq!(levels().await, (99, 20_000));
    let missing = "/api/v1/entries/nobody@exemplo.com.br/initiator";
    assert_eq!(get(missing).await.0, 404);
    assert_eq!(levels().await, (79, 20_000), "a miss costs 20");
    let without_payer = [("PI-RequestingParticipant", CALLER)];
    let refused = server.send(Method::GET, &path, &without_payer, None).await;
    assert_eq!(refused.status(), 400);

    // Payments and reports are counted by owner.
    let owner = text_of(&entry, "TaxIdNumber");
    pay_and_report(&server, text_of(&entry, "Participant")).await;
    let (status, statistics) = get(&format!("/api/v1/statistics/owner/{owner}")).await;
    assert_eq!(status, 200, "{statistics}");
    assert_eq!(text_of(&statistics, "TaxIdNumber"), owner);
    for counter in [
        r#"<Counter type="SETTLEMENTS" d3="3" d30="3" m6="0"/>"#,
        r#"<Counter type="REPORTED_FRAUDS" d3="2" d30="2" m6="0"/>"#,
        r#"<Counter type="CONFIRMED_FRAUDS" d3="1" d30="1" m6="0"/>"#,
        r#"<Counter type="REJECTED" d3="1" d30="1" m6="0"/>"#,
    ] {
        assert!(statistics.contains(counter), "{counter}: {statistics}");
    }
    assert_eq!(server.level("STATISTICS_READ", CALLER, None).await, 499);
    let (_, entry) = get(&path).await;
    // Three payments are shown as five.
    for by in subjects {
        let counter = format!(r#"<Counter type="SETTLEMENTS" by="{by}" d3="5" d30="5" m6="0"/>"#);
        assert!(entry.contains(&counter), "{counter}: {entry}");
    }
    // Ten days later they have left the shortest period, 40 days later the next.
    server.advance(Duration::from_secs(10 * 86_400)).await;
    let (_, statistics) = get(&format!("/api/v1/statistics/owner/{owner}")).await;
    assert!(
        statistics.contains(r#""SETTLEMENTS" d3="0" d30="3""#),
        "{statistics}"
    );
    server.advance(Duration::from_secs(40 * 86_400)).await;
    let (_, statistics) = get(&format!("/api/v1/statistics/owner/{owner}")).await;
    let later = r#""SETTLEMENTS" d3="0" d30="0" m6="3""#;
    assert!(statistics.contains(later), "{statistics}");
    assert_eq!(get("/api/v1/statistics/owner/123").await.0, 400);

    // Each version has its own operations only.
    for path in [
        format!("/api/v1/entries/{KEY}/statistics"),
        format!("/api/v1/persons/{owner}/statistics"),
    ] {
        assert_eq!(get(&path).await.0, 404, "{path}");
    }
    let newer = TestServer::new().await;
    for path in [
        format!("/api/v2/entries/{KEY}/initiator"),
        format!("/api/v2/statistics/owner/{owner}"),
    ] {
        let response = newer.send(Method::GET, &path, &headers, None).await;
        assert_eq!(response.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_day_begins_at_midnight_of_the_chosen_time_zone() {
    const POLICY: &str = "CIDS_FILES_WRITE";
    for (zone, midnight_h) in [("UTC", 24), ("America/Sao_Paulo", 3), ("+05:30", 18)] {
        let settings = [("refill", "stepwise"), ("refill_time_zone", zone)];
        // The test begins at midnight in UTC.
        let server = server_with("dict-2.12.1", &settings).await;
        server.set_level(POLICY, CALLER, None, 0).await;
        let extra = if zone == "+05:30" { 1_800 } else { 0 };
        let until = Duration::from_secs(midnight_h * 3_600 + extra);
        server
            .advance(until.saturating_sub(Duration::from_millis(1)))
            .await;
        assert_eq!(server.level(POLICY, CALLER, None).await, 0, "{zone}");
        server.advance(Duration::from_millis(1)).await;
        assert_eq!(server.level(POLICY, CALLER, None).await, 40, "{zone}");
        server.advance(Duration::from_secs(86_400)).await;
        assert_eq!(server.level(POLICY, CALLER, None).await, 80, "{zone}");
    }
    for zone in ["Mars", "-3", "+99:00", "03:00"] {
        let settings = [("refill_time_zone", zone)];
        let profile = profiles::named_with("dict-2.12.1", &settings).unwrap();
        let built = Simulator::builder().profile(profile.unwrap()).build();
        let error = built.unwrap_err().to_string();
        assert!(error.contains("refill_time_zone"), "{error}");
    }
    let settings = [("refill_time_zone", "-03:00")];
    let profile = profiles::named_with("dict-2.12.1", &settings).unwrap();
    let builder = Simulator::builder().profile(profile.unwrap());
    let built = builder.redis("127.0.0.1:1", "x").build();
    assert!(built.unwrap_err().to_string().contains("Redis"));
}

#[tokio::test]
async fn an_order_credits_the_payers_participant_and_the_initiator() {
    const INITIATOR: &str = "44444444";
    let server = TestServer::new().await;
    let order = |id: &str| json!({"end_to_end_id": id, "payer": PERSON, "participant": CALLER, "initiator": INITIATOR});
    let levels = async || {
        (
            server.level(READ_USER, CALLER, Some(PERSON)).await,
            server.level(READ_PARTICIPANT, CALLER, None).await,
            server.level(READ_USER, INITIATOR, Some(PERSON)).await,
            server.level(READ_PARTICIPANT, INITIATOR, None).await,
        )
    };
    // Both looked the key up.
    let id = end_to_end_id(1);
    for participant in [CALLER, INITIATOR] {
        let found = server.get_entry_as(participant, KEY, PERSON, &id).await;
        assert_eq!(found.status(), 200);
    }
    assert_eq!(levels().await, (99, 49_999, 99, 49_999));
    let path = "/sim/payment-orders";
    let (_, shown) = server.sim(Method::POST, path, Some(order(&id))).await;
    assert_eq!(shown["credited"], true, "{shown}");
    assert_eq!(shown["buckets"].as_array().unwrap().len(), 4, "{shown}");
    assert_eq!(levels().await, (100, 50_000, 100, 50_000));
    let (_, again) = server.sim(Method::POST, path, Some(order(&id))).await;
    assert_eq!(again["credited"], false, "{again}");
    // Only the initiator looked it up.
    let id = end_to_end_id(2);
    let found = server.get_entry_as(INITIATOR, KEY, PERSON, &id).await;
    assert_eq!(found.status(), 200);
    let (_, shown) = server.sim(Method::POST, path, Some(order(&id))).await;
    assert_eq!(shown["buckets"].as_array().unwrap().len(), 2, "{shown}");
    assert_eq!(levels().await, (100, 50_000, 100, 50_000));
}

#[tokio::test]
async fn funds_recoveries_are_counted_if_a_policy_is_chosen() {
    for (choice, read, write) in [
        ("none", None, None),
        (
            "infraction-reports",
            Some("INFRACTION_REPORTS_READ"),
            Some("INFRACTION_REPORTS_WRITE"),
        ),
        ("refunds", Some("REFUNDS_READ"), Some("REFUNDS_WRITE")),
    ] {
        let settings = [("funds_recovery_policy", choice)];
        let server = server_with("dict-2.12.1", &settings).await;
        let before = async |policy: Option<&str>| match policy {
            Some(policy) => server.level(policy, CALLER, None).await,
            None => 0,
        };
        let (reads, writes) = (before(read).await, before(write).await);
        let path = "/funds-recoveries/91d65e98-97c0-4b0f-b577-73625da1f9fc";
        assert_eq!(server.get(path, CALLER).await.0, 404);
        let body = format!(
            "<CancelFundsRecoveryRequest><Participant>{CALLER}</Participant><FundsRecoveryId>\
             91d65e98-97c0-4b0f-b577-73625da1f9fc</FundsRecoveryId></CancelFundsRecoveryRequest>"
        );
        let (status, answer) = server.post(&format!("{path}/cancel"), body).await;
        assert_eq!((status, error_type(&answer)), (404, "NotFound"));
        let counted = i64::from(read.is_some());
        assert_eq!(reads - before(read).await, counted, "{choice}");
        assert_eq!(writes - before(write).await, counted, "{choice}");
    }
}

#[tokio::test]
async fn the_case_of_a_participant_and_of_a_cnpj_does_not_matter() {
    let server = TestServer::new().await;
    let body = crate::test_server::create_entry("CNPJ", "12abc34501de35", "ab345678", PERSON, 9)
        .replace("NATURAL_PERSON", "LEGAL_PERSON")
        .replace(PERSON, "11222333000150");
    let (status, made) = server.post("/entries/", body).await;
    assert_eq!(
        (status, text_of(&made, "Key")),
        (201, "12abc34501de35"),
        "{made}"
    );
    assert_eq!(text_of(&made, "Participant"), "AB345678");
    assert_eq!(
        server.level("ENTRIES_WRITE", "AB345678", None).await,
        35_999
    );
    for key in ["12abc34501de35", "12ABC34501DE35"] {
        let found = server.get_entry(key, PERSON, "any text").await;
        assert_eq!(found.status(), 200, "{key}");
        assert_eq!(found.headers()["cache-control"], "max-age=180");
    }
    let found = server.get_entry(KEY, PERSON, "any text").await;
    assert_eq!(found.headers()["cache-control"], "no-store");
    let own = server
        .get_entry_as("AB345678", "12ABC34501DE35", PERSON, "x")
        .await;
    assert_eq!(own.status(), 400, "its own key");
}

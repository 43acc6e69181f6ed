//! The life cycles of infraction reports, refunds and fraud markers.

use balde_dict::profiles;
use reqwest::Method;

use crate::test_server::{
    CALLER, KEY, KEY_HOLDER, PERSON, TestServer, end_to_end_id, error_type, text_of,
};

const STRANGER: &str = "11111111";

#[tokio::test]
async fn a_report_is_opened_updated_acknowledged_and_closed_and_then_refunded() {
    let settings = [("deprecated_operations", "served")];
    let profile = profiles::named_with("dict-2.12.1", &settings).unwrap();
    let server = TestServer::with(|builder| builder.profile(profile.unwrap())).await;
    // A payment order of the caller to the holder's key announces the transaction.
    let transaction = end_to_end_id(7);
    assert_eq!(
        server.get_entry(KEY, PERSON, &transaction).await.status(),
        200
    );
    assert!(server.send_order(CALLER, PERSON, &transaction).await);
    let report = |participant: &str| {
        format!(
            "<CreateInfractionReportRequest><Participant>{participant}</Participant><InfractionReport>\
             <TransactionId>{transaction}</TransactionId><Reason>REFUND_REQUEST</Reason>\
             <SituationType>SCAM</SituationType></InfractionReport></CreateInfractionReportRequest>"
        )
    };
    let (status, stranger) = server.post("/infraction-reports/", report(STRANGER)).await;
    assert_eq!((status, error_type(&stranger)), (400, "ParticipantInvalid"));
    let (status, opened) = server.post("/infraction-reports/", report(CALLER)).await;
    assert_eq!(
        (status, text_of(&opened, "Status")),
        (201, "OPEN"),
        "{opened}"
    );
    assert_eq!(text_of(&opened, "ReporterParticipant"), CALLER);
    assert_eq!(text_of(&opened, "CounterpartyParticipant"), KEY_HOLDER);
    let id = text_of(&opened, "Id").to_owned();
    let again = server.post("/infraction-reports/", report(CALLER)).await;
    assert_eq!(
        error_type(&again.1),
        "InfractionReportAlreadyBeingProcessedForTransaction"
    );

    let step = |what: &str, participant: &str, more: &str| {
        format!(
            "<{what}InfractionReportRequest><InfractionReportId>{id}</InfractionReportId>\
             <Participant>{participant}</Participant>{more}</{what}InfractionReportRequest>"
        )
    };
    let base = format!("/infraction-reports/{id}");
    let details = "<ReportDetails>mais</ReportDetails>";
    let (status, updated) = server
        .write(Method::PUT, &base, step("Update", CALLER, details))
        .await;
    assert_eq!(
        (status, text_of(&updated, "ReportDetails")),
        (200, "mais"),
        "{updated}"
    );
    let close = "<AnalysisResult>AGREED</AnalysisResult><FraudType>MULE_ACCOUNT</FraudType>";
    let path = format!("{base}/close");
    let (status, early) = server.post(&path, step("Close", KEY_HOLDER, close)).await;
    assert_eq!(
        (status, error_type(&early)),
        (400, "InfractionReportOperationInvalid")
    );
    let acknowledge = format!("{base}/acknowledge");
    assert_eq!(
        server
            .post(&acknowledge, step("Acknowledge", CALLER, ""))
            .await
            .0,
        403
    );
    assert_eq!(
        server
            .post(&acknowledge, step("Acknowledge", KEY_HOLDER, ""))
            .await
            .0,
        200
    );
    let (status, closed) = server.post(&path, step("Close", KEY_HOLDER, close)).await;
    assert_eq!(
        (status, text_of(&closed, "Status")),
        (200, "CLOSED"),
        "{closed}"
    );
    assert_eq!(server.get(&base, KEY_HOLDER).await.0, 200);
    assert_eq!(server.get(&base, STRANGER).await.0, 403);
    let marker = text_of(&closed, "FraudMarkerId").to_owned();
    // A report that was agreed to creates a marker of the payee, which belongs to who closed it.
    let (_, markers) = server
        .get("/fraud-markers/?TaxIdNumber=99988877700", KEY_HOLDER)
        .await;
    assert_eq!(text_of(&markers, "Id"), marker);
    assert_eq!(text_of(&markers, "Total"), "1");
    assert_eq!(text_of(&markers, "FraudType"), "MULE_ACCOUNT");
    let (_, statistics) = server
        .get(&format!("/entries/{KEY}/statistics"), CALLER)
        .await;
    assert!(
        statistics.contains("<MuleAccounts d90=\"1\" m12=\"0\" m60=\"0\"/>"),
        "{statistics}"
    );
    assert!(
        statistics.contains("<Settlements d90=\"1\""),
        "{statistics}"
    );

    refund_of(&server, &transaction).await;
}

/// Requests a refund as the payer's participant and closes it as the payee's.
async fn refund_of(server: &TestServer, transaction: &str) {
    let refund = format!(
        "<CreateRefundRequest><Participant>{CALLER}</Participant><Refund>\
         <TransactionId>{transaction}</TransactionId><RefundReason>FRAUD</RefundReason>\
         <RefundAmount>100.00</RefundAmount></Refund></CreateRefundRequest>"
    );
    let (status, asked) = server.post("/refunds/", refund).await;
    assert_eq!(
        (status, text_of(&asked, "ContestedParticipant")),
        (201, KEY_HOLDER),
        "{asked}"
    );
    let refund_id = text_of(&asked, "Id").to_owned();
    let close = |participant: &str| {
        format!(
            "<CloseRefundRequest><RefundId>{refund_id}</RefundId><Participant>{participant}</Participant>\
             <RefundAnalysisResult>TOTALLY_ACCEPTED</RefundAnalysisResult>\
             <RefundTransactionId>D8765432120260101000000000000001</RefundTransactionId>\
             </CloseRefundRequest>"
        )
    };
    let path = format!("/refunds/{refund_id}/close");
    assert_eq!(server.post(&path, close(CALLER)).await.0, 403);
    let (status, closed) = server.post(&path, close(KEY_HOLDER)).await;
    assert_eq!(
        (status, text_of(&closed, "Status")),
        (200, "CLOSED"),
        "{closed}"
    );
    let (status, again) = server.post(&path, close(KEY_HOLDER)).await;
    assert_eq!((status, text_of(&again, "Status")), (200, "CLOSED"));
    let other = close(KEY_HOLDER).replace("TOTALLY", "PARTIALLY");
    let (status, other) = server.post(&path, other).await;
    assert_eq!(
        (status, error_type(&other)),
        (400, "RefundOperationInvalid")
    );
    let query = "/refunds/?Participant=87654321&ParticipantRole=CONTESTED";
    assert!(server.get(query, KEY_HOLDER).await.1.contains(&refund_id));
}

#[tokio::test]
async fn a_marker_is_visible_to_all_and_cancelled_by_its_creator() {
    let server = TestServer::new().await;
    let body = format!(
        "<CreateFraudMarkerRequest><Participant>{CALLER}</Participant><FraudMarker>\
         <TaxIdNumber>{PERSON}</TaxIdNumber><Key>{KEY}</Key>\
         <FraudType>SCAMMER_ACCOUNT</FraudType></FraudMarker>\
         <RequestId>b946d533-7f22-42a5-9a9b-e87cd55c0f4d</RequestId></CreateFraudMarkerRequest>"
    );
    let (status, made) = server.post("/fraud-markers/", body).await;
    assert_eq!(
        (status, text_of(&made, "Status")),
        (201, "REGISTERED"),
        "{made}"
    );
    let id = text_of(&made, "Id").to_owned();
    assert_eq!(
        server
            .get(&format!("/fraud-markers/{id}"), STRANGER)
            .await
            .0,
        200
    );
    let cancel = |participant: &str| {
        format!(
            "<CancelFraudMarkerRequest><FraudMarkerId>{id}</FraudMarkerId>\
             <Participant>{participant}</Participant></CancelFraudMarkerRequest>"
        )
    };
    let path = format!("/fraud-markers/{id}/cancel");
    assert_eq!(server.post(&path, cancel(KEY_HOLDER)).await.0, 403);
    let (status, cancelled) = server.post(&path, cancel(CALLER)).await;
    assert_eq!((status, text_of(&cancelled, "Status")), (200, "CANCELLED"));
    let (status, again) = server.post(&path, cancel(CALLER)).await;
    assert_eq!((status, text_of(&again, "Status")), (200, "CANCELLED"));
    let (_, statistics) = server
        .get(&format!("/persons/{PERSON}/statistics"), CALLER)
        .await;
    assert!(
        statistics.contains("<ScammerAccounts d90=\"0\""),
        "{statistics}"
    );
}

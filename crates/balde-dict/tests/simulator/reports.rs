//! Infraction reports, refunds and fraud markers from their beginning to their end.

use reqwest::Method;

use crate::world::{ASKER, KEEPER, KEY, PERSON, World, end_to_end_id, error_type, text_of};

const STRANGER: &str = "11111111";

#[tokio::test]
async fn a_report_is_opened_updated_acknowledged_and_closed_and_then_money_comes_back() {
    let world = World::new().await;
    // A payment of the asker's to the keeper's key makes the transaction known.
    let transaction = end_to_end_id(7);
    assert_eq!(world.look_up(KEY, PERSON, &transaction).await.status(), 200);
    assert!(world.order(ASKER, PERSON, &transaction).await);
    let report = |participant: &str| {
        format!(
            "<CreateInfractionReportRequest><Participant>{participant}</Participant><InfractionReport>\
             <TransactionId>{transaction}</TransactionId><Reason>REFUND_REQUEST</Reason>\
             <SituationType>SCAM</SituationType></InfractionReport></CreateInfractionReportRequest>"
        )
    };
    let (status, stranger) = world.post("/infraction-reports/", report(STRANGER)).await;
    assert_eq!((status, error_type(&stranger)), (400, "ParticipantInvalid"));
    let (status, opened) = world.post("/infraction-reports/", report(ASKER)).await;
    assert_eq!(
        (status, text_of(&opened, "Status")),
        (201, "OPEN"),
        "{opened}"
    );
    assert_eq!(text_of(&opened, "ReportedBy"), "DEBITED_PARTICIPANT");
    assert_eq!(text_of(&opened, "CreditedParticipant"), KEEPER);
    let id = text_of(&opened, "Id").to_owned();
    let again = world.post("/infraction-reports/", report(ASKER)).await;
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
    let (status, updated) = world
        .write(Method::PUT, &base, step("Update", ASKER, details))
        .await;
    assert_eq!(
        (status, text_of(&updated, "ReportDetails")),
        (200, "mais"),
        "{updated}"
    );
    let close = "<AnalysisResult>AGREED</AnalysisResult><FraudType>MULE_ACCOUNT</FraudType>";
    let path = format!("{base}/close");
    let (status, early) = world.post(&path, step("Close", KEEPER, close)).await;
    assert_eq!(
        (status, error_type(&early)),
        (400, "InfractionReportOperationInvalid")
    );
    let acknowledge = format!("{base}/acknowledge");
    assert_eq!(
        world
            .post(&acknowledge, step("Acknowledge", ASKER, ""))
            .await
            .0,
        403
    );
    assert_eq!(
        world
            .post(&acknowledge, step("Acknowledge", KEEPER, ""))
            .await
            .0,
        200
    );
    let (status, closed) = world.post(&path, step("Close", KEEPER, close)).await;
    assert_eq!(
        (status, text_of(&closed, "Status")),
        (200, "CLOSED"),
        "{closed}"
    );
    assert_eq!(world.get(&base, KEEPER).await.0, 200);
    assert_eq!(world.get(&base, STRANGER).await.0, 403);
    // What was agreed to marks the payee.
    let (_, markers) = world
        .get("/fraud-markers/?TaxIdNumber=99988877700", ASKER)
        .await;
    assert_eq!(text_of(&markers, "FraudType"), "MULE_ACCOUNT");
    let (_, statistics) = world
        .get(&format!("/entries/{KEY}/statistics"), ASKER)
        .await;
    assert!(
        statistics.contains("<MuleAccounts d90=\"1\" m12=\"1\" m60=\"1\"/>"),
        "{statistics}"
    );
    assert!(
        statistics.contains("<Settlements d90=\"1\""),
        "{statistics}"
    );

    refund_of(&world, &transaction).await;
}

/// Asked for by who paid, answered by who was paid, once.
async fn refund_of(world: &World, transaction: &str) {
    let refund = format!(
        "<CreateRefundRequest><Participant>{ASKER}</Participant><Refund>\
         <TransactionId>{transaction}</TransactionId><RefundReason>FRAUD</RefundReason>\
         <RefundAmount>100.00</RefundAmount></Refund></CreateRefundRequest>"
    );
    let (status, asked) = world.post("/refunds/", refund).await;
    assert_eq!(
        (status, text_of(&asked, "ContestedParticipant")),
        (201, KEEPER),
        "{asked}"
    );
    let refund_id = text_of(&asked, "Id").to_owned();
    let close = |participant: &str| {
        format!(
            "<CloseRefundRequest><RefundId>{refund_id}</RefundId><Participant>{participant}</Participant>\
             <RefundAnalysisResult>TOTALLY_ACCEPTED</RefundAnalysisResult></CloseRefundRequest>"
        )
    };
    let path = format!("/refunds/{refund_id}/close");
    assert_eq!(world.post(&path, close(ASKER)).await.0, 403);
    let (status, closed) = world.post(&path, close(KEEPER)).await;
    assert_eq!(
        (status, text_of(&closed, "Status")),
        (200, "CLOSED"),
        "{closed}"
    );
    let (status, again) = world.post(&path, close(KEEPER)).await;
    assert_eq!(
        (status, error_type(&again)),
        (400, "RefundOperationInvalid")
    );
    let query = "/refunds/?Participant=87654321&ParticipantRole=CONTESTED";
    assert!(world.get(query, KEEPER).await.1.contains(&refund_id));
}

#[tokio::test]
async fn a_marker_is_made_seen_by_all_and_called_off_by_its_maker() {
    let world = World::new().await;
    let body = format!(
        "<CreateFraudMarkerRequest><Participant>{ASKER}</Participant><FraudMarker>\
         <TaxIdNumber>{PERSON}</TaxIdNumber><Key>{KEY}</Key>\
         <FraudType>SCAMMER_ACCOUNT</FraudType></FraudMarker></CreateFraudMarkerRequest>"
    );
    let (status, made) = world.post("/fraud-markers/", body).await;
    assert_eq!(
        (status, text_of(&made, "Status")),
        (201, "REGISTERED"),
        "{made}"
    );
    let id = text_of(&made, "Id").to_owned();
    assert_eq!(
        world.get(&format!("/fraud-markers/{id}"), STRANGER).await.0,
        200
    );
    let cancel = |participant: &str| {
        format!(
            "<CancelFraudMarkerRequest><FraudMarkerId>{id}</FraudMarkerId>\
             <Participant>{participant}</Participant></CancelFraudMarkerRequest>"
        )
    };
    let path = format!("/fraud-markers/{id}/cancel");
    assert_eq!(world.post(&path, cancel(KEEPER)).await.0, 403);
    let (status, cancelled) = world.post(&path, cancel(ASKER)).await;
    assert_eq!((status, text_of(&cancelled, "Status")), (200, "CANCELLED"));
    let (status, again) = world.post(&path, cancel(ASKER)).await;
    assert_eq!((status, error_type(&again)), (400, "FraudMarkerInvalid"));
    let (_, statistics) = world
        .get(&format!("/persons/{PERSON}/statistics"), ASKER)
        .await;
    assert!(
        statistics.contains("<ScammerAccounts d90=\"0\""),
        "{statistics}"
    );
}

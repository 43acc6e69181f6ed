//! Entries, claims, reports, refunds and markers from their beginning to their end, and moves that
//! are not lawful.

use reqwest::Method;

use crate::world::{
    ASKER, KEEPER, KEY, PERSON, World, account, create_entry, delete_entry, end_to_end_id,
    error_type, person, text_of,
};

const PHONE: &str = "+5561988880000";
const STRANGER: &str = "11111111";

fn claim(claim_type: &str, key: &str, key_type: &str, participant: &str, tax_id: &str) -> String {
    format!(
        "<CreateClaimRequest><Claim><Type>{claim_type}</Type><Key>{key}</Key>\
         <KeyType>{key_type}</KeyType>{}{}</Claim></CreateClaimRequest>",
        account("ClaimerAccount", participant),
        person("Claimer", tax_id),
    )
}

fn move_claim(what: &str, id: &str, participant: &str) -> String {
    format!(
        "<{what}ClaimRequest><ClaimId>{id}</ClaimId><Participant>{participant}</Participant>\
         <Reason>USER_REQUESTED</Reason><RequestId>b946d533-7f22-42a5-9a9b-e87cd55c0f4d</RequestId>\
         </{what}ClaimRequest>"
    )
}

async fn moved(world: &World, what: &str, id: &str, participant: &str) -> (u16, String) {
    let path = format!("/claims/{id}/{}", what.to_lowercase());
    world.post(&path, move_claim(what, id, participant)).await
}

#[tokio::test]
async fn an_entry_is_created_read_changed_and_deleted() {
    let world = World::new().await;
    let body = create_entry("PHONE", PHONE, KEEPER, "11122233301", 1);
    let (status, created) = world.post("/entries/", body.clone()).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(text_of(&created, "Key"), PHONE);
    assert_eq!(
        text_of(&created, "CreationDate"),
        "2026-01-01T00:00:00.000Z"
    );
    assert!(created.contains("<Signature></Signature>"));
    assert_eq!(text_of(&created, "CorrelationId").len(), 32);
    // Asked twice under one id, it happens once; with another content it is a mistake.
    let (status, again) = world.post("/entries/", body).await;
    assert_eq!((status, text_of(&again, "Key")), (201, PHONE));
    let other = create_entry("PHONE", PHONE, KEEPER, "11122233302", 1);
    assert_eq!(
        error_type(&world.post("/entries/", other).await.1),
        "RequestIdAlreadyUsed"
    );
    // Taken keys, by whoever has them.
    for (participant, tax_id, expected) in [
        (KEEPER, "11122233301", "EntryAlreadyExists"),
        (KEEPER, "11122233302", "EntryKeyOwnedByDifferentPerson"),
        (
            ASKER,
            "11122233301",
            "EntryKeyInCustodyOfDifferentParticipant",
        ),
    ] {
        let body = create_entry("PHONE", PHONE, participant, tax_id, 2);
        let (status, refused) = world.post("/entries/", body).await;
        assert_eq!((status, error_type(&refused)), (400, expected));
    }
    let path = "/entries/%2B5561988880000";
    let update = |participant: &str| {
        format!(
            "<UpdateEntryRequest><Key>{PHONE}</Key>{}<Owner><Name>João da Silva</Name></Owner>\
             <Reason>USER_REQUESTED</Reason></UpdateEntryRequest>",
            account("Account", participant).replace("0007654321", "42"),
        )
    };
    assert_eq!(
        world.write(Method::PUT, path, update(STRANGER)).await.0,
        403
    );
    let (status, updated) = world.write(Method::PUT, path, update(KEEPER)).await;
    assert_eq!(
        (status, text_of(&updated, "AccountNumber")),
        (200, "42"),
        "{updated}"
    );
    assert_eq!(text_of(&updated, "Name"), "João da Silva");

    let gone = format!("{path}/delete");
    assert_eq!(
        world.post(&gone, delete_entry(PHONE, STRANGER)).await.0,
        403
    );
    let (status, mismatch) = world
        .post(&gone, delete_entry("+5561988880001", KEEPER))
        .await;
    assert_eq!((status, error_type(&mismatch)), (400, "BadRequest"));
    let (status, deleted) = world.post(&gone, delete_entry(PHONE, KEEPER)).await;
    assert_eq!((status, text_of(&deleted, "Key")), (200, PHONE));
    assert_eq!(world.post(&gone, delete_entry(PHONE, KEEPER)).await.0, 404);
    assert_eq!(world.look(PHONE, PERSON).await, 404);
}

#[tokio::test]
async fn an_account_has_five_keys_of_a_person_and_evp_keys_are_made_by_dict() {
    let world = World::new().await;
    for number in 1..=5 {
        let body =
            create_entry("EVP", "", KEEPER, "11122233301", number).replace("<Key></Key>", "");
        let (status, created) = world.post("/entries/", body).await;
        assert_eq!(status, 201, "{created}");
        assert_eq!(text_of(&created, "Key").len(), 36);
    }
    let body = create_entry("PHONE", PHONE, KEEPER, "11122233301", 6);
    let (status, refused) = world.post("/entries/", body).await;
    assert_eq!((status, error_type(&refused)), (400, "EntryLimitExceeded"));
}

#[tokio::test]
async fn a_claim_goes_from_open_to_completed_and_takes_the_key_along() {
    let world = World::new().await;
    let body = claim("OWNERSHIP", KEY, "EMAIL", ASKER, "11122233305");
    let (status, opened) = world.post("/claims/", body.clone()).await;
    assert_eq!(
        (status, text_of(&opened, "Status")),
        (201, "OPEN"),
        "{opened}"
    );
    assert_eq!(text_of(&opened, "DonorParticipant"), KEEPER);
    let id = text_of(&opened, "Id").to_owned();

    let (status, twice) = world.post("/claims/", body).await;
    assert_eq!(
        (status, error_type(&twice)),
        (400, "ClaimAlreadyExistsForKey")
    );
    let path = format!("/entries/{KEY}/delete");
    let (status, locked) = world.post(&path, delete_entry(KEY, KEEPER)).await;
    assert_eq!((status, error_type(&locked)), (400, "EntryLockedByClaim"));

    assert_eq!(world.get(&format!("/claims/{id}"), STRANGER).await.0, 403);
    assert_eq!(
        moved(&world, "Acknowledge", &id, ASKER).await.0,
        403,
        "the donor does"
    );
    let (status, early) = moved(&world, "Confirm", &id, KEEPER).await;
    assert_eq!((status, error_type(&early)), (400, "ClaimOperationInvalid"));
    let (status, body) = moved(&world, "Acknowledge", &id, KEEPER).await;
    assert_eq!(
        (status, text_of(&body, "Status")),
        (200, "WAITING_RESOLUTION"),
        "{body}"
    );
    assert_eq!(moved(&world, "Confirm", &id, KEEPER).await.0, 200);
    assert_eq!(
        world.look(KEY, PERSON).await,
        404,
        "between confirming and completing"
    );
    assert_eq!(
        moved(&world, "Complete", &id, KEEPER).await.0,
        403,
        "the claimer does"
    );
    let (status, body) = moved(&world, "Complete", &id, ASKER).await;
    assert_eq!(
        (status, text_of(&body, "Status")),
        (200, "COMPLETED"),
        "{body}"
    );
    let (status, late) = moved(&world, "Cancel", &id, ASKER).await;
    assert_eq!((status, error_type(&late)), (400, "ClaimOperationInvalid"));

    let found = world
        .look_up_by(KEEPER, KEY, PERSON, &end_to_end_id(1))
        .await;
    let entry = found.text().await.unwrap();
    assert_eq!(text_of(&entry, "Participant"), ASKER);
    assert_eq!(text_of(&entry, "TaxIdNumber"), "11122233305");
    let (_, events) = world
        .get("/event-notifications?Participant=87654321", KEEPER)
        .await;
    for event in [
        "CLAIM_OPENED",
        "CLAIM_ACKNOWLEDGED",
        "CLAIM_CONFIRMED",
        "CLAIM_COMPLETED",
    ] {
        assert!(events.contains(event), "{event}: {events}");
    }
}

#[tokio::test]
async fn a_claim_that_is_called_off_unlocks_the_key_and_claims_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let (_, opened) = world
        .post(
            "/claims/",
            claim("OWNERSHIP", KEY, "EMAIL", ASKER, "11122233305"),
        )
        .await;
    let id = text_of(&opened, "Id").to_owned();
    let (status, body) = moved(&world, "Cancel", &id, KEEPER).await;
    assert_eq!(
        (status, text_of(&body, "CancelledBy")),
        (200, "DONOR"),
        "{body}"
    );
    let path = format!("/entries/{KEY}/delete");
    for (body, status, expected) in [
        (
            claim("PORTABILITY", KEY, "EMAIL", ASKER, "11122233305"),
            400,
            "ClaimTypeInconsistent",
        ),
        (
            claim("OWNERSHIP", KEY, "EMAIL", ASKER, "99988877700"),
            400,
            "ClaimTypeInconsistent",
        ),
        (
            claim("PORTABILITY", KEY, "EMAIL", KEEPER, "99988877700"),
            400,
            "ClaimResultingEntryAlreadyExists",
        ),
        (
            claim("OWNERSHIP", "no@example.com", "EMAIL", ASKER, "11122233305"),
            404,
            "ClaimKeyNotFound",
        ),
        (
            claim("OWNERSHIP", "11122233305", "CPF", ASKER, "11122233305"),
            400,
            "ClaimInvalid",
        ),
        (
            claim("OWNERSHIP", KEY, "PHONE", ASKER, "11122233305"),
            400,
            "ClaimInvalid",
        ),
    ] {
        let (answered, problem) = world.post("/claims/", body).await;
        assert_eq!((answered, error_type(&problem)), (status, expected));
    }
    assert_eq!(world.post(&path, delete_entry(KEY, KEEPER)).await.0, 200);
}

#[tokio::test]
async fn lists_show_what_the_filters_say_and_how_much_there_is() {
    let world = World::new().await;
    for number in 0..3 {
        let phone = format!("+556198888{number:04}");
        let body = create_entry("PHONE", &phone, KEEPER, "11122233301", number + 1)
            .replace("0007654321", &format!("{}", number + 1));
        assert_eq!(world.post("/entries/", body).await.0, 201);
        let body = claim("OWNERSHIP", &phone, "PHONE", ASKER, "11122233305");
        assert_eq!(world.post("/claims/", body).await.0, 201);
        world.advance(std::time::Duration::from_secs(1)).await;
    }
    let count = |body: &str| body.matches("<Claim>").count();
    for (query, expected, more) in [
        ("Participant=12345678", 3, "false"),
        ("Participant=12345678&Limit=2", 2, "true"),
        ("Participant=12345678&Limit=3", 3, "false"),
        ("Participant=12345678&IsClaimer=true", 3, "false"),
        ("Participant=12345678&IsDonor=true", 0, "false"),
        ("Participant=12345678&IsClaimer=false", 0, "false"),
        ("Participant=87654321&IsDonor=true", 3, "false"),
        (
            "Participant=87654321&Status=OPEN&Type=OWNERSHIP",
            3,
            "false",
        ),
        ("Participant=87654321&Status=COMPLETED", 0, "false"),
        (
            "Participant=87654321&ModifiedAfter=2026-01-01T00:00:00.500Z",
            2,
            "false",
        ),
        (
            "Participant=87654321&ModifiedBefore=2026-01-01T00:00:01Z",
            1,
            "false",
        ),
        ("Participant=11111111", 0, "false"),
    ] {
        let (status, body) = world.get(&format!("/claims/?{query}"), ASKER).await;
        assert_eq!((status, count(&body)), (200, expected), "{query}: {body}");
        assert_eq!(text_of(&body, "HasMoreElements"), more, "{query}");
    }
    for query in [
        "Limit=0",
        "Limit=201",
        "Limit=x",
        "Status=NEW",
        "IsDonor=yes",
        "ModifiedAfter=now",
    ] {
        let (status, body) = world
            .get(&format!("/claims/?Participant=12345678&{query}"), ASKER)
            .await;
        assert_eq!((status, error_type(&body)), (400, "BadRequest"), "{query}");
    }
}

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

#[tokio::test]
async fn content_ids_let_a_participant_compare_its_books() {
    let world = World::new().await;
    let verify = |verifier: &str| {
        format!(
            "<CreateSyncVerificationRequest><SyncVerification><Participant>{ASKER}</Participant>\
             <KeyType>PHONE</KeyType><ParticipantSyncVerifier>{verifier}</ParticipantSyncVerifier>\
             </SyncVerification></CreateSyncVerificationRequest>"
        )
    };
    let (status, body) = world
        .post("/sync-verifications/", verify(&"0".repeat(64)))
        .await;
    assert_eq!(
        (status, text_of(&body, "Result")),
        (201, "OK"),
        "nothing verifies to zeros"
    );
    assert_eq!(
        world
            .post(
                "/entries/",
                create_entry("PHONE", PHONE, ASKER, "11122233301", 1)
            )
            .await
            .0,
        201
    );
    let query = format!("/cids/events?Participant={ASKER}&KeyType=PHONE");
    let (_, events) = world.get(&query, ASKER).await;
    let cid = text_of(&events, "Cid").to_owned();
    assert_eq!(text_of(&events, "Type"), "ADDED");
    // One content id verifies to itself.
    assert_eq!(text_of(&events, "SyncVerifierEnd"), cid);
    let (_, body) = world.post("/sync-verifications/", verify(&cid)).await;
    assert_eq!(text_of(&body, "Result"), "OK");
    let (_, body) = world
        .post("/sync-verifications/", verify(&"f".repeat(64)))
        .await;
    assert_eq!(text_of(&body, "Result"), "NOK");
    let (status, entry) = world.get(&format!("/cids/entries/{cid}"), ASKER).await;
    assert_eq!((status, text_of(&entry, "Key")), (200, PHONE));
    assert_eq!(
        world.get(&format!("/cids/entries/{cid}"), KEEPER).await.0,
        403
    );
    assert_eq!(
        world
            .get(&format!("/cids/entries/{}", "0".repeat(64)), ASKER)
            .await
            .0,
        404
    );

    let body = format!(
        "<CreateCidSetFileRequest><Participant>{ASKER}</Participant><KeyType>PHONE</KeyType>\
         </CreateCidSetFileRequest>"
    );
    let (status, file) = world.post("/cids/files/", body).await;
    assert_eq!(
        (status, text_of(&file, "Status")),
        (201, "AVAILABLE"),
        "{file}"
    );
    let id = text_of(&file, "Id").to_owned();
    assert_eq!(world.get(&format!("/cids/files/{id}"), ASKER).await.0, 200);
    assert_eq!(world.get(&format!("/cids/files/{id}"), KEEPER).await.0, 403);
    let content = crate::world::client()
        .get(text_of(&file, "Url"))
        .send()
        .await
        .unwrap();
    assert_eq!(content.text().await.unwrap(), format!("{cid}\n"));

    let path = "/entries/%2B5561988880000/delete";
    assert_eq!(world.post(path, delete_entry(PHONE, ASKER)).await.0, 200);
    let (_, events) = world.get(&query, ASKER).await;
    assert!(events.contains("REMOVED"), "{events}");
    assert_eq!(
        text_of(&events, "SyncVerifierStart"),
        cid,
        "after the first event"
    );
    assert_eq!(
        text_of(&events, "SyncVerifierEnd"),
        "0".repeat(64),
        "after the last"
    );
}

#[tokio::test]
async fn checking_keys_tells_which_are_there() {
    let world = World::new().await;
    let body = format!(
        "<CheckKeysRequest><Keys><Key>{KEY}</Key><Key>{PHONE}</Key></Keys></CheckKeysRequest>"
    );
    let headers = [("PI-RequestingParticipant", ASKER)];
    let response = world
        .send(Method::POST, "/api-np/v2/keys/check", &headers, Some(body))
        .await;
    let body = response.text().await.unwrap();
    assert!(
        body.contains(&format!("<Key hasEntry=\"true\">{KEY}</Key>")),
        "{body}"
    );
    assert!(
        body.contains(&format!("<Key hasEntry=\"false\">{PHONE}</Key>")),
        "{body}"
    );
    assert_eq!(world.level("KEYS_CHECK", ASKER, None).await, 69);
    for keys in [0, 201] {
        let keys = format!("<Key>{KEY}</Key>").repeat(keys);
        let body = format!("<CheckKeysRequest><Keys>{keys}</Keys></CheckKeysRequest>");
        let response = world
            .send(Method::POST, "/api-np/v2/keys/check", &headers, Some(body))
            .await;
        assert_eq!(response.status(), 400);
    }
    assert_eq!(world.level("KEYS_CHECK", ASKER, None).await, 67);
}

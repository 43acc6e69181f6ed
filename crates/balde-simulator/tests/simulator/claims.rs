//! The life cycle of claims, actions that are not allowed, and lists of claims.

use crate::test_server::{
    CALLER, KEY, KEY_HOLDER, PERSON, TestServer, account, create_entry, delete_entry,
    end_to_end_id, error_type, person, text_of,
};

const STRANGER: &str = "11111111";
const PHONE: &str = "+5561988880000";

/// A simulator with an entry of [`PHONE`], besides that of [`KEY`].
async fn server_with_phone() -> TestServer {
    let server = TestServer::new().await;
    let body = create_entry("PHONE", PHONE, KEY_HOLDER, "99988877700", 77);
    assert_eq!(server.post("/entries/", body).await.0, 201);
    server
}

fn claim(claim_type: &str, key: &str, key_type: &str, participant: &str, tax_id: &str) -> String {
    format!(
        "<CreateClaimRequest><Claim><Type>{claim_type}</Type><Key>{key}</Key>\
         <KeyType>{key_type}</KeyType>{}{}</Claim></CreateClaimRequest>",
        account("ClaimerAccount", participant),
        person("Claimer", tax_id),
    )
}

fn claim_action(action: &str, id: &str, participant: &str) -> String {
    format!(
        "<{action}ClaimRequest><ClaimId>{id}</ClaimId><Participant>{participant}</Participant>\
         <Reason>USER_REQUESTED</Reason><RequestId>b946d533-7f22-42a5-9a9b-e87cd55c0f4d</RequestId>\
         </{action}ClaimRequest>"
    )
}

/// What follows the head of a response, which is different each time.
fn body_of(response: &str) -> &str {
    let end = response.find("</CorrelationId>").expect("a head");
    &response[end..]
}

async fn act(server: &TestServer, action: &str, id: &str, participant: &str) -> (u16, String) {
    let path = format!("/claims/{id}/{}", action.to_lowercase());
    server
        .post(&path, claim_action(action, id, participant))
        .await
}

#[tokio::test]
async fn a_completed_claim_transfers_the_key() {
    let server = server_with_phone().await;
    let body = claim("OWNERSHIP", PHONE, "PHONE", CALLER, "11122233305");
    let (status, opened) = server.post("/claims/", body.clone()).await;
    assert_eq!(
        (status, text_of(&opened, "Status")),
        (201, "OPEN"),
        "{opened}"
    );
    assert_eq!(text_of(&opened, "DonorParticipant"), KEY_HOLDER);
    let id = text_of(&opened, "Id").to_owned();

    let (status, twice) = server.post("/claims/", body).await;
    assert_eq!(
        (status, error_type(&twice)),
        (400, "ClaimAlreadyExistsForKey")
    );
    let path = "/entries/%2B5561988880000/delete";
    let (status, locked) = server.post(path, delete_entry(PHONE, KEY_HOLDER)).await;
    assert_eq!((status, error_type(&locked)), (400, "EntryLockedByClaim"));

    assert_eq!(server.get(&format!("/claims/{id}"), STRANGER).await.0, 403);
    assert_eq!(
        act(&server, "Acknowledge", &id, CALLER).await.0,
        403,
        "the donor does"
    );
    let (status, early) = act(&server, "Confirm", &id, KEY_HOLDER).await;
    assert_eq!((status, error_type(&early)), (400, "ClaimOperationInvalid"));
    let (status, body) = act(&server, "Acknowledge", &id, KEY_HOLDER).await;
    assert_eq!(
        (status, text_of(&body, "Status")),
        (200, "WAITING_RESOLUTION"),
        "{body}"
    );
    assert_eq!(act(&server, "Confirm", &id, KEY_HOLDER).await.0, 200);
    assert_eq!(
        server.get_entry_status(PHONE, PERSON).await,
        404,
        "between confirming and completing"
    );
    assert_eq!(
        act(&server, "Complete", &id, KEY_HOLDER).await.0,
        403,
        "the claimer does"
    );
    let (status, body) = act(&server, "Complete", &id, CALLER).await;
    assert_eq!(
        (status, text_of(&body, "Status")),
        (200, "COMPLETED"),
        "{body}"
    );
    let (status, late) = act(&server, "Cancel", &id, CALLER).await;
    assert_eq!((status, error_type(&late)), (400, "ClaimOperationInvalid"));

    let found = server
        .get_entry_as(KEY_HOLDER, PHONE, PERSON, &end_to_end_id(1))
        .await;
    let entry = found.text().await.unwrap();
    assert_eq!(text_of(&entry, "Participant"), CALLER);
    assert_eq!(text_of(&entry, "TaxIdNumber"), "11122233305");
}

#[tokio::test]
async fn a_cancelled_claim_unlocks_the_key_and_invalid_claims_are_rejected() {
    let server = server_with_phone().await;
    let (_, opened) = server
        .post(
            "/claims/",
            claim("OWNERSHIP", PHONE, "PHONE", CALLER, "11122233305"),
        )
        .await;
    let id = text_of(&opened, "Id").to_owned();
    // For ownership, only the claimer may cancel because the user asked for it.
    let (status, refused) = act(&server, "Cancel", &id, KEY_HOLDER).await;
    assert_eq!((status, error_type(&refused)), (400, "InvalidReason"));
    let (status, body) = act(&server, "Cancel", &id, CALLER).await;
    assert_eq!(
        (status, text_of(&body, "CancelledBy")),
        (200, "CLAIMER"),
        "{body}"
    );
    let (status, again) = act(&server, "Cancel", &id, CALLER).await;
    assert_eq!((status, body_of(&again)), (200, body_of(&body)));
    let path = "/entries/%2B5561988880000/delete";
    for (body, status, expected) in [
        (
            claim("PORTABILITY", KEY, "EMAIL", CALLER, "11122233305"),
            400,
            "ClaimTypeInconsistent",
        ),
        (
            claim("OWNERSHIP", PHONE, "PHONE", CALLER, "99988877700"),
            400,
            "ClaimTypeInconsistent",
        ),
        (
            claim("PORTABILITY", KEY, "EMAIL", KEY_HOLDER, "99988877700"),
            400,
            "ClaimResultingEntryAlreadyExists",
        ),
        (
            claim(
                "OWNERSHIP",
                "+5561988889999",
                "PHONE",
                CALLER,
                "11122233305",
            ),
            404,
            "ClaimKeyNotFound",
        ),
        (
            claim("OWNERSHIP", "11122233305", "CPF", CALLER, "11122233305"),
            400,
            "ClaimInvalid",
        ),
        (
            claim("OWNERSHIP", KEY, "EMAIL", CALLER, "11122233305"),
            400,
            "ClaimInvalid",
        ),
    ] {
        let (answered, problem) = server.post("/claims/", body).await;
        assert_eq!((answered, error_type(&problem)), (status, expected));
    }
    assert_eq!(
        server.post(path, delete_entry(PHONE, KEY_HOLDER)).await.0,
        200
    );
}

#[tokio::test]
async fn lists_respect_their_filters_and_limits() {
    let server = TestServer::new().await;
    for number in 0..3 {
        let phone = format!("+556198888{number:04}");
        let body = create_entry("PHONE", &phone, KEY_HOLDER, "11122233301", number + 1)
            .replace("0007654321", &format!("{}", number + 1));
        assert_eq!(server.post("/entries/", body).await.0, 201);
        let body = claim("OWNERSHIP", &phone, "PHONE", CALLER, "11122233305");
        assert_eq!(server.post("/claims/", body).await.0, 201);
        server.advance(std::time::Duration::from_secs(1)).await;
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
            2,
            "false",
        ),
        (
            "Participant=87654321&ModifiedAfter=2026-01-01T00:00:02Z",
            1,
            "false",
        ),
        (
            "Participant=87654321&Status=COMPLETED&Status=OPEN",
            3,
            "false",
        ),
        ("Participant=11111111", 0, "false"),
    ] {
        let (status, body) = server.get(&format!("/claims/?{query}"), CALLER).await;
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
        let (status, body) = server
            .get(&format!("/claims/?Participant=12345678&{query}"), CALLER)
            .await;
        assert_eq!((status, error_type(&body)), (400, "BadRequest"), "{query}");
    }
}

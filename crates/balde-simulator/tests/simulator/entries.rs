//! The life cycle of entries, checkKeys and content ids.

use reqwest::Method;

use crate::test_server::{
    CALLER, KEY, KEY_HOLDER, PERSON, TestServer, account, create_entry, delete_entry, error_type,
    text_of,
};

const PHONE: &str = "+5561988880000";
const STRANGER: &str = "11111111";

#[tokio::test]
async fn an_entry_is_created_read_changed_and_deleted() {
    let server = TestServer::new().await;
    let body = create_entry("PHONE", PHONE, KEY_HOLDER, "11122233301", 1);
    let (status, created) = server.post("/entries/", body.clone()).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(text_of(&created, "Key"), PHONE);
    assert_eq!(
        text_of(&created, "CreationDate"),
        "2026-01-01T00:00:00.000Z"
    );
    assert!(created.contains("<Signature></Signature>"));
    assert_eq!(text_of(&created, "CorrelationId").len(), 32);
    // A repeated request id creates nothing; with other content it is an error.
    let (status, again) = server.post("/entries/", body).await;
    assert_eq!((status, text_of(&again, "Key")), (201, PHONE));
    let other = create_entry("PHONE", PHONE, KEY_HOLDER, "11122233302", 1);
    assert_eq!(
        error_type(&server.post("/entries/", other).await.1),
        "RequestIdAlreadyUsed"
    );
    // Keys that have an entry already.
    for (participant, tax_id, expected) in [
        (KEY_HOLDER, "11122233301", "EntryAlreadyExists"),
        (KEY_HOLDER, "11122233302", "EntryKeyOwnedByDifferentPerson"),
        (
            CALLER,
            "11122233301",
            "EntryKeyInCustodyOfDifferentParticipant",
        ),
    ] {
        let body = create_entry("PHONE", PHONE, participant, tax_id, 2);
        let (status, refused) = server.post("/entries/", body).await;
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
        server.write(Method::PUT, path, update(STRANGER)).await.0,
        403
    );
    let (status, updated) = server.write(Method::PUT, path, update(KEY_HOLDER)).await;
    assert_eq!(
        (status, text_of(&updated, "AccountNumber")),
        (200, "42"),
        "{updated}"
    );
    assert_eq!(text_of(&updated, "Name"), "João da Silva");

    let gone = format!("{path}/delete");
    assert_eq!(
        server.post(&gone, delete_entry(PHONE, STRANGER)).await.0,
        403
    );
    let (status, mismatch) = server
        .post(&gone, delete_entry("+5561988880001", KEY_HOLDER))
        .await;
    assert_eq!((status, error_type(&mismatch)), (400, "BadRequest"));
    let (status, deleted) = server.post(&gone, delete_entry(PHONE, KEY_HOLDER)).await;
    assert_eq!((status, text_of(&deleted, "Key")), (200, PHONE));
    assert_eq!(
        server.post(&gone, delete_entry(PHONE, KEY_HOLDER)).await.0,
        404
    );
    assert_eq!(server.get_entry_status(PHONE, PERSON).await, 404);
}

#[tokio::test]
async fn a_persons_account_has_five_keys_and_dict_generates_evp_keys() {
    let server = TestServer::new().await;
    for number in 1..=5 {
        let body =
            create_entry("EVP", "", KEY_HOLDER, "11122233301", number).replace("<Key></Key>", "");
        let (status, created) = server.post("/entries/", body).await;
        assert_eq!(status, 201, "{created}");
        assert_eq!(text_of(&created, "Key").len(), 36);
    }
    let body = create_entry("PHONE", PHONE, KEY_HOLDER, "11122233301", 6);
    let (status, refused) = server.post("/entries/", body).await;
    assert_eq!((status, error_type(&refused)), (400, "EntryLimitExceeded"));
}

#[tokio::test]
async fn content_ids_let_a_participant_reconcile_its_records() {
    let server = TestServer::new().await;
    let verify = |verifier: &str| {
        format!(
            "<CreateSyncVerificationRequest><SyncVerification><Participant>{CALLER}</Participant>\
             <KeyType>PHONE</KeyType><ParticipantSyncVerifier>{verifier}</ParticipantSyncVerifier>\
             </SyncVerification></CreateSyncVerificationRequest>"
        )
    };
    let (status, body) = server
        .post("/sync-verifications/", verify(&"0".repeat(64)))
        .await;
    assert_eq!(
        (status, text_of(&body, "Result")),
        (201, "OK"),
        "nothing verifies to zeros"
    );
    assert_eq!(
        server
            .post(
                "/entries/",
                create_entry("PHONE", PHONE, CALLER, "11122233301", 1)
            )
            .await
            .0,
        201
    );
    let query = format!("/cids/events?Participant={CALLER}&KeyType=PHONE");
    let (_, events) = server.get(&query, CALLER).await;
    let cid = text_of(&events, "Cid").to_owned();
    assert_eq!(text_of(&events, "Type"), "ADDED");
    // The verifier of a single content id is that id.
    assert_eq!(text_of(&events, "SyncVerifierEnd"), cid);
    let (_, body) = server.post("/sync-verifications/", verify(&cid)).await;
    assert_eq!(text_of(&body, "Result"), "OK");
    let (_, body) = server
        .post("/sync-verifications/", verify(&"f".repeat(64)))
        .await;
    assert_eq!(text_of(&body, "Result"), "NOK");
    let (status, entry) = server.get(&format!("/cids/entries/{cid}"), CALLER).await;
    assert_eq!((status, text_of(&entry, "Key")), (200, PHONE));
    assert_eq!(
        server
            .get(&format!("/cids/entries/{cid}"), KEY_HOLDER)
            .await
            .0,
        403
    );
    assert_eq!(
        server
            .get(&format!("/cids/entries/{}", "0".repeat(64)), CALLER)
            .await
            .0,
        404
    );

    let body = format!(
        "<CreateCidSetFileRequest><Participant>{CALLER}</Participant><KeyType>PHONE</KeyType>\
         </CreateCidSetFileRequest>"
    );
    let (status, file) = server.post("/cids/files/", body).await;
    assert_eq!(
        (status, text_of(&file, "Status")),
        (201, "REQUESTED"),
        "{file}"
    );
    let id = text_of(&file, "Id").to_owned();
    let (status, file) = server.get(&format!("/cids/files/{id}"), CALLER).await;
    assert_eq!(
        (status, text_of(&file, "Status")),
        (200, "AVAILABLE"),
        "{file}"
    );
    assert_eq!(
        server.get(&format!("/cids/files/{id}"), KEY_HOLDER).await.0,
        403
    );
    let content = crate::test_server::client()
        .get(text_of(&file, "Url"))
        .send()
        .await
        .unwrap();
    assert_eq!(content.text().await.unwrap(), format!("{cid}\n"));

    let path = "/entries/%2B5561988880000/delete";
    assert_eq!(server.post(path, delete_entry(PHONE, CALLER)).await.0, 200);
    let (_, events) = server.get(&query, CALLER).await;
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
async fn check_keys_returns_which_keys_have_an_entry() {
    let server = TestServer::new().await;
    let body = format!(
        "<CheckKeysRequest><Keys><Key>{KEY}</Key><Key>{PHONE}</Key></Keys></CheckKeysRequest>"
    );
    let headers = [("PI-RequestingParticipant", CALLER)];
    let response = server
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
    assert_eq!(server.level("KEYS_CHECK", CALLER, None).await, 69);
    for keys in [0, 201] {
        let keys = format!("<Key>{KEY}</Key>").repeat(keys);
        let body = format!("<CheckKeysRequest><Keys>{keys}</Keys></CheckKeysRequest>");
        let response = server
            .send(Method::POST, "/api-np/v2/keys/check", &headers, Some(body))
            .await;
        assert_eq!(response.status(), 400);
    }
    assert_eq!(server.level("KEYS_CHECK", CALLER, None).await, 67);
}

//! Entries from their beginning to their end, and what is told of keys and content ids.

use reqwest::Method;

use crate::world::{
    ASKER, KEEPER, KEY, PERSON, World, account, create_entry, delete_entry, error_type, text_of,
};

const PHONE: &str = "+5561988880000";
const STRANGER: &str = "11111111";

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

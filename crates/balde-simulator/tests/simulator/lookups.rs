//! Which buckets lookups empty, and where the refusing bucket is reported.

use reqwest::Method;

use crate::test_server::{
    CALLER, COMPANY, KEY, KEY_HOLDER, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer,
    end_to_end_id, error_type,
};

#[tokio::test]
async fn misses_of_one_payer_empty_only_that_payers_bucket() {
    let server = TestServer::new().await;
    // 100 tokens, 20 per miss: the fifth miss leaves none.
    for _ in 0..5 {
        assert_eq!(server.get_entry_status(NO_KEY, PERSON).await, 404);
    }
    assert_eq!(server.level(READ_USER, CALLER, Some(PERSON)).await, 0);
    assert_eq!(server.get_entry_status(NO_KEY, PERSON).await, 429);
    for neighbour in ["11122233301", "00000000000", COMPANY] {
        assert_eq!(
            server.get_entry_status(KEY, neighbour).await,
            200,
            "{neighbour}"
        );
    }
    // The same payer at another participant is another bucket.
    let elsewhere = server
        .get_entry_as("11111111", KEY, PERSON, &end_to_end_id(9))
        .await;
    assert_eq!(elsewhere.status(), 200);
    // Keys of other types are counted in another bucket.
    assert_eq!(server.get_entry_status("11122233344", PERSON).await, 404);
    assert_eq!(
        server.level(READ_PARTICIPANT, CALLER, None).await,
        50_000 - 5 * 3 - 3 - 3
    );
}

#[tokio::test]
async fn misses_of_many_payers_empty_the_participant_at_3_each() {
    let server = TestServer::with(|builder| builder.category(balde_dict::Category::H)).await;
    // Category H has 50 tokens: seventeen misses leave a debt of one.
    for payer in 0..17 {
        assert_eq!(
            server
                .get_entry_status(NO_KEY, &format!("{payer:011}"))
                .await,
            404
        );
    }
    assert_eq!(server.level(READ_PARTICIPANT, CALLER, None).await, -1);
    let refused = server
        .get_entry(KEY, "00000000099", &end_to_end_id(0))
        .await;
    assert_eq!(refused.status(), 429);
    // A debt of one and one token needed, at two a minute.
    assert_eq!(refused.headers()["retry-after"], "60");
    assert_eq!(
        server.level(READ_USER, CALLER, Some("00000000099")).await,
        100,
        "untouched"
    );
}

#[tokio::test]
async fn the_refusing_bucket_is_in_the_inspection_and_not_in_the_response() {
    let server = TestServer::new().await;
    server.set_level(READ_USER, CALLER, Some(PERSON), 0).await;
    let body = server
        .get_entry(KEY, PERSON, &end_to_end_id(0))
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(error_type(&body), "RateLimited");
    assert!(!body.contains("ENTRIES"), "{body}");
    server.set_level(READ_PARTICIPANT, CALLER, None, -7).await;
    assert_eq!(server.get_entry_status(KEY, COMPANY).await, 429);

    let (_, shown) = server.sim(Method::GET, "/sim/refusals", None).await;
    assert_eq!(shown["count"], 2);
    let [latest, first] = [&shown["refusals"][0], &shown["refusals"][1]];
    assert_eq!(latest["policy"], READ_PARTICIPANT);
    assert_eq!(
        (latest["scope"].as_str(), latest["level"].as_i64()),
        (Some("PSP"), Some(-7))
    );
    assert!(latest["payer"].is_null());
    assert_eq!(first["policy"], READ_USER);
    assert_eq!(
        (first["scope"].as_str(), first["payer"].as_str()),
        (Some("USER"), Some(PERSON))
    );
    assert_eq!(first["participant"], CALLER);
    assert_eq!(first["operation"], "getEntry");
}

#[tokio::test]
async fn looking_up_an_own_key_is_a_400_that_costs_nothing() {
    let server = TestServer::new().await;
    let own = server
        .get_entry_as(KEY_HOLDER, KEY, PERSON, &end_to_end_id(0))
        .await;
    assert_eq!(own.status(), 400);
    let body = own.text().await.unwrap();
    assert_eq!(error_type(&body), "EntryCannotBeQueriedForBookTransfer");
    assert_eq!(server.level(READ_USER, KEY_HOLDER, Some(PERSON)).await, 100);
    assert_eq!(
        server.level(READ_PARTICIPANT, KEY_HOLDER, None).await,
        50_000
    );
}

#[tokio::test]
async fn an_encoded_phone_key_is_found_and_responses_are_compressed_on_request() {
    let server = TestServer::new().await;
    let phone = "+5561988880000";
    let body = crate::test_server::create_entry("PHONE", phone, KEY_HOLDER, "11122233301", 7);
    assert_eq!(server.post("/entries/", body).await.0, 201);
    let id = end_to_end_id(0);
    let headers = [
        ("PI-RequestingParticipant", CALLER),
        ("PI-PayerId", PERSON),
        ("PI-EndToEndId", id.as_str()),
        ("Accept-Encoding", "gzip"),
    ];
    let path = "/api/v2/entries/%2B5561988880000";
    let response = server.send(Method::GET, path, &headers, None).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["keep-alive"], "timeout=60");
    let mut plain = String::new();
    let compressed = response.bytes().await.unwrap();
    let mut decoder = flate2::read::GzDecoder::new(&compressed[..]);
    std::io::Read::read_to_string(&mut decoder, &mut plain).unwrap();
    assert!(
        plain.contains("<Key>+5561988880000</Key><KeyType>PHONE</KeyType>"),
        "{plain}"
    );
}

//! What a client did, and what it missed.

use std::time::Duration;

use balde_dict::Category;
use reqwest::Method;
use serde_json::Value;

use crate::test_server::{
    CALLER, KEY, PERSON, TestServer, create_entry, delete_entry, end_to_end_id,
};

async fn server(file: &std::path::Path) -> TestServer {
    TestServer::with(|builder| builder.transcript(file).category(Category::H)).await
}

fn lines(file: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn a_transcript_shows_what_a_client_did_and_missed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("transcript.jsonl");
    let server = server(&file).await;
    // A good client: the same request id again, and a payment after its lookup.
    for _ in 0..2 {
        let body = create_entry("PHONE", "+5561911110001", CALLER, PERSON, 1);
        assert_eq!(server.post("/entries/", body).await.0, 201);
    }
    assert_eq!(server.get_entry_status(KEY, PERSON).await, 200);
    server.send_order(CALLER, PERSON, &end_to_end_id(0)).await;
    let (status, summary) = server.sim(Method::GET, "/sim/transcript", None).await;
    assert_eq!(status, 200);
    assert_eq!(summary["missed"], serde_json::json!({}), "{summary}");

    // A repetition with another request id; after a removal it is none.
    let other = create_entry("PHONE", "+5561911110001", CALLER, PERSON, 2);
    server.post("/entries/", other.clone()).await;
    let path = "/entries/%2B5561911110001/delete";
    assert_eq!(
        server
            .post(path, delete_entry("+5561911110001", CALLER))
            .await
            .0,
        200
    );
    assert_eq!(server.post("/entries/", other).await.0, 201);

    // A lookup without payment.
    let answer = server.get_entry(KEY, PERSON, &end_to_end_id(7)).await;
    assert_eq!(answer.status(), 200);

    // A 429, then a call before the bucket can have a token, then one afterwards.
    server.set_level("CLAIMS_READ", CALLER, None, 0).await;
    let claim = "/claims/123e4567-e89b-12d3-a456-426655440000";
    assert_eq!(server.get(claim, CALLER).await.0, 429);
    assert_eq!(server.get(claim, CALLER).await.0, 429);
    server.advance(Duration::from_secs(2)).await;
    assert_eq!(server.get(claim, CALLER).await.0, 404);

    server.stop().await;
    let lines = lines(&file);
    let missed: Vec<String> = lines
        .iter()
        .flat_map(|line| line["missed"].as_array().cloned().unwrap_or_default())
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(missed, ["repeated_without_request_id", "ignored_429"]);
    let summary = &lines.last().unwrap()["summary"];
    let expected = serde_json::json!({
        "repeated_without_request_id": 1,
        "ignored_429": 1,
        "missing_payment_order": 1,
    });
    assert_eq!(summary["missed"], expected, "{summary}");
    assert_eq!(
        summary["lookups_without_order"][0]["end_to_end_id"],
        end_to_end_id(7)
    );
    assert_eq!(lines[0]["operation"], "createEntry");
    assert_eq!(
        lines[0]["request_id"],
        "a946d533-7f22-42a5-9a9b-000000000001"
    );
}

#[tokio::test]
async fn twice_as_many_lookups_as_payments_are_lookups_without_payment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("transcript.jsonl");
    let server = server(&file).await;
    for number in 0..10 {
        let id = end_to_end_id(number);
        assert_eq!(server.get_entry(KEY, PERSON, &id).await.status(), 200);
        if number < 5 {
            server.send_order(CALLER, PERSON, &id).await;
        }
    }
    let (_, summary) = server.sim(Method::GET, "/sim/transcript", None).await;
    assert_eq!(summary["missed"]["lookups_without_payment"], 1, "{summary}");
    assert_eq!(summary["missed"]["missing_payment_order"], 5, "{summary}");
    server.send_order(CALLER, PERSON, &end_to_end_id(9)).await;
    let (_, summary) = server.sim(Method::GET, "/sim/transcript", None).await;
    assert_eq!(
        summary["missed"].get("lookups_without_payment"),
        None,
        "{summary}"
    );
}

#[tokio::test]
async fn without_a_transcript_there_is_no_summary() {
    let server = TestServer::new().await;
    let (status, _) = server.sim(Method::GET, "/sim/transcript", None).await;
    assert_eq!(status, 404);
}

//! Changing categories and limits while the simulator runs keeps the consumed tokens consumed.

use reqwest::Method;
use serde_json::json;

use crate::test_server::{CALLER, KEY, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer};

#[tokio::test]
async fn changing_a_category_keeps_the_tokens_below_full() {
    let server = TestServer::new().await;
    for _ in 0..10 {
        assert_eq!(server.get_entry_status(KEY, PERSON).await, 200);
    }
    assert_eq!(server.level(READ_PARTICIPANT, CALLER, None).await, 49_990);
    for (category, capacity) in [("B", 40_000), ("H", 50), ("G", 250), ("A", 50_000)] {
        server.set_category(CALLER, category).await;
        let bucket = server.bucket(READ_PARTICIPANT, CALLER, None).await;
        assert_eq!(bucket["level"], capacity - 10, "{category}");
        assert_eq!(bucket["capacity"], capacity, "{category}");
        let (_, body) = server
            .get("/policies/ENTRIES_READ_PARTICIPANT_ANTISCAN", CALLER)
            .await;
        assert!(
            body.contains(&format!("<Category>{category}</Category>")),
            "{body}"
        );
        assert!(
            body.contains(&format!("<Capacity>{capacity}</Capacity>")),
            "{body}"
        );
    }
    // Other participants keep their category.
    let other = server.bucket(READ_PARTICIPANT, "11111111", None).await;
    assert_eq!(
        (other["level"].as_i64(), other["capacity"].as_i64()),
        (Some(50_000), Some(50_000))
    );
}

#[tokio::test]
async fn debt_stays_debt_when_the_category_changes() {
    let server = TestServer::new().await;
    server.set_level(READ_PARTICIPANT, CALLER, None, -7).await;
    server.set_category(CALLER, "H").await;
    assert_eq!(server.level(READ_PARTICIPANT, CALLER, None).await, -7);
    server.set_category(CALLER, "A").await;
    // 57 below full, as it was under H: nothing is minted and nothing forgiven.
    assert_eq!(
        server.level(READ_PARTICIPANT, CALLER, None).await,
        50_000 - 57
    );

    server
        .set_level(READ_PARTICIPANT, "11111111", None, 10)
        .await;
    server.set_category("11111111", "H").await;
    assert_eq!(server.level(READ_PARTICIPANT, "11111111", None).await, 0);
}

#[tokio::test]
async fn changing_a_limit_keeps_the_tokens_below_full() {
    let server = TestServer::new().await;
    assert_eq!(server.get_entry_status(NO_KEY, PERSON).await, 404);
    assert_eq!(server.level(READ_USER, CALLER, Some(PERSON)).await, 80);
    let body = json!({"policy": READ_USER, "variant": "PF", "limit": "5/min burst 300"});
    let (status, shown) = server.sim(Method::PUT, "/sim/limits", Some(body)).await;
    assert_eq!(status, 200, "{shown}");
    let bucket = server.bucket(READ_USER, CALLER, Some(PERSON)).await;
    assert_eq!(
        (bucket["level"].as_i64(), bucket["capacity"].as_i64()),
        (Some(280), Some(300))
    );
    assert_eq!(bucket["next_token_ms"], 12_000);
    // Companies are another variant, and an invalid change has no effect.
    let company = server
        .bucket(READ_USER, CALLER, Some("11222333000150"))
        .await;
    assert_eq!(company["capacity"], 1_000);
    for body in [
        json!({"policy": READ_USER, "limit": "5/min"}),
        json!({"policy": READ_USER, "variant": "XX", "limit": "5/min"}),
        json!({"policy": "NONE", "limit": "5/min"}),
        json!({"policy": READ_USER, "variant": "PF", "limit": "much"}),
    ] {
        let (status, _) = server
            .sim(Method::PUT, "/sim/limits", Some(body.clone()))
            .await;
        assert!((400..500).contains(&status), "{body}");
    }
    assert_eq!(server.level(READ_USER, CALLER, Some(PERSON)).await, 280);
}

#[tokio::test]
async fn categories_that_the_profile_does_not_have_are_refused() {
    let server = TestServer::new().await;
    for body in [
        json!({"participant": CALLER, "category": "Z"}),
        json!({"participant": CALLER, "category": "AB"}),
        json!({"participant": CALLER, "category": ""}),
        json!({"participant": "1", "category": "A"}),
        json!({"participant": CALLER}),
    ] {
        let (status, shown) = server
            .sim(Method::PUT, "/sim/participants", Some(body))
            .await;
        assert_eq!(status, 400, "{shown}");
    }
}

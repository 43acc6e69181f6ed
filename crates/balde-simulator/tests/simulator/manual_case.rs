//! The operating manual's example, and credits for payment orders.

use std::time::Duration;

use crate::test_server::{
    CALLER, COMPANY, KEY, KEY_HOLDER, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, TestServer,
    end_to_end_id, error_type,
};

const USER_V2: &str = "ENTRIES_READ_USER_ANTISCAN_V2";

#[tokio::test]
async fn a_person_with_5_tokens_who_misses_owes_15_and_waits_exactly_8_minutes() {
    let server = TestServer::new().await;
    server.set_level(READ_USER, CALLER, Some(PERSON), 5).await;
    assert_eq!(server.get_entry_status(NO_KEY, PERSON).await, 404);
    let bucket = server.bucket(READ_USER, CALLER, Some(PERSON)).await;
    assert_eq!(
        (bucket["level"].as_i64(), bucket["debt"].as_u64()),
        (Some(-15), Some(15))
    );
    assert_eq!(bucket["next_token_ms"], 30_000);

    let refused = server.get_entry(KEY, PERSON, &end_to_end_id(1)).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["content-type"], "application/problem+xml");
    assert_eq!(refused.headers()["retry-after"], "480");
    let body = refused.text().await.unwrap();
    assert_eq!(error_type(&body), "RateLimited");
    assert!(
        !body.contains("ANTISCAN") && !body.contains("detail"),
        "{body}"
    );

    let eight_minutes = Duration::from_secs(480);
    server
        .clock
        .advance(eight_minutes.saturating_sub(Duration::from_micros(1)));
    assert_eq!(
        server.get_entry_status(KEY, PERSON).await,
        429,
        "a microsecond too early"
    );
    server.clock.advance(Duration::from_micros(1));
    assert_eq!(
        server.get_entry_status(KEY, PERSON).await,
        200,
        "exactly 8 minutes later"
    );
    assert_eq!(server.level(READ_USER, CALLER, Some(PERSON)).await, 0);
}

#[tokio::test]
async fn refusals_cost_nothing() {
    let server = TestServer::new().await;
    server.set_level(READ_USER, CALLER, Some(PERSON), 0).await;
    let participant = server.level(READ_PARTICIPANT, CALLER, None).await;
    for _ in 0..50 {
        assert_eq!(server.get_entry_status(NO_KEY, PERSON).await, 429);
    }
    assert_eq!(server.level(READ_USER, CALLER, Some(PERSON)).await, 0);
    assert_eq!(
        server.level(READ_PARTICIPANT, CALLER, None).await,
        participant
    );
}

#[tokio::test]
async fn an_order_credits_1_to_a_person_2_to_a_company_and_1_to_the_participant_once() {
    let server = TestServer::new().await;
    for (payer, credit) in [(PERSON, 1), (COMPANY, 2)] {
        let id = end_to_end_id(if payer == PERSON { 1 } else { 2 });
        server.set_level(READ_USER, CALLER, Some(payer), 50).await;
        server
            .set_level(READ_PARTICIPANT, CALLER, None, 1_000)
            .await;
        assert_eq!(server.get_entry(KEY, payer, &id).await.status(), 200);
        assert_eq!(server.level(READ_USER, CALLER, Some(payer)).await, 49);
        assert!(server.send_order(CALLER, payer, &id).await);
        assert_eq!(
            server.level(READ_USER, CALLER, Some(payer)).await,
            49 + credit
        );
        assert_eq!(server.level(READ_PARTICIPANT, CALLER, None).await, 1_000);
        assert!(
            !server.send_order(CALLER, payer, &id).await,
            "once per EndToEndId"
        );
        // Repeating the lookup with the same id does not allow a second credit.
        assert_eq!(server.get_entry(KEY, payer, &id).await.status(), 200);
        assert!(!server.send_order(CALLER, payer, &id).await);
        assert_eq!(
            server.level(READ_USER, CALLER, Some(payer)).await,
            48 + credit
        );
        assert_eq!(
            server.level(USER_V2, CALLER, Some(payer)).await,
            if payer == PERSON { 100 } else { 1_000 }
        );
    }
}

#[tokio::test]
async fn an_order_never_fills_a_bucket_above_its_capacity() {
    let server = TestServer::new().await;
    assert_eq!(
        server
            .get_entry(KEY, COMPANY, &end_to_end_id(1))
            .await
            .status(),
        200
    );
    assert_eq!(server.level(READ_USER, CALLER, Some(COMPANY)).await, 999);
    assert!(server.send_order(CALLER, COMPANY, &end_to_end_id(1)).await);
    assert_eq!(server.level(READ_USER, CALLER, Some(COMPANY)).await, 1_000);
}

#[tokio::test]
async fn another_participants_lookup_a_miss_and_a_late_order_are_not_credited() {
    let server = TestServer::new().await;
    // The id names neither the payer's participant nor the one that looks the key up.
    let id = end_to_end_id(1).replacen(CALLER, "33333333", 1);
    assert_eq!(server.get_entry(KEY, PERSON, &id).await.status(), 200);
    assert!(
        !server.send_order(KEY_HOLDER, PERSON, &id).await,
        "another participant"
    );
    assert!(
        !server.send_order(CALLER, COMPANY, &id).await,
        "another payer"
    );
    assert!(
        !server.send_order(CALLER, PERSON, &end_to_end_id(2)).await,
        "another id"
    );

    let missed = end_to_end_id(3);
    assert_eq!(
        server.get_entry(NO_KEY, PERSON, &missed).await.status(),
        404
    );
    assert!(!server.send_order(CALLER, PERSON, &missed).await, "a miss");

    let late = end_to_end_id(4);
    assert_eq!(server.get_entry(KEY, PERSON, &late).await.status(), 200);
    server
        .advance(Duration::from_secs(12 * 3_600) + Duration::from_millis(1))
        .await;
    assert!(
        !server.send_order(CALLER, PERSON, &late).await,
        "later than 12 hours"
    );
    let in_time = end_to_end_id(5);
    assert_eq!(server.get_entry(KEY, PERSON, &in_time).await.status(), 200);
    server.advance(Duration::from_secs(12 * 3_600)).await;
    assert!(
        server.send_order(CALLER, PERSON, &in_time).await,
        "exactly 12 hours"
    );
}

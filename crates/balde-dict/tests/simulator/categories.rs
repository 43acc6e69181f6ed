//! Categories and limits that change while the simulator runs keep what was consumed.

use reqwest::Method;
use serde_json::json;

use crate::world::{ASKER, KEY, NO_KEY, PERSON, READ_PARTICIPANT, READ_USER, World};

#[tokio::test]
async fn a_participant_that_changes_its_category_keeps_what_it_is_below_full() {
    let world = World::new().await;
    for _ in 0..10 {
        assert_eq!(world.look(KEY, PERSON).await, 200);
    }
    assert_eq!(world.level(READ_PARTICIPANT, ASKER, None).await, 49_990);
    for (category, capacity) in [("B", 40_000), ("H", 50), ("G", 250), ("A", 50_000)] {
        world.set_category(ASKER, category).await;
        let bucket = world.bucket(READ_PARTICIPANT, ASKER, None).await;
        assert_eq!(bucket["level"], capacity - 10, "{category}");
        assert_eq!(bucket["capacity"], capacity, "{category}");
        let (_, body) = world
            .get("/policies/ENTRIES_READ_PARTICIPANT_ANTISCAN", ASKER)
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
    // Others keep theirs.
    let other = world.bucket(READ_PARTICIPANT, "11111111", None).await;
    assert_eq!(
        (other["level"].as_i64(), other["capacity"].as_i64()),
        (Some(50_000), Some(50_000))
    );
}

#[tokio::test]
async fn a_debt_stays_a_debt_and_what_was_none_becomes_none() {
    let world = World::new().await;
    world.set_level(READ_PARTICIPANT, ASKER, None, -7).await;
    world.set_category(ASKER, "H").await;
    assert_eq!(world.level(READ_PARTICIPANT, ASKER, None).await, -7);
    world.set_category(ASKER, "A").await;
    // 57 below full, as it was under H: nothing is minted and nothing forgiven.
    assert_eq!(
        world.level(READ_PARTICIPANT, ASKER, None).await,
        50_000 - 57
    );

    world
        .set_level(READ_PARTICIPANT, "11111111", None, 10)
        .await;
    world.set_category("11111111", "H").await;
    assert_eq!(world.level(READ_PARTICIPANT, "11111111", None).await, 0);
}

#[tokio::test]
async fn a_limit_that_changes_keeps_what_every_bucket_is_below_full() {
    let world = World::new().await;
    assert_eq!(world.look(NO_KEY, PERSON).await, 404);
    assert_eq!(world.level(READ_USER, ASKER, Some(PERSON)).await, 80);
    let body = json!({"policy": READ_USER, "variant": "PF", "limit": "5/min burst 300"});
    let (status, shown) = world.sim(Method::PUT, "/sim/limits", Some(body)).await;
    assert_eq!(status, 200, "{shown}");
    let bucket = world.bucket(READ_USER, ASKER, Some(PERSON)).await;
    assert_eq!(
        (bucket["level"].as_i64(), bucket["capacity"].as_i64()),
        (Some(280), Some(300))
    );
    assert_eq!(bucket["next_token_ms"], 12_000);
    // Companies are another variant, and a mistake changes nothing.
    let company = world.bucket(READ_USER, ASKER, Some("11222333000150")).await;
    assert_eq!(company["capacity"], 1_000);
    for body in [
        json!({"policy": READ_USER, "limit": "5/min"}),
        json!({"policy": READ_USER, "variant": "XX", "limit": "5/min"}),
        json!({"policy": "NONE", "limit": "5/min"}),
        json!({"policy": READ_USER, "variant": "PF", "limit": "much"}),
    ] {
        let (status, _) = world
            .sim(Method::PUT, "/sim/limits", Some(body.clone()))
            .await;
        assert!((400..500).contains(&status), "{body}");
    }
    assert_eq!(world.level(READ_USER, ASKER, Some(PERSON)).await, 280);
}

#[tokio::test]
async fn categories_that_the_profile_does_not_have_are_refused() {
    let world = World::new().await;
    for body in [
        json!({"participant": ASKER, "category": "Z"}),
        json!({"participant": ASKER, "category": "AB"}),
        json!({"participant": ASKER, "category": ""}),
        json!({"participant": "1", "category": "A"}),
        json!({"participant": ASKER}),
    ] {
        let (status, shown) = world
            .sim(Method::PUT, "/sim/participants", Some(body))
            .await;
        assert_eq!(status, 400, "{shown}");
    }
}

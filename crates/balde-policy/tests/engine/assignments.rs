//! A subject's value of a variant changes, and its buckets keep what they are below full.

use balde_policy::{AssignError, KeyPart, Outcome, Subject};

use crate::fixture::{Fixture, get};

#[tokio::test]
async fn a_bucket_keeps_what_it_is_below_full() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        assert!(fixture.lookup("ana", 404).await);
    }
    assert_eq!(fixture.level("lookups", "ana").await, 5);
    fixture.engine.assign("plan", "ana", "large").await.unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 85);
    assert_eq!(fixture.level("lookups", "bob").await, 20);
    fixture.engine.assign("plan", "ana", "small").await.unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 5);
    assert_eq!(
        fixture.engine.assigned("plan", "ana").as_deref(),
        Some("small")
    );
}

#[tokio::test]
async fn a_bucket_that_loses_more_capacity_than_it_held_is_empty_and_a_debt_stays() {
    let fixture = Fixture::new();
    fixture.engine.assign("plan", "ana", "large").await.unwrap();
    let ana = Subject::user("ana");
    for (before, after) in [(50, 0), (85, 5), (-7, -7), (100, 20)] {
        fixture.engine.assign("plan", "ana", "large").await.unwrap();
        fixture
            .engine
            .set_level("lookups", &ana, before)
            .await
            .unwrap();
        fixture.engine.assign("plan", "ana", "small").await.unwrap();
        assert_eq!(fixture.level("lookups", "ana").await, after, "{before}");
    }
}

#[tokio::test]
async fn a_request_in_flight_is_settled_in_the_bucket_of_the_new_value() {
    let fixture = Fixture::new();
    let request = get("/items/1", "ana");
    let dear = fixture.engine.admit(&request).await.unwrap();
    let free = fixture.engine.admit(&request).await.unwrap();
    let dropped = fixture.engine.admit(&request).await.unwrap();
    fixture.engine.assign("plan", "ana", "large").await.unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 97);
    dear.settle(Outcome::Status(404)).await;
    assert_eq!(fixture.level("lookups", "ana").await, 93);
    free.settle(Outcome::Status(500)).await;
    assert_eq!(fixture.level("lookups", "ana").await, 94);
    drop(dropped);
    assert_eq!(fixture.level("lookups", "ana").await, 93);
}

#[tokio::test]
async fn buckets_with_more_parts_in_their_keys_are_carried_over_when_they_are_used() {
    let profile = r#"
profile = "p"
[scopes]
both = ["user", "header:region"]
[variants]
plan = { part = "user", assigned = ["small", "large"] }
[[policy]]
name = "p"
scope = "both"
limits = { by = "plan", small = "1/s burst 20", large = "1/s burst 100" }
"#;
    let fixture = Fixture::with(profile, |builder| builder);
    let headers = [("region", "south")];
    let mut request = get("/", "ana");
    request.headers = &headers;
    let south = Subject::user("ana").with(KeyPart::header("region"), "south");
    for _ in 0..6 {
        drop(fixture.engine.admit(&request).await.unwrap());
    }
    fixture.engine.assign("plan", "ana", "large").await.unwrap();
    drop(fixture.engine.admit(&request).await.unwrap());
    let state = fixture.engine.state("p", &south).await.unwrap();
    assert_eq!((state.value(), state.level()), (Some("large"), 93));
    fixture.engine.assign("plan", "ana", "small").await.unwrap();
    let state = fixture.engine.state("p", &south).await.unwrap();
    assert_eq!((state.value(), state.level()), (Some("small"), 13));
}

#[tokio::test]
async fn what_cannot_be_assigned_is_an_error() {
    let fixture = Fixture::new();
    for (variant, value, error) in [
        ("plan", "huge", AssignError::UnknownValue),
        ("category", "A", AssignError::UnknownVariant),
    ] {
        let refused = fixture.engine.assign(variant, "ana", value).await;
        assert_eq!(refused, Err(error));
    }
}

//! Tokens that events give back.

use balde::OpId;
use balde_policy::Subject;

use crate::fixture::{Fixture, get};

#[tokio::test]
async fn an_event_gives_tokens_back_once_for_each_id() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let ana = Subject::user("ana");
    let id = OpId::new("order-1").unwrap();
    for _ in 0..3 {
        let credited = fixture.engine.credit("order", &ana, &id).await.unwrap();
        assert_eq!(credited.len(), 1);
        let one = &credited[0];
        assert_eq!(
            (one.policy(), one.tokens(), one.level()),
            ("lookups", 3, 18)
        );
    }
    assert_eq!(fixture.level("lookups", "ana").await, 18);
    // Another id counts again, and a bucket never holds more than its capacity.
    let id = OpId::new("order-2").unwrap();
    let credited = fixture.engine.credit("order", &ana, &id).await.unwrap();
    assert_eq!(credited[0].level(), 20);
    // The same id of another user is another credit.
    assert!(fixture.lookup("bob", 404).await);
    let bob = Subject::user("bob");
    let credited = fixture.engine.credit("order", &bob, &id).await.unwrap();
    assert_eq!(credited[0].level(), 18);
}

#[tokio::test]
async fn a_credit_may_leave_out_policies() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let ana = Subject::user("ana");
    let id = OpId::new("order-1").unwrap();
    let left_out = fixture
        .engine
        .credit_where("order", &ana, &id, |policy| policy.name() != "lookups");
    assert!(left_out.await.unwrap().is_empty());
    assert_eq!(fixture.level("lookups", "ana").await, 15);
    // What was left out may still be credited by the same id.
    let credited = fixture.engine.credit("order", &ana, &id).await.unwrap();
    assert_eq!(credited[0].level(), 18);
}

#[tokio::test]
async fn an_unknown_event_or_subject_gives_nothing() {
    let fixture = Fixture::new();
    let id = OpId::random();
    let ana = Subject::user("ana");
    assert!(
        fixture
            .engine
            .credit("refund", &ana, &id)
            .await
            .unwrap()
            .is_empty()
    );
    let nobody = Subject::new();
    assert!(
        fixture
            .engine
            .credit("order", &nobody, &id)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_request_as_subject_names_only_the_buckets_that_count_it() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let id = OpId::random();
    let lists = Subject::request(get("/lists", "ana"));
    assert!(
        fixture
            .engine
            .credit("order", &lists, &id)
            .await
            .unwrap()
            .is_empty()
    );
    let lookup = Subject::request(get("/items/9", "ana"));
    let credited = fixture.engine.credit("order", &lookup, &id).await.unwrap();
    assert_eq!(credited[0].level(), 18);
}

#[tokio::test]
async fn an_id_stays_used_when_the_subject_gets_another_plan() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let (ana, id) = (Subject::user("ana"), OpId::random());
    fixture.engine.credit("order", &ana, &id).await.unwrap();
    fixture.engine.assign("plan", "ana", "large").await.unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 98);
    fixture.engine.credit("order", &ana, &id).await.unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 98);
}

//! Which requests are admitted, and what refused ones are told.

use std::time::Duration;

use balde::Wait;
use balde_policy::{AdmitError, InFlight, KeyError, KeyPart, OnMissingPart, Outcome, Subject};

use crate::fixture::{Fixture, get, refusal};

#[tokio::test]
async fn a_refusal_names_the_policy_its_level_and_the_wait() {
    let fixture = Fixture::new();
    for _ in 0..4 {
        assert!(fixture.lookup("ana", 404).await);
    }
    assert_eq!(fixture.level("lookups", "ana").await, 0);
    let refused = refusal(fixture.engine.admit(&get("/items/1", "ana")).await);
    assert_eq!(refused.policy().name(), "lookups");
    assert_eq!(refused.policy().scope().name(), "user");
    assert_eq!(refused.level(), 0);
    assert_eq!(refused.wait(), Wait::Us(1_000_000));
    assert_eq!(refused.decisions().count(), 2);
    assert_eq!(
        refused.to_string(),
        "policy lookups refused: level 0, retry in 1s"
    );
    // Another user has another bucket.
    assert!(fixture.lookup("bob", 200).await);
}

#[tokio::test]
async fn a_refused_request_takes_nothing_anywhere() {
    let fixture = Fixture::new();
    let subject = Subject::user("ana");
    fixture
        .engine
        .set_level("lookups", &subject, 0)
        .await
        .unwrap();
    for _ in 0..5 {
        assert!(!fixture.lookup("ana", 200).await);
    }
    assert_eq!(fixture.level("overall", "ana").await, 1_000);
    assert_eq!(fixture.level("lookups", "ana").await, 0);
}

#[tokio::test]
async fn waiting_exactly_as_long_as_promised_admits_and_a_microsecond_less_does_not() {
    for (in_flight, limit) in [
        (InFlight::Reserved, "2/min stepwise"),
        (InFlight::AfterResponse, "2/min stepwise"),
        (InFlight::Reserved, "2/min burst 7"),
        (InFlight::AfterResponse, "2/min burst 7"),
        (InFlight::AfterResponse, "3/min window"),
    ] {
        let profile = format!("profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '{limit}'");
        let fixture = Fixture::with(&profile, |builder| builder.in_flight(in_flight));
        fixture.clock.advance(Duration::from_secs(7));
        while let Ok(ticket) = fixture.engine.admit(&get("/", "")).await {
            ticket.settle(Outcome::Status(200)).await;
        }
        let refused = refusal(fixture.engine.admit(&get("/", "")).await);
        let wait = refused.retry_after().unwrap();
        fixture
            .clock
            .advance(wait.saturating_sub(Duration::from_micros(1)));
        refusal(fixture.engine.admit(&get("/", "")).await);
        fixture.clock.advance(Duration::from_micros(1));
        let admitted = fixture.engine.admit(&get("/", "")).await;
        assert!(admitted.is_ok(), "{limit} after {wait:?}");
    }
}

#[tokio::test]
async fn a_stepwise_limit_that_is_charged_after_the_response_waits_for_its_step() {
    let profile = "profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '2/min stepwise'";
    let fixture = Fixture::with(profile, |b| b.in_flight(InFlight::AfterResponse));
    for _ in 0..2 {
        let ticket = fixture.engine.admit(&get("/", "")).await.unwrap();
        ticket.settle(Outcome::Status(200)).await;
    }
    let refused = refusal(fixture.engine.admit(&get("/", "")).await);
    assert_eq!(refused.wait(), Wait::Us(60_000_000));
}

#[tokio::test]
async fn requests_that_are_charged_after_the_response_may_share_the_last_token() {
    let profile =
        "profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '1/s'\ncosts = { 404 = 5, default = 1 }";
    let fixture = Fixture::with(profile, |b| b.in_flight(InFlight::AfterResponse));
    let first = fixture.engine.admit(&get("/", "")).await.unwrap();
    let second = fixture.engine.admit(&get("/", "")).await.unwrap();
    assert_eq!(fixture.level("p", "").await, 1);
    first.settle(Outcome::Status(404)).await;
    second.settle(Outcome::Status(200)).await;
    assert_eq!(fixture.level("p", "").await, -5);
}

#[tokio::test]
async fn a_request_without_a_part_of_its_key_is_an_error_that_names_policy_and_part() {
    let fixture = Fixture::new();
    let error = fixture
        .engine
        .admit(&get("/items/1", ""))
        .await
        .unwrap_err();
    let AdmitError::NoBucket(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.policy(), "lookups");
    let missing = KeyError::Missing {
        part: KeyPart::User,
    };
    assert_eq!(error.key_error(), &missing);

    let skipping = Fixture::with(crate::fixture::PROFILE, |builder| {
        builder.on_missing_part(OnMissingPart::Skip)
    });
    let ticket = skipping.engine.admit(&get("/items/1", "")).await.unwrap();
    let counted: Vec<&str> = ticket.decisions().map(|(policy, _)| policy).collect();
    assert_eq!(counted, ["overall"]);
}

#[tokio::test]
async fn a_refusal_costs_what_the_engine_was_told() {
    let fixture = Fixture::with(crate::fixture::PROFILE, |builder| builder.refusal_cost(2));
    let subject = Subject::user("ana");
    fixture
        .engine
        .set_level("lookups", &subject, 0)
        .await
        .unwrap();
    assert!(!fixture.lookup("ana", 200).await);
    assert_eq!(fixture.level("lookups", "ana").await, -2);
    assert_eq!(fixture.level("overall", "ana").await, 998);
}

#[tokio::test]
async fn prices_are_known_before_a_request_is_admitted() {
    let fixture = Fixture::new();
    let request = get("/items/1", "ana");
    let prices = fixture.engine.prices(&request, Outcome::Status(404));
    assert_eq!(prices, [("lookups".into(), 5), ("overall".into(), 1)]);
    let prices = fixture.engine.prices(&request, Outcome::Abandoned);
    assert_eq!(prices, [("lookups".into(), 2), ("overall".into(), 1)]);
}

#[test]
fn callers_without_await_are_admitted_in_the_same_way() {
    let fixture = Fixture::new();
    let request = get("/items/1", "ana");
    for _ in 0..20 {
        let ticket = fixture.engine.admit_blocking(&request).unwrap();
        ticket.settle_blocking(Outcome::Status(200));
    }
    assert!(fixture.engine.admit_blocking(&request).is_err());
}

#[tokio::test]
async fn a_policy_without_admission_admits_always_and_is_charged() {
    let profile = "profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '1/s'\nadmission = 0";
    let fixture = Fixture::with(profile, |builder| builder);
    for _ in 0..5 {
        let ticket = fixture.engine.admit(&get("/", "")).await.unwrap();
        ticket.settle(Outcome::Status(200)).await;
    }
    assert_eq!(fixture.level("p", "").await, -4);
}

#[tokio::test]
async fn states_are_those_of_the_buckets_that_the_subject_names() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let states = fixture.engine.states(&Subject::user("ana")).await.unwrap();
    let shown: Vec<_> = states
        .iter()
        .map(|state| (state.policy().name(), state.value(), state.level()))
        .collect();
    assert_eq!(
        shown,
        [("lookups", Some("small"), 15), ("overall", None, 999)]
    );
    assert_eq!(states[0].limit().capacity(), 20);
    assert_eq!(states[0].full_after(), Duration::from_secs(5));
    assert_eq!(states[0].next_token_after(), Some(Duration::from_secs(1)));
    assert!(states[0].is_admitting());
    let anybody = fixture.engine.states(&Subject::new()).await.unwrap();
    assert_eq!(anybody.len(), 1);
}

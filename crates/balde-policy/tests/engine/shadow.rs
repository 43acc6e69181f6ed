//! Policies that decide and count, and never refuse.

use balde_policy::Outcome;

use crate::fixture::{Fixture, PROFILE, get};

#[tokio::test]
async fn a_policy_in_shadow_mode_never_refuses_and_counts_what_it_would_have() {
    let profile = PROFILE.replace("credits =", "mode = \"shadow\"\ncredits =");
    let fixture = Fixture::with(&profile, |builder| builder);
    for _ in 0..20 {
        assert!(fixture.lookup("ana", 200).await);
    }
    assert_eq!(fixture.engine.shadow_refusals("lookups"), Some(0));
    for _ in 0..3 {
        let ticket = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
        assert_eq!(ticket.shadow_refusals().collect::<Vec<_>>(), ["lookups"]);
        ticket.settle(Outcome::Status(404)).await;
    }
    assert_eq!(fixture.engine.shadow_refusals("lookups"), Some(3));
    // What would have been refused costs nothing there, and its price elsewhere.
    assert_eq!(fixture.level("lookups", "ana").await, 0);
    assert_eq!(fixture.level("overall", "ana").await, 977);
}

#[tokio::test]
async fn all_policies_can_be_put_into_shadow_mode() {
    let profile = "profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '1/s'";
    let fixture = Fixture::with(profile, balde_policy::EngineBuilder::shadow_all);
    for _ in 0..5 {
        drop(fixture.engine.admit(&get("/", "")).await.unwrap());
    }
    assert_eq!(fixture.engine.shadow_refusals("p"), Some(4));
    assert_eq!(fixture.engine.shadow_refusals("q"), None);
}

#[cfg(feature = "prometheus")]
#[tokio::test]
async fn what_a_policy_in_shadow_mode_would_have_refused_is_counted_as_denied() {
    let metrics = balde::telemetry::Metrics::new();
    let profile = "profile = 'p'\n[[policy]]\nname = 'p'\nmode = 'shadow'\nlimit = '1/s'";
    let fixture = Fixture::with(profile, |builder| builder.metrics(&metrics));
    for _ in 0..3 {
        drop(fixture.engine.admit(&get("/", "")).await.unwrap());
    }
    let denied: Vec<String> = metrics
        .encode()
        .lines()
        .filter(|line| line.starts_with("rate_limiter_decisions_total{"))
        .filter(|line| line.contains("decision=\"deny\"") && line.contains("policy=\"p\""))
        .filter(|line| line.ends_with(" 2"))
        .map(str::to_owned)
        .collect();
    assert_eq!(denied.len(), 1, "{}", metrics.encode());
}

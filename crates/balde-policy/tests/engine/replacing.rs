//! Another profile while requests are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use balde_policy::{Outcome, StateError, Subject};

use crate::fixture::{Fixture, PROFILE, get, parsed};

#[tokio::test]
async fn buckets_of_the_same_policy_keep_what_they_are_below_full() {
    let fixture = Fixture::new();
    assert!(fixture.lookup("ana", 404).await);
    let wider = PROFILE.replace("1/s burst 20", "1/s burst 50");
    fixture.engine.replace(parsed(&wider)).unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 45);
    // One limit for all instead of one for each plan.
    let single = PROFILE.replace(
        "limits = { by = \"plan\", small = \"1/s burst 20\", large = \"10/s burst 100\" }",
        "limit = \"1/s burst 10\"",
    );
    fixture.engine.replace(parsed(&single)).unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 5);
    fixture.engine.replace(parsed(PROFILE)).unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 15);
    assert_eq!(fixture.level("overall", "ana").await, 999);
}

#[tokio::test]
async fn requests_in_flight_are_settled_by_the_prices_they_were_admitted_under() {
    let fixture = Fixture::new();
    let before = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
    let dearer = PROFILE.replace("404 = 5", "404 = 9");
    fixture.engine.replace(parsed(&dearer)).unwrap();
    let after = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
    before.settle(Outcome::Status(404)).await;
    assert_eq!(fixture.level("lookups", "ana").await, 14);
    after.settle(Outcome::Status(404)).await;
    assert_eq!(fixture.level("lookups", "ana").await, 6);
}

#[tokio::test]
async fn the_buckets_of_a_policy_that_is_gone_go_with_it() {
    let fixture = Fixture::new();
    let ticket = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
    let other = "profile = 'other'\n[[policy]]\nname = 'overall'\nlimit = '10/s burst 1000'";
    fixture.engine.replace(parsed(other)).unwrap();
    ticket.settle(Outcome::Status(404)).await;
    let gone = fixture.engine.state("lookups", &Subject::user("ana")).await;
    assert_eq!(gone.err(), Some(StateError::UnknownPolicy));
    assert_eq!(fixture.level("overall", "ana").await, 999);
    fixture.engine.replace(parsed(PROFILE)).unwrap();
    assert_eq!(fixture.level("lookups", "ana").await, 20);
}

/// No token is lost or made while requests, assignments and other profiles meet: what buckets are
/// below full in the end is what the requests cost.
#[test]
fn tokens_are_conserved_while_profiles_and_plans_change_under_requests() {
    const THREADS: u64 = 4;
    const REQUESTS: u64 = 2_000;
    let profile = PROFILE
        .replace("1/s burst 20", "1/s burst 1000000")
        .replace("10/s burst 100\"", "10/s burst 2000000\"")
        .replace("10/s burst 1000\"", "10/s burst 1000000\"");
    let wider = profile.replace("1/s burst 1000000", "1/s burst 3000000");
    let fixture = Arc::new(Fixture::with(&profile, |builder| builder));
    let cost = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let changing = {
        let (fixture, is_over) = (Arc::clone(&fixture), Arc::clone(&is_over));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let mut rounds = 0_usize;
            while !is_over.load(Ordering::Relaxed) {
                let plan = ["large", "small"][rounds % 2];
                let assigned = fixture.engine.assign("plan", "ana", plan);
                runtime.block_on(assigned).unwrap();
                let next = [&wider, &profile][rounds / 2 % 2];
                fixture.engine.replace(parsed(next)).unwrap();
                rounds += 1;
            }
            rounds
        })
    };
    let requesting = (0..THREADS).map(|thread| {
        let (fixture, cost) = (Arc::clone(&fixture), Arc::clone(&cost));
        thread::spawn(move || {
            for number in 0..REQUESTS {
                let ticket = fixture
                    .engine
                    .admit_blocking(&get("/items/1", "ana"))
                    .unwrap();
                let (status, price) =
                    [(200, 1), (404, 5), (500, 0)][((number + thread) % 3) as usize];
                if number % 7 == 0 {
                    drop(ticket);
                    cost.fetch_add(2, Ordering::Relaxed);
                } else {
                    ticket.settle_blocking(Outcome::Status(status));
                    cost.fetch_add(price, Ordering::Relaxed);
                }
            }
        })
    });
    let requesting: Vec<_> = requesting.collect();
    for thread in requesting {
        thread.join().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(changing.join().unwrap() > 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let state = runtime.block_on(fixture.engine.state("lookups", &Subject::user("ana")));
    let state = state.unwrap();
    let capacity = i64::try_from(state.limit().capacity()).unwrap();
    let below_full = u64::try_from(capacity - state.level()).unwrap();
    assert_eq!(below_full, cost.load(Ordering::Relaxed));
}

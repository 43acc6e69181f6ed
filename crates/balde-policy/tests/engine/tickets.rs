//! Every admitted request is settled once, whatever becomes of it.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use balde_policy::Outcome;

use crate::fixture::{Fixture, get};

#[tokio::test]
async fn a_ticket_is_settled_by_its_outcome() {
    for (outcome, level) in [
        (Outcome::Status(200), 19),
        (Outcome::Status(404), 15),
        (Outcome::Status(503), 20),
        (Outcome::Failed, 18),
        (Outcome::Abandoned, 18),
    ] {
        let fixture = Fixture::new();
        let ticket = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
        assert_eq!(fixture.level("lookups", "ana").await, 19);
        ticket.settle(outcome).await;
        assert_eq!(fixture.level("lookups", "ana").await, level, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_dropped_ticket_is_settled_as_abandoned() {
    let fixture = Fixture::new();
    drop(fixture.engine.admit(&get("/items/1", "ana")).await.unwrap());
    assert_eq!(fixture.level("lookups", "ana").await, 18);
    assert_eq!(fixture.level("overall", "ana").await, 999);
}

#[tokio::test]
async fn a_settlement_that_is_not_awaited_counts_once() {
    let fixture = Fixture::new();
    let ticket = fixture.engine.admit(&get("/items/1", "ana")).await.unwrap();
    let settlement = ticket.settle(Outcome::Status(404));
    assert!(settlement.is_done());
    let levels: Vec<i64> = settlement.decisions().map(|(_, d)| d.level()).collect();
    assert_eq!(levels, [15, 999]);
    drop(settlement);
    assert_eq!(fixture.level("lookups", "ana").await, 15);
}

#[test]
fn a_request_that_is_cancelled_while_it_is_served_is_settled_once() {
    let fixture = Fixture::new();
    let engine = fixture.engine.clone();
    let serve = async move {
        let ticket = engine.admit(&get("/items/1", "ana")).await.unwrap();
        std::future::pending::<()>().await;
        ticket.settle(Outcome::Status(404)).await;
    };
    {
        let mut serving = pin!(serve);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(serving.as_mut().poll(&mut context), Poll::Pending);
    }
    let state = fixture.level("lookups", "ana");
    let mut state = pin!(state);
    let level = state.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(level, Poll::Ready(18));
}

#[tokio::test]
async fn a_panic_settles_as_abandoned() {
    let fixture = Fixture::new();
    let engine = fixture.engine.clone();
    let served = tokio::spawn(async move {
        let _ticket = engine.admit(&get("/items/1", "ana")).await.unwrap();
        panic!("on purpose");
    });
    assert!(served.await.is_err());
    assert_eq!(fixture.level("lookups", "ana").await, 18);
}

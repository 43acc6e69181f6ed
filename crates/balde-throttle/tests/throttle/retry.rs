//! Sending again: what is retried, when, and when it ends.

use std::future::ready;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use balde::{Backoff, Share};
use balde_throttle::{
    Degradation, GaveUp, Outcome, Refusal, Report, RetryBudget, RetryError, RetryPolicy, Throttler,
};
use tokio::time::Instant;

use super::builder;

fn throttler() -> Throttler {
    let builder = builder().rate(10_000).partition_rate(1_000);
    builder.build().unwrap()
}

fn report(result: &Result<&'static str, u16>) -> Report {
    match result {
        Ok(_) | Err(400..429 | 430..500) => Outcome::Success.into(),
        Err(429 | 503) => Report::from(Outcome::Pushback).retry_after(Duration::from_secs(3)),
        Err(504) => Outcome::Timeout.into(),
        Err(_) => Outcome::Error.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_retry_after_is_obeyed_to_the_millisecond() {
    let throttler = throttler();
    let retry = throttler.retry_policy();
    let start = Instant::now();
    let send = |attempt| async move {
        match attempt {
            1 | 2 => Err(503),
            _ => Ok("done"),
        }
    };
    let sent = throttler.send_with_retry("store", 1, &retry, send, report);
    assert_eq!(sent.await, Ok("done"));
    let took = start.elapsed().as_millis();
    assert!((6_000..=6_010).contains(&took), "{took} ms");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_server_rejects_is_not_sent_again() {
    let throttler = throttler();
    let retry = throttler.retry_policy();
    let attempts = AtomicU32::new(0);
    let send = |_| {
        attempts.fetch_add(1, Ordering::Relaxed);
        ready(Err::<&str, _>(422))
    };
    let sent = throttler.send_with_retry("store", 1, &retry, send, report);
    assert_eq!(sent.await, Err(RetryError::Failed(422)));
    assert_eq!(attempts.into_inner(), 1);
    assert!(!throttler.stats()[0].is_degraded());
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_by_attempts_by_time_and_by_budget_with_the_last_error() {
    let throttler = throttler();
    let policy = || {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
        let budget = RetryBudget::new(5, Share::percent(50));
        RetryPolicy::new(budget).backoff(backoff)
    };
    let failing = |attempt: u32| ready(Err::<&str, _>(500 + u16::try_from(attempt % 2).unwrap()));
    for (policy, attempts, reason) in [
        (policy().attempts_max(4).unwrap(), 4, GaveUp::Attempts),
        (
            policy()
                .give_up_after(Duration::from_millis(2_500))
                .unwrap(),
            3,
            GaveUp::Time,
        ),
        (policy(), 6, GaveUp::Budget),
    ] {
        let sent = throttler.send_with_retry("store", 1, &policy, failing, report);
        let error = u16::try_from(500 + attempts % 2).unwrap();
        let gave_up = RetryError::GaveUp {
            error,
            attempts,
            reason,
        };
        assert_eq!(sent.await, Err(gave_up));
    }
    assert!(policy().attempts_max(0).is_err());
    assert!(policy().give_up_after(Duration::ZERO).is_err());
}

#[tokio::test(start_paused = true)]
async fn while_the_circuit_is_open_it_waits_without_counting_an_attempt() {
    let throttler = builder()
        .rate(1_000)
        .partition_rate(1)
        .degradation(
            Degradation::strict()
                .reset(Duration::from_secs(7))
                .probes(1),
        )
        .build()
        .unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    // A rate of one is its own floor.
    throttler.report("store", Outcome::Error);
    let start = Instant::now();
    let retry = throttler.retry_policy().attempts_max(1).unwrap();
    let sent =
        throttler.send_with_retry("store", 1, &retry, |_| ready(Ok::<_, u16>("done")), report);
    assert_eq!(sent.await, Ok("done"));
    let took = start.elapsed().as_millis();
    assert!((7_000..=7_010).contains(&took), "{took} ms");

    let impatient = retry.give_up_after(Duration::from_secs(1)).unwrap();
    throttler.report("store", Outcome::Error);
    let send = |_| ready(Ok::<_, u16>("done"));
    let sent = throttler.send_with_retry("store", 1, &impatient, send, report);
    let refused = sent.await.unwrap_err();
    assert!(
        matches!(refused, RetryError::Refused(Refusal::CircuitOpen { .. })),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn retries_stay_within_the_rate() {
    let throttler = builder().rate(1_000).partition_rate(100).build().unwrap();
    let budget = RetryBudget::new(1_000_000, Share::percent(1));
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1)).unwrap();
    let policy = RetryPolicy::new(budget).backoff(backoff);
    let policy = policy.give_up_after(Duration::from_secs(4)).unwrap();
    let policy = policy.attempts_max(u32::MAX).unwrap();
    let start = Instant::now();
    let attempts = AtomicU32::new(0);
    let sends = (0..50).map(|_| async {
        let send = |_| {
            attempts.fetch_add(1, Ordering::Relaxed);
            ready(Err::<&str, _>(500))
        };
        throttler
            .send_with_retry("store", 1, &policy, send, report)
            .await
    });
    futures_join(sends).await;
    let seconds = start.elapsed().as_secs() + 1;
    let attempts = u64::from(attempts.into_inner());
    assert!(attempts <= 100 * seconds + 10, "{attempts} in {seconds} s");
    assert!(attempts > 200, "{attempts}");
}

/// Runs all futures on this task.
async fn futures_join<F: Future>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|cx| {
        let mut is_pending = false;
        for slot in &mut futures {
            if let Some(future) = slot {
                if future.as_mut().poll(cx).is_ready() {
                    *slot = None;
                } else {
                    is_pending = true;
                }
            }
        }
        if is_pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
}

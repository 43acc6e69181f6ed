//! Every admitted request is reported once, however it ends.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use balde_throttle::{Degradation, Refusal, RunError, Throttler};

use super::builder;

fn throttler() -> Throttler {
    builder()
        .rate(100_000)
        .partition_rate(10_000)
        .degradation(Degradation::strict().recovery(Duration::from_millis(1)))
        .build()
        .unwrap()
}

fn failures(throttler: &Throttler) -> u64 {
    throttler.stats()[0].failures()
}

#[tokio::test(start_paused = true)]
async fn a_success_and_a_failure_are_reported_once_each() {
    let throttler = throttler();
    let done = throttler.run("store", 3, async { Ok::<_, ()>(7) }).await;
    assert_eq!(done, Ok(7));
    assert_eq!(failures(&throttler), 0);
    let failed = throttler
        .run("store", 3, async { Err::<(), _>("no") })
        .await;
    assert_eq!(failed, Err(RunError::Failed("no")));
    assert_eq!(failures(&throttler), 1);
    assert_eq!(throttler.stats()[0].pace().rate().tokens(), 9_000);
    assert_eq!(throttler.stats()[0].granted(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_counts_for_nothing_and_a_panic_is_an_error() {
    let throttler = throttler();
    let never = throttler.run("store", 1, std::future::pending::<Result<(), ()>>());
    assert!(
        tokio::time::timeout(Duration::from_secs(1), never)
            .await
            .is_err()
    );
    assert_eq!(failures(&throttler), 0);
    assert!(!throttler.stats()[0].is_degraded());

    let panics = {
        let throttler = throttler.clone();
        async move {
            let work = async { panic!("the work panics") };
            let _never: Result<(), RunError<()>> = throttler.run("store", 1, work).await;
        }
    };
    assert!(tokio::spawn(AssertUnwindSafe(panics).0).await.is_err());
    assert_eq!(failures(&throttler), 1);
    assert_eq!(throttler.stats()[0].pace().rate().tokens(), 9_000);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_makes_room_for_another() {
    let throttler = builder()
        .rate(1_000)
        .partition_rate(1)
        .degradation(
            Degradation::strict()
                .probes(1)
                .reset(Duration::from_secs(60)),
        )
        .build()
        .unwrap();
    let failed = throttler.run("store", 1, async { Err::<(), _>(()) }).await;
    assert_eq!(failed, Err(RunError::Failed(())));
    let refusal = throttler.run("store", 1, async { Ok::<(), ()>(()) }).await;
    let retry_after = Duration::from_secs(60);
    assert_eq!(
        refusal,
        Err(RunError::Refused(Refusal::CircuitOpen { retry_after }))
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    let never = throttler.run("store", 1, std::future::pending::<Result<(), ()>>());
    assert!(
        tokio::time::timeout(Duration::from_secs(2), never)
            .await
            .is_err()
    );
    let start = tokio::time::Instant::now();
    let done = throttler.run("store", 1, async { Ok::<(), ()>(()) }).await;
    assert_eq!(done, Ok(()));
    assert!(
        start.elapsed() <= Duration::from_secs(2),
        "it does not wait for the reset interval again"
    );
}

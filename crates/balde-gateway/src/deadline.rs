//! Timers for deadlines that are usually met.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for one deadline after another.
///
/// Most deadlines are met long before they pass, and setting a timer for each of them costs as much as
/// finding a connection. So the timer stays set to an earlier deadline. When that one passes, which
/// wakes a task once, the timer is set to the current one.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTimer(Option<Pin<Box<Sleep>>>);

impl DeadlineTimer {
    /// Ready once the deadline has passed.
    pub(crate) fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_deadline_is_kept_to_the_millisecond() {
        let start = Instant::now();
        let mut timer = DeadlineTimer::default();
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let deadline = Instant::now() + Duration::from_millis(random.u64(1..5_000));
            // Most are met.
            if random.u32(..4) != 0 {
                let met = Duration::from_millis(random.u64(..1_000));
                let waiting = poll_fn(|cx| timer.poll(deadline, cx));
                let _met_or_not = tokio::time::timeout(met, waiting).await;
                continue;
            }
            poll_fn(|cx| timer.poll(deadline, cx)).await;
            let late = Instant::now() - deadline;
            assert!(late <= Duration::from_millis(1), "{late:?}");
        }
        assert!(start.elapsed() > Duration::from_secs(100));
    }
}
